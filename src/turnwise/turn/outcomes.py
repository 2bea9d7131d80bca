"""The outcomes of a turn's phases, and what one phase passes to the phase before it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from turnwise.rules.advice import FINISH
from turnwise.rules.answer_room import NOT_RUN_LAST_STEP, local_answer
from turnwise.rules.history import error_result, fit_result
from turnwise.rules.limits import stop_reason
from turnwise.rules.loops import why_it_ends
from turnwise.rules.recovery import Settled
from turnwise.turn.config import ChildReport, TurnResult
from turnwise.turn.events import Command, Event, Interrupted, Purpose, StepPrepared
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.turn_state import Change, Known
from turnwise.turn.verdicts import Barred
from turnwise.vocab import (
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    Repair,
    Request,
    Response,
    Settings,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    text_of,
)
from turnwise.vocab.hidden_characters import says_something


# How a phase of a turn answers: its next state, the changes, and what comes next.
#
# A phase is a frozen value. The phases of a turn form a stack: each was begun by the one before it. `Turn` applies the changes of
# a move first. Then it gives the command, begins the next phase, or tells the outcome to the phase before. If the move has none
# of these, it lets the same phase continue.
class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Why the turn ends here, and what the runner knew. `is_running`: tools of a response or of a program were running."""

    kind: Literal["cancel", "deadline", "tool", "journal", "lost", "denied"]
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


# Texts that turnwise writes in place of the model: results of calls that did not run, and the ends without an answer.


# How a response ended before it was whole. A text that ended so is an incomplete answer, and these words say why.
UNFINISHED = {
    FinishReason.LENGTH: "the output limit cut the answer",
    FinishReason.CUT: "the answer stopped in the middle, and the provider gave no reason",
    FinishReason.ERROR: "the provider broke the answer off",
    FinishReason.PAUSE: "the provider paused in the middle of the answer",
}
LOST_A_PIECE = "a piece of the answer was lost on the way"
CALL_LEFT_OVER = "the answer holds a tool call that could not be read"
NO_OUTPUT = "the answer does not fit the output type"
NOT_ITS_OWN = "the model gave no answer of its own"
MADE_TO_ANSWER = "the model was made to answer before it had done its work"
# Why a turn that ended so has no complete answer. For a provider's failure, the provider's own words say it.
WHY_INCOMPLETE = {
    StopReason.ANSWERED: NOT_ITS_OWN,
    StopReason.STEP_LIMIT: "the step limit was reached",
    StopReason.BUDGET: "a limit of the run was reached",
    StopReason.TIME_LIMIT: "the time was up",
    StopReason.LOOP: "the model repeated itself",
    StopReason.WAITING: "calls wait for an answer",
    StopReason.REFUSED: "the model or its provider refused",
    StopReason.PROVIDER_FAILED: "the provider failed",
    StopReason.JOURNAL_FAILED: "the turn could not be recorded",
    StopReason.GIVEN_UP: "the turn was given up, because its process died again and again",
    StopReason.CANCELLED: "the turn was cancelled",
    StopReason.TOOL_FAILED: "a tool failed",
}
REFUSED = frozenset({FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})

NOT_REPORTED = "No result was reported for this call. The tool may or may not have run."
NOT_RUN_REFUSED = "Not run: the response that asked for it was refused or filtered."
NOT_RUN_CONTINUING = "Not run: the output limit cut this response, and the turn ended while the model continued it."
NOT_RUN_FAULT = "Not run: the provider failed before its response was whole."
NOTHING_LEFT_FOR_CHILD = (
    "Not run: the turn's limits leave too little for a sub-agent, because the rest is kept for the answer. " + FINISH
)
LOST = (
    "The run was interrupted before a result was recorded. The tool may or may not have run: look before you repeat it."
)
UNKNOWN_OUTCOME = (
    "The process was interrupted while this call ran, so its outcome is unknown: it may have run whole, in part, or not at all. "
    "Look at what it has done before you repeat it."
)
# Why a call has less time than it asks for, in words for the model.
TURNS_TIME = "the turn's limit of time leaves it no more, as the rest is kept for the answer"
NO_TIME = f"Not run: {TURNS_TIME}."
INTERRUPTED = {
    "cancel": "Cancelled by the user before a result was there. The tool may have run in part.",
    "deadline": "The turn's time was up before a result was there. The tool may have run in part.",
    "tool": "The turn ended before a result was there, because another tool failed. The tool may have run in part.",
    "journal": "The run's journal failed before a result was there. The tool may have run in part.",
}
NOT_STARTED = {
    "cancel": "Not run: cancelled by the user before this call had started.",
    "deadline": "Not run: the turn's time was up before this call had started.",
    "tool": "Not run: the turn ended before this call had started, because another tool failed.",
    "journal": "Not run: the run's journal failed, and turnwise runs no call that it cannot record.",
    "lost": "Not run: the run was interrupted before this call had started.",
}
ENDED = {
    "cancel": (StopReason.CANCELLED, "The turn was cancelled before there was an answer."),
    "deadline": (StopReason.TIME_LIMIT, "The turn's time was up before there was an answer."),
    "tool": (StopReason.TOOL_FAILED, "The turn ended before there was an answer, because a tool failed"),
    "journal": (
        StopReason.JOURNAL_FAILED,
        "The turn ended before there was an answer, because it could not be recorded",
    ),
}
# Results that no tool has returned and that say nothing about the work: turnwise's own answer does not list them.
SAY_NOTHING = frozenset({NOT_RUN_LAST_STEP, NOT_RUN_REFUSED, NOT_RUN_FAULT, NOT_RUN_CONTINUING, *NOT_STARTED.values()})


