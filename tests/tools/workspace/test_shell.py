"""The tool `bash` in each sandbox of this machine: what it says, what it leaves behind, and how it ends."""

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxes import EVERY, PYTHON, Held, sandbox_called
from thoroughness import examples
from turnwise.errors import ToolFault
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.output import Tape
from turnwise.tools.workspace.shell import BashArguments, Shell
from waits import HANG_S


@pytest.fixture(params=EVERY)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    root = tmp_path / "root"
    root.mkdir()
    return Shell(root, sandbox=sandbox_called(request.param), hidden_env=frozenset({"LC_HIDDEN"}))


async def run(shell: Shell, command: str, *, timeout_s: int = int(HANG_S)) -> str:
    return await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=timeout_s)), HANG_S)


async def refused(shell: Shell, command: str, *, timeout_s: int = int(HANG_S)) -> str:
    with pytest.raises(ToolFault) as caught:
        await run(shell, command, timeout_s=timeout_s)
    return str(caught.value)


async def out_of_time(shell: Shell, command: str, *, said: str) -> str:
    """What comes of a command that does not end within its time, which is a second, or on a slow machine as long as it needs to
    say that much."""
    told, timeout_s = "", 1
    while said not in told and timeout_s < HANG_S:
        told = await refused(shell, command, timeout_s=timeout_s)
        note = f"[timed out after {timeout_s} s; it and what it started were ended]"
        assert told.endswith(note), told
        told, timeout_s = told.removesuffix(note), timeout_s * 4
    return told


@pytest.fixture
def held(shell: Shell) -> Generator[Held]:
    held = Held(shell.root)
    yield held
    held.close()


