"""Requests as bytes, and answers without a network."""

import json
from typing import Any

from turnwise.lab import Script, builtin_scripts
from turnwise.lab.families import route
from turnwise.lab.faults import Outgoing
from turnwise.lab.provider import Provider, Received

TOOLS = ("read", "edit", "write", "list", "search")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
}


def path_of(family: str, *, model: str, stream: bool) -> str:
    if family != "gemini":
        return PATHS[family]
    return f"/v1beta/models/{model}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")


def body_of(family: str, *, model: str, stream: bool, tools: tuple[str, ...] = TOOLS) -> dict[str, Any]:
    """One question of the user, with tools on offer."""
    match family:
        case "openai_chat":
            declared: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in tools]
            said = {"messages": [{"role": "user", "content": "Please."}]}
        case "openai_responses":
            declared = [{"type": "function", "name": name, "parameters": SCHEMA} for name in tools]
            said = {"input": [{"role": "user", "content": "Please."}]}
        case "anthropic_messages":
            declared = [{"name": name, "input_schema": SCHEMA} for name in tools]
            said = {"messages": [{"role": "user", "content": "Please."}], "max_tokens": 4096}
        case _:
            declared = (
                [{"functionDeclarations": [{"name": name, "parameters": SCHEMA} for name in tools]}] if tools else []
            )
            said = {"contents": [{"role": "user", "parts": [{"text": "Please."}]}]}
    body: dict[str, Any] = {**said, **({"tools": declared} if declared else {})}
    return body if family == "gemini" else {"model": model, "stream": stream, **body}


def ask(path: str, body: Any, *, scripts: dict[str, Script] | None = None) -> tuple[Outgoing, Received]:
    found = route(path.partition("?")[0])
    assert found is not None
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    provider = Provider(scripts=builtin_scripts() if scripts is None else scripts)
    return provider.answer(found, target=path, body=sent, number=1)
