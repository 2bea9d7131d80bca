"""Follow a session while it runs: from any machine that reaches its journal, and from any event on."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalDamaged, JournalFailed
from turnwise.journal.journal import DATABASES, Journal, TurnRow
from turnwise.replay.replayed_events import SessionEvent, SessionFollower

if TYPE_CHECKING:
    from turnwise.journal.postgres.store import RecordNews

POLL_S = 0.5
GIVE_UP_S = 60.0  # without the journal: a restart takes a second or two, a failover half a minute
BATCH = 500
Result = TypeVar("Result")


class Bell(Protocol):
    def open(self) -> int | None: ...
    def take(self) -> bool: ...
    def close(self) -> None: ...


async def watch_session(
    journal: str | Path, session: str, *, after: int = 0, poll_s: float = POLL_S, give_up_s: float = GIVE_UP_S
) -> AsyncGenerator[SessionEvent]:
    """The events of the session's turns, as they come, until no turn is open. `journal` is the address of a database, or a
    journal's file.

    Only events with a number above `after` are given; the others are read, too. A whole response stands for its pieces.
    PostgreSQL sends news at once; besides, this looks for news every `poll_s` seconds (at most 10). If the journal cannot be
    reached, this tries again for `give_up_s` seconds.

    Raises CallerError if the session does not exist, UnreadableTurn if a newer turnwise has written it, and JournalFailed.
    """
    opened = await asyncio.to_thread(_open, journal)
    try:
        found = (await _read(lambda: opened.find_session(session), give_up_s=give_up_s)).row.id
        bell = _bell(journal, session=found)
        try:
            follower = SessionFollower(found)
            while True:
                turns = (await _read(lambda: opened.find_session(found), give_up_s=give_up_s)).turns
                while rows := await _read(
                    lambda: opened.written_since(found, follower.place, most=BATCH), give_up_s=give_up_s
                ):
                    for row in rows:
                        for event in follower.take(row):
                            if event.number > after:
                                yield event
                if not any(is_open(turn) for turn in turns):
                    return
                await _wait(bell, poll_s=poll_s)
        finally:
            if bell is not None:
                bell.close()
    finally:
        opened.close()


def _open(journal: str | Path) -> Journal:
    if not _is_database(journal) and not Path(journal).is_file():
        raise CallerError(f"there is no journal `{journal}` to follow")
    return Journal(journal, clock=SystemClock())


def _is_database(journal: str | Path) -> bool:
    return isinstance(journal, str) and journal.startswith(DATABASES)


def is_open(turn: TurnRow) -> bool:
    """Whether more events may come: a turn that waits for a person has not ended."""
    return turn.status in ("queued", "running") or (turn.status == "waiting" and turn.stop_reason is None)


def _bell(journal: str | Path, *, session: str) -> "RecordNews | None":
    if not isinstance(journal, str) or not _is_database(journal):
        return None
    from turnwise.journal.postgres.store import RecordNews  # needs psycopg

    return RecordNews(journal, session=session)


async def _wait(bell: Bell | None, *, poll_s: float) -> None:
    """Wait until there is news, or until it is time to look."""
    socket = None if bell is None else await asyncio.to_thread(bell.open)
    if bell is None or socket is None:
        await asyncio.sleep(poll_s)
        return
    loop = asyncio.get_running_loop()
    give_up = loop.time() + poll_s
    while (left_s := give_up - loop.time()) > 0:
        came = asyncio.Event()
        loop.add_reader(socket, came.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(came.wait(), left_s)
        finally:
            loop.remove_reader(socket)
        if came.is_set() and bell.take():
            return


async def _read(read: Callable[[], Result], *, give_up_s: float) -> Result:
    give_up = time.monotonic() + give_up_s
    while True:
        try:
            return await asyncio.to_thread(read)
        except JournalDamaged:
            raise
        except JournalFailed:
            if time.monotonic() > give_up:
                raise
        await asyncio.sleep(POLL_S)
