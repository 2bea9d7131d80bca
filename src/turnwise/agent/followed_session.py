"""Follow a session while it runs: from any machine that reaches its journal, and from any event on."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalDamaged, JournalFailed
from turnwise.journal.journal import DATABASES, Journal, TurnRow
from turnwise.replay.replayed_events import SessionEvent, SessionFollower, TextPiece
from turnwise.running.watcher_events import RequestFinished, RequestStarted, TurnFinished

if TYPE_CHECKING:
    from turnwise.journal.postgres.news import HeardPiece, NewsDesk

POLL_S = 0.5
GIVE_UP_S = 60.0  # without the journal: a restart takes a second or two, a failover half a minute
BATCH = 500
READERS = 4
Result = TypeVar("Result")


class Bell(Protocol):
    def want(self, turns: Iterable[str]) -> None: ...
    async def wait(self) -> tuple[bool, Sequence["HeardPiece"]]: ...
    def leave(self) -> None: ...


class PollBell:
    """Rings every `poll_s` seconds: nobody tells of a file's records."""

    def __init__(self, poll_s: float) -> None:
        self._poll_s = poll_s

    def want(self, turns: Iterable[str]) -> None:
        """A file tells of no pieces."""

    async def wait(self) -> tuple[bool, Sequence["HeardPiece"]]:
        await asyncio.sleep(self._poll_s)
        return True, ()

    def leave(self) -> None:
        """Nothing to end."""


class NewPieces:
    """Of the pieces that come: each text once, in order, and only until the whole response is there."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[int, int]] = {}  # by turn: the current request, and the characters that were given

    def follow(self, event: SessionEvent) -> None:
        """An event of the journal."""
        if isinstance(event.seen, RequestStarted):
            self._given[event.turn] = (event.seen.number, 0)
        elif isinstance(event.seen, RequestFinished):
            self._given[event.turn] = (event.seen.number + 1, 0)
        elif isinstance(event.seen, TurnFinished):
            self._given[event.turn] = (sys.maxsize, 0)

    def of(self, heard: Sequence["HeardPiece"], *, number: int) -> Iterator[SessionEvent]:
        for turn, request, at, text in heard:
            now, given = self._given.get(turn, (request, 0))
            start = max(at, given if request == now else 0)
            if request >= now and start < at + len(text):
                self._given[turn] = (request, at + len(text))
                piece = TextPiece(request=request, at=start, text=text[start - at :])
                yield SessionEvent(number=number, turn=turn, time=SystemClock().now(), seen=piece)


class JournalReaders:
    """The connections of all who follow sessions of one journal in an event loop: at most READERS, and those of the
    news."""

    def __init__(self, journal: str | Path) -> None:
        self._journal = journal
        self._free: list[Journal] = []
        self._slots = asyncio.Semaphore(READERS)
        self._desk: NewsDesk | None = None
        self.users = 0

    def bell(self, session: str, *, poll_s: float) -> Bell:
        if not isinstance(self._journal, str) or not _is_database(self._journal):
            return PollBell(poll_s)
        from turnwise.journal.postgres.news import Ear, NewsDesk  # needs psycopg

        self._desk = self._desk or NewsDesk(self._journal)
        return Ear(session, poll_s=poll_s, desk=self._desk)

    async def read(self, read: Callable[[Journal], Result], *, give_up_s: float) -> Result:
        """What `read` gives. Tries again for `give_up_s` seconds if the journal cannot be reached."""
        give_up = time.monotonic() + give_up_s
        while True:
            try:
                async with self._slots:
                    return await asyncio.to_thread(self._read, read)
            except JournalDamaged:
                raise
            except JournalFailed:
                if time.monotonic() > give_up:
                    raise
            await asyncio.sleep(POLL_S)

    def _read(self, read: Callable[[Journal], Result]) -> Result:
        opened = self._free.pop() if self._free else _open(self._journal)
        try:
            return read(opened)
        finally:
            self._give(opened)

    def _give(self, opened: Journal) -> None:
        if self.users:
            self._free.append(opened)
        else:  # nobody follows any more
            opened.close()

    def close(self) -> None:
        while self._free:
            self._free.pop().close()


_readers: dict[tuple[asyncio.AbstractEventLoop, str], JournalReaders] = {}


@contextlib.asynccontextmanager
async def _readers_of(journal: str | Path) -> AsyncGenerator[JournalReaders]:
    place = (asyncio.get_running_loop(), str(journal))
    readers = _readers.setdefault(place, JournalReaders(journal))
    readers.users += 1
    try:
        if readers.users == 1:
            await readers.read(lambda _: None, give_up_s=0.0)  # a wrong address is told at once
        yield readers
    finally:
        readers.users -= 1
        if not readers.users:
            _readers.pop(place, None)
            readers.close()


async def watch_session(
    journal: str | Path,
    session: str,
    *,
    after: int = 0,
    pieces: bool = False,
    poll_s: float = POLL_S,
    give_up_s: float = GIVE_UP_S,
) -> AsyncGenerator[SessionEvent]:
    """The events of the session's turns, as they come, until no turn is open. `journal` is the address of a database, or a
    journal's file.

    Only events with a number above `after` are given; the others are read, too. A whole response stands for its pieces.
    With `pieces`, a `TextPiece` comes for each piece of text that a worker receives now. Pieces may be missing, so replace them
    with the whole text when it comes.

    PostgreSQL sends news at once; besides, this looks for news every `poll_s` seconds (at most 10). All followers of a
    database in one event loop share six connections. If the journal cannot be reached, this tries again for `give_up_s` seconds.

    Raises CallerError if the session does not exist, UnreadableTurn if a newer turnwise has written it, and JournalFailed.
    """
    async with _readers_of(journal) as readers:

        async def read(read: Callable[[Journal], Result]) -> Result:
            return await readers.read(read, give_up_s=give_up_s)

        id = (await read(lambda opened: opened.find_session(session))).row.id
        follower, new = SessionFollower(id), NewPieces()
        heard: Sequence[HeardPiece] = ()
        bell = readers.bell(id, poll_s=poll_s)
        try:
            while True:
                turns = (await read(lambda opened: opened.find_session(id))).turns
                while rows := await read(lambda opened: opened.written_since(id, follower.place, most=BATCH)):
                    for row in rows:
                        for event in follower.take(row):
                            new.follow(event)
                            if event.number > after:
                                yield event
                for piece in new.of(heard, number=follower.number):
                    yield piece
                if not any(is_open(turn) for turn in turns):
                    return
                if pieces:
                    bell.want([turn.id for turn in turns if turn.status == "running"])
                while not (found := await bell.wait())[0]:
                    for piece in new.of(found[1], number=follower.number):
                        yield piece
                heard = found[1]
        finally:
            bell.leave()


def _open(journal: str | Path) -> Journal:
    if not _is_database(journal) and not Path(journal).is_file():
        raise CallerError(f"there is no journal `{journal}` to follow")
    return Journal(journal, clock=SystemClock())


def _is_database(journal: str | Path) -> bool:
    return isinstance(journal, str) and journal.startswith(DATABASES)


def is_open(turn: TurnRow) -> bool:
    """Whether more events may come: a turn that waits for a person has not ended."""
    return turn.status in ("queued", "running") or (turn.status == "waiting" and turn.stop_reason is None)
