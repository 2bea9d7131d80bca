"""What the tests of the gateway's requests share: one plain request of each family, and the endpoints that they go to."""

import copy
import json
from typing import Any

from turnwise.relay.client_request import ClientRequest, RequestRefused, asked_path, read_client_request
from turnwise.relay.terms import RouteTerms, UpstreamRequest
from turnwise.relay.translation import translate
from turnwise.wire.profiles import FamilyName, Profile, builtin_profiles
from turnwise.wire.relay_facts import AskedPath

FAMILIES: tuple[FamilyName, ...] = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
PAIRS = [(source, target) for source in FAMILIES for target in FAMILIES if source != target]

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.5-pro:generateContent",
}
PROFILES: dict[str, Profile] = {
    "openai_chat": builtin_profiles()["openai-chat"],
    "openai_responses": builtin_profiles()["openai"],
    "anthropic_messages": builtin_profiles()["anthropic"],
    "gemini": builtin_profiles()["gemini"],
}
MODELS = {
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "anthropic_messages": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
}
PLAIN: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]},
    "openai_responses": {"model": "gpt-5", "input": "hi"},
    "anthropic_messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 5000,
        "messages": [{"role": "user", "content": "hi"}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai_chat": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "openai_responses": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    "anthropic_messages": [{"name": "f", "input_schema": {"type": "object"}}],
    "gemini": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}],
}


def path_of(family: str, *, stream: bool = False) -> AskedPath:
    path = PATHS[family]
    if stream and family == "gemini":
        path = path.replace(":generate", ":streamGenerate")
    found = asked_path("POST", path)
    assert found is not None
    return found


def plain(family: str, **fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(PLAIN[family]), **fields}


def ask(family: str, body: dict[str, Any] | bytes, *, one_client: bool = False, stream: bool = False) -> ClientRequest:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_client_request(path_of(family, stream=stream), text, one_client=one_client)


def send(
    source: str,
    body: dict[str, Any] | bytes,
    *,
    to: str,
    terms: RouteTerms | None = None,
    profile: Profile | None = None,
    one_client: bool = False,
    stream: bool = False,
) -> UpstreamRequest:
    asked = ask(source, body, one_client=one_client, stream=stream)
    return translate(asked, terms=terms or RouteTerms(model=MODELS[to]), profile=profile or PROFILES[to])


def body_of(sent: UpstreamRequest) -> dict[str, Any]:
    return json.loads(sent.call.body)


def told_of(sent: UpstreamRequest) -> list[str]:
    return [repair.where.strip("`") for repair in sent.told]


def refusal(source: str, body: dict[str, Any] | bytes, *, to: str | None = None, one_client: bool = False) -> str:
    """The field that the request is refused for; empty where it is not refused."""
    try:
        send(source, body, to=to or source, one_client=one_client)
    except RequestRefused as refused:
        assert str(refused) not in ("", "None")
        return refused.field or str(refused)
    return ""
