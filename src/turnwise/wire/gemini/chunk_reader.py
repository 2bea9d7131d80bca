"""Chunks of one response -> frames, as streams and bodies share them.

Gemini names no blocks, so they are counted here. Plain texts that follow each other are one block; a part with a
signature is a block of its own, because it has to go back as it came (Gemini API, "Thought signatures": do not merge a
part that has one with others).
"""

from collections.abc import Sequence
from zlib import crc32

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    Citation,
    CitationAdded,
    Faulted,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Opaque,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.endings import finish_frames, says_nothing
from turnwise.wire.gemini.chunks import (
    BEGIN,
    PLAIN,
    PLAIN_PART,
    Candidate,
    Chunk,
    FunctionCall,
    PartialArguments,
    PlainPart,
    PromptFeedback,
    call_fields,
    lost,
    mend,
    read_slowly,
)
from turnwise.wire.gemini.endings import FINISH_REASONS, UsageReader, finish_of
from turnwise.wire.gemini.faults import fault_in_stream
from turnwise.wire.gemini.parts import (
    ABOUT_PART,
    decode_citations,
    has_searched,
    is_false,
    opaque_from,
    read_fields,
    read_item,
    signature,
)
from turnwise.wire.json_fields import (
    NOTHING,
    UNREADABLE,
    check_utf8,
    compact_text,
    is_error,
    is_null,
    read_string,
    write_object,
)
from turnwise.wire.long_events import read_any
from turnwise.wire.profiles import MAX_CITATIONS, MAX_PARTS

# Chunks after the finish reason: late ones count, a stream that a proxy sent twice does not.
#
# Gemini has no end mark, and pieces do arrive after a finish reason (recorded: code that runs on the server). So a chunk there
# counts, unless the chunks from it on repeat the response from its beginning, byte for byte.


SUM_BYTES = 8
_RUN = bytes(SUM_BYTES)


class _Run:
    """Chunks that follow each other and are alike but for one string. `around` it stand the same bytes, with its quotes."""

    __slots__ = ("around", "count", "escapes", "sum")

    def __init__(self, around: tuple[bytes, bytes]) -> None:
        self.around = around
        self.count = 0
        self.sum = 0  # of the strings, one behind the other
        self.escapes = 0  # of the chunks that hold one, byte for byte: the same string may be written otherwise

    def add(self, strings: Sequence[str], texts: Sequence[bytes]) -> None:
        self.count += len(strings)
        if b"\\" in b"".join(texts):
            for text in texts:
                if b"\\" in text:
                    self.escapes = crc32(text, self.escapes)
        self.sum = crc32("\0".join([*strings, ""]).encode(), self.sum)

    def string_of(self, text: bytes) -> str | None:
        """The string of a chunk that is like those of the run; None if the text is not like that."""
        head, tail = self.around
        if not (text.startswith(head) and text.endswith(tail)):
            return None
        try:
            return read_string(text[len(head) - 1 : 1 - len(tail)])
        except UNREADABLE:
            return None

    def equals(self, other: "_Run") -> bool:
        return (self.sum, self.escapes) == (other.sum, other.escapes)


class Repeats:
    """Keeps the sums of the chunks in order, and holds back those that repeat the response until that is refuted.

    Chunks that are alike come fast, so a run of them has one sum: whether it was repeated is known at its end.
    """

    __slots__ = ("_count", "_held", "_place", "_repeated", "_runs", "_sums", "chunks")

    def __init__(self) -> None:
        self.chunks = 0  # of the response
        self._sums = bytearray()  # of single chunks, one behind the other; zeros stand for a run
        self._count = 0  # of sums
        self._runs: dict[int, _Run] = {}
        self._held: list[bytes] = []
        self._place = 0  # of the sum that the next chunk has to have ...
        self._repeated: _Run | None = None  # ... and what has come of it, if it is a run's

    def note(self, text: bytes) -> None:
        """The chunk is part of the response."""
        self.chunks += 1
        self._sums += _sum_of(text)
        self._count += 1

    def note_alike(self, strings: Sequence[str], texts: Sequence[bytes], *, around: tuple[bytes, bytes]) -> None:
        """So are these `texts`, which have the strings between the same two pieces."""
        self.chunks += len(strings)
        last = self._runs.get(self._count - 1)
        if last is None or last.around != around:
            last = self._runs[self._count] = _Run(around)
            self._sums += _RUN
            self._count += 1
        last.add(strings, texts)

    def hold(self, text: bytes) -> bool:
        """Whether the chunk repeats the response, together with those that are held; it is held then too."""
        if not self._count or not self._goes_on_with(text):
            return False
        self._held.append(text)
        if self._place == self._count:
            self.release()  # all of it was repeated; a third time may follow
        return True

    def release(self) -> list[bytes]:
        """What was held: it was no repetition."""
        held, self._held = self._held, []
        self._place, self._repeated = 0, None
        return held

    def _goes_on_with(self, text: bytes) -> bool:
        run = self._runs.get(self._place)
        if run is None:
            is_same = self._sums.startswith(_sum_of(text), self._place * SUM_BYTES)
            self._place += is_same
            return is_same
        string = run.string_of(text)
        if string is None:
            return False
        repeated = self._repeated = self._repeated or _Run(run.around)
        repeated.add([string], [text])
        if repeated.count == run.count:
            self._place, self._repeated = self._place + 1, None
            return repeated.equals(run)
        return True


