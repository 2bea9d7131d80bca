"""Fewer and plainer questions at a real terminal: one answer for six edits, a call that the person edits, calls that would
fail, and the step limit."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.person import CTRL_C, CTRL_D, ENTER, at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise.lab import Lab

NAMES = ("one", "two", "three", "four", "five", "six")
EDITS = ", ".join([f'{{ name = "write", arguments = {{ path = "{name}.txt", content = "new" }} }}' for name in NAMES])
SIX = script(
    "six",
    f"""
[[steps]]
calls = [{EDITS}]

[[steps]]
calls = [{{ name = "write", arguments = {{ path = "seven.txt", content = "new" }} }}, \
{{ name = "write", arguments = {{ path = ".env", content = "KEY=1" }} }}]

[[steps]]
text = "Done."
""",
)
FAILS = script(
    "fails",
    """
[[steps]]
calls = [
    { name = "edit", arguments = { path = "notes.txt", old = "not there", new = "x" } },
    { name = "bash", arguments = { command = "nosuchprogram --now" } },
    { name = "write", arguments = { path = "notes.txt/below.txt", content = "x" } },
]

[[steps]]
calls = [{ name = "bash", arguments = { command = "echo one > made.txt" } }]

[[steps]]
text = "Done."
""",
)


@pytest.fixture(scope="module")
def fewer_lab() -> Iterator[Lab]:
    with running_lab([SIX, FAILS]) as lab:
        yield lab


@pytest.fixture
def lab(fewer_lab: Lab) -> Lab:
    fewer_lab.reset()
    return fewer_lab


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_six_edits_are_one_question(lab: Lab, folder: Path, columns: int) -> None:
    """Proves (issue 46): the answer covers the rest of the response and later steps; a guarded file is asked about. The
    question and the answers fit the terminal's width."""
    with at_terminal("run", "Go.", *at(lab, "six"), cwd=folder, columns=columns) as person:
        shown = person.sees("then no)")
        assert "? Create one.txt?\n" in shown and "wants to run" not in shown
        below = shown.partition("? Create one.txt?")[2].split("\n")
        assert max(map(len, below)) <= columns
        assert all(row.startswith("[") for row in below if "[y]" in row or "[n]" in row or "[l]" in row)
        person.types(f"f{ENTER}")
        person.sees("? Create .env?\n")
        person.sees("then no)")
        person.types(f"n{ENTER}")
        person.leaves_by(0)
        assert person.said.count("? Create ") == 2
    assert all((folder / f"{name}.txt").read_text() == "new" for name in (*NAMES, "seven"))
    assert not (folder / ".env").exists()


@pytest.mark.promise("wait:ask")
def test_a_person_edits_a_command_and_nobody_is_asked_what_would_fail(lab: Lab, folder: Path) -> None:
    """Proves (issue 46): the three calls that would fail cost no question, and the model reads why. The edited command is shown
    before it runs, and the model is told that it was edited; half-typed text is still there behind the ask."""
    with at_terminal(*at(lab, "fails"), cwd=folder) as person:
        person.sees("\n>")
        person.types(f"Go.{ENTER}")
        shown = person.sees("then no)")
        assert "? Run `echo one > made.txt`?" in shown and person.said.count("\n? ") == 1
        person.types(f"e{ENTER}")
        person.sees("empty: as it was): ")
        person.types("\x7f" * len("one > made.txt") + f"two > other.txt{ENTER}")
        assert "? Run `echo two > other.txt`?\n" in person.sees("then no)")
        person.types(f"y{ENTER}")
        person.sees("Done.")
        person.sees("\n>")
        person.types(CTRL_D)
        person.leaves_by(0)
    assert (folder / "other.txt").read_text() == "two\n" and not (folder / "made.txt").exists()
    told = lab.requests[1].body.decode()
    assert "`old` is not in `notes.txt`" in told and "there is no program `nosuchprogram` on PATH" in told
    assert told.count("so the user was not asked about it") == 3
    assert "The user changed this call before it ran" in lab.requests[2].body.decode()
    assert "echo two > other.txt" in lab.requests[2].body.decode()


@pytest.mark.promise("end:forced-answer")
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_step_limit_asks_and_goes_on(lab: Lab, folder: Path, columns: int) -> None:
    """Proves (issue 46): Enter gives as many steps again; `n` ends in the forced answer; the figures are those of the turn."""
    begun = ("run", "Search.", "--max-steps", "3", *at(lab, "never-stops"))
    with at_terminal(*begun, cwd=folder, columns=columns) as person:
        shown = " ".join(person.sees("no)").split())
        assert re.search(
            r"2 steps, 2 requests, cost (\$|unknown|at least)\S*; the next step is the last of this turn", shown
        )
        assert "Take up to 3 more? [Y/n]" in shown
        person.types("later\r")
        person.sees("is no answer to this; it is y or n")
        person.sees("no)")
        person.types(ENTER)
        person.sees("5 steps, 5 requests, cost ")
        person.sees("no)")
        person.types(f"n{ENTER}")
        assert "step_limit" in person.leaves_by(3)
    assert lab.count() == 6


@pytest.mark.promise("end:forced-answer")
def test_without_a_terminal_the_limit_holds_and_the_last_line_says_how_to_go_on(
    lab: Lab, folder: Path, cli: Cli
) -> None:
    """Proves (issue 46): the command that it names works as it stands; an ask that nobody answers ends in the forced answer."""
    ran = cli("run", "Search.", "--max-steps", "3", *at(lab, "never-stops"))
    assert ran.code == 3 and lab.count() == 3
    found = re.search(r"`turnwise (run --session \w{8} --max-steps 6 \"go on\")` goes on", ran.err)
    assert found, ran.err
    assert cli(*shlex.split(found[1])).code == 3
    assert lab.count() == 9
    with at_terminal(
        "run", "Search.", "--max-steps", "2", "--ask-timeout", "0.3", *at(lab, "never-stops"), cwd=folder
    ) as person:
        person.sees("no answer in time: the next step is the last")
        person.leaves_by(3)
    assert lab.count() == 11


@pytest.mark.promise("end:forced-answer")
def test_ctrl_c_at_the_step_limit_ends_the_turn(lab: Lab, folder: Path) -> None:
    """Proves: it is the end of the turn, not a yes, and the terminal is as before."""
    with at_terminal("run", "Search.", "--max-steps", "2", *at(lab, "never-stops"), cwd=folder) as person:
        person.sees("then no)")
        person.types(CTRL_C)
        person.leaves_by(130)
        assert person.is_cooked()
    assert lab.count() == 1
