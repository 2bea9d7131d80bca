"""The stream of the Messages API -> frames.

Blocks are named by their content index. A second `message_start` begins anew (the assembler forgets what came). Block
kinds without a word of ours become ProviderItems, whole and in place.
Source: API docs, "Streaming Messages"; anthropic-python 2.12, lib/streaming/_beta_messages.py (`accumulate_event`).
"""

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    Frame,
    Mended,
    Opaque,
    PartDone,
    ProviderItem,
    ReasoningDelta,
    Repair,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.anthropic_messages.body import body_frames, content_frames, explanation_of
from turnwise.wire.anthropic_messages.faults import stream_fault
from turnwise.wire.anthropic_messages.fields import NAME, opaque_from
from turnwise.wire.anthropic_messages.parts import (
    TOOL_USE_KEYS,
    arguments_of,
    read_citation,
    read_citations,
    read_reasoning,
)
from turnwise.wire.anthropic_messages.usage import UsageTally
from turnwise.wire.anthropic_messages.words import read_finish
from turnwise.wire.faults import too_large
from turnwise.wire.finish_words import says_nothing, unsaid_finish
from turnwise.wire.healing import decode_text, printable, read_objects, skipped
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    each_alone,
    is_null,
    quote,
    read_fields,
    string_of,
    text_of_raw,
    write_object,
)
from turnwise.wire.limits import Limits
from turnwise.wire.profiles import Profile
from turnwise.wire.sse import LineTooLong, SseParser


class _Delta(msgspec.Struct, gc=False):
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


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: _Delta | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"")
    message: msgspec.Raw = msgspec.Raw(b"")
    usage: msgspec.Raw = msgspec.Raw(b"")


# One kind of delta each, with the other fields of `_Delta` whose type it would look at: what it refuses, these do.
class _Text(msgspec.Struct, gc=False):
    type: Literal["text_delta"]
    piece: str = msgspec.field(name="text")
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Input(msgspec.Struct, gc=False):
    type: Literal["input_json_delta"]
    piece: str = msgspec.field(name="partial_json")
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Thinking(msgspec.Struct, gc=False):
    type: Literal["thinking_delta"]
    piece: str = msgspec.field(name="thinking")
    text: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


Kind = TypeVar("Kind", _Text, _Input, _Thinking)


class _More(msgspec.Struct, Generic[Kind], gc=False):
    """An event that brings more of a block, and nothing else. Its types are fields and no tags: msgspec asks for no tag where
    there is no union."""

    type: Literal["content_block_delta"]
    index: int
    delta: Kind


_decode_more: dict[
    str | None,
    Callable[[bytes], list[tuple[_More[_Text]]] | list[tuple[_More[_Input]]] | list[tuple[_More[_Thinking]]]],
] = {
    "text_delta": msgspec.json.Decoder(list[tuple[_More[_Text]]]).decode,
    "input_json_delta": msgspec.json.Decoder(list[tuple[_More[_Input]]]).decode,
    "thinking_delta": msgspec.json.Decoder(list[tuple[_More[_Thinking]]]).decode,
}
TOGETHER = 4  # values of a run from which on it pays to decode them at once

_event = msgspec.json.Decoder(_Event)
_lenient_event = msgspec.json.Decoder(_Event, strict=False)


class _Open:
    """A block that began and has not ended. `held` is an `input` that came whole with its start; deltas override it."""

    __slots__ = ("fields", "held", "is_item", "pieces", "told")

    def __init__(self, fields: Fields, *, is_item: bool) -> None:
        self.fields = fields
        self.is_item = is_item
        self.held: str | None = None
        self.pieces: list[str] = []
        self.told = False  # the item's PartDone is out


