"""A request of one family for an upstream of another: what is refused, what is told, and what goes along."""

import copy
import json
from typing import Any

import pytest

from relay.asking_relay import FAMILIES, MODELS, PAIRS, PROFILES, TOOLS, body_of, plain, refusal, send, told_of
from tables import each
from turnwise.lab.strict import check
from turnwise.relay.terms import RouteTerms
from turnwise.vocab import Reasoning
from turnwise.wire.profiles import Profile, builtin_profiles

OTHERS = {source: [target for one, target in PAIRS if one == source] for source in FAMILIES}

# By the client's family: fields, and the families that they are refused for.
REFUSED: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("openai_chat", {"n": 2}, "n", OTHERS["openai_chat"]),
    ("openai_chat", {"logprobs": True}, "logprobs", OTHERS["openai_chat"]),
    ("openai_chat", {"top_logprobs": 3}, "top_logprobs", OTHERS["openai_chat"]),
    ("openai_chat", {"logit_bias": {"5": 1}}, "logit_bias", OTHERS["openai_chat"]),
    ("openai_chat", {"modalities": ["text", "audio"]}, "modalities", OTHERS["openai_chat"]),
    ("openai_chat", {"audio": {"voice": "ash", "format": "mp3"}}, "audio", OTHERS["openai_chat"]),
    ("openai_chat", {"web_search_options": {}}, "web_search_options", OTHERS["openai_chat"]),
    ("openai_chat", {"stop": [f"{number}" for number in range(65)]}, "stop", ["openai_responses", "gemini"]),
    ("openai_chat", {"response_format": {"type": "json_object"}}, "response_format", ["anthropic_messages"]),
    ("openai_chat", {"tool_choice": {"type": "allowed_tools"}}, "tool_choice", OTHERS["openai_chat"]),
    ("openai_responses", {"top_logprobs": 1}, "top_logprobs", OTHERS["openai_responses"]),
    ("openai_responses", {"prompt": {"id": "pmpt_1"}}, "prompt", OTHERS["openai_responses"]),
    ("openai_responses", {"include": ["message.output_text.logprobs"]}, "include", OTHERS["openai_responses"]),
    ("openai_responses", {"text": {"format": {"type": "json_object"}}}, "text.format", ["anthropic_messages"]),
    ("openai_responses", {"tools": [{"type": "web_search"}]}, "tools", OTHERS["openai_responses"]),
    ("openai_responses", {"tool_choice": {"type": "web_search"}}, "tool_choice", OTHERS["openai_responses"]),
    (
        "openai_responses",
        {"input": [{"type": "computer_call_output", "call_id": "a", "output": {}}]},
        "input.computer_call_output",
        OTHERS["openai_responses"],
    ),
    ("anthropic_messages", {"mcp_servers": [{"type": "url"}]}, "mcp_servers", OTHERS["anthropic_messages"]),
    ("anthropic_messages", {"compaction": {"type": "auto"}}, "compaction", OTHERS["anthropic_messages"]),
    ("openai_responses", {"text": {"format": {"type": "grammar"}}}, "text.format", OTHERS["openai_responses"]),
    ("anthropic_messages", {"container": {"skills": []}}, "container", OTHERS["anthropic_messages"]),
    (
        "anthropic_messages",
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        "tools",
        OTHERS["anthropic_messages"],
    ),
    ("anthropic_messages", {"stop_sequences": ["a" * 16_385]}, "stop_sequences", ["openai_chat", "openai_responses"]),
    (
        "anthropic_messages",
        {"messages": [{"role": "user", "content": [{"type": "search_result", "source": "x", "content": []}]}]},
        "messages.search_result",
        OTHERS["anthropic_messages"],
    ),
    ("gemini", {"generationConfig": {"candidateCount": 2}}, "generationConfig.candidateCount", OTHERS["gemini"]),
    ("gemini", {"generation_config": {"candidate_count": 2}}, "generationConfig.candidateCount", OTHERS["gemini"]),
    (
        "gemini",
        {"generationConfig": {"responseModalities": ["IMAGE"]}},
        "generationConfig.responseModalities",
        OTHERS["gemini"],
    ),
    (
        "gemini",
        {"generationConfig": {"responseMimeType": "application/json"}},
        "generationConfig.responseMimeType",
        ["anthropic_messages"],
    ),
    (
        "gemini",
        {"generationConfig": {"responseMimeType": "text/x.enum"}},
        "generationConfig.responseMimeType",
        OTHERS["gemini"],
    ),
    ("gemini", {"tools": [{"googleSearch": {}}]}, "tools", OTHERS["gemini"]),
]


