"""An editor that is broken or means harm: it is bounded, told, and gains nothing that the rules did not allow."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from acp.exceptions import RequestError
from acp.helpers import resource_link_block, text_block
from acp.schema import PermissionOption, ToolCallUpdate

from editors.acp.editor import Editor, editing, given_at, new, pipes, say, written
from terminal.running import running_lab, script
from turnwise._version import __version__
from turnwise.base.clock import SystemClock
from turnwise.base.own_pipes import MAX_ID, MAX_LINE_BYTES, MAX_OPEN_REQUESTS, SEND_S
from turnwise.editors.acp import service as pipe
from turnwise.editors.acp.service import FAILED, INVALID_PARAMS, MAX_ERROR_CHARACTERS, MAX_SESSIONS
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab
from turnwise.testing import FakeClock
from waits import HANG_S

TALKS = script("talks", f'[[steps]]\ntext = "{"word " * 400_000}"\n')
ODD = [
    b"no json",
    b"[]",
    b"[{}]",
    b'"text"',
    b"17",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"id":1}',
    b'{"jsonrpc":"2.0","id":true,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":[1],"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":1,"method":["initialize"]}',
    b'{"jsonrpc":"2.0","id":"%s","method":"initialize"}' % (b"x" * (MAX_ID + 1)),
    b'{"jsonrpc":"2.0","id":2,"method":"initialize","params":[1]}',
    b'{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"x"}}',
    b'{"jsonrpc":"2.0","id":4,"method":"session/new","params":{}}',
    b'{"jsonrpc":"2.0","id":5,"method":"no/such"}',
    b'{"jsonrpc":"2.0","id":6,"method":"_own"}',
    b'{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"x","prompt":"text"}}',
    b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":["x"]}}',
    b'{"jsonrpc":"2.0","method":"no/such"}',
    b'{"jsonrpc":"2.0","id":99,"result":{}}',
    b'{"jsonrpc":"2.0","id":[],"result":{}}',
    b'{"jsonrpc":"2.0","id":0,"error":"text"}',
    b'{"jsonrpc":"2.0","id":0,"error":{"code":"x","message":[]}}',
]
HELLO = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": {"protocolVersion": 1}}


class RawEditor:
    """Lines, and nothing that checks them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.seen: list[dict[str, Any]] = []

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        for line in lines:
            self._writer.write((line if isinstance(line, bytes) else msgspec.json.encode(line)) + b"\n")

    async def next(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._reader.readline(), HANG_S)
        assert line, "the agent has gone"
        self.seen.append(msgspec.json.decode(line, type=dict[str, Any]))
        return self.seen[-1]

    async def until(self, id: object) -> dict[str, Any]:
        """The message with this id, or of this method."""
        while True:
            message = await self.next()
            if message.get("id") == id or message.get("method") == id:
                return message

    async def request(self, id: int, method: str, **params: object) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        while True:
            answer = await self.until(id)
            if "method" not in answer:
                return answer


@pytest.fixture(scope="module")
def own_lab() -> Iterator[Lab]:
    with running_lab([TALKS]) as lab:
        yield lab


