"""Calls of clients of each family, answered by the gateway's service over the lab."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gateway.relayed import Gathered, profile_of
from lab.failing import DEADLINES, settled
from relay.asking_relay import PATHS, TOOLS, plain
from turnwise.assembly.response_reading import read_body
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import Script
from turnwise.testing import FakeClock
from turnwise.vocab import Response
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import FamilyName
from whole_streams import read_stream

LIMITS: dict[str, Any] = {
    "openai_chat": lambda limit: {"max_completion_tokens": limit},
    "openai_responses": lambda limit: {"max_output_tokens": limit},
    "anthropic_messages": lambda limit: {"max_tokens": limit},
    "gemini": lambda limit: {"generationConfig": {"maxOutputTokens": limit}},
}


class Answered(NamedTuple):
    outlet: Gathered
    requests: list[Received]

    @property
    def body(self) -> bytes:
        return b"".join(self.outlet.pieces)


def upstream_at(family: FamilyName, *, model: str | None = None) -> UpstreamAddress:
    version = "v1beta" if family == "gemini" else "v1"
    return UpstreamAddress(url=f"http://lab.invalid/{version}", family=family, model=model, key_env="LAB_KEY")


def call_of(
    family: FamilyName, model: str, *, stream: bool, limit_tokens: int | None = None, tool: str = "", **more: Any
) -> ClientCall:
    """A plain request for the model; `limit_tokens` is what the client asks for."""
    body = plain(family, **more)
    if limit_tokens is not None:
        body.update(LIMITS[family](limit_tokens))
    if tool:
        body["tools"] = json.loads(json.dumps(TOOLS[family]).replace('"name": "f"', f'"name": "{tool}"'))
    if family == "openai_chat" and stream:
        body["stream_options"] = {"include_usage": True}
    path = PATHS[family]
    if family == "gemini":
        verb = "streamGenerateContent" if stream else "generateContent"
        path = f"/v1beta/models/{model}:{verb}"
    else:
        body.update(model=model, stream=stream)
    return ClientCall(
        id="tw-1",
        path=path,
        query=(("alt", "sse"),),
        body=msgspec.json.encode(body),
        family=family,
        kind="generate",
        model=model if family == "gemini" else None,
        streams=stream and family == "gemini",
    )


def answered(call: ClientCall, *routes: GatewayRoute, scripts: Sequence[Script] = ()) -> Answered:
    """What the client gets, and what the lab was asked."""

    async def run() -> Answered:
        async with Lab(scripts=scripts) as lab:
            clock, outlet = FakeClock(), Gathered()
            means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, deadlines=DEADLINES)
            service = RelayService(GatewayConfig(routes=routes), means=means, forward_key=False)
            await settled(service.answer(call, outlet), clock=clock)
            return Answered(outlet, list(lab.requests))

    return asyncio.run(run())


def read(answer: Answered, *, family: FamilyName, stream: bool) -> Response:
    here, profile = find_family(family), profile_of(family)
    if stream:
        return read_stream([answer.body], family=here, profile=profile)
    return read_body(answer.body, family=here, profile=profile)[0]
