"""Sub-agents: children that answer, stall, loop, ask and die, three deep, on one purse."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import Agent, MaxCost, MaxRequests, RunResult, StopReason, read_prices, tool
from turnwise.base.clock import Clock, SystemClock
from turnwise.journal.journal import Journal
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.prices import Prices
from turnwise.lab import Lab
from turnwise.lab.script import Script, parse_script
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Asking
from turnwise.running.watcher_events import ChildSeen, RequestStarted, WatcherEvent
from turnwise.testing import FakeClock
from turnwise.turn.config import Approval, Deadlines
from turnwise.vocab import Message, ToolResult, text_of
from waits import HANG_S

CENT = Decimal("0.01")
A_CENT = Prices(user=read_prices({"*": {"request": "0.01"}}, named="m", source="test"))
FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
ATTENDED = Policy(attended=True)


def delegates(*agents: str, name: str = "delegates") -> Script:
    """One response hands a task to each of these; then it repeats what it was told."""
    calls = ", ".join(
        [f'{{ name = "task", arguments = {{ agent = "{one}", prompt = "do {one}" }} }}' for one in agents]
    )
    text = f"""
title = "hands out tasks, then says what came back"
[[steps]]
calls = [{calls}]
[[steps]]
text = "They said: {{results}}"
"""
    return parse_script(text, name=name)


WRITES = parse_script(
    """
