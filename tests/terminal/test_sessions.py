"""Sessions: listed, shown, and gone on with."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from terminal.running import Cli, at
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab


def ids(cli: Cli) -> list[str]:
    return [one["id"] for one in cli("sessions", "list", "--json").events()]


def test_a_session_is_listed_and_shown(cli: Cli, lab: Lab, folder: Path) -> None:
    """Prompt, calls, results and answer are there; an id may be given by its end."""
    cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer"))
    listed = cli("sessions", "list")
    assert "1 turn " in listed.out and "answered" in listed.out and "Set it to done." in listed.out
    shown = cli("sessions", "show", listed.out.split()[0])
    assert shown.code == 0
    for text in ("\nuser\nSet it to done.", "→ read notes.txt", "✓ read: ", "→ edit notes.txt", "\nassistant\nDone: "):
        assert text in shown.out
    whole = json.loads(cli("sessions", "show", "--json", ids(cli)[0]).out)
    assert [one["role"] for one in whole["messages"]] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]


def test_sub_agents_of_a_program_are_shown_under_it(cli: Cli, lab: Lab) -> None:
    """Three deep, each inside the program that started it; the requests of all are the lab's."""
    ran = cli("run", "Go.", "--script", *at(lab, "delegates-by-program"))
    assert ran.code == 0 and "line 1: The program failed: NameError: name 'task' is not defined" in ran.out
    shown = cli("sessions", "show", cli("sessions", "list").out.split()[0]).out.splitlines()
    heads = [line.partition("session ")[0] for line in shown if line.lstrip().startswith("session ")]
    assert heads == ["", " " * 4, " " * 8, " " * 12]
    assert lab.count() == 8


def test_without_sessions_the_list_says_how_to_begin(cli: Cli) -> None:
    """Nothing on standard output, so that a script sees an empty list."""
    assert cli("sessions", "list") == (0, "", "no sessions yet: `turnwise run` makes one\n")
    assert cli("sessions", "list", "--json") == (0, "", "")


def test_no_session_is_left_out_in_silence(cli: Cli, folder: Path) -> None:
    """Issue 15: `--json` stopped at 20. It has all; the table says how many there are. `--limit` holds for both."""
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        for number in range(23):
            journal.begin_turn(turn_id=f"turn{number}", session_id=f"{number:08}", folder=folder, title="Go.")
    assert len(ids(cli)) == 23 and len(cli("sessions", "list", "--json", "--limit", "2").events()) == 2
    *rows, last = cli("sessions", "list").out.splitlines()
    assert (len(rows), last) == (20, "20 of 23 sessions; --limit N shows more")
    assert len(cli("sessions", "list", "--limit", "23").out.splitlines()) == 23


def test_prune_shows_every_session_that_would_go(cli: Cli, folder: Path) -> None:
    """Proves (issue 39, 3): from the 21st on they were counted only, and one yes deleted them; titles were cut at 60 letters."""
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        for number in range(24):
            name = f"turn{number}"
            title = f"{'Look at all of it. ' * 4}Go {number}."
            journal.begin_turn(turn_id=name, session_id=f"{number:08}", folder=folder, title=title)
    with sqlite3.connect(journal_path(os.environ)) as file:
        file.execute("update turn set status = 'complete'")
    asked = cli("sessions", "prune", "--keep", "1", "--unfinished")
    assert asked.code == 2 and "add --yes" in asked.err
    assert sum(f"Go {number}." in asked.err for number in range(24)) == 23


