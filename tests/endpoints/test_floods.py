"""Servers that send without end before their answer: every deadline holds, and the connection is closed. Real sockets."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from turnwise.base.threads import quickest_loop, run_to_end
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.bounded_connector import MAX_HEADS
from turnwise.endpoints.endpoints import Endpoint, Secret
from turnwise.endpoints.transport import HttpRequest
from turnwise.rules.limits import MaxWallTime
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.turn.config import Deadlines, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import FaultKind, Message, StopReason, Text
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
INTERIM = {
    "100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "102": b"HTTP/1.1 102 Processing\r\n\r\n",
    "103": b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n",
}


class Raw:
    """What the server has seen."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connections = 0
        self.sent_bytes = 0
        self.was_closed = threading.Event()  # by the client, in the middle of a flood

    def flood(self, connection: socket.socket, what: bytes) -> None:
        """Send it without end, until the other side closes."""
        piece = what * (64 * 1024 // len(what))
        try:
            while True:
                self.sent_bytes += connection.send(piece)
        except OSError:
            self.was_closed.set()


@contextmanager
def raw_server(talk: Callable[[Raw, socket.socket], None]) -> Iterator[Raw]:
    """A loopback server below HTTP, in a thread of its own: it floods while our event loop is busy. `talk` is called once a
    request has come."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        raw = Raw(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def one(connection: socket.socket) -> None:
            with connection:
                connection.settimeout(HANG_S)
                connection.recv(65536)
                try:
                    talk(raw, connection)
                except OSError:  # it was closed before all of the beginning was sent
                    raw.was_closed.set()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                raw.connections += 1
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield raw
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(HANG_S)


async def turn(url: str, *, deadlines: Deadlines = Deadlines(), time_s: float | None = None) -> TurnResult:  # noqa: B008
    limits = None if time_s is None else MaxWallTime(time_s)
    config = TurnConfig(session_id="s", turn_id="t", model="m", deadlines=deadlines, limits=limits)
    endpoint = Endpoint(profile=builtin_profiles()["openai_chat"], base_url=url, key=Secret("sk-1"))
    async with AiohttpTransport(env={}) as transport:
        runner = Runner(RunnerMeans(endpoint=endpoint, transport=transport))
        started = TurnStarted(config=config, input=(Message("user", (Text("hi"),)),))
        return await asyncio.wait_for(runner.run(started), HANG_S)


async def bodies(url: str, *, times: int) -> list[bytes]:
    async with AiohttpTransport(env={}) as transport:
        return [await body(transport, url) for _ in range(times)]


async def body(transport: AiohttpTransport, url: str) -> bytes:
    async with transport.send(HttpRequest(url=url, headers=(), body=b"{}", connect_s=HANG_S)) as reply:
        return b"".join([chunk async for chunk in reply.chunks])


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("interim", INTERIM.values(), ids=INTERIM.keys())
def test_interim_responses_without_end_end_the_request(interim: bytes) -> None:
    """More than 1,000 are no answer, and the connection is closed at once: 25 MB a second of them kept the event loop so busy
    that `--max-time 2` took 8 seconds (uvloop reads up to 2 MB before any timer fires)."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        raw.flood(connection, interim)

    with raw_server(talk) as raw:
        result = run_to_end(turn(raw.url), new_loop=quickest_loop)
        assert raw.was_closed.wait(HANG_S)
    assert result.fault is not None and result.stop_reason is StopReason.PROVIDER_FAILED
    said = f"`{raw.url.removeprefix('http://')}` sent more than 1000 interim responses and no answer"
    assert (result.fault.kind, result.fault.message) == (FaultKind.PROTOCOL, said)
    assert (result.requests, raw.connections) == (1, 1)


def test_as_many_interim_responses_as_a_slow_gateway_sends_change_nothing() -> None:
    """A head less than the limit, then the answer; the next request on this connection may have as many."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        connection.sendall(INTERIM["102"] * (MAX_HEADS - 1) + ANSWER)
        connection.recv(65536)
        connection.sendall(INTERIM["102"] * (MAX_HEADS - 1) + ANSWER)

    with raw_server(talk) as raw:
        assert run_to_end(bodies(raw.url, times=2), new_loop=quickest_loop) == [b"ok", b"ok"]
    assert raw.connections == 1


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize(
    "beginning",
    [b"", INTERIM["100"] * 3, b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX-A: b\r\nX-", b"HTTP/1.1 100 Continue\r\nX: "],
    ids=["nothing", "interim responses", "half a status line", "half a header", "half an interim response"],
)
def test_a_head_that_stops_in_the_middle_meets_the_deadline_of_the_first_event(beginning: bytes) -> None:
    """What came of it is no event, so it renews nothing."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        connection.sendall(beginning)
        assert connection.recv(1) == b""
        raw.was_closed.set()

    deadlines = Deadlines(first_event_s=0.2)
    with raw_server(talk) as raw:
        result = run_to_end(turn(raw.url, deadlines=deadlines), new_loop=quickest_loop)
        assert raw.was_closed.wait(HANG_S)
    assert result.fault is not None and result.fault.kind is FaultKind.TIMEOUT


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BLANKS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.promise("wait:stream", "end:budget")
@pytest.mark.parametrize(
    ("beginning", "flood"),
    [
        (CHUNKED, b"8\r\n: ping\n\n\r\n"),
        (BLANKS, b"1\r\n\n\r\n"),
        (CHUNKED + b"1;", b"a"),
        (b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n\n\r\n"),
    ],
    ids=["comments", "blank lines", "a chunk's extension", "blank lines of an error"],
)
def test_turns_time_holds_while_a_server_sends_what_is_no_event(beginning: bytes, flood: bytes) -> None:
    """Whatever comes without end, the limit on the turn's time ends it, and the connection with it."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        connection.sendall(beginning)
        raw.flood(connection, flood)

    for time_s in (0.2, 2.0, 20.0, 200.0):  # a busy machine needs longer to send the request
        with raw_server(talk) as raw:
            result = run_to_end(turn(raw.url, time_s=time_s), new_loop=quickest_loop)
            is_flooded = raw.sent_bytes > 0
            assert not is_flooded or raw.was_closed.wait(HANG_S)
        assert result.stop_reason == StopReason.TIME_LIMIT
        if is_flooded:
            break
    assert is_flooded and result.requests == 1


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize(
    ("beginning", "flood"),
    [
        (b"HTTP/1.1 ", b"2"),
        (b"HTTP/1.1 200 ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"a"),
        (CHUNKED + b"0\r\n", b"X-A: b\r\n"),
    ],
    ids=["status", "reason", "headers", "one header", "trailers"],
)
def test_an_endless_head_is_no_http(beginning: bytes, flood: bytes) -> None:
    """A status line, a header, a number of headers past their bounds end the request. What comes behind a head that was read
    before is a body that breaks off."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        connection.sendall(beginning)
        raw.flood(connection, flood)

    with raw_server(talk) as raw:
        result = run_to_end(turn(raw.url), new_loop=quickest_loop)
        assert raw.was_closed.wait(HANG_S)
    assert result.fault is not None
    if result.fault.kind is not FaultKind.DISCONNECTED or not beginning.startswith(CHUNKED):
        assert result.fault.kind is FaultKind.PROTOCOL
        assert result.fault.message.endswith("did not answer in HTTP")


@pytest.mark.parametrize("flood", [INTERIM["100"], ANSWER], ids=["interim responses", "answers"])
def test_what_follows_an_answer_is_not_kept(flood: bytes) -> None:
    """A kept connection on which a server goes on sending is closed while nobody uses it, and serves no further request."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        connection.sendall(ANSWER)
        if raw.connections == 1:
            raw.flood(connection, flood)

    async def run(raw: Raw) -> list[bytes]:
        async with AiohttpTransport(env={}) as transport:
            first = await body(transport, raw.url)
            assert await asyncio.to_thread(raw.was_closed.wait, HANG_S)
            return [first, await body(transport, raw.url)]

    with raw_server(talk) as raw:
        assert run_to_end(run(raw), new_loop=quickest_loop) == [b"ok", b"ok"]
    assert raw.connections == 2


def test_an_answer_that_comes_twice_is_read_once() -> None:
    """The second one is no answer to the next request: that goes over a new connection."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        connection.sendall(ANSWER * 2 if raw.connections == 1 else ANSWER.replace(b"ok", b"no"))
        connection.recv(65536)

    with raw_server(talk) as raw:
        assert run_to_end(bodies(raw.url, times=2), new_loop=quickest_loop) == [b"ok", b"no"]


@pytest.mark.parametrize("status", [b"301 Moved", b"307 Temporary Redirect"])
def test_a_redirect_is_not_followed(status: bytes) -> None:
    """Not even to itself: one request, and the place in the fault."""

    def talk(raw: Raw, connection: socket.socket) -> None:
        place = raw.url.encode() + b"/again"
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nlocation: " + place + b"\r\ncontent-length: 0\r\n\r\n")

    with raw_server(talk) as raw:
        result = run_to_end(turn(raw.url), new_loop=quickest_loop)
    assert result.fault is not None and f"{raw.url}/again" in result.fault.message
    assert (result.requests, raw.connections) == (1, 1)
