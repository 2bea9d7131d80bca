"""Requests over a WebSocket, on real loopback sockets: the turns of HTTP, what goes out, and each way in which it breaks.

Sources: OpenAI docs, "WebSocket mode"; the client of openai/codex (`responses_websocket.rs`).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from recordings import Row, decode, differences, rows
from turnwise import Agent, Journal, MaxRequests, Model, RetryPolicy, RunResult
from turnwise.base.clock import SystemClock
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.exchange import Exchange
from turnwise.endpoints.sockets import FRAME_BYTES, Sockets
from turnwise.endpoints.transport import HttpRequest
from turnwise.errors import CallerError, ProviderFault
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines
from turnwise.turn.events import RequestFailed, ResponseReceived, SendRequest
from turnwise.vocab import FaultKind, Message, Request, StopReason, Text, text_of
from turnwise.wire.openai_responses.socket import SOCKET
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

KEY = "sk-secret-0123456789"
PROFILE = msgspec.structs.replace(builtin_profiles()["openai_responses"], websocket=True)


# --- whole turns, beside the same ones over HTTP


async def read(path: str) -> str:
    return f"the text of {path}"


async def turn(
    lab: Lab, script: str, *, websocket: bool, journal: Path
) -> tuple[RunResult, tuple[Received, ...], list[dict[str, Any]]]:
    """The result, what the lab received, and the events of the journal."""
    lab.reset()
    model = Model(f"openai_responses:{script}", base_url=f"{lab.url}/v1", api_key=KEY, websocket=websocket)
    retry = RetryPolicy(attempts=3, base_s=0.001, cap_s=0.002)
    with Journal(journal) as book:
        agent = Agent(model, tools=[read], recovery={"retry": retry}, journal=book, limits=MaxRequests(8))
        result = await asyncio.wait_for(agent.run("hello"), HANG_S)
        kept = [
            json.loads(msgspec.json.encode(event))
            for event in book.events(book.find_session(result.session or "").turns[-1].id)
        ]
    return result, lab.requests, kept


OF_ONE_TURN = ("config", "at_s", "number_at", "jitter", "environment", "first_event_s", "ended_s", "taken_s", "seed")


def unlike(value: Any) -> Any:
    """Without ids, times and jitter, which differ between any two turns, and without the ids of responses."""
    if isinstance(value, dict):
        return {name: unlike(one) for name, one in value.items() if name != "id" and name not in OF_ONE_TURN}
    return [unlike(one) for one in value] if isinstance(value, list) else value


def told(result: RunResult) -> dict[str, object]:
    """What a turn came to, without what is its own: ids, times, and the WebSocket's own response ids."""
    return {
        "text": result.shown_text,
        "why": result.stop_reason,
        "complete": result.complete,
        "requests": result.requests,
        "usage": result.usage,
        "cost": result.cost,
        "repairs": result.repairs,
        "history": result.history,
    }


@pytest.mark.parametrize(
    "script",
    "plain-answer parallel-calls read-edit-answer reasoning-and-calls research cut-call cut-text refusal never-stops "
    "loop-same-call fault-401 fault-once-429 fault-once-503 fault-once-reset fault-once-error-in-stream interleaved".split(),
)
async def test_turn_is_the_same_as_over_http(script: str, tmp_path: Path) -> None:
    """Result, history, bill and requests of 16 scripts; the judge of the lab reads the same bodies, put together again."""
    async with Lab(key=KEY) as lab:
        plain, over_http, plain_events = await turn(lab, script, websocket=False, journal=tmp_path / "http.db")
        socketed, over_socket, events = await turn(lab, script, websocket=True, journal=tmp_path / "socket.db")
    assert told(socketed) == told(plain)
    if not script.endswith("reset"):  # in other words: the WebSocket was closed, or the connection broke
        assert unlike(events) == unlike(plain_events)
    assert [one.status for one in over_socket] == [one.status for one in over_http]
    assert [json.loads(one.body) for one in over_socket] == [json.loads(one.body) for one in over_http]
    assert all(one.message for one in over_socket)


async def test_each_step_sends_what_is_new_alone(tmp_path: Path) -> None:
    """`previous_response_id` and the new items, on one connection, with the fields that each request has of its own."""
    async with Lab(key=KEY) as lab:
        result, requests, _ = await turn(lab, "never-stops", websocket=True, journal=tmp_path / "j.db")
    sent = [json.loads(one.message) for one in requests]
    assert result.requests == len(sent) > 2
    assert [one.get("previous_response_id") for one in sent] == [None, *[f"resp_ws_1_{n}" for n in range(1, len(sent))]]
    kinds = [[item["type"] for item in one["input"]] for one in sent]
    assert kinds[1:-1] == [["function_call_output"]] * (len(sent) - 2)
    assert kinds[-1] == ["function_call_output", "message"]  # the last request is for the answer
    assert not any({"stream", "background"} & one.keys() for one in sent)
    assert all(one["type"] == "response.create" and one["store"] is False and one["tools"] for one in sent)