async def test_bash_runs_in_the_folder(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output and errors together, no standard input, no secret, the exit code or the signal where it failed."""
    monkeypatch.setenv("LC_HIDDEN", "hidden")
    monkeypatch.setenv("LC_SHOWN", "shown")
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    assert await run(shell, "pwd; echo to-error >&2; cat") == f"{shell.root}\nto-error\n"
    assert await run(shell, "echo $LC_SHOWN-$LC_HIDDEN-$SOME_API_KEY") == "shown--\n"
    assert await run(shell, "true") == ""
    assert await refused(shell, "echo no; exit 3") == "no\n[exit code 3]"
    assert await refused(shell, "kill -9 $$") == "[exit code 137 (SIGKILL)]"
    assert await refused(shell, "kill -TERM $$") == "[exit code 143 (SIGTERM)]"
    assert await refused(shell, "exit 255") == "[exit code 255]"
    assert "NUL" in await refused(shell, "a\0b")


async def test_bytes_that_are_no_utf8_are_told(shell: Shell) -> None:
    """Shown as U+FFFD and counted in a note, as `read` does; a character that is one is none of them, and nothing failed."""
    told = "[bytes that are no UTF-8: 2, shown as \ufffd]"
    assert await run(shell, r"printf 'a\377b\300c\357\277\275\n'") == f"a\ufffdb\ufffdc\ufffd\n{told}"
    assert await refused(shell, r"printf 'a\377\300'; exit 3") == f"a\ufffd\ufffd\n[exit code 3]\n{told}"


async def test_command_has_only_its_own(shell: Shell) -> None:
    """No further file, no terminal, no child that it did not start; the signals are as usual; `wait` waits for its own only."""
    assert await run(shell, "ls /proc/self/fd | wc -l; wait; jobs; echo $#") == "4\n0\n"
    assert await run(shell, "pgrep -c -P $$ || true") == "0\n"
    assert await run(shell, "(echo > /dev/tty) 2>/dev/null || echo none") == "none\n"
    assert await run(shell, "grep -h -e SigIgn -e SigBlk /proc/self/status | tr -d '\\n\\t 0'") == "SigBlk:SigIgn:"
    assert await run(shell, "ulimit -c") == "0\n"
    assert 0 < int(await run(shell, "ulimit -u")) < 1_000_000


async def test_flood_keeps_both_ends_and_all_of_it_in_a_file(shell: Shell) -> None:
    """A megabyte becomes 48 KB and a note that names a file; a command can search that, and where confined not change it."""
    text = await run(shell, "echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert text.startswith("begin\nxxx") and text.endswith("xxx\nend\n") and len(text) < 50 * 1024
    file = shell.outputs / "bash-1.txt"
    assert f"bytes left out; all of it is in {file}: look there with grep or sed -n ...]" in text
    assert file.read_text() == "begin\n" + "x" * 1_000_000 + "\nend\n"
    assert await run(shell, f"tail -n 1 {file}") == "end\n"
    if shell.sandbox.files:
        await refused(shell, f"echo more >> {file}")
        await refused(shell, f"mv {shell.outputs} {shell.outputs}-2")
    assert file.stat().st_size == 1_000_011
    assert [path.name for path in shell.outputs.iterdir()] == ["bash-1.txt"]


async def test_out_of_time_is_ended_with_its_children(shell: Shell, held: Held) -> None:
    """What it had said is kept; a child that ignores the polite signal and one that left the session are gone."""
    command = (
        "exec 9>held; echo said; trap 'echo told' TERM;"
        "(trap '' TERM; while :; do sleep 0.05; done) & setsid sleep 1000 & wait; wait"
    )
    assert await out_of_time(shell, command, said="told") == "said\ntold\n"
    held.assert_ended()


@pytest.mark.promise("wait:cancel")
async def test_cancelled_command_leaves_no_process(shell: Shell, held: Held) -> None:
    """Cancelling settles, with all that it started, also what left the session."""
    running = asyncio.create_task(run(shell, "exec 9>held; setsid sh -c 'echo ready >&9; sleep 1000' & wait"))
    await asyncio.to_thread(held.wait_for, b"ready")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, HANG_S)
    held.assert_ended()


@pytest.mark.parametrize(
    "start",
    [
        "sleep 1000 &",
        "nohup sleep 1000 >/dev/null 2>&1 & disown",
        "setsid sleep 1000 &",
        "setsid --fork sh -c 'setsid --fork sleep 1000'",
        f"{PYTHON} -c 'import os, time\nif not os.fork():\n os.setsid()\n if not os.fork(): time.sleep(1000)'",
    ],
    ids=["background", "nohup", "setsid", "twice", "daemon"],
)
async def test_what_it_leaves_behind_is_ended_with_it(shell: Shell, held: Held, start: str) -> None:
    """A command is over when its first process is; what it left does not hold it up and does not go on."""
    assert await run(shell, f"exec 9>held\n{start}\necho done") == "done\n"
    held.assert_ended()


@pytest.mark.costly
async def test_many_processes_are_all_ended(shell: Shell, held: Held) -> None:
    """Hundreds, each in a session of its own, while more are being started."""
    command = (
        "exec 9>held; for i in $(seq 200); do setsid sleep 1000 & done; echo said;"
        "while :; do setsid sleep 0.1 & sleep 0.01; done"
    )
    assert await out_of_time(shell, command, said="said") == "said\n"
    held.assert_ended()


async def test_signal_to_its_own_group_stays_there(shell: Shell) -> None:
    """`kill 0` is what many a script's trap does; neither the sandbox's own processes nor we are in that group."""
    assert await refused(shell, "trap '' TERM; kill 0; echo on; kill -9 0") == "on\n[exit code 137 (SIGKILL)]"


@pytest.mark.promise("wait:cancel")
@pytest.mark.parametrize("waits", ["sleep 1000", "setsid sleep 1000 & sleep 1000 & wait"], ids=["one", "several"])
def test_killed_turnwise_leaves_no_command(shell: Shell, held: Held, tmp_path: Path, waits: str) -> None:
    """kill -9 of our process: nothing is tidied up by us, and yet the command ends with all that it started."""
    program = """
        import asyncio, sys
        from pathlib import Path
        from turnwise.tools.sandbox import find_sandbox
        from turnwise.tools.workspace.shell import BashArguments, Shell
        shell = Shell(Path.cwd(), sandbox=find_sandbox(wanted=sys.argv[1]))
        asyncio.run(shell.run(BashArguments(command=sys.argv[2])))
    """
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(program),
        shell.sandbox.kind,
        f"exec 9>held; echo ready >&9; {waits}",
    ]
    with subprocess.Popen(command, cwd=shell.root, env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
        held.wait_for(b"ready")
        process.kill()
        held.assert_ended()


async def test_missing_folder_is_told(shell: Shell) -> None:
    """Where the workspace has gone, the call fails with the reason."""
    shell.root.rmdir()
    assert "could not be" in await refused(shell, "true")


def test_offer_says_how_it_runs(shell: Shell) -> None:
    """Executes, alone, never repeated by itself; the model is told of the sandbox it is in."""
    offer = {tool.name: tool.offer for tool in workspace_tools(shell.root, shell=shell)}["bash"]
    assert (offer.effect, offer.exclusive, offer.idempotent) == ("execute", True, False)
    assert ("it has no network" in offer.spec.description) is shell.sandbox.files


def write_all(tape: Tape, chunks: list[bytes]) -> bytes:
    for chunk in chunks:
        tape.write(chunk)
    return b"".join(chunks)


@given(chunks=st.lists(st.binary(max_size=12), max_size=12))
def test_tape_keeps_both_ends_of_any_stream(chunks: list[bytes]) -> None:
    """Whole while it fits, else the first and last bytes with the right count between."""
    tape = Tape(kept_bytes=8)
    whole = write_all(tape, chunks)
    note = f"\n[... {len(whole) - 16} bytes left out ...]\n".encode()
    expected = whole if len(whole) <= 16 else whole[:8] + note + whole[-8:]
    assert tape.text() == expected.decode("utf-8", "replace")


@given(text=st.text(alphabet="a\xe9\u20ac\U0001f600\ufffd", max_size=30))
def test_a_character_that_the_cut_goes_through_is_no_broken_byte(text: str) -> None:
    """Whatever falls out between head and tail: a text that is UTF-8 has no bytes that are none."""
    tape = Tape(kept_bytes=8)
    tape.write(text.encode())
    assert tape.broken == 0


@given(chunks=st.lists(st.binary(max_size=12), max_size=12))
@settings(max_examples=examples(50))
def test_file_holds_the_stream_from_its_beginning(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]
) -> None:
    """No file while everything is shown; then all of it, up to the limit, and the note says which of both."""
    file = tmp_path_factory.mktemp("spill") / "out.txt"
    tape = Tape(kept_bytes=4, spill=file, spilled_bytes=40)
    whole = write_all(tape, chunks)
    assert (file.read_bytes() if file.exists() else None) == (whole[:40] if len(whole) > 8 else None)
    if len(whole) > 8:
        assert ("all of it is in" if len(whole) < 40 else "the beginning is in") in tape.text()


def test_full_disk_does_not_end_the_command(tmp_path: Path) -> None:
    """The file is given up, and not named."""
    tape = Tape(kept_bytes=4, spill=tmp_path / "absent" / "out.txt")
    write_all(tape, [b"0123456789"])
    assert tape.text() == "0123\n[... 2 bytes left out ...]\n6789"


def test_private_folder_goes_with_its_shell(tmp_path: Path) -> None:
    """Nothing is left in the machine's temporary folder."""
    folders = [Shell(tmp_path, sandbox=sandbox_called("none")).outputs.parent]
    assert not folders[0].exists()
