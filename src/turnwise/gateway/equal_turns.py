"""Equal requests of one turn get one answer: a client that has waited too long asks the same once more, and is billed once.

Equal are body, path, the client's key and the route, and what says that it is the same turn: an idempotency key, or else the
session and agent of Claude Code. Requests that say neither are never joined: evaluations ask the same to get different answers.

The first request asks the upstream, and writes into a `SharedAnswer`. Each client reads that from its beginning, at its own pace.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence

from turnwise.base.clock import Clock
from turnwise.gateway.accounts import Account
from turnwise.gateway.client_bounds import MIB
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.doors import ClientCall, ClientGone, Outlet, PieceWriter

MOST_TURNS = 1000  # that may be joined
MOST_UNHEARD = 200  # of which no client waits
ANSWER_BYTES = MIB  # a longer answer cannot be joined any more: its beginning is forgotten
MOST_BYTES = 64 * MIB  # of all of them
PIECE_BYTES = 64  # beside its content
PIECES_AT_ONCE = 64
AHEAD_BYTES = 256 * 1024  # how far the answer is ahead of a client that reads slowly
PATIENCE_S = 5.0  # how long a slow client may hold up the others, in all; then its answer breaks off
JOINED = "turnwise-joined"


def turn_key(call: ClientCall) -> bytes:
    """What equal requests of one turn have in common, beside their route."""
    found = hashlib.blake2b(call.same_turn, digest_size=16)
    texts = [call.path, *[text for pair in (*call.query, *call.headers) for text in pair]]
    for part in [*[text.encode("latin-1", "replace") for text in texts], call.body]:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()


class EqualTurns:
    """The answers of one process that may be joined."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.size = 0  # of what is kept for those who join
        self.is_ending = False  # no client can come again
        self._open: dict[bytes, SharedAnswer] = {}

    @property
    def has_many_unheard(self) -> bool:
        """Whether enough answers wait for a client to come again."""
        return sum([not one.is_heard for one in self._open.values()]) >= MOST_UNHEARD

    def find(self, key: bytes, *, route: GatewayRoute) -> "SharedAnswer | None":
        found = self._open.get(key)
        return found if found is not None and found.route == route else None

    def open(self, key: bytes, *, route: GatewayRoute, account: Account, rejoin_s: float) -> "SharedAnswer":
        """For the first request. If there are too many, nobody can join this one."""
        answer = SharedAnswer(self, key, route=route, account=account, rejoin_s=rejoin_s)
        if len(self._open) < MOST_TURNS and key not in self._open:
            self._open[key] = answer
            answer.is_open = True
        return answer

    def end(self) -> None:
        """The gateway takes no more connections: nothing is kept for a client that has left."""
        self.is_ending = True
        for answer in list(self._open.values()):
            answer.end()

    def forget(self, key: bytes, *, size: int) -> None:
        del self._open[key]
        self.size -= size


class _Listener:
    """One client that gets the answer. It has read `pieces` of it, and `size` bytes."""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self.task = asyncio.current_task()
        self.has_head = False
        self.pieces = self.size = 0
        self.patience_s = PATIENCE_S


