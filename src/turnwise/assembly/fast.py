"""The fast ways through frames that come together. `response.py` takes every frame alone: read it first.

A fast way takes a run: frames of one kind that bring more of one part, which has begun. It leaves all other frames to the plain
way. Both give the same response and show the same frames (tests/assembly/test_fast_runs.py).

| way | takes | skips |
|---|---|---|
| words | more of one text, or of one reasoning: whole characters that fit | finding the part of each, and counting it alone |
| known words | the same, if the caller has joined them already | joining them |
| arguments | more of one call's arguments that say nothing else and fit | placing each, and counting it alone |
| plain arguments | those of them that cannot repeat or begin a value | asking this of each |
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import cast

from turnwise.assembly.argument_text import ArgumentText
from turnwise.assembly.blocks import TEXT_KINDS, CallAtHand, OpenBlock, ResponseSize, WrittenCalls
from turnwise.assembly.heal import size_if_whole
from turnwise.vocab import Frame, ReasoningDelta, TextDelta, ToolCallDelta

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
