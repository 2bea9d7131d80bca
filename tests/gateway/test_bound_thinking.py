"""Clients that edit what their model's thinking is bound to go on through the gateway (promise step:bound-thinking)."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.test_bound_sessions import stale_at_least
from gateway.calling import call_of, upstream_at
from gateway.relayed import Gathered
from lab.failing import DEADLINES, settled
from turnwise.endpoints.endpoints import Endpoint
from turnwise.gateway import service as learned_refusals
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.lab.script import Binding, Script, ScriptedCall, ScriptedStep
from turnwise.relay.client_exchange import BoundConversation, BoundThinking
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport
from turnwise.vocab import Message, Request, Text
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

BETA = "thinking-binding-controls-2026-08-01"
MODEL = "claude-haiku-5-5"  # of those that bind, the one that can be forced to a call
TOOL = {"name": "read", "input_schema": {"type": "object", "properties": {}}}


class Client:
    """Keeps a conversation, as an agent does, and speaks to one gateway. `given` are headers that it sends."""

    def __init__(self, binds: Binding, *, first: str = "Please.") -> None:
        step = ScriptedStep(reasoning="Hm.", calls=(ScriptedCall(name="read", arguments={}),))
        self.lab = Lab([Script(name=MODEL, title="thinks", steps=(step,), binds=binds)])
        self.clock = FakeClock()
        means = ServiceMeans(
            transport=self.lab.transport(), clock=self.clock, env={"LAB_KEY": "k"}, deadlines=DEADLINES
        )
        route = GatewayRoute(models=("*",), upstream=upstream_at("anthropic_messages"), retry=0)
        self.told: list[str] = []  # `turnwise-repairs` of each answer
        self.service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)
        self.body: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": 100,
            "system": "Be brief.",
            "tools": [TOOL],
            "messages": [{"role": "user", "content": first}],
        }

    async def ask(self, *, stream: bool = False, headers: tuple[tuple[str, str], ...] = ()) -> Any:
        """The status and the answer; one that is no stream joins the conversation."""
        outlet = Gathered()
        call = ClientCall(
            id="tw-1",
            path="/v1/messages",
            body=msgspec.json.encode({**self.body, "stream": stream}),
            family="anthropic_messages",
            kind="generate",
            headers=headers,
        )
        await settled(self.service.answer(call, outlet), clock=self.clock)
        said = b"".join(outlet.pieces)
        self.told.append(outlet.headers.get("turnwise-repairs", ""))
        if stream:
            return said.decode()
        answer = json.loads(said)
        if answer["type"] == "message":
            result = {"type": "tool_result", "tool_use_id": answer["content"][-1]["id"], "content": "x"}
            self.body["messages"] += [
                {"role": "assistant", "content": answer["content"]},
                {"role": "user", "content": [result]},
            ]
        return answer

    def statuses(self) -> list[int]:
        return [one.status for one in self.lab.requests]

    def thoughts(self) -> list[int]:
        """Of each request."""
        return [one.body.count(b'"type":"thinking"') for one in self.lab.requests]


@pytest.mark.promise("step:bound-thinking")
async def test_a_client_that_edits_its_prefix_goes_on() -> None:
    """One refused request in the conversation, though the route retries nothing; the setting goes with each later one at once,
    its beta beside the client's own. Another conversation is asked nothing of, and a day later neither is this one."""
    client = Client("refuses")
    for _ in range(2):
        assert (await client.ask())["type"] == "message"
    for number in range(3):
        client.body["system"] = f"It is {number} o'clock."
        own = (("anthropic-beta", "context-1m-2025-08-07"),)
        if number < 2:
            assert (await client.ask(headers=own))["type"] == "message"
        else:
            assert "message_stop" in await client.ask(stream=True, headers=own)
    assert client.statuses() == [200, 200, 400, 200, 200, 200]
    asks = [BETA in one.betas for one in client.lab.requests]
    assert asks == ["block_binding" in one.body.decode() for one in client.lab.requests] == [False] * 3 + [True] * 3
    assert [one.betas for one in client.lab.requests[3:]] == [f"context-1m-2025-08-07,{BETA}"] * 3
    assert [len(one.dropped) for one in client.lab.requests[3:]] == [2, 3, 4]
    said, client.body["messages"] = client.body["messages"], [{"role": "user", "content": "Something else."}]
    await client.ask()
    assert BETA not in client.lab.requests[-1].betas
    client.body["messages"] = said
    await client.clock.advance(learned_refusals.KEPT_S + 1)
    await client.ask()
    assert client.statuses()[6:] == [200, 400, 200]


