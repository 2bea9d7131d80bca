"""A turn's whole tree is bounded: its sub-agents, the requests that they make together, the calls of one response.

Every count is the lab's own, of requests that came in over a socket.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_agents import flat_agent
from tables import each
from thoroughness import examples
from turnwise import Agent, MaxRequests, RunResult, StopReason, tool
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import Journal
from turnwise.lab import Lab
from turnwise.lab.script import Script, parse_script
from turnwise.rules.reservations import MAX_SUBAGENT_REQUESTS, MAX_SUBAGENTS
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.machine import restore
from turnwise.turn.settled_response import MAX_CALLS
from turnwise.vocab import Message, ToolCall, ToolResult, text_of

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
BASES = {"gemini": "/v1beta", "anthropic_messages": ""}  # Anthropic's base URL has no version
ROOT = "root"
QUICK = RetryPolicy(base_s=0.001, cap_s=0.001)


def starts(name: str, *, at_once: int, steps: int) -> Script:
    """In each of so many steps so many tasks are handed out; then it answers."""
    calls = ", ".join([f'{{ name = "task", arguments = {{ prompt = "part {{n}}.{n}" }} }}' for n in range(at_once)])
    each = f"[[steps]]\ncalls = [{calls}]\n" * steps
    return parse_script(f'title = "hands out"\n{each}[[steps]]\ntext = "All parts came back."\n', name=name)


@tool
def search(pattern: str) -> str:
    """Search."""
    return f"no {pattern}"


def nested(lab: Lab, *models: str, family: str, **options: object) -> Agent:
    """Agents, each below the one before; the first one is the root."""
    below: Agent | None = None
    for model in reversed(models):
        below = flat_agent(  # pyright: ignore[reportArgumentType]
            f"{family}:{model}",
            base_url=lab.url + BASES.get(family, "/v1"),
            agents=None if below is None else {"sub": below},
            tools=[search],
            max_depth=99,
            max_steps=60,
            **(options if model == ROOT else {}),  # pyright: ignore[reportArgumentType]
        )
    assert below is not None
    return below


def tree_of(result: RunResult) -> tuple[int, int]:
    """The sub-agents of a run, theirs included, and their requests."""
    return sum([1 + one.subagents for one in result.children]), sum([one.requests for one in result.children])


def results_in(messages: Sequence[Message]) -> list[str]:
    return [
        text_of(Message("user", part.content))
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


SHAPES = {
    # each starts three at a time, four times, six deep: 3,279 sub-agents if nothing holds them
    "recursive": ([starts(ROOT, at_once=3, steps=4), starts("sub", at_once=3, steps=4)], [ROOT, *["sub"] * 6]),
    "wide": ([starts(ROOT, at_once=40, steps=3)], [ROOT, "never-stops-at-all"]),
    "deep": ([starts(ROOT, at_once=1, steps=2), starts("sub", at_once=1, steps=2)], [ROOT, *["sub"] * 50]),
    "parallel": (
        [starts(ROOT, at_once=5, steps=4), starts("sub", at_once=5, steps=4)],
        [ROOT, "sub", "never-stops-at-all"],
    ),
}


@pytest.mark.costly
@pytest.mark.promise("safe:bounded")
@each("family", FAMILIES)
@each("shape", SHAPES, meeting="each")
async def test_a_tree_stays_within_32_sub_agents_and_300_requests(family: str, shape: str) -> None:
    """Proves: by default, however they nest and however many run at once; the root makes its own steps and answers itself. One
    prompt had made 884 requests in 15 seconds (issue 12, line 13)."""
    scripts, models = SHAPES[shape]
    async with Lab(scripts) as lab:
        result = await nested(lab, *models, family=family).run("Go.")
        assert [one.refused for one in lab.requests if one.refused] == []
        made = lab.count() - lab.count(model=ROOT)
    subagents, requests = tree_of(result)
    assert (lab.count(model=ROOT), made) == (result.own.requests, requests)
    assert (result.stop_reason, result.complete) == (StopReason.ANSWERED, True)
    assert subagents <= MAX_SUBAGENTS and requests <= MAX_SUBAGENT_REQUESTS
    sessions = {entry.session for entry in result.ledger if entry.path}
    assert len(sessions) == subagents
    refused = [text for text in results_in(result.new_messages) if text.startswith("Not run: the limit of ")]
    assert refused and all("sub-agent" in text for text in refused)
    if shape == "wide":
        assert (subagents, requests) == (MAX_SUBAGENTS, MAX_SUBAGENT_REQUESTS)


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_sub_agent_at_work_keeps_its_last_request_for_its_answer(family: str) -> None:
    """Proves: two that would never stop share ten requests, and each is asked for its answer with its fifth one."""
    async with Lab([starts(ROOT, at_once=2, steps=1)]) as lab:
        root = nested(lab, ROOT, "never-stops", family=family, max_subagent_requests=10)
        result = await root.run("Go.")
        assert lab.count(model="never-stops") == 10
    assert [(one.requests, one.stop_reason) for one in result.children] == [(5, StopReason.BUDGET)] * 2
    assert all("did not finish (stop reason: budget)" in text for text in results_in(result.new_messages))
    assert result.complete


@pytest.mark.parametrize(("subagents", "requests"), [(0, 300), (3, 0), (1, 300), (32, 1)])
async def test_the_first_ones_run_and_the_others_read_which_bound_is_reached(subagents: int, requests: int) -> None:
    """Proves: bounds of a run; what there is no room for is refused by name, and starts nothing."""
    async with Lab([starts(ROOT, at_once=4, steps=1)]) as lab:
        root = nested(lab, ROOT, "plain-answer", family="openai_chat")
        result = await root.run("Go.", safety={"max_subagents": subagents, "max_subagent_requests": requests})
        begun = min(subagents, requests, 4)
        assert lab.count(model="plain-answer") == begun
    said = results_in(result.new_messages)
    assert all("Hello from the lab." in text for text in said[:begun])
    which = f"the limit of {subagents} sub-agent" if subagents <= requests else f"the limit of {requests} request"
    assert all(text.startswith(f"Not run: {which}") for text in said[begun:]) and len(said) == 4


async def test_what_a_sub_agent_leaves_comes_back() -> None:
    """Proves: one after the other, each has what those before it have not used; the root's own requests do not count."""
    async with Lab([starts(ROOT, at_once=1, steps=9)]) as lab:
        root = nested(lab, ROOT, "plain-answer", family="openai_chat", max_subagent_requests=7)
        result = await root.run("Go.")
        assert (lab.count(model="plain-answer"), lab.count(model=ROOT)) == (7, 10)
    assert tree_of(result) == (7, 7)


