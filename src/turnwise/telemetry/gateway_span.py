"""One request of a gateway's client as a span, in the trace that the client names."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.context import attach, detach, get_current
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from turnwise.base.clock import Clock
from turnwise.telemetry import names
from turnwise.telemetry.attributes import provider_of
from turnwise.telemetry.instruments import Instruments
from turnwise.telemetry.names import LearnFacts, SpanFacts


@contextmanager
def gateway_span(headers: Mapping[str, str], *, instruments: Instruments, clock: Clock) -> Generator[LearnFacts]:
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
    token = attach(set_span_in_context(span, outside))

    def learn(known: SpanFacts) -> None:
        try:
            span.set_attributes(known)
            if model := known.get(names.REQUEST_MODEL):
                span.update_name(f"{names.CHAT} {model}")
            if names.ERROR_TYPE in known:
                span.set_status(Status(StatusCode.ERROR))
        except Exception as error:  # noqa: BLE001 (as above)
            instruments.endings.failed("a span could not be filled in", error=error)

    try:
        yield learn
    finally:
        detach(token)
        instruments.endings.end(span, at_ns=int(clock.now() * 1e9))


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
    """What the gateway knows of a request when it is over. `tokens` are those of prompts and of answers."""
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
