"""The stream of the Interactions API -> frames, and its bodies. What an event means stands in `open_interaction.py`; here bytes
become events, and what is damaged is told."""

from typing import Literal

import msgspec

from turnwise.vocab import Fault, Faulted, Frame, Lost, Mended, ReasoningDelta, Repair, TextDelta, ToolCallDelta
from turnwise.vocab.json_values import objects_in
from turnwise.wire.faults import no_response, past_limit, too_large
from turnwise.wire.gemini_interactions.open_interaction import CONTENT_EVENTS, EVENTS, OpenInteraction, lose
from turnwise.wire.json_fields import (
    DAMAGES,
    LINE_END_LOST,
    LONG_BYTES,
    PINGS,
    UNREADABLE,
    Fields,
    breaks_strings,
    check_sound,
    each_alone,
    has_controls,
    has_lone_surrogate,
    is_noise,
    is_object,
    is_ping,
    is_sound,
    is_too_long,
    is_utf8,
    left_out,
    printable,
    read_damaged,
    read_fields,
    string_of,
    write_value,
)
from turnwise.wire.long_events import told_long_calls, too_much
from turnwise.wire.profiles import Limits, Profile
from turnwise.wire.sse import LineTooLong, SseParser, StreamBeginning

TOGETHER = 4  # values of a run from which on it pays to decode them at once
HARMLESS = frozenset({"interaction.status_update", "done"}) | PINGS


# The fast way: deltas that bring more of a text or of a call that has begun. It leaves all other events to the plain one; both
# give the same frames of every stream (tests/wire/test_fast_ways.py). Fields that the plain way looks at are here, too.
class Summary(msgspec.Struct, gc=False):
    text: str = ""


class Piece(msgspec.Struct, gc=False):
    type: Literal["text", "arguments_delta", "thought_summary"]
    text: str = ""
    arguments: str = ""
    content: Summary | None = None


class More(msgspec.Struct, gc=False):
    event_type: Literal["step.delta"]
    index: int
    delta: Piece
    metadata: None = None


_STEP_OF = {"text": "model_output", "arguments_delta": "function_call", "thought_summary": "thought"}
_several = msgspec.json.Decoder(list[tuple[More]]).decode


