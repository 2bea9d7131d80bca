"""Where the current calls come from, and how they are sorted: calls that may run, calls that wait, and calls with a result."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from msgspec.structs import replace

from turnwise.rules.advice import FINISH, SEND_THE_REST
from turnwise.rules.history import error_result
from turnwise.rules.limits import Limit, MaxRequests, Spent, counts_tool_calls, most_tool_calls, wall_time_s
from turnwise.rules.loops import LoopVerdict
from turnwise.rules.pricing import ZERO
from turnwise.rules.reservations import (
    NOTHING_LEFT,
    Place,
    Share,
    SubagentBounds,
    least_of,
    no_place,
    places_of,
    shares_of,
)
from turnwise.turn.config import Approval, ChildReport, OneAsk, settled
from turnwise.turn.events import PlannedCall
from turnwise.turn.outcomes import NOTHING_LEFT_FOR_CHILD
from turnwise.turn.programs import left_alone, looped, with_undecided
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.room import read
from turnwise.turn.settled_response import MAX_CALLS, Adopted, sort_calls, unfit
from turnwise.turn.turn_spending import Pacing
from turnwise.turn.turn_state import CallsCounted, Change, ChildrenPaid, Known, Paced, Replaced, left_s
from turnwise.turn.verdicts import Barred
from turnwise.vocab import FinishReason, Response, ToolCall, ToolResult, calls_of, text_of
from turnwise.vocab.json_values import without

# What calls that are about to run get from the limits: a place among the calls that a limit counts, and for sub-agents a share of
# the rest and a place in the tree (promises safe:bounded, end:budget). Nothing is spent before it is granted.
NO_MORE_CALLS = "Not run: the turn's limit of tool calls is reached. " + FINISH
NOT_IN_LINE = (
    "Not run, and nobody was asked about it: the turn's limit of tool calls leaves room only for calls before it. "
    + SEND_THE_REST
)


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """The calls that may run, with what they may spend; the results of the others; and the changes: places that were counted may
    be free again."""

    planned: tuple[PlannedCall, ...]
    results: dict[str, ToolResult]
    changes: tuple[Change, ...] = ()


class CallPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The calls with a place under the limits, those `beyond` it, and the counted places."""

    planned: tuple[PlannedCall, ...]
    beyond: tuple[PlannedCall, ...]
    changes: tuple[Change, ...]


def begin_calls(known: Known, *, calls: int = 0) -> Pacing:
    """The pace of a turn whose calls begin: they have the time that is left without the answer's share. `calls` have a place and
    are not counted yet. They may use up a limit that `&` joins to the time."""
    config, pacing = known.config, known.spending.pacing
    if config.limits is None:
        return pacing.begin_calls(None)
    total_s = wall_time_s(config.limits, spent=_with_answer(known) + Spent(tool_calls=calls))
    return pacing.begin_calls(None if total_s is None else max(total_s - pacing.at_s, 0.0))


def place(known: Known, *, planned: tuple[PlannedCall, ...]) -> CallPlaces | None:
    """The first calls, as many as the limits allow; None if no limit counts calls."""
    if not counts_tool_calls(known.config.limits):
        return None
    left = calls_left(known)
    kept = planned[:left]
    changes: list[Change] = [CallsCounted(len(kept))]
    if known.spending.pacing.calls_end_s is None:
        changes.append(Paced(begin_calls(known, calls=len(kept))))
    return CallPlaces(planned=kept, beyond=planned[len(kept) :], changes=tuple(changes))


def calls_left(known: Known) -> int | None:
    """How many more calls may run with an answer after them; None if no limit counts calls."""
    if not counts_tool_calls(known.config.limits):
        return None
    spent = _with_answer(known)
    most = most_tool_calls(known.config.limits, spent=spent)
    return None if most is None else max(most - spent.tool_calls, 0)


def _with_answer(known: Known) -> Spent:
    """What the turn will have spent after the current calls and the answer, without these calls."""
    now = known.coming(step=known.step + 1)
    return now.spent + known.spending.pacing.answer(now)