@each(("source", "fields", "field", "targets"), REFUSED)
def test_what_would_change_the_answer_is_refused_by_name(
    source: str, fields: dict[str, Any], field: str, targets: list[str]
) -> None:
    """Without it the client would get something else than it asked for; the other families take it in their own words."""
    found = {target: refusal(source, plain(source, **fields), to=target) for target in OTHERS[source]}
    assert found == {target: field if target in targets else "" for target in OTHERS[source]}


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (
            "openai_chat",
            {"n": 1, "logprobs": False, "top_logprobs": 0, "logit_bias": {}, "modalities": ["text"], "store": False},
        ),
        ("openai_responses", {"top_logprobs": 0, "truncation": "disabled", "text": {"format": {"type": "text"}}}),
        ("anthropic_messages", {"mcp_servers": [], "container": None}),
        (
            "gemini",
            {
                "generationConfig": {
                    "candidateCount": 1,
                    "responseLogprobs": False,
                    "responseModalities": ["TEXT"],
                    "responseMimeType": "text/plain",
                }
            },
        ),
    ],
)
def test_values_that_ask_for_nothing_special_are_served_in_silence(source: str, fields: dict[str, Any]) -> None:
    """Many clients write every default into their bodies."""
    for target in OTHERS[source]:
        assert told_of(send(source, plain(source, **fields), to=target)) == []