async def test_connection_that_is_too_old_is_left_and_the_request_goes_whole(tmp_path: Path) -> None:
    """`websocket_connection_limit_reached` in place of a response: nothing was done, so the same request is not counted again."""
    async with Lab(key=KEY, socket_responses=2) as lab:
        result, requests, _ = await turn(lab, "never-stops", websocket=True, journal=tmp_path / "j.db")
    sent = [json.loads(one.message) for one in requests]
    assert (result.stop_reason, result.requests) == (StopReason.LOOP, len(sent))
    assert [one.get("previous_response_id") for one in sent][:5] == [None, "resp_ws_1_1", None, "resp_ws_2_1", None]


# --- a server by hand


class Served:
    def __init__(self) -> None:
        self.url = ""
        self.heads: list[dict[str, str]] = []
        self.said: list[dict[str, Any]] = []
        self.codes: list[int | None] = []
        self.left = asyncio.Event()

    async def hear(self, socket: web.WebSocketResponse) -> dict[str, Any]:
        self.said.append(json.loads((await socket.receive()).data))
        return self.said[-1]


@asynccontextmanager
async def served(talk: Callable[[Served, web.WebSocketResponse], Awaitable[None]]) -> AsyncIterator[Served]:
    found = Served()

    async def answer(request: web.Request) -> web.StreamResponse:
        found.heads.append({name.lower(): value for name, value in request.headers.items()})
        socket = web.WebSocketResponse(timeout=1.0)
        await socket.prepare(request)
        try:
            await talk(found, socket)
        finally:
            found.codes.append(socket.close_code)
            found.left.set()
        return socket

    app = web.Application()
    app.router.add_get("/v1/responses", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield found
    finally:
        await runner.cleanup()


def events(id: str = "resp_1", text: str = "Hello.") -> list[dict[str, Any]]:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": []}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    whole = {"id": id, "status": "completed", "model": "m", "output": [{**item, "content": [part]}]}
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    return [
        {"type": "response.created", "response": {"id": id, "status": "in_progress", "output": [], "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", **at, "delta": text},
        {"type": "response.output_item.done", "output_index": 0, "item": {**item, "content": [part]}},
        {"type": "response.completed", "response": {**whole, "usage": usage}},
    ]


async def send(socket: web.WebSocketResponse, said: list[dict[str, Any]]) -> None:
    for number, event in enumerate(said):
        await socket.send_str(json.dumps({**event, "sequence_number": number}))


def order(*texts: str) -> SendRequest:
    """The user's and the assistant's texts by turns."""
    messages = tuple(
        Message("user" if place % 2 == 0 else "assistant", (Text(text),)) for place, text in enumerate(texts)
    )
    request = Request(model="m", messages=messages, stream=True)
    return SendRequest(number=1, step=1, purpose="step", request=request, deadlines=Deadlines())


async def ask(
    transport: AiohttpTransport, url: str, *texts: str, clock: FakeClock | None = None
) -> ResponseReceived | RequestFailed:
    endpoint = Endpoint(profile=PROFILE, base_url=url, key=Secret(KEY))
    asked = order(*texts)
    exchange = Exchange(asked, endpoint=endpoint, transport=transport, clock=clock or SystemClock(), on_frames=None)
    call = endpoint.family.encode_request(asked.request, endpoint.profile)
    return await asyncio.wait_for(exchange.run(build_http_request(endpoint, call, connect_s=5.0)), HANG_S)


def text_in(event: ResponseReceived | RequestFailed) -> str:
    assert isinstance(event, ResponseReceived), event
    return text_of(event.response.message)


def fault_in(event: ResponseReceived | RequestFailed) -> tuple[FaultKind, str, bool]:
    """Its kind, what had come, and whether the request counts as sent."""
    assert isinstance(event, RequestFailed), event
    assert KEY not in repr(event)
    return event.fault.kind, "" if event.partial is None else text_of(event.partial.message), event.sent


async def test_opening_has_key_and_beta_and_no_compression() -> None:
    """The key is a header of the opening alone; what comes first is the request, and the next one uses the same connection."""

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        for number in (1, 2):
            await here.hear(socket)
            await send(socket, events(f"resp_{number}"))
        await socket.receive()

    async with served(talk) as here:
        async with AiohttpTransport(env={}) as transport:
            assert text_in(await ask(transport, here.url, "hi")) == "Hello."
            assert text_in(await ask(transport, here.url, "hi", "Hello.", "and?")) == "Hello."
        await asyncio.wait_for(here.left.wait(), HANG_S)
    [head] = here.heads
    assert (head["authorization"], head["openai-beta"]) == (f"Bearer {KEY}", "responses_websockets=2026-02-06")
    assert not {"sec-websocket-extensions", "content-type", "origin"} & head.keys()
    assert [one.get("previous_response_id") for one in here.said] == [None, "resp_1"]
    assert [len(one["input"]) for one in here.said] == [1, 1]
    assert here.codes == [WSCloseCode.OK]
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    "texts",
    [("hi", "Hullo.", "and?"), ("ho", "Hello.", "and?"), ("hi", "Hello."), ("hi",)],
    ids=["other answer", "other beginning", "nothing new", "the same again"],
)
async def test_what_does_not_go_on_from_the_response_goes_whole(texts: tuple[str, ...]) -> None:
    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        for number in (1, 2):
            await here.hear(socket)
            await send(socket, events(f"resp_{number}"))
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        await ask(transport, here.url, "hi")
        await ask(transport, here.url, *texts)
    assert "previous_response_id" not in here.said[1]
    assert len(here.said[1]["input"]) == len(texts)


async def test_two_sessions_at_once_have_a_connection_each() -> None:
    """And go on with their own."""

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        while (await here.hear(socket)) and not socket.closed:
            said = here.said[-1]["input"][-1]["content"][0]["text"]
            await send(socket, events(f"resp_{said}", f"to {said}"))

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        await asyncio.gather(ask(transport, here.url, "a"), ask(transport, here.url, "b"))
        await asyncio.gather(
            ask(transport, here.url, "b", "to b", "d"),
            ask(transport, here.url, "a", "to a", "c"),
            return_exceptions=True,
        )
    assert len(here.heads) == 2
    assert {one["input"][0]["content"][0]["text"]: one.get("previous_response_id") for one in here.said[2:4]} == {
        "d": "resp_b",
        "c": "resp_a",
    }


NOT_FOUND = {
    "type": "error",
    "status": 400,
    "error": {"code": "previous_response_not_found", "message": "Previous response with id 'resp_1' not found."},
}
TOO_OLD = {"type": "error", "error": {"code": "websocket_connection_limit_reached", "message": "60 minutes"}}


@pytest.mark.parametrize("error", [NOT_FOUND, TOO_OLD], ids=["not found", "60 minutes"])
async def test_forgotten_response_is_asked_for_whole_on_another_connection(error: dict[str, Any]) -> None:
    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        is_first = len(here.heads) == 1
        await here.hear(socket)
        await send(socket, events("resp_1" if is_first else "resp_2"))
        if is_first:
            await here.hear(socket)
            await socket.send_str(json.dumps(error))
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        await ask(transport, here.url, "hi")
        assert text_in(await ask(transport, here.url, "hi", "Hello.", "and?")) == "Hello."
    assert [one.get("previous_response_id") for one in here.said] == [None, "resp_1", None]
    assert [len(one["input"]) for one in here.said] == [1, 1, 3]
    assert len(here.heads) == 2


async def test_what_is_refused_twice_is_told_once() -> None:
    """A server that refuses each request so is not asked without end."""

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        await socket.send_str(json.dumps(NOT_FOUND))
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        assert fault_in(await ask(transport, here.url, "hi"))[0] is FaultKind.BAD_REQUEST
    assert len(here.said) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(429, FaultKind.RATE_LIMITED), (401, FaultKind.AUTH), (503, FaultKind.OVERLOADED)]
)
async def test_error_in_place_of_a_response_is_that_of_http(status: int, kind: FaultKind) -> None:
    """Status, words and `retry-after`, with the key hidden; the connection is kept."""
    headers = {"Retry-After": 7}
    error = {"type": "error", "status": status, "error": {"message": f"no {KEY}"}, "headers": headers}

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        await socket.send_str(json.dumps(error))
        await here.hear(socket)
        await send(socket, events())
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        event = await ask(transport, here.url, "hi")
        assert fault_in(event) == (kind, "", True)
        assert isinstance(event, RequestFailed)
        assert (event.fault.status, event.fault.message, event.fault.retry_after_s) == (status, "no ***", 7.0)
        assert text_in(await ask(transport, here.url, "hi")) == "Hello."
    assert len(here.heads) == 1


