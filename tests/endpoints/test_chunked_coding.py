"""Chunks that are taken without the HTTP parser: what is said is the same, wherever the reads begin and end."""

import asyncio

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpResponseParser
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.endpoints.bounded_connector import MOST_AT_ONCE, ChunkedCoding, leading_chunks, single_chunk

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
WORD = b'data: {"a":"b"}\n\n'
LOOKS_CODED = b"5\r\nhello\r\n"

LONGER = LOOKS_CODED[3:] + b"." * (0x55 - 7)  # as a chunk: what follows its first digit looks like one of five bytes

pieces = st.one_of(
    st.binary(min_size=1, max_size=40), st.sampled_from([WORD, LOOKS_CODED, LONGER, b"\r\n", b"0\r\n\r\n", b"f"])
)
lengths = st.sampled_from([b"%x", b"%X", b"0%x", b"%x;ext=1", b"%x ", b"%x\t;e", b"+%x", b"0x%x", b"%x\r"])
usual = st.just(b"%x")
damage = st.sampled_from([b"", b"", b"", b"\r\n", b"\n", b"zz\r\n", b"fffffffffffff\r\n"])
endings = st.sampled_from(
    [(b"",), (b"0\r\n\r\n",), (b"0\r\na: b\r\n\r\n",), (b"00\r\n\r\n",), (b"0\r\na:5\r\nb:zzz\r\n", LOOKS_CODED)]
)


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """The bytes behind a head in reads: mostly chunk by chunk, as servers write them, and cut in the places that mislead."""
    parts: list[bytes] = []
    for piece in draw(st.lists(pieces, min_size=1, max_size=6)):
        length = draw(st.one_of(usual, usual, usual, lengths)) % len(piece)
        chunk = [length[:1], length[1:] + b"\r\n" + piece[:7], piece[7:] + b"\r\n"]
        ways = {"whole": [b"".join(chunk)], "digit": chunk, "inside": [length + b"\r\n", piece, b"\r\n"]}
        ways["feed alone"] = [*chunk[:2], piece[7:] + b"\n"]  # which aiohttp's parser takes for the line's end
        parts += [*ways[draw(st.sampled_from(["whole", "whole", "digit", "inside", "feed alone"]))], draw(damage)]
    parts += draw(endings)
    reads: list[bytes] = []
    for part in parts:
        if reads and draw(st.integers(0, 9)) == 0:
            reads[-1] += part
        else:
            reads.append(part)
    return [read for read in reads if read]


class Reading:
    """What a client makes of the body: the parser's own words, or the chunks that were taken beside it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        protocol = BaseProtocol(loop)
        self.parser = HttpResponseParser(protocol, loop, 2**16)
        (_, self.body), *_ = self.parser.feed_data(HEAD)[0]
        self.said = b""
        self.is_broken = False

    def parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except HttpProcessingError:
            self.is_broken = True
        self.said += self.body.read_nowait() if self.body.exception() is None else b""
        self.is_broken = self.is_broken or self.body.exception() is not None

    @property
    def outcome(self) -> tuple[bytes, bool, bool]:
        return self.said, self.body.is_eof(), self.is_broken


@settings(max_examples=examples(400), deadline=None)
@given(reads=bodies())
def test_a_parser_that_misses_whole_chunks_reads_the_rest_as_before(reads: list[bytes]) -> None:
    """Proves: what the body says, its end and its faults are those that aiohttp's parser alone finds."""

    async def outcome(*, takes: bool) -> tuple[bytes, bool, bool]:
        reading = Reading(asyncio.get_running_loop())
        coding = ChunkedCoding()
        for read in reads:
            if takes and coding.is_between_chunks:
                whole = list(leading_chunks(read))
                reading.said += b"".join([chunk for chunk, _ in whole])
                if whole and not (read := read[whole[-1][1] :]):
                    continue
            coding.follow(read)
            reading.parse(read)
            if reading.is_broken or reading.body.is_eof():
                break  # the connection is closed, or serves the next request
        return reading.outcome

    assert asyncio.run(outcome(takes=True)) == asyncio.run(outcome(takes=False))


def test_a_chunk_that_comes_alone_is_told() -> None:
    """Proves: also behind chunks that came in parts, and not once anything unusual was seen."""
    one = b"%x\r\n%b\r\n" % (len(WORD), WORD)
    assert single_chunk(one) == single_chunk(one.replace(b"f", b"F", 1)) == WORD
    assert single_chunk(one + one) == single_chunk(one[1:]) == single_chunk(one[:-1]) == b""
    assert list(leading_chunks(one)) == [(WORD, len(one))]
    assert list(leading_chunks(one + one + one[:-1])) == [(WORD, len(one)), (WORD, 2 * len(one))]
    assert not list(leading_chunks(b"0" + one)) and not list(leading_chunks(b"0\r\n\r\n"))
    assert len(list(leading_chunks(b"1\r\na\r\n" * 10_000))) == MOST_AT_ONCE  # the rest is the parser's, which is quick
    coding = ChunkedCoding()
    for part, is_between in [
        (one[:1], False),
        (one[1:7], False),
        (one[7:-1], False),
        (one[-1:], True),
        (one + one, True),
    ]:
        coding.follow(part)
        assert coding.is_between_chunks is is_between
    coding.follow(b"5;ext\r\nhello\r\n")
    assert not coding.is_between_chunks
