"""Turns that workers run, from a program on any machine: the functions behind `turnwise submit`, `status`, `answer`, `cancel`
and `retry`.
`follow` is `turnwise.watch_session`.

Each opens a connection to the journal's database (`dsn`: `postgresql://USER@HOST/DATABASE`) and closes it, beside the event loop.
All raise JournalFailed if the database fails.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from turnwise.base.clock import SystemClock
from turnwise.base.extras import require_extras
from turnwise.errors import CallerError
from turnwise.journal.session_rows import NO_LABELS, Labels
from turnwise.settings.options import RunSettings, rows_of_limits
from turnwise.turn.config import Approval, Effect
from turnwise.workers.turn_status import QueueTotals, RetriedTurn, TurnFilter, TurnStatus, TurnWishes

if TYPE_CHECKING:  # both need psycopg
    from turnwise.workers.ask_answers import OpenAsks
    from turnwise.workers.queue import TurnQueue

Result = TypeVar("Result")
TurnState = Literal["queued", "running", "waiting", "ended"]
MOST_SHOWN = 1000


async def submit_turn(
    dsn: str,
    prompt: str,
    *,
    agent: str,
    session: str = "",
    priority: int = 0,
    needs: Sequence[str] = (),
    folder: Path | str = "",
    model: str = "",
    instructions: str = "",
    effects: Sequence[Effect] | None = None,
    limits: Mapping[str, float] = {},
    labels: Labels = NO_LABELS,
) -> str:
    """Let a worker run a turn of the `agent` (the name by which workers call it). Returns the session's id at once.

    Turns with a higher `priority` begin first. Only workers that offer all of `needs` run it. `model`, `instructions`, `effects`
    and `limits` (`{"max_cost": 0.20, "max_steps": 5}`, as on the command line) can only narrow what the agent may do. Raises
    CallerError if the session does not exist or has other labels.
    """
    known = {row.name for row in rows_of_limits()}
    if strange := [name for name in limits if name not in known]:
        raise CallerError(f"`limits` has no `{strange[0]}`: give some of {', '.join(sorted(known))}")
    try:
        most = msgspec.convert(dict(limits), RunSettings)
    except msgspec.ValidationError as error:
        raise CallerError(f"`limits`: {error}") from None
    wishes = TurnWishes(
        model=model, instructions=instructions, effects=None if effects is None else tuple(effects), most=most
    )
    return await _with_queue(
        dsn,
        lambda queue: queue.submit(
            prompt,
            agent=agent,
            session=session,
            priority=priority,
            needs=needs,
            folder=folder,
            wishes=wishes,
            labels=labels,
        ),
    )


async def turn_status(
    dsn: str,
    session: str = "",
    *,
    limit: int = MOST_SHOWN,
    state: TurnState | None = None,
    agent: str = "",
    labels: Labels = NO_LABELS,
) -> list[TurnStatus]:
    """The turns that were submitted (to one session), the latest first, and what each waits for.

    Without a session, `state`, `agent` and `labels` choose among all turns. With an agent or labels and no state, only turns that
    have not ended are looked at.
    """
    only = TurnFilter(state=state or "", agent=agent, labels=labels)
    return await _with_queue(dsn, lambda queue: queue.status(session, limit=limit, only=only))


async def queue_totals(
    dsn: str, *, state: TurnState | None = None, agent: str = "", labels: Labels = NO_LABELS
) -> QueueTotals:
    """How many turns wait and run, by agent and state, and which workers run them. Turns that have ended are not read, so their
    number costs nothing."""
    only = TurnFilter(state=state or "", agent=agent, labels=labels)
    return await _with_queue(dsn, lambda queue: queue.totals(only=only))


async def cancel_turns(dsn: str, session: str) -> int:
    """Cancel the session's turns. Returns how many end: waiting turns at once, a running one when its worker hears of it."""
    return await _with_queue(dsn, lambda queue: queue.cancel(session))


async def retry_turns(dsn: str, session: str) -> RetriedTurn:
    """Let a worker run the session's last turn again, if it failed. Returns how it had ended.

    A turn has failed if its provider failed (`provider_failed`), if five workers in a row died of it, or if its agent or a tool
    raised an exception. A new turn with the same prompt and the same limits begins, before the later turns of the session. The
    model sees what the failed turn has done. Raises CallerError if there is no such turn, or if it waits already to run again.
    """
    return await _with_queue(dsn, lambda queue: queue.retry(session))


async def open_asks(dsn: str, session: str) -> "OpenAsks":
    """The asks of the session's turn, with the answers so far. Raises CallerError if nothing waits."""

    def find(queue: "TurnQueue") -> "OpenAsks":
        from turnwise.workers import ask_answers

        return ask_answers.open_asks(queue, session)

    return await _with_queue(dsn, find)


async def answer_asks(dsn: str, session: str, approvals: Sequence[Approval]) -> int:
    """Store these answers. Returns how many asks of the session are then still open; if there are none, the turn continues.

    Raises CallerError, and stores no answer, if one of them belongs to nothing that waits, or was given before.
    """

    def store(queue: "TurnQueue") -> int:
        from turnwise.workers import ask_answers

        return ask_answers.answer(queue, session, approvals, clock=SystemClock())

    return await _with_queue(dsn, store)


async def _with_queue(dsn: str, work: "Callable[[TurnQueue], Result]") -> Result:
    require_extras("postgres")
    from turnwise.workers.queue import TurnQueue

    def attempt() -> Result:
        queue = TurnQueue(dsn, clock=SystemClock())
        try:
            return work(queue)
        finally:
            queue.close()

    return await asyncio.to_thread(attempt)
