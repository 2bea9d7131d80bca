"""How the request of a step is built: what stands behind the history, which tools it offers, how much it may answer."""

import msgspec
from msgspec.structs import replace

from turnwise.rules.last_step import GO_ON, SYNTHESIS
from turnwise.rules.loops import why_it_ends
from turnwise.turn.changes import Change, Posed, Roomed, mended
from turnwise.turn.events import StepPrepared
from turnwise.turn.outcomes import Composed, Wish
from turnwise.turn.output_room import budget
from turnwise.turn.request_limits import below_limits, is_last
from turnwise.turn.request_plan import PAUSE_GOES_BACK_LAST, asking_of, build_request, tools_chosen
from turnwise.turn.results_room import handle_of
from turnwise.turn.turn_state import Known
from turnwise.vocab import ToolSpec


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
