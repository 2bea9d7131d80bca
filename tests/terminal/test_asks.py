"""Asks at a real terminal: answered, remembered, refused with a reason, left for later, out of time; and in sub-agents."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from terminal.person import CTRL_C, at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise.coding_agent.asked_calls import ends_of, rules_said
from turnwise.lab import Lab, Script
from turnwise.lab.script import ScriptedCall, ScriptedStep
from turnwise.rules.permissions import PermissionRule
from turnwise.terminal.terminal_asks import ANSWERS, CHOICES

TOUCHES = script(
    "touches",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo ran >> made.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
TWICE = script(
    "twice",
    """
[[steps]]
calls = [
    { name = "bash", arguments = { command = "echo ran >> made.txt" } },
    { name = "bash", arguments = { command = "echo ran >> made.txt" } },
]

[[steps]]
text = "Both: {results}"
""",
)
HIDES = script(
    "hides",
    r"""
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo a\u001b[2K\u202e\u200b\rb > made.txt\necho c" } }]

[[steps]]
text = "It said: {result}"
""",
)
ENDLESS_LINE = script(
    "endless-line",
    f"""
[[steps]]
calls = [{{ name = "bash", arguments = {{ command = "touch begin {"x" * 6000} end" }} }}]

[[steps]]
text = "It said: {{result}}"
""",
)
DELEGATES = script(
    "delegates",
    """
[[steps]]
asked = "make it"
calls = [{ name = "bash", arguments = { command = "echo child >> made.txt" } }]

[[steps]]
asked = "make it"
text = "The tool said: {result}"

[[steps]]
calls = [
    { name = "task", arguments = { prompt = "make it, one" } },
    { name = "task", arguments = { prompt = "make it, two" } },
]

[[steps]]
text = "They said: {results}"
""",
)
BY_PROGRAM = script(
    "by-program",
    """
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = "print(bash(command='echo ran >> made.txt; echo made it'))"

[[steps]]
text = "It printed: {result}"
""",
)
OUTSIDE = script(
    "outside",
    """
[[steps]]
calls = [{ name = "read", arguments = { path = "../other.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
LONG = Script(
    name="long",
    title="long",
    steps=(
        ScriptedStep(
            calls=(
                ScriptedCall(
                    name="write",
                    arguments={
                        "path": "big.sh",
                        "content": "".join([f"line {number}\n" for number in range(1998)])
                        + "line 1998\r\nline 1999\0\n",
                    },
                ),
            )
        ),
        ScriptedStep(text="It said: {result}"),
    ),
)
QUESTION = script(
    "question",
    """
[[steps]]
calls = [{ name = "ask_user", arguments = { question = "Which one?", options = ["red", "blue"] } }]

[[steps]]
text = "You said: {result}"
""",
)


@pytest.fixture(scope="module")
def asking_lab() -> Iterator[Lab]:
    with running_lab([TOUCHES, TWICE, HIDES, DELEGATES, BY_PROGRAM, OUTSIDE, LONG, ENDLESS_LINE, QUESTION]) as lab:
        yield lab


@pytest.fixture
def lab(asking_lab: Lab) -> Lab:
    asking_lab.reset()
    return asking_lab


def made(folder: Path) -> str | None:
    path = folder / "made.txt"
    return path.read_text() if path.exists() else None


@pytest.mark.promise("wait:ask")
def test_an_ask_pauses_a_program_and_cannot_be_left_for_later(lab: Lab, folder: Path) -> None:
    """The program goes on with the answer; `later` is not among the choices, as a program cannot wait for the next run."""
    with at_terminal("run", "Go.", "--script", *at(lab, "by-program"), cwd=folder) as person:
        assert "[l] later" not in person.sees("[y]")
        assert "[l] later" not in person.sees("then no)")
        person.types("y\r")
        assert "It printed: made it" in person.leaves_by(0)
    assert (made(folder), lab.count()) == ("ran\n", 2)


@pytest.mark.promise("wait:ask")
def test_a_command_that_is_allowed_once_runs_once(lab: Lab, folder: Path) -> None:
    """What will run, why it is asked and how long there is stand on the screen; how commands run is said before."""
    with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder) as person:
        before = person.sees("? Run `echo ran >> made.txt`?\n")
        assert "commands run " in before
        shown = person.sees("[y] yes, once")
        assert "asked because: to write `made.txt`" in shown
        assert "[a] would allow in this session: bash(made.txt)\n" in shown
        assert re.search(r"\((300|2\d\d) s, then no\)$", person.sees("then no)"))
        person.types("y\r")
        person.leaves_by(0)
        assert person.is_cooked()
    assert made(folder) == "ran\n"


@pytest.mark.promise("wait:ask")
def test_a_file_is_shown_as_it_would_change_and_stays_as_it_is_if_denied(lab: Lab, folder: Path) -> None:
    """A diff; with the reason that the person gave, the model is told."""
    with at_terminal("run", "Set it.", *at(lab, "read-edit-answer"), cwd=folder) as person:
        shown = person.sees("[y] yes, once")
        assert "-status: draft\n  +status: done\n  [a] would allow in this session: edit(notes.txt)\n" in shown
        assert "? Edit notes.txt?\n  asked because: it changes a file, and no rule allows that\n" in shown
        assert "  [f] would allow in this session: all changes of files in this folder; guarded files" in shown
        person.sees("then no)")
        person.types("d\r")
        person.sees("why not")
        person.types("not on a Sunday\r")
        assert "✗ edit: Denied: `edit` was not run, because the user denied it. They said: not on" in person.leaves_by(
            8
        )
    assert (folder / "notes.txt").read_text() == "status: draft\n"
    assert "They said: not on a Sunday" in lab.requests[-1].body.decode()


def test_always_names_the_rules_that_it_adds() -> None:
    """Proves: as `--allow` would be given them; words with blanks are quoted, nothing is hidden, a long one keeps its ends."""

    def rule(tool: str, **given: Any) -> PermissionRule:
        return PermissionRule(verdict="allow", tool=tool, source="session", **given)

    rules = [
        rule("bash", command=("git", "commit", "-m", "two words")),
        rule("bash", path="/w/out.txt"),
        rule("bash", path="/etc/x"),
    ]
    assert rules_said(rules, workspace="/w") == "bash(git commit -m 'two words'), bash(out.txt), bash(/etc/x)"
    assert rules_said([rule("weather")], workspace="/w") == "weather, whatever it is given"
    assert rules_said([rule("edit", path="a\u202eb\x1b[2J.txt")], workspace="/w") == "edit(a<U+202E>b<U+001B>[2J.txt)"
    long = ends_of(rules_said([rule("bash", command=("x" * 500, "end"))], workspace="/w"))
    assert len(long) <= 201 and long.startswith("bash(xxx") and long.endswith("xxx end)")


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize("answer", ["n", "no", "N"])
def test_no_denies_and_the_turn_goes_on(lab: Lab, folder: Path, answer: str) -> None:
    """The model is told who denied it."""
    with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder) as person:
        person.sees("then no)")
        person.types(f"{answer}\r")
        assert "because the user denied it" in person.leaves_by(8)
    assert made(folder) is None


def test_each_answer_is_explained() -> None:
    assert CHOICES.keys() == {*ANSWERS.values()} - {"help"}
    for choice in CHOICES.values():
        assert choice.meaning.startswith(choice.letter)


def test_an_answer_is_taken_strictly(lab: Lab, folder: Path) -> None:
    """An empty line and other words are no answer, and are asked about again."""
    with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder) as person:
        for answer in ("", "yy", "ja"):
            person.sees("then no)")
            person.types(f"{answer}\r")
            person.sees(
                f"{f'`{answer}`' if answer else 'Enter'} is no answer to this; it is y, a, e, n, d or l; ? explains them"
            )
        person.sees("then no)")
        person.types("?\r")
        person.sees("  n, no      do not run it; the model is told")
        person.sees("then no)")
        person.types("n\r")
        person.leaves_by(8)
    assert made(folder) is None


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize("time_s", ["0.6", "0.05"])  # the second is mostly over before anything is shown
def test_an_ask_that_nobody_answers_is_denied_when_its_time_is_over(lab: Lab, folder: Path, time_s: str) -> None:
    """The default is told; the model reads why, and the terminal is as before."""
    with at_terminal("run", "Go.", "--ask-timeout", time_s, *at(lab, "touches"), cwd=folder) as person:
        person.sees("no answer in time to bash: denied")
        assert "nobody answered, so the call is denied" in person.leaves_by(8)
        assert person.is_cooked()
    assert made(folder) is None


@pytest.mark.promise("wait:ask")
def test_always_holds_for_the_step_the_turn_and_the_next_turn_of_the_session(lab: Lab, folder: Path, cli: Cli) -> None:
    """No broader than what was shown: the same command again is not asked about, not even without a terminal; any other is."""
    with at_terminal("run", "Go.", *at(lab, "twice"), cwd=folder) as person:
        person.sees("[a] always in this session")
        person.sees("then no)")
        person.types("a\r")
        assert "then no)" not in person.leaves_by(0).partition("Both:")[2]
    assert made(folder) == "ran\nran\n"
    assert cli("run", "Again.", "--continue", *at(lab, "touches")).code == 0
    assert made(folder) == "ran\nran\nran\n"
    ran = cli("run", "Else.", "--continue", *at(lab, "hides"))
    assert "not run, as nobody is there to be asked: bash" in ran.err
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    session = ran.err.rpartition("session ")[2][:8]
    there = cli("run", "There.", "--session", session, "--cwd", str(elsewhere), *at(lab, "touches"))
    assert "not run, as nobody is there" in there.err and made(elsewhere) is None
    assert cli("run", "A new session.", *at(lab, "touches")).err.count("not run, as nobody is there") == 1
    assert made(folder) == "ran\nran\nran\n"


@pytest.mark.promise("wait:ask", "wait:child")
def test_always_in_a_sub_agent_holds_for_the_others_and_for_the_session(lab: Lab, folder: Path, cli: Cli) -> None:
    """The second child is not asked, nor is anybody when the session is continued without a terminal."""
    with at_terminal("run", "Go.", *at(lab, "delegates"), cwd=folder) as person:
        person.sees("then no)")
        person.types("a\r")
        assert "then no)" not in person.leaves_by(0).partition("general: ✓")[2]
    assert made(folder) == "child\nchild\n"
    assert cli("run", "Again.", "--continue", "--json").events()[-1]["denied"] == []
    assert made(folder) == "child\nchild\nchild\nchild\n"


def test_nothing_of_a_command_is_hidden(lab: Lab, folder: Path) -> None:
    """Control characters, those that turn text around or have no width are spelled out."""
    with at_terminal("run", "Go.", *at(lab, "hides"), cwd=folder) as person:
        shown = person.sees("then no)")
        assert "    echo a<U+001B>[2K<U+202E><U+200B><U+000D>b > made.txt\n    echo c\n" in shown
        assert "\u202e" not in person.raw and "\u200b" not in person.raw
        person.types("n\r")
        person.leaves_by(8)


def test_all_of_a_long_write_is_shown_in_a_pager_of_our_own(lab: Lab, folder: Path) -> None:
    """Proves (issue 13, 9): a key shows every line, no program of the user's is started for it, and the question with its subject
    stays on the screen: below the pages, after them, and below 200 lines of diff."""
    spy = folder.parent / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {folder.parent}/started\n")
    spy.chmod(0o755)
    env = {
        "PAGER": str(spy),
        "LESS": "",
        "PATH": f"{folder.parent}:{os.environ['PATH']}",
        "LINES": "24",
        "COLUMNS": "80",
    }
    (folder.parent / "less").symlink_to(spy)
    with at_terminal("run", "Go.", *at(lab, "long"), cwd=folder, env=env) as person:
        shown = person.sees("[s] show all of it")
        assert "[... 1,803 more lines]" in shown and "line 1999" not in shown
        assert "? Create big.sh?\n" in shown.rpartition("more lines]")[2]
        person.sees("y, a, f, n, d, l or s, then Enter (")
        person.sees("then no)")
        person.types("s\r")
        person.sees("? Create big.sh? (y, a, f, n, d, l or s;")
        person.sees("1 to ")
        assert "\x1b[?1049h" in person.raw
        person.types("G")
        person.sees("<U+0000>")  # the last page is there
        person.types("q")
        person.sees("lines have not been on the screen yet")
        person.sees("? Create big.sh?\n")
        person.sees("then no)")
        assert "\x1b[?1049l" in person.raw
        assert "line 1999<U+0000>" in person.said and "line 1998<U+000D>" in person.said
        for answer in ("y", "a"):
            person.types(f"{answer}\r")
            person.sees("lines have not been on the screen yet")
            person.sees("then no)")
        assert not (folder / "big.sh").exists()
        person.resizes(columns=80, lines=1100)  # two pages show the rest
        person.types("s\r")
        person.sees("? Create big.sh? (y, a, f, n, d, l or s;")
        person.types(" ")
        person.sees("<U+0000>")
        person.types("q")
        person.sees("? Create big.sh?\n")
        person.sees("then no)")
        person.types("y\r")
        person.leaves_by(0)
        assert person.is_cooked()
    assert (folder / "big.sh").read_bytes().endswith(b"line 1998\r\nline 1999\0\n")
    assert not (folder.parent / "started").exists()


def test_one_long_line_is_shown_as_many_rows_are(lab: Lab, folder: Path) -> None:
    """Proves (issue 13, 9): a line that fills the screen scrolls its beginning away, so the question comes again below it, and a
    key shows all of it."""
    env = {"LINES": "24", "COLUMNS": "80"}
    with at_terminal("run", "Go.", *at(lab, "endless-line"), cwd=folder, env=env) as person:
        shown = person.sees("[s] show all of it")
        assert "? Run touch begin xxx" in shown.rpartition("asked because")[2]
        person.sees("then no)")
        person.types("n\r")
        person.leaves_by(8)


def test_the_time_that_is_over_in_the_pager_denies_and_leaves_the_terminal_as_it_was(lab: Lab, folder: Path) -> None:
    """Proves: the other screen is left, the default is told."""
    with at_terminal("run", "Go.", "--ask-timeout", "10", *at(lab, "long"), cwd=folder) as person:
        person.sees("then no)")
        person.types("s\r")
        person.sees("? Create big.sh? (")
        person.sees("no answer in time to write: denied")
        person.leaves_by(8)
        assert person.is_cooked() and person.raw.count("\x1b[?1049l") == 1
    assert not (folder / "big.sh").exists()


def test_a_path_outside_that_is_allowed_is_read(lab: Lab, folder: Path) -> None:
    """The tool that opens it knows what was judged; the ask says where it leads."""
    (folder.parent / "other.txt").write_text("from outside\n")
    with at_terminal("run", "Go.", *at(lab, "outside"), cwd=folder) as person:
        asked = "".join(person.sees("then no)").split())  # a long path is wrapped
        assert f"whichleadsoutsidetheworkspace(`{folder.parent}/other.txt`)" in asked
        person.types("y\r")
        assert "It said: 1 from outside" in " ".join(person.leaves_by(0).split())  # a tab moves to the next column


def test_what_was_typed_before_the_ask_is_no_answer_to_it(lab: Lab, folder: Path) -> None:
    """Keys that were meant for something else allow nothing."""
    with at_terminal("run", "Go.", "--ask-timeout", "1.5", *at(lab, "touches"), cwd=folder) as person:
        person.types("y\r")
        person.sees("no answer in time")
        person.leaves_by(8)
    assert made(folder) is None


@pytest.mark.promise("wait:ask", "wait:child")
def test_the_asks_of_sub_agents_come_one_after_the_other_with_their_path(lab: Lab, folder: Path) -> None:
    """Two children ask at once: each is asked at the root, with the path that leads to it, and gets its own answer."""
    with at_terminal("run", "Go.", *at(lab, "delegates"), cwd=folder) as person:
        person.sees("? Run `echo child >> made.txt`? (asked by general)")
        assert "[l] later" not in person.sees("then no)")
        person.types("y\r")
        person.sees("? Run `echo child >> made.txt`? (asked by general)")
        person.sees("then no)")
        person.types("n\r")
        end = person.leaves_by(0)
        assert "  general: ✗ bash: Denied: `bash` was not run, because the user denied it." in person.said
        assert "  general: ✓ bash: (no output)" in person.said and "They said: The tool said:" in end
    assert made(folder) == "child\n"


@pytest.mark.promise("wait:ask", "wait:child")
def test_the_asks_of_sub_agents_run_out_of_time_also_while_they_wait_for_their_turn(lab: Lab, folder: Path) -> None:
    """The one that was never shown, too: each child is denied, and the run goes on."""
    with at_terminal("run", "Go.", "--ask-timeout", "5", *at(lab, "delegates"), cwd=folder) as person:
        person.sees("? Run `echo child >> made.txt`? (asked by general)")
        person.sees("no answer in time to general › bash: denied")
        person.sees("no answer in time to general › bash: denied")
        assert "They said:" in person.leaves_by(8)
    assert made(folder) is None


@pytest.mark.promise("wait:ask")
def test_a_question_of_the_models_is_answered_by_number_or_in_words(lab: Lab, folder: Path) -> None:
    """The answer is the tool's result; a number that is none is asked for again."""
    for typed, answer in (("2", "blue"), ("green, please", "green, please")):
        with at_terminal("run", "Go.", *at(lab, "question"), cwd=folder) as person:
            assert "Which one?\n  1. red\n  2. blue\n" in person.sees("then the model decides)")
            person.types("7\r")
            person.sees("there is no answer 7; they are 1 to 2")
            person.sees("then the model decides)")
            person.types(f"{typed}\r")
            assert f"You said: {answer}" in person.leaves_by(0)


@pytest.mark.promise("wait:ask")
def test_a_call_left_for_later_waits_and_is_approved_by_id(lab: Lab, folder: Path, cli: Cli) -> None:
    """Exit code 4; later it runs once without another request for it, or is denied; without a word it goes on waiting."""
    with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder) as person:
        person.sees("then no)")
        person.types("l\r")
        assert "1 call left for later: bash (" in person.leaves_by(4)
    assert made(folder) is None
    unsaid = cli("run", "--continue")
    assert unsaid.code == 2 and "--approve all" in unsaid.err and lab.count() == 1
    strange = cli("run", "--continue", "--approve", "call_nothing")
    assert strange.code == 2 and "no such call waits" in strange.err
    ran = cli.approves("run", "--continue", "--approve", "all", "--json")
    last = ran.events()[-1]
    assert (ran.code, last["stop_reason"], last["asks"], last["denied"]) == (0, "answered", [], [])
    assert last["repairs"] == []
    assert made(folder) == "ran\n" and lab.count() == 2
    assert cli("run", "--continue", "--approve", "all").code == 2


