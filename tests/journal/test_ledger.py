"""The ledger is what the server received: in every script, after every fault, in children, cancelled and killed."""

import random
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from flat_agents import flat_agent
from journal.ledgered import FAMILIES, agent_of, purposes, run
from lab.failing import settled
from lab.test_fault_schedules import drawn_script
from tables import each
from turnwise import Journal, ModelLimits, StopReason
from turnwise.base.clock import SystemClock
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.errors import CallerError
from turnwise.journal.budgets import spending_of
from turnwise.journal.file import SQLITE
from turnwise.journal.ledger import Ledger, LedgerEntry, ReceivedResponse, _fate_of
from turnwise.journal.ledger_queries import (
    KEYS,
    By,
    ExactSum,
    LedgerSpan,
    Total,
    TurnBill,
    query_of,
    sum_of_totals,
)
from turnwise.journal.prices import Prices, read_prices
from turnwise.journal.turn_writer import RequestSent
from turnwise.lab import Lab, builtin_scripts
from turnwise.lab.provider import Received
from turnwise.lab.script import Script, ScriptedStep, load_scripts, parse_script
from turnwise.rules.limits import MaxRequests, MaxWallTime
from turnwise.rules.pricing import Cost
from turnwise.rules.provider_tool_costs import UNREAD
from turnwise.rules.retries import RetryPolicy
from turnwise.running.tools import Arguments, Tool
from turnwise.testing import FakeClock
from turnwise.turn.config import ToolOffer
from turnwise.vocab import Settings, ToolSpec, Usage
from wire.test_untold_counts import body, silent_shapes

MAX_STEPS = 5
SCHEDULES = 100
ROOM = list(load_scripts(Path(__file__).parents[1] / "lab" / "room").values())
PRICES = Prices(user=read_prices({"*": {"input": 2, "output": 8}}, named="the test", source="the test"))


def is_cut(step: ScriptedStep) -> bool:
    return step.finish == "length" or any(call.cut_after is not None for call in step.calls)


def purposes_by_lab(requests: Sequence[Received], *, script: Script) -> Counter[str]:
    """What each request was for, as far as the lab can tell: by its script, and by whether it got the same bytes again."""
    known: list[str] = []
    for before, one in pairwise([None, *requests]):
        assert one is not None
        said = None if before is None or before.step is None else script.steps[min(before.step, len(script.steps)) - 1]
        if before is not None and (before.path, before.body) == (one.path, one.body):
            known.append("retry")
        elif said is not None and before is not None and is_cut(said) and one.step == before.step:
            known.append("continue")
        elif said is not None and not (said.text or said.calls or said.refusal or said.reasoning or said.items):
            known.append("answer")  # it had said nothing, and was asked once more
        elif known.count("step") == MAX_STEPS:
            known.append("answer")  # it had called a tool where it was to answer
        else:
            known.append("step")
    return Counter(known)


@pytest.mark.costly
@pytest.mark.promise("bill:wire", "step:one-request")
@each("family", FAMILIES)
@each("name", [name for name, script in builtin_scripts().items() if script.steps], meeting="each")
async def test_the_ledger_counts_what_the_lab_received_in_every_script(name: str, family: str) -> None:
    """By purpose: the lab tells it by its own script and its own record, not by anything that it was sent."""
    script = builtin_scripts()[name]
    if not script.speaks(family):
        return
    lab = Lab()
    with Journal(None, clock=FakeClock()) as journal:
        result = await run(lab, name, family=family, max_steps=MAX_STEPS, journal=journal)
        assert len(result.ledger) == lab.count() == result.requests
        assert purposes(result) == purposes_by_lab(lab.requests, script=script) == Counter(result.requests_by_purpose)
        assert [entry.sent_bytes for entry in result.ledger] == [len(one.body) for one in lab.requests]
        assert all(entry.ended is not None and entry.outcome is not None for entry in result.ledger)
        assert journal.ledger.entries(LedgerSpan()) == list(result.ledger)


