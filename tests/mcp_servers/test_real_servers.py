"""Real MCP servers, pinned and unpatched: what a user would connect turnwise with first. They run in the lane `agents`."""

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from real_agents import places
from strangers import agent_of, files_of, offered, results_of, texts_of
from turnwise import Approval, Asking, McpServer, ToolProgress
from turnwise.testing import call
from waits import HANG_S

INSTALLED = places.INSTALLED / "mcp"
MODULES = INSTALLED / "node_modules" / "@modelcontextprotocol"
START_S = 60.0  # a busy machine

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not INSTALLED.exists(), reason="an MCP server is not installed: python scripts/mcp_servers.py"),
]


def node_server(name: str, folder: Path, *arguments: str, **options: Any) -> McpServer:
    """With the node of the dev group."""
    program = str(MODULES / f"server-{name}" / "dist" / "index.js")
    command = [str(places.node()), program, *arguments]
    where = {"folder": folder, "sandbox": False, "asks": False, "start_s": START_S, **options}
    return McpServer(name, command=command, **where)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    (tmp_path / "a.txt").write_text("hello\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "Say hello"], check=True)
    return tmp_path


async def test_everything_that_a_server_may_answer_becomes_parts(tmp_path: Path) -> None:
    """Text, an image, resources, links, structured content; each read by the model as that server's data."""
    calls = [
        call("everything__echo", message="hi"),
        call("everything__get-tiny-image"),
        call("everything__get-resource-reference", resourceType="Text", resourceId=1),
        call("everything__get-resource-links", count=2),
        call("everything__get-structured-content", location="Chicago"),
        call("everything__get-env"),
    ]
    resources = [
        call("everything__list_resources"),
        call("everything__read_resource", uri="demo://resource/dynamic/text/7"),
    ]
    agent, model = agent_of([calls, resources, "Done."], [node_server("everything", tmp_path)])
    result = await agent.run("Go.")
    echo, image, resource, links, structured, env, listed, read = texts_of(result)
    assert "hi" in echo
    assert [one.media_type for one in files_of(result)] == ["image/png"]
    assert "image" in image
    assert "[resource demo://resource" in resource
    assert links.count("[resource demo://resource") == 2
    assert "temperature" in structured
    assert "OPENAI_API_KEY" not in env
    assert "demo://resource" in listed
    assert "Resource 7" in read
    assert not any(one.is_error for one in results_of(result))
    assert len(offered(model, 0)) > 10


async def test_progress_cancel_and_prompts_of_a_real_server(tmp_path: Path) -> None:
    """Progress goes to the watchers; a turn that is cancelled ends at once; a prompt is filled in."""
    watched: list[Any] = []
    server = node_server("everything", tmp_path)
    long = call("everything__trigger-long-running-operation", duration=1, steps=4)
    endless = call("everything__trigger-long-running-operation", duration=600, steps=600)
    agent, _ = agent_of([[long], "Done.", [endless], "Done."], [server])
    async with agent:
        await agent.run("Go.", watch=watched.append)
        assert [one.line.split()[0] for one in watched if isinstance(one, ToolProgress)][-1] == "4/4"
        started = asyncio.Event()
        running = agent.start("Again.", watch=lambda seen: started.set() if isinstance(seen, ToolProgress) else None)
        async with asyncio.timeout(HANG_S):
            await started.wait()
        running.interrupt()
        assert (await running).stop_reason.value == "cancelled"
        assert "Boston" in await server.prompt("args-prompt", {"city": "Boston"})


async def test_a_real_server_asks_a_person(tmp_path: Path) -> None:
    """Its form becomes one question for each field; what was said arrives."""
    asked: list[str] = []

    async def approve(asking: Asking) -> Sequence[Approval]:
        (ask,) = asking.asks
        asked.append(ask.subject)
        field = ask.subject.split("\n")[1].partition(":")[0].partition(" ")[0]
        said = {"name": "Ada", "check": "yes"}.get(field, "")
        return [Approval(call_id=ask.call.id, verdict="allow", text=said)]

    agent, _ = agent_of(
        [[call("everything__trigger-elicitation-request")], "Done."],
        [node_server("everything", tmp_path)],
        safety={"approver": approve},
    )
    (told,) = texts_of(await agent.run("Ask."))
    assert asked
    assert "Ada" in told


async def test_the_file_server_reads_and_writes_in_its_folder(tmp_path: Path) -> None:
    """And refuses what lies outside; its word for that is an error of the call."""
    calls = [
        call("filesystem__write_file", path=str(tmp_path / "b.txt"), content="hello"),
        call("filesystem__read_text_file", path="/etc/hostname"),
    ]
    then = [call("filesystem__read_text_file", path=str(tmp_path / "b.txt"))]
    agent, _ = agent_of([calls, then, "Done."], [node_server("filesystem", tmp_path, str(tmp_path))])
    result = await agent.run("Go.")
    written, refused, read = results_of(result)
    assert (written.is_error, refused.is_error, read.is_error) == (False, True, False)
    assert "hello" in texts_of(result)[2]
    assert (tmp_path / "b.txt").read_text() == "hello"


async def test_the_git_server_tells_a_repository(repository: Path) -> None:
    """A server in Python, of another version of the protocol's library than ours."""
    program = INSTALLED / "python" / "bin" / "mcp-server-git"
    server = McpServer("git", command=[str(program)], folder=repository, sandbox=False, asks=False, start_s=START_S)
    calls = [call("git__git_log", repo_path=str(repository)), call("git__git_status", repo_path=str(repository))]
    agent, _ = agent_of([calls, "Done."], [server])
    log, status = texts_of(await agent.run("Go."))
    assert "Say hello" in log
    assert "main" in status
