"""Frames -> one whole `Response`. Feed frames with `receive`, then `finish()` once the stream has ended.

Parts are keyed by the frames' `block`. Calls that have none (Chat Completions) are placed by `tool_calls.CallTable`;
argument text is kept by `argument_text.ArgumentText`; what was mended is recorded by the list in `heal`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import ClassVar, cast

import msgspec

from turnwise.assembly.argument_text import ArgumentText, says_nothing
from turnwise.assembly.call_states import (
    ENDED_BY_ITSELF,
    GRAVITY,
    CallJudge,
    Losses,
    Showing,
    is_closed,
    repeated_calls,
)
from turnwise.assembly.json_text import (
    byte_length,
    join_halves,
    lost_halves,
    repair,
    size_if_whole,
    whole_characters,
)
from turnwise.assembly.tool_calls import (
    TEXT_KINDS,
    BlockKind,
    CallAtHand,
    CallTable,
    OpenBlock,
    OpenCall,
    ResponseSize,
    WrittenCalls,
    all_repairs,
    size_of,
)
from turnwise.vocab import (
    LONG_ARGUMENTS,
    ArgumentsState,
    BlockData,
    BlockEnded,
    CallForming,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    File,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Message,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Response,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
    with_untold,
)

# The fast ways through frames that come together. `response.py` takes every frame alone: read it first.
#
# A fast way takes a run: frames of one kind that bring more of one part, which has begun. It leaves all other frames to the plain
# way. Both give the same response and show the same frames (tests/assembly/test_fast_runs.py).
#
# | way | takes | skips |
# |---|---|---|
# | words | more of one text, or of one reasoning: whole characters that fit | finding the part of each, and counting it alone |
# | known words | the same, if the caller has joined them already | joining them |
# | arguments | more of one call's arguments that say nothing else and fit | placing each, and counting it alone |
# | plain arguments | those of them that cannot repeat or begin a value | asking this of each |


FEW = 8  # frames among which it does not pay to look for runs
MAX_OPENERS = 4  # frames of a run that are taken alone at most, before the rest is taken together


def runs_of(frames: list[Frame]) -> Iterable[list[Frame]]:
    """The frames in order; those of one kind that follow each other stand together where it pays."""
    if len(set(map(type, frames))) == 1:
        return (frames,)
    return [list(run) for _, run in groupby(frames, key=type)]


class FastRuns:
    """Takes what it can of the runs of one response. Nothing is taken where it returns None."""

    __slots__ = ("_at_hand", "_blocks", "_call_bytes", "_size", "_written")

    def __init__(
        self,
        blocks: Mapping[str, OpenBlock],
        *,
        at_hand: CallAtHand,
        written: WrittenCalls,
        size: ResponseSize,
        call_bytes: int,
    ) -> None:
        self._blocks = blocks
        self._at_hand = at_hand
        self._written = written
        self._size = size
        self._call_bytes = call_bytes

    def take(self, run: list[Frame]) -> Sequence[Frame] | None:
        """The frames to show for these, which are of one kind."""
        kind = type(run[0])
        if kind is ToolCallDelta:
            return self._take_arguments(cast("list[ToolCallDelta]", run))
        if kind is TextDelta or kind is ReasoningDelta:
            words = cast("list[TextDelta | ReasoningDelta]", run)
            key = words[0].block
            texts = [frame.text for frame in words if frame.block == key]
            return self.take_words(words, text="".join(texts)) if len(texts) == len(words) else None
        return None

    def take_words(
        self, run: Sequence[TextDelta | ReasoningDelta], *, text: str
    ) -> Sequence[TextDelta | ReasoningDelta] | None:
        """The same for words of one part, which say `text` together."""
        block = self._blocks.get(run[0].block)
        if block is None or block.kind is not TEXT_KINDS[type(run[0])] or block.final is not None or block.half:
            return None
        size = size_if_whole(text)
        if size is None or not self._size.grow_if_it_fits(text, size=size):
            return None
        block.pieces.append(text)
        return run

    def _take_arguments(self, run: list[ToolCallDelta]) -> Sequence[Frame] | None:
        """More arguments of a call that is known and shown."""
        key, at_hand = run[0].block, self._at_hand
        block = at_hand.block if key is None else self._blocks.get(key)
        call = None if block is None else at_hand.call if key is None else block.call
        if block is None or call is None or block.final is not None or call.half or call.is_long or not call.announced:
            return None
        texts = _pure_arguments(run, id=call.wire_id if key is None else None)
        if texts is None or (key is None and run[0].index != at_hand.index):
            return None
        text, whole = call.text, "".join(texts)
        size = size_if_whole(whole)
        if size is None or text.size + size > self._call_bytes or not self._size.grow_if_it_fits(whole, size=size):
            return None
        if block is not self._written.touched:
            self._written.touch(block, call)
        before = text.size
        if key is None and any(frame.id for frame in run):
            text.is_resent = True
        if call.free_form:
            text.add_free(whole)
            shown = texts
        else:
            shown = _add_all(text, texts, whole=whole)
        self._size.grow(text.size - before - size)  # what says the same again is not kept
        if key is None:
            key = call.block
            if call.free_form:
                return [call.more(new) for new in shown if new]
            return [ToolCallDelta(block=key, arguments=new) for new in shown if new]
        if shown is texts and all(texts):
            return run
        return [
            frame if new is said else call.more(new) for frame, said, new in zip(run, texts, shown, strict=True) if new
        ]


def _pure_arguments(run: list[ToolCallDelta], *, id: str | None) -> list[str] | None:
    """The arguments of deltas that bring nothing else and stand in one place; None where one is different. `id` is the
    call's own, which may be said again."""
    block, index = run[0].block, run[0].index
    texts = [
        frame.arguments or ""
        for frame in run
        if frame.block == block
        and frame.index == index
        and (not frame.id or frame.id == id)
        and not frame.name
        and not frame.whole
        and frame.opaque is None
    ]
    return texts if len(texts) == len(run) else None


