"""Sends the probes one after the other, learns from refusals, and stops where nothing answers."""

import asyncio
import codecs
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import msgspec
from msgspec.structs import replace

from turnwise.assembly.response_reading import read_body
from turnwise.base.clock import Clock, sleep
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.exchange import Exchange
from turnwise.endpoints.transport import HttpReply, HttpRequest, Transport
from turnwise.lab.endpoint_check.judging import REFUSED, has_answered
from turnwise.lab.endpoint_check.probes import INVENTED, MAX_WAITS, NO_KEY, OTHER_WAYS, PROBES, Probe, SoFar, is_counted
from turnwise.lab.endpoint_check.shapes import BodyLook, LearnedField, Marks, Observed
from turnwise.lab.families import FAMILIES
from turnwise.turn.config import Deadlines
from turnwise.turn.events import ResponseReceived, SendRequest
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Message,
    PartDone,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    calls_of,
)
from turnwise.wire.family import MODULES, Family
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import Limits, MiB, Profile, builtin_profiles

# Sends one probe and keeps what came: each wait is bounded, and so is what is kept.


KEPT_BYTES = 512 * 1024  # of an answer: the answers to these probes have a few KB
LIMITS = Limits(line_bytes=MiB, call_bytes=MiB, response_bytes=4 * MiB, stream_bytes=4 * MiB)
IDLE_S = 30.0
CONNECT_S = 10.0
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Listening:
    """A transport that keeps the beginning of each answer that another one brings."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.status: int | None = None
        self.content_type = ""
        self.body = bytearray()
        self.size_bytes = 0

    def send(self, request: HttpRequest, /) -> "_Listened":
        self.status, self.content_type, self.body, self.size_bytes = None, "", bytearray(), 0
        return _Listened(self._transport.send(request), listening=self)

    def hear(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        self.body += chunk[: KEPT_BYTES - len(self.body)]


class _Listened:
    def __init__(self, sending: AbstractAsyncContextManager[HttpReply], *, listening: Listening) -> None:
        self._sending = sending
        self._listening = listening

    @property
    def has_left(self) -> object:
        return getattr(self._sending, "has_left", None)

    @property
    def proxy(self) -> object:
        return getattr(self._sending, "proxy", None)

    async def __aenter__(self) -> HttpReply:
        reply = await self._sending.__aenter__()
        self._listening.status = reply.status
        self._listening.content_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        return replace(reply, chunks=_Heard(reply.chunks, listening=self._listening))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._sending.__aexit__(kind, error, traceback)


class _Heard:
    def __init__(self, chunks: AsyncIterator[bytes], *, listening: Listening) -> None:
        self._chunks = chunks
        self._listening = listening

    def __aiter__(self) -> "_Heard":
        return self

    async def __anext__(self) -> bytes:
        chunk = await anext(self._chunks)
        self._listening.hear(chunk)
        return chunk


async def observe(
    probe: Probe,
    request: Request,
    *,
    endpoint: Endpoint,
    transport: Transport,
    clock: Clock,
    timeout_s: float,
    taken_ids: frozenset[str] = frozenset(),
) -> Observed:
    """Send the request once. A stream begins within `timeout_s`; what follows, and a body, takes twice as long at most."""
    if probe.wrong_key:
        endpoint = replace(endpoint, key=Secret(NO_KEY))
    listening = Listening(transport)
    idle_s = min(IDLE_S, timeout_s)
    deadlines = Deadlines(
        connect_s=min(CONNECT_S, timeout_s), first_event_s=timeout_s, idle_s=idle_s, total_s=2 * timeout_s
    )
    order = SendRequest(
        number=1,
        step=1,
        purpose="step",
        request=request,
        deadlines=deadlines,
        taken_ids=taken_ids,
    )
    call = endpoint.family.encode_request(request, endpoint.profile)
    began_s, sent_s = clock.monotonic(), clock.now()
    last_s = began_s

    def stir(_: Sequence[Frame]) -> None:
        nonlocal last_s
        last_s = clock.monotonic()

    exchange = Exchange(order, endpoint=endpoint, transport=listening, clock=clock, on_frames=stir, limits=LIMITS)
    event = await exchange.run(build_http_request(endpoint, call, connect_s=deadlines.connect_s))
    seconds = clock.monotonic() - began_s
    body = bytes(listening.body)
    marks = marks_of(
        body, status=listening.status, content_type=listening.content_type, size_bytes=listening.size_bytes
    )
    seen = Observed(
        probe=probe.name,
        request=request,
        events=events_of(body, look=marks.look, family=endpoint.family, profile=endpoint.profile),
        marks=marks,
        seconds=seconds,
        first_event_s=None if exchange.first_event_s is None else exchange.first_event_s - sent_s,
        taken_ids=taken_ids,
        is_steady=began_s + seconds - last_s < idle_s,
    )
    if isinstance(event, ResponseReceived):
        seen = replace(seen, response=event.response, answered=True, fault=event.response.fault)
    else:
        seen = replace(seen, response=event.partial, fault=event.fault)
    return _without_strangers(seen, body=body, family=endpoint.profile.family)


def _without_strangers(seen: Observed, *, body: bytes, family: str) -> Observed:
    """JSON that says nothing in this API is no answer of it; another API may know it."""
    if not _says_nothing(seen) or not 200 <= (seen.marks.status or 0) < 300:
        return seen
    for name in MODULES:
        if name != family and _is_answer(body, look=seen.marks.look, family=name):
            message = f"the answer is in the form of `{name}`"
            fault = Fault(kind=FaultKind.PROTOCOL, message=message)
            return replace(seen, other_api=name, response=None, answered=False, fault=fault)
    if seen.fault is None and seen.marks.look == "json" and _is_json(body):
        fault = Fault(kind=FaultKind.PROTOCOL, message=f"the answer holds nothing of this API: {_shown(body)}")
        return replace(seen, response=None, answered=False, fault=fault)
    return seen


def _says_nothing(seen: Observed) -> bool:
    """No part of an answer, no reason why it ended, and no piece that is known to be lost."""
    response = seen.response
    if response is not None and response.message.parts:
        return False
    return seen.fault is not None or response is None or (response.finish is FinishReason.CUT and not response.lost)


def _is_answer(body: bytes, *, look: BodyLook, family: str) -> bool:
    """Whether this family reads words or calls, and how they ended."""
    other, profile = find_family(family), builtin_profiles()[family]
    if look == "stream":
        frames = [frame for event in events_of(body, look=look, family=other, profile=profile) for frame in event]
        has_words = any(isinstance(frame, TextDelta | ReasoningDelta | ToolCallDelta | PartDone) for frame in frames)
        return has_words and any(isinstance(frame, Finished) for frame in frames)
    if look != "json":
        return False
    response, _ = read_body(body, family=other, profile=profile, limits=LIMITS)
    return bool(response.message.parts) and response.fault is None and response.finish is not FinishReason.CUT


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


def _shown(body: bytes) -> str:
    return repr(body[:60].decode("utf-8", "replace"))


def marks_of(body: bytes, *, status: int | None, content_type: str, size_bytes: int) -> Marks:
    lines = body.splitlines() if (look := _look_of(body, content_type=content_type)) == "stream" else []
    return Marks(
        status=status,
        content_type=content_type,
        look=look,
        size_bytes=size_bytes,
        comments=sum([line.startswith(b":") for line in lines]),
        has_done=any(line.startswith(b"data:") and line[5:].strip() == b"[DONE]" for line in lines),
        is_doubled=bool(lines) and len(body) == size_bytes and body[: len(body) // 2] == body[len(body) // 2 :],
    )


def _look_of(body: bytes, *, content_type: str) -> BodyLook:
    start = body.removeprefix(codecs.BOM_UTF8).lstrip()[:64].lower()
    if not start:
        return "nothing"
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")):
        return "html"
    if content_type != "text/event-stream" and (start.startswith((b"{", b"[")) or _is_json(body)):
        return "json"
    is_stream = content_type == "text/event-stream" or start.startswith((b"data:", b"event:", b"id:", b":"))
    return "stream" if is_stream else "other"


def events_of(body: bytes, *, look: BodyLook, family: Family, profile: Profile) -> tuple[tuple[Frame, ...], ...]:
    """The frames of each event as the decoder reads them; a whole body is one."""
    if look == "json":
        return (tuple(family.decode_body(body, profile, LIMITS)),)
    if look != "stream":
        return ()
    decoder = family.stream_decoder(profile, LIMITS)
    found: list[tuple[Frame, ...]] = []
    at = 0
    for end in _EVENT_END.finditer(body):
        found.append(tuple(decoder.feed(body[at : end.end()])))
        at = end.end()
    found.append((*decoder.feed(body[at:]), *decoder.finish()))
    return tuple([frames for frames in found if frames])


MAX_WAIT_S = 30.0  # a server that asks for more is not waited for
WAIT_S = 5.0  # where it does not say how long
MAX_FAILED = 3  # probes without any answer before the rest is not sent
MAX_SILENT = 2  # the same, where each of them took its whole time
BUSY = frozenset({FaultKind.RATE_LIMITED, FaultKind.OVERLOADED})
# One such answer says all: what follows would fail in the same way.
HOPELESS = frozenset({FaultKind.UNREACHABLE, FaultKind.AUTH, FaultKind.NOT_FOUND, FaultKind.QUOTA})


class Course(msgspec.Struct, kw_only=True):
    """How far a check has come. `requests` counts all that were sent; `endpoint` has the profile as learned. `pending` is the
    probe that was sent and has no answer yet."""

    endpoint: Endpoint
    so_far: SoFar
    observations: list[Observed]
    learned: list[LearnedField]
    requests: int = 0
    waits: int = 0
    stopped: bool = False
    pending: str | None = None


class EndpointCheck:
    """Runs the probes. `tell` is called with each probe before it is sent, `refresh` before each request: it closes what the one
    before has left open. Some servers close a connection behind a stream without a word, and a request that comes in that moment
    would be lost by no fault of what is checked."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        so_far: SoFar,
        transport: Transport,
        clock: Clock,
        timeout_s: float,
        tell: Callable[[Probe], object],
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.course = Course(endpoint=endpoint, so_far=so_far, observations=[], learned=[])
        self._transport = transport
        self._clock = clock
        self._timeout_s = timeout_s
        self._tell = tell
        self._refresh = refresh
        self._has_call = False

    async def run(self, probes: Sequence[Probe]) -> Course:
        """A cancellation (Ctrl-C) ends it with what was found until then."""
        course = self.course
        try:
            for probe in probes:
                if not self._can_ask(probe):
                    continue
                self._tell(probe)
                observed = await self._ask(probe)
                course.observations.append(observed)
                course.pending = None
                self._keep_call(observed)
                if _is_hopeless(course.observations):
                    break
        except asyncio.CancelledError:
            course.stopped = True
        return course

    async def _ask(self, probe: Probe) -> Observed:
        observed = await self._ask_patiently(probe)
        for field, value in OTHER_WAYS.get(probe.name, ()):
            fault = observed.fault
            if observed.answered or fault is None or fault.kind is not FaultKind.BAD_REQUEST:
                break
            before = self.course.endpoint
            other = _with(before, field=field, value=value)
            if _is_same(observed.request, before=before, after=other):
                continue
            self.course.endpoint = other
            again = await self._ask_patiently(probe)
            if again.answered:
                self.course.learned.append(LearnedField(field=field, value=value, why=fault.message))
                return again
            self.course.endpoint = before
        return observed

    async def _ask_patiently(self, probe: Probe) -> Observed:
        """Asked again where the server asks to wait, for as long as waiting is left."""
        waited = 0
        while True:
            observed = await self._send(probe, probe.build(self.course.so_far))
            wait_s = wait_s_of(observed.fault)
            if observed.answered or wait_s is None or self.course.waits >= MAX_WAITS:
                return replace(observed, waited=waited) if observed.answered else observed
            self.course.waits += 1
            waited += 1
            await sleep(self._clock, seconds=wait_s)

    async def _send(self, probe: Probe, request: Request) -> Observed:
        taken = frozenset([part.id for said in request.messages for part in said.parts if isinstance(part, ToolCall)])
        if self._refresh is not None:
            await self._refresh()
        self.course.requests += 1
        self.course.pending = probe.name
        return await observe(
            probe,
            request,
            endpoint=self.course.endpoint,
            transport=self._transport,
            clock=self._clock,
            timeout_s=self._timeout_s,
            taken_ids=taken,
        )

    def _keep_call(self, observed: Observed) -> None:
        """The model's own message is what a result is sent for. Of one with a call that is not whole, or that is larger than was
        said before, the id alone, if that is not too long in its turn."""
        if observed.probe != "call" or observed.response is None:
            return
        said, so_far, endpoint = observed.response.message, self.course.so_far, self.course.endpoint
        calls = calls_of(said)
        if not calls:
            return
        with_id = Message("assistant", (replace(INVENTED, id=calls[0].id),))
        is_whole = all(call.state is ArgumentsState.COMPLETE for call in calls)
        is_signed = _signs_calls(endpoint)
        for one in [*([said] if is_whole else []), *([] if is_signed else [with_id])]:
            if is_counted(one, probes=PROBES, model=so_far.model, endpoint=endpoint):
                self.course.so_far = replace(so_far, said=one)
                self._has_call = True
                return

    def _can_ask(self, probe: Probe) -> bool:
        """An invented call has no signature of a thought, which Gemini 3 insists on."""
        return self._has_call or not probe.needs_call or not _signs_calls(self.course.endpoint)