def history(source: str, *parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    """A body whose last message has these parts, with a result's message where they hold a call."""
    if source == "openai_responses":
        return plain(source, input=[{"role": role, "content": list(parts)}])
    if source == "gemini":
        return plain(source, contents=[{"role": "model" if role == "assistant" else role, "parts": list(parts)}])
    return plain(source, messages=[{"role": role, "content": list(parts)}])


@each(("source", "target"), PAIRS)
def test_a_limit_is_told_as_lowered_only_where_it_is(source: str, target: str) -> None:
    """Proves: what the route allows and the client asks for is no change."""
    terms = RouteTerms(model=MODELS[target], max_output_tokens=100)
    names = {"openai_responses": "max_output_tokens", "gemini": "maxOutputTokens"}
    for asked, kinds in ((100, []), (101, ["output_capped"])):
        limit: dict[str, Any] = {names.get(source, "max_tokens"): asked}
        body = plain(source, **({"generationConfig": limit} if source == "gemini" else limit))
        assert [repair.kind for repair in send(source, body, to=target, terms=terms).told] == kinds


GOOGLES = "https://generativelanguage.googleapis.com/v1beta/files/1"
STORED_FILES = [
    ("openai_chat", {"type": "file", "file": {"file_id": "file-1"}}, "messages.file"),
    ("openai_responses", {"type": "input_image", "file_id": "file-1"}, "input.file"),
    ("anthropic_messages", {"type": "document", "source": {"type": "file", "file_id": "file_1"}}, "messages.file"),
    ("gemini", {"fileData": {"fileUri": "files/1", "mimeType": "image/png"}}, "contents.file"),
    ("gemini", {"fileData": {"fileUri": "gs://bucket/1", "mimeType": "image/png"}}, "contents.file"),
    # Google opens them with the gateway's key for everybody.
    ("openai_chat", {"type": "image_url", "image_url": {"url": GOOGLES}}, "messages.file"),
    ("openai_responses", {"type": "input_file", "file_url": GOOGLES}, "input.file"),
    ("anthropic_messages", {"type": "image", "source": {"type": "url", "url": GOOGLES}}, "messages.file"),
]


@pytest.mark.parametrize(("source", "part", "field"), STORED_FILES)
def test_a_file_that_only_its_provider_has_is_refused(source: str, part: dict[str, Any], field: str) -> None:
    """Nobody else can read it, and the gateway fetches nothing."""
    for target in OTHERS[source]:
        assert refusal(source, history(source, part), to=target, one_client=True) == field


IMAGES = {
    "openai_chat": {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}},
    "openai_responses": {"type": "input_image", "image_url": "data:image/png;base64,eA=="},
    "anthropic_messages": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "eA=="},
    },
    "gemini": {"inlineData": {"mimeType": "image/png", "data": "eA=="}},
}
AS_SENT = {
    **IMAGES,
    "openai_responses": {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,eA=="},
}


@each(("source", "target"), PAIRS)
def test_an_image_goes_along_as_the_other_family_writes_it(source: str, target: str) -> None:
    """Nothing is said of it, as nothing is lost."""
    sent = send(source, history(source, IMAGES[source]), to=target)
    assert AS_SENT[target] in parts_of(target, body_of(sent))
    assert told_of(sent) == []


def parts_of(family: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    key, inner = {"openai_responses": ("input", "content"), "gemini": ("contents", "parts")}.get(
        family, ("messages", "content")
    )
    return body[key][-1][inner]


# What a client of the family sends back of a response whose reasoning another family's model had.
THOUGHT: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "so", "reasoning_content": "a hidden thought"},
            {"role": "user", "content": "on"},
        ]
    },
    "openai_responses": {
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a hidden thought"}]},
            {"role": "assistant", "content": "so"},
            {"role": "user", "content": "on"},
        ]
    },
    "anthropic_messages": {
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "a hidden thought", "signature": ""},
                    {"type": "text", "text": "so"},
                ],
            },
            {"role": "user", "content": "on"},
        ]
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "a hidden thought", "thought": True}, {"text": "so"}]},
            {"role": "user", "parts": [{"text": "on"}]},
        ]
    },
}
# With the data that its own family asks for.
SIGNED = copy.deepcopy(THOUGHT)
SIGNED["openai_chat"]["messages"][1]["reasoning_details"] = [
    {"type": "reasoning.encrypted", "data": "signature-of-ours"}
]
SIGNED["openai_responses"]["input"][1]["encrypted_content"] = "signature-of-ours"
SIGNED["anthropic_messages"]["messages"][1]["content"][0]["signature"] = "signature-of-ours"
SIGNED["gemini"]["contents"][1]["parts"][0]["thoughtSignature"] = "signature-of-ours"
HISTORIES = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic_messages": "messages",
    "gemini": "contents",
}


@each(("source", "target"), PAIRS)
@each("history", ["unsigned", "signed"])
def test_reasoning_that_comes_back_is_dropped_and_told(source: str, target: str, history: str) -> None:
    """In all twelve pairs, also with the data of the client's own family: an earlier answer came from there."""
    sent = send(source, plain(source, **(THOUGHT if history == "unsigned" else SIGNED)[source]), to=target)
    assert b"a hidden thought" not in sent.call.body and b"signature-of-ours" not in sent.call.body
    assert not any(isinstance(part, Reasoning) for message in sent.request.messages for part in message.parts)
    assert b"so" in sent.call.body
    assert f"{HISTORIES[source]}.reasoning" in told_of(sent)


def test_a_message_of_reasoning_alone_is_dropped() -> None:
    """Gemini refuses a content without parts."""
    body = {**THOUGHT["anthropic_messages"]}
    body["messages"] = copy.deepcopy(body["messages"])
    del body["messages"][1]["content"][1]
    sent = send("anthropic_messages", plain("anthropic_messages", **body), to="gemini")
    assert [content["role"] for content in body_of(sent)["contents"]] == ["user", "user"]
    check("gemini", body=body_of(sent))


