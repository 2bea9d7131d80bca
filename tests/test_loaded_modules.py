"""What each way of starting loads: no clock is looked at, but each module that comes in by mistake costs its milliseconds."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.served_gateway import served_gateway
from terminal.running import running_lab
from waits import HANG_S

IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)
# Of path files of installers; and what Python itself tries (`pickle` does, for Jython).
PYTHONS = {"_distutils_hack", "_virtualenv", "sitecustomize", "usercustomize", "org"}
OF_THE_PROGRAM = ["turnwise.terminal.exit_codes", "turnwise.terminal.main"]
TURNWISE = ("-c", "import sys; from turnwise.terminal.main import main; sys.argv[0] = 'turnwise'; main()")


def started(*args: str, folder: Path, listens: bool = False) -> "subprocess.Popen[str]":
    """A fresh process that tells each module that it has imported."""
    env = {"HOME": str(folder), "OPENAI_API_KEY": "sk-test-0123456789", "TURNWISE_STATE_DIR": str(folder / "state")}
    return subprocess.Popen(
        [sys.executable, "-X", "importtime", *args],
        stdin=subprocess.PIPE if listens else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=env,
    )


def imported(*args: str, folder: Path) -> set[str]:
    """The modules that a process has loaded, or tried to, by its end."""
    process = started(*args, folder=folder)
    _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, told[-2000:]
    return set(IMPORTED.findall(told))


def test_nothing_but_turnwise_is_loaded_before_ctrl_c_is_heard() -> None:
    """Issue 15: Ctrl-C at the start ended with a traceback at `import re`, which `typing` brings, outside of the `try`."""
    code = "import sys; old = {*sys.modules}; import turnwise.terminal.main; print(*sorted({*sys.modules} - old))"
    sources = str(Path(__file__).resolve().parents[1] / "src")
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    ours = ["turnwise", "turnwise._version", "turnwise.terminal", *OF_THE_PROGRAM]
    assert ran.stdout.split() == ours


def imported_until_request(args: Sequence[str], *, folder: Path, asks: Sequence[tuple[str, object]] = ()) -> set[str]:
    """The modules that a process has loaded when its first request has wholly arrived: it is killed then. An editor's agent is
    asked for these first, and then to go on in the session that it has opened."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(HANG_S)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        process = started(*TURNWISE, *args, "--base-url", url, folder=folder, listens=bool(asks))
        told: list[str] = []
        assert process.stderr is not None and process.stdout is not None
        reader = threading.Thread(target=lambda stream: told.append(stream.read()), args=(process.stderr,))
        reader.start()
        try:
            prompt_after(asks, process=process)
            connection, _ = server.accept()
            with connection:
                connection.settimeout(HANG_S)
                read_request(connection)
                process.kill()
        finally:
            process.kill()
            process.wait(HANG_S)
            reader.join(HANG_S)
            process.stdout.close()
            process.stderr.close()
            if process.stdin is not None:
                process.stdin.close()
    return set(IMPORTED.findall(told[0]))


def prompt_after(asks: Sequence[tuple[str, object]], *, process: "subprocess.Popen[str]") -> None:
    """Give a prompt, once each of these has an answer; the last of them opens the session."""
    if not asks:
        return
    assert process.stdin is not None and process.stdout is not None
    session = ""
    for id, (method, params) in enumerate(asks):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = {}
        while answer.get("id") != id:
            answer = json.loads(process.stdout.readline())
        session = answer["result"].get("sessionId", "")
    prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Hello."}]}
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": prompt}) + "\n")
    process.stdin.flush()


def read_request(connection: socket.socket) -> None:
    got = b""
    while True:
        head, blank, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if blank and length is not None and len(body) >= int(length[1]):
            return
        piece = connection.recv(65536)
        assert piece, "the connection ended within its request"
        got += piece


def strangers(modules: set[str]) -> set[str]:
    """The packages among them that are neither Python's nor turnwise's."""
    packages = {name.partition(".")[0] for name in modules}
    return packages - sys.stdlib_module_names - PYTHONS - {"turnwise", "__editable__"}


def rooms(modules: set[str]) -> set[str]:
    return {name for name in modules if name.startswith("turnwise")}


def test_importing_turnwise_loads_its_version(tmp_path: Path) -> None:
    """And nothing else of ours, and nobody else's."""
    found = imported("-c", "import turnwise", folder=tmp_path)
    assert (rooms(found), strangers(found)) == ({"turnwise", "turnwise._version"}, set())
    assert not found & {"asyncio", "logging", "ssl", "inspect", "json", "decimal"}


def test_an_agent_loads_msgspec_only(tmp_path: Path) -> None:
    """`from turnwise import Agent, tool`; of Python's own nothing that only some runs need; no family's codec."""
    found = imported("-c", "from turnwise import Agent, tool", folder=tmp_path)
    assert strangers(found) == {"msgspec", "typing_extensions"}
    assert not found & {"tomllib", "importlib.resources", "email.utils", "shutil", "tempfile", "zipfile", "http.client"}
    assert not [
        name for name in found if re.match(r"turnwise\.(wire\.(openai|anthropic|gemini)|lab|testing|terminal)", name)
    ]


