"""`turnwise resume`, `run --continue` and `turnwise --continue` after kill -9, with real processes: what was done stands, what
was under way is told, and the turn ends with its answer."""

import contextlib
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from left_journals import unseen_owner
from terminal.person import Person, at_terminal
from terminal.running import Cli, at, begin, end, running_lab, script
from terminal.test_processes import read_until, wait_until
from turnwise.agent.resume_lookup import MAY_LACK_LAST
from turnwise.base.clock import SystemClock
from turnwise.base.keeper import descendants
from turnwise.coding_agent.left_turns import LeftRun
from turnwise.journal.journal import Journal, Session, journal_path
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.lab import Lab
from turnwise.terminal import resuming
from turnwise.terminal.exit_codes import NOTHING_CHANGED

TWO_CALLS = script(
    "two-calls",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo ran >> first.txt" } }]

[[steps]]
calls = [
    { name = "bash", arguments = { command = "echo begun >> begun.txt; until [ -e go.txt ]; do sleep 0.01; done" } },
    { name = "bash", arguments = { command = "cat notes.txt" } },
]

[[steps]]
text = "It said: {result}"
""",
)
STALLS_ONCE = script(
    "stalls-once",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo ran >> first.txt" } }]

[[steps]]
text = "The whole answer is here, and it has a few more words."
faults = [{ kind = "stall", at = "text", text = "Half of an answer" }]
""",
)
ASKS = script(
    "asks",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo ran >> first.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
DELEGATES = script(
    "delegates",
    """
[[steps]]
asked = "make it"
calls = [{ name = "bash", arguments = { command = "echo ran >> first.txt" } }]

[[steps]]
asked = "make it"
text = "It is made."

[[steps]]
calls = [{ name = "task", arguments = { agent = "general", prompt = "make it" } }]

[[steps]]
text = "The child said: {result}"
""",
)
UNKNOWN = "The process was interrupted while this call ran, so its outcome is unknown"


@pytest.fixture(scope="module")
def left_lab() -> Iterator[Lab]:
    with running_lab([TWO_CALLS, STALLS_ONCE, ASKS, DELEGATES]) as lab:
        yield lab


@pytest.fixture
def lab(left_lab: Lab) -> Lab:
    left_lab.reset()
    return left_lab


def killed_in_a_tool(lab: Lab, folder: Path, *, prompt: str = "Go.") -> None:
    """A run whose process is ended while its second command runs; nothing of that command goes on."""
    process = begin("run", prompt, "--allow", "bash", "--allow", "write", *at(lab, "two-calls"), cwd=folder)
    wait_until((folder / "begun.txt").is_file)
    commands = descendants(process.pid)
    process.kill()
    assert end(process).code == -signal.SIGKILL
    for pid in commands:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def killed_in_a_request(lab: Lab, folder: Path) -> None:
    process = begin("run", "Go.", "--allow", "bash", "--allow", "write", "--json", *at(lab, "stalls-once"), cwd=folder)
    read_until(process, "Half of")
    process.kill()
    assert end(process).code == -signal.SIGKILL


def killed_at_an_ask(lab: Lab, folder: Path) -> None:
    with at_terminal("run", "Go.", *at(lab, "asks"), cwd=folder) as person:
        person.sees("then no)")
        person.process.kill()


def ledger() -> list[LedgerEntry]:
    """All requests that there were, in order."""
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        return journal.ledger.entries(LedgerSpan())


def lines_of(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().split() if (folder / name).exists() else []


@pytest.mark.promise("keep:crash", "step:every-call-answered")
def test_killed_in_a_tool_the_turn_goes_on_by_resume(lab: Lab, folder: Path, cli: Cli) -> None:
    """No finished request is sent again and no command runs twice; the call that may have run is told as unknown, the one that
    had not begun runs; sums and ledger have the requests of before."""
    killed_in_a_tool(lab, folder)
    (id,) = [one["id"] for one in cli("sessions", "list", "--json").events()]
    listed, shown = cli("sessions", "list").out, cli("sessions", "show", id).out
    assert "interrupted" in listed and f"`turnwise resume {id[-8:]}` goes on with it" in listed
    assert f"`turnwise resume {id[-8:]}`" in shown and f"`turnwise resume {id[-8:]}`" in cli("doctor", "--offline").out
    ran = cli("resume")
    assert ran.code == 0 and ran.out == "It said: status: draft\n"
    assert "going on with the interrupted turn after 2 requests; 1 call may have run: bash (" in ran.err
    assert "; 1 call had not begun and runs now: bash (" in ran.err
    assert ran.err.count(UNKNOWN) == 1 and "3 steps, 3 requests, " in ran.err
    assert (lines_of(folder, "first.txt"), lines_of(folder, "begun.txt")) == (["ran"], ["begun"])
    assert lab.count() == lab.count(status=200) == 3
    assert UNKNOWN in lab.requests[-1].body.decode()
    assert [entry.outcome for entry in ledger()] == ["ok", "ok", "ok"]
    assert "interrupted" not in cli("sessions", "list").out
    again = cli("resume", id)
    assert again.code == 2 and "there is nothing to resume" in again.err


@pytest.mark.promise("keep:crash", "run:own-state")
def test_a_turn_of_before_the_last_boot_goes_on_with_take_over_alone(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: a process of another boot with our host name counts as running, until a person says it is gone."""
    killed_in_a_tool(lab, folder)
    with contextlib.closing(sqlite3.connect(journal_path(os.environ))) as connection:
        connection.execute("update turn set owner = ?", (unseen_owner(),))
        connection.commit()
    (row,) = cli("sessions", "list", "--json").events()
    assert row["status"] == "running"
    for args in (["resume"], ["resume", row["id"][-8:]], ["run", "Go on.", "--continue", *at(lab, "plain-answer")]):
        ran = cli(*args)
        assert ran.code == 2 and f"`turnwise resume {row['id']} --take-over`" in ran.err, ran.err
    assert cli("resume", "--all", "--take-over").code == 2
    ran = cli("resume", "--take-over")
    assert ran.code == 0 and ran.out == "It said: status: draft\n"
    assert MAY_LACK_LAST in " ".join(ran.err.split()), "it may have lost power then"


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("later", ["a fork", "another run"])
def test_resume_takes_the_interrupted_session_whatever_came_later(lab: Lab, folder: Path, cli: Cli, later: str) -> None:
    """Proves: the newest session of the folder that has something to resume, not the newest one; told of one that is not there,
    it says so."""
    killed_in_a_tool(lab, folder)
    (id,) = [one["id"] for one in cli("sessions", "list", "--json").events()]
    if later == "a fork":
        assert cli("sessions", "fork", id, "--step", "1").code == 0
    else:
        assert cli("run", "Go.", *at(lab, "plain-answer")).code == 0
    ran = cli("resume", "--json")
    assert (ran.code, ran.events()[-1]["session"]) == (0, id)
    again = cli("resume")
    assert again.code == 2 and "nothing to resume: no session of this folder was interrupted" in again.err


@pytest.mark.promise("keep:crash")
def test_a_session_that_is_shown_tells_of_the_calls_that_had_started_only(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: of two commands of a response the one at work may have run; the one that waited for it has not."""
    killed_in_a_tool(lab, folder)
    (id,) = [one["id"] for one in cli("sessions", "list", "--json").events()]
    shown = cli("sessions", "show", id).out
    assert (shown.count("may or may not have run"), shown.count("before this call had started")) == (1, 1)


@pytest.mark.promise("keep:crash")
def test_killed_in_a_request_it_is_sent_anew_and_counts_twice(lab: Lab, folder: Path, cli: Cli) -> None:
    """The lost one is in the ledger and in the sums, as the provider may bill it; the command of before does not run again."""
    killed_in_a_request(lab, folder)
    ran = cli("resume", "--json")
    events = ran.events()
    last = events[-1]
    assert (ran.code, last["event"], last["stop_reason"], last["requests"]) == (0, "result", "answered", 3)
    assert last["text"] == "The whole answer is here, and it has a few more words."
    assert "1 request was lost (it may be billed) and is sent anew" in events[1]["text"]
    assert [one["event"] for one in events if one["event"] in ("tool_call", "tool_result")] == []
    assert [entry.outcome for entry in ledger()] == ["ok", "lost", "ok"]
    assert lab.count() == 3 and lines_of(folder, "first.txt") == ["ran"]


@pytest.mark.promise("keep:crash", "wait:ask")
def test_killed_at_an_ask_it_is_asked_again(lab: Lab, folder: Path) -> None:
    """At a terminal, for what is left of its time, which is said."""
    killed_at_an_ask(lab, folder)
    with at_terminal("resume", cwd=folder) as person:
        person.sees("1 call waits for an answer (")
        person.sees("then no)")
        person.types("y\r")
        assert "It said:" in person.leaves_by(0)
    assert lines_of(folder, "first.txt") == ["ran"] and lab.count() == 2


@pytest.mark.promise("keep:crash", "wait:ask")
def test_without_a_terminal_an_open_ask_is_left_for_later(lab: Lab, folder: Path, cli: Cli) -> None:
    """Nothing is decided for the person who was asked: exit code 4, and it is approved by id later."""
    killed_at_an_ask(lab, folder)
    ran = cli("resume", "--all")
    assert ran.code == 4 and "1 call left for later: bash (" in ran.err and lines_of(folder, "first.txt") == []
    assert cli.approves("run", "--continue", "--approve", "all").code == 0
    assert lines_of(folder, "first.txt") == ["ran"] and lab.count() == 2


@pytest.mark.promise("keep:crash", "wait:ask")
def test_a_prompt_does_not_override_an_ask_that_the_same_command_left_for_later(
    lab: Lab, folder: Path, cli: Cli
) -> None:
    """Proves: the interrupted turn leaves its ask for later, the prompt is not sent and that is said (exit code 4). A prompt that
    is given again goes on without the call, and names it."""
    killed_at_an_ask(lab, folder)
    ran = cli("run", "And?", "--continue", "--json", *at(lab, "plain-answer"))
    *events, last = ran.events()
    assert (ran.code, last["event"], last["stop_reason"], len(last["asks"])) == (4, "result", "waiting", 1)
    assert "your prompt was not sent" in events[-1]["text"] and lab.count() == 1
    (session,) = cli("sessions", "list", "--json").events()
    assert (session["status"], session["turns"]) == ("waiting", 1)
    again = cli("run", "And?", "--continue", *at(lab, "plain-answer"))
    assert (again.code, lab.count(), lines_of(folder, "first.txt")) == (0, 2, [])
    assert "1 call waited for an answer; the session goes on with your prompt, so it is not run: bash (" in again.err


@pytest.mark.promise("keep:crash", "wait:ask")
def test_at_a_terminal_what_is_typed_after_an_ask_names_the_call_that_it_goes_on_without(
    lab: Lab, folder: Path, cli: Cli
) -> None:
    """Proves: Ctrl-C at an ask that was left for later leaves it waiting; the next words say that it is not run."""
    killed_at_an_ask(lab, folder)
    assert cli("resume").code == 4
    with at_terminal("--continue", cwd=folder) as person:
        person.sees("then no)")
        person.types("\x03")
        person.sees("1 call left for later")
        person.types("And?\r")
        person.sees("1 call waited for an answer; the session goes on with your prompt")
        leave(person)
    assert lines_of(folder, "first.txt") == []


@pytest.mark.promise("keep:crash", "wait:ask")
@pytest.mark.parametrize(("option", "made"), [("--approve", ["ran"]), ("--deny", [])])
def test_approve_and_deny_reach_the_ask_that_was_open(
    lab: Lab, folder: Path, cli: Cli, option: str, made: list[str]
) -> None:
    """The turn goes on with the answer; a wrong id is said before anything runs."""
    killed_at_an_ask(lab, folder)
    strange = cli("run", "--continue", option, "call_nothing")
    assert strange.code == 2 and "no such call waits" in strange.err and lab.count() == 1
    says = cli if option == "--deny" else cli.approves
    ran = says("run", "--continue", option, "all", "--json")
    code = 0 if made else NOTHING_CHANGED
    assert (ran.code, ran.events()[-1]["stop_reason"], ran.events()[-1]["asks"]) == (code, "answered", [])
    assert [one["name"] for one in ran.events()[-1]["denied"]] == ([] if made else ["bash"])
    assert lines_of(folder, "first.txt") == made and lab.count() == 2


@pytest.mark.promise("keep:crash")
def test_run_continue_goes_on_first_and_then_takes_the_prompt(lab: Lab, folder: Path, cli: Cli) -> None:
    """Two turns: with --json the first ends with `resumed` and the last line is the result of the prompt; the model of the prompt
    is not that of the turn that was left."""
    killed_in_a_tool(lab, folder)
    ran = cli("run", "And?", "--continue", "--json", *at(lab, "plain-answer"))
    events = ran.events()
    ends = [(one["event"], one["requests"]) for one in events if one["event"] in ("resumed", "result")]
    assert (ran.code, ends) == (0, [("resumed", 3), ("result", 1)]) and events[-1]["event"] == "result"
    (resumed,) = [one for one in events if one["event"] == "resumed"]
    assert resumed["text"] == "It said: status: draft\n"
    assert [one["model"] for one in events if one["event"] == "request"] == ["two-calls", "plain-answer"]
    (session,) = cli("sessions", "list", "--json").events()
    assert (session["turns"], session["status"]) == (2, "done") and lines_of(folder, "begun.txt") == ["begun"]


@pytest.mark.promise("keep:crash")
def test_run_continue_without_a_prompt_gives_the_resumed_answer(lab: Lab, folder: Path, cli: Cli) -> None:
    """No request asks the model to go on."""
    killed_in_a_tool(lab, folder)
    ran = cli("run", "--continue", "-n")
    assert (ran.code, ran.out, lab.count()) == (0, "It said: status: draft\n", 3)
    assert cli("sessions", "list", "--json").events()[0]["turns"] == 1


@pytest.mark.promise("keep:crash")
def test_a_session_at_a_terminal_goes_on_first(lab: Lab, folder: Path) -> None:
    """`turnwise --continue`: the turn is shown as it goes, then there is a prompt."""
    killed_in_a_tool(lab, folder)
    with at_terminal("--continue", cwd=folder) as person:
        person.sees("going on with the interrupted turn after 2 requests")
        person.sees("It said: status: draft")
        person.sees("3 steps, 3 requests, ")
        leave(person)
    assert lab.count() == 3


def leave(person: Person) -> None:
    person.sees("\n>")
    person.types("quit\r")
    person.leaves_by(0)


@pytest.mark.promise("keep:crash")
def test_a_sub_agents_turn_goes_on_before_its_parents(lab: Lab, folder: Path, cli: Cli) -> None:
    """The child asks at the root again, and is answered; its own session is not resumed by itself."""
    with at_terminal("run", "Go.", *at(lab, "delegates"), cwd=folder) as person:
        person.sees("then no)")
        person.process.kill()
    assert lab.count() == 2
    ran = cli.approves("run", "--continue", "--approve", "all", "--json")
    last = ran.events()[-1]
    assert (ran.code, last["text"]) == (0, "The child said: It is made.")
    assert (lab.count(), lines_of(folder, "first.txt")) == (4, ["ran"])
    (shown,) = cli("sessions", "show", last["session"], "--json").events()
    ((child,), (reported,)) = (shown["children"].values(), last["children"])
    assert child["session"]["id"] == reported["session_id"] and len(child["turns"]) == 1
    told = cli("resume", reported["session_id"])
    assert told.code == 2 and f"`turnwise resume {last['session']}`" in told.err


@pytest.mark.promise("keep:crash")
def test_one_of_two_resumes_goes_on(lab: Lab, folder: Path) -> None:
    """The other says that the session is running; a run that continues it says so too, and nothing is done twice."""
    killed_in_a_tool(lab, folder)
    (folder / "begun.txt").unlink()
    lab.reset()
    first, second = (begin("resume", cwd=folder) for _ in range(2))
    ran = sorted([end(first), end(second)], key=lambda one: one.code)
    assert [one.code for one in ran] in ([0, 2], [0, 0]) and ran[0].out == "It said: status: draft\n"
    assert "is running" in ran[1].err or "nothing to resume" in ran[1].err
    assert lab.count() == 1


def test_a_session_that_is_running_is_not_resumed(lab: Lab, folder: Path, cli: Cli) -> None:
    """One line, exit code 2, and the running one is left alone; --all passes by it."""
    process = begin("run", "Go.", "--json", *at(lab, "fault-stall"), cwd=folder)
    read_until(process, '"text"')
    for args in (["resume"], ["resume", cli("sessions", "list").out.split()[0]]):
        ran = cli(*args)
        assert (ran.code, ran.out) == (2, "") and "is running" in ran.complaints()[0]
    nothing = cli("resume", "--all")
    assert nothing.code == 0 and nothing.err == "nothing to resume: no session was interrupted\n"
    process.send_signal(signal.SIGINT)
    assert (end(process).code, lab.count()) == (130, 1)


@pytest.mark.promise("keep:crash")
def test_all_goes_on_in_each_folder_and_tells_of_one_that_is_gone(lab: Lab, folder: Path, cli: Cli) -> None:
    """Three folders: each turn works in its own; the folder that is gone is named and does not count."""
    folders = [folder.parent / name for name in ("eins", "zwei ü", "drei")]
    for number, place in enumerate(folders):
        place.mkdir()
        (place / "notes.txt").write_text(f"notes {number}\n")
        killed_in_a_tool(lab, place)
    shutil.rmtree(folders[1])
    ran = cli("resume", "--all", "--json")
    events = ran.events()
    assert [one["text"] for one in events if one["event"] == "result"] == ["It said: notes 0\n", "It said: notes 2\n"]
    last = events[-1]
    assert (ran.code, last["event"], last["failed"]) == (0, "summary", 0)
    assert [(one["stop_reason"], bool(one["why"])) for one in last["sessions"]] == [
        ("answered", False),
        ("", True),
        ("answered", False),
    ]
    assert "is gone" in last["sessions"][1]["why"] and str(folders[1]) in last["sessions"][1]["why"]
    assert [lines_of(place, "first.txt") for place in folders] == [["ran"], [], ["ran"]]
    told = cli("resume", "--all")
    assert told.code == 0 and "1 session, 0 with an exit code other than 0" in told.err


@pytest.mark.promise("keep:crash")
def test_prune_leaves_a_turn_that_can_go_on_unless_it_is_told_to_delete_it(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: an interrupted turn and one that waits for an answer are named with the way on and stay; `--unfinished` marks and
    deletes them."""
    killed_in_a_tool(lab, folder)
    (interrupted,) = [one["id"] for one in cli("sessions", "list", "--json").events()]
    killed_at_an_ask(lab, folder)
    assert cli("resume").code == 4
    waiting = cli("sessions", "list", "--json").events()[0]["id"]
    ended = cli("run", "Go.", "--json", *at(lab, "plain-answer")).events()[-1]["session"]
    listed = cli("sessions", "prune", "--keep", "0")
    assert listed.code == 2
    assert (
        f"{interrupted[-8:]} is interrupted, and stays: `turnwise resume {interrupted[-8:]}` goes on with it"
        in listed.err
    )
    assert f"{waiting[-8:]} is waiting for an answer, and stays: `turnwise run --session {waiting[-8:]} " in listed.err
    assert "--unfinished deletes those" in listed.err
    told = cli("sessions", "prune", "--keep", "0", "--yes", "--json").events()[0]
    assert told["deleted"] == [ended]
    assert told["stayed"] == [{"id": waiting, "why": "waiting"}, {"id": interrupted, "why": "interrupted"}]
    only_these = cli("sessions", "prune", "--keep", "0")
    assert only_these.code == 0 and only_these.err.endswith("nothing to delete\n")
    marked = cli("sessions", "prune", "--keep", "0", "--unfinished")
    assert marked.code == 2 and "  interrupted  Go." in marked.err and "  waiting for an answer  Go." in marked.err
    gone = cli("sessions", "prune", "--keep", "0", "--unfinished", "--yes", "--json").events()[0]
    assert sorted(gone["deleted"]) == sorted([interrupted, waiting]) and cli("sessions", "list", "--json").out == ""


@pytest.mark.promise("keep:crash")
def test_a_signal_between_two_turns_leaves_a_summary_of_those_that_ended(
    lab: Lab, folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: Ctrl-C behind the first of three turns begins no other, and the last line has what the first one came to."""
    for number in range(3):
        place = folder.parent / f"folder {number}"
        place.mkdir()
        (place / "notes.txt").write_text(f"notes {number}\n")
        killed_in_a_tool(lab, place)
    find, found = resuming.find_left, list[Session]()

    def find_once(journal: Journal, session: Session) -> LeftRun:
        found.append(session)
        if len(found) > 1:
            raise KeyboardInterrupt
        return find(journal, session)

    with monkeypatch.context() as patched:
        patched.setattr(resuming, "find_left", find_once)
        ran = cli("resume", "--all", "--json")
    last = ran.events()[-1]
    assert (ran.code, last["event"], last["failed"], last["exit_code"]) == (130, "summary", 1, 130)
    assert [(one["stop_reason"], one["why"]) for one in last["sessions"]] == [
        ("answered", ""),
        ("", "stopped by a signal"),
    ]
    assert "2 sessions, 0 with an exit code other than 0" in cli("resume", "--all").err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["resume"], "nothing to resume: there is no session of `"),
        (["resume", "abcdefgh"], "there is no session `abcdefgh`"),
        (["resume", "x"], "`x` is no session id"),
        (["resume", "--al"], "No such option '--al'. (Did you mean one of: '--all', '--allow', '--help'?)"),
        (["resume", "--allow", "everything"], "--allow"),
        (["resume", "abcdefgh", "--all"], "give either SESSION or --all, not both"),
        (["resume", "--all", "--base-url", "http://127.0.0.1:1"], "--base-url and --api-key-env are for one SESSION"),
    ],
)
def test_a_mistake_is_one_line(cli: Cli, args: list[str], said: str) -> None:
    """Exit code 2, and nothing on standard output."""
    ran = cli(*args)
    assert (ran.code, ran.out) == (2, "") and said in ran.complaints()[0]
