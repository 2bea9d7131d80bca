"""`turnwise undo` and `/undo`: a turn's changes are taken back by another process, and nobody else's with them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.person import CTRL_C, at_terminal
from terminal.running import Cli, Ran, at, running_lab, script
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import Journal
from turnwise.lab import Lab

SEVERAL = script(
    "several",
    r"""
[[steps]]
calls = [
    { name = "write", arguments = { path = "made/new.txt", content = "new\n" } },
    { name = "write", arguments = { path = "notes.txt", content = "status: done\n", overwrite = true } },
    { name = "apply_patch", arguments = { patch = "*** Begin Patch\n*** Delete File: todo.txt\n*** End Patch\n" } },
    { name = "bash", arguments = { command = "echo made > by-a-command.txt" } },
]
[[steps]]
text = "Done."
""",
)
HANDS_OUT = script(
    "hands-out",
    r"""
[[steps]]
asked = "do it below"
calls = [
    { name = "write", arguments = { path = "child.txt", content = "child\n" } },
    { name = "bash", arguments = { command = "echo made > by-a-command.txt" } },
]

[[steps]]
asked = "do it below"
text = "Done."

[[steps]]
calls = [{ name = "task", arguments = { prompt = "do it below" } }]

[[steps]]
text = "It said: {result}"
""",
)
ONE_FILE = script(
    "one-file",
    r"""
recall = { path = 'write (\S+)' }

[[steps]]
calls = [{ name = "write", arguments = { path = "{path}", content = "new\n", overwrite = true } }]

[[steps]]
text = "Done."
""",
)
LARGE = script(
    "large",
    r"""
[[steps]]
calls = [{ name = "write", arguments = { path = "notes.txt", content = "LINES", overwrite = true } }]

[[steps]]
text = "Done."
""".replace("LINES", "".join([rf"line {number}\n" for number in range(60)])),
)
COMMAND = script(
    "command",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo made > by-a-command.txt" } }]
[[steps]]
text = "Done."
""",
)
ALLOWED = ("--allow", "write", "--allow", "bash", "--no-sandbox")


@pytest.fixture(scope="module")
def undo_lab() -> Iterator[Lab]:
    with running_lab([SEVERAL, HANDS_OUT, ONE_FILE, LARGE, COMMAND]) as lab:
        yield lab


@pytest.fixture
def lab(undo_lab: Lab) -> Lab:
    undo_lab.reset()
    return undo_lab


def session_of(cli: Cli, lab: Lab, name: str, *args: str, prompt: str = "Go.") -> str:
    """The id of the session of one run."""
    ran = cli("run", prompt, "--json", *ALLOWED, *args, *([] if "-c" in args or "--session" in args else at(lab, name)))
    assert ran.code == 0, ran.err
    return ran.events()[-1]["session"]


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def outcomes(ran: Ran, folder: Path) -> dict[str, str]:
    (told,) = ran.events()
    return {str(Path(file["path"]).relative_to(folder)): file["outcome"] for file in told["files"]}


def test_a_run_is_taken_back_by_another_process(cli: Cli, lab: Lab, folder: Path) -> None:
    """Restored, removed with its folder, and created anew; what a command made stays, and that is said."""
    before = files(folder)
    session_of(cli, lab, "several")
    assert files(folder).keys() == {"notes.txt", "made/new.txt", "by-a-command.txt"}
    ran = cli("undo", "--yes")
    assert (ran.code, sorted(ran.out.splitlines())) == (
        0,
        ["  made/new.txt: removed", "  notes.txt: restored", "  todo.txt: recreated"],
    )
    for line in (
        ': "Go."',
        "  restore     notes.txt (+1 -1)",
        "    -status: done\n    +status: draft\n",
        "  remove      made/new.txt (+0 -1)",
        "  create anew todo.txt (+1 -0)",
        "1 command ran in it: what commands change cannot be taken back",
    ):
        assert line in ran.err
    assert files(folder) == {**before, "by-a-command.txt": "made\n"} and not (folder / "made").exists()
    again = cli("undo", "--yes")
    assert (again.code, again.out) == (2, "") and again.complaints()[0].endswith("or all its changes were taken back")


