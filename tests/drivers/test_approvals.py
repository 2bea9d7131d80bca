"""Asking a person: whatever an approver does, the turn goes on, and no key reaches a log."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from turnwise.drivers.approvals import Approver, Asking, ask
from turnwise.testing import FakeClock
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.commands import Ask
from turnwise.turn.events import Asked
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


STRANGERS = (raises, leaves, is_not_async, says_nothing, says_yes, says_no_approval, cancels_itself)


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize("approver", STRANGERS)
async def test_an_approver_that_fails_has_not_answered(approver: Approver, caplog: pytest.LogCaptureFixture) -> None:
    """Proves: whatever a stranger's approver does its asks take their defaults, and what it said of a key is not logged."""
    with caplog.at_level(logging.WARNING, logger="turnwise"):
        assert await ask(ORDER, approver=approver, clock=FakeClock(), scrub=hide) == Asked()
    assert "sk-123456789" not in caplog.text
    assert bool(caplog.records) == (approver is not cancels_itself)


async def test_answers_are_fit_for_the_journal() -> None:
    """Proves: what was not asked is left out, and a text that JSON cannot carry is mended."""

    async def answers(_: Asking) -> Sequence[Approval]:
        stray = Approval(call_id="b", verdict="allow")
        return [stray, Approval(call_id="a", verdict="deny", text="no \ud800")]

    expected = Approval(call_id="a", verdict="deny", text="no ?")
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
