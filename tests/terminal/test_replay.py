"""`turnwise replay`: a session as it looked, without a request, and where today's code decides otherwise."""

import hashlib
import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from terminal.person import at_terminal
from terminal.running import Cli, at
from turnwise.journal.journal import journal_path
from turnwise.lab import Lab
from turnwise.terminal.replaying import MOST_PAUSE_S, ReplayView, show_again


def last_session(cli: Cli) -> str:
    return str(cli("sessions", "list", "--json").events()[0]["id"])


def change(statement: str) -> None:
    """Something of the journal, as no turnwise would."""
    connection = sqlite3.connect(journal_path(os.environ))
    with connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()


@pytest.mark.promise("keep:replay")
def test_a_session_looks_as_it_did_and_nothing_is_sent(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: the answer, each call and each result stand there as in the run; the lab got no further request, and a tool that
    changed a file did not run again."""
    ran = cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer"))
    sent, after = lab.count(), (folder / "notes.txt").read_text()
    (folder / "notes.txt").write_text("status: draft\n")
    shown = cli("replay", last_session(cli))
    assert (shown.code, shown.out) == (0, ran.out)
    calls = [line for line in ran.err.splitlines() if line[:1] in "→✓✗"]
    assert [line for line in shown.err.splitlines() if line[:1] in "→✓✗"] == calls and len(calls) == 4
    assert "> Set it to done." in shown.err and "all as recorded" in shown.err.splitlines()[-1]
    assert lab.count() == sent and "done" in after
    assert (folder / "notes.txt").read_text() == "status: draft\n"


def without_times(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in ("seconds", "cost_usd")} for line in lines]


def whole_texts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with the pieces of a text joined, as a journal has them."""
    joined: list[dict[str, Any]] = []
    for line in lines:
        if joined and line["event"] == "text" == joined[-1]["event"]:
            joined[-1] = {**joined[-1], "delta": joined[-1]["delta"] + line["delta"]}
        else:
            joined.append(line)
    return joined


@pytest.mark.promise("keep:replay")
@pytest.mark.parametrize("script", ["parallel-calls", "fault-once-reset", "cut-text", "loop-same-call", "empty-once"])
def test_json_lines_are_those_of_the_run(cli: Cli, lab: Lab, script: str) -> None:
    """Proves: what a program was told while the turn ran, it is told again, in the same order; the last line sums up."""
    ran = cli("run", "Go.", "--json", *at(lab, script)).events()
    shown = cli("replay", last_session(cli), "--json")
    turn, *lines, last = shown.events()
    assert (turn["event"], turn["turn"], turn["prompt"]) == ("turn", 1, "Go.")
    events = [line for line in ran if line["event"] not in ("note", "discarded")]
    if script == "fault-once-reset":  # its pieces came before the break; the journal has what had arrived
        assert [line["event"] for line in lines if line["event"] in ("request", "response", "result")] == [
            line["event"] for line in ran if line["event"] in ("request", "response", "result")
        ]
    else:
        assert without_times(whole_texts(lines)) == without_times(whole_texts(events))
    assert (last["event"], last["same"], last["differences"], shown.code) == ("replay", True, 0, 0)


def test_sub_agents_are_shown_below_the_call_that_started_them(cli: Cli, lab: Lab) -> None:
    """Proves: three levels of sub-agents stand where they stood, each replayed with the others."""
    ran = cli("run", "Go.", "--script", *at(lab, "delegates-by-program"))
    shown = cli("replay", last_session(cli))
    lines = [line for line in ran.err.splitlines() if "→" in line or "✓" in line or "✗" in line]
    assert (
        len(lines) > 3
        and [line for line in shown.err.splitlines() if "→" in line or "✓" in line or "✗" in line] == lines
    )
    assert "(and 3 sub-agents)" in shown.err.splitlines()[-1]


def test_one_turn_and_a_part_of_it_can_be_shown(cli: Cli, lab: Lab) -> None:
    """Proves: `--turn` leaves the others out, `--until` ends behind a step, and a turn that is not there is refused."""
    cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer"))
    cli("run", "-c", "And now?")
    session = last_session(cli)
    second = cli("replay", session, "--turn", "2")
    assert "And now?" in second.err and "Set it to done." not in second.err
    part = cli("replay", session, "--turn", "1", "--until", "1")
    assert "✓ read" in part.err and "→ edit" not in part.err and "stopped behind step 1" in part.err
    assert (part.code, part.out) == (0, "I will look at notes.txt first.\n"[: len(part.out)])
    none = cli("replay", session, "--turn", "3")
    assert (none.code, none.err) == (2, f"turnwise: session `{session}` has 2 turns: there is no turn 3\n")


@pytest.mark.promise("keep:replay")
def test_what_differs_is_named_and_the_exit_code_tells_it(cli: Cli, lab: Lab) -> None:
    """Proves: a journal in which another request, other calls and another end stand is told of, record by record, with code 3."""
    cli("run", "Go.", *at(lab, "parallel-calls"))
    session = last_session(cli)
    change("update record set body = json_set(body, '$.body_sha256', 'abc') where kind = 'request_sent'")
    change("update record set body = json_set(body, '$.call_ids', json('[\"x\"]')) where kind = 'tools_started'")
    change("update turn set stop_reason = 'loop'")
    shown = cli("replay", session)
    told = [line for line in shown.err.splitlines() if line.startswith("✗ turn 1, ")]
    assert shown.code == 3 and len(told) == 5 and "today's code decides otherwise at 5 places" in shown.err
    assert told[1].endswith("recorded: starts x; today: starts call_1_1, call_1_2")
    assert told[4] == "✗ turn 1, its end: recorded: ends the turn: loop; today: ends the turn: answered"
    lines = cli("replay", session, "--json").events()
    found = [(one["kind"], one["turn"], one["record"] > 0) for one in lines if one["event"] == "difference"]
    assert found == [("body", 1, True), *[("tools", 1, True)] * 2, ("body", 1, True), ("end", 1, False)]
    assert (lines[-1]["event"], lines[-1]["same"], lines[-1]["differences"]) == ("replay", False, 5)


def test_live_takes_the_times_of_the_record_and_no_pause_is_long(
    cli: Cli, lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """Proves: pauses are those between the records, bounded, and what was cut off is said."""
    cli("run", "Go.", *at(lab, "parallel-calls"))
    session = last_session(cli)
    change("update record set t = (select min(t) from record) + 3 * (id - (select min(id) from record))")
    change("update record set t = t + 3600 where id = (select max(id) from record)")
    capsys.readouterr()
    pauses: list[float] = []
    assert show_again(session, view=ReplayView(live=True), pause=pauses.append)
    told = capsys.readouterr().err
    assert max(pauses) == MOST_PAUSE_S and 3.0 in [round(one, 3) for one in pauses]
    assert "a pause takes 10 s at most" in told and " s passed here" in told


def test_wrong_use_is_one_line(cli: Cli, lab: Lab) -> None:
    """Proves: no session, an option that is none, and a session without a journal are told in one line, with what to do."""
    assert cli("replay", "nosuchid").err.startswith(
        "turnwise: there is no session `nosuchid`; `turnwise sessions list`"
    )
    assert cli("replay").code == 2 and "no session id" in cli("replay", "").err
    typo = cli("replay", "abcdefgh", "--untill", "2")
    assert (typo.code, len(typo.complaints())) == (2, 1) and "--until" in typo.err
    cli("run", "Go.", *at(lab, "plain-answer"))
    change("update record set body = '{' where kind = 'response_received'")
    damaged = cli("replay", last_session(cli))
    assert damaged.code == 2 and "cannot be read" in damaged.err


def test_a_turn_that_was_killed_is_shown_as_far_as_it_came(cli: Cli, lab: Lab) -> None:
    """Proves: a journal that stops in the middle is no difference, and the end says what happened."""
    cli("run", "Go.", *at(lab, "parallel-calls"))
    change("delete from record where id >= (select max(id) from record where kind = 'request_sent')")
    change("update turn set status = 'lost', stop_reason = null, complete = null")
    shown = cli("replay", last_session(cli))
    assert shown.code == 0 and "the turn was interrupted here" in shown.err
    assert json.loads(cli("replay", last_session(cli), "--json").out.splitlines()[-1])["same"]


@pytest.mark.promise("keep:replay")
def test_one_file_is_replayed_without_the_journal_and_without_its_secrets(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: a bug report is one file: with sub-agents, without the key that was used, and it shows the same with
    stand-ins."""
    key = "sk-test-1234567890abcdef"
    monkeypatch.setenv("MY_KEY", key)
    cli("run", f"Go, with {key}, Jürgen.", "--script", "--api-key-env", "MY_KEY", *at(lab, "delegates-by-program"))
    session = last_session(cli)
    before = cli("replay", session)
    file = tmp_path / "bug ü.jsonl"
    written = cli("replay", "--export", str(file), session, "--hide", "Jürgen")
    assert (written.code, written.out) == (0, "") and "2 secrets replaced; it holds the prompts" in written.err
    content = file.read_text()
    assert key not in content and "Jürgen" not in content and "1234567890abcdef" not in content
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(tmp_path / "another machine"))
    again = cli("replay", str(file))
    assert (again.code, again.out) == (0, before.out)
    same = [line for line in before.err.splitlines() if not line.startswith("> ")]
    assert [line for line in again.err.splitlines() if not line.startswith("> ")] == same
    assert not (tmp_path / "another machine").exists()
    taken = cli("replay", str(file), "--export", str(file))
    assert (taken.code, len(taken.complaints())) == (2, 1) and "exists already" in taken.err
    said = cli("replay", str(file), "--export", str(tmp_path / "b.jsonl"), "--json").events()
    assert [(one["event"], one["replaced"], one["same"]) for one in said] == [("export", 0, True)]


def test_export_and_its_options_go_together(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: what would do nothing is refused, and a file is not taken for a session."""
    monkeypatch.chdir(tmp_path)
    assert "--hide belongs to --export" in cli("replay", "abcdefgh", "--hide", "Jane").err
    assert "leave out --turn" in cli("replay", "abcdefgh", "--export", "x.jsonl", "--live").err
    (tmp_path / "bugreport").write_text("{}")
    assert cli("replay", "bugreport").err.endswith("for the file of that name write `./bugreport`\n")
    assert cli("replay", "./bugreport").err.startswith("turnwise: `bugreport` holds no session")
    assert "`nope.jsonl` does not exist" in cli("replay", "nope.jsonl").err


def test_a_hidden_text_that_decides_something_is_told(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    """Proves: an export that does not replay alike says so: here a word that every tool's schema needs."""
    cli("run", "Go.", *at(lab, "parallel-calls"))
    written = cli("replay", last_session(cli), "--export", str(tmp_path / "x.jsonl"), "--hide", "string")
    assert written.code == 0 and "does not replay to the same commands" in written.err
    assert cli("replay", str(tmp_path / "x.jsonl")).code == 3


def test_a_text_to_hide_that_occurs_nowhere_is_told(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    """Proves: a misspelled `--hide` is told by its number, not by its words, and `--json` counts for each text."""
    cli("run", "Go, Jürgen.", *at(lab, "parallel-calls"))
    hide = ("--hide", "Jürgen", "--hide", "Jurgen Miller")
    written = cli("replay", last_session(cli), "--export", str(tmp_path / "x.jsonl"), *hide)
    assert written.code == 0 and "--hide, text 2 of 2: the session does not hold it" in written.err
    assert "text 1 of 2" not in written.err and "Miller" not in written.err
    (said,) = cli("replay", last_session(cli), "--export", str(tmp_path / "y.jsonl"), "--json", *hide).events()
    assert said["hidden"][0] >= 1 and said["hidden"][1] == 0


def test_what_a_person_was_asked_and_answered_is_shown(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: the ask stands before the call's result, with the answer and its reason; `--json` has a line for it."""
    with at_terminal("run", "Set it.", *at(lab, "read-edit-answer"), cwd=folder) as person:
        person.sees("then no)")
        person.types("d\r")
        person.sees("why not")
        person.types("not on a Sunday\r")
        person.leaves_by(8)
    shown = cli("replay", last_session(cli))
    lines = shown.err.splitlines()
    asked = next(at for at, line in enumerate(lines) if line.startswith("? edit "))
    assert lines[asked].endswith(": denied: not on a Sunday") and "✗ edit: Denied" in "\n".join(lines[asked:])
    (said,) = [line for line in cli("replay", last_session(cli), "--json").events() if line["event"] == "person"]
    assert (said["asked"][0]["name"], said["asked"][0]["answer"]["verdict"]) == ("edit", "deny")


def rewritten(file: Path, before: str, after: str) -> Path:
    """The export with another text in it, and a hash that fits."""
    *lines, _ = file.read_text().splitlines(keepends=True)
    content = "".join(lines)
    assert before in content
    content = content.replace(before, after)
    end = json.dumps({"line": "end", "sha256": hashlib.sha256(content.encode()).hexdigest()})
    changed = file.with_name("changed.jsonl")
    changed.write_text(f"{content}{end}\n")
    return changed


@pytest.mark.parametrize("depth", [900, 50_000])
def test_arguments_that_are_nested_without_end_are_no_bug(cli: Cli, lab: Lab, tmp_path: Path, depth: int) -> None:
    """Proves: a stranger's export is shown as far as it goes, or refused in a line; never as a bug of turnwise."""
    cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer"))
    file = tmp_path / "x.jsonl"
    assert cli("replay", last_session(cli), "--export", str(file)).code == 0
    found = re.search(r'"arguments":"(?:[^"\\]|\\.)*"', file.read_text())
    assert found is not None
    for json_text in ("[" * depth, "[" * depth + "]" * depth, r"{\"path\":" + "[" * depth + "]" * depth + "}"):
        bad = rewritten(file, found[0], f'"arguments":"{json_text}"')
        for options in ((), ("--json",), ("--live",)):
            shown = cli("replay", str(bad), *options)
            assert shown.code in (2, 3) and "a bug in turnwise" not in shown.err, (shown.code, shown.err[-500:])


def test_an_export_cannot_drive_the_terminal(cli: Cli, lab: Lab, tmp_path: Path) -> None:
    """Proves: whatever text a stranger put into an export, of it no control character is written."""
    cli("run", "Set it to done.", "--allow", "write", *at(lab, "read-edit-answer"))
    file = tmp_path / "x.jsonl"
    session = last_session(cli)
    assert cli("replay", session, "--export", str(file)).code == 0
    for text in ("Set it to done.", "notes.txt", "read-edit-answer", session, "status: ", "call_1_1", '"read'):
        shown = cli("replay", str(rewritten(file, text, f"{text}\\u001b]0;gone\\u0007\\u009b2J")))
        assert shown.code in (0, 2, 3), shown.err
        assert not {"\x1b", "\x07", "\x9b"} & {*shown.out, *shown.err}, text