async def test_end_behind_an_error_begins_no_other_response() -> None:
    """An error within a response is its end. What the server still says of that comes too late for the next request."""
    error = {"type": "error", "sequence_number": 2, "error": {"code": "insufficient_quota", "message": "no"}}
    failed = {
        "type": "response.failed",
        "response": {"id": "r", "status": "failed", "error": error["error"], "output": []},
    }

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        if len(here.said) == 1:
            await send(socket, [events()[0], error, failed])
        else:
            await send(socket, events())
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        assert not isinstance(await ask(transport, here.url, "hi"), ResponseReceived)
        assert text_in(await ask(transport, here.url, "hi")) == "Hello."
    assert len(here.heads) == 2


# --- what breaks


async def abort(socket: web.WebSocketResponse) -> None:
    transport = socket.get_extra_info("socket")
    assert transport is not None
    assert socket._req is not None and socket._req.transport is not None  # pyright: ignore[reportPrivateUsage]
    socket._req.transport.abort()  # pyright: ignore[reportPrivateUsage]


async def closed(socket: web.WebSocketResponse, *, code: int) -> None:
    await socket.close(code=code)


BREAKS: dict[str, tuple[Callable[[web.WebSocketResponse], Awaitable[object]], FaultKind]] = {
    "1006": (abort, FaultKind.DISCONNECTED),
    "1000": (lambda socket: closed(socket, code=1000), FaultKind.DISCONNECTED),
    "1011": (lambda socket: closed(socket, code=1011), FaultKind.DISCONNECTED),
    "1012": (lambda socket: closed(socket, code=1012), FaultKind.DISCONNECTED),
    "binary": (lambda socket: socket.send_bytes(b"{}"), FaultKind.PROTOCOL),
    "giant": (lambda socket: socket.send_frame(b"x" * (FRAME_BYTES + 1), WSMsgType.TEXT), FaultKind.TOO_LARGE),
}