@pytest.mark.promise("end:budget")
async def test_the_bounds_hold_beside_the_limits_of_the_turn() -> None:
    """Proves: sub-agents draw on the root's limits too, and whichever is smaller ends them."""
    async with Lab([starts(ROOT, at_once=2, steps=1)]) as lab:
        for most, own in ((8, 300), (100, 4)):
            lab.reset()
            root = nested(lab, ROOT, "never-stops", family="openai_chat", max_subagent_requests=own)
            result = await root.run("Go.", limits=MaxRequests(most))
            below = lab.count(model="never-stops")
            assert below == min(most - 2, own)
            assert lab.count() == result.own.requests + below <= most


@pytest.mark.promise("safe:bounded")
@settings(max_examples=examples(25), deadline=None)
@given(
    subagents=st.integers(0, 9),
    requests=st.integers(0, 30),
    own=st.none() | st.integers(2, 30),
    shape=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4),
    last=st.sampled_from(["plain-answer", "never-stops-at-all", "cut-text", "fault-once-503", "empty-answer"]),
)
def test_no_tree_goes_beyond_its_bounds(
    subagents: int, requests: int, own: int | None, shape: list[tuple[int, int]], last: str
) -> None:
    """Proves: whatever the bounds, the limits and the shape, with retries, cut texts and disobedient models among them."""
    names = [ROOT, *[f"sub{number}" for number in range(1, len(shape))]]
    lab = Lab([starts(name, at_once=n, steps=steps) for name, (n, steps) in zip(names, shape, strict=True)])
    below = None
    for model in reversed([*names, last]):
        below = flat_agent(
            f"openai_chat:{model}",
            base_url="http://127.0.0.1:9/v1",
            transport=lab.transport(),
            agents=None if below is None else {"sub": below},
            tools=[search],
            max_depth=99,
            retry=QUICK,
        )
    assert below is not None
    limits = None if own is None else MaxRequests(own)
    result = below.run_sync(
        "Go.", safety={"max_subagents": subagents, "max_subagent_requests": requests}, limits=limits
    )
    made = lab.count() - lab.count(model=ROOT)
    assert tree_of(result)[1] == made <= requests
    assert tree_of(result)[0] == len({one.session for one in result.ledger if one.path}) <= subagents
    assert own is None or lab.count() <= own


async def test_a_journal_gives_back_the_same_places() -> None:
    """Proves: what a sub-agent may use stands in its journal, and the parent's turn is the same when it is replayed."""
    lab = Lab([starts(ROOT, at_once=3, steps=2)])
    with Journal(None, clock=SystemClock()) as journal:
        agent = flat_agent(
            f"openai_chat:{ROOT}",
            base_url="http://127.0.0.1:9/v1",
            transport=lab.transport(),
            journal=journal,
            agents={
                "sub": flat_agent(
                    "openai_chat:never-stops",
                    base_url="http://127.0.0.1:9/v1",
                    transport=lab.transport(),
                    tools=[search],
                )
            },
            max_subagents=5,
            max_subagent_requests=20,
        )
        result = await agent.run("Go.")
        (root,) = journal.sessions()
        turn = journal.find_session(root.id).turns[0]
        again, _ = restore(journal.events(turn.id))
    assert again.result is not None and again.result.children == result.children
    assert sorted([one.requests for one in result.children]) == [6, 7, 7]
    used = again.known.spending.used
    assert used.subagents == 3 and used.requests == 20


# --- the calls of one response


def many(calls: int) -> Script:
    each = ", ".join([f'{{ name = "search", arguments = {{ pattern = "p{n}" }} }}' for n in range(calls)])
    return parse_script(f'title = "t"\n[[steps]]\ncalls = [{each}]\n[[steps]]\ntext = "done"\n', name="many")


@pytest.mark.promise("step:every-call-answered", "safe:bounded")
@each("stream", [True, False], ids=["streamed", "whole"])
@each("family", FAMILIES)
@each("calls", [MAX_CALLS, MAX_CALLS + 1, 1_000], meeting="each")
async def test_of_the_calls_of_a_response_128_run(family: str, stream: bool, calls: int) -> None:
    """Proves: each call has exactly one result, in order, and the strict lab takes them; those behind the 128th are told why
    they did not run."""
    ran: list[str] = []

    @tool(name="search")
    async def runs(pattern: str) -> str:
        ran.append(pattern)
        return f"found {pattern}"

    async with Lab([many(calls)]) as lab:
        agent = flat_agent(
            f"{family}:many", base_url=lab.url + BASES.get(family, "/v1"), tools=[runs], stream=stream, room="off"
        )
        result = await agent.run("Go.")
        assert [one.refused for one in lab.requests if one.refused] == []
        assert lab.count() == 2
    assert sorted(ran) == sorted([f"p{n}" for n in range(MAX_CALLS)])
    asked = [part.id for message in result.new_messages for part in message.parts if isinstance(part, ToolCall)]
    told = [part for message in result.new_messages for part in message.parts if isinstance(part, ToolResult)]
    assert [one.call_id for one in told] == asked and len(asked) == calls
    texts = results_in(result.new_messages)
    assert texts[:MAX_CALLS] == [f"found p{n}" for n in range(MAX_CALLS)]
    expected = f"Not run: a response may hold {MAX_CALLS} calls, and this one holds {calls:,}."
    assert all(text.startswith(expected) for text in texts[MAX_CALLS:])
    assert [one.is_error for one in told] == [False] * MAX_CALLS + [True] * (calls - MAX_CALLS)
    assert (result.text, result.complete) == ("done", True)
