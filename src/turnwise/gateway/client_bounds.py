"""What one client may take up, and all of them together: sizes, counts and seconds. `[bounds]` of gateway.toml."""

import asyncio
import contextlib
from collections.abc import Generator
from typing import Annotated

import msgspec

from turnwise.base.clock import Clock, Timer

MIB = 1024 * 1024
LONG_ANSWER_BYTES = 4 * MIB
SILENT_S = 1.0  # a provider that is: at the bound the next answer is read

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Past a bound a request gets an error in its client's family; past one of time or of the head the connection ends, too."""

    body_bytes: _Count = 32 * MIB  # what Anthropic's Messages API takes (its docs, "Request size limits")
    response_bytes: _Count = 64 * MIB  # of an upstream's answer: what is kept of a stream, or the whole body
    answers_bytes: _Count = 512 * MIB  # of all answers that are under way, as they came from upstream
    head_bytes: _Count = 32 * 1024  # request line and headers, as nginx's large_client_header_buffers
    query_bytes: _Count = 4 * 1024
    depth: _Count = (
        100  # of JSON: schemas of tools are nested, but OpenAI and Google refuse those of more than 10 and 5 levels
    )
    streams: _Count = 1000  # requests at once, from the first byte of the body to the last of the answer
    connections: _Count = 2000
    head_s: _Seconds = 10.0  # from the first byte to the end of the headers
    body_s: _Seconds = 120.0  # to send the body
    idle_s: _Seconds = 75.0  # between two requests; more than clients keep a connection, as nginx
    unread_s: _Seconds = 300.0  # how long a client may leave an answer unread


class OpenAnswer:
    """What one request has read of its answer, a portion late. `Exchange` tells it, and waits here before it reads on."""

    def __init__(self, every: "OpenAnswers") -> None:
        self._every = every
        self.size = 0
        self.received_bytes = 0  # in all, once the provider's answers are over; also of one that was no stream
        self.has_grown = False  # since the others were last looked at
        self.is_silent = False
        self.is_waiting = False

    @property
    def is_to_wait(self) -> bool:
        return self._every.is_full and self.size > self._every.share_bytes and not self._every.is_next(self)

    def grow(self, size: int) -> None:
        self.size += size
        self._every.size += size
        self.has_grown, self.is_silent = True, False

    def begin_anew(self) -> None:
        """What was read is given up."""
        self.grow(-self.size)
        self._every.wake()

    async def wait(self) -> None:
        """Until it may read on."""
        self.is_waiting = True
        try:
            while self.is_to_wait:
                await self._every.changed()
        finally:
            self.is_waiting = False


class OpenAnswers:
    """All answers that are under way, and their `size` in bytes. While that is at the bound, one that has no more than its share
    is read on, and of the others the oldest: it ends and makes room, so never do all wait for each other. One whose provider is
    silent meanwhile is passed over, as long as what the others read is no more than a quarter of the bound."""

    def __init__(self, *, most_bytes: int, clock: Clock, share_bytes: int = 0) -> None:
        self.size = 0
        self.share_bytes = share_bytes
        self._most_bytes = most_bytes
        self._clock = clock
        self._look_at: Timer | None = None
        self._open: dict[OpenAnswer, None] = {}
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        return self.size >= self._most_bytes

    def is_next(self, answer: OpenAnswer) -> bool:
        may_pass = self.size < self._most_bytes + self._most_bytes // 4
        begun = (each for each in self._open if each.size > self.share_bytes and not (may_pass and each.is_silent))
        return next(begun, answer) is answer

    @contextlib.contextmanager
    def open(self) -> Generator[OpenAnswer]:
        answer = OpenAnswer(self)
        self._open[answer] = None
        try:
            yield answer
        finally:
            del self._open[answer]
            answer.begin_anew()

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _look(self) -> None:
        self._look_at = None
        for each in self._open:
            each.is_silent = not (each.has_grown or each.is_waiting)
        self.wake()

    async def changed(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        if self._look_at is None:
            self._look_at = self._clock.call_later(SILENT_S, self._look)
            for each in self._open:
                each.has_grown = False
        await asyncio.shield(self._changed)


def give_memory_back() -> None:
    """What was freed goes back to the system. The C library keeps it otherwise: 110 MB after eight answers of 64 MB."""
    import ctypes  # for long answers alone

    with contextlib.suppress(
        AttributeError, OSError, TypeError
    ):  # other C libraries have no such function, or need none
        ctypes.CDLL(None).malloc_trim(0)
