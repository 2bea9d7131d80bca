"""Who stops a turn, or says a word, because of what it has just shown is heard before anything follows from that."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import RunFinished, StepChanges, tool
from turnwise.lab import Lab
from turnwise.running.watcher_events import FrameSeen, RequestFinished, ToolFinished, WatcherEvent
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import ToolCallDelta
from waits import HANG_S

BASES = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic_messages": "", "gemini": "/v1beta"}
each_family = pytest.mark.parametrize("family", BASES)


class Bench:
    """An agent whose tool must not run, over real sockets or a model in memory."""

    def __init__(self, name: str, *, lab: Lab | None = None, family: str = "openai_chat", **options: object) -> None:
        self.ran: list[str] = []

        @tool(effect="write")
        async def read(path: str) -> str:
            """Read."""
            self.ran.append(path)
            return "content"

        self.model = ScriptedModel([[call("read", path="a")], "done", "more"])
        base = {"base_url": f"{lab.url}{BASES[family]}"} if lab else {"transport": self.model, "base_url": "http://m"}
        self.agent = flat_agent(f"{family}:{name}", api_key="k", tools=[read], **base, **options)  # pyright: ignore[reportArgumentType]


def is_call(seen: object) -> bool:
    return isinstance(seen, FrameSeen) and isinstance(seen.frame, ToolCallDelta)


@pytest.mark.promise("wait:cancel")
@each_family
@each("by", ["interrupt", "break"])
@each("at", [is_call, lambda seen: isinstance(seen, RequestFinished)], ids=["call", "response"])
async def test_a_reader_who_stops_at_a_call_keeps_it_from_running(
    family: str, by: str, at: Callable[[object], bool]
) -> None:
    """Proves: it is in the reader's hands while nothing has followed from it, though the whole response came in one read."""
    async with Lab() as lab:
        bench = Bench("loop-same-call", lab=lab, family=family)
        async with bench.agent as agent:
            events = agent.stream("Have a look.")
            async for event in events:
                if at(event):
                    if by == "break":
                        break
                    events.interrupt()
            await events.aclose()
        assert (bench.ran, lab.count()) == ([], 1)


@pytest.mark.promise("wait:cancel")
@pytest.mark.parametrize(
    ("kind", "ran", "requests"), [(FrameSeen, 0, 1), (RequestFinished, 0, 1), (ToolFinished, 1, 1)]
)
async def test_a_watcher_that_cancels_the_run_is_obeyed_at_once(
    kind: type[WatcherEvent], ran: int, requests: int
) -> None:
    """Proves: no tool begins and no request leaves once the run's own task was cancelled, before that task had its turn."""
    bench = Bench("m")

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, kind):
            running.cancel()

    running = asyncio.create_task(bench.agent.run("Go.", watch=watch))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, HANG_S)
    assert (len(bench.ran), len(bench.model.requests)) == (ran, requests)


async def test_a_prepare_step_that_cancels_the_run_lets_no_request_leave() -> None:
    """Proves: what was prepared is not sent."""

    def prepare(_: object) -> None:
        running.cancel()

    bench = Bench("m", prepare_step=prepare)
    running = asyncio.create_task(bench.agent.run("Go."))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, HANG_S)
    assert (bench.ran, bench.model.requests) == ([], [])


@each_family
async def test_a_word_said_at_the_end_of_the_answer_is_read(family: str) -> None:
    """Proves: a reader that answers the answer is in time, and the turn goes on with that."""
    async with Lab() as lab:
        said: list[bool] = []
        async with Bench("plain-answer", lab=lab, family=family).agent as agent:
            events = agent.stream("Hello.")
            async for event in events:
                if isinstance(event, RequestFinished) and not said:
                    said.append(events.say("And this?"))
                if isinstance(event, RunFinished):
                    assert event.result.unread == ()
        assert (said, lab.count()) == ([True], 2)


WHERE: ContextVar[str] = ContextVar("WHERE", default="nowhere")


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_context_variables_of_prepare_step_end_with_it(is_async: bool) -> None:
    """Proves: neither the step's tools nor the next `prepare_step` see what it has set, as if each ran in a task of its own."""
    found: list[str] = []

    def note(_: object) -> StepChanges | None:
        found.append(WHERE.get())
        WHERE.set("prepare_step")
        return None

    async def note_later(view: object) -> StepChanges | None:
        return note(view)

    @tool
    async def look(path: str) -> str:
        """Look."""
        found.append(WHERE.get())
        return path

    model = ScriptedModel([[call("look", path="a")], "done"])
    agent = flat_agent(
        "openai_chat:m",
        base_url="http://m",
        api_key="k",
        transport=model,
        tools=[look],
        prepare_step=note_later if is_async else note,
    )
    await agent.run("Go.")
    assert found == ["nowhere"] * 3
