"""Which delta belongs to which call, where the wire does not say it (Chat Completions).

A delta names its call by index, by id, by both, by neither, or wrongly; the rules stand in `CallTable.place`, one method
for each thing that a delta may bring. The offered tool names are given to it: they decide whether a second name
repeats, continues or begins. Nothing here reads a clock or guesses by position in time beyond 'the newest' and 'the last'.
"""

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import assert_never

import msgspec

from turnwise.assembly.argument_text import SPACE, ArgumentText
from turnwise.assembly.json_text import is_wide, repair
from turnwise.vocab import (
    LONG_ARGUMENTS,
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
    Repair,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
)

MAX_NAME_CHARS = 4096  # providers stop at 64 to 256; past this a name is no name


class NameReading(Enum):
    """What a second name for the current call means."""

    SAME = auto()  # the name once more
    MORE = auto()  # its continuation
    GROWN = auto()  # all of it so far, and more
    OTHER = auto()  # another tool


def read_name(name: str, *, after: str, tool_names: frozenset[str]) -> NameReading:
    """Judge `name` where `after` had come before; the offered names decide where two readings are possible."""
    joined = after + name
    if name == after:
        doubled = joined in tool_names and after not in tool_names
        return NameReading.MORE if doubled else NameReading.SAME
    if joined in tool_names and not (name in tool_names and after in tool_names):
        return NameReading.MORE
    if name in tool_names:
        return NameReading.GROWN if name.startswith(after) and after not in tool_names else NameReading.OTHER
    if any(offered.startswith(joined) for offered in tool_names):
        return NameReading.MORE
    if name.startswith(after):
        return NameReading.GROWN
    return NameReading.OTHER if after in tool_names else NameReading.MORE


class OpenCall:
    """One call while it is being put together. `id` is the one it will have; `wire_id` what the provider named it."""

    __slots__ = (
        "_kinds",
        "announced",
        "block",
        "free_form",
        "guessed",
        "half",
        "id",
        "index",
        "is_long",
        "name",
        "ordinal",
        "placed",
        "ready",
        "releases",
        "shown",
        "text",
        "twin",
        "wire_id",
    )

    def __init__(self, *, block: str, ordinal: int, index: int | None, kinds: dict[str, None]) -> None:
        """`kinds` as `ArgumentText` has it."""
        self.block = block
        self.ordinal = ordinal
        self.index = index
        self.guessed = False  # after a loss it took a piece that may be another call's
        self.placed = False  # its wire names no blocks: the table finds the call of each piece
        self.id: str | None = None
        self.wire_id: str | None = None
        self.twin: OpenCall | None = None  # the first call of the response with this id
        self.name = ""
        self.text = ArgumentText(kinds=kinds)
        self._kinds = kinds
        self.free_form = False
        self.is_long = False  # past its limit: nothing of its arguments is kept
        self.releases = 0  # times it was looked at for those who watch
        self.half = ""  # the first half of a character whose second has yet to come
        self.ready = False  # to be shown once a newer one is: a name may have come
        self.announced = False  # those who watch know its id and name ...
        self.shown: ToolCall | tuple[str, str] | None = None  # ... and these they are, or its whole form

    def take_final(self, part: ToolCall, *, raw: bool) -> None:
        """Take the provider's own form in place of the pieces. `raw`: pieces of its text had come, so a cut would show."""
        self.name = part.name or self.name
        self.free_form = part.free_form
        self.text = ArgumentText(kinds=self._kinds)
        if part.free_form:
            self.text.add_free(part.arguments)
        else:
            self.text.add(part.arguments)
        self.text.release()
        self.text.handed_out = not raw

    def drop_text(self) -> None:
        """The arguments are past their limit: something short stands for them."""
        self.is_long, self.half = True, ""
        self.text = ArgumentText(kinds=self._kinds)
        self.text.add(LONG_ARGUMENTS)

    def more(self, arguments: str) -> ToolCallDelta:
        """How more of its arguments is shown."""
        return ToolCallDelta(block=self.block, arguments=arguments, free_form=self.free_form)


