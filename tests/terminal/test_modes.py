"""The modes of a session at a real terminal: plan, ask, edits and sandbox."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import sandbox_called
from terminal.person import CTRL_D, Person, at_terminal
from terminal.running import Cli, at, running_lab, script
from terminal.test_processes import wait_until
from turnwise.lab import Lab
from turnwise.terminal.pager import PAUSE_S

# What a model tries in plan mode; then its plan.
PLANS = script(
    "plans",
    """
[[steps]]
calls = [
    { name = "write", arguments = { path = "new.txt", content = "x" } },
    { name = "bash", arguments = { command = "cat notes.txt > copy.txt" } },
    { name = "bash", arguments = { command = "ls" } },
]

[[steps]]
text = "The plan: write new.txt."

""",
)
DELEGATES = script(
    "delegates",
    """
[[steps]]
calls = [
    { name = "write", arguments = { path = "new.txt", content = "x" } },
    { name = "task", arguments = { prompt = "Write it.", agent = "general" } },
]

[[steps]]
text = "It was refused."
""",
)
WRITES = script(
    "writes",
    """
[[steps]]
calls = [{ name = "write", arguments = { path = "new.txt", content = "{n}" } }]

[[steps]]
text = "Written."
""",
)
WAITS = script(
    "waits",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo begun > begun.txt; until [ -e go.txt ]; do sleep 0.05; done" } }]

[[steps]]
calls = [{ name = "write", arguments = { path = "new.txt", content = "x" } }]

[[steps]]
text = "Stopped."
""",
)
BUILDS = script(
    "builds",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "sh build.sh" } }]

