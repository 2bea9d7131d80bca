"""A transport for clients on httpx2 that hands out prepared events, each as a read of its own."""

from collections.abc import AsyncIterator

import httpx2


class Stream(httpx2.AsyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class Memory(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream(self.pieces))
