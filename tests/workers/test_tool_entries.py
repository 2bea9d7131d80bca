"""Before each entry of a tool its worker's lease is looked at: a process that was frozen enters none any more."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest

from flat_agents import flat_agent
from turnwise import Agent, Approval, Journal, tool
from turnwise.agent.agent import inside
from turnwise.agent.agent_setup import ALL_EFFECTS
from turnwise.base.activity import Activity
from turnwise.base.clock import SystemClock
from turnwise.errors import JournalFailed
from turnwise.journal.owners import Claim
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Frame
from turnwise.workers.queue import TurnQueue, WorkerTerms

TERMS = WorkerTerms(name="worker@one:1:1", agents=("helper",))
PROGRAM = """
import asyncio
await asyncio.gather(quick(name="a"), quick(name="b"))
threaded(name="c")
"""


class EndedProcess(BaseException):
    """Stands for the end of the process."""


class WatchedLease:
    """Notes each look at it. Once it `has_lapsed`, a look ends the process."""

    ends = False
    is_over = False

    def __init__(self) -> None:
        self.activity = Activity(on_rest=lambda: None)
        self.seen: list[str] = []
        self.has_lapsed = False
        self.lapses_with = ""  # the tool in which the process is frozen

    def check(self) -> None:
        if self.has_lapsed:
            raise EndedProcess
        self.seen.append("look")

    def see_frames(self, turn: str, frames: Sequence[Frame], /, *, number: int) -> None:
        """Nobody follows."""

    def let_go(self) -> None:
        raise JournalFailed("given back")

    def ask(self, asks: object, *, deadline_s: float, folder: str) -> Sequence[Approval]:
        raise AssertionError("these tools ask nobody")

    def enter(self, name: str) -> str:
        self.seen.append(name)
        self.has_lapsed = name == self.lapses_with
        return f"did {name}"


@pytest.fixture
def lease() -> WatchedLease:
    return WatchedLease()


@pytest.fixture
def claim(postgres_dsn: str) -> Iterator[Claim]:
    queue = TurnQueue(postgres_dsn, clock=SystemClock())
    queue.open()
    queue.submit("Go", agent="helper")
    found = queue.claim(TERMS)
    assert found is not None
    yield found
    queue.close()


async def run(lines: list[object], *, dsn: str, claim: Claim, lease: WatchedLease) -> list[str]:
    """What happened around the tools, in order: each look at the lease, each tool that was entered."""

    @tool(effect="read")
    async def quick(name: str) -> str:
        """Enter at once."""
        return lease.enter(name)

    @tool(effect="read")
    def threaded(name: str) -> str:
        """Enter in a thread of its own."""
        return lease.enter(name)

    def agent(model: ScriptedModel, **more: object) -> Agent:
        given = {"transport": model, "tools": [quick, threaded], **more}
        return flat_agent("openai_chat:m", **given)  # pyright: ignore[reportArgumentType]

    helper = agent(ScriptedModel([call("quick", name="child"), "Helped."]), description="It helps.")
    root = agent(ScriptedModel([*lines, "Done."]), agents={"helper": helper}, script=True)  # pyright: ignore[reportArgumentType]
    with Journal(dsn, clock=SystemClock()) as journal:
        working = inside(root).keeping(
            journal.under(claim, lease=lease), config=inside(root).config, effects=ALL_EFFECTS
        )
        await working.run("Go", session=claim.session)
    return lease.seen


ALONE = [call("quick", name="a")]
THREAD = [call("threaded", name="a")]
PARALLEL = [(call("quick", name="a"), call("quick", name="b"), call("quick", name="c"))]
MIXED = [(call("quick", name="a"), call("threaded", name="b"), call("quick", name="c"))]
CHILD = [call("task", agent="helper", prompt="Help.")]
IN_PROGRAM = [call("script", program=PROGRAM)]


@pytest.mark.promise("keep:machines")
@pytest.mark.parametrize(
    ("lines", "entered"),
    [(ALONE, "a"), (THREAD, "a"), (PARALLEL, "abc"), (CHILD, ["child"]), (IN_PROGRAM, "abc")],
    ids=["alone", "in a thread", "parallel", "a sub-agent's", "of a program"],
)
async def test_each_entry_of_a_tool_follows_a_look_at_the_lease(
    lines: list[object], entered: str, postgres_dsn: str, claim: Claim, lease: WatchedLease
) -> None:
    """Proves: between two entries, and before the first, the lease was looked at: also of the calls of one step, of a sub-agent's
    and of a program's."""
    seen = await run(lines, dsn=postgres_dsn, claim=claim, lease=lease)
    assert sorted([what for what in seen if what != "look"]) == list(entered)
    assert {before for before, what in pairwise(seen) if what != "look"} == {"look"}


@pytest.mark.promise("keep:machines")
@pytest.mark.parametrize("lines", [PARALLEL, MIXED, IN_PROGRAM], ids=["parallel", "threads", "of a program"])
async def test_a_process_that_was_frozen_in_one_call_enters_no_other(
    lines: list[object], postgres_dsn: str, claim: Claim, lease: WatchedLease
) -> None:
    """Proves: where the lease lapses while the first of several calls runs, none of the others is entered."""
    lease.lapses_with = "a"
    with suppress(EndedProcess, BaseExceptionGroup):
        await run(lines, dsn=postgres_dsn, claim=claim, lease=lease)
    assert [what for what in lease.seen if what != "look"] == ["a"]
