"""Events that our decoders understand and the official clients do not: they are not passed on as they came.

Each row of the tables was seen in a recorded stream, and makes the vendor's own client raise or lose something.
"""

import re
from collections.abc import Callable

import msgspec

from turnwise.vocab import Message
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.relay_facts import relay_facts
from turnwise.wire.sse import BOM

_BLANK = b" \t\r\n\xef\xbb\xbf"
_DATA = re.compile(rb"^data:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_DONE = re.compile(rb"^data:[ \t]*\[DONE\]", re.MULTILINE)

# Mistral's reasoning models write parts where a text belongs. The keys have no backslash before them, so they stand in no text.
_CONTENT = b'"content"'
_LISTED_CONTENT = re.compile(rb'"delta"\s*:\s*\{[^{}\[\]]*"content"\s*:\s*\[')
# A client asks what kind of call begins, and forgets it where a later piece says null.
_CALL_BEGINS = re.compile(rb'"tool_calls"\s*:\s*\[.*"name"\s*:\s*"[^"]', re.DOTALL)
_NO_TYPE = re.compile(rb'"tool_calls"\s*:\s*\[.*"type"\s*:\s*null', re.DOTALL)
_IS_FUNCTION = re.compile(rb'"type"\s*:\s*"')
_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\{')

# Events of Responses that the client checks against what it has.
_CHECKED = (b"response.created", b"response.in_progress", b"content_part.added")
_LAST = (b"response.completed", b"response.incomplete")


class _Named(msgspec.Struct):
    id: str = ""
    output: list[msgspec.Raw] = []


class _ResponsesEvent(msgspec.Struct):
    type: str = ""
    response: _Named | None = None
    item_id: str = ""
    content_index: int | None = None


_responses_event = msgspec.json.Decoder(_ResponsesEvent)


class Originals:
    """Fed with each event's bytes. `is_clear`: the official client of the family reads all of them so far as we do."""

    def __init__(self, family: str) -> None:
        self.is_clear = True
        self._family = family
        self._reads = _READS.get(family, _reads_all)
        self._responses = _ResponsesState()

    def read(self, raw: bytes) -> bool:
        """Take the next event; the same as `is_clear`."""
        if self.is_clear:
            # A client that does not strip a byte order mark loses the first event behind it.
            self.is_clear = not raw.startswith(BOM) and self._reads(raw, self._responses)
        return self.is_clear

    def is_stray(self, raw: bytes) -> bool:
        """Whether an event is the end mark of another family, which this family's clients try to read as JSON."""
        return not relay_facts(self._family).knows_done and _DONE.search(raw) is not None

    def tells(self, raw: bytes, message: Message) -> bool:
        """Whether the last event of a Responses stream has the output that the client takes from it: some servers leave that
        empty."""
        if self._family != "openai_responses" or not message.parts:
            return True
        event = _read_event(raw)
        return event is None or event.response is None or bool(event.response.output)


def is_last(raw: bytes) -> bool:
    """Whether an event of Responses holds the whole response."""
    return any(mark in raw for mark in _LAST)


class _ResponsesState:
    def __init__(self) -> None:
        self.id = ""
        self.parts: dict[str, int] = {}  # by item: how many of them have begun


def _reads_chat(raw: bytes, _: _ResponsesState) -> bool:
    if b'"delta"' not in raw:
        return _CHOICES.search(raw) is None
    if b'"tool_calls"' in raw:
        is_untyped = _CALL_BEGINS.search(raw) is not None and _IS_FUNCTION.search(raw) is None
        if is_untyped or _NO_TYPE.search(raw) is not None:
            return False
    at = raw.find(_CONTENT)
    if at < 0 or (raw.startswith(b':"', at + len(_CONTENT)) and raw.find(_CONTENT, at + 1) < 0):
        return True  # the usual text, told first because speed counts
    return _LISTED_CONTENT.search(raw) is None


def _reads_gemini(raw: bytes, _: _ResponsesState) -> bool:
    """A stream that is one JSON array is for those who asked without `alt=sse`."""
    return raw.lstrip(_BLANK)[:1] not in (b"[", b"{", b",", b"]")


def _reads_responses(raw: bytes, state: _ResponsesState) -> bool:
    if not state.id and b"data:" in raw and b"response.created" not in raw:
        return False  # a client takes nothing before the beginning
    if not any(mark in raw for mark in _CHECKED):
        return True
    event = _read_event(raw)
    if event is None:
        return False
    if event.type == "response.content_part.added":
        expected = state.parts.get(event.item_id, 0)
        state.parts[event.item_id] = expected + 1
        return event.content_index in (None, expected)
    if event.response is not None:
        before, state.id = state.id, event.response.id
        return before in ("", event.response.id)
    return True


def _reads_all(raw: bytes, _: _ResponsesState) -> bool:
    return True


def _read_event(raw: bytes) -> _ResponsesEvent | None:
    lines = _DATA.findall(raw.replace(b"\r", b"\n"))
    try:
        return _responses_event.decode(b"\n".join(lines)) if lines else None
    except UNREADABLE:
        return None


_READS: dict[str, Callable[[bytes, _ResponsesState], bool]] = {
    "openai_chat": _reads_chat,
    "openai_responses": _reads_responses,
    "gemini": _reads_gemini,
}
