"""Recovery of a response that the output limit cut: continue it, or ask once more.

A response is taken in whole or not at all. So a cut response waits: requests for the rest continue its calls (one after the
other) or its text. The result is one response like any other: joined calls are complete; calls that could not be joined are
truncated and get the split notice: `rules/arguments.py` puts it together, `rules/advice.py` has its words (promises
cut:continued, cut:split, cut:text-continued).

Nothing here knows of a turn, its limits or its tools. The caller says in `Means` what may be done about the response, sends the
requests, and decides whether they are affordable.
"""

from collections.abc import Collection
from typing import Literal

import msgspec

from turnwise.rules.answer_room import forbid_tools
from turnwise.rules.continuation import (
    Grown,
    NoGrowth,
    NoSeam,
    PartialKind,
    SplitText,
    ask_to_continue,
    hold_back,
    stitch,
)
from turnwise.rules.prompt_room import (
    LOWER_EFFORT,
    MIN_REASONING_TOKENS,
    ModelLimits,
    more_room_for_answer,
    raised_limit,
    within_ceiling,
)
from turnwise.rules.truncation import NO_CUT, Cut, find_cut
from turnwise.vocab import (
    NO_USAGE,
    ArgumentsState,
    FamilyTraits,
    File,
    FinishReason,
    Message,
    Part,
    ProviderItem,
    Repair,
    Request,
    Response,
    Settings,
    Text,
    ToolCall,
    calls_of,
    refusal_of,
    text_of,
)
from turnwise.vocab.hidden_characters import says_something

# 16 continuations of 8,000 tokens are a book of 300 pages; who goes on after that does not end by itself.
MAX_TEXT_CONTINUATIONS = 16
# As much as one call may be on the wire (wire/profiles.py).
MAX_GROWN_CHARACTERS = 8 * 1024 * 1024
# A limit that is hardly higher cuts again.
WORTH_RAISING = 1.25
# `continue`: the model goes on from the cut; `split`: a cut call is not continued; `off`: no request is made for it.
Recover = Literal["continue", "split", "off"]


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done about a cut response. `callable` are the names of the tools whose cut calls could run: on offer, allowed,
    and not in the last step. `limits` are the model's, `ceiling_tokens` the user's own limit of output. `prefill`,
    `tool_choice_none` and `traits` are facts of the endpoint."""

    recover: Recover
    callable: Collection[str]
    limits: ModelLimits
    ceiling_tokens: int | None = None
    prefill: bool = False
    tool_choice_none: Literal["send", "drop_tools"] = "send"
    traits: FamilyTraits


class Continuing(msgspec.Struct, frozen=True, kw_only=True):
    """A cut response that is being continued. `place` is that of the current call among the response's parts (None: its text),
    `waiting` are those of the cut calls after it, `grown` the texts of those that are whole."""

    response: Response
    request: Request  # what gave it
    held: SplitText
    place: int | None = None
    waiting: tuple[int, ...] = ()
    rounds: int = 1  # requests that the current part takes
    grown: dict[int, str] = {}
    repairs: tuple[Repair, ...] = ()

    @property
    def call(self) -> ToolCall | None:
        return None if self.place is None else _call_at(self.response, place=self.place)


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The one response that came of it."""

    response: Response
    repairs: tuple[Repair, ...] = ()


def mark_cut(response: Response, *, cut: Cut) -> Response:
    """The response with its cut calls `truncated`, also those that came as objects and look whole, and its true finish."""
    calls = [one.call for one in cut.calls]
    parts: list[Part] = [
        msgspec.structs.replace(part, state=ArgumentsState.TRUNCATED)
        if isinstance(part, ToolCall) and any(part is call for call in calls)
        else part
        for part in response.message.parts
    ]
    finish = FinishReason.LENGTH if cut.limited else response.finish
    return msgspec.structs.replace(
        response, message=msgspec.structs.replace(response.message, parts=tuple(parts)), finish=finish
    )


# going on


def begin(response: Response, *, cut: Cut, request: Request, means: Means) -> Continuing | Settled:
    """The first thing to continue in a response as it came. There is none in a response that lost a piece: what came
    before the cut may be damaged.

    A call is worth it if it could run. An assistant's message cannot follow another one's.
    """
    marked = mark_cut(response, cut=cut)
    if means.recover == "off" or request.messages[-1].role == "assistant" or response.lost:
        return Settled(response=marked)
    if not cut.calls:
        held = hold_back(cut.text, kind="text") if says_something(cut.text) else None
        if held is None:
            return Settled(response=marked)
        return Continuing(response=marked, request=request, held=held)
    if means.recover != "continue":
        return Settled(response=marked)
    prefixed = [one.call for one in cut.calls if one.prefix is not None]
    places = [
        place
        for place, part in enumerate(response.message.parts)
        if isinstance(part, ToolCall) and any(part is call for call in prefixed) and part.name in means.callable
    ]
    return _next_call(Continuing(response=marked, request=request, held=SplitText("", ""), waiting=tuple(places)))


