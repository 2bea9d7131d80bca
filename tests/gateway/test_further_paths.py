"""Paths beside those that generate: one model, embeddings, a look whether anybody is there, a request for a WebSocket."""

import asyncio
import json
from typing import Any

import pytest

from gateway.calling import upstream_at
from gateway.relayed import Gathered
from gateway.serving import gateway, status_of
from gateway.test_app import ask
from turnwise.gateway.app import DoorRules
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport
from turnwise.wire.profiles import FamilyName
from waits import HANG_S

UPGRADE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
}
EMBEDDED = b'{"embedding":{"values":[0.5,0.25]}}'


async def test_one_model_is_told_in_the_clients_family_or_not_found() -> None:
    """Proves: its name may be percent-encoded; a wrong one is 404 in the client's own words."""
    async with gateway() as there:
        for path, family in (("/v1/models/a%2Fb", "openai_chat"), ("/v1beta/models/a/b", "gemini")):
            status, _, body = await ask(there, path, method="GET")
            assert (status, json.loads(body)) == (200, {"family": family, "model": "a/b"})
        status, _, body = await ask(there, "/v1/models/unknown", method="GET")
        assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")
        status, _, body = await ask(there, "/v1beta/models/unknown", method="GET")
        assert (status, json.loads(body)["error"]["status"]) == (404, "NOT_FOUND")


async def test_a_client_may_look_whether_anybody_is_there() -> None:
    """Proves: `HEAD /`, as Claude Code sends it, has an answer without a body. Any other path has none."""
    async with gateway() as there:
        answer = await there.said(there.head("/", method="HEAD", connection="close") + b"\r\n")
        assert status_of(answer) == 200
        assert answer.endswith(b"\r\n\r\n")
        assert status_of(await there.said(there.head("/x", method="HEAD", connection="close") + b"\r\n")) == 404


async def test_a_websocket_is_refused_at_once_with_the_status_that_codex_falls_back_on() -> None:
    """Proves: 426 and nothing else, at a path whose API has no WebSocket; another upgrade (of Java's HTTP client, say) is no
    reason to refuse."""
    async with gateway() as there:
        answer = await there.said(there.head("/v1/chat/completions", method="GET", **UPGRADE) + b"\r\n", ends=True)
        assert status_of(answer) == 426
        assert b"\r\nupgrade: HTTP/1.1\r\n" in answer
        assert b"send the request by POST" in answer
        assert status_of(await there.said(there.post(upgrade="h2c"))) == 200
        assert there.service.refusals == [("http", "openai_chat", "", 426)]


def embedded(
    body: dict[str, Any], *routes: GatewayRoute, verb: str = "embedContent"
) -> tuple[Gathered, ScriptedTransport]:
    transport, outlet = (
        ScriptedTransport([Reply(headers={"content-type": "application/json"}, pieces=(EMBEDDED,))]),
        Gathered(),
    )
    call = ClientCall(
        id="tw-1",
        path=f"/v1beta/models/small:{verb}",
        body=json.dumps(body).encode(),
        family="gemini",
        kind="embed",
        model="small",
    )

    async def run() -> None:
        means = ServiceMeans(transport=transport, clock=FakeClock(), env={"LAB_KEY": "k"})
        service = RelayService(GatewayConfig(routes=routes), means=means, forward_key=False)
        await asyncio.wait_for(service.answer(call, outlet), HANG_S)

    asyncio.run(run())
    return outlet, transport


def to_gemini(**more: Any) -> GatewayRoute:
    return GatewayRoute(upstream=upstream_at("gemini"), aliases={"small": "gemini-embedding-001"}, **more)


def test_embeddings_of_gemini_go_up_under_the_upstreams_name() -> None:
    """Proves: path and body have the alias's model, each request of a batch as well; the answer is as it came."""
    content = {"parts": [{"text": "hi"}]}
    outlet, transport = embedded({"model": "models/small", "content": content}, to_gemini())
    assert (outlet.status, b"".join(outlet.pieces)) == (200, EMBEDDED)
    assert transport.requests[0].url.endswith("/v1beta/models/gemini-embedding-001:embedContent")
    assert json.loads(transport.requests[0].body) == {"model": "models/gemini-embedding-001", "content": content}
    batch = {"requests": [{"model": "models/small", "content": content}, {"content": content}]}
    _, transport = embedded(batch, to_gemini(), verb="batchEmbedContents")
    assert [one["model"] for one in json.loads(transport.requests[0].body)["requests"]] == [
        "models/gemini-embedding-001"
    ] * 2


async def test_embeddings_that_the_file_passes_go_on_as_they_are() -> None:
    """Proves: of a file that lists the path in `pass`, as it had to before the gateway knew it."""
    path = "/v1beta/models/small:embedContent"
    async with gateway(DoorRules(passes=frozenset({path}))) as there:
        for one, kind in ((path, "passed"), (path.replace("small", "large"), "embed")):
            status, _, body = await ask(there, one)
            assert (status, json.loads(body)["kind"], json.loads(body)["family"]) == (200, kind, "gemini")


@pytest.mark.parametrize("family", ["openai_chat", "anthropic_messages"])
def test_an_upstream_of_another_family_has_no_such_embeddings(family: FamilyName) -> None:
    """Proves: it is refused by name, and nothing leaves."""
    outlet, transport = embedded({"content": {"parts": []}}, GatewayRoute(upstream=upstream_at(family)))
    assert (outlet.status, transport.requests) == (404, [])
    assert b"does not speak the Gemini API" in b"".join(outlet.pieces)
