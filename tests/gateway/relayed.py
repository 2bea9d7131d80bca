"""One request through the gateway's delivery against the lab, without a network; and what clients make of the answer."""

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lab.failing import DEADLINES, settled
from turnwise.assembly.response_reading import read_body
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Transport
from turnwise.gateway.delivery import Delivery, DeliveryMeans, write_found
from turnwise.gateway.doors import PieceWriter
from turnwise.lab import Lab, families
from turnwise.lab.families.family import StreamReading
from turnwise.lab.gateway_check import QUESTION, TOOL_NAMES
from turnwise.lab.script import Script
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, UpstreamSide
from turnwise.testing import FakeClock, ScriptedTransport
from turnwise.vocab import Fault, Message, Request, Response, Settings, Text, ToolSpec, calls_of
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile, builtin_profiles
from whole_streams import read_stream

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
CLIENTS = (*FAMILIES, "gemini_interactions")
UPSTREAMS = ("ollama_chat", "cohere_chat")
"""Families that no client of the gateway speaks."""
ANY = '{"type":"object","properties":{}}'
TOOLS = tuple(ToolSpec(name=name, parameters=ANY) for name in TOOL_NAMES)


class Answer(NamedTuple):
    """What the client got, how it ended, and how many requests the upstream saw."""

    status: int
    headers: dict[str, str]
    body: bytes
    end: RelayEnd
    requests: int


class Straight(PieceWriter):
    """Puts pieces where they are kept, as they are."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__()
        self.put = pieces.append

    def write(self, data: bytes, coded: bytes = b"", /) -> bool:
        assert data and self.put is not None
        self.put(data)
        return True


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

    @property
    def direct(self) -> PieceWriter | None:
        return Straight(self.pieces) if self.status else None

    async def gone(self) -> None:
        await asyncio.Event().wait()


def profile_of(name: str) -> Profile:
    """The family's plain profile; its servers stream arguments as they are written."""
    found = next(profile for profile in builtin_profiles().values() if profile.family == name)
    return msgspec.structs.replace(found, fine_grained_tool_streaming=True)


def ask(script: str, *, stream: bool = True, limit_tokens: int | None = 6_000) -> Request:
    return Request(
        model=script,
        messages=(Message("user", (Text(QUESTION),)),),
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
            answer = await _relayed(lab.transport(), request, upstream=upstream, client=client, rules=rules)
            return answer._replace(requests=len(lab.requests))

    return asyncio.run(run())


def relayed_over(transport: ScriptedTransport, request: Request, *, upstream: str, client: str) -> Answer:
    """The same, where the upstream's bytes are written out."""
    answer = asyncio.run(_relayed(transport, request, upstream=upstream, client=client, rules=None))
    return answer._replace(requests=len(transport.requests))


async def _relayed(
    transport: Transport, request: Request, *, upstream: str, client: str, rules: RelayRules | None
) -> Answer:
    there, here, profile = family(upstream), family(client), profile_of(upstream)
    relay = Relay(
        upstream=UpstreamSide(
            request=request, call=there.encode_request(request, profile), family=there, profile=profile
        ),
        client=ClientSide(request=request, family=here),
        rules=rules or RelayRules(),
    )
    clock, outlet = FakeClock(), Gathered()
    base = "http://lab.invalid" + ("" if upstream in UPSTREAMS else "/v1beta" if upstream == "gemini" else "/v1")
    means = DeliveryMeans(
        endpoint=Endpoint(profile=profile, base_url=base),
        transport=transport,
        clock=clock,
        deadlines=DEADLINES,
        limits=DEFAULT_LIMITS,
        jitter=lambda: 0.5,
    )
    delivery = Delivery(relay, means=means, outlet=outlet, streams=request.stream)
    end = await settled(delivery.run(), clock=clock)
    if end.fault is not None and not delivery.started:
        await write_found(end.fault, client=here.name, outlet=outlet)
    return Answer(outlet.status, outlet.headers, b"".join(outlet.pieces), end, 0)


def strictly(answer: Answer, *, client: str, stream: bool = True) -> Response | Fault:
    """What our own decoder makes of the answer, which tells of everything that it had to mend."""
    here, profile = family(client), profile_of(client)
    if answer.status != 200:
        return here.decode_fault(answer.status, {}, answer.body)
    names = frozenset([tool.name for tool in TOOLS])
    if stream:
        return read_stream([answer.body], family=here, profile=profile, tool_names=names)
    return read_body(answer.body, family=here, profile=profile, tool_names=names)[0]


def naively(body: bytes, *, client: str) -> StreamReading:
    """What a client that believes every event makes of a stream."""
    return families.FAMILIES[client].read_naively(body)


def said(response: Response) -> list[tuple[str, str, object]]:
    """The calls of a response, with their arguments as values."""
    return [(call.id, call.name, json.loads(call.arguments)) for call in calls_of(response.message)]
