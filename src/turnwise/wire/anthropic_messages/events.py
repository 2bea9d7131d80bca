"""The events of a Messages stream: as typed values, where their fields are of other kinds than the API's, and by the fast
ways."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Generic, Literal, TypeVar, cast

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    Faulted,
    Frame,
    Lost,
    Mended,
    PartDone,
    ReasoningDelta,
    Repair,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwise.vocab.json_values import is_json_object
from turnwise.wire.anthropic_messages.endings import UsageTally, read_finish
from turnwise.wire.anthropic_messages.faults import stream_fault
from turnwise.wire.anthropic_messages.parts import arguments_of, opaque_from, read_block, tool_use_keys
from turnwise.wire.anthropic_messages.thinking import input_repairs
from turnwise.wire.endings import unsaid_finish
from turnwise.wire.family import BadRequest
from turnwise.wire.faults import no_response
from turnwise.wire.json_fields import (
    LONG_BYTES,
    UNREADABLE,
    Fields,
    check_sound,
    each_alone,
    first_byte,
    has_lone_surrogate,
    is_null,
    is_sound,
    is_too_long,
    is_utf8,
    quote,
    read_fields,
    read_items,
    string_of,
    write_object,
    write_value,
)
from turnwise.wire.long_events import read_any, told_long_calls, too_much
from turnwise.wire.profiles import MAX_PARTS, Limits


class Delta(msgspec.Struct, gc=False):
    """Every kind of delta in one: a union of structs decodes slower and breaks on a kind that it does not know."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: msgspec.Raw = msgspec.Raw(b"")
    content: msgspec.Raw = msgspec.Raw(b"")
    encrypted_content: msgspec.Raw = msgspec.Raw(b"")
    stop_reason: str | None = None
    stop_details: msgspec.Raw = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"")
    message: msgspec.Raw = msgspec.Raw(b"")
    usage: msgspec.Raw = msgspec.Raw(b"")
    input_transformations: msgspec.Raw = msgspec.Raw(b"")


decode_event = msgspec.json.Decoder(Event).decode
"""For events of usual length."""
decode_leniently = msgspec.json.Decoder(Event, strict=False).decode


def read_any_event(text: bytes) -> Event:
    """`decode_event`, also for a long event."""
    return read_any(text, decode_event)


CONTENT_EVENTS = frozenset(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"]
)
"""The events that may carry a piece of the response, or say that one is over."""
HARMLESS_EVENTS = frozenset(["ping", "message_stop"])
"""The events that bring nothing."""


# An event or a block whose fields are of other kinds than the API's: what can be read of it, and what cannot.


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
    if is_json_object(delta):
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
        if not is_json_object(value):
            break
        if not value:
            return ""
        value = next((value[key] for key in TEXT_KEYS if key in value), None)
    return value if isinstance(value, str) else None


# A block of a message while it is coming.


class OpenBlock:
    """A block that began and has not ended. `held` is the `input` that came whole with its start, "" where none did; None
    once deltas bring it."""

    __slots__ = ("block", "fields", "held", "is_item", "pieces", "told")

    def __init__(self, fields: Fields, *, block: str, is_item: bool) -> None:
        self.fields = fields
        self.block = block
        self.is_item = is_item
        self.held: str | None = ""
        self.pieces: list[str] = []
        self.told = False  # the item's PartDone is out

    def take_deltas(self) -> None:
        """Deltas bring the input: what came with the start does not count."""
        self.held = None


# The fast ways through a stream of the Messages API. `stream.py` reads every event alone: read it first.
#
# A fast way takes deltas that bring more of a text, of thinking or of a call that has begun, and leaves all other events to the
# plain one. Both give the same frames of every stream (tests/wire/test_fast_ways.py).
#
# | way | takes | skips |
# |---|---|---|
# | together | the deltas of one read, all of one kind and one block | decoding each for itself |
# | single | one delta of the kind of the last one | the fields of other events and deltas |


TOGETHER = 4  # values of a run from which on it pays to decode them at once


# One kind of delta each, with the other fields of `Delta` whose type it would look at: what it refuses, these do.
class TextPiece(msgspec.Struct, gc=False):
    type: Literal["text_delta"]
    piece: str = msgspec.field(name="text")
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class InputPiece(msgspec.Struct, gc=False):
    type: Literal["input_json_delta"]
    piece: str = msgspec.field(name="partial_json")
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class ThinkingPiece(msgspec.Struct, gc=False):
    type: Literal["thinking_delta"]
    piece: str = msgspec.field(name="thinking")
    text: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