title = "writes once, then says what came of it"
[[steps]]
calls = [{ name = "put", arguments = { text = "x" } }]
[[steps]]
text = "It said: {result}"
""",
    name="writes",
)


def agent_of(lab: Lab, script: str, /, *, family: str = "openai_chat", **options: object) -> Agent:
    return flat_agent(  # pyright: ignore[reportArgumentType]
        f"{family}:{script}",
        base_url="http://127.0.0.1:9/v1",
        transport=lab.transport(),
        **options,  # pyright: ignore[reportArgumentType]
    )


def said_by(result: RunResult, *, nth: int = 0) -> str:
    """The result of the nth call of the run."""
    results = [part for message in result.new_messages for part in message.parts if isinstance(part, ToolResult)]
    return text_of(Message("user", results[nth].content))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.promise("step:parallel-together", "bill:wire")
async def test_several_children_answer_at_once_and_what_they_spent_is_told(family: str) -> None:
    """Two children, one step: their answers are the results, their requests are counted by child, the lab agrees."""
    lab = Lab([delegates("one", "two")])
    child = agent_of(lab, "plain-answer", family=family, description="answers")
    result = await agent_of(lab, "delegates", family=family, agents={"one": child, "two": child}).run("Go.")
    assert said_by(result).startswith("Hello from the lab.") and said_by(result, nth=1) == said_by(result)
    assert result.complete and result.own.requests == 2
    assert [(one.stop_reason, one.requests) for one in result.children] == [(StopReason.ANSWERED, 1)] * 2
    assert lab.count() == 4


async def run_while(clock: FakeClock, agent: Agent, *, step_s: float, **options: object) -> RunResult:
    """Run it while time goes on."""
    task = asyncio.create_task(agent.run("Go.", **options))  # pyright: ignore[reportArgumentType]
    for _ in range(400):
        if task.done():
            break
        await clock.advance(step_s)
    return await asyncio.wait_for(task, HANG_S)


@pytest.mark.promise("wait:child")
async def test_a_child_that_shows_nothing_is_ended_and_the_parent_goes_on() -> None:
    """Its stream never begins: after its idle time the parent reads why, and answers."""
    clock = FakeClock()
    lab = Lab([delegates("silent")])
    child = agent_of(lab, "fault-silence", clock=clock, deadlines=Deadlines(child_idle_s=60.0, first_event_s=500.0))
    result = await run_while(clock, agent_of(lab, "delegates", clock=clock, agents={"silent": child}), step_s=10.0)
    assert "no sign of life within 60 s" in said_by(result)
    assert result.complete and result.text.startswith("They said:")
    assert result.children[0].stop_reason is StopReason.TIME_LIMIT
    assert clock.monotonic() < 120.0


@pytest.mark.promise("wait:child")
async def test_a_child_that_takes_too_long_returns_what_it_has() -> None:
    """It works and shows it, but its time is over: it is asked for its answer, and what it has is in the result."""
    clock = FakeClock()

    @tool
    async def search(pattern: str) -> str:
        """Search."""
        await clock.sleep(40.0)
        return f"found {pattern}"

    lab = Lab([delegates("slow")])
    child = agent_of(lab, "never-stops-at-all", clock=clock, tools=[search], max_steps=200)
    parent = agent_of(lab, "delegates", clock=clock, agents={"slow": child}, deadlines=Deadlines(child_s=100.0))
    result = await run_while(clock, parent, step_s=10.0)
    assert "did not finish (stop reason: time_limit)" in said_by(result) and "found" in said_by(result)
    assert result.complete
    assert clock.monotonic() < 150.0


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_child_sees_its_prompt_and_nothing_of_the_conversation(family: str) -> None:
    """What the user said and the parent's instructions do not leave for the child's model; the prompt does."""
    lab = Lab([delegates("one")])
    child = agent_of(lab, "plain-answer", family=family)
    parent = agent_of(lab, "delegates", family=family, agents={"one": child}, instructions="Be a lead.")
    await parent.run("The secret word is heron.")
    (body,) = [received.body for received in lab.requests if received.model == "plain-answer"]
    assert b"do one" in body
    assert b"heron" not in body and b"Be a lead" not in body


class Short(NamedTuple):
    """A script whose answer is short of something, and what the parent reads of it."""

    script: str
    why: str
    options: dict[str, Any]


@pytest.mark.promise("wait:child", "end:reason")
@pytest.mark.parametrize(
    "ended",
    [
        Short("cut-text", "the output limit cut the answer", {"recover": "split"}),
        Short("plain-answer", "the answer does not fit the output type", {"output_type": list[int]}),
        Short("empty-answer", "the model gave no answer of its own", {}),
        Short("disobeys-none", "stop reason: step_limit", {"max_steps": 1}),
    ],
    ids=lambda ended: ended.script,
)
async def test_a_child_whose_answer_is_not_whole_says_what_it_lacks(ended: Short) -> None:
    """Proves: 'did not finish (stop reason: answered)' said nothing; the parent and the user read what happened."""
    lab = Lab([delegates("helper")])
    child = agent_of(lab, ended.script, **ended.options)
    result = await agent_of(lab, "delegates", agents={"helper": child}).run("Go.")
    assert f"The sub-agent `helper` did not finish ({ended.why}). What it has:" in said_by(result)
    alone = await agent_of(lab, ended.script, **ended.options).run("Go.")
    assert (alone.complete, bool(alone.why_incomplete)) == (False, True)


@pytest.mark.promise("wait:child", "loop:repeat")
async def test_a_child_that_loops_is_stopped_by_its_own_guard() -> None:
    """The parent gets the answer that the guard forced, and the word that it is not a whole one."""

    @tool
    def read(path: str) -> str:
        """Read."""
        return "the same"

    lab = Lab([delegates("looping")])
    child = agent_of(lab, "loop-same-call", tools=[read], max_steps=60)
    result = await agent_of(lab, "delegates", agents={"looping": child}).run("Go.")
    assert "did not finish (stop reason: loop)" in said_by(result)
    assert result.complete and result.children[0].requests <= 7


@pytest.mark.promise("wait:child")
async def test_a_child_that_dies_leaves_a_readable_result() -> None:
    """Its provider is gone for good: an error result, and the parent answers."""
    lab = Lab([delegates("dead")])
    result = await agent_of(lab, "delegates", agents={"dead": agent_of(lab, "fault-401")}).run("Go.")
    assert "stop reason: provider_failed" in said_by(result)
    assert result.complete and result.children[0].stop_reason is StopReason.PROVIDER_FAILED


@tool(effect="write")
def put(text: str) -> str:
    """Write it."""
    return f"wrote {text}"


@pytest.mark.promise("wait:child", "wait:ask")
async def test_what_a_child_asks_is_asked_at_the_root_with_its_path() -> None:
    """Three deep: the one approver of the root sees who asks, and its answer reaches the child."""
    asked: list[tuple[tuple[str, ...], str]] = []

    async def approver(asking: Asking) -> Sequence[Approval]:
        asked.extend([(asking.path, ask.call.name) for ask in asking.asks])
        return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]

    lab = Lab([WRITES, delegates("leaf", name="middle-one"), delegates("middle")])
    leaf = agent_of(lab, "writes", tools=[put], policy=ATTENDED)
    middle = agent_of(lab, "middle-one", agents={"leaf": leaf}, policy=ATTENDED)
    root = agent_of(lab, "delegates", agents={"middle": middle}, policy=ATTENDED, approver=approver)
    result = await root.run("Go.")
    assert asked == [(("middle", "leaf"), "put")]
    assert "wrote x" in result.text
    assert (result.own.requests, result.children[0].requests) == (2, 4)


@pytest.mark.promise("wait:ask", "wait:child")
async def test_without_anybody_to_ask_a_child_decides_at_once() -> None:
    """An unattended tree never waits: the child is denied, says so, and the parent answers."""
    lab = Lab([WRITES, delegates("leaf")])
    leaf = agent_of(lab, "writes", tools=[put], policy=ATTENDED)
    result = await agent_of(lab, "delegates", agents={"leaf": leaf}).run("Go.")
    assert "Denied: `put` was not run." in result.text


async def test_sub_agents_nest_only_so_deep() -> None:
    """The one at the bottom is told to do the work itself."""
    lab = Lab([delegates("down")])
    agent = agent_of(lab, "plain-answer")
    for _ in range(5):
        agent = agent_of(lab, "delegates", agents={"down": agent})
    result = await agent.run("Go.")
    assert "sub-agents may nest 3 deep" in result.text
    assert lab.count() == 8


@pytest.mark.promise("end:budget")
async def test_children_share_the_limits_of_the_root_three_deep() -> None:
    """Eight requests for the whole tree: never more, and the root still answers itself."""

    @tool
    def search(pattern: str) -> str:
        """Search."""
        return f"no {pattern}"

    lab = Lab([delegates("leaf", name="middle-one"), delegates("middle")])
    leaf = agent_of(lab, "never-stops-at-all", tools=[search], max_steps=100)
    middle = agent_of(lab, "middle-one", agents={"leaf": leaf})
    for most in range(1, 13):
        lab.reset()
        root = agent_of(lab, "delegates", agents={"middle": middle}, limits=MaxRequests(most))
        result = await root.run("Go.")
        assert lab.count() == result.own.requests + sum(one.requests for one in result.children) <= most
        assert result.text.strip()
        assert result.written_locally is False


@pytest.mark.promise("end:budget")
async def test_more_children_than_requests_do_not_all_starve() -> None:
    """Ten side by side: as many of the first as there are requests get one each, the others are told."""
    names = [f"child{number}" for number in range(10)]
    lab = Lab([delegates(*names)])
    child = agent_of(lab, "plain-answer")
    for most in range(1, 14):
        lab.reset()
        agents = dict.fromkeys(names, child)
        result = await agent_of(lab, "delegates", agents=agents, limits=MaxRequests(most)).run("Go.")
        begun = min(max(most - 2, 0), 10)  # the root's step and its answer are its own
        if most > 1:
            said = [said_by(result, nth=nth).partition(" ")[0] for nth in range(10)]
            assert said == ["Hello"] * begun + ["Not"] * (10 - begun)
        assert [one.requests for one in result.children] == [1] * begun
        assert lab.count() == result.own.requests + begun <= most


@pytest.mark.promise("wait:cancel", "bill:wire")
async def test_cancel_reaches_the_deepest_child_within_a_second() -> None:
    """All three levels settle, every call has its result, and what was spent is told."""
    at_work = asyncio.Event()
    ended = asyncio.Event()

    @tool
    async def search(pattern: str) -> str:
        """Search."""
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    lab = Lab([delegates("leaf", name="middle-one"), delegates("middle")])
    leaf = agent_of(lab, "never-stops", tools=[search])
    middle = agent_of(lab, "middle-one", agents={"leaf": leaf})
    root = agent_of(lab, "delegates", agents={"middle": middle})
    task = root.start("Go.")
    await asyncio.wait_for(at_work.wait(), HANG_S)
    task.interrupt()
    result = await asyncio.wait_for(task, HANG_S)
    assert ended.is_set()
    assert result.stop_reason is StopReason.CANCELLED
    assert said_by(result).startswith("Cancelled by the user")
    assert lab.count() == result.own.requests + sum(one.requests for one in result.children) == 3


async def test_watchers_see_the_whole_tree_and_the_journal_keeps_each_session() -> None:
    """What a child shows comes with its path; its session stands in the journal under its name."""
    seen: list[WatcherEvent] = []
    clock: Clock = SystemClock()
    lab = Lab([delegates("one")])
    with Journal(None, clock=clock) as journal:
        child = agent_of(lab, "plain-answer", journal=journal)
        result = await agent_of(lab, "delegates", agents={"one": child}, journal=journal).run("Go.", watch=seen.append)
        (root,) = journal.sessions()
        ((call_id, session),) = journal.children(journal.find_session(root.id).turns[0].id)
    below = [one for one in seen if isinstance(one, ChildSeen) and isinstance(one.seen, RequestStarted)]
    assert [one.path for one in below] == [("one",)]
    assert (session.row.id, session.row.title) == (result.children[0].session_id, "one: do one")
    assert call_id == result.children[0].call_id


@pytest.mark.promise("bill:wire")
async def test_children_without_a_journal_are_kept_in_their_parents() -> None:
    """Proves: the kept bill of a journal on the root alone has the requests of children and of theirs, and their sessions are
    tied to the calls."""
    lab = Lab([delegates("one"), delegates("leaf", name="hands-on")])
    leaf = agent_of(lab, "plain-answer")
    child = agent_of(lab, "hands-on", agents={"leaf": leaf})
    with Journal(None, clock=FakeClock()) as journal:
        result = await agent_of(lab, "delegates", agents={"one": child}, journal=journal).run("Go.")
        kept = len(journal.ledger.entries(LedgerSpan()))
        (root,) = journal.sessions()
        ((call_id, session),) = journal.children(journal.find_session(root.id).turns[0].id)
        ((_, below),) = journal.children(session.turns[0].id)
    assert lab.count() == len(result.ledger) == kept == 5
    (report,) = result.children
    assert (call_id, session.row.id, report.requests) == (report.call_id, report.session_id, 3)
    assert below.row.title.startswith("one/leaf: ")


@pytest.mark.promise("end:budget")
@each(("cents", "paid"), [(2, 0), (3, 1), (5, 3), (7, 5), (8, 6), (20, 6)])
@each("limit", [MaxCost, MaxRequests])
async def test_as_many_of_the_first_as_possible_get_enough(limit: object, cents: int, paid: int) -> None:
    """Proves: six children at once share what the parent leaves: where that does not pay one request for each, the first ones
    have it, of money as of requests; the others are told, and nothing is left unspent."""
    lab = Lab([delegates(*["one"] * 6)])
    most = MaxCost(cents * CENT) if limit is MaxCost else MaxRequests(cents)
    child = agent_of(lab, "plain-answer", prices=A_CENT)
    root = agent_of(lab, "delegates", agents={"one": child}, prices=A_CENT, limits=most)
    result = await root.run("Go.")
    said = [said_by(result, nth=nth).startswith("Hello from the lab.") for nth in range(6)]
    assert said == [True] * paid + [False] * (6 - paid)
    assert (lab.count(), result.written_locally) == (2 + paid, False)


@pytest.mark.promise("end:budget")
async def test_a_dear_child_does_not_keep_the_cheap_ones_from_their_share() -> None:
    """Proves: what a request costs is looked at for those that get a share, each with its own agent's price."""
    lab = Lab([delegates("cheap", "cheap", "dear")])
    dear = Prices(user=read_prices({"*": {"request": "0.50"}}, named="m", source="test"))
    agents = {
        "cheap": agent_of(lab, "plain-answer", prices=A_CENT),
        "dear": agent_of(lab, "plain-answer", prices=dear),
    }
    result = await agent_of(lab, "delegates", agents=agents, prices=A_CENT, limits=MaxCost(4 * CENT)).run("Go.")
    said = [said_by(result, nth=nth).startswith("Hello from the lab.") for nth in range(3)]
    assert (said, lab.count()) == ([True, True, False], 4)
