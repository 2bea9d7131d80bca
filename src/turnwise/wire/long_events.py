"""A long event or body: judged as text before a value of it is built (too many values, a call past its limit), and read by a
typed decoder. Its long strings are cut out first and put back as texts.

A decoder of typed values makes a text of each string that it reads, at a cost of up to six times the string
(see `json_fields.py`). So
a number stands in the place of each long string while the decoder reads the rest. The types decide what is read, as always: a
string that no field takes is never made a text, and one within raw JSON stays where it stands in what came.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar, cast

import msgspec

from turnwise.vocab import LONG_ARGUMENTS, Fault, FaultKind, ToolCall
from turnwise.wire.json_fields import (
    LONG_BYTES,
    STRING,
    UNREADABLE,
    WHOLE_STRING,
    is_too_long,
    read_fields,
    read_items,
    read_long_string,
    read_string,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.profiles import SLICE_BYTES, Limits

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
        """Raises one of UNREADABLE if a long string is not a JSON string."""
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


# A call past its limit, found in an event or a body before a text of it is built.
#
# To build a text takes up to two and a half times its bytes, or ten where Python needs four for each character. So what is longer
# than a call may be is taken apart first, as JSON texts that point into what came.


_HOLDERS = frozenset(
    {"choices", "message", "delta", "tool_calls", "function_call", "function", "custom"}
    | {"response", "output", "item", "content", "content_block", "candidates", "parts", "functionCall"}
)
"""The keys on the way to a call, in all families."""

_ARGUMENTS = frozenset({"arguments", "input", "args", "partial_json"})
_PIECES = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
"""The events whose `delta` is a piece of arguments."""

_OURS = frozenset({"function_call", "custom_tool_call", "tool_use"})
"""The kinds of calls that we run. Those of the provider's own tools go back as they came."""


def call_too_long(text: bytes, *, limit_bytes: int) -> Fault | None:
    """What is wrong, if the arguments of a call in it are longer than the limit. A text with escapes may be much shorter than
    its JSON: the assembler, which counts what it has, refuses what is not found here."""
    if len(text) <= limit_bytes:
        return None
    try:
        name = _find(msgspec.Raw(text), limit_bytes)
    except UNREADABLE:
        return None
    if name is None:
        return None
    message = f"the arguments of the call `{name[:64]}` are longer than {limit_bytes} bytes"
    return Fault(kind=FaultKind.TOO_LARGE, message=message)


def without_long_calls(text: bytes, *, limit_bytes: int) -> bytes:
    """The same event or body with `LONG_ARGUMENTS` in the place of all arguments past the limit; the very same without such."""
    while call_too_long(text, limit_bytes=limit_bytes) is not None:
        text = bytes(_without(msgspec.Raw(text), limit_bytes))
    return text


def _without(raw: msgspec.Raw, limit_bytes: int) -> msgspec.Raw:
    if len(memoryview(raw)) <= limit_bytes or _find(raw, limit_bytes) is None:
        return raw
    if bytes(memoryview(raw)[:16]).lstrip()[:1] == b"[":
        return msgspec.Raw(write_array([bytes(_without(item, limit_bytes)) for item in read_items(raw)]))
    fields = read_fields(raw)
    for key, value in fields.items():
        if len(memoryview(value)) <= limit_bytes:
            continue
        if key in _HOLDERS:
            fields[key] = _without(value, limit_bytes)
        elif key in _ARGUMENTS or key == "delta":
            is_text = bytes(memoryview(value)[:1]) == b'"'
            fields[key] = msgspec.Raw(msgspec.json.encode(LONG_ARGUMENTS) if is_text else LONG_ARGUMENTS.encode())
    return msgspec.Raw(write_object(fields))


_BEGINNING = re.compile(rb'"(?:arguments|args|input)"\s*+:\s*+["{]')
_PLACES = re.compile(rb'"(?:tool_calls|function_?call|functionCall|custom_tool_call|tool_use)"')
_NAMED = re.compile(rb'"(name|call_id|id)"\s*+:\s*+("(?:[^"\\]|\\.)*+")')


