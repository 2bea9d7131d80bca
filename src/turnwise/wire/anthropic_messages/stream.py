"""The stream of the Messages API -> frames.

Blocks are named by their content index. A second `message_start` begins again (the assembler forgets what came). Block kinds
without a word of ours become ProviderItems, whole and in place. Source: API docs, "Streaming Messages"; anthropic-python 2.12,
lib/streaming/_beta_messages.py (`accumulate_event`).
"""

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CitationAdded,
    Fault,
    Faulted,
    Finished,
    Frame,
    Lost,
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
from turnwise.vocab.json_values import objects_in
from turnwise.vocab.wording import in_ticks
from turnwise.wire.anthropic_messages.endings import UsageTally, read_finish
from turnwise.wire.anthropic_messages.events import (
    CONTENT_EVENTS,
    HARMLESS_EVENTS,
    Delta,
    Event,
    FastDeltas,
    OpenBlock,
    body_frames,
    content_frames,
    decode_leniently,
    explanation_of,
    loosen,
    lost,
    plain_text,
    read_any_event,
)
from turnwise.wire.anthropic_messages.faults import stream_fault
from turnwise.wire.anthropic_messages.parts import (
    NAME,
    arguments_of,
    opaque_from,
    read_citation,
    read_citations,
    read_reasoning,
    tool_use_keys,
)
from turnwise.wire.anthropic_messages.thinking import input_repairs
from turnwise.wire.endings import says_nothing, unsaid_finish
from turnwise.wire.faults import past_limit, too_large
from turnwise.wire.json_fields import (
    DAMAGES,
    LINE_END_LOST,
    PINGS,
    UNREADABLE,
    Fields,
    breaks_strings,
    check_sound,
    has_controls,
    has_lone_surrogate,
    is_noise,
    is_null,
    is_ping,
    is_too_long,
    left_out,
    printable,
    quote,
    read_damaged,
    read_fields,
    string_of,
    text_of_raw,
    whole_text,
    write_object,
)
from turnwise.wire.profiles import Limits, Profile
from turnwise.wire.sse import LineTooLong, SseParser, StreamBeginning

ADDITIONS = frozenset({"signature_delta", "citations_delta"})
"""Deltas that change no text and no call, so that they may follow the end of their block."""

PIECE_OF = {"text_delta": "text", "input_json_delta": "partial_json", "thinking_delta": "thinking"}
"""Where the deltas that grow a text or a call have their piece."""