@pytest.mark.parametrize("after", [0, 3], ids=["at once", "in mid-response"])
@pytest.mark.parametrize("how", BREAKS)
async def test_broken_connection_is_told_as_a_broken_stream_is(how: str, after: int) -> None:
    """What had come is kept, the request counts as sent, the next one has a connection of its own, and nothing is left."""
    break_it, kind = BREAKS[how]

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        if len(here.heads) == 1:
            await send(socket, events()[:after])
            await break_it(socket)
        else:
            await send(socket, events())
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        assert fault_in(await ask(transport, here.url, "hi")) == (kind, "Hello." if after else "", True)
        assert text_in(await ask(transport, here.url, "hi")) == "Hello."
    assert "previous_response_id" not in here.said[1]
    assert len(asyncio.all_tasks()) == 1


async def test_frame_that_is_no_json_is_read_as_a_damaged_event_is() -> None:
    """The response goes on behind it, and says that something was lost."""

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        said = events()
        await send(socket, said[:3])
        await socket.send_str('{"type":"response.output_text.delta","del')
        await send(socket, said[3:])
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        event = await ask(transport, here.url, "hi")
    assert text_in(event) == "Hello."
    assert isinstance(event, ResponseReceived) and event.response.repairs


async def test_line_breaks_between_the_tokens_of_an_event_are_nothing() -> None:
    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        for event in events():
            await socket.send_str(json.dumps(event, indent=1).replace("\n", "\r\n"))
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        assert text_in(await ask(transport, here.url, "hi")) == "Hello."


async def test_silence_ends_at_the_deadline_and_closes_the_connection() -> None:
    """Pings are no events; the server sees the connection close, so it can stop."""

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        await send(socket, events()[:3])
        heard.set()
        await socket.receive()

    heard, clock = asyncio.Event(), FakeClock()
    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        asking = asyncio.create_task(ask(transport, here.url, "hi", clock=clock))
        await asyncio.wait_for(heard.wait(), HANG_S)
        while not asking.done():
            await clock.advance(1.0)
        assert fault_in(await asking) == (FaultKind.TIMEOUT, "Hello.", True)
        await asyncio.wait_for(here.left.wait(), HANG_S)


async def test_cancelled_request_closes_its_connection() -> None:
    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        await send(socket, events()[:3])
        heard.set()
        await socket.receive()

    heard = asyncio.Event()
    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        asking = asyncio.create_task(ask(transport, here.url, "hi"))
        await asyncio.wait_for(heard.wait(), HANG_S)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.wait_for(here.left.wait(), HANG_S)
        assert here.codes == [WSCloseCode.OK]
        assert len(asyncio.all_tasks()) < 6  # the server's own