class FastDeltas:
    """Reads what it can of one interaction's deltas."""

    __slots__ = ("_interaction",)

    def __init__(self, interaction: OpenInteraction) -> None:
        self._interaction = interaction

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many events it took, from `start` on; 0 where the next one is for the plain way."""
        rest = values[start:] if start else values
        if len(rest) >= TOGETHER and self._takes(rest, frames, is_plain=is_plain):
            return len(rest)
        return int(self._takes(values[start : start + 1], frames, is_plain=is_plain))

    def _takes(self, values: list[bytes], frames: list[Frame], *, is_plain: bool) -> bool:
        """Events that all bring more of one step; false where one of them does not, and nothing was taken."""
        together = each_alone(values)
        if len(together) > LONG_BYTES or not (is_plain or is_sound(together)):
            return False
        try:
            events = _several(together)
        except UNREADABLE:
            return False
        index, kind = events[0][0].index, events[0][0].delta.type
        opened = self._interaction.steps.get(index)
        if opened is None or opened.kind != _STEP_OF[kind]:
            return False
        same = [event.delta for (event,) in events if event.index == index and event.delta.type == kind]
        if kind == "thought_summary":
            pieces = [one.content.text for one in same if one.content is not None and one.content.text]
        else:
            pieces = [piece for one in same if (piece := one.text if kind == "text" else one.arguments)]
        if not len(pieces) == len(events) == len(values):
            return False
        block = opened.block
        if kind == "text":
            frames += [TextDelta(piece, block) for piece in pieces]
        elif kind == "thought_summary":
            frames += [ReasoningDelta(piece, block) for piece in pieces]
        else:
            opened.held = None
            frames += [ToolCallDelta(block=block, arguments=piece) for piece in pieces]
        return True


class InteractionsStreamDecoder:
    """One streamed response. See wire/family.py, StreamDecoder."""

    def __init__(self, profile: Profile, limits: Limits, *, fast: type[FastDeltas] | None = FastDeltas) -> None:
        """`fast` reads nearly all events of a usual stream; None where the plain way has to read them all."""
        self._profile = profile
        self._limits = limits
        self._parser = SseParser(limits=limits)
        self._beginning = StreamBeginning(limits=limits)
        self._left = limits.stream_bytes
        self._dead = False  # after a fault of protocol or size: silent
        self._seen = False  # an event has been read
        self._named = 0  # events with a name, since the last one without
        self._glues = False  # `data:` stands within the first event, so it is a habit
        self._is_plain = True  # all bytes so far are ASCII, and none is a control character
        self._fast_ways = fast
        self._begin()

    def _begin(self) -> None:
        self._interaction = OpenInteraction()
        self._fast = None if self._fast_ways is None else self._fast_ways(self._interaction)

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._dead:
            return []
        self._left -= len(chunk)
        if self._left < 0:
            return self._give_up(too_large(self._limits.stream_bytes))
        if not self._seen:
            chunk = self._beginning.take(chunk)
            if self._beginning.is_too_large:
                return self._give_up(too_large(self._limits.response_bytes))
        self._is_plain = self._is_plain and chunk.isascii() and not has_controls(chunk)
        frames: list[Frame] = []
        try:
            runs = self._parser.feed_runs(chunk)
        except LineTooLong as error:
            return self._end_at(error)
        for run in runs:
            values, at, end = run.values, 0, len(run.values)
            is_usual = run.name == "step.delta" if run.name else not self._named
            while at < end:
                fast = self._fast if is_usual and self._seen and not self._interaction.is_over else None
                if fast is not None and (count := fast.read(values, at, frames, self._is_plain)):
                    at += count
                    self._named += count if run.name else 0
                else:
                    self._read_event(values[at], run.name, frames)
                    at += 1
        return frames

    def expects_more(self) -> bool:
        if not self._seen and self._beginning.breaks_off:
            return True
        steps = self._interaction.steps.values()
        return self._parser.breaks_off() or any(step.fields and step.kind != "function_call" for step in steps)

    def finish(self) -> list[Frame]:
        if self._dead:
            return []
        frames: list[Frame] = []
        try:
            events = self._parser.finish()
        except LineTooLong as error:
            return self._end_at(error)
        for sse in events:
            self._read_event(sse.data, sse.name, frames)
        self._dead = True
        if not self._seen:
            return frames + decode_body(self._beginning.whole(), self._profile, self._limits, expected="a stream")
        self._interaction.end(frames)
        return frames

    def _end_at(self, error: LineTooLong) -> list[Frame]:
        frames: list[Frame] = []
        for event in error.events:
            self._read_event(event.data, event.name, frames)
        return [*frames, *error.begun(), *self._give_up(past_limit(error))]

    def _give_up(self, fault: Fault) -> list[Frame]:
        self._dead = True
        self._beginning.whole()
        return [Faulted(fault)]

    def _read_event(self, value: bytes, name: str, frames: list[Frame]) -> None:
        try:
            if not self._is_plain:
                check_sound(value)
            self._read(read_fields(value), name, frames)
        except UNREADABLE:
            self._heal(value, name, frames)

    def _read(self, fields: Fields, name: str, frames: list[Frame]) -> None:
        """Raises one of UNREADABLE, and has then neither emitted nor changed anything: the event can be healed."""
        kind = string_of(fields, "event_type") or name
        if self._interaction.is_over:
            return  # a proxy may have sent the stream twice
        if name and name != kind:
            lose(name, f"its type is another: {printable(kind)}", frames)
        if name:
            self._named += 1
        elif self._named and kind in EVENTS:
            if self._named > 1:  # a server may name its first event alone
                lose(printable(kind), "the events before it have names, and it has none", frames)
            self._named = 0
        event = EVENTS.get(kind)
        if event is None:
            return  # a ping, or an event that did not exist when this was written
        if event == "created" and self._interaction.started:
            self._begin()
        self._interaction.take(event, fields, frames)
        self._seen = True
        self._beginning.whole()

    def _heal(self, payload: bytes, name: str, frames: list[Frame]) -> None:
        """Read an event that is no clean JSON, or of another shape. What cannot be read is lost, unless it is noise; it is told
        behind what could be read, because the step that it began may miss something too."""
        is_before = not self._seen and not name and is_noise(payload)
        if self._interaction.is_over or payload.strip() == b"[DONE]" or is_before:
            return
        reading = read_damaged(payload)
        self._glues = self._glues or (reading.has_field and not self._seen)
        found = [fields for value in reading.values for fields in objects_in(value)]
        where = name or "event"
        damage = "invalid_utf8" if reading.is_replaced else "control_character" if breaks_strings(reading) else ""
        for fields in found:
            kind = str(fields.get("event_type") or name)
            try:
                self._read(read_fields(write_value(fields)), name, frames)
            except UNREADABLE:
                if kind in CONTENT_EVENTS or name in CONTENT_EVENTS:
                    lose(where, f"left out: {printable(write_value(fields))}", frames)
                continue
            torn = "half of a surrogate pair became a replacement character" if has_lone_surrogate(fields) else ""
            if kind not in HARMLESS and (what := torn or DAMAGES.get(damage)):
                lose(where, what, frames)
        if len(found) > 1:
            frames.append(Mended(Repair("glued_json", where, f"{len(found)} objects in one event taken apart")))
        if reading.has_field and found and not self._glues:
            lose(where, LINE_END_LOST, frames)
        if (reading.rest or not found) and not self._interaction.is_over:
            left = payload if is_too_long(payload) else reading.text
            left = left if name in PINGS else reading.rest or left
            is_json = not reading.rest and bool(reading.values)
            is_idle = name in HARMLESS and isinstance(left, str) and "\n" not in left
            is_idle = is_json or (is_idle and (name not in PINGS or is_ping(left, name=name)))
            repair = Repair("unreadable_event", where, f"left out an event that is no JSON: {printable(left)}")
            frames.append(Lost(repair) if name in CONTENT_EVENTS else left_out(repair, "" if is_idle else left))


def decode_body(body: bytes, profile: Profile, limits: Limits, *, expected: str = "a response") -> list[Frame]:
    """An interaction as the API answers it without streaming -> the frames that a stream of it would have given."""
    no_body = Faulted(no_response(body, expected=f"{expected} of the Interactions API"))
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    body = told_long_calls(body, limits=limits)
    if (fault := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(fault)]
    frames: list[Frame] = []
    is_replaced = not is_utf8(body)
    if is_replaced and is_too_long(body):
        return [no_body]
    whole = OpenInteraction()
    try:
        fields = read_fields(body.decode("utf-8", "replace") if is_replaced else body)
        if not fields.keys() & {"status", "steps", "outputs"}:
            if "error" not in fields or not is_object(fields["error"]):
                return [no_body]
            whole.take("error", fields, frames)
            return frames
        whole.take_body(fields, frames)
    except UNREADABLE:
        return [*frames, no_body]
    if is_replaced:
        lose("body", DAMAGES["invalid_utf8"], frames, reaches_ended=True)
    return frames
