"""The Responses event stream -> frames.

A block is an item: its `output_index` (item ids may differ from event to event at gateways), with `.n` behind it for the
further content parts of a message. Deltas take the fast path; every other event is read one level deep. The final form
of an item is the one in `response.output_item.done`; the terminal event's `output` adds what no such event brought.
"""

from collections.abc import Callable, Mapping, Sequence

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
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.finish_words import finish_frames
from turnwise.wire.healing import is_utf8, skipped
from turnwise.wire.json_fields import UNREADABLE, Fields, each_alone, is_object, quote, read_fields, without
from turnwise.wire.limits import Limits
from turnwise.wire.openai_responses.faults import fault_of
from turnwise.wire.openai_responses.fields import count_at, list_at, object_at, opaque_from, text_at
from turnwise.wire.openai_responses.healing import heal
from turnwise.wire.openai_responses.parts import citation_of, kind_of, parts_of
from turnwise.wire.openai_responses.usage import usage_of
from turnwise.wire.openai_responses.words import FINISH_REASONS, TERMINAL_EVENTS, finish_reason, status_word
from turnwise.wire.profiles import Profile
from turnwise.wire.sse import LineTooLong, SseParser

NONE = -1  # no `output_index`


class _Delta(msgspec.Struct, gc=False):
    """What the fast path reads of an event; of any other event, its type."""

    type: str
    delta: str = ""
    output_index: int = NONE
    content_index: int = 0


_decode_delta = msgspec.json.Decoder(_Delta).decode
_decode_deltas = msgspec.json.Decoder(list[tuple[_Delta]]).decode
TOGETHER = 4  # values of a run from which on it pays to decode them at once

DeltaFrame = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta
NO_DELTA: tuple[_Delta, DeltaFrame] = (_Delta(type="", output_index=-2), TextDelta(""))
"""The last delta and the frame that it became, before there is one: no event is like it."""


class _Item(msgspec.Struct):
    """An output item under way."""

    kind: str
    ids: set[str]
    done: bool = False
    header: Fields = {}  # what `added` said that is worth keeping if nothing else comes
    contents: list[int] = []  # content indexes that deltas came for, in order
    held: str = ""  # arguments that came with `added`: the deltas or the final form repeat them
    reasoning: str = ""  # the event type that this item's thoughts come by: summary or content, counted once


