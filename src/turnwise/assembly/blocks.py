"""One part while it is being put together."""

from enum import Enum
from typing import assert_never

import msgspec

from turnwise.assembly.heal import is_wide
from turnwise.assembly.tool_calls import OpenCall
from turnwise.vocab import (
    Citation,
    File,
    Frame,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)


class BlockKind(Enum):
    """What a block holds. `UNKNOWN` until the first piece tells; `WHOLE` are parts that come only as a whole."""

    UNKNOWN = "unknown"
    TEXT = "text"
    REASONING = "reasoning"
    REFUSAL = "refusal"
    CALL = "call"
    WHOLE = "whole"

    @staticmethod
    def of(part: Part) -> "BlockKind":
        match part:
            case Text():
                return BlockKind.TEXT
            case Reasoning():
                return BlockKind.REASONING
            case Refusal():
                return BlockKind.REFUSAL
            case ToolCall():
                return BlockKind.CALL
            case File() | ToolResult() | ProviderItem():
                return BlockKind.WHOLE
            case _:
                assert_never(part)


TEXT_KINDS: dict[type[Frame], BlockKind] = {
    TextDelta: BlockKind.TEXT,
    ReasoningDelta: BlockKind.REASONING,
    RefusalDelta: BlockKind.REFUSAL,
}


class OpenBlock:
    """The pieces of one part, joined once at the end. `final` is the provider's own form of it."""

    __slots__ = ("call", "citations", "ended", "final", "half", "key", "kind", "opaques", "pieces")

    def __init__(self, *, key: str, kind: BlockKind) -> None:
        self.key = key
        self.kind = kind
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.opaques: list[Opaque] = []
        self.call: OpenCall | None = None
        self.half = ""  # the first half of a character whose second has yet to come
        self.final: Part | None = None
        self.ended = False

    @property
    def has_words(self) -> bool:
        """Whether it holds anything but empty pieces."""
        if isinstance(self.final, Text | Reasoning | Refusal):
            return bool(self.final.text)
        return any(self.pieces)

    def take_final(self, part: Part) -> bool:
        """Take the provider's own form; returns whether it differs from what the pieces said."""
        had = self._joined()
        self.final = part
        self.kind = BlockKind.of(part)
        self.pieces = []
        match part:
            case Text(citations=citations):
                self.citations = list(citations) or self.citations
                self._take_opaque(part.opaque)
                return bool(had) and had != part.text
            case Reasoning() | Refusal():
                self._take_opaque(part.opaque)
                return bool(had) and had != part.text
            case File() | ToolCall() | ToolResult() | ProviderItem():
                return bool(had)
            case _:
                assert_never(part)

    def take_final_call(self, part: ToolCall) -> None:
        self.final = part
        self._take_opaque(part.opaque)

    def _joined(self) -> str:
        """The pieces as one, which is kept in their place: else a long text would be there twice."""
        if len(self.pieces) != 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0]

    def _take_opaque(self, opaque: Opaque | None) -> None:
        if opaque is not None:
            self.opaques = [opaque]

    def opaque(self) -> Opaque | None:
        """What came with `BlockData`, later keys over earlier ones. Values are not read, so they stay as they came."""
        opaques = self.opaques
        if len(opaques) < 2:
            return opaques[0] if opaques else None
        merged: dict[str, msgspec.Raw] = {}
        for opaque in opaques:
            merged.update(msgspec.json.decode(opaque.json, type=dict[str, msgspec.Raw]))
        return Opaque(opaques[-1].family, msgspec.json.encode(merged).decode())

    def part(self) -> Part | None:
        """The whole part; None where nothing came that is worth keeping."""
        final = self.final
        text = final.text if isinstance(final, Text | Reasoning | Refusal) else self._joined()
        opaque = self.opaque()
        match self.kind:
            case BlockKind.WHOLE | BlockKind.CALL:
                return final
            case BlockKind.REASONING:
                return Reasoning(text, opaque) if text or opaque else None
            case BlockKind.REFUSAL:
                return Refusal(text, opaque) if text or opaque else None
            case BlockKind.TEXT:
                citations = tuple(self.citations)
                return Text(text, citations, opaque) if text or opaque or citations else None
            case BlockKind.UNKNOWN:
                if opaque is None:
                    return None
                return Reasoning("", opaque) if self.key.startswith("reasoning") else Text("", (), opaque)
            case _:
                assert_never(self.kind)