def _add_all(text: ArgumentText, pieces: list[str], *, whole: str) -> list[str]:
    """`text.add` for each; the plain pieces that follow each other are kept as one. The very same list, if all are shown as they
    came. `whole`: the pieces, joined."""
    if text.is_plain(whole):
        text.add_plain(whole)
        return pieces
    shown: list[str] = []
    at, end = 0, len(pieces)
    while at < end:
        if plain := pieces[at : text.next_to_suspect(pieces, start=at)]:
            text.add_plain("".join(plain))
            shown += plain
            at += len(plain)
        if at < end:
            shown.append(text.add(pieces[at]))
            at += 1
    return pieces if shown == pieces else shown


MiB = 1024 * 1024
MAX_PARTS = 4096  # blocks of one response; real ones show a few dozen
MAX_CITATIONS = 4096  # of one response; one may have ten bytes on the wire, and takes us some hundred
MAX_REPAIRS = 100  # of one response; what a reader can take in, and no more memory for a stream of broken chunks
MORE_REPAIRS = Repair("more_repairs", "response", f"and more: only the first {MAX_REPAIRS} are told")


class Assembler:
    """Collects one response. Deterministic: the same frames give the same response, ids included.

    `tool_names` are the names on offer (they decide where a name could be read in two ways). `taken_ids` are call ids
    that the session has used already; `id_prefix` begins the ids made for calls that came without one or with a taken
    one. `call_bytes` bounds the arguments of one call, `response_bytes` the whole. `tells_long_calls`: a call past its bound is
    a part of the response, and the others are whole; without it, the response has a fault. `fast` takes nearly all frames of a
    usual stream; None where this module has to take them all.

    The finish reason is ours: `stop` with calls becomes `tool_calls`, `tool_calls` without any becomes `stop`, a second
    witness of the limit makes it `length`; `provider_finish` keeps the provider's word.
    """

    def __init__(
        self,
        *,
        tool_names: frozenset[str] = frozenset(),
        taken_ids: frozenset[str] = frozenset(),
        id_prefix: str = "call",
        call_bytes: int = 8 * MiB,
        response_bytes: int = 64 * MiB,
        tells_long_calls: bool = False,
        fast: type[FastRuns] | None = FastRuns,
    ) -> None:
        self._tool_names = tool_names
        self._taken_ids = taken_ids
        self._id_prefix = id_prefix
        self._call_bytes = call_bytes
        self._response_bytes = response_bytes
        self._tells_long_calls = tells_long_calls
        self._fast_ways = fast
        self._repairs: dict[Repair, None] = {}
        self.repair_kinds: dict[str, None] = {}  # of all repairs so far, also those of a response that began again
        self._started = False
        self._fault: Fault | None = None
        self._clear()

    def _clear(self) -> None:
        self._blocks: dict[str, OpenBlock] = {}
        self._table = CallTable(
            tool_names=self._tool_names,
            taken_ids=self._taken_ids,
            id_prefix=self._id_prefix,
            kinds=self.repair_kinds,
        )
        self._at_hand = CallAtHand()
        self._written = WrittenCalls()
        self._size = ResponseSize(limit_bytes=self._response_bytes)
        self.is_full = False  # past a limit: nothing more is kept
        self._cited = 0  # citations that came by themselves
        self._id: str | None = None
        self._model: str | None = None
        self._usage: Usage | None = None
        self._finish: Finished | None = None
        self._limit_reached = False
        self._losses = Losses()
        self._judge = CallJudge(self._table, losses=self._losses, call_bytes=self._call_bytes)
        self._showing = Showing(self._table, judge=self._judge)
        self._fast: FastRuns | None = None  # made when many frames come together for the first time

    def _begin_fast(self, ways: type[FastRuns]) -> FastRuns:
        self._fast = ways(
            self._blocks,
            at_hand=self._at_hand,
            written=self._written,
            size=self._size,
            call_bytes=self._call_bytes,
        )
        return self._fast

    def receive(self, frame: Frame) -> Sequence[Frame]:
        """Take one frame; return the healed frames to show. Every ToolCallDelta among them has its `block`."""
        return self._TAKE[type(frame)](self, frame)

    def receive_all(self, frames: list[Frame]) -> list[Frame]:
        """`receive` for each."""
        healed: list[Frame] = []
        if len(frames) <= FEW or self._fast_ways is None:
            for frame in frames:
                healed += self._TAKE[type(frame)](self, frame)
            return healed
        for run in runs_of(frames):  # one of them may begin the response again
            self._receive_run(run, healed, fast=self._fast or self._begin_fast(self._fast_ways))
        return healed

    def receive_words(self, frames: list[TextDelta], *, text: str) -> list[Frame]:
        """`receive_all`, for what is known to be more of one text, and to say this together."""
        fast = self._fast
        if fast is None and self._fast_ways is not None:
            fast = self._begin_fast(self._fast_ways)
        together = None if fast is None else fast.take_words(frames, text=text)
        return self.receive_all([*frames]) if together is None else [*together]

    def _receive_run(self, run: list[Frame], healed: list[Frame], *, fast: FastRuns) -> None:
        """The first ones may have to open what the others go on with; the last one alone is no run."""
        openers = min(MAX_OPENERS, len(run) - 1)
        for at, frame in enumerate(run):
            if at < openers and (together := fast.take(run[at:])) is not None:
                healed += together
                return
            healed += self._TAKE[type(frame)](self, frame)

    def finish(self) -> Response:
        """The stream has ended: the whole response, with every call's state settled."""
        reason, suspects, judge = self._reason(), self._suspects(), self._judge
        for block in self._blocks.values():
            if block.half and reason in ENDED_BY_ITSELF:
                self._losses.tear(block.key)
        judged = judge.settle_all(self._blocks.values(), reason=reason, suspects=suspects)
        repeated = repeated_calls(judged)
        self._table.drop(repeated)
        parts: list[Part] = []
        hiding: list[str] = []
        for block in self._blocks.values():
            call = block.call
            if call is None:
                if (part := block.part()) is not None:
                    parts.append(part)
            elif call not in repeated:
                judge.record(call, judged[call], reason=reason, suspect=block in suspects)
                if (whole := judge.whole(block, call, judged[call])) is not None:
                    parts.append(whole)
                    if block in suspects and judge.may_hide_cut(block, call, judged[call]):
                        hiding.append(whole.id)
        calls = [part for part in parts if type(part) is ToolCall]
        return Response(
            message=Message("assistant", tuple(parts)),
            finish=self._own_reason(reason, calls),
            provider_finish=self._finish.provider_reason if self._finish else None,
            explanation=self._finish.explanation if self._finish else None,
            usage=as_counted(self._usage, parts=parts),
            id=self._id,
            model=self._model,
            repairs=all_repairs(self._table, others=self._repairs),
            fault=self._fault,
            may_hide_cut=tuple(hiding),
            lost=self._losses.remain or any(call.state is ArgumentsState.LOST for call in calls),
            is_closed=self.is_closed(),
        )

    def is_closed(self, *, is_behind_call: bool = False, open_texts: bool = False) -> bool:
        """Whether nothing but a finish reason is missing; may be asked while the response is still coming. Costs as much as
        the arguments are long, if they have grown since. `is_behind_call`: its text ends with a whole call. `open_texts`: a
        text needs no end of its own."""
        if self._finish is not None or self._fault is not None or self._limit_reached or self._losses.remain:
            return False
        blocks = self._blocks.values()
        judged = self._judge.settle_all(blocks, reason=FinishReason.CUT, suspects=self._suspects())
        is_whole = all(one.state is ArgumentsState.COMPLETE for one in judged.values())
        return is_whole and (is_behind_call or is_closed(blocks, open_texts=open_texts))

    # -- the pieces --------------------------------------------------------------------------------------------------

    def _words(self, frame: TextDelta | ReasoningDelta | RefusalDelta) -> Sequence[Frame]:
        text, kind = frame.text, TEXT_KINDS[type(frame)]
        block = self._blocks.get(frame.block)
        if block is None or block.kind is not kind:
            block = self._open(frame.block, kind)
        is_plain = text.isascii()
        if not is_plain:
            self._size.see_width(text)
        if block is None or not self._size.grow(len(text) if is_plain else byte_length(text)):
            return self._overflow()
        if block.final is not None:
            self._note("after_final", block.key)
            return ()
        if block.half or not is_plain:
            whole = self._join_halves(block, text)
            if whole is not text:
                block.pieces.append(whole)
                return (msgspec.structs.replace(frame, text=whole),) if whole else ()
        block.pieces.append(text)
        return (frame,)

    def _join_halves(self, keeper: OpenBlock | OpenCall, text: str) -> str:
        if not keeper.half and whole_characters(text) is text:
            return text
        key = keeper.key if isinstance(keeper, OpenBlock) else keeper.block
        self._note("half_surrogates", key)
        before = keeper.half + text
        text, keeper.half = join_halves(text, pending=keeper.half)
        if lost_halves(before[: len(before) - len(keeper.half)]):
            self._losses.tear(key)
        return text

    def _call_delta(self, frame: ToolCallDelta) -> Sequence[Frame]:
        # More arguments of a call that is known and shown. A piece without a block goes where the one before went, if it stands
        # on the same index: also where that index is not the call's own.
        if frame.block is not None:
            block = self._blocks.get(frame.block)
            call = block.call if block is not None else None
            is_more = call is not None and call.announced and not frame.id
        else:
            at_hand = self._at_hand
            block, call = at_hand.block, at_hand.call
            is_more = call is not None and frame.index == at_hand.index and (not frame.id or frame.id == call.wire_id)
        if is_more and not frame.name and not frame.whole and frame.opaque is None:
            assert block is not None and call is not None
            if block.final is None:
                if block is not self._written.touched:
                    self._written.touch(block, call)
                if frame.id:
                    call.text.is_resent = True
                return self._argue(call, frame)
        if self._size.is_full:
            return ()
        if frame.block is None:
            call = self._table.place(frame)
            block = self._blocks[call.block] if call is not None else self._open_unplaced(frame.index)
        elif block is None or block.kind not in (BlockKind.CALL, BlockKind.UNKNOWN):
            block = self._open_call(frame.block, index=None)
        return self._overflow() if block is None else self._take_call_delta(frame, block)

    def _take_call_delta(self, frame: ToolCallDelta, block: OpenBlock) -> Sequence[Frame]:
        call = block.call
        if call is None:
            call = self._begin_call(block, index=None)
        if block.final is not None:
            self._note("after_final", block.key)
            return ()
        self._written.touch(block, call)
        if frame.block is None:
            # An index-less or id-less piece goes to the newest call on its index; with an id, to that id's call.
            # After a loss each piece is looked at by the table.
            newest = not self._losses.any and (not frame.id or self._table.newest_on(frame.index) is call)
            if newest:
                self._at_hand.take(block, call, index=frame.index)
            else:
                self._at_hand.leave()
        if not self._size.grow(len(frame.name or "")):
            return self._overflow()
        if (frame.id or frame.name) and call.text.begun:
            call.text.is_resent = True
        self._table.name_call(call, id=frame.id, name=frame.name)
        call.free_form = call.free_form or frame.free_form
        if frame.opaque is not None:
            if not self._size.grow(len(frame.opaque.json)):
                return self._overflow()
            block.opaques.append(frame.opaque)
        if call.is_long:
            return ()
        if frame.arguments == LONG_ARGUMENTS and self._tells_long_calls:
            return self._tell_long(call)
        if frame.whole:
            before = call.text.size
            self._size.see_width(frame.arguments or "")
            said = frame.arguments or "{}"
            if lost_halves(said):
                self._losses.tear(block.key)
            shown = call.text.add_whole(whole_characters(said))
            fits = self._size.grow(call.text.size - before)
            if call.text.size > self._call_bytes or not fits:
                return self._overflow(call if fits else None)
            return self._showing.pieces(call, shown, whole=True)
        return self._argue(call, frame)

    def _argue(self, call: OpenCall, frame: ToolCallDelta) -> Sequence[Frame]:
        """Give a piece of arguments to its call."""
        held = self._size
        if held.is_full or call.is_long:
            return ()
        arguments = frame.arguments or ""
        if call.half or not arguments.isascii():
            held.see_width(arguments)
            arguments = self._join_halves(call, arguments)
        text = call.text
        before = text.size
        shown = text.add_free(arguments) if call.free_form else text.add(arguments)
        size = text.size
        if not held.grow(size - before) or size > self._call_bytes:
            return self._overflow(call if size > self._call_bytes else None)
        if not call.announced:
            return self._showing.pieces(call, shown)
        if not shown:
            return ()
        if frame.block is not None and shown is frame.arguments and not frame.id and not frame.name:
            return (frame,)
        return (call.more(shown),)

    def _part_done(self, frame: PartDone) -> Sequence[Frame]:
        if self._size.is_full:
            return ()
        block = self._blocks.get(frame.block)
        part, is_torn = _whole_part(frame.part)
        if part is not frame.part:
            frame = PartDone(frame.block, part)
        if block is None:
            kind = BlockKind.of(part)
            block = (
                self._open_call(frame.block, index=None) if kind is BlockKind.CALL else self._open(frame.block, kind)
            )
        if isinstance(part, Text | Reasoning | Refusal | ToolCall):
            self._size.see_width(part.arguments if isinstance(part, ToolCall) else part.text)
        if block is None or not self._size.grow(size_of(part)):
            return self._overflow()
        if isinstance(part, ToolCall):
            return self._call_done(block, part, is_torn=is_torn)
        if block.take_final(part):
            self._note("final_item_wins", block.key)
        if not isinstance(part, Text | Refusal) or part.text:
            self._losses.say_again(block.key)
        if is_torn:
            self._losses.tear(block.key)
        return (frame,)

    def _call_done(self, block: OpenBlock, part: ToolCall, *, is_torn: bool) -> Sequence[Frame]:
        call = block.call
        if call is None:
            call = self._begin_call(block, index=None)
        self._written.touch(block, call)
        if call.is_long or (part.arguments == LONG_ARGUMENTS and self._tells_long_calls):
            return self._long_call_done(call, part)
        had_pieces = call.text.begun
        is_poor = says_nothing(part.arguments) and not part.free_form
        says_all = bool(part.arguments) and not (had_pieces and is_poor)
        if had_pieces and is_poor:
            # An item that ends poorer than its pieces has lost them on the way.
            part = msgspec.structs.replace(part, arguments=call.text.joined())
        if had_pieces and (part.arguments != call.text.joined() or (part.name and part.name != call.name)):
            self._note("final_item_wins", block.key)
        before = call.text.size
        call.take_final(part, raw=had_pieces)
        fits = self._size.grow(call.text.size - before)
        if call.text.size > self._call_bytes or not fits:
            return self._overflow(call if fits else None)
        self._table.name_call(call, id=part.id, name=None)
        block.take_final_call(part)
        if says_all:
            self._losses.say_again(block.key)
        if is_torn:
            self._losses.tear(block.key)
        judged = self._judge.settle(block, call, reason=FinishReason.STOP, suspect=False)
        return self._showing.final(call, self._judge.whole(block, call, judged))

    def _long_call_done(self, call: OpenCall, part: ToolCall) -> Sequence[Frame]:
        """The whole form of a call past its limit, of which only the id and the name are kept."""
        self._table.name_call(call, id=part.id, name=None if call.name else part.name)
        return () if call.is_long else self._tell_long(call)

    def _tell_long(self, call: OpenCall) -> Sequence[Frame]:
        """The call is past its limit. Its pieces are dropped from now on."""
        before = call.text.size
        call.drop_text()
        self._size.grow(call.text.size - before)
        return ()

    def _block_data(self, frame: BlockData) -> Sequence[Frame]:
        block = self._blocks.get(frame.block) or self._open(frame.block, BlockKind.UNKNOWN)
        if block is None or not self._size.grow(len(frame.opaque.json)):
            return self._overflow()
        block.opaques.append(frame.opaque)
        return (frame,)

    def _citation(self, frame: CitationAdded) -> Sequence[Frame]:
        block = self._blocks.get(frame.block) or self._open(frame.block, BlockKind.TEXT)
        if block is None or not self._size.grow(len(frame.citation.raw) + len(frame.citation.cited_text or "")):
            return self._overflow()
        self._cited += 1
        if self._cited > MAX_CITATIONS:
            self._note("citations_left_out", "response")
            return ()
        block.citations.append(frame.citation)
        return (frame,)

    def _block_ended(self, frame: BlockEnded) -> Sequence[Frame]:
        block = self._blocks.get(frame.block)
        if block is None:
            return ()
        block.ended = True
        if block.call is None:
            return (frame,)
        self._written.release(block.key)
        return (*self._showing.release(block, block.call, reason=FinishReason.STOP, suspect=False), frame)

    # -- the response ------------------------------------------------------------------------------------------------

    def _begin(self, frame: Started) -> Sequence[Frame]:
        if self._started:
            self._clear()
            self._repairs = {}
            self._note("started_again", "response")
        self._started = True
        self._id = frame.id
        self._model = frame.model
        return (frame,)

    def _usage_reported(self, frame: UsageReported) -> Sequence[Frame]:
        self._usage = frame.usage
        return (frame,)

    def _finished(self, frame: Finished) -> Sequence[Frame]:
        self._limit_reached = self._limit_reached or frame.limit_reached
        before = self._finish
        if before is not None and before.reason is not frame.reason:
            self._note(
                "finish_differs", "response", what=f"`{before.reason}`, then `{frame.reason}`: the gravest counts"
            )
        if before is None or GRAVITY[frame.reason] >= GRAVITY[before.reason]:
            self._finish = frame
        return (*self._release_all(), frame)

    def _faulted(self, frame: Faulted) -> Sequence[Frame]:
        if self._tells_long_calls and frame.fault.kind is FaultKind.TOO_LARGE and self._ends_in_call():
            return ()
        self._fault = self._fault or frame.fault
        return (frame,)

    def _ends_in_call(self) -> bool:
        """Whether what was too long to be read belongs to the current call. It is told as such, and nothing follows it."""
        block = self._blocks[self._table.calls[-1].block] if self._table.calls else None
        call = None if block is None else block.call
        if block is None or call is None or (not call.is_long and (block.ended or block.final or call.text.is_whole())):
            return False
        self._tell_long(call)
        self._size.fill()
        self.is_full = True
        self._finish = self._finish or Finished(FinishReason.TOOL_CALLS)
        return True

    def _mended(self, frame: Mended) -> Sequence[Frame]:
        self._keep_repair(frame.repair)
        return (frame,)

    def _lost(self, frame: Lost) -> Sequence[Frame]:
        self._keep_repair(frame.repair)
        self._losses.lose(frame, blocks=self._blocks.values())
        self._table.lose()
        self._at_hand.leave()
        return (frame,)

    def _passed_on(self, frame: CallForming) -> Sequence[Frame]:
        return (frame,)

    def _restated(self, frame: Restated) -> Sequence[Frame]:
        self._losses.restate()
        return (frame,)

    def _reason(self) -> FinishReason:
        """Why it ended, before the calls are looked at."""
        if self._fault is not None:
            return FinishReason.ERROR
        if self._finish is None:
            return FinishReason.LENGTH if self._limit_reached else FinishReason.CUT
        reason = self._finish.reason
        if self._limit_reached and reason in ENDED_BY_ITSELF:
            self._note("finish_hides_limit", "response")
            return FinishReason.LENGTH
        return reason

    def _own_reason(self, reason: FinishReason, calls: list[ToolCall]) -> FinishReason:
        if reason is FinishReason.STOP and calls:
            return FinishReason.TOOL_CALLS
        if reason is FinishReason.TOOL_CALLS and not calls:
            self._note("finish_without_calls", "response")
            return FinishReason.STOP
        return reason

    def _suspects(self) -> list[OpenBlock]:
        """The calls that a limit may have cut: the one begun last and the one written to last, whatever text came after
        them (a wire need not keep the order of text and calls)."""
        newest = self._blocks[self._table.calls[-1].block] if self._table.calls else None
        return [block for block in (newest, self._written.last) if block is not None]

    # -- keeping ------------------------------------------------------------------------------------------------------

    def _open(self, key: str, kind: BlockKind) -> OpenBlock | None:
        """A new block; one that was of unknown kind so far becomes of this kind. None past the limits."""
        if self._size.is_full or len(self._blocks) >= MAX_PARTS:
            return None
        found = self._blocks.get(key)
        if found is not None and found.kind is BlockKind.UNKNOWN:
            found.kind = kind
            return found
        if found is not None:  # two kinds on one key: they are two parts
            key = f"{key}/{kind.value}"
            if key in self._blocks:
                return self._blocks[key]
        block = self._blocks[key] = OpenBlock(key=key, kind=kind)
        return block

    def _open_call(self, key: str, *, index: int | None) -> OpenBlock | None:
        block = self._open(key, BlockKind.CALL)
        if block is not None and block.call is None:
            self._begin_call(block, index=index)
        return block

    def _open_unplaced(self, index: int | None) -> OpenBlock | None:
        number = len(self._table.calls)
        while f"call:{number}" in self._blocks:
            number += 1
        block = self._open_call(f"call:{number}", index=index)
        if block is not None and block.call is not None:
            block.call.placed = True
            if index is None:
                self._table.note_bare(block.call)
        return block

    def _begin_call(self, block: OpenBlock, *, index: int | None) -> OpenCall:
        call = self._table.begin(block=block.key, index=index)
        block.kind = BlockKind.CALL
        block.call = call
        self._losses.begin_call(block.key)
        self._showing.begin(call)
        return call

    def _release_all(self) -> list[Frame]:
        """Show how the calls stand that were written to since this was done last."""
        reason, suspects = self._reason(), self._suspects()
        frames: list[Frame] = []
        for key, call in self._written.release_all().items():
            block = self._blocks[key]
            frames += self._showing.release(block, call, reason=reason, suspect=block in suspects)
        return frames + self._showing.release_twins(self._blocks, reason=reason, suspects=suspects)

    def _note(self, kind: str, where: str, *, what: str = "") -> None:
        found = repair(kind, where=where, what=what)
        self._keep_repair(found)

    def _keep_repair(self, found: Repair) -> None:
        """Past MAX_REPAIRS only that there were more: a stream may need one for every chunk."""
        if len(self._repairs) >= MAX_REPAIRS and found not in self._repairs:
            found = MORE_REPAIRS
        self._repairs[found] = self.repair_kinds[found.kind] = None

    def _overflow(self, call: OpenCall | None = None) -> Sequence[Frame]:
        """Past a limit: say so once, and keep nothing more."""
        if self._size.is_full:
            return ()
        if call is not None and self._tells_long_calls:
            return self._tell_long(call)
        self._size.fill()
        self.is_full = True
        if call is not None:
            message = f"the arguments of the call `{call.name[:64]}` are longer than {self._call_bytes} bytes"
        elif len(self._blocks) >= MAX_PARTS:
            message = f"the response has more than {MAX_PARTS} parts"
        else:
            message = f"the response is longer than {self._size.limit_bytes} bytes"
        fault = Fault(kind=FaultKind.TOO_LARGE, message=message)
        self._fault = self._fault or fault
        return (Faulted(fault),)

    _TAKE: ClassVar[dict[type[Frame], Callable[..., Sequence[Frame]]]] = {
        TextDelta: _words,
        ReasoningDelta: _words,
        RefusalDelta: _words,
        ToolCallDelta: _call_delta,
        PartDone: _part_done,
        BlockData: _block_data,
        BlockEnded: _block_ended,
        CitationAdded: _citation,
        UsageReported: _usage_reported,
        Started: _begin,
        Finished: _finished,
        Faulted: _faulted,
        Mended: _mended,
        Lost: _lost,
        Restated: _restated,
        CallForming: _passed_on,
    }