class ResponsesStreamDecoder:
    """Bytes in any pieces -> frames. See `StreamDecoder`."""

    def __init__(self, profile: Profile, limits: Limits) -> None:
        self._parser = SseParser(limits=limits)
        self._limits = limits
        self._head: list[bytes] = []  # the stream's beginning, until its first event: it may be something else
        self._head_bytes = 0
        self._begins_with = b""  # its first byte that is no space
        self._bytes_left = limits.stream_bytes
        self._events = 0  # those that said something
        self._silent = False
        self._started: str | None = None
        self._items: dict[int, _Item] = {}
        self._index_of: dict[str, int] = {}
        self._with_deltas: set[str] = set()  # blocks
        self._usual = NO_DELTA
        self._has_calls = False
        self._has_refusal = False
        self._fault: Fault | None = None
        self._profile = profile

    # ---- bytes -> events

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._silent:
            return []
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            return self._give_up(too_large(self._limits.stream_bytes))
        if not self._events:
            self._keep_head(chunk)
            if self._head_bytes > self._limits.response_bytes:
                return self._give_up(too_large(self._limits.response_bytes))
        frames: list[Frame] = []
        try:
            runs = self._parser.feed_runs(chunk)
        except LineTooLong as error:
            return self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))
        for run in runs:
            self._read_run(run.values, run.name, frames)
        return frames

    def finish(self) -> list[Frame]:
        if self._silent:
            return []
        frames: list[Frame] = []
        try:
            events = self._parser.finish()
        except LineTooLong as error:
            return self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))
        for event in events:
            self._read_run([event.data], event.name, frames)
        if not self._events:
            return [*frames, *self._read_no_stream()]
        self._keep_unfinished(frames)
        return frames

    def _keep_unfinished(self, frames: list[Frame]) -> None:
        """Items that began and have neither deltas nor a final form: what is known of them is kept."""
        for index, item in self._items.items():
            block = str(index)
            if item.done or block in self._with_deltas:
                continue
            item.done = True
            match item.kind:
                case "function_call" | "custom_tool_call":
                    if item.held:
                        frames.append(ToolCallDelta(block=block, arguments=item.held))
                case "message":
                    pass
                case "reasoning":  # what is encrypted so far is not whole
                    frames.append(PartDone(block, Reasoning("", opaque_from(item.header))))
                case _:
                    frames += [PartDone(block, part) for part in parts_of(item.header)]

    def _keep_head(self, chunk: bytes) -> None:
        """All of what may be a JSON body, else enough to say what arrived."""
        if not self._begins_with:
            self._begins_with = chunk.lstrip()[:1]
        limit = self._limits.response_bytes if self._begins_with == b"{" else 1024
        if self._head_bytes <= limit:
            self._head.append(chunk)
            self._head_bytes += len(chunk)

    def _read_no_stream(self) -> list[Frame]:
        head = b"".join(self._head)
        self._head.clear()
        if head.lstrip()[:1] == b"{":
            repair = Repair("body_for_stream", "response", "a plain JSON body where a stream was asked for was read")
            return [Mended(repair), *read_body(head, self)]
        return self._give_up(no_response(head, expected="an event stream of the Responses API"))

    def _give_up(self, fault: Fault) -> list[Frame]:
        self._silent = True
        return [Faulted(fault)]

    def _read_run(self, values: list[bytes], name: str, frames: list[Frame]) -> None:
        """Nearly all of a stream are deltas that go where the one before went."""
        if len(values) >= TOGETHER:
            if self._usual is NO_DELTA:  # the first one tells where they go
                self._read_values(values[:1], name, frames)
                values = values[1:]
            if self._read_together(values, frames):
                return
        self._read_values(values, name, frames)

    def _read_together(self, values: list[bytes], frames: list[Frame]) -> bool:
        """False where not all of them go where the one before went, and nothing was taken."""
        usual, like = self._usual
        try:
            deltas = _decode_deltas(each_alone(values))
        except UNREADABLE:
            return False
        kind, index, content_index = usual.type, usual.output_index, usual.content_index
        texts = [
            delta.delta
            for (delta,) in deltas
            if delta.type == kind and delta.output_index == index and delta.content_index == content_index
        ]
        if not len(texts) == len(deltas) == len(values):
            return False
        block = like.block
        if not isinstance(like, ToolCallDelta):
            frame = type(like)
            frames += [frame(text, like.block) for text in texts]
        elif like.free_form:
            frames += [ToolCallDelta(block=block, arguments=text, free_form=True) for text in texts]
        else:
            frames += [ToolCallDelta(block=block, arguments=text) for text in texts]
        return True

    def _read_values(self, values: list[bytes], name: str, frames: list[Frame]) -> None:
        usual, like = self._usual
        if name in _ITEMS_AND_END:  # long ones, that are no deltas by their name
            self._usual = NO_DELTA
            for value in values:
                self._read(value, name, frames)
            return
        for value in values:
            try:
                delta = _decode_delta(value)
            except UNREADABLE:
                delta = None  # a field of another type, or no clean JSON: the slow path tells
            if (
                delta is not None
                and delta.type == usual.type
                and delta.output_index == usual.output_index
                and delta.content_index == usual.content_index
            ):
                if isinstance(like, ToolCallDelta):
                    frames.append(ToolCallDelta(block=like.block, arguments=delta.delta, free_form=like.free_form))
                else:
                    frames.append(type(like)(delta.delta, like.block))
            else:
                self._usual = usual, like = NO_DELTA
                if delta is None or not (self._take_delta(delta, frames) or self._is_no_news(delta, value)):
                    self._read(value, name, frames)
                usual, like = self._usual

    def _take_delta(self, delta: _Delta, frames: list[Frame]) -> bool:
        """False where it is none, or does not say where it belongs."""
        emit = _DELTAS.get(delta.type)
        if emit is None or delta.output_index < 0:
            return False
        self._events += 1
        before = len(frames)
        emit(self, delta, frames)
        if len(frames) == before + 1 and isinstance(like := frames[-1], DeltaFrame):
            self._usual = delta, like
        return True

    def _is_no_news(self, delta: _Delta, value: bytes) -> bool:
        """Whether the event only says again what is known. What may be half a character is read
        all the same: that is told."""
        match delta.type:
            case "response.in_progress" | "response.queued":
                is_known = self._started is not None
            case kind if kind in _WHOLES and delta.output_index >= 0:
                is_known = block_name(delta.output_index, delta.content_index) in self._with_deltas
            case _:
                return False
        return is_known and b"\\u" not in value and is_utf8(value)

    def _read(self, value: bytes, name: str, frames: list[Frame]) -> None:
        """An event that the fast path does not know."""
        if value.strip() == b"[DONE]":
            return
        try:
            if not value.isascii():
                value.decode()  # raw fields are not looked at by the decoder
            self._read_event(read_fields(value), name, frames)
        except UNREADABLE:
            self._read_damaged(value, name, frames)

    def _read_damaged(self, value: bytes, name: str, frames: list[Frame]) -> None:
        healed = heal(value)
        kind = healed.kind(lost=skipped("event_left_out", value), mended="damaged_event")
        frames.append(Mended(Repair(kind, name or "stream", healed.what)))
        for clean in healed.objects:
            try:
                self._read_event(read_fields(clean), name, frames)
            except UNREADABLE as error:
                frames.append(Mended(Repair("event_left_out", name or "stream", f"not this API's shape: {error}")))

    # ---- deltas

    def _text(self, delta: _Delta, frames: list[Frame]) -> None:
        frames.append(TextDelta(delta.delta, self._content_block(delta)))

    def _refusal(self, delta: _Delta, frames: list[Frame]) -> None:
        self._has_refusal = True
        frames.append(RefusalDelta(delta.delta, self._content_block(delta)))

    def _content_block(self, delta: _Delta) -> str:
        block = block_name(delta.output_index, delta.content_index)
        if block not in self._with_deltas:
            self._with_deltas.add(block)
            item = self._items.get(delta.output_index) or self._open(delta.output_index, "message", {})
            item.contents.append(delta.content_index)
        return block

    def _reasoning(self, delta: _Delta, frames: list[Frame]) -> None:
        item = self._items.get(delta.output_index)
        if item is None:
            item = self._open(delta.output_index, "reasoning", {})
        if not item.reasoning:
            item.reasoning = delta.type
        if item.reasoning == delta.type:
            block = str(delta.output_index)
            self._with_deltas.add(block)
            frames.append(ReasoningDelta(delta.delta, block))

    def _arguments(self, delta: _Delta, frames: list[Frame]) -> None:
        block = str(delta.output_index)
        self._with_deltas.add(block)
        frames.append(ToolCallDelta(block=block, arguments=delta.delta))

    def _input(self, delta: _Delta, frames: list[Frame]) -> None:
        block = str(delta.output_index)
        self._with_deltas.add(block)
        frames.append(ToolCallDelta(block=block, arguments=delta.delta, free_form=True))

    # ---- other events

    def _read_event(self, fields: Fields, name: str, frames: list[Frame]) -> None:
        kind = text_at(fields, "type")
        if not kind and name:  # the event's name says what its data leaves out
            kind, fields = name, {**fields, "type": msgspec.Raw(quote(name))}
        kind = kind or ""
        is_error = kind == "error" or ("error" in fields and not kind)
        before = len(frames)
        if kind in _DELTAS:  # came here for its `output_index`, which it lacks
            self._read_loose_delta(fields, kind, frames)
        elif kind in TERMINAL_EVENTS:
            self._end(object_at(fields, "response"), TERMINAL_EVENTS[kind], frames)
        elif kind in _EVENTS:
            _EVENTS[kind](self, fields, frames)
        elif is_error:
            self._fail(fields, frames)
        self._events += len(frames) > before

    def _read_loose_delta(self, fields: Fields, kind: str, frames: list[Frame]) -> None:
        delta = text_at(fields, "delta")
        if delta is None:
            return
        index = self._index(fields, item_id=text_at(fields, "item_id"))
        content_index = count_at(fields, "content_index") or 0
        _DELTAS[kind](self, _Delta(type=kind, delta=delta, output_index=index, content_index=content_index), frames)

    def _start(self, fields: Fields, frames: list[Frame]) -> None:
        response = object_at(fields, "response")
        id = text_at(response, "id")
        again = text_at(fields, "type") == "response.created" and id is not None and id != self._started
        if self._started is not None and not again:  # gateways may change the id from event to event
            return
        if self._started is None and self._items:
            self._started = id or ""  # resumed in the middle: starting now would discard what is there
            return
        self._started = id or ""
        self._items.clear()
        self._index_of.clear()
        self._with_deltas.clear()
        self._usual = NO_DELTA
        self._has_calls = self._has_refusal = False
        frames.append(Started(id=id, model=text_at(response, "model")))

    def _add(self, fields: Fields, frames: list[Frame]) -> None:
        item = object_at(fields, "item")
        kind = kind_of(item)
        index = count_at(fields, "output_index")
        if index is None:
            index = max(self._items, default=-1) + 1
        opened = self._open(index, kind, item)
        block = str(index)
        begun: ToolCallDelta | None = None
        match kind:
            case "function_call" | "custom_tool_call":
                self._has_calls = True
                opened.held = text_at(item, "arguments") or text_at(item, "input") or ""
                own = without(item, ("type", "call_id", "name", "arguments", "input", "status"))
                begun = ToolCallDelta(
                    block=block,
                    id=text_at(item, "call_id"),
                    name=text_at(item, "name"),
                    free_form=kind == "custom_tool_call",
                )
            case "message":  # its texts will bring these
                opened.header = without(item, ("type", "role", "content", "status"))
                opened.header |= {"status": msgspec.Raw(b'"incomplete"')} if opened.header else {}
                return
            case "reasoning":
                own = opened.header = {"id": item["id"]} if "id" in item else {}
            case _:
                opened.header = item
                own = {"id": item["id"]} if "id" in item else {}
        opaque = opaque_from(own)
        if (
            opaque is not None
        ):  # first, so that whoever writes the item again has its id; it also keeps the item's place
            frames.append(BlockData(block, opaque))
        if begun is not None:
            frames.append(begun)

    def _open(self, index: int, kind: str, item: Fields) -> _Item:
        ids = {value for key in ("id", "call_id") if (value := text_at(item, key))}
        opened = _Item(kind=kind, ids=ids)
        self._items[index] = opened
        self._index_of |= dict.fromkeys(ids, index)
        return opened

    def _index(self, fields: Fields, *, item_id: str | None) -> int:
        """Where the event belongs: its `output_index`, else the item with its id, else the newest item."""
        index = count_at(fields, "output_index")
        if index is not None and index >= 0:
            return index
        if item_id is not None and item_id in self._index_of:
            return self._index_of[item_id]
        return max(self._items, default=0)

    def _add_content(self, fields: Fields, frames: list[Frame]) -> None:
        """A content part of a message: it carries the item's own fields."""
        index = self._index(fields, item_id=text_at(fields, "item_id"))
        content_index = count_at(fields, "content_index") or 0
        opaque = opaque_from(self._items[index].header) if index in self._items else None
        if opaque is not None:
            frames.append(BlockData(block_name(index, content_index), opaque))

    def _add_citation(self, fields: Fields, frames: list[Frame]) -> None:
        annotation = fields.get("annotation")
        if annotation is not None and is_object(annotation):
            index = self._index(fields, item_id=text_at(fields, "item_id"))
            block = block_name(index, count_at(fields, "content_index") or 0)
            frames.append(CitationAdded(block, citation_of(annotation)))

    def _add_whole(self, fields: Fields, frames: list[Frame]) -> None:
        """A `.done` event says all of it once more: news only where no delta came."""
        index = self._index(fields, item_id=text_at(fields, "item_id"))
        kind, key = _WHOLES[text_at(fields, "type") or ""]
        text = text_at(fields, key)
        block = block_name(index, count_at(fields, "content_index") or 0)
        if text and block not in self._with_deltas:
            content_index = count_at(fields, "content_index") or 0
            _DELTAS[kind](self, _Delta(type=kind, delta=text, output_index=index, content_index=content_index), frames)

    def _finish_item(self, fields: Fields, frames: list[Frame]) -> None:
        item = object_at(fields, "item")
        if not item:
            return
        index = count_at(fields, "output_index")
        if index is None:
            index = self._index_of.get(text_at(item, "id") or "", max(self._items, default=-1) + 1)
        self.take_item(index, item, frames)

    def take_item(self, index: int, item: Fields, frames: list[Frame]) -> None:
        """The final form of the item at `index`."""
        opened = self._items.get(index)
        is_new = opened is None or opened.done
        if opened is None or opened.done:
            opened = self._open(index, kind_of(item), item)
        opened.done = True
        opened.ids |= {value for key in ("id", "call_id") if (value := text_at(item, key))}
        parts = parts_of(item)
        for place, part in zip(_places(opened.contents, len(parts)), parts, strict=True):
            self._take_part(block_name(index, place), part, frames, is_new=is_new)

    def _take_part(self, block: str, part: Part, frames: list[Frame], *, is_new: bool) -> None:
        has_deltas = block in self._with_deltas
        is_empty = False
        match part:
            case ToolCall():
                self._has_calls = True
                is_empty = not part.arguments
                if not has_deltas:  # as the wire has it: text that may end anywhere, not an object handed out whole
                    id, name = (part.id, part.name) if is_new else (None, None)
                    delta = ToolCallDelta(
                        block=block, id=id, name=name, arguments=part.arguments, free_form=part.free_form
                    )
                    frames.append(delta)
            case Refusal():
                self._has_refusal = True
                is_empty = not part.text
            case Text() | Reasoning():
                is_empty = not part.text
            case _:
                pass
        if is_empty and has_deltas and isinstance(part, Text | Refusal | Reasoning | ToolCall):
            # An empty final form takes nothing away from what was streamed.
            frames += [] if part.opaque is None else [BlockData(block, part.opaque)]
        else:
            frames.append(PartDone(block, part))
        frames.append(BlockEnded(block))

    def _end(self, response: Fields, status: str, frames: list[Frame]) -> None:
        self.take_output([read_fields(raw) for raw in list_at(response, "output") if is_object(raw)], frames)
        self._keep_unfinished(frames)
        self.take_end(response, status, frames)

    def take_output(self, output: list[Fields], frames: list[Frame]) -> None:
        """Take what no `output_item.done` brought. Items are paired by id, those whose ids rotate by kind and order."""
        waiting = list(self._items.items())
        unknown: list[Fields] = []
        for item in output:
            ids = {text_at(item, "id"), text_at(item, "call_id")} - {None, ""}
            known = next((pair for pair in waiting if pair[1].ids & ids), None)
            if known is None:
                unknown.append(item)
                continue
            waiting.remove(known)
            if not known[1].done:
                self.take_item(known[0], item, frames)
        for item in unknown:
            known = next((pair for pair in waiting if pair[1].kind == kind_of(item)), None)
            if known is None:
                self.take_item(max(self._items, default=-1) + 1, item, frames)
                continue
            waiting.remove(known)
            if not known[1].done:
                self.take_item(known[0], item, frames)

    def take_end(self, response: Fields, status: str, frames: list[Frame]) -> None:
        """Usage, the error if any, and why it ended."""
        usage = response.get("usage")
        if usage is not None and is_object(usage):
            frames.append(UsageReported(usage_of(read_fields(usage), raw=usage)))
        word = status_word(response, otherwise=status)
        error = object_at(response, "error")
        if (error or word == "failed") and self._fault is None:
            self._fault = fault_of(error or response)
            frames.append(Faulted(self._fault))
        reason = finish_reason(word, has_calls=self._has_calls, has_refusal=self._has_refusal)
        frames += finish_frames(Finished(reason, word), is_known=word in FINISH_REASONS)

    def _fail(self, fields: Fields, frames: list[Frame]) -> None:
        error = object_at(fields, "error")
        self._fault = fault_of(error or without(fields, ("type", "sequence_number")))
        frames.append(Faulted(self._fault))


