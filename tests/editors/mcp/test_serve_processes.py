"""`turnwise mcp serve` as a process of its own, as a client starts it: what it writes, what it refuses, and how it ends."""

import asyncio
import json
import os
import pty
import select
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from editors.acp.editor import written
from editors.mcp.serving import RawClient, call, started
from terminal.conftest import TELL_ENV
from terminal.forking import Process
from terminal.running import Cli, at, begin, end, running_lab
from terminal.test_processes import wait_until
from turnwise.base.own_pipes import INVALID_REQUEST, MAX_ID, MAX_LINE_BYTES, PARSE_ERROR
from turnwise.base.processes import DEPTH
from turnwise.base.programs import OWN_PYTHON
from turnwise.lab import Lab
from waits import HANG_S

LOOSE = ("--allow", "bash", "--no-sandbox", "--no-environment")


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def name_server(folder: Path, program: str, *words: str, more: str = "") -> None:
    """The user's own file names a server that is this program of Python, apart from the folder."""
    place = folder.parent / "apart" / "server.py"
    place.parent.mkdir()
    place.write_text(program)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.parent.mkdir(parents=True)
    command = json.dumps([OWN_PYTHON, "-I", "-S", str(place), *words])
    settings.write_text(f"[mcp.s]\ncommand = {command}\nsandbox = false\n{more}\n")


@pytest.mark.costly
async def test_the_official_client_runs_and_decodes_over_pipes(lab: Lab, folder: Path) -> None:
    """With its usual settings, and the folder by its path with a blank and an umlaut."""
    words = [
        "-m",
        "turnwise",
        "mcp",
        "serve",
        *at(lab, "read-edit-answer"),
        "--allow",
        "write",
        "--root",
        str(folder.parent),
    ]
    there = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with Client(stdio_client(there)) as client:
        ran = await call(client, "run", {"prompt": "Set it.", "folder": folder.name})
        decoded = await call(client, "decode", {"stream": '{"choices": []}', "family": "openai_chat"})
    assert not ran.is_error and (folder / "notes.txt").read_text() == "status: done\n"
    assert decoded.structured_content["tool_calls"] == []


async def begun(client: RawClient, folder: Path) -> int:
    """A run whose command is at work: its process."""
    await client.hello()
    await client.begin(1, "run", prompt="Run it.")
    await written(folder / "begun.txt")
    return int((folder / "begun.txt").read_text())


@pytest.mark.parametrize("way", ["closes", "SIGTERM", "SIGINT"])
async def test_nothing_is_left_running_once_the_client_is_gone(lab: Lab, folder: Path, way: str) -> None:
    """Its input is closed, as when it dies, or a signal comes: the command has ended before the server, with 0."""
    async with started(*at(lab, "slow-bash"), *LOOSE, folder=folder) as client:
        pid = await begun(client, folder)
        if way == "closes":
            client.leave()
        else:
            client.process.send_signal(signal.Signals[way])
        assert await client.ended() == (0, b"")
    assert not is_there(pid)


async def test_cancel_ends_a_runs_mcp_server(lab: Lab, folder: Path) -> None:
    """One that hangs at its start: the client's notification ends it, and the server goes on."""
    hangs = "import os, sys\nopen('begun.txt', 'w').write(f'{os.getpid()}\\n')\nsys.stdin.read()\n"
    name_server(folder, hangs, more="start_s = 80000")
    async with started(*at(lab, "plain-answer"), folder=folder) as client:
        pid = await begun(client, folder)
        await client.send(method="notifications/cancelled", params={"requestId": 1})
        await asyncio.to_thread(wait_until, lambda: not is_there(pid))
        await client.send(id=2, method="tools/list")
        assert len((await client.answer(2))["result"]["tools"]) == 2
    assert lab.count() == 0


async def test_no_progress_is_told_where_no_token_was_given(lab: Lab, folder: Path) -> None:
    """And with one, under that token, before the result; nothing else is written to standard output."""
    async with started(*at(lab, "read-edit-answer"), folder=folder) as client:
        await client.hello()
        await client.begin(1, "run", prompt="Go.")
        await client.answer(1)
        assert [one["id"] for one in client.told] == ["hello", 1]
        await client.begin(2, "run", prompt="Go.", meta={"progressToken": "p"})
        await client.answer(2)
        tokens = {one["params"]["progressToken"] for one in client.told[2:-1]}
        methods = {one["method"] for one in client.told[2:-1]}
    assert (tokens, methods) == ({"p"}, {"notifications/progress"})


async def test_lines_that_are_no_messages_are_answered_and_cost_nothing_more(lab: Lab, folder: Path) -> None:
    """Too long (with its id, where that is at one of its ends), no JSON, nested without end, a duplicate id."""
    async with started(*at(lab, "fault-silence"), folder=folder) as client:
        await client.hello()
        much = b"x" * (MAX_LINE_BYTES + 1)
        for line, id in (
            (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"a":"' + much + b'"}}', 7),
            (b'{"method":"tools/call","params":{"a":"' + much + b'"},"jsonrpc":"2.0","id":"seven"}', "seven"),
            (much, None),
            (b"print", None),
            (b"[" * 100_000, None),
        ):
            client.send_line(line)
            refused = await client.next()
            assert (refused["id"], "error" in refused) == (id, True)
        await client.begin(8, "run", prompt="Go.")
        await client.begin(8, "run", prompt="Go.")
        assert "a request with this id is open" in (await client.answer(8))["error"]["message"]
        await client.send(id=9, method="tools/list")
        assert "result" in await client.answer(9)


