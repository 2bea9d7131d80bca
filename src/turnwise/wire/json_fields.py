"""JSON objects taken apart one level deep, so that what is not ours to read goes on as the very text that came; long texts of
JSON in slices."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

import msgspec

from turnwise.vocab import Opaque
from turnwise.wire.profiles import SLICE_BYTES

# Long JSON texts -> Python's, in slices: what came and the text are held, and nothing of their size beside them.
#
# The JSON decoder writes a string that has an escape into a buffer first, which grows to one and a half times what it holds. And
# Python decodes UTF-8 into a narrow text first, which it makes a wide one when it meets a character that needs it. Slices cost
# both for one slice only.


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
    """The text of a JSON string. If it is not one, raises what the JSON decoder raises."""
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


Fields = dict[str, msgspec.Raw]
"""An object's keys and, undecoded, their values."""

NOTHING = msgspec.Raw()
"""The value of a raw field that was not there."""

NULL = msgspec.Raw(b"null")

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What reading a stranger's JSON can raise: not this shape or no JSON, no UTF-8, nested without end."""

_fields = msgspec.json.Decoder(Fields)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_raw = msgspec.json.Decoder(msgspec.Raw)
_encode = msgspec.json.encode


read_fields: Callable[[bytes | str | msgspec.Raw], Fields] = _fields.decode
"""The object's keys with their values as JSON text. Raises one of UNREADABLE if it is no object."""


def read_items(text: bytes | str | msgspec.Raw) -> list[msgspec.Raw]:
    """Raises one of UNREADABLE if it is no array."""
    return _items.decode(text)


def read_string(text: bytes | str | msgspec.Raw) -> str:
    """Raises one of UNREADABLE if it is no string."""
    if not isinstance(text, str) and len(view := memoryview(text)) > LONG_BYTES:
        return read_long_string(view)
    return _string.decode(text)


def string_of(fields: Mapping[str, msgspec.Raw], key: str) -> str | None:
    """The value where it is a string, else None."""
    raw = fields.get(key)
    if raw is None:
        return None
    try:
        return read_string(raw)
    except UNREADABLE:
        return None


def object_at(fields: Mapping[str, msgspec.Raw], key: str) -> Fields:
    """The object under `key`; empty where there is none, or something else."""
    raw = fields.get(key)
    if raw is None or not is_object(raw):
        return {}
    return read_fields(raw)


def text_of_raw(raw: bytes | msgspec.Raw) -> str:
    return read_utf8(memoryview(raw))


def is_object(raw: bytes | msgspec.Raw) -> bool:
    """What begins like an object; the decoders leave no blank before a raw value."""
    return first_byte(raw) == b"{"


def first_byte(raw: bytes | msgspec.Raw) -> bytes:
    return bytes(memoryview(raw)[:1])


def is_null(raw: msgspec.Raw | None) -> bool:
    """True where the field was not sent, or sent as null. (A `Raw` equals another of the same bytes, never bytes.)"""
    return not raw or raw == NULL


_EMPTY = frozenset([b"", b"null", b"{}", b"[]", b'""', b"false"])


def is_error(raw: msgspec.Raw) -> bool:
    """True where the field `error` says that there is one: servers send its empty forms beside a healthy answer."""
    return b"".join(bytes(memoryview(raw)[:16]).split()) not in _EMPTY


def is_json(text: str | bytes | memoryview) -> bool:
    """Strictly valid JSON text, with nothing around it."""
    try:
        _raw.decode(text)
    except UNREADABLE:
        return False
    return True


def without(fields: Mapping[str, msgspec.Raw], keys: Iterable[str]) -> Fields:
    left_out = frozenset(keys)
    return {key: value for key, value in fields.items() if key not in left_out}


def encode(value: object) -> bytes:
    """The JSON of `value`; msgspec.Raw inside it stands for itself. Lone surrogates become replacement characters."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_whole_characters(value))


quote: Callable[[str], bytes] = encode
"""A JSON string. A lone surrogate, which no JSON text can hold, becomes the replacement character."""

quote_whole: Callable[[str], bytes] = _encode
"""The same in half the time. Raises UnicodeEncodeError for a lone surrogate."""


def _whole_characters(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            fields = cast("dict[str, object]", value)
            return {_whole_characters(key): _whole_characters(item) for key, item in fields.items()}
        case list() | tuple():
            return [_whole_characters(item) for item in cast("list[object]", value)]
        case _:
            return value


def write_object(fields: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    return b"".join(object_pieces(fields))


def object_pieces(fields: Mapping[str, bytes | msgspec.Raw]) -> list[bytes | msgspec.Raw]:
    """The object in pieces, none of which is a copy: a value may be long."""
    pieces: list[bytes | msgspec.Raw] = []
    for key, value in fields.items():
        pieces += (b"," if pieces else b"{", quote(key), b":", value)
    return [*pieces, b"}"] if pieces else [b"{}"]


def write_array(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def each_alone(values: Iterable[bytes]) -> bytes:
    """The values as an array of arrays with one item each. Decoded as just that, and as many as there were: a value that holds
    two breaks its array, and two that hold one are one array less."""
    return b"[[" + b"],[".join(values) + b"]]"


def compact(text: bytes | msgspec.Raw) -> bytes:
    """The same JSON without whitespace between its tokens; numbers and strings stay as they are."""
    try:
        return msgspec.json.format(memoryview(text), indent=-1)
    except RecursionError:  # nested so deeply that it could be read, but only just
        return bytes(text)


def compact_text(raw: msgspec.Raw | bytes) -> str:
    """`compact`, as text. Clean JSON is given."""
    view = memoryview(raw)
    return read_compact(view) if len(view) > LONG_BYTES else str(compact(raw), "utf-8")


def one_line(json: bytes) -> bytes:
    """The same JSON without line breaks, which opaque text may bring along: inside of strings JSON has none."""
    return json.replace(b"\r", b" ").replace(b"\n", b" ") if b"\n" in json or b"\r" in json else json


def opaque_of(fields: Mapping[str, bytes | msgspec.Raw], *, family: str) -> Opaque | None:
    """Fields that have no word of ours, to go back as they came."""
    return Opaque(family, text_of_raw(write_object(fields))) if fields else None


def fields_in(opaque: Opaque | None, *, family: str) -> Fields:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    if opaque is None or opaque.family != family:
        return {}
    try:
        return read_fields(opaque.json)
    except UNREADABLE:
        return {}