@pytest.mark.costly
@pytest.mark.promise("step:bound-thinking")
async def test_a_client_of_thirty_steps_loses_no_more_than_it_must() -> None:
    """It changes its instructions, shortens old results and gets one tool more. What the model does not see equals a
    second reading of the bodies."""
    bindings: tuple[Binding, ...] = ("refuses", "drops")
    for binds in bindings:
        client = Client(binds)
        for step in range(30):
            if step == 8:
                client.body["system"] = "Be thorough."
            if step == 16:
                for message in client.body["messages"][10:20:2]:
                    message["content"][0]["content"] = "(shortened)"
            if step == 24:
                client.body["tools"] = [TOOL, {**TOOL, "name": "look"}]
            assert (await client.ask())["type"] == "message"
        taken = [one for one in client.lab.requests if one.status == 200]
        lost = [len(one.dropped) for one in taken]
        assert (lost, lost[-1] > 20) == (stale_at_least(taken), True)
        assert client.statuses().count(400) == (binds == "refuses")


@pytest.mark.promise("step:bound-thinking")
async def test_where_the_setting_is_not_taken_the_gateway_leaves_thinking_out() -> None:
    """Proves: two refusals at the edit, and none later, streamed or not, though the client sends the stale blocks each time; what
    is thought after the edit goes back. A second edit costs one refusal. Each block that is left out counts. A day without a
    request later the conversation costs what it cost at first."""
    client = Client("uncontrolled")
    for _ in range(3):
        await client.ask()
    client.body["messages"][4]["content"][0]["content"] = "(shortened)"
    for _ in range(3):
        assert (await client.ask())["type"] == "message"
    assert "message_stop" in await client.ask(stream=True)
    assert client.statuses() == [200] * 3 + [400, 400] + [200] * 4
    assert client.thoughts() == [0, 1, 2, 3, 3, 2, 3, 4, 5]
    assert client.told == ["", "", "", "stale_thinking;n=2, thinking_left_out"] + ["thinking_left_out"] * 2 + [""]
    client.body["messages"][8]["content"][0]["content"] = "(shortened)"
    assert (await client.ask())["type"] == "message"
    assert (client.statuses()[9:], client.thoughts()[9:]) == ([400, 200], [5, 3])
    assert client.told[7:] == ["thinking_left_out;n=3, stale_thinking"]
    await client.ask()
    assert (client.statuses()[11:], client.thoughts()[11:], client.told[8:]) == ([200], [4], ["thinking_left_out;n=3"])
    assert client.lab.requests[-1].dropped == ()
    await client.clock.advance(learned_refusals.KEPT_S + 1)
    await client.ask()
    assert client.statuses()[12:] == [400, 400, 200]


@pytest.mark.promise("step:bound-thinking")
async def test_beside_a_forced_call_stale_thinking_is_left_out() -> None:
    """The setting would bring thinking into a request that must not ask for it. Later requests go without the same blocks, forced
    or not, and a later edit is met by the setting, where that may stand."""
    client = Client("refuses")
    for _ in range(2):
        await client.ask()
    client.body |= {"system": "Be thorough.", "tool_choice": {"type": "any"}}
    assert (await client.ask())["type"] == "message"
    assert (client.statuses(), client.thoughts()) == ([200, 200, 400, 200], [0, 1, 2, 0])
    del client.body["tool_choice"]
    assert (await client.ask())["type"] == "message"
    assert (client.statuses()[4:], client.thoughts()[4:]) == ([200], [1])
    client.body["system"] = "Be quick."
    assert (await client.ask())["type"] == "message"
    assert (client.statuses()[5:], [BETA in one.betas for one in client.lab.requests[5:]]) == (
        [400, 200],
        [False, True],
    )