def test_a_call_left_for_later_is_asked_about_again_at_the_terminal(lab: Lab, folder: Path) -> None:
    """`run --continue` without a prompt; Ctrl-C leaves it waiting."""
    with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder) as person:
        person.sees("then no)")
        person.types("l\r")
        person.leaves_by(4)
    with at_terminal("run", "--continue", cwd=folder) as person:
        person.sees("then no)")
        person.types(CTRL_C)
        person.leaves_by(4)
    with at_terminal("run", "--continue", cwd=folder) as person:
        person.sees("then no)")
        person.types("y\r")
        person.leaves_by(0)
    assert made(folder) == "ran\n" and lab.count() == 2


@pytest.mark.promise("wait:ask", "wait:child")
@pytest.mark.parametrize(("name", "paths"), [("touches", [[]]), ("delegates", [["general"], ["general"]])])
def test_without_a_terminal_asks_are_decided_at_once(
    lab: Lab, folder: Path, cli: Cli, name: str, paths: list[list[str]]
) -> None:
    """At the root and in children: nobody is waited for (the deadline is a day), the result and a line say so, exit code 0."""
    ran = cli("run", "Go.", "--json", "--ask-timeout", "86400", *at(lab, name))
    last = ran.events()[-1]
    assert (ran.code, last["stop_reason"], last["complete"]) == (8, "answered", True)
    assert [(one["path"], one["name"]) for one in last["denied"]] == [(path, "bash") for path in paths]
    assert all("nobody is there to be asked" in one["why"] for one in last["denied"])
    assert ran.err.startswith("not run, as nobody is there to be asked: ") and made(folder) is None
    tools = [tool["function"]["name"] for tool in msgspec.json.decode(lab.requests[0].body)["tools"]]
    assert "ask_user" not in tools and "task" in tools


