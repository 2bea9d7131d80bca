"""An event or body that is not clean JSON: what can be read of it, and what had to be done."""

import re
from typing import NamedTuple, cast

import msgspec

from turnwise.wire.healing import (
    breaks_strings,
    check_sound,
    has_lone_surrogate,
    printable,
    read_damaged,
    write_value,
)

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # of a character that takes two escapes
_value = msgspec.json.Decoder(msgspec.Raw)


class Healed(NamedTuple):
    """Clean JSON objects found, one after the other, and what had to be done to get them."""

    objects: tuple[bytes, ...]
    what: str
    is_foreign: bool  # bytes were no UTF-8
    is_replaced: bool  # they, or halves of a character, became U+FFFD: something of the content is lost
    is_left_out: bool  # something was no JSON and may have been content
    is_bare: bool  # whole JSON without any object: no event

    @property
    def is_lossy(self) -> bool:
        return self.is_replaced or self.is_left_out

    def kind(self, *, lost: str, mended: str) -> str:
        """The kind of repair that this was."""
        if self.is_foreign:
            return "invalid_utf8"
        return lost if self.is_left_out else mended


def check_text(value: bytes) -> None:
    """Raises one of UNREADABLE if a text in the JSON is broken: raw fields are not looked at by the decoder."""
    check_sound(value)
    if _HALF.search(value):
        _value.decode(value)


def heal(text: bytes) -> Healed:
    reading = read_damaged(text)
    done = ["bytes that are not UTF-8 replaced by U+FFFD"] if reading.is_replaced else []
    found = [cast("object", value) for value in reading.values if isinstance(value, dict)]
    is_halved = any(has_lone_surrogate(value) for value in found)
    if is_halved:
        done.append("halves of a character replaced by U+FFFD")
    has_control = breaks_strings(reading)
    if has_control:
        done.append("a control character, so it is no JSON")
    if reading.rest:
        done.append(f"not JSON from character {reading.end} on, left out: {printable(reading.rest)}")
    if len(found) > 1:
        done.append(f"{len(found)} JSON objects in one event read one after the other")
    elif not found and not done:
        done.append(f"no JSON object, left out: {printable(reading.text)}")
    return Healed(
        objects=tuple([write_value(value) for value in found]),
        what="; ".join(done) or "JSON that is not strict read leniently",
        is_foreign=reading.is_replaced,
        is_replaced=reading.is_replaced or is_halved or has_control,
        is_left_out=not found or bool(reading.rest),
        is_bare=bool(reading.values) and not found and not reading.rest,
    )