def test_the_version_is_told_without_a_loop_or_a_journal(tmp_path: Path) -> None:
    """`turnwise --version`."""
    found = imported(*TURNWISE, "--version", folder=tmp_path)
    assert strangers(found) == {"click", "msgspec", "typing_extensions"}
    assert {name.partition(".")[2].partition(".")[0] for name in rooms(found)} == {
        "",
        "_version",
        "coding_agent",
        "errors",
        "terminal",
        "vocab",
    }
    assert not found & {"asyncio", "ssl", "sqlite3", "logging", "tomllib"}


@pytest.mark.parametrize("command", ["run", "chat"])
def test_help_is_shown_without_what_runs(tmp_path: Path, command: str) -> None:
    """`turnwise run --help`: the options' own modules, no event loop, no agent, no journal."""
    found = imported(*TURNWISE, command, "--help", folder=tmp_path)
    assert strangers(found) == {"click", "msgspec", "typing_extensions"}
    assert not found & {"asyncio", "ssl", "sqlite3", "logging", "tomllib", "turnwise.journal.journal"}
    what_runs = r"turnwise\.(running\.runner|tools\.(workspace|sandbox)|agent\.agent|wire)"
    assert not [name for name in found if re.match(what_runs, name)]


def test_a_run_loads_what_its_first_request_needs(tmp_path: Path) -> None:
    """`turnwise run` until its request has arrived: no prices, no pydantic, no parser of commands, no other family, nothing of a
    terminal."""
    found = imported_until_request(["run", "-m", "openai:gpt-5", "Hello."], folder=tmp_path)
    assert "aiohttp" in found and "turnwise.wire.openai_responses.request" in found
    heavy = {
        "genai_prices",
        "pydantic",
        "griffe",
        "rich",
        "prompt_toolkit",
        "tree_sitter",
        "tree_sitter_bash",
        "turnwise.tools.shell_judge.call_facts",
        "pydantic_monty",
    }
    assert not strangers(found) & heavy
    assert not found & {
        "turnwise.endpoints.local_servers",
        "turnwise.wire.model_lists",
        "turnwise.terminal.first_start",
    }
    assert not [name for name in found if re.match(r"turnwise\.wire\.(openai_chat|anthropic|gemini)", name)]


@pytest.mark.costly
def test_an_agent_of_editors_loads_what_its_first_request_needs(tmp_path: Path) -> None:
    """`turnwise acp` until a prompt's request has arrived: the protocol's library with pydantic, and what `run` needs; no prices,
    no parser of commands, nothing of a terminal, no other family, and nothing that only some sessions want."""
    hello = {"protocolVersion": 1, "clientCapabilities": {}}
    opens = {"cwd": str(tmp_path), "mcpServers": []}
    found = imported_until_request(
        ["acp", "-m", "openai:gpt-5"], folder=tmp_path, asks=[("initialize", hello), ("session/new", opens)]
    )
    assert {"acp", "pydantic", "aiohttp"} <= strangers(found) and "turnwise.wire.openai_responses.request" in found
    assert not strangers(found) & {
        "genai_prices",
        "griffe",
        "rich",
        "prompt_toolkit",
        "tree_sitter",
        "tree_sitter_bash",
        "pydantic_monty",
        "httpx",
        "websockets",
        "uvicorn",
        "mcp",
    }
    assert not found & {
        "acp.http",
        "acp.ws",
        "turnwise.replay.session_fork",
        "turnwise.editors.acp.slash_commands",
        "turnwise.gateway",
        "turnwise.terminal.conversation",
        "turnwise.coding_agent.undo_changes",
        "turnwise.terminal.first_start",
    }
    assert not [name for name in found if re.match(r"turnwise\.wire\.(openai_chat|anthropic|gemini)", name)]
    assert len([name for name in rooms(found) if name.startswith("turnwise.editors.acp")]) < 20
    assert len(rooms(found)) < 397


@pytest.mark.costly
def test_a_gateway_has_loaded_what_requests_need_before_it_says_that_it_listens(tmp_path: Path) -> None:
    """Proves: the first request held up all others for 0.5 s, the second for 0.15 s."""
    with (
        running_lab() as lab,
        served_gateway(tmp_path, "--quiet", upstream=f"{lab.url}/v1", env={"PYTHONPROFILEIMPORTTIME": "1"}) as gateway,
    ):
        gateway.get("/healthz")
        start = os.fstat(gateway.log.fileno()).st_size
        assert "aiohttp" in IMPORTED.findall(os.pread(gateway.log.fileno(), start, 0).decode())
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            for stream in (True, False):
                asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100, "stream": stream}
                if path == "/v1/responses":
                    asked = {"input": "hi", "stream": stream}
                for model in ("parallel-calls", "cut-call", "fault-once-429"):
                    assert gateway.ask(path, {"model": model, **asked}).read()
        gateway.process.terminate()
        gateway.process.wait(HANG_S)
        assert IMPORTED.findall(os.pread(gateway.log.fileno(), 10_000_000, start).decode()) == []


def test_the_judge_of_commands_may_be_loaded_before_the_workspace() -> None:
    """Each imports the other's package: the workspace once got the module `inspector` in place of its function."""
    code = "import turnwise.tools.shell_judge; from turnwise.tools.workspace.shell import inspector; inspector.__code__"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)
