"""Ctrl-C at a real terminal, in every state: the turn ends with what is there, nothing is left running, the terminal is whole."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from terminal.person import CTRL_C, Person, at_terminal
from terminal.running import WAIT_S, Cli, at, running_lab, script
from terminal.test_processes import wait_until
from turnwise.base.keeper import descendants
from turnwise.lab import Lab
from turnwise.terminal.conversation import LEAVES_SAID

SLEEPS = script(
    "sleeps",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo begun > begun.txt; exec sleep 60" } }]

[[steps]]
text = "It said: {result}"
""",
)
CHILD_SLEEPS = script(
    "child-sleeps",
    """
[[steps]]
asked = "sleep a while"
calls = [{ name = "bash", arguments = { command = "echo begun > begun.txt; exec sleep 60" } }]

[[steps]]
calls = [{ name = "task", arguments = { prompt = "sleep a while" } }]

[[steps]]
text = "It said: {result}"
""",
)
CHILD_ASKS = script(
    "child-asks",
    """
[[steps]]
asked = "make it"
calls = [{ name = "bash", arguments = { command = "make it" } }]

[[steps]]
calls = [{ name = "task", arguments = { prompt = "make it" } }]

[[steps]]
text = "It said: {result}"
""",
)
STUBBORN = script(
    "stubborn",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "trap '' INT TERM; echo begun > begun.txt; sleep 60; sleep 60" } }]

[[steps]]
text = "It said: {result}"
""",
)
RETRIES = script(
    "retries",
    """
