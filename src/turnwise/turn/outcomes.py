"""The outcomes of a turn's phases, and what one phase passes to the phase before it."""

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


# How a phase of a turn answers: its next state, the changes, and what comes next.
#
# A phase is a frozen value. The phases of a turn form a stack: each was begun by the one before it. `Turn` applies the changes of
# a move first. Then it gives the command, begins the next phase, or tells the outcome to the phase before. If the move has none
# of these, it lets the same phase continue.
class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Why the turn ends here, and what the runner knew. `is_running`: tools of a response or of a program were running."""

    kind: Literal["cancel", "deadline", "journal", "lost", "denied"]
    command: Command | None
    partial: Response | None = None
    sent: bool = True
    results: tuple[ToolResult, ...] = ()
    started: tuple[str, ...] | None = None
    children: tuple[ChildReport, ...] = ()
    is_running: bool = False


class Left(msgspec.Struct, frozen=True):
    """What a phase leaves behind: changes, and a value for the phase before it."""

    changes: Sequence[Change] = ()
    told: object = None


class Phase(Protocol):
    """`go`: begin, or continue after changes. `receive`: take an event that it waits for. `hear`: take the outcome of the phase
    that it began. `leave`: what holds if nothing more happens; `told` comes from the phase that it began."""

    def go(self, known: Known) -> "Move": ...

    def receive(self, event: Event, known: Known) -> "Move": ...

    def hear(self, outcome: Any, known: Known) -> "Move": ...

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left: ...


class Begin(msgspec.Struct, frozen=True):
    """Begin this phase."""

    phase: Phase


class BeginCalls(msgspec.Struct, frozen=True):
    """Begin the phase of these calls (`sorting.Source`): a program has calls too, and calls can be programs."""

    source: object


class Over(msgspec.Struct, frozen=True):
    """The phase is over, with this outcome."""

    outcome: object


class Move(msgspec.Struct, frozen=True):
    phase: Phase
    changes: Sequence[Change] = ()
    then: Command | Begin | BeginCalls | Over | None = None


# of an attempt


class Trying(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has failed before. `attempt` is the number of its last attempt, `failed_s` the time of its first failure,
    `fault` the last failure."""

    attempt: int
    failed_s: float
    fault: Fault

    @classmethod
    def of(cls, fault: Fault, *, before: "Trying | None", at_s: float) -> "Trying":
        """The current failure: the first one, or one after those `before`."""
        return (
            cls(attempt=1, failed_s=at_s, fault=fault)
            if before is None
            else msgspec.structs.replace(before, fault=fault)
        )


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A response to take in. `gave_up` says why there was no further attempt, if one would have been appropriate."""

    response: Response
    gave_up: str = ""


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """No response."""

    fault: Fault
    partial: Response | None = None
    gave_up: str = ""


class WantsFallback(msgspec.Struct, frozen=True, kw_only=True):
    """The request failed for good at this model, and there is another model. `otherwise` is the outcome if that one is not
    asked."""

    why: str
    fault: Fault
    otherwise: Accepted | Failed


class WantsAnew(msgspec.Struct, frozen=True, kw_only=True):
    """The request must be rebuilt: the limits leave only the answer, or parts of the prompt had to give way."""

    trying: Trying | None = None


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """A hook did not let the request leave."""

    by: str
    why: str


# of composing


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a step asks for beyond what `prepare_step` said: a user-role text for its request only (`note`), the purpose of the
    request, and what it is another attempt at."""

    note: str = ""
    purpose: Purpose = "step"
    retry_of: Purpose | None = None
    trying: Trying | None = None  # how often the last request has failed


PLAIN_WISH = Wish()


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The limits allow the step, with these terms."""

    prepared: StepPrepared
    wish: Wish


class Composed(msgspec.Struct, frozen=True, kw_only=True):
    """The request, what it allows, how many of its last messages are not part of the history, what the answer's request would
    have there, and the wish that it fulfils."""

    request: Request
    asking: RequestTerms
    own: int
    own_texts: tuple[str, ...]
    wish: Wish


class SummaryFailed(msgspec.Struct, frozen=True, kw_only=True):
    """There is no summary, and the turn cannot continue without one. If the problem was not room after all, `fault` is the
    failure of the request before it."""

    fault: Fault
    arrived: str
    gave_up: str


# of a recovery


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """The single response after recovery, what it is judged by, and its calls that the rules deny."""

    response: Response
    asking: RequestTerms
    barred: tuple[Barred, ...] = ()


class AskAnew(msgspec.Struct, frozen=True, kw_only=True):
    """The model is asked once more, with other settings; `stands` is the response so far, if that fails."""

    settings: Settings
    stands: Settled
    note: str = ""
    barred: tuple[Barred, ...] = ()


class Eaten(msgspec.Struct, frozen=True, kw_only=True):
    """Reasoning used up the response again: the answer is asked for with these settings."""

    settings: Settings


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the rest failed, and the next request would fail too. `left` is the response as far as it came."""

    fault: Fault
    left: Response
    gave_up: str = ""


class CutShort(msgspec.Struct, frozen=True):
    """For the step of a turn that ends in the middle of a response: the response as far as it came."""

    left: Response


# of calls and programs


class CallsOver(msgspec.Struct, frozen=True):
    """Every call of the response has its result in the history."""


class CallsWait(msgspec.Struct, frozen=True):
    """Some calls wait, for the client or for a person."""


class CalledTools(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a program's calls: a result for each, the tools that ran, the tools that may have run, and how long a person
    was asked."""

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


# of an answer or a step


class Corrects(msgspec.Struct, frozen=True, kw_only=True):
    """The answer does not fit: the model is asked for it once more, with this text."""

    text: str
    correction: str


class GoesOn(msgspec.Struct, frozen=True):
    """The user has said something meanwhile, and there is room for one more step."""


class GoOn(msgspec.Struct, frozen=True):
    """The turn continues with a step that has this wish."""

    wish: Wish = PLAIN_WISH
