"""Under `--json` the last line says how a command of the run family ended, also where nothing could begin."""

import os
import signal
import sqlite3
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from faces.cli.running import Cli, Ran, at
from turnwise.lab import Lab

UNUSABLE = ("resume", "run --continue Go.", "run Go. -m openai:gpt-5", "resume --all")
CANNOT_BEGIN = {
    "no such option": "resume --nope",
    "no such option of run": "run Go. --nope",
    "a value that is none": "run Go. --max-steps many",
    "no such session": "resume 0000000000",
    "no session of this folder": "resume",
    "both": "resume 0000000000 --all",
    "nothing to continue": "run Go. --continue",
    "no session of that id": "run Go. --session 0000000000",
    "no model": "run Go.",
    "no key": "run Go. -m openai:gpt-5",
    "no such provider": "run Go. -m nobody:x",
    "no such folder": "run Go. -m openai:gpt-5 --cwd nowhere",
}


def last_of(ran: Ran) -> dict[str, object]:
    """The last line, which says what standard error says, and the exit code."""
    last = ran.events()[-1]
    assert (last["event"], last["complete"], last["exit_code"]) == ("result", False, ran.code)
    assert last["text"] == last["why_incomplete"] and str(last["text"])[:40] in ran.err
    return last


@pytest.mark.parametrize("words", CANNOT_BEGIN.values(), ids=CANNOT_BEGIN)
def test_a_command_that_cannot_begin_ends_with_a_result(cli: Cli, words: str) -> None:
    """Proves: exit code 2 is told on standard output, too, with the words of standard error; nothing was sent."""
    ran = cli(*words.split(), "--json")
    last = last_of(ran)
    assert (ran.code, last["stop_reason"], last["requests"]) == (2, "not_begun", 0)


@pytest.mark.parametrize("words", UNUSABLE)
def test_a_journal_of_a_newer_turnwise_is_told_in_a_result(cli: Cli, lab: Lab, folder: Path, words: str) -> None:
    """Proves: every command that opens the journal says so, not `run` alone."""
    cli("run", "Go.", *at(lab, "plain-answer"))
    with sqlite3.connect(next(folder.parent.rglob("journal.db"))) as file:
        file.execute("pragma user_version = 99")
    file.close()
    ran = cli(*words.split(), "--json")
    last = last_of(ran)
    assert (ran.code, last["stop_reason"]) == (2, "journal_failed") and "newer turnwise" in str(last["text"])


def test_without_json_there_is_no_such_line(cli: Cli) -> None:
    """Proves: it goes where it was asked for; a word behind `--` asks for nothing."""
    assert [cli("resume", "--nope").out, cli("run", "Go.", "--nope", "--", "--json").out] == ["", ""]


@pytest.mark.parametrize("words", ["replay 0000000000", "replay nowhere.jsonl", "replay 0000000000 --turn none"])
def test_a_replay_that_cannot_begin_ends_with_an_error(cli: Cli, words: str) -> None:
    """Proves: its last line has the exit code, and the words of standard error."""
    ran = cli(*words.split(), "--json")
    (last,) = ran.events()
    assert (last["event"], last["same"], last["exit_code"], ran.code) == ("replay", False, 2, 2)
    assert last["error"][:40] in ran.err


def test_each_result_has_the_exit_code(cli: Cli, lab: Lab) -> None:
    """Proves: also of a turn that ended, of its replay, and of several sessions."""
    ran = cli("run", "Go.", "--json", *at(lab, "plain-answer"))
    replayed = cli("replay", ran.events()[-1]["session"], "--json")
    resumed = cli("resume", "--all", "--json")
    assert [one.events()[-1]["exit_code"] for one in (ran, replayed, resumed)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        *[(moment, signal.SIGINT) for moment in ("note", "import", "command", "end")],
        *[(moment, signal.SIGTERM) for moment in ("note", "end")],  # before the first note it ends the process
    ],
)
def test_a_signal_at_the_beginning_ends_a_resume_with_a_result(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
) -> None:
    """Proves: while the command is loaded (Ctrl-C), from its first note on and behind its turn, the last line is a result."""
    del folder

    def hit(*_: object, **__: object) -> NoReturn:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came, and nothing was told")

    where = {
        "note": "turnwise.faces.cli.resuming.resume",
        "import": "turnwise.faces.cli.group.run",
        "command": "turnwise.faces.cli.group.importlib.import_module",
        "end": "turnwise.faces.cli.resuming.JsonLines.summarise",
    }[moment]
    if moment == "import":
        monkeypatch.setitem(sys.modules, "turnwise.faces.cli.group", Interrupting("turnwise.faces.cli.group"))
    else:
        monkeypatch.setattr(where, hit)
    ran = cli("resume", "--all", "--json")
    last = ran.events()[-1]
    assert (ran.code, last["exit_code"], last["stop_reason"]) == (130, 130, "cancelled")


@pytest.mark.parametrize(
    "words", ["fork 0000000000", "prune", "prune --older-than soon", "prune --keep x", "fork --nope"]
)
def test_a_fork_or_a_prune_that_fails_says_so_in_its_line(cli: Cli, words: str) -> None:
    """Proves: standard output has one object with the words of standard error, and the exit code."""
    ran = cli("sessions", *words.split(), "--json")
    (last,) = ran.events()
    assert (last["exit_code"], ran.code) == (2, 2) and last["error"][:40] in ran.err


def test_an_export_without_a_name_is_refused(cli: Cli) -> None:
    """Proves: an empty name is told as one, before anything is read."""
    ran = cli("replay", "0000000000", "--export", "")
    assert ran.code == 2 and "--export needs the name of a file" in ran.err


class Interrupting(ModuleType):
    """A module during whose import somebody presses Ctrl-C."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt
