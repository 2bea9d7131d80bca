"""Cancel in every state: settled within a second of the turn's own clock, every call answered, history that goes on."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import Agent, MaxCost, Prices, RunResult, StopReason, read_prices, tool
from turnwise.lab import Lab
from turnwise.lab.script import parse_script
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Asking
from turnwise.running.hooks import Hook, Looks, Says
from turnwise.running.watcher_events import FrameSeen, RequestFinished, RequestStarted, WatcherEvent
from turnwise.testing import FakeClock
from turnwise.turn.config import Approval
from turnwise.vocab import Message, Text, ToolResult, calls_of
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
DELEGATES = parse_script(
    """
title = "hands out a task"
[[steps]]
calls = [{ name = "task", arguments = { agent = "one", prompt = "work" } }, { name = "read", arguments = { path = "a" } }]
[[steps]]
text = "{results}"
""",
    name="delegates",
)


def script(fault: str, name: str) -> str:
    return f"""
title = "{name}"
[[steps]]
text = "The answer begins here, and it is long enough to be sent in several pieces."
calls = [{{ name = "read", arguments = {{ path = "a" }} }}]
fault = {{ {fault} }}
"""


SCRIPTS = [
    DELEGATES,
    parse_script(script('kind = "stall", at = "headers"', "stalls before its headers"), name="connecting"),
    parse_script(script('kind = "stall", at = "text"', "stalls in its text"), name="in-text"),
    parse_script(script('kind = "stall", at = "arguments"', "stalls in a call"), name="in-arguments"),
    parse_script(script('kind = "status", status = 503', "is overloaded"), name="overloaded"),
]


@tool(effect="read")
def read(path: str) -> str:
    """Read."""
    return f"content of {path}"


async def deafly(over: asyncio.Event) -> None:
    """Wait, whatever cancels us."""
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError:
            continue


async def cancelled(agent: Agent, *, clock: FakeClock, reached: asyncio.Event, **options: object) -> RunResult:
    """Start it, cancel it once the state is reached, and give it one second."""
    run = agent.start("Go.", **options)  # pyright: ignore[reportArgumentType, reportUnknownVariableType, reportCallIssue]
    await asyncio.wait_for(reached.wait(), HANG_S)
    began = clock.monotonic()
    run.interrupt()
    for _ in range(100):
        if run.has_ended:
            break
        await clock.advance(0.01)
    assert run.has_ended, "it has not settled within a second"
    assert clock.monotonic() - began <= 1.0
    return await run


async def goes_on(lab: Lab, result: RunResult, *, family: str) -> None:
    """Every call has its one result, and a strict provider takes the history."""
    calls = [call.id for message in result.history for call in calls_of(message)]
    answered = [part.call_id for message in result.history for part in message.parts if isinstance(part, ToolResult)]
    assert sorted(calls) == sorted(answered)
    assert result.stop_reason is StopReason.CANCELLED and not result.complete and result.text.strip()
    next_ = await agent_of(lab, "plain-answer", family=family, tools=[read]).run("And now?", history=result.history)
    assert next_.complete, next_.fault


def agent_of(lab: Lab, name: str, *, family: str, **options: object) -> Agent:
    return flat_agent(f"{family}:{name}", base_url="http://127.0.0.1:9/v1", transport=lab.transport(), **options)  # pyright: ignore[reportArgumentType]


each_family = pytest.mark.parametrize("family", FAMILIES)


@each_family
@each("stream", [True, False], ids=["streamed", "whole"])
@each("state", ["connecting", "in-text", "in-arguments", "overloaded"])
@pytest.mark.promise("wait:cancel", "step:every-call-answered")
async def test_while_a_request_is_under_way_or_waits_to_be_sent_again(family: str, stream: bool, state: str) -> None:
    """No headers yet, in mid-text, in mid-arguments, asleep before a retry."""
    clock, reached = FakeClock(), asyncio.Event()
    lab = Lab(SCRIPTS)
    awaited: Callable[[WatcherEvent], bool] = {
        "connecting": lambda seen: isinstance(seen, RequestStarted),
        "overloaded": lambda seen: isinstance(seen, RequestFinished),
    }.get(state, lambda seen: isinstance(seen, FrameSeen if stream else RequestStarted))
    agent = agent_of(lab, state, family=family, stream=stream, tools=[read], clock=clock)
    result = await cancelled(
        agent, clock=clock, reached=reached, watch=lambda seen: reached.set() if awaited(seen) else None
    )
    await goes_on(lab, result, family=family)
    assert result.requests == 1


@each_family
@each("kind", ["obedient", "deaf", "thread"])
@pytest.mark.promise("wait:cancel", "wait:tool", "step:every-call-answered")
async def test_while_a_tool_runs(family: str, kind: str) -> None:
    """One that ends when it is told to, one that does not, one in a thread, which nobody can end: it is left behind."""
    clock, reached, leave = FakeClock(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    deaf = asyncio.Event()

    async def obedient(path: str) -> str:
        """Read."""
        reached.set()
        await asyncio.Event().wait()
        return path

    async def stubborn(path: str) -> str:
        """Read."""
        reached.set()
        await deafly(deaf)
        return path

    def blocking(path: str) -> str:
        """Read."""
        loop.call_soon_threadsafe(reached.set)
        leave.wait(HANG_S)
        return path

    function = {"obedient": obedient, "deaf": stubborn, "thread": blocking}[kind]
    slow = tool(name="read", effect="read")(function)
    lab = Lab(SCRIPTS)
    agent = agent_of(lab, "parallel-calls", family=family, tools=[slow], clock=clock)
    try:
        result = await cancelled(agent, clock=clock, reached=reached)
    finally:
        leave.set()
        deaf.set()
    await goes_on(lab, result, family=family)


@each_family
@pytest.mark.promise("wait:cancel", "wait:child", "step:every-call-answered")
async def test_while_a_child_runs(family: str) -> None:
    """The child's tool does not listen; the finished sibling keeps its result."""
    clock, reached, over = FakeClock(), asyncio.Event(), asyncio.Event()

    @tool
    async def search(pattern: str) -> str:
        """Search."""
        reached.set()
        await deafly(over)
        return pattern

    lab = Lab(SCRIPTS)
    child = agent_of(lab, "never-stops", family=family, tools=[search], clock=clock)
    agent = agent_of(lab, "delegates", family=family, tools=[read], agents={"one": child}, clock=clock)
    try:
        result = await cancelled(agent, clock=clock, reached=reached)
    finally:
        over.set()
    await goes_on(lab, result, family=family)
    texts = [part for message in result.history for part in message.parts if isinstance(part, ToolResult)]
    assert {part.name: part.is_error for part in texts} == {"task": True, "read": False}