def _whole_part(part: Part) -> tuple[Part, bool]:
    """The part without halves of characters, and whether the other half of one is lost."""
    match part:
        case Text() | Reasoning() | Refusal() if (text := whole_characters(part.text)) is not part.text:
            return msgspec.structs.replace(part, text=text), lost_halves(part.text)
        case ToolCall() if (text := whole_characters(part.arguments)) is not part.arguments:
            return msgspec.structs.replace(part, arguments=text), lost_halves(part.arguments)
        case _:
            return part, False


def as_counted(usage: Usage | None, *, parts: Sequence[Part]) -> Usage | None:
    """The usage, its output untold where it leaves no token for what the model wrote, beside its reasoning or at all."""
    if usage is None or usage.output_tokens > usage.reasoning_tokens:
        return usage
    has_spoken = any(map(_is_answer, parts))
    has_thought = any(isinstance(part, Reasoning) and part.text for part in parts)
    is_silent = usage.output_tokens == usage.reasoning_tokens and has_spoken
    if is_silent or (not usage.output_tokens and has_thought):
        return with_untold(usage, ("output_tokens",))
    return usage


def _is_answer(part: Part) -> bool:
    match part:
        case Text(text=text) | Refusal(text=text):
            return bool(text)
        case _:
            return isinstance(part, ToolCall | File)
