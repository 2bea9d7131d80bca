"""Sub-agents that a program starts: on the turn's purse, in its ledger, asking at its root, ended with it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import pytest

from agent.test_children import ATTENDED, WRITES, agent_of, put, said_by
from turnwise import Agent, Journal, MaxCost, MaxRequests, Prices, StopReason, read_prices, tool
from turnwise.base.clock import SystemClock
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.lab import Lab
from turnwise.lab.script import Script, parse_script
from turnwise.rules.pricing import Cost
from turnwise.running.approvals import Asking
from turnwise.turn.config import Approval
from waits import HANG_S

CENT = Decimal("0.01")
BY_REQUEST = Prices(user=read_prices({"*": {"request": "0.01"}}, named="the test", source="the test"))
TOGETHER = 'print(*await asyncio.gather(*[task(agent="one", prompt="do %d" % n) for n in range(3)]), sep="\\n")'
ONE_BY_ONE = """
for number in range(20):
    try:
        print(task(agent="one", prompt="do %d" % number)[:5])
    except RuntimeError as error:
        print(str(error)[:7])
        break
"""


def programs(program: str, *, name: str = "programs") -> Script:
    """One response is this program; then it repeats what it was told."""
    text = f"""
title = "a program, then what it printed"
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = '''
{program}'''
[[steps]]
text = "It printed: {{result}}"
"""
    return parse_script(text, name=name)


def root_of(lab: Lab, child: Agent, **options: object) -> Agent:
    return agent_of(lab, "programs", agents={"one": child}, script=True, **options)


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
@pytest.mark.promise("bill:wire", "bill:saved")
async def test_what_they_spend_stands_in_the_ledger_with_their_path(family: str) -> None:
    """Proves: three sub-agents of one program: the lab's count is the ledger's, each request with the path that leads to it,
    their sessions are found by the call inside the program, and the saving counts them as the three calls that they are."""
    lab, clock = Lab([programs(TOGETHER)]), SystemClock()
    with Journal(None, clock=clock) as journal:
        child = agent_of(lab, "plain-answer", family=family, journal=journal, prices=BY_REQUEST)
        root = agent_of(
            lab,
            "programs",
            family=family,
            agents={"one": child},
            script="auto",
            journal=journal,
            prices=BY_REQUEST,
        )
        result = await asyncio.wait_for(root.run("Go."), HANG_S)
        (bill,) = journal.ledger.bills_by_request(LedgerSpan())
        turn = journal.find_session(result.session).turns[0].id
        sessions = {call: found.row.id for call, found in journal.children(turn)}
    assert result.text.count("Hello from the lab.") == 3 and result.complete
    assert Counter([(entry.path, entry.purpose) for entry in result.ledger]) == {((), "step"): 2, (("one",), "step"): 3}
    assert lab.count() == len(result.ledger) == 5
    assert result.cost == Cost(usd=5 * CENT, requests=5)
    (call,) = [part.call_id.partition("/")[0] for part in result.children[:1]]
    assert sessions == {one.call_id: one.session_id for one in result.children}
    assert sorted(sessions) == [f"{call}/{number}" for number in (1, 2, 3)]
    assert (bill.calls, bill.program_calls, bill.saved) == (3, 3, Cost(usd=2 * CENT, requests=2))


@pytest.mark.costly
@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("program", [TOGETHER, ONE_BY_ONE])
async def test_they_draw_on_the_limits_of_the_root(program: str) -> None:
    """Proves: however many a program starts, side by side or after one another, all stay within the requests and the money of
    the root, what was spent before is counted, and the root still answers itself."""

    @tool
    def search(pattern: str) -> str:
        """Search."""
        return f"no {pattern}"

    lab = Lab([programs(program)])
    child = agent_of(lab, "never-stops-at-all", tools=[search], max_steps=3, prices=BY_REQUEST)
    for most in range(2, 12):
        for limits in (MaxRequests(most), MaxCost(most * CENT)):
            lab.reset()
            result = await asyncio.wait_for(root_of(lab, child, limits=limits, prices=BY_REQUEST).run("Go."), HANG_S)
            assert lab.count() == result.own.requests + sum(one.requests for one in result.children) <= most
            assert result.cost == Cost(usd=lab.count() * CENT, requests=lab.count())
            assert (result.own.requests, result.written_locally) == (2, False), limits
            if most > 2:
                assert sum(one.requests for one in result.children) > 0, limits


@pytest.mark.promise("wait:child", "wait:ask")
async def test_what_they_ask_is_asked_at_the_root() -> None:
    """Proves: with the path, and the answer reaches the sub-agent; the program goes on with what that said."""
    asked: list[tuple[tuple[str, ...], str]] = []

    async def approver(asking: Asking) -> Sequence[Approval]:
        asked.extend([(asking.path, ask.call.name) for ask in asking.asks])
        return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]

    lab = Lab([WRITES, programs('print(task(agent="one", prompt="write").upper())')])
    child = agent_of(lab, "writes", tools=[put], policy=ATTENDED)
    root = root_of(lab, child, policy=ATTENDED, approver=approver)
    result = await asyncio.wait_for(root.run("Go."), HANG_S)
    assert asked == [(("one",), "put")]
    assert "WROTE X" in said_by(result)


@pytest.mark.promise("wait:cancel", "bill:wire")
async def test_cancel_ends_them() -> None:
    """Proves: the deepest tool is cancelled, the program has a result that tells that the task had begun, and what was spent is
    told."""
    at_work, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def search(pattern: str) -> str:
        """Search."""
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    lab = Lab([programs('print(task(agent="one", prompt="search"))')])
    root = root_of(lab, agent_of(lab, "never-stops", tools=[search]))
    task = root.start("Go.")
    await asyncio.wait_for(at_work.wait(), HANG_S)
    task.interrupt()
    result = await asyncio.wait_for(task, HANG_S)
    assert ended.is_set()
    assert result.stop_reason is StopReason.CANCELLED
    assert "in the middle of this program. No call had run, and `task` may have run in part." in said_by(result)
    assert [(one.stop_reason, one.requests) for one in result.children] == [(StopReason.CANCELLED, 1)]
    assert lab.count() == len(result.ledger) == result.own.requests + 1 == 2


async def test_one_that_fails_raises_in_the_program() -> None:
    """Proves: a sub-agent whose provider is gone is an error that the program can catch; what it spent counts."""
    program = 'try:\n    task(agent="one", prompt="go")\nexcept RuntimeError as error:\n    print("caught", error)'
    lab = Lab([programs(program)])
    result = await asyncio.wait_for(root_of(lab, agent_of(lab, "fault-401")).run("Go."), HANG_S)
    assert said_by(result).startswith("caught") and "stop reason: provider_failed" in said_by(result)
    assert [one.requests for one in result.children] == [1] and len(result.ledger) == lab.count() == 3