def test_of_many_conversations_the_oldest_is_forgotten() -> None:
    """Proves: what is remembered is bounded in conversations and in blocks, and both bounds count again what was forgotten; two
    requests of one conversation that end in any order add up; nothing is kept for a model that does not bind."""
    clock, endpoint = FakeClock(), Endpoint(profile=builtin_profiles()["anthropic"], base_url="http://x", key=None)
    known = learned_refusals.StaleConversations(clock, most=3, most_prints=5)

    def asked(text: str, model: str = MODEL) -> BoundConversation:
        request = Request(model=model, messages=(Message("user", (Text(text),)),))
        return known.of(call_of("anthropic_messages", model, stream=False), request, endpoint=endpoint)

    def learns(of: BoundConversation, *prints: bytes) -> None:
        told = replace(of, means="cuts", left_out=of.left_out.union(prints))
        known.learned(
            BoundThinking(HttpCall(path="", body=b'{"messages":[]}'), model=MODEL, family=endpoint.family, known=told)
        )

    first = asked("a")
    learns(first, b"1")
    learns(first, b"2")
    for text in ("b", "c", "a", "d"):
        learns(asked(text))
    assert [(asked(text).means, sorted(asked(text).left_out)) for text in "abcd"] == [
        ("cuts", [b"1", b"2"]),
        ("", []),
        ("cuts", []),
        ("cuts", []),
    ]
    learns(asked("c"), b"3", b"4", b"5")
    assert len(asked("a").left_out) + len(asked("c").left_out) == 5
    learns(asked("c"), b"6")
    learns(asked("d"), b"7")
    assert [(asked(text).means, len(asked(text).left_out)) for text in "acd"] == [("", 0), ("cuts", 4), ("cuts", 1)]
    assert asked("c", "claude-opus-5").key == ""


@pytest.mark.promise("step:bound-thinking")
async def test_a_setting_of_the_client_stands() -> None:
    """Who asks for the error gets it."""
    client = Client("refuses")
    await client.ask()
    setting = {"prefix_mismatch_behavior": "error"}
    client.body |= {"system": "Else.", "thinking": {"type": "adaptive", "block_binding": setting}}
    answer = await client.ask(headers=(("anthropic-beta", BETA),))
    assert "bound to a different conversation" in answer["error"]["message"]
    assert client.statuses() == [200, 400]


@pytest.mark.promise("step:bound-thinking")
async def test_a_count_is_mended_and_remembered_too() -> None:
    """The refusal of a count is not told to the client, and the next count of the conversation has the setting at once."""
    refused = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block. "
            "The block is bound to a different conversation.",
        },
    }
    replies = [(400, json.dumps(refused).encode()), (200, b'{"input_tokens":77}'), (200, b'{"input_tokens":78}')]
    made = [
        Reply(status=status, headers={"content-type": "application/json"}, pieces=(body,)) for status, body in replies
    ]
    transport, clock = ScriptedTransport(made), FakeClock()
    means = ServiceMeans(transport=transport, clock=clock, env={"LAB_KEY": "k"})
    route = GatewayRoute(upstream=upstream_at("anthropic_messages"))
    service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)
    call = call_of("anthropic_messages", MODEL, stream=False)
    counts: list[int] = []
    for _ in range(2):
        outlet = Gathered()
        asked = replace(call, path="/v1/messages/count_tokens", kind="count")
        await asyncio.wait_for(service.answer(asked, outlet), HANG_S)
        counts.append(json.loads(b"".join(outlet.pieces))["input_tokens"])
    assert counts == [77, 78]
    assert [b"drop_block" in one.body for one in transport.requests] == [False, True, True]
    assert [("anthropic-beta", BETA) in one.headers for one in transport.requests] == [False, True, True]