def _sum_of(text: bytes) -> bytes:
    return (len(text) << 32 | crc32(text)).to_bytes(SUM_BYTES, "big")


CONTENT_KEYS = frozenset({"text", "functionCall"})
"""A part with one of these is a text or a call, whatever else it has."""
NO_ARGUMENTS = msgspec.Raw(b"{}")


class OpenCall:
    """A call whose arguments are still coming."""

    __slots__ = ("arguments", "block", "id")

    def __init__(self, block: str, *, id: str | None) -> None:
        self.block = block
        self.id = id
        self.arguments = PartialArguments()


class ChunkReader:
    """Give it each chunk's text, then call `finish`."""

    def __init__(self) -> None:
        self.chunks = 0  # that could be read
        self.started = False
        self.goes_on = True  # neither a finish reason nor an end mark came
        self.block = ""  # the plain text block that is open, if any
        self.kind = ""  # of that block
        self.call: OpenCall | None = None
        self.repeats = Repeats()
        self.usage = UsageReader()
        self._glues = False  # `data:` stands within the first chunk
        self._others = 0  # texts that are no JSON objects
        self._blocks = 0
        self._text_block: str | None = None  # the last one of text: citations go there
        self._called = False
        self._finished: Finished | None = None
        self._is_over = False  # an end mark came: nothing counts any more
        self._citations: dict[Citation, None] = {}

    @property
    def _number(self) -> int:
        """The number of the current chunk, for people."""
        return self.repeats.chunks + self._others

    def read(self, text: bytes, frames: list[Frame]) -> None:
        """Read one chunk. May raise nothing: what cannot be read is told by frames."""
        if self._is_over:
            return
        if not self.goes_on and b"{" in text:
            # Behind the finish reason: more of the response, or all of it again.
            if self.repeats.hold(text):
                return
            for held in self.repeats.release():
                self._read(held, frames)
            if self.repeats.hold(text):
                return
        self._read(text, frames)

    def finish(self) -> list[Frame]:
        """No more chunks will come: what was held until now. A call that is still open stays cut, and a text without a finish
        reason has no end of its own."""
        frames: list[Frame] = []
        self._cite(frames)
        if self._finished is not None:
            self._end_block(frames)
        self._report_usage(frames)
        if self._finished is not None and self._called and self._finished.reason is FinishReason.STOP:
            # The call came after the finish word.
            frames.append(msgspec.structs.replace(self._finished, reason=FinishReason.TOOL_CALLS))
        return frames

    def _read(self, text: bytes, frames: list[Frame]) -> None:
        if b"{" in text:
            self.repeats.note(text)
        else:  # keep-alives may come at other times when a stream is sent again
            self._others += 1
        try:
            if not text.isascii():
                check_utf8(text)  # the decoder leaves raw fields unchecked
            chunk = read_any(text, PLAIN.decode)
        except UnicodeDecodeError:
            self._mend(text, frames)
        except UNREADABLE:
            self._read_slowly(text, frames)
        else:
            self._take(chunk, frames)

    def _read_slowly(self, text: bytes, frames: list[Frame]) -> None:
        if text.strip() == b"[DONE]":  # some gateways add the end mark of another family
            self.goes_on, self._is_over = False, True
            return
        try:
            chunks = read_slowly(text)
        except UNREADABLE:
            self._mend(text, frames)
        else:
            for chunk in chunks:
                self._take(chunk, frames)

    def _mend(self, text: bytes, frames: list[Frame]) -> None:
        self._glues = self._glues or (not self.chunks and b"data:" in text)
        values, told = mend(text, where=f"chunk {self._number}", glues=self._glues)
        for at, value in enumerate(values):
            if at and not self.goes_on and values[at:] == values[: len(values) - at]:
                break  # all of it, written twice
            for chunk in read_slowly(value):
                self._take(chunk, frames)
        frames += told

    def _take(self, chunk: Chunk[PlainPart] | Chunk[msgspec.Raw], frames: list[Frame]) -> None:
        if (
            chunk.candidates is None
            and chunk.usage_metadata is NOTHING
            and chunk.response_id is None
            and chunk.prompt_feedback is None
            and chunk.error is NOTHING
        ):
            return  # nothing of Gemini's is in it
        self.chunks += 1
        if not self.started:
            self.started = True
            frames.append(Started(chunk.response_id, chunk.model_version))
        if chunk.usage_metadata is not NOTHING:
            self.usage.add(chunk.usage_metadata)
        if chunk.candidates:
            for candidate in chunk.candidates:
                if not candidate.index:  # where several answers were asked for, the first counts
                    self._take_candidate(candidate, frames)
        if chunk.prompt_feedback is not None:
            self._take_feedback(chunk.prompt_feedback, frames)
        if chunk.error is not NOTHING and is_error(chunk.error):
            frames.append(Faulted(fault_in_stream(chunk.error)))

    def _take_candidate(self, candidate: Candidate[PlainPart] | Candidate[msgspec.Raw], frames: list[Frame]) -> None:
        if candidate.content is not None:
            for part in (candidate.content.parts or ())[:MAX_PARTS]:
                if isinstance(part, PlainPart):
                    self._take_plain(part, frames, opaque=None)
                else:
                    self._take_raw(part, frames)
        if (
            candidate.grounding_metadata is not NOTHING
            or candidate.citation_metadata is not NOTHING
            or candidate.url_context_metadata is not NOTHING
        ):
            found = decode_citations(
                candidate.grounding_metadata, candidate.citation_metadata, candidate.url_context_metadata
            )
            self._citations.update(dict.fromkeys(found[: MAX_CITATIONS - len(self._citations)]))
            if candidate.grounding_metadata is not NOTHING and has_searched(candidate.grounding_metadata):
                self.usage.note_searches()
        word = None if candidate.finish_reason is None else str(candidate.finish_reason)
        if word is not None and not says_nothing(word):
            reason = finish_of(word, called=self._called)
            finished = Finished(reason, word, explanation=candidate.finish_message)
            frames += finish_frames(finished, own=FINISH_REASONS)[:-1]
            self._finish_with(finished, frames)

    def _take_feedback(self, feedback: PromptFeedback, frames: list[Frame]) -> None:
        """The prompt was refused. Nothing else follows."""
        if feedback.block_reason is not None:
            finished = Finished(
                FinishReason.CONTENT_FILTER, str(feedback.block_reason), explanation=feedback.block_reason_message
            )
            self._finish_with(finished, frames)

    def _finish_with(self, finished: Finished, frames: list[Frame]) -> None:
        self._cite(frames)
        self._report_usage(frames)
        self._finished = finished
        self.goes_on = False
        frames.append(finished)

    def _take_raw(self, raw: msgspec.Raw, frames: list[Frame]) -> None:
        """A part that the fast path does not know, or one in a chunk with such a part."""
        item: Part | None = None
        opaque: Opaque | None = None
        plain = PlainPart()
        is_strange = False
        try:
            fields = {key: value for key, value in read_fields(raw).items() if key != "thought" or not is_false(value)}
            if set(fields) - ABOUT_PART and not fields.keys() & CONTENT_KEYS:
                item = read_item(raw, fields)
            else:
                if "functionCall" in fields:
                    fields["functionCall"], is_strange = call_fields(fields["functionCall"])
                known = CONTENT_KEYS | {"thought"}
                read = write_object({key: fields[key] for key in known & fields.keys()})
                plain = read_any(read, PLAIN_PART.decode)
                opaque = opaque_from(fields, known=known)
        except UNREADABLE as error:
            frames.append(lost("undecodable_chunk", f"chunk {self._number}", f"passed over a part: {error}"))
            return
        if item is None:
            self._take_plain(plain, frames, opaque=opaque)
            if is_strange:
                why = "a call without arguments has fields that are not known"
                frames.append(lost("undecodable_chunk", f"chunk {self._number}", why))
        else:
            self._end_block(frames)
            block = self._next_block()
            frames += [PartDone(block, item), BlockEnded(block)]

    def _take_plain(self, part: PlainPart, frames: list[Frame], *, opaque: Opaque | None) -> None:
        if part.thought_signature is not None:
            opaque = signature(part.thought_signature)
        if part.function_call is not None:
            self._take_call(part.function_call, frames, opaque=opaque)
        elif part.text is None:
            if opaque is not None:  # a signature alone: it belongs to an empty text
                self._take_signed("", thought=bool(part.thought), opaque=opaque, frames=frames)
        elif opaque is not None:
            self._take_signed(part.text, thought=bool(part.thought), opaque=opaque, frames=frames)
        elif part.text:
            kind = "reasoning" if part.thought else "text"
            if kind != self.kind:
                self._end_block(frames)
                self.kind = kind
                self.block = self._next_block()
                if kind == "text":
                    self._text_block = self.block
            if kind == "text":
                frames.append(TextDelta(part.text, self.block))
            else:
                frames.append(ReasoningDelta(part.text, self.block))

    def _take_signed(self, text: str, *, thought: bool, opaque: Opaque, frames: list[Frame]) -> None:
        self._end_block(frames)
        self.kind = "signed"
        self.block = block = self._next_block()
        if not thought:
            self._text_block = block
        if text:
            frames += [ReasoningDelta(text, block) if thought else TextDelta(text, block), BlockData(block, opaque)]
        else:
            frames.append(PartDone(block, Reasoning("", opaque) if thought else Text("", opaque=opaque)))

    def _take_call(self, call: FunctionCall, frames: list[Frame], *, opaque: Opaque | None) -> None:
        running, is_new = self.call, False
        # A name begins a call, unless it comes with the id of the one that is running.
        if running is None or (call.name and not (call.id and call.id == running.id)):
            if not call.name and not call.args and not call.partial_args:
                return  # the end of a call that has ended already
            if running is not None:
                why = "a call begins, and the end of the one before did not come"
                frames.append(Lost(Repair("call_without_end", f"chunk {self._number}", why)))
            self._end_block(frames)
            self._called = True
            self.call = running = OpenCall(self._next_block(), id=call.id)
            is_new = True
            begun = BEGIN if call.will_continue or call.partial_args else None
            frames.append(ToolCallDelta(block=running.block, id=call.id, name=call.name, arguments=begun))
        if opaque is not None:
            frames.append(BlockData(running.block, opaque))
        if call.partial_args:
            text = "".join([running.arguments.add(piece) for piece in call.partial_args])
            if text:
                frames.append(ToolCallDelta(block=running.block, arguments=text))
        if not call.will_continue:
            # Without `args` the call has no arguments, unless they came in pieces.
            is_empty = is_new and not call.partial_args
            none = NO_ARGUMENTS if is_empty else NOTHING
            self._end_call(running, frames, args=none if is_null(call.args) else call.args)

    def _end_call(self, call: OpenCall, frames: list[Frame], *, args: msgspec.Raw) -> None:
        self.call = None
        block = call.block
        if args:
            # Compact, because a body is indented and a stream is not, and both have to say the same.
            frames.append(ToolCallDelta(block=block, arguments=compact_text(args), whole=True))
        elif (rest := call.arguments.end()) is None:
            why = f"the arguments of a call stay cut: {call.arguments.broken}"
            frames.append(Lost(Repair("unreadable_argument", f"chunk {self._number}", why)))
        else:
            frames.append(ToolCallDelta(block=block, arguments=rest, whole=call.arguments.reordered))
        frames.append(BlockEnded(block))

    def _next_block(self) -> str:
        self._blocks += 1
        return f"part-{self._blocks}"

    def _end_block(self, frames: list[Frame]) -> None:
        if self.kind:
            frames.append(BlockEnded(self.block))
            self.kind = ""

    def _cite(self, frames: list[Frame]) -> None:
        """Sources stand beside the parts, not in one: they go to the last text."""
        if not self._citations:
            return
        if self._text_block is None:
            self._text_block = self._next_block()
            frames.append(TextDelta("", self._text_block))
        frames += [CitationAdded(self._text_block, citation) for citation in self._citations]
        self._citations.clear()

    def _report_usage(self, frames: list[Frame]) -> None:
        usage = self.usage.report()
        if usage is not None:
            frames.append(UsageReported(usage))