def test_reasoning_goes_back_in_the_field_that_an_endpoint_asks_for() -> None:
    """DeepSeek and others refuse the results of a turn whose reasoning is missing."""
    profile = Profile(name="deep", family="openai_chat", reasoning_replay="reasoning_content")
    sent = send(
        "anthropic_messages",
        plain("anthropic_messages", **THOUGHT["anthropic_messages"]),
        to="openai_chat",
        profile=profile,
    )
    assert body_of(sent)["messages"][1] == {
        "role": "assistant",
        "content": "so",
        "reasoning_content": "a hidden thought",
    }
    assert told_of(sent) == []


TOLD: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("openai_chat", {"user": "me"}, "anthropic_messages", ["user"]),
    ("openai_chat", {"metadata": {"a": "b"}}, "gemini", ["metadata"]),
    ("openai_chat", {"service_tier": "flex"}, "openai_responses", ["service_tier"]),
    ("openai_chat", {"seed": 1}, "anthropic_messages", ["seed"]),
    ("openai_chat", {"seed": 1}, "gemini", []),
    ("openai_chat", {"frequency_penalty": 1}, "gemini", []),
    ("openai_chat", {"frequency_penalty": 1}, "openai_responses", ["frequency_penalty"]),
    ("openai_chat", {"verbosity": "low"}, "openai_responses", []),
    ("openai_chat", {"temperature": 1.5}, "anthropic_messages", ["temperature"]),
    ("openai_chat", {"parallel_tool_calls": False, "tools": TOOLS["openai_chat"]}, "gemini", ["parallel_tool_calls"]),
    ("openai_chat", {"parallel_tool_calls": False, "tools": TOOLS["openai_chat"]}, "anthropic_messages", []),
    ("openai_chat", {"something_new": 1}, "gemini", ["something_new"]),
    ("openai_responses", {"reasoning": {"effort": "low", "summary": "auto"}}, "openai_chat", ["reasoning.summary"]),
    ("openai_responses", {"include": ["reasoning.encrypted_content"]}, "openai_chat", []),
    ("openai_responses", {"include": ["file_search_call.results"]}, "openai_chat", ["include"]),
    ("openai_responses", {"max_tool_calls": 2}, "gemini", ["max_tool_calls"]),
    ("openai_responses", {"truncation": "auto"}, "gemini", ["truncation"]),
    ("openai_responses", {"prompt_cache_key": "k"}, "anthropic_messages", []),
    ("openai_responses", {"prompt_cache_key": "k"}, "gemini", ["prompt_cache_key"]),
    ("anthropic_messages", {"top_k": 3}, "gemini", []),
    ("anthropic_messages", {"top_k": 3}, "openai_chat", ["top_k"]),
    ("anthropic_messages", {"metadata": {"user_id": "me"}}, "openai_chat", ["metadata"]),
    ("anthropic_messages", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "gemini", []),
    ("anthropic_messages", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "openai_chat", ["thinking"]),
    ("anthropic_messages", {"cache_control": {"type": "ephemeral"}}, "openai_chat", []),
    ("anthropic_messages", {"cache_control": {"type": "ephemeral"}}, "gemini", ["cache_control"]),
    ("gemini", {"safetySettings": [{"category": "x"}]}, "openai_chat", ["safetySettings"]),
    ("gemini", {"generationConfig": {"topK": 3}}, "anthropic_messages", []),
    ("gemini", {"generationConfig": {"top_k": 3}}, "openai_chat", ["generationConfig.topK"]),
    ("gemini", {"labels": {"a": "b"}}, "openai_responses", ["labels"]),
]


@each(("source", "fields", "target", "told"), TOLD)
def test_what_does_not_change_the_answer_is_told_by_its_own_name(
    source: str, fields: dict[str, Any], target: str, told: list[str]
) -> None:
    """The request is served; the client finds the name of each field that did not reach the upstream."""
    assert told_of(send(source, plain(source, **fields), to=target)) == told


