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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
        before, self.turns = self.turns, frozenset(turns)
        if self.turns - before:
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
    """Listens for all ears of an event loop with one connection. With another one it looks every `poll_s` of the most impatient
    ear, and says that somebody follows; a user without the right to write hears only what it looks for."""

    def __init__(self, dsn: str) -> None:
        self._address = read_address(dsn)
        self._ears: set[Ear] = set()
        self._new: set[str] = set()  # sessions with a new ear, or with a turn that an ear has not heard before
        self._woken = asyncio.Event()
        self._bell: BoundedConnection | None = None
        self._listened = frozenset[str]()  # to the channels of these turns
        self._notices: list[tuple[str, str]] = []  # each a channel and what was sent on it
        self._asker: BoundedConnection | None = None
        self._look_s = self._say_s = -math.inf  # when to look again, and to say again that somebody follows
        self._busy: asyncio.Future[Any] | None = None  # a thread uses a connection until then
        self._task: asyncio.Task[None] | None = None

    def enter(self, ear: Ear) -> None:
        self._ears.add(ear)
        self._new.add(ear.session)
        self._woken.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="turnwise news")

    def leave(self, ear: Ear) -> None:
        self._ears.discard(ear)
        if not self._ears and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._look()
                except psycopg.Error:
                    if self._busy is not None:
                        await asyncio.wait([self._busy])
                    self._drop(self._busy)
                    self._new |= {ear.session for ear in self._ears}
                    for ear in self._ears:
                        ear.tell()
                    await asyncio.sleep(TRY_AGAIN_S)
        finally:
            if self._busy is None or self._busy.done():
                self._drop()
            else:
                self._busy.add_done_callback(self._drop)

    async def _look(self) -> None:
        """Look once, and tell what comes until it is time for the next look. Meanwhile the ears hear."""
        loop = asyncio.get_running_loop()
        turns = frozenset([turn for one in self._ears for turn in one.turns])
        if self._bell is None or self._bell.closed or turns != self._listened:
            self._busy = loop.run_in_executor(None, self._listen, turns)
            await asyncio.shield(self._busy)
        sessions = {one.session for one in self._ears}
        wanted = self._new & {one.session for one in self._ears if one.turns}
        asked = due = sessions & self._new
        self._new = set()
        now_s, poll_s = time.monotonic(), min([one.poll_s for one in self._ears], default=0.0)
        if now_s >= self._look_s:
            asked, self._look_s = sessions, now_s + poll_s
        if now_s >= self._say_s:
            due, self._say_s = sessions, now_s + SAY_AGAIN_S
        asking = self._busy = loop.run_in_executor(None, self._ask, list(asked), list(due), list(wanted))
        asking.add_done_callback(lambda _: self._woken.set())
        await self._hear(until_s=math.inf, is_over=asking.done)
        states = await asking
        for ear in self._ears:
            if (state := states.get(ear.session, ear.state)) != ear.state:
                ear.state = state
                ear.tell()
        self._look_s = min(self._look_s, now_s + poll_s)
        await self._hear(until_s=min(self._look_s, self._say_s), is_over=lambda: bool(self._new))

    async def _hear(self, *, until_s: float, is_over: Callable[[], bool]) -> None:
        bell, loop = self._bell, asyncio.get_running_loop()
        assert bell is not None, "it listens"
        of_channel = {channel_of(turn): turn for turn in self._listened}
        while True:
            bell.pgconn.consume_input()  # psycopg's own `notifies` would wait
            while (one := bell.pgconn.notifies()) is not None:
                self._notices.append((one.relname.decode(), one.extra.decode()))
            notices, self._notices = self._notices, []
            self._give(notices, of_channel=of_channel)
            left_s = until_s - time.monotonic()
            if is_over() or left_s <= 0:
                return
            socket = bell.fileno()
            loop.add_reader(socket, self._woken.set)
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if math.isinf(left_s) else left_s):
                        await self._woken.wait()
            finally:
                loop.remove_reader(socket)
            self._woken.clear()

    def _give(self, notices: Sequence[tuple[str, str]], *, of_channel: Mapping[str, str]) -> None:
        told = {payload for channel, payload in notices if channel not in of_channel}
        for ear in self._ears:
            if ear.session in told:
                ear.tell()
        for channel, payload in notices:
            if (turn := of_channel.get(channel)) is None:
                continue
            with contextlib.suppress(msgspec.DecodeError, UnicodeError):  # of a newer version: the whole text comes
                piece = (turn, *_decode(payload))
                for ear in self._ears:
                    if turn in ear.turns:
                        ear.hear(piece)

    def _listen(self, turns: frozenset[str]) -> None:
        """To the channels of these turns, and to no other turn's. In a thread: the database may be slow."""
        if self._bell is None or self._bell.closed:
            self._bell, self._listened = connect(self._address), frozenset[str]()
            self._bell.add_notify_handler(lambda one: self._notices.append((one.channel, one.payload)))
            self._bell.execute(f"listen {NEWS}; listen {TURNS}")
        changes = [f"unlisten {channel_of(turn)}" for turn in self._listened - turns]
        changes += [f"listen {channel_of(turn)}" for turn in turns - self._listened]
        if changes:
            self._bell.execute("; ".join(changes).encode())
            self._listened = turns

    def _ask(self, sessions: list[str], due: list[str], wanted: list[str]) -> dict[str, Sequence[Any]]:
        """The states of these sessions. Says that somebody follows those that are `due`, and wants the text of the `wanted`."""
        if self._asker is None or self._asker.closed:
            self._asker = connect(self._address)
        if due:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                self._asker.execute(SAY, (due, WATCHED_S, wanted))
        return {id: tuple(state) for id, *state in self._asker.execute(STATE, (sessions,)).fetchall()}

    def _drop(self, asked: "asyncio.Future[Any] | None" = None) -> None:
        if asked is not None and not asked.cancelled():
            asked.exception()  # nobody else looks at it
        for connection in (self._bell, self._asker):
            if connection is not None:
                connection.close()
        self._bell = self._asker = None
