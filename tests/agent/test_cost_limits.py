"""A limit of cost through the library's face and the lab, in every family, by the lab's own count of tokens."""

import asyncio
from decimal import Decimal

import pytest

from flat_agents import flat_agent
from turnwise import (
    Agent,
    CallerError,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxToolCalls,
    ModelLimits,
    RetryPolicy,
    RunResult,
    StepChanges,
    StopReason,
    tool,
)
from turnwise.journal.prices import Prices, read_prices
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import Script, parse_script
from turnwise.rules.pricing import ZERO
from turnwise.running.watcher_events import ChildSeen, ToolStarted, WatcherEvent
from turnwise.testing import FakeClock
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = pytest.mark.parametrize("family", FAMILIES)
IN, OUT = Decimal(3), Decimal(15)  # US dollars per million tokens
MILLION = Decimal(1_000_000)
BY_TOKEN = {"input": "3", "output": "15"}

BREAKS_OFF = 'title = "is reset each time"\n[[steps]]\nfault = { kind = "reset", at = "headers" }\n'


@tool(effect="read")
def search(pattern: str) -> str:
    """Search."""
    return f"nothing about {pattern}"


def prices(**rows: object) -> Prices:
    named = {name.replace("_", "-"): row for name, row in rows.items()}
    return Prices(user=read_prices(named or {"*": BY_TOKEN}, named="the test's prices", source="test"))


def agent_of(lab: Lab, script: str, *, family: str = "openai_chat", **options: object) -> Agent:
    return flat_agent(  # pyright: ignore[reportArgumentType]
        f"{family}:{script}",
        base_url="http://127.0.0.1:9/v1",
        transport=lab.transport(),
        **{"prices": prices(), **options},  # pyright: ignore[reportArgumentType]
    )


def cost_of(received: Received, *, output_only: bool = False) -> Decimal:
    """By the lab's own count."""
    if received.usage is None:
        return ZERO
    output = received.usage.output_tokens * OUT / MILLION
    return output if output_only else output + received.usage.input_tokens * IN / MILLION


@each_family
@pytest.mark.promise("end:budget", "end:forced-answer")
@pytest.mark.parametrize("usd", ["0.0065", "0.02", "0.035", "0.05", "0.08"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_limit_of_cost_is_kept_and_ends_with_the_models_answer(usd: str, family: str, stream: bool) -> None:
    """A model that never stops: never over by more than the last request's own output, and the last one is the answer."""
    lab = Lab()
    agent = agent_of(lab, "never-stops", family=family, stream=stream, tools=[search], max_steps=100)
    result = await agent.run("Look for it.", limits=MaxSteps(100) | MaxCost(Decimal(usd)))
    spent = sum([cost_of(one) for one in lab.requests], ZERO)
    assert [one.refused for one in lab.requests if one.refused] == []
    assert spent <= Decimal(usd) + cost_of(lab.requests[-1], output_only=True)
    assert spent == result.cost_usd
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.BUDGET, False, False)
    assert 1 <= result.requests == lab.count() < 100


@each_family
@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("usd", ["0.02", "0.05", "0.15"])
async def test_a_dearer_tier_is_foreseen_where_the_guess_ends_just_below_it(usd: str, family: str) -> None:
    """Proves: the prompt of the second request is guessed at some 2,990 tokens and has 3,190; above 3,000 all are 20 times as
    dear: the limit is not overshot by them."""
    lab = Lab()
    dear = {"tokens": 3000, "input": "60", "output": "300"}
    agent = agent_of(lab, "writer-answer", family=family, prices=prices(writer_answer={**BY_TOKEN, "above": [dear]}))
    result = await agent.run("Hello.", limits=MaxSteps(100) | MaxCost(Decimal(usd)))
    assert result.cost_usd is not None and result.text
    used = [one.usage for one in lab.requests if one.usage is not None]
    last_output = used[-1].output_tokens * (300 if used[-1].input_tokens > 3000 else OUT) / MILLION
    assert result.cost_usd <= Decimal(usd) + last_output


async def requests_under(usd: str, row: dict[str, object]) -> tuple[int, StopReason, bool]:
    lab = Lab()
    agent = agent_of(lab, "never-stops", tools=[search], max_steps=100, prices=prices(never_stops=row))
    result = await agent.run("Look.", limits=MaxSteps(100) | MaxCost(Decimal(usd)))
    assert lab.count() == result.requests and result.cost_usd is not None and result.cost_usd <= Decimal(usd)
    return result.requests, result.stop_reason, result.written_locally


@pytest.mark.promise("end:budget", "bill:plans")
async def test_plans_by_request_and_by_step_are_kept_to_the_cent() -> None:
    """So many requests as the money pays for, the last one the answer; where it pays for none, the answer is ours."""
    assert await requests_under("0.05", {"request": "0.01"}) == (5, StopReason.BUDGET, False)
    assert await requests_under("0.059", {"request": "0.01"}) == (5, StopReason.BUDGET, False)
    assert await requests_under("0.05", {"step": "0.02"}) == (2, StopReason.BUDGET, False)
    assert await requests_under("0.009", {"request": "0.01"}) == (0, StopReason.BUDGET, True)
    assert (await requests_under("0.01", {"free": True}))[1:] == (StopReason.STEP_LIMIT, False)


@each_family
@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("usd", ["0.04", "0.15"])
async def test_an_answer_ends_where_the_money_does(usd: str, family: str) -> None:
    """30,000 tokens are wanted, at most so many are asked for as the limit pays for."""
    lab = Lab()
    known = ModelLimits(max_output_tokens=64_000)
    agent = agent_of(lab, "writer-answer", family=family, recover="off", model_limits=known)
    result = await agent.run("Write it, please.", limits=MaxSteps(100) | MaxCost(Decimal(usd)))
    spent = sum([cost_of(one) for one in lab.requests], ZERO)
    guessed = 64 * IN / MILLION  # the first prompt has been counted by nobody
    assert Decimal(usd) * Decimal("0.85") <= spent <= Decimal(usd) + guessed
    assert (result.complete, result.written_locally) == (False, False)


@pytest.mark.promise("end:budget", "bill:plans")
@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Prices(), "nobody knows beforehand what `never-stops` costs at `openai_chat`"),
        (prices(other=BY_TOKEN), "`never-stops`"),
        (prices(never_stops=BY_TOKEN), "`other-model`"),
    ],
)
async def test_a_limit_that_cannot_hold_is_refused_before_anything_is_sent(known: Prices, said: str) -> None:
    """An unknown price, of the model or of its fallback, is never taken for 0; without such a limit it is no matter."""
    lab = Lab()
    agent = agent_of(lab, "never-stops", tools=[search], fallbacks=["other-model"], prices=known)
    with pytest.raises(CallerError, match=r"\[prices\] in turnwise.toml") as raised:
        await agent.run("Look.", limits=MaxCost(Decimal("0.10")) | MaxRequests(3))
    assert said in str(raised.value)
    assert lab.count() == 0
    assert (await agent.run("Look.", limits=MaxRequests(2))).requests == 2


