"""Sends the probes one after the other, learns from refusals, and stops where nothing answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from turnwise.base.clock import Clock
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Transport
from turnwise.lab.endpoint_check.estimating import MAX_WAITS, is_counted
from turnwise.lab.endpoint_check.judging import REFUSED, has_answered
from turnwise.lab.endpoint_check.observed import LearnedField, Observed
from turnwise.lab.endpoint_check.observing import observe
from turnwise.lab.endpoint_check.probes import INVENTED, OTHER_WAYS, PROBES, Probe, SoFar
from turnwise.vocab import ArgumentsState, Fault, FaultKind, Message, Request, ToolCall, calls_of

MAX_WAIT_S = 30.0  # a server that asks for more is not waited for
WAIT_S = 5.0  # where it does not say how long
MAX_FAILED = 3  # probes without any answer before the rest is not sent
MAX_SILENT = 2  # the same, where each of them took its whole time
BUSY = frozenset({FaultKind.RATE_LIMITED, FaultKind.OVERLOADED})
# One such answer says all: what follows would fail in the same way.
HOPELESS = frozenset({FaultKind.UNREACHABLE, FaultKind.AUTH, FaultKind.NOT_FOUND, FaultKind.QUOTA})

SIGNED = frozenset({"gemini"})


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
                return msgspec.structs.replace(observed, waited=waited) if observed.answered else observed
            self.course.waits += 1
            waited += 1
            await pause(wait_s, clock=self._clock)

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
        with_id = Message("assistant", (msgspec.structs.replace(INVENTED, id=calls[0].id),))
        is_whole = all(call.state is ArgumentsState.COMPLETE for call in calls)
        is_signed = endpoint.profile.family in SIGNED
        for one in [*([said] if is_whole else []), *([] if is_signed else [with_id])]:
            if is_counted(one, probes=PROBES, model=so_far.model, endpoint=endpoint):
                self.course.so_far = msgspec.structs.replace(so_far, said=one)
                self._has_call = True
                return

    def _can_ask(self, probe: Probe) -> bool:
        """An invented call has no signature of a thought, which Gemini 3 insists on."""
        return self._has_call or not probe.needs_call or self.course.endpoint.profile.family not in SIGNED


def _with(endpoint: Endpoint, *, field: str, value: object) -> Endpoint:
    profile = msgspec.structs.replace(endpoint.profile, **{field: value})
    return msgspec.structs.replace(endpoint, profile=profile)


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


async def pause(seconds: float, *, clock: Clock) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: over.done() or over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()


def _is_hopeless(observations: Sequence[Observed]) -> bool:
    asked = [observed for observed in observations if observed.probe not in REFUSED]
    if not asked or has_answered(asked):
        return False
    fault = asked[-1].fault
    if fault is not None and fault.kind in HOPELESS:
        return True
    silent = [one for one in asked if one.fault is not None and one.fault.kind is FaultKind.TIMEOUT]
    return len(asked) >= MAX_FAILED or len(silent) >= MAX_SILENT
