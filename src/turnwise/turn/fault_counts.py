"""What a turn counts of its failures, and what the model has said outside the messages of its history."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.rules.loops import (
    Beginning,
    Loop,
    LoopGuard,
    LoopVerdict,
    beginning_of,
    begins_alike,
    remembered_result,
    word,
)
from turnwise.rules.recovery import Cut
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import PlannedCall
from turnwise.vocab import ADAPTED, Message, Repair, Text, ToolCall, ToolResult
from turnwise.vocab.hidden_characters import says_something

# A gateway that broke the responses of two steps will break the next one, too. Then the turn uses what arrives.
LOSING_STEPS = 2

Happened = Literal["called", "empty", "corrected", "eaten", "asked beyond the cap", "ended silently"]
# Which events reset which counts.
RESETS: dict[Happened, dict[str, int | bool]] = {
    "called": {"empties": 0, "eaten": 0, "correcting": False},
    "corrected": {"empties": 0, "eaten": 0},
}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one turn, except those that limits know."""

    has_called: bool = False  # a step of this turn had calls
    eaten: int = 0  # responses in a row that reasoning used up
    empties: int = 0  # empty responses in a row
    corrections: int = 0  # of the answer's output
    correcting: bool = False  # the next answer is a corrected one
    extra_used: bool = False  # the one request beyond the step cap
    silent_ends: int = 0  # responses that ended without any output
    losing: tuple[int, ...] = ()  # steps with an additional request because a piece of a response was lost

    def after(self, happened: Happened) -> "Tally":
        if happened == "called" and self.has_called and not (self.empties or self.eaten or self.correcting):
            return self
        set_back = replace(self, **RESETS.get(happened, {}))
        match happened:
            case "called":
                return set_back if self.has_called else replace(set_back, has_called=True)
            case "empty":
                return replace(set_back, empties=self.empties + 1)
            case "corrected":
                return replace(set_back, corrections=self.corrections + 1, correcting=True)
            case "eaten":
                return replace(set_back, eaten=self.eaten + 1)
            case "asked beyond the cap":
                return replace(set_back, extra_used=True)
            case "ended silently":
                return replace(set_back, silent_ends=self.silent_ends + 1)

    def lost_in(self, step: int) -> "Tally":
        return replace(self, losing=(*self.losing, step))

    @property
    def may_ask_for_lost(self) -> bool:
        return len(self.losing) < LOSING_STEPS


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What the model has said that is not, or not only, in the last message of the history."""

    said: str = ""  # the text of paused responses, which the next response continues
    said_lost: bool = False  # a piece of it did not arrive
    unfit: str = ""  # its last answer, which needed a correction
    beside: str = ""  # what it said beside its last calls

    def first(self, arrived: str) -> str:
        """The newest text that is not empty."""
        said = (arrived, self.said, self.unfit, self.beside)
        return next((text for text in said if says_something(text)), "")

    def paused(self, text: str, *, lost: bool) -> "Words":
        return replace(self, said=text, said_lost=lost)

    def called(self, text: str) -> "Words":
        is_same = text == self.beside and not (self.said or self.said_lost)
        return self if is_same else replace(self, beside=text, said="", said_lost=False)

    def corrected(self, text: str) -> "Words":
        return replace(self, unfit=text, said="", said_lost=False)

    def answered(self) -> "Words":
        """An answer came, and the turn continues: the words belong to this answer, not to the next one."""
        return replace(self, said="", said_lost=False)

    def asked_anew(self) -> "Words":
        """The user has said something: the unfit answer was for the earlier question."""
        return replace(self, unfit="") if self.unfit else self

    def cut(self, text: str) -> "Words":
        return replace(self, beside=text) if text else self


class Record(msgspec.Struct, kw_only=True):
    """What the result tells about the turn besides its answer: the repairs, and the model's thinking."""

    repairs: list[Repair]
    reasonings: list[str] = []
    adapted_before: frozenset[Repair] = frozenset()  # what earlier turns of the session told about adapted settings

    @property
    def adapted(self) -> frozenset[Repair]:
        """What the session was told about settings that go to the model in another form."""
        return self.adapted_before | {repair for repair in self.repairs if repair.kind == ADAPTED}

    def repair(self, repairs: Sequence[Repair]) -> None:
        self.repairs += repairs

    def reason(self, text: str) -> None:
        self.reasonings.append(text)


# The loop guard in a turn: it judges the calls of a step before they run and reads their results afterwards.
#
# It also knows the calls that turnwise continued without success: calls that were joined but then did not fit the tool's
# parameters, and calls that could not be joined. Such a call is not continued again in this turn, because each time costs as much
# as the first.


# A loop ends the turn before it has more results with a note.
MAX_NOTED = 8
# A turn does not make more of them: each has cost a request for its rest.
MAX_VAIN = 16

