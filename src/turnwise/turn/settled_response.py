"""Reads a settled response: a function, not a phase. The step decides what follows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.rules.advice import SEND_THE_REST
from turnwise.rules.answer_room import CALL_NOT_MADE_AGAIN, CALL_NOT_READ_AGAIN, EMPTY_AGAIN
from turnwise.rules.arguments import Corrected, Sound, Unsound, judge_call, judge_name, split_glued
from turnwise.rules.history import error_result, fit_call, fit_parts, unique_id
from turnwise.rules.permissions import denial
from turnwise.turn.config import Approval, ToolOffer, TurnConfig
from turnwise.turn.events import PlannedCall
from turnwise.turn.fault_counts import MISFIT, Guarding
from turnwise.turn.outcomes import NOT_RUN_CONTINUING, REFUSED, answer_text
from turnwise.turn.programs import undecided
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.turn_state import Appended, Change, IdsTaken, Known, Repaired, Replaced
from turnwise.vocab import (
    CALL_NOT_MADE,
    CALL_NOT_READ,
    FamilyTraits,
    FinishReason,
    Message,
    Part,
    Repair,
    Response,
    ToolCall,
    ToolResult,
    calls_of,
    refusal_of,
    text_of,
)
from turnwise.vocab.hidden_characters import says_something

# The calls of one response: which calls run, which wait for the client, which get their result at once.
# A model that repeats itself can write thousands of calls into one response; a useful step has a few dozen. `ScriptLimits.calls`
# bounds the calls of a program.
MAX_CALLS = 128

# For calls that an earlier run left: they were judged there.
NOTHING_SEEN = Guarding()


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A response that was taken in. `message` goes into the history (without parts, nothing does). `calls` are its calls as the
    model wrote them, with ids that are unique in the session."""

    message: Message
    calls: tuple[ToolCall, ...]
    repairs: tuple[Repair, ...]


def adopt(
    response: Response,
    *,
    offers: Mapping[str, ToolOffer],
    on_offer: Collection[str],
    taken: Collection[str],
    family: str,
    traits: FamilyTraits,
) -> Adopted:
    """Correct names that can only mean one tool of those `on_offer`, split two calls that came as one, make ids unique, and make
    the message fit for the history. Changes nothing else."""
    seen = set[str]()
    repairs: list[Repair] = []
    calls: list[ToolCall] = []
    parts: list[Part] = []
    for part in response.message.parts:
        if type(part) is ToolResult:
            continue
        if type(part) is not ToolCall:
            parts.append(part)
            continue
        if part.name not in on_offer:
            judged = judge_name(part.name, effects={name: offers[name].effect for name in on_offer}, call_id=part.id)
            if isinstance(judged, Corrected):
                repairs.append(judged.repair)
                part = msgspec.structs.replace(part, name=judged.name)
        pieces: tuple[ToolCall, ...] = (part,)
        if part.alternatives and (offer := offers.get(part.name)) is not None:
            pieces = split_glued(part, spec=offer.spec)
        if len(pieces) > 1:
            repairs.append(
                Repair("glued_calls", f"call {part.id}", f"split into {len(pieces)} calls, all fit the schema")
            )
        for piece in pieces:
            id = unique_id(piece.id, taken=taken, also=seen, traits=traits)
            if id != piece.id:
                if len(pieces) == 1:
                    repairs.append(Repair("call_id", f"call {piece.id}", f"is now `{id}`"))
                piece = msgspec.structs.replace(piece, id=id)
            seen.add(id)
            calls.append(piece)
            fitted, mended = fit_call(piece)
            parts.append(fitted)
            repairs += mended
    kept = fit_parts(tuple(parts), family=family, traits=traits, role="assistant")
    return Adopted(message=Message("assistant", kept), calls=tuple(calls), repairs=tuple(repairs))


class Sorted(msgspec.Struct, frozen=True, kw_only=True):
    """`misfits` are whole calls whose arguments do not fit their tool."""

    planned: tuple[PlannedCall, ...]
    pending: tuple[ToolCall, ...]
    results: dict[str, ToolResult]
    misfits: tuple[ToolCall, ...]


def sort_calls(
    calls: tuple[ToolCall, ...],
    *,
    finish: FinishReason,
    names: Collection[str],
    limit_tokens: int | None,
    offers: Mapping[str, ToolOffer],
    config: TurnConfig,
    guarding: Guarding = NOTHING_SEEN,
    most: int | None = None,
) -> Sorted:
    """Every call goes exactly one of three ways: it runs, it is the client's, or it has its result already. `names` are the tools
    on offer, `limit_tokens` the output limit of the request. After the first `most` calls none runs. If a tool is not allowed,
    its call gets only that result: a cut or unfit call is then not worth a correction."""
    tools = {name: offers[name].spec for name in names}
    planned: list[PlannedCall] = []
    pending: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    misfits: list[ToolCall] = []
    for call in calls[most:] if most is not None else ():
        results[call.id] = error_result(call, text=too_many(len(calls), most=len(calls[:most])))
    for call in calls[:most]:
        verdict = judge_call(call, tools=tools, finish=finish, limit_tokens=limit_tokens)
        denied = _denied(call, offer=offers[call.name], config=config) if call.name in tools else None
        if denied is not None:
            results[call.id] = error_result(call, text=denied)
        elif isinstance(verdict, Unsound):
            why = MISFIT.format(tool=call.name) if verdict.kind == "truncated" and guarding.is_misfit(call) else ""
            results[call.id] = error_result(call, text=verdict.text + why)
            misfits += [call] if verdict.kind == "schema_mismatch" else []
        elif offers[call.name].client_side:
            pending.append(call)
        else:
            planned.append(_plan(call, verdict=verdict, offer=offers[call.name], config=config))
    return Sorted(planned=tuple(planned), pending=tuple(pending), results=results, misfits=tuple(misfits))


