"""One request and its response: bytes go out, watchers get frames, the caller gets an event. It is sent once in any case."""

import asyncio
import contextlib
import functools
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from turnwise.assembly.response_reading import ResponseReader, StreamReader, read_body
from turnwise.base.clock import Clock, Overdue, Timer, Watchdog, wait_for_task
from turnwise.base.threads import LONG_BYTES, beside_loop
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.key_hiding import WordsHider, hide_in, hide_in_frames, hide_in_response
from turnwise.endpoints.transport import EndHabits, HttpReply, HttpRequest, Pump, Transport, UnmarkedEnd, naming_proxy
from turnwise.errors import ProviderFault
from turnwise.rules.recovery import is_unmarked
from turnwise.turn.attempt import DROPPED
from turnwise.turn.events import RequestFailed, ResponseReceived, SendRequest
from turnwise.turn.outcomes import TURNS_TIME
from turnwise.vocab import Fault, FaultKind, Frame, Mended, Repair, Response
from turnwise.wire.family import where_asked
from turnwise.wire.faults import date_s, too_large
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits
from turnwise.wire.tool_names import own_names

if TYPE_CHECKING:
    from turnwise.assembly.text_calls.frames import CallFinder

# How much of one stream is read before the event loop turns: everybody else is served in between.
#
# A read may hold any number of events, and a socket that always has more is read without a pause. So a stream is cut into
# portions by a count, and not by a clock. What is long and can only be read at once (an event, a body, the end of a long answer)
# is read in a thread: the event loop goes on beside it.


MOST_EVENTS = 256
MOST_BYTES = LONG_BYTES

_LINE_END = re.compile(rb"\r\n?|\n")
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_ELEMENT_END = re.compile(rb"\}")
_WHOLE = (b"\n\n", b"\r\n\r\n")
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n")


class Portions:
    """Of one stream. `left_events` and `left_bytes` may be read in the current portion; `begin` another once the loop has turned.

    What is no longer than a portion is not cut: it waits for the next one.
    """

    __slots__ = ("_is_array", "_open_bytes", "left_bytes", "left_events")

    def __init__(self) -> None:
        self._is_array: bool | None = None
        self._open_bytes = 0  # of the current event, at most
        self.begin()

    def begin(self) -> None:
        self.left_events, self.left_bytes = MOST_EVENTS, MOST_BYTES

    @property
    def is_over(self) -> bool:
        return self.left_events <= 0 or self.left_bytes <= 0

    def takes(self, chunk: bytes) -> bool:
        """Whether it is one whole event, as nearly every chunk is that comes alone, and may be read now; it is counted then. What
        it does not take is for `cut`."""
        size = len(chunk)
        end = chunk.find(b"\n")
        if end < size - 3:
            end = chunk.find(b"\n", end + 1)  # a name may stand before the data
        if end < size - 3 or self._open_bytes or self._is_array is not False or not chunk.endswith(_WHOLE):
            return False
        if size > self.left_bytes or self.left_events <= 0 or (13 in chunk and _LONE_RETURN.search(chunk)):
            return False
        self.left_events -= 1
        self.left_bytes -= size
        return True

    def cut(self, chunk: bytes) -> tuple[bytes, bytes]:
        """What of the chunk may be read now, and the rest, which waits for the next portion."""
        now, rest = chunk, b""
        if len(chunk) > self.left_bytes:
            now, rest = chunk[: self.left_bytes], chunk[self.left_bytes :]
        events = self._count(now)
        if rest or events > self.left_events:
            if self.left_events < MOST_EVENTS:
                self.left_events = 0
                return b"", chunk
            if events > self.left_events:
                events = self.left_events
                ends = _ELEMENT_END.finditer(now) if self._is_array else islice(_LINE_END.finditer(now), 1, None, 2)
                last = next(islice(ends, events - 1, None), None)
                if last is not None:
                    now, rest = now[: last.end()], now[last.end() :] + rest
        self.left_events -= events
        self.left_bytes -= len(now)
        return now, rest

    def _count(self, chunk: bytes) -> int:
        """How many events it holds, at most: each has a line and a blank one behind it. In a stream that is one JSON array each
        closing brace may end one."""
        if self._is_array is None and (begun := chunk.lstrip()):
            self._is_array = begun.startswith((b"[", b"{"))
        if self._is_array:
            return chunk.count(b"}")
        lines = chunk.count(b"\n")
        if 13 in chunk:
            lines += len(_LONE_RETURN.findall(chunk))
        return (lines + 1) // 2 or 1

    def may_end_long(self, now: bytes) -> bool:
        """Whether these bytes may end an event that is longer than a portion. Asked of all that is read, in order."""
        self._open_bytes += len(now)
        if self._open_bytes <= MOST_BYTES:
            if now.endswith(_BLANK_LINES):
                self._open_bytes = 0
            return False
        last = now.rfind(b"}") if self._is_array else max([now.rfind(end) for end in _BLANK_LINES])
        if last >= 0:
            self._open_bytes = len(now) - last
        return True