MISFIT = (
    " It was not continued: the model had continued a call that began like this one, and the whole call did not fit the "
    "parameters of `{tool}`. "
    "The result of that call says what to correct."
)


class Guarding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the guard knows, and what it said about the current calls. With `ends` the next request is the forced answer."""

    guard: LoopGuard = LoopGuard()
    judged: LoopVerdict | None = None
    ends: Loop | None = None
    noted: tuple[str, ...] = ()  # calls whose result ends with a text of turnwise's
    joined: bool = False  # the current response has a call that was continued
    misfits: tuple[Beginning, ...] = ()  # joined calls that did not fit
    unjoined: tuple[Beginning, ...] = ()  # calls that could not be joined

    def judge(self, calls: Sequence[ToolCall], *, misfits: Sequence[ToolCall]) -> "Guarding":
        """Judge the calls. `calls` are as the model wrote them: in the history, the arguments of a cut call are emptied.
        `misfits` are whole calls among them that did not fit their parameters."""
        vain = misfits if self.joined else ()
        begun = (*self.misfits, *[beginning_of(call) for call in vain])[-MAX_VAIN:]
        judged = self.guard.before(calls, joined=[call.id for call in vain])
        return replace(self, judged=judged, joined=False, misfits=begun)

    def forgetting(self) -> "Guarding":
        """Forget the calls: a summary has replaced their messages."""
        return replace(self, guard=LoopGuard())

    def recovered(self, calls: Sequence[ToolCall], *, repairs: Sequence[Repair]) -> "Guarding":
        """Note what became of a response's cut `calls`. The `repairs` of the continuation say it."""
        refused = {repair.where for repair in repairs if repair.kind == "continuation_refused"}
        # Compare by the words alone: other pieces of a file have the same whole keys before them.
        unjoined = [replace(beginning_of(call), stem="") for call in calls if f"call {call.id}" in refused]
        joined = any(repair.kind == "continued_call" for repair in repairs)
        return replace(self, joined=joined, unjoined=(*self.unjoined, *unjoined)[-MAX_VAIN:])

    def is_misfit(self, call: ToolCall) -> bool:
        """Whether the whole of a cut call would not fit its tool's parameters, judged by its beginning."""
        begun = beginning_of(call)
        return any(begins_alike(begun, other=other) for other in self.misfits)

    def spare(self, cut: Cut) -> Cut:
        """The cut, without a prefix for calls whose continuation has failed before: those are not continued."""
        return replace(
            cut, calls=tuple([replace(one, prefix=None) if self._is_vain(one.call) else one for one in cut.calls])
        )

    def _is_vain(self, call: ToolCall) -> bool:
        begun = beginning_of(call)
        return any(begins_alike(begun, other=other) for other in (*self.misfits, *self.unjoined))

    def answers(
        self, planned: Sequence[PlannedCall], *, messages: Sequence[Message], offers: Mapping[str, ToolOffer]
    ) -> dict[str, ToolResult]:
        """The results of calls that do not run, because they have run before and gave the same result each time."""
        remembered = self.judged.remembered if self.judged is not None else {}
        calls = [plan.call for plan in planned if plan.call.id in remembered]
        if not calls:
            return {}
        wanted = {remembered[call.id] for call in calls}
        earlier = {
            part.call_id: self._without_note(part)
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult) and part.call_id in wanted
        }
        return {
            call.id: remembered_result(
                call, earlier=earlier[found], changes=offers[call.name].effect not in ("none", "read")
            )
            for call in calls
            if (found := remembered[call.id]) in earlier
        }

    def close(
        self, results: Sequence[ToolResult], *, offers: Mapping[str, ToolOffer]
    ) -> tuple["Guarding", tuple[ToolResult, ...]]:
        """The guard that also knows the judged step, and the step's results. The last result has a note for a model that repeats
        itself."""
        if self.judged is None or not results:
            return replace(self, judged=None), tuple(results)
        called = [(seen.tool, offers.get(seen.tool)) for seen in self.judged.calls]
        spared = frozenset([name for name, offer in called if offer is not None and offer.repeatable])
        idle = frozenset([name for name, offer in called if offer is not None and offer.effect in ("none", "read")])
        guard, loop = self.guard.after(self.judged, results=results, spared=spared, idle=idle)
        closed = replace(self, guard=guard, judged=None, ends=self.judged.ends)
        if loop is None:
            return closed, tuple(results)
        last = results[-1]
        told = replace(last, content=(*last.content, Text(word(loop))))
        noted = (*self.noted, last.call_id)[-MAX_NOTED:]
        return replace(closed, noted=noted), (*results[:-1], told)

    def _without_note(self, result: ToolResult) -> ToolResult:
        if result.call_id not in self.noted:
            return result
        return replace(result, content=result.content[:-1])