@pytest.mark.promise("wait:ask")
def test_unattended_asks_nobody_though_there_is_a_terminal(lab: Lab, folder: Path) -> None:
    """So does a run whose standard input is no terminal."""
    for args, stdin in ((["--unattended"], True), ([], False)):
        with at_terminal("run", "Go.", *args, *at(lab, "touches"), cwd=folder, stdin=stdin) as person:
            assert "not run, as nobody is there to be asked: bash" in person.leaves_by(8)
    assert made(folder) is None


def test_a_pipe_in_the_place_of_the_person_is_named(lab: Lab, folder: Path) -> None:
    """Issue 15: `cat app.log | turnwise run "fix"` at a terminal was told to run at a terminal."""
    read, write = os.pipe()
    os.write(write, b"a log")
    os.close(write)
    try:
        with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder, stdin=read) as person:
            said = " ".join(person.leaves_by(8).split())
    finally:
        os.close(read)
    assert "not run, as standard input is a pipe, so nobody can be asked: bash" in said
    assert "or at a terminal" not in said and b"standard input is a pipe" in lab.requests[-1].body


def test_the_lines_of_a_child_say_which_one_they_are_of(lab: Lab, folder: Path, cli: Cli) -> None:
    """With --json each has the path and the call of its parent; the children's spending is in the result."""
    events = cli("run", "Go.", "--json", "--allow", "bash(echo child)", *at(lab, "delegates")).events()
    tasks = [one["id"] for one in events if one["event"] == "tool_call" and one["name"] == "task"]
    inner = [one for one in events if one["event"] == "tool_call" and one["name"] == "bash"]
    assert [one["path"] for one in inner] == [["general"], ["general"]]
    assert sorted(one["parent"] for one in inner) == sorted(tasks)
    children = sorted([(one["call_id"], one["requests"]) for one in events[-1]["children"]])
    assert children == [(id, 2) for id in sorted(tasks)]


def test_no_color_has_no_colours_in_an_ask(lab: Lab, folder: Path) -> None:
    """Source: no-color.org."""
    with at_terminal("run", "Go.", *at(lab, "touches"), cwd=folder, env={"NO_COLOR": "1"}) as person:
        person.sees("then no)")
        person.types("n\r")
        person.leaves_by(8)
        assert not re.search(r"\x1b\[[0-9;]*[1-9][0-9;]*m", person.raw)
