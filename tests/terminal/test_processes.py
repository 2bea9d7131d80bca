"""What needs a process of its own: signals, kill -9, a closed pipe, a real terminal."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from terminal.forking import TURNWISE, Process
from terminal.person import at_terminal
from terminal.running import WAIT_S, Cli, Ran, at, begin, end, running_lab, script
from turnwise.base.keeper import descendants
from turnwise.lab import Lab

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A)")  # colours, the spinner's line, the cursor's return


def wait_until(holds: Callable[[], object]) -> None:
    """Poll; every wait in these tests is bounded."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        select.select([], [], [], 0.01)


def read_until(process: Process, text: str) -> str:
    """Standard output up to the first line that holds `text`."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"`{text}` never came: {lines}")


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.promise("wait:cancel", "end:reason")
def test_a_signal_during_the_stream_ends_the_turn_with_130(
    lab: Lab, folder: Path, cli: Cli, number: signal.Signals
) -> None:
    """The JSON lines are whole and the last is the result; the session says cancelled."""
    process = begin("run", "Go.", "--json", *at(lab, "fault-stall"), cwd=folder, real=True)
    before = read_until(process, '"text"')
    process.send_signal(number)
    ran = end(process)
    last = Ran(ran.code, before + ran.out, ran.err).events()[-1]
    assert (ran.code, last["stop_reason"], last["complete"], ran.err) == (130, "cancelled", False, "")
    assert last["text"].strip()
    assert "cancelled" in cli("sessions", "list").out


@pytest.mark.promise("wait:cancel")
def test_ctrl_c_before_the_first_byte_ends_the_turn(lab: Lab, folder: Path) -> None:
    """A provider that says nothing does not hold the user."""
    process = begin("run", "Go.", *at(lab, "fault-silence"), cwd=folder)
    wait_until(lab.count)
    process.send_signal(signal.SIGINT)
    ran = end(process)
    assert ran.code == 130 and ran.out.startswith("The turn was cancelled") and "cancelled (1 step" in ran.err


@pytest.mark.promise("wait:cancel", "step:every-call-answered")
def test_ctrl_c_during_a_tool_stops_it_and_answers_its_call(lab: Lab, folder: Path) -> None:
    """The command is gone when turnwise is; the call has a result, on the screen too."""
    process = begin("run", "Go.", "--allow", "bash", *at(lab, "slow-bash"), cwd=folder)
    pid = command_pid(process, folder)
    process.send_signal(signal.SIGINT)
    ran = end(process)
    assert ran.code == 130 and "✗ bash: Cancelled by the user" in ran.err
    assert not is_running(pid)


@pytest.mark.costly
@pytest.mark.promise("wait:cancel")
def test_ctrl_c_twice_ends_at_once_and_quietly(lab: Lab, folder: Path, cli: Cli) -> None:
    """Even where a command ignores signals: exit code 130, no traceback, and the session says how it ended."""
    process = begin("run", "Go.", "--allow", "bash", *at(lab, "stubborn"), cwd=folder, real=True)
    pid = command_pid(process, folder)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130
    wait_until(lambda: not is_running(pid))
    (session,) = cli("sessions", "list", "--json").events()
    assert (session["status"], session["stop_reason"]) == ("done", "cancelled")


def is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def command_pid(process: Process, folder: Path) -> int:
    """The process that the script's command has become, once it has; it knows its number inside its sandbox only."""
    wait_until(lambda: (folder / "begun.txt").is_file() and (folder / "begun.txt").read_text().strip())
    inner = (folder / "begun.txt").read_text().strip()
    (found,) = [pid for pid in descendants(process.pid) if number_inside(pid) == inner]
    return found


def number_inside(pid: int) -> str:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return line.split()[-1]
    return ""


def test_ctrl_c_while_turnwise_is_loaded_is_quiet(lab: Lab, folder: Path) -> None:
    """Exit code 130 and no traceback: the console script is interruptible from its first import on."""
    args = ("run", "Go.", *at(lab, "fault-silence"))
    process = begin(*args, cwd=folder, env={"PYTHONPROFILEIMPORTTIME": "1"}, real=True)
    assert process.stderr is not None
    for line in process.stderr:  # a line is written whenever a module has been loaded, an inner one first
        if line.rstrip().endswith(" click.globals"):
            break
    process.send_signal(signal.SIGINT)
    assert end(process).code == 130


