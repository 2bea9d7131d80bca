"""What a client has been told of a response by now (`Shown`), and whether a client that takes the original events at their word
gets to know what the healed frames say (`Agreement`).

Such a client adds up texts; it begins a call where an id and a name stand, adds up the arguments under the call's number or
block, and takes a final form if there is one. As long as that is right, the original events can go on to it. What was sent cannot
be taken back, so the rest has to go on from it.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CallForming,
    CitationAdded,
    Finished,
    Frame,
    Mended,
    Message,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageReported,
)
from turnwise.vocab.wording import in_ticks
from turnwise.wire.openai_responses.client_tools import SEARCH_CALL

WordsKind = Literal["text", "reasoning", "refusal"]
_PARTS: dict[type[Reasoning | Refusal | Text], WordsKind] = {Reasoning: "reasoning", Refusal: "refusal", Text: "text"}
_FRAMES: dict[WordsKind, type[ReasoningDelta | RefusalDelta | TextDelta]] = {
    "reasoning": ReasoningDelta,
    "refusal": RefusalDelta,
    "text": TextDelta,
}
_DELTAS: dict[type[Frame], WordsKind] = {frame: kind for kind, frame in _FRAMES.items()}


class ShownCall:
    """A call of which the client knows this much."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class Conflict(msgspec.Struct, frozen=True):
    """What was sent and what is true cannot both stand; `why` is a sentence for the client."""

    why: str


class Missing(msgspec.Struct, frozen=True):
    """The frames that say the rest."""

    frames: tuple[Frame, ...]


class Shown:
    """Fed with every frame that goes to the client, in order. `conflict` is set once one contradicts an earlier one.
    `final_wins`: the client takes the final form of a part, whatever it was told of it before."""

    def __init__(self, *, final_wins: bool) -> None:
        self._final_wins = final_wins
        self.conflict: Conflict | None = None
        self._words: dict[str, tuple[WordsKind, list[str]]] = {}  # by block
        self._calls: dict[str, ShownCall] = {}  # by block
        self._has_said = False
        self._others: set[str] = set()  # blocks of whole parts that are neither

    @property
    def is_anything(self) -> bool:
        """Whether the client has been told a word, a call or another part."""
        return self._has_said

    def knows(self, block: str) -> bool:
        """Whether the client has been told something of the block."""
        return block in self._words or block in self._calls or block in self._others

    def contradict(self, why: str) -> None:
        """What has been sent is not true any more."""
        self.conflict = self.conflict or Conflict(why)

    def words(self, block: str) -> str:
        """What the client has been told of a text or a call's arguments."""
        if (call := self._calls.get(block)) is not None:
            return call.arguments
        return "".join(self._words[block][1]) if block in self._words else ""

    def length(self, block: str) -> int:
        """Of that, in characters."""
        if (call := self._calls.get(block)) is not None:
            return sum(map(len, call.pieces))
        return sum(map(len, self._words[block][1])) if block in self._words else 0

    def note(self, frame: Frame) -> bool:
        """Whether the frame may go to the client."""
        kind = type(frame)
        if (words := _DELTAS.get(kind)) is not None:
            assert isinstance(frame, TextDelta | ReasoningDelta | RefusalDelta)
            found = self._words.get(frame.block)
            if not self._has_said and frame.text:
                self._has_said = True
            if found is None:
                self._words[frame.block] = (words, [frame.text])
            else:
                found[1].append(frame.text)
            return True
        if kind is ToolCallDelta:
            assert isinstance(frame, ToolCallDelta)
            return self._note_call(frame)
        if kind is PartDone:
            assert isinstance(frame, PartDone)
            return self._note_part(frame)
        return True

    def _note_call(self, frame: ToolCallDelta) -> bool:
        self._has_said = True
        call = self._calls.setdefault(frame.block or "", ShownCall())
        call.id, call.name = call.id or frame.id or "", call.name or frame.name or ""
        if frame.arguments:
            if frame.whole and call.pieces:
                self.contradict(f"the arguments of the call `{call.name}` came twice")
                return False
            call.pieces.append(frame.arguments)
        return True

    def _note_part(self, frame: PartDone) -> bool:
        part = frame.part
        if isinstance(part, ToolCall):
            self._has_said = True
            call = self._calls.setdefault(frame.block, ShownCall())
            why = _misnamed(call, part) if self._final_wins else _contradiction(call, part)
            if why:
                self.contradict(why)
                return False
            call.id, call.name, call.pieces = part.id, part.name, [part.arguments]
            return True
        if isinstance(part, Text | Reasoning | Refusal):
            kind = _PARTS[type(part)]
            sent = self.words(frame.block)
            if not self._final_wins and not part.text.startswith(sent):
                self.contradict(f"the {kind} was sent in another form before")
                return False
            self._has_said = self._has_said or bool(part.text)
            self._words[frame.block] = (kind, [part.text])
            return True
        self._has_said = True
        self._others.add(frame.block)
        return True

    def with_known_ids(self, message: Message) -> Message:
        """The message with the ids under which the client knows its first calls."""
        known = iter(self._calls.values())
        parts: list[Part] = []
        for part in message.parts:
            call = next(known, None) if isinstance(part, ToolCall) else None
            if isinstance(part, ToolCall) and call is not None and call.id:
                part = msgspec.structs.replace(part, id=call.id)
            parts.append(part)
        return msgspec.structs.replace(message, parts=tuple(parts))

    def missing(self, message: Message) -> Missing | Conflict:
        """The frames by which the client gets to know the whole `message`."""
        if self.conflict is not None:
            return self.conflict
        frames: list[Frame] = []
        for words, kind in _PARTS.items():
            said = "".join([part.text for part in message.parts if isinstance(part, words)])
            found = self._rest_of_words(said, kind=kind)
            if isinstance(found, Conflict):
                return found
            frames += found
        left = dict(self._calls)
        by_id, by_name = _places(left)
        for number, part in enumerate(message.parts):
            if not isinstance(part, ToolCall):
                if isinstance(part, ProviderItem) and part.kind == SEARCH_CALL and not self._others:
                    frames.append(PartDone(f"relay:{number}", part))  # the gateway's own: it goes out as a whole
                continue
            block = _next_place(by_id.get(part.id), left=left)
            if block is None:
                block = _next_place(by_name.get(part.name), left=left)
            if block is None:
                frames.append(PartDone(f"relay:{number}", part))
                continue
            call = left.pop(block)
            if why := _contradiction(call, part):
                return Conflict(why)
            if rest := part.arguments[len(call.arguments) :]:
                frames.append(ToolCallDelta(block=block, arguments=rest))
        if left:
            names = in_ticks([call.name for call in left.values()])
            return Conflict(f"calls were sent that are no part of the response: {names}")
        return Missing(tuple(frames))

    def _rest_of_words(self, said: str, *, kind: WordsKind) -> Sequence[Frame] | Conflict:
        blocks = [block for block, (one, _) in self._words.items() if one == kind]
        sent = "".join(map(self.words, blocks))
        if not said.startswith(sent):
            return Conflict(f"the {kind} was sent in another form before")
        rest = said[len(sent) :]
        if not rest:
            return ()
        block = blocks[-1] if blocks else f"relay:{kind}"
        return (_FRAMES[kind](rest, block),)


