"""The text that a worker's turns stream, in pieces, for those who follow the turns in other processes.

Nothing here is kept, and no turn waits for it: a piece that cannot be sent is dropped. The journal has the whole text in the end.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from turnwise.base.clock import Clock
from turnwise.errors import TurnwiseError
from turnwise.journal.postgres.news import channel_of
from turnwise.vocab import Frame, TextDelta
from turnwise.workers.queue import TurnQueue

PAUSE_S = 0.1  # between two sendings of a worker: a NOTIFY makes all commits of the database wait for each other
MOST_CHARACTERS = 1200  # of a piece: as JSON less than the 8,000 bytes that PostgreSQL takes
MOST_AT_ONCE = 4  # pieces of a turn
SEND = "select pg_notify(channel, piece) from unnest(%s::text[], %s::text[]) as sent (channel, piece)"


class TurnPieces:
    """The text of the response that a turn receives now. `see` it in the event loop's thread; `wake` is called if there is
    something to send."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.is_followed = False
        self._turn, self._number = "", 0
        self._text: list[str] = []
        self._sent = 0  # characters of it

    def see(self, turn: str, frames: Sequence[Frame], *, number: int) -> None:
        """`frames` are what one read brought of the response to request `number`."""
        if (turn, number) != (self._turn, self._number):
            self._turn, self._number, self._text, self._sent = turn, number, [], 0
        self._text += [frame.text for frame in frames if type(frame) is TextDelta]
        if self.is_followed:
            self._wake()

    def begin_again(self) -> None:
        """Somebody new follows, and has not seen what was sent."""
        self.is_followed, self._sent = True, 0
        self._wake()

    def take(self) -> list[tuple[str, str]]:
        """The next pieces to send, each with its channel."""
        text = "".join(self._text).encode(errors="replace").decode()  # half a surrogate pair cannot be sent
        self._text = [text]
        found: list[tuple[str, str]] = []
        while self._sent < len(text) and len(found) < MOST_AT_ONCE:
            piece = text[self._sent : self._sent + MOST_CHARACTERS]
            found.append((channel_of(self._turn), msgspec.json.encode((self._number, self._sent, piece)).decode()))
            self._sent += len(piece)
        if self._sent < len(text):
            self._wake()
        return found


class PieceSender:
    """Sends the pieces of all turns of a worker together, at most ten times a second, over a connection of its own."""

    def __init__(self, dsn: str, *, clock: Clock) -> None:
        self._queue = TurnQueue(dsn, clock=clock)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, turns: Callable[[], Collection[TurnPieces]]) -> None:
        """Send until this is cancelled. A database that is slow or gone delays nothing else."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "turnwise pieces") as clerk:
            try:
                while True:
                    await self._woken.wait()
                    self._woken.clear()
                    if sent := [piece for turn in turns() if turn.is_followed for piece in turn.take()]:
                        with suppress(TurnwiseError):
                            await loop.run_in_executor(clerk, self._send, sent)
                    await asyncio.sleep(PAUSE_S)
            finally:
                clerk.submit(self._queue.close)

    def _send(self, sent: Sequence[tuple[str, str]]) -> None:
        values = ([channel for channel, _ in sent], [piece for _, piece in sent])
        self._queue.attempt(lambda connection: connection.execute(SEND, values), alone=True)
