"""What those who watch are shown of the calls: ids and names once, arguments as they come, and the true form of a call that was
shown otherwise. Nothing is decided here: pieces and a graver end may still come."""

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

from turnwise.assembly.blocks import OpenBlock
from turnwise.assembly.call_states import CallJudge, repeated_calls
from turnwise.assembly.tool_calls import CallTable, OpenCall
from turnwise.vocab import FinishReason, Frame, PartDone, ToolCall, ToolCallDelta

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
