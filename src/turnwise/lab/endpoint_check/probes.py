"""What `turnwise check` asks: one row a probe. A probe's request is a function of what was learned so far, of nothing else."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from turnwise.agent.formatting import many, usd_said
from turnwise.endpoints.endpoints import Endpoint
from turnwise.rules.pricing import Priced, PriceRow, price_of
from turnwise.vocab import (
    ArgumentsState,
    Message,
    OutputSchema,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
)

MAX_OUTPUT_TOKENS = 400  # of one answer: a reasoning model thinks before it calls a tool
LIMIT_TOKENS = 16  # the least that OpenAI's Responses API takes as `max_output_tokens`
CUT_TOKENS = 48  # enough for the beginning of a call, too little for what it shall write
CACHED_LINES = 130  # about 1,600 tokens: OpenAI and Anthropic keep no prompt of less than 1,024
NO_SUCH_MODEL = "turnwise-check-no-such-model"
NO_KEY = "turnwise-check-is-no-key"

WEATHER = ToolSpec(
    name="get_weather",
    description="Tells the weather of one city now.",
    parameters='{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}',
)
WRITE = ToolSpec(
    name="write_file",
    description="Writes a text file.",
    parameters=(
        '{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},'
        '"required":["path","content"],"additionalProperties":false}'
    ),
)
CITY = OutputSchema(
    name="city",
    schema=(
        '{"type":"object","properties":{"name":{"type":"string"},"country":{"type":"string"}},'
        '"required":["name","country"],"additionalProperties":false}'
    ),
)
ASKS_WEATHER = "What is the weather in Oslo? Call the tool get_weather."
INVENTED = ToolCall(id="call_check_1", name="get_weather", arguments='{"city":"Oslo"}', state=ArgumentsState.COMPLETE)


class SoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe builds on. `said` is the model's own message with its calls, or one with an invented call in its place."""

    model: str
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    said: Message = Message("assistant", (INVENTED,))


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the word for `--only` and `--json`, `title` says in the table what is asked. `wrong_key`: sent with a key
    that nobody has. `needs_call`: it goes on from the model's own call."""

    name: str
    title: str
    build: Callable[[SoFar], Request]
    wrong_key: bool = False
    needs_call: bool = False


def _said(text: str) -> Message:
    return Message("user", (Text(text),))


def _ask(so_far: SoFar, text: str, *, stream: bool = True, tools: tuple[ToolSpec, ...] = ()) -> Request:
    return Request(
        model=so_far.model,
        messages=(_said(text),),
        tools=tools,
        settings=Settings(max_output_tokens=so_far.max_output_tokens),
        stream=stream,
    )


def _hello(so_far: SoFar, *, stream: bool) -> Request:
    return _ask(so_far, "Reply with the one word: ready", stream=stream)


def _weather(so_far: SoFar, *, stream: bool) -> Request:
    return _ask(so_far, ASKS_WEATHER, stream=stream, tools=(WEATHER,))


def _results(so_far: SoFar) -> Request:
    results = [
        ToolResult(call_id=call.id, name=call.name, content=(Text("Oslo: 7 degrees, light rain."),))
        for call in calls_of(so_far.said)
    ]
    asked = _weather(so_far, stream=True)
    return replace(asked, messages=(*asked.messages, so_far.said, Message("tool", tuple(results))))


def _parallel(so_far: SoFar) -> Request:
    asked = _ask(
        so_far,
        "What is the weather in Oslo and in Lima? Call get_weather for both cities at once, in the same answer.",
        tools=(WEATHER,),
    )
    return replace(asked, parallel_tool_calls=True)


def _forced(so_far: SoFar) -> Request:
    before = _results(so_far)
    last = _said("Answer now from what you have. Do not call a tool.")
    return replace(before, messages=(*before.messages, last), tool_choice="none")


def _limited(so_far: SoFar) -> Request:
    asked = _ask(so_far, "Count from 1 to 200, in words, one number a line. Begin at once.")
    return replace(asked, settings=Settings(max_output_tokens=LIMIT_TOKENS))


def _cut(so_far: SoFar) -> Request:
    text = "Call write_file with path numbers.txt and, as content, the numbers from 1 to 300 in words, one a line."
    asked = _ask(so_far, text, tools=(WRITE,))
    return replace(asked, settings=Settings(max_output_tokens=CUT_TOKENS))


def _structured(so_far: SoFar) -> Request:
    asked = _ask(so_far, "Name the capital of Norway and its country, as JSON with the fields name and country.")
    return replace(asked, output=CITY)


def _long(so_far: SoFar) -> Request:
    lines = "\n".join(
        [f"Line {number:03d} of a page that is the same in both requests." for number in range(CACHED_LINES)]
    )
    asked = _ask(so_far, "Reply with the one word: ready")
    return replace(asked, system=(Text(lines),), settings=Settings(max_output_tokens=LIMIT_TOKENS))


def _no_model(so_far: SoFar) -> Request:
    asked = _hello(so_far, stream=False)
    return replace(asked, model=NO_SUCH_MODEL, settings=Settings(max_output_tokens=LIMIT_TOKENS))


def _no_key(so_far: SoFar) -> Request:
    asked = _hello(so_far, stream=False)
    return replace(asked, settings=Settings(max_output_tokens=LIMIT_TOKENS))