def _places(calls: Mapping[str, ShownCall]) -> tuple[dict[str, deque[str]], dict[str, deque[str]]]:
    """The blocks of the calls that were sent under each id; and of those without one (Gemini has some), under each name."""
    by_id: dict[str, deque[str]] = {}
    by_name: dict[str, deque[str]] = {}
    for block, call in calls.items():
        by_id.setdefault(call.id, deque()).append(block)
        if not call.id:
            by_name.setdefault(call.name, deque()).append(block)
    return by_id, by_name


def _next_place(blocks: deque[str] | None, *, left: Collection[str]) -> str | None:
    """The first of the blocks that no call was found for yet."""
    while blocks and blocks[0] not in left:
        blocks.popleft()
    return blocks[0] if blocks else None


def _contradiction(call: ShownCall, part: ToolCall) -> str:
    """Why the call that was sent so far is not the beginning of this one; empty where it is."""
    if why := _misnamed(call, part):
        return why
    if not part.arguments.startswith(call.arguments):
        return f"the arguments of the call `{call.name}` were sent in another form before"
    return ""


def _misnamed(call: ShownCall, part: ToolCall) -> str:
    if (call.id and call.id != part.id) or (call.name and call.name != part.name):
        return f"the call `{call.name}` was sent under another id or name before"
    return ""


NOISE = "noise_skipped"  # a repair that nobody has need of: what was left out said nothing
WORDS: frozenset[type[Frame]] = frozenset([TextDelta, ReasoningDelta, RefusalDelta])
_NEUTRAL = frozenset([BlockData, BlockEnded, CitationAdded, UsageReported, Finished, Restated, CallForming])


