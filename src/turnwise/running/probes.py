"""Asking a tool's probe what became of a call whose process has died."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from turnwise.base.clock import Clock, wait_for_task
from turnwise.base.threads import in_thread, is_async
from turnwise.running.grants import CallTerms, judged_paths
from turnwise.running.tool_output import result_of
from turnwise.turn.commands import PlannedCall
from turnwise.vocab import ToolResult

CallProbe = Callable[[dict[str, object]], object]
"""Takes a call's arguments and tells what became of it: its result, or None if it has not happened. Whatever it raises: nobody
knows. Changes nothing."""

MOST_S = 30.0
THREAD = "turnwise-probe"


class OutcomeUnknown(Exception):
    """The probe could not tell."""


async def ask_probe(probe: CallProbe, planned: PlannedCall, *, key: str, clock: Clock) -> ToolResult | None:
    """The call's result; None if it has not happened. Raises OutcomeUnknown."""
    call = planned.call
    arguments: dict[str, object] = (
        {"input": planned.arguments}
        if call.free_form
        else msgspec.json.decode(planned.arguments, type=dict[str, object])
    )
    with CallTerms(seconds=None, computes=False, call=key), judged_paths(planned.paths or None):
        task = asyncio.create_task(_ask(probe, arguments), name=f"probe {call.name}")
    if not await wait_for_task(task, clock=clock, timeout_s=min(planned.timeout_s, MOST_S)):
        task.cancel()
        raise OutcomeUnknown
    said = task.result()
    if isinstance(said, OutcomeUnknown):
        raise said
    return None if said is None else result_of(call, said)


async def _ask(probe: CallProbe, arguments: dict[str, object]) -> object:
    """Raises nothing but a cancellation: a probe is a stranger."""
    try:
        if is_async(probe):
            said = probe(arguments)
        else:
            said = await in_thread(functools.partial(_ask_here, probe, arguments), name=THREAD)
        return await cast("Awaitable[object]", said) if inspect.isawaitable(said) else said
    except asyncio.CancelledError:
        raise
    except BaseException:  # noqa: BLE001 (what it raises says that it does not know)
        return OutcomeUnknown()


def _ask_here(probe: CallProbe, arguments: dict[str, object]) -> object:
    try:
        return probe(arguments)
    except BaseException:  # noqa: BLE001 (as above)
        return OutcomeUnknown()
