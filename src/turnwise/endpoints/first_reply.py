"""What takes its time and is not needed for a request is begun once the first has left."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from turnwise.endpoints.transport import HttpReply, HttpRequest, Transport, make_ready


class WithFirstReply:
    """A transport that calls `then` when the head of its first reply has come: the request has left for sure by then, and its
    answer takes longer to be generated than what is begun here takes."""

    def __init__(self, transport: Transport, *, then: Callable[[], object]) -> None:
        self._transport = transport
        self._then: Callable[[], object] | None = then

    def prepare(self, request: HttpRequest, /) -> None:
        make_ready(self._transport, request)

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]:
        sending = self._transport.send(request)
        return sending if self._then is None else _First(sending, came=self._came)

    def _came(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()


class _First:
    """The first request, as its own transport sends it. Whatever else that tells of it can be asked here, too."""

    def __init__(self, sending: AbstractAsyncContextManager[HttpReply], *, came: Callable[[], None]) -> None:
        self._sending = sending
        self._came = came

    def __getattr__(self, name: str) -> object:
        return getattr(self._sending, name)

    async def __aenter__(self) -> HttpReply:
        reply = await self._sending.__aenter__()
        self._came()
        return reply

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._sending.__aexit__(kind, error, trace)
