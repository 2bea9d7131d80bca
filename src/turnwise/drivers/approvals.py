"""Asking a person, within the deadline: what is not answered by then takes its default (promise wait:ask)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec

from turnwise.drivers.clock import Clock, wait_for_task
from turnwise.drivers.tool_output import journalable, words_of
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.commands import Ask
from turnwise.turn.events import Asked

SETTLE_S = 0.5

_log = logging.getLogger("turnwise")


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What an approver is given: all asks of one step. `path` names the sub-agents that lead to it, outermost first; empty at
    the root. Seconds left until the defaults stand: `deadline_s`."""

    asks: tuple[OneAsk, ...]
    deadline_s: float
    path: tuple[str, ...] = ()


Approver = Callable[[Asking], Awaitable[Sequence[Approval]]]
"""One approval for each ask that it decides; those that it leaves out take their default. Cancelled at the deadline."""


async def ask(
    order: Ask,
    *,
    approver: Approver | None,
    clock: Clock,
    path: tuple[str, ...] = (),
    scrub: Callable[[str], str] = str,
    over: "asyncio.Future[None] | None" = None,
) -> Asked:
    """The answers that came in time; `over` ends that time before the deadline does. An approver that raises, or answers nonsense
    or what was not asked, has not answered; what it raised is logged, through `scrub`."""
    if approver is None:
        return Asked()
    asking = Asking(asks=order.asks, deadline_s=order.deadline_s, path=path)
    task = asyncio.create_task(_answers(approver, asking, scrub=scrub))
    try:
        ended = await wait_for_task(task, clock=clock, timeout_s=order.deadline_s, over=over)
    except asyncio.CancelledError:
        task.cancel()
        await wait_for_task(task, clock=clock, timeout_s=SETTLE_S)
        raise
    if not ended:
        task.cancel()
        await wait_for_task(task, clock=clock, timeout_s=SETTLE_S)
        return Asked()
    if task.cancelled():
        return Asked()
    asked = {one.call.id for one in order.asks}
    return Asked(approvals=tuple([approval for approval in task.result() if approval.call_id in asked]))


async def _answers(approver: Approver, asking: Asking, *, scrub: Callable[[str], str]) -> list[Approval]:
    """What it answers. Raises nothing but a cancellation: an approver is a stranger."""
    try:
        given = cast("object", await approver(asking))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 (`sys.exit()` in it must not end the program)
        _log.warning("the approver raised %s; its asks take their defaults", scrub(words_of(error)))
        return []
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        _log.warning("the approver answered with `%s`; its asks take their defaults", type(given).__name__)
        return []
    answers: list[Approval] = []
    for one in cast("Sequence[object]", given):
        try:
            answer = msgspec.convert(msgspec.to_builtins(one), Approval)
            answers.append(msgspec.structs.replace(answer, text=journalable(answer.text)))
        except (msgspec.ValidationError, TypeError) as error:
            _log.warning("the approver gave an answer that is none (%s); its ask takes its default", scrub(str(error)))
    return answers
