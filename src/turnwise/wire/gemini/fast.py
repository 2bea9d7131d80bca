"""The fast ways through a stream of Gemini's. `chunk_reader.py` reads every chunk alone: read it first.

A fast way takes chunks that only bring more of what is under way, and leaves all others to the plain one. Both give the same
frames of every stream (tests/wire/test_fast_ways.py).

| way | takes | skips |
|---|---|---|
| usual | a chunk of one part with more of the text or call under way, and usage | the fields that it refuses |
| alike | chunks that differ from a usual one in nothing but its piece (`wire/repeated_chunks.py`) | decoding the rest of them |
"""

from typing import Literal

import msgspec

from turnwise.vocab import Frame, ReasoningDelta, TextDelta, ToolCallDelta
from turnwise.wire.gemini.chunk_reader import ChunkReader
from turnwise.wire.gemini.chunks import PartialArg
from turnwise.wire.healing import check_utf8
from turnwise.wire.json_fields import NOTHING, UNREADABLE
from turnwise.wire.long_texts import LONG_BYTES
from turnwise.wire.repeated_chunks import Alike

MISS_COST = 4  # a chunk that is not usual costs about what four usual ones save
START = MISS_COST * 2  # chunks that count as usual from the first: looking for them has to pay
LEARN_FROM = START + 4  # a response that is over after a few chunks is not worth learning how they are written


class UsualCall(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """More of the call at hand."""

    partial_args: list[PartialArg]
    will_continue: Literal[True]


class UsualPart(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    text: str | None = None
    thought: bool | None = None
    function_call: UsualCall | None = None


class UsualContent(msgspec.Struct, gc=False):
    parts: tuple[UsualPart]


class UsualCandidate(msgspec.Struct, rename="camel", gc=False):
    content: UsualContent
    index: Literal[0] = 0
    finish_reason: None = None
    grounding_metadata: None = None
    citation_metadata: None = None
    url_context_metadata: None = None


class UsualChunk(msgspec.Struct, rename="camel", gc=False):
    """A chunk that only goes on: whatever says more is refused, so nothing else has to be looked at."""

    candidates: tuple[UsualCandidate]
    usage_metadata: msgspec.Raw = NOTHING
    prompt_feedback: None = None
    error: None = None


decode_usual = msgspec.json.Decoder(UsualChunk).decode
"""Raises one of UNREADABLE where a chunk is not usual."""


class Rest(msgspec.Struct, frozen=True, gc=False):
    """What a usual chunk says beside its piece of a text or of an argument."""

    kind: str  # "text", "reasoning", "call"
    usage: msgspec.Raw | None  # where it counts something
    path: str = ""  # of the argument
    continues: bool = False  # more of its value was announced


class FastChunks:
    """Reads what it can of the chunks that `reader` would read."""

    __slots__ = ("_alike", "_hits", "_misses", "_reader")

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._alike: Alike[Rest] = Alike()
        self._hits = START  # chunks that were usual
        self._misses = 0

    def read(self, texts: list[bytes], start: int, frames: list[Frame]) -> int:
        """How many chunks it took, from `start` on; 0 where the next one is for the plain way."""
        reader = self._reader
        if not (reader.started and reader.goes_on):
            return 0
        is_alone = len(texts) == 1  # then the whole is decoded as quickly as its piece is found
        rest = None if is_alone else self._alike.rest
        if rest is not None and (count := self._read_alike(texts, start, frames, rest=rest)):
            return count
        text = texts[start]
        if self._misses >= self._hits or len(text) > LONG_BYTES:
            return 0
        try:
            if not text.isascii():
                check_utf8(text)
            chunk = decode_usual(text)
        except UNREADABLE:
            self._misses += MISS_COST
            return 0
        part = chunk.candidates[0].content.parts[0]
        call = part.function_call
        if call is not None:
            running = reader.call
            if running is None or len(call.partial_args) != 1:
                return 0
            if value := running.arguments.add(call.partial_args[0]):
                frames.append(ToolCallDelta(block=running.block, arguments=value))
        elif part.text and reader.kind == "text" and not part.thought:
            frames.append(TextDelta(part.text, reader.block))
        elif part.text and reader.kind == "reasoning" and part.thought:
            frames.append(ReasoningDelta(part.text, reader.block))
        else:
            return 0
        self._hits += 1
        usage = None
        if chunk.usage_metadata is not NOTHING and reader.usage.add(chunk.usage_metadata):
            usage = chunk.usage_metadata
        if not is_alone and self._hits >= LEARN_FROM and self._alike.may_learn:
            self._learn(part, text, usage=usage)
        reader.repeats.note(text)
        return 1

    def _read_alike(self, texts: list[bytes], start: int, frames: list[Frame], *, rest: Rest) -> int:
        """Read the chunks that differ from the one that was learned in nothing but their piece; returns how many were."""
        reader, call = self._reader, self._reader.call
        if rest.kind == "call":
            if call is None or not call.arguments.is_in_string(rest.path):
                return 0
            if strings := self._alike.strings(texts, start=start):
                block, values = call.block, call.arguments.add_strings(strings, continues=rest.continues)
                frames += [ToolCallDelta(block=block, arguments=value) for value in values]
        elif rest.kind != reader.kind:
            return 0
        else:
            strings, block = self._alike.strings(texts, start=start), reader.block
            if rest.kind == "text":
                frames += [TextDelta(string, block) for string in strings]
            else:
                frames += [ReasoningDelta(string, block) for string in strings]
        if strings:
            reader.repeats.note_alike(strings, texts[start : start + len(strings)], around=self._alike.around)
            if rest.usage is not None:
                reader.usage.add(rest.usage)
        self._hits += len(strings)
        return len(strings)

    def _learn(self, part: UsualPart, text: bytes, *, usage: msgspec.Raw | None) -> None:
        """More chunks may be like this one, which was taken."""
        call, running = part.function_call, self._reader.call
        if call is None:
            if part.text:
                self._alike.learn(text, part.text, rest=Rest(self._reader.kind, usage), read=_piece_of_text)
        elif running is not None:
            piece = call.partial_args[0]
            if piece.string_value and running.arguments.is_in_string(piece.json_path):
                rest = Rest("call", usage, piece.json_path, bool(piece.will_continue))
                self._alike.learn(text, piece.string_value, rest=rest, read=_piece_of_call)


def _piece_of_text(text: bytes) -> str | None:
    return decode_usual(text).candidates[0].content.parts[0].text


def _piece_of_call(text: bytes) -> str | None:
    call = decode_usual(text).candidates[0].content.parts[0].function_call
    return None if call is None else call.partial_args[0].string_value