@pytest.mark.costly
@pytest.mark.promise("bill:wire")
@each("family", FAMILIES)
@each("name", [name for name, script in builtin_scripts().items() if script.writer])
async def test_the_ledger_counts_every_continuation_of_a_long_file(name: str, family: str) -> None:
    """With a limit that cuts what the lab's writer writes: one purpose for what goes on, whatever the family can."""
    lab = Lab()
    result = await run(lab, name, family=family, settings=Settings(max_output_tokens=4_000), max_steps=60)
    assert len(result.ledger) == lab.count() == result.requests
    assert purposes(result) == Counter(result.requests_by_purpose)
    if name in ("writer-file", "writer-answer") and family == "openai_chat":
        assert purposes(result)["continue"] >= 2
    counted = [one.usage for one in lab.requests]
    assert [entry.usage and entry.usage.output_tokens for entry in result.ledger] == [
        usage and usage.output_tokens for usage in counted
    ]


@pytest.mark.costly
@pytest.mark.promise("bill:wire")
async def test_the_ledger_counts_what_the_lab_received_under_random_faults() -> None:
    """Property: seeded schedules of faults, limits, retries and fallbacks; each entry has the lab's own bytes and model."""
    for seed in range(SCHEDULES):
        chance = random.Random(seed)
        scripts = [drawn_script(chance, name=name) for name in ("script", "other")]
        limits = chance.choice((None, None, MaxRequests(chance.randint(1, 6)), MaxWallTime(chance.randint(1, 90))))
        lab = Lab(scripts)
        result = await run(
            lab,
            "script",
            family=chance.choice(FAMILIES),
            stream=chance.random() < 0.7,
            limits=limits,
            retry=RetryPolicy(attempts=chance.randint(1, 5)),
            fallbacks=chance.choice(((), ("other",))),
            prices=PRICES,
        )
        sent = [(entry.model, entry.sent_bytes) for entry in result.ledger]
        assert sent == [(one.model, len(one.body)) for one in lab.requests], seed
        assert purposes(result) == Counter(result.requests_by_purpose), seed
        same = sum((one.path, one.body) == (other.path, other.body) for one, other in pairwise(lab.requests))
        assert same <= purposes(result)["retry"], seed
        given_up = {entry.number for entry in result.ledger if entry.discarded}
        retried = {entry.number - 1 for entry in result.ledger if entry.purpose == "retry"}
        assert retried <= given_up, seed
        whole = [entry for entry in result.ledger if entry.outcome == "ok" and not entry.discarded]
        counted = [entry for entry in whole if entry.usage is not None and UNREAD not in entry.price_note]
        assert all(entry.usd is not None for entry in counted), seed


@pytest.mark.costly
@pytest.mark.promise("bill:wire", "step:one-request")
async def test_summaries_are_in_the_ledger_under_their_own_purpose() -> None:
    """The lab knows a summary by what it answered itself."""
    lab, clock = Lab(ROOM), SystemClock()
    with Journal(None, clock=clock) as journal:
        agent = agent_of(
            lab,
            "remembers",
            family="openai_chat",
            clock=clock,
            journal=journal,
            tools=[parts()],
            max_steps=150,
            model_limits=ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000),
        )
        asked = "My cat is called Maunz. Begin with part-001.txt and read on."
        session = (await agent.run(asked)).session
        compact = [total for total in journal.ledger.totals(LedgerSpan(), by="purpose") if total.key == "compact"]
        assert [total.cost.requests for total in compact] == [sum(one.is_summary for one in lab.requests)]
        assert 0 < sum(one.is_summary for one in lab.requests) < 10
        everything = sum_of_totals(journal.ledger.totals(LedgerSpan(session=session), by="model"))
        assert everything is not None
        assert everything.cost.requests == lab.count()


def parts() -> Tool:
    async def read(arguments: Arguments) -> str:
        part = int(str(arguments["path"]).removeprefix("part-").removesuffix(".txt"))
        return f"part {part}\n" + "There is little of note here.\n" * 100 + f"the next part is part-{part + 1:03}.txt"

    return Tool(offer=ToolOffer(spec=ToolSpec(name="read", parameters='{"type":"object"}')), function=read)


DELEGATES = parse_script(
    """
title = "hands out two tasks"
[[steps]]
calls = [{ name = "task", arguments = { agent = "one", prompt = "a" } },
    { name = "task", arguments = { agent = "two", prompt = "b" } }]
[[steps]]
text = "They said: {results}"
""",
    name="delegates",
)