def take_reply(state: Continuing, *, reply: Response, limit_tokens: int | None) -> Continuing | Settled:
    """What to do after the reply to a continue request; `limit_tokens` is what that request asked for."""
    if reply.fault is not None or reply.finish in NO_CUT:
        return give_up(state, why=f"the reply ended with `{reply.finish}`")
    if reply.lost:
        return give_up(state, why="the reply did not arrive whole")
    if calls_of(reply.message):
        return give_up(state, why="the reply called a tool in place of going on")
    cut = find_cut(reply, limit_tokens=limit_tokens, hands_out_objects=False) is not None
    joined = stitch(state.held, reply=text_of(reply.message), kind=_kind(state.call), cut=cut)
    match joined:
        case Grown(text=text, whole=True, repairs=repairs):
            return _close(_with_repairs(state, repairs), text=text)
        case Grown(text=text, repairs=repairs):
            state = _with_repairs(state, repairs)
            if state.place is None and state.rounds >= MAX_TEXT_CONTINUATIONS:
                return give_up(state, why=f"it was still cut after {state.rounds} continuations", so_far=text)
            held = hold_back(text, kind=_kind(state.call)) if len(text) <= MAX_GROWN_CHARACTERS else None
            if held is None:
                return give_up(state, why="its end cannot be told from other places in it", so_far=text)
            return msgspec.structs.replace(state, held=held, rounds=state.rounds + 1)
        case NoGrowth():
            return give_up(state, why="nothing new came")
        case NoSeam(why=why):
            return give_up(state, why=why)


def give_up(state: Continuing, *, why: str, so_far: str | None = None) -> Continuing | Settled:
    """Leave the current part as it is, a text as far as it came, and take the next one."""
    call = state.call
    where = "answer" if call is None else f"call {call.id}"
    state = _with_repairs(state, (Repair("continuation_refused", where, why),))
    if call is not None:
        return _next_call(state)
    text = state.held.shown + state.held.held if so_far is None else so_far
    return Settled(response=_with_text(state.response, text=text, whole=False), repairs=state.repairs)


def as_far_as_it_came(state: Continuing) -> Response:
    """The cut response with what has been joined by now: for a turn that ends in the middle of it."""
    response = _with_calls(state)
    if state.place is None:
        response = _with_text(response, text=state.held.shown + state.held.held, whole=False)
    return response


def continue_request(state: Continuing, *, means: Means) -> Request:
    """The request that gave the cut response, and behind it the text so far and the word to go on: the same prefix, tools
    forbidden as in the last step. Nothing else of the cut response is in it."""
    request, call = state.request, state.call
    asked = ask_to_continue(state.held, kind=_kind(call), tool="" if call is None else call.name, prefill=means.prefill)
    said = (Message("assistant", (Text(asked.assistant),)),)
    if asked.user is not None:
        said = (*said, Message("user", (Text(asked.user),)))
    offer = forbid_tools(request.tools, means=means.tool_choice_none, disobeyed=False, traits=means.traits)
    return msgspec.structs.replace(
        request,
        messages=(*request.messages, *said),
        tools=offer.tools,
        tool_choice=offer.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls if offer.tools else None,
        output=None,
        settings=_roomy(request.settings, response=state.response, means=means),
    )


def _next_call(state: Continuing) -> Continuing | Settled:
    for number, place in enumerate(state.waiting):
        call = _call_at(state.response, place=place)
        held = hold_back(call.arguments, kind=_kind(call))
        if held is not None:
            rest = state.waiting[number + 1 :]
            return msgspec.structs.replace(state, place=place, waiting=rest, held=held, rounds=1)
        refused = Repair("continuation_refused", f"call {call.id}", "too little of it arrived to go on from")
        state = _with_repairs(state, (refused,))
    return Settled(response=_with_calls(state), repairs=state.repairs)


def _close(state: Continuing, *, text: str) -> Continuing | Settled:
    if state.place is None:
        joined = Repair("continued_text", "answer", f"joined of {state.rounds + 1} responses")
        return Settled(response=_with_text(state.response, text=text, whole=True), repairs=(*state.repairs, joined))
    call = _call_at(state.response, place=state.place)
    joined = Repair("continued_call", f"call {call.id}", f"joined of {state.rounds + 1} responses")
    grown = {**state.grown, state.place: text}
    return _next_call(msgspec.structs.replace(_with_repairs(state, (joined,)), grown=grown))