def size_of(part: Part) -> int:
    """Bytes that a part holds, arguments of calls aside (their text counts them); texts by their characters."""
    opaque = 0 if isinstance(part, ProviderItem) or part.opaque is None else len(part.opaque.json)
    match part:
        case Text(citations=citations):
            return opaque + len(part.text) + sum([len(citation.raw) for citation in citations])
        case Reasoning() | Refusal():
            return opaque + len(part.text)
        case ProviderItem():
            return len(part.json)
        case File():
            return opaque + len(part.data or b"")
        case ToolCall() | ToolResult():
            return opaque
        case _:
            assert_never(part)


# The calls that pieces go to at the moment.


class CallAtHand:
    """The call that the last piece without a block went to, and the index that the piece stood on. `call` is None where the next
    such piece must be placed from the start."""

    __slots__ = ("block", "call", "index")

    def __init__(self) -> None:
        self.block: OpenBlock | None = None
        self.call: OpenCall | None = None
        self.index: int | None = None

    def take(self, block: OpenBlock, call: OpenCall, *, index: int | None) -> None:
        self.block = block
        self.call = call
        self.index = index

    def leave(self) -> None:
        self.block = self.call = self.index = None


class WrittenCalls:
    """Which calls were written to: `last` of all, and those since watchers were shown how the calls stand. `touched` is the same
    as `last` if it is among these."""

    __slots__ = ("_since", "last", "touched")

    def __init__(self) -> None:
        self.last: OpenBlock | None = None
        self.touched: OpenBlock | None = None
        self._since: dict[str, OpenCall] = {}

    def touch(self, block: OpenBlock, call: OpenCall) -> None:
        """The call is being written to."""
        self.last = self.touched = block
        self._since[block.key] = call

    def release(self, key: str) -> None:
        """Watchers were shown how the call of this block stands."""
        self._since.pop(key, None)
        self.touched = None

    def release_all(self) -> dict[str, OpenCall]:
        """Watchers are about to be shown how these calls stand, by block."""
        since, self._since = self._since, {}
        self.touched = None
        return since


# How much of one response is held, and how much may be.


class ResponseSize:
    """Counts the bytes that are kept of one response. `is_full` turns true at a limit: nothing more is kept then."""

    __slots__ = ("_held_bytes", "_is_wide", "is_full", "limit_bytes")

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.is_full = False
        self._held_bytes = 0
        self._is_wide = False  # a text came that takes four bytes for each character

    def grow(self, size: int) -> bool:
        """Count bytes that were kept; false once the response is past its limit."""
        held = self._held_bytes = self._held_bytes + size
        return held <= self.limit_bytes and not self.is_full

    def grow_if_it_fits(self, text: str, *, size: int) -> bool:
        """Count a text of so many bytes; false, and nothing is counted, where a part of it is past the limit."""
        limit = self.limit_bytes
        widens = size != len(text) and not self._is_wide and is_wide(text)
        if widens:
            limit //= 2
        if self.is_full or self._held_bytes + size > limit:
            return False
        self._is_wide, self.limit_bytes = self._is_wide or widens, limit
        self._held_bytes += size
        return True

    def fill(self) -> None:
        """A limit was passed."""
        self.is_full = True

    def see_width(self, text: str) -> None:
        """One character outside of the basic plane makes Python keep all of a text with four bytes for each: then half as
        many bytes are kept, so that no response takes more than three times its limit."""
        if not self._is_wide and is_wide(text):
            self._is_wide = True
            self.limit_bytes //= 2
