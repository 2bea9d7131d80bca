"""The tracer and the histograms that all turns of one `Telemetry` share."""

import asyncio
import atexit
import contextlib
import functools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Mapping

import msgspec
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider, get_meter
from opentelemetry.trace import Span, TracerProvider, get_tracer
from opentelemetry.util.types import AttributeValue

from turnwise._version import __version__
from turnwise.telemetry.names import (
    FIRST_CHUNK_DURATION,
    OPERATION_DURATION,
    RESPONSE_MODEL,
    TOKEN_TYPE,
    TOKEN_USAGE,
)
from turnwise.vocab import Usage

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
        """A run has waited in vain, and spans still wait."""
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
        """One more span. Whoever waited for it goes on."""
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
        return {name: value for name, value in attributes.items() if name != RESPONSE_MODEL}
