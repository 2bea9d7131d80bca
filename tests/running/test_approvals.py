"""Asking a person: whatever an approver does, the turn goes on, and no key reaches a log."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from turnwise.running.approvals import Approver, Asking, ask
from turnwise.testing import FakeClock
from turnwise.turn.config import Approval, OneAsk
from turnwise.turn.events import Ask, Asked
from turnwise.vocab import ToolCall

CALL = ToolCall(id="a", name="write", arguments="{}")
ORDER = Ask(step=1, asks=(OneAsk(call=CALL, arguments="{}", subject="write"),), deadline_s=30.0)
YES = Approval(call_id="a", verdict="allow")


def hide(text: str) -> str:
    return text.replace("sk-123456789", "***")


async def raises(_: Asking) -> Sequence[Approval]:
    raise OSError("401 for https://x/?key=sk-123456789")


async def leaves(_: Asking) -> Sequence[Approval]:
    raise SystemExit(1)


def is_not_async(_: Asking) -> Sequence[Approval]:
    raise KeyError("sk-123456789")


async def says_nothing(_: Asking) -> None:
    return None


async def says_yes(_: Asking) -> str:
    return "yes"


async def says_no_approval(_: Asking) -> list[object]:
    return ["yes", None, {"call_id": "a", "verdict": "perhaps"}]


async def cancels_itself(_: Asking) -> Sequence[Approval]:
    raise asyncio.CancelledError


STRANGERS = (
    (raises, "it raised OSError"),
    (leaves, "it raised SystemExit"),
    (is_not_async, "it raised KeyError"),
    (says_nothing, "it answered with `NoneType`, which is no list of approvals"),
    (says_yes, "it answered with `str`, which is no list of approvals"),
    (says_no_approval, "it gave an answer that is no approval: "),
    (cancels_itself, "it cancelled itself"),
)


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(("approver", "why"), STRANGERS)
async def test_an_approver_that_fails_denies_and_is_told_as_such(
    approver: Approver, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: whatever a stranger's approver does its asks are denied, the answer says what happened, and what it said of a key
    is neither logged nor told. What it raised is in the log alone."""
    with caplog.at_level(logging.WARNING, logger="turnwise"):
        asked = await ask(ORDER, approver=approver, clock=FakeClock(), scrub=hide)
    (answer,) = asked.approvals
    assert (answer.call_id, answer.verdict, answer.by) == ("a", "deny", "failed")
    assert answer.text.startswith(why)
    assert "sk-123456789" not in caplog.text + answer.text
    assert caplog.records


async def test_a_plain_approver_answers_from_a_thread_of_its_own() -> None:
    """Proves (issue 13, 15): it may block, as a plain hook may; one that only makes an awaitable is awaited."""
    threads: list[str] = []

    def plain(asking: Asking) -> Sequence[Approval]:
        threads.append(threading.current_thread().name)
        return [Approval(call_id=one.call.id, verdict="allow") for one in asking.asks]

    async def later(asking: Asking) -> Sequence[Approval]:
        return plain(asking)

    for approver in (plain, later, partial(later)):
        assert await ask(ORDER, approver=approver, clock=FakeClock()) == Asked(approvals=(YES,))
    assert threads[0] == "turnwise-approver"


async def test_of_contradicting_answers_one_is_kept_and_a_denial_wins() -> None:
    """Proves (issue 13, 15): the journal has one answer for each ask, and remembers none that was for something else."""

    async def both(_: Asking) -> Sequence[Approval]:
        return [YES, Approval(call_id="a", verdict="deny", text="no")]

    expected = Approval(call_id="a", verdict="deny", text="no")
    assert await ask(ORDER, approver=both, clock=FakeClock()) == Asked(approvals=(expected,))

    async def of_another(_: Asking) -> Sequence[Approval]:
        return [Approval(call_id="a", verdict="allow", always=True, digest="of another ask")]

    (answer,) = (await ask(ORDER, approver=of_another, clock=FakeClock())).approvals
    assert not answer.always


async def test_nonsense_beside_answers_denies_what_they_leave_open() -> None:
    """Proves: the good answer counts, and what the nonsense may have been for is denied."""
    other = OneAsk(call=replace(CALL, id="b"), arguments="{}", subject="write")
    order = replace(ORDER, asks=(*ORDER.asks, other))

    async def half(_: Asking) -> list[object]:
        return [YES, {"call_id": "b", "verdict": "perhaps"}]

    first, second = (await ask(order, approver=half, clock=FakeClock())).approvals  # type: ignore[arg-type]
    assert first == YES
    assert (second.call_id, second.verdict, second.by) == ("b", "deny", "failed")


async def test_answers_are_fit_for_the_journal() -> None:
    """Proves: what was not asked is left out, and a text that JSON cannot carry is written out."""

    async def answers(_: Asking) -> Sequence[Approval]:
        stray = Approval(call_id="b", verdict="allow")
        return [stray, Approval(call_id="a", verdict="deny", text="no \ud800")]

    expected = Approval(call_id="a", verdict="deny", text="no \\ud800")
    assert await ask(ORDER, approver=answers, clock=FakeClock()) == Asked(approvals=(expected,))


@pytest.mark.promise("wait:ask")
async def test_an_approver_that_does_not_let_go_is_left_behind() -> None:
    """Proves: at the deadline the defaults stand, though the approver ignores its cancellation."""
    clock, began, over = FakeClock(), asyncio.Event(), asyncio.Event()

    async def holds_on(_: Asking) -> Sequence[Approval]:
        began.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        return [YES]

    asking = asyncio.create_task(ask(ORDER, approver=holds_on, clock=clock))
    await began.wait()
    for _ in range(2):
        await clock.advance(ORDER.deadline_s)
    assert asking.done() and asking.result() == Asked()
    over.set()
    await asyncio.sleep(0)
