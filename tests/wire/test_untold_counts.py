"""Usage that is there but says nothing is no zero (issue 14, line 5): what nobody told is unknown, and so is its price."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tables import each
from turnwise.assembly.response_reading import read_body
from turnwise.rules.pricing import OwnCost, Priced, PriceRow, TokenPrices, Unknown, price_of
from turnwise.rules.provider_tool_costs import billed_apart
from turnwise.vocab import Response, Usage
from turnwise.wire import anthropic_messages
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream
from wire.test_counts import FAMILIES, REAL, events, replaced

ROW = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(2), output=Decimal(8)),))
CACHED = PriceRow(
    plan="tokens",
    source="test",
    tokens=(TokenPrices(input=Decimal(2), output=Decimal(8), cache_read=Decimal(1), cache_write=Decimal(3)),),
)
INPUTS = {"openai_chat": "prompt_tokens", "gemini": "promptTokenCount"}
OUTPUTS = {"openai_chat": "completion_tokens", "gemini": "candidatesTokenCount"}
TOTALS = {"gemini": "totalTokenCount"}


def body(name: str, usage: object, *, text: str = "hi", **more: object) -> bytes:
    """A whole answer of that family, in one text."""
    match name:
        case "openai_chat":
            message = {"role": "assistant", "content": text}
            answer: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        case "openai_responses":
            words = [{"type": "output_text", "text": text, "annotations": []}]
            item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": words}
            answer = {"id": "r", "object": "response", "status": "completed", "output": [item] if text else []}
        case "anthropic_messages":
            content = [{"type": "text", "text": text}] if text else []
            answer = {"id": "r", "type": "message", "content": content, "stop_reason": "end_turn"}
        case _:
            answer = {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP", **more}]}
            return json.dumps({**answer, "usageMetadata": usage}).encode()
    return json.dumps({**answer, "usage": usage, **more}).encode()


def read(name: str, usage: object, **more: Any) -> Response:
    return read_body(body(name, usage, **more), family=FAMILIES[name], profile=builtin_profiles()[name])[0]


def priced(response: Response, *, row: PriceRow = ROW, model: str = "m") -> Priced | Unknown:
    return price_of(response.usage, row=row, apart=billed_apart(response, model=model))


def key_of(name: str, keys: dict[str, str], *, other: str) -> str:
    return keys.get(name, other)


each_family = each("name", FAMILIES)


@each_family
@each("stream", [False, True], ids=["body", "stream"])
def test_a_real_usage_is_priced_exactly(name: str, stream: bool) -> None:
    """So that no real bill becomes unknown: 20 tokens in, 9 out."""
    if stream:
        response = read_stream([events(name, REAL[name])], family=FAMILIES[name], profile=builtin_profiles()[name])
    else:
        response = read(name, REAL[name])
    assert response.usage is not None and response.usage.untold == ()
    price = priced(response)
    assert isinstance(price, Priced) and price.usd == Decimal("0.000112")


def silent_shapes(name: str) -> dict[str, object]:
    """Usage objects without a count of the prompt, of the response, or of both."""
    real = REAL[name]
    total = key_of(name, TOTALS, other="total_tokens")
    given = key_of(name, INPUTS, other="input_tokens")
    made = key_of(name, OUTPUTS, other="output_tokens")
    thoughts = {key: value for key, value in real.items() if key != made}
    return {
        "null": None,
        "empty": {},
        "all null": replaced(real, by=None),
        "all zeros": replaced(real, by=0),
        "the total alone": {total: 29},
        "no prompt": {key: value for key, value in real.items() if key != given},
        "no response": {**thoughts, "thoughtsTokenCount": 3} if name == "gemini" else thoughts,
        "a null response": {**real, made: None},
        "a response of zero": {**real, made: 0, **({} if name == "gemini" else zero_details(name))},
        "a prompt of zero": {**real, **zero_prompt(name)},
        "misfits only": {given: "many", made: -1},
        "a negative response": {**real, made: -1},
        "a fraction of a token": {**real, given: 1.5},
        "text for a count": {**real, made: "nine"},
        "an object for a count": {**real, made: {"tokens": 9}},
        "more than any bill": {**real, made: 2**50},
    }


def zero_details(name: str) -> dict[str, object]:
    key = "completion_tokens_details" if name == "openai_chat" else "output_tokens_details"
    return {key: {"reasoning_tokens": 0, "thinking_tokens": 0}}


def zero_prompt(name: str) -> dict[str, object]:
    if name == "anthropic_messages":
        return {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    return {key_of(name, INPUTS, other="input_tokens"): 0}


@each_family
@each("shape", silent_shapes("openai_chat"))
@each("stream", [False, True], ids=["body", "stream"])
def test_usage_that_does_not_count_makes_the_price_unknown(name: str, shape: str, stream: bool) -> None:
    """Each was priced as zero, or as less than it costs, exactly. By request it costs what it did."""
    usage = silent_shapes(name)[shape]
    response = stream_of(name, usage) if stream else read(name, usage)
    price = priced(response)
    assert isinstance(price, Unknown), (response.usage, price)
    by_request = PriceRow(plan="request", source="test", request_usd=Decimal("0.01"))
    known = priced(response, row=by_request)
    assert isinstance(known, Priced) and known.usd == Decimal("0.01")


def stream_of(name: str, usage: object) -> Response:
    sent = events(name, usage)
    if name == "openai_responses":
        words = {"type": "output_text", "text": "hi", "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [words]}
        added = {"type": "response.output_item.done", "output_index": 0, "item": item}
        created, end = sent.split(b"\n\n")[:2]
        sent = b"\n\n".join([created, b"data: " + json.dumps(added).encode(), end, b""])
    if name == "anthropic_messages":
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hi"}}
        start, rest = sent.split(b"\n\n", 1)
        sent = start + b"\n\ndata: " + json.dumps(block).encode() + b"\n\n" + rest
    return read_stream([sent], family=FAMILIES[name], profile=builtin_profiles()[name])


def message(*deltas: object, start: object, text: str = "hi") -> Response:
    """A stream of the Messages API."""
    told: list[object] = [
        {"type": "message_start", "message": {"id": "m", "content": [], "usage": start}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}},
        {"type": "content_block_stop", "index": 0},
        *deltas,
        {"type": "message_stop"},
    ]
    sent = b"".join([b"data: " + json.dumps(one).encode() + b"\n\n" for one in told])
    return read_stream([sent], family=anthropic_messages.FAMILY, profile=builtin_profiles()["anthropic_messages"])


ENDS = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
START = {"input_tokens": 1000, "output_tokens": 1}


@each(
    ("delta", "usd"),
    [
        (ENDS, None),
        ({**ENDS, "usage": None}, None),
        ({**ENDS, "usage": {}}, None),
        ({**ENDS, "usage": {"output_tokens": None}}, None),
        ({**ENDS, "usage": {"input_tokens": 0, "output_tokens": 0}}, None),
        ({**ENDS, "usage": {"output_tokens": 50}}, "0.0024"),
        ({**ENDS, "usage": START}, "0.002008"),
        ({**ENDS, "usage": {"output_tokens": 1}}, "0.002008"),
    ],
)
def test_the_estimate_at_the_start_of_a_message_is_no_bill(delta: object, usd: str | None) -> None:
    """Anthropic counts `output_tokens: 1` in `message_start`; only a `message_delta` says what the response has."""
    price = priced(message(delta, start=START))
    assert (price.usd if isinstance(price, Priced) else None) == (None if usd is None else Decimal(usd))


def test_a_refusal_without_a_token_is_priced() -> None:
    """Recorded: `output_tokens: 0` beside no content is a count."""
    delta = {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 0}}
    price = priced(message(delta, start=START, text=""))
    assert isinstance(price, Priced) and price.usd == Decimal("0.002")


def test_thoughts_that_took_all_of_the_output_are_priced() -> None:
    """Gemini leaves a count of zero out: without a word of an answer, the thoughts are all there was."""
    usage = {"promptTokenCount": 1000, "thoughtsTokenCount": 50, "totalTokenCount": 1050}
    assert isinstance(priced(read("gemini", usage)), Unknown)
    told = priced(read("gemini", usage, text=""))
    assert isinstance(told, Priced) and told.usd == Decimal("0.0024")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("openai_chat", "prompt_tokens_details", {"cached_tokens": "some"}),
        ("openai_chat", "prompt_tokens_details", {"cached_tokens": -1}),
        ("openai_responses", "input_tokens_details", {"cached_tokens": 0.5}),
        ("anthropic_messages", "cache_read_input_tokens", -5),
        ("gemini", "cachedContentTokenCount", "x"),
    ],
)
def test_a_part_that_is_no_count_matters_where_it_has_a_price_of_its_own(name: str, key: str, value: object) -> None:
    """What was read from the cache is unknown then; but where it costs what the prompt does, the price is not."""
    response = read(name, {**REAL[name], key: value})
    assert isinstance(priced(response, row=CACHED), Unknown)
    if name != "anthropic_messages":  # whose prompt is the sum of the parts
        assert isinstance(priced(response), Priced)


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("openai_chat", {"prompt_tokens": 9, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 10}}),
        (
            "openai_chat",
            {"prompt_tokens": 9, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 10}},
        ),
        ("openai_responses", {"input_tokens": 9, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 10}}),
        (
            "openai_responses",
            {"input_tokens": 9, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 10}},
        ),
        (
            "anthropic_messages",
            {"input_tokens": 9, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 10}},
        ),
        ("gemini", {"promptTokenCount": 9, "candidatesTokenCount": 9, "cachedContentTokenCount": 10}),
    ],
)
def test_parts_that_are_more_than_the_whole_make_no_price(name: str, usage: object) -> None:
    """Counts that do not add up are nobody's bill."""
    assert isinstance(priced(read(name, usage), row=CACHED), Unknown)