def test_continue_keeps_model_address_and_key_variable(cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be given again, and the earlier messages are sent; the environment does not interfere."""
    monkeypatch.setenv("MY_KEY", "sk-my-own-key-0001")
    options = ["--no-environment", *at(lab, "plain-answer")]
    first = cli("run", "Hello.", "--json", "--api-key-env", "MY_KEY", *options).events()[-1]
    monkeypatch.setenv("TURNWISE_MODEL", "openai_chat:refusal")
    monkeypatch.setenv("TURNWISE_BASE_URL", "http://127.0.0.1:1/v1")
    second = cli("run", "And now?", "--continue", "--no-environment", "--json").events()[-1]
    assert (second["stop_reason"], second["session"]) == ("answered", first["session"])
    said = [(one["role"], one["content"]) for one in json.loads(lab.requests[1].body)["messages"][1:]]
    assert said == [("user", "Hello."), ("assistant", first["text"]), ("user", "And now?")]
    assert len(ids(cli)) == 1


def test_continue_needs_no_prompt(cli: Cli, lab: Lab) -> None:
    """The model is asked to go on."""
    cli("run", "Hello.", *at(lab, "plain-answer"))
    assert cli("run", "-c").code == 0
    assert json.loads(lab.requests[1].body)["messages"][-1]["content"] == "Go on where you left off."


def test_another_model_brings_its_own_address(cli: Cli, lab: Lab) -> None:
    """With `--model` nothing of the session's is reused: the line says what to give."""
    cli("run", "Hello.", *at(lab, "plain-answer", family="gemini"))
    ran = cli("run", "And now?", "--continue", "--model", "openai_chat:plain-answer")
    assert (ran.code, ran.out, lab.count()) == (2, "", 1) and "give --base-url" in ran.err
    assert cli("run", "And now?", "--continue", *at(lab, "plain-answer")).code == 0


def test_a_query_in_the_address_is_not_kept(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    """It may hold a key; going on then asks for the address again instead of using another one."""
    cli("run", "Hello.", "--model", "openai_chat:plain-answer", "--base-url", f"{lab.url}/v1?key=sk-in-a-query")
    assert b"sk-in-a-query" not in b"".join(
        [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    )
    ran = cli("run", "And now?", "--continue")
    assert ran.code == 2 and "is not kept: give --base-url again" in ran.err


def test_session_goes_on_anywhere_and_says_that_the_folder_is_another(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    """`--continue` looks at the folder's sessions only, `--session` at all."""
    cli("run", "Hello.", *at(lab, "plain-answer"))
    (tmp_path / "other").mkdir()
    elsewhere = ("--cwd", str(tmp_path / "other"))
    assert cli("run", "And now?", "--continue", *elsewhere).code == 2
    ran = cli("run", "And now?", "--session", ids(cli)[0][-8:], *elsewhere)
    assert ran.code == 0 and "this session began in " in ran.err


def test_a_fork_goes_on_from_a_step_and_costs_nothing_until_then(cli: Cli, lab: Lab) -> None:
    """Proves: the new session sends what was said up to the step, and the original is the same."""
    cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer"))
    (session,) = ids(cli)
    before, sent = cli("sessions", "show", session).out, lab.count()
    forked = cli("sessions", "fork", session, "--step", "1")
    new = forked.out.strip()
    assert forked.code == 0 and f"go on there with `turnwise run --session {new[-8:]}" in forked.err
    assert lab.count() == sent and cli("usage", "--json", "--session", new).code == 0
    cli("run", "Leave it.", "--session", new)
    roles = [one["role"] for one in json.loads(lab.requests[sent].body)["messages"][1:]]
    assert roles == ["user", "assistant", "tool", "user"]
    assert cli("sessions", "show", session).out == before
    told = cli("sessions", "fork", session, "--turn", "1", "--json").events()[0]
    assert (told["of"], told["turn"], told["step"]) == (session, 1, 3)
    wrong = cli("sessions", "fork", session, "--step", "8")
    assert (wrong.code, wrong.err) == (2, "turnwise: turn 1 has no step 8: its last is step 3\n")


def test_prune_shows_what_would_go_and_deletes_it_only_with_yes(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: nothing goes without a rule or without a yes; the bill is the same before and after; the settings file may rule."""
    for _ in range(3):
        cli("run", "Hello.", *at(lab, "plain-answer"))
    bill = cli("usage", "--json", "--since", "all").events()[0]["total"]
    rule = cli("sessions", "prune")
    assert rule.code == 2 and "--older-than 90d" in rule.err
    asked = cli("sessions", "prune", "--keep", "1")
    assert asked.code == 2 and asked.err.count("Hello.") == 2 and "add --yes" in asked.err and len(ids(cli)) == 3
    assert "nothing to delete" in cli("sessions", "prune", "--older-than", "1d", "--yes").err
    newest = ids(cli)[0]
    done = cli("sessions", "prune", "--keep", "2", "--yes")
    assert (done.code, done.out) == (0, "deleted 1 session; `turnwise usage` counts them as before\n")
    assert cli("usage", "--json", "--since", "all").events()[0]["total"] == bill
    settings = tmp_path / "settings.toml"
    settings.write_text("[sessions]\nkeep = 1\n")
    monkeypatch.setenv("TURNWISE_CONFIG", str(settings))
    assert cli("run", "Hello.", "-c").code == 0
    told = cli("sessions", "prune", "--json", "--yes").events()[0]
    assert len(told["deleted"]) == 1 and ids(cli) == [newest]
    typo = cli("sessions", "prune", "--older-than", "soon")
    assert (typo.code, len(typo.complaints())) == (2, 1) and "write a number and h, d or w" in typo.err
