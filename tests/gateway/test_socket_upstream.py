"""An upstream that is asked over WebSockets, as the gateway's file says it: clients of two APIs, a connection for each talk."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import openai
import pytest

from gateway.serving import gateway_of
from turnwise.base.clock import SystemClock
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.errors import CallerError
from turnwise.gateway.config import read_config
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from waits import HANG_S

ROUTE = """
[[route]]
upstream = {{ url = "{url}/v1", family = "{family}", key_env = "LAB_KEY", websocket = true }}
"""


@asynccontextmanager
async def served(lab: Lab, folder: Path, *, family: str = "openai_responses") -> AsyncIterator[openai.AsyncOpenAI]:
    file = folder / "gateway.toml"
    file.write_text(ROUTE.format(url=lab.url, family=family))
    async with AiohttpTransport(env={}) as transport:
        means = ServiceMeans(transport=transport, clock=SystemClock(), env={"LAB_KEY": "sk-lab-01234567"})
        service = RelayService(read_config(file), means=means, forward_key=False)
        async with (
            gateway_of(service) as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=HANG_S, max_retries=0) as client,
        ):
            yield client


TOOL = {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}


async def responses_loop(client: openai.AsyncOpenAI, told: str) -> str:
    """A conversation of three requests, each whole, as clients without a WebSocket send it."""
    said: list[Any] = [{"role": "user", "content": told}]
    for _ in range(3):
        async with client.responses.stream(
            model="never-stops", input=said, tools=[cast("Any", {"type": "function", "strict": False, **TOOL})]
        ) as stream:
            response = await stream.get_final_response()
        said += [item.model_dump(exclude_none=True, exclude={"status", "parsed_arguments"}) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        said += [{"type": "function_call_output", "call_id": call.call_id, "output": told} for call in calls]
    return response.output[-1].type


async def chat_loop(client: openai.AsyncOpenAI, told: str) -> str:
    said: list[Any] = [{"role": "user", "content": told}]
    finish = ""
    for _ in range(3):
        answer = await client.chat.completions.create(
            model="never-stops", messages=said, tools=[cast("Any", {"type": "function", "function": TOOL})]
        )
        said.append(answer.choices[0].message.model_dump(exclude_none=True))
        calls = answer.choices[0].message.tool_calls or []
        said += [{"role": "tool", "tool_call_id": call.id, "content": told} for call in calls]
        finish = answer.choices[0].finish_reason
    return finish


async def test_conversations_of_two_apis_go_on_from_their_own_responses(tmp_path: Path) -> None:
    """Two at once: the clients send all of it each time, the upstream gets what is new, and the lab reads it whole."""
    async with Lab(key="sk-lab-01234567") as lab:
        async with served(lab, tmp_path) as client:
            ends = await asyncio.gather(responses_loop(client, "one"), responses_loop(client, "two"))
        messages = [json.loads(one.message) for one in lab.requests]
    assert ends == ["function_call", "function_call"]
    assert len(messages) == 6 and all(one.refused is None for one in lab.requests)
    assert sorted(len(one["input"]) for one in messages) == [1] * 6
    assert sum("previous_response_id" in one for one in messages) == 4


async def test_client_that_does_not_stream_is_answered_too(tmp_path: Path) -> None:
    async with Lab(key="sk-lab-01234567") as lab, served(lab, tmp_path) as client:
        assert await chat_loop(client, "one") == "tool_calls"
        assert [one.refused for one in lab.requests] == [None] * 3


async def test_upstream_of_another_api_is_refused_by_name(tmp_path: Path) -> None:
    async with Lab() as lab:
        with pytest.raises(CallerError, match="`websocket`"):
            async with served(lab, tmp_path, family="openai_chat"):
                pass