class Agreement:
    """Fed with each event's frames, as they stood on the wire and healed. `holds`: nothing so far would mislead the client.
    `is_ahead`: the events say more than the healed frames, as the assembler still holds that back. `empty_is_object`: a call
    without arguments is one with `{}` to the client. `takes_objects`: arguments come as objects in its family."""

    def __init__(self, *, empty_is_object: bool, final_wins: bool, takes_objects: bool) -> None:
        self.holds = True
        self._empty_is_object = empty_is_object
        self._takes_objects = takes_objects
        self._said = Shown(final_wins=final_wins)  # to a client that takes the events at their word
        self._ahead: dict[str, str] = {}  # by block: what the healed frames have not said yet
        self._calls: list[str] = []  # blocks of calls in the order in which the events began them
        self._names: dict[str, tuple[str, str]] = {}  # of those: id and name
        self._healed: dict[str, str] = {}  # the healed frames' block of a call -> the events'
        self._unannounced: set[str] = set()  # of those: what the healed frames have not begun yet
        self._has_started = False

    @property
    def is_ahead(self) -> bool:
        return bool(self._ahead or self._unannounced)

    def read(self, frames: Sequence[Frame], healed: Sequence[Frame]) -> bool:
        """Take the next event; the same as `holds`."""
        if self.holds:
            is_usual = len(frames) == 1 == len(healed) and frames[0] is healed[0] and type(frames[0]) in WORDS
            if is_usual and not self._ahead:
                self._said.note(frames[0])
            else:
                self.holds = all(map(self._take_original, frames)) and all(map(self._take_healed, healed))
        return self.holds

    def tells(self, message: Message) -> bool:
        """Whether the events have told the client all of the `message`."""
        if not self.holds:
            return False
        missing = self._said.missing(message)
        return isinstance(missing, Missing) and all(map(self._is_known, missing.frames))

    def _is_known(self, frame: Frame) -> bool:
        if not isinstance(frame, ToolCallDelta) or not self._empty_is_object:
            return False
        return frame.arguments == "{}" and not self._said.length(frame.block or "")

    # -- as the events have it ---------------------------------------------------------------------------------------

    def _take_original(self, frame: Frame) -> bool:
        kind = type(frame)
        if kind in WORDS:
            assert isinstance(frame, TextDelta | ReasoningDelta | RefusalDelta)
            self._add(frame.block, frame.text)
            return self._said.note(frame)
        match frame:
            case ToolCallDelta():
                return self._take_fragment(frame)
            case PartDone(block=block, part=part):
                before = self._said.words(block)
                if not self._said.note(frame):
                    return False
                if isinstance(part, ToolCall):
                    self._begin(block, part.id, part.name)
                now = self._said.words(block)
                if not now.startswith(before):
                    self._ahead[block] = now  # the final form wins
                else:
                    self._add(block, now[len(before) :])
                return True
            case Started():
                again, self._has_started = self._has_started, True
                return not again
            case Mended(repair=repair):
                return repair.kind == NOISE
            case _:
                return kind in _NEUTRAL

    def _take_fragment(self, frame: ToolCallDelta) -> bool:
        block = frame.block
        if block is None:
            if frame.index is None or frame.index > len(self._calls):
                return False
            block = f"index {frame.index}"
            if frame.index == len(self._calls) and not (frame.id and frame.name):
                return False
        if block in self._names:
            if frame.id or frame.name:
                return False  # a client may take it for another call, or say the name twice
        elif not frame.name or not self._begin(block, frame.id or "", frame.name):
            return False
        if frame.whole and (self._said.length(block) or not self._takes_objects):
            return False
        if frame.arguments:
            self._add(block, frame.arguments)
        return self._said.note(ToolCallDelta(block=block, id=frame.id, name=frame.name, arguments=frame.arguments))

    def _begin(self, block: str, id: str, name: str) -> bool:
        if block not in self._names:
            self._names[block] = (id, name)
            self._calls.append(block)
            self._unannounced.add(block)
        return True

    def _add(self, block: str, text: str) -> None:
        if text:
            self._ahead[block] = self._ahead.get(block, "") + text

    # -- as the healed frames have it --------------------------------------------------------------------------------

    def _take_healed(self, frame: Frame) -> bool:
        if type(frame) in WORDS:
            assert isinstance(frame, TextDelta | ReasoningDelta | RefusalDelta)
            return self._catch_up(frame.block, frame.text)
        match frame:
            case ToolCallDelta():
                block = self._block_of(frame.block or "")
                if block is None or ((frame.id or frame.name) and not self._is_named(block, frame.id, frame.name)):
                    return False
                return self._catch_up(block, frame.arguments or "")
            case PartDone(block=name, part=ToolCall() as call):
                block = self._block_of(name)
                if block is None or not self._is_named(block, call.id, call.name):
                    return False
                self._ahead.pop(block, None)
                return self._said.words(block) == call.arguments
            case PartDone(block=block):
                self._ahead.pop(block, None)
                return True
            case _:
                return True

    def _block_of(self, healed: str) -> str | None:
        """The events' block of a call; the two count their calls alike."""
        if healed in self._names:
            return healed
        if healed not in self._healed:
            if len(self._healed) >= len(self._calls):
                return None
            self._healed[healed] = self._calls[len(self._healed)]
        return self._healed[healed]

    def _is_named(self, block: str, id: str | None, name: str | None) -> bool:
        self._unannounced.discard(block)
        said_id, said_name = self._names[block]
        return said_name == name and (not said_id or said_id == id)

    def _catch_up(self, block: str, text: str) -> bool:
        if not text:
            return True
        ahead = self._ahead.get(block, "")
        if not ahead.startswith(text):
            return False
        if len(ahead) == len(text):
            del self._ahead[block]
        else:
            self._ahead[block] = ahead[len(text) :]
        return True