ERROR_BYTES = 1024 * 1024  # of an error's body; the largest recorded one has a few KB
# Before the first byte that tells a body from a stream; more is read as a stream, which has limits.
BLANK_BYTES = 16 * 1024
# Late argument pieces and usage come right after the finish reason. A server that leaves the connection open after it
# (seen in the field: opencode waited 309 s) is not waited for longer than this; nor is one that has reported an error, nor
# one that has sent a whole body.
AFTER_FINISH_S = 5.0
LEFT_OPEN = Repair(
    "left_open", "response", "its end did not come, the connection was left open, and it was taken as it was"
)
BROKE_OFF_STREAM = Fault(kind=FaultKind.DISCONNECTED, message="the stream ended in the middle of its first event")
UNREADABLE_STREAM = Fault(kind=FaultKind.DISCONNECTED, message="no event of the stream arrived whole")
BROKE_OFF = Fault(kind=FaultKind.DISCONNECTED, message="the response did not arrive whole: its JSON is broken")
BODILESS = frozenset({204, 205})  # they end with their head (RFC 9110, 15.3.5 and 15.3.6)
ERROR_S = 10.0  # for the body of an error: the status alone says enough


class FirstEvent:
    """Whether a stream broke off within its first event: it began as one, and no blank line has come."""

    def __init__(self) -> None:
        self._start = b""
        self._tail = b""
        self.ended = False

    @property
    def is_stream(self) -> bool:
        return self._start.startswith((b"data:", b"event:", b"id:"))

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; once it has `ended`, more say nothing."""
        if len(self._start) < len(b"event:"):
            self._start = (self._start + chunk[:16]).lstrip()
        joined = self._tail + chunk
        self.ended = self.ended or b"\n\n" in joined or b"\n\r\n" in joined
        self._tail = joined[-2:]


class Silence:
    """Ends a response that only lacks its finish reason once nothing has come for a while, keep-alives included.

    It looks at the clock now and then, and at the response after a silence only: reading costs no more for it.
    """

    def __init__(self, reader: StreamReader, *, dog: Watchdog, clock: Clock, within_s: float) -> None:
        self._reader = reader
        self._dog = dog
        self._clock = clock
        self._within_s = within_s
        self._stirred_s = 0.0  # when something last came that said nothing
        self._asked_s = -1.0  # which silence was looked at
        self._timer: Timer | None = None
        self.is_held = False  # the reader is at work in a thread, or waits for room

    def watch(self) -> None:
        self._timer = self._clock.call_later(self._within_s, self._look)

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # it may hold what it would have called

    def stir(self) -> None:
        """Bytes came, but no sign of life."""
        self._stirred_s = self._clock.monotonic()

    def _look(self) -> None:
        if self.is_held:
            self._timer = self._clock.call_later(self._within_s, self._look)
            return
        since_s = max(self._stirred_s, self._dog.renewed_s)
        left_s = since_s + self._within_s - self._clock.monotonic()
        if left_s <= 0 and since_s != self._asked_s:
            self._asked_s = since_s
            if self._reader.finished or self._reader.failed:
                return  # the watchdog waits for the end
            if self._reader.is_closed():
                self._dog.bark()
                return
        self._timer = self._clock.call_later(left_s if left_s > 0 else self._within_s, self._look)


class WayOut(Protocol):
    """Where words go that are for somebody else as they came."""

    def write(self, data: bytes, coded: bytes = b"", /) -> bool:
        """Whether it was written: nothing waits here. `coded` as `Take` has it."""
        ...


class PassOn(Protocol):
    """Hands on at once what a reader has read."""

    def read(self) -> WayOut | None:
        """What the reader holds was handed on, and the words that follow may be written there. None: it has to be waited for
        before there is more."""
        ...

    def hold(self, word: bytes, /) -> None:
        """One that the way out did not take is handed on later."""
        ...


class AnswerRoom(Protocol):
    """For what is read: it may have to be waited for, and deadlines stand still meanwhile."""

    @property
    def is_to_wait(self) -> bool: ...

    def grow(self, size: int, /) -> None:
        """So many bytes were read."""
        ...

    async def wait(self) -> None: ...


class Exchange:
    """Does one `SendRequest`. The deadlines count frames: keep-alive comments and half events do not renew them."""

    def __init__(
        self,
        order: SendRequest,
        *,
        endpoint: Endpoint,
        transport: Transport,
        clock: Clock,
        on_frames: Callable[[Sequence[Frame]], None] | None,
        limits: Limits = DEFAULT_LIMITS,
        open_reader: Callable[[], StreamReader] | None = None,
        on_body: Callable[[bytes], None] | None = None,
        pass_on: PassOn | None = None,
        room: AnswerRoom | None = None,
        why_ended: str = TURNS_TIME,
        habits: EndHabits | None = None,
        on_first: Callable[[], None] | None = None,
    ) -> None:
        """`on_frames` is told the frames as they come, `on_body` the bytes of a reply that is no stream. `open_reader` makes what
        reads one, where it is not our usual reader. `pass_on` is told of each chunk of a stream that was read in the socket's
        callback, where the transport can. `habits`: what was learned of answers without an end mark; without them, such a
        response is taken if each of its parts has its own end. `on_first`: a stream's first event has come."""
        self._order = order
        self._on_first = on_first
        self._endpoint = endpoint
        self._scrub = endpoint.scrub
        self._forms = endpoint.forms_in_words
        self._words = WordsHider(self._forms)
        self._transport = transport
        self._clock = clock
        self._end_s = math.inf if order.most_s is None else clock.monotonic() + order.most_s
        self._why_ended = why_ended  # what is told where that time is over
        self._habits, self._door = habits, (endpoint.base_url, order.request.model)
        self._asked = 0  # the hash of the request's body
        self._on_frames = on_frames
        self._on_body = on_body
        self._pass_on = pass_on
        self._room = room
        self._roomed_bytes = 0  # what it was told of
        self._open_reader = open_reader or self._usual_reader
        self._limits = limits
        self._reader: StreamReader | None = None
        self._silence: Silence | None = None
        self._first = FirstEvent()
        self._sending: object = None  # the request, once the transport has it
        self._url = ""
        self.has_answered = False  # the head of a reply has come
        self._is_unreachable = False  # the transport says that there was no connection
        self._refusal: HttpReply | None = None  # an answer that is an error
        self._error: list[bytes] = []  # its body so far
        self._body: list[bytes] = []  # of an answer that is no stream
        self._body_bytes = 0
        self._streamed_bytes = 0
        self._portions = Portions()
        self._arrived: Response | None = None
        self.first_event_s: float | None = None  # when a stream's first event had come (UTC, seconds since 1970)

    @property
    def received_bytes(self) -> int:
        """Of the body, whatever it was: what was read, not what was still on its way."""
        words = None if self._reader is None else self._reader.early_words
        read = self._streamed_bytes + self._body_bytes + (0 if words is None else words.taken_bytes)
        return read + sum(map(len, [*self._body, *self._error])) if self._body or self._error else read

    @property
    def has_left(self) -> bool:
        """Whether a byte of the request may have been written. What never left is not billed and counts nowhere."""
        if self._sending is None:
            return False
        left: object = getattr(self._sending, "has_left", None)
        return left if isinstance(left, bool) else not self._is_unreachable

    async def run(self, request: HttpRequest) -> ResponseReceived | RequestFailed:
        """A `ResponseReceived` may hold a fault that the provider reported after some content; a connection that broke or
        fell silent is a `RequestFailed`, unless the provider had said why the response ended (or: `Response.is_closed`)."""
        try:
            dog = self._watchdog()
            async with dog:
                self._url = request.url
                self._asked = hash(request.body)
                sending = self._sending = self._transport.send(request)
                async with sending as reply:
                    self.has_answered = True
                    return await self._receive(reply, dog)
        except Overdue as overdue:
            if self._refusal is not None:
                return self._told(self._refusal)
            reader = self._reader
            if reader is not None and reader.is_closed() and self._takes_end("left open"):
                return await self._worked_out(functools.partial(self._end, reader, in_order=True, is_left_open=True))
            why = f"the provider was silent: {overdue}"
            if self._clock.monotonic() >= self._end_s:
                why = f"the request was ended: {self._why_ended}"
            return await self._worked_out(functools.partial(self._broken, Fault(kind=FaultKind.TIMEOUT, message=why)))
        except ProviderFault as error:
            self._is_unreachable = error.fault.kind is FaultKind.UNREACHABLE and not self.has_answered
            return await self._worked_out(functools.partial(self._broken, error.fault))
        finally:
            if self._silence is not None:
                self._silence.leave()

    def _watchdog(self) -> Watchdog:
        """Until the first event of a stream its own deadline counts, and the whole after it: a server may read the prompt for
        longer than it then takes to answer."""
        deadlines = self._order.deadlines
        if not self._order.request.stream:
            return Watchdog(self._clock, total_s=self._within(deadlines.total_s))
        first_s = deadlines.first_event_s
        first_s = self._endpoint.profile.first_event_s if first_s is None else first_s
        dog = Watchdog(self._clock, total_s=self._within(first_s + deadlines.total_s))
        dog.expect("first event", within_s=first_s)
        return dog

    def _within(self, seconds: float) -> float:
        """So many from now on, or what is left of the time that the answer after it leaves."""
        return seconds if self._end_s == math.inf else min(seconds, self._end_s - self._clock.monotonic())

    async def _receive(self, reply: HttpReply, dog: Watchdog) -> ResponseReceived | RequestFailed:
        if not 200 <= reply.status < 300:
            dog.expect("end of the error", within_s=min(ERROR_S, self._order.deadlines.idle_s))
            return await self._refused(reply)
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        start = b""
        chunks = reply.chunks
        if self._order.request.stream and kind == "application/json":
            # Some servers answer a body where a stream was asked for, some label their stream so: the first byte tells.
            async for chunk in chunks:
                start += chunk
                if chunk.strip() or len(start) > BLANK_BYTES:
                    break
            streamed = not start.lstrip().startswith(b"{")
        else:
            streamed = self._order.request.stream or kind == "text/event-stream"
        if not streamed:
            limit_bytes = self._limits.response_bytes + 1
            self._body.append(start)
            await self._collect_body(chunks, into=self._body, limit_bytes=limit_bytes, dog=dog)
            self._body_bytes = sum(map(len, self._body))
            if self._body_bytes >= limit_bytes:  # joined and looked at, it would hold up everybody else for a second
                self._body.clear()
                return self._failed(too_large(self._limits.response_bytes))
            return await self._worked_out(functools.partial(self._read_body, in_order=_is_delimited(reply)))
        reader = self._reader = self._open_reader()
        if start:
            await self._read(reader, start, dog)
        takes = self._portions.takes
        async for chunk in chunks:
            if takes(chunk):
                self._feed(reader, chunk, dog)
            else:
                await self._read(reader, chunk, dog)
            if reader.faulted:
                break
            if self._room is not None:
                await self._make_room(self._room, dog, read_bytes=self._streamed_bytes_so_far)
            if reply.pump is not None and self._pass_on is not None:
                await self._pump(reader, dog, pump=reply.pump, pass_on=self._pass_on)
                if reader.faulted:
                    break
        return await self._worked_out(functools.partial(self._end, reader, in_order=_is_delimited(reply)))

    async def _read(self, reader: StreamReader, chunk: bytes, dog: Watchdog) -> None:
        """Feed it, portion by portion."""
        portions = self._portions
        while chunk and not reader.faulted:
            if portions.is_over:
                await asyncio.sleep(0)
                portions.begin()
            now, chunk = portions.cut(chunk)
            if not now:
                continue
            if portions.may_end_long(now):
                await self._read_long(reader, now, dog)
            else:
                self._feed(reader, now, dog)

    async def _read_long(self, reader: StreamReader, chunk: bytes, dog: Watchdog) -> None:
        if self._silence is not None:
            self._silence.is_held = True
        try:
            before = reader.heard, reader.finished or reader.failed
            frames = await beside_loop(functools.partial(reader.feed, chunk), size=MOST_BYTES + 1)
        finally:
            if self._silence is not None:
                self._silence.is_held = False
        self._feed(reader, chunk, dog, read=(frames, *before))

    async def _pump(self, reader: StreamReader, dog: Watchdog, *, pump: Pump, pass_on: PassOn) -> None:
        """Until the body ends, or the way out has to be waited for."""
        portions = self._portions
        while not reader.faulted and (way := pass_on.read()) is not None:
            taking = _Taking(reader, dog=dog, way=way, pass_on=pass_on, feed=self._feed, portions=portions)
            await pump(taking.take)
            if taking.rest:
                await self._read(reader, taking.rest, dog)
            elif not portions.is_over:
                return
            if portions.is_over:
                await asyncio.sleep(0)
                portions.begin()
            if self._room is not None:
                await self._make_room(self._room, dog, read_bytes=self._streamed_bytes_so_far)

    @property
    def _streamed_bytes_so_far(self) -> int:
        words = None if self._reader is None else self._reader.early_words
        return self._streamed_bytes + (0 if words is None else words.taken_bytes)

    async def _make_room(self, room: AnswerRoom, dog: Watchdog, *, read_bytes: int) -> None:
        """For what was read. While others have all of it, nothing is expected of the provider, because nobody reads it."""
        room.grow(read_bytes - self._roomed_bytes)
        self._roomed_bytes = read_bytes
        if not room.is_to_wait:
            return
        dog.hold()
        if self._silence is not None:
            self._silence.is_held = True
        try:
            await room.wait()
        finally:
            dog.resume()
            if self._silence is not None:
                self._silence.is_held = False

    async def _worked_out(
        self, end: Callable[[], ResponseReceived | RequestFailed]
    ) -> ResponseReceived | RequestFailed:
        """What the response comes to; that of a long one is worked out in a thread."""
        on_frames = self._on_frames
        shown: list[Sequence[Frame]] = []
        if on_frames is not None:
            self._on_frames = shown.append
        try:
            return await beside_loop(end, size=self.received_bytes)
        finally:
            self._on_frames = on_frames
            if on_frames is not None:
                for frames in shown:
                    on_frames(frames)

    def _read_body(self, *, in_order: bool) -> ResponseReceived | RequestFailed:
        body = b"".join(self._body)
        if self._on_body is not None:
            self._on_body(body)
        is_damaged = _is_damaged(body)
        self._body[:] = [body]
        del body
        response, frames = read_body(
            self._body.pop(),  # nobody else holds it: a long one is let go of once it is decoded
            family=self._endpoint.family,
            profile=self._endpoint.profile,
            limits=self._limits,
            tool_names=frozenset([tool.name for tool in self._order.request.tools]),
            own_names=own_names(self._order.request, self._endpoint.profile),
            taken_ids=self._order.taken_ids,
            id_prefix=self._order.id_prefix,
            in_text=_in_text(self._order),
        )
        if response.fault is not None and response.fault.kind is FaultKind.PROTOCOL and is_damaged:
            return self._failed(BROKE_OFF)
        self._tell(frames)
        return self._whole(response, in_order=in_order)

    async def _collect_body(
        self, chunks: AsyncIterator[bytes], *, into: list[bytes], limit_bytes: int, dog: Watchdog
    ) -> None:
        """A body, until it ends, or is whole JSON and nothing but blanks came for a while. It is looked at once after what may
        be its end, and after a silence only, so a long one costs no more for coming in many pieces."""
        quiet_s = self._quiet_s
        size = sum(map(len, into))
        may_end = _may_end(into[-1])
        quiet_at_s = self._clock.monotonic() + quiet_s
        while size < limit_bytes:
            coming = asyncio.ensure_future(anext(chunks, None))
            try:
                left_s = quiet_at_s - self._clock.monotonic()
                if may_end and not (left_s > 0 and await wait_for_task(coming, clock=self._clock, timeout_s=left_s)):
                    if await beside_loop(lambda: _is_whole(b"".join(into)), size=size):
                        return
                    may_end = False
                chunk = await coming
            except ProviderFault:
                if may_end and await beside_loop(lambda: _is_whole(b"".join(into)), size=size):
                    return  # it broke behind its end
                raise
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait([coming])
                del coming  # it holds the exception that it raised, and that holds this frame
            if chunk is None:
                return
            into.append(chunk)
            size += len(chunk)
            if self._room is not None:
                await self._make_room(self._room, dog, read_bytes=size)
            if chunk.strip():
                may_end, quiet_at_s = _may_end(chunk), self._clock.monotonic() + quiet_s

    def arrived(self) -> Response | None:
        """The response so far, for a request that was broken off. Nothing may be read afterwards."""
        if self._arrived is None and self._reader is not None and self._reader.heard:
            self._arrived = hide_in_response(self._reader.finish(), scrub=self._scrub, forms=self._forms)
        return self._arrived

    def _feed(
        self, reader: StreamReader, chunk: bytes, dog: Watchdog, *, read: tuple[list[Frame], int, bool] | None = None
    ) -> None:
        """`read`: the chunk was read in a thread, and what of the reader was before it."""
        if read is None:
            before, was_over = reader.heard, reader.finished or reader.failed
            frames = reader.feed(chunk)
        else:
            frames, before, was_over = read
        if not self._first.ended:
            self._first.feed(chunk)
        self._streamed_bytes += len(chunk)
        total_s = None
        if before == 0 and reader.heard:
            self.first_event_s = self._clock.now()
            if self._on_first is not None:
                self._on_first()
            total_s = self._within(self._order.deadlines.total_s)
        if reader.finished or reader.failed:
            if not was_over:
                dog.expect("end of the stream", within_s=self._quiet_s, total_s=total_s)
        elif total_s is not None:
            dog.expect("next event", within_s=self._order.deadlines.idle_s, total_s=total_s)
            deadlines = self._order.deadlines
            # Never zero: the silence would be looked at in every pass of the event loop.
            within_s = max(0.01, min(deadlines.left_open_s, deadlines.idle_s))
            self._silence = Silence(reader, dog=dog, clock=self._clock, within_s=within_s)
            self._silence.watch()
        elif reader.heard > before:
            dog.renew()
        elif self._silence is not None:
            self._silence.stir()
        self._tell(frames)

    @property
    def _quiet_s(self) -> float:
        return min(AFTER_FINISH_S, self._order.deadlines.idle_s)

    def _end(
        self, reader: StreamReader, *, in_order: bool, is_left_open: bool = False
    ) -> ResponseReceived | RequestFailed:
        """Take what has come. `in_order`: nothing suggests that more was to come. `is_left_open`: nor that it was all."""
        self._tell(reader.flush())
        response, habits = reader.finish(), self._habits
        bare = is_unmarked(response)
        may_end = bare and bool(response.message.parts) and reader.is_closed(open_texts=habits is not None)
        is_end = may_end and (is_left_open or (in_order if habits is None else self._takes_end("ended")))
        response = msgspec.structs.replace(response, is_closed=is_end) if bare else response
        if is_end and is_left_open:
            self._tell([Mended(LEFT_OPEN)])
            response = msgspec.structs.replace(response, repairs=(*response.repairs, LEFT_OPEN))
        if not bare:
            if habits is not None and response.fault is None and reader.finished:
                habits.saw_mark(self._door)
        elif not is_end and not self._order.request.stream and response.fault is None:
            return self._failed(DROPPED, partial=response)  # a stream in place of a whole body
        fault = response.fault
        if fault is not None and fault.kind is FaultKind.PROTOCOL and self._first.is_stream:
            if not self._first.ended:
                return self._failed(BROKE_OFF_STREAM)
            if response.lost and not response.message.parts:
                return self._failed(UNREADABLE_STREAM)
        return self._whole(response, in_order=in_order)

    def _takes_end(self, end: UnmarkedEnd) -> bool:
        """Whether a response without an end mark, and without an open call, is taken for all of it."""
        return self._habits is None or self._habits.saw_unmarked(self._door, end, request=self._asked)

    def _whole(self, response: Response, *, in_order: bool) -> ResponseReceived | RequestFailed:
        if self._on_frames is not None and (rest := self._words.flush()):
            self._on_frames(rest)
        response = hide_in_response(response, scrub=self._scrub, forms=self._forms)
        if response.fault is None or response.message.parts:
            return ResponseReceived(number=self._order.number, response=response)
        # Nothing at all is an answer only where its end has come. What lost an event or was too much may have been a response.
        could_be_more = {FaultKind.TOO_LARGE} if in_order else {FaultKind.TOO_LARGE, FaultKind.DISCONNECTED}
        is_answer = not (response.lost and self._reader is not None) and response.fault.kind not in could_be_more
        # An error behind the opening of a response (id, model, count of its prompt) ends one that had begun.
        has_begun = response.id is not None or response.model is not None or response.usage is not None
        return self._failed(response.fault, partial=response, is_answer=is_answer and not has_begun)

    def _broken(self, fault: Fault) -> ResponseReceived | RequestFailed:
        """The connection broke or fell silent."""
        reader = self._reader
        if reader is None or reader.heard == 0:
            return self._failed(fault)
        if reader.finished or reader.failed:
            return self._end(reader, in_order=False)
        self._tell(reader.flush())
        return self._failed(fault, partial=hide_in_response(reader.finish(), scrub=self._scrub, forms=self._forms))

    def _failed(self, fault: Fault, *, partial: Response | None = None, is_answer: bool = False) -> RequestFailed:
        return RequestFailed(
            number=self._order.number,
            fault=hide_in(naming_proxy(fault, self._sending, url=self._url), scrub=self._scrub),
            partial=partial,
            sent=self.has_left,
            is_answer=is_answer,
        )

    async def _refused(self, reply: HttpReply) -> RequestFailed:
        if 300 <= reply.status < 400:
            place = reply.headers.get("location", "").partition("?")[0]
            said = f"the server answered HTTP {reply.status}, which is no answer to this request"
            if place:
                said = (
                    f"the server redirects to `{place}`; a request with a key is not redirected: give that "
                    f"address as the base URL if you trust it"
                )
            return self._failed(Fault(kind=FaultKind.PROTOCOL, message=said, status=reply.status))
        self._refusal = reply
        with contextlib.suppress(ProviderFault):  # it broke off: the status still says what happened
            await _collect(reply.chunks, into=self._error, limit_bytes=ERROR_BYTES)
        return self._told(reply)

    def _told(self, refusal: HttpReply) -> RequestFailed:
        """What the provider has said of its error, as far as that came."""
        # The key is hidden before a decoder cuts the text short, and afterwards (`_failed`) where JSON had it escaped.
        scrub = self._scrub
        headers = {name: scrub(value) for name, value in refusal.headers.items()}
        body = scrub(b"".join(self._error)[:ERROR_BYTES].decode("utf-8", "surrogateescape"))
        fault = self._endpoint.family.decode_fault(refusal.status, headers, body.encode("utf-8", "surrogateescape"))
        if fault.retry_after_s is None and fault.retry_at_s is not None:
            # By the server's own clock where it shows it: ours may be wrong.
            now_s = date_s(headers.get("date", "")) or self._clock.now()
            fault = msgspec.structs.replace(fault, retry_after_s=max(0.0, fault.retry_at_s - now_s))
        if fault.kind is FaultKind.AUTH and not self._endpoint.sends_key:
            fault = msgspec.structs.replace(fault, message=f"{fault.message} (no key was sent)".lstrip())
        if refusal.status == 404:
            place = self._endpoint
            asked = where_asked(scrub(self._url), base_url=scrub(place.base_url), family=place.family)
            fault = msgspec.structs.replace(fault, message=f"{fault.message} ({asked})".lstrip())
        return self._failed(fault)

    def _usual_reader(self) -> ResponseReader:
        return ResponseReader(
            self._endpoint.family,
            profile=self._endpoint.profile,
            limits=self._limits,
            tool_names=frozenset([tool.name for tool in self._order.request.tools]),
            own_names=own_names(self._order.request, self._endpoint.profile),
            taken_ids=self._order.taken_ids,
            id_prefix=self._order.id_prefix,
            in_text=_in_text(self._order),
        )

    def _tell(self, frames: Sequence[Frame]) -> None:
        if self._on_frames is not None and frames:
            hidden = self._words.hide(hide_in_frames(frames, scrub=self._scrub))
            if hidden:
                self._on_frames(hidden)


