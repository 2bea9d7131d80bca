"""Requests to count tokens: asked of an upstream that counts, else estimated."""

import json
from typing import Any

import pytest
from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
from google.genai.types import CountTokensResponse
from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from relay.asking_relay import FAMILIES, MODELS, PROFILES, TOOLS, plain
from turnwise.relay.client_request import RequestRefused
from turnwise.relay.terms import RouteTerms
from turnwise.relay.token_counting import (
    UpstreamCount,
    count_form,
    read_count,
    read_count_request,
    translate_count,
    write_count,
)
from turnwise.wire.anthropic_messages.relay_facts import COUNTED_FIELDS
from turnwise.wire.openai_responses.relay_facts import COUNTED_FIELDS as RESPONSES_FIELDS
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.relay_facts import AskedPath

ANTHROPIC = AskedPath(family="anthropic_messages", kind="count")
GEMINI = AskedPath(family="gemini", kind="count", model="gemini-2.5-pro")
RESPONSES = AskedPath(family="openai_responses", kind="count")
BODIES: dict[str, dict[str, Any]] = {
    "openai_responses": {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": "hi",
        "tools": TOOLS["openai_responses"],
    },
    "anthropic_messages": {
        "model": "claude",
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": TOOLS["anthropic_messages"],
    },
    "gemini": {
        "generateContentRequest": {
            "model": "models/gemini-2.5-pro",
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": TOOLS["gemini"],
        }
    },
}
PATHS = {"anthropic_messages": ANTHROPIC, "gemini": GEMINI, "openai_responses": RESPONSES}


def counted(source: str, body: dict[str, Any], *, to: str) -> UpstreamCount:
    count = read_count_request(PATHS[source], json.dumps(body).encode())
    return translate_count(count, terms=RouteTerms(model=MODELS[to], max_output_tokens=10), profile=PROFILES[to])


@pytest.mark.parametrize("source", PATHS)
def test_anthropic_is_asked_at_its_own_path(source: str) -> None:
    """The whole prompt goes, and none of the fields that belong to an answer: its API refuses them there."""
    found = counted(source, BODIES[source], to="anthropic_messages")
    assert found.call is not None
    assert (found.call.path, found.call.method, found.call.headers) == (
        "/v1/messages/count_tokens",
        "POST",
        (("anthropic-version", "2023-06-01"),),
    )
    body = json.loads(found.call.body)
    assert body.keys() == {"model", "system", "messages", "tools"}
    assert body["model"] == "claude-sonnet-4-5"
    assert body["tools"] == TOOLS["anthropic_messages"]
    assert found.told == ()