async def test_odd_messages_are_answered_and_the_next_one_is_served(
    lab: Lab, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each that has an id gets an error with it, any other that is no message one without; none ends the connection."""
    async with pipes(given_at(lab, "plain-answer")) as (reader, writer, serving):
        editor = RawEditor(reader, writer)
        editor.send(*ODD, HELLO)
        hello = await editor.until("hello")
        new = await editor.request(20, "session/new", cwd=str(folder), mcpServers=[])
        assert not serving.done()
    assert hello["result"]["agentInfo"] == {"name": "turnwise", "title": "turnwise", "version": __version__}
    can = hello["result"]["agentCapabilities"]
    assert can["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}
    assert can["loadSession"] and {"list", "fork", "resume", "close"} <= set(can["sessionCapabilities"])
    assert new["result"]["sessionId"]
    errors = [one for one in editor.seen if "error" in one]
    assert {one["id"] for one in errors} == {None, 2, 4, 5, 6, 7}
    assert max(len(msgspec.json.encode(one)) for one in errors) < 8000
    assert "Traceback" not in caplog.text


async def test_a_huge_message_is_refused_and_not_kept(lab: Lab, folder: Path) -> None:
    """It is thrown away as it comes; the session goes on."""
    async with pipes(given_at(lab, "plain-answer")) as (reader, writer, _):
        editor = RawEditor(reader, writer)
        sending = asyncio.create_task(_send_huge(writer))
        refused = await editor.until(None)
        await sending
        editor.send(HELLO)
        assert "result" in await editor.until("hello")
    assert f"more than {MAX_LINE_BYTES:,} bytes" in refused["error"]["message"]


async def _send_huge(writer: asyncio.StreamWriter) -> None:
    for _ in range(MAX_LINE_BYTES // 2**20 + 1):
        writer.write(b"x" * 2**20)
        await writer.drain()
    writer.write(b"\n")


async def test_a_flood_of_requests_is_bounded(lab: Lab, folder: Path) -> None:
    """So many are open at once, the others are refused at once; sessions have a bound of their own."""
    async with pipes(given_at(lab, "slow-bash", allow=("bash",))) as (reader, writer, _):
        editor = RawEditor(reader, writer)
        first = await editor.request(1, "session/new", cwd=str(folder), mcpServers=[])
        prompt = {"sessionId": first["result"]["sessionId"], "prompt": [{"type": "text", "text": "Run it."}]}
        flood = [{"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": prompt} for id in range(100, 400)]
        editor.send(*flood, *[b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}'] * 2000)
        while sum("error" in one for one in editor.seen) < 299:
            await editor.next()
        said = {one["error"]["message"] for one in editor.seen if "error" in one}
        assert said <= {
            "a turn of this session is running: wait for its end, or cancel it",
            f"{MAX_OPEN_REQUESTS} requests are open: wait for an answer",
        }
        for id in range(1000, 1000 + MAX_SESSIONS):
            last = await editor.request(id, "session/new", cwd=str(folder), mcpServers=[])
        assert last["error"]["message"] == f"{MAX_SESSIONS} sessions are open: close one first"


@pytest.mark.parametrize(
    "what", ["/", ".", "", "~", "a\0b", "/no/such", "notes.txt", "state", "config", "link", "x" * 5000]
)
async def test_a_folder_that_is_none_or_turnwises_own_is_refused(lab: Lab, folder: Path, what: str) -> None:
    """By its resolved path; for new sessions and for each that goes on."""
    state, config = Path(os.environ["TURNWISE_STATE_DIR"]), Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise"
    (state / "changes").mkdir(parents=True)
    config.mkdir(parents=True)
    (folder / "link").symlink_to(state / "changes")
    places = {
        "notes.txt": str(folder / "notes.txt"),
        "state": str(state),
        "config": str(config),
        "link": str(folder / "link"),
    }
    cwd = places.get(what, what)
    async with editing(given_at(lab, "plain-answer")) as (client, _):
        with pytest.raises(RequestError, match="`cwd` is"):
            await client.new_session(cwd=cwd, mcp_servers=[])
        session = await new(client, folder)
        await say(client, session, "Hello.")
        with pytest.raises(RequestError, match="`cwd` is"):
            await client.load_session(cwd=cwd, session_id=session, mcp_servers=[])
        with pytest.raises(RequestError, match="`cwd` is"):
            await client.fork_session(cwd=cwd, session_id=session, mcp_servers=[])
        with pytest.raises(RequestError, match="one folder"):
            await client.new_session(cwd=str(folder), mcp_servers=[], additional_directories=["/etc"])


async def test_sessions_that_are_not_there_are_said_so(lab: Lab, folder: Path) -> None:
    """A part of an id names none, which the command line takes; nor does a word with odd characters."""
    async with editing(given_at(lab, "plain-answer")) as (client, _):
        session = await new(client, folder)
        await say(client, session, "Hello.")
        for id in (session[:8], session[-8:], "", "../x", "x" * 5000, "\x1b[2J"):
            with pytest.raises(RequestError, match="session"):
                await client.load_session(cwd=str(folder), session_id=id, mcp_servers=[])
            with pytest.raises(RequestError, match="is not open"):
                await say(client, id, "Hello.")
        for cursor in ("1; drop table", "1000000", "-1", ""):
            with pytest.raises(RequestError, match="cursor"):
                await client.list_sessions(cursor=cursor)


async def test_links_lead_nowhere_that_would_be_asked_about(lab: Lab, folder: Path) -> None:
    """Outside of the folder, by `..`, by a link, encoded, or of another scheme: nothing of it reaches the model."""
    outside = folder.parent / "outside.txt"
    outside.write_text("hush-5678\n")
    (folder / "in").symlink_to(outside)
    uris = [
        outside.as_uri(),
        f"{folder.as_uri()}/../outside.txt",
        f"{folder.as_uri()}/%2e%2e/outside.txt",
        f"{folder.as_uri()}/in",
        "file://otherhost/etc/passwd",
        "file:///etc/passwd%00.txt",
        "file:///proc/self/environ",
        "http://[broken",
        'file:///a"b',
    ]
    blocks = [text_block("Look at"), *[resource_link_block("x", uri) for uri in uris]]
    async with editing(given_at(lab, "plain-answer")) as (client, _):
        await asyncio.wait_for(client.prompt(session_id=await new(client, folder), prompt=blocks), HANG_S)
    body = lab.requests[-1].body.decode()
    assert "hush-5678" not in body and "root:" not in body and "TURNWISE_STATE_DIR" not in body


@pytest.mark.parametrize("chosen", ["allow", "allow_always", "", "allow-always-all", "allow-once ", None])
async def test_an_answer_that_was_not_offered_is_a_no(lab: Lab, folder: Path, chosen: str | None) -> None:
    """Nothing but an id of this very ask counts as a yes."""

    async def decide(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        return chosen

    editor = Editor()
    editor.decide = decide
    async with editing(given_at(lab, "read-edit-answer"), editor=editor) as (client, editor):
        assert (await say(client, await new(client, folder), "Set it.")).stop_reason == "end_turn"
    assert len(editor.asked) == 1 and (folder / "notes.txt").read_text() == "status: draft\n"


async def test_answers_to_other_asks_and_before_the_ask_count_for_nothing(lab: Lab, folder: Path) -> None:
    """A yes under the id that the ask will have, sent before it, and yeses under other ids while it is open."""
    yes = {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
    async with pipes(given_at(lab, "read-edit-answer")) as (reader, writer, _):
        editor = RawEditor(reader, writer)
        editor.send(HELLO, *[{"jsonrpc": "2.0", "id": id, "result": yes} for id in range(20)])
        session = (await editor.request(1, "session/new", cwd=str(folder), mcpServers=[]))["result"]["sessionId"]
        prompt = [{"type": "text", "text": "Set it."}]
        editor.send(
            {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}}
        )
        ask = await editor.until("session/request_permission")
        others = [id for id in range(20) if id != ask["id"]]
        editor.send(*[{"jsonrpc": "2.0", "id": id, "result": yes} for id in others])
        editor.send({"jsonrpc": "2.0", "id": ask["id"], "result": {"outcome": {"outcome": "yes, all"}}})
        answer = await editor.until(2)
    assert answer["result"]["stopReason"] == "end_turn"
    assert (folder / "notes.txt").read_text() == "status: draft\n"


async def test_a_project_that_the_editor_opens_widens_nothing(lab: Lab, folder: Path) -> None:
    """Its file allows everything; the call is asked about all the same, and a denial of the user's holds in every mode."""
    (folder / "turnwise.toml").write_text('[permissions]\nrules = [{ allow = "*", effect = "write" }]\n')
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise"
    place.mkdir(parents=True)
    async with editing(given_at(lab, "read-edit-answer")) as (client, editor):
        await say(client, await new(client, folder), "Set it.")
        assert len(editor.asked) == 1
        (folder / "notes.txt").write_text("status: draft\n")
        (place / "turnwise.toml").write_text(
            '[permissions]\nrules = [{ deny = "*", path = "notes.txt", effect = "write" }]\n'
        )
        session = await new(client, folder)
        await client.set_session_mode(session_id=session, mode_id="edits")
        await say(client, session, "Set it.")
    assert len(editor.asked) == 1 and (folder / "notes.txt").read_text() == "status: draft\n"


async def test_fields_in_meta_reach_nothing(lab: Lab, folder: Path) -> None:
    """The library hands what stands in `_meta` to its handlers as further fields: here it would change the prompt."""
    async with pipes(given_at(lab, "plain-answer")) as (reader, writer, _):
        editor = RawEditor(reader, writer)
        other = {"cwd": "/", "self": 1, "session_id": "other", "prompt": "no list"}
        new = await editor.request(1, "session/new", cwd=str(folder), mcpServers=[], _meta=other)
        prompt = [{"type": "text", "text": "Hello.", "_meta": other}]
        answer = await editor.request(
            2, "session/prompt", sessionId=new["result"]["sessionId"], prompt=prompt, _meta=other
        )
    assert answer["result"]["stopReason"] == "end_turn"


async def test_an_editor_that_dies_in_mid_turn_ends_the_turn_and_its_command(lab: Lab, folder: Path) -> None:
    """The command is ended, the journal says `cancelled`, and the process has nothing left to do."""
    async with pipes(given_at(lab, "slow-bash", allow=("bash",), no_sandbox=True)) as (reader, writer, serving):
        editor = RawEditor(reader, writer)
        session = (await editor.request(1, "session/new", cwd=str(folder), mcpServers=[]))["result"]["sessionId"]
        prompt = [{"type": "text", "text": "Run it."}]
        editor.send(
            {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}}
        )
        begun = folder / "begun.txt"
        await written(begun)
        writer.transport.abort()
        await asyncio.wait_for(serving, HANG_S)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        assert [turn.stop_reason for turn in journal.find_session(session).turns] == ["cancelled"]