def _places(streamed: list[int], count: int) -> Sequence[int]:
    """The content index under which each final content part was streamed: its own, but where an endpoint counts otherwise
    (Bedrock's Mantle streams the only content part as number 1) the order tells."""
    if all(place < count for place in streamed):
        return range(count)
    rest = [place for place in range(count + len(streamed)) if place not in streamed]
    return [*sorted(streamed), *rest][:count]


def block_name(index: int, content_index: int) -> str:
    return f"{index}.{content_index}" if content_index else str(index)


def read_body(body: bytes, decoder: ResponsesStreamDecoder) -> list[Frame]:
    """A whole response object, or an error object, as the frames that a stream of it would have given."""
    frames: list[Frame] = []
    try:
        body.decode()
        response = read_fields(body)
        _take_body(response, decoder, frames)
    except UNREADABLE:
        healed = heal(body)
        kind = healed.kind(lost="damaged_body", mended="loose_body")
        if len(healed.objects) > 1:
            kind = "damaged_body"  # only the first is read
        frames = [Mended(Repair(kind, "response", healed.what))]
        if not healed.objects:
            return [Faulted(no_response(body, expected="a response of the Responses API"))]
        try:
            _take_body(read_fields(healed.objects[0]), decoder, frames)
        except UNREADABLE:
            return [*frames, Faulted(no_response(body, expected="a response of the Responses API"))]
    return frames


