"""An event or a block whose fields are of other kinds than the API's: what can be read of it, and what cannot."""

import json
from typing import TypeGuard, cast

import msgspec

from turnwise.wire.healing import has_lone_surrogate, write_value
from turnwise.wire.json_fields import UNREADABLE, Fields, is_null, quote, read_fields, string_of

TEXTS = ("text", "thinking")
TEXT_KEYS = (*TEXTS, "content", "value")
PIECES = (*TEXTS, "partial_json")
MOST_WRAPS = 4  # objects around one text


class LooseEvent(msgspec.Struct, frozen=True):
    """One event as clean JSON. `skipped` are the fields that may have been a piece and could not be read;
    `has_whole_input` says that the piece of a call's input came as an object. `halved` are the pieces with half of a
    character, whose other half the next piece may bring; `is_torn` says that another field has one."""

    source: bytes
    type: str | None
    skipped: tuple[str, ...]
    has_whole_input: bool
    halved: dict[str, str]
    is_torn: bool


def loosen(event: dict[str, object]) -> LooseEvent:
    """Take texts from inside of objects, and an object in place of the JSON text of a call's input."""
    skipped: list[str] = []
    halved: dict[str, str] = {}
    has_whole_input = False
    delta = event.get("delta")
    if _is_object(delta):
        delta = dict(delta)
        for key in TEXTS:
            if delta.get(key) is not None:
                delta[key] = _text(delta[key])
                if delta[key] is None:
                    skipped.append(key)
        whole = delta.get("partial_json")
        if isinstance(whole, dict | list):
            has_whole_input = True
            delta["partial_json"] = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        elif whole is not None and not isinstance(whole, str):
            skipped.append("partial_json")
            delta["partial_json"] = None
        for key in PIECES:
            if isinstance(piece := delta.get(key), str) and has_lone_surrogate(piece):
                halved[key], delta[key] = piece, "\ufffd"
        event = {**event, "delta": delta}
    kind = event.get("type")
    return LooseEvent(
        write_value(event),
        kind if isinstance(kind, str) else None,
        tuple(skipped),
        has_whole_input,
        halved,
        has_lone_surrogate(event),
    )


def plain_text(fields: Fields) -> Fields | None:
    """A block of text or thinking whose text is a string; None where it cannot be read. Other blocks stay as they are."""
    key = string_of(fields, "type")
    raw = fields.get(key) if key in TEXTS else None
    if key is None or raw is None or is_null(raw) or string_of(fields, key) is not None:
        return fields
    text = _text_of_raw(raw)
    return None if text is None else {**fields, key: msgspec.Raw(quote(text))}


def objects(value: object) -> list[dict[str, object]]:
    """The objects of an array; an object alone stands for an array of it."""
    if _is_object(value):
        return [value]
    return [item for item in cast("list[object]", value) if _is_object(item)] if isinstance(value, list) else []


def _text_of_raw(raw: msgspec.Raw) -> str | None:
    for _ in range(MOST_WRAPS):
        try:
            fields = read_fields(raw)
        except UNREADABLE:
            return None
        key = next((key for key in TEXT_KEYS if key in fields), None)
        if key is None:
            return None if fields else ""
        if (text := string_of(fields, key)) is not None:
            return text
        raw = fields[key]
    return None


def _text(value: object) -> str | None:
    for _ in range(MOST_WRAPS):
        if not _is_object(value):
            break
        if not value:
            return ""
        value = next((value[key] for key in TEXT_KEYS if key in value), None)
    return value if isinstance(value, str) else None


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)