def unfit(
    results: Collection[str],
    *,
    calls: Sequence[ToolCall],
    approvals: Sequence[Approval],
    offers: Mapping[str, ToolOffer],
    config: TurnConfig,
) -> frozenset[str]:
    """The ids of undecided calls that only fail to fit their tool in its current form: another run may have known an earlier
    form."""
    left = undecided(approvals)
    return frozenset(
        [
            call.id
            for call in calls
            if call.id in results and call.id in left and _denied(call, offer=offers[call.name], config=config) is None
        ]
    )


def too_many(calls: int, *, most: int) -> str:
    """The result of a call after the first `most` of its response."""
    return (
        f"Not run: a response may hold {most} calls, and this one holds {calls:,}. The first {most} were looked at. "
        f"{SEND_THE_REST}"
    )


def _denied(call: ToolCall, *, offer: ToolOffer, config: TurnConfig) -> str | None:
    return denial(call.name, effect=offer.effect, allowed=config.allowed, hint=config.allow_hint)


def _plan(call: ToolCall, *, verdict: Sound, offer: ToolOffer, config: TurnConfig) -> PlannedCall:
    usual_s = config.deadlines.child_s if offer.child else config.deadlines.tool_s
    timeout_s = usual_s if offer.timeout_s is None else offer.timeout_s
    return PlannedCall(call=call, arguments=verdict.arguments, timeout_s=timeout_s, exclusive=offer.exclusive)


NOTES = {CALL_NOT_MADE: CALL_NOT_MADE_AGAIN, CALL_NOT_READ: CALL_NOT_READ_AGAIN}
"""What the model is told about a call that did not come, by the kind of repair."""

ReadingKind = Literal["faulted", "refuses", "called", "disobeyed", "paused", "lost all", "empty", "said"]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A settled response as the turn reads it. `text` is its text, after that of paused responses; `lost`: a piece of that did
    not arrive. `note` is what the model is told if nothing is left of the response."""

    kind: ReadingKind
    adopted: Adopted
    response: Response
    asking: RequestTerms
    text: str
    refusal: str
    lost: bool
    note: str

    @property
    def changes(self) -> tuple[Change, ...]:
        """The turn takes its repairs and its ids in every case."""
        repaired = (Repaired(self.adopted.repairs),) if self.adopted.repairs else ()
        return (*repaired, IdsTaken([call.id for call in self.adopted.calls])) if self.adopted.calls else repaired


def read(response: Response, *, known: Known, asking: RequestTerms) -> Reading:
    """What the response brings: of its kinds of content, the first that counts."""
    adopted = adopt(
        response,
        offers=known.offers,
        on_offer=asking.tools,
        taken=known.history.call_ids,
        family=known.config.family,
        traits=known.config.traits,
    )
    text = known.words.said + answer_text(response.message)
    lost = response.lost or known.words.said_lost
    refusal = refusal_of(response.message)
    kinds = {one.kind for one in response.repairs} if response.repairs else ()
    # The first time, words beside such a call are not an answer yet; the second time they are all that there is.
    is_unread = CALL_NOT_READ in kinds and not (asking.forced or known.tally.empties)
    return Reading(
        kind=_kind(
            response, adopted=adopted, asking=asking, text="" if is_unread else text, refusal=refusal, lost=lost
        ),
        adopted=adopted,
        response=response,
        asking=asking,
        text=text,
        refusal=refusal,
        lost=lost,
        note=next((note for kind, note in NOTES.items() if kind in kinds), EMPTY_AGAIN),
    )


def _kind(
    response: Response, *, adopted: Adopted, asking: RequestTerms, text: str, refusal: str, lost: bool
) -> ReadingKind:
    if response.fault is not None:
        return "faulted"
    if response.finish in REFUSED or (says_something(refusal) and not adopted.calls):
        return "refuses"
    if adopted.calls:
        return "disobeyed" if asking.forced else "called"
    if response.finish is FinishReason.PAUSE and adopted.message.parts and not asking.forced:
        return "paused"
    if says_something(text):
        return "said"
    return "lost all" if lost else "empty"


def recorded(adopted: Adopted, *, calls_answer: str) -> Sequence[Change]:
    """The history's change for a response whose calls, if any, do not run."""
    changes: list[Change] = []
    if adopted.message.parts:
        changes.append(Appended(adopted.message))
    if adopted.calls:
        results = [error_result(call, text=calls_answer) for call in calls_of(adopted.message)]
        changes.append(Appended(Message("tool", tuple(results))))
    return changes


def left_in_history(left: Response, *, known: Known) -> Sequence[Change]:
    """The history's change for a cut response as far as it came; none of its calls has run."""
    taken = known.history.call_ids
    adopted = adopt(
        left, offers=known.offers, on_offer=(), taken=taken, family=known.config.family, traits=known.config.traits
    )
    ids = IdsTaken([call.id for call in adopted.calls])
    told = Replaced(words=known.words.cut(text_of(left.message)))
    return ids, told, *recorded(adopted, calls_answer=NOT_RUN_CONTINUING)
