"""Servers over HTTP that forget their sessions: each call is done once, and a doubt is told. The server counts."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from strangers import agent_of, offered, texts_of
from turnwise import McpServer
from turnwise.testing import FakeClock, call
from waits import HANG_S

Refusal = Callable[[int], tuple[int, str, bytes]]
JSON = "application/json"


def error(at: int, message: str, *, code: int = -32000) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": at, "error": {"code": code, "message": message}}).encode()


class Sessions(http.server.ThreadingHTTPServer):
    """Knows each session until `forget`. `done` are the calls that had an effect, `opened` the sessions."""

    daemon_threads = True

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(("127.0.0.1", 0), _Asked)
        self.refusal = refusal
        self.known, self.opened = set[str](), 0
        self.done: list[str] = []
        self.meet = False
        self.tools = ["act", "beside"]
        self.breaks_off, self.is_away = "", False
        self.events = b""
        self.content: dict[str, object] = {}
        self.both_are_here = threading.Barrier(2, action=self.forget, timeout=HANG_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def forget(self) -> None:
        self.known.clear()
        self.meet = False

    def answer(self, message: dict[str, Any], *, session: str) -> tuple[str, dict[str, object]]:
        method, params = message["method"], message.get("params") or {}
        match method:
            case "initialize":
                self.opened += 1
                self.known.add(session := f"session-{self.opened}")
                can = {"tools": {}}
                about = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": can,
                    "serverInfo": {"name": "t", "version": "1"},
                }
                return session, {"result": about}
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
                return session, {"result": {"tools": tools}}
            case "tools/call":
                said = str(params["arguments"]["n"])
                self.done.append(said)
                content = self.content or {"type": "text", "text": f"did {said}"}
                return session, {"result": {"content": [content]}}
            case _:
                return session, {"error": {"code": -32601, "message": "no such method"}}


class _Asked(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        pass

    def do_GET(self) -> None:
        events = cast("Sessions", self.server).events
        self.say(200 if events else 404, "text/event-stream" if events else JSON, events)

    def do_DELETE(self) -> None:
        self.say(200, JSON, b"")

    def do_POST(self) -> None:
        server = cast("Sessions", self.server)
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers.get("mcp-session-id", "")
        if server.is_away and message["method"] != "tools/call":
            return self.say(503, "text/plain", b"away")
        if "id" not in message:
            return self.say(202, JSON, b"")
        if message["method"] == "server/discover":
            return self.say(200, JSON, error(message["id"], "no such method", code=-32601))
        is_call = message["method"] == "tools/call"
        if is_call and server.meet:
            server.both_are_here.wait()
        if message["method"] != "initialize" and session not in server.known:
            return self.say(*server.refusal(message["id"]))
        session, answered = server.answer(message, session=session)
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answered}).encode()
        if is_call and server.breaks_off:
            kind = server.breaks_off
            server.breaks_off = ""
            server.forget()
            return self.break_off(kind, body)
        return self.say(200, JSON, body, session=session)

    def say(self, status: int, kind: str, body: bytes, *, session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)

    def break_off(self, kind: str, body: bytes) -> None:
        """The call was done, and its answer does not arrive whole."""
        self.close_connection = True
        if kind == "before a byte":
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if kind == "events" else JSON)
        if kind == "short body":
            self.send_header("content-length", str(len(body)))
        else:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b": on it\n\n" if kind == "events" else body[:20])


REFUSALS: dict[str, Refusal] = {
    "404": lambda at: (404, "text/plain", b"nothing here"),
    "404 empty": lambda at: (404, JSON, b""),
    "404 in JSON": lambda at: (404, JSON, error(at, "Not Found")),
    "404 in other words": lambda at: (404, JSON, error(at, "Sitzung unbekannt", code=-32001)),
    "404 in events": lambda at: (404, "text/event-stream", b"event: message\n\n"),
    "400 that names it": lambda at: (400, JSON, error(at, "Bad Request: No valid session ID provided")),
    "400 in words": lambda at: (400, "text/plain", b"Missing or unknown SESSION"),
}


@contextmanager
def sessions(refusal: Refusal = REFUSALS["404"]) -> Iterator[Sessions]:
    server = Sessions(refusal)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(HANG_S)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_call_that_meets_a_forgotten_session_goes_again_once(refusal: Refusal) -> None:
    """In a new session, though its tool is not idempotent: nothing was done. A note says that what the old one held is gone."""
    with sessions(refusal) as server:
        agent, _ = agent_of(
            [[call("p__act", n=1)], "a", [call("p__act", n=2)], "b"], [McpServer("p", asks=False, url=server.url)]
        )
        async with agent:
            await agent.run("Go.")
            server.forget()
            result = await agent.run("Go.")
        assert texts_of(result) == ["did 2"]
        assert (server.done, server.opened) == (["1", "2"], 2)
        assert result.notes == (
            "the MCP server `p`: it had forgotten the session: turnwise opens a new one, and what the server kept in the old "
            "one is gone",
        )


async def test_a_server_may_forget_any_number_of_sessions() -> None:
    """It lives, so no bound on restarts counts it; each call is done once."""
    with sessions() as server:
        script: list[Any] = [one for n in range(6) for one in ([call("p__act", n=n)], "Done.")]
        agent, _ = agent_of(script, [McpServer("p", asks=False, url=server.url)])
        async with agent:
            for n in range(6):
                server.forget()
                assert texts_of(await agent.run("Go.")) == [f"did {n}"]
        assert server.done == [str(n) for n in range(6)]


async def test_calls_side_by_side_go_again_once_each() -> None:
    """Both are at the server when it forgets: neither is taken for lost because of the other."""
    with sessions() as server:
        calls = [call("p__act", n=1), call("p__beside", n=2)]
        agent, _ = agent_of([calls, "Done."], [McpServer("p", asks=False, url=server.url)])
        server.meet = True
        result = await agent.run("Go.")
        assert texts_of(result) == ["did 1", "did 2"]
        assert (sorted(server.done), server.opened) == (["1", "2"], 2)


@pytest.mark.costly
@pytest.mark.parametrize("how", ["before a byte", "short body", "half a body", "events"])
async def test_a_call_whose_answer_broke_off_may_have_happened(how: str) -> None:
    """It is not sent again, and the model is told to look; the next call goes on in a new session."""
    with sessions() as server:
        script = [[call("p__act", n=1)], [call("p__act", n=2)], "Done."]
        agent, _ = agent_of(script, [McpServer("p", asks=False, url=server.url)])
        server.breaks_off = how
        result = await agent.run("Go.")
        first, second = texts_of(result)
        assert "Whether the call did anything is unknown" in first
        assert "not sent again" in first
        assert second == "did 2"
        assert server.done == ["1", "2"]


async def test_a_method_that_a_server_does_not_know_is_no_forgotten_session() -> None:
    """Its 404 has the code for that: no new session would help."""
    with sessions(lambda at: (404, JSON, error(at, "Method not found", code=-32601))) as server:
        agent, _ = agent_of([[call("p__act", n=1)], "Done."], [McpServer("p", asks=False, url=server.url)])
        async with agent:
            server.forget()
            assert "error -32601" in texts_of(await agent.run("Go."))[0]
        assert (server.done, server.opened) == ([], 1)


async def test_a_400_that_names_no_session_is_told_as_it_is() -> None:
    with sessions(lambda at: (400, JSON, error(at, "n must be a number"))) as server:
        agent, _ = agent_of([[call("p__act", n=1)], "Done."], [McpServer("p", asks=False, url=server.url)])
        async with agent:
            server.forget()
            assert "n must be a number" in texts_of(await agent.run("Go."))[0]
        assert server.opened == 1


async def test_tools_that_changed_with_the_session_are_told() -> None:
    """They are listed again in the new session. The turn keeps those that it began with; the next one has the new ones."""
    with sessions() as server:
        agent, model = agent_of([[call("p__act", n=1)], "a", "b"], [McpServer("p", asks=False, url=server.url)])
        async with agent:
            server.forget()
            server.tools = ["act", "other"]
            result = await agent.run("Go.")
            await agent.run("Again.")
        told = "its tools have changed (new: `other`; gone: `beside`); the next turn has them as they are now"
        assert result.notes[-1] == f"the MCP server `p`: {told}"
        assert [offered(model, n) for n in (0, 2)] == [["p__act", "p__beside"], ["p__act", "p__other"]]


async def test_a_server_that_was_given_up_is_looked_for_with_each_call_and_each_turn() -> None:
    """A server elsewhere that was away for longer than its tries comes back without a new agent."""
    with sessions() as server:
        clock = FakeClock()
        script: list[Any] = [[call("p__act", n=1)], [call("p__act", n=2)], "a", [call("p__act", n=3)], "b"]
        agent, model = agent_of(script, [McpServer("p", asks=False, url=server.url, clock=clock)])
        async with agent:
            server.breaks_off, server.is_away = "before a byte", True
            running = agent.start("Go.")
            for pause_s in (0.5, 1.0, 2.0):
                await clock.until_waiting(pause_s)
                await clock.advance(pause_s)
            result = await running
            assert "is given up" in texts_of(result)[1]
            server.is_away = False
            assert texts_of(await agent.run("Go.")) == ["did 3"]
        assert server.done == ["1", "3"]
        assert offered(model, len(script) - 1) == ["p__act", "p__beside"]


async def test_content_over_http_is_mended_as_that_of_a_program_is() -> None:
    """The same reading stands behind both transports."""
    with sessions() as server:
        server.content = {"type": "video", "data": ""}
        agent, _ = agent_of([[call("p__act", n=1)], "Done."], [McpServer("p", asks=False, url=server.url)])
        assert texts_of(await agent.run("Go.")) == [
            "[content of the type `video`: left out, as turnwise does not know the type]"
        ]


@pytest.mark.parametrize("events", [True, False], ids=["former", "other"])
async def test_a_server_of_the_former_kind_is_named(events: bool) -> None:
    """HTTP+SSE: it refuses the first request, and begins a stream of events with the address to post to."""
    with sessions() as server:
        server.is_away = True
        server.events = b"event: endpoint\r\ndata: /messages?session=1\r\n\r\n" if events else b"event: ping\ndata:\n\n"
        agent, _ = agent_of(["Done."], [McpServer("p", asks=False, url=server.url)])
        (note,) = (await agent.run("Go.")).notes
        assert ("it speaks the former transport HTTP+SSE" in note) is events
