"""Where the calls at hand come from, and how they are sorted: those that may run, those that wait, those that have a result."""

import msgspec

from turnwise.rules.history import error_result
from turnwise.rules.loops import LoopVerdict
from turnwise.turn.approvals import Approval
from turnwise.turn.call_grants import begin_calls
from turnwise.turn.changes import Change, Guarded, Paced, Tallied, Told
from turnwise.turn.commands import PlannedCall
from turnwise.turn.cut_call_check import Barred
from turnwise.turn.pending_calls import left_alone, with_undecided
from turnwise.turn.programs import looped
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.response_calls import MAX_CALLS, Adopted, sort_calls, unfit
from turnwise.turn.results_room import read
from turnwise.turn.turn_state import Known
from turnwise.vocab import FinishReason, Response, ToolCall, ToolResult, calls_of, text_of


class FromResponse(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The calls of a response; its message stands in the history. Those `barred` were cut, and the rules deny them."""

    adopted: Adopted
    response: Response
    asking: RequestTerms
    barred: tuple[Barred, ...] = ()


class TakenUp(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Calls that an earlier run left pending, now that they are answered, or some of them."""

    calls: tuple[ToolCall, ...]
    approvals: tuple[Approval, ...]


class FromProgram(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Calls of a program, which may call the tools `names`; the guard of the program has judged them."""

    calls: tuple[ToolCall, ...]
    names: tuple[str, ...]
    judged: LoopVerdict


CallSource = FromResponse | TakenUp | FromProgram


class AtHand(msgspec.Struct, frozen=True, kw_only=True):
    """The calls at hand, sorted; `changes` are what that changes elsewhere."""

    calls: tuple[ToolCall, ...]
    planned: tuple[PlannedCall, ...]
    results: dict[str, ToolResult]
    pending: tuple[ToolCall, ...] = ()
    approved: tuple[Approval, ...] = ()
    changes: tuple[Change, ...] = ()


def sort_source(source: CallSource, *, known: Known) -> AtHand:
    if type(source) is FromResponse:
        return _of_response(source, known=known)
    if type(source) is TakenUp:
        return _taken_up(source, known=known)
    assert isinstance(source, FromProgram)
    return _of_program(source, known=known)


def _of_response(source: FromResponse, *, known: Known) -> AtHand:
    """What may run is planned; everything else has its result at once."""
    adopted, response, asking = source.adopted, source.response, source.asking
    sorted_ = sort_calls(
        adopted.calls,
        finish=response.finish,
        names=asking.tools,
        limit_tokens=asking.limit_tokens,
        offers=known.offers,
        config=known.config,
        guarding=known.guarding,
        most=MAX_CALLS,
    )
    guarding = known.guarding.judge(adopted.calls, misfits=sorted_.misfits)
    planned, results = sorted_.planned, sorted_.results
    had = read(planned, config=known.config, history=known.history)
    had |= guarding.answers(planned, messages=known.history.messages, offers=known.offers)
    if source.barred:
        had |= {
            call.id: error_result(call, text=one.text)
            for one in source.barred
            for call in adopted.calls
            if call.id in results and one.is_of(call)
        }
    if had:
        planned = tuple([plan for plan in planned if plan.call.id not in had])
        results = results | had
    return AtHand(
        calls=calls_of(adopted.message),
        planned=planned,
        results=results,
        pending=sorted_.pending,
        changes=(Guarded(guarding), *_begun(known), *_told(known, text=text_of(response.message))),
    )


def _taken_up(source: TakenUp, *, known: Known) -> AtHand:
    calls, approved, offers, config = source.calls, source.approvals, known.offers, known.config
    left: frozenset[str] = frozenset()
    if known.keeps_waiting:
        left = left_alone(calls, offers=offers)
        approved = with_undecided(approved, calls=[call for call in calls if call.id not in left])
    sorted_ = sort_calls(
        tuple([call for call in calls if call.id not in left]),
        finish=FinishReason.TOOL_CALLS,
        names=tuple(offers),
        limit_tokens=None,
        offers=offers,
        config=config,
    )
    results = sorted_.results
    if known.keeps_waiting:
        left |= unfit(results, calls=calls, approvals=approved, offers=offers, config=config)
        results = {id: result for id, result in results.items() if id not in left}
    left |= {call.id for call in sorted_.pending}
    return AtHand(
        calls=calls,
        planned=sorted_.planned,
        results=results,
        pending=tuple([call for call in calls if call.id in left]),
        approved=approved,
        changes=_begun(known),
    )


def _of_program(source: FromProgram, *, known: Known) -> AtHand:
    sorted_ = sort_calls(
        source.calls,
        finish=FinishReason.TOOL_CALLS,
        names=source.names,
        limit_tokens=None,
        offers=known.offers,
        config=known.config,
    )
    again = looped([plan.call for plan in sorted_.planned], verdict=source.judged)
    return AtHand(
        calls=source.calls,
        planned=tuple([plan for plan in sorted_.planned if plan.call.id not in again]),
        results={**sorted_.results, **again},
        pending=sorted_.pending,
    )


def _begun(known: Known) -> tuple[Change, ...]:
    """What it changes that calls begin."""
    pacing, tally = begin_calls(known), known.tally.after("called")
    paced = () if pacing is known.spending.pacing else (Paced(pacing),)
    return paced if tally is known.tally else (*paced, Tallied(tally))


def _told(known: Known, *, text: str) -> tuple[Change, ...]:
    words = known.words.called(text)
    return () if words is known.words else (Told(words),)
