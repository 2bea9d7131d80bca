"""What one client may take up, and all of them together: sizes, counts and seconds. `[bounds]` of gateway.toml."""

import asyncio
import contextlib
from collections.abc import Generator
from typing import Annotated

import msgspec

MIB = 1024 * 1024

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

    @property
    def is_to_wait(self) -> bool:
        return self._every.is_full and not self._every.is_oldest(self)

    def grow(self, size: int) -> None:
        self.size += size
        self._every.size += size

    def begin_anew(self) -> None:
        """What was read is given up."""
        self.grow(-self.size)
        self._every.wake()

    async def wait(self) -> None:
        """Until it may read on."""
        while self.is_to_wait:
            await self._every.changed()


class OpenAnswers:
    """All answers that are under way, and their `size` in bytes. While that is at the bound, only the oldest that has begun is
    read on: it ends and makes room, so never do all wait for each other."""

    def __init__(self, *, most_bytes: int) -> None:
        self.size = 0
        self._most_bytes = most_bytes
        self._open: dict[OpenAnswer, None] = {}
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        return self.size >= self._most_bytes

    def is_oldest(self, answer: OpenAnswer) -> bool:
        return next((each for each in self._open if each.size), answer) is answer

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

    async def changed(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)
