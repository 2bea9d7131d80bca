"""Hearing of sessions that run elsewhere: one listener for all who follow sessions of a database in one event loop.

Whatever fails here costs time only: who follows also looks by itself. Every user of a database may listen on a channel whose name
is known. So what is sent on the known channels names a session, and tells nothing of it. Text is sent on a channel whose name
only those know who may read the turn's row.
"""

import asyncio
import contextlib
import hashlib
import math
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, LiteralString

import msgspec
import psycopg

from turnwise.journal.postgres.connection import BoundedConnection, connect, read_address

NEWS = "turnwise_records"  # the channel on which those who follow a session hear of its records
TURNS = "turnwise_turns"  # on which workers hear that a session may have a turn to run
FOLLOWERS = "turnwise_followers"  # on which workers hear that a session has a new follower
WATCHED_S = 30.0  # that a turn tells of its records, from the last word of a follower
SAY_AGAIN_S = 10.0
TRY_AGAIN_S = 1.0

MOST_PIECES = 1000  # that wait for one follower; older ones are dropped

HeardPiece = tuple[str, int, int, str]
"""Of a turn's text: the turn's id, the number of the request, how many characters of its text come before, and the text."""

_decode = msgspec.json.Decoder(tuple[int, int, str]).decode


def channel_of(turn: str) -> str:
    """Where the pieces of a turn are sent. Its id is random, and known to those only who may read its row."""
    return f"turnwise_{hashlib.blake2b(turn.encode(errors='replace'), digest_size=16).hexdigest()}"


SAY: LiteralString = f"""
with found as (
    select number, session from turn where session = any(%s::text[]) and status in ('queued', 'running', 'waiting')
    order by number for no key update
), said as (
    update turn set watched_until = clock_timestamp() + make_interval(secs => %s) from found where turn.number = found.number
)
select pg_notify('{FOLLOWERS}', session) from (select distinct session from found where session = any(%s::text[])) new"""

# What changes whenever a follower has something to read, or to end.
STATE: LiteralString = """
select asked.id, exists (select 1 from turn where session = asked.id and status = 'queued'),
    last.number, last.status, last.stop_reason, (select max(seq) from record where turn = last.number)
from unnest(%s::text[]) as asked (id) left join lateral (
    select number, status, stop_reason from turn where session = asked.id and status <> 'queued' order by number desc limit 1
) last on true"""


class Ear:
    """What one follower of a session hears. `turns` are those whose pieces it wants."""

    def __init__(self, session: str, *, poll_s: float, desk: "NewsDesk") -> None:
        self.session, self.poll_s = session, poll_s
        self.turns = frozenset[str]()
        self.state: Sequence[Any] = ()
        self._desk = desk
        self._has_news = False
        self._pieces = deque[HeardPiece](maxlen=MOST_PIECES)
        self._woken = asyncio.Event()
        desk.enter(self)

    def want(self, turns: Iterable[str]) -> None:
        """From now on it hears the pieces of these turns, and of no others."""
        if (wanted := frozenset(turns)) != self.turns:
            self.turns = wanted
            self._desk.enter(self)

    def tell(self) -> None:
        self._has_news = True
        self._woken.set()

    def hear(self, piece: HeardPiece) -> None:
        self._pieces.append(piece)
        self._woken.set()

    async def wait(self) -> tuple[bool, Sequence[HeardPiece]]:
        """Until something comes: whether the journal may have news, and the pieces."""
        await self._woken.wait()
        self._woken.clear()
        has_news, self._has_news = self._has_news, False
        pieces = tuple(self._pieces)
        self._pieces.clear()
        return has_news, pieces

    def leave(self) -> None:
        self._desk.leave(self)