def test_again_is_about_the_turn_before(cli: Cli, lab: Lab, folder: Path) -> None:
    """Of the same session, though a turn of commands and one that was taken back lie between; and in JSON."""
    first = session_of(cli, lab, "one-file", prompt="write notes.txt")
    session_of(cli, lab, "one-file", "-c", prompt="write todo.txt")
    (told,) = cli("undo", "--yes", "--json").events()
    assert list(told) == ["session", "turn", "began", "prompt", "commands", "taken_back", "files"]
    assert told | {"turn": "", "began": 0} == {
        "session": first,
        "turn": "",
        "began": 0,
        "prompt": "write todo.txt",
        "commands": 0,
        "taken_back": True,
        "files": [{"path": str(folder / "todo.txt"), "outcome": "restored", "why": "", "saved": None}],
    }
    assert cli("run", "Go.", "-c", *ALLOWED, *at(lab, "command")).code == 0
    ran = cli("undo", "--yes")
    assert "1 turn after it ran commands only" in ran.err and ran.out == "  notes.txt: restored\n"
    assert "1 turn after it ran commands only" in cli("undo", "--yes").complaints()[0]


def test_nothing_of_another_session_is_taken_back(cli: Cli, lab: Lab, folder: Path) -> None:
    """Neither its files nor its later change of the same one; the session at hand is the last of the folder, or the one named."""
    first = session_of(cli, lab, "one-file", prompt="write notes.txt")
    second = session_of(cli, lab, "several")
    ran = cli("undo", first[-8:], "--yes", "--json")
    assert (ran.code, outcomes(ran, folder)) == (3, {"notes.txt": "kept"})
    assert (folder / "notes.txt").read_text() == "status: done\n" and not (folder / "todo.txt").exists()
    ran = cli("undo", "--yes", "--json")
    assert ran.events()[0]["session"] == second
    assert (folder / "notes.txt").read_text() == "new\n"


def test_a_file_that_changed_since_is_left_and_the_others_are_taken_back(cli: Cli, lab: Lab, folder: Path) -> None:
    """It is said before and after, with the copy of the old content; the exit code tells."""
    session_of(cli, lab, "several")
    (folder / "notes.txt").write_text("mine\n")
    ran = cli("undo", "--yes")
    assert ran.code == 3
    assert "  leave       notes.txt (it was changed since; what it held before: " in ran.err
    assert "  notes.txt: kept (it was changed since; " in ran.out and "  todo.txt: recreated" in ran.out
    copy = Path(ran.out.partition("what it held before: ")[2].partition(")")[0])
    assert copy.read_text() == "status: draft\n"
    assert files(folder).keys() == {"notes.txt", "todo.txt", "by-a-command.txt"}
    assert (folder / "notes.txt").read_text() == "mine\n"


def test_what_is_as_before_already_needs_no_answer(cli: Cli, lab: Lab, folder: Path) -> None:
    """A person has put it back by hand."""
    session_of(cli, lab, "one-file", prompt="write notes.txt")
    (folder / "notes.txt").write_text("status: draft\n")
    assert cli("undo")[:2] == (0, "  notes.txt: as it was before\n")


def test_without_a_terminal_it_needs_yes(cli: Cli, lab: Lab, folder: Path) -> None:
    """It shows what it would do, one line says what is missing, and nothing is changed."""
    session_of(cli, lab, "one-file", prompt="write notes.txt")
    ran = cli("undo")
    assert (ran.code, ran.out) == (2, "") and "  restore     notes.txt" in ran.err
    assert ran.complaints() == ["turnwise: nothing was taken back, as nobody can be asked here: add --yes"]
    ran = cli("undo", "--json")
    assert (ran.code, ran.events()[0]["taken_back"]) == (2, False)
    assert (folder / "notes.txt").read_text() == "new\n"


def test_changes_of_sub_agents_belong_to_the_turn(cli: Cli, lab: Lab, folder: Path) -> None:
    """Their commands are counted, too; taken back by the session that started them, and not by their own."""
    before = files(folder)
    session = session_of(cli, lab, "hands-out")
    assert files(folder) == {**before, "child.txt": "child\n", "by-a-command.txt": "made\n"}
    with Journal(folder.parent / "state" / "journal.db", clock=SystemClock()) as journal:
        ((_, child),) = journal.children(journal.find_session(session).turns[-1].id)
    assert f"session {child.row.id[-8:]} is a sub-agent's" in cli("undo", child.row.id, "--yes").complaints()[0]
    ran = cli("undo", "--yes")
    assert ran.out == "  child.txt: removed\n" and "1 command ran in it" in ran.err
    assert files(folder) == {**before, "by-a-command.txt": "made\n"}


