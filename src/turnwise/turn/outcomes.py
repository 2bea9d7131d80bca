"""What the phases of a turn end with, and the words that one leaves to the phase before it."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from turnwise.rules.recovery import Settled
from turnwise.turn.changes import Change
from turnwise.turn.commands import Command, Purpose
from turnwise.turn.config import ChildReport
from turnwise.turn.events import Event, StepPrepared
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.turn_state import Known
from turnwise.turn.verdicts import Barred
from turnwise.vocab import Fault, Request, Response, Settings, ToolResult


# How a phase of a turn answers: what it is from now on, what changes, and what comes next.
#
# A phase is a frozen value. Those of a turn stand in a row, each begun by the one before it. `Turn` applies the changes of a move
# before anything else happens; then it gives the command, begins the next phase, tells the outcome to the phase before, or (where
# the move says nothing of these) asks the same phase to go on.
class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Why the turn ends here, and what the driver knew. `is_running`: tools of a response or of a program were at work."""

    kind: Literal["cancel", "deadline", "journal", "lost", "denied"]
    command: Command | None
    partial: Response | None = None
    sent: bool = True
    results: tuple[ToolResult, ...] = ()
    started: tuple[str, ...] | None = None
    children: tuple[ChildReport, ...] = ()
    is_running: bool = False


class Left(msgspec.Struct, frozen=True):
    """What a phase leaves behind: changes, and a word to the phase before it."""

    changes: Sequence[Change] = ()
    told: object = None


class Phase(Protocol):
    """`go`: begin, or go on after changes. `receive`: an event that it waits for. `hear`: the outcome of the phase that it began.
    `leave`: what stands if nothing more happens; `told` is the word of the phase that it began."""

    def go(self, known: Known) -> "Move": ...

    def receive(self, event: Event, known: Known) -> "Move": ...

    def hear(self, outcome: Any, known: Known) -> "Move": ...

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left: ...


class Begin(msgspec.Struct, frozen=True):
    """The next phase."""

    phase: Phase


class BeginCalls(msgspec.Struct, frozen=True):
    """The phase of these calls (`sorting.Source`): a program has calls too, and they have programs."""

    source: object


class Over(msgspec.Struct, frozen=True):
    """The phase is over, with this outcome."""

    outcome: object


class Move(msgspec.Struct, frozen=True):
    phase: Phase
    changes: Sequence[Change] = ()
    then: Command | Begin | BeginCalls | Over | None = None


# an attempt


class Trying(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has failed before. `attempt` is its last one's number, `failed_s` when the first one had failed, `fault` how
    the last one did."""

    attempt: int
    failed_s: float
    fault: Fault

    @classmethod
    def of(cls, fault: Fault, *, before: "Trying | None", at_s: float) -> "Trying":
        """The failure at hand, the first one or one after those `before`."""
        return (
            cls(attempt=1, failed_s=at_s, fault=fault)
            if before is None
            else msgspec.structs.replace(before, fault=fault)
        )


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A response to be taken in. `gave_up` says why there was no further attempt, where one would have been in place."""

    response: Response
    gave_up: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """No response."""

    fault: Fault
    partial: Response | None = None
    gave_up: str = ""


class WantsFallback(msgspec.Struct, frozen=True, kw_only=True):
    """It failed for good at this model, and there is another one. `otherwise` is the outcome if it is not to be asked."""

    why: str
    fault: Fault
    otherwise: Accepted | Failed


class WantsAnew(msgspec.Struct, frozen=True, kw_only=True):
    """The request has to be built anew: what the limits leave is the answer's, or the prompt had to give way."""

    trying: Trying | None = None


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """A hook did not let it leave."""

    by: str
    why: str


# composing


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a step asks for beside what `prepare_step` said: a user-role text for its request only (`note`), the purpose of
    that, and what it is a further attempt at."""

    note: str = ""
    purpose: Purpose = "step"
    retry_of: Purpose | None = None
    trying: Trying | None = None  # how often the request before it has failed


PLAIN_WISH = Wish()


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The limits allow the step, and this is asked for."""

    prepared: StepPrepared
    wish: Wish


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """The request, what it allows, how many of its last messages are no part of the history, what the answer's would have there,
    and the wish that it fulfils."""

    request: Request
    asking: RequestTerms
    own: int
    own_texts: tuple[str, ...]
    wish: Wish


class SummaryFailed(msgspec.Struct, frozen=True, kw_only=True):
    """No summary can be had, and nothing can be done without one. If it was not about room after all, `fault` is the one of the
    request before it."""

    fault: Fault
    arrived: str
    gave_up: str


# a recovery


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """The one response that came of it, what it is judged by, and its calls that the rules deny."""

    response: Response
    asking: RequestTerms
    barred: tuple[Barred, ...] = ()


class AskAnew(msgspec.Struct, frozen=True, kw_only=True):
    """It is asked for once more, with other settings; `stands` is what there is if that fails."""

    settings: Settings
    stands: Settled
    note: str = ""
    barred: tuple[Barred, ...] = ()


class Eaten(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning took all of it once more: the answer is asked for with these settings."""

    settings: Settings


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A request for its rest failed so that the next one must fail too; `left` is the response as far as it came."""

    fault: Fault
    left: Response
    gave_up: str = ""


class CutShort(msgspec.Struct, frozen=True):
    """Word to the step of a turn that ends in the middle of it: the response as far as it came."""

    left: Response


# calls and programs


class CallsOver(msgspec.Struct, frozen=True):
    """Every call of the response has its result in the history."""


class CallsWait(msgspec.Struct, frozen=True):
    """Some wait, for the client or for a person."""


class CalledTools(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a program's calls: a result for each, the tools that ran, the tools that may have run, and how long a
    person was asked."""

    results: Sequence[ToolResult]
    ran: tuple[str, ...]
    unknown: tuple[str, ...]
    asked_s: float


class CallsLeft(msgspec.Struct, frozen=True, kw_only=True):
    """Of a program's calls, when the turn ended: the tools that had run, and those that may have run in part."""

    ran: tuple[str, ...]
    at_hand: tuple[str, ...]


class ProgramsOver(msgspec.Struct, frozen=True):
    """One result for each program, in order."""

    results: Sequence[ToolResult]


class ProgramsLeft(msgspec.Struct, frozen=True):
    """The results of the programs of a turn that ended in the middle of one, by call id."""

    results: dict[str, ToolResult]


# an answer, a step


class Corrects(msgspec.Struct, frozen=True, kw_only=True):
    """The answer does not fit: the model is asked for it once more, in these words."""

    text: str
    correction: str


class GoesOn(msgspec.Struct, frozen=True):
    """The user has said something meanwhile, and there is room for one more step."""


class GoOn(msgspec.Struct, frozen=True):
    """The turn goes on with a step that has this wish."""

    wish: Wish = PLAIN_WISH
