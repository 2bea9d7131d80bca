"""Ids and times of answers that the gateway writes in another API's words, or writes anew."""

import asyncio
import itertools
import json
import re
from typing import Any

import pytest

from gateway.calling import call_of, upstream_at
from gateway.relayed import FAMILIES, Gathered
from lab.failing import DEADLINES, settled
from tables import each
from turnwise.gateway.accounts import AccountMeans
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.testing import FakeClock
from turnwise.testing.frames import frames_of
from turnwise.testing.scripted_model import STREAM, Reply, ScriptedTransport
from turnwise.testing.wire_conformance import encode_stream
from turnwise.vocab import FinishReason, Message, Request, Response, Text, Usage
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import FamilyName

NOW_S = 1_796_000_000
JSON = {"content-type": "application/json"}
USAGE = Usage(input_tokens=3, output_tokens=2)
SAID = Response(message=Message("assistant", (Text("All good."),)), finish=FinishReason.STOP, usage=USAGE)
OWN_IDS = {
    "openai_chat": "chatcmpl-drawn-0",
    "openai_responses": "resp_drawn-0",
    "anthropic_messages": "msg_drawn-0",
    "gemini": "drawn-0",
}


def whole(upstream: str, *, stream: bool, id: str | None = None) -> Reply:
    """An answer of that family, whose API or server may give none of what the client's has."""
    family, request = find_family(upstream), Request(model="m", messages=(), stream=stream)
    response = Response(message=SAID.message, finish=SAID.finish, usage=USAGE, id=id)
    if stream:
        return Reply(pieces=(encode_stream(family, frames_of(response), request=request),), headers=STREAM)
    return Reply(pieces=(family.encode_body(response, request),), headers=JSON)


def answer(call: ClientCall, upstream: FamilyName, *replies: Reply, one_call: bool = False) -> bytes:
    """What the client gets. Ids are drawn in order."""

    async def run() -> bytes:
        clock, outlet, ids = FakeClock(now=NOW_S + 0.9), Gathered(), itertools.count()
        accounts = AccountMeans(clock=clock, new_id=lambda: f"drawn-{next(ids)}")
        means = ServiceMeans(
            transport=ScriptedTransport(replies),
            clock=clock,
            env={"LAB_KEY": "k"},
            deadlines=DEADLINES,
            accounts=accounts,
        )
        config = GatewayConfig(
            routes=(GatewayRoute(upstream=upstream_at(upstream), retry=1, one_call_at_a_time=one_call),)
        )
        await settled(RelayService(config, means=means, forward_key=False).answer(call, outlet), clock=clock)
        assert outlet.status == 200
        return b"".join(outlet.pieces)

    return asyncio.run(run())


def objects_in(body: bytes) -> list[dict[str, Any]]:
    """The body, or the objects of its events."""
    lines = re.findall(rb"^data: (\{.*)$", body.replace(b"\r", b""), re.MULTILINE)
    return [json.loads(line) for line in lines or [body]]


def told_in(body: bytes) -> tuple[set[str], set[int], list[int | None]]:
    """All ids of the answer, all times at which it was made, and in order when it was completed."""
    ids: set[str] = set()
    created: set[int] = set()
    completed: list[int | None] = []
    for one in objects_in(body):
        for holder in (one, one.get("response"), one.get("message")):
            if not isinstance(holder, dict) or not holder.keys() & {"model", "modelVersion"}:
                continue
            ids.add(holder["responseId"] if "modelVersion" in holder else holder["id"])
            created.update({holder[key] for key in ("created", "created_at") if key in holder})
            completed += [holder["completed_at"]] if "completed_at" in holder else []
    return ids, created, completed


@each("stream", [True, False])
@each("client", FAMILIES)
def test_a_converted_answer_has_one_id_and_the_gateways_time(client: FamilyName, stream: bool) -> None:
    """Also if an attempt failed before: what the upstream lacks is drawn once, and is the same in every event."""
    upstream: FamilyName = "openai_chat" if client == "gemini" else "gemini"
    failed = Reply(status=503, pieces=(b"{}",), headers=JSON)
    body = answer(call_of(client, "m", stream=stream), upstream, failed, whole(upstream, stream=stream))
    ids, created, completed = told_in(body)
    assert ids == {OWN_IDS[client]}
    assert created == ({NOW_S} if client.startswith("openai") else set())
    if client == "openai_responses":  # it was asked again within a few seconds
        assert completed[:-1] == ([None, None] if stream else []) and NOW_S <= (completed[-1] or 0) < NOW_S + 60


@each("stream", [True, False])
@each("client", FAMILIES)
def test_an_upstreams_own_id_stays(client: FamilyName, stream: bool) -> None:
    """A provider's support asks for it."""
    upstream: FamilyName = "gemini" if client == "openai_chat" else "openai_chat"
    ids, *_ = told_in(
        answer(call_of(client, "m", stream=stream), upstream, whole(upstream, stream=stream, id="its-own"))
    )
    assert ids == {"its-own"}


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_written_anew_in_the_clients_own_family_keeps_the_upstreams_time(stream: bool) -> None:
    """The first events may have gone out as they came; the others say the same of the answer."""
    calls = [
        {"index": number, "id": f"call-{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for number in range(2)
    ]
    key, kind = ("delta", "chat.completion.chunk") if stream else ("message", "chat.completion")
    about = {"id": "chatcmpl-1", "object": kind, "created": 1_712_345_678, "model": "m"}

    def choice(finish: str | None, **more: object) -> dict[str, object]:
        return {**about, "choices": [{"index": 0, key: more, "finish_reason": finish}]}

    words = {"role": "assistant", "content": "All good."}
    if stream:
        events = [choice(None, **words), choice(None, tool_calls=calls), choice("tool_calls")]
        sent = b"".join([b"data: " + json.dumps(one).encode() + b"\n\n" for one in events]) + b"data: [DONE]\n\n"
    else:
        sent = json.dumps(choice("tool_calls", **words, tool_calls=calls)).encode()
    reply = Reply(pieces=(sent,), headers=STREAM if stream else JSON)
    call = call_of("openai_chat", "m", stream=stream, tool="f")
    body = answer(call, "openai_chat", reply, one_call=True)
    assert (b"call-0" in body, b"call-1" in body) == (True, False)
    assert told_in(body)[:2] == ({"chatcmpl-1"}, {1_712_345_678})


@each("stream", [True, False])
@each("family", FAMILIES)
def test_an_answer_of_the_clients_own_family_keeps_its_bytes(family: FamilyName, stream: bool) -> None:
    """Even one without an id or a time."""
    reply = whole(family, stream=stream)
    body = answer(call_of(family, "m", stream=stream), family, reply)
    assert body == b"".join([piece for piece in reply.pieces if isinstance(piece, bytes)])
