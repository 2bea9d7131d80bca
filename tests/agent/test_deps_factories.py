"""Deps that are made for a run: opened before it, closed with it, each within its time."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from flat_agents import flat_agent
from turnwise import Agent, CallerError, DepsFactory, RunContext, SessionKey, tool
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.workers.worker import Worker

SECRET = "pa55word-of-the-database"


class Db:
    """A user's database, as far as these tests need one."""

    def __init__(self) -> None:
        self.happened: list[str] = ["opened"]

    def read(self) -> str:
        self.happened.append("read")
        return "three"


@tool
def count(context: RunContext[Db]) -> str:
    """Count what is there."""
    return context.deps.read()


def agent_of(model: ScriptedModel, deps_type: object, *, clock: FakeClock | None = None) -> Agent:
    return flat_agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=[count],
        deps_type=deps_type,
        clock=clock,
    )


def test_a_generator_function_is_no_factory() -> None:
    """The error says what is missing."""

    async def opened(key: SessionKey) -> AsyncGenerator[Db]:
        yield Db()

    with pytest.raises(CallerError, match="`opened` is a generator function: write `@asynccontextmanager` above"):
        DepsFactory(opened)


def test_what_a_factory_opens_is_closed_when_the_run_has_ended() -> None:
    """One task enters and leaves it."""
    db = Db()
    tasks: list[object] = []

    @asynccontextmanager
    async def opened(key: SessionKey) -> AsyncGenerator[Db]:
        tasks.append(asyncio.current_task())
        yield db
        tasks.append(asyncio.current_task())
        db.happened.append("closed")

    model = ScriptedModel([call("count"), "Three."])
    assert agent_of(model, DepsFactory(opened)).run_sync("How many?").complete
    assert db.happened == ["opened", "read", "closed"]
    assert tasks[0] is tasks[1]


async def test_a_factory_sees_that_its_run_was_cancelled() -> None:
    """So that a transaction is not committed."""
    saw: list[str] = []
    waiting = asyncio.Event()

    @asynccontextmanager
    async def opened(key: SessionKey) -> AsyncGenerator[Db]:
        try:
            yield Db()
        except BaseException as error:
            saw.append(type(error).__name__)
            raise

    @tool
    async def wait(context: RunContext[Db]) -> str:
        """Wait."""
        waiting.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel([call("wait")])
    run = asyncio.create_task(agent_of(model, DepsFactory(opened)).run("Wait.", tools=[wait]))
    await waiting.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert saw == ["CancelledError"]


async def test_making_and_closing_deps_end_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """After `Deadlines.hook_s`: late deps end the run before it sends anything, a late closing is logged and left behind."""
    never, clock = asyncio.Event(), FakeClock()

    async def slow(key: SessionKey) -> Db:
        await never.wait()
        return Db()

    @asynccontextmanager
    async def slow_to_open(key: SessionKey) -> AsyncGenerator[Db]:
        await never.wait()
        yield Db()

    @asynccontextmanager
    async def slow_to_close(key: SessionKey) -> AsyncGenerator[Db]:
        yield Db()
        await never.wait()

    for make in (DepsFactory(slow), DepsFactory(slow_to_open)):
        model = ScriptedModel([])
        run = asyncio.create_task(agent_of(model, make, clock=clock).run("Hello"))
        await clock.advance(10.0)
        with pytest.raises(CallerError, match="did not make the deps within 10 s"):
            await run
    run = asyncio.create_task(agent_of(ScriptedModel(["Hello"]), DepsFactory(slow_to_close), clock=clock).run("Hello"))
    with caplog.at_level(logging.WARNING, "turnwise"):
        await clock.advance(10.0)
        assert (await run).text == "Hello"
    assert "not closed within 10 s" in caplog.text


def test_a_run_raises_what_making_its_deps_raises(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever made the factory sees it; what closing raises is logged by its type alone."""

    def broken(key: SessionKey) -> Db:
        raise ConnectionError("no database")

    @asynccontextmanager
    async def broken_at_the_end(key: SessionKey) -> AsyncGenerator[Db]:
        yield Db()
        raise ConnectionError(SECRET)

    with pytest.raises(ConnectionError, match="no database"):
        agent_of(ScriptedModel([]), DepsFactory(broken)).run_sync("Hello")
    with caplog.at_level(logging.WARNING, "turnwise"):
        assert agent_of(ScriptedModel(["Hello"]), DepsFactory(broken_at_the_end)).run_sync("Hello").text == "Hello"
    assert "closing the deps of a run raised `ConnectionError`" in caplog.text and SECRET not in caplog.text


def test_a_worker_takes_no_agent_that_needs_deps_from_somebody() -> None:
    """Nor one with such a sub-agent; a factory will do."""
    model = ScriptedModel([])
    below = flat_agent(
        "openai_chat:scripted", base_url="http://scripted.invalid", agents={"helper": agent_of(model, Db)}
    )
    for agent in (agent_of(model, Db), below):
        with pytest.raises(CallerError, match="nobody gives them to a worker's runs"):
            Worker("postgresql://nobody@nowhere.invalid/none", agents={"main": agent})
    Worker("postgresql://nobody@nowhere.invalid/none", agents={"main": agent_of(model, DepsFactory(lambda _: Db()))})
