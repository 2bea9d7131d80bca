"""The lab's WebSocket, judged by OpenAI's own client (`responses.connect`), which we did not write; and what it refuses."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError
from openai.resources.responses.responses import AsyncResponsesConnection

from turnwise.lab import Lab
from waits import HANG_S

KEY = "sk-lab-0123456789"
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "read",
    "strict": False,
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@asynccontextmanager
async def connected(lab: Lab, *, key: str = KEY) -> AsyncIterator[AsyncResponsesConnection]:
    client = openai.AsyncOpenAI(api_key=key, base_url=f"{lab.url}/v1", max_retries=0)
    async with client, client.responses.connect() as connection:
        yield connection


async def answer(connection: AsyncResponsesConnection) -> Any:
    """The response at the end of the events, as the client reads them; an error is an event, too."""
    async with asyncio.timeout(HANG_S):
        while True:
            event: Any = await connection.recv()
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                return event.response
            if event.type == "error":
                return event


async def test_official_client_has_its_tool_loop_on_one_connection() -> None:
    """Three responses, each going on from the one before; the lab's judge reads each request whole."""
    async with Lab(key=KEY) as lab, connected(lab) as connection:
        said: list[Any] = [{"role": "user", "content": "Read the notes."}]
        before: str | None = None
        for _ in range(3):
            more = {} if before is None else {"previous_response_id": before}
            await connection.response.create(model="never-stops", input=said, tools=[TOOL], store=False, **more)  # type: ignore[arg-type]
            response = await answer(connection)
            [call] = [item for item in response.output if item.type == "function_call"]
            before = response.id
            said = [{"type": "function_call_output", "call_id": call.call_id, "output": "words"}]
    assert [len(json.loads(one.body)["input"]) for one in lab.requests] == [1, 3, 5]
    assert [one.refused for one in lab.requests] == [None] * 3


async def test_official_client_is_refused_what_the_api_refuses() -> None:
    """A response of another connection, one before the last, an unknown model, and a wrong key."""
    async with Lab(key=KEY) as lab:
        async with connected(lab) as connection:
            await connection.response.create(model="plain-answer", input="hi")
            first = await answer(connection)
            await connection.response.create(model="plain-answer", input="hi")
            await answer(connection)
            await connection.response.create(model="plain-answer", input="more", previous_response_id=first.id)
            assert (await answer(connection)).error.code == "previous_response_not_found"
            await connection.response.create(model="no-such-model", input="hi")
            assert (await answer(connection)).status in (400, 404)
        async with connected(lab) as connection:
            await connection.response.create(model="plain-answer", input="more", previous_response_id=first.id)
            assert (await answer(connection)).error.code == "previous_response_not_found"
        with pytest.raises(Exception, match="401"):
            async with connected(lab, key="sk-other"):
                pass


async def test_official_client_reads_a_cut_response_and_its_end() -> None:
    async with Lab(key=KEY) as lab, connected(lab) as connection:
        await connection.response.create(model="cut-text", input="hi")
        response = await answer(connection)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@asynccontextmanager
async def bare(lab: Lab, **headers: str) -> AsyncIterator[ClientWebSocketResponse]:
    async with (
        ClientSession(headers={"authorization": f"Bearer {KEY}", **headers}) as session,
        session.ws_connect(f"{lab.url}/v1/responses") as socket,
    ):
        yield socket


CREATE = {"type": "response.create", "model": "plain-answer", "input": "hi"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (CREATE | {"stream": True}, "Unknown parameter: 'stream'."),
        (CREATE | {"background": False}, "Unknown parameter: 'background'."),
        (CREATE | {"messages": []}, "Unknown parameter: 'messages'."),
        (CREATE | {"type": "response.cancel"}, "Invalid value: 'response.cancel'."),
        (CREATE | {"previous_response_id": "resp_1"}, "Previous response with id 'resp_1' not found."),
        (CREATE | {"input": []}, "must be provided"),
        (b"{", "We could not parse the JSON of your message."),
        (b"\x00", "Expected a text message."),
    ],
)
async def test_message_that_is_none_is_refused(message: dict[str, object] | bytes, said: str) -> None:
    """And the connection goes on."""
    async with Lab(key=KEY) as lab, bare(lab) as socket:
        if isinstance(message, bytes):
            await (socket.send_bytes(message) if message == b"\x00" else socket.send_str(message.decode()))
        else:
            await socket.send_json(message)
        error = await socket.receive_json()
        assert (error["type"], error["status"]) == ("error", 400)
        assert said in error["error"]["message"]
        await socket.send_json(CREATE)
        assert (await socket.receive_json())["type"] == "response.created"


async def test_second_message_before_the_end_of_a_response_is_refused() -> None:
    """The lab is stricter than the API here: our own client never does it."""
    async with Lab(key=KEY, chunk_delay_s=0.01) as lab, bare(lab) as socket:
        await socket.send_json(CREATE)
        await socket.send_json(CREATE)
        kinds: list[str] = []
        while not kinds or kinds[-1] != "response.completed":
            kinds.append((await socket.receive_json())["type"])
    assert (kinds.count("error"), len(lab.requests)) == (1, 1)


async def test_other_version_of_the_messages_is_refused() -> None:
    async with Lab(key=KEY) as lab:
        async with bare(lab, **{"openai-beta": "other=1, responses_websockets=2026-02-06"}):
            pass
        with pytest.raises(WSServerHandshakeError, match="400"):
            async with bare(lab, **{"openai-beta": "responses_websockets=2026-01-01"}):
                pass


async def test_lab_that_closes_ends_its_connections() -> None:
    async with Lab(key=KEY) as lab, ClientSession(headers={"authorization": f"Bearer {KEY}"}) as session:
        socket = await session.ws_connect(f"{lab.url}/v1/responses")
        receiving = asyncio.create_task(socket.receive())
        await lab.__aexit__()
        async with asyncio.timeout(HANG_S):
            await receiving
        assert socket.close_code == 1001