class CallTable:
    """The calls of one response in the order in which they began."""

    def __init__(
        self, *, tool_names: frozenset[str], taken_ids: frozenset[str], id_prefix: str, kinds: dict[str, None]
    ) -> None:
        """`kinds`: of all repairs of the response."""
        self._kinds = kinds
        self.calls: list[OpenCall] = []
        self.repairs: dict[tuple[str, str], Repair] = {}
        self._tool_names = tool_names
        self._taken_ids = taken_ids  # as many as the session has calls: not copied for each response
        self._used_ids: set[str] = set()
        self._id_prefix = id_prefix
        self._taken_numbers = range(0)  # no id with one of these is free
        self._by_id: dict[str, OpenCall] = {}
        self._by_index: dict[int, OpenCall] = {}
        self._last: OpenCall | None = None
        self._wary = False  # pieces are lost ...
        self._names_come_once = False  # ... and one came since that has no name
        self._bare: dict[OpenCall, None] = {}  # began without an index, to be placed
        self._counted = False  # an index found one of several such calls by the order in which they began ...
        self._count_fails = False  # ... and an index came that no call in that order has

    def place(self, delta: ToolCallDelta) -> OpenCall | None:
        """The call that the delta belongs to; None where it begins one."""
        if not self.calls:
            return None
        call = self._by_delta_id(delta) if delta.id else self._by_position(delta)
        if self._wary:
            self._look_closely(delta, call)
        if call is not None and delta.index is not None and call.index is None:
            call.index = delta.index
            other = self._by_index.get(delta.index)
            if other is None or other.ordinal < call.ordinal:  # bare pieces go to the newest call on their index
                self._by_index[delta.index] = call
        self._last = call
        return call

    def lose(self) -> None:
        """The beginning of a call may not have arrived: from now on, note which pieces are placed by guess."""
        self._wary = True

    def _look_closely(self, delta: ToolCallDelta, call: OpenCall | None) -> None:
        self._names_come_once = self._names_come_once or bool(delta.arguments and not delta.name)
        if call is not None and (_names_another(delta, call) or (delta.name and not call.name)):
            call.guessed = True

    def shows_beginning(self, call: OpenCall) -> bool:
        """Whether the call's name stands where the call begins, and lacks nothing itself: some servers say the name with
        each piece, some in several pieces."""
        name = call.name
        return self._names_come_once and not any(
            offered.endswith(name) and offered != name for offered in self._tool_names
        )

    def begin(self, *, block: str, index: int | None = None) -> OpenCall:
        call = OpenCall(block=block, ordinal=len(self.calls), index=index, kinds=self._kinds)
        self.calls.append(call)
        self._last = call
        if index is not None:
            self._by_index[index] = call
        return call

    def note_bare(self, call: OpenCall) -> None:
        """The call began without an index, on a wire that may give one later."""
        self._bare[call] = None

    def newest_on(self, index: int | None) -> OpenCall | None:
        """The call that a piece without id and name on this index goes to."""
        return self._last if index is None else self._by_index.get(index)

    def name_call(self, call: OpenCall, *, id: str | None, name: str | None) -> None:
        """Take the id and the name that a delta brings for its call."""
        if id:
            self._take_id(call, id)
        if name:
            self._take_name(call, name)

    def settle_id(self, call: OpenCall) -> str:
        """The call's id; a generated one where none came."""
        if call.id is None:
            call.id = self._free_id(call)
            self.record("id_missing", call)
        return call.id

    def record(self, kind: str, call: OpenCall, *, what: str = "") -> None:
        """Note a repair, once for each call."""
        if (kind, call.block) not in self.repairs:
            self.repairs[kind, call.block] = repair(kind, where=call.block, what=what)
            self._kinds[kind] = None

    def drop(self, repeated: Collection[OpenCall]) -> None:
        """These calls only said again what others say: nothing else is told about them."""
        if not repeated:
            return
        blocks = {call.block for call in repeated}
        self.repairs = {key: found for key, found in self.repairs.items() if key[1] not in blocks}
        for call in self.calls:
            if call in repeated:
                call.text.repairs.clear()
                self.record("same_call_twice", call)

    def is_doubtful(self, call: OpenCall) -> bool:
        """Whether its arguments may be another call's: indexes had to be counted, yet do not count as we do."""
        if call.name and call not in self._bare:
            return False
        return self._count_fails or (self._counted and 0 not in self._by_index)

    def name_is_settled(self, call: OpenCall) -> bool:
        """Whether no further piece can change the name: it is on offer and no longer one begins with it."""
        name = call.name
        if name not in self._tool_names:
            return False
        return len(self._tool_names) == 1 or not any(
            offered.startswith(name) and offered != name for offered in self._tool_names
        )

    def _by_delta_id(self, delta: ToolCallDelta) -> OpenCall | None:
        assert delta.id
        known = self._by_id.get(delta.id)
        if known is None:
            return self._by_new_id(delta)
        if delta.index is not None and known.index is not None and known.index != delta.index:
            other = self._by_index.get(delta.index)
            if other is not None and other.wire_id == delta.id:
                return other  # the second of two calls with one id
            return None if delta.name else known
        if delta.name and known.name and known.text.begun:
            reading = read_name(delta.name, after=known.name, tool_names=self._tool_names)
            if reading is not NameReading.SAME and known.text.is_whole():
                return None
        return known

    def _by_new_id(self, delta: ToolCallDelta) -> OpenCall | None:
        """An id that has not been seen: a new call, a call's late id, or one call whose id changes all the time."""
        call = self._by_index.get(delta.index) if delta.index is not None else self._last
        if call is None:
            return self._without_index(delta) or self._strayed(delta)
        arguments = delta.arguments or ""
        if call.wire_id is None:
            late = not delta.name or not call.name or (delta.name == call.name and not call.text.is_whole())
            return call if late else None
        if not delta.name:
            if call.text.is_whole() and not arguments:
                return None  # nothing but an id: a call begins
            self.record("id_churn", call)
            return call
        if not call.name:
            return None
        reading = read_name(delta.name, after=call.name, tool_names=self._tool_names)
        if reading is NameReading.OTHER:
            return None
        if call.text.begun:
            goes_on = reading is NameReading.SAME and bool(arguments) and not call.text.is_whole()
            goes_on = goes_on and call.text.continues(arguments)
        else:
            goes_on = reading is NameReading.MORE and delta.name not in self._tool_names and bool(self._tool_names)
        if goes_on:
            self.record("id_churn", call)
        return call if goes_on else None

    def _without_index(self, delta: ToolCallDelta) -> OpenCall | None:
        """The index is new. A call that began without one may get it now: of several the one that it counts."""
        index = delta.index
        if index is None or not self._bare:
            return None
        several = len(self._bare) > 1
        call = self._counted_as(index) if several else self._last
        if call is None or call.index is not None:
            self._count_fails = self._count_fails or (several and not delta.name and not delta.id)
            return None
        named_anew = delta.name and call.name and (delta.name != call.name or call.text.begun)
        if named_anew or (delta.id and call.wire_id):
            return None
        self._counted = self._counted or several
        return call

    def _counted_as(self, index: int) -> OpenCall | None:
        """The call that is this one in the order in which they began, if it began without an index."""
        call = self.calls[index] if 0 <= index < len(self.calls) else None
        return call if call in self._bare else None

    def _by_position(self, delta: ToolCallDelta) -> OpenCall | None:
        """No id: the index tells, else the current call; a name may begin another."""
        if delta.index is not None:
            call = self._by_index.get(delta.index)
            if call is None:
                return self._without_index(delta) or self._strayed(delta)
        else:
            call = self._last
        if call is None or not delta.name or not call.name:
            return call
        return call if self._same_by_name(call, delta.name, arguments=delta.arguments or "") else None

    def _strayed(self, delta: ToolCallDelta) -> OpenCall | None:
        """A nameless piece of arguments with an index of its own is no call: it continues the current call, unless another
        call also waits for the rest of its arguments."""
        last = self._last
        if last is None or delta.name or not delta.arguments or delta.whole or self._count_fails:
            return None
        before = self.calls[last.ordinal - 1].text if last.ordinal else None
        if last.text.begun:
            if last.text.is_whole() or not last.text.continues(delta.arguments):
                return None
            free = before is None or not before.begun or before.is_whole()
        else:
            free = bool(delta.id) and bool(last.name) and (before is None or before.is_whole())
        if not free or last is not self.calls[-1]:
            return None
        self.record("id_churn" if delta.id else "index_strayed", last)
        return last

    def _same_by_name(self, call: OpenCall, name: str, *, arguments: str) -> bool:
        reading = read_name(name, after=call.name, tool_names=self._tool_names)
        if reading is NameReading.OTHER:
            return False
        if not call.text.begun:
            return True
        if not call.text.is_whole():
            return reading is NameReading.SAME or arguments.lstrip(SPACE)[:1] != "{"
        return reading is NameReading.SAME and (not arguments or call.text.repeats(arguments))

    def _take_id(self, call: OpenCall, id: str) -> None:
        if call.wire_id is not None:
            return
        call.wire_id = id
        before = self._by_id.get(id)
        call.twin = None if before is None else before.twin or before
        self._by_id[id] = call  # of two calls with one id, later pieces mean the newer
        if not self._is_taken(id):
            call.id = id
            self._used_ids.add(id)
        elif call.id is None:
            call.id = self._free_id(call)
            self.record("id_twice", call, what=f"the id `{id[:64]}` was taken already; the call got `{call.id}`")

    def _free_id(self, call: OpenCall) -> str:
        begin = number = call.ordinal
        if number in self._taken_numbers:
            begin, number = self._taken_numbers.start, self._taken_numbers.stop
        while self._is_taken(f"{self._id_prefix}_{number}"):
            number += 1
        self._taken_numbers = range(begin, number + 1)
        id = f"{self._id_prefix}_{number}"
        self._used_ids.add(id)
        return id

    def _is_taken(self, id: str) -> bool:
        return id in self._used_ids or id in self._taken_ids

    def _take_name(self, call: OpenCall, name: str) -> None:
        if not call.name:
            call.name = name[:MAX_NAME_CHARS]
            return
        match read_name(name, after=call.name, tool_names=self._tool_names):
            case NameReading.SAME:
                self.record("name_repeated", call)
            case NameReading.MORE:
                call.name = (call.name + name)[:MAX_NAME_CHARS]
                self.record("name_joined", call)
            case NameReading.GROWN:
                call.name = name[:MAX_NAME_CHARS]
                self.record("name_grown", call)
            case NameReading.OTHER if name.startswith(call.name):
                call.name = name[:MAX_NAME_CHARS]
                self.record("name_grown", call)
            case NameReading.OTHER:
                self.record("name_conflict", call)


def _names_another(delta: ToolCallDelta, call: OpenCall) -> bool:
    """Whether the delta bears an id or an index that is not the call's own."""
    return (bool(delta.id) and delta.id != call.wire_id) or (delta.index is not None and delta.index != call.index)


def all_repairs(table: CallTable, *, others: Iterable[Repair]) -> tuple[Repair, ...]:
    """What was mended, once each: what others recorded, then calls and their texts in order."""
    found = dict.fromkeys(others)
    if table.repairs:
        found.update(dict.fromkeys(table.repairs.values()))
    for call in table.calls:
        if call.text.repairs:
            found.update(dict.fromkeys([repair(kind, where=call.block) for kind in call.text.repairs]))
    return tuple(found)


# One part while it is being put together.


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
