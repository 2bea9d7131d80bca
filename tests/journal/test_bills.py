"""The ledger against the lab's own bill: each price is equal to it, or unknown, and never wrong (issue 14, done when 4)."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import get_args

import pytest

from flat_agents import flat_agent
from journal.billing_lab import ROWS, Billed, Plan, Shape, billing_lab
from journal.ledgered import DEADLINES, FAMILIES, tools
from journal.test_ledger import DELEGATES, ROOM, parts
from journal.test_never_left import Shaky
from lab.failing import settled
from lab.test_fault_schedules import drawn_script
from tables import each
from thoroughness import rounds
from turnwise import Agent, Journal, MaxCost, MaxRequests, ModelLimits, Prices, RunResult, read_prices
from turnwise.endpoints.transport import Transport
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.lab import builtin_scripts
from turnwise.rules.retries import RetryPolicy
from turnwise.testing import FakeClock
from turnwise.vocab import Settings

SHAPES: tuple[Shape, ...] = ("whole",) * 6 + get_args(Shape)
SEEDS = 150


def prices_of(plan: Plan) -> Prices:
    return Prices(user=read_prices({"*": ROWS[plan]}, named="test", source="test"))


def assert_steps_billed(result: RunResult, bill: Sequence[Billed], *, seed: object) -> int:
    """Each step of the lab's own count costs what it billed for it, or less by what is unknown. How many prices are known."""
    of_model: defaultdict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in result.ledger:
        of_model[entry.model].append(entry)
    steps: defaultdict[object, list[tuple[LedgerEntry, Billed]]] = defaultdict(list)
    for one in bill:
        assert of_model[one.model], (seed, one)
        entry = of_model[one.model].pop(0)
        assert entry.sent_bytes == one.sent_bytes, (seed, entry, one)
        steps[one.step].append((entry, one))
    assert not any(of_model.values()), seed
    for pairs in steps.values():
        ours = [entry.usd for entry, _ in pairs]
        known, theirs = [usd for usd in ours if usd is not None], sum([one.usd for _, one in pairs], Decimal(0))
        told = [(entry.usd, entry.outcome, entry.discarded, entry.step, one.usd, one.step) for entry, one in pairs]
        assert sum(known, Decimal(0)) == theirs or (None in ours and not any(known)), (seed, told)
        assert sum([usd > 0 for usd in known]) <= 1, (seed, told)
    return sum([entry.usd is not None for entry in result.ledger])


def assert_billed(result: RunResult, bill: Sequence[Billed], *, plan: Plan, seed: object) -> int:
    """As `assert_steps_billed` or `assert_requests_billed`, by the plan."""
    judge = assert_steps_billed if plan == "step" else assert_requests_billed
    return judge(result, bill, seed=seed)


def assert_requests_billed(result: RunResult, bill: Sequence[Billed], *, seed: object) -> int:
    """Each row is one that the lab billed, at its price or an unknown one; and so is the sum. How many prices are known."""
    ours: defaultdict[tuple[str, int], list[LedgerEntry]] = defaultdict(list)
    theirs: defaultdict[tuple[str, int], Counter[Decimal]] = defaultdict(Counter)
    for entry in result.ledger:
        ours[entry.model, entry.sent_bytes].append(entry)
    for one in bill:
        theirs[one.model, one.sent_bytes][one.usd] += 1
    assert {key: len(rows) for key, rows in ours.items()} == {key: rows.total() for key, rows in theirs.items()}, seed
    for key, rows in ours.items():
        known = Counter([row.usd for row in rows if row.usd is not None])
        told = [(row.usd, row.usage, row.outcome, row.discarded, row.received_bytes) for row in rows]
        assert known <= theirs[key], (seed, key, told, [one for one in bill if (one.model, one.sent_bytes) == key])
    known = [entry.usd for entry in result.ledger if entry.usd is not None]
    assert (result.cost.usd, result.cost.unknown) == (sum(known, Decimal(0)), len(result.ledger) - len(known)), seed
    if len(known) == len(bill):
        assert result.cost_usd == sum([one.usd for one in bill], Decimal(0)), seed
    return len(known)


@pytest.mark.costly
@pytest.mark.promise("bill:wire", "bill:plans")
@each("plan", get_args(Plan))
@each("family", FAMILIES, meeting="each")
async def test_each_price_is_the_labs_or_unknown(family: str, plan: Plan) -> None:
    """Property: seeded schedules of faults, retries and fallbacks, of connections that never come up and turns that are
    cancelled, with usage of every shape, searches and cached tokens; in the result and in the journal."""
    known = rows = 0
    for seed in rounds(SEEDS, check=30):
        chance = random.Random(f"{family} {plan} {seed}")
        scripts = [drawn_script(chance, name=name) for name in ("script", "other")]
        transport, provider, received = billing_lab(scripts, plan=plan, shapes=SHAPES, chance=chance)
        clock = FakeClock(now=1_700_000_000)
        with Journal(None, clock=clock) as journal:
            agent = flat_agent(
                f"{family}:script",
                base_url="http://lab.invalid",
                transport=Shaky(transport, chance=chance) if chance.random() < 0.5 else transport,
                clock=clock,
                tools=tools(["note"]),
                deadlines=DEADLINES,
                stream=chance.random() < 0.6,
                limits=chance.choice(
                    (None, MaxRequests(chance.randint(1, 6)), MaxCost(chance.randint(1, 80) * Decimal("0.001")))
                ),
                retry=RetryPolicy(attempts=chance.randint(1, 5)),
                fallbacks=chance.choice(((), ("other",))),
                prices=prices_of(plan),
                journal=journal,
            )
            run = agent.start("Please.")
            if chance.random() < 0.3:
                clock.call_later(chance.choice((0.1, 1, 5, 15)), run.interrupt)
            result = await settled(run, clock=clock)
            assert len(result.ledger) == len(received) == result.requests, seed
            known += assert_billed(result, provider.bill, plan=plan, seed=seed)
            rows += len(provider.bill)
            assert journal.ledger.entries(LedgerSpan()) == list(result.ledger), seed
    assert known > rows / 6, (known, rows)  # or nothing would be proven