def beyond_places(
    known: Known, *, planned: Sequence[PlannedCall], approved: Sequence[Approval], asks: Sequence[OneAsk]
) -> dict[str, ToolResult]:
    """The results of calls that need an approval but have no place under the limits even if they are allowed, by call id."""
    left = calls_left(known)
    if left is None:
        return {}
    asked = {ask.call.id for ask in asks}
    out = {id for id, answer in settled(approved).items() if answer.verdict != "allow"} - asked
    takers = [plan.call for plan in planned if _takes_place(plan, known=known) and plan.call.id not in out]
    text = NOT_IN_LINE if left else NO_MORE_CALLS
    return {call.id: error_result(call, text=text) for call in takers[left:] if call.id in asked}


def _takes_place(plan: PlannedCall, *, known: Known) -> bool:
    """Whether it counts as a tool call. A program's calls count instead of the program, and a question has no tool."""
    offer = known.offers[plan.call.name]
    return not offer.script and not offer.asks_user


def before_answer(known: Known, seconds: float) -> float:
    """The seconds, or fewer if the turn's time would be up: then this deadline comes first, and the answer after it."""
    most_s = known.spending.pacing.calls_s
    return seconds if most_s is None else min(seconds, most_s)


def grant(known: Known, *, placed: tuple[PlannedCall, ...], beyond: tuple[PlannedCall, ...]) -> Granted:
    """Give the calls with a place (it is counted) what they may spend. Places of sub-agents that do not start go to calls
    `beyond` the limit; a further sub-agent would have no share either."""
    children, askers = list[str](), list[str]()
    if known.kinds.children:
        children = [plan.call.id for plan in placed if known.offers[plan.call.name].child]
        askers = [plan.call.id for plan in placed if known.offers[plan.call.name].samples]
    granted = Granted(planned=placed, results={})
    if children or askers:
        granted = _grant_children(known, planned=placed, children=[*children, *askers], askers=frozenset(askers))
    if not children and not beyond:
        return granted
    results, planned, rest, freed = granted.results, granted.planned, beyond, 0
    if gone := len(placed) - len(planned):
        others = tuple([plan for plan in beyond if not known.offers[plan.call.name].child])
        further = [plan for plan in beyond if known.offers[plan.call.name].child]
        results = results | {plan.call.id: error_result(plan.call, text=NOTHING_LEFT_FOR_CHILD) for plan in further}
        planned, rest = (*planned, *others[:gone]), others[gone:]
        freed = gone - len(others[:gone])
    results = results | {plan.call.id: error_result(plan.call, text=NO_MORE_CALLS) for plan in rest}
    changes = (CallsCounted(-freed),) if freed and counts_tool_calls(known.config.limits) else ()
    return Granted(planned=planned, results=results, changes=changes)


def _grant_children(
    known: Known, *, planned: tuple[PlannedCall, ...], children: Sequence[str], askers: frozenset[str]
) -> Granted:
    """Give each child its place in the tree and its share of what the limits leave. If that is too little for all of them, the
    first ones get it. `askers` among them also run without a share: then they cannot ask the model."""
    config, used = known.config, known.spending.used
    bounds = SubagentBounds(subagents=config.max_subagents, requests=config.max_subagent_requests)
    most = len(places_of(bounds, used=used, among=len(children)))
    share, count = _shares(known, planned=planned, children=children[:most])
    places = dict(zip(children[:count], places_of(bounds, used=used, among=count), strict=True))
    full = no_place(bounds, used=used, started=count)
    texts = {id: full if nth >= most else NOTHING_LEFT_FOR_CHILD for nth, id in enumerate(children) if nth >= count}
    texts = without(texts, askers)
    return Granted(
        planned=tuple(
            [
                _placed(known, plan, place=places.get(plan.call.id), limit=share.limit)
                for plan in planned
                if plan.call.id not in texts
            ]
        ),
        results={
            plan.call.id: error_result(plan.call, text=texts[plan.call.id]) for plan in planned if plan.call.id in texts
        },
    )


