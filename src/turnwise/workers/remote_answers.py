"""Answer the asks of a turn that workers run, from a program on any machine."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwise.base.clock import SystemClock
from turnwise.turn.config import Approval
from turnwise.workers import ask_answers as answering
from turnwise.workers.ask_answers import OpenAsks
from turnwise.workers.queue import TurnQueue

Result = TypeVar("Result")


async def open_asks(dsn: str, session: str) -> OpenAsks:
    """The asks of the session's turn, with the answers so far. Raises CallerError if nothing waits."""
    return await _with_queue(dsn, lambda queue: answering.open_asks(queue, session))


async def answer_asks(dsn: str, session: str, approvals: Sequence[Approval]) -> int:
    """Store these answers. Returns how many asks of the session are then still open; if there are none, the turn continues.

    Raises CallerError, and stores no answer, if one of them belongs to nothing that waits, or was given before.
    """
    return await _with_queue(dsn, lambda queue: answering.answer(queue, session, approvals, clock=SystemClock()))


async def _with_queue(dsn: str, work: Callable[[TurnQueue], Result]) -> Result:
    def attempt() -> Result:
        queue = TurnQueue(dsn, clock=SystemClock())
        try:
            return work(queue)
        finally:
            queue.close()

    return await asyncio.to_thread(attempt)
