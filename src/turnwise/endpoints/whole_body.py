"""The body of a request, as aiohttp hands it over: at once, or piece by piece. Imported with the first request."""

import io

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesIOPayload, BytesPayload, Payload

JSON = "application/json"


class WholeBody(BytesPayload):
    """Bytes without aiohttp's search for what they are, and without its warning above 1 MB, which fears for the event loop: to
    copy one megabyte takes it 0.1 ms, and to write it in 64 KB pieces, as it wants, twice as long in all.

    `has_begun`: aiohttp (3.14) holds the head of a request back until it writes the body, and asks the body to write itself
    then. So before that no byte of the request has been written, whatever has become of the connection.
    """

    def __init__(self, value: bytes) -> None:
        Payload.__init__(self, value, content_type=JSON)
        self._size = len(value)
        self.has_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.has_begun = True
        await super().write_with_length(writer, content_length)


class LongBody(BytesIOPayload):
    """A very large body, written piece by piece; `has_begun` as above."""

    def __init__(self, value: bytes) -> None:
        super().__init__(io.BytesIO(value), content_type=JSON)
        self.has_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.has_begun = True
        await super().write_with_length(writer, content_length)
