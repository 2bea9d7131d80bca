"""The fast ways through a Chat Completions stream. `stream.py` and `chunk_reader.py` read every stream alone: read them first.

A fast way takes chunks that only bring more of what is under way, and leaves all others to the plain one. Both give the same
frames of every stream (tests/wire/test_fast_ways.py).

| way | takes | skips |
|---|---|---|
| usual | a chunk of one choice with texts, reasoning or calls under way, and nothing else | the fields that it refuses |
| alike | chunks that differ from a usual one in nothing but its piece (`wire/repeated_chunks.py`) | decoding the rest of them |
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from turnwise.vocab import Frame, ReasoningDelta, TextDelta, ToolCallDelta
from turnwise.wire.healing import is_sound
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.limits import MAX_PARTS
from turnwise.wire.long_texts import LONG_BYTES
from turnwise.wire.openai_chat.chunk_reader import ChunkReader
from turnwise.wire.repeated_chunks import Alike

MISS_COST = 4  # a chunk that is not usual costs about what four usual ones save
START = MISS_COST * 2  # chunks that count as usual from the first: looking for them has to pay
LEARN_FROM = START + 4  # a response that is over after a few chunks is not worth learning how they are written


class UsualFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class UsualCallPiece(msgspec.Struct, gc=False):
    function: UsualFunction
    index: int | None = None
    id: str | None = None
    custom: None = None
    extra_content: None = None


class UsualDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[UsualCallPiece] | None = None
    reasoning_text: None = None
    reasoning_details: None = None
    refusal: None = None
    function_call: None = None
    annotations: None = None
    executed_tools: None = None
    images: None = None


class UsualChoice(msgspec.Struct, gc=False):
    delta: UsualDelta
    index: Literal[0] = 0
    message: None = None
    finish_reason: str | None = None  # where it says something the chunk is not usual, and an exception would cost more


class UsualChunk(msgspec.Struct, gc=False):
    """A chunk of a response under way that only brings more: whatever says something else is refused, so that nothing else
    has to be looked at."""

    choices: tuple[UsualChoice]
    usage: None = None
    error: None = None
    x_groq: None = None
    citations: None = None
    search_results: None = None


decode_usual = msgspec.json.Decoder(UsualChunk).decode
"""Raises one of UNREADABLE where a chunk is not usual."""


class Rest(msgspec.Struct, frozen=True, gc=False):
    """What a usual chunk says beside its one piece of text, of reasoning or of a call."""

    frame: type[TextDelta | ReasoningDelta | ToolCallDelta]
    piece: Callable[[UsualDelta], str | None]
    index: int | None = None  # of the call

    def read(self, text: bytes) -> str | None:
        return self.piece(decode_usual(text).choices[0].delta)


class FastChunks:
    """Reads what it can of the chunks that `reader` would read."""

    __slots__ = ("_alike", "_hits", "_misses", "_reader")

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._alike: Alike[Rest] = Alike()
        self._hits = START  # chunks that were usual
        self._misses = 0

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many chunks it took, from `start` on; 0 where the next one is for the plain way.

        `is_plain`: they are ASCII without control characters.
        """
        reader = self._reader
        if not reader.goes_on:
            return 0
        is_alone = len(values) == 1  # then the whole is decoded as quickly as its piece is found
        rest = None if is_alone else self._alike.rest
        if rest is not None and (pieces := self._alike.strings(values, start=start)):
            self._take_alike(pieces, frames, rest=rest)
            return len(pieces)
        value = values[start]
        if self._misses >= self._hits or len(value) > LONG_BYTES or not (is_plain or is_sound(value)):
            return 0
        try:
            (choice,) = decode_usual(value).choices
        except UNREADABLE:
            self._misses += MISS_COST
            return 0
        if choice.finish_reason is not None:
            return 0
        self._hits += 1
        before, delta = len(frames), choice.delta
        if delta.reasoning_content or delta.reasoning:
            reader.add_reasoning(delta, frames)
        if delta.content:
            reader.note_text()
            frames.append(TextDelta(delta.content))
        if delta.tool_calls:
            reader.note_call()
            for call in delta.tool_calls[:MAX_PARTS]:
                index, id, function = call.index, call.id, call.function
                if id is None and function.name is None:
                    frames.append(ToolCallDelta(index=index, arguments=function.arguments))
                else:
                    frames.append(ToolCallDelta(index=index, id=id, name=function.name, arguments=function.arguments))
        if not is_alone and self._hits >= LEARN_FROM and len(frames) == before + 1 and self._alike.may_learn:
            self._learn(value, delta)
        return 1

    def _take_alike(self, pieces: list[str], frames: list[Frame], *, rest: Rest) -> None:
        self._hits += len(pieces)
        if rest.frame is TextDelta:
            self._reader.note_text()
            frames += map(TextDelta, pieces)
        elif rest.frame is ReasoningDelta:
            self._reader.note_reasoning()
            frames += map(ReasoningDelta, pieces)
        else:
            index = rest.index
            self._reader.note_call()
            frames += [ToolCallDelta(index=index, arguments=piece) for piece in pieces]

    def _learn(self, value: bytes, delta: UsualDelta) -> None:
        """More chunks may be like this one, which was taken."""
        if (rest := _rest_of(delta)) is not None and (piece := rest.piece(delta)):
            self._alike.learn(value, piece, rest=rest, read=rest.read)


def _content(delta: UsualDelta) -> str | None:
    return delta.content


def _reasoning_content(delta: UsualDelta) -> str | None:
    return delta.reasoning_content


def _plain_reasoning(delta: UsualDelta) -> str | None:
    return delta.reasoning


def _arguments(delta: UsualDelta) -> str | None:
    return delta.tool_calls[0].function.arguments if delta.tool_calls else None


def _rest_of(delta: UsualDelta) -> Rest | None:
    """None where the chunk brings other than one piece."""
    if bool(delta.content) + bool(delta.reasoning_content) + bool(delta.reasoning) + bool(delta.tool_calls) != 1:
        return None
    if delta.content:
        return Rest(TextDelta, _content)
    if delta.tool_calls:
        call = delta.tool_calls[0]
        is_more = len(delta.tool_calls) == 1 and call.id is None and call.function.name is None
        return Rest(ToolCallDelta, _arguments, call.index) if is_more else None
    return Rest(ReasoningDelta, _reasoning_content if delta.reasoning_content else _plain_reasoning)