def call_that_begins(head: bytes) -> ToolCall | None:
    """The call whose arguments begin in `head`, the first bytes of what is too long to be read; without them."""
    begins = _BEGINNING.search(head)
    places = [] if begins is None else [*_PLACES.finditer(head, 0, begins.start())]
    if begins is None or not places:
        return None
    found = dict(_NAMED.findall(head, places[-1].end(), begins.start()))
    try:
        named = {key.decode(): read_string(text) for key, text in found.items()}
    except UNREADABLE:
        return None
    name, id = named.get("name"), named.get("call_id") or named.get("id") or ""
    return ToolCall(id=id, name=name, arguments=LONG_ARGUMENTS) if name else None


def _find(raw: msgspec.Raw, limit_bytes: int) -> str | None:
    """The name of a call that is longer; "" if it does not stand there."""
    match bytes(memoryview(raw)[:16]).lstrip()[:1]:
        case b"{":
            fields = read_fields(raw)
            kind = string_of(fields, "type") or ""
            is_ours = kind in _OURS or not kind.endswith(("_call", "_tool_use"))
            for key, value in fields.items():
                if len(memoryview(value)) <= limit_bytes:
                    continue
                if (key in _ARGUMENTS and is_ours) or (key == "delta" and kind in _PIECES):
                    if _is_longer(value, limit_bytes):
                        return string_of(fields, "name") or ""
                elif key in _HOLDERS and (found := _find(value, limit_bytes)) is not None:
                    return found
        case b"[":
            for item in read_items(raw):
                if len(memoryview(item)) > limit_bytes and (found := _find(item, limit_bytes)) is not None:
                    return found
        case _:
            pass
    return None


def _is_longer(value: msgspec.Raw, limit_bytes: int) -> bool:
    """Whether these arguments are longer in any case: an object without its white space, a text with its escapes at their
    shortest, one byte each."""
    view = memoryview(value)
    is_text = bytes(view[:1]) == b'"'
    size, at = len(view) - 2 * is_text, 0
    while at < len(view):
        piece = bytes(view[at : at + SLICE_BYTES])
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # the byte behind it belongs to the last escape
            piece = bytes(view[at : at + SLICE_BYTES + 1])
        at += len(piece)
        if is_text:
            if b"\\" in piece:
                rest = piece.replace(b"\\\\", b"_")
                size += len(rest) - len(piece) - rest.count(b"\\") - 4 * rest.count(b"\\u")
        else:
            size -= len(piece) - len(piece.translate(None, b" \t\r\n"))
    if size > limit_bytes or is_text:
        return size > limit_bytes
    return len(msgspec.json.format(view, indent=-1)) > limit_bytes  # some of the white space stands in texts


# What an event or a body would cost to read, judged as text before a value of it is built.
#
# Python takes 50 to 200 bytes for a list item or an object's field, which may have two. So what is longer than a usual event is
# counted first: all that stands in the lists and objects that the decoders read. What they pass over (`logprobs`, ids of tokens)
# or take as text (the arguments of a call) may hold any number of values.


COUNTED_BYTES = 64 * 1024
"""What is no longer costs little, whatever it holds."""
MAX_VALUES = 32_768
"""Of one body or event that are read. A response of 4,096 parts has eight for each."""

_READ = frozenset(
    {"choices", "delta", "message", "content", "thinking", "reasoningdetails", "toolcalls", "function", "custom"}
    | {"functioncall", "annotations", "annotation", "executedtools", "images", "xgroq", "citations", "citation"}
    | {"searchresults", "extracontent", "usage", "error", "response", "output", "item", "part", "summary", "detail"}
    | {
        "incompletedetails",
        "contentblock",
        "stopdetails",
        "source",
        "candidates",
        "parts",
        "partialargs",
        "usagemetadata",
    }
    | {"groundingmetadata", "groundingchunks", "groundingsupports", "groundingchunkindices", "web", "retrievedcontext"}
    | {"maps", "image", "citationmetadata", "citationsources", "urlcontextmetadata", "urlmetadata", "promptfeedback"}
    | {"inlinedata", "filedata", "functionresponse"}
)
"""The keys whose lists and objects a decoder reads, in all families; without underscores, and in small letters."""

