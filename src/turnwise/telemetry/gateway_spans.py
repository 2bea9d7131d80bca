"""One request of a gateway's client as a span, in the trace that the client names, and a span below it for each upstream request.

Neither `tracestate` nor `baggage` of a client is sent on.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, format_span_id, format_trace_id
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from turnwise.base.clock import Clock
from turnwise.telemetry import names
from turnwise.telemetry.attributes import provider_of
from turnwise.telemetry.names import SpanFacts
from turnwise.telemetry.spans import Instruments

TRACEPARENT = "traceparent"  # W3C, "Trace Context"


class UpstreamSpan:
    """One request that goes upstream."""

    def __init__(self, span: Span, *, instruments: Instruments, clock: Clock) -> None:
        self._span = span
        self._instruments = instruments
        self._clock = clock

    @property
    def traceparent(self) -> tuple[tuple[str, str], ...]:
        """The header for an upstream that joins the trace; none if nobody traces."""
        found = self._span.get_span_context()
        if not found.is_valid:
            return ()
        ids = f"{format_trace_id(found.trace_id)}-{format_span_id(found.span_id)}"
        return ((TRACEPARENT, f"00-{ids}-{found.trace_flags:02x}"),)

    def end(self, known: SpanFacts) -> None:
        """It is over. `known`: what came of it."""
        try:
            _fill(self._span, known)
        except Exception as error:  # noqa: BLE001 (processors are strangers; the request must not fail by them)
            self._instruments.endings.failed("a span could not be filled in", error=error)
        self._instruments.endings.end(self._span, at_ns=int(self._clock.now() * 1e9))


class GatewayTrace:
    """What becomes of one client's request."""

    def __init__(self, span: Span, *, inside: Context, instruments: Instruments, clock: Clock) -> None:
        self._span = span
        self._inside = inside
        self._instruments = instruments
        self._clock = clock

    def learn(self, known: SpanFacts) -> None:
        try:
            if model := known.get(names.REQUEST_MODEL):
                self._span.update_name(f"{names.CHAT} {model}")
            _fill(self._span, known)
        except Exception as error:  # noqa: BLE001 (as above)
            self._instruments.endings.failed("a span could not be filled in", error=error)

    def repaired(self, kind: str) -> None:
        """Something was mended."""
        try:
            now_ns = int(self._clock.now() * 1e9)
            self._span.add_event(names.REPAIRED, {names.REPAIR_KIND: kind}, timestamp=now_ns)
        except Exception as error:  # noqa: BLE001 (as above)
            self._instruments.endings.failed("a span could not be filled in", error=error)

    def asks(self, known: SpanFacts) -> UpstreamSpan:
        """A request goes upstream now."""
        span: Span = INVALID_SPAN
        try:
            span = self._instruments.tracer.start_span(
                f"{names.CHAT} {known.get(names.REQUEST_MODEL, '')}".rstrip(),
                self._inside,
                kind=SpanKind.CLIENT,
                attributes=known,
                start_time=int(self._clock.now() * 1e9),
            )
        except Exception as error:  # noqa: BLE001 (samplers and processors are strangers, too)
            self._instruments.endings.failed("a span could not be made", error=error)
        return UpstreamSpan(span, instruments=self._instruments, clock=self._clock)


def _fill(span: Span, known: SpanFacts) -> None:
    span.set_attributes(known)
    if names.ERROR_TYPE in known:
        span.set_status(Status(StatusCode.ERROR))


@contextmanager
def gateway_span(headers: Mapping[str, str], *, instruments: Instruments, clock: Clock) -> Generator[GatewayTrace]:
    """A span around the block, as a child of the span that `traceparent` in the headers names. The block says what it learned."""
    outside = get_current()
    span: Span = INVALID_SPAN
    try:
        outside = TraceContextTextMapPropagator().extract(headers)
        span = instruments.tracer.start_span(
            names.CHAT, outside, kind=SpanKind.SERVER, start_time=int(clock.now() * 1e9)
        )
    except Exception as error:  # noqa: BLE001 (samplers and processors are strangers; the request must not fail by them)
        instruments.endings.failed("a span could not be made", error=error)
    inside = set_span_in_context(span, outside)
    token = attach(inside)
    try:
        yield GatewayTrace(span, inside=inside, instruments=instruments, clock=clock)
    finally:
        detach(token)
        instruments.endings.end(span, at_ns=int(clock.now() * 1e9))


def of_attempt(*, provider: str, model: str, purpose: str, number: int) -> SpanFacts:
    """What the gateway knows of a request before it goes upstream."""
    return {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_of(provider),
        names.REQUEST_MODEL: model,
        names.PURPOSE: purpose,
        names.NUMBER: number,
    }


def of_outcome(*, tokens: tuple[int, int], fault: str, is_sent: bool, repairs: Sequence[str]) -> SpanFacts:
    """What became of it. `tokens` are those of the prompt and of the answer."""
    known: dict[str, str | bool | int | float | Sequence[str]] = {}
    if any(tokens):
        known |= {names.INPUT_TOKENS: tokens[0], names.OUTPUT_TOKENS: tokens[1]}
    if fault:
        known[names.ERROR_TYPE] = fault
    if not is_sent:
        known[names.SENT] = False
    if repairs:
        known |= {names.REPAIRS: len(repairs), names.REPAIR_KINDS: sorted(set(repairs))}
    return known


def of_answer(
    *,
    provider: str,
    model: str,
    tokens: tuple[int, int],
    requests: int,
    status: int,
    fault: str,
    repairs: Mapping[str, int],
) -> SpanFacts:
    """What the gateway knows of a client's request when it is over. `tokens` are those of prompts and of answers."""
    known: dict[str, str | bool | int | float | Sequence[str]] = {names.OPERATION: names.CHAT, names.REQUESTS: requests}
    if provider:
        known |= {names.PROVIDER: provider_of(provider), names.REQUEST_MODEL: model}
    if any(tokens):
        known |= {names.INPUT_TOKENS: tokens[0], names.OUTPUT_TOKENS: tokens[1]}
    if status:
        known[names.STATUS_CODE] = status
    if fault:
        known[names.ERROR_TYPE] = fault
    if repairs:
        known |= {names.REPAIRS: sum(repairs.values()), names.REPAIR_KINDS: sorted(repairs)}
    return known