# After these, the next request would fail in the same way.
FATAL = frozenset({FaultKind.AUTH, FaultKind.QUOTA, FaultKind.NOT_FOUND})

NOT_RECORDED = "not_recorded"
HAD_ARRIVED = "\n\nWhat had arrived: "  # for an answer that was filtered


def is_unknown(result: ToolResult) -> bool:
    """Whether the result says that the outcome of the call is unknown."""
    return result.is_error and result.content == (Text(UNKNOWN_OUTCOME),)


def had_no_time(result: ToolResult) -> bool:
    """Whether the result says that the turn had no time left for the call."""
    return result.is_error and result.content == (Text(NO_TIME),)


def answer_text(message: Message) -> str:
    """The text of the message, or what came instead."""
    text = text_of(message)
    if says_something(text):
        return text
    files = [part.media_type for part in message.parts if type(part) is File]
    return text if not files else f"(The answer is a file: {', '.join(files)}.)"


def stray_result(result: ToolResult) -> Repair:
    return Repair("stray_result", f"call {result.call_id}", "left out a result that no call waits for")


def in_call_order(
    calls: Sequence[ToolCall], *, own: Mapping[str, ToolResult], reported: Sequence[ToolResult], missing: str
) -> tuple[list[ToolResult], list[Repair]]:
    """One result for each of these calls: turnwise's own, the reported one, or a text that it is `missing`."""
    if not own and [call.id for call in calls] == [result.call_id for result in reported]:  # the usual case
        return [fit_result(result, call=call) for result, call in zip(reported, calls, strict=True)], []
    ordered = {call.id for call in calls if call.id not in own}
    by_id: dict[str, ToolResult] = {}
    repairs: list[Repair] = []
    for result in reported:
        if result.call_id not in ordered or result.call_id in by_id:
            repairs.append(stray_result(result))
        else:
            by_id[result.call_id] = result
    results: list[ToolResult] = []
    for call in calls:
        result = own.get(call.id) or by_id.get(call.id)
        results.append(error_result(call, text=missing) if result is None else fit_result(result, call=call))
    return results, repairs


def why_failed(fault: Fault) -> str:
    status = f" ({fault.status})" if fault.status is not None else ""
    said = " ".join(fault.message.split())  # it is not a line of its own
    return f"The provider failed{status}, {fault.kind}: {said or 'it did not say why'}"


def why_incomplete(stop_reason: StopReason, *, lacks: str, fault: Fault | None) -> str:
    """Why there is no complete answer: what ended the turn, and what the answer lacks, as far as that is known."""
    if stop_reason is StopReason.PROVIDER_FAILED and fault is not None:
        return why_failed(fault)
    if stop_reason is StopReason.ANSWERED and lacks:
        return lacks
    return ": ".join([WHY_INCOMPLETE[stop_reason], *([lacks] if lacks else [])])


def why_interrupted(event: Interrupted) -> tuple[StopReason, str]:
    """The stop reason, and a sentence for the answer."""
    if event.kind == "cancel" and event.why:  # no person has cancelled it
        return StopReason.GIVEN_UP, f"The turn was given up before there was an answer: {event.why}."
    stop_reason, said = ENDED[event.kind]
    return stop_reason, f"{said}: {event.why}." if event.why else said


def unrecorded(result: TurnResult, *, why: str) -> TurnResult:
    """The result of a turn whose end the journal does not hold. Nobody can continue it, so it is not complete, and no call waits.
    Its text stays, because the answer may be whole."""
    return msgspec.structs.replace(
        result,
        text=result.text if says_something(result.text) else f"The turn could not be recorded: {why}.",
        stop_reason=StopReason.JOURNAL_FAILED,
        complete=False,
        why_incomplete=f"{WHY_INCOMPLETE[StopReason.JOURNAL_FAILED]}: {why}",
        pending=(),
        asks=(),
        repairs=(*result.repairs, Repair(NOT_RECORDED, "journal", why)),
    )


