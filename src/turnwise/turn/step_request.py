"""How the request of a step is built: what stands behind the history, which tools it offers, how much it may answer."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.rules.arguments import Unsound, judge_call
from turnwise.rules.budget import OutputBudget, answer_floor, grown, message_bytes, split_output, window_of, with_budget
from turnwise.rules.last_step import GO_ON, SYNTHESIS
from turnwise.rules.loops import why_it_ends
from turnwise.rules.truncation import Cut, fills_half, hands_out_objects
from turnwise.turn.changes import Change, Posed, Roomed, mended
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import StepPrepared
from turnwise.turn.history import History
from turnwise.turn.outcomes import Composed, Wish
from turnwise.turn.request_limits import below_limits, is_last
from turnwise.turn.request_plan import PAUSE_GOES_BACK_LAST, asking_of, build_request, tools_chosen
from turnwise.turn.room import NO_ROOM, Room, handle_of, knows_window
from turnwise.turn.turn_state import Known
from turnwise.vocab import Message, Response, Settings, Text, ToolSpec, calls_of

# How much the answer to the next request may hold, and whether that limit ended the last one.
# What a prompt that nobody has counted may be longer than it is taken for (the JSON around messages, a denser script), where no
# request is left after a refusal.
SPARE_TOKENS = 128
SPARE_SHARE = 8
# Tokens of a prompt that is guessed to be too long, by the most bytes a token that text has, and by the usual ones.
LONGEST_BYTES_A_TOKEN = 8
USUAL_BYTES_A_TOKEN = 4


class BudgetedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with what the model can still give; None where that is too little for an answer."""

    settings: Settings | None
    ends: str = ""


def budget(
    room: Room,
    settings: Settings,
    *,
    history: History,
    config: TurnConfig,
    trailing: Sequence[str],
    is_last: bool,
) -> BudgetedRequest:
    """What the next request may ask for.

    A prompt that is too long only by our guess goes out, once: the provider's count, or its refusal, tells. Not where no
    request is left after a refusal (`is_last`).
    """
    if config.room == "off":
        return BudgetedRequest(settings=settings)
    if room.stuck:
        return BudgetedRequest(settings=None)
    limits = config.model_limits
    size = history.prompt
    if trailing:
        added = sum([message_bytes(Message("user", (Text(text),))) for text in trailing])
        size = grown(size, added_bytes=added)
    found = split_output(
        limits,
        settings=settings,
        prompt_tokens=size.tokens,
        usual_tokens=config.default_max_tokens,
        spare_tokens=SPARE_TOKENS + size.tokens // SPARE_SHARE if is_last and not size.is_counted else 0,
    )
    if isinstance(found, OutputBudget):
        return BudgetedRequest(settings=with_budget(settings, budget=found))
    if not knows_window(limits) and not is_last:
        return BudgetedRequest(settings=settings)
    if not size.is_counted and not room.overflowed and not is_last:
        usual = split_output(limits, settings=settings, prompt_tokens=size.bytes // USUAL_BYTES_A_TOKEN)
        if isinstance(usual, OutputBudget):
            return BudgetedRequest(settings=with_budget(settings, budget=usual))
        least = answer_floor(limits, settings=settings)
        if size.bytes // LONGEST_BYTES_A_TOKEN + least <= window_of(limits):
            return BudgetedRequest(settings=replace(settings, max_output_tokens=least, reasoning_tokens=None))
    return BudgetedRequest(settings=None, ends=room.ends or NO_ROOM)


def says_limit(response: Response, known: Known, *, cut: Cut | None, limit_tokens: int | None) -> bool:
    """Whether the output limit is the likelier reason why a stream ended without a word. An object comes in one piece:
    one without what its schema demands was left so by the model, not by the connection."""
    if cut is not None and (cut.limited or fills_half(cut, limit_tokens=limit_tokens)):
        return True
    calls = calls_of(response.message)
    offer = known.offers.get(calls[-1].name) if calls else None
    if offer is None or not hands_out_objects(known.config.family, streamed=True):
        return False
    verdict = judge_call(
        calls[-1], tools={offer.spec.name: offer.spec}, finish=response.finish, limit_tokens=limit_tokens
    )
    return isinstance(verdict, Unsound) and verdict.kind == "schema_mismatch"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The request; None where there is no room for it."""

    composed: Composed | None
    changes: tuple[Change, ...]


def built(known: Known, *, prepared: StepPrepared, wish: Wish, disobeyed: bool) -> Built:
    """The request of the step at hand. `disobeyed`: the model called a tool where none was allowed."""
    config, tally = known.config, known.tally
    forced = (
        tally.eaten > 1
        or known.guarding.ends is not None
        or known.spending.pacing.pace != "go"
        or bool(known.room.ends)
    )
    # A first step without tools has nothing to sum up, and a correction has its own words (promise end:early).
    partial = forced and not tally.correcting and (bool(config.tools) or known.step > 1 or disobeyed)
    trailing, changes = _trailing(known, prepared=prepared, wish=wish, synthesis=partial)
    own = 1 if trailing else 0
    request = build_request(
        config,
        messages=tuple(known.history.messages),
        trailing=trailing,
        tools=tools_of(known, prepared=prepared),
        prepared=prepared,
        forced=forced,
        disobeyed=disobeyed,
        has_called=tally.has_called,
    )
    request = below_limits(known, request, own=own, answers=forced or not request.tools)
    found = budget(
        known.room,
        request.settings,
        history=known.history,
        config=config,
        trailing=trailing,
        is_last=is_last(known),
    )
    if found.settings is None:
        ends = (Roomed(known.room.ended(found.ends)),) if found.ends else ()
        return Built(composed=None, changes=(*changes, *ends))
    if found.settings is not request.settings:
        request = replace(request, settings=found.settings)
    asking = asking_of(request, purpose=wish.purpose, forced=forced, partial=partial, config=config)
    texts = own_texts(prepared)
    composed = Composed(request=request, asking=asking, own=own, own_texts=texts, wish=wish)
    return Built(composed=composed, changes=(*changes, Posed(asking)))


def own_texts(prepared: StepPrepared, *, note: str = "") -> tuple[str, ...]:
    """What the answer's request would have beside the history."""
    return (note, prepared.instruction or "", SYNTHESIS)


def tools_of(known: Known, *, prepared: StepPrepared) -> tuple[ToolSpec, ...]:
    """Those on offer in the step."""
    return (
        known.specs
        if prepared.tools is None
        else tools_chosen(prepared, specs=known.specs, always=handle_of(known.config))
    )


def _trailing(
    known: Known, *, prepared: StepPrepared, wish: Wish, synthesis: bool
) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """The user-role texts at the end of this request only. Without one the last message must not be an assistant's,
    unless the endpoint is known to accept it (promise end:no-prefill)."""
    history, instruction = known.history, prepared.instruction
    if history.paused and known.config.family in PAUSE_GOES_BACK_LAST:
        why = "nothing may follow a paused response"
        return (), (mended("instruction_dropped", f"step {known.step}", why),) if instruction else ()
    ends_open = history.messages[-1].role == "assistant"
    if not (synthesis or wish.note or instruction) and not ends_open:
        return (), ()
    circle = why_it_ends(known.guarding.ends) if synthesis and known.guarding.ends else None
    texts = [text for text in (wish.note, instruction, circle, SYNTHESIS if synthesis else None) if text]
    return tuple(texts or ([GO_ON] if ends_open and not known.config.accepts_prefill else [])), ()
