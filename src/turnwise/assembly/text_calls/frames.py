"""Frames of a decoder in, frames for the assembler out: calls in the text become frames of calls.

Calls count only where the response has none of its own. Those may come last, so a block is given out as a call only when words
follow it or the response is over; if an own call comes after that, the block's call stays, and does not run.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import groupby
from typing import ClassVar, cast

import msgspec

from turnwise.assembly.call_states import LOST_CALL
from turnwise.assembly.json_text import Truncated, classify
from turnwise.assembly.text_calls import tags as endings
from turnwise.assembly.text_calls.block_cursor import Made, Meant, ReadCall, Say, TextEvent, Think, Unmade, words_of
from turnwise.assembly.text_calls.code import MOST_UNSEEN
from turnwise.assembly.text_calls.following_text import TEXTS_MIXED, doubts_of, split_at_lone_mark
from turnwise.assembly.text_calls.quotations import Quotations
from turnwise.assembly.text_calls.syntaxes import MARKS
from turnwise.assembly.text_calls.text_reader import TextReader
from turnwise.assembly.text_calls.values import OfferedTools
from turnwise.vocab import (
    BESIDE_OWN_CALLS,
    CALL_NOT_MADE,
    CALL_NOT_READ,
    NO_FINISH_REASON,
    WRITTEN_WRONGLY,
    ArgumentsState,
    BlockData,
    BlockEnded,
    CallForming,
    CitationAdded,
    Faulted,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Message,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
)

MOST_ECHOED = 1024 * 1024  # characters of reasoning that are kept to tell an echo of them
MAX_OPENERS = 4  # frames of a run that are taken alone at most, before the rest is looked at together
_TEXTS: AbstractSet[type[Frame]] = {TextDelta}
_REASONINGS: AbstractSet[type[Frame]] = {ReasoningDelta}
MEANT_TO_END = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})


class _Final(msgspec.Struct):
    """A text that the provider has said as a whole, while what is a call in it is not decided."""

    frame: PartDone
    text: Text
    reader: TextReader
    events: list[TextEvent]


class _Given(msgspec.Struct):
    """A call that was given out."""

    id: str
    block: str
    call: ReadCall
    syntax: str


class _Echoes:
    """What the provider says as reasoning, to tell the same words between marks in the text. MiniMax's servers say each piece in
    both places (can1357/oh-my-pi#2434). One character that differs, and all that was held back is reasoning of its own."""

    def __init__(self) -> None:
        self._pieces: list[str] = []  # as the provider said them
        self._size = 0
        self._expected = ""  # what of them has not come in the text
        self._at = 0  # the beginning of that in `_expected`
        self._blank: str = ""  # came before the first of the words
        self._held: list[str] | None = []  # came in the text, and was said before; None: the text says other things

    def hear(self, text: str) -> None:
        if self._held is not None and self._size < MOST_ECHOED:
            self._pieces.append(text)
            self._size += len(text)

    def new_in(self, text: str) -> str:
        """What of this reasoning in the text the provider has not said as reasoning."""
        if self._held is None or not self._size:
            return text
        if self._pieces:
            self._expected, self._at = self._expected[self._at :] + "".join(self._pieces), 0
            self._pieces.clear()
        bare = text
        if not self._held:  # templates put line breaks between the mark and the words
            text = self._blank + text
            self._blank = ""
            bare = text.lstrip()
            if not bare:
                self._blank = text
                return ""
            self._at = len(self._expected) - len(self._expected[self._at :].lstrip())
        if self._expected.startswith(bare, self._at) or self._says_rest(bare):
            self._held.append(text)
            self._at = min(self._at + len(bare), len(self._expected))
            return ""
        told = "".join([*self._held, text])
        self._held = None
        self._pieces.clear()
        self._expected = ""
        return told

    def _says_rest(self, text: str) -> bool:
        """Whether this says what is left, and blanks."""
        return text.rstrip() == self._expected[self._at :].rstrip()


class CallFinder:
    """One response. `take` every read's frames, `finish` once the last has come.

    `tools` are those on offer, `earlier` the messages of the request. `unmarked`: an answer that is only a fence or a JSON object
    may be a call. `leading`: only a call that begins the text counts.
    """

    def __init__(
        self,
        *,
        tools: Sequence[ToolSpec],
        earlier: Sequence[Message] = (),
        unmarked: bool = False,
        leading: bool = False,
        id_prefix: str = "call",
    ) -> None:
        self._specs, self._earlier = tools, earlier
        self._unmarked = unmarked
        self._leading = leading
        self._id_prefix = id_prefix
        self._count = 0
        self._began = False
        self._is_over = False
        self._ended_behind_call = False  # when it was over
        self._clear()

    def _clear(self) -> None:
        self._texts: dict[str, TextReader] = {}  # in the order of the response
        self._unread: dict[str, str] = {}  # texts that nobody had to read yet
        self._finals: dict[str, _Final] = {}
        self._passed: set[str] = set()  # texts that the provider has said as a whole, and that are given so
        self._asides: dict[str, TextReader] = {}  # reasoning and refusals
        self._given: dict[str, list[_Given]] = {}  # by the text's block
        self._thought: dict[str, int] = {}  # characters of reasoning that were given out, by the text's block
        self._echoes = _Echoes()
        self._told_wrong: dict[str, int] = {}  # calls that cannot run and were told, by the text's block
        self._not_made: dict[str, str] = {}  # tools whose calls stand in reasoning or a refusal, and where
        self._has_own = False
        self._lost = False
        self._is_finished_by_itself = False
        self._is_faulted = False
        self._last = ""  # the text that was written to last
        self._words: list[str] | None = None  # where its words without a mark go, while nothing else comes
        self._told = 0  # characters held when it was told last
        self._opening: list[BlockData] = []  # what came of a text before its words, behind whose reasoning it belongs

    @cached_property
    def _tools(self) -> OfferedTools:
        return OfferedTools(self._specs)  # most responses have no text that asks for them

    @cached_property
    def _quotations(self) -> Quotations:
        return Quotations(self._earlier, tools=self._tools)

    @property
    def holds(self) -> bool:
        """Whether something waits for the end of the response."""
        return bool(self._finals) or any(reader.held for reader in self._texts.values())

    def is_behind_call(self) -> bool:
        """Whether the response so far ends with a whole call in its text: nothing but its end mark need be missing. Costs as
        much as what is held is long; after `finish` nothing."""
        if self._is_over:
            return self._ended_behind_call
        readers = [*self._texts.values()]
        if self._lost or self._has_own or not readers or not readers[-1].held:
            return False
        return all(reader.is_behind_call() for reader in readers if reader.held)

    def passes(self, frame: Frame) -> bool:
        """Whether a frame that comes alone goes on as it came, told at a glance because speed counts. It is taken then; any other
        is for `take`."""
        words = self._words
        if words is None:
            return self._has_own and type(frame) is not Started
        if type(frame) is not TextDelta:
            return False
        text = frame.text
        if "<" in text or "[" in text or len(words) >= MOST_UNSEEN or frame.block != self._last:
            return False
        words.append(text)
        return True

    def passing(self, frames: list[TextDelta]) -> str | None:
        """What several deltas say together, if they go on as they came: all more of one text. They are taken then, as by
        `passes`."""
        block = frames[0].block
        reader = None if self._has_own or self._opening or block != self._last else self._texts.get(block)
        return None if reader is None else _passing(frames, block=block, reader=reader)

    def take(self, frames: list[Frame], *, kinds: AbstractSet[type[Frame]] | None = None) -> list[Frame]:
        """The frames to assemble. Those of a response without marks are the very same. `kinds` are theirs, where known."""
        kinds = set(map(type, frames)) if kinds is None else kinds
        if self._are_plain(frames, kinds):
            return frames
        self._words = None
        given: list[Frame] = []
        if TextDelta not in kinds:
            for frame in frames:
                self._take(frame, given)
        else:
            for kind, run in groupby(frames, key=type):
                if kind is TextDelta:
                    self._take_run(list(run), given)
                else:
                    for frame in run:
                        self._take(frame, given)
        reader = self._texts.get(self._last)
        if reader is not None and not self._has_own:
            self._words = None if self._opening else reader.unseen
            if (held := reader.held) and held != self._told:
                self._told = held
                given.append(CallForming(self._last, held))
        return given

    def _take_run(self, frames: list[Frame], given: list[Frame]) -> None:
        """Words. Once the first ones have shown what they belong to, the rest may pass as it is."""
        for at, frame in enumerate(frames):
            if at in (1, MAX_OPENERS) and self._are_plain(frames[at:], _TEXTS):
                given += frames[at:]
                return
            self._take(frame, given)

    def _are_plain(self, frames: list[Frame], kinds: AbstractSet[type[Frame]]) -> bool:
        """Whether they pass as they are: all more of one text, or all beside calls of the response's own."""
        if self._has_own:
            return Started not in kinds
        if kinds == _TEXTS:
            return self.passing(cast("list[TextDelta]", frames)) is not None
        if kinds != _REASONINGS or self._opening:
            return False
        reasonings = cast("list[ReasoningDelta]", frames)
        block = reasonings[0].block
        reader = self._asides.get(block)
        text = None if reader is None else _passing(reasonings, block=block, reader=reader)
        if text is not None:
            self._echoes.hear(text)
        return text is not None

    def finish(self, *, is_closed: bool = False) -> list[Frame]:
        """No more frames will come. `is_closed`: nothing but the end mark is missing."""
        given: list[Frame] = []
        if not self._is_finished_by_itself:
            self._ended_behind_call = self.is_behind_call()
        self._is_over = True
        by_itself = (is_closed or self._is_finished_by_itself) and not self._is_faulted
        if self._texts:
            self._finish_texts(given, by_itself=by_itself)
        self._unread = {}
        self._open(given)
        for block, reader in self._asides.items():
            self._note_aside(reader.finish(by_itself=by_itself), block)
        self._asides = {}
        for calls in self._given.values():
            given += [BlockEnded(one.id) for one in calls]
        if not self._given and not self._has_own:
            for tool, where in self._not_made.items():
                what = f"a call of `{tool}` was written there, and was not made"
                given.append(Mended(Repair(CALL_NOT_MADE, where, what)))
        return given

    def settled(self, response: Response) -> Response:
        """The whole response, where its text begins with the end of reasoning whose opening mark stands in the prompt: what
        watchers were shown stays, and the response holds reasoning and answer apart."""
        parts = response.message.parts
        first = parts[0] if parts else None
        if type(first) is not Text or first.citations or (halves := split_at_lone_mark(first.text)) is None:
            return response
        thought, words = halves
        kept = [msgspec.structs.replace(first, text=words)] if words else []
        parts = (*([Reasoning(thought)] if thought else []), *kept, *parts[1:])
        return msgspec.structs.replace(response, message=msgspec.structs.replace(response.message, parts=parts))

    def _finish_texts(self, given: list[Frame], *, by_itself: bool) -> None:
        """All texts are over: what waited for that, in their order, and then what they say about the calls before."""
        self._pass_over_unread()
        readers = [*self._texts.values()]
        is_alone = sum([not reader.is_blank for reader in readers]) <= 1
        for block, reader in self._texts.items():
            final = self._finals.get(block)
            if final is None:
                self._give(reader.finish(by_itself=by_itself, is_alone=is_alone), block, given)
            else:
                self._end_final(block, final, reader.finish(by_itself=by_itself, is_alone=is_alone), given)
        if by_itself:
            self._give(readers[-1].unclosed(), self._last, given)
            if not self._count and readers[-1].aftermath.ends_in_markup:
                given.append(Mended(Repair(CALL_NOT_READ, "text", "the answer ends with the markup of a call")))
        if self._given:
            doubts = doubts_of([reader.aftermath for reader in readers], is_cut=not by_itself)
            is_mixed = False
            for at, block in enumerate(self._texts):
                is_mixed = is_mixed or (at > 0 and readers[at].began_in != readers[at - 1].ends_in)
                if is_mixed:
                    self._mark_given(f"{WRITTEN_WRONGLY}: {TEXTS_MIXED}", given, block=block)
                for doubt in doubts[at]:
                    self._mark_given(f"{WRITTEN_WRONGLY}: {doubt.why}", given, block=block, first=doubt.calls)
        self._texts, self._finals = {}, {}

    # frames

    def _take(self, frame: Frame, given: list[Frame]) -> None:
        if self._opening and (block := getattr(frame, "block", None)) is not None and block != self._opening[0].block:
            self._open(given)
        take = self._TAKE.get(type(frame))
        if take is None:
            given.append(frame)
        else:
            take(self, frame, given)

    def _take_aside(self, frame: ReasoningDelta | RefusalDelta, given: list[Frame]) -> None:
        if type(frame) is ReasoningDelta:
            self._echoes.hear(frame.text)
        self._begin_part(frame.block, given)
        given.append(frame)
        self._look_aside(frame.text, frame.block)

    def _take_call(self, frame: ToolCallDelta, given: list[Frame]) -> None:
        if not self._has_own:
            if frame.id or frame.name or frame.arguments:
                self._take_own(given)
            self._open(given)
        given.append(frame)

    def _take_part(self, frame: PartDone, given: list[Frame]) -> None:
        match frame.part:
            case Text() as part if not self._has_own:
                self._take_final(frame, part, given)
                return
            case ToolCall() if not self._has_own:
                self._take_own(given)
                given.append(frame)
            case Reasoning(text=text) | Refusal(text=text):
                self._begin_part(frame.block, given)
                given.append(frame)
                if frame.block not in self._asides:
                    if type(frame.part) is Reasoning:
                        self._echoes.hear(text)
                    self._look_aside(text, frame.block)
            case ToolCall():
                given.append(frame)
            case _:
                self._begin_part(frame.block, given)
                given.append(frame)

    def _take_data(self, frame: BlockData, given: list[Frame]) -> None:
        if self._has_own or frame.block in self._texts:
            given.append(frame)
        else:
            self._opening.append(frame)

    def _take_citation(self, frame: CitationAdded, given: list[Frame]) -> None:
        self._open(given)
        given.append(frame)

    def _take_start(self, frame: Started, given: list[Frame]) -> None:
        if self._began:
            self._clear()
        self._began = True
        given.append(frame)

    def _take_end(self, frame: Finished, given: list[Frame]) -> None:
        self._is_finished_by_itself = frame.reason in MEANT_TO_END and not frame.limit_reached
        given.append(frame)

    def _take_repair(self, frame: Mended, given: list[Frame]) -> None:
        self._is_finished_by_itself = self._is_finished_by_itself or frame.repair.kind == NO_FINISH_REASON
        given.append(frame)

    def _take_fault(self, frame: Faulted, given: list[Frame]) -> None:
        self._is_faulted = True
        given.append(frame)

    def _take_loss(self, frame: Lost, given: list[Frame]) -> None:
        self._lost = True  # no call that is read from here on is known to be whole
        given.append(frame)

    def _begin_part(self, block: str, given: list[Frame]) -> None:
        """More of a part that is no text, or its beginning."""
        if block not in self._asides and not self._has_own:
            self._keep_place(given)
        self._open(given)

    def _open(self, given: list[Frame], *, block: str | None = None) -> None:
        """Give what was kept of a text's beginning, or of this one's."""
        if self._opening and block in (None, self._opening[0].block):
            given += self._opening
            self._opening = []

    def _take_words(self, frame: TextDelta, given: list[Frame]) -> None:
        if self._has_own:
            given.append(frame)
            return
        text, block = frame.text, frame.block
        reader = self._texts.get(block)
        if reader is None:
            self._keep_place(given)
            reader = self._texts[block] = self._new_reader(block)
        self._last = block
        if reader.passes(text):
            self._open(given)
            given.append(frame)
            return
        self._give(reader.feed(text), block, given)

    def _keep_place(self, given: list[Frame]) -> None:
        """Another part begins: what is held of the last text stands before it."""
        block = next(reversed(self._texts), "")
        final = self._finals.get(block)
        is_held = block in self._texts and block not in self._passed and self._texts[block].unseen is None
        if is_held or (final is not None and (final.text.opaque or final.text.citations)):
            given.append(TextDelta("", block))

    def _new_reader(self, block: str) -> TextReader:
        """For a text that goes on where the one before it is."""
        self._unread.pop(block, None)
        self._pass_over_unread()
        blocks = [*self._texts]
        before = blocks[: blocks.index(block)] if block in self._texts else blocks
        return TextReader(
            self._tools,
            quotations=self._quotations,
            unmarked=self._unmarked,
            leading=self._leading,
            after=self._texts[before[-1]] if before else None,
        )

    def _pass_over_unread(self) -> None:
        unread, self._unread = self._unread, {}
        for block, text in unread.items():
            self._texts[block] = self._new_reader(block)
            self._texts[block].pass_over(text)

    def _take_own(self, given: list[Frame]) -> None:
        """The response has a call of its own: what was held is text, and what was given out as calls does not run."""
        self._has_own = True
        for block, reader in self._texts.items():
            final = self._finals.get(block)
            if final is None:
                self._give(reader.release(), block, given)
            else:
                self._end_final(block, final, reader.release(), given)
        self._open(given)
        self._texts, self._finals, self._unread = {}, {}, {}
        self._mark_given(BESIDE_OWN_CALLS, given)

    # finals

    def _take_final(self, frame: PartDone, part: Text, given: list[Frame]) -> None:
        """The provider says a text as a whole. What stands in it decides, in place of the pieces."""
        block = frame.block
        before = self._texts.get(block)
        if before is None:
            self._keep_place(given)
        if before is None and not self._has_to_be_read(part.text):
            self._unread[block] = part.text
            self._pass(frame, given)
            return
        reader = self._new_reader(block)
        events = reader.feed(part.text)
        is_touched = reader.is_touched or (before is not None and before.is_touched)
        if not is_touched and not part.text.isspace():
            self._pass(frame, given)
            reader.release()
            self._texts[block] = reader
            return
        self._texts[block] = reader
        self._finals[block] = _Final(frame=frame, text=part, reader=reader, events=events)
        if before is None:  # in the order in which a stream of it gives them; all of its words come at the end
            self._give([Say("") if isinstance(event, Say) else event for event in events], block, given)

    def _pass(self, frame: PartDone, given: list[Frame]) -> None:
        """The text is as it was said."""
        self._open(given)
        given.append(frame)
        self._passed.add(frame.block)

    def _has_to_be_read(self, text: str) -> bool:
        begins = text.lstrip()[:1]
        if (
            MARKS.search(text) is not None
            or begins in ("<", "[", "◁")
            or self._unmarked
            or endings.ending_from(text) < len(text)
        ):
            return True
        if not self._texts:
            return False
        return text.isspace() or [*self._texts.values()][-1].is_thinking  # blanks wait for the calls before them

    def _end_final(self, block: str, final: _Final, last: list[TextEvent], given: list[Frame]) -> None:
        """`last` is what was found when the text was over."""
        events = final.events + last
        made = [event.call for event in events if isinstance(event, Made)]
        before = [one.call for one in self._given.get(block, [])]
        if before != made[: len(before)]:
            self._open(given, block=block)
            given.append(final.frame)
            self._mark_given(f"{WRITTEN_WRONGLY}: the text was said again, and without it", given, block=block)
            return
        left, told, thought = len(before), self._told_wrong.get(block, 0), self._thought.get(block, 0)
        for event in events:
            match event:
                case Made() if left:
                    left -= 1
                case Unmade() if told:
                    told -= 1
                case Say():
                    self._give([Say("")], block, given)
                case Think(text=text):
                    if rest := text[thought:]:
                        self._give([Think(rest)], block, given)
                    thought = max(0, thought - len(text))
                case _:
                    self._give([event], block, given)
        self._open(given, block=block)
        given.append(PartDone(block, msgspec.structs.replace(final.text, text=words_of(events))))

    # events

    def _give(self, events: Sequence[TextEvent], block: str, given: list[Frame]) -> None:
        for event in events:
            match event:
                case Say(text=text):
                    self._open(given, block=block)
                    given.append(TextDelta(text, block))
                case Think(text=text):
                    self._thought[block] = self._thought.get(block, 0) + len(text)
                    if new := self._echoes.new_in(text):
                        given.append(ReasoningDelta(new, f"{block}/reasoning"))
                        self._look_aside(new, f"{block}/reasoning")
                case Made():
                    self._make(event, block, given)
                case Unmade():
                    self._told_wrong[block] = self._told_wrong.get(block, 0) + 1
                    self._unmake(event, given)
                case Meant(name=name):
                    self._not_made.setdefault(name, f"{block}/reasoning")

    def _make(self, made: Made, block: str, given: list[Frame]) -> None:
        id = self._new_id()
        call = made.call
        if self._lost:
            lost = ToolCall(
                id=id, name=call.name, arguments=call.arguments, state=ArgumentsState.LOST, reason=LOST_CALL
            )
            given.append(PartDone(id, lost))
            return
        given.append(ToolCallDelta(block=id, id=id, name=call.name, arguments=call.arguments))
        given.append(Mended(Repair("call_in_text", f"call {id}", f"read from the text, written as {made.syntax}")))
        self._given.setdefault(block, []).append(_Given(id=id, block=block, call=call, syntax=made.syntax))

    def _unmake(self, unmade: Unmade, given: list[Frame]) -> None:
        id = self._new_id()
        state, reason = ArgumentsState.INVALID, f"{WRITTEN_WRONGLY}: {unmade.why}"
        if self._lost:
            state, reason = ArgumentsState.LOST, LOST_CALL
        elif not unmade.why:
            verdict = classify(unmade.arguments)
            state = ArgumentsState.TRUNCATED
            reason = verdict.reason if isinstance(verdict, Truncated) else "cut in the text"
        call = ToolCall(id=id, name=unmade.name, arguments=unmade.arguments, state=state, reason=reason)
        given.append(PartDone(id, call))
        what = f"written as {unmade.syntax}, and {'not whole' if not unmade.why else 'wrong'}"
        given.append(Mended(Repair("call_in_text", f"call {id}", what)))

    def _mark_given(
        self, reason: str, given: list[Frame], *, block: str | None = None, first: int | None = None
    ) -> None:
        """The calls that were given out do not run, or the first so many of the block."""
        for key, calls in self._given.items():
            if block in (None, key):
                given += [
                    PartDone(
                        one.id,
                        ToolCall(
                            id=one.id,
                            name=one.call.name,
                            arguments=one.call.arguments,
                            state=ArgumentsState.INVALID,
                            reason=reason,
                        ),
                    )
                    for one in calls[:first]
                ]

    def _new_id(self) -> str:
        self._count += 1
        return f"{self._id_prefix}_in_text_{self._count}"

    # reasoning and refusals

    def _look_aside(self, text: str, block: str) -> None:
        """A call there is not made, but told."""
        reader = self._asides.get(block)
        if reader is None:
            reader = self._asides[block] = TextReader(self._tools, quotations=self._quotations, is_aside=True)
        if not reader.passes(text):
            self._note_aside(reader.feed(text), block)

    def _note_aside(self, events: Sequence[TextEvent], block: str) -> None:
        for event in events:
            if isinstance(event, Made):
                self._not_made.setdefault(event.call.name, block)
            elif isinstance(event, Unmade | Meant) and event.name:
                self._not_made.setdefault(event.name, block)

    _TAKE: ClassVar[dict[type[Frame], Callable[..., None]]] = {
        TextDelta: _take_words,
        ReasoningDelta: _take_aside,
        RefusalDelta: _take_aside,
        BlockData: _take_data,
        CitationAdded: _take_citation,
        ToolCallDelta: _take_call,
        PartDone: _take_part,
        Started: _take_start,
        Finished: _take_end,
        Mended: _take_repair,
        Faulted: _take_fault,
        Lost: _take_loss,
    }


def _passing(frames: Sequence[TextDelta | ReasoningDelta], *, block: str, reader: TextReader) -> str | None:
    """The words of these, if all are more of this text and no mark begins in them."""
    if len(frames) == 1:
        text = frames[0].text
    else:
        words = [frame.text for frame in frames if frame.block == block]
        if len(words) < len(frames):
            return None
        text = "".join(words)
    return text if reader.passes(text) else None
