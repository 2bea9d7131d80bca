"""The door of WebSockets: what becomes a request, what is kept for the next one, and what a hostile client gets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.serving import Echo, gateway_of
from turnwise.gateway import serve
from turnwise.gateway.app import DoorRules
from turnwise.gateway.client_bounds import Bounds, KeyRing, add_key, revoke_key
from turnwise.gateway.doors import ClientCall, Outlet
from turnwise.gateway.sockets import MOST_KEPT, MOST_WAITING, WarmContexts
from waits import HANG_S

TODAY = "2026-11-30"
KINDS = ("response.completed", "response.failed", "error")


def sse(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


class Streaming(Echo):
    """Answers with a stream whose one item is numbered. The body's `do` asks for something else."""

    async def _do(self, what: str, call: ClientCall, outlet: Outlet) -> None:
        number = len(self.calls)
        if what == "refuse":
            await outlet.start(429, [("content-type", "application/json"), ("retry-after", "7")])
            await outlet.send(b'{"error":{"message":"slowly","type":"rate_limit","param":null,"code":"slow"}}')
            return
        await outlet.start(200, [("content-type", "text/event-stream")])
        await outlet.send(b": nothing yet\n\n")
        await outlet.send(sse("response.created", response={"id": f"resp_{number}"})[:20])
        await outlet.send(sse("response.created", response={"id": f"resp_{number}"})[20:])
        if what == "wait":
            self.waiting.set()
            ways = [asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(outlet.gone())]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        while what == "flood":
            await outlet.send(sse("response.output_text.delta", delta="x" * 65_536))
            self.sent_pieces += 1
            self.waiting.set()
        if what == "no end":
            return
        end = sse("response.completed", response={"id": f"resp_{number}"})
        await outlet.send(sse("response.output_item.done", item={"n": number}) + end)


@contextlib.asynccontextmanager
async def opened(
    *, rules: DoorRules | None = None, keys: KeyRing | None = None, **headers: str
) -> AsyncIterator[tuple[Streaming, ClientConnection]]:
    service = Streaming()
    async with gateway_of(service, keys=keys, rules=rules) as url, connecting(url, **headers) as client:
        yield service, client


def connecting(url: str, path: str = "/v1/responses", **headers: str) -> connect:
    address = url.replace("http://", "ws://") + path
    every = {key.replace("_", "-"): value for key, value in headers.items()}
    return connect(address, additional_headers=every, compression="deflate", open_timeout=HANG_S, close_timeout=HANG_S)


def frame(input: object = (), **fields: object) -> str:
    return json.dumps({"type": "response.create", "model": "m", "input": input, **fields})