class MessagesStreamDecoder:
    """One streamed response. See wire/family.py, StreamDecoder."""

    def __init__(self, profile: Profile, limits: Limits) -> None:
        self._profile = profile
        self._limits = limits
        self._parser = SseParser(limits=limits)
        self._left = limits.stream_bytes
        self._ended = False  # after a fault of protocol or size: silent
        self._seen = False  # an event has been read
        self._head: list[bytes] = []  # what came before the first event, in case there is none
        self._head_bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._names: dict[int, str] = {}  # content index -> the block that stands there now
        self._reused = 0
        self._open: dict[int, _Open] = {}
        self._last_index = 0
        self._usage = UsageTally()
        self._said_end = False  # why it ended, or that it failed

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._ended:
            return []
        self._left -= len(chunk)
        if self._left < 0:
            return self._give_up(too_large(self._limits.stream_bytes))
        if not self._seen and self._head_bytes <= self._limits.line_bytes:
            self._head.append(chunk)
            self._head_bytes += len(chunk)
        frames: list[Frame] = []
        try:
            runs = self._parser.feed_runs(chunk)
        except LineTooLong as error:
            return self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))
        for run in runs:
            self._read_run(run.values, run.name, frames)
        return frames

    def _read_run(self, values: list[bytes], name: str, frames: list[Frame]) -> None:
        if len(values) >= TOGETHER and self._seen and self._read_together(values, frames):
            return
        decode = _event.decode
        for value in values:
            try:
                event = decode(value)
                delta = event.delta
                if event.type == "content_block_delta" and delta is not None and self._seen:  # nearly all of a stream
                    index = self._last_index if event.index is None else event.index
                    block = self._names.get(index) or self._name(index)
                    if delta.text and delta.type == "text_delta":
                        frames.append(TextDelta(delta.text, block))
                    elif delta.partial_json and delta.type == "input_json_delta":
                        if self._open:
                            self._input(index, block, delta.partial_json, frames)
                        else:
                            frames.append(ToolCallDelta(block=block, arguments=delta.partial_json))
                    elif delta.thinking and delta.type == "thinking_delta":
                        frames.append(ReasoningDelta(delta.thinking, block))
                    else:
                        self._delta(event, frames)
                else:
                    self._read(event, value, name, frames)
            except UNREADABLE:
                self._heal(value, name, frames)

    def _read_together(self, values: list[bytes], frames: list[Frame]) -> bool:
        """Read events that all bring more of one block. False where one of them does not, and nothing was taken."""
        try:
            first = _event.decode(values[0])
            decode = None if first.delta is None else _decode_more.get(first.delta.type)
            block = None if first.index is None else self._names.get(first.index)
            if decode is None or first.index is None or block is None:
                return False
            events = decode(each_alone(values))
        except UNREADABLE:
            return False
        index = first.index
        pieces = [event.delta.piece for (event,) in events if event.index == index]
        opened = self._open.get(index)
        if not len(pieces) == len(events) == len(values) or not all(pieces) or (opened is not None and opened.is_item):
            return False
        if decode is _decode_more["text_delta"]:
            frames += [TextDelta(piece, block) for piece in pieces]
        elif decode is _decode_more["thinking_delta"]:
            frames += [ReasoningDelta(piece, block) for piece in pieces]
        else:
            if opened is not None:
                opened.held = None
            frames += [ToolCallDelta(block=block, arguments=piece) for piece in pieces]
        return True

    def finish(self) -> list[Frame]:
        if self._ended:
            return []
        frames: list[Frame] = []
        try:
            events = self._parser.finish()
        except LineTooLong as error:
            return self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))
        for sse in events:
            try:
                self._read(_event.decode(sse.data), sse.data, sse.name, frames)
            except UNREADABLE:
                self._heal(sse.data, sse.name, frames)
        self._ended = True
        if not self._seen:
            frames += body_frames(b"".join(self._head), expected="an event stream")
            return frames
        for index, block in self._open.items():
            if not block.is_item:
                self._release(index, block, frames)
        return frames

    def _give_up(self, fault: Fault) -> list[Frame]:
        self._ended = True
        self._head.clear()
        return [Faulted(fault)]

    def _read(self, event: _Event, source: bytes, name: str, frames: list[Frame]) -> None:
        """Raises one of UNREADABLE, and has then neither emitted nor changed anything: the event can be healed."""
        kind = event.type or name
        if kind != "content_block_delta":
            source.decode()  # what stays JSON text is not looked at by the JSON decoder
        match kind:
            case "content_block_delta":
                self._delta(event, frames)
            case "content_block_start":
                self._start_block(event, frames)
            case "content_block_stop":
                self._stop_block(self._index(event), frames)
            case "message_start":
                self._start(event.message, frames)
            case "message_delta":
                self._end(event, frames)
            case "error":
                self._said_end = True
                frames.append(Faulted(stream_fault(read_fields(source))))
            case "message_stop":
                self._release_all(frames)
                if not self._said_end:
                    self._said_end = True
                    frames.append(unsaid_finish("`message_stop`"))
            case "ping":
                return  # keep-alive
            case _:
                # New event types may come at any time and are to be passed over (API docs, versioning); an object that
                # is none of this format at all does not count as a stream.
                if event.type is None:
                    return
        if not self._seen:
            self._seen = True
            self._head.clear()

    def _index(self, event: _Event) -> int:
        return self._last_index if event.index is None else event.index

    # --- message

    def _start(self, message: msgspec.Raw, frames: list[Frame]) -> None:
        self._begin()
        try:
            fields = read_fields(message)
        except UNREADABLE:
            frames.append(Started())
            return
        frames.append(Started(id=string_of(fields, "id"), model=string_of(fields, "model")))
        self._report_usage(fields.get("usage"), frames)
        # Blocks that are whole before the stream begins (programmatic tool calls).
        if not is_null(fields.get("content")):
            frames += content_frames(fields["content"], prefix="start")
        self._say_end(read_finish(string_of(fields, "stop_reason")), frames)

    def _end(self, event: _Event, frames: list[Frame]) -> None:
        self._report_usage(event.usage, frames)
        delta = event.delta
        if delta is not None and not says_nothing(delta.stop_reason):
            self._release_all(frames)
            self._say_end(read_finish(delta.stop_reason, explanation=explanation_of(delta.stop_details)), frames)

    def _say_end(self, end: list[Mended | Finished], frames: list[Frame]) -> None:
        self._said_end = self._said_end or bool(end)
        frames += end

    def _report_usage(self, raw: msgspec.Raw | None, frames: list[Frame]) -> None:
        if raw:
            usage = self._usage.add(raw)
            if usage is not None:
                frames.append(UsageReported(usage))

    # --- blocks

    def _delta(self, event: _Event, frames: list[Frame]) -> None:
        delta = event.delta
        if delta is None:
            return
        index = self._last_index if event.index is None else event.index
        block = self._names.get(index) or self._name(index)
        match delta.type:
            case "text_delta":
                if delta.text:
                    frames.append(TextDelta(delta.text, block))
            case "input_json_delta":
                if delta.partial_json:
                    self._input(index, block, delta.partial_json, frames)
            case "thinking_delta":
                if delta.thinking:
                    frames.append(ReasoningDelta(delta.thinking, block))
            case "signature_delta":
                if delta.signature:
                    opaque = Opaque(NAME, str(write_object({"signature": quote(delta.signature)}), "utf-8"))
                    frames.append(BlockData(block, opaque))
            case "citations_delta":
                if delta.citation and not is_null(delta.citation):
                    frames.append(CitationAdded(block, read_citation(delta.citation)))
            case "compaction_delta":
                self._compaction(index, delta)
            case _:
                return  # a delta of a kind that did not exist when this was written

    def _input(self, index: int, block: str, piece: str, frames: list[Frame]) -> None:
        opened = self._open.get(index)
        if opened is not None:
            opened.held = None
            if opened.is_item:
                opened.pieces.append(piece)
                return
        frames.append(ToolCallDelta(block=block, arguments=piece))

    def _compaction(self, index: int, delta: _Delta) -> None:
        opened = self._open.get(index)
        told = (("content", delta.content), ("encrypted_content", delta.encrypted_content))
        sound = {key: msgspec.Raw(text_of_raw(raw)) for key, raw in told if raw}
        if opened is not None:
            opened.fields |= sound

    def _name(self, index: int) -> str:
        name = self._names[index] = str(index)
        return name

    def _start_block(self, event: _Event, frames: list[Frame]) -> None:
        fields = read_fields(event.content_block)
        kind = string_of(fields, "type")
        citations = read_citations(fields) if kind == "text" else ()
        index = self._index(event)
        if index in self._names:  # some gateways number every block 0, or send no index
            frames.append(_mended("index_reused", f"block {index}", "a second block on this index taken as a new one"))
            self._stop_block(index, frames)
            self._reused += 1
            block = self._names[index] = f"{index}.{self._reused}"
        else:
            block = self._name(index)
        self._last_index = index
        match kind:
            case "text":
                frames.append(TextDelta(string_of(fields, "text") or "", block))
                frames += [CitationAdded(block, citation) for citation in citations]
                _tell_rest(fields, frozenset({"type", "text", "citations"}), block, frames)
            case "thinking" | "redacted_thinking":
                part = read_reasoning(fields)
                frames.append(ReasoningDelta(part.text, block))
                if part.opaque is not None:
                    frames.append(BlockData(block, part.opaque))
            case "tool_use":
                opened = self._open[index] = _Open({}, is_item=False)
                opened.held = arguments_of(fields)
                id, name = string_of(fields, "id"), string_of(fields, "name")
                frames.append(ToolCallDelta(block=block, id=id, name=name))
                _tell_rest(fields, TOOL_USE_KEYS, block, frames)
            case _:
                opened = self._open[index] = _Open({key: raw.copy() for key, raw in fields.items()}, is_item=True)
                if not _grows(fields):
                    self._tell_item(index, opened, frames)

    def _stop_block(self, index: int, frames: list[Frame]) -> None:
        block = self._open.pop(index, None)
        if block is not None:
            self._release(index, block, frames)
        frames.append(BlockEnded(self._names.get(index) or self._name(index)))

    def _release_all(self, frames: list[Frame]) -> None:
        """Blocks that a server left without a `content_block_stop`."""
        for index in list(self._open):
            self._release(index, self._open.pop(index), frames)

    def _release(self, index: int, block: _Open, frames: list[Frame]) -> None:
        if block.is_item:
            if block.pieces or not block.told:
                self._tell_item(index, block, frames)
        elif block.held is not None:
            frames.append(ToolCallDelta(block=self._names[index], arguments=block.held, whole=True))
            block.held = None

    def _tell_item(self, index: int, block: _Open, frames: list[Frame]) -> None:
        block.told = True
        fields = {key: bytes(raw) for key, raw in block.fields.items()}
        if block.pieces:
            pieces = "".join(block.pieces)
            try:
                read_fields(pieces)
                fields["input"] = pieces.encode()
            except UNREADABLE:
                frames.append(_mended("item_input", self._names[index], "input that is no JSON object left out"))
        kind = string_of(block.fields, "type") or ""
        item = ProviderItem(NAME, kind, str(write_object(fields), "utf-8"))
        frames.append(PartDone(self._names[index], item))

    # --- healing

    def _heal(self, payload: bytes, name: str, frames: list[Frame]) -> None:
        """Read an event that the strict decoder refused: bytes that are no UTF-8, lone surrogates, several objects in one
        event, a number sent as a string. What stays unreadable is reported and left out."""
        if payload.strip() == b"[DONE]":
            return  # Chat Completions' end mark, which some gateways add
        if not self._seen and not name and payload[:1] != b"{":
            return  # no event of this format: finish() says what it was instead
        text, is_replaced = decode_text(payload)
        found, _ = read_objects(text)
        if not found:
            what = f"left out an event that is no JSON: {printable(payload)}"
            frames.append(_mended(skipped("unreadable_event", payload), name or "event", what))
            return
        if len(found) > 1:
            frames.append(_mended("glued_json", name or "event", f"{len(found)} objects in one event taken apart"))
        elif not is_replaced:
            frames.append(_mended("unreadable_json", name or "event", "read with looser types"))
        if is_replaced:
            frames.append(_mended("invalid_utf8", name or "event", "invalid UTF-8 became replacement characters"))
        for source in found:
            try:
                self._read(_lenient_event.decode(source), source, name, frames)
            except UNREADABLE:
                frames.append(_mended("unreadable_event", name or "event", f"left out: {printable(source)}"))


def _grows(fields: Fields) -> bool:
    """Whether deltas are to come: calls by their input, a compaction by its content. All other items come whole."""
    kind = string_of(fields, "type") or ""
    return kind.endswith("_tool_use") or kind == "compaction"


def _tell_rest(fields: Fields, known: frozenset[str], block: str, frames: list[Frame]) -> None:
    opaque = opaque_from(fields, known)
    if opaque is not None:
        frames.append(BlockData(block, opaque))


def _mended(kind: str, where: str, what: str) -> Mended:
    return Mended(Repair(kind, where, what))
