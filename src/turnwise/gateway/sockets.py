"""A client's WebSocket: each frame that asks for a response gets the answer that HTTP would give, an event a frame.

What the client has sent and got on one connection stays here for a while, so that its next request may say what is new alone. It
belongs to that connection, and with it to the client's key.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from turnwise.base.threads import beside_loop
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.doors import ClientCall, ClientGone, DoorRefusal, PieceWriter, encode_refusal, too_long
from turnwise.relay.client_request import RequestRefused, check_size, decode, is_deeper, refusal_answer
from turnwise.vocab import Finished, FinishReason, Started, Usage, UsageReported
from turnwise.wire.family import AnswerStamp, BadRequest, family
from turnwise.wire.profiles import FamilyName, Limits
from turnwise.wire.relay_facts import AskedPath, SocketAsk, SocketForm
from turnwise.wire.sse import SseParser

_log = logging.getLogger("turnwise")

MOST_WAITING = 16  # requests behind the running one; clients send the next one after the answer
MOST_KEPT = 8  # responses of one connection from which its client may go on
TOLD_HEADERS = frozenset({"retry-after", "x-should-retry"})
# Close codes (RFC 6455 section 7.4.1, and its registry). Codex reconnects after any of them, the `openai` package after those of
# 1001, 1011 and 1012.
GOING_AWAY, NO_TEXT, NOT_ALLOWED, BUG, RESTART = 1001, 1003, 1008, 1011, 1012

Close = tuple[int, str]
ItemPieces = tuple[bytes, ...]


class WarmContexts:
    """What clients of this process may go on from, by connection and response. Over the bound the oldest gives way: its client
    sends everything again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], ItemPieces] = OrderedDict()
        self.size = 0

    def keep(self, socket: int, id: str, items: ItemPieces, *, most_bytes: int) -> None:
        self._drop((socket, id))
        self._kept[socket, id] = items
        self.size += sum(map(len, items))
        own = [key for key in self._kept if key[0] == socket]
        for key in own[:-MOST_KEPT]:
            self._drop(key)
        while self.size > most_bytes:
            self._drop(next(iter(self._kept)))

    def find(self, socket: int, id: str) -> ItemPieces | None:
        return self._kept.get((socket, id))

    def forget(self, socket: int) -> None:
        for key in [key for key in self._kept if key[0] == socket]:
            self._drop(key)

    def _drop(self, key: tuple[int, str]) -> None:
        self.size -= sum(map(len, self._kept.pop(key, ())))


class SocketDoor(Protocol):
    """The doors, as one connection sees them: they may have changed since it was opened."""

    @property
    def bounds(self) -> Bounds: ...

    def call_of(self, body: bytes, *, id: str) -> ClientCall | DoorRefusal:
        """The request of the client whose connection this is, judged again."""
        ...

    async def answer(self, call: ClientCall, outlet: "FrameOutlet", /) -> DoorRefusal | None: ...

    def refused(self, refusal: DoorRefusal, /, *, id: str) -> None: ...


