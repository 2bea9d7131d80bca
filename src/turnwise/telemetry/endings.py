"""Ending spans beside the turn: ending one calls the processors and exporters of the user's program, which may wait or raise."""

import asyncio
import atexit
import contextlib
import functools
import logging
import threading
import weakref
from collections import deque

import msgspec
from opentelemetry.trace import Span

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
