"""Google's client of the Interactions API at the gateway, before upstreams of other families; and that API as the upstream of
other vendors' clients. The lab's strict judges take every request that comes through."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google import genai
from google.genai import _interactions_errors as errors
from google.genai import types

from gateway.serving import gateway_of
from lab.sdk_loops import LOOPS, PLAIN
from lab.test_interactions_client import InteractionsLoop
from lab.test_sdks import FILES, converse
from turnwise.base.clock import SystemClock
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab, numbered_lines
from turnwise.wire.profiles import FamilyName

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
SCRIPTS = ("read-edit-answer", "cut-call", "structured-output", "parallel-calls")


@asynccontextmanager
async def served(upstream: FamilyName, lab: Lab) -> AsyncIterator[str]:
    """The address of a whole gateway before the lab."""
    version = "v1beta" if upstream.startswith("gemini") else "v1"
    address = UpstreamAddress(url=f"{lab.url}/{version}", family=upstream, key_env="LAB_KEY")
    async with AiohttpTransport() as transport:
        means = ServiceMeans(transport=transport, clock=SystemClock(), env={"LAB_KEY": "k"})
        route = GatewayRoute(models=SCRIPTS, upstream=address)
        async with gateway_of(RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)) as url:
            yield url


async def conversation(loop: Any, *, name: str) -> tuple[str, dict[str, str]]:
    files = dict(FILES)
    try:
        heard = await converse(loop, files, structured=name == "structured-output")
    finally:
        await loop.close()
    return heard[-1].text, files


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic_messages", "gemini", "gemini_interactions"])
async def test_googles_client_works_through_the_door(upstream: FamilyName) -> None:
    """Proves: calls, results, a cut call and a schema reach each upstream as its strict judge wants them, and come back."""
    async with Lab() as lab, served(upstream, lab) as url:
        for name in SCRIPTS:
            if name == "cut-call" and upstream in ("anthropic_messages", "gemini"):
                continue  # they hand out nothing of it
            for streamed in (True,) if name == "cut-call" else (True, False):  # no body hands out half of an object
                lab.reset()
                loop = InteractionsLoop(url, model=name, streamed=streamed, structured=name == "structured-output")
                said, files = await conversation(loop, name=name)
                assert said and all(one.refused is None and one.family == upstream for one in lab.requests)
                if name == "read-edit-answer":
                    assert files["notes.txt"] == "title: lab\nstatus: done\n"
                if name == "cut-call":
                    assert files["big.txt"] == numbered_lines(1, 200)


@pytest.mark.parametrize("client", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
async def test_it_is_an_upstream_of_other_clients(client: str) -> None:
    async with Lab() as lab, served("gemini_interactions", lab) as url:
        for name in SCRIPTS:
            if name == "cut-call" and client == "gemini":
                continue  # it is handed whole objects alone
            for streamed in (True,) if name == "cut-call" else (True, False):
                lab.reset()
                loop = LOOPS[client](url, model=name, streamed=streamed, structured=name == "structured-output")
                said, files = await conversation(loop, name=name)
                assert said and all(one.refused is None for one in lab.requests)
                assert {one.family for one in lab.requests} == {"gemini_interactions"}
                if name == "read-edit-answer":
                    assert files["notes.txt"] == "title: lab\nstatus: done\n"


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"previous_interaction_id": "v1_theirs"}, "previous_interaction_id"),
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"agent": "deep-research-preview-04-2026", "background": True}, "model"),
    ],
)
async def test_what_is_stored_and_what_runs_at_google_is_refused_by_name(more: dict[str, Any], word: str) -> None:
    """With the gateway's key an id could be another client's, and an agent runs at its provider alone."""
    async with Lab() as lab, served("openai_chat", lab) as url:
        options = types.HttpOptions(base_url=url, client_args=PLAIN, async_client_args=PLAIN)
        client = genai.Client(api_key="lab", http_options=options)
        asked: dict[str, Any] = {"model": SCRIPTS[0], "input": "hi", **more}
        if "agent" in more:
            del asked["model"]
        with pytest.raises(errors.APIStatusError) as refused:
            await client.aio.interactions.create(**asked)
        await client.aio.aclose()
        client.close()
        assert refused.value.status_code == 400 and f"`{word}`" in str(refused.value)
        assert lab.requests == ()
