"""The chunks of a body in the socket's own callback: each once, in order, until whoever takes them has had enough."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoints.test_aiohttp_transport import raw, request
from thoroughness import examples
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.transport import HttpReply
from turnwise.errors import ProviderFault
from turnwise.vocab import FaultKind
from waits import HANG_S

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def framed(pieces: list[bytes]) -> bytes:
    return b"".join([b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces])


def answering(writes: list[bytes]) -> Answer:
    """The head, then these bytes, each in a write of its own, then the end of the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        for one in writes:
            writer.write(one)
            await writer.drain()
        writer.close()

    return answer


async def read(reply: HttpReply, *, most: int) -> tuple[bytes, bool]:
    """The body by turns of both ways, `most` chunks by the pump each time; and whether its connection broke."""
    found: list[bytes] = []
    assert reply.pump is not None
    try:
        async for chunk in reply.chunks:
            found.append(chunk)
            left = most

            def take(chunk: bytes, coded: bytes = b"") -> bool:
                nonlocal left
                found.append(chunk)
                left -= 1
                return left > 0

            await reply.pump(take)
            assert left >= 0
    except ProviderFault as error:
        assert error.fault.kind is FaultKind.DISCONNECTED
        return b"".join(found), True
    return b"".join(found), False


@settings(max_examples=examples(40), deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 600), max_size=12),
    most=st.integers(1, 6),
    whole=st.booleans(),
)
def test_a_body_comes_whole_by_turns_of_both_ways(pieces: list[bytes], cuts: list[int], most: int, whole: bool) -> None:
    """Proves: each byte once and in order, however it was cut; a body without its last chunk is a broken one."""
    sent = framed(pieces) + (b"0\r\n\r\n" if whole else b"")
    places = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    writes = [sent[start:end] for start, end in pairwise(places)]

    async def run() -> tuple[bytes, bool]:
        async with (
            raw(answering(writes)) as url,
            AiohttpTransport() as transport,
            transport.send(request(url)) as reply,
        ):
            return await asyncio.wait_for(read(reply, most=most), HANG_S)

    assert asyncio.run(run()) == (b"".join(pieces), not whole)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("burst", [[b"%06d" % n * 6_500 for n in range(4)], [b"%06d " % n * 20 for n in range(1_500)]])
def test_a_burst_past_what_aiohttp_holds_comes_in_order(loop: str, burst: list[bytes]) -> None:
    """Proves: the parser pauses at 64 KiB, and goes on from within the read that makes room; nothing overtakes and nothing is
    lost, however long the chunks are."""
    words = [b"one", b"two", b"three"]
    writes = [*[framed([word]) for word in words], framed(burst), framed([b"last"]) + b"0\r\n\r\n"]
    found: list[bytes] = []

    def take(chunk: bytes, coded: bytes = b"") -> bool:
        found.append(chunk)
        return True

    async def run() -> None:
        async with (
            raw(answering(writes)) as url,
            AiohttpTransport() as transport,
            transport.send(request(url)) as reply,
        ):
            assert reply.pump is not None
            await asyncio.wait_for(reply.pump(take), HANG_S)
            found.extend([chunk async for chunk in reply.chunks])

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())
    assert b"".join(found) == b"".join([*words, *burst, b"last"])


@pytest.mark.parametrize("pumps", [True, False])
async def test_a_framing_that_breaks_behind_a_late_line_end_is_told_at_once(pumps: bool) -> None:
    """Proves: a reader that was woken by the end of a chunk, without a byte of it, waits for nothing more."""
    writes = [b"1\r\na", b"\r\nZZ\r\n"]
    read = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + writes[0])
        await read.wait()
        writer.write(writes[1])
        await reader.read()  # the connection stays open until the client closes it
        writer.close()

    async with raw(answer) as url, AiohttpTransport() as transport, transport.send(request(url)) as reply:
        assert await anext(aiter(reply.chunks)) == b"a" and reply.pump is not None
        waiting = asyncio.ensure_future(
            reply.pump(lambda chunk, coded=b"": True) if pumps else anext(aiter(reply.chunks))
        )
        read.set()
        with pytest.raises(ProviderFault) as told:
            await asyncio.wait_for(waiting, HANG_S)
            await asyncio.wait_for(anext(aiter(reply.chunks)), HANG_S)
    assert told.value.fault.kind is FaultKind.DISCONNECTED


@pytest.mark.parametrize("error", [ValueError("odd"), StopIteration("odd")])
async def test_what_fails_while_it_takes_a_chunk_fails_where_the_pump_is_waited_for(error: Exception) -> None:
    """Proves: not in the event loop's log, and the connection is closed like any other; also what no future takes."""

    def take(_: bytes, coded: bytes = b"") -> bool:
        raise error

    writes = [framed([b"a"]), framed([b"b"])]
    async with raw(answering(writes)) as url, AiohttpTransport() as transport, transport.send(request(url)) as reply:
        assert reply.pump is not None
        with pytest.raises((ValueError, RuntimeError), match=r"odd|raised StopIteration"):
            await asyncio.wait_for(reply.pump(take), HANG_S)


async def test_a_pump_that_was_cancelled_takes_nothing_more() -> None:
    """Proves: what comes afterwards is left for the iterator, or for nobody."""
    goes_on = asyncio.Event()
    came: list[bytes] = []
    first = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + framed([b"a"]))
        await goes_on.wait()
        writer.write(framed([b"b"]) + b"0\r\n\r\n")
        writer.close()

    def take(chunk: bytes, coded: bytes = b"") -> bool:
        came.append(chunk)
        first.set()
        return True

    async with raw(answer) as url, AiohttpTransport() as transport, transport.send(request(url)) as reply:
        assert reply.pump is not None
        pumping = asyncio.ensure_future(reply.pump(take))
        await asyncio.wait_for(first.wait(), HANG_S)
        pumping.cancel()
        await asyncio.wait([pumping])
        goes_on.set()
        rest = [chunk async for chunk in reply.chunks]
    assert (came, rest) == ([b"a"], [b"b"])


async def test_a_chunk_that_comes_whole_is_given_in_its_coding_too() -> None:
    """Proves: as the server wrote it, also where two come together; nothing is taken twice."""
    taken: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
    alone = [b"5\r\nalone\r\n", b"0A\r\nnot plain.\r\n", b"A\r\nupper case\r\n", framed([b"w" * 300])]
    told: list[tuple[bytes, bytes]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + framed([b"first"]))
        told.append(await taken.get())
        for one in [*alone, framed([b"two ", b"words"])]:
            writer.write(one)
            told.append(await taken.get())
        writer.write(b"0\r\n\r\n")
        writer.close()

    def take(chunk: bytes, coded: bytes = b"") -> bool:
        taken.put_nowait((chunk, coded))
        return True

    async with raw(answer) as url, AiohttpTransport() as transport, transport.send(request(url)) as reply:
        assert reply.pump is not None
        await asyncio.wait_for(reply.pump(take), HANG_S)
    while not taken.empty():
        told.append(taken.get_nowait())
    together = [(b"two ", b"4\r\ntwo \r\n"), (b"words", b"5\r\nwords\r\n")]
    by_hand = [(b"alone", alone[0]), (b"not plain.", b""), (b"upper case", alone[2]), (b"w" * 300, alone[3]), *together]
    assert told == [(b"first", b""), *by_hand]
