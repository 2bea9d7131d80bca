"""Compressed bodies, undone piece by piece. The judge is zlib's own one-shot decoder."""

import gzip
import itertools
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.endpoints.aiohttp_transport import PIECE_BYTES, UnknownCoding, Unpacker, unpacker_for

CODINGS = ("gzip", "x-gzip", "deflate")


def packed(text: bytes, coding: str) -> bytes:
    return zlib.compress(text) if coding == "deflate" else gzip.compress(text, mtime=0)


def unpacked(body: bytes, *, coding: str, cuts: list[int]) -> tuple[bytes, bool, bool]:
    """What an unpacker makes of the body in these pieces, and whether it has ended and is broken."""
    unpacker = Unpacker(coding)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    found: list[bytes] = []
    for start, end in itertools.pairwise(places):
        unpacker.feed(body[start:end])
        while piece := unpacker.take():
            assert len(piece) <= PIECE_BYTES
            found.append(piece)
    return b"".join(found), unpacker.has_ended, unpacker.is_broken


@given(st.binary(max_size=300), st.sampled_from(CODINGS), st.lists(st.integers(0, 400), max_size=5))
def test_a_body_comes_out_as_it_went_in_whatever_the_cuts(text: bytes, coding: str, cuts: list[int]) -> None:
    """One stream, and for gzip several behind each other."""
    assert unpacked(packed(text, coding), coding=coding, cuts=cuts) == (text, True, False)
    if coding != "deflate":
        twice = packed(text, coding) + packed(text, coding)
        assert unpacked(twice, coding=coding, cuts=cuts) == (text * 2, True, False)


@given(st.binary(max_size=300), st.sampled_from(CODINGS), st.data())
def test_a_body_that_breaks_off_has_not_ended(text: bytes, coding: str, data: st.DataObject) -> None:
    """At every byte but before the first: nothing at all is an empty body."""
    body = packed(text, coding)
    at = data.draw(st.integers(1, len(body) - 1))
    found, has_ended, is_broken = unpacked(body[:at], coding=coding, cuts=data.draw(st.lists(st.integers(0, at))))
    assert text.startswith(found) and not has_ended and not is_broken


@given(
    st.binary(max_size=300),
    st.sampled_from(CODINGS),
    st.integers(0, 400),
    st.integers(0, 255),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_what_stands_before_damage_does_not_depend_on_the_cuts(
    text: bytes, coding: str, at: int, byte: int, cuts: list[int]
) -> None:
    """zlib drops all that a call has read when it meets a fault in it."""
    body = packed(text, coding) + b"junk"
    body = body[: at % len(body)] + bytes([byte]) + body[at % len(body) + 1 :]
    alone = unpacked(body, coding=coding, cuts=list(range(len(body))))
    assert unpacked(body, coding=coding, cuts=cuts) == alone
    assert not alone[1]


def test_a_body_of_zeros_is_given_in_pieces() -> None:
    """A thousand times its size, and never more than a piece at once; nothing is lost or added."""
    size = 50 * 1024 * 1024
    unpacker = Unpacker("gzip")
    unpacker.feed(gzip.compress(bytes(size)))
    most = total = 0
    while piece := unpacker.take():
        most, total = max(most, len(piece)), total + len(piece)
    assert (total, most, unpacker.has_ended) == (size, PIECE_BYTES, True)


def test_junk_and_padding_behind_the_end_are_damage() -> None:
    """Nothing follows the end of a compressed body but, in gzip, another one."""
    for coding in CODINGS:
        for junk in (b"upstream error", b"\0", b"\x1f\x8bno"):
            found = unpacked(packed(b"all", coding) + junk, coding=coding, cuts=[])
            assert found[0] == b"all" and not found[1]


def test_a_header_names_one_coding_or_none() -> None:
    """Several layers are refused like an unknown coding: nobody sends them."""
    assert unpacker_for("") is None and unpacker_for("identity") is None and unpacker_for(" GZIP ,identity") is not None
    for unknown in ("br", "zstd", "gzip, gzip", "compress"):
        with pytest.raises(UnknownCoding, match=unknown):
            unpacker_for(unknown)