def _with_calls(state: Continuing) -> Response:
    parts = list(state.response.message.parts)
    for place, text in state.grown.items():
        call = _call_at(state.response, place=place)
        parts[place] = msgspec.structs.replace(
            call, arguments=text, state=ArgumentsState.COMPLETE, reason=None, alternatives=()
        )
    calls = [part for part in parts if isinstance(part, ToolCall)]
    whole = bool(state.grown) and all(call.state is ArgumentsState.COMPLETE for call in calls)
    message = msgspec.structs.replace(state.response.message, parts=tuple(parts))
    finish = FinishReason.TOOL_CALLS if whole else state.response.finish
    return msgspec.structs.replace(state.response, message=message, finish=finish)


def _with_text(response: Response, *, text: str, whole: bool) -> Response:
    """The response with this text: in its text parts as far as they agree, the last one takes the rest."""
    parts: list[Part] = []
    last = max([place for place, part in enumerate(response.message.parts) if isinstance(part, Text)], default=-1)
    for place, part in enumerate(response.message.parts):
        if not isinstance(part, Text):
            parts.append(part)
        elif place == last or not text.startswith(part.text):
            parts.append(msgspec.structs.replace(part, text=text))
            text = ""
        else:
            parts.append(part)
            text = text.removeprefix(part.text)
    kept = [part for part in parts if not isinstance(part, Text) or part.text]
    message = msgspec.structs.replace(response.message, parts=tuple(kept))
    finish = FinishReason.STOP if whole else FinishReason.LENGTH
    return msgspec.structs.replace(response, message=message, finish=finish)


def _with_repairs(state: Continuing, repairs: tuple[Repair, ...]) -> Continuing:
    return msgspec.structs.replace(state, repairs=(*state.repairs, *repairs)) if repairs else state


def _call_at(response: Response, *, place: int) -> ToolCall:
    part = response.message.parts[place]
    assert isinstance(part, ToolCall)
    return part


def _kind(call: ToolCall | None) -> PartialKind:
    return "text" if call is None or call.free_form else "json"


def _roomy(settings: Settings, *, response: Response, means: Means) -> Settings:
    """As much output as the model may give, and as little reasoning: the rest of a text needs no thought."""
    highest = raised(settings, response=response, means=means)
    changes: dict[str, object] = {} if highest is None else {"max_output_tokens": highest}
    if settings.reasoning_tokens:
        changes["reasoning_tokens"] = min(settings.reasoning_tokens, MIN_REASONING_TOKENS)
    elif settings.reasoning_effort is not None:
        changes["reasoning_effort"] = LOWER_EFFORT[settings.reasoning_effort]
    return msgspec.structs.replace(settings, **changes) if changes else settings


# asking once more


def raised(settings: Settings, *, response: Response, means: Means) -> int | None:
    """A higher limit of output than the one that cut `response`, where the model is known to have it."""
    limits = within_ceiling(means.limits, ceiling_tokens=means.ceiling_tokens)
    if limits.max_output_tokens is None:
        return None
    usage = response.usage
    return raised_limit(
        limits,
        settings=settings,
        prompt_tokens=0 if usage is None else usage.input_tokens,
        used_tokens=0 if usage is None else usage.output_tokens,
    )


def roomier(state: Settled, *, cut: Cut, request: Request, limit_tokens: int | None, means: Means) -> Settings | None:
    """The settings of the one retry after a call was cut that cannot be continued; None where there is none."""
    if not cut.calls or means.recover == "off":
        return None
    highest = raised(request.settings, response=state.response, means=means)
    if highest is None or (limit_tokens is not None and highest < WORTH_RAISING * limit_tokens):
        return None
    return msgspec.structs.replace(request.settings, max_output_tokens=highest)


def room_for_answer(settings: Settings, *, response: Response, means: Means) -> Settings | None:
    """The settings of the one retry after reasoning ate `response`; None where nothing can be changed."""
    usage = (response.usage or NO_USAGE).last_sampling
    return more_room_for_answer(
        settings,
        limits=within_ceiling(means.limits, ceiling_tokens=means.ceiling_tokens),
        prompt_tokens=usage.input_tokens,
        used_tokens=usage.output_tokens,
    )


def ate_all(response: Response, *, cut: Cut) -> bool:
    """The limit fell before a word of an answer or a call: reasoning took it all."""
    if not cut.limited or cut.calls or says_something(cut.text) or says_something(refusal_of(response.message)):
        return False
    return not any(isinstance(part, File | ProviderItem) for part in response.message.parts)


def least_reasoning(settings: Settings) -> Settings:
    """For the answer that is asked for after reasoning ate all twice."""
    effort = LOWER_EFFORT[settings.reasoning_effort or "low"]
    return msgspec.structs.replace(settings, reasoning_tokens=None, reasoning_effort=effort)