@pytest.mark.promise("end:budget")
async def test_a_model_that_a_step_chooses_counts_at_its_own_price() -> None:
    """It is a hundred times as dear: the step that would go becomes the answer. One without a price is refused."""
    lab = Lab()
    rows = prices(never_stops={"request": "0.001"}, never_stops_disobeys={"request": "0.10"})
    agent = agent_of(lab, "never-stops", tools=[search], prices=rows)
    chosen = StepChanges(model="never-stops-disobeys")
    result = await agent.run(
        "Look.",
        limits=MaxCost(Decimal("0.12")),
        steps={"prepare_step": lambda view: chosen if view.step == 2 else None},
    )
    assert [one.model for one in lab.requests] == ["never-stops", "never-stops-disobeys"]
    assert (result.requests, result.stop_reason, result.cost_usd) == (2, StopReason.BUDGET, Decimal("0.101"))
    with pytest.raises(CallerError, match="`plain-answer`"):
        await agent.run(
            "Look.",
            limits=MaxCost(Decimal("1")),
            steps={"prepare_step": lambda _: StepChanges(model="plain-answer")},
        )


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(("usd", "fallbacks"), [("0.10", 0), ("0.101", 1), ("0.30", 2), ("0.301", 3)])
async def test_a_fallback_counts_at_its_own_price(usd: str, fallbacks: int) -> None:
    """It is a hundred times as dear as the model that failed: so many of its requests as are left of the money, no more."""
    lab = Lab()
    rows = prices(fault_500={"request": "0.001", "bills_errors": True}, never_stops={"request": "0.10"})
    retry = RetryPolicy(attempts=1)
    agent = agent_of(lab, "fault-500", tools=[search], prices=rows, retry=retry, fallbacks=["never-stops"])
    result = await agent.run("Look.", limits=MaxSteps(100) | MaxCost(Decimal(usd)))
    assert [one.model for one in lab.requests] == ["fault-500", *["never-stops"] * fallbacks]
    assert result.cost_usd == Decimal("0.001") + fallbacks * Decimal("0.10") <= Decimal(usd)


@pytest.mark.promise("end:budget", "wait:retry")
@pytest.mark.parametrize(("usd", "requests"), [("0.01", 1), ("0.03", 2), ("10", 3)])
async def test_requests_that_broke_off_count_as_they_were_projected(usd: str, requests: int) -> None:
    """Nobody says what they cost, $0.015 and the prompt each: they are not free, and the ledger says that it is unknown."""
    lab = Lab([parse_script(BREAKS_OFF, name="breaks-off")])
    clock = FakeClock()
    agent = agent_of(lab, "breaks-off", clock=clock, retry=RetryPolicy(attempts=3))
    task = asyncio.create_task(agent.run("Go.", limits=MaxSteps(100) | MaxCost(Decimal(usd))))
    for _ in range(100):
        if task.done():
            break
        await clock.advance(5.0)
    result = await asyncio.wait_for(task, HANG_S)
    assert (result.requests, lab.count(), result.stop_reason) == (requests, requests, StopReason.PROVIDER_FAILED)
    assert (result.cost.usd, result.cost.unknown, result.cost_usd) == (ZERO, requests, None)


