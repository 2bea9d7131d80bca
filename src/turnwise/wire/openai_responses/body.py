"""A whole response object, or an error object, as the frames that a stream of it would have given; and the readable part of an
object that is not clean JSON."""

import re
from typing import NamedTuple, cast

import msgspec

from turnwise.vocab import Faulted, Frame, Lost, Mended, Repair, Started
from turnwise.wire.faults import no_response, past_limit
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    breaks_strings,
    check_sound,
    has_lone_surrogate,
    is_object,
    printable,
    read_damaged,
    read_fields,
    write_value,
)
from turnwise.wire.long_events import told_long_calls, too_much
from turnwise.wire.openai_responses.faults import fault_of
from turnwise.wire.openai_responses.items import TooManyItems
from turnwise.wire.openai_responses.open_response import OpenResponse
from turnwise.wire.openai_responses.parts import text_at
from turnwise.wire.profiles import Limits

# An event or body that is not clean JSON: what can be read of it, and what had to be done.


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


EXPECTED = "a response of the Responses API"


def read_body(body: bytes, *, limits: Limits) -> list[Frame]:
    body = told_long_calls(body, limits=limits)
    if (fault := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(fault)]
    frames: list[Frame] = []
    try:
        check_text(body)
        _take_body(read_fields(body), frames, is_certain=True)
    except UNREADABLE:
        return _read_damaged(body)
    return frames


def _read_damaged(body: bytes) -> list[Frame]:
    """What can be read of it is kept. Where something is lost, no call and no text of it counts as whole."""
    healed = heal(body)
    is_lost = healed.is_lossy or len(healed.objects) > 1  # only the first is read
    kind = "damaged_body" if len(healed.objects) > 1 else healed.kind(lost="damaged_body", mended="loose_body")
    repair = Repair(kind, "response", healed.what)
    told: Frame = Lost(repair) if is_lost else Mended(repair)
    frames: list[Frame] = []
    try:
        if not healed.objects:
            raise msgspec.DecodeError("no object")
        _take_body(read_fields(healed.objects[0]), frames, is_certain=not is_lost)
    except UNREADABLE:
        return [told, Faulted(no_response(body, expected=EXPECTED))]
    return [*frames, told]


def _take_body(response: Fields, frames: list[Frame], *, is_certain: bool) -> None:
    if "output" not in response and "status" not in response:
        error = response.get("error")
        if error is None and "message" not in response and "detail" not in response:
            raise msgspec.DecodeError("no response object")
        fault = fault_of(read_fields(error) if error is not None and is_object(error) else response)
        frames.append(Faulted(fault))
        return
    frames.append(Started(id=text_at(response, "id"), model=text_at(response, "model")))
    whole = OpenResponse()
    try:
        whole.take_output(response, frames, is_certain=is_certain)
    except TooManyItems as error:
        frames.append(Faulted(past_limit(error)))
    whole.take_end(response, "completed", frames)