def test_a_session_that_went_on_in_another_folder_is_taken_back_there(cli: Cli, lab: Lab, folder: Path) -> None:
    """Wherever it is asked for: the changes belong to the session."""
    session = session_of(cli, lab, "one-file", prompt="write notes.txt")
    other, third = folder.parent / "other", folder.parent / "third"
    other.mkdir()
    third.mkdir()
    session_of(cli, lab, "one-file", "--session", session, "--cwd", str(other), prompt="write there.txt")
    ran = cli("undo", session, "--yes", "--cwd", str(third))
    assert ran.out == f"  {other / 'there.txt'}: removed\n"
    ran = cli("undo", session, "--yes", "--cwd", str(third))
    assert ran.out == f"  {folder / 'notes.txt'}: restored\n"


@pytest.mark.parametrize("all_of_them", [True, False])
def test_saved_copies_that_are_gone_are_said(cli: Cli, lab: Lab, folder: Path, all_of_them: bool) -> None:
    """Somebody removed them; nothing is changed, though some are there: a turn is not taken back in part unseen."""
    session_of(cli, lab, "several")
    (store,) = (folder.parent / "state" / "changes").iterdir()
    before = files(folder)
    shutil.rmtree(store if all_of_them else store / "00000002")
    ran = cli("undo", "--yes")
    which = "the saved copies" if all_of_them else "some of the saved copies"
    assert (ran.code, ran.out) == (2, "") and f"{which} of what it changed are gone from" in ran.complaints()[0]
    assert files(folder) == before


def test_sessions_that_are_not_there_are_said(cli: Cli, lab: Lab, folder: Path) -> None:
    """None of this folder, none of that name, and one whose journal somebody has deleted."""
    assert "there is no session of" in cli("undo", "--yes").complaints()[0]
    assert "there is no session `abcdef`" in cli("undo", "abcdef", "--yes").complaints()[0]
    session = session_of(cli, lab, "one-file", prompt="write notes.txt")
    for path in (folder.parent / "state").glob("journal.db*"):
        path.unlink()
    assert f"there is no session `{session}`" in cli("undo", session, "--yes").complaints()[0]
    assert (folder / "notes.txt").read_text() == "new\n"


def test_a_session_that_is_running_is_waited_for(cli: Cli, lab: Lab, folder: Path) -> None:
    """Another process works on its next turn."""
    session = session_of(cli, lab, "one-file", prompt="write notes.txt")
    with Journal(folder.parent / "state" / "journal.db", clock=SystemClock()) as journal:
        journal.begin_turn(turn_id="t" * 26, session_id=session, folder=folder, title="")
        ran = cli("undo", "--yes")
    assert (ran.code, ran.out) == (2, "") and "is running: wait for its end" in ran.complaints()[0]
    assert (folder / "notes.txt").read_text() == "new\n"


def test_names_and_prompts_cannot_drive_the_terminal(cli: Cli, lab: Lab, folder: Path) -> None:
    """Control characters of a prompt, a file's name and its content are spelled out."""
    session_of(cli, lab, "one-file", prompt="\x1b[2J write a\x1b[31m\u202eb.txt")
    ran = cli("undo", "--yes")
    assert ran.code == 0
    assert (
        "\x1b[2J" not in ran.err + ran.out and "\x1b[31m" not in ran.err + ran.out and "\u202e" not in ran.err + ran.out
    )
    assert "<U+001B>" in ran.out and "<U+001B>[2J" in ran.err


def test_a_continued_session_shows_itself_and_is_taken_back(cli: Cli, lab: Lab, folder: Path) -> None:
    """At a terminal: the last exchange; /undo shows, asks, and takes back what another process changed; then `exit` leaves."""
    session_of(cli, lab, "one-file", prompt="write notes.txt")
    with at_terminal("--continue", cwd=folder) as person:
        person.sees(f", 1 turn, in {folder} with openai_chat:one-file; the last ")
        person.sees("  you: write notes.txt\n")
        person.sees("  answer: Done.")
        person.sees("\n>")
        person.types("/undo 2\r")
        person.sees("it takes no number or name")
        person.sees("\n>")
        person.types("/undo\r")
        person.sees("    +status: draft\n")
        person.sees("take 1 file back? [y/N]")
        person.types("\r")
        person.sees("nothing was taken back")
        person.sees("\n>")
        person.types("/undo\r")
        person.sees("take 1 file back? [y/N]")
        person.types(CTRL_C)
        person.sees("nothing was taken back")
        person.sees("\n>")
        assert (folder / "notes.txt").read_text() == "new\n"
        person.types("/undo\r")
        person.sees("take 1 file back? [y/N]")
        person.types("y\r")
        person.sees("notes.txt: restored")
        assert (folder / "notes.txt").read_text() == "status: draft\n"
        person.sees("\n>")
        person.types("/undo\r")
        person.sees("has changed no file, or all its changes were taken back")
        person.sees("\n>")
        person.types("exit\r")
        person.leaves_by(0)


