"""How a turn ends: with the text that there is, a reason, and every call answered."""

import msgspec

from turnwise.rules.last_step import local_answer
from turnwise.rules.limits import stop_reason
from turnwise.rules.loops import why_it_ends
from turnwise.turn.config import TurnResult
from turnwise.turn.endings import NO_OUTPUT, SAY_NOTHING, why_failed, why_incomplete
from turnwise.turn.turn_state import Known
from turnwise.vocab import Fault, Response, StopReason, text_of
from turnwise.vocab.hidden_characters import says_something


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """There is no answer of the model's own, and `why`."""

    why: str


class Fails(msgspec.Struct, frozen=True, kw_only=True):
    """The provider failed; `arrived` is what the model had said by then, `gave_up` why nothing more was tried."""

    fault: Fault
    arrived: str = ""
    gave_up: str = ""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody stopped the turn, and `why`; `arrived` is what the model had said by then."""

    reason: StopReason
    why: str
    arrived: str = ""
    keeps_unfit: bool = False  # an answer that did not fit stands in place of ours


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end, and its text: the model's, or (`local`) ours. `lacks` says what it is short of, if anything."""

    reason: StopReason
    text: str
    complete: bool = False
    output: str | None = None
    lacks: str = ""
    fault: Fault | None = None
    local: bool = False


End = Ends | Fails | Stopped | Ended


def arrived_of(partial: Response | None, *, known: Known) -> str:
    """What the model had said in its paused responses and in the one that broke off."""
    if partial is None:
        return ""
    text = text_of(partial.message)
    return known.words.said + text if says_something(text) else ""


def ended(end: End, *, known: Known) -> Ended:
    """The end with its text, once everything else has been written."""
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
            if unfit:  # the model has answered, if not in the wanted form
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