class MessagesStreamDecoder:
    """One streamed response. See wire/family.py, StreamDecoder."""

    def __init__(self, profile: Profile, limits: Limits, *, fast: type[FastDeltas] | None = FastDeltas) -> None:
        """`fast` reads nearly all events of a usual stream; None where this module has to read them all."""
        self._profile = profile
        self._limits = limits
        self._parser = SseParser(limits=limits)
        self._left = limits.stream_bytes
        self._dead = False  # after a fault of protocol or size: silent
        self._is_over = False  # `message_stop` came
        self._seen = False  # an event has been read
        self._named = 0  # events with a name, since the last one without
        self._flows = False  # ... and the message has not stopped
        self._glues = False  # `data:` stands within the first event, so it is a habit
        self._constant = ""  # the name of the event that began the message: some gateways give all events one name
        self._is_plain = True  # all bytes so far are ASCII, and none is a control character
        self._beginning = StreamBeginning(limits=limits)
        self._fast_ways = fast
        self._begin()

    def _begin(self) -> None:
        self._names: dict[int, str] = {}  # content index -> the block that is open there
        self._ended: dict[int, str] = {}  # content index -> the block that ended there last
        self._silent: set[int] = set()  # those of them that are calls without a piece of input
        self._reused = 0
        self._open: dict[int, OpenBlock] = {}
        self._fast = None if self._fast_ways is None else self._fast_ways(self._names, self._open)
        self._last_index = 0
        self._usage = UsageTally()
        self._said_end = False  # why it ended, or that it failed

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
        if self._is_plain and (not chunk.isascii() or has_controls(chunk)):
            self._is_plain = False
        frames: list[Frame] = []
        try:
            runs = self._parser.feed_runs(chunk)
        except LineTooLong as error:
            return self._end_at(error)
        for run in runs:
            values, at = run.values, 0
            end = len(values)
            while at < end:
                is_usual = run.name in ("content_block_delta", self._constant) if run.name else not self._named
                fast = self._fast if self._flows and is_usual else None
                if fast is not None and (count := fast.read(values, at, frames, self._is_plain)):
                    at += count
                    self._named += count if run.name else 0
                else:
                    self._read_event(values[at], run.name, frames)
                    at += 1
        return frames

    def _read_event(self, value: bytes, name: str, frames: list[Frame]) -> None:
        try:
            if not self._is_plain:
                check_sound(value)
            self._read(read_any_event(value), value, name, frames)
        except UNREADABLE:
            self._heal(value, name, frames)

    def expects_more(self) -> bool:
        if not self._seen and self._beginning.breaks_off:
            return True
        return self._parser.breaks_off() or any(block.is_item for block in self._open.values())

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
            frames += body_frames(self._beginning.whole(), expected="an event stream", limits=self._limits)
            return frames
        for block in self._open.values():
            if not block.is_item:
                self._release(block, frames)
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

    def _read(self, event: Event, source: bytes, name: str, frames: list[Frame]) -> None:
        """Raises one of UNREADABLE, and has then neither emitted nor changed anything: the event can be healed."""
        kind = event.type or name
        if self._is_over:
            self._read_after_end(kind, source, frames)
            return
        if not self._seen and kind == "message_start":
            self._constant = name
        if name != kind and name and name != self._constant:
            frames.append(lost("unreadable_event", name, f"its type is another: {printable(kind)}"))
        if name:
            self._named += 1
        elif self._named and kind.startswith(("content_block", "message")):  # a proxy's ping has none
            if self._named > 1:  # a server may name its first event alone
                frames.append(
                    lost("unreadable_event", printable(kind), "the events before it have names, and it has none")
                )
            self._named = 0
        match kind:
            case "content_block_delta":
                self._delta(event, source, frames)
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
                self._stop(frames)
            case "ping":
                return  # keep-alive
            case _:
                # New event types may come at any time, and a client has to skip them (API docs, versioning). An object of
                # another format does not count as a stream.
                if event.type is None:
                    return
        if not self._seen:
            self._seen = True
            self._flows = not self._is_over
            self._beginning.whole()

    def _index(self, event: Event) -> int:
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
        frames += [Mended(repair) for repair in input_repairs(fields)]
        # The output that is counted here is an estimate, unless the message has ended already.
        self._report_usage(fields.get("usage"), frames, begins=is_null(fields.get("stop_reason")))
        # Blocks that are whole before the stream begins (programmatic tool calls).
        if not is_null(fields.get("content")):
            frames += content_frames(fields["content"], prefix="start")
        self._say_end(read_finish(string_of(fields, "stop_reason")), frames)

    def _end(self, event: Event, frames: list[Frame]) -> None:
        self._report_usage(event.usage, frames)
        # Of the model that a fallback went to in the middle (anthropic-python 2.14, beta_raw_message_delta_event.py).
        frames += [Mended(repair) for repair in input_repairs({"input_transformations": event.input_transformations})]
        delta = event.delta
        if delta is not None and not says_nothing(delta.stop_reason):
            self._release_all(frames)
            self._say_end(read_finish(delta.stop_reason, explanation=explanation_of(delta.stop_details)), frames)

    def _say_end(self, end: list[Mended | Finished], frames: list[Frame]) -> None:
        self._said_end = self._said_end or bool(end)
        frames += end

    def _stop(self, frames: list[Frame]) -> None:
        self._is_over = True
        self._flows = False
        self._release_all(frames)
        if not self._said_end:
            frames.append(unsaid_finish("`message_stop`"))

    def _read_after_end(self, kind: str, source: bytes, frames: list[Frame]) -> None:
        """What follows `message_stop` is no part of the response: a proxy may have sent the stream twice. Only an error
        counts, if nothing was said about the end."""
        if kind == "error" and not self._said_end:
            self._said_end = True
            frames.append(Faulted(stream_fault(read_fields(source))))

    def _report_usage(self, raw: msgspec.Raw | None, frames: list[Frame], *, begins: bool = False) -> None:
        if raw:
            usage = self._usage.add(raw, begins=begins)
            if usage is not None:
                frames.append(UsageReported(usage))

    # --- blocks

    def _delta(self, event: Event, source: bytes, frames: list[Frame]) -> None:
        delta = event.delta
        if delta is None:
            frames.append(lost("unreadable_event", "content_block_delta", "it brings no piece"))
            return
        index = self._last_index if event.index is None else event.index
        kind = delta.type or _kind_of(delta)
        block = self._names.get(index) or (self._ended.get(index) if kind in ADDITIONS else None)
        if block is None:
            block = self._begin_unannounced(index, delta, frames)
        if (
            (key := PIECE_OF.get(kind or "")) is not None
            and getattr(delta, key) is None
            and not _says_null(source, key)
        ):
            frames.append(lost("unreadable_event", f"block {index}", f"a delta without its `{key}`"))
        match kind:
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
            case None:
                frames.append(lost("unreadable_event", f"block {index}", "a delta without a kind and a piece"))
            case _:
                return  # a delta of a kind that did not exist when this was written

    def _input(self, index: int, block: str, piece: str, frames: list[Frame]) -> None:
        opened = self._open.get(index)
        if opened is not None:
            opened.take_deltas()
            if opened.is_item:
                if has_lone_surrogate(piece):
                    frames.append(lost("lone_surrogate", f"block {index}", "half of a character in an item's input"))
                opened.pieces.append(whole_text(piece))
                return
        frames.append(ToolCallDelta(block=block, arguments=piece))

    def _compaction(self, index: int, delta: Delta) -> None:
        opened = self._open.get(index)
        told = (("content", delta.content), ("encrypted_content", delta.encrypted_content))
        sound = {key: msgspec.Raw(text_of_raw(raw)) for key, raw in told if raw}
        if opened is not None:
            opened.fields |= sound

    def _begin_unannounced(self, index: int, delta: Delta, frames: list[Frame]) -> str:
        """A block for a delta whose index has no open block. It is never the block that ended there: gateways number all
        blocks 0, and the `content_block_start` between the two may be lost."""
        if (delta.type or _kind_of(delta)) == "input_json_delta":
            # The block that ended without a piece may have ended too early.
            what = "a piece of a call came, and the call's beginning did not"
            frames.append(lost("start_missing", f"block {index}", what, reaches_ended=index in self._silent))
        return self._name(index)

    def _name(self, index: int) -> str:
        if index in self._ended:
            self._reused += 1
            name = f"{index}.{self._reused}"
        else:
            name = str(index)
        self._names[index] = name
        return name

    def _start_block(self, event: Event, frames: list[Frame]) -> None:
        found = read_fields(event.content_block)
        plain = plain_text(found)
        fields = found if plain is None else plain
        kind = string_of(fields, "type")
        citations = read_citations(fields) if kind == "text" else ()
        index = self._index(event)
        if self._is_repeated(index, fields):
            return
        if index in self._names or index in self._ended:  # some gateways number every block 0, or send no index
            frames.append(_mended("index_reused", f"block {index}", "a second block on this index taken as a new one"))
        # A call whose place is taken before its first piece and its end: the pieces that come may be either one's.
        opened = self._open.get(index)
        was_waiting = opened is not None and not opened.is_item and opened.held == ""
        mixed = lost("index_reused", f"block {index}", "a second block began in the place of an open call")
        frames += [mixed] if was_waiting else []
        if index in self._names:
            self._stop_block(index, frames)
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
                told = {key: raw.copy() for key, raw in fields.items() if key in ("id", "name")}
                opened = self._open[index] = OpenBlock(told, block=block, is_item=False)
                opened.held = arguments_of(fields) or ""
                id, name = string_of(fields, "id"), string_of(fields, "name")
                frames.append(ToolCallDelta(block=block, id=id, name=name))
                _tell_rest(fields, tool_use_keys(fields), block, frames)
                if name is None:
                    frames.append(lost("unreadable_event", f"block {index}", "a call without a name"))
                frames += [mixed] if was_waiting else []
            case _:
                held = {key: raw.copy() for key, raw in fields.items()}
                opened = self._open[index] = OpenBlock(held, block=block, is_item=True)
                if not _grows(fields):
                    self._tell_item(opened, frames)
        if plain is None:
            frames.append(lost("unreadable_event", f"block {index}", "its text cannot be read"))

    def _is_repeated(self, index: int, fields: Fields) -> bool:
        """Whether the start of a call came twice: the same id and name again, before the call's first piece."""
        opened = self._open.get(index)
        if opened is None or opened.is_item or opened.held is None or "id" not in fields:
            return False
        return opened.fields == {key: raw for key, raw in fields.items() if key in ("id", "name")}

    def _stop_block(self, index: int, frames: list[Frame]) -> None:
        name = self._names.pop(index, None)
        if name is None:
            return  # it has ended, or it has lost its start and all of its pieces
        self._ended[index] = name
        self._silent.discard(index)
        block = self._open.pop(index, None)
        if block is not None:
            if block.held == "" and not block.is_item:
                self._silent.add(index)
            self._release(block, frames)
        frames.append(BlockEnded(name))

    def _release_all(self, frames: list[Frame]) -> None:
        """Blocks that a server left without a `content_block_stop`."""
        for index in list(self._open):
            self._release(self._open.pop(index), frames)

    def _release(self, block: OpenBlock, frames: list[Frame]) -> None:
        if block.is_item:
            if block.pieces or not block.told:
                self._tell_item(block, frames)
        elif block.held:
            frames.append(ToolCallDelta(block=block.block, arguments=block.held, whole=True))
            block.held = None

    def _tell_item(self, block: OpenBlock, frames: list[Frame]) -> None:
        block.told = True
        fields = {key: bytes(raw) for key, raw in block.fields.items()}
        if block.pieces:
            pieces = "".join(block.pieces)
            try:
                read_fields(pieces)
                fields["input"] = pieces.encode()
            except UNREADABLE:
                frames.append(_mended("item_input", block.block, "input that is no JSON object left out"))
        kind = string_of(block.fields, "type") or ""
        item = ProviderItem(NAME, kind, str(write_object(fields), "utf-8"))
        frames.append(PartDone(block.block, item))

    # --- healing

    def _heal(self, payload: bytes, name: str, frames: list[Frame]) -> None:
        """Read an event that the strict decoder refused: bytes that are no UTF-8, lone surrogates, several objects in one
        event, fields of other kinds. What cannot be read is lost, unless it is noise.

        What is lost is told behind what could be read, because the block that it began may miss something too.
        """
        if self._is_over or (payload.strip() == b"[DONE]" and name not in CONTENT_EVENTS):
            return  # Chat Completions' end mark, which some gateways add; and what follows the end
        if not self._seen and not name and is_noise(payload):
            return  # no event of this format: finish() says what it was instead
        reading = read_damaged(payload)
        self._glues = self._glues or (reading.has_field and not self._seen)
        found = [fields for value in reading.values for fields in objects_in(value)]
        where = name or "event"
        if len(found) > 1:
            frames.append(_mended("glued_json", where, f"{len(found)} objects in one event taken apart"))
        elif found and not reading.is_replaced:
            frames.append(_mended("unreadable_json", where, "read with looser types"))
        damage = ""
        if reading.is_replaced:
            damage = "invalid_utf8"
        elif breaks_strings(reading):
            damage = "control_character"
        for fields in found:
            self._read_loosely(fields, name, frames, damage=damage)
        if reading.has_field and found and not self._glues:
            frames.append(lost("glued_json", where, LINE_END_LOST))
        if (reading.rest or not found) and not self._is_over:
            left = payload if is_too_long(payload) else reading.text
            left = left if name in PINGS else reading.rest or left
            self._leave_out(left, name, frames, is_json=not reading.rest and bool(reading.values))

    def _read_loosely(self, fields: dict[str, object], name: str, frames: list[Frame], *, damage: str) -> None:
        where = name or "event"
        loose = loosen(fields)
        try:
            event = decode_leniently(loose.source)
            if event.delta is not None:
                for key, piece in loose.halved.items():
                    setattr(event.delta, key, piece)
            self._read(event, loose.source, name, frames)
        except UNREADABLE:
            known = loose.type is None or name in CONTENT_EVENTS or loose.type in CONTENT_EVENTS
            if known:  # else new event types may come at any time, with fields of their own
                frames.append(lost("unreadable_event", where, f"left out: {printable(loose.source)}"))
            return
        if loose.has_whole_input and isinstance(piece := frames[-1], ToolCallDelta):
            frames[-1] = msgspec.structs.replace(piece, whole=True)
        if loose.is_torn and loose.type not in HARMLESS_EVENTS:
            frames.append(lost("lone_surrogate", where, "half of a surrogate pair became a replacement character"))
        if damage and loose.type not in HARMLESS_EVENTS:
            frames.append(lost(damage, where, DAMAGES[damage]))
        if loose.skipped:
            names = in_ticks(loose.skipped)
            frames.append(lost("unreadable_event", where, f"no text can be read from {names}"))

    def _leave_out(self, text: bytes | str, name: str, frames: list[Frame], *, is_json: bool) -> None:
        """Tell of an event that is no JSON, or no object of it. Its name may say that it was no content; not if a blank line
        before that name was lost, which leaves several lines."""
        repair = Repair("unreadable_event", name or "event", f"left out an event that is no JSON: {printable(text)}")
        if name in CONTENT_EVENTS:
            frames.append(Lost(repair))
        elif is_json or (name in HARMLESS_EVENTS | PINGS and isinstance(text, str) and _is_harmless(text, name=name)):
            frames.append(left_out(repair, ""))
            if name == "message_stop":
                self._stop(frames)
        else:
            frames.append(left_out(repair, text))


def _is_harmless(text: str, *, name: str) -> bool:
    """Whether a line is one of these events, which bring nothing, or a torn one."""
    return "\n" not in text and (name not in PINGS or is_ping(text, name=name))


def _grows(fields: Fields) -> bool:
    """Whether deltas are to come: calls by their input, a compaction by its content. All other items come whole."""
    kind = string_of(fields, "type") or ""
    return kind.endswith("_tool_use") or kind == "compaction"


def _tell_rest(fields: Fields, known: frozenset[str], block: str, frames: list[Frame]) -> None:
    opaque = opaque_from(fields, known)
    if opaque is not None:
        frames.append(BlockData(block, opaque))


def _says_null(source: bytes, key: str) -> bool:
    """Whether a delta has the field `key`, even if it is null. A delta without the field has lost it."""
    return key in read_fields(read_fields(source)["delta"])


def _kind_of(delta: Delta) -> str | None:
    """The kind of a delta that does not say it, by what it brings."""
    said = (("text", delta.text), ("input_json", delta.partial_json), ("thinking", delta.thinking))
    return next((f"{kind}_delta" for kind, piece in said if piece is not None), None)


def _mended(kind: str, where: str, what: str) -> Mended:
    return Mended(Repair(kind, where, what))
