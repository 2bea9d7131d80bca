"""The spans of a turn and of a gateway's request, and the tracer and histograms that all of them share.

A turn has `invoke_agent` around it, `chat` for each request, `execute_tool` for each call that runs. `TurnTrace` is told what
watchers are told. A `ToolStarted` and a `RequestStarted` come in the context in which the call and the request then run, so what
they start is a child of their span.
"""

import asyncio
import atexit
import contextlib
import functools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

import msgspec
from opentelemetry.context import Context, attach, create_key, detach, get_current, get_value, set_value
from opentelemetry.metrics import Histogram, MeterProvider, get_meter
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from turnwise._version import __version__
from turnwise.running.watcher_events import (
    CallAnswered,
    FrameSeen,
    ObservedTurn,
    RequestFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.telemetry import attributes, names
from turnwise.telemetry.attributes import Attributes, Contents
from turnwise.telemetry.names import (
    FIRST_CHUNK_DURATION,
    OPERATION_DURATION,
    RESPONSE_MODEL,
    TOKEN_TYPE,
    TOKEN_USAGE,
)
from turnwise.turn.config import TurnResult
from turnwise.turn.events import RECOVERY, SendRequest
from turnwise.vocab import Fault, Response, ToolCall, ToolResult, Usage
from turnwise.vocab.json_values import without

# The tracer and the histograms that all turns of one `Telemetry` share.


# Ending spans beside the turn: ending one calls the processors and exporters of the user's program, which may wait or raise.


SETTLE_S = 1.0  # a run gives a slow exporter so long at its end, once; then the spans end behind it
IDLE_S = 5.0  # a program may make a `Telemetry` for each run: none keeps a thread that has nothing to do
MAX_WAITING = 2048  # as many as OpenTelemetry's own batches hold before they drop spans

_log = logging.getLogger("turnwise")


class _Waiter(msgspec.Struct, frozen=True, eq=False):
    """A run whose spans are the first `spans` of all."""

    spans: int
    ended: "asyncio.Future[None]"


class SpanEndings:
    """Ends spans in a thread of its own, in the order in which they came. What an exporter raises is logged once.

    An exporter that waits holds up the runs that end meanwhile for `settle_s`, and no further one until it has taken all spans;
    the event loop goes on. Beyond `most` spans that wait, further ones never end: they are dropped.
    """

    def __init__(self, *, settle_s: float = SETTLE_S, most: int = MAX_WAITING) -> None:
        self._settle_s = settle_s
        self._most = most
        self._waiting: deque[tuple[Span, int]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._came = 0
        self._ended = 0
        self._waiters: list[_Waiter] = []
        self._is_late = False
        self._has_told = False
        _ALL.add(self)

    @property
    def is_late(self) -> bool:
        """A run has given up waiting, and spans still wait."""
        return self._is_late

    def end(self, span: Span, *, at_ns: int) -> None:
        """The span ends soon, with this time. A span that nobody records ends at once."""
        if not span.is_recording():
            span.end(at_ns)
            return
        with self._changed:
            if len(self._waiting) >= self._most:
                self.failed("spans are ended faster than their exporter takes them; some are dropped")
                return
            self._waiting.append((span, at_ns))
            self._came += 1
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # idle, or this process is a fork
                self._start()

    async def settled(self) -> None:
        """All spans until now have ended, if their exporter takes them in time. The event loop goes on meanwhile."""
        with self._changed:
            if self._is_late or self._ended >= self._came:
                return
            waiter = _Waiter(self._came, asyncio.get_running_loop().create_future())
            self._waiters.append(waiter)
        try:
            await asyncio.wait([waiter.ended], timeout=self._settle_s)
        finally:
            with self._changed:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        with self._changed:
            self._look_if_late(waiter.spans)

    def settle(self) -> None:
        """As `settled`, where no event loop runs any more."""
        with self._changed:
            if not self._is_late:
                spans = self._came
                self._changed.wait_for(lambda: self._ended >= spans, self._settle_s)
                self._look_if_late(spans)

    def failed(self, what: str, *, error: BaseException | None = None) -> None:
        """What went wrong is logged, once: by its class alone, because the texts of exporters may quote their headers."""
        if not self._has_told:
            self._has_told = True
            _log.warning("telemetry: %s%s", what, "" if error is None else f" ({type(error).__qualname__})")

    def _look_if_late(self, spans: int) -> None:
        if self._ended < spans:
            self._is_late = True
            self.failed("an exporter of spans holds up the end of a run; runs do not wait for it any more")

    def _start(self) -> None:
        self._ended = self._came - len(self._waiting)  # a fork has lost the span that was at work
        settled_at_exit()
        self._thread = threading.Thread(target=self._run, name="turnwise spans", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._waiting), IDLE_S):
                    self._thread = None
                    return
                span, at_ns = self._waiting.popleft()
            try:
                span.end(at_ns)
            except Exception as error:  # noqa: BLE001 (processors and exporters are strangers)
                self.failed("a span could not be exported", error=error)
            with self._changed:
                self._has_ended()

    def _has_ended(self) -> None:
        """One more span has ended. Runs that waited for it continue."""
        self._ended += 1
        self._is_late = self._is_late and bool(self._waiting)
        self._changed.notify_all()
        for waiter in [one for one in self._waiters if one.spans <= self._ended]:
            self._waiters.remove(waiter)
            with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
                waiter.ended.get_loop().call_soon_threadsafe(_go_on, waiter.ended)


def _go_on(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


_ALL: "weakref.WeakSet[SpanEndings]" = weakref.WeakSet()


@functools.cache
def settled_at_exit() -> None:
    """From the first span on, that is after the user's providers were made: what was registered last runs first at the exit."""
    atexit.register(lambda: [endings.settle() for endings in list(_ALL)])


# Those that the conventions advise for each of these metrics.
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_CHUNK_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

MAX_MODELS = 100  # of responses: each is a series of its own, and an endpoint may name another one each time

Measured = Mapping[str, AttributeValue]


class Instruments:
    """`tracer` makes the spans, `endings` ends them. None of the providers: OpenTelemetry's global ones, also if they are set
    later. What a meter raises is logged and harms nothing."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        *,
        endings: SpanEndings | None = None,
    ) -> None:
        self.tracer = get_tracer("turnwise", __version__, tracer_provider)
        self.endings = endings or SpanEndings()
        self._models: set[AttributeValue] = set()
        meter = get_meter("turnwise", __version__, meter_provider)

        def histogram(name: str, *, unit: str, says: str, buckets: tuple[float, ...]) -> Histogram:
            return meter.create_histogram(
                name, unit=unit, description=says, explicit_bucket_boundaries_advisory=list(buckets)
            )

        self._duration = histogram(
            OPERATION_DURATION, unit="s", says="Duration of runs, requests and tool calls.", buckets=SECONDS
        )
        self._first_chunk = histogram(
            FIRST_CHUNK_DURATION, unit="s", says="Time until a response begins.", buckets=FIRST_CHUNK_S
        )
        self._tokens = histogram(
            TOKEN_USAGE, unit="{token}", says="Input and output tokens of requests.", buckets=TOKENS
        )

    def ended(self, seconds: float, *, attributes: Measured, context: Context) -> None:
        """An operation took so long."""
        self._record(self._duration, max(seconds, 0.0), attributes=attributes, context=context)

    def began(self, seconds: float, *, attributes: Measured, context: Context) -> None:
        """A response began after so long."""
        self._record(self._first_chunk, max(seconds, 0.0), attributes=attributes, context=context)

    def used(self, usage: Usage, *, attributes: Measured, context: Context) -> None:
        """A request used these tokens. A count that the provider did not report is not recorded."""
        for kind, count, name in (
            ("input", usage.input_tokens, "input_tokens"),
            ("output", usage.output_tokens, "output_tokens"),
        ):
            if name not in usage.untold:
                self._record(self._tokens, count, attributes={**attributes, TOKEN_TYPE: kind}, context=context)

    def _record(self, histogram: Histogram, value: float, *, attributes: Measured, context: Context) -> None:
        try:
            histogram.record(value, self._of_few_models(attributes), context)
        except Exception as error:  # noqa: BLE001 (a meter of the user's program is a stranger)
            self.endings.failed("a metric could not be recorded", error=error)

    def _of_few_models(self, attributes: Measured) -> Measured:
        model = attributes.get(RESPONSE_MODEL)
        if model is None or model in self._models:
            return attributes
        if len(self._models) < MAX_MODELS:
            self._models.add(model)
            return attributes
        return without(attributes, (RESPONSE_MODEL,))


_RUN = create_key("turnwise-run")
Told = TypeVar("Told")


class OpenSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has not ended. `inside` is the context with it, `outside` the one around it; `measured` is what metrics say."""

    span: Span
    outside: Context
    inside: Context
    began_s: float
    measured: Attributes

    @property
    def link(self) -> SpanContext:
        return self.span.get_span_context()


class TurnTrace:
    """Makes the spans of one turn, between the beginning and the end of `around`. Where one cannot be made, that is logged once,
    and the turn and its other spans go on without."""

    def __init__(
        self,
        turn: ObservedTurn,
        *,
        instruments: Instruments,
        agent_name: str,
        has_contents: bool,
        sends_traceparent: bool,
    ) -> None:
        self._turn = turn
        self._clock = turn.clock
        self._instruments = instruments
        self._agent_name = turn.path[-1] if turn.path else agent_name
        self._contents = Contents(turn.scrub) if has_contents else None
        self._sends_traceparent = sends_traceparent
        self._run: OpenSpan | None = None
        self._chat: tuple[OpenSpan, SendRequest] | None = None
        self._before: SpanContext | None = None  # the request before
        self._calls: dict[str, OpenSpan] = {}
        self._asked_by: dict[str, SpanContext] = {}  # call -> the request that brought it
        self._finish = ""  # of the last response
        self._tools = frozenset([offer.spec.name for offer in turn.config.tools])

    @contextlib.contextmanager
    def around(self) -> Generator[None]:
        """The turn runs in it, as a child of the current span."""
        self._safely(self._begin, get_current())
        token = None if self._run is None else attach(self._run.inside)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if token is not None:
                detach(token)
            self._safely(self._leave, error)

    async def settled(self) -> None:
        """Its spans have ended, if their exporter takes them in time. A run inside another one leaves that to the outer one."""
        above = get_value(_RUN)
        if not (isinstance(above, TurnTrace) and above._run is not None and above._instruments is self._instruments):
            await self._instruments.endings.settled()

    def asked(self, order: SendRequest) -> tuple[tuple[str, str], ...]:
        """A request is about to leave, in this context. Gives the headers that say to which trace it belongs, if wanted."""
        self._safely(self._request_leaves, order)
        if not self._sends_traceparent or self._chat is None:
            return ()
        headers: dict[str, str] = {}
        # The trace alone: baggage is the program's own data, and the endpoint may be anybody's.
        TraceContextTextMapPropagator().inject(headers, self._chat[0].inside)
        return tuple(headers.items())

    def see(self, batch: Sequence[WatcherEvent]) -> None:
        """What watchers are told."""
        for seen in batch:
            if type(seen) is not FrameSeen:
                self._safely(self._saw, seen)

    def _safely(self, do: Callable[[Told], None], told: Told) -> None:
        try:
            do(told)
        except Exception as error:  # noqa: BLE001 (samplers and processors are strangers; the turn must not end by them)
            self._instruments.endings.failed("a span could not be made", error=error)

    def _saw(self, seen: WatcherEvent) -> None:
        match seen:
            case ToolStarted(call=call):
                self._call_starts(call)
            case ToolFinished(result=result):
                self._call_ended(result, goes_on=True)
            case CallAnswered(call=call, result=result):
                self._call_answered(call, result)
            case RequestFinished(response=response, fault=fault, sent=sent):
                self._request_ended(response, fault=fault, sent=sent)
            case TurnFinished(result=result):
                self._ended(result)
            case _:
                pass

    # The run.

    def _begin(self, outside: Context) -> None:
        above = get_value(_RUN, outside)
        links = [_link(above._run.link, "subagent_of")] if isinstance(above, TurnTrace) and above._run else []
        known = attributes.of_run(self._turn, agent_name=self._agent_name)
        run = self._open(f"{names.INVOKE_AGENT} {self._agent_name}".rstrip(), outside=outside, known=known, links=links)
        self._run = msgspec.structs.replace(run, inside=set_value(_RUN, self, run.inside))
        if (contents := self._contents_for(run)) is not None:
            run.span.set_attributes(
                {
                    names.SYSTEM_INSTRUCTIONS: contents.instructions(self._turn.config.system),
                    names.INPUT_MESSAGES: contents.messages(self._turn.input),
                }
            )

    def _ended(self, result: TurnResult) -> None:
        if self._run is None:
            return
        self._close_rest()
        run, self._run = self._run, None
        known = attributes.of_result(result, ledger=self._turn.ledger, turn_id=self._turn.config.turn_id)
        if self._finish:
            known[names.FINISH_REASONS] = [self._finish]
        written: Attributes = {}
        answers = [one for one in result.messages if one.role == "assistant"]
        if answers and (contents := self._contents_for(run)) is not None:
            written[names.OUTPUT_MESSAGES] = contents.answer(answers[-1], finish=self._finish)
        self._close(run, known=known, contents=written, error=attributes.error_of_result(result))

    def _leave(self, error: BaseException | None) -> None:
        """What the end of the turn has not ended: it has raised, or nobody was told any more."""
        self._close_rest()
        run, self._run = self._run, None
        if run is not None:
            self._close(run, error=names.CANCELLED if error is None else type(error).__qualname__)

    def _close_rest(self) -> None:
        if self._chat is not None:
            self._request_ended(None, fault=None, sent=True, goes_on=False)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            self._close(call, error=names.CANCELLED)

    # Requests.

    def _request_leaves(self, order: SendRequest) -> None:
        if self._run is None:
            return
        links: list[Link] = []
        if self._before is not None and (order.retry_of is not None or order.purpose in RECOVERY):
            is_retry = order.retry_of is not None or order.purpose == "retry"
            links.append(_link(self._before, "retry_of" if is_retry else "continues"))
        known = attributes.of_request(order, turn=self._turn)
        chat = self._open(
            f"{names.CHAT} {order.request.model}",
            outside=self._run.inside,
            known=known,
            links=links,
            kind=SpanKind.CLIENT,
        )
        self._chat = (chat, order)
        attach(chat.inside)
        if (contents := self._contents_for(chat)) is not None:
            request = order.request
            chat.span.set_attributes(
                {
                    names.SYSTEM_INSTRUCTIONS: contents.instructions(request.system),
                    names.INPUT_MESSAGES: contents.messages(request.messages),
                    names.TOOL_DEFINITIONS: contents.tools(request.tools),
                }
            )

    def _request_ended(
        self, response: Response | None, *, fault: Fault | None, sent: bool, goes_on: bool = True
    ) -> None:
        """`goes_on`: what follows runs in the context in which the request left."""
        if self._chat is None:
            return
        (chat, order), self._chat = self._chat, None
        if goes_on:
            attach(chat.outside)
        entry = self._turn.ledger.get(self._turn.config.turn_id, order.number) if sent else None
        known: Attributes = {} if sent else {names.SENT: False}
        written: Attributes = {}
        error = "" if response is not None and fault is None else attributes.error_of_entry(entry)
        measured = dict(chat.measured)
        if entry is not None:
            known |= attributes.of_entry(entry)
            if order.request.stream and entry.first_event is not None:
                first_s = entry.first_event - entry.started
                known[names.TIME_TO_FIRST_CHUNK] = first_s
                self._instruments.began(first_s, attributes=measured, context=chat.inside)
        if fault is not None:
            known |= attributes.of_fault(fault)
            error = str(fault.kind)
        if response is not None:
            self._finish = str(response.finish)
            known |= attributes.of_response(response)
            if response.model:
                measured |= self._bounded({names.RESPONSE_MODEL: response.model})
            self._asked_by |= {part.id: chat.link for part in response.message.parts if type(part) is ToolCall}
            if (contents := self._contents_for(chat)) is not None:
                written[names.OUTPUT_MESSAGES] = contents.answer(response.message, finish=self._finish)
        if entry is not None and entry.usage is not None:
            self._instruments.used(entry.usage, attributes=measured, context=chat.inside)
        self._before = chat.link
        self._close(msgspec.structs.replace(chat, measured=measured), known=known, contents=written, error=error)

    # Calls.

    def _call_starts(self, call: ToolCall) -> None:
        if self._run is None:
            return
        asked_by = self._asked_by.get(call.id)
        opened = self._calls[call.id] = self._open(
            f"{names.EXECUTE_TOOL} {call.name}",
            outside=get_current(),
            known=attributes.of_call(call),
            links=[] if asked_by is None else [_link(asked_by, "asked_by")],
        )
        attach(opened.inside)
        if (contents := self._contents_for(opened)) is not None:
            opened.span.set_attribute(names.TOOL_ARGUMENTS, contents.text(call.arguments))

    def _call_ended(self, result: ToolResult, *, goes_on: bool) -> None:
        opened = self._calls.pop(result.call_id, None)
        if opened is None:
            return
        if goes_on:
            attach(opened.outside)
        written: Attributes = {}
        if (contents := self._contents_for(opened)) is not None:
            written[names.TOOL_RESULT] = contents.result(result)
        self._close(opened, contents=written, error=names.TOOL_ERROR if result.is_error else "")

    def _call_answered(self, call: ToolCall, result: ToolResult) -> None:
        """turnwise has answered it: either it was stopped, or it never ran."""
        if call.id in self._calls:
            self._call_ended(result, goes_on=False)
        elif self._run is not None:
            known: Attributes = {names.TOOL_CALL_ID: call.id}
            if self._contents is not None or call.name in self._tools:  # any other name is the model's own text
                known[names.TOOL_NAME] = call.name
            self._run.span.add_event(names.CALL_NOT_RUN, self._bounded(known), timestamp=self._now_ns())

    # Spans.

    def _open(
        self,
        name: str,
        *,
        outside: Context,
        known: Attributes,
        links: Sequence[Link],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> OpenSpan:
        began_s = self._clock.monotonic()
        known = self._bounded(known)
        span = self._instruments.tracer.start_span(
            name, outside, kind=kind, attributes=known, links=links, start_time=self._now_ns()
        )
        measured = {name: known[name] for name in MEASURED if name in known}
        return OpenSpan(
            span=span,
            outside=outside,
            inside=set_span_in_context(span, outside),
            began_s=began_s,
            measured=measured,
        )

    def _close(
        self,
        opened: OpenSpan,
        *,
        known: Attributes | None = None,
        contents: Attributes | None = None,
        error: str = "",
    ) -> None:
        """`contents` have a size of their own and no key."""
        ended_s, at_ns = self._clock.monotonic(), self._now_ns()
        try:
            opened.span.set_attributes({**self._bounded(known or {}), **(contents or {})})
            measured = dict(opened.measured)
            if error:
                measured[names.ERROR_TYPE] = error
                opened.span.set_attribute(names.ERROR_TYPE, error)
                opened.span.set_status(Status(StatusCode.ERROR))
            self._instruments.ended(ended_s - opened.began_s, attributes=measured, context=opened.inside)
        finally:
            self._instruments.endings.end(opened.span, at_ns=at_ns)

    def _bounded(self, known: Attributes) -> Attributes:
        return attributes.bounded(known, scrub=self._turn.scrub)

    def _contents_for(self, opened: OpenSpan) -> Contents | None:
        """None where nobody asked for contents, or nobody would get them."""
        return self._contents if self._contents is not None and opened.span.is_recording() else None

    def _now_ns(self) -> int:
        return int(self._clock.now() * 1e9)


# What metrics tell apart. Names of sessions, calls and tools are not among it: each value of them would be a series of its own.
MEASURED = (
    names.OPERATION,
    names.PROVIDER,
    names.REQUEST_MODEL,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
    names.TOOL_NAME,
)


def _link(to: SpanContext, kind: str) -> Link:
    return Link(to, {names.LINK: kind})
