"""What the calls of one response come to: state, whole form, what it took to judge them; and what is shown of them."""

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from turnwise.assembly.argument_text import SettledArguments, same_value, says_nothing
from turnwise.assembly.tool_calls import BlockKind, CallTable, OpenBlock, OpenCall
from turnwise.vocab import TOO_LONG, ArgumentsState, FinishReason, Frame, Lost, PartDone, ToolCall, ToolCallDelta

# What of a response may not have arrived (promise assembly:lost-piece).
#
# A decoder says that an event could not be read; this room decides which blocks may have lost a piece with it. A call that may
# have lost a piece never counts as complete, unless the provider says the whole call again. It does not count as truncated
# either: a damaged text is no prefix that could be continued.


LOST_CALL = "an event of the stream could not be read, and it may have been a piece of this call"


class Losses:
    """The losses of one response. `any` holds once there was one, `remain` while something may be missing."""

    __slots__ = ("_follow", "_gap", "_loose", "_missing", "_torn", "any")

    def __init__(self) -> None:
        self.any = False
        self._gap = False  # a loss that no block can be named for
        self._loose = False  # a loss on a wire that may send pieces of a block after its end
        self._missing: set[str] = set()  # blocks that may miss a piece
        self._torn: set[str] = set()  # blocks that miss half of a character
        self._follow: set[str] = set()  # calls that began after a loss

    @property
    def remain(self) -> bool:
        return self._gap or bool(self._missing or self._torn)

    def lose(self, frame: Lost, *, blocks: Collection[OpenBlock]) -> None:
        """Whatever is still open may miss a piece; where nothing is, what was lost cannot be named."""
        reached = [block.key for block in blocks if frame.reaches_ended or not (block.ended or block.final)]
        self._missing.update(reached)
        self.any = True
        self._loose = self._loose or frame.reaches_ended
        self._gap = self._gap or frame.reaches_ended or not reached

    def tear(self, key: str) -> None:
        """Half of a character arrived in the block, and the other half did not."""
        self._torn.add(key)

    def begin_call(self, key: str) -> None:
        if self.any:
            self._follow.add(key)

    def say_again(self, key: str) -> None:
        """The provider has said the whole block."""
        self._missing.discard(key)
        self._torn.discard(key)
        self._follow.discard(key)

    def restate(self) -> None:
        """The provider has said or listed everything: no block is missing that it did not speak of."""
        self._gap = False

    def reach(self, block: OpenBlock, call: OpenCall) -> bool:
        """Whether a piece of the call may be lost, whatever its arguments look like.

        A call without a name that began after a loss has lost its beginning. So may a call whose pieces were found by guess:
        they may belong to the call that the loss hid.
        """
        key = block.key
        return key in self._missing or (key in self._follow and (not call.name or call.guessed))

    def is_torn(self, block: OpenBlock) -> bool:
        return block.key in self._torn

    def doubt(self, block: OpenBlock) -> bool:
        """Whether the call may have begun in a loss, so that something has to show that its beginning is there. Where the
        wire names its blocks, and no piece comes after a block's end, its name shows it."""
        return self._loose and block.key in self._follow


# How a response can end, and what its end means for a call that cannot show a cut itself.


# Of several finish reasons the gravest counts: OpenRouter repeats one, some send `stop` and then `tool_calls`.
GRAVITY = {
    reason: gravity
    for gravity, reason in enumerate(
        (
            FinishReason.CUT,
            FinishReason.STOP,
            FinishReason.TOOL_CALLS,
            FinishReason.PAUSE,
            FinishReason.LENGTH,
            FinishReason.CONTENT_FILTER,
            FinishReason.REFUSAL,
            FinishReason.ERROR,
        )
    )
}
WORDS = (BlockKind.TEXT, BlockKind.REFUSAL)
# With these finish reasons, a call without arguments had none. With others, it may have been cut before they began.
ENDED_BY_ITSELF = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})


