"""Asking a person, within the deadline: what is not answered by then takes its default (promise wait:ask)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec

from turnwise.drivers.clock import Clock, wait_for_task
from turnwise.drivers.threads import in_thread, is_async
from turnwise.drivers.tools.tool_output import journalable, words_of
from turnwise.turn.approvals import Approval, OneAsk, holds, settled
from turnwise.turn.commands import Ask
from turnwise.turn.events import Asked

SETTLE_S = 0.5
THREAD = "turnwise-approver"

_log = logging.getLogger("turnwise")


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What an approver is given: all asks of one step. `path` names the sub-agents that lead to it, outermost first; empty at
    the root. Seconds left until the defaults stand: `deadline_s`."""

    asks: tuple[OneAsk, ...]
    deadline_s: float
    path: tuple[str, ...] = ()


Approver = Callable[[Asking], Awaitable[Sequence[Approval]] | Sequence[Approval]]
"""One approval for each ask that it decides; those that it leaves out take their default. Cancelled at the deadline. A function
that is not `async def` runs in a thread of its own, so it may block; at the deadline it is left behind."""


class _Raised(msgspec.Struct, frozen=True):
    error: BaseException


async def put(approver: Approver, asking: Asking) -> Sequence[Approval]:
    """What the approver answers, plain or async. Raises what it raises."""

    def call() -> object:
        try:
            return approver(asking)
        except BaseException as error:  # noqa: BLE001 (raised again by the one who waits)
            return _Raised(error)

    said = cast("object", approver(asking) if is_async(approver) else await in_thread(call, name=THREAD))
    if isinstance(said, _Raised):
        raise said.error
    return cast("Sequence[Approval]", await said if inspect.isawaitable(said) else said)


async def ask(
    order: Ask,
    *,
    approver: Approver | None,
    clock: Clock,
    path: tuple[str, ...] = (),
    scrub: Callable[[str], str] = str,
    over: "asyncio.Future[None] | None" = None,
) -> Asked:
    """The answers that came in time, one for each call; `over` ends that time before the deadline does. An approver that raises,
    or answers nonsense, denies and is told as such; what was not asked is left out. What it raised goes through `scrub`."""
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
    answers = _failed(asking, why="it cancelled itself") if task.cancelled() else task.result()
    return Asked(approvals=_kept(answers, asks=order.asks))


def _kept(answers: Sequence[Approval], *, asks: Sequence[OneAsk]) -> tuple[Approval, ...]:
    """One answer for each ask. Nothing is remembered of an answer that is for something else."""
    asked = {one.call.id: one for one in asks}
    kept: list[Approval] = []
    for approval in settled(answers).values():
        if (one := asked.get(approval.call_id)) is not None:
            always = approval.always and holds(approval, ask=one)
            kept.append(msgspec.structs.replace(approval, always=always))
    return tuple(kept)


async def _answers(approver: Approver, asking: Asking, *, scrub: Callable[[str], str]) -> list[Approval]:
    """What it answers. Raises nothing but a cancellation: an approver is a stranger."""
    try:
        given = cast("object", await put(approver, asking))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 (`sys.exit()` in it must not end the program)
        return _failed(asking, why=f"it raised {scrub(words_of(error))}")
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return _failed(asking, why=f"it answered with `{type(given).__name__}`, which is no list of approvals")
    answers: list[Approval] = []
    nonsense = ""
    for one in cast("Sequence[object]", given):
        try:
            answer = msgspec.convert(msgspec.to_builtins(one), Approval)
            answers.append(msgspec.structs.replace(answer, text=journalable(answer.text)))
        except (msgspec.ValidationError, TypeError) as error:
            nonsense = f"it gave an answer that is no approval: {scrub(str(error))}"
    # behind its other answers: which ask the nonsense was for, nobody knows
    left = {one.call.id for one in asking.asks} - {one.call_id for one in answers}
    return answers + [one for one in (_failed(asking, why=nonsense) if nonsense else []) if one.call_id in left]


def _failed(asking: Asking, *, why: str) -> list[Approval]:
    """The denials of an approver that did not do its work."""
    why = journalable(why)
    _log.warning("the approver failed: %s; its asks are denied", why)
    return [Approval(call_id=one.call.id, verdict="deny", by="failed", text=why) for one in asking.asks]