@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize("family", FAMILIES)
async def test_the_requests_of_sub_agents_stand_in_the_ledger_of_the_root(family: str) -> None:
    """Each with the path that leads to it; seen from the root they are `child`, and their cost is part of the bill."""
    lab, clock = Lab([DELEGATES]), FakeClock(now=1_700_000_000)
    with Journal(None, clock=clock) as journal:
        one = agent_of(lab, "plain-answer", family=family, clock=clock, journal=journal, prices=PRICES)
        two = agent_of(lab, "fault-once-503", family=family, clock=clock, journal=journal, prices=PRICES)
        root = agent_of(
            lab,
            "delegates",
            family=family,
            clock=clock,
            journal=journal,
            tools=[],
            agents={"one": one, "two": two},
            prices=PRICES,
        )
        result = await settled(root.run("Go."), clock=clock)
        assert purposes(result) == {"step": 2, "child": 3}
        assert lab.count() == 5
        assert sorted((entry.path, entry.purpose) for entry in result.ledger) == [
            *[((), "step")] * 2,
            (("one",), "step"),
            (("two",), "retry"),
            (("two",), "step"),
        ]
        assert {(entry.root_session, entry.root_turn) for entry in result.ledger} == {
            (result.session, result.ledger[0].turn)
        }
        tokens = [entry.usage for entry in result.ledger if entry.usage is not None]
        usd = sum((Decimal(2 * use.input_tokens + 8 * use.output_tokens) for use in tokens), Decimal(0)) / 1_000_000
        assert result.cost == Cost(usd=usd, requests=5)
        (total,) = journal.ledger.totals(LedgerSpan(session=result.session), by="session")
        assert (total.key, total.cost) == (result.session, result.cost)
        ledger = Ledger(root_session=result.session, root_turn=result.ledger[0].root_turn)
        for entry in result.ledger:
            ledger.put(entry)
        own = [entry.usd for entry in result.ledger if entry.turn == ledger.root_turn and entry.usd is not None]
        assert ledger.cost(turn=ledger.root_turn) == Cost(usd=sum(own, Decimal(0)), requests=2)
        known = spending_of(result.ledger, is_whole=True).known
        assert (known.requests, known.input_tokens) == (5, sum(use.input_tokens for use in tokens))
        assert known.output_tokens == sum(use.output_tokens for use in tokens) > 0


@pytest.mark.promise("bill:wire")
async def test_a_cancelled_request_is_in_the_ledger_and_its_price_is_unknown() -> None:
    """It left, and the provider may bill it: counted, never priced 0."""
    lab, clock = Lab(), FakeClock(now=1_700_000_000)
    agent = agent_of(lab, "fault-stall", family="anthropic_messages", clock=clock, prices=PRICES)
    run = agent.start("Go.")
    clock.call_later(3, run.interrupt)
    result = await settled(run, clock=clock)
    (entry,) = result.ledger
    assert (result.stop_reason, lab.count()) == (StopReason.CANCELLED, 1)
    assert (entry.outcome, entry.usd, entry.started, entry.ended) == ("cancelled", None, 1_700_000_000, 1_700_000_003)
    assert entry.received_bytes > 0
    assert result.cost == Cost(requests=1, unknown=1)
    assert result.cost_usd is None
    assert _fate_of(ReceivedResponse(cancelled=True, answered=False), usage=None) == "unheard"


async def test_without_a_journal_the_ledger_is_in_the_result() -> None:
    """Times, bytes, tokens, outcome and price of one request, whole."""
    lab = Lab()
    result = await run(lab, "plain-answer", family="openai_chat", prices=PRICES)
    (entry,), (received,) = result.ledger, lab.requests
    assert received.usage is not None and entry.usage is not None
    usd = Decimal(2 * received.usage.input_tokens + 8 * received.usage.output_tokens) / 1_000_000
    assert msgspec.structs.replace(entry, turn="", root_turn="", session="", root_session="", received_bytes=0) == (
        LedgerEntry(
            session="",
            turn="",
            root_session="",
            root_turn="",
            number=1,
            step=1,
            purpose="step",
            provider="openai_chat",
            model="plain-answer",
            started=1_700_000_000,
            first_event=1_700_000_000,
            ended=1_700_000_000,
            sent_bytes=len(received.body),
            outcome="ok",
            usage=entry.usage,
            plan="tokens",
            usd=usd,
            priced_by="table",
            price_note="the test",
            cache_saved_usd=Decimal(0),
            cache_write_usd=Decimal(0),
        )
    )
    assert entry.received_bytes > 100
    assert result.cost_usd == usd


