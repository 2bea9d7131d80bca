"""Servers that mean harm: broken answers, floods, floods of questions, false addresses. Turns end, and say what was wrong."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from strangers import agent_of, offered, seen, stranger, texts_of, tool_named, until_seen
from turnwise import Approval, Asking, McpServer
from turnwise.settings.mcp_files import ServerAddress
from turnwise.testing import call
from turnwise.tools.mcp.elicitation import elicit
from turnwise.tools.mcp.protocol_repair import MAX_LEVELS
from turnwise.tools.mcp.transports import speaks_former_sse
from waits import HANG_S

ANSWER = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"%s"}]}}'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (ANSWER % "cut \\ud83d", "cut ?"),
        (ANSWER % "caf\xe9", "caf\ufffd"),
        (ANSWER.replace("ID", "ID.0") % "x", "x"),
        ('{"jsonrpc":"2.0","id":ID}', "its answer is no message of the protocol (without a result)"),
        ('{"jsonrpc":"2.0","id":ID,"result":', "its answer is no message of the protocol (no JSON)"),
    ],
    ids=["half an emoji", "no UTF-8", "number with a point", "no result", "cut"],
)
async def test_an_answer_that_breaks_the_protocol_ends_its_call_at_once(tmp_path: Path, line: str, told: str) -> None:
    """Proves: it is mended where that is sure, and else told; before, the call waited for its deadline without a reason."""
    server = stranger(tmp_path, tools=[tool_named("raw")], call_s=HANG_S)
    agent, _ = agent_of([[call("s__raw", line=line)], "Done."], [server])
    began_s = time.monotonic()
    (text,) = texts_of(await agent.run("Go."))
    assert time.monotonic() - began_s < HANG_S
    assert text.endswith(told)


async def test_an_answer_of_any_depth_or_with_any_number_of_parts_is_told(tmp_path: Path) -> None:
    """What is left out is counted rightly."""
    server = stranger(tmp_path, tools=[tool_named("deep"), tool_named("parts")])
    agent, _ = agent_of([[call("s__deep"), call("s__parts")], "Done."], [server])
    deep, parts = texts_of(await agent.run("Go."))
    assert deep.endswith("(nested too deeply)")
    assert "[... 910 parts left out ...]" in parts and parts.count("a part") == 90


async def test_arguments_of_any_depth_end_their_call_and_not_the_server(tmp_path: Path) -> None:
    """Proves: at 254 levels the message could be made and not be written, which ended the connection with its other calls."""
    calls: list[object] = []
    for levels in (MAX_LEVELS - 1, 252, 253, 254, 255, 400):
        value: object = "x"
        for _ in range(levels - 1):
            value = [value]
        calls.append(call("s__echo", line=value))
    agent, _ = agent_of([calls, "Done."], [stranger(tmp_path, tools=[tool_named("echo")], call_s=HANG_S)])
    result = await agent.run("Go.")
    first, *others = texts_of(result)
    assert first == "echo" and result.notes == ()
    assert others == [f"the arguments are nested more than {MAX_LEVELS} levels deep: send fewer levels"] * 5


@pytest.mark.promise("safe:bounded")
async def test_answers_to_calls_that_were_never_made_are_a_flood_too(tmp_path: Path) -> None:
    """Proves: such a server is ended like any other that floods; before, it kept the event loop busy for ever."""
    server = stranger(tmp_path, tools=[tool_named("answers")], call_s=HANG_S)
    agent, _ = agent_of([[call("s__answers")], "Done."], [server])
    result = await agent.run("Go.")
    assert "10,001 messages" in texts_of(result)[0]
    assert "10,001 messages" in result.notes[0]


async def test_names_of_any_length_are_left_out_and_told_in_a_line(tmp_path: Path) -> None:
    """Neither a note nor the file of what was trusted takes megabytes."""
    tools = [tool_named("x" * 100_000), *[tool_named(f"t{number}{'y' * 200}") for number in range(130)]]
    agent, model = agent_of(["Done."], [stranger(tmp_path, tools=tools)])
    result = await agent.run("Go.")
    assert len(offered(model, 0)) == 128 + 2
    assert "its name has 100,000 characters" in result.notes[0]
    assert len(result.notes[0]) < 1_000
    assert "\n" not in result.notes[0]


async def test_a_schema_of_any_depth_is_left_out(tmp_path: Path) -> None:
    """The other tools are offered."""
    schema: dict[str, object] = {"type": "object"}
    for _ in range(60):
        schema = {"type": "object", "properties": {"a": schema}}
    server = stranger(tmp_path, tools=[tool_named("deep", inputSchema=schema), tool_named("echo")])
    agent, model = agent_of(["Done."], [server])
    assert "nested more than 100 levels deep" in (await agent.run("Go.")).notes[0]
    assert offered(model, 0)[0] == "s__echo"


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(("verdict", "most"), [("allow", 40), ("deny", 3)])
async def test_a_person_is_not_asked_without_end(tmp_path: Path, verdict: str, most: int) -> None:
    """Proves: 40 questions in a call at most, and none after three times no; the server is told that nobody answered."""
    asked: list[str] = []

    async def approve(asking: Asking) -> Sequence[Approval]:
        asked.extend(ask.subject for ask in asking.asks)
        return [Approval(call_id=ask.call.id, verdict=verdict, text="yes") for ask in asking.asks]  # pyright: ignore[reportArgumentType]

    server = stranger(tmp_path, tools=[tool_named("ask_often")])
    agent, _ = agent_of([[call("s__ask_often")], "Done."], [server], safety={"approver": approve})
    (text,) = texts_of(await agent.run("Go."))
    word = "accept" if verdict == "allow" else "decline"
    assert len(asked) == most
    assert text.split() == [word] * most + ["cancel"] * (60 - most)


async def test_only_addresses_of_the_web_are_shown_to_a_person(tmp_path: Path) -> None:
    """`file:` and the like are refused without a question."""
    asked: list[str] = []

    async def approve(asking: Asking) -> Sequence[Approval]:
        asked.extend(ask.subject for ask in asking.asks)
        return [Approval(call_id=ask.call.id, verdict="allow", text="yes") for ask in asking.asks]

    calls = [call("s__ask_url", url=url) for url in ("file:///etc/passwd", "https://h.example/consent")]
    server = stranger(tmp_path, tools=[tool_named("ask_url")])
    agent, _ = agent_of([*[[one] for one in calls], "Done."], [server], safety={"approver": approve})
    assert texts_of(await agent.run("Go.")) == ["cancel", "accept"]
    assert len(asked) == 1
    assert "https://h.example/consent" in asked[0]


async def test_a_server_that_hangs_at_its_start_ends_with_the_block(tmp_path: Path) -> None:
    """Nothing of it is left, and the end does not wait for its handshake."""
    server = stranger(tmp_path, "hangs", start_s=0.1)
    async with server:
        await until_seen(tmp_path, "hangs")
    assert seen(tmp_path)[-1] in ("hangs", "input ended")


# over HTTP


class Answering:
    """A server over HTTP that answers every request with the same bytes, over and over where it floods."""

    def __init__(self, answer: bytes, *, floods: bytes = b"") -> None:
        self._answer, self._floods = answer, floods
        self.requests: list[bytes] = []

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answered, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answer)
            await writer.drain()
            while self._floods:
                writer.write(self._floods)
                await writer.drain()
        writer.close()


def head(status: str, *more: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", "connection: close", *more, "", ""]).encode()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (head("401 Unauthorized", "content-length: 0"), "it answered with HTTP 401; are its headers right?"),
        (head("404 Not Found", "content-length: 0"), "it answered with HTTP 404; is its address right?"),
        (head("400 Bad Request", "content-length: 0"), "it answered with HTTP 400"),
        (head("500 No", "content-length: 0"), "it answered with HTTP 500"),
        (head("200 OK", "content-encoding: gzip", "content-length: 0"), "it compressed its answer"),
        (head("200 OK", "content-type: text/html", "content-length: 0"), "Unexpected content type: text/html"),
    ],
)
async def test_what_a_server_elsewhere_answered_is_told(answer: bytes, why: str) -> None:
    """Proves: the note says what was wrong, and shows nothing of the address or the headers."""
    async with Answering(answer).serve() as url:
        server = McpServer("s", url=f"{url}?key=very-secret", headers={"Authorization": "Bearer very-secret"})
        agent, _ = agent_of(["Done."], [server])
        (note,) = dict.fromkeys((await agent.run("Go.")).notes)
    assert why in note
    assert "very-secret" not in note and "redirect" not in note


async def test_no_redirect_is_followed() -> None:
    """The headers are for the address that the user named."""
    other = Answering(head("200 OK", "content-length: 0"))
    async with other.serve() as elsewhere:
        moved = Answering(head("307 Moved", f"location: {elsewhere}", "content-length: 0"))
        async with moved.serve() as url:
            agent, _ = agent_of(["Done."], [McpServer("s", url=url, headers={"Authorization": "Bearer x"})])
            result = await agent.run("Go.")
            headers = {"Authorization": "Bearer x"}
            assert not await speaks_former_sse(
                ServerAddress(url=url, headers=headers)
            )  # asked where the first was refused
    assert "HTTP 307; it redirects, and no redirect is followed" in result.notes[0]
    assert (len(moved.requests) > 0, other.requests) == (True, [])


NOTIFICATION = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n\n'


FLOODS = [b": x\n" * 10_000, NOTIFICATION * 500, NOTIFICATION.replace(b"\n", b"\r") * 500]


@pytest.mark.costly
@pytest.mark.parametrize("flood", FLOODS, ids=["comments", "notifications", "other line ends"])
async def test_a_flood_of_events_ends_the_connection(flood: bytes) -> None:
    """Comments count as messages."""
    flooding = Answering(head("200 OK", "content-type: text/event-stream"), floods=flood)
    async with flooding.serve() as url:
        agent, _ = agent_of(["Done."], [McpServer("s", url=url)])
        result = await agent.run("Go.")
    assert result.text == "Done."
    assert "that nobody had asked for within 10 s, so it was ended" in result.notes[0]


@pytest.mark.promise("safe:bounded")
async def test_a_body_without_an_end_ends_the_connection() -> None:
    """It is not read for as long as a server has to start."""
    flooding = Answering(head("200 OK", "content-type: application/json"), floods=b" " * 2**20)
    async with flooding.serve() as url:
        agent, _ = agent_of(["Done."], [McpServer("s", url=url, start_s=HANG_S)])
        result = await agent.run("Go.")
    assert result.text == "Done."
    assert "it sent a message of more than 33,554,432 bytes" in result.notes[0]


class Absent:
    """Nobody is there: a default answers, and says yes."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        self.asked.append(question)
        return Approval(call_id="", verdict="allow", by="default", text="yes")


@pytest.mark.parametrize(
    "params",
    [
        ElicitRequestFormParams(message="Pay?", requested_schema={"type": "object", "properties": {}}),
        ElicitRequestFormParams(
            message="Pay?", requested_schema={"type": "object", "properties": {"sure": {"type": "boolean"}}}
        ),
        ElicitRequestURLParams(message="Pay?", url="https://example.org/pay", elicitation_id="1"),
    ],
    ids=["yes or no", "a field", "an address"],
)
async def test_what_nobody_answered_is_accepted_for_nobody(params: ElicitRequestParams) -> None:
    """An `allow` that a default gave is no person's word: the server hears `cancel`."""
    absent = Absent()
    assert await elicit(params, server="s", asker=absent) == ElicitResult(action="cancel")
    assert len(absent.asked) == 1