def _take_body(response: Fields, decoder: ResponsesStreamDecoder, frames: list[Frame]) -> None:
    if "output" not in response and "status" not in response:
        error = response.get("error")
        if error is None and "message" not in response and "detail" not in response:
            raise msgspec.DecodeError("no response object")
        fault = fault_of(read_fields(error) if error is not None and is_object(error) else response)
        frames.append(Faulted(fault))
        return
    frames.append(Started(id=text_at(response, "id"), model=text_at(response, "model")))
    decoder.take_output([read_fields(raw) for raw in list_at(response, "output") if is_object(raw)], frames)
    decoder.take_end(response, "completed", frames)


_DELTAS: Mapping[str, Callable[[ResponsesStreamDecoder, _Delta, list[Frame]], None]] = {
    "response.output_text.delta": ResponsesStreamDecoder._text,  # pyright: ignore[reportPrivateUsage]
    "response.refusal.delta": ResponsesStreamDecoder._refusal,  # pyright: ignore[reportPrivateUsage]
    "response.reasoning_summary_text.delta": ResponsesStreamDecoder._reasoning,  # pyright: ignore[reportPrivateUsage]
    "response.reasoning_text.delta": ResponsesStreamDecoder._reasoning,  # pyright: ignore[reportPrivateUsage]
    "response.function_call_arguments.delta": ResponsesStreamDecoder._arguments,  # pyright: ignore[reportPrivateUsage]
    "response.custom_tool_call_input.delta": ResponsesStreamDecoder._input,  # pyright: ignore[reportPrivateUsage]
}