async def test_a_plan_by_step_bills_a_step_once() -> None:
    """A refused attempt is not billed, its further one is, a continuation of the same step is not."""
    prices = Prices(user=read_prices({"*": {"step": "0.02"}}, named="the test", source="the test"))
    retried = await run(Lab(), "fault-once-503", family="openai_chat", prices=prices)
    assert [entry.usd for entry in retried.ledger] == [Decimal(0), Decimal("0.02")]
    continued = await run(Lab(), "cut-text", family="openai_chat", prices=prices)
    assert [(entry.purpose, entry.usd) for entry in continued.ledger] == [
        ("step", Decimal("0.02")),
        ("continue", Decimal(0)),
    ]


def entry(number: int, *, day: int = 0, **more: object) -> LedgerEntry:
    """One of a ledger that was never sent."""
    plain: dict[str, object] = {
        "session": "s1",
        "turn": "t1",
        "root_session": "s1",
        "root_turn": "t1",
        "step": number,
        "purpose": "step",
        "provider": "openai",
        "model": "m",
        "started": 1_700_000_000.0 + 86_400 * day,
        "sent_bytes": 10,
    }
    return LedgerEntry(number=number, **{**plain, **more})  # pyright: ignore[reportArgumentType]


def written(journal: Journal, *entries: LedgerEntry) -> None:
    for turn in sorted({one.turn for one in entries}):
        pen = journal.begin_turn(turn_id=turn, session_id=f"s{turn[1:]}", folder="/", title="go")
        for one in entries:
            if one.turn == turn:
                sent = RequestSent(
                    number=one.number, purpose=one.purpose, url="http://x", body_sha256="", body_bytes=10
                )
                pen.request_leaves(sent, one)
                pen.request_became(one)
        pen.write()


def test_totals_tell_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    """Sums are exact, unknown prices are counted apart, unfinished requests are counted, caches and retries told."""
    tenth, usage = Decimal("0.1"), Usage(input_tokens=100, output_tokens=10, cache_read_tokens=60)
    with Journal(tmp_path / "j.db", clock=FakeClock()) as journal:
        written(
            journal,
            *[entry(number, usd=tenth, ended=1_700_000_001.0, outcome="ok") for number in range(1, 4)],
            entry(4, purpose="retry", usd=Decimal("1E-12"), usage=usage, cache_saved_usd=Decimal("0.003")),
            entry(5, purpose="continue"),
        )
        (total,) = journal.ledger.totals(LedgerSpan(), by="model")
        assert total == Total(
            key="openai:m",
            cost=Cost(usd=Decimal("0.300000000001"), requests=5, unknown=1),
            again=Cost(usd=Decimal("1E-12"), requests=2, unknown=1),
            unfinished=2,
            input_tokens=100,
            output_tokens=10,
            reasoning_tokens=0,
            cache_read_tokens=60,
            cache_write_tokens=0,
            sent_bytes=50,
            received_bytes=0,
            seconds=3.0,
            cache_saved_usd=Decimal("0.003"),
            saved=Cost(),
            tokens_unknown=4,
        )
        assert (total.cost.exact_usd, total.tells_nothing) == (None, False)
        assert journal.ledger.totals(LedgerSpan(since=1_700_000_001), by="day") == []
        assert [one.key for one in journal.ledger.totals(LedgerSpan(), by="purpose")] == ["step", "continue", "retry"]