def test_an_error_of_a_tool_is_told_where_the_family_has_no_mark_for_it() -> None:
    """Its text still goes."""
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "no such file", "is_error": True}
    body = plain(
        "anthropic_messages",
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
        tools=TOOLS["anthropic_messages"],
    )
    found = {target: told_of(send("anthropic_messages", body, to=target)) for target in OTHERS["anthropic_messages"]}
    assert found == {
        "openai_chat": ["messages.is_error"],
        "openai_responses": ["messages.is_error"],
        "gemini": [],
    }


def test_a_tool_with_a_mark_and_nothing_else_is_offered() -> None:
    """The encoders take a bare tool with another family's data for a server's own tool."""
    tool = {
        "name": "ping",
        "input_schema": {"type": "object", "properties": {}},
        "cache_control": {"type": "ephemeral"},
    }
    body = json.dumps(plain("anthropic_messages", tools=[tool]), separators=(",", ":")).encode()
    sent = body_of(send("anthropic_messages", body, to="openai_chat"))
    assert sent["tools"] == [
        {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
    ]


def test_cache_marks_become_marks_where_the_upstream_takes_them() -> None:
    """An hour stays an hour."""
    text = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    sent = send(
        "anthropic_messages",
        history("anthropic_messages", text),
        to="openai_chat",
        profile=builtin_profiles()["openrouter"],
        terms=RouteTerms(model="anthropic/claude-sonnet-4.5"),
    )
    assert body_of(sent)["messages"][-1]["content"] == [text]
    assert told_of(sent) == []


@each(("source", "target"), PAIRS)
def test_the_cap_on_output_holds_in_another_family(source: str, target: str) -> None:
    """It lowers what the client asked for, and what the gateway would ask for itself; it never raises."""
    limit = {
        "openai_chat": {"max_tokens": 500},
        "openai_responses": {"max_output_tokens": 500},
        "anthropic_messages": {"max_tokens": 500},
        "gemini": {"generationConfig": {"maxOutputTokens": 500}},
    }[source]
    for most, expected in ((100, 100), (800, 500)):
        sent = send(source, plain(source, **limit), to=target, terms=RouteTerms(model="m", max_output_tokens=most))
        assert sent_limit(target, body_of(sent)) == expected
        assert len(sent.told) == (most < 500)
    if source != "anthropic_messages":  # whose limit has to be there
        sent = send(source, plain(source), to=target, terms=RouteTerms(model="m", max_output_tokens=100_000))
        assert sent_limit(target, body_of(sent)) == (8192 if target == "anthropic_messages" else 100_000)


def sent_limit(family: str, body: dict[str, Any]) -> int:
    if family == "gemini":
        return body["generationConfig"]["maxOutputTokens"]
    name = {"openai_chat": "max_completion_tokens", "openai_responses": "max_output_tokens"}.get(family, "max_tokens")
    return body[name]


@pytest.mark.parametrize("target", OTHERS["gemini"])
def test_a_tool_without_a_type_gets_the_one_that_it_has_to_have(target: str) -> None:
    """Gemini takes a schema without a type, the others refuse it."""
    tools = [{"functionDeclarations": [{"name": "f", "parameters": {"description": "d"}}]}]
    sent = send("gemini", plain("gemini", tools=tools), to=target)
    assert json.loads(sent.request.tools[0].parameters) == {"type": "object", "description": "d"}
    check(target, body=body_of(sent))


OPEN_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses"])
def test_a_schema_that_strict_mode_refuses_goes_without_it_and_it_is_told(target: str) -> None:
    """OpenAI wants each property required; Anthropic and Gemini do not."""
    form = {"type": "json_schema", "schema": OPEN_SCHEMA}
    tool = {"name": "f", "input_schema": OPEN_SCHEMA, "strict": True}
    body = plain("anthropic_messages", output_config={"format": form}, tools=[tool])
    sent = send("anthropic_messages", body, to=target)
    check(target, body=body_of(sent))
    assert sent.request.output is not None
    assert (sent.request.output.strict, sent.request.tools[0].strict) == (False, False)
    assert told_of(sent) == ["tools.strict", "output_config.format"]
    closed = {**OPEN_SCHEMA, "required": ["a"]}
    strict = plain(
        "anthropic_messages",
        output_config={"format": {**form, "schema": closed}},
        tools=[{**tool, "input_schema": closed}],
    )
    kept = send("anthropic_messages", strict, to=target)
    check(target, body=body_of(kept))
    assert kept.request.output is not None
    assert (kept.request.output.strict, kept.request.tools[0].strict, kept.told) == (True, True, ())


def test_a_limit_below_what_the_api_takes_is_raised_to_it_and_told() -> None:
    """Claude Code asks with a limit of 1 whether it may ask; the Responses API takes no less than 16."""
    sent = send("anthropic_messages", plain("anthropic_messages", max_tokens=1), to="openai_responses")
    assert (body_of(sent)["max_output_tokens"], told_of(sent)) == (16, ["max_tokens"])


def test_a_thinking_budget_below_what_the_api_takes_is_raised_to_it_and_told() -> None:
    """Gemini has budgets of a few tokens, Anthropic none below 1,024."""
    config = {"thinkingConfig": {"thinkingBudget": 128, "includeThoughts": True}}
    sent = send("gemini", plain("gemini", generationConfig=config), to="anthropic_messages")
    assert body_of(sent)["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert told_of(sent) == ["generationConfig.thinkingConfig"]


@pytest.mark.parametrize(
    ("target", "told"),
    [("anthropic_messages", ["messages.role"]), ("gemini", ["messages.role"]), ("openai_responses", [])],
)
def test_instructions_alone_are_a_request(target: str, told: list[str]) -> None:
    """OpenAI answers a system message alone; the others want somebody to say something."""
    body = plain("openai_chat", messages=[{"role": "system", "content": "Say hi."}])
    sent = send("openai_chat", body, to=target)
    check(target, body=body_of(sent))
    assert told_of(sent) == told


def test_an_assistant_may_have_the_first_word() -> None:
    """OpenAI takes such a history; Anthropic and Gemini want a user's word before it, which is told."""
    messages = [{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "hi"}]
    for target in ("anthropic_messages", "gemini"):
        sent = send("openai_chat", plain("openai_chat", messages=messages), to=target)
        check(target, body=body_of(sent))
        assert told_of(sent) == ["messages[0]"]


def test_calls_of_a_history_keep_short_ids_and_their_tools() -> None:
    """OpenAI takes 40 characters of an id in Chat, and Anthropic's API no calls without tools."""
    long = "call_" + "x" * 60
    body = plain(
        "openai_responses",
        input=[
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": long, "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": long, "output": "1"},
        ],
    )
    chat = send("openai_responses", body, to="openai_chat")
    check("openai_chat", body=body_of(chat))
    call, result = body_of(chat)["messages"][1:]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]
    claude = send("openai_responses", body, to="anthropic_messages")
    check("anthropic_messages", body=body_of(claude))
    assert ([tool["name"] for tool in body_of(claude)["tools"]], body_of(claude)["tool_choice"]) == (
        ["f"],
        {"type": "none"},
    )
    assert chat.told == claude.told == ()


def test_tools_that_gemini_allows_by_name_are_offered_alone() -> None:
    """The others could not be called; a name of no tool is refused."""
    tools = [{"functionDeclarations": [{"name": name, "parametersJsonSchema": {"type": "object"}} for name in "fgh"]}]
    calling = {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}
    body = plain("gemini", tools=tools, toolConfig={"functionCallingConfig": calling})
    for target in OTHERS["gemini"]:
        sent = send("gemini", body, to=target)
        assert ([tool.name for tool in sent.request.tools], sent.request.tool_choice) == (["f", "g"], "required")
        assert sent.told == ()
    calling["allowedFunctionNames"] = ["f", "x"]
    assert refusal("gemini", body, to="openai_chat") == "toolConfig.functionCallingConfig.allowedFunctionNames"


def test_a_thinking_budget_goes_along_beside_what_does_not() -> None:
    """`display` is Anthropic's own."""
    thinking = {"type": "enabled", "budget_tokens": 2000, "display": "summarized"}
    sent = send("anthropic_messages", plain("anthropic_messages", thinking=thinking), to="gemini")
    assert body_of(sent)["generationConfig"]["thinkingConfig"]["thinkingBudget"] == 2000
    assert told_of(sent) == ["thinking.display"]


def test_a_call_in_a_message_of_the_user_is_refused() -> None:
    """No API takes it there, and the encoders would pass over it."""
    body = plain("gemini", contents=[{"role": "user", "parts": [{"functionCall": {"name": "f", "args": {}}}]}])
    assert {target: refusal("gemini", body, to=target) for target in OTHERS["gemini"]} == dict.fromkeys(
        OTHERS["gemini"], "contents"
    )


def test_a_spoken_answer_that_its_provider_stores_is_refused() -> None:
    """An assistant's message that holds nothing else says nothing that another family could read."""
    spoken = {"role": "assistant", "audio": {"id": "audio_1"}}
    body = plain("openai_chat", messages=[{"role": "user", "content": "hi"}, spoken, {"role": "user", "content": "on"}])
    assert refusal("openai_chat", body, to="gemini", one_client=True) == "messages.audio"


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
CALL_OF_F = '{"a": "1"}'


def full(source: str) -> dict[str, Any]:
    """A whole conversation with all that every family can say."""
    match source:
        case "openai_chat":
            call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": CALL_OF_F}}
            return plain(
                source,
                messages=[
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGES[source]]},
                    {"role": "assistant", "content": "one", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "done"},
                ],
                tools=[{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
                tool_choice="required",
                response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
                max_completion_tokens=4000,
                top_p=0.9,
                stream=True,
            )
        case "openai_responses":
            return plain(
                source,
                instructions="Be brief.",
                input=[
                    {"role": "user", "content": [{"type": "input_text", "text": "hi"}, IMAGES[source]]},
                    {"role": "assistant", "content": "one"},
                    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": CALL_OF_F},
                    {"type": "function_call_output", "call_id": "call_1", "output": "done"},
                ],
                tools=[{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": False}],
                tool_choice="required",
                text={"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
                max_output_tokens=4000,
                top_p=0.9,
                stream=True,
            )
        case "anthropic_messages":
            call = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": "1"}}
            return plain(
                source,
                system="Be brief.",
                messages=[
                    {"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGES[source]]},
                    {"role": "assistant", "content": [{"type": "text", "text": "one"}, call]},
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "done"}],
                    },
                ],
                tools=[{"name": "f", "description": "d", "input_schema": SCHEMA}],
                tool_choice={"type": "any"},
                output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
                max_tokens=4000,
                top_p=0.9,
                stream=True,
            )
        case _:
            return plain(
                source,
                systemInstruction={"parts": [{"text": "Be brief."}]},
                contents=[
                    {"role": "user", "parts": [{"text": "hi"}, IMAGES[source]]},
                    {
                        "role": "model",
                        "parts": [{"text": "one"}, {"functionCall": {"id": "call_1", "name": "f", "args": {"a": "1"}}}],
                    },
                    {
                        "role": "user",
                        "parts": [{"functionResponse": {"id": "call_1", "name": "f", "response": {"output": "done"}}}],
                    },
                ],
                tools=[{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}]}],
                toolConfig={"functionCallingConfig": {"mode": "ANY"}},
                generationConfig={
                    "responseMimeType": "application/json",
                    "responseJsonSchema": SCHEMA,
                    "maxOutputTokens": 4000,
                    "topP": 0.9,
                },
            )


