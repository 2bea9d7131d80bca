"""`turnwise acp` as a process of its own, as an editor starts it."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from acp.client.connection import ClientSideConnection
from acp.schema import ClientCapabilities

from editors.acp.editor import Editor, new, say, written
from terminal.running import at
from turnwise.lab import Lab
from waits import HANG_S

PROGRAM = ("-c", "import sys; from turnwise.terminal.main import main; sys.argv[0] = 'turnwise'; main()")


async def started(*args: str, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *PROGRAM,
        "acp",
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ},
    )


@pytest.mark.costly
async def test_a_process_serves_a_session_and_ends_with_its_editor(lab: Lab, folder: Path) -> None:
    """Over its own pipes: standard output has nothing but messages; once its input is closed it ends with 0."""
    process = await started(*at(lab, "read-edit-answer"), folder=folder)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    editor: Any = Editor()
    client = ClientSideConnection(editor, process.stdin, process.stdout, use_unstable_protocol=True)
    await client.initialize(1, ClientCapabilities())
    answer = await say(client, await new(client, folder), "Set it.")
    await client.close()
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), HANG_S) == 0
    assert answer.stop_reason == "end_turn" and (folder / "notes.txt").read_text() == "status: done\n"
    assert await process.stderr.read() == b""


@pytest.mark.costly
async def test_sigterm_ends_a_turn_and_its_command(lab: Lab, folder: Path) -> None:
    """With 0, and nothing is left running."""
    process = await started(*at(lab, "slow-bash"), "--allow", "bash", "--no-sandbox", folder=folder)
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    editor: Any = Editor()
    client = ClientSideConnection(editor, process.stdin, process.stdout, use_unstable_protocol=True)
    await client.initialize(1, ClientCapabilities())
    turn = asyncio.create_task(say(client, await new(client, folder), "Run it."))
    begun = folder / "begun.txt"
    await written(begun)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), HANG_S) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    with pytest.raises(ConnectionError):
        await turn
    await client.close()


@pytest.mark.costly
async def test_an_editor_that_closes_the_output_alone_ends_the_process(lab: Lab, folder: Path) -> None:
    """It can be told nothing any more, so the turn and its command end, though it still holds the input open."""
    mine, theirs = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *PROGRAM,
        "acp",
        *at(lab, "tells-its-end"),
        "--allow",
        "bash",
        "--no-sandbox",
        stdin=asyncio.subprocess.PIPE,
        stdout=theirs,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=folder,
    )
    os.close(theirs)
    assert process.stdin is not None
    reader = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(mine, "rb", buffering=0)
    )
    editor: Any = Editor()
    client = ClientSideConnection(editor, process.stdin, reader, use_unstable_protocol=True)
    await client.initialize(1, ClientCapabilities())
    turn = asyncio.create_task(say(client, await new(client, folder), "Run it."))
    begun = folder / "begun.txt"
    await written(begun)
    pipe.close()
    assert await asyncio.wait_for(process.wait(), HANG_S) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    assert not (folder / "ended.txt").exists()
    with pytest.raises(ConnectionError):
        await turn
    await client.close()


@pytest.mark.costly
def test_a_file_is_no_editor(folder: Path) -> None:
    """`turnwise acp < file` says in one line how it is started."""
    import subprocess

    with (folder / "notes.txt").open() as file:
        ran = subprocess.run(
            [sys.executable, *PROGRAM, "acp"], stdin=file, capture_output=True, text=True, timeout=HANG_S, check=False
        )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "turnwise: standard input is a file: an editor starts `turnwise acp`, with pipes\n"


@pytest.mark.costly
def test_a_device_is_no_editor() -> None:
    """`turnwise acp < /dev/null` ends with a line; before, it hung behind a traceback of the event loop."""
    import subprocess

    ran = subprocess.run(
        [sys.executable, *PROGRAM, "acp"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    said = "standard input is a device such as `/dev/null`: an editor starts `turnwise acp`, with pipes"
    assert ran.stderr == f"turnwise: {said}\n"