def is_closed(blocks: Collection[OpenBlock], *, open_texts: bool = False) -> bool:
    """Whether the response has content, and every call and text in it has its own end on the wire. Every call is known to be
    complete.

    A wire that names its blocks marks the end of each; a block without that mark means that more was coming. Chat Completions
    has no such mark: there a call ends where its arguments are whole, and a text beside such calls is over. Arguments that
    say nothing may still be coming. Behind reasoning, or a tool that ran at the provider, the model has more to say.
    `open_texts`: a text needs no end of its own.
    """
    calls = [block.call for block in blocks if block.call is not None]
    placed = [call for call in calls if call.placed]
    if any(says_nothing(call.text.joined()) for call in placed):
        return False
    others = [block for block in blocks if block.call is None or not block.call.placed]
    if placed:
        return all(block.ended for block in others if block.call is not None)
    held = [block for block in others if block.kind not in WORDS or block.has_words]
    ended = all(block.ended or (open_texts and block.kind in WORDS) for block in others)
    return bool(held) and held[-1].kind in (BlockKind.CALL, *WORDS) and ended


class CallJudge:
    """Judges calls as if the response ended now. Nothing is decided by asking: pieces and a graver end may still come.

    `suspect` says that the output limit may have cut the call: it began last, or was written to last.
    """

    __slots__ = ("_call_bytes", "_losses", "_table")

    def __init__(self, table: CallTable, *, losses: Losses, call_bytes: int) -> None:
        self._call_bytes = call_bytes
        self._table = table
        self._losses = losses

    def settle(self, block: OpenBlock, call: OpenCall, *, reason: FinishReason, suspect: bool) -> SettledArguments:
        if call.is_long:
            return SettledArguments("{}", ArgumentsState.INVALID, f"{TOO_LONG}: {self._call_bytes:,} bytes")
        if self._losses.reach(block, call):
            return _lost(call)
        settled = self._settle_whole(block, call, reason=reason, suspect=suspect)
        if self._losses.is_torn(block) or (call.half and settled.state is ArgumentsState.COMPLETE):
            return msgspec.structs.replace(settled, state=ArgumentsState.LOST, reason=LOST_CALL)
        if not self._losses.doubt(block):
            return settled
        # What came at once has its beginning. So has what a name began, where names come once: what follows has none.
        begun = call.text.came_at_once or (call.placed and self._table.shows_beginning(call))
        over = reason in ENDED_BY_ITSELF or _is_marked(block)
        proven = begun and over and not call.free_form and not says_nothing(settled.arguments)
        return settled if proven and settled.state is ArgumentsState.COMPLETE else _lost(call)

    def settle_all(
        self, blocks: Collection[OpenBlock], *, reason: FinishReason, suspects: Collection[OpenBlock]
    ) -> dict[OpenCall, SettledArguments]:
        return {
            block.call: self.settle(block, block.call, reason=reason, suspect=block in suspects)
            for block in blocks
            if block.call is not None
        }

    def _settle_whole(
        self, block: OpenBlock, call: OpenCall, *, reason: FinishReason, suspect: bool
    ) -> SettledArguments:
        """The state of a call that lost nothing."""
        # Only a mark of the wire says that a silent call is over: what came later does not, because calls may interleave.
        cut_off = reason not in ENDED_BY_ITSELF
        unmarked = cut_off and not _is_marked(block)
        limited = suspect and reason is FinishReason.LENGTH
        final = block.final
        if isinstance(final, ToolCall) and final.state is not ArgumentsState.COMPLETE:
            return SettledArguments(final.arguments, final.state, final.reason or "the provider calls it incomplete")
        if call.free_form:
            return call.text.settle_free(cut=limited or unmarked)
        settled = call.text.settle(
            cut_if_silent=unmarked or (cut_off and suspect), cut_if_growing=unmarked, cut_if_handed_out=limited
        )
        if settled.state is ArgumentsState.COMPLETE and self._table.is_doubtful(call):
            why = "which call these arguments belong to cannot be told: the calls began without an index"
            return msgspec.structs.replace(settled, state=ArgumentsState.INVALID, reason=why)
        return settled

    def whole(self, block: OpenBlock, call: OpenCall, settled: SettledArguments) -> ToolCall | None:
        """The call in its whole form; None where nothing came of it."""
        if not call.name and not call.text.begun:
            return None
        return ToolCall(
            id=self._table.settle_id(call),
            name=call.name,
            arguments=settled.arguments,
            state=settled.state,
            free_form=call.free_form,
            reason=settled.reason,
            alternatives=settled.alternatives,
            opaque=block.opaque(),
        )

    def may_hide_cut(self, block: OpenBlock, call: OpenCall, settled: SettledArguments) -> bool:
        """Whether only the response's end says that the call is whole: had that been the limit, it would be cut."""
        if settled.state is not ArgumentsState.COMPLETE:
            return False
        limited = self._settle_whole(block, call, reason=FinishReason.LENGTH, suspect=True)
        return limited.state is ArgumentsState.TRUNCATED

    def record(self, call: OpenCall, settled: SettledArguments, *, reason: FinishReason, suspect: bool) -> None:
        """Note what judging the call took; only at the end, because until then a piece may change it."""
        if not call.name and not call.text.begun:
            self._table.record("empty_call", call)
            return
        if settled.repairs:
            call.text.repairs.update(dict.fromkeys(settled.repairs))
        if settled.state is ArgumentsState.TRUNCATED and reason in ENDED_BY_ITSELF and suspect:
            self._table.record("finish_hides_cut", call)


