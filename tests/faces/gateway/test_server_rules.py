"""Clients of the gateway in front of servers with rules of their own (promise heal:dialect)."""

import json
from typing import Any

import msgspec
import pytest

from faces.gateway.calling import upstream_at
from faces.gateway.relayed import Gathered
from lab.failing import DEADLINES, settled
from turnwise.faces.gateway import learned_refusals
from turnwise.faces.gateway.calls import ClientCall
from turnwise.faces.gateway.config import GatewayConfig, GatewayRoute
from turnwise.faces.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.testing import FakeClock

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
        env = {"LAB_KEY": "k", "MISTRAL_API_KEY": "k"}
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