def test_an_entry_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Every field, from another opening of the file."""
    whole = entry(
        1,
        path=("scout", "a/b"),
        retry_of="continue",
        first_event=1_700_000_000.5,
        ended=1_700_000_001.0,
        received_bytes=99,
        outcome="overloaded",
        discarded=True,
        calls=2,
        programs=1,
        program_calls=7,
        usage=Usage(
            input_tokens=5,
            output_tokens=4,
            reasoning_tokens=3,
            cache_read_tokens=2,
            cache_write_tokens=1,
            provider='{"x":1}',
        ),
        plan="tokens",
        usd=Decimal("0.000000012345678901234567890123"),
        priced_by="provider",
        price_note="it",
        cache_saved_usd=Decimal("-1.5"),
        cache_write_usd=Decimal("1.75"),
        cache_missed_tokens=4_096,
    )
    assert all(
        getattr(whole, name) != default for name, default in msgspec.structs.asdict(entry(1)).items() if not default
    )
    with Journal(tmp_path / "j.db", clock=FakeClock()) as journal:
        written(journal, whole, entry(2))
    with Journal(tmp_path / "j.db", clock=FakeClock()) as journal:
        assert journal.ledger.entries(LedgerSpan()) == [whole, entry(2)]


def test_a_request_and_its_entry_are_written_both_or_none(tmp_path: Path) -> None:
    """A turn that another process took over sends nothing more: neither the record nor the entry is there."""
    sent = RequestSent(number=1, purpose="step", url="http://x", body_sha256="", body_bytes=10)
    with Journal(tmp_path / "j.db", clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t1", session_id="s1", folder="/", title="go")
        pen.abandon()
        with pytest.raises(CallerError, match="taken this turn over"):
            pen.request_leaves(sent, entry(1))
        assert (journal.entries("t1"), journal.ledger.entries(LedgerSpan())) == ([], [])


@pytest.mark.parametrize("by", KEYS)
def test_the_queries_of_usage_find_their_entries_by_an_index(by: By, tmp_path: Path) -> None:
    """Proves: no query by time or session reads the whole table, so a ledger of years costs what was asked for."""
    with Journal(tmp_path / "j.db", clock=FakeClock()):
        pass
    connection = sqlite3.connect(tmp_path / "j.db")
    connection.create_aggregate("exact_sum", -1, ExactSum)  # pyright: ignore[reportArgumentType]
    for span, index in ((LedgerSpan(since=5), "request_by_time"), (LedgerSpan(session="s1"), "request_by_session")):
        query, values = query_of(by, span=span, dialect=SQLITE)
        plan = [str(row[3]) for row in connection.execute(f"explain query plan {query}", values)]
        assert any(line.startswith(f"SEARCH request USING INDEX {index}") for line in plan), plan
    connection.close()


FINE = Decimal("0.0000000000000000001")  # finer than the column of whole numbers
BY_REQUEST = Prices(user=read_prices({"*": {"request": "0.01"}}, named="the test", source="the test"))


async def test_plans_by_request_show_what_one_request_a_call_would_have_cost() -> None:
    """Ten reads in one response take two requests; one for each call would take eleven."""
    reads = ", ".join([f'{{ name = "read", arguments = {{ path = "{n}" }} }}' for n in range(10)])
    script = parse_script(f'title = "reads"\n[[steps]]\ncalls = [{reads}]\n[[steps]]\ntext = "Read."\n', name="reads")
    with Journal(None, clock=FakeClock()) as journal:
        result = await run(Lab([script]), "reads", family="openai_chat", journal=journal, prices=BY_REQUEST)
        (bill,) = journal.ledger.bills_by_request(LedgerSpan())
    assert msgspec.structs.replace(bill, turn="", started=0) == TurnBill(
        turn="",
        session=result.session,
        started=0,
        cost=Cost(usd=Decimal("0.02"), requests=2),
        calls=10,
        program_calls=0,
        one_a_call_requests=11,
        one_a_call_usd=Decimal("0.11"),
        saved=Cost(usd=Decimal("0.09"), requests=9),
    )


async def test_retries_are_no_saving_and_no_loss() -> None:
    """They would have been made with one request for each call as well, and so would continuations."""
    for name in ("fault-once-503", "cut-call", "plain-answer"):
        with Journal(None, clock=FakeClock()) as journal:
            await run(Lab(), name, family="openai_chat", journal=journal, prices=BY_REQUEST)
            (bill,) = journal.ledger.bills_by_request(LedgerSpan())
            assert (bill.saved.requests, bill.one_a_call_requests) == (0, bill.cost.requests), name


@pytest.mark.promise("bill:saved")
def test_what_programs_called_is_a_saving_at_the_price_of_their_request(tmp_path: Path) -> None:
    """Proves: the query and the entries say the same, exactly, for programs that called nothing (a loss), for a program
    that an approval began before the first request of its turn, for other plans and for requests of unknown price."""
    cent = Decimal("0.01")
    asked: dict[str, object] = {"outcome": "ok", "ended": 1_700_000_001.0, "plan": "request", "usd": cent}
    entries = [
        entry(1, calls=2, programs=1, program_calls=5, **asked),
        entry(2, calls=1, programs=1, program_calls=0, **asked),
        entry(3, **asked),
        entry(1, turn="t2", session="s2", root_turn="t2", root_session="s2", programs=1, program_calls=4, **asked),
        entry(1, turn="t3", session="s3", root_turn="t3", root_session="s3", calls=3, **{**asked, "plan": "tokens"}),
        entry(1, turn="t4", session="s4", root_turn="t4", root_session="s4", calls=3, **{**asked, "usd": None}),
        entry(1, turn="t6", session="s6", root_turn="t6", root_session="s6", calls=3, **{**asked, "usd": Decimal(7)}),
        entry(1, turn="t7", session="s7", root_turn="t7", root_session="s7", calls=3, **{**asked, "usd": FINE}),
        entry(1, turn="t5", session="s5", root_turn="t5", root_session="s5", calls=9, **{**asked, "outcome": "server"}),
    ]
    assert [one.saved_requests for one in entries] == [5, -1, 0, 3, 2, 2, 2, 2, 0]
    with Journal(tmp_path / "j.db", clock=FakeClock()) as journal:
        written(journal, *entries)
        bills = {bill.turn: bill for bill in journal.ledger.bills_by_request(LedgerSpan())}
        (total,) = journal.ledger.totals(LedgerSpan(), by="model")
    assert {turn: (bill.calls, bill.program_calls, bill.saved) for turn, bill in bills.items()} == {
        "t1": (6, 5, Cost(usd=4 * cent, requests=4)),
        "t2": (3, 4, Cost(usd=3 * cent, requests=3)),
        "t4": (3, 0, Cost(requests=2, unknown=2)),
        "t5": (0, 0, Cost()),
        "t6": (3, 0, Cost(usd=Decimal(14), requests=2)),
        "t7": (3, 0, Cost(usd=2 * FINE, requests=2)),
    }
    assert [bills[turn].one_a_call_usd for turn in ("t1", "t2", "t4")] == [7 * cent, 4 * cent, None]
    assert total.saved == Cost(usd=7 * cent + 14 + 2 * FINE, requests=13, unknown=2)


class Says:
    """A transport that answers every request with one body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpReply]:
        async def chunks() -> AsyncGenerator[bytes]:
            yield self._body

        yield HttpReply(status=200, headers={"content-type": "application/json"}, chunks=chunks())


@pytest.mark.costly
@pytest.mark.promise("bill:plans")
@each("family", FAMILIES)
@each("shape", silent_shapes("openai_chat"))
async def test_silent_usage_is_unknown_in_ledger_journal_and_cost(family: str, shape: str) -> None:
    """Of every family and shape: nobody is told that a request cost nothing. Counts that nobody told are null in the journal."""
    clock = FakeClock(now=1_700_000_000)
    with Journal(None, clock=clock) as journal:
        agent = flat_agent(
            f"{family}:m",
            base_url="http://lab.invalid",
            transport=Says(body(family, silent_shapes(family)[shape])),
            stream=False,
            prices=PRICES,
            journal=journal,
            clock=clock,
        )
        result = await settled(agent.run("x"), clock=clock)
        (entry,) = result.ledger
        assert (entry.usd, result.cost_usd, result.cost.unknown) == (None, None, 1)
        assert "not" in entry.price_note
        assert entry.usage is None or entry.usage.untold
        assert journal.ledger.entries(LedgerSpan()) == [entry]