def agent_of(family: str, name: str, *, transport: Transport, **options: object) -> Agent:
    given: dict[str, object] = {"tools": tools(), "deadlines": DEADLINES, "prices": prices_of("tokens"), **options}
    return flat_agent(f"{family}:{name}", base_url="http://lab.invalid", transport=transport, **given)  # pyright: ignore[reportArgumentType]


@pytest.mark.costly
@pytest.mark.promise("bill:wire", "bill:plans")
@each("family", FAMILIES)
@each("plan", ["tokens", "step"])
@each(
    "name",
    ["writer-file", "writer-answer", "empty-answer", "cut-call", "retry-after-split", "plain-answer"],
    meeting="each",
)
async def test_continuations_and_further_answers_are_billed_as_the_lab_bills_them(
    family: str, name: str, plan: Plan
) -> None:
    """Requests that go on with what a limit cut, and those that ask for the answer again."""
    script = builtin_scripts().get(name)
    if script is None or not script.speaks(family):
        return
    for seed in range(6):
        chance = random.Random(f"{family} {name} {seed}")
        transport, provider, _ = billing_lab([script], plan=plan, shapes=SHAPES, chance=chance)
        clock = FakeClock(now=1_700_000_000)
        settings = Settings(max_output_tokens=4_000) if script.writer else Settings()
        agent = agent_of(
            family,
            name,
            transport=transport,
            clock=clock,
            settings=settings,
            max_steps=20,
            stream=seed % 2 == 0,
            prices=prices_of(plan),
        )
        result = await settled(agent.run("Please."), clock=clock)
        assert_billed(result, provider.bill, plan=plan, seed=(family, name, seed))


@pytest.mark.promise("bill:wire", "bill:plans")
@each("plan", ["tokens", "step"])
@each("family", FAMILIES, meeting="each")
async def test_sub_agents_are_billed_as_the_lab_bills_them(family: str, plan: Plan) -> None:
    """In the root's ledger, with the retry of one of them."""
    scripts = [DELEGATES, *[builtin_scripts()[name] for name in ("plain-answer", "fault-once-503")]]
    for seed in rounds(20, check=6):
        chance = random.Random(f"{family} {seed}")
        transport, provider, _ = billing_lab(scripts, plan=plan, shapes=SHAPES, chance=chance, turns="each model")
        clock = FakeClock(now=1_700_000_000)
        one, two = [
            agent_of(family, name, transport=transport, clock=clock, prices=prices_of(plan))
            for name in ("plain-answer", "fault-once-503")
        ]
        root = agent_of(
            family,
            "delegates",
            transport=transport,
            clock=clock,
            tools=[],
            agents={"one": one, "two": two},
            prices=prices_of(plan),
        )
        result = await settled(root.run("Go."), clock=clock)
        assert len(result.ledger) >= 5
        assert_billed(result, provider.bill, plan=plan, seed=(family, seed))


@pytest.mark.promise("bill:wire", "bill:plans")
@pytest.mark.parametrize("shapes", [("whole",), SHAPES])
async def test_summaries_are_billed_as_the_lab_bills_them(shapes: tuple[Shape, ...]) -> None:
    """A session that is summarised on its way, with usage that counts and with usage of every shape."""
    chance = random.Random(1)
    transport, provider, received = billing_lab(ROOM, plan="tokens", shapes=shapes, chance=chance)
    agent = agent_of(
        "openai_chat",
        "remembers",
        transport=transport,
        tools=[parts()],
        max_steps=150,
        model_limits=ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000),
    )
    result = await agent.run("My cat is called Maunz. Begin with part-001.txt and read on.")
    assert sum(one.is_summary for one in received) > 0
    assert assert_billed(result, provider.bill, plan="tokens", seed=shapes) > 10


@pytest.mark.promise("bill:wire", "bill:plans")
async def test_by_step_a_summary_is_billed_with_the_step_that_it_makes_room_for() -> None:
    """Each request of that session is answered, so it costs one step for each response that is no summary."""
    transport, _, received = billing_lab(ROOM, plan="step", shapes=("whole",), chance=random.Random(1))
    agent = agent_of(
        "openai_chat",
        "remembers",
        transport=transport,
        tools=[parts()],
        max_steps=150,
        model_limits=ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000),
        prices=prices_of("step"),
    )
    result = await agent.run("My cat is called Maunz. Begin with part-001.txt and read on.")
    summaries = sum(one.is_summary for one in received)
    assert summaries > 0 and {one.status for one in received} == {200}
    assert result.cost_usd == (len(received) - summaries) * Decimal("0.02")