@each("write", [str, float])
@each_family
def test_counts_written_as_texts_or_floats_are_counts(name: str, write: Any) -> None:
    """Gateways write 1.0 and "1"."""
    written = json.loads(json.dumps(REAL[name]), parse_int=lambda digits: write(int(digits)))
    response = read(name, written)
    assert response.usage is not None and response.usage.untold == ()
    price = priced(response)
    assert isinstance(price, Priced) and price.usd == Decimal("0.000112")


@pytest.mark.parametrize(
    ("usage", "what"),
    [
        ({"num_sources_used": 3}, "searches"),
        ({"num_search_queries": 2}, "searches of its own"),
        ({"num_server_side_tools_used": 1}, "tools that the provider ran"),
        ({"server_tool_use_details": {"web_search_requests": 1}}, "searches"),
        ({"num_sources_used": 0, "num_search_queries": 0, "num_server_side_tools_used": 0}, ""),
    ],
)
def test_searches_that_usage_tells_in_other_words_make_the_price_unknown(usage: dict[str, object], what: str) -> None:
    """xAI, Perplexity, OpenRouter; recorded with zeros, which cost nothing."""
    price = priced(read("openai_chat", {**REAL["openai_chat"], **usage}))
    if what:
        assert price == Unknown(f"it has {what}, which are billed apart")
    else:
        assert isinstance(price, Priced)