@pytest.mark.costly
@pytest.mark.promise("end:reason")
def test_killed_in_mid_stream_the_session_is_shown_and_goes_on(lab: Lab, folder: Path, cli: Cli) -> None:
    """`kill -9`, then `sessions list`, `sessions show` and `run --continue`: the turn that was left goes on, then the prompt."""
    process = begin("run", "Tell me all.", "--json", *at(lab, "stalls-first"), cwd=folder, real=True)
    read_until(process, '"text"')
    process.kill()
    assert end(process).code == -signal.SIGKILL
    assert "interrupted" in cli("sessions", "list").out
    id = cli("sessions", "list").out.split()[0]
    assert "\nuser\nTell me all." in cli("sessions", "show", id).out
    last = cli("run", "And?", "--continue", "--json", *at(lab, "plain-answer")).events()[-1]
    assert (last["stop_reason"], last["complete"], last["session"][-8:]) == ("answered", True, id)
    assert lab.requests[-1].status == 200 and "Tell me all." in lab.requests[-1].body.decode()


def test_a_session_that_is_running_is_not_gone_on_with(lab: Lab, folder: Path, cli: Cli) -> None:
    """Two writers would mix their turns: one line, exit code 2, and the running one is left alone."""
    process = begin("run", "Go.", "--json", *at(lab, "fault-stall"), cwd=folder)
    read_until(process, '"text"')
    ran = cli("run", "--continue", *at(lab, "plain-answer"))
    assert (ran.code, ran.out) == (2, "") and "is running already" in ran.err.splitlines()[-1]
    assert "running" in cli("sessions", "list").out
    process.send_signal(signal.SIGINT)
    assert (end(process).code, lab.count()) == (130, 1)


@pytest.mark.costly
@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
@pytest.mark.promise("step:every-call-answered", "step:history-healed")
def test_killed_in_the_middle_of_a_tool_the_call_is_answered_as_uncertain(
    lab: Lab, folder: Path, cli: Cli, family: str
) -> None:
    """The strict lab accepts the continued history; the model is told that the tool may have run."""
    process = begin(
        "run", "Go.", "--allow", "bash", *at(lab, "slow-bash", family=family), cwd=folder, real=family == "gemini"
    )
    pid = command_pid(process, folder)
    process.kill()
    assert end(process).code == -signal.SIGKILL
    try:
        shown = cli("sessions", "show", cli("sessions", "list").out.split()[0]).out
        assert "→ bash" in shown and "✗ bash: The run was interrupted before a result was recorded." in shown
        ran = cli("run", "And?", "--continue", "--json", *at(lab, "plain-answer", family=family))
        assert (ran.code, ran.events()[-1]["complete"], lab.requests[-1].status) == (0, True, 200)
        assert "its outcome is unknown" in lab.requests[-1].body.decode() and lab.count() == 3
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the killed run could not stop
            os.kill(pid, signal.SIGKILL)


@pytest.mark.costly
@pytest.mark.parametrize("command", ["run", "sessions"])
def test_a_closed_pipe_ends_quietly(lab: Lab, folder: Path, cli: Cli, command: str) -> None:
    """`| head`: nothing on standard error, exit code 1, and the turn ends with a reason."""
    cli("run", "Go.", *at(lab, "plain-answer"))
    reader, writer = os.pipe()
    os.close(reader)
    args = ("run", "Go.", "--json", *at(lab, "fault-stall")) if command == "run" else ("sessions", "list")
    try:
        ran = end(begin(*args, cwd=folder, stdout=writer, real=True))
    finally:
        os.close(writer)
    assert (ran.code, ran.err) == (1, "")
    if command == "run":
        assert "cancelled" in cli("sessions", "list", "-n", "1").out


def test_a_full_disk_is_one_line(folder: Path) -> None:
    """Output that cannot be written is not silently lost."""
    with Path("/dev/full").open("w") as full:
        ran = end(begin("--help", cwd=folder, stdout=full, real=True))
    assert (ran.code, ran.err) == (1, "turnwise: input or output failed: No space left on device\n")


@pytest.mark.costly
def test_standard_streams_that_are_closed_or_ascii_do_no_harm(lab: Lab, folder: Path) -> None:
    """`<&-`, `>&-` (whose answer is lost: exit code 1) and a terminal without UTF-8."""
    for closed in ("<&-", ">&-"):
        command = f'"$@" {closed}'
        args = ("sh", "-c", command, "sh", *TURNWISE, "run", "-" if "<" in closed else "Go.", *at(lab, "plain-answer"))
        process = subprocess.run(args, check=False, cwd=folder, capture_output=True, text=True, timeout=WAIT_S)
        assert "Traceback" not in process.stderr and process.returncode == (2 if "<" in closed else 1)
    env = {"PYTHONIOENCODING": "ascii"}
    ran = end(begin("run", "Go.", *at(lab, "read-edit-answer"), cwd=folder, env=env, real=True))
    assert ran.code == 8 and "? read notes.txt" in ran.err  # nobody could be asked