def _is_delimited(reply: HttpReply) -> bool:
    return reply.is_delimited or reply.status in BODILESS


class _Taking:
    """Takes chunks in the socket's callback. What a word touches stands here together: of many streams each would be fetched from
    memory again."""

    __slots__ = ("_dog", "_feed", "_pass_on", "_portions", "_reader", "_way", "_words", "rest")

    def __init__(
        self,
        reader: StreamReader,
        *,
        dog: Watchdog,
        way: WayOut,
        pass_on: PassOn,
        feed: Callable[[StreamReader, bytes, Watchdog], None],
        portions: Portions,
    ) -> None:
        self._words = reader.early_words
        self._reader, self._dog, self._way, self._pass_on, self._feed = reader, dog, way, pass_on, feed
        self._portions = portions
        self.rest = b""  # of a chunk, for the next portion

    def take(self, chunk: bytes, coded: bytes = b"") -> bool:
        """As `Take` has it."""
        words, portions = self._words, self._portions
        if words is not None and words.take(chunk):
            self._dog.renew()
            portions.left_events -= 1
            portions.left_bytes -= len(chunk)
            if self._way.write(chunk, coded):
                return portions.left_events > 0 and portions.left_bytes > 0
            self._pass_on.hold(chunk)
            return False
        if portions.takes(chunk):
            now = chunk
        else:
            now, self.rest = portions.cut(chunk)
            if not now or portions.may_end_long(now):
                self.rest = chunk
                return False
        self._feed(self._reader, now, self._dog)
        return not portions.is_over and not self._reader.faulted and self._pass_on.read() is not None


def _is_damaged(body: bytes) -> bool:
    """JSON that has begun and is not whole: it ends too early, or a part of it is broken."""
    return body.lstrip()[:1] in (b"{", b"[") and not _is_whole(body)


def _may_end(chunk: bytes) -> bool:
    return chunk.rstrip()[-1:] in (b"}", b"]")


def _is_whole(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except UNREADABLE:
        return False
    return True


def _in_text(order: SendRequest) -> "CallFinder | None":
    """What reads calls in the text of the response; None where nothing does."""
    wanted = order.calls_in_text
    if wanted is None:
        return None
    from turnwise.assembly.text_calls.frames import CallFinder  # ten modules, for some endpoints only

    messages = order.request.messages
    return CallFinder(
        tools=wanted.tools,
        earlier=(*wanted.earlier, *messages) if wanted.earlier else messages,
        unmarked=wanted.unmarked,
        leading=wanted.leading,
        id_prefix=order.id_prefix,
    )


async def _collect(chunks: AsyncIterator[bytes], *, into: list[bytes], limit_bytes: int) -> None:
    """The body, not much further than the limit."""
    size = sum(map(len, into))
    async for chunk in chunks:
        into.append(chunk)
        size += len(chunk)
        if size >= limit_bytes:
            break