async def heard(client: ClientConnection) -> list[dict[str, Any]]:
    """The events of one answer."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(HANG_S):
        while not events or events[-1]["type"] not in KINDS:
            text = await client.recv()
            assert isinstance(text, str)
            events.append(json.loads(text))
    return events


async def asked(client: ClientConnection, input: object = (), **fields: object) -> dict[str, Any]:
    """The event that ends the answer."""
    await client.send(frame(input, **fields))
    return (await heard(client))[-1]


async def close_of(client: ClientConnection) -> tuple[int, str]:
    async with asyncio.timeout(HANG_S):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await client.recv()
        await client.wait_closed()
    assert client.close_code is not None
    return client.close_code, client.close_reason or ""


def sent_input(service: Streaming) -> object:
    return json.loads(service.calls[-1].body)["input"]


async def test_each_frame_is_a_request_and_each_event_a_frame() -> None:
    """Proves: the body is that of HTTP with `stream`, each request has an id of its own, and one that comes during an answer
    waits for its end. Answers follow each other, and repeat the lane. Comments are not told."""
    async with opened(openai_beta="responses_websockets=2026-02-06") as (service, client):
        assert client.response is not None and "sec-websocket-extensions" not in client.response.headers
        await client.send(frame([1], do="wait", stream_id="one"))
        await asyncio.wait_for(service.waiting.wait(), HANG_S)
        await client.send(json.dumps({"type": "response.processed", "response_id": "x"}))
        await client.send(frame([2], stream_id="two"))
        await client.ping()
        assert len(service.calls) == 1
        service.go_on.set()
        first, second = await heard(client), await heard(client)
        kinds = ["response.created", "response.output_item.done", "response.completed"]
        assert [event["type"] for event in first + second] == kinds * 2
        assert [event["stream_id"] for event in first + second] == ["one"] * 3 + ["two"] * 3
        one, two = service.calls
        assert json.loads(one.body) == {"model": "m", "input": [1], "do": "wait", "stream": True}
        assert (one.method, one.path, one.kind, one.family) == ("POST", "/v1/responses", "generate", "openai_responses")
        assert one.id != two.id and one.headers == () and one.same_turn == b""


async def test_a_request_goes_on_from_the_responses_of_its_connection_alone() -> None:
    """Proves: what was sent and answered there comes first; an id of another connection, or an old one, goes on as it came."""
    async with opened() as (service, client):
        assert (await asked(client, "hello"))["response"]["id"] == "resp_1"
        said = [{"role": "user", "content": "hello"}, {"n": 1}]
        await asked(client, [{"more": 1}], previous_response_id="resp_1")
        assert sent_input(service) == [*said, {"more": 1}]
        assert "previous_response_id" not in json.loads(service.calls[-1].body)
        await asked(client, [], previous_response_id="resp_2")
        assert sent_input(service) == [*said, {"more": 1}, {"n": 2}]
        await asked(client, [{"fork": 1}], previous_response_id="resp_1")
        assert sent_input(service) == [*said, {"fork": 1}]
        for _ in range(MOST_KEPT):
            await asked(client)
        await asked(client, [], previous_response_id="resp_1")
        assert json.loads(service.calls[-1].body)["previous_response_id"] == "resp_1"
        assert sent_input(service) == []


async def test_a_prewarm_asks_nobody_and_the_next_request_goes_on_from_it() -> None:
    """Proves: no request gets to the service, the answer is empty, and one from an unknown response is not found."""
    async with opened() as (service, client):
        await client.send(frame([{"role": "user", "content": "hello"}], generate=False, instructions="Be brief."))
        events = await heard(client)
        response = events[-1]["response"]
        assert [event["type"] for event in events] == [
            "response.created",
            "response.in_progress",
            "response.completed",
        ]
        assert (response["output"], response["usage"]["total_tokens"], service.calls) == ([], 0, [])
        await asked(client, [{"more": 1}], previous_response_id=response["id"], generate=True)
        assert sent_input(service) == [{"role": "user", "content": "hello"}, {"more": 1}]
        told = await asked(client, [], previous_response_id="resp_x", generate=False)
        assert (told["status"], told["error"]["code"]) == (400, "previous_response_not_found")
        assert (await asked(client, [{"role": "no such"}], generate=False))["status"] == 400


async def test_what_http_would_answer_comes_as_an_error_with_its_status() -> None:
    """Proves: of the service and of the doors; the connection goes on. An answer without its end closes it."""
    rules = DoorRules(bounds=Bounds(depth=8, body_bytes=4096))
    async with opened(rules=rules) as (service, client):
        told = await asked(client, do="refuse", stream_id="a")
        assert (told["status"], told["error"]["code"], told["headers"]) == (429, "slow", {"retry-after": "7"})
        assert told["stream_id"] == "a"
        for text, field in (
            ("{", "JSON"),
            ("[]", "JSON"),
            ('{"type":"session.update"}', "`type`"),
            (frame(7), "`input`"),
            (frame([[[[[[[[[]]]]]]]]]), "levels"),
        ):
            await client.send(text)
            (told,) = await heard(client)
            assert told["status"] == 400 and field in told["error"]["message"], told
        await client.send(json.dumps({"type": "response.steer", "previous_response_id": "r", "input": "no"}))
        steer = json.loads(await client.recv())
        assert (steer["type"], steer["error"]["code"]) == ("response.steer.failed", "steering_not_supported")
        service.full = True
        told = await asked(client)
        assert (told["status"], told["headers"]) == (503, {"retry-after": "1"})
        service.full = False
        await asked(client, ["x" * 2500])
        told = await asked(client, ["y" * 2500], previous_response_id="resp_2")
        assert told["status"] == 413
        assert [reason for reason, *_ in service.refusals] == ["busy", "length"]
        await client.send(frame(do="no end"))
        assert (await close_of(client))[0] == 1011


async def refused(url: str, path: str = "/v1/responses", **headers: str) -> int:
    with pytest.raises(InvalidStatus) as raised:
        async with connecting(url, path, **headers):
            pass
    return raised.value.response.status_code


async def test_the_doors_judge_the_upgrade_and_each_request(tmp_path: Path) -> None:
    """Proves: another `Host` or site, no key or one in the query get the status of HTTP, and no WebSocket. A key that is revoked
    after that, or a site that is struck off, is refused at the next request."""
    path = tmp_path / "keys.json"
    key = add_key(path, "laptop", admin=False, today=TODAY)
    other = add_key(path, "other", admin=False, today=TODAY)
    service = Streaming()
    async with gateway_of(service, keys=KeyRing(path), rules=DoorRules()) as url:
        right = {"authorization": f"Bearer {key}"}
        assert await refused(url) == 401
        assert await refused(url, authorization="Bearer tw-wrong") == 401
        assert await refused(url, f"/v1/responses?key={key}") == 401
        assert await refused(url, f"/v1/responses?key={key}", **right) == 401
        assert await refused(url, origin="https://evil.example", **right) == 403
        assert await refused(url, "/v1/chat/completions", **right) == 426
        assert await refused(url, "/v1/nothing", **right) == 426
        assert await refused(url.replace("127.0.0.1", "localhost"), host="evil.example", **right) in (400, 403)
        async with connecting(url, **right) as client, connecting(url, authorization=f"Bearer {other}") as second:
            await asked(client, ["a secret"])
            assert service.calls[-1].client == "laptop"
            await asked(second, [], previous_response_id="resp_1")  # as HTTP would: the service knows whose it is
            assert (service.calls[-1].client, sent_input(service)) == ("other", [])
            revoke_key(path, "laptop")
            told = await asked(client, ["more"], previous_response_id="resp_1")
            assert (told["type"], told["status"], len(service.calls)) == ("error", 401, 2)
            assert (await asked(second))["type"] == "response.completed"


async def test_frames_of_another_kind_close_the_connection_with_a_reason() -> None:
    """Proves: binary, too long, too many frames of one message, too many pings, too many waiting requests."""
    rules = DoorRules(bounds=Bounds(body_bytes=100_000))
    async with gateway_of(service := Streaming(), rules=rules) as url:
        async with connecting(url) as client:
            await client.send(b"{}")
            assert await close_of(client) == (1003, "this gateway reads frames of text alone")
        async with connecting(url) as client:
            await client.send("x" * 100_001)
            code, reason = await close_of(client)
            assert code == 1009 and "100" in reason
        async with connecting(url) as client:
            with contextlib.suppress(ConnectionClosed):
                await client.send(["x" * 60_000, "y" * 60_000])
            assert (await close_of(client))[0] == 1009
        async with connecting(url) as client:
            with contextlib.suppress(ConnectionClosed, OSError):
                client.protocol.send_text(b"", fin=False)
                for _ in range(10_000):
                    client.protocol.send_continuation(b"", fin=False)
                client.transport.write(b"".join(client.protocol.data_to_send()))
            assert await close_of(client) == (1009, "the message comes in too many frames")
        async with connecting(url) as client:
            for number in range(2_000):
                client.protocol.send_ping(str(number).encode())
            client.transport.write(b"".join(client.protocol.data_to_send()))
            assert await close_of(client) == (1008, "too many pings")
        async with connecting(url) as client:
            await client.send(frame(do="wait"))
            await asyncio.wait_for(service.waiting.wait(), HANG_S)
            with contextlib.suppress(ConnectionClosed):
                for _ in range(MOST_WAITING + 1):
                    await client.send(frame())
            assert (await close_of(client))[0] == 1008
        assert (len(service.calls), service.ended) == (1, ["client gone"])


async def test_a_client_that_goes_away_ends_the_running_answer() -> None:
    """Proves: whether it says goodbye or its connection breaks."""
    async with gateway_of(service := Streaming()) as url:
        for breaks in (False, True):
            service.waiting.clear()
            async with connecting(url) as client:
                await client.send(frame(do="wait"))
                await asyncio.wait_for(service.waiting.wait(), HANG_S)
                if breaks:
                    client.transport.abort()
            await asyncio.wait_for(service.told_gone.wait(), HANG_S)
            service.told_gone.clear()
        assert service.ended == ["client gone"] * 2


async def test_a_client_that_reads_nothing_holds_the_answer_back_and_is_let_go() -> None:
    """Proves: what waits for it does not grow, answers to its pings included, and after `unread_s` the answer ends."""
    rules = DoorRules(bounds=Bounds(unread_s=0.5))
    async with gateway_of(service := Streaming(), rules=rules) as url, connecting(url) as client:
        client.transport.pause_reading()
        await client.send(frame(do="flood"))
        for number in range(900):
            client.protocol.send_ping(str(number).encode() + b"x" * 100)
        client.transport.write(b"".join(client.protocol.data_to_send()))
        await asyncio.wait_for(service.told_gone.wait(), HANG_S)
        assert service.sent_pieces < 400  # 26 MB: the buffers of two sockets
        client.transport.abort()


async def test_a_connection_that_asks_nothing_for_long_ends() -> None:
    async with opened(rules=DoorRules(bounds=Bounds(socket_idle_s=0.05))) as (_, client):
        assert await close_of(client) == (1001, "nothing was asked for long: open a new connection")


async def test_a_client_that_answers_no_ping_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: a connection whose other end is gone without a word does not stay open."""
    monkeypatch.setattr(serve, "PING_S", 0.05)
    async with gateway_of(Streaming()) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = ["GET /v1/responses HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: Upgrade", "upgrade: websocket"]
        lines += ["sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
        writer.write("\r\n".join(lines).encode())
        said = await asyncio.wait_for(reader.read(), HANG_S)
        assert said.startswith(b"HTTP/1.1 101") and said.endswith(b"keepalive ping timeout")
        writer.close()


async def test_a_handshake_that_cannot_be_read_ends_the_connection() -> None:
    """Proves: a line that is longer than the library of WebSockets reads leaves no open connection behind."""
    async with gateway_of(Streaming()) as url:
        port = int(url.rpartition(":")[2])
        for line in ("x-long: " + "x" * 9_000, "sec-websocket-key: no"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = [
                "GET /v1/responses HTTP/1.1",
                f"host: 127.0.0.1:{port}",
                "connection: Upgrade",
                "upgrade: websocket",
            ]
            lines += ["sec-websocket-version: 13", line, "", ""]
            writer.write("\r\n".join(lines).encode())
            assert b" 101 " not in await asyncio.wait_for(reader.read(), HANG_S)
            writer.close()


async def test_half_of_the_connections_may_be_websockets() -> None:
    rules = DoorRules(bounds=Bounds(connections=4))
    async with gateway_of(Streaming(), rules=rules) as url, connecting(url), connecting(url):
        assert await refused(url) == 503


def test_the_contexts_of_all_connections_have_one_bound() -> None:
    """Proves: the oldest gives way, and a connection that ends leaves nothing."""
    kept = WarmContexts()
    for number in range(5):
        kept.keep(number, "r", (b"x" * 100, b"y" * 100), most_bytes=600)
    assert [kept.find(number, "r") is not None for number in range(5)] == [False, False, True, True, True]
    kept.keep(4, "too long", (b"x" * 601,), most_bytes=600)
    assert kept.size == 0
    kept.keep(1, "r", (b"x" * 100,), most_bytes=600)
    kept.keep(1, "r", (b"x" * 200,), most_bytes=600)
    kept.keep(2, "r", (b"x" * 100,), most_bytes=600)
    assert kept.size == 300
    kept.forget(1)
    assert (kept.size, kept.find(1, "r"), kept.find(2, "r")) == (100, None, (b"x" * 100,))