[[steps]]
fault = { kind = "status", status = 429, message = "Slow down.", retry_after_s = 30.0 }
""",
)


@pytest.fixture(scope="module")
def cancelled_lab() -> Iterator[Lab]:
    with running_lab([SLEEPS, CHILD_SLEEPS, CHILD_ASKS, STUBBORN, RETRIES]) as lab:
        yield lab


@pytest.fixture
def lab(cancelled_lab: Lab) -> Lab:
    cancelled_lab.reset()
    return cancelled_lab


def connecting(person: Person, lab: Lab, folder: Path) -> None:
    wait_until(lab.count)


def streaming(person: Person, lab: Lab, folder: Path) -> None:
    person.sees("quick brown")


def running_tool(person: Person, lab: Lab, folder: Path) -> None:
    wait_until((folder / "begun.txt").exists)


def asking(person: Person, lab: Lab, folder: Path) -> None:
    person.sees("then no)")


def sleeping(person: Person, lab: Lab, folder: Path) -> None:
    person.sees("trying again in")


ROUNDS = 30  # of what has to come within half a second

Reached = Callable[[Person, Lab, Path], None]
STATES: dict[str, tuple[str, Reached]] = {
    "connecting": ("fault-silence", connecting),
    "streaming": ("fault-stall", streaming),
    "a tool runs": ("sleeps", running_tool),
    "a child runs a tool": ("child-sleeps", running_tool),
    "asking": ("read-edit-answer", asking),
    "a child asks": ("child-asks", asking),
    "sleeping before a retry": ("retries", sleeping),
}
REALLY_STARTED = {"a tool runs", "asking"}  # the others are forked: what Ctrl-C does is the same
ALLOWED = ("--allow", "bash(echo *)", "--allow", "bash(sleep *)", "--allow", "bash")


def options(state: str) -> tuple[str, ...]:
    return ALLOWED if "tool" in state else ()


@pytest.mark.costly
@pytest.mark.promise("wait:cancel", "step:every-call-answered")
@pytest.mark.parametrize("state", STATES)
def test_ctrl_c_ends_a_run_with_130_and_nothing_is_left(lab: Lab, folder: Path, cli: Cli, state: str) -> None:
    """A reason, a session that goes on, the terminal as it was, and no process of it."""
    name, reached = STATES[state]
    args = ("run", "Go.", *options(state), *at(lab, name))
    with at_terminal(*args, cwd=folder, real=state in REALLY_STARTED) as person:
        reached(person, lab, folder)
        below = descendants(person.process.pid)
        person.types(CTRL_C)
        assert "cancelled (" in person.leaves_by(130)
        assert person.is_cooked() and "had said" not in person.said
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    assert bool(below) == ("tool" in state)
    assert cli("run", "And?", "--continue", *at(lab, "plain-answer")).code == 0
    assert lab.requests[-1].status == 200


@pytest.mark.costly
@pytest.mark.promise("wait:cancel")
@pytest.mark.parametrize("state", STATES)
def test_ctrl_c_in_a_session_ends_the_turn_and_the_next_one_goes_on(lab: Lab, folder: Path, state: str) -> None:
    """The prompt is there again, and its Ctrl-C only clears the line; Ctrl-D leaves with 0."""
    name, reached = STATES[state]
    with at_terminal(*options(state), *at(lab, name), cwd=folder, real=state in REALLY_STARTED) as person:
        person.sees("\n>")
        person.types("Go.\r")
        reached(person, lab, folder)
        below = descendants(person.process.pid)
        person.types(CTRL_C)
        person.sees("cancelled (")
        person.sees("\n>")
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
        person.types(f"half a line{CTRL_C}")
        person.sees("\n>")
        assert LEAVES_SAID not in person.said
        person.types("/model plain-answer\r")
        person.sees("going on with openai_chat:plain-answer")
        person.types("And?\r")
        person.sees("Hello from the lab.")
        person.sees("\n>")
        person.types("\x04")
        assert "`turnwise --continue` goes on with it" in person.leaves_by(0)
        assert person.is_cooked()
    assert lab.requests[-1].status == 200


@pytest.mark.costly
@pytest.mark.promise("wait:cancel")
def test_ctrl_c_twice_in_a_session_ends_it_at_once(lab: Lab, folder: Path) -> None:
    """Exit code 130, no traceback, no process left. A turn stops within a second: where the second Ctrl-C finds the prompt
    again, it says how to leave, and the person begins anew."""
    below: list[int] = []
    begun = folder / "begun.txt"
    with at_terminal(*at(lab, "stubborn"), cwd=folder, real=True) as person:
        person.sees("\n>")
        for _ in range(ROUNDS):
            person.types("Go.\r")
            person.sees("then no)")
            person.types("y\r")
            wait_until(begun.exists)
            below = descendants(person.process.pid)
            person.types(CTRL_C)
            person.sees("stopping (Ctrl-C again ends turnwise at once)")
            person.types(CTRL_C)
            if person.is_over_before("\n>"):
                break
            person.types("/new\r")
            person.sees("a new session")
            begun.unlink()
        person.leaves_by(130)
        assert person.is_cooked() and below
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


@pytest.mark.promise("wait:cancel")
def test_ctrl_c_twice_at_an_empty_prompt_leaves(lab: Lab, folder: Path) -> None:
    """Words between the two keep the session; exit code 0 and how to go on, as with Ctrl-D."""
    with at_terminal(*at(lab, "plain-answer"), cwd=folder) as person:
        person.sees("\n>")
        person.types("Go.\r")
        person.sees("Hello from the lab.")
        person.sees("\n>")
        person.types(CTRL_C)
        person.sees(f"{LEAVES_SAID}\n>")
        person.types(f"half{CTRL_C}")
        person.sees("\n>")
        person.types(CTRL_C)
        person.sees(f"{LEAVES_SAID}\n>")
        person.types(CTRL_C)
        assert "`turnwise --continue` goes on with it" in person.leaves_by(0)
        assert person.is_cooked()


@pytest.mark.costly
@pytest.mark.promise("wait:cancel")
@pytest.mark.parametrize("args", [("run", "Go."), ()], ids=["run", "session"])
def test_a_terminal_that_goes_away_leaves_nothing_behind(
    lab: Lab, folder: Path, cli: Cli, args: tuple[str, ...]
) -> None:
    """The window is closed while a command runs: the command ends, the turn is written down as cancelled."""
    with at_terminal(*args, *ALLOWED, *at(lab, "sleeps"), cwd=folder, real=not args) as person:
        if not args:
            person.sees("\n>")
            person.types("Go.\r")
        wait_until((folder / "begun.txt").exists)
        below = descendants(person.process.pid)
        person.hangs_up()
        person.process.wait(timeout=WAIT_S)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    (session,) = cli("sessions", "list", "--json").events()
    assert below and (session["status"], session["stop_reason"]) == ("done", "cancelled")


LATE = """
import os, signal, sys, threading

class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
        kill(pid, number)

sys.argv = ["turnwise", "--version"]
from turnwise.terminal.main import main
late = Late()
{more}
main()
"""
# A thread that Python waits for at the end: it sends the signal once the handler of the end is there.
WAITS = """
def wait():
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        pass
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(20)

threading.Thread(target=wait).start()
"""


@pytest.mark.promise("wait:cancel")
@pytest.mark.parametrize(("more", "code"), [("", 0), (WAITS, 130)], ids=["Python ends", "Python waits"])
def test_ctrl_c_after_the_last_word_is_no_death_by_signal(more: str, code: int) -> None:
    """Proves: once all is written, Ctrl-C ends the wait for threads with 130, and changes nothing while Python takes itself
    apart (there it would restore the system's own handling, and the shell would see a signal in place of the code)."""
    ended = subprocess.run(
        [sys.executable, "-c", LATE.format(more=more)], capture_output=True, timeout=WAIT_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (code, b"")
    assert ended.stdout.startswith(b"turnwise ")