@pytest.mark.parametrize("source", PATHS)
def test_gemini_is_asked_with_the_whole_request(source: str) -> None:
    """The bare form of `countTokens` leaves out tools and instructions."""
    found = counted(source, BODIES[source], to="gemini")
    assert found.call is not None
    assert found.call.path == "/models/gemini-2.5-pro:countTokens"
    body = json.loads(found.call.body)
    inner = body["generateContentRequest"]
    assert {key: inner[key] for key in ("model", "systemInstruction", "tools")} == {
        "model": "models/gemini-2.5-pro",
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": TOOLS["gemini"],
    }
    assert inner["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


@pytest.mark.parametrize("source", PATHS)
def test_openai_is_asked_at_the_path_of_its_responses(source: str) -> None:
    """The whole prompt goes, and what the vendor's own package sends there: nothing that belongs to an answer."""
    found = counted(source, BODIES[source], to="openai_responses")
    assert found.call is not None
    assert (found.call.path, found.call.method) == ("/responses/input_tokens", "POST")
    body = json.loads(found.call.body)
    assert body.keys() == {"model", "instructions", "input", "tools"}
    assert body["model"] == MODELS["openai_responses"]


def test_bare_contents_are_counted_too() -> None:
    """The form that Google's own package sends."""
    found = counted("gemini", {"contents": [{"parts": [{"text": "hi"}]}]}, to="gemini")
    assert found.call is not None
    assert json.loads(found.call.body) == {
        "generateContentRequest": {"model": "models/gemini-2.5-pro", "contents": [{"parts": [{"text": "hi"}]}]}
    }


def test_a_client_of_anthropics_keeps_its_fields() -> None:
    """Unknown ones too: its own API is the judge."""
    found = counted("anthropic_messages", {**BODIES["anthropic_messages"], "speed": "fast"}, to="anthropic_messages")
    assert found.call is not None
    expected = {**BODIES["anthropic_messages"], "model": "claude-sonnet-4-5", "speed": "fast"}
    assert json.loads(found.call.body) == expected


@pytest.mark.parametrize("source", PATHS)
def test_an_upstream_that_does_not_count_is_estimated(source: str) -> None:
    """A third of the bytes that the prompt has in UTF-8, with what templates put around each part."""
    short = counted(source, BODIES[source], to="openai_chat")
    assert short.call is None
    longer = json.loads(json.dumps(BODIES[source]).replace('"hi"', json.dumps("é" * 3000)))
    grown = counted(source, longer, to="openai_chat")
    assert grown.estimated_tokens - short.estimated_tokens == pytest.approx(2000, abs=2)


def test_an_image_is_estimated_by_its_kind_and_not_by_its_bytes() -> None:
    """Its base64 text is no prompt."""
    source = {"type": "base64", "media_type": "image/png", "data": "eHh4" * 100_000}
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    assert 1600 <= counted("anthropic_messages", body, to="openai_chat").estimated_tokens < 1700


@pytest.mark.parametrize("name", ["bedrock-anthropic", "vertex-anthropic"])
def test_endpoints_with_paths_of_their_own_do_not_count(name: str) -> None:
    """They have no path for it."""
    assert count_form(builtin_profiles()[name]) is None
    assert [family for family in FAMILIES if count_form(PROFILES[family]) is not None] == [
        "openai_responses",
        "anthropic_messages",
        "gemini",
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ANTHROPIC, b"{}"),
        (ANTHROPIC, b"[]"),
        (ANTHROPIC, b'{"model":"m","messages":[],"container":"c"}'),
        (GEMINI, b"{}"),
        (GEMINI, b'{"generateContentRequest":1}'),
        (GEMINI, b'{"generateContentRequest":{"contents":[],"cachedContent":"c"}}'),
    ],
)
def test_what_cannot_be_counted_is_refused(path: AskedPath, body: bytes) -> None:
    """As a request to answer would be."""
    with pytest.raises(RequestRefused):
        read_count_request(path, body)


def test_a_prompt_that_cannot_be_sent_there_is_not_counted_there() -> None:
    """A figure for it would promise an answer that never comes."""
    body = {**BODIES["anthropic_messages"], "tools": [{"type": "web_search_20250305", "name": "web_search"}]}
    with pytest.raises(RequestRefused) as refused:
        counted("anthropic_messages", body, to="gemini")
    assert refused.value.field == "tools"


def test_the_counted_fields_are_those_of_the_api() -> None:
    """The judge is the vendor's own package."""
    documented = MessageCountTokensParams.__required_keys__ | MessageCountTokensParams.__optional_keys__
    assert documented >= COUNTED_FIELDS
    assert InputTokenCountParams.__optional_keys__ >= RESPONSES_FIELDS


@pytest.mark.parametrize(
    ("upstream", "body", "tokens"),
    [
        ("anthropic_messages", b'{"input_tokens":12}', 12),
        ("gemini", b'{"totalTokens":12,"promptTokensDetails":[]}', 12),
        ("gemini", b"{}", None),
        ("gemini", b'{"totalTokens":-1}', None),
        ("gemini", b"<html>", None),
        ("anthropic_messages", b'{"input_tokens":"many"}', None),
    ],
)
def test_the_upstreams_count_is_read(upstream: Any, body: bytes, tokens: int | None) -> None:
    """What is no count is none, whatever came."""
    assert read_count(body, upstream=upstream) == tokens


def test_the_answer_has_the_shape_of_the_clients_api() -> None:
    """Read back by the package of the one, and named as the reference of the other names it."""
    answer = CountTokensResponse.model_validate_json(write_count(7, client="gemini"))
    assert answer.total_tokens == 7
    assert json.loads(write_count(7, client="anthropic_messages")) == {"input_tokens": 7}
    told = InputTokenCountResponse.model_validate_json(write_count(7, client="openai_responses"))
    assert (told.input_tokens, told.object) == (7, "response.input_tokens")


def test_the_count_of_a_plain_request_is_small() -> None:
    """No prompt has no tokens."""
    for family in PATHS:
        assert 0 < counted(family, plain(family), to="openai_chat").estimated_tokens < 40
