"""Whatever comes in, at whatever path, the lab answers as the API would and never breaks."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.judged_openai import CALL, CLOSED, F1, O1, RESULT, THOUGHT, TOOL, called, chat, responses
from lab.judged_others import ASKED, DONE, FC, FR, SAY, TEXT, THINK, USE, claude, gemini, human, model, of
from lab.judging import refusal_of
from tables import each
from thoroughness import examples
from turnwise.lab import builtin_scripts
from turnwise.lab.families import route
from turnwise.lab.provider import Provider
from turnwise.lab.strict import JUDGES

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def bent(draw: st.DrawFn, body: Any) -> Any:
    """`body` with one value in it, at any depth, replaced by any JSON or left out."""
    if not isinstance(body, dict | list) or not body or draw(st.integers(0, 4)) == 0:
        return draw(json_values)
    bent_body = body.copy()
    key = draw(st.sampled_from(range(len(body)) if isinstance(body, list) else sorted(body)))
    if draw(st.integers(0, 9)) == 0:
        bent_body.pop(key)
    else:
        bent_body[key] = draw(bent(body[key]))
    return bent_body


WHOLE: dict[str, Any] = {
    "openai_chat": chat(
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        called(CALL),
        RESULT,
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "read"}},
        temperature=1,
        max_tokens=9,
        stop=["x"],
        stream=True,
        stream_options={},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": CLOSED}},
    ),
    "openai_responses": responses(
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        THOUGHT,
        F1,
        O1,
        tools=[{"type": "function", "name": "read", "parameters": CLOSED, "strict": True}],
        tool_choice={"type": "function", "name": "read"},
        temperature=1,
        max_output_tokens=16,
        text={"format": {"type": "json_schema", "name": "n", "schema": CLOSED, "strict": True}},
    ),
    "anthropic_messages": claude(
        ASKED,
        model({"type": "thinking", "thinking": "", "signature": ""}, USE),
        human(DONE, TEXT, {"type": "image", "source": {}}),
        system=[TEXT],
        tool_choice={"type": "auto"},
        thinking=THINK,
        max_tokens=2000,
        temperature=1,
    ),
    "gemini": gemini(
        SAY,
        of("model", FC),
        of("user", FR),
        tools=[{"functionDeclarations": [{"name": "read", "parameters": {"type": "OBJECT", "properties": {"a": {}}}}]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}},
        generationConfig={"maxOutputTokens": 9, "temperature": 1, "responseSchema": {"type": "OBJECT"}},
        systemInstruction={"parts": [{"text": "x"}]},
    ),
    "gemini_interactions": {
        "model": "plain-answer",
        "input": [
            {"type": "user_input", "content": [{"type": "text", "text": "hi"}]},
            {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "hm"}]},
            {"type": "function_call", "id": "c", "name": "read", "arguments": {"a": 1}},
            {"type": "function_result", "call_id": "c", "name": "read", "result": [{"type": "text", "text": "x"}]},
        ],
        "tools": [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"a": {}}}}],
        "generation_config": {
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["read"]}},
            "max_output_tokens": 9,
            "temperature": 1,
            "thinking_level": "low",
        },
        "response_format": {"type": "text", "mime_type": "application/json", "schema": {"type": "object"}},
        "system_instruction": "x",
    },
    "ollama_chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "x"},
            {"role": "user", "content": "hi", "images": ["aGk="]},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "read", "arguments": {"a": 1}}}]},
            {"role": "tool", "content": "done", "tool_name": "read", "tool_call_id": "c"},
        ],
        "tools": [{"type": "function", "function": {"name": "read", "description": "d", "parameters": CLOSED}}],
        "think": "low",
        "format": CLOSED,
        "stream": True,
        "truncate": False,
        "options": {"num_ctx": 8192, "num_predict": 9, "temperature": 0.5, "stop": ["x"]},
    },
    "cohere_chat": {
        "model": "m",
        "messages": [
            {"role": "system", "content": "x"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "x"}}],
            },
            {
                "role": "assistant",
                "tool_plan": "I read.",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "document", "document": {"data": {"a": 1}}}]},
        ],
        "tools": [{"type": "function", "function": {"name": "read", "description": "d", "parameters": CLOSED}}],
        "tool_choice": "REQUIRED",
        "thinking": {"type": "enabled", "token_budget": 9},
        "max_tokens": 9,
        "stop_sequences": ["x"],
        "stream": True,
    },
}
SCRIPTS = builtin_scripts()
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/plain-answer:generateContent",
    "ollama_chat": "/api/chat",
    "cohere_chat": "/v2/chat",
    "gemini_interactions": "/v1beta/interactions",
}


@pytest.mark.parametrize("family", JUDGES)
def test_a_request_with_every_field_that_is_judged_passes(family: str) -> None:
    """Proves: what the next test bends is sound before."""
    assert refusal_of(family, WHOLE[family]) is None


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(family=st.sampled_from(sorted(JUDGES)), drawn=st.data())
def test_any_json_gets_an_answer(family: str, drawn: st.DataObject) -> None:
    """Proves: arbitrary bodies, and sound ones with something bent in them, are answered or refused and never break the lab."""
    body = drawn.draw(bent(WHOLE[family]))
    if isinstance(body, dict) and family != "gemini":
        body["model"] = drawn.draw(st.sampled_from(["plain-answer", body.get("model")]))
    found = route(PATHS[family])
    assert found is not None
    sent = json.dumps(body).encode()
    outgoing, kept = Provider(scripts=SCRIPTS).answer(found, target=PATHS[family], body=sent, number=1)
    assert outgoing.status == kept.status and outgoing.status in (200, 400, 404, 422)
    assert (outgoing.status == 200) == (kept.refused is None)


def test_an_item_of_a_strange_type_gets_a_400() -> None:
    """Proves: the reported crash: a `type` that is a list."""
    body = responses({"type": ["x"], "role": "user", "id": "a", "content": "hi"})
    assert refusal_of("openai_responses", body) == (
        "Invalid 'input[0].id': 'a'. Expected an ID that begins with 'msg'.",
        "input[0].id",
        "invalid_value",
    )
    item = {"type": ["x"], "role": "user", "id": "msg_a", "content": "hi"}
    assert refusal_of("openai_responses", responses(item, item)) is not None


@each(
    ("path", "known"),
    [
        ("/v1/messages", True),
        ("/v1/v1/messages", False),
        ("/v1/v1/chat/completions", False),
        ("/openai/v1/responses", True),
        ("/v1beta/v1beta/models/m:generateContent", False),
        ("/v1beta/v1/models/m:generateContent", False),
        ("/client/v4/accounts/v1/ai/v1/chat/completions", True),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict", True),
    ],
)
def test_a_doubled_version_has_no_endpoint(path: str, known: bool) -> None:
    """Proves: a client that appends the version to a base URL that has it gets the 404 that the real API gives it."""
    assert (route(path) is not None) == known