WAITS = script(
    "waits",
    """
[[steps]]
text = "I will look at notes.txt first."
calls = [{ name = "bash", arguments = { command = "until [ -e go.txt ]; do sleep 0.01; done; cat notes.txt" } }]

[[steps]]
calls = [{ name = "edit", arguments = { path = "notes.txt", old = "status: draft", new = "status: done" } }]

[[steps]]
text = "Done: notes.txt now says 'status: done'."
""",
)


@pytest.fixture(scope="module")
def waiting_lab() -> Iterator[Lab]:
    with running_lab([WAITS]) as lab:
        yield lab


@pytest.mark.costly
def test_on_a_terminal_the_spinner_never_mixes_with_text(waiting_lab: Lab, folder: Path) -> None:
    """What stays on the screen are the whole lines of the model, the calls and the counts, in order. The command ends when the
    spinner has been seen."""
    allowed = ("--allow", "bash", "--allow", "write")
    with at_terminal("run", "Set it.", *allowed, *at(waiting_lab, "waits"), cwd=folder, real=True) as person:
        person.sees("bash runs")
        (folder / "go.txt").touch()
        person.leaves_by(0)
    written = person.raw
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h")
    lines = [ESCAPE.sub("", line) for line in remaining(written)]
    assert [line for line in lines[:-1] if not line.startswith("commands run")] == [
        "I will look at notes.txt first.",
        "→ bash until [ -e go.txt ]; do sleep 0.01; done; cat notes.txt",
        "✓ bash: status: draft",
        "→ edit notes.txt status: draft status: done",
        "  notes.txt +1 -1",
        "  -    1 status: draft",
        "  +    1 status: done",
        "✓ edit: edited `notes.txt`: 1 replacement, the first in line 1",
        "Done: notes.txt now says 'status: done'.",
    ]
    assert lines[-1].startswith("3 steps, 3 requests, ")


def remaining(written: str) -> list[str]:
    """The lines that stay: `ESC[1A` goes up a line, `ESC[2K` erases it, `\\r` goes to its beginning."""
    lines = [""]
    for piece in re.split(r"(\r\n|\r|\x1b\[1A|\x1b\[2K)", written):
        match piece:
            case "\r\n":
                lines.append("")
            case "\x1b[1A":
                lines.pop()
            case "\x1b[2K":
                lines[-1] = ""
            case "\r":
                pass
            case _:
                lines[-1] += piece
    return [line for line in lines if ESCAPE.sub("", line)]


@pytest.mark.parametrize("env", [{}, {"COLUMNS": "20"}, {"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=str)
def test_a_hostile_model_cannot_drive_a_terminal(lab: Lab, folder: Path, env: dict[str, str]) -> None:
    """Only our own colours and the spinner's line are ever sent; none on a dumb terminal, no colour with NO_COLOR."""
    with at_terminal("run", "Go.", *at(lab, "hostile"), cwd=folder, env=env) as person:
        person.leaves_by(0)
    written = person.raw
    left = OURS.sub("", written)
    assert not [
        char for char in left if (char < " " and char not in "\r\n") or "\x7f" <= char <= "\x9f" or char == "\u202e"
    ]
    assert "\r" not in left.replace("\r\n", "").replace("\r", "", written.count("\x1b[2K"))
    if "TERM" in env:
        assert "\x1b" not in written
    if "NO_COLOR" in env:
        assert not re.search(r"\x1b\[[0-9;]*m", written)


def test_force_color_colours_a_pipe_and_no_color_wins(lab: Lab, folder: Path) -> None:
    """Source: no-color.org and its counterpart."""
    args = ("run", "Go.", *at(lab, "plain-answer"))
    assert "\x1b[2m" in end(begin(*args, cwd=folder, env={"FORCE_COLOR": "1"})).err
    assert "\x1b" not in end(begin(*args, cwd=folder, env={"FORCE_COLOR": "1", "NO_COLOR": "1"})).err
    assert "\x1b" not in end(begin(*args, cwd=folder)).err
