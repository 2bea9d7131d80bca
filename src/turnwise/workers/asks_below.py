"""The asks of a running turn's sub-agents: they stand in the turn's row while the worker keeps the turn and waits.

Each change reads the row and writes it in one transaction, and only while the worker owns the turn.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import LiteralString, NoReturn, Protocol, TypeVar

import msgspec

from turnwise.base.activity import Activity
from turnwise.errors import TurnwiseError
from turnwise.journal.owners import Claim
from turnwise.journal.postgres.connection import BoundedConnection
from turnwise.turn.config import Approval, AskOrigin, OneAsk
from turnwise.workers.open_asks import (
    AskBelow,
    AskedElsewhere,
    GivenAnswer,
    read_answers,
    read_asked,
    write_text,
)
from turnwise.workers.queue import LONGEST_ASK_S, TurnQueue

POLL_S = 1.0  # in case the bell was missed
# How long before the deadline the asks leave the row: the database decides which answers came in time, and only those count.
CLOSE_S = 1.0
CLOSE_SHARE = 0.2  # the same for a shorter deadline, as a part of it

Result = TypeVar("Result")

_LOOK: LiteralString = """
select asks, answers, extract(epoch from clock_timestamp())::double precision from turn
where number = %(number)s and epoch = %(epoch)s and status = 'running' for no key update"""

_PUBLISH: LiteralString = "update turn set asks = %(asks)s, answers = %(answers)s where number = %(number)s"

_ANSWERS: LiteralString = """
select answers from turn where number = %(number)s and epoch = %(epoch)s and status = 'running'"""


class NotOurs(Exception):
    """Another worker may have the turn: nothing more is written or read for it."""


class InThread(Protocol):
    """Does work on the queue, one piece after the other, beside the event loop."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]: ...


def publish(queue: TurnQueue, claim: Claim, asks: Sequence[AskBelow], *, deadline_s: float) -> tuple[AskBelow, ...]:
    """Add these asks to the turn's row, beside those that are there. Returns them with the ids that people know, and the time
    until which they take answers. Asks that were there before keep their ids and their answers. Raises NotOurs."""

    def write(connection: BoundedConnection) -> tuple[AskBelow, ...]:
        asked, answers, now_s = _looked(connection, claim)
        until = now_s + min(deadline_s, LONGEST_ASK_S)
        known = {one.key: one for one in asked.below}
        others = [one for key, one in known.items() if key not in {ask.key for ask in asks}]
        placed: list[AskBelow] = []
        for ask in asks:
            before = known.get(ask.key)
            taken = {*asked.past, *[one.id for one in (*known.values(), *placed)]}
            id = _free_id(ask, taken=taken) if before is None else before.id
            placed.append(msgspec.structs.replace(ask, id=id, until=until))
        _write(connection, claim, below=(*others, *placed), past=asked.past, answers=answers)
        return tuple(placed)

    return queue.attempt(write)


def take_out(queue: TurnQueue, claim: Claim, asks: Collection[AskBelow]) -> dict[str, Approval]:
    """Remove these asks from the row. Returns the answers so far, by the calls' own ids. Raises NotOurs."""

    def write(connection: BoundedConnection) -> dict[str, Approval]:
        asked, answers, _ = _looked(connection, claim)
        ids = {ask.id for ask in asks}
        left = [one for one in asked.below if one.id not in ids]
        others = [one for one in answers if one.approval.call_id not in ids]
        _write(connection, claim, below=left, past=(*asked.past, *sorted(ids)), answers=others)
        return _by_call(asks, answers=[one.approval for one in answers])

    return queue.attempt(write)


def answered(queue: TurnQueue, claim: Claim, asks: Collection[AskBelow]) -> dict[str, Approval]:
    """The answers so far, by the calls' own ids. Raises NotOurs."""

    def read(connection: BoundedConnection) -> dict[str, Approval]:
        row = connection.execute(_ANSWERS, _fence(claim)).fetchone()
        if row is None:
            raise NotOurs
        return _by_call(asks, answers=[one.approval for one in read_answers(row[0])])

    return queue.attempt(read, alone=True)


def given(queue: TurnQueue, claim: Claim, asks: Collection[AskBelow]) -> dict[str, Approval]:
    """The answers in the turn's row to these asks, by the calls' own ids, even if no process here has published the asks. Raises
    NotOurs."""

    def read(connection: BoundedConnection) -> dict[str, Approval]:
        asked, answers, _ = _looked(connection, claim)
        keys = {ask.key for ask in asks}
        stood = [one for one in asked.below if one.key in keys]
        return _by_call(stood, answers=[one.approval for one in answers])

    return queue.attempt(read)


