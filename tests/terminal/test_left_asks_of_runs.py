"""What was asked at a terminal when the process was killed: with real processes, and a journal that is made older."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from terminal.person import at_terminal
from terminal.running import Cli, at, running_lab, script
from terminal.test_resume import lines_of
from turnwise.lab import Lab

SEVERAL = script(
    "several",
    """
[[steps]]
calls = [
    { name = "bash", arguments = { command = "echo a >> done.txt" } },
    { name = "bash", arguments = { command = "echo b >> done.txt" } },
]

[[steps]]
calls = [{ name = "bash", arguments = { command = "echo later >> done.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
IN_A_PROGRAM = script(
    "in-a-program",
    """
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = '''
for name in "abc":
    bash(command="echo " + name + " >> done.txt")
print("all done")
'''

[[steps]]
text = "It said: {result}"
""",
)
BELOW = script(
    "below",
    """
[[steps]]
asked = "make both"
calls = [{ name = "bash", arguments = { command = "echo a >> done.txt" } }]

[[steps]]
asked = "make both"
calls = [{ name = "bash", arguments = { command = "echo b >> done.txt" } }]

[[steps]]
asked = "make both"
text = "Both are made."

[[steps]]
calls = [{ name = "task", arguments = { agent = "general", prompt = "make both" } }]

[[steps]]
text = "It said: {result}"
""",
)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with running_lab([SEVERAL, IN_A_PROGRAM, BELOW]) as lab:
        yield lab


def killed_at_an_ask(lab: Lab, folder: Path, name: str, *, answers: int = 0, options: tuple[str, ...] = ()) -> None:
    with at_terminal("run", "Go.", *options, *at(lab, name), cwd=folder) as person:
        for _ in range(answers):
            person.sees("then no)")
            person.types("y\r")
        person.sees("? ")
        person.sees("then no)")
        person.process.kill()


def made_older(folder: Path, seconds: float) -> None:
    """As if the process had died that long ago."""
    (file,) = folder.parent.rglob("journal.db")
    with closing(sqlite3.connect(file)) as journal:
        journal.execute("update record set t = t - ?", (seconds,))
        journal.commit()


@pytest.mark.promise("keep:crash", "wait:ask")
def test_of_two_questions_the_answered_one_is_not_asked_again(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: killed while the second was on the screen, the first answer stands; the second is put with what is left."""
    killed_at_an_ask(lab, folder, "several", answers=1)
    made_older(folder, 200)
    with at_terminal("resume", cwd=folder) as person:
        said = person.sees("then no)")
        assert "1 call had an answer; 1 call waits for an answer (" in said and "echo a" not in said
        left = re.search(r"\((\d+) s, then no\)", said)
        assert "echo b" in said and left is not None and int(left[1]) <= 100
        person.types("y\r")
        person.sees("echo later")
        person.sees("then no)")
        person.types("n\r")
        assert "It said:" in person.leaves_by(0)
    assert lines_of(folder, "done.txt") == ["a", "b"]


@pytest.mark.promise("keep:crash", "wait:ask")
def test_where_the_time_is_over_the_default_stands_and_is_said(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: nobody is asked, the calls are denied, the line and the results say why."""
    killed_at_an_ask(lab, folder, "several")
    made_older(folder, 1000)
    ran = cli("resume", "--json")
    notes = [one["text"] for one in ran.events() if one["event"] == "note"]
    assert any("2 calls waited for an answer, and the time for it is over (denied): bash (" in one for one in notes)
    denied = [one["text"] for one in ran.events() if one["event"] == "tool_result"]
    assert "because nobody answered" in denied[0] and lines_of(folder, "done.txt") == []


@pytest.mark.promise("keep:crash", "wait:ask")
@pytest.mark.parametrize(
    ("words", "code", "done"),
    [
        ("run --continue --approve all", 4, ["a", "b"]),
        ("run --continue --approve all --allow bash", 0, ["a", "b", "later"]),
        ("resume --allow bash", 0, ["a", "b", "later"]),
    ],
)
def test_answers_and_rules_of_whoever_goes_on_hold_though_the_time_is_over(
    lab: Lab, folder: Path, cli: Cli, words: str, code: int, done: list[str]
) -> None:
    """Proves: `--approve all` is for what waits, a later call is left for later; `--allow` holds for both."""
    killed_at_an_ask(lab, folder, "several")
    made_older(folder, 1000)
    ran = (cli.approves if "--approve" in words else cli)(*words.split(), "--json")
    assert (ran.code, sorted(lines_of(folder, "done.txt"))) == (code, done), ran.err


@pytest.mark.promise("keep:crash", "wait:ask")
@pytest.mark.parametrize("answers", [0, 1])
def test_a_program_that_goes_on_is_allowed_to_its_end_by_a_rule(lab: Lab, folder: Path, cli: Cli, answers: int) -> None:
    """Proves: a rule is for the program's later calls, too; those of before run once."""
    killed_at_an_ask(lab, folder, "in-a-program", answers=answers, options=("--script",))
    ran = cli("resume", "--allow", "bash")
    assert (ran.code, ran.out, lines_of(folder, "done.txt")) == (0, "It said: all done\n", ["a", "b", "c"]), ran.err


@pytest.mark.promise("keep:crash", "safe:seen")
@pytest.mark.parametrize(
    ("place", "answers", "done"), [("in-a-program", 0, ["a"]), ("in-a-program", 1, ["a", "b"]), ("below", 0, ["a"])]
)
def test_all_allows_what_was_shown_and_no_later_call(
    lab: Lab, folder: Path, cli: Cli, place: str, answers: int, done: list[str]
) -> None:
    """Proves: `--approve all` runs the open call that was shown; the next one, which nobody has seen, is denied."""
    killed_at_an_ask(lab, folder, place, answers=answers, options=("--script",) if place == "in-a-program" else ())
    ran = cli.approves("run", "--continue", "--approve", "all")
    assert (ran.code, lines_of(folder, "done.txt")) == (0, done), ran.err
    assert "not run, as nobody is there to be asked: " in ran.err


@pytest.mark.promise("keep:crash", "wait:child")
def test_a_sub_agent_that_goes_on_is_allowed_to_its_end_by_a_rule(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: it cannot leave a call for later either."""
    killed_at_an_ask(lab, folder, "below")
    ran = cli("resume", "--allow", "bash")
    assert (ran.code, ran.out, lines_of(folder, "done.txt")) == (0, "It said: Both are made.\n", ["a", "b"]), ran.err
