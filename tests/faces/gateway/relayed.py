"""One request through the gateway's delivery against the lab, without a network; and what clients make of the answer."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lab.failing import DEADLINES, settled
from turnwise.drivers.endpoints.endpoints import Endpoint
from turnwise.faces.gateway.delivery import Delivery, DeliveryMeans, write_fault
from turnwise.lab import Lab
from turnwise.lab.script import Script
from turnwise.relay.relaying import ClientSide, Relay, RelayEnd, RelayRules, UpstreamSide
from turnwise.relay.response_reading import read_body
from turnwise.testing import FakeClock
from turnwise.vocab import Fault, Message, Request, Response, Settings, Text, ToolSpec, calls_of
from turnwise.wire.limits import DEFAULT_LIMITS
from turnwise.wire.profiles import Profile, builtin_profiles
from turnwise.wire.registry import family
from whole_streams import read_stream

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
ANY = '{"type":"object","properties":{}}'
TOOLS = tuple(ToolSpec(name=name, parameters=ANY) for name in ("read", "write", "list", "note", "edit", "search"))


class Answer(NamedTuple):
    """What the client got, how it ended, and how many requests the upstream saw."""

    status: int
    headers: dict[str, str]
    body: bytes
    end: RelayEnd
    requests: int


class Gathered:
    """An outlet that keeps everything."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        assert self.status == 0, "an answer has one status"
        self.status, self.headers = status, dict(headers)

    async def send(self, data: bytes) -> None:
        assert self.status, "a status comes before bytes"
        assert data
        self.pieces.append(data)

    async def gone(self) -> None:
        await asyncio.Event().wait()


def profile_of(name: str) -> Profile:
    """The family's plain profile; its servers stream arguments as they are written."""
    found = next(profile for profile in builtin_profiles().values() if profile.family == name)
    return msgspec.structs.replace(found, fine_grained_tool_streaming=True)


def ask(script: str, *, stream: bool = True, limit_tokens: int | None = 6_000) -> Request:
    return Request(
        model=script,
        messages=(Message("user", (Text("Please. Begin with part-001.txt"),)),),
        tools=TOOLS,
        stream=stream,
        settings=Settings(max_output_tokens=limit_tokens),
    )


def relayed(
    request: Request,
    *,
    upstream: str,
    client: str,
    rules: RelayRules | None = None,
    scripts: Sequence[Script] = (),
) -> Answer:
    """The lab's script of the model's name, asked in one family and read in another."""

    async def run() -> Answer:
        async with Lab(scripts=scripts) as lab:
            there, here, profile = family(upstream), family(client), profile_of(upstream)
            relay = Relay(
                upstream=UpstreamSide(
                    request=request, call=there.encode_request(request, profile), family=there, profile=profile
                ),
                client=ClientSide(request=request, family=here),
                rules=rules or RelayRules(),
            )
            clock, outlet = FakeClock(), Gathered()
            base = "http://lab.invalid/v1beta" if upstream == "gemini" else "http://lab.invalid/v1"
            means = DeliveryMeans(
                endpoint=Endpoint(profile=profile, base_url=base),
                transport=lab.transport(),
                clock=clock,
                deadlines=DEADLINES,
                limits=DEFAULT_LIMITS,
                jitter=lambda: 0.5,
            )
            delivery = Delivery(relay, means=means, outlet=outlet, family=here, streams=request.stream)
            end = await settled(delivery.run(), clock=clock)
            if end.fault is not None and not delivery.started:
                await write_fault(end.fault, family=here, outlet=outlet)
            return Answer(outlet.status, outlet.headers, b"".join(outlet.pieces), end, len(lab.requests))

    return asyncio.run(run())


def strictly(answer: Answer, *, client: str, stream: bool = True) -> Response | Fault:
    """What our own decoder makes of the answer, which tells of everything that it had to mend."""
    here, profile = family(client), profile_of(client)
    if answer.status != 200:
        return here.decode_fault(answer.status, {}, answer.body)
    names = frozenset([tool.name for tool in TOOLS])
    if stream:
        return read_stream([answer.body], family=here, profile=profile, tool_names=names)
    return read_body(answer.body, family=here, profile=profile, tool_names=names)[0]


class Naive(NamedTuple):
    """What a client that believes every event knows."""

    text: str
    calls: list[tuple[str, str, str]]  # id, name, arguments
    ended: bool


def naively(body: bytes, *, client: str) -> Naive:
    """Read a stream as a client does that adds up what it is told, and looks for nothing else."""
    events = [
        json.loads(line[5:])
        for line in body.decode().replace("\r\n", "\n").split("\n")
        if line.startswith("data:") and line[5:].strip() != "[DONE]"
    ]
    return NAIVE[client](events)


def _chat(events: list[Any]) -> Naive:
    text, ended = "", False
    calls: dict[int, list[str]] = {}
    for event in events:
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            text += delta.get("content") or ""
            ended = ended or bool(choice.get("finish_reason"))
            for piece in delta.get("tool_calls") or ():
                call = calls.setdefault(piece["index"], ["", "", ""])
                function = piece["function"]
                call[0] += piece.get("id") or ""
                call[1] += function.get("name") or ""
                call[2] += function.get("arguments") or ""
    return Naive(text, [(call[0], call[1], call[2]) for call in calls.values()], ended)


def _responses(events: list[Any]) -> Naive:
    text, ended = "", False
    calls: dict[str, list[str]] = {}
    for event in events:
        match event["type"]:
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                item = event["item"]
                assert item["id"] not in calls, "an item begins once"
                calls[item["id"]] = [item["call_id"], item["name"], ""]
            case "response.function_call_arguments.delta":
                calls[event["item_id"]][2] += event["delta"]
            case "response.function_call_arguments.done":
                calls[event["item_id"]][2] = event["arguments"]
            case "response.output_text.delta":
                text += event["delta"]
            case "response.completed" | "response.incomplete":
                ended = True
            case _:
                pass
    return Naive(text, [(call[0], call[1], call[2]) for call in calls.values()], ended)


def _messages(events: list[Any]) -> Naive:
    text, ended, at = "", False, -1
    calls: dict[int, list[str]] = {}
    for event in events:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == at + 1, "blocks come one after the other"
                at = event["index"]
                if event["content_block"]["type"] == "tool_use":
                    calls[at] = [event["content_block"]["id"], event["content_block"]["name"], ""]
            case "content_block_delta":
                assert event["index"] == at
                text += event["delta"].get("text", "")
                if "partial_json" in event["delta"]:
                    calls[at][2] += event["delta"]["partial_json"]
            case "message_stop":
                ended = True
            case _:
                pass
    return Naive(text, [(call[0], call[1], call[2] or "{}") for call in calls.values()], ended)


def _gemini(events: list[Any]) -> Naive:
    text, ended = "", False
    calls: list[tuple[str, str, str]] = []
    for event in events:
        for candidate in event.get("candidates", ()):
            ended = ended or bool(candidate.get("finishReason"))
            for part in candidate.get("content", {}).get("parts", ()):
                if not part.get("thought"):
                    text += part.get("text", "")
                if "functionCall" in part:
                    call = part["functionCall"]
                    calls.append((call.get("id", ""), call["name"], json.dumps(call.get("args", {}))))
    return Naive(text, calls, ended)


NAIVE = {"openai_chat": _chat, "openai_responses": _responses, "anthropic_messages": _messages, "gemini": _gemini}


def said(response: Response) -> list[tuple[str, str, object]]:
    """The calls of a response, with their arguments as values."""
    return [(call.id, call.name, json.loads(call.arguments)) for call in calls_of(response.message)]