PROBES: tuple[Probe, ...] = (
    Probe(name="body", title="a text as a whole body", build=lambda so_far: _hello(so_far, stream=False)),
    Probe(name="stream", title="the same text as a stream", build=lambda so_far: _hello(so_far, stream=True)),
    Probe(name="call", title="a tool call, streamed", build=lambda so_far: _weather(so_far, stream=True)),
    Probe(name="call-body", title="a tool call as a body", build=lambda so_far: _weather(so_far, stream=False)),
    Probe(name="result", title="an answer from a tool's result", build=_results, needs_call=True),
    Probe(name="parallel", title="two tool calls in one answer", build=_parallel),
    Probe(name="forced", title="an answer where tools are forbidden", build=_forced, needs_call=True),
    Probe(name="limit", title=f"an output limit of {LIMIT_TOKENS} tokens", build=_limited),
    Probe(name="cut-call", title=f"a call that {CUT_TOKENS} tokens cut", build=_cut),
    Probe(name="output", title="an answer that fits a JSON Schema", build=_structured),
    Probe(name="cache", title="a long prompt", build=_long),
    Probe(name="cache-again", title="the same prompt from the cache", build=_long),
    Probe(name="wrong-model", title="a model that does not exist", build=_no_model),
    Probe(name="wrong-key", title="a key that does not hold", build=_no_key, wrong_key=True),
)
NAMES = tuple([probe.name for probe in PROBES])

# What a server may refuse, and how else turnwise can ask: tried once each, in order, where the profile says otherwise.
# Source: the fields of `wire/profiles.toml` and why its rows set them.
OTHER_WAYS: Mapping[str, tuple[tuple[str, object], ...]] = MappingProxyType(
    {
        "body": (("max_tokens_field", "max_completion_tokens"),),
        "stream": (("stream_usage", False),),
        "parallel": (("sends_parallel_tool_calls", False),),
        "forced": (("tool_choice_none", "drop_tools"),),
        "output": (("output", "json_object"), ("output", "none")),
        "cache": (("system_role", "developer"),),
    }
)


# What a check will send and spend at most, before it sends anything.


BYTES_A_TOKEN = 3  # of UTF-8, as for a prompt whose usage is not known yet: rather too many tokens than too few
OWN_CALL_BYTES = (
    4096  # that the model's own call may add to a request that goes on from it; with more, an invented one is sent
)
MAX_WAITS = 3  # times that a server which asks to wait is asked again


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """`more` are the requests that a refusal or a busy server may add; the tokens and the money count them. `usd` is None
    where no price is known."""

    requests: int
    more: int
    input_tokens: int
    output_tokens: int
    usd: Decimal | None


def estimate(probes: Sequence[Probe], *, so_far: SoFar, endpoint: Endpoint, row: PriceRow | None) -> Estimate:
    """A probe that may be refused counts once more for each other way to ask it; a wait counts as the largest probe."""
    asked = [_usage_of(probe, so_far=so_far, endpoint=endpoint) for probe in probes]
    again = [usage for probe, usage in zip(probes, asked, strict=True) for _ in OTHER_WAYS.get(probe.name, ())] + [
        max(asked, key=lambda usage: usage.input_tokens + usage.output_tokens)
    ] * MAX_WAITS
    return Estimate(
        requests=len(asked),
        more=len(again),
        input_tokens=sum([usage.input_tokens for usage in asked + again]),
        output_tokens=sum([usage.output_tokens for usage in asked + again]),
        usd=usd_of(asked + again, row=row),
    )


def _usage_of(probe: Probe, *, so_far: SoFar, endpoint: Endpoint) -> Usage:
    request = probe.build(so_far)
    size = _size_of(request, endpoint=endpoint) + (OWN_CALL_BYTES if probe.needs_call else 0)
    return Usage(input_tokens=-(-size // BYTES_A_TOKEN), output_tokens=request.settings.max_output_tokens or 0)


def is_counted(said: Message, *, probes: Sequence[Probe], model: str, endpoint: Endpoint) -> bool:
    """Whether the requests that go on from this message are no larger than the estimate says."""
    for probe in probes:
        counted = _size_of(probe.build(SoFar(model=model)), endpoint=endpoint) + OWN_CALL_BYTES
        if probe.needs_call and _size_of(probe.build(SoFar(model=model, said=said)), endpoint=endpoint) > counted:
            return False
    return True


def _size_of(request: Request, *, endpoint: Endpoint) -> int:
    return len(endpoint.family.encode_request(request, endpoint.profile).body)


def usd_of(usages: Sequence[Usage], *, row: PriceRow | None) -> Decimal | None:
    """What they cost together; None where no price is known."""
    total = Decimal(0)
    for usage in usages:
        price = price_of(usage, row=row)
        if not isinstance(price, Priced):
            return None
        total += price.usd
    return total


def estimate_said(told: Estimate) -> str:
    """One line: requests, tokens, money."""
    money = "no price is known" if told.usd is None else f"{usd_said(told.usd)} at most" if told.usd else "free"
    return (
        f"{many(told.requests, 'request')} (up to {told.more} more, if the server refuses a field or asks to wait), "
        f"about {told.input_tokens:,} tokens in and {told.output_tokens:,} out at most; {money}"
    )