PieceKind = TypeVar("PieceKind", TextPiece, InputPiece, ThinkingPiece)


class More(msgspec.Struct, Generic[PieceKind], gc=False):
    """An event that brings more of a block, and nothing else. Its types are fields and no tags: msgspec asks for no tag where
    there is no union."""

    type: Literal["content_block_delta"]
    index: int
    delta: PieceKind


_Piece = More[TextPiece] | More[InputPiece] | More[ThinkingPiece]


class DeltaKind(msgspec.Struct, frozen=True, gc=False):
    """How deltas of one kind are read: one, and several that each stand in an array of their own. Others raise one of UNREADABLE.
    `frame` is what each becomes; None: a piece of a call."""

    one: Callable[[bytes], _Piece]
    several: Callable[[bytes], Sequence[tuple[_Piece]]]
    frame: type[TextDelta | ReasoningDelta] | None


_KINDS: Mapping[str | None, DeltaKind] = {
    kind: DeltaKind(
        msgspec.json.Decoder(piece).decode,
        msgspec.json.Decoder(cast("type[list[tuple[_Piece]]]", GenericAlias(list, GenericAlias(tuple, piece)))).decode,
        frame,
    )
    for kind, piece, frame in (
        ("text_delta", More[TextPiece], TextDelta),
        ("input_json_delta", More[InputPiece], None),
        ("thinking_delta", More[ThinkingPiece], ReasoningDelta),
    )
}


