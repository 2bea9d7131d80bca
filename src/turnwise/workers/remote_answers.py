"""From a program, on any machine: answer what a turn asks that workers run."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwise.base.clock import SystemClock
from turnwise.turn.approvals import Approval
from turnwise.workers import ask_answers as answering
from turnwise.workers.ask_answers import OpenAsks
from turnwise.workers.queue import TurnQueue

Result = TypeVar("Result")


async def open_asks(dsn: str, session: str) -> OpenAsks:
    """What a turn of the session asks a person, with the answers that there are. Raises CallerError where nothing waits."""
    return await _with_queue(dsn, lambda queue: answering.open_asks(queue, session))


async def answer_asks(dsn: str, session: str, approvals: Sequence[Approval]) -> int:
    """How many asks of the session are still open once these answers stand; the turn goes on when there are none.

    Raises CallerError, and keeps none of the answers, where one is for nothing that waits, or was answered before.
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