class AsksBelow:
    """The asks below one claimed turn, each as long as a caller here waits for it.

    `is_over`: the worker has given the turn back; open asks stay in the row for the next worker. `on_lost` is called if another
    worker has the turn, `on_asks` if a sub-agent asks. `rung` tells the waiting callers to look. A caller that waits for a person
    counts as idle in the turn's `activity`.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        queue: TurnQueue,
        in_thread: InThread,
        activity: Activity,
        is_over: Callable[[], bool],
        on_lost: Callable[[], None],
        on_asks: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._claim, self._queue, self._in_thread, self._activity = claim, queue, in_thread, activity
        self._is_over, self._on_lost, self._on_asks = is_over, on_lost, on_asks
        self._bells: set[asyncio.Event] = set()

    def rung(self) -> None:
        """There may be an answer."""
        for bell in self._bells:
            bell.set()

    async def put(
        self,
        asks: Sequence[OneAsk],
        *,
        path: tuple[str, ...],
        origin: AskOrigin,
        deadline_s: float,
        keep: Callable[[Approval], object],
    ) -> Sequence[Approval]:
        """The answers that came before the deadline. If another worker has the turn, it never returns: the waiting caller is
        cancelled."""
        clock = asyncio.get_running_loop().time
        waiting = _Waiting(asks=below(asks, path=path, origin=origin), keep=keep)
        end_s = clock() + deadline_s - min(CLOSE_S, deadline_s * CLOSE_SHARE)
        bell = asyncio.Event()
        self._bells.add(bell)
        try:
            while (left_s := end_s - clock()) > 0:
                bell.clear()
                with contextlib.suppress(TurnwiseError):  # the database is unreachable: look again later
                    await self._look(waiting, deadline_s=left_s)
                if waiting.is_whole:
                    break
                with contextlib.suppress(TimeoutError), self._activity.resting():
                    async with asyncio.timeout(min(POLL_S, end_s - clock())):
                        await bell.wait()
        except NotOurs:
            await self._lost()
        finally:
            self._bells.discard(bell)
            await self._close(waiting)
        return tuple(waiting.answers.values())

    async def _close(self, waiting: "_Waiting") -> None:
        """Take the asks out of the row, and pass on the last answers. If the database is unreachable, the asks' time ends without
        this."""
        if waiting.is_published and not self._is_over():
            with contextlib.suppress(TurnwiseError, NotOurs):
                waiting.hear(await self._owned(lambda: take_out(self._queue, self._claim, waiting.asks)))

    async def _look(self, waiting: "_Waiting", *, deadline_s: float) -> None:
        """Publish the asks once, and pass on the answers."""
        is_new = not waiting.is_published
        if is_new:
            asks = await self._owned(lambda: publish(self._queue, self._claim, waiting.asks, deadline_s=deadline_s))
            waiting.asks, waiting.is_published = asks, True
        waiting.hear(await self._owned(lambda: answered(self._queue, self._claim, waiting.asks)))
        if is_new and not waiting.is_whole:
            self._on_asks(waiting.asks[0].path)

    async def given(self, asks: Sequence[OneAsk], *, origin: AskOrigin) -> Sequence[Approval]:
        """The answers that came while no process ran the sub-agent. Raises JournalFailed."""
        try:
            found = await self._owned(lambda: given(self._queue, self._claim, below(asks, path=(), origin=origin)))
        except NotOurs:
            await self._lost()
        return tuple(found.values())

    async def _owned(self, work: Callable[[], Result]) -> Result:
        """Do work of the queue. Raises NotOurs if the turn is not ours any more."""

        def checked() -> Result:
            if self._is_over():
                raise NotOurs
            return work()

        try:
            return await self._in_thread(checked)
        except NotOurs:
            self._on_lost()
            raise

    async def _lost(self) -> NoReturn:
        """Wait until the caller is cancelled: it must get no answer, not even a denial."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody sets it")


class _Waiting:
    """Some asks of one sub-agent, and the answers so far, by the calls' own ids."""

    def __init__(self, *, asks: tuple[AskBelow, ...], keep: Callable[[Approval], object]) -> None:
        self.asks = asks
        self.is_published = False
        self.answers: dict[str, Approval] = {}
        self._keep = keep

    @property
    def is_whole(self) -> bool:
        return len(self.answers) == len(self.asks)

    def hear(self, answers: dict[str, Approval]) -> None:
        for call_id, approval in answers.items():
            if call_id not in self.answers:
                self.answers[call_id] = approval
                self._keep(approval)


def below(asks: Sequence[OneAsk], *, path: tuple[str, ...], origin: AskOrigin) -> tuple[AskBelow, ...]:
    """The asks of one sub-agent's step, before they are published."""
    return tuple([AskBelow(ask=ask, path=path, origin=origin) for ask in asks])


def _looked(connection: BoundedConnection, claim: Claim) -> tuple[AskedElsewhere, Sequence[GivenAnswer], float]:
    """The row as it is; nobody else changes it in this transaction."""
    row = connection.execute(_LOOK, _fence(claim)).fetchone()
    if row is None:
        raise NotOurs
    asked = read_asked(row[0])
    return asked, read_answers(row[1]) if asked.below else (), row[2]


def _write(
    connection: BoundedConnection,
    claim: Claim,
    *,
    below: Sequence[AskBelow],
    past: tuple[str, ...],
    answers: Sequence[GivenAnswer],
) -> None:
    asked = AskedElsewhere(asks=(), below=tuple(below), past=past)
    values = {"number": claim.number, "asks": write_text(asked), "answers": write_text(answers)}
    connection.execute(_PUBLISH, values)


def _fence(claim: Claim) -> dict[str, int]:
    return {"number": claim.number, "epoch": claim.epoch}


def _by_call(asks: Collection[AskBelow], *, answers: Sequence[Approval]) -> dict[str, Approval]:
    """The answers by call. Each answer belongs to one ask, as that ask was shown."""
    asked = {ask.id: ask.ask for ask in asks}
    return {
        ask.call.id: msgspec.structs.replace(one, call_id=ask.call.id)
        for one in answers
        if (ask := asked.get(one.call_id)) is not None and one.digest == ask.digest
    }


def _free_id(ask: AskBelow, *, taken: Collection[str]) -> str:
    """`helper/call_1`, with a suffix where another sub-agent's call has that id."""
    plain = id = "/".join((*ask.path, ask.ask.call.id))
    number = 1
    while id in taken:
        number += 1
        id = f"{plain}-{number}"
    return id