# children


def delegates(agent: str, *, name: str) -> Script:
    calls = f'{{ name = "task", arguments = {{ agent = "{agent}", prompt = "do it" }} }}'
    return parse_script(
        f'title = "hands on"\n[[steps]]\ncalls = [{calls}, {calls}]\n[[steps]]\ntext = "They said: {{results}}"\n',
        name=name,
    )


def tree(lab: Lab, *, family: str = "openai_chat", **root: object) -> Agent:
    """Three levels: the root starts two, each of them two more, which never stop."""
    leaf = agent_of(lab, "never-stops", family=family, tools=[search], max_steps=100)
    middle = agent_of(lab, "middle", family=family, agents={"leaf": leaf})
    return agent_of(lab, "root", family=family, agents={"middle": middle}, **root)


def charged(result: RunResult) -> list[Decimal | None]:
    return [child.charged_usd for child in result.children]


@each_family
@pytest.mark.promise("end:budget", "bill:wire")
@pytest.mark.parametrize("usd", ["0.05", "0.2", "0.4"])
async def test_children_draw_on_the_money_of_the_root_three_deep(usd: str, family: str) -> None:
    """The whole tree stays within the limit, but for one output, and the root answers itself."""
    lab = Lab([delegates("leaf", name="middle"), delegates("middle", name="root")])
    result = await tree(lab, family=family, limits=MaxSteps(100) | MaxCost(Decimal(usd))).run("Go.")
    spent = sum([cost_of(one) for one in lab.requests], ZERO)
    assert spent <= Decimal(usd) + max(cost_of(one, output_only=True) for one in lab.requests)
    assert spent == result.cost_usd
    own = sum([entry.usd or ZERO for entry in result.ledger if not entry.path], ZERO)
    assert sum([one or ZERO for one in charged(result)], ZERO) == spent - own
    assert None not in charged(result)
    assert (result.written_locally, lab.count()) == (False, len(result.ledger))


@each_family
@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("requests", [5, 12, 30])
async def test_children_are_in_the_limit_of_requests_three_deep(requests: int, family: str) -> None:
    """Never more, and an answer of the model's at the end."""
    lab = Lab([delegates("leaf", name="middle"), delegates("middle", name="root")])
    result = await tree(lab, family=family, limits=MaxRequests(requests)).run("Go.")
    assert 2 <= lab.count() == len(result.ledger) <= requests
    assert (bool(result.text.strip()), result.written_locally) == (True, False)


@each_family
@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("calls", [1, 4, 9, 30])
async def test_children_are_in_the_limit_of_tool_calls_three_deep(calls: int, family: str) -> None:
    """By the tools' own count, with the tasks themselves; and an answer of the model's at the end."""
    ran: list[str] = []

    @tool(name="search", effect="read")
    def counted(pattern: str) -> str:
        """Search."""
        ran.append(pattern)
        return "nothing"

    lab = Lab([delegates("leaf", name="middle"), delegates("middle", name="root")])
    leaf = agent_of(lab, "never-stops", family=family, tools=[counted], max_steps=100)
    middle = agent_of(lab, "middle", family=family, agents={"leaf": leaf})
    root = agent_of(lab, "root", family=family, agents={"middle": middle}, limits=MaxToolCalls(calls), max_subagents=9)
    tasks = 0

    def watch(event: WatcherEvent) -> None:
        nonlocal tasks
        inner = event
        while isinstance(inner, ChildSeen):
            inner = inner.seen
        tasks += isinstance(inner, ToolStarted) and inner.call.name == "task"

    result = await root.run("Go.", watch=watch)
    assert len(ran) + tasks <= calls
    assert len(ran) + tasks >= min(calls, 9) - 4, "what is left over does not divide among so many"
    assert (bool(result.text.strip()), result.written_locally) == (True, False)


@pytest.mark.promise("end:budget", "bill:plans")
async def test_a_child_of_unknown_price_is_refused_at_the_start() -> None:
    """However deep it stands; nothing is sent."""
    lab = Lab([delegates("leaf", name="middle"), delegates("middle", name="root")])
    leaf = agent_of(lab, "never-stops", prices=Prices(), tools=[search])
    middle = agent_of(lab, "middle", agents={"leaf": leaf})
    root = agent_of(lab, "root", agents={"middle": middle}, limits=MaxCost(Decimal("1")))
    with pytest.raises(CallerError, match="`never-stops`"):
        await root.run("Go.")
    assert lab.count() == 0
