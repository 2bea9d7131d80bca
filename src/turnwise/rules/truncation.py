"""Was this response cut by its output limit, whatever its finish reason claims, and what of it can be gone on from?

Witnesses, each enough by itself: the finish reason `length` (assembly makes it that where OpenRouter's `native_finish_reason` or
a Responses `incomplete_details` says so beside a word that does not); as many output tokens as were asked for; arguments that
stop in mid-JSON, which no finish reason can talk away. A server whose own cap is below what was asked for, and that hands out an
object under a false finish word, shows none of these. There the usage tells: 8,000 tokens, less those of reasoning, are not the
20 characters that arrived (`spent_unseen`). It tells only of a call that does not fit its tool as it came, and nothing where
reasoning may be hidden and is not counted apart. With any of these but mid-JSON, the call written last is cut as well where a cut
would not show in it: it came as an object, as free-form text, without arguments, or as `{}`, which is what servers make of a call
that had not got to its arguments. A stream that ends without any word (`cut`) is no proof of the limit, but what had arrived can
be gone on from all the same; one that has its API's end mark without a finish reason, or whose every call and text has its own
end, is whole, unless its usage, its length or its arguments say otherwise. A failure of the provider or of the connection does
not count as a cut: that request is made again (promise cut:not-blamed).

Where a prefix can be had: wherever the arguments came as text. Chat Completions and Responses always; Anthropic's stream, whose
text stops before the current parameter unless the tool streams eagerly (docs.anthropic.com, "Fine-grained tool streaming").
Bodies of Anthropic and Gemini, and Gemini's streams, hand out an object: one that looks whole may hold just the keys that
happened to be whole, and its JSON is no beginning of what the model wrote.
"""

import msgspec

from turnwise.rules.prompt_room import BYTES_A_TOKEN
from turnwise.rules.schema import decode_strictly, is_whole_json, schema_errors
from turnwise.vocab import (
    NO_FINISH_REASON,
    TWO_READINGS,
    ArgumentsState,
    FinishReason,
    Reasoning,
    Refusal,
    Request,
    Response,
    Text,
    ToolCall,
    calls_of,
    text_of,
)
from turnwise.vocab.hidden_characters import says_something

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
