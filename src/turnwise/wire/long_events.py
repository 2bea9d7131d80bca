"""A long event or body read by a typed decoder: its long strings are cut out first and put back as texts.

A decoder of typed values makes a text of each string that it reads, at a cost of up to six times the string (`long_texts.py`). So
a number stands in the place of each long string while the decoder reads the rest. The types decide what is read, as always: a
string that no field takes is never made a text, and one within raw JSON stays where it stands in what came.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar, cast

import msgspec

from turnwise.wire.healing import is_too_long
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.long_texts import LONG_BYTES, WHOLE_STRING, read_long_string

T = TypeVar("T")

_DIGITS = re.compile(rb'"(?:[0-9]|\\u003[0-9])*+"')  # also where they are written as escapes
_COLON = re.compile(rb"[ \t\r\n]*+:")
_raw = msgspec.json.Decoder(msgspec.Raw)


class _Numbers(NamedTuple):
    """How the numbers are written that stand for strings. They are so long that few other strings need a look: one of so many
    digits is cut out as well."""

    digits: int
    # All up to a string that has so many characters, or an escape; possessive: never backtracks.
    between: re.Pattern[bytes]
    number: re.Pattern[bytes]


@cache
def _numbers_for(long_bytes: int) -> _Numbers:
    """They are short beside the strings, and there are enough of them."""
    digits = max(8, long_bytes // 64)
    between = re.compile(rb'[^"]*+(?:"[^"\\]{0,%d}+"[^"]*+)*+' % (digits - 1))
    number = re.compile(rb'(?<!\\)"([0-9]{%d})"(?![ \t\r\n]*+:)' % digits)
    return _Numbers(digits, between, number)


def read_any(text: bytes, decode: Callable[[bytes], T]) -> T:
    """`decode`, which reads JSON as typed values, at no more than the text and what is made of it. Raises what it raises."""
    return read_long(text, decode) if len(text) > LONG_BYTES else decode(text)


def read_long(text: bytes, decode: Callable[[bytes], T], *, long_bytes: int = LONG_BYTES) -> T:
    """`decode`, with the strings of `long_bytes` and more cut out."""
    if b"\\" not in text and text.isascii():
        return decode(text)
    try:
        cut = _Cut(text, long_bytes=long_bytes)
        return cast("T", cut.put_back(decode(cut.rest))) if cut.spans else decode(text)
    except UNREADABLE:
        if is_too_long(text):
            raise
        return decode(text)  # what is short enough to be mended is told by the decoder's own error


class _Cut:
    """A JSON text whose long strings are cut out. `rest` is what is left, with numbers in their places."""

    __slots__ = ("_numbers", "_view", "rest", "spans")

    def __init__(self, text: bytes, *, long_bytes: int) -> None:
        """Raises one of UNREADABLE where a long string is none."""
        self._view = memoryview(text)
        self._numbers = _numbers_for(long_bytes)
        self.spans: list[tuple[int, int]] = []
        digits, between, _ = self._numbers
        pieces: list[bytes | memoryview] = []
        at = done = 0
        while (found := between.match(text, at)) is not None and (at := found.end()) < len(text):
            string = WHOLE_STRING.match(text, at)
            if string is None:  # it has no end: nothing of it is read
                pieces += (self._view[done:at], b'"')
                done = len(text)
                break
            start, at = string.span()
            size = at - start - 2
            is_number = size >= digits and _DIGITS.fullmatch(text, start, at) is not None
            if (size >= long_bytes or is_number) and _COLON.match(text, at) is None:  # keys stay
                _raw.decode(self._view[start:at])  # the decoders look at escapes in what they pass over, too
                pieces += (self._view[done:start], b'"%0*d"' % (digits, len(self.spans)))
                self.spans.append((start, at))
                done = at
        pieces.append(self._view[done:])
        self.rest = b"".join(pieces) if self.spans else text

    def put_back(self, value: object) -> object:
        """The value with the strings in it again. Its lists and structs are changed in place."""
        match value:
            case str():
                is_number = len(value) == self._numbers.digits and value.isascii() and value.isdigit()
                return self._text(int(value)) if is_number else value
            case msgspec.Raw():
                return self._raw(value)
            case list():
                items = cast("list[object]", value)
                for at, item in enumerate(items):
                    items[at] = self.put_back(item)
                return items
            case tuple():
                return tuple([self.put_back(item) for item in cast("tuple[object, ...]", value)])
            case msgspec.Struct():
                for name in value.__struct_fields__:
                    held: object = getattr(value, name)
                    if (put := self.put_back(held)) is not held:
                        msgspec.structs.force_setattr(value, name, put)
                return value
            case _:
                return value

    def _text(self, number: int) -> str:
        start, end = self.spans[number]
        return read_long_string(self._view[start:end])

    def _raw(self, raw: msgspec.Raw) -> msgspec.Raw:
        """The same piece of what came; no copy of it."""
        held = memoryview(raw)
        if len(held) <= self._numbers.digits:
            return raw
        first = last = None
        for last in self._numbers.number.finditer(held):
            first = first or last
        if first is None or last is None:
            return raw
        start = self.spans[int(first[1])][0] - first.start()
        end = self.spans[int(last[1])][1] + len(held) - last.end()
        return msgspec.Raw(self._view[start:end])