@each(("source", "target"), PAIRS)
def test_a_whole_conversation_crosses_without_a_loss(source: str, target: str) -> None:
    """The lab's strict judge of the target takes the body, nothing is told, and it says what the target's own client says."""
    sent = send(source, full(source), to=target, stream=True)
    check(target, body=body_of(sent))
    assert told_of(sent) == []
    own = send(target, full(target), to=target, stream=True)
    assert said(sent.request) == said(own.request)


def said(request: Any) -> tuple[Any, ...]:
    """What both have to say alike: the families name schemas and split messages in their own ways."""
    parts = [
        (message.role, type(part).__name__, getattr(part, "text", None) or getattr(part, "name", None))
        for message in request.messages
        for part in message.parts
    ]
    tools = [(tool.name, tool.description, json.loads(tool.parameters)) for tool in request.tools]
    settings = request.settings
    limits = (settings.max_output_tokens, settings.top_p)
    schema = json.loads(request.output.schema)
    texts = [text.text for text in request.system]
    return parts, tools, request.tool_choice, limits, schema, texts, request.stream


@pytest.mark.parametrize("target", [one for one in FAMILIES if one != "openai_responses"])
def test_a_namespace_of_tools_goes_as_its_functions(target: str) -> None:
    """Codex offers one in each request, and one for each MCP server. Nothing of it is left out."""
    function = {"type": "function", "name": "exec_command", "parameters": {"type": "object", "properties": {}}}
    group = {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents.", "tools": [function]}
    sent = send("openai_responses", plain("openai_responses", tools=[function, group]), to=target)
    names = ["exec_command", "multi_agent_v1__exec_command"]
    assert ([tool.name for tool in sent.request.tools], told_of(sent)) == (names, [])


def test_a_namespace_of_tools_goes_on_to_its_own_family() -> None:
    """As it came."""
    group = {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents.", "tools": []}
    sent = send("openai_responses", plain("openai_responses", tools=[group]), to="openai_responses")
    assert (body_of(sent)["tools"], told_of(sent)) == ([group], [])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_conversation_stays_as_it_is_in_its_family(family: str) -> None:
    """The judge takes it, and but for the model and what the bill needs it is the client's own."""
    sent = send(family, full(family), to=family, stream=True)
    check(family, body=body_of(sent))
    added = {"openai_chat": {"stream_options"}, "openai_responses": {"store", "include"}}.get(family, set())
    kept = {key: value for key, value in body_of(sent).items() if key not in added | {"model"}}
    assert kept == {key: value for key, value in full(family).items() if key != "model"}


SYSTEM: dict[str, dict[str, Any]] = {
    "openai_chat": {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]},
    "anthropic_messages": {"system": "Be brief."},
    "gemini": {"systemInstruction": {"parts": [{"text": "Be brief."}]}},
}


@pytest.mark.parametrize(("model", "leads"), [("gpt-6.2-sol", True), ("gpt-6.1-sol", False)])
@pytest.mark.parametrize("source", OTHERS["openai_responses"])
def test_instructions_of_other_families_lead_the_input_of_a_model_that_keeps_no_others(
    source: str, model: str, leads: bool
) -> None:
    """Proves: GPT-6.2, which reads `instructions` behind the input and never caches them, gets them as its first item from a
    client of any other family, and an older model in the field. A client of its own family keeps its bytes."""
    sent = send(source, plain(source, **SYSTEM[source]), to="openai_responses", terms=RouteTerms(model=model))
    body = body_of(sent)
    check("openai_responses", body=body)
    instructions = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
    assert (body.get("instructions"), body["input"][0] == instructions) == (None if leads else "Be brief.", leads)
    assert (len(body["input"]), told_of(sent)) == (2 if leads else 1, [])
    own = plain("openai_responses", instructions="Be brief.")
    kept = body_of(send("openai_responses", own, to="openai_responses", terms=RouteTerms(model=model)))
    assert (kept["instructions"], kept["input"]) == ("Be brief.", "hi")


@pytest.mark.parametrize("source", OTHERS["anthropic_messages"])
def test_the_gateway_does_not_decide_what_is_shown_of_thinking(source: str) -> None:
    """Proves: a model that puts what it says between calls into thinking gets no `display` that the client did not set."""
    sent = send(source, plain(source), to="anthropic_messages", terms=RouteTerms(model="claude-opus-5-5"))
    assert "thinking" not in body_of(sent)


def test_models_and_profiles_of_these_tests_fit() -> None:
    """Each upstream of these tests speaks the family that it stands for."""
    assert {family: PROFILES[family].family for family in MODELS} == {family: family for family in FAMILIES}
