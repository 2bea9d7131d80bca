"""What a connection makes of a broken response does not depend on how the network cut it. Bytes in, without a socket."""

import asyncio
import itertools

import pytest
from aiohttp import ClientPayloadError

from turnwise.endpoints.bounded_connector import BoundedHandler

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN = {
    "junk for a size": HEAD + b"3\r\none\r\n3\r\ntwo\r\nupstream error\r\n",
    "a chunk longer than it said": HEAD + b"3\r\none\r\n3\r\ntwomore\r\n",
    "interim responses before": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n"
    + HEAD
    + b"6\r\nonetwo\r\nzz\r\n",
    "bare line feeds": HEAD.replace(b"\r", b"") + b"6\r\nonetwo\r\nzz\r\n",
    "more than the length": b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nonetwothree\r\n\r\n",
}


class Wire(asyncio.Transport):
    """A transport that can only be closed."""

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close

    def is_closing(self) -> bool:
        return False


def read(*pieces: bytes) -> tuple[list[int], bytes, type[BaseException] | None]:
    """The heads' codes, the body, and the error that its reader gets."""
    handler = BoundedHandler(asyncio.get_running_loop())
    handler.connection_made(Wire())
    handler.set_response_params(read_until_eof=True, auto_decompress=False)
    for piece in pieces:
        handler.data_received(piece)
    heads = [handler._buffer.popleft()[0] for _ in range(len(handler))]
    payload = heads[-1][1]
    error = payload.exception()
    return [head[0].code for head in heads], payload._read_nowait(-1), None if error is None else type(error)


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("response", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_body_is_told_to_its_reader_wherever_the_network_cut_it(response: bytes) -> None:
    """Cut in two at each byte, in one piece, and in pieces of one byte: head, what came, and the fault."""
    codes, body, error = read(response)
    assert (codes[-1], body, error) == (200, b"onetwo", ClientPayloadError)
    cuts = [[response[:at], response[at:]] for at in range(1, len(response))]
    for pieces in (*cuts, [bytes([byte]) for byte in response]):
        assert read(*pieces) == (codes, body, error), pieces


async def test_a_sound_body_is_whole_wherever_the_network_cut_it() -> None:
    """The head is looked for, and nothing else changes."""
    response = HEAD + b"6\r\n\n\r\n\n\r\n\r\n0\r\n\r\n"
    for first, second in itertools.combinations(range(len(response)), 2):
        assert read(response[:first], response[first:second], response[second:]) == ([200], b"\n\r\n\n\r\n", None)
