"""Clients of the gateway in front of servers with rules of their own (promise heal:dialect)."""

import json
from typing import Any

import msgspec
import pytest

from gateway.calling import upstream_at
from gateway.relayed import Gathered
from lab.failing import DEADLINES, settled
from turnwise.gateway import service as learned_refusals
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.testing import FakeClock
from turnwise.wire.profiles import builtin_profiles

CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
HISTORY = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Read it."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "text"},
    {"role": "system", "content": "The mode has changed."},
]
USUAL = HISTORY[:4]


class Gateway:
    """One route to a server of the lab, by its row or by its plain address."""

    def __init__(self, server: str, *, row: str = "") -> None:
        self.lab, self.clock = Lab(profile=server), FakeClock()
        keys = builtin_profiles()[row].api_key_env if row else ("LAB_KEY",)
        env = dict.fromkeys(keys, "k")
        means = ServiceMeans(transport=self.lab.transport(), clock=self.clock, env=env, deadlines=DEADLINES)
        route = GatewayRoute(
            models=("*",), upstream=f"{row}:plain-answer" if row else upstream_at("openai_chat"), retry=0
        )
        self.service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)

    async def ask(self, messages: list[dict[str, Any]], **more: Any) -> Gathered:
        outlet = Gathered()
        body = msgspec.json.encode({"model": "plain-answer", "messages": messages, "tools": [TOOL], **more})
        call = ClientCall(id="tw-1", path="/v1/chat/completions", body=body, family="openai_chat", kind="generate")
        await settled(self.service.answer(call, outlet), clock=self.clock)
        return outlet

    def sent(self) -> list[dict[str, Any]]:
        return json.loads(self.lab.requests[-1].body)["messages"]


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("row", ["vllm", "llamacpp"])
async def test_a_clients_history_is_healed_and_told(row: str) -> None:
    """Proves: a later system text goes as the user's where the row wants it, with a header that names the field; a conversation
    that the server takes goes up in its own bytes."""
    gateway = Gateway(row, row=row)
    found = await gateway.ask(HISTORY)
    assert (found.status, found.headers["turnwise-not-carried"]) == (200, "messages.role")
    assert gateway.sent()[-1] == {"role": "user", "content": "[System message]\n\nThe mode has changed."}
    usual = await gateway.ask(USUAL)
    assert usual.status == 200 and "turnwise-not-carried" not in usual.headers
    assert msgspec.json.encode(USUAL) in gateway.lab.requests[-1].body


HI, EMPTY = {"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}
THOUGHT = {"role": "assistant", "content": "Hello.", "reasoning_content": "They greet me."}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
ODD: list[tuple[str, list[dict[str, Any]], str]] = [
    ("mistral", USUAL, "messages.tool_calls.id"),
    ("mistral", [HI, THOUGHT, HI], "messages.reasoning"),
    ("groq", [HI, THOUGHT, HI], "messages.reasoning"),
    ("moonshot", [HI, EMPTY, HI], "messages.content"),
    ("deepseek", [{"role": "user", "content": [{"type": "text", "text": "hi"}, PICTURE]}], "messages.file"),
    ("gemini-openai", USUAL, "messages.tool_calls.extra_content"),
    ("vllm", HISTORY[:1], "messages.role"),
    ("llamacpp", HISTORY[:1], "messages.role"),
    ("zai", HISTORY[:1], "messages.role"),
    ("vllm", [THOUGHT], "messages[0]"),
    ("mistral", [HI, {"role": "assistant", "content": "Hel"}], "messages[-1]"),
    ("llamacpp", [HI, {"role": "assistant", "content": "Hel"}], "messages[-1]"),
]


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize(("row", "messages", "field"), ODD, ids=[f"{row} {field}" for row, _, field in ODD])
async def test_an_odd_conversation_is_healed_for_its_server(
    row: str, messages: list[dict[str, Any]], field: str
) -> None:
    """Proves: what the server's judge refuses goes up as it takes it, at once, with every text of the client and a header that
    names what was changed. A longer conversation begins with the same messages."""
    gateway = Gateway(row, row=row)
    found = await gateway.ask(messages)
    assert (found.status, found.headers["turnwise-not-carried"], gateway.lab.count()) == (200, field, 1)
    sent = gateway.sent()
    said = json.dumps(sent)
    texts = [one[key] for one in messages for key in ("content", "reasoning_content") if isinstance(one.get(key), str)]
    assert all(text in said for text in texts)
    if messages[-1]["role"] == "user":
        assert (await gateway.ask([*messages, {"role": "assistant", "content": "So."}, HI])).status == 200
        assert gateway.sent()[: len(sent)] == sent


async def test_reasoning_stays_where_the_client_wrote_it() -> None:
    """Proves: if a conversation is written anew for an upstream that nobody knows, no thought of the client's model is lost."""
    gateway = Gateway("vllm")
    assert (await gateway.ask([HI, THOUGHT, HI, EMPTY, HI])).status == 200
    assert [one.get("reasoning_content") for one in gateway.sent()] == [None, "They greet me.", None, None, None]


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("server", ["llamacpp", "deepseek", "moonshot", "zai"])
async def test_an_unknown_upstream_teaches_once(server: str) -> None:
    """Proves: behind a plain address one request is refused and sent again as the server wants it; later requests are
    written so at once, until a day has passed."""
    gateway = Gateway(server)
    messages, more = (
        (HISTORY, {}) if server == "llamacpp" else (USUAL, {"tool_choice": "none"} if server == "zai" else {})
    )
    refused: list[int] = []
    for wait_s in (0.0, 0.0, learned_refusals.LESSONS_S + 1):
        await gateway.clock.advance(wait_s)
        before = gateway.lab.count()
        assert (await gateway.ask(messages, **more)).status == 200
        refused.append(gateway.lab.count() - before - 1)
    assert refused == [1, 0, 1]


async def test_what_is_learned_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: of many servers and models the oldest lesson goes."""
    monkeypatch.setattr(learned_refusals, "MOST_SERVERS", 2)
    gateway = Gateway("deepseek")
    for model in ("plain-answer", "parallel-calls", "never-stops", "plain-answer"):
        assert (await gateway.ask(USUAL, model=model)).status == 200
    assert [one.status for one in gateway.lab.requests] == [400, 200] * 4
