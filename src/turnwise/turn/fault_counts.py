"""What a turn counts of what went wrong, and what the model has said beside the messages of its history."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.vocab import ADAPTED, Repair
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
