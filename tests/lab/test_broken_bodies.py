"""Bodies whose framing, compression or last line breaks, over real sockets: asked for again, or taken behind an end mark,
however the network cut them. The server's own count of requests tells what the turn made of them.

The bytes are those of issue 12's second round of testers: a proxy that writes its own words where a chunk's size belongs, a
compressed stream that stops, a stream that stops within a line.
"""

import asyncio
import gzip
import zlib
from collections.abc import Sequence

import pytest

from lab.raw_server import Body, serving
from lab.test_closed_responses import CALLS, ENDS, FAMILIES, MARKS_TEXTS, PATH, TEXTS, turn
from tables import each
from turnwise.running.watcher_events import AttemptDiscarded, FrameSeen, WatcherEvent
from turnwise.turn.config import TurnResult
from turnwise.vocab import FaultKind

GZIP, RAW_DEFLATE = 16 + zlib.MAX_WBITS, -zlib.MAX_WBITS
WBITS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": zlib.MAX_WBITS, "raw deflate": RAW_DEFLATE}


def packed(pieces: Sequence[bytes], *, coding: str = "gzip", is_whole: bool) -> tuple[bytes, ...]:
    """Each piece can be read at once, as a server that streams flushes them."""
    packer = zlib.compressobj(wbits=WBITS[coding])
    found = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return (*found, packer.flush()) if is_whole else tuple(found)


def coded(coding: str) -> str:
    return f"content-encoding: {coding.removeprefix('raw ')}\r\n"


def answer(family: str) -> Body:
    return Body(pieces=(*TEXTS[family], *ENDS[family]))


def whole(family: str) -> Body:
    return Body(pieces=(*CALLS[family], *ENDS[family]))


async def faults_of(bodies: Sequence[Body], *, family: str, read: asyncio.Event | None = None) -> tuple[object, ...]:
    """The result, the runs, the server's requests, and the faults of the attempts that were given up."""
    faults: list[object] = []

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, AttemptDiscarded):
            faults.append(None if seen.fault is None else seen.fault.kind)
        elif isinstance(seen, FrameSeen) and read is not None:
            read.set()

    async with serving(bodies) as served:
        result, ran = await turn(served, family=family, watch=watch)
    return result, ran, served.requests, faults


async def assert_asked_again(body: Body, *, family: str, read: asyncio.Event | None = None) -> None:
    """One call in the end, run once, after a broken connection."""
    result, ran, requests, faults = await faults_of([body, whole(family), answer(family)], family=family, read=read)
    assert isinstance(result, TurnResult)
    assert (requests, ran, faults) == (3, [PATH], [FaultKind.DISCONNECTED])
    assert (result.text, result.complete) == ("It is done.", True)


async def assert_taken(body: Body, *, family: str, read: asyncio.Event | None = None) -> None:
    result, ran, requests, faults = await faults_of([body], family=family, read=read)
    assert isinstance(result, TurnResult)
    assert (requests, ran, faults) == (1, [], [])
    assert (result.text, result.complete) == ("It is done.", True)


# ---- the framing


@pytest.mark.promise("wait:retry")
@each("at_once", [True, False], ids=["one read", "a later read"])
@each("held", ["call", "text"])
@each("family", FAMILIES)
async def test_a_line_in_place_of_a_chunk_size_is_a_broken_connection(family: str, held: str, at_once: bool) -> None:
    """Behind a whole call, and behind a text. In one read it was `protocol`, which is never asked again; in a later one nobody
    noticed it, and the rest was lost or waited for."""
    read = asyncio.Event()
    pieces = (b"".join((CALLS if held == "call" else TEXTS)[family]),)
    body = Body(pieces=pieces, ending="bad chunk", at_once=at_once, before_end=None if at_once else read)
    await assert_asked_again(body, family=family, read=read)


@pytest.mark.promise("wait:stream")
@each("at_once", [True, False], ids=["one read", "a later read"])
@each("family", FAMILIES)
async def test_a_line_in_place_of_a_chunk_size_behind_the_end_mark_costs_nothing(family: str, at_once: bool) -> None:
    """The response had said that it was all."""
    read = asyncio.Event()
    pieces = (b"".join((*TEXTS[family], *ENDS[family])),)
    body = Body(pieces=pieces, ending="bad chunk", at_once=at_once, before_end=None if at_once else read)
    await assert_taken(body, family=family, read=read)


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("family", FAMILIES)
async def test_bytes_behind_the_announced_length_show_that_more_was_coming(family: str) -> None:
    """A content-length that is too small cuts a stream between two events. As far as the surplus has come by then."""
    head = f"content-length: {sum(map(len, CALLS[family]))}\r\n"
    body = Body(
        pieces=(*CALLS[family], b"data: {}\n\n"), ending="close", version="HTTP/1.1", headers=head, at_once=True
    )
    await assert_asked_again(body, family=family)


@pytest.mark.promise("wait:stream")
@each("ending", ["last chunk", "length", "missing chunk", "short"])
@each("family", FAMILIES)
async def test_a_whole_response_in_one_write_is_taken_whatever_follows(family: str, ending: str) -> None:
    """Head, body and close in one read: what came before the close is read before the fault that the close is."""
    pieces = (b"".join((*TEXTS[family], *ENDS[family])),)
    await assert_taken(Body(pieces=pieces, ending=ending, at_once=True), family=family)  # pyright: ignore[reportArgumentType]