class FastDeltas:
    """Reads what it can of one message's deltas. `names` has the block that is open on each index, `open_blocks` those of them
    that are calls or items."""

    __slots__ = ("_kind", "_names", "_open_blocks")

    def __init__(self, names: Mapping[int, str], open_blocks: Mapping[int, OpenBlock]) -> None:
        self._names = names
        self._open_blocks = open_blocks
        self._kind: DeltaKind | None = None  # of the last delta

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many events it took, from `start` on; 0 where the next one is for the plain way.

        `is_plain`: they are ASCII without control characters.
        """
        value, kind = values[start], self._kind
        if len(value) > LONG_BYTES or not (is_plain or is_sound(value)):
            return 0
        try:
            event = None if kind is None else kind.one(value)
        except UNREADABLE:
            event = None
        if event is None or kind is None:
            kind = self._kind = _kind_of(value)
            if kind is None:
                return 0
            event = kind.one(value)
        if not start and len(values) >= TOGETHER and self._read_together(values, frames, kind=kind, is_plain=is_plain):
            return len(values)
        block, piece = self._names.get(event.index), event.delta.piece
        if block is None or not piece:
            return 0
        if (frame := kind.frame) is not None:
            frames.append(frame(piece, block))
            return 1
        if (opened := self._open_blocks.get(event.index)) is not None:
            if opened.is_item:
                return 0
            opened.take_deltas()
        frames.append(ToolCallDelta(block=block, arguments=piece))
        return 1

    def _read_together(self, values: list[bytes], frames: list[Frame], *, kind: DeltaKind, is_plain: bool) -> bool:
        """Read events that all bring more of one block. False where one of them does not, and nothing was taken."""
        together = each_alone(values)
        if len(together) > LONG_BYTES and max(map(len, values)) > LONG_BYTES:
            return False
        try:
            if not is_plain:
                check_sound(together)
            events = kind.several(together)
        except UNREADABLE:
            return False
        index = events[0][0].index
        block, opened = self._names.get(index), self._open_blocks.get(index)
        pieces = [event.delta.piece for (event,) in events if event.index == index]
        is_whole = len(pieces) == len(events) == len(values) and all(pieces)
        if block is None or not is_whole or (opened is not None and opened.is_item):
            return False
        if kind.frame is TextDelta:
            frames += [TextDelta(piece, block) for piece in pieces]
        elif kind.frame is ReasoningDelta:
            frames += [ReasoningDelta(piece, block) for piece in pieces]
        else:
            if opened is not None:
                opened.take_deltas()
            frames += [ToolCallDelta(block=block, arguments=piece) for piece in pieces]
        return True


def _kind_of(value: bytes) -> DeltaKind | None:
    """None where it is no delta that brings more."""
    try:
        delta = decode_event(value).delta
        kind = None if delta is None else _KINDS.get(delta.type)
        if kind is not None:
            kind.one(value)
    except UNREADABLE:
        return None
    return kind


# A whole message as the API answers it without streaming -> the frames that a stream of it would have given.


def body_frames(body: bytes, *, expected: str, limits: Limits) -> list[Frame]:
    """`expected` says what should have come, for the message when this is no message of the API."""
    fault = Faulted(no_response(body, expected=f"{expected} of the Messages API"))
    if not body.strip():
        return [fault]
    body = told_long_calls(body, limits=limits)
    if (too_large := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(too_large)]
    frames: list[Frame] = []
    is_replaced = not is_utf8(body)
    if is_replaced and is_too_long(body):
        return [fault]
    try:
        fields = read_fields(body.decode("utf-8", "replace") if is_replaced else body)
    except UNREADABLE:
        return [fault]
    if string_of(fields, "type") == "error" or ("error" in fields and "content" not in fields):
        return [*frames, Faulted(stream_fault(fields))]
    if "content" not in fields:
        return [*frames, fault]
    frames.append(Started(id=string_of(fields, "id"), model=string_of(fields, "model")))
    frames += [Mended(repair) for repair in input_repairs(fields)]
    frames += content_frames(fields["content"])
    if is_replaced:
        frames.append(lost("invalid_utf8", "body", "invalid UTF-8 became replacement characters", reaches_ended=True))
    usage = UsageTally().add(fields["usage"]) if "usage" in fields else None
    if usage is not None:
        frames.append(UsageReported(usage))
    end = read_finish(string_of(fields, "stop_reason"), explanation=explanation_of(fields.get("stop_details")))
    return [*frames, *(end or [unsaid_finish("its whole body")])]


def content_frames(content: msgspec.Raw, *, prefix: str = "") -> list[Frame]:
    """The blocks of a `content` array, or one block, or its text, in its place. A block that cannot be read is lost."""
    frames: list[Frame] = []
    try:
        items = _items_of(content)[:MAX_PARTS]
    except UNREADABLE:
        return [lost("unreadable_content", "body", "`content` that is no array left out")]
    for i, item in enumerate(items):
        block = f"{prefix}{i}"
        try:
            fields = read_fields(item)
            frames += _block_frames(fields, block)
        except (BadRequest, *UNREADABLE) as error:
            frames.append(lost("unreadable_block", f"content.{i}", f"left out: {str(error)[:200]}"))
    return frames


def _items_of(content: msgspec.Raw) -> list[msgspec.Raw]:
    match first_byte(content):
        case b"{":
            return [content]
        case b'"':
            return [msgspec.Raw(write_object({"type": b'"text"', "text": bytes(content)}))]
        case _:
            return read_items(content)


def lost(kind: str, where: str, what: str, *, reaches_ended: bool = False) -> Lost:
    """A call is open until its `content_block_stop`, so blocks that have ended miss nothing."""
    return Lost(Repair(kind, where, what), reaches_ended)


def _block_frames(fields: Fields, block: str) -> list[Frame]:
    if string_of(fields, "type") != "tool_use":
        plain = plain_text(fields)
        if plain is None:
            raise BadRequest(f"{block}: its text cannot be read")
        return [PartDone(block, read_block(plain, block)), BlockEnded(block)]
    id, name = string_of(fields, "id"), string_of(fields, "name")
    # Whole, so that the assembler can tell a call that was handed out as an object by a response that hit its limit.
    call = ToolCallDelta(block=block, id=id, name=name, arguments=arguments_of(fields) or "{}", whole=True)
    opaque = opaque_from(fields, tool_use_keys(fields))
    return [call, BlockEnded(block)] if opaque is None else [call, BlockData(block, opaque), BlockEnded(block)]


def explanation_of(stop_details: msgspec.Raw | None) -> str | None:
    """Why it stopped, in the provider's words (`stop_details`, sent with a refusal), with the category and the model that the
    provider recommends for such a request."""
    if not stop_details:
        return None
    try:
        fields = read_fields(stop_details)
    except UNREADABLE:
        return None
    said, category, other = [string_of(fields, key) for key in ("explanation", "category", "recommended_model")]
    more = [f"category `{category}`"] if category else []
    more += [f"recommended model `{other}`"] if other else []
    return said if not more else f"{said or ''} ({', '.join(more)})".lstrip()