_TOKEN = re.compile(rb'[^"\[\]{},]*+(?:(' + STRING + rb")|([\[\]{},]))", re.DOTALL)
_SMALL = re.compile(rb'(?:[^"\[\]{},]*+,|[ \t\r\n]*+(?:"[^"\\,\[\]{}]*+"[^"\[\]{},]*+|\{\}|\[\])[ \t\r\n]*+,)++')
"""Numbers, short strings, fields of these, and empty lists and objects: any number of them at once."""
_OPENING = b"[{"
TOO_DEEP = 2048
"""No decoder reads what is nested deeper: nothing of it is built."""


def _passed_over() -> re.Pattern[bytes]:
    """All up to the next bracket that has more than six levels in it, or that closes. Possessive: never backtracks."""
    inner = rb'(?:[^"\[\]{}]++|' + STRING + rb")*+"
    for _ in range(6):
        inner = rb'(?:[^"\[\]{}]++|' + STRING + rb"|[\[{]" + inner + rb"[\]}])*+"
    return re.compile(inner + rb"([\[\]{}])", re.DOTALL)


_PASSED_OVER = _passed_over()


def too_much(text: bytes, *, call_bytes: int) -> Fault | None:
    """What is wrong, if an event or a body holds a call longer than this, or too many values."""
    if (fault := call_too_long(text, limit_bytes=call_bytes)) is not None:
        return fault
    if len(text) <= COUNTED_BYTES or not has_too_many_items(text):
        return None
    return Fault(kind=FaultKind.TOO_LARGE, message=f"more than {MAX_VALUES} values in one event or body")


def told_long_calls(body: bytes, *, limits: Limits) -> bytes:
    """The body in which something short stands for the arguments that are past the limit, where these are told."""
    return without_long_calls(body, limit_bytes=limits.call_bytes) if limits.tells_long_calls else body


def has_too_many_items(text: bytes, *, most: int = MAX_VALUES) -> bool:
    """Whether the lists and objects that are read hold more. The text need not be JSON."""
    if text.count(b",") + text.count(b"[") + text.count(b"{") < most:
        return False
    count = depth = at = 0
    said = b""  # the last string, if nothing came behind it: a key, where something opens now
    while True:
        if not said and (small := _SMALL.match(text, at)) is not None:
            start, at = at, small.end()
            count += text.count(b",", start, at) + text.count(b"{", start, at) + text.count(b"[", start, at)
            if count > most:
                return True
        found = _TOKEN.match(text, at)
        if found is None:
            return False
        at = found.end()
        if found[2] is None:
            said = _key(text, *found.span(1))
            continue
        if found[2] in _OPENING:
            if said and not _is_read(said):
                at = _end_of_value(text, at)
            else:
                depth += 1
                count += 1
        elif found[2] == b",":
            count += 1
        else:
            depth -= 1
        said = b""
        if count > most:
            return True


_LONGEST_KEY = 6 * max(map(len, _READ)) + 16  # each character may be an escape


def _key(text: bytes, start: int, end: int) -> bytes:
    """A string with its quotes; of one too long for a key that is read, how it begins."""
    return text[start:end] if end - start <= _LONGEST_KEY else text[start : start + _LONGEST_KEY]


def _is_read(key: bytes) -> bool:
    try:
        name = read_string(key)
    except UNREADABLE:
        return False
    return name.replace("_", "").lower() in _READ


def _end_of_value(text: bytes, at: int) -> int:
    """Where the list or object ends that begins just before."""
    depth = 1
    while 0 < depth < TOO_DEEP and (found := _PASSED_OVER.match(text, at)) is not None:
        depth += 1 if found[1] in _OPENING else -1
        at = found.end()
    return at if not depth else len(text)
