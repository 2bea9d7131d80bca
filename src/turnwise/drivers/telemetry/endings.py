"""Ending spans beside the turn: ending one calls the processors and exporters of the user's program, which may wait or raise."""

import atexit
import functools
import logging
import threading
import weakref
from collections import deque

from opentelemetry.trace import Span

SETTLE_S = 1.0  # a turn gives a slow exporter so long at its end, once; then the spans end behind it
IDLE_S = 5.0  # a program may make a `Telemetry` for each run: none keeps a thread that has nothing to do
MAX_WAITING = 2048  # as many as OpenTelemetry's own batches hold before they drop spans

_log = logging.getLogger("turnwise")


class SpanEndings:
    """Ends spans in a thread of its own, in the order in which they came. What an exporter raises is logged once.

    An exporter that waits holds up one turn for `settle_s`, and no other one until it has gone on. Beyond `most` spans that wait,
    further ones never end: they are dropped.
    """

    def __init__(self, *, settle_s: float = SETTLE_S, most: int = MAX_WAITING) -> None:
        self._settle_s = settle_s
        self._most = most
        self._waiting: deque[tuple[Span, int]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_at_work = False
        self._is_late = False  # the last wait was in vain
        self._has_told = False
        _ALL.add(self)

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
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # idle, or this process is a fork
                self._start()

    def settle(self) -> None:
        """All spans until now have ended, if their exporter takes them in time."""
        with self._changed:
            if self._is_late and self._has_work():
                return
            self._is_late = not self._changed.wait_for(lambda: not self._has_work(), self._settle_s)
            if self._is_late:
                self.failed("an exporter of spans holds up the end of a run; runs do not wait for it any more")

    def failed(self, what: str, *, error: BaseException | None = None) -> None:
        """What went wrong is logged, once: by its class alone, because the texts of exporters may quote their headers."""
        if not self._has_told:
            self._has_told = True
            _log.warning("telemetry: %s%s", what, "" if error is None else f" ({type(error).__qualname__})")

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._is_at_work

    def _start(self) -> None:
        self._is_at_work = False
        settled_at_exit()
        self._thread = threading.Thread(target=self._run, name="turnwise spans", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_at_work = False
                if not self._waiting:
                    self._changed.notify_all()
                if not self._changed.wait_for(lambda: bool(self._waiting), IDLE_S):
                    self._thread = None
                    return
                span, at_ns = self._waiting.popleft()
                self._is_at_work = True
            try:
                span.end(at_ns)
            except Exception as error:  # noqa: BLE001 (processors and exporters are strangers)
                self.failed("a span could not be exported", error=error)


_ALL: "weakref.WeakSet[SpanEndings]" = weakref.WeakSet()


@functools.cache
def settled_at_exit() -> None:
    """From the first span on, that is after the user's providers were made: what was registered last runs first at the exit."""
    atexit.register(lambda: [endings.settle() for endings in list(_ALL)])
