"""How the request of a step is built: what comes after the history, which tools it offers, how long its answer may be."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.rules.answer_room import GO_ON, SYNTHESIS
from turnwise.rules.arguments import Unsound, judge_call
from turnwise.rules.compaction import Summarise
from turnwise.rules.history import learned, said_of
from turnwise.rules.loops import why_it_ends
from turnwise.rules.prompt_room import (
    ModelLimits,
    OutputBudget,
    PromptSize,
    ToldLimits,
    answer_floor,
    corrected,
    grown,
    message_bytes,
    prompt_capacity,
    read_told,
    recounted,
    refused,
    split_output,
    tells_of_prompt,
    window_of,
    with_budget,
    with_less_room,
)
from turnwise.rules.recovery import Cut, fills_half
from turnwise.rules.retries import CHAT_LESSONS, CLAUDE_LESSONS, LESSONS_SAID, MOST_LESSONS
from turnwise.rules.retries import lesson_of as dialect_lesson
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import SendRequest, StepPrepared
from turnwise.turn.history import History
from turnwise.turn.outcomes import Composed, Trying, Wish
from turnwise.turn.request_plan import asking_of, build_request, tools_chosen
from turnwise.turn.room import NO_ROOM, Room, handle_of, knows_window
from turnwise.turn.turn_state import (
    Change,
    Excused,
    Known,
    Paced,
    Posed,
    Prepared,
    Recounted,
    Replaced,
    affords,
    below_limits,
    is_last,
    mended,
)
from turnwise.vocab import (
    Fault,
    FaultKind,
    Message,
    Request,
    Response,
    Settings,
    Text,
    ToolSpec,
    calls_of,
    tells_instructions,
)

# How much the answer to the next request may hold, and whether that limit ended the last one.
# How much longer an uncounted prompt may be than its estimate (the JSON around messages, a denser script), if no request is left
# after a refusal.
SPARE_TOKENS = 128
SPARE_SHARE = 8
# The tokens of a prompt that seems too long: by the most bytes a token that text has, and by the usual number.
LONGEST_BYTES_A_TOKEN = 8
USUAL_BYTES_A_TOKEN = 4


class BudgetedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with what the model can still give; None if that is too little for an answer."""

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

    A prompt that is too long only by estimate is sent once: the provider's count, or its refusal, tells. It is not sent if no
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
    """Whether the output limit is the likelier reason why a stream ended without saying why. An object comes in one piece: if it
    lacks what its schema demands, the model left it so, not the connection."""
    if cut is not None and (cut.limited or fills_half(cut, limit_tokens=limit_tokens)):
        return True
    calls = calls_of(response.message)
    offer = known.offers.get(calls[-1].name) if calls else None
    if offer is None or not known.config.traits.gives_objects(streamed=True):
        return False
    verdict = judge_call(
        calls[-1], tools={offer.spec.name: offer.spec}, finish=response.finish, limit_tokens=limit_tokens
    )
    return isinstance(verdict, Unsound) and verdict.kind == "schema_mismatch"


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """The request; None if there is no room for it."""

    composed: Composed | None
    changes: tuple[Change, ...]


def built(known: Known, *, prepared: StepPrepared, wish: Wish, disobeyed: bool) -> Built:
    """The request of the current step. `disobeyed`: the model called a tool although none was allowed."""
    config, tally = known.config, known.tally
    forced = (
        tally.eaten > 1
        or known.guarding.ends is not None
        or known.spending.pacing.pace != "go"
        or bool(known.room.ends)
    )
    # A first step without tools has nothing to sum up, and a correction has its own text (promise end:early).
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
        ends = (Replaced(room=known.room.ended(found.ends)),) if found.ends else ()
        return Built(composed=None, changes=(*changes, *ends))
    if found.settings is not request.settings:
        request = replace(request, settings=found.settings)
    asking = asking_of(request, purpose=wish.purpose, forced=forced, partial=partial, config=config)
    texts = own_texts(prepared)
    composed = Composed(request=request, asking=asking, own=own, own_texts=texts, wish=wish)
    return Built(composed=composed, changes=(*changes, Posed(asking)))


def own_texts(prepared: StepPrepared, *, note: str = "") -> tuple[str, ...]:
    """What the answer's request would add to the history."""
    return (note, prepared.instruction or "", SYNTHESIS)


def tools_of(known: Known, *, prepared: StepPrepared) -> tuple[ToolSpec, ...]:
    """The tools on offer in the step."""
    return (
        known.specs
        if prepared.tools is None
        else tools_chosen(prepared, specs=known.specs, always=handle_of(known.config))
    )