class FrameOutlet:
    """The way of one answer to the client: each event in a frame. It notes what a later request may go on from."""

    direct: PieceWriter | None = None

    def __init__(self, send: Callable[[bytes], Awaitable[None]], *, left: asyncio.Event, form: SocketForm, most: int):
        self._send, self._left, self._form = send, left, form
        self._parser = SseParser(limits=Limits(line_bytes=most, call_bytes=most))
        self._body = list[bytes]()
        self._headers: Mapping[str, str] = {}
        self.ask: SocketAsk | None = None
        self.status = 0
        self.output = list[bytes]()
        self.id = ""  # of a response from which a later request may go on
        self.is_over = False

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Raises ClientGone."""
        if self._left.is_set():
            raise ClientGone
        self.status, self._headers = status, {key: value for key, value in headers if key in TOLD_HEADERS}

    async def send(self, data: bytes) -> None:
        """Raises ClientGone."""
        if self.status != 200:
            self._body.append(data)
            return
        for event in self._parser.feed(data):
            await self._tell(event.data)

    async def gone(self) -> None:
        await self._left.wait()

    async def finish(self) -> None:
        """The answer is whole."""
        if self.status == 200:
            for event in self._parser.finish():
                await self._tell(event.data)
        else:
            told = self._form.error_event(self.status, self._headers, b"".join(self._body), self.ask)
            await self._send(self._in_lane(told))
            self.is_over = True

    async def _tell(self, event: bytes) -> None:
        if event[:1] != b"{":
            return
        note = self._form.note_of(event)
        if note is not None:
            self.output += [note.item] if note.item else []
            self.id, self.is_over = note.id, note.is_last
        await self._send(self._in_lane(event))

    def _in_lane(self, event: bytes) -> bytes:
        return event if self.ask is None else self._form.in_lane(event, self.ask.lane)


class ClientSocket:
    """One connection, from its opening on. `run` it once."""

    def __init__(
        self,
        door: SocketDoor,
        *,
        asked: FamilyName,
        form: SocketForm,
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
        contexts: WarmContexts,
    ) -> None:
        self._family: FamilyName = asked
        self._door, self._form, self._contexts = door, form, contexts
        self._receive, self._send = receive, send
        self._waiting = deque[str]()
        self._come = asyncio.Event()
        self._left = asyncio.Event()
        self._is_draining = False
        self._close: Close | None = None  # None: the client has closed it

    async def run(self) -> None:
        reading = asyncio.ensure_future(self._read())
        try:
            with contextlib.suppress(ClientGone):
                await self._answer_each()
        except Exception:
            self._close = (BUG, "the gateway failed; its log names the place")
            raise
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            self._contexts.forget(id(self))
            if self._close is not None:
                code, reason = self._close
                with contextlib.suppress(OSError):
                    await self._send({"type": "websocket.close", "code": code, "reason": reason})

    def drain(self) -> None:
        """The connection ends once the running answer has."""
        self._is_draining = True
        self._come.set()

    async def _read(self) -> None:
        while not self._left.is_set():
            message = await self._receive()
            text = message.get("text")
            if message["type"] == "websocket.disconnect":
                self._leave(None)
            elif text is None:
                self._leave((NO_TEXT, "this gateway reads frames of text alone"))
            elif len(self._waiting) >= MOST_WAITING or sum(map(len, self._waiting)) > self._door.bounds.body_bytes:
                self._leave((NOT_ALLOWED, "too many requests wait for the running one"))
            else:
                self._waiting.append(text)
                self._come.set()

    def _leave(self, close: Close | None) -> None:
        self._close = close
        self._left.set()
        self._come.set()

    async def _answer_each(self) -> None:
        while not self._left.is_set():
            if self._is_draining:
                self._close = (RESTART, "the gateway ends: open a new connection")
                return
            if self._waiting:
                await self._answer(self._waiting.popleft())
                continue
            self._come.clear()
            try:
                async with asyncio.timeout(self._door.bounds.socket_idle_s):
                    await self._come.wait()
            except TimeoutError:
                self._close = (GOING_AWAY, "nothing was asked for long: open a new connection")
                return

    async def _answer(self, text: str) -> None:
        number = f"tw-{secrets.token_hex(12)}"
        most = 2 * self._door.bounds.response_bytes
        outlet = FrameOutlet(self._tell, left=self._left, form=self._form, most=most)
        items: ItemPieces | None = None
        try:
            read = await beside_loop(lambda: self._read_frame(text, outlet), size=len(text))
            if read is None:
                return
            body, items = read
            refusal = await self._ask(body, outlet, number=number)
        except RequestRefused as refused:
            status, said = refusal_answer(refused, client=self._family)
            refusal = None
            await outlet.start(status, [])
            await outlet.send(said)
        if refusal is not None:
            self._door.refused(refusal, id=number)
            headers, said = encode_refusal(refusal, family=self._family)
            await outlet.start(refusal.status, headers)
            await outlet.send(said)
        if outlet.status:
            await outlet.finish()
            if not outlet.is_over:  # its client would wait for more
                raise RuntimeError("the answer has no end")
        if outlet.id and items is not None:
            most_bytes = self._door.bounds.contexts_bytes
            self._contexts.keep(id(self), outlet.id, (*items, *outlet.output), most_bytes=most_bytes)

    def _read_frame(self, text: str, outlet: FrameOutlet) -> tuple[bytes, ItemPieces | None] | None:
        """A body, and the items from which the next request may go on; None if the frame wants no answer. Raises
        RequestRefused."""
        frame, bounds = text.encode(), self._door.bounds
        if is_deeper(frame, most=bounds.depth):
            raise RequestRefused(f"the frame is nested more than {bounds.depth} levels deep")
        check_size(frame)
        try:
            ask = outlet.ask = self._form.read(frame)
            if ask is None:
                return None
            context = self._contexts.find(id(self), ask.previous) if ask.previous else None
            body, items = self._form.whole_body(ask, context)
        except BadRequest as error:
            raise RequestRefused(str(error)) from None
        return body, None if ask.previous and context is None else items

    async def _ask(self, body: bytes, outlet: FrameOutlet, *, number: str) -> DoorRefusal | None:
        ask, bounds = outlet.ask, self._door.bounds
        assert ask is not None, "it was read"
        if ask.answer:
            await self._tell(self._form.in_lane(ask.answer, ask.lane))
            return None
        if len(body) > bounds.body_bytes:
            return too_long(bounds.body_bytes)
        call = self._door.call_of(body, id=number)
        if isinstance(call, DoorRefusal):
            return call
        if not ask.is_prewarm:
            return await self._door.answer(call, outlet)
        if ask.previous and self._contexts.find(id(self), ask.previous) is None:
            await outlet.start(400, [])
            await outlet.send(self._form.not_found(ask))
            return None
        await outlet.start(200, [])
        await outlet.send(await beside_loop(lambda: self._prewarmed(body), size=len(body)))
        return None

    def _prewarmed(self, body: bytes) -> bytes:
        """The answer to a request that nothing is generated for: the next one may go on from it. Raises RequestRefused."""
        request = decode(AskedPath(family=self._family, kind="generate"), body)
        stamp = AnswerStamp(id=secrets.token_hex(16), created_s=int(time.time()))
        encoder = family(self._family).stream_encoder(request, stamp)
        usage = Usage(input_tokens=0, output_tokens=0)
        frames = [Started(model=request.model), UsageReported(usage), Finished(FinishReason.STOP)]
        return b"".join([*map(encoder.encode, frames), encoder.finish(ended_s=stamp.created_s)])

    async def _tell(self, event: bytes) -> None:
        """Waits while the client does not read. Raises ClientGone."""
        if self._left.is_set():
            raise ClientGone
        try:
            await self._send({"type": "websocket.send", "text": event.decode("utf-8", "replace")})
        except OSError:
            raise ClientGone from None
