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
    BYTES_A_TOKEN,
    LOWER_EFFORT,
    MIN_REASONING_TOKENS,
    ModelLimits,
    more_room_for_answer,
    raised_limit,
    within_ceiling,
)
from turnwise.rules.schema import decode_strictly, is_whole_json, schema_errors
from turnwise.vocab import (
    NO_FINISH_REASON,
    NO_USAGE,
    TWO_READINGS,
    ArgumentsState,
    FamilyTraits,
    File,
    FinishReason,
    Message,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
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

# Was this response cut by its output limit, whatever its finish reason claims, and what of it can be gone on from?
#
# Witnesses, each enough by itself: the finish reason `length` (assembly makes it that where OpenRouter's `native_finish_reason`
# or a Responses `incomplete_details` says so beside a word that does not); as many output tokens as were asked for; arguments
# that stop in mid-JSON, which no finish reason can talk away. A server whose own cap is below what was asked for, and that hands
# out an object under a false finish word, shows none of these. There the usage tells: 8,000 tokens, less those of reasoning, are
# not the 20 characters that arrived (`spent_unseen`). It tells only of a call that does not fit its tool as it came, and nothing
# where reasoning may be hidden and is not counted apart. With any of these but mid-JSON, the call written last is cut as well
# where a cut would not show in it: it came as an object, as free-form text, without arguments, or as `{}`, which is what servers
# make of a call that had not got to its arguments. A stream that ends without any word (`cut`) is no proof of the limit, but what
# had arrived can be gone on from all the same; one that has its API's end mark without a finish reason, or whose every call and
# text has its own end, is whole, unless its usage, its length or its arguments say otherwise. A failure of the provider or of the
# connection does not count as a cut: that request is made again (promise cut:not-blamed).
#
# Where a prefix can be had: wherever the arguments came as text. Chat Completions and Responses always; Anthropic's stream, whose
# text stops before the current parameter unless the tool streams eagerly (docs.anthropic.com, "Fine-grained tool streaming").
# Bodies of Anthropic and Gemini, and Gemini's streams, hand out an object: one that looks whole may hold just the keys that
# happened to be whole, and its JSON is no beginning of what the model wrote.


# Ends after which nothing is gone on from: the request failed, or the answer may not be had.
NO_CUT = frozenset({FinishReason.ERROR, FinishReason.REFUSAL, FinishReason.CONTENT_FILTER, FinishReason.PAUSE})
_NO_SPACE = str.maketrans("", "", " \t\n\r")


class CutCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was being written when the limit fell. `prefix` is the text to go on from; None where there is none,
    because it came as an object or had not begun."""

    call: ToolCall
    prefix: str | None


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """How far a cut response got. `limited`: by the output limit, else the stream ended without a word. `calls` are the
    cut ones in order; `text` is a cut answer (a response with calls has none); neither: it had not come past its
    reasoning, or not even there."""

    limited: bool
    calls: tuple[CutCall, ...] = ()
    text: str = ""


# Tokens of output that nothing arrived for. What a server adds to a call (names, markup) is a few dozen.
UNSEEN_TOKENS = 1000
UNSEEN_TIMES = 2  # and of what arrived, at one byte a token
# A response that met a limit has used nearly all of it: what ends a response may count or not.
NEARLY_PERCENT = 95
# A cap is a few hundred tokens at the least, and a token has no more bytes than this on average, in any text.
LEAST_CAP_TOKENS = 100
MOST_BYTES_A_TOKEN = 16
# At the four characters that a token of prose or code has.
HALF_LIMIT_CHARACTERS_A_TOKEN = 2


def fills_half(cut: Cut, *, limit_tokens: int | None) -> bool:
    """Whether the piece that can be gone on from is at least half of what the output limit holds: then the limit is the
    likelier reason why the stream ended without a word, and going on costs less than asking for all of it once more."""
    if limit_tokens is None:
        return False
    pieces = [one.prefix for one in cut.calls if one.prefix is not None] or [cut.text]
    return max(map(len, pieces)) >= limit_tokens * HALF_LIMIT_CHARACTERS_A_TOKEN


def find_cut(
    response: Response,
    *,
    limit_tokens: int | None,
    hands_out_objects: bool,
    request: Request | None = None,
) -> Cut | None:
    """What the limit cut of `response`; None if nothing. `limit_tokens` is what was asked for, `hands_out_objects` says
    that this endpoint's arguments come as objects in this mode. That a call came in such a way all the same, or without
    arguments, assembly says (`Response.may_hide_cut`): servers of any family do. The usage tells of a hidden cut only
    with the `request`."""
    if response.fault is not None or response.finish in NO_CUT:
        return None
    usage, calls = response.usage, calls_of(response.message)
    is_full = limit_tokens is not None and usage is not None and usage.output_tokens >= limit_tokens
    limited = response.finish is FinishReason.LENGTH or is_full
    by_usage = (
        request is not None
        and bool(calls)
        and spent_unseen(response)
        and not _hides_reasoning(response, request=request)
        and _misfits(calls[-1], request=request)
    )
    limited = limited or by_usage
    last = _last_written(response) if limited else None
    cut = [
        CutCall(call=call, prefix=_prefix(call))
        for call in calls
        if call.state is ArgumentsState.TRUNCATED
        or (limited and call.id in response.may_hide_cut)
        or (limited and call is last and (by_usage or hands_out_objects or _says_nothing(call)))
        if call.state is not ArgumentsState.LOST  # a fault of the connection, whatever else
    ]
    if cut or (calls and not limited):
        return Cut(limited=limited, calls=tuple(cut)) if cut else None
    if calls:
        return None  # every call is whole, so the limit fell on words beside them or on nothing
    found = Cut(limited=limited, text=text_of(response.message))
    if limited or response.finish is not FinishReason.CUT:
        return found if limited else None
    whole = has_end_mark(response) and says_something(found.text) and not fills_half(found, limit_tokens=limit_tokens)
    return None if whole else found


def has_end_mark(response: Response) -> bool:
    """Whether this was all of it, though the server did not say why: it sent its API's end mark, or the response is closed and
    its connection ended in good order."""
    return response.finish is FinishReason.CUT and (response.is_closed or not is_unmarked(response))


def is_unmarked(response: Response) -> bool:
    """Whether it ended without a word about why and without its API's end mark."""
    return response.finish is FinishReason.CUT and all(one.kind != NO_FINISH_REASON for one in response.repairs)


def as_ended(response: Response) -> Response:
    """A response that nothing cut: where it has an end mark only, that is the end that what it holds speaks of."""
    if not has_end_mark(response):
        return response
    finish = FinishReason.TOOL_CALLS if calls_of(response.message) else FinishReason.STOP
    return msgspec.structs.replace(response, finish=finish)


def spent_unseen(response: Response) -> bool:
    """Whether far more tokens were generated than what arrived can have, by the provider's own count.

    No tokenizer makes more tokens than bytes. Whatever else a provider may count as output and not show is no proof: files,
    what a tool on the server wrote, reasoning that is sealed or summarised and not counted apart. Reasoning that arrived is
    estimated where it is not counted, and generously.
    """
    usage = response.usage
    if usage is None or usage.output_tokens < UNSEEN_TOKENS:
        return False
    seen = reasoned = 0
    for part in response.message.parts:
        match part:
            case Text() | Refusal():
                seen += _bytes(part.text)
            case ToolCall():
                seen += _bytes(part.name) + _bytes(part.arguments)
            case Reasoning():
                reasoned += _bytes(part.text)
            case _:
                return False
        if part.opaque is not None and not usage.reasoning_tokens and not _names_item(part):
            return False
    told = usage.reasoning_tokens
    doubt = 0 if told else reasoned // BYTES_A_TOKEN // 4
    spent = usage.output_tokens - (told or reasoned // BYTES_A_TOKEN)
    return spent - seen >= UNSEEN_TOKENS + doubt and spent >= UNSEEN_TIMES * seen


def _names_item(part: Text | Refusal | ToolCall | Reasoning) -> bool:
    """Whether its provider data is the id that Responses gives every item, and not a seal on reasoning."""
    return part.opaque is not None and part.opaque.family == "openai_responses" and not isinstance(part, Reasoning)


def limit_hit(response: Response, *, limit_tokens: int | None) -> int | None:
    """The limit that cut `response`: what was asked for, or fewer tokens, where the server has a cap of its own."""
    used = 0 if response.usage is None else response.usage.output_tokens
    arrived = _arrived_bytes(response)
    # A count that does not fit what arrived is ignored (Anthropic's first one, where the last did not come).
    if used < LEAST_CAP_TOKENS or used * MOST_BYTES_A_TOKEN < arrived:
        return limit_tokens
    if limit_tokens is not None and used * 100 >= limit_tokens * NEARLY_PERCENT:
        return limit_tokens
    return used


def spent_tokens(response: Response, *, limit_tokens: int | None) -> int:
    """The output tokens of `response`: the provider's count if it gave a possible one, else what was asked for if that cut it,
    else an estimate of what arrived."""
    used = 0 if response.usage is None else response.usage.output_tokens
    arrived = _arrived_bytes(response)
    if used > 0 and used * MOST_BYTES_A_TOKEN >= arrived:
        return used
    if response.finish is FinishReason.LENGTH and limit_tokens is not None:
        return limit_tokens
    return arrived // BYTES_A_TOKEN


def _arrived_bytes(response: Response) -> int:
    said = sum([_bytes(part.text) for part in response.message.parts if isinstance(part, Text | Reasoning)])
    return said + sum([_bytes(call.arguments) for call in calls_of(response.message)])


def _hides_reasoning(response: Response, *, request: Request) -> bool:
    """Whether reasoning was asked for and nothing of it shows, in parts or in the usage."""
    settings, extra = request.settings, "" if request.extra is None else request.extra.json
    wanted = settings.reasoning_tokens or settings.reasoning_effort not in (None, "none")
    if not (wanted or "reason" in extra or "think" in extra):
        return False
    counted = response.usage is not None and response.usage.reasoning_tokens > 0
    return not counted and not any(isinstance(part, Reasoning) for part in response.message.parts)


def _misfits(call: ToolCall, *, request: Request) -> bool:
    """Whether its arguments are an object that does not fit the tool."""
    spec = next((tool for tool in request.tools if tool.name == call.name), None)
    if spec is None or call.free_form or spec.free_form or call.state is not ArgumentsState.COMPLETE:
        return False
    try:
        value = decode_strictly(call.arguments)
    except ValueError:
        return False
    return bool(schema_errors(spec.parameters, value=value))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _last_written(response: Response) -> ToolCall | None:
    """The call that was being written at the end; parts that say nothing may follow it (signatures, blank text)."""
    for part in reversed(response.message.parts):
        if isinstance(part, ToolCall):
            return part
        if not isinstance(part, Text) or says_something(part.text):
            return None
    return None


def _says_nothing(call: ToolCall) -> bool:
    """Whether its arguments are empty, or `{}`: what a server makes of a call that was cut before they began."""
    return not call.free_form and call.arguments.translate(_NO_SPACE) in ("", "{}", "null")


def _prefix(call: ToolCall) -> str | None:
    """Raw text that was cut is never whole JSON, and an object that was handed out always is."""
    if not call.arguments.strip():
        return None
    if call.free_form:
        return call.arguments
    if call.state is not ArgumentsState.TRUNCATED or call.reason == TWO_READINGS:
        return None
    return None if is_whole_json(call.arguments) else call.arguments


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