def _trailing(
    known: Known, *, prepared: StepPrepared, wish: Wish, synthesis: bool
) -> tuple[tuple[str, ...], tuple[Change, ...]]:
    """The user-role texts at the end of this request only. Without such a text, the last message must not be an assistant's,
    unless the endpoint is known to accept it (promise end:no-prefill)."""
    history, instruction = known.history, prepared.instruction
    if history.paused and known.config.traits.pause_goes_back_last:
        why = "nothing may follow a paused response"
        return (), (mended("instruction_dropped", f"step {known.step}", why),) if instruction else ()
    ends_open = history.messages[-1].role == "assistant"
    if not (synthesis or wish.note or instruction) and not ends_open:
        return (), ()
    circle = why_it_ends(known.guarding.ends) if synthesis and known.guarding.ends else None
    texts = [text for text in (wish.note, instruction, circle, SYNTHESIS if synthesis else None) if text]
    return tuple(texts or ([GO_ON] if ends_open and not known.config.accepts_prefill else [])), ()


# What a rebuilt request takes with it: a limit that the provider told, another model, the note that it had.


# What a provider's error tells about the room of its model: the limits for the next attempt.
TELLING = frozenset({FaultKind.CONTEXT_OVERFLOW, FaultKind.BAD_REQUEST, FaultKind.QUOTA})
# One error may tell of the window and the next of the output limit. Errors without figures take some rounds from the assumed
# window to a small one. Each round must change something; an answered request resets the count.
MAX_CORRECTIONS = 6
# What an overflow without figures leaves of the prompt, the first time and later. If the window was known, the prompt exceeds it
# by little; if it was not, possibly by much.
REFUSED_PERCENT = (90, 75, 50)
LEAST_PROMPT_TOKENS = 1024  # a refusal for its size teaches nothing more: no model's window is so small
# A refusal in unknown words, of a prompt larger than all that were accepted: less than this fits any window.
UNSAID_TOKENS = 4096
UNSAID_PERCENT = 50
UNSAID_STATUSES = frozenset({400, 413, 422})


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned: the configuration for the next attempt, and the prompt's size as it is known now."""

    config: TurnConfig
    room: Room
    prompt: PromptSize


def learn(
    room: Room, *, fault: Fault, history: History, config: TurnConfig, output_tokens: int | None = None
) -> Lesson | None:
    """What the next attempt asks with, if the error is about room and something can be changed: the limits, the prompt, or the
    `output_tokens` that were asked for.

    If a request for a summary overflows, the next one is smaller, and the refusal counts only for its part.
    """
    if config.room == "off" or fault.kind not in TELLING or room.corrections >= MAX_CORRECTIONS:
        return None
    told = read_told(fault.message)
    compacts = config.room == "compact"
    is_overflow = compacts and (fault.kind is FaultKind.CONTEXT_OVERFLOW or tells_of_prompt(told))
    is_unsaid = (
        told is None and not is_overflow and compacts and _may_be_too_long(room, fault, history=history, config=config)
    )
    if told is None and not (is_overflow or is_unsaid):
        return None
    before, asked_bytes = history.prompt, _asked_bytes(room.planned, history=history)
    prompt, limits = _told(told, prompt=before, limits=config.model_limits, asked_bytes=asked_bytes)
    is_news = limits != config.model_limits or prompt != before
    if not is_news:
        if not (is_overflow or is_unsaid):
            return None
        asked = prompt.tokens
        if asked_bytes is not None:
            asked = asked * asked_bytes // max(1, prompt.bytes)
        percent = REFUSED_PERCENT[min(room.refusals, len(REFUSED_PERCENT) - 1)]
        smaller = refused(limits, prompt_tokens=asked, percent=UNSAID_PERCENT if is_unsaid else percent)
        if prompt_capacity(smaller, settings=config.settings) < LEAST_PROMPT_TOKENS:
            if room.refusals or not is_overflow or output_tokens is None or limits.context_window_tokens is None:
                return None
            # such a small prompt was refused because of its requested output: ask for half of that, once
            smaller = with_less_room(limits, prompt_tokens=asked, output_tokens=output_tokens)
        room = room.refused(limits)
        limits = smaller
    fits = prompt.tokens <= prompt_capacity(limits, settings=config.settings)
    learned = room.learned(
        is_overflow=is_overflow,
        unsaid=fault if is_unsaid else None,
        must_shrink=is_overflow and fits and prompt == before,
        is_news=is_news,
    )
    return Lesson(config=config.with_limits(limits), room=learned, prompt=prompt)


def _told(
    told: ToldLimits | None, *, prompt: PromptSize, limits: ModelLimits, asked_bytes: int | None
) -> tuple[PromptSize, ModelLimits]:
    if told is None:
        return prompt, limits
    return recounted(prompt, told=told, asked_bytes=asked_bytes), corrected(limits, told=told)


