"""What can still be read of an event that is not clean JSON: the slow path, taken only when the fast one failed."""

import json
import re
from typing import NamedTuple

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_READER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)

PREVIEW_CHARS = 80


class Healed(NamedTuple):
    """Clean JSON objects found, one after the other, and what had to be done to get them ("" if nothing)."""

    objects: tuple[bytes, ...]
    what: str


def heal(text: bytes) -> Healed:
    """Read what is readable: bytes that are not UTF-8, control characters inside strings, lone surrogates, NaN, and
    several objects glued together. No object is ever completed by guessing."""
    done: list[str] = []
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        decoded = text.decode("utf-8", "replace")
        done.append("bytes that are not UTF-8 replaced by U+FFFD")
    objects: list[bytes] = []
    position = 0
    while position < len(decoded):
        start = decoded.find("{", position)
        if start < 0:
            break
        try:
            value, position = _READER.raw_decode(decoded, start)
        except (json.JSONDecodeError, RecursionError):
            done.append(f"not JSON from character {start} on, left out: {preview(decoded[start:])}")
            break
        clean = _LONE_SURROGATE.sub("�", json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        objects.append(clean.encode())
    if len(objects) > 1:
        done.append(f"{len(objects)} JSON objects in one event read one after the other")
    elif not objects and not done:
        done.append(f"no JSON object, left out: {preview(decoded)}")
    return Healed(tuple(objects), "; ".join(done) or "JSON that is not strict read leniently")


def preview(text: bytes | str) -> str:
    """The first printable characters, for messages about something that is not what it should be."""
    decoded = text[: 4 * PREVIEW_CHARS].decode("utf-8", "replace") if isinstance(text, bytes) else text
    return "".join([char if char.isprintable() else " " for char in decoded[:PREVIEW_CHARS]]).strip()
