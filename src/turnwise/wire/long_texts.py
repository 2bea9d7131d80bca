"""Long JSON texts -> Python's, in slices: what came and the text are held, and nothing of their size beside them.

The JSON decoder writes a string that has an escape into a buffer first, which grows to one and a half times what it holds. And
Python decodes UTF-8 into a narrow text first, which it makes a wide one when it meets a character that needs it. Slices cost
both for one slice only.
"""

import codecs
import re
from collections.abc import Iterable, Iterator

import msgspec

from turnwise.wire.limits import SLICE_BYTES

LONG_BYTES = SLICE_BYTES
"""What is no longer costs little, however it is decoded."""
PIECE_BYTES = LONG_BYTES // 4
SPACED_BYTES = 4 * 1024  # of JSON that is taken apart; a token of one byte takes forty

_string = msgspec.json.Decoder(str)
_NEEDS_SLICES = re.compile(rb"[\\\x80-\xff]")
# As many whole characters and escapes as there are; two escapes may be one character. Possessive: never backtracks.
_UNITS = re.compile(rb"(?:[^\\]++|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u])*+", re.DOTALL)
STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKENS = re.compile(rb'(?:[^"]++|' + STRING + rb")*+", re.DOTALL)
WHOLE_STRING = re.compile(STRING, re.DOTALL)
_NO_SPACE = re.compile(rb'[^" \t\r\n]++|' + STRING, re.DOTALL)
_SPACE = b" \t\r\n"
_decoder = codecs.getincrementaldecoder("utf-8")


def read_utf8(source: bytes | memoryview, *, piece_bytes: int = PIECE_BYTES) -> str:
    """What is longer than four pieces is read in pieces. Raises UnicodeDecodeError."""
    if len(source) <= 4 * piece_bytes:
        return str(source, "utf-8")
    if _NEEDS_SLICES.search(source) is None:
        return str(source, "ascii")
    return _joined(_decoded(memoryview(source), piece_bytes))


def _joined(pieces: Iterable[str]) -> str:
    """The pieces as one text, which grows in place, as long as no other name refers to it."""
    text = ""
    for piece in pieces:
        text += piece
    return text


def _decoded(view: memoryview, piece_bytes: int) -> Iterator[str]:
    decoder = _decoder()
    for at in range(0, len(view), piece_bytes):
        yield decoder.decode(view[at : at + piece_bytes], at + piece_bytes >= len(view))


def read_long_string(json: bytes | memoryview, *, piece_bytes: int = PIECE_BYTES) -> str:
    """The text of a JSON string. Raises what the JSON decoder raises where it is none."""
    if len(json) <= 4 * piece_bytes or _NEEDS_SLICES.search(json) is None:
        return _string.decode(json)
    view = memoryview(json)
    if view[0] == view[-1] == 0x22:
        try:
            return _joined(_unescaped(view[1:-1], piece_bytes))
        except (msgspec.MsgspecError, UnicodeError):
            pass
    return _string.decode(json)  # says what is wrong


def _unescaped(view: memoryview, piece_bytes: int) -> Iterator[str]:
    """What stands between the quotes. Each slice is read by the JSON decoder, which finds what is no part of a string."""
    at, size = 0, len(view)
    while at < size:
        found = _UNITS.match(view, at, at + piece_bytes)
        end = found.end() if found is not None else at
        if end < size:
            end = _character_at(view, end)
        if end <= at:
            raise msgspec.DecodeError("half of an escape")
        yield _string.decode(b'"%b"' % view[at:end])
        at = end


def _character_at(view: memoryview, at: int) -> int:
    """Where the character begins that the byte belongs to."""
    begin = at
    while begin > max(0, at - 3) and view[begin] & 0xC0 == 0x80:
        begin -= 1
    return begin


def read_compact(json: memoryview, *, piece_bytes: int = SPACED_BYTES) -> str:
    """Clean JSON as text, without white space between its tokens."""
    return _joined(_without_space(json, piece_bytes))


def _without_space(json: memoryview, piece_bytes: int) -> Iterator[str]:
    at, size = 0, len(json)
    while at < size:
        found = _TOKENS.match(json, at, at + piece_bytes)
        end = found.end() if found is not None else at
        if end > at:
            piece = bytes(json[at:end])
            if len(piece.translate(None, _SPACE)) != len(piece):
                piece = b"".join(_NO_SPACE.findall(piece))
            yield str(piece, "utf-8")
        else:  # a string that is longer than a piece
            found = WHOLE_STRING.match(json, at)
            end = found.end() if found is not None else size
            yield from _decoded(json[at:end], piece_bytes)
        at = end