[[steps]]
text = "Built."
""",
)
SHIFT_TAB = "\x1b[Z"


@pytest.fixture(scope="module")
def modes_lab() -> Iterator[Lab]:
    with running_lab([PLANS, DELEGATES, WRITES, WAITS, BUILDS]) as lab:
        yield lab


@pytest.fixture
def lab(modes_lab: Lab) -> Lab:
    modes_lab.reset()
    return modes_lab


def leave(person: Person, *, mode: str = "") -> None:
    person.sees(f"\n{mode}>")
    person.types(CTRL_D)
    person.leaves_by(0)


def results(lab: Lab, *, request: int) -> str:
    return lab.requests[request].body.decode()


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_plan_changes_nothing_until_a_person_carries_it_out(lab: Lab, folder: Path, columns: int) -> None:
    """With `--allow write` and `--allow bash`, too: the tool and the redirection are refused, and the model is told why. Enter
    does not carry the plan out; words become the next prompt."""
    with at_terminal("--allow", "write", "--allow", "bash", *at(lab, "plans"), cwd=folder, columns=columns) as person:
        person.sees("\n>")
        person.types("/mode plan\r")
        person.sees("plan mode: ")
        person.sees("plan>")
        person.types("Think.\r")
        person.sees("The plan: write new.txt.")
        assert "carries the plan out in ask mode" in " ".join(person.sees("keeps it:").split())
        person.types("\r")
        person.sees("plan>")
        person.types("Again.\r")
        person.sees("keeps it:")
        person.types_until("with tests\r", "plan> with tests", pause_s=0.5)
        person.types("\x03")
        person.sees("plan>")
        person.types(SHIFT_TAB)
        person.sees("ask mode: ")
        leave(person)
    assert not (folder / "new.txt").exists() and not (folder / "copy.txt").exists()
    assert "The session is in plan mode" in results(lab, request=0)
    assert results(lab, request=1).count("this session is in plan mode, in which nothing is changed") == 2


def test_sub_agents_inherit_plan_mode(lab: Lab, folder: Path, cli: Cli) -> None:
    """At every depth, and told to each; so does `turnwise run`, whatever `--allow` says."""
    ran = cli("run", "--mode", "plan", "--allow", "write", "Plan it.", "--cwd", str(folder), *at(lab, "delegates"))
    assert not (folder / "new.txt").exists(), ran.err
    bodies = [request.body.decode() for request in lab.requests]
    assert len(bodies) > 4 and all("The session is in plan mode" in body for body in bodies)


def test_carried_out_in_the_mode_before_and_told_to_the_model(lab: Lab, folder: Path) -> None:
    """The session began in edits mode, so the plan is carried out there: a file is written unasked, a command is asked about."""
    with at_terminal("--mode", "edits", *at(lab, "plans"), cwd=folder) as person:
        person.sees("edits>")
        person.types("/mode paln\r")
        person.sees("there is no mode `paln`: did you mean `plan`?")
        person.sees("edits>")
        person.types("/mode plan\r")
        person.sees("plan>")
        person.types("Think.\r")
        person.sees("keeps it:")
        person.types_after("c", pause_s=PAUSE_S)
        person.sees("edits mode: ")
        person.sees("asked because: to write `copy.txt`")
        person.types_until("n\r", "The plan: write new.txt.", pause_s=0.5)
        leave(person, mode="edits")
    assert (folder / "new.txt").exists() and not (folder / "copy.txt").exists()
    carried = results(lab, request=2)
    assert "The session is in edits mode" in carried and "Carry out the plan." in carried


def test_edits_mode_asks_about_nothing_but_what_is_guarded(lab: Lab, folder: Path) -> None:
    with at_terminal(*at(lab, "writes"), cwd=folder) as person:
        person.sees("\n>")
        person.types(SHIFT_TAB)
        person.sees("edits mode: ")
        person.sees("edits>")
        person.types("Write.\r")
        assert "then no)" not in person.sees("Written.")
        leave(person, mode="edits")
    assert (folder / "new.txt").exists()


def test_plan_mode_holds_at_once_and_edits_from_the_next_turn(lab: Lab, folder: Path) -> None:
    """Shift-Tab while a command runs: edits mode waits for the next turn; plan mode refuses what comes next in this one. `/mode`
    as a whole line, which may be pasted, changes nothing by itself."""
    with at_terminal("--allow", "bash", "--allow", "write", *at(lab, "waits"), cwd=folder) as person:
        person.sees("\n>")
        person.types("Go.\r")
        person.sees("→ bash")
        wait_until((folder / "begun.txt").exists)
        person.types(SHIFT_TAB)
        person.sees("edits mode from the next turn on")
        person.types("/mode sandbox\r")
        person.sees("waits at the prompt")
        person.types(SHIFT_TAB)
        person.sees("plan mode: ")
        (folder / "go.txt").touch()
        person.sees("Stopped.")
        person.sees("plan> /mode sandbox")
        person.types("\x03")
        leave(person, mode="plan")
    assert not (folder / "new.txt").exists()
    assert "this session is in plan mode" in results(lab, request=2)


def test_sandbox_mode_runs_commands_unasked_and_keeps_guarded_files(lab: Lab, folder: Path, cli: Cli) -> None:
    """It is not offered outside of a repository. In one, a command writes in the folder and not into AGENTS.md, and nobody is
    asked; the next start begins in ask mode and says so."""
    sandbox_called("bubblewrap")
    with at_terminal(*at(lab, "builds"), cwd=folder) as person:
        person.sees("\n>")
        person.types("/mode sandbox\r")
        person.sees("sandbox mode is not offered here")
        person.sees("\n>")
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        (folder / "AGENTS.md").write_text("Be brief.\n")
        (folder / "build.sh").write_text("printf x > made.txt; echo evil >> AGENTS.md")
        person.types("/mode sandbox\r")
        offer = " ".join(person.sees("goes to the model").split())
        assert "can read your other files; what it prints goes to the model" in offer
        person.sees("sandbox>")
        person.types("Build.\r")
        assert "then no)" not in person.sees("Built.")
        leave(person, mode="sandbox")
    assert (folder / "made.txt").read_text() == "x"
    assert (folder / "AGENTS.md").read_text() == "Be brief.\n"
    assert "changes no guarded file" in results(lab, request=1)
    with at_terminal("--continue", *at(lab, "builds"), cwd=folder) as person:
        person.sees("a restart ends that: it is in ask mode now")
        person.sees("\n>")
        person.types("Build.\r")
        person.sees("then no)")
        person.types("n\r")
        person.sees("Built.")
        leave(person)