def _asked_bytes(planned: Summarise | None, *, history: History) -> int | None:
    """The bytes of the current request for a summary; None if the current request holds the whole prompt."""
    if planned is None:
        return None
    messages = sum([message_bytes(message) for message in planned.asks])
    return history.before_bytes + messages + message_bytes(Message("user", (Text(planned.instruction),)))


def _may_be_too_long(room: Room, fault: Fault, *, history: History, config: TurnConfig) -> bool:
    """Whether unknown words may mean that: the prompt is larger than any that was accepted, and the window is unknown or half
    full. Trying less, once a turn, is cheaper than a session that can never continue."""
    if room.tried_unsaid or fault.kind is not FaultKind.BAD_REQUEST or fault.status not in UNSAID_STATUSES:
        return False
    limits, tokens = config.model_limits, history.prompt.tokens
    is_large = not knows_window(limits) or tokens * 2 > window_of(limits)
    return is_large and tokens >= UNSAID_TOKENS and history.prompt.bytes > room.largest_bytes


def again(known: Known, *, note: str, trying: Trying | None = None) -> Wish:
    """Another attempt. A request that never left has not been made, so then the next one is the first."""
    spending = known.spending
    of = "step" if spending.asking is None else spending.asking.purpose
    return Wish(note=note, purpose="retry" if spending.has_left else spending.ordered, retry_of=of, trying=trying)


def once_fitted(wish: Wish, *, known: Known) -> Wish:
    """The wish, now that the prompt is made smaller: that settles a pause, and the note was about the pause."""
    return replace(wish, note="") if known.history.paused else wish


def lesson_of(known: Known, *, fault: Fault, answers: bool) -> tuple[Change, ...]:
    """What an error tells about room, if one more request can be afforded; if that must be the answer's, only with `answers`.
    None: it tells nothing that can be changed."""
    pacing = known.spending.pacing
    if not affords(known, answers=known.is_forced):
        pacing = known.judged()
        if not answers or pacing.pace != "answer":
            return ()
    output_tokens = None if known.asking is None else known.asking.limit_tokens
    found = learn(known.room, fault=fault, history=known.history, config=known.config, output_tokens=output_tokens)
    if found is None:
        return ()
    return Replaced(config=found.config, room=found.room), Recounted(found.prompt), Paced(pacing)


def without_stale(known: Known, order: SendRequest | None, fault: Fault, *, refused: int | None) -> tuple[Change, ...]:
    """How the same request is sent again, if it was refused for stale thinking (promise step:bound-thinking). `refused`: this
    much of its thinking stands before the block that an earlier refusal named. None: it was refused for another reason."""
    config = known.config
    if not fault.binding or order is None:
        return ()
    stale = learned(config.stale_thinking, fault=fault, request=order.request, family=config.family, refused=refused)
    if stale is None:
        return ()
    return (
        Replaced(config=config.without_stale(stale)),
        Excused(),
        mended("stale_thinking", f"request {order.number}", said_of(stale)),
    )


def as_taught(known: Known, order: SendRequest | None, fault: Fault, *, lessons: int) -> tuple[Change, ...]:
    """How the same request is written once more, if its server refused it in known words (promise heal:dialect). So many
    `lessons` were already learned from this request. None: the refusal stands."""
    config = known.config
    traits = config.traits
    among = (*(CHAT_LESSONS if traits.has_dialects else ()), *(CLAUDE_LESSONS if traits.may_refuse_behind else ()))
    if not among or order is None or lessons >= MOST_LESSONS:
        return ()
    model = order.request.model
    lesson = dialect_lesson(fault, known=order.request.lessons, among=among)
    if lesson is None or (lesson in CLAUDE_LESSONS and not _tells_behind(order.request)):
        return ()
    what = f"`{model}` {LESSONS_SAID[lesson]}; sent again"
    return (
        Replaced(config=config.taught(model, lesson=lesson)),
        Excused(),
        mended("dialect", f"request {order.number}", what),
    )


def _tells_behind(request: Request) -> bool:
    """Whether tools or changed instructions come among the messages: a refusal of their form can be about these alone."""
    return bool(request.appended_tools) or any(tells_instructions(message) for message in request.messages)


def falling_back(known: Known, *, why: str) -> tuple[Change, ...]:
    """The next model takes over for the rest of the turn: a model that has just failed so often is not asked in each step. None:
    it cannot be afforded."""
    config, prepared = known.config, known.spending.prepared
    if not affords(known, answers=True, model=config.fallbacks[0].model):
        return ()
    now = config.fallen_back()
    failed = f"`{prepared.model or config.model}` failed ({why}); asked `{now.model}`"
    changes = (mended("model_fallback", f"request {known.spending.requests}", failed), Replaced(config=now))
    if prepared.model is None:
        return changes
    return (*changes, Prepared(replace(prepared, model=now.model)))