class NewsDesk:
    """Listens for all ears of an event loop with one connection, and looks every `poll_s` of the most impatient one. It says that
    somebody follows; a user without the right to write hears only what it looks for."""

    def __init__(self, dsn: str) -> None:
        self._address = read_address(dsn)
        self._ears: set[Ear] = set()
        self._woken = asyncio.Event()
        self._connection: BoundedConnection | None = None
        self._said_s = dict[str, float]()  # by session: when it was said last that somebody follows
        self._listened = frozenset[str]()  # to the channels of these turns
        self._task: asyncio.Task[None] | None = None

    def enter(self, ear: Ear) -> None:
        self._ears.add(ear)
        self._said_s.pop(ear.session, None)
        self._woken.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="turnwise news")

    def leave(self, ear: Ear) -> None:
        self._ears.discard(ear)
        if not self._ears and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            turns = frozenset([turn for one in self._ears for turn in one.turns])
            wants = {one.session for one in self._ears if one.turns}
            sessions = list({one.session for one in self._ears})
            asking = asyncio.get_running_loop().run_in_executor(None, self._ask, sessions, turns, wants)
            try:
                states = await asyncio.shield(asking)
            except psycopg.Error:
                self._drop()
                for ear in self._ears:
                    ear.tell()
                await asyncio.sleep(TRY_AGAIN_S)
                continue
            except asyncio.CancelledError:
                asking.add_done_callback(self._drop)  # the thread still uses the connection
                raise
            for ear in self._ears:
                if (state := states.get(ear.session, ear.state)) != ear.state:
                    ear.state = state
                    ear.tell()
            try:
                await self._hear(time.monotonic() + min([SAY_AGAIN_S, *[one.poll_s for one in self._ears]]))
            except asyncio.CancelledError:
                self._drop()
                raise

    async def _hear(self, until_s: float) -> None:
        """Tell what comes, until it is time to look, or somebody new follows."""
        connection = self._connection
        assert connection is not None, "it was asked just now"
        loop = asyncio.get_running_loop()
        of_channel = {channel_of(turn): turn for turn in self._listened}
        while True:
            with contextlib.suppress(psycopg.Error):  # the next look connects again
                self._give(tuple(connection.notifies(timeout=0)), of_channel=of_channel)
            left_s = until_s - time.monotonic()
            if connection.closed or left_s <= 0 or any(ear.session not in self._said_s for ear in self._ears):
                return
            socket = connection.fileno()
            loop.add_reader(socket, self._woken.set)
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), left_s)
            finally:
                loop.remove_reader(socket)
            self._woken.clear()

    def _give(self, notices: Sequence[psycopg.Notify], *, of_channel: Mapping[str, str]) -> None:
        told = {one.payload for one in notices if one.channel not in of_channel}
        for ear in self._ears:
            if ear.session in told:
                ear.tell()
        for notice in notices:
            if (turn := of_channel.get(notice.channel)) is None:
                continue
            with contextlib.suppress(msgspec.DecodeError, UnicodeError):  # of a newer version: the whole text comes
                piece = (turn, *_decode(notice.payload))
                for ear in self._ears:
                    if turn in ear.turns:
                        ear.hear(piece)

    def _ask(self, sessions: Sequence[str], turns: frozenset[str], wants: Collection[str]) -> dict[str, Sequence[Any]]:
        """The states of these sessions. In a thread: the database may be slow."""
        connection = self._connection
        if connection is None or connection.closed:
            self._said_s.clear()
            connection = self._connection = connect(self._address)
            connection.execute(f"listen {NEWS}; listen {TURNS}")
            self._listened = frozenset[str]()
        changes = [f"unlisten {channel_of(turn)}" for turn in self._listened - turns]
        changes += [f"listen {channel_of(turn)}" for turn in turns - self._listened]
        if changes:
            connection.execute("; ".join(changes).encode())
            self._listened = turns
        now_s = time.monotonic()
        new = [one for one in wants if one not in self._said_s]
        if due := [one for one in sessions if now_s >= self._said_s.get(one, -math.inf) + SAY_AGAIN_S]:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute(SAY, (due, WATCHED_S, new))
            self._said_s.update(dict.fromkeys(due, now_s))
        return {id: tuple(state) for id, *state in connection.execute(STATE, (list(sessions),)).fetchall()}

    def _drop(self, _: object = None) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
