"""What takes its time and is not needed for a request is begun once the first has left."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from turnwise.drivers.transport import HttpReply, HttpRequest, Transport


class WithFirstReply:
    """A transport that calls `then` when the head of its first reply has come: the request has left for sure by then, and its
    answer takes longer to be generated than what is begun here takes."""

    def __init__(self, transport: Transport, *, then: Callable[[], object]) -> None:
        self._transport = transport
        self._then: Callable[[], object] | None = then

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]:
        return self._transport.send(request) if self._then is None else self._first(request)

    @asynccontextmanager
    async def _first(self, request: HttpRequest) -> AsyncGenerator[HttpReply]:
        async with self._transport.send(request) as reply:
            then, self._then = self._then, None
            if then is not None:
                then()
            yield reply