@pytest.mark.costly
async def test_an_editor_that_reads_nothing_is_given_up(own_lab: Lab, folder: Path) -> None:
    """After the pipe is full, within a deadline of the clock: the turn ends, and so does the connection."""
    clock = FakeClock()
    async with pipes(given_at(own_lab, "talks"), clock=clock) as (reader, writer, serving):
        editor = RawEditor(reader, writer)
        session = (await editor.request(1, "session/new", cwd=str(folder), mcpServers=[]))["result"]["sessionId"]
        prompt = [{"type": "text", "text": "Talk."}]
        cast("asyncio.ReadTransport", writer.transport).pause_reading()
        editor.send(
            {"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": {"sessionId": session, "prompt": prompt}}
        )
        await asyncio.wait_for(clock.until_waiting(SEND_S), HANG_S)
        await clock.advance(SEND_S)
        await asyncio.wait_for(serving, HANG_S)


def test_an_error_keeps_its_code_and_a_short_message() -> None:
    """Proves: an editor's error is read by its code, and one of ours that is too long or cannot be written goes out with code and
    message alone; the codes are those of JSON-RPC."""
    refused: dict[str, object] = {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": -32001, "message": "no " * MAX_ERROR_CHARACTERS},
    }
    read = pipe._response(refused)
    assert read == {
        **refused,
        "error": {"code": -32001, "message": ("no " * MAX_ERROR_CHARACTERS)[:MAX_ERROR_CHARACTERS]},
    }
    for data in ("x" * MAX_ERROR_CHARACTERS, {"\udc80"}):
        told = msgspec.json.decode(pipe._encoded({**refused, "error": {"code": -1, "data": data}}))
        assert told == {**refused, "error": {"code": -1, "message": ""}}
    assert (INVALID_PARAMS, FAILED) == (-32602, -32603)
