"""What the calls of one response come to: their state, their whole form, and what it took to judge them."""

from collections.abc import Collection

import msgspec

from turnwise.assembly.argument_text import SettledArguments, says_nothing
from turnwise.assembly.blocks import OpenBlock
from turnwise.assembly.lost_pieces import LOST_CALL, Losses
from turnwise.assembly.response_ends import ENDED_BY_ITSELF
from turnwise.assembly.tool_calls import CallTable, OpenCall
from turnwise.vocab import TOO_LONG, ArgumentsState, FinishReason, ToolCall


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
