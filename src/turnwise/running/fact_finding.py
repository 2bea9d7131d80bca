"""The facts of calls, from an inspector that may be anybody's. One that fails finds nothing, and what is not known is asked
about: it neither ends the turn nor lets a call through."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from turnwise.base.clock import Clock, ends_in_time
from turnwise.rules.permission_facts import CallFacts
from turnwise.running.tool_output import words_of
from turnwise.turn.commands import InspectCalls, PlannedCall, RunTools
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import CallsInspected
from turnwise.turn.verdicts import changed_since
from turnwise.vocab import ToolResult

INSPECT_S = 10.0  # twice what the inspector of the workspace gives itself: that one knows why it found nothing
SETTLE_S = 0.5

_log = logging.getLogger("turnwise")

Inspector = Callable[[Sequence[PlannedCall]], Awaitable[Sequence[CallFacts]]]
"""The facts of calls: resolved paths, parsed shell commands. What it leaves out, raises over or finds after `INSPECT_S` seconds
is not known, and asked about."""


async def find_facts(
    order: InspectCalls, *, inspector: Inspector | None, clock: Clock, scrub: Callable[[str], str] = str
) -> CallsInspected:
    """What the inspector found in time. What it raised is logged, through `scrub`."""
    if inspector is None:
        return CallsInspected(facts=())
    task = asyncio.create_task(_found(inspector, order.calls, scrub=scrub))
    if not await ends_in_time(task, clock=clock, timeout_s=INSPECT_S, settle_s=SETTLE_S):
        _log.warning("the inspector of calls found nothing within %g s; they are asked about", INSPECT_S)
        return CallsInspected(facts=())
    return CallsInspected(facts=() if task.cancelled() else task.result())


async def find_changed(
    order: RunTools,
    *,
    inspector: Inspector | None,
    offers: Mapping[str, ToolOffer],
    clock: Clock,
    scrub: Callable[[str], str] = str,
) -> dict[str, ToolResult]:
    """The results of the calls that would do something else by now than a person was shown and allowed, by call id."""
    shown = [plan for plan in order.calls if plan.shown and plan.call.name in offers]
    inspected = tuple([plan for plan in shown if offers[plan.call.name].inspected])
    found = CallsInspected(facts=())
    if inspected:
        look = InspectCalls(step=order.step, calls=inspected)
        found = await find_facts(look, inspector=inspector, clock=clock, scrub=scrub)
    return changed_since(shown, facts={one.call_id: one for one in found.facts}, offers=offers)


async def _found(
    inspector: Inspector, calls: Sequence[PlannedCall], *, scrub: Callable[[str], str]
) -> tuple[CallFacts, ...]:
    """Raises nothing but a cancellation."""
    try:
        given = tuple(cast("Sequence[object]", await inspector(calls)))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 (a stranger's: `sys.exit()` in it must not end the program)
        _log.warning("the inspector of calls raised %s; they are asked about", scrub(words_of(error)))
        return ()
    facts = tuple([one for one in given if isinstance(one, CallFacts)])
    if len(facts) < len(given):
        _log.warning("the inspector of calls found what are no CallFacts; such calls are asked about")
    return facts
