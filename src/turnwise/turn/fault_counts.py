"""What a turn counts of what went wrong, and what the model has said beside the messages of its history."""

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
from turnwise.rules.truncation import Cut
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer
from turnwise.vocab import ADAPTED, Message, Repair, Text, ToolCall, ToolResult
from turnwise.vocab.hidden_characters import says_something

# A gateway that broke the responses of two steps breaks the next one, too. Then what arrives has to do.
LOSING_STEPS = 2

Happened = Literal["called", "empty", "corrected", "eaten", "asked beyond the cap", "ended silently"]
# Which of the counts what happens sets back.
RESETS: dict[Happened, dict[str, int | bool]] = {
    "called": {"empties": 0, "eaten": 0, "correcting": False},
    "corrected": {"empties": 0, "eaten": 0},
}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one turn, but for those that limits know."""

    has_called: bool = False  # a step of this turn had calls
    eaten: int = 0  # responses in a row of which reasoning left nothing
    empties: int = 0  # empty responses in a row
    corrections: int = 0  # of the answer's output
    correcting: bool = False  # the next answer is a corrected one
    extra_used: bool = False  # the one request beyond the cap
    silent_ends: int = 0  # responses that ended without any output
    losing: tuple[int, ...] = ()  # steps that made a request more because a piece of a response was lost

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

    said: str = ""  # the text of paused responses, to which the next one belongs
    said_lost: bool = False  # a piece of it did not arrive
    unfit: str = ""  # its last answer, which a correction was asked for
    beside: str = ""  # what it said beside its last calls

    def first(self, arrived: str) -> str:
        """The newest of it that says something."""
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
        """An answer came, and the turn goes on: what was said belongs to it, not to the next one."""
        return replace(self, said="", said_lost=False)

    def asked_anew(self) -> "Words":
        """The user has said something: the unfit answer was one to what was asked before."""
        return replace(self, unfit="") if self.unfit else self

    def cut(self, text: str) -> "Words":
        return replace(self, beside=text) if text else self


class Record(msgspec.Struct, kw_only=True):
    """What the result tells of the way: what was mended, and what the model has thought."""

    repairs: list[Repair]
    reasonings: list[str] = []
    adapted_before: frozenset[Repair] = frozenset()  # what earlier turns of the session told of adapted settings

    @property
    def adapted(self) -> frozenset[Repair]:
        """What the session was told of settings that do not go to their model as they were set."""
        return self.adapted_before | {repair for repair in self.repairs if repair.kind == ADAPTED}

    def repair(self, repairs: Sequence[Repair]) -> None:
        self.repairs += repairs

    def reason(self, text: str) -> None:
        self.reasonings.append(text)


# The loop guard's place in a turn: it judges the calls of a step before they run and looks at their results afterwards.
#
# It also knows the calls that were continued in vain: those that were joined and then did not fit the tool's parameters, and
# those that could not be joined. Such a call is not continued again in this turn, because each time costs as much as the first.


# More results with a note than a loop can have before it ends the turn.
MAX_NOTED = 8
# More than a turn makes of them: each has cost a request for its rest.
MAX_VAIN = 16

MISFIT = (
    " It was not continued: the model had continued a call that began like this one, and the whole call did not fit the "
    "parameters of `{tool}`. "
    "The result of that call says what to correct."
)


class Guarding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the guard knows, and what it said of the calls at hand. With `ends` the next request is the forced answer."""

    guard: LoopGuard = LoopGuard()
    judged: LoopVerdict | None = None
    ends: Loop | None = None
    noted: tuple[str, ...] = ()  # calls whose result ends with words of ours
    joined: bool = False  # the response at hand has a call that was continued
    misfits: tuple[Beginning, ...] = ()  # joined calls that did not fit
    unjoined: tuple[Beginning, ...] = ()  # calls that could not be joined

    def judge(self, calls: Sequence[ToolCall], *, misfits: Sequence[ToolCall]) -> "Guarding":
        """`calls` as the model wrote them: in history the arguments of a cut one are emptied. `misfits` are those of them that
        were whole and did not fit their parameters."""
        vain = misfits if self.joined else ()
        begun = (*self.misfits, *[beginning_of(call) for call in vain])[-MAX_VAIN:]
        judged = self.guard.before(calls, joined=[call.id for call in vain])
        return replace(self, judged=judged, joined=False, misfits=begun)

    def forgetting(self) -> "Guarding":
        """The calls that the guard knows stand in no message any more: a summary is in their place."""
        return replace(self, guard=LoopGuard())

    def recovered(self, calls: Sequence[ToolCall], *, repairs: Sequence[Repair]) -> "Guarding":
        """What became of a response's cut `calls`, as the `repairs` of going on with them say."""
        refused = {repair.where for repair in repairs if repair.kind == "continuation_refused"}
        # Its words alone: other pieces of a file have the same whole keys before them.
        unjoined = [replace(beginning_of(call), stem="") for call in calls if f"call {call.id}" in refused]
        joined = any(repair.kind == "continued_call" for repair in repairs)
        return replace(self, joined=joined, unjoined=(*self.unjoined, *unjoined)[-MAX_VAIN:])

    def is_misfit(self, call: ToolCall) -> bool:
        """Whether the whole of a cut call would not fit its tool's parameters, as far as its beginning tells."""
        begun = beginning_of(call)
        return any(begins_alike(begun, other=other) for other in self.misfits)

    def spare(self, cut: Cut) -> Cut:
        """The cut, without a prefix for the calls that would be continued in vain."""
        return replace(
            cut, calls=tuple([replace(one, prefix=None) if self._is_vain(one.call) else one for one in cut.calls])
        )

    def _is_vain(self, call: ToolCall) -> bool:
        begun = beginning_of(call)
        return any(begins_alike(begun, other=other) for other in (*self.misfits, *self.unjoined))

    def answers(
        self, planned: Sequence[PlannedCall], *, messages: Sequence[Message], offers: Mapping[str, ToolOffer]
    ) -> dict[str, ToolResult]:
        """The results of those calls that do not run, as they have run before and gave the same each time."""
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
        """The guard that knows the judged step too, and its results, the last with a word to a model that repeats itself."""
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