def _signs_calls(endpoint: Endpoint) -> bool:
    return FAMILIES[endpoint.profile.family].call_signature is not None


def _with(endpoint: Endpoint, *, field: str, value: object) -> Endpoint:
    profile = replace(endpoint.profile, **{field: value})
    return replace(endpoint, profile=profile)


def _is_same(request: Request, *, before: Endpoint, after: Endpoint) -> bool:
    """The field changes nothing of what is sent, so that asking again would show nothing."""
    encode = before.family.encode_request
    return encode(request, before.profile).body == encode(request, after.profile).body


def wait_s_of(fault: Fault | None) -> float | None:
    """How long to wait before it is asked again; None: not at all."""
    if fault is None or fault.kind not in BUSY:
        return None
    wait_s = WAIT_S if fault.retry_after_s is None else fault.retry_after_s
    return wait_s if wait_s <= MAX_WAIT_S else None


def _is_hopeless(observations: Sequence[Observed]) -> bool:
    asked = [observed for observed in observations if observed.probe not in REFUSED]
    if not asked or has_answered(asked):
        return False
    fault = asked[-1].fault
    if fault is not None and fault.kind in HOPELESS:
        return True
    silent = [one for one in asked if one.fault is not None and one.fault.kind is FaultKind.TIMEOUT]
    return len(asked) >= MAX_FAILED or len(silent) >= MAX_SILENT