def _shares(known: Known, *, planned: Sequence[PlannedCall], children: Sequence[str]) -> tuple[Share, int]:
    """The share of the turn's limits for each of the first children, as many as can have one."""
    limits, pacing = known.config.limits, known.spending.pacing
    if limits is None or not children:
        return Share(None), len(children)
    most_s = pacing.most_s(left_s(known))
    if most_s is not None and min(most_s, before_answer(known, 1.0)) <= 0.0:
        return NOTHING_LEFT, 0
    plans = {plan.call.id: plan for plan in planned}
    least_usd = [_least_usd(plans[id], known=known) for id in children]
    return shares_of(limits, spent=_with_answer(known), among=len(children), least_usd=least_usd)


def _placed(known: Known, plan: PlannedCall, *, place: Place | None, limit: Limit | None) -> PlannedCall:
    """A sub-agent's call with what it may spend; any other call unchanged."""
    if place is None:
        return plan
    if place.requests is not None:
        own = MaxRequests(place.requests)
        limit = own if limit is None else limit | own
    seconds = plan.timeout_s if known.offers[plan.call.name].samples else before_answer(known, plan.timeout_s)
    return replace(plan, place=place, grant=limit, timeout_s=seconds)


class _Task(msgspec.Struct):
    agent: str = ""


def _least_usd(plan: PlannedCall, *, known: Known) -> Decimal:
    """The least that a request of the called agent costs. If no agent is named, it is the most expensive one."""
    offer, row = known.offers[plan.call.name], known.config.prices.get(known.config.model)
    if offer.samples:
        return ZERO if row is None else least_of(row)
    try:
        agent = msgspec.json.decode(plan.arguments, type=_Task).agent
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # a tool with other parameters
        agent = ""
    return offer.child_usd.get(agent, max(offer.child_usd.values(), default=ZERO))


class FromResponse(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The calls of a response; its message stands in the history. The `barred` calls were cut, and the rules deny them."""

    adopted: Adopted
    response: Response
    asking: RequestTerms
    barred: tuple[Barred, ...] = ()


class TakenUp(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Calls that an earlier run left pending, now that some or all of them are answered."""

    calls: tuple[ToolCall, ...]
    approvals: tuple[Approval, ...]


class FromProgram(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Calls of a program, which may call the tools `names`. The program's guard has judged them."""

    calls: tuple[ToolCall, ...]
    names: tuple[str, ...]
    judged: LoopVerdict


CallSource = FromResponse | TakenUp | FromProgram


class AtHand(msgspec.Struct, frozen=True, kw_only=True):
    """The current calls, sorted; `changes` are the changes to the rest of the turn."""

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
    """Calls that may run are planned; all others have their result at once."""
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
    judged = Replaced(guarding=guarding, words=known.words.called(text_of(response.message)))
    return AtHand(
        calls=calls_of(adopted.message),
        planned=planned,
        results=results,
        pending=sorted_.pending,
        changes=(judged, *_begun(known)),
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
        results = without(results, left)
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
    """The changes when calls begin."""
    pacing, tally = begin_calls(known), known.tally.after("called")
    paced = () if pacing is known.spending.pacing else (Paced(pacing),)
    return paced if tally is known.tally else (*paced, Replaced(tally=tally))


def whole_bytes_of(known: Known, *, calls: int) -> int:
    """How many bytes the result of each of these calls of a program may have."""
    limits = known.config.script_limits
    return min(limits.call_bytes, limits.exchanged_bytes // calls)


def paid(children: Sequence[ChildReport], *, planned: Sequence[PlannedCall]) -> tuple[Change, ...]:
    """What the sub-agents of these calls cost."""
    return (ChildrenPaid(children, {plan.call.id: plan for plan in planned}),) if children else ()