async def test_a_request_without_a_usable_id_gets_an_error_and_the_server_goes_on(lab: Lab, folder: Path) -> None:
    """Proves: the protocol's library takes it for a notification, which nobody answers; now its sender learns what is wrong."""
    async with started(*at(lab, "plain-answer"), folder=folder) as client:
        await client.hello()
        for id in (True, None, 1.5, 1e300, [], {"a": 1}):
            await client.send(id=id, method="tools/list")
            refused = await client.next()
            assert (refused["id"], refused["error"]["code"]) == (None, INVALID_REQUEST)
            assert refused["error"]["message"] == "`id` must be a text or a whole number"
        client.send_line(b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":NaN}}')
        await client.send(method="notifications/roots/list_changed")  # without an id it is none, and is not answered
        await client.send(id=9, method="tools/list")
        assert (await client.next())["id"] == 9


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":[]}', 5, INVALID_REQUEST),
        (b'{"id":"five","method":"tools/list"}', "five", INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":5,"result":7}', None, INVALID_REQUEST),
        (b'[{"jsonrpc":"2.0","id":5,"method":"tools/list"}]', None, INVALID_REQUEST),
        (b'{"jsonrpc":"2.0","id":5', None, PARSE_ERROR),
        (b'{"a":' * 100_000, None, PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":"%s","method":"tools/list"}' % (b"x" * (MAX_ID + 1)), None, INVALID_REQUEST),
    ],
    ids=["params are no table", "no version", "an answer", "a batch", "cut", "nested without end", "an endless id"],
)
async def test_a_broken_request_is_refused_by_its_id(
    lab: Lab, folder: Path, line: bytes, id: int | str | None, code: int
) -> None:
    """An answer of the client's is not: the id there is ours, and the client may have a request of the same number open."""
    async with started(*at(lab, "plain-answer"), folder=folder) as client:
        await client.hello()
        client.send_line(line)
        refused = await client.next()
    assert (refused["id"], refused["error"]["code"]) == (id, code)


def test_a_server_below_a_server_refuses(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, with 2, before anything else."""
    monkeypatch.setenv(DEPTH, "1")
    ran = cli("mcp", "serve")
    said = "turnwise: `TURNWISE_MCP_DEPTH` is set: a run of `turnwise mcp serve` has started this server"
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith(said) and ran.err.count("\n") == 1


@pytest.mark.parametrize("sandbox", [(), ("--no-sandbox",)], ids=["sandbox", "no-sandbox"])
async def test_the_depth_reaches_commands_and_mcp_servers(folder: Path, sandbox: tuple[str, ...]) -> None:
    """Whatever of the environment they get else; and an entry cannot take it away."""
    said = "import os\nopen('depth', 'w').write(os.environ.get('TURNWISE_MCP_DEPTH', 'none') + '\\n')\n"
    name_server(folder, said, more=f'env = {{ {DEPTH} = "0" }}')
    options = ("--allow", "bash", *sandbox)
    with running_lab([TELL_ENV]) as lab:
        async with started(*at(lab, "tell-env"), *options, folder=folder) as client:
            await client.hello()
            await client.begin(1, "run", prompt="Look.")
            told: dict[str, Any] = (await client.answer(1))["result"]["structuredContent"]
        bodies = [one.body for one in lab.requests]
    assert told["stop_reason"] == "answered" and f"{DEPTH}=1" in str(bodies[-1])
    assert (folder / "depth").read_text() == "1\n"


async def test_a_server_among_its_own_servers_is_told_of(lab: Lab, folder: Path) -> None:
    """The run goes without it, and its refusal stands in the result."""
    words = json.dumps([sys.executable, "-m", "turnwise", "mcp", "serve", *at(lab, "plain-answer")])
    name_server(folder, "")
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.write_text(f"[mcp.own]\ncommand = {words}\nsandbox = false\n")
    async with started(*at(lab, "plain-answer"), folder=folder) as client:
        await client.hello()
        await client.begin(1, "run", prompt="Go.")
        told = (await client.answer(1))["result"]["structuredContent"]
    assert told["stop_reason"] == "answered" and any("own" in note for note in told["notes"])


def test_a_file_is_no_client(folder: Path) -> None:
    """`turnwise mcp serve < file` says in one line how it is started."""
    with (folder / "notes.txt").open() as file:
        ran = end(begin("mcp", "serve", cwd=folder, stdin=file))
    said = "standard input is a file: an MCP client starts `turnwise mcp serve`, with pipes"
    assert (ran.code, ran.out, ran.err) == (2, "", f"turnwise: {said}\n")


def test_at_a_terminal_the_entry_of_a_client_is_shown(folder: Path) -> None:
    """One line, with the folder in it; Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    process = begin("mcp", "serve", "-m", "ollama:qwen3:8b", cwd=folder, stdin=theirs)
    line = read_line(process)
    process.send_signal(signal.SIGINT)
    ran = end(process)
    os.close(ours)
    os.close(theirs)
    words = ["mcp", "serve", "-m", "ollama:qwen3:8b", "--root", str(folder)]
    entry = json.loads(line[line.index("{") :])
    assert entry == {"mcpServers": {"turnwise": {"command": "turnwise", "args": words}}}
    assert ran.code in (0, 130) and (ran.out, ran.err.strip()) == ("", "")  # 130: it was not yet serving


def read_line(process: Process) -> str:
    """The first line of its standard error."""
    assert process.stderr is not None
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([process.stderr], [], [], HANG_S)[0], "nothing came"
        line += os.read(process.stderr.fileno(), 1)
    return line.decode()


def test_help_has_examples_and_exit_codes(cli: Cli) -> None:
    """And a typo in an option says which one was meant."""
    ran = cli("mcp", "serve", "--help")
    assert ran.code == 0 and '{"mcpServers": {"turnwise":' in ran.out and "Exit codes: 0" in ran.out
    typo = cli("mcp", "serve", "--rot", "x")
    assert typo.code == 2 and "--root" in typo.err