def _is_marked(block: OpenBlock) -> bool:
    """Whether the wire has marked the end of the block."""
    return block.ended or block.final is not None


def _lost(call: OpenCall) -> SettledArguments:
    return SettledArguments(call.text.joined(), ArgumentsState.LOST, LOST_CALL)


# One call that a response says twice (promise assembly:same-call-once).
#
# Gateways send an item again, or a stream's call and then the final item under another index. Same id, name and arguments are one
# call. Arguments are compared as JSON values: a server that says a call again may write it with other spaces. The reading is safe
# in both directions: whatever compares equal would do the same, and whatever differs, be it `1` and `1.0`, stays two calls.


def repeated_calls(judged: Mapping[OpenCall, SettledArguments]) -> set[OpenCall]:
    """The calls that say only what another call of the same id says.

    A different call under the same id means that the id is a server's constant: then equal calls may be two, and all stay. A
    call without an id of its own is never one of these. A call that lost a piece says nothing about the others, and stays.
    """
    by_id: dict[str, list[OpenCall]] = {}
    for call, settled in judged.items():
        if call.wire_id is not None and settled.state is not ArgumentsState.LOST:
            by_id.setdefault(call.wire_id, []).append(call)
    found: set[OpenCall] = set()
    for calls in by_id.values():
        if len(calls) > 1:
            whole = max(calls, key=lambda call: _worth(judged[call]))  # the first one of those that are worth the same
            others = [call for call in calls if call is not whole]
            if all(_is_repeated(call, by=whole, judged=judged) for call in others):
                found.update(others)
    return found


def _is_repeated(call: OpenCall, *, by: OpenCall, judged: Mapping[OpenCall, SettledArguments]) -> bool:
    """Whether `call` says what the call `by` says, or was cut while it said that."""
    here, there = judged[call], judged[by]
    if call.name != by.name or call.free_form is not by.free_form:
        return False
    if here.state is ArgumentsState.TRUNCATED:
        return there.arguments.startswith(here.arguments)
    if here.state is not there.state:
        return False
    return here.arguments == there.arguments or (not call.free_form and same_value(here.arguments, there.arguments))


def _worth(settled: SettledArguments) -> tuple[bool, int]:
    is_cut = settled.state is ArgumentsState.TRUNCATED
    return settled.state is ArgumentsState.COMPLETE, len(settled.arguments) if is_cut else 0


# What those who watch are shown of the calls: ids and names once, arguments as they come, and the true form of a call that was
# shown otherwise. Nothing is decided here: pieces and a graver end may still come.


MAX_RELEASES = 16  # times that one call is looked at for those who watch; real streams end a call once or twice