@pytest.mark.parametrize("reply", [404, 426, 401, 307, 200])
async def test_server_without_a_websocket_says_so(reply: int) -> None:
    """Nothing was sent, no redirect is followed, and the words name the option."""
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=reply, headers={"location": "/elsewhere"} if reply == 307 else {})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with AiohttpTransport(env={}) as transport:
            event = await ask(transport, f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "hi")
    finally:
        await runner.cleanup()
    assert isinstance(event, RequestFailed) and not event.sent
    assert ("redirects to" if reply == 307 else "leave `websocket` out") in event.fault.message
    assert paths == ["/v1/responses"]


async def test_unreachable_server_is_told_as_over_http() -> None:
    async with AiohttpTransport(env={}) as transport:
        assert fault_in(await ask(transport, "http://127.0.0.1:1/v1", "hi")) == (FaultKind.UNREACHABLE, "", False)


async def test_idle_connection_is_closed_after_a_while() -> None:
    """And one that the server closes, or reports an error on, is not used again."""

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        await send(socket, events())
        if len(here.heads) == 2:
            await socket.close(code=1012)
        elif len(here.heads) == 3:
            await socket.send_str(json.dumps(TOO_OLD))
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        transport._sockets = Sockets(transport._open_socket, idle_s=0.01)  # pyright: ignore[reportPrivateUsage]
        for number in (1, 2, 3, 4):
            here.left.clear()
            assert text_in(await ask(transport, here.url, "hi")) == "Hello."
            await asyncio.wait_for(here.left.wait(), HANG_S)
            assert len(here.heads) == number


async def test_connection_near_its_60_minutes_is_not_used_again() -> None:
    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        await here.hear(socket)
        await send(socket, events())
        await socket.receive()

    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        transport._sockets = Sockets(transport._open_socket, oldest_s=0.0)  # pyright: ignore[reportPrivateUsage]
        await ask(transport, here.url, "hi")
        await ask(transport, here.url, "hi", "Hello.", "and?")
    assert len(here.heads) == 2 and "previous_response_id" not in here.said[1]


def test_api_without_a_websocket_is_refused_by_name() -> None:
    with pytest.raises(CallerError, match="`websocket`"):
        Endpoint(profile=builtin_profiles()["openai_chat"].over_websocket(True), base_url="http://x")
    assert builtin_profiles()["openai"].over_websocket(None) is builtin_profiles()["openai"]


async def test_request_that_does_not_stream_goes_over_http() -> None:
    """Its answer is one body; the lab's socket answers in events."""
    async with Lab() as lab:
        model = Model("openai_responses:plain-answer", base_url=f"{lab.url}/v1", websocket=True, stream=False)
        assert (await Agent(model).run("hi")).complete
    assert [one.message for one in lab.requests] == [b""]


# --- every recorded stream


@pytest.mark.wide
async def test_every_recorded_stream_is_the_same_over_a_socket(corpus: Path) -> None:
    """Frame by frame; a stream that ends early ends with its connection."""
    streams = [row for row in rows(corpus) if row.family == "openai_responses" and row.path.suffix == ".sse"]

    async def talk(here: Served, socket: web.WebSocketResponse) -> None:
        for row in streams[(await here.hear(socket))["number"] :]:
            for data in payloads(row):
                await socket.send_frame(data, WSMsgType.TEXT)
            break

    wrong: dict[str, object] = {}
    async with served(talk) as here, AiohttpTransport(env={}) as transport:
        for number, row in enumerate(streams):
            body = json.dumps({"stream": True, "number": number, "input": [], "prompt_cache_key": f"{number}"}).encode()
            chunks: list[bytes] = []
            with contextlib.suppress(ProviderFault):
                asked = HttpRequest(url=f"{here.url}/responses", headers=(), body=body, socket=SOCKET)
                async with transport.send(asked) as reply:
                    async for chunk in reply.chunks:
                        chunks.append(chunk)
            found = differences(row, decode(row, chunks))
            if (
                b"event: error" in row.path.read_bytes()
            ):  # it is read as the end: `response.failed` may or may not follow
                found = [one for one in found if not one.startswith("finish_reason: got None")]
            if found:
                wrong[row.file] = found
    assert streams and not wrong


def payloads(row: Row) -> list[bytes]:
    """What stands behind `data:` in each event of the recording."""
    blocks = row.path.read_bytes().replace(b"\r\n", b"\n").split(b"\n\n")
    found = [[line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")] for block in blocks]
    return [data for lines in found if (data := b"\n".join(lines)) and data != b"[DONE]"]
