"""The vendors' own clients on the paths beside those that generate: lists of models, counts of tokens, embeddings."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors, types

from gateway.calling import upstream_at
from gateway.serving import gateway_of
from turnwise.endpoints.transport import HttpRequest
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport
from turnwise.wire.profiles import FamilyName
from waits import HANG_S

JSON = {"content-type": "application/json"}
ANSWERS = {
    "batchEmbedContents": b'{"embeddings":[{"values":[0.5,0.25]},{"values":[0.75,1]}]}',
    "embedContent": b'{"embedding":{"values":[0.5,0.25]}}',
    "countTokens": b'{"totalTokens":77}',
    "input_tokens": b'{"object":"response.input_tokens","input_tokens":77}',
    "count_tokens": b'{"input_tokens":77}',
}


def answer(request: HttpRequest) -> Reply:
    body = next((body for verb, body in ANSWERS.items() if verb in request.url), None)
    return Reply(status=404 if body is None else 200, headers=JSON, pieces=(body or b"{}",))


@asynccontextmanager
async def served(upstream: FamilyName) -> AsyncIterator[str]:
    """The address of a whole gateway before a scripted upstream of that family."""
    transport = ScriptedTransport(itertools.repeat(answer))
    means = ServiceMeans(transport=transport, clock=FakeClock(), env={"LAB_KEY": "k"})
    route = GatewayRoute(models=("small", "a/b"), aliases={"fast": "small"}, upstream=upstream_at(upstream))
    service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)
    async with gateway_of(service) as url:
        yield url


@pytest.mark.parametrize("upstream", ["gemini", "openai_responses"])
async def test_clients_of_openai_list_models_and_count(upstream: FamilyName) -> None:
    """Proves: a name with a slash is found, an unknown one is the client's own NotFoundError."""
    async with (
        served(upstream) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=HANG_S) as client,
    ):
        assert [one.id async for one in client.models.list()] == ["fast", "small", "a/b"]
        assert (await client.models.retrieve("a/b")).id == "a/b"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("large")
        told = await client.responses.input_tokens.count(model="fast", input="How long is this?")
        assert (told.object, told.input_tokens) == ("response.input_tokens", 77)


@pytest.mark.parametrize("upstream", ["gemini", "anthropic_messages"])
async def test_clients_of_anthropic_list_models_and_count(upstream: FamilyName) -> None:
    async with (
        served(upstream) as url,
        anthropic.AsyncAnthropic(base_url=url, api_key="none", timeout=HANG_S) as client,
    ):
        assert [one.id async for one in client.models.list()] == ["fast", "small", "a/b"]
        assert (await client.models.retrieve("fast")).display_name == "fast"
        with pytest.raises(anthropic.NotFoundError):
            await client.models.retrieve("large")
        asked: Any = [{"role": "user", "content": "How long is this?"}]
        assert (await client.messages.count_tokens(model="fast", messages=asked)).input_tokens == 77


async def test_clients_of_gemini_list_models_count_and_embed() -> None:
    def ask(url: str) -> None:
        with httpx2.Client(timeout=HANG_S) as http:
            options = types.HttpOptions(base_url=url, httpx_client=cast("Any", http))
            models: Any = genai.Client(api_key="none", http_options=options).models
            assert [one.name for one in models.list()] == ["models/fast", "models/small", "models/a/b"]
            assert models.get(model="fast").name == "models/fast"
            with pytest.raises(errors.ClientError) as told:
                models.get(model="large")
            assert told.value.code == 404
            assert models.count_tokens(model="fast", contents="How long is this?").total_tokens == 77
            embedded = models.embed_content(model="fast", contents=["one", "two"])
            assert [one.values for one in embedded.embeddings] == [[0.5, 0.25], [0.75, 1.0]]

    async with served("gemini") as url:
        await asyncio.to_thread(ask, url)


async def test_a_head_request_is_answered_without_a_body() -> None:
    """As Claude Code sends it before its first request."""
    async with served("gemini") as url, httpx2.AsyncClient(timeout=HANG_S) as client:
        told = await asyncio.wait_for(client.head(f"{url}/"), HANG_S)
        assert (told.status_code, told.content) == (200, b"")
