"""The client's own body for an upstream of its own family: changed where the gateway has to, and nowhere else."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.asking_relay import FAMILIES, PROFILES, TOOLS, body_of, plain, send, told_of
from tables import each
from turnwise.relay.terms import RouteTerms
from turnwise.wire.profiles import Profile, builtin_profiles

SAME = RouteTerms()
PLAINEST = {family: Profile(name="plain", family=family, stateless=False) for family in FAMILIES}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.text(min_size=1, max_size=12).map(lambda text: f"x-{text}")


@pytest.mark.parametrize("family", FAMILIES)
@given(fields=st.dictionaries(keys, values, max_size=6), spaced=st.booleans())
def test_every_other_value_keeps_its_bytes(family: str, fields: dict[str, Any], spaced: bool) -> None:
    """Unknown fields too, with the blanks, the escapes and the spelling of numbers that the client chose."""
    separators = (" ,  ", " :\t") if spaced else (",", ":")
    body = json.dumps({**fields, **plain(family)}, separators=separators).encode()
    terms = RouteTerms(model="up", max_output_tokens=100, one_call_at_a_time=True)
    before = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(
        send(family, body, to=family, terms=terms, profile=PLAINEST[family], one_client=True).call.body,
        type=dict[str, msgspec.Raw],
    )
    changed = {"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "generationConfig"}
    assert {key: bytes(raw) for key, raw in after.items() if key not in changed} == {
        key: bytes(raw) for key, raw in before.items() if key not in changed
    }


def test_numbers_and_escapes_are_not_written_anew() -> None:
    """A JSON reader would make 1.50 of it 1.5, and a character of the escape."""
    body = rb'{"model":"a","messages":[{"role":"user","content":"\u00e9 \/"}],"temperature":1.50,"x":1E30}'
    sent = send("openai_chat", body, to="openai_chat", terms=RouteTerms(model="b"))
    assert sent.call.body == body.replace(b'"a"', b'"b"')


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_the_model_is_the_upstreams_name(family: str) -> None:
    """A route's alias leads to a model; without one the client's name stands."""
    assert body_of(send(family, plain(family), to=family, terms=RouteTerms(model="up")))["model"] == "up"
    assert body_of(send(family, plain(family), to=family, terms=SAME))["model"] == plain(family)["model"]


def test_gemini_names_the_model_in_the_path() -> None:
    """A stream has a path of its own; a name with a slash stays one name."""
    assert (
        send("gemini", plain("gemini"), to="gemini", terms=SAME).call.path == "/models/gemini-2.5-pro:generateContent"
    )
    sent = send("gemini", plain("gemini"), to="gemini", terms=RouteTerms(model="up"), stream=True)
    assert sent.call.path == "/models/up:streamGenerateContent?alt=sse"


def test_an_endpoint_with_the_model_in_its_path_gets_none_in_the_body() -> None:
    """Bedrock refuses unknown fields, and wants its version in the body."""
    sent = send(
        "anthropic_messages",
        plain("anthropic_messages", stream=True),
        to="anthropic_messages",
        terms=RouteTerms(model="us.anthropic.claude"),
        profile=builtin_profiles()["bedrock-anthropic"],
    )
    assert sent.call.path == "/model/us.anthropic.claude/invoke-with-response-stream"
    assert body_of(sent) == {
        "max_tokens": 5000,
        "messages": [{"role": "user", "content": "hi"}],
        "anthropic_version": "bedrock-2023-05-31",
    }


CAPPED = [
    ("openai_chat", {}, {"max_completion_tokens": 100}, []),
    ("openai_chat", {"max_tokens": 200}, {"max_tokens": 100}, ["max_tokens"]),
    ("openai_chat", {"max_tokens": 50}, {"max_tokens": 50}, []),
    ("openai_chat", {"max_completion_tokens": 200.0}, {"max_completion_tokens": 100}, ["max_completion_tokens"]),
    ("openai_chat", {"max_tokens": -1}, {"max_tokens": 100}, ["max_tokens"]),
    ("openai_responses", {}, {"max_output_tokens": 100}, []),
    ("openai_responses", {"max_output_tokens": None}, {"max_output_tokens": 100}, []),
    ("openai_responses", {"max_output_tokens": 101}, {"max_output_tokens": 100}, ["max_output_tokens"]),
    ("anthropic_messages", {"max_tokens": 200}, {"max_tokens": 100}, ["max_tokens"]),
    ("anthropic_messages", {"max_tokens": 99}, {"max_tokens": 99}, []),
    ("gemini", {}, {"generationConfig": {"maxOutputTokens": 100}}, []),
    (
        "gemini",
        {"generationConfig": {"topK": 3, "maxOutputTokens": "200"}},
        {"generationConfig": {"topK": 3, "maxOutputTokens": 100}},
        ["generationConfig.maxOutputTokens"],
    ),
    (
        "gemini",
        {"generation_config": {"max_output_tokens": 200}},
        {"generation_config": {"max_output_tokens": 100}},
        ["generation_config.max_output_tokens"],
    ),
    (
        "gemini",
        {"generationConfig": {"maxOutputTokens": 20}},
        {"generationConfig": {"maxOutputTokens": 20}},
        [],
    ),
]


@each(("family", "fields", "expected", "told"), CAPPED)
def test_the_cap_on_output_lowers_and_never_raises(
    family: str, fields: dict[str, Any], expected: dict[str, Any], told: list[str]
) -> None:
    """A limit above the cap, or none, becomes the cap; -1 means no limit at some servers."""
    body = plain(family, **fields)
    sent = send(family, body, to=family, terms=RouteTerms(max_output_tokens=100), profile=PLAINEST_BUT_NAMES[family])
    assert {key: body_of(sent).get(key) for key in expected} == expected
    assert told_of(sent) == told
    limits = [value for key, value in body_of(sent).items() if "max" in key and "tokens" in key]
    assert all(0 <= limit <= 100 for limit in limits)
    assert (sent.request.settings.max_output_tokens or 0) <= 100


PLAINEST_BUT_NAMES = {
    **PLAINEST,
    "openai_chat": Profile(name="plain", family="openai_chat", max_tokens_field="max_completion_tokens"),
}


@pytest.mark.parametrize(
    ("most", "thinking"),
    [
        (2000, {"type": "enabled", "budget_tokens": 1999}),
        (1024, {"type": "disabled"}),
        (6000, {"type": "enabled", "budget_tokens": 4000}),
    ],
)
def test_a_thinking_budget_stays_below_the_cap(most: int, thinking: dict[str, Any]) -> None:
    """Anthropic's API refuses a budget that reaches `max_tokens`, and one below 1,024."""
    body = plain("anthropic_messages", thinking={"type": "enabled", "budget_tokens": 4000})
    sent = send("anthropic_messages", body, to="anthropic_messages", terms=RouteTerms(max_output_tokens=most))
    assert body_of(sent)["thinking"] == thinking
    assert ("thinking.budget_tokens" in told_of(sent)) is (most < 4000)