class Showing:
    """Returns the frames to show. Calls are shown in the order in which they began.

    A call that bears the id of another waits for the end: if it is the same call again, it is not shown at all.
    """

    __slots__ = ("_judge", "_ready", "_releases", "_table", "_twins", "_waiting")

    def __init__(self, table: CallTable, *, judge: CallJudge) -> None:
        self._table = table
        self._judge = judge
        self._waiting: dict[OpenCall, None] = {}  # begun, but not yet shown
        self._ready: list[
            tuple[int, OpenCall]
        ] = []  # a heap, the oldest first: those that may be shown before a newer one
        self._releases = 0  # times that the twins were looked at
        self._twins: dict[OpenCall, None] = {}  # those of them that bear the id of another call

    def begin(self, call: OpenCall) -> None:
        self._waiting[call] = None

    def pieces(self, call: OpenCall, arguments: str, *, whole: bool = False) -> Sequence[Frame]:
        """More arguments of the call; it is first shown once its name is sure."""
        if call.announced:
            return (ToolCallDelta(block=call.block, arguments=arguments, whole=whole),) if arguments else ()
        if self._is_held(call):
            return ()
        if not arguments and not self._table.name_is_settled(call):
            if (call.name or call.text.begun) and not call.ready:
                call.ready = True
                heappush(self._ready, (call.ordinal, call))
            return self._announce_older(call)
        return (*self._announce_older(call), self._announce(call, arguments, whole=whole))

    def final(self, call: OpenCall, settled: ToolCall | None) -> Sequence[Frame]:
        """The provider's own form of the call."""
        if not call.announced and self._is_held(call):
            return ()
        if not call.announced:
            call.announced = True
            del self._waiting[call]
        if settled is None:
            return ()
        call.shown = settled
        return (PartDone(call.block, settled),)

    def release(self, block: OpenBlock, call: OpenCall, *, reason: FinishReason, suspect: bool) -> list[Frame]:
        """What was held back of the call, and its true form where it was shown otherwise."""
        call.releases += 1
        if call.releases > MAX_RELEASES or (not call.announced and self._is_held(call)):
            return []
        frames: list[Frame] = []
        held = call.text.release()
        if not call.announced and (call.name or call.text.begun):
            frames += [*self._announce_older(call), self._announce(call, held)]
        elif held and call.announced:
            frames.append(ToolCallDelta(block=call.block, arguments=held))
        judged = self._judge.settle(block, call, reason=reason, suspect=suspect)
        settled = self._judge.whole(block, call, judged)
        if settled is None or settled == call.shown:
            return frames
        as_shown = call.text.joined() in (settled.arguments, "")
        if call.text.diverged or not as_shown or call.shown != (call.id, call.name):
            call.shown = settled
            frames.append(PartDone(call.block, settled))
        return frames

    def release_twins(
        self, blocks: Mapping[str, OpenBlock], *, reason: FinishReason, suspects: Collection[OpenBlock]
    ) -> list[Frame]:
        """The end has come: those that are calls of their own."""
        if not self._twins or self._releases >= MAX_RELEASES:
            return []
        self._releases += 1
        judged = self._judge.settle_all(blocks.values(), reason=reason, suspects=suspects)
        repeated = repeated_calls(judged)
        frames: list[Frame] = []
        for call in [call for call in self._twins if call not in repeated]:
            if whole := self._judge.whole(blocks[call.block], call, judged[call]):
                call.text.release()
                frames += [self._announce(call, ""), PartDone(call.block, whole)]
                call.shown = whole
        return frames

    def _is_held(self, call: OpenCall) -> bool:
        """Whether the call waits for the end. Such calls stand apart, because each piece looks through those that wait."""
        if call.twin is None:
            return False
        if call not in self._twins:
            del self._waiting[call]
            self._twins[call] = None
        return True

    def _announce_older(self, call: OpenCall) -> Sequence[Frame]:
        older: list[OpenCall] = []
        while self._ready and self._ready[0][0] < call.ordinal:
            older.append(heappop(self._ready)[1])
        return [self._announce(each, "") for each in older if not each.announced and not self._is_held(each)]

    def _announce(self, call: OpenCall, arguments: str, *, whole: bool = False) -> ToolCallDelta:
        call.announced = True
        if call in self._twins:
            del self._twins[call]
        else:
            del self._waiting[call]
        call.shown = (self._table.settle_id(call), call.name)
        return ToolCallDelta(
            block=call.block,
            index=call.index,
            id=call.id,
            name=call.name,
            arguments=arguments,
            whole=whole,
            free_form=call.free_form,
        )
