"""What can still be read of bytes that are no clean JSON: the slow path of every decoder, taken when the fast one failed."""

import codecs
import json
import re
from typing import NamedTuple, cast

import msgspec

from turnwise.vocab import Lost, Mended, Repair
from turnwise.vocab.schema_bounds import has_too_many_values
from turnwise.wire.profiles import SLICE_BYTES, is_wide

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
        elif isinstance(one, dict):
            fields = cast("dict[str, object]", one)
            pending += [*fields, *fields.values()]
        elif isinstance(one, list):
            pending += cast("list[object]", one)
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