@pytest.mark.parametrize(
    ("grounding", "is_known"),
    [
        ({"webSearchQueries": ["a"]}, False),
        ({"imageSearchQueries": ["a"]}, False),
        ({"searchEntryPoint": {"renderedContent": "<b>"}}, False),
        ({"webSearchQueries": [], "searchEntryPoint": {}}, True),
        ({"webSearchQueries": None}, True),
        ({}, True),
    ],
)
def test_a_search_of_geminis_without_sources_makes_the_price_unknown(grounding: object, is_known: bool) -> None:
    """It is billed by the query, whatever it found."""
    price = priced(read("gemini", REAL["gemini"], groundingMetadata=grounding))
    assert isinstance(price, Priced) is is_known


def test_a_search_model_is_known_by_what_was_asked_for() -> None:
    """A gateway may leave the response's model out, or name its own."""
    response = read("openai_chat", REAL["openai_chat"], model="gateway")
    assert isinstance(priced(response, model="gpt-4o-search-preview"), Unknown)
    assert isinstance(priced(response), Priced)


def test_a_cost_of_zero_beside_no_count_is_no_price() -> None:
    """A gateway that fills in zeros fills in that one too; beside counted tokens a model may be free."""
    row = PriceRow(plan="tokens", source="test", own_cost=OwnCost(path=("cost",)))
    zeros = {**replaced(REAL["openai_chat"], by=0), "cost": 0}
    assert isinstance(priced(read("openai_chat", zeros), row=row), Unknown)
    assert priced(read("openai_chat", {**REAL["openai_chat"], "cost": 0}), row=row) == Priced(
        usd=Decimal(0), by="provider"
    )
    assert priced(read("openai_chat", {"cost": 0.5}), row=row) == Priced(usd=Decimal("0.5"), by="provider")


def test_free_tokens_need_no_count() -> None:
    """What costs nothing costs nothing, however much of it there was."""
    row = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(0), output=Decimal(0)),))
    price = price_of(Usage(untold=("input_tokens", "output_tokens")), row=row)
    assert isinstance(price, Priced) and price.usd == 0
