"""Whether a client that takes the original events at their word gets to know what the healed frames say.

Such a client adds up texts; it begins a call where an id and a name stand, adds up the arguments under the call's number or
block, and takes a final form if there is one. As long as that is right, the original events can go on to it.
"""

from collections.abc import Sequence

from turnwise.relay.shown import Missing, Shown
from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CallForming,
    CitationAdded,
    Finished,
    Frame,
    Mended,
    Message,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    Restated,
    Started,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageReported,
)

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
