"""Disks that are full, whatever is written there: what was sent is told, and no exit code says otherwise."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec
import pytest

from sandboxes import sandbox_called
from terminal.forking import TURNWISE
from terminal.running import BEGUN, WAIT_S, Cli, Ran, at, begin, end, running_lab, script
from turnwise.lab import Lab

# Reads 20 KB in every step, so that the journal grows by as much.
GREEDY = script(
    "greedy",
    "\n".join(
        [f'[[steps]]\ncalls = [{{ name = "read", arguments = {{ path = "large-{n}.txt" }} }}]' for n in range(8)]
        + ['[[steps]]\ntext = "All read."']
    ),
)
SIZES = (64, 192, 384)  # KB of the state folder: too small for a journal, for one step, for four of the nine


@pytest.fixture
def greedy(folder: Path) -> Path:
    for number in range(8):
        (folder / f"large-{number}.txt").write_text(f"{number} " + "long line of text\n" * 1200)
    return folder


def within(prefix: list[str], *args: str, cwd: Path, env: dict[str, str] | None = None) -> Ran:
    """`turnwise ARGS` started by `prefix`."""
    process = subprocess.Popen(
        [*prefix, *TURNWISE, *args],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    BEGUN.append(process)
    return end(process)


def not_begun(ran: Ran) -> bool:
    """Whether the last line is the result of a turn that the journal did not let begin, in the words of standard error."""
    last = ran.events()[-1]
    assert (last["event"], last["stop_reason"], last["complete"], last["requests"]) == (
        "result",
        "journal_failed",
        False,
        0,
    )
    return f"turnwise: {last['text']}" == ran.err.rstrip()


def judge(ran: Ran, *, sent: int) -> str:
    """How a run ended whose disk filled up; fails where that is not told, or something else than what was sent."""
    if ran.code == 2:  # before anything was sent, as the page on the command line says
        assert (sent, len(ran.err.splitlines())) == (0, 1)
        assert not_begun(ran)
        return "not begun"
    *events, last = ran.events()
    assert (last["event"], last["requests"]) == ("result", sent) and last["text"].strip()
    called = [event["id"] for event in events if event["event"] == "tool_call"]
    assert sorted(called) == sorted(event["id"] for event in events if event["event"] == "tool_result")
    if ran.code == 0:
        assert last["complete"]
        return "whole"
    assert (ran.code, last["stop_reason"], last["complete"]) == (7, "journal_failed", False)
    (repair,) = [repair for repair in last["repairs"] if repair["kind"] == "not_recorded"]
    assert re.search("the journal `.*journal.db` cannot be used: .*, or set TURNWISE_STATE_DIR", repair["what"])
    return "ended"


@pytest.mark.costly
@pytest.mark.promise("end:reason", "bill:wire", "keep:crash")
def test_a_full_disk_in_mid_turn_ends_with_a_result(greedy: Path, tmp_path: Path) -> None:
    """A real one (a small tmpfs): too small for the journal, full in the middle of the turn, and nearly full."""
    bwrap = sandbox_called("bubblewrap").program
    ends: set[str] = set()
    with running_lab([GREEDY]) as lab:
        for kilobytes in SIZES:
            lab.reset()
            small = [bwrap, "--dev-bind", "/", "/", "--size", str(kilobytes * 1024), "--tmpfs", str(tmp_path / "state")]
            (tmp_path / "state").mkdir(exist_ok=True)
            ran = within([*small, "--"], "run", "Go.", "--json", "--no-sandbox", *at(lab, "greedy"), cwd=greedy)
            ends.add(judge(ran, sent=lab.count()))
    assert ends >= {"not begun", "ended"}


@pytest.mark.costly
@pytest.mark.promise("end:reason", "bill:wire", "keep:crash")
def test_a_journal_past_the_size_that_a_file_may_have_ends_the_turn(greedy: Path, cli: Cli) -> None:
    """Another refusal of the system's (EFBIG, `disk I/O error` to SQLite); afterwards the session goes on."""
    ended = 0
    with running_lab([GREEDY]) as lab:
        for kilobytes in (150, 250):
            lab.reset()
            most = kilobytes * 1024
            limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))"
            start = [sys.executable, "-c", f"{limited}; os.execv(sys.argv[1], sys.argv[1:])"]
            ran = within(start, "run", "Go.", "--json", "--no-sandbox", *at(lab, "greedy"), cwd=greedy)
            if judge(ran, sent=lab.count()) == "ended":
                ended += 1
                again = cli("run", "And?", "--continue", "--json", *at(lab, "plain-answer"))
                assert (again.code, again.events()[-1]["session"]) == (0, ran.events()[-1]["session"])
    assert ended


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize(("free_kb", "code", "gone"), [(0, 2, 0), (160, 1, 2), (1500, 0, 3)])
def test_a_prune_on_a_full_disk_says_what_is_gone_and_leaves_the_rest_whole(
    greedy: Path, tmp_path: Path, cli: Cli, free_kb: int, code: int, gone: int
) -> None:
    """Proves: without any room nothing is deleted, with little the small sessions are and the large one stays whole; each end is
    told, and the journal can be read on the full disk itself."""
    with running_lab([GREEDY]) as lab:
        cli("run", "Large.", "--no-sandbox", *at(lab, "greedy"))
        for _ in range(3):
            cli("run", "Small.", "--no-sandbox", *at(lab, "plain-answer"))
    journal, small = tmp_path / "state" / "journal.db", tmp_path / "small"
    small.mkdir()
    ids = [one["id"] for one in cli("sessions", "list", "--json").events()]
    room = (journal.stat().st_size // 4096 + 1) * 4096 + free_kb * 1024
    tmpfs = [
        sandbox_called("bubblewrap").program,
        "--dev-bind",
        "/",
        "/",
        "--size",
        str(room),
        "--tmpfs",
        str(small),
        "--",
    ]
    steps = 'cp "$0" "$TURNWISE_STATE_DIR"; "$@" prune --keep 1 -y --json; echo $?; "$@" list --json; "$@" show "$OLDEST" --json'
    asked = [*tmpfs, "/bin/sh", "-c", steps, str(journal), *TURNWISE, "sessions"]
    env = {**os.environ, "TURNWISE_STATE_DIR": str(small), "OLDEST": ids[-1]}
    ran = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
    pruned, ended, *listed = ran.stdout.splitlines()
    told, shown = msgspec.json.decode(pruned), msgspec.json.decode(listed.pop())
    assert int(ended) == code
    assert [msgspec.json.decode(one)["id"] for one in listed] == [ids[0], *ids[1 + gone :]]
    assert ("error" in told) == (code != 0) and told.get("exit_code", 0) == code
    if code:
        assert "make room on its disk" in told["error"] and told["error"] in ran.stderr
        assert "All read." in str(shown["messages"])
    assert told.get("deleted", []) == ids[1 : 1 + gone]
    if code == 1:
        assert "1 session not deleted" in ran.stderr


@pytest.mark.costly
def test_a_state_folder_that_is_read_only_is_told_before_anything_is_sent(
    lab: Lab, folder: Path, tmp_path: Path
) -> None:
    """Exit code 2, one line, also where a journal is there already."""
    bwrap = sandbox_called("bubblewrap").program
    state = str(tmp_path / "state")
    (tmp_path / "state").mkdir()
    for _ in range(2):
        frozen = [bwrap, "--dev-bind", "/", "/", "--ro-bind", state, state, "--"]
        ran = within(frozen, "run", "Go.", "--json", "--no-sandbox", *at(lab, "plain-answer"), cwd=folder)
        assert (ran.code, lab.count(), len(ran.err.splitlines())) == (2, 0, 1)
        assert not_begun(ran) and "Read-only file system" in ran.err
        end(begin("run", "Go.", *at(lab, "plain-answer"), cwd=folder))
        lab.reset()


@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize("args", [(), ("--json",)], ids=["for people", "JSON"])
def test_an_output_that_is_full_says_what_was_sent(lab: Lab, folder: Path, cli: Cli, args: tuple[str, ...]) -> None:
    """`> /dev/full`: the turn ends in good order, the complaint counts its requests, and the exit code is 1."""
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = begin("run", "Go.", *args, *at(lab, "plain-answer"), cwd=folder, stdout=full)
        ran = end(process)
    said = [line for line in ran.err.splitlines() if line.startswith("turnwise: ")]
    (session,) = cli("sessions", "list", "--json").events()
    sent = "0 requests" if "--json" in args else "1 request"  # JSON lines begin before the request leaves
    assert said == [
        f"turnwise: input or output failed: No space left on device; {sent} had been sent (session {session['id'][-8:]})"
    ]
    assert (ran.code, session["status"], f"{lab.count()} ") == (1, "done", sent[:2])


@pytest.mark.costly
@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize("args", [(), ("--json",)], ids=["for people", "JSON"])
def test_an_answer_to_a_closed_output_is_not_exit_code_0(lab: Lab, folder: Path, args: tuple[str, ...]) -> None:
    """Issue 15: `>&-` lost the answer and said 0. It is as a full disk."""
    closed = ["/bin/sh", "-c", 'exec "$@" >&-', "sh"]
    ran = within(closed, "run", "Go.", *args, *at(lab, "plain-answer"), cwd=folder)
    assert ran.code == 1 and "turnwise: input or output failed: Bad file descriptor" in ran.err
    assert within(closed, "run", cwd=folder).code == 2


@pytest.mark.parametrize(
    ("args", "code"),
    [(("run",), 2), (("sessions", "show", "nobody"), 2), (("nonsense",), 2)],
    ids=["run", "show", "no"],
)
def test_a_full_standard_error_does_not_change_what_the_exit_code_says(
    folder: Path, args: tuple[str, ...], code: int
) -> None:
    """A wrong use is a wrong use, though the line that says so goes nowhere."""
    with open("/dev/full", "w") as full:  # noqa: PTH123
        assert end_quietly(args, cwd=folder, stderr=full) == code


def end_quietly(args: tuple[str, ...], *, cwd: Path, stderr: IO[str]) -> int:
    process = begin(*args, cwd=cwd, stderr=stderr)
    process.communicate(timeout=WAIT_S)
    return process.returncode


def test_json_lines_are_whole_though_standard_error_is_full(lab: Lab, folder: Path) -> None:
    """Nothing of them goes there."""
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = begin("run", "Go.", "--json", *at(lab, "read-edit-answer"), cwd=folder, stderr=full)
        out, _ = process.communicate(timeout=WAIT_S)
    assert (
        Ran(process.returncode, out, "").events()[-1]["event"] == "result" and process.returncode == 8
    )  # nobody was asked


@pytest.mark.costly
def test_files_that_cannot_be_written_are_results_for_the_model(folder: Path, tmp_path: Path) -> None:
    """A full workspace, a full state folder, a full temporary folder: the tools say so, and the turn ends with an answer."""
    bwrap = sandbox_called("bubblewrap").program
    writes = script(
        "writes",
        """
[[steps]]
calls = [
  { name = "write", arguments = { path = "new.txt", content = "CONTENT" } },
  { name = "bash", arguments = { command = "seq 40000; echo END" } },
]
[[steps]]
text = "Done."
""".replace("CONTENT", "c" * 100_000),
    )
    small = [bwrap, "--dev-bind", "/", "/", "--size", "65536", "--tmpfs", str(folder)]
    (tmp_path / "temporary").mkdir()
    small += ["--size", "65536", "--tmpfs", str(tmp_path / "temporary"), "--chdir", str(folder), "--"]
    with running_lab([writes]) as lab:
        options = ("--json", "--no-sandbox", "--allow", "write", "--allow", "bash", *at(lab, "writes"))
        env = {"TMPDIR": str(tmp_path / "temporary")}
        ran = within(small, "run", "Go.", *options, cwd=folder, env=env)
    results = {event["name"]: event for event in ran.events() if event["event"] == "tool_result"}
    assert (ran.code, ran.events()[-1]["complete"]) == (0, True)
    assert results["write"]["is_error"] and "No space left on device" in results["write"]["text"]
    assert not results["bash"]["is_error"] and results["bash"]["text"].rstrip().endswith("END")