# ---- the compression


@pytest.mark.promise("wait:retry")
@each("coding", WBITS)
@each("family", FAMILIES)
async def test_a_compressed_stream_without_its_end_did_not_arrive_whole(family: str, coding: str) -> None:
    """The HTTP body ends in good order; only the compressed stream in it shows that more was coming."""
    pieces = packed(CALLS[family], coding=coding, is_whole=False)
    await assert_asked_again(Body(pieces=pieces, headers=coded(coding)), family=family)


@pytest.mark.promise("wait:stream")
@each("coding", WBITS)
@each("family", FAMILIES)
async def test_a_compressed_stream_with_its_end_is_read_like_a_plain_one(family: str, coding: str) -> None:
    """Calls without an end mark are taken behind it the second time, and a text with one is, with and without the compressed
    end."""
    calls = Body(pieces=packed(CALLS[family], coding=coding, is_whole=True), headers=coded(coding))
    result, ran, requests, faults = await faults_of([calls, calls, answer(family)], family=family)
    assert isinstance(result, TurnResult)
    assert (result.complete, ran, requests, faults) == (True, [PATH], 3, [None])
    for is_whole in (True, False):
        pieces = packed((*TEXTS[family], *ENDS[family]), coding=coding, is_whole=is_whole)
        await assert_taken(Body(pieces=pieces, headers=coded(coding)), family=family)


def damages(text: bytes) -> dict[str, bytes]:
    sound = gzip.compress(text)
    return {
        "a wrong checksum": sound[:-8] + bytes([sound[-8] ^ 1]) + sound[-7:],
        "a wrong size": sound[:-1] + bytes([sound[-1] ^ 1]),
        "junk behind the end": sound + b"upstream error\r\n",
        "a second stream that breaks off": sound + gzip.compress(b"data: {}\n\n")[:-4],
    }


@pytest.mark.promise("wait:retry", "wait:stream")
@each("damage", damages(b""))
@each("family", FAMILIES)
async def test_a_damaged_compressed_stream_is_a_broken_connection(family: str, damage: str) -> None:
    """It was `protocol`, which is never asked again, even behind an end mark."""
    body = damages(b"".join(CALLS[family]))[damage]
    await assert_asked_again(Body(pieces=(body,), headers=coded("gzip")), family=family)
    body = damages(b"".join((*TEXTS[family], *ENDS[family])))[damage]
    await assert_taken(Body(pieces=(body,), headers=coded("gzip"), at_once=True), family=family)


# ---- the last line


@pytest.mark.promise("wait:retry")
@each("held", ["call", "text"])
@each("rest", [b"dat", b"data", b"data: ", b"event: content_block_sta", b"event: x\n", b"id", b": kee"])
@each("family", FAMILIES)
async def test_a_response_that_stops_within_a_line_was_not_all(family: str, rest: bytes, held: str) -> None:
    """Every call and text in it has its end, and the body ends in good order. The bytes behind show that more was coming."""
    if held == "text" and family not in MARKS_TEXTS:
        return  # a text has no end of its own there
    pieces = (*(CALLS if held == "call" else TEXTS)[family], rest)
    result, ran, requests, _ = await faults_of([Body(pieces=pieces), whole(family), answer(family)], family=family)
    assert isinstance(result, TurnResult)
    assert (requests, ran, result.text, result.complete) == (3, [PATH], "It is done.", True)


@pytest.mark.promise("wait:stream")
@each("missing", [1, 2])
@each("family", FAMILIES)
async def test_a_last_event_without_its_line_breaks_is_whole(family: str, missing: int) -> None:
    """Some servers leave them out behind the last event: a `data:` line that is whole JSON was all. Such a body ends in good
    order: where the next one does too, it is taken."""
    *before, last = CALLS[family]
    body = Body(pieces=(*before, last[:-missing]))
    result, ran, requests, faults = await faults_of([body, body, answer(family)], family=family)
    assert isinstance(result, TurnResult)
    assert (result.complete, ran, requests, faults) == (True, [PATH], 3, [None])


@pytest.mark.promise("wait:retry")
async def test_a_gemini_array_without_its_end_was_not_all() -> None:
    """Without `alt=sse` the API writes one JSON array. Its bracket is its end."""
    element = CALLS["gemini"][0].removeprefix(b"data: ").strip()
    for array, is_all in ((b"[" + element + b"\n]", True), (b"[" + element + b"\n,", False), (b"[" + element, False)):
        body = Body(pieces=(array,))
        asked = [body, body if is_all else whole("gemini"), answer("gemini")]
        result, ran, requests, _ = await faults_of(asked, family="gemini")
        assert isinstance(result, TurnResult)
        assert (requests, ran, result.complete) == (3, [PATH], True), array


# ---- left open


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_response_taken_from_a_connection_left_open_says_so(family: str) -> None:
    """Nothing showed whether more was coming, so the result tells of it. A body that ended tells nothing. Either is taken the
    second time."""
    for ending, expected in (("open", True), ("last chunk", False)):
        body = Body(pieces=CALLS[family], ending=ending)  # pyright: ignore[reportArgumentType]
        result, ran, requests, _ = await faults_of([body, body, answer(family)], family=family)
        assert isinstance(result, TurnResult)
        assert ("left_open" in [one.kind for one in result.repairs], ran, requests) == (expected, [PATH], 3)
