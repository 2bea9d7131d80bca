"""The requests that this process has just served, for those who watch: the fields of their log lines, without any content."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Generator, Sequence

import msgspec

from turnwise.gateway.accounts import FIELDS, RequestLine

RECENT = 50  # lines that a new watcher gets at once
WAITING = 200  # lines that wait for a slow watcher: older ones are left out
MOST_WATCHERS = 32

TailQueue = asyncio.Queue[bytes]


class LiveTail(logging.Handler):
    """Hears the log of the gateway. Only the event loop's thread writes lines of requests."""

    def __init__(self) -> None:
        super().__init__()
        self._recent: deque[bytes] = deque(maxlen=RECENT)
        self._watchers: set[TailQueue] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line: object = getattr(record, FIELDS, None)
        if not isinstance(line, RequestLine):
            return
        told = {"at": record.created, **msgspec.structs.asdict(line)}
        del told["not_carried"]  # the client chose these names
        piece = b"data: %b\n\n" % msgspec.json.encode(told)
        self._recent.append(piece)
        for watcher in self._watchers:
            if watcher.full():
                watcher.get_nowait()
            watcher.put_nowait(piece)

    @property
    def is_full(self) -> bool:
        return len(self._watchers) >= MOST_WATCHERS

    @contextlib.contextmanager
    def watched(self) -> Generator[tuple[Sequence[bytes], TailQueue]]:
        """The lines so far, and the queue of those that come until the end of the block."""
        queue: TailQueue = asyncio.Queue(WAITING)
        self._watchers.add(queue)
        try:
            yield [*self._recent], queue
        finally:
            self._watchers.discard(queue)


@contextlib.contextmanager
def live_tail() -> Generator[LiveTail]:
    """Until the end of the block it hears each request, also where the log has errors only."""
    log, tail = logging.getLogger("turnwise"), LiveTail()
    before = log.level
    log.addHandler(tail)
    log.setLevel(min(before or logging.INFO, logging.INFO))
    try:
        yield tail
    finally:
        log.removeHandler(tail)
        log.setLevel(before)
