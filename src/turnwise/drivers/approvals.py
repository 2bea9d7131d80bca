"""Asking a person, within the deadline: what is not answered by then takes its default (promise wait:ask)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from turnwise.drivers.clock import Clock, wait_for_task
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


async def ask(order: Ask, *, approver: Approver | None, clock: Clock, path: tuple[str, ...] = ()) -> Asked:
    """The answers that came in time. An approver that raises or answers what was not asked has not answered."""
    if approver is None:
        return Asked()
    asking = Asking(asks=order.asks, deadline_s=order.deadline_s, path=path)
    task = asyncio.ensure_future(approver(asking))
    try:
        ended = await wait_for_task(task, clock=clock, timeout_s=order.deadline_s)
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
    if (error := task.exception()) is not None:
        _log.warning("the approver raised, so its asks take their defaults", exc_info=error)
        return Asked()
    asked = {one.call.id for one in order.asks}
    return Asked(approvals=tuple([approval for approval in task.result() if approval.call_id in asked]))