def refused_text(response: Response, *, refusal: str, text: str) -> tuple[str, bool]:
    """The answer of a refused or filtered response, and whether turnwise wrote it."""
    said = "\n".join([part.strip() for part in (refusal, text) if says_something(part)])
    if response.finish is FinishReason.CONTENT_FILTER:
        word = f" (`{response.provider_finish}`)" if response.provider_finish else ""
        own = f"The provider's content filter stopped the answer{word}."
        return f"{own}{HAD_ARRIVED}{said}" if said else own, True
    why = (response.explanation or "").strip()
    if said:
        return said, False
    return f"The model refused to answer: {why}" if why else "The model refused to answer and gave no reason.", True


# How a turn ends: with the text so far, a reason, and a result for every call.


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """The model gave no answer; `why` says why."""

    why: str


class Fails(msgspec.Struct, frozen=True, kw_only=True):
    """The provider failed. `arrived` is what the model had said by then; `gave_up` says why there was no further attempt."""

    fault: Fault
    arrived: str = ""
    gave_up: str = ""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody stopped the turn; `why` says why. `arrived` is what the model had said by then."""

    reason: StopReason
    why: str
    arrived: str = ""
    keeps_unfit: bool = False  # an answer that did not fit replaces turnwise's own


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end and its text: the model's, or (`local`) turnwise's own. `lacks` says what is missing from it, if anything."""

    reason: StopReason
    text: str
    complete: bool = False
    output: str | None = None
    lacks: str = ""
    fault: Fault | None = None
    local: bool = False


End = Ends | Fails | Stopped | Ended


def arrived_of(partial: Response | None, *, known: Known) -> str:
    """What the model had said in its paused responses and in the response that broke off."""
    if partial is None:
        return ""
    text = text_of(partial.message)
    return known.words.said + text if says_something(text) else ""


def ended(end: End, *, known: Known) -> Ended:
    """The end with its text, after everything else has been written."""
    unfit = known.words.unfit
    match end:
        case Ended():
            return end
        case Stopped(reason=reason, why=why, arrived=arrived, keeps_unfit=keeps_unfit):
            if keeps_unfit and unfit:
                return Ended(reason=reason, text=unfit, lacks=NO_OUTPUT)
            return Ended(reason=reason, text=_local_answer(why, known=known, arrived=arrived), local=True)
        case Fails(fault=fault, arrived=arrived, gave_up=gave_up):
            if gave_up:
                fault = msgspec.structs.replace(fault, message=f"{fault.message.rstrip('. ')}. {gave_up}")
            if unfit:  # the model has answered, but not in the required form
                return Ended(reason=StopReason.ANSWERED, text=unfit, lacks=NO_OUTPUT, fault=fault)
            text = _local_answer(why_failed(fault), known=known, arrived=arrived)
            return Ended(reason=StopReason.PROVIDER_FAILED, text=text, local=True, fault=fault)
        case Ends(why=why):
            partial = known.asking is not None and known.asking.partial
            if unfit:
                return Ended(reason=reason_of(known, partial=partial), text=unfit, lacks=NO_OUTPUT)
            ends = known.guarding.ends
            text = _local_answer(f"{why_it_ends(ends)} {why}" if ends else why, known=known)
            partial = partial or known.spending.pacing.pace == "stop"
            return Ended(reason=reason_of(known, partial=partial), text=text, local=True)


def reason_of(known: Known, *, partial: bool) -> StopReason:
    if known.room.ends:
        return StopReason.BUDGET
    if not partial:
        return StopReason.ANSWERED
    if known.guarding.ends is not None:
        return StopReason.LOOP
    bound = known.spending.pacing.bound
    return StopReason.ANSWERED if bound is None else stop_reason(bound)


def result_of(end: Ended, *, known: Known) -> TurnResult:
    """The result of a turn that ended so."""
    spending, history = known.spending, known.history
    pending = known.pending
    return TurnResult(
        text=end.text,
        stop_reason=end.reason,
        complete=end.complete,
        steps=spending.step,
        requests=spending.requests,
        usage=spending.usage,
        charged_usd=spending.purse.usd if known.config.prices else None,
        also_spent=spending.also_spent + spending.purse.guessed,
        recovery_usage=spending.recovery_usage,
        messages=tuple(history.added),
        output=end.output,
        reasoning="\n\n".join(known.record.reasonings),
        repairs=tuple(known.record.repairs),
        pending=tuple([known.known_call(call) for call in pending]),
        asks=known.waiting_asks if pending else (),
        unread=history.inbox,
        children=spending.children,
        fault=end.fault,
        origin="local" if end.local else "model",
        why_incomplete="" if end.complete else why_incomplete(end.reason, lacks=end.lacks, fault=end.fault),
        prefix_changes=tuple(spending.prefix_changes),
        requests_by_purpose=dict(spending.purposes),
        history=tuple(history.messages) if history.gave_way else None,
    )


def _local_answer(why: str, *, known: Known, arrived: str = "") -> str:
    return local_answer(why, said=known.words.first(arrived), messages=known.history.added, left_out=SAY_NOTHING)
