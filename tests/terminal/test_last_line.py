"""Under `--json` the last line says how a command of the run family ended, also where nothing could begin."""

import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import click
import pytest

from terminal.running import Cli, Ran, at
from turnwise.journal.journal import journal_path
from turnwise.lab import Lab
from turnwise.terminal.group import group

UNUSABLE = ("resume", "run --continue Go.", "run Go. -m openai:gpt-5")
BESIDE_A_JOURNAL: dict[str, dict[str, object]] = {
    "resume --all": {"event": "summary", "sessions": [], "failed": 0},
    "replay 0000000000": {"event": "replay", "same": False},
    "undo": {"taken_back": False, "files": []},
    "sessions list": {},
    "sessions show 0000000000": {},
    "sessions rescue": {},
    "sessions fork 0000000000": {},
    "sessions prune --keep 1 --yes": {},
    "usage": {},
    "gateway report": {},
    "compare Go. -m openai_chat:a -m openai_chat:b --base-url http://127.0.0.1:9/v1": {},
}
CANNOT_BEGIN = {
    "no such option": "resume --nope",
    "no such option of run": "run Go. --nope",
    "a value that is none": "run Go. --max-steps many",
    "no such session": "resume 0000000000",
    "no session of this folder": "resume",
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


@pytest.mark.parametrize("words", ["--nope", "0000000000", "--base-url http://127.0.0.1:9/v1", "--ask-timeout long"])
def test_a_resume_of_all_that_cannot_begin_ends_with_a_summary(cli: Cli, words: str) -> None:
    """Proves: its last line is a `summary` in every case, so who reads several sessions finds the type that he waits for."""
    ran = cli("resume", "--all", *words.split(), "--json")
    (last,) = ran.events()
    why = last.pop("error")
    assert last == {"event": "summary", "sessions": [], "failed": 0, "exit_code": 2} and ran.code == 2
    assert why[:40] in ran.err


@pytest.mark.parametrize(("words", "told"), BESIDE_A_JOURNAL.items())
def test_a_damaged_journal_is_told_in_the_last_line_of_each_command(
    cli: Cli, folder: Path, words: str, told: dict[str, object]
) -> None:
    """Proves: every command that opens the journal ends with the line that the docs name, with `error` and `exit_code`."""
    path = journal_path(os.environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database" * 1000)
    ran = cli(*words.split(), "--json")
    last = ran.events()[-1]
    assert "damaged or no SQLite file" in last["error"] and last["error"] in ran.err
    assert last == {**told, "error": last["error"], "exit_code": 2} and ran.code == 2
    assert folder.parent in path.parents


def commands_below(group: click.Group, *, words: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{words}{name}", command
        if isinstance(command, click.Group):
            yield from commands_below(command, words=f"{words}{name} ")


def test_every_command_with_json_ends_with_a_line_also_on_wrong_use(cli: Cli) -> None:
    """Proves: of all commands only those that serve until they are stopped have no last line; a new command cannot forget it."""
    told = {words for words, one in commands_below(group) if any("--json" in param.opts for param in one.params)}
    silent = {words for words in told if not cli(*words.split(), "--nope", "--json").out}
    assert silent == {"gateway", "worker"} and len(told) > 20
    for words in told - silent:
        ran = cli(*words.split(), "--nope", "--json")
        (last,) = ran.events()
        assert (last["exit_code"], ran.code) == (2, 2), words


def test_the_page_names_the_last_line_of_each_command(cli: Cli) -> None:
    """Proves: the table of docs/cli.md has the keys that are there, in their order, with the values that it says."""
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    table = page.partition("## When a command fails")[2].partition("## Environment")[0]
    lines = dict(re.findall(r"^\| `?([^|`]+).* \| `(\{.*\})` \|$", table, re.MULTILINE))
    assert list(lines) == ["resume --all", "replay", "undo", "every other one with "]
    for words, line in lines.items():
        ran = cli(*("usage" if words.startswith("every") else words).split(), "--nope", "--json")
        told = ran.out.rstrip().replace(f'"error":{json.dumps(ran.events()[0]["error"])}', '"error"')
        assert told.replace(f'"exit_code":{ran.code}', '"exit_code"') == line


def test_the_line_of_a_mistake_is_one_line_of_plain_text(cli: Cli) -> None:
    """Proves: line breaks and control characters of what was typed cannot make it two lines, or drive a terminal."""
    ran = cli("sessions", "show", "no\nbody\x1b[2J", "--json")
    (line,) = ran.err.splitlines()
    assert line.startswith("turnwise: ")
    assert "\x1b" not in line and (ran.code, ran.events()[-1]["exit_code"]) == (2, 2)


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
def test_a_signal_at_the_beginning_ends_a_resume_with_its_last_line(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, moment: str
) -> None:
    """Proves: while the command is loaded (Ctrl-C), from its first note on and behind its turns, the last line is the summary."""
    del folder

    def hit(*_: object, **__: object) -> NoReturn:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal came, and nothing was told")

    where = {
        "note": "turnwise.terminal.resuming.resume",
        "import": "turnwise.terminal.group.run",
        "command": "turnwise.terminal.group.importlib.import_module",
        "end": "turnwise.terminal.resuming.JsonLines.summarise",
    }[moment]
    if moment == "import":
        monkeypatch.setitem(sys.modules, "turnwise.terminal.group", Interrupting("turnwise.terminal.group"))
    else:
        monkeypatch.setattr(where, hit)
    ran = cli("resume", "--all", "--json")
    last = ran.events()[-1]
    assert last == {"event": "summary", "sessions": [], "failed": 0, "error": "cancelled", "exit_code": 130}
    assert ran.code == 130


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