# Event that repeats a whole text -> the delta it sums up, and the field it stands in.
_WHOLES: Mapping[str, tuple[str, str]] = {
    "response.output_text.done": ("response.output_text.delta", "text"),
    "response.refusal.done": ("response.refusal.delta", "refusal"),
    "response.function_call_arguments.done": ("response.function_call_arguments.delta", "arguments"),
    "response.custom_tool_call_input.done": ("response.custom_tool_call_input.delta", "input"),
}

_EVENTS: Mapping[str, Callable[[ResponsesStreamDecoder, Fields, list[Frame]], None]] = {
    "response.created": ResponsesStreamDecoder._start,  # pyright: ignore[reportPrivateUsage]
    "response.queued": ResponsesStreamDecoder._start,  # pyright: ignore[reportPrivateUsage]
    "response.in_progress": ResponsesStreamDecoder._start,  # pyright: ignore[reportPrivateUsage]
    "response.output_item.added": ResponsesStreamDecoder._add,  # pyright: ignore[reportPrivateUsage]
    "response.output_item.done": ResponsesStreamDecoder._finish_item,  # pyright: ignore[reportPrivateUsage]
    "response.content_part.added": ResponsesStreamDecoder._add_content,  # pyright: ignore[reportPrivateUsage]
    "response.output_text.annotation.added": ResponsesStreamDecoder._add_citation,  # pyright: ignore[reportPrivateUsage]
    **dict.fromkeys(_WHOLES, ResponsesStreamDecoder._add_whole),  # pyright: ignore[reportPrivateUsage]
}

_ITEMS_AND_END = frozenset(["response.output_item.added", "response.output_item.done", *TERMINAL_EVENTS])
