"""A call past its limit, found in an event or a body before a text of it is built.

To build a text takes up to two and a half times its bytes, or ten where Python needs four for each character. So what is longer
than a call may be is taken apart first, as JSON texts that point into what came.
"""

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.json_fields import UNREADABLE, read_fields, read_items, string_of
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