@each_family
@each("state", ["asking", "hook"])
@pytest.mark.promise("wait:cancel", "wait:ask", "step:every-call-answered")
async def test_while_a_person_or_a_hook_is_waited_for(family: str, state: str) -> None:
    """Neither answers, nor lets itself be cancelled."""
    clock, reached, over = FakeClock(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await deafly(over)

    async def approver(_: Asking) -> Sequence[Approval]:
        await wait()
        return []

    async def hook(_: Looks) -> Says:
        await wait()
        return None

    @tool(name="read", effect="write")
    def put(path: str) -> str:
        """Write."""
        return path

    lab = Lab(SCRIPTS)
    agent = agent_of(
        lab,
        "parallel-calls",
        family=family,
        tools=[put],
        clock=clock,
        policy=Policy(attended=True),
        approver=approver,
        hooks=[Hook(point="before_tool", function=hook, name="slow")] if state == "hook" else [],
    )
    try:
        result = await cancelled(agent, clock=clock, reached=reached)
    finally:
        over.set()
    await goes_on(lab, result, family=family)
    assert result.requests == 1


@pytest.mark.parametrize("waits_for", ["prices", "opening"])
async def test_a_run_is_cancelled_before_its_turn_begins(waits_for: str) -> None:
    """Proves that nothing is sent after an interrupt while a limit of cost reads its prices, or while the opening is written:
    the interrupt was lost, and the turn went on to its end (issue 14, found beside its line 4)."""
    lab, written = Lab(), asyncio.Event()

    async def opening(messages: Sequence[Message]) -> list[Text]:
        await written.wait()
        return [Text("Where you are.")]

    agent = flat_agent(
        "openai_chat:plain-answer",
        base_url="http://lab.invalid",
        transport=lab.transport(),
        prices=Prices(user=read_prices({"*": {"request": "0.01"}}, named="the test", source="the test")),
        limits=MaxCost(Decimal(1)) if waits_for == "prices" else None,
        opening=opening if waits_for == "opening" else None,
    )
    task = agent.start("Go.")
    await asyncio.sleep(0)
    task.interrupt()
    written.set()
    result = await asyncio.wait_for(task, HANG_S)
    assert (result.stop_reason, result.requests, lab.count()) == (StopReason.CANCELLED, 0, 0)
    assert (await asyncio.wait_for(agent.run("Go."), HANG_S)).stop_reason is StopReason.ANSWERED