class SharedAnswer(PieceWriter):
    """An `Outlet` for the answer to the first of several equal requests. `is_open`: further ones may join."""

    def __init__(
        self, turns: EqualTurns, key: bytes, *, route: GatewayRoute, account: Account, rejoin_s: float
    ) -> None:
        super().__init__()
        self.route = route
        self.account = account
        self.is_open = False
        self._turns, self._key, self._rejoin_s = turns, key, rejoin_s
        self._head: tuple[int, tuple[tuple[str, str], ...]] | None = None
        self._pieces: list[bytes] = []  # the first ones are forgotten once nobody can join
        self._forgotten = 0
        self._size = 0  # of all that was written
        self._kept_bytes = 0  # of what is counted as kept
        self._is_over = False
        self._listeners: dict[_Listener, None] = {}
        self._first: asyncio.Task[None] | None = None
        self._until_s = 0.0  # so long an answer waits that no client listens to
        self._changed: asyncio.Future[None] | None = None

    # -- for those who read it -----------------------------------------------------------------------------------------

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    async def tell(self, outlet: Outlet, write: Callable[[Outlet], Awaitable[None]]) -> None:
        """Let `write` write the answer, for the first client and for those who join. Raises ClientGone."""
        first = self._first = asyncio.ensure_future(self.listen(outlet))
        try:
            await asyncio.sleep(0)  # it listens before the first word
            await write(self)
            self._is_over = True
            if self._listeners:
                self._close()
            self._ring()
            await asyncio.wait([first])
            while self.is_open and not self._listeners:  # the client has left, and may come again
                await self._change()
        finally:
            self._close()
            if not self._is_over:
                for one in list(self._listeners):
                    self._drop(one)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            self._first = None
        if first.cancelled():
            raise ClientGone
        first.result()

    async def listen(self, outlet: Outlet, *, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Hand the whole answer on, from its first byte. Raises ClientGone."""
        listener = _Listener(outlet)
        self._listeners[listener] = None
        self._ring()
        try:
            while True:
                if self._head is not None and not listener.has_head:
                    status, own = self._head
                    await outlet.start(status, (*own, *headers))
                    listener.has_head = True
                elif pieces := self._pieces[(at := listener.pieces - self._forgotten) : at + PIECES_AT_ONCE]:
                    await outlet.send(data := b"".join(pieces))
                    listener.pieces += len(pieces)
                    listener.size += len(data)
                    self._trim()
                    self._ring()
                elif self._is_over:
                    return
                else:
                    await self._change()
        finally:
            listener.task = None  # it holds the exception that ends it
            self._listeners.pop(listener, None)
            self._leave()

    async def outlive(self, writing: "asyncio.Future[None]") -> None:
        """The first client has left. Returns once nobody else gets the answer, or `writing` is over."""
        if (first := self._first) is not None:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        writing.add_done_callback(lambda _: self._ring())
        while not writing.done():
            left_s = self._until_s - self._turns.clock.monotonic() if self.is_open else 0.0
            if not self._listeners and left_s <= 0:
                return
            await self._change(within_s=None if self._listeners else left_s)

    def end(self) -> None:
        """Keep it only for those who listen."""
        self._close()
        self._ring()

    def _leave(self) -> None:
        """A client has left, or has all. If it was the last one, the upstream is kept for a while, unless it has begun."""
        if not self._listeners:
            has_begun = self._is_over or self.account.has_begun or self._turns.is_ending
            keeps = not has_begun and not self._turns.has_many_unheard
            self._until_s = self._turns.clock.monotonic() + (self._rejoin_s if keeps else 0.0)
            if not keeps:
                self._close()
        self._trim()
        self._ring()

    def _drop(self, listener: _Listener) -> None:
        """Its answer breaks off."""
        self._listeners.pop(listener, None)
        if listener.task is not None:
            listener.task.cancel()

    # -- for the one who writes it -------------------------------------------------------------------------------------

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Raises ClientGone."""
        self._head = (status, tuple(headers))
        if status >= 400 and not self._listeners:
            self._close()  # who comes again may have more luck
            raise ClientGone
        self._ring()

    async def send(self, data: bytes) -> None:
        """Waits while all clients are behind, and for a slow one as long as it has patience. Raises ClientGone."""
        self._keep(data)
        self._ring()
        while behind := [one for one in self._listeners if self._size - one.size > AHEAD_BYTES]:
            if len(behind) == len(self._listeners):
                await self._change()
                continue
            began_s = self._turns.clock.monotonic()
            await self._change(within_s=min([one.patience_s for one in behind]))
            for one in behind:
                one.patience_s -= self._turns.clock.monotonic() - began_s
                if one.patience_s <= 0:
                    self._drop(one)
        if not self._listeners and not self.is_open:
            raise ClientGone

    @property
    def direct(self) -> PieceWriter | None:
        """Only if one client alone listens, and has all that was written."""
        own = self._own()
        if own is None or not self.is_open:
            return own
        self.put = own.put
        return self

    def write(self, data: bytes, coded: bytes = b"", /) -> bool:
        """To the only client, and what it gets is kept."""
        own = self._own()
        if own is None or not own.write(data, coded):
            return False
        (listener,) = self._listeners
        self._keep(data)
        listener.pieces += 1
        listener.size += len(data)
        return True

    async def gone(self) -> None:
        """Those who wait for the upstream look at their own clients."""
        await asyncio.Event().wait()

    def _own(self) -> PieceWriter | None:
        if len(self._listeners) != 1:
            return None
        (listener,) = self._listeners
        has_all = listener.has_head and listener.pieces == self._forgotten + len(self._pieces)
        return listener.outlet.direct if has_all else None

    # -- what is kept --------------------------------------------------------------------------------------------------

    def _keep(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self.is_open:
            size = len(data) + PIECE_BYTES
            self._kept_bytes += size
            self._turns.size += size
            if self._kept_bytes > ANSWER_BYTES or self._turns.size > MOST_BYTES:
                self._close()
        else:
            self._trim()

    def _close(self) -> None:
        """From now on nobody can join."""
        if self.is_open:
            self.is_open = False
            self._turns.forget(self._key, size=self._kept_bytes)

    def _trim(self) -> None:
        """Forget what all have read."""
        if not self.is_open and self._listeners:
            read = min([one.pieces for one in self._listeners]) - self._forgotten
            del self._pieces[:read]
            self._forgotten += read

    async def _change(self, *, within_s: float | None = None) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        timer = None if within_s is None else self._turns.clock.call_later(max(within_s, 0.0), self._ring)
        try:
            await asyncio.shield(self._changed)
        finally:
            if timer is not None:
                timer.cancel()

    def _ring(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None