def test_the_command_asks_at_a_terminal(cli: Cli, lab: Lab, folder: Path) -> None:
    """A file that changes while the question stands is not lost: nothing is taken back, and one line says so."""
    session_of(cli, lab, "one-file", prompt="write notes.txt")
    with at_terminal("undo", cwd=folder) as person:
        person.sees("take 1 file back? [y/N]")
        (folder / "notes.txt").write_text("mine\n")
        person.types("y\r")
        assert "`notes.txt` changed at this moment; look again" in person.leaves_by(2)
    (folder / "notes.txt").write_text("new\n")
    with at_terminal("undo", cwd=folder) as person:
        person.sees("take 1 file back? [y/N]")
        person.types("n\r")
        assert "nothing was taken back" in person.leaves_by(130)
    with at_terminal("undo", cwd=folder) as person:
        person.sees("take 1 file back? [y/N]")
        person.types("yes\r")
        assert "notes.txt: restored" in person.leaves_by(0)


@pytest.mark.promise("safe:seen")
@pytest.mark.parametrize("way", ["undo", "/undo"])
def test_a_long_diff_is_taken_back_once_all_of_it_was_on_the_screen(cli: Cli, lab: Lab, folder: Path, way: str) -> None:
    """Proves (issue 39, 3): a diff of more than 40 lines was told by its counts, and `y` took it back."""
    session_of(cli, lab, "large")
    env = {"LINES": "24", "COLUMNS": "80"}
    with at_terminal(*(["undo"] if way == "undo" else ["--continue"]), cwd=folder, env=env) as person:
        if way == "/undo":
            person.sees("\n>")
            person.types("/undo\r")
        assert "line 59" not in person.sees("s shows all of it, page by page")
        person.sees("take 1 file back? [y/N]")
        person.types("y\r")
        person.sees("lines have not been on the screen yet")
        person.sees("take 1 file back? [y/N]")
        assert (folder / "notes.txt").read_text().endswith("line 59\n")
        person.resizes(columns=80, lines=200)
        person.types("s\r")
        person.sees("-line 59")
        person.types("q")
        person.sees("all of it has been on the screen")
        person.sees("take 1 file back? [y/N]")
        person.types("y\r")
        person.sees("notes.txt: restored")
    assert (folder / "notes.txt").read_text() == "status: draft\n"


@pytest.mark.promise("wait:ask")
def test_a_turn_that_only_approves_is_told_by_the_prompt_that_it_works_for(cli: Cli, lab: Lab, folder: Path) -> None:
    """Issue 15: its `prompt` was empty, as nobody said anything in it, and a repair told of a call without a result."""
    with at_terminal("run", "write notes.txt now", *at(lab, "one-file"), cwd=folder) as person:
        person.sees("then no)")
        person.types("l\r")
        person.leaves_by(4)
    ran = cli.approves("run", "--continue", "--approve", "all", "--json")
    assert (ran.code, ran.events()[-1]["repairs"]) == (0, [])
    (told,) = cli("undo", "--yes", "--json").events()
    assert told["prompt"] == "write notes.txt now"


def test_the_session_that_has_something_to_take_back_is_named(cli: Cli, lab: Lab, folder: Path) -> None:
    """Issue 15: after a later run that failed the edit of the session before could not be found again. Also as JSON."""
    before = files(folder)
    session_of(cli, lab, "one-file", prompt="write older.txt now")
    newer = session_of(cli, lab, "one-file", prompt="write newer.txt now")
    taken = session_of(cli, lab, "one-file", prompt="write taken.txt now")
    assert cli("undo", "--yes", taken).code == 0
    assert cli("run", "Go.", *at(lab, "fault-401")).code == 6
    ran = cli("undo", "--yes", "--json")
    (told,) = ran.events()
    assert (ran.code, told["taken_back"], told["files"]) == (2, False, [])
    assert f"`turnwise undo {newer[-8:]}`" in told["error"] and told["error"] in ran.complaints()[0]
    assert cli("undo", "--yes", newer[-8:]).code == 0
    assert cli("undo", "--yes", cli("undo", "--yes").complaints()[0].rpartition("undo ")[2].strip("`")).code == 0
    assert files(folder) == before
    assert cli("undo", "--yes").complaints()[0].endswith("has changed no file, or all its changes were taken back")
