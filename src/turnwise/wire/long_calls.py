"""A call past its limit, found in an event or a body before a text of it is built.

To build a text takes up to two and a half times its bytes, or ten where Python needs four for each character. So what is longer
than a call may be is taken apart first, as JSON texts that point into what came.
"""

import re

import msgspec

from turnwise.vocab import LONG_ARGUMENTS, Fault, FaultKind, ToolCall
from turnwise.wire.json_fields import (
    UNREADABLE,
    read_fields,
    read_items,
    read_string,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.limits import SLICE_BYTES

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
