"""JSON objects taken apart one level deep, so that what is not ours to read goes on as the very text that came; long texts of
JSON in slices."""

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

import msgspec

from turnwise.vocab import Lost, Mended, Opaque, Repair, Request
from turnwise.vocab.json_values import is_json_array, is_json_object
from turnwise.vocab.schema_bounds import has_too_many_values
from turnwise.wire.profiles import SLICE_BYTES, is_wide

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
_raw = msgspec.json.Decoder(msgspec.Raw)
_encode = msgspec.json.encode


read_fields: Callable[[bytes | str | msgspec.Raw], Fields] = _fields.decode
"""The object's keys with their values as JSON text. Raises one of UNREADABLE if it is no object."""


read_items: Callable[[bytes | str | msgspec.Raw], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Raises one of UNREADABLE if it is no array."""


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


def extra_of(request: Request) -> Fields:
    """The body fields that have no word in the vocabulary."""
    return {} if request.extra is None else read_fields(request.extra.json)


def bytes_of(fields: Mapping[str, bytes | msgspec.Raw]) -> dict[str, bytes]:
    return {key: bytes(raw) for key, raw in fields.items()}


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


# What can still be read of bytes that are no clean JSON: the slow path of every decoder, taken when the fast one failed.


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
SHOWN_CHARACTERS = 80
MAX_MENDED_BYTES = 512 * 1024
"""What is longer and no clean JSON is left out; half of it, if Python takes four bytes for each of its characters. Mending takes
8 to 20 times its size, so this bounds what it costs. The longest event of 1,372 recorded streams has a twelfth."""
MAX_MENDED_VALUES = 16_384
"""JSON values in it; one takes Python up to 150 bytes, and the most in a recorded event is 39."""
HEAD_BYTES = 1024  # of what is left out, to show how it began


def _no_number(_: str) -> None:
    """Python writes NaN and Infinity where JSON has no word for them."""


# The standard library's decoder takes what msgspec's rightly refuses: lone surrogates, which models do write in two chunks,
# and control characters inside of strings.
_scan = json.JSONDecoder(strict=False, parse_constant=_no_number).raw_decode
_CONTROL = re.compile("[\x00-\x1f]")
_FIELD_IN_LINE = re.compile(r"(?:^|[^\s])[ \t]*data:")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def printable(text: bytes | str) -> str:
    """The first characters of something foreign, fit for one line of a terminal."""
    shown = text[: SHOWN_CHARACTERS * 4]
    shown = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else shown
    return " ".join("".join([c if c.isprintable() else " " for c in shown]).split())[:SHOWN_CHARACTERS]


MARKS = frozenset('{}[]":')
"""Every piece of a torn event has one of these, or it is no loss: a keep-alive in bare words has none."""


def is_noise(text: bytes | str) -> bool:
    """Whether text that is no JSON cannot have been a piece of an event: bare words, or a comment."""
    if isinstance(text, bytes) and is_too_long(text):
        return not any(mark.encode() in text for mark in MARKS)
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    marks = MARKS.intersection(shown)
    return not marks or (len(marks) == 1 and shown.lstrip().startswith(":"))


def skipped(kind: str, text: bytes | str) -> str:
    """The kind of repair for an event that is no JSON: `kind`, unless it is noise, which costs nothing."""
    return "noise_skipped" if is_noise(text) else kind


_WORD = re.compile(r"[^\W\d]+")
PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})


def is_torn_ping(text: bytes | str, *, name: str) -> bool:
    """Whether nothing but a ping was in an event that cannot be read: each of its words is a part of a ping's own words. Bytes
    that are lost between a ping and the next event can leave that one's end under the ping's name."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return name in PINGS and all(word in f"type {name}" for word in _WORD.findall(shown))


def is_ping(text: bytes | str, *, name: str) -> bool:
    """Whether an event with a ping's name is one, whatever it says in bare words: the time, for one."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return name in PINGS and (is_torn_ping(shown, name=name) or not (MARKS - {":"}).intersection(shown))


def left_out(repair: Repair, text: bytes | str, *, reaches_ended: bool = False) -> Lost | Mended:
    """The record of `text`, which is no JSON and was left out: lost, unless it is noise."""
    if is_noise(text):
        return Mended(Repair("noise_skipped", repair.where, repair.what))
    return Lost(repair, reaches_ended)


def is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        check_utf8(text)
    except UnicodeDecodeError:
        return False
    return True


def check_utf8(text: bytes) -> None:
    """Raises UnicodeDecodeError. A long text is looked at in slices: Python takes up to four bytes for each of its own."""
    if len(text) <= SLICE_BYTES:
        text.decode()
        return
    decoder = _utf8()
    for at in range(0, len(text), SLICE_BYTES):
        decoder.decode(text[at : at + SLICE_BYTES], at + SLICE_BYTES >= len(text))


_utf8 = codecs.getincrementaldecoder("utf-8")

CONTROLS = bytes([byte for byte in range(32) if byte not in b"\r\n"])
"""No stream of clean JSON holds one, line ends aside; tabs may stand between tokens."""
_value = msgspec.json.Decoder(msgspec.Raw)  # looks at all of it and builds nothing


def has_controls(text: bytes) -> bool:
    return len(text.translate(None, CONTROLS)) != len(text)


def is_sound(text: bytes) -> bool:
    """Whether the typed decoders may read the JSON. They pass over keys that they do not know without looking at them, so bytes
    that are no UTF-8 and control characters are found here (assembly:lost-piece)."""
    if not is_utf8(text):
        return False
    if not has_controls(text) and b"\n" not in text and b"\r" not in text:
        return True
    try:
        _value.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def check_sound(text: bytes) -> None:
    """Raises one of UNREADABLE where `is_sound` is false."""
    if not is_sound(text):
        raise msgspec.DecodeError("no clean JSON")


DAMAGES = {
    "invalid_utf8": "invalid UTF-8 became replacement characters",
    "control_character": "it has a control character, so it is no JSON",
}


LINE_END_LOST = "`data:` stands within a line: its line end is lost, and perhaps more"


class DamagedReading(NamedTuple):
    """What could be read of bytes that are no clean JSON. What is left out may be long, so `rest` is no copy of it."""

    text: str  # of what is too long, how it begins
    is_replaced: bool  # bytes in it were no UTF-8: they became replacement characters
    values: list[object]
    """The JSON values that stand one after the other (an event glued to the next, with or without its `data:`). No value is ever
    completed by guessing."""
    end: int  # where what is no JSON begins: at the text's end if nothing does
    rest: bytes | str  # what is no JSON
    has_field: bool = False
    """`data:` stands before a value, and no line end before it: one is lost, and perhaps whole events with it."""


def is_too_long(payload: bytes) -> bool:
    """Whether it is left out if it is no clean JSON."""
    return len(payload) > MAX_MENDED_BYTES // 2 and (len(payload) > MAX_MENDED_BYTES or is_wide(payload))


def read_damaged(payload: bytes) -> DamagedReading:
    if is_too_long(payload):
        return DamagedReading(payload[:HEAD_BYTES].decode("utf-8", "replace"), False, [], 0, payload)
    try:
        text, is_replaced = payload.decode(), False
    except UnicodeDecodeError:
        text, is_replaced = payload.decode("utf-8", "replace"), True
    values, end = read_values(text)
    has_field = "data:" in text and _FIELD_IN_LINE.search(_STRING.sub('""', text[:end])) is not None
    return DamagedReading(text, is_replaced, values, end, text[end:], has_field)


def breaks_strings(reading: DamagedReading) -> bool:
    """Whether a string in the JSON holds a line break or another control character. JSON has none there: something tore it."""
    text, end = reading.text, reading.end
    if _CONTROL.search(text, 0, end) is None:
        return False
    return any(_CONTROL.search(text, *found.span()) for found in _STRING.finditer(text, 0, end))


def read_values(text: str) -> tuple[list[object], int]:
    """The JSON values that stand one after the other, and the place where they end."""
    values: list[object] = []
    if has_too_many_values(text, most=MAX_MENDED_VALUES):  # all that is read is built
        return values, 0
    at = _skip_glue(text, 0)
    while at < len(text):
        try:
            value, at = _scan(text, at)
        except (ValueError, RecursionError):
            break
        values.append(value)
        at = _skip_glue(text, at)
    return values, at


def _skip_glue(text: str, at: int) -> int:
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if not text.startswith("data:", at):
            return at
        at += 5


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def has_lone_surrogate(value: object) -> bool:
    """True where a string in it holds half of a character, which no UTF-8 can carry."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            if not one.isascii() and _LONE_SURROGATE.search(one):
                return True
        elif is_json_object(one):
            pending += [*one, *one.values()]
        elif is_json_array(one):
            pending += one
    return False


def whole_text(text: str) -> str:
    """The text, with halves of a character that stand alone replaced."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def write_value(value: object) -> bytes:
    """The value as clean JSON: halves of a character that stand alone become replacement characters."""
    return _LONE_SURROGATE.sub("\ufffd", _write(value)).encode()


def read_objects(payload: bytes) -> list[bytes]:
    """The objects among the values that stand one after the other, as clean JSON."""
    return [write_value(cast("object", value)) for value in read_damaged(payload).values if isinstance(value, dict)]