ONE_CALL = [
    ("openai_chat", {}, {"parallel_tool_calls": False}),
    ("openai_chat", {"parallel_tool_calls": True}, {"parallel_tool_calls": False}),
    ("openai_responses", {}, {"parallel_tool_calls": False}),
    ("anthropic_messages", {}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    (
        "anthropic_messages",
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": False}},
        {"tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True}},
    ),
    ("anthropic_messages", {"tool_choice": {"type": "none"}}, {"tool_choice": {"type": "none"}}),
    ("gemini", {}, {"parallel_tool_calls": None}),
]


@pytest.mark.parametrize(("family", "fields", "expected"), ONE_CALL)
def test_one_call_at_a_time_is_asked_for_as_the_family_says_it(
    family: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Only where there are tools: without them the APIs refuse the field. Gemini's has no word for it."""
    terms = RouteTerms(one_call_at_a_time=True)
    sent = body_of(send(family, plain(family, tools=TOOLS[family], **fields), to=family, terms=terms))
    assert {key: sent.get(key) for key in expected} == expected
    without = body_of(send(family, plain(family), to=family, terms=terms))
    assert "parallel_tool_calls" not in without and "tool_choice" not in without


@pytest.mark.parametrize(
    ("fields", "expected", "adds"),
    [
        ({"stream": True}, {"include_usage": True}, True),
        ({"stream": True, "stream_options": None}, {"include_usage": True}, True),
        ({"stream": True, "stream_options": {"include_usage": True}}, {"include_usage": True}, False),
        (
            {"stream": True, "stream_options": {"include_usage": False, "include_obfuscation": False}},
            {"include_usage": True, "include_obfuscation": False},
            True,
        ),
        ({}, None, False),
        ({"stream": False}, None, False),
    ],
)
def test_the_usage_of_a_stream_is_always_asked_for(fields: dict[str, Any], expected: Any, adds: bool) -> None:
    """Without it nobody knows the bill. That the client did not ask is said, so that it does not get what it does not know."""
    sent = send("openai_chat", plain("openai_chat", **fields), to="openai_chat")
    assert body_of(sent).get("stream_options") == expected
    assert sent.adds_usage is adds


def test_an_endpoint_that_knows_no_stream_options_gets_none() -> None:
    """Its profile says so."""
    profile = Profile(name="old", family="openai_chat", stream_usage=False)
    sent = send("openai_chat", plain("openai_chat", stream=True), to="openai_chat", profile=profile)
    assert "stream_options" not in body_of(sent)
    assert not sent.adds_usage


@pytest.mark.parametrize(
    ("fields", "include"),
    [
        ({}, ["reasoning.encrypted_content"]),
        (
            {"include": ["file_search_call.results"]},
            ["file_search_call.results", "reasoning.encrypted_content"],
        ),
        ({"include": ["reasoning.encrypted_content"]}, ["reasoning.encrypted_content"]),
        ({"store": False}, None),
        ({"store": False, "include": []}, []),
    ],
)
def test_reasoning_comes_back_encrypted_where_the_client_relied_on_storing(
    fields: dict[str, Any], include: Any
) -> None:
    """A client that left `store` open sends reasoning back by its id, which a provider that stores nothing does not know."""
    sent = send("openai_responses", plain("openai_responses", **fields), to="openai_responses")
    assert body_of(sent)["store"] is False
    assert body_of(sent).get("include") == include


def test_an_endpoint_that_stores_nothing_is_not_asked_about_it() -> None:
    """Its profile says that it knows neither `store` nor `include`."""
    profile = Profile(name="vllm", family="openai_responses", stateless=False)
    sent = send("openai_responses", plain("openai_responses"), to="openai_responses", profile=profile, terms=SAME)
    assert body_of(sent) == plain("openai_responses")


def test_thinking_without_a_signature_stays_here() -> None:
    """Another family's model thought it; Anthropic's API refuses it. Signed thinking keeps its bytes, and so does all else."""
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    signed = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [unsigned, signed, {"type": "text", "text": "x"}]},
        {"role": "assistant", "content": [unsigned]},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": [unsigned, call]},
        {"role": "user", "content": [result]},
    ]
    body = plain("anthropic_messages", messages=history, thinking={"type": "enabled", "budget_tokens": 2000})
    sent = send("anthropic_messages", body, to="anthropic_messages", terms=SAME)
    assert body_of(sent)["messages"] == [
        history[0],
        {"role": "assistant", "content": [signed, {"type": "text", "text": "x"}]},
        history[3],
        {"role": "assistant", "content": [call]},
        history[5],
    ]
    assert body_of(sent)["thinking"] == {"type": "disabled"}
    assert told_of(sent) == ["messages.content.thinking", "thinking"]


def test_reasoning_that_nobody_stored_stays_here() -> None:
    """OpenAI looks for the item by its id and finds none; with its encrypted content, or its own words, it goes."""
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    sealed = {**bare, "encrypted_content": "x"}
    spoken = {**bare, "content": [{"type": "reasoning_text", "text": "hm"}]}
    message = {"role": "user", "content": "hi"}
    body = plain("openai_responses", input=[message, bare, sealed, spoken, message])
    sent = send("openai_responses", body, to="openai_responses")
    assert body_of(sent)["input"] == [message, sealed, spoken, message]
    assert told_of(sent) == ["input.reasoning"]
    stored = send("openai_responses", {**body, "store": True}, to="openai_responses", one_client=True)
    assert body_of(stored)["input"] == body["input"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_vocabulary_says_what_went_up(family: str) -> None:
    """A call that was cut is continued by a request made of it, with the same model and limits."""
    terms = RouteTerms(model="up", max_output_tokens=100, one_call_at_a_time=True)
    sent = send(family, plain(family, tools=TOOLS[family]), to=family, terms=terms, profile=PROFILES[family])
    assert (sent.request.model, sent.request.settings.max_output_tokens, sent.request.parallel_tool_calls) == (
        "up",
        100,
        False,
    )
    assert sent.keeps_bytes
