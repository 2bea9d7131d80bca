"""What many long answers take up: while they are under way, and after them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.serving import error_of, gateway, status_of
from gateway.test_leaks import Process, gateway_before
from turnwise.gateway.client_bounds import SILENT_S, OpenAnswers
from turnwise.testing import FakeClock
from waits import HANG_S

MIB = 1024 * 1024
KEPT = 100 * MIB
LOOKS = 500  # each after a request: what is given back, is given back beside the event loop


async def test_at_the_bound_the_oldest_answer_goes_on_and_the_others_wait() -> None:
    """The one that has begun first: one that waits for its provider makes no room."""
    answers = OpenAnswers(most_bytes=100, clock=FakeClock())
    with contextlib.ExitStack() as later:
        silent = later.enter_context(answers.open())
        with answers.open() as first:
            first.grow(60)
            second, third = [later.enter_context(answers.open()) for _ in range(2)]
            second.grow(60)
            third.grow(10)
            assert [each.is_to_wait for each in (first, second, third, silent)] == [False, True, True, False]
            waiting = [asyncio.create_task(each.wait()) for each in (second, third)]
            second_reads, third_reads = waiting
            await asyncio.sleep(0)
            first.grow(1000)
            assert not (second_reads.done() or third_reads.done())
        await asyncio.wait_for(asyncio.gather(*waiting), HANG_S)
        third.grow(30)
        assert [each.is_to_wait for each in (second, third, silent)] == [False, True, False]
    assert (answers.size, answers.is_full) == (0, False)


async def test_an_answer_that_has_waited_is_passed_over_once_it_is_silent() -> None:
    """Proves: that it waited for the others says nothing of its provider later on, and the next one does not wait for both."""
    clock = FakeClock()
    answers = OpenAnswers(most_bytes=100, clock=clock)
    with contextlib.ExitStack() as later:
        with answers.open() as first:
            first.grow(60)
            second = later.enter_context(answers.open())
            second.grow(60)
            waited = asyncio.create_task(second.wait())
            await asyncio.sleep(0)
            assert second.is_to_wait and not waited.done()
        await asyncio.wait_for(waited, HANG_S)
        third = later.enter_context(answers.open())
        third.grow(50)
        reads = asyncio.create_task(third.wait())
        for _ in range(3):
            await asyncio.sleep(0)
            await clock.advance(SILENT_S)
        await asyncio.sleep(0)
        assert reads.done()


async def test_at_the_bound_silent_answers_hold_up_no_others() -> None:
    """Five providers that had sent much and then nothing held two others up until their deadlines, 41 s. A share is read at once;
    what is longer goes on once the clock has shown that the five are silent, one after another, and the silent ones after it."""
    clock = FakeClock()
    answers = OpenAnswers(most_bytes=100, clock=clock, share_bytes=5)
    with contextlib.ExitStack() as later:
        silent = [later.enter_context(answers.open()) for _ in range(5)]
        with answers.open() as first:
            second = later.enter_context(answers.open())
            for each in silent:
                each.grow(20)
            for each in (first, second):
                each.grow(5)
                assert (answers.is_full, each.is_to_wait) == (True, False)
                each.grow(1)
            first_reads, second_reads = [asyncio.create_task(each.wait()) for each in (first, second)]
            await clock.advance(SILENT_S)
            assert first_reads.done()
            first.grow(5)
            assert not (first.is_to_wait or second_reads.done())
        await asyncio.wait_for(second_reads, HANG_S)
        silent[0].grow(1)
        assert [each.is_to_wait for each in (silent[0], second)] == [False, True], (
            "it is the oldest, and not silent any more"
        )
        second.grow(19)
        assert answers.size >= 125
        again = asyncio.create_task(second.wait())
        await clock.advance(2 * SILENT_S)
        assert not again.done(), "past a quarter more, nobody is passed over"
        silent[0].begin_anew()
        await asyncio.wait_for(again, HANG_S)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_at_the_bound_a_new_request_is_told_to_wait(path: str) -> None:
    """503 with `retry-after`, in the client's family; once there is room, it is served."""
    async with gateway() as there:
        there.service.full = True
        answer = await there.said(there.post(path=path))
        assert (status_of(answer), b"\r\nretry-after: 1\r\n" in answer) == (503, True)
        assert "as many as the gateway holds" in error_of(answer)["message"]
        there.service.full = False
        assert status_of(await there.said(there.post(path=path))) == 200


def _event(said: str) -> bytes:
    return b"data: " + msgspec.json.encode({"id": "c", "choices": [{"index": 0, "delta": {"content": said}}]}) + b"\n\n"


END = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@contextlib.asynccontextmanager
async def long_upstream(long: int) -> AsyncIterator[str]:
    """Its answers have `long` bytes: a stream, or one body."""
    piece = _event("é" + "word " * 3000)
    body = (
        b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"%b"},"finish_reason":"stop"}]}'
        % (b"word " * (long // 5))
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            asked = await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
            if b'"stream":true' in asked:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
                for _ in range(long // len(piece)):
                    writer.write(piece)
                    await writer.drain()
                writer.write(END)
            else:
                head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
                writer.write(head + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def read_long(port: int, *, long: int, stream: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        body = msgspec.json.encode(asked)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        size, last = 0, b""
        while piece := await asyncio.wait_for(reader.read(MIB), HANG_S):
            size, last = size + len(piece), (last + piece)[-200:]
        assert size > long * 9 // 10, last
        assert (b"[DONE]" if stream else b'"finish_reason":"stop"') in last, last
    finally:
        writer.transport.abort()


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("long", [16 * MIB, pytest.param(64_000_000, marks=pytest.mark.wide)])
async def test_after_long_answers_the_memory_is_given_back(tmp_path: Path, long: int) -> None:
    """Four at once, half of them streamed, twice: of 64 MB, 2.4 GB and then 4 GB stayed, later 110 MB that the C library kept."""
    async with long_upstream(long) as url:
        with gateway_before(tmp_path, url, bounds=f"[bounds]\nanswers_bytes = {3 * long}\n") as there:
            process = Process(there)
            await asyncio.gather(*[read_long(there.port, long=long, stream=stream) for stream in (True, False)])
            warm = process.kept_bytes()
            for _ in range(2):
                await asyncio.gather(*[read_long(there.port, long=long, stream=at % 2 == 0) for at in range(4)])
            for _ in range(LOOKS):
                await asyncio.to_thread(there.get, "/healthz")
                if process.kept_bytes() - warm < KEPT:
                    break
            assert process.kept_bytes() - warm < KEPT
            assert b"turnwise_gateway_answer_bytes 0" in await asyncio.to_thread(there.get, "/metrics")
