"""A run that ends early keeps what waits, wherever it was and whatever ended it (issue 14, 1 and done-when 3)."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from turnwise import Agent, Approval, Asking, Hook, Journal, Policy, StopReason, ToolSpec, tool
from turnwise.agent.results import RunResult
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Message, Text, ToolResult
from waits import HANG_S

PROGRAM = "slow()\n"
PLACES = ("tool", "sub-agent", "program", "hook after tools")
published: list[str] = []


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    published.append(page)
    return f"{page} is published"


@tool(effect="read")
async def slow() -> str:
    """Never ends by itself."""
    reached.set()
    await asyncio.Event().wait()
    return "late"


@tool(effect="read")
def look() -> str:
    """Look."""
    return "nothing"


async def later(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


async def never(asking: Asking) -> Sequence[Approval]:
    reached.set()
    await asyncio.Event().wait()
    return []


async def waits(_: object) -> None:
    reached.set()
    await asyncio.Event().wait()


reached = asyncio.Event()


@pytest.fixture(autouse=True)
def _anew() -> None:
    global reached  # an event belongs to the loop of its test
    reached = asyncio.Event()
    published.clear()


class House:
    """An agent with calls that wait beside one that `slow` keeps open, and its runs by `session=` or `history=`."""

    def __init__(self, beside: Any, *, by: str, folder: Path, **options: Any) -> None:
        self.model = ScriptedModel([[call("publish", page="a"), beside, call("phone")], "Done."])
        self.child = ScriptedModel([call("slow")])
        self.by = by
        self.journal = Journal(folder / "journal.db", clock=SystemClock()) if by == "session" else None
        self.options: dict[str, Any] = {"policy": Policy(attended=True), "approver": later, **options}
        self.last: RunResult | None = None

    def agent(self, **changed: Any) -> Agent:
        child = flat_agent(
            "openai_chat:small",
            base_url=self.child.endpoint.base_url,
            transport=self.child,
            tools=[slow],
            description="c",
        )
        return flat_agent(
            "openai_chat:scripted",
            base_url=self.model.endpoint.base_url,
            transport=self.model,
            journal=self.journal,
            tools=[publish, slow, look, ToolSpec(name="phone")],
            agents={"writer": child},
            script=True,
            **{**self.options, **changed},
        )

    async def cancelled(self, *, how: str) -> RunResult | None:
        """The first run, ended once it is where it is meant to be."""
        agent = self.agent()
        run = agent.start("Go.")
        async with asyncio.timeout(HANG_S):
            await reached.wait()
            if how == "task":
                run.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await run
                return None
            run.interrupt("deadline" if how == "deadline" else "cancel")
            self.last = await run
        return self.last

    async def answer(self, **options: Any) -> RunResult:
        if self.last is not None:
            before: dict[str, Any] = (
                {"session": self.last.session} if self.by == "session" else {"history": self.last.history}
            )
        else:
            assert self.journal is not None
            before = {"session": self.journal.sessions()[0].id}
        self.last = await self.agent(hooks=(), approver=later).run(**before, **options)
        return self.last


def beside(place: str) -> Any:
    match place:
        case "sub-agent":
            return call("task", agent="writer", prompt="Work.")
        case "program":
            return call("script", program=PROGRAM)
        case "tool":
            return call("slow")
        case _:
            return call("look")


def hooks_at(place: str) -> dict[str, Any]:
    if place == "hook after tools":
        return {"hooks": [Hook(point="after_tool", function=waits, name="waits", timeout_s=HANG_S)]}
    if place == "hook before tools":
        return {"hooks": [Hook(point="before_tool", function=waits, name="waits", timeout_s=HANG_S)]}
    return {"approver": never} if place == "ask" else {}


def said(messages: Sequence[Message]) -> dict[str, str]:
    """Call id -> the words of its one result."""
    found: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                assert part.call_id not in found, "two results for one call"
                found[part.call_id] = "".join([one.text for one in part.content if isinstance(one, Text)])
    return found


@pytest.mark.parametrize("by", ["session", "history"])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.promise("wait:ask", "wait:cancel", "step:client-tools")
async def test_a_first_run_that_ends_early_keeps_what_waits(place: str, how: str, by: str, tmp_path: Path) -> None:
    """The ask that was left for later and the client-side call wait on; each answer is taken, and none of them is doubled."""
    house = House(beside(place), by=by, folder=tmp_path, **hooks_at(place))
    first = await house.cancelled(how=how)
    assert first is not None
    assert first.stop_reason is (StopReason.CANCELLED if how == "cancel" else StopReason.TIME_LIMIT)
    a, phone = [one.id for one in first.pending]
    assert [ask.call.id for ask in first.asks] == [a] and not published
    assert {a, phone}.isdisjoint(said(first.messages))
    second = await house.answer(results={phone: "it rang"})
    assert second.stop_reason is StopReason.WAITING and [one.id for one in second.pending] == [a]
    third = await house.answer(approvals=[Approval(call_id=a, verdict="allow")])
    assert third.text == "Done." and third.complete and published == ["a"]
    words = said(house.model.asked[-1].messages)
    assert words[a] == "a is published" and words[phone] == "it rang" and len(words) == 3
    assert said(third.messages) == words


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.promise("wait:ask", "wait:cancel")
async def test_a_cancelled_task_keeps_what_waits_in_its_session(place: str, tmp_path: Path) -> None:
    """Nobody has the result of such a run; the journal has what waits."""
    house = House(beside(place), by="session", folder=tmp_path, **hooks_at(place))
    assert await house.cancelled(how="task") is None
    last = await house.answer(
        approvals=[Approval(call_id="call_1_1", verdict="allow")], results={"call_1_3": "it rang"}
    )
    assert last.text == "Done." and published == ["a"]


@pytest.mark.parametrize("place", ["ask", "hook before tools"])
@pytest.mark.promise("wait:ask", "wait:cancel")
async def test_an_ask_at_hand_ends_with_the_run_and_a_client_side_call_does_not(place: str, tmp_path: Path) -> None:
    """Nobody has left the ask for later: the cancel is the answer to it, in words that are true."""
    house = House(beside("tool"), by="history", folder=tmp_path, **hooks_at(place))
    first = await house.cancelled(how="cancel")
    assert first is not None
    assert [one.name for one in first.pending] == ["phone"] and first.asks == ()
    (phone,) = [one.id for one in first.pending]
    done = await house.answer(results={phone: "it rang"})
    assert done.text == "Done." and not published
    assert sorted(said(house.model.asked[-1].messages).values()) == [
        "Not run: cancelled by the user before this call had started.",
        "Not run: cancelled by the user before this call had started.",
        "it rang",
    ]


@pytest.mark.promise("wait:ask", "wait:cancel")
async def test_a_message_goes_on_without_what_a_cancelled_run_left(tmp_path: Path) -> None:
    """As behind any run that waits: the model is told what is true, and an answer that comes afterwards is refused."""
    house = House(beside("tool"), by="history", folder=tmp_path)
    first = await house.cancelled(how="cancel")
    assert first is not None
    a, phone = [one.id for one in first.pending]
    done = await house.agent().run("Never mind.", history=first.history)
    words = said(house.model.asked[-1].messages)
    assert words[a].startswith("Not run: this call waited for the user to decide")
    assert words[phone].startswith("There is no result for this call")
    with pytest.raises(CallerError, match="gone on without it"):
        await house.agent().run(history=done.history, approvals=[Approval(call_id=a, verdict="allow")])
