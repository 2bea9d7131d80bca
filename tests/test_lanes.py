"""The lanes of CI (`scripts/lanes.py`): each runs within its limit, and the log ends with what became of them.

No test waits for time to go by: what has to come before a limit has one that never comes, what has to come after it waits
for the words that say that it has passed.
"""

import os
import re
import runpy
import select
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from waits import HANG_S

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "scripts" / "lanes.py"
LANES = ROOT / ".ci" / "lanes.toml"
it: Any = type("Module", (), runpy.run_path(str(PROGRAM)))
NEVER = "exec sleep infinity"
AT_ONCE_S = 0.001  # of a minute, for a lane that never ends by itself


def run(lanes: list[Any], capfd: pytest.CaptureFixture[str], **pace: float) -> tuple[int, list[str], list[str]]:
    """The exit code, what was said, and the table without its minutes."""
    said: list[str] = []
    code = it.run_lanes(lanes, pace=it.Pace(**pace), say=said.append)
    rows = [re.split(r" {2,}", row.strip()) for row in capfd.readouterr().out.splitlines()]
    head = rows.index(["lane", "result", "minutes", "limit", "CPU minutes"])
    return code, said, [" | ".join([row[0], row[1], row[3]]) for row in rows[head + 1 :]]


def test_every_lane_runs_also_after_one_that_failed(capfd: pytest.CaptureFixture[str]) -> None:
    """One failure fails the whole; the table names each with its result and its limit."""
    lanes = [it.Lane("first", 8, "exit 3"), it.Lane("in a pipe", 3, "false | true"), it.Lane("last", 2.5, "true")]
    code, said, table = run(lanes, capfd)
    assert (code, table) == (1, ["first | FAILED (3) | 8", "in a pipe | FAILED (1) | 3", "last | ok | 2.5"])
    assert said == [
        "lane first: 8 minutes, exit 3",
        "lane first: FAILED (3), 0.0 of 8 minutes",
        "lane in a pipe: 3 minutes, false | true",
        "lane in a pipe: FAILED (1), 0.0 of 3 minutes",
        "lane last: 2.5 minutes, true",
        "lane last: ok, 0.0 of 2.5 minutes",
        "lanes",
    ]


def test_lanes_that_all_hold_are_no_failure(capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0."""
    assert run([it.Lane("one", 1, "true"), it.Lane("two", 1, "true")], capfd)[0] == 0


def test_a_lane_past_its_limit_says_so_and_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    """At once in the log, and in the table; it is no failure. The lane here ends when it is told that it is late."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "past its limit of" in text:
            os.write(writing, b"late\n")

    pace = it.Pace(minute_s=AT_ONCE_S, patience=HANG_S / AT_ONCE_S, whole_minutes=HANG_S / AT_ONCE_S)
    # a child of a new session gets no descriptor of ours but by its path
    command = f"read -r word < /proc/{os.getpid()}/fd/{reading}; test $word = late"
    try:
        code = it.run_lanes([it.Lane("slow", 1, command)], pace=pace, say=say)
    finally:
        os.close(reading)
        os.close(writing)
    assert code == 0
    assert said[1] == "lane slow: past its limit of 1 minutes, goes on"
    assert said[2].startswith("lane slow: ok, past its limit, ")
    assert re.search(r"^slow +ok, past its limit +[\d.]+ +1 +[\d.]+$", capfd.readouterr().out, re.MULTILINE)


def ends_of(folder: Path) -> tuple[Path, int]:
    """A named pipe; its end for reading says when everyone who has it open for writing is gone."""
    path = folder / "alive"
    os.mkfifo(path)
    return path, os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def is_over(end: int) -> bool:
    """Nobody writes any more: it reads as ended."""
    while select.select([end], [], [], HANG_S)[0]:
        if not os.read(end, 1024):
            return True
    return False


def test_a_lane_past_three_times_its_limit_is_ended_with_all_its_processes(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It fails, and the next one runs. What it had started is gone, also what SIGTERM does not end."""
    alive, end = ends_of(tmp_path)
    stubborn = f"trap '' TERM; exec 3> '{alive}'; (trap '' TERM; {NEVER}) & {NEVER}"
    lanes = [it.Lane("hangs", 2, stubborn), it.Lane("next", 100_000, "true")]
    code, said, table = run(lanes, capfd, minute_s=AT_ONCE_S, whole_minutes=HANG_S / AT_ONCE_S, grace_s=AT_ONCE_S)
    assert (code, table) == (1, ["hangs | ENDED, past its limit | 2", "next | ok | 100000"])
    assert said[1:3] == [
        "lane hangs: past its limit of 2 minutes, goes on",
        "lane hangs: past 3 times its limit, ended",
    ]
    assert is_over(end)
    os.close(end)


def test_what_a_lane_leaves_running_is_ended(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It would disturb the next lane."""
    alive, end = ends_of(tmp_path)
    code, _, table = run([it.Lane("leaves", 1, f"exec 3> '{alive}'; {NEVER} &")], capfd)
    assert (code, table) == (0, ["leaves | ok | 1"])
    assert is_over(end)
    os.close(end)


def test_no_lane_goes_on_after_the_time_of_all(capfd: pytest.CaptureFixture[str]) -> None:
    """The table comes before CI ends everything; the lanes that are left fail."""
    lanes = [it.Lane("hangs", 8, NEVER), it.Lane("left", 8, NEVER)]
    code, said, table = run(lanes, capfd, whole_minutes=0)
    assert (code, table) == (1, ["hangs | ENDED | 8", "left | ENDED | 8"])
    assert said[1] == "lane hangs: past the time that the other lanes leave it, ended"


def test_a_lane_that_hangs_leaves_the_others_their_time(capfd: pytest.CaptureFixture[str]) -> None:
    """It may be late only by what all lanes together leave of the whole."""
    lanes = [it.Lane("hangs", 2, NEVER), it.Lane("next", HANG_S / AT_ONCE_S, "true")]
    code, said, table = run(lanes, capfd, minute_s=AT_ONCE_S, whole_minutes=HANG_S / AT_ONCE_S + 3, patience=1e9)
    assert (code, table[1]) == (1, "next | ok | 300000")
    assert "lane hangs: past the time that the other lanes leave it, ended" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_lane_with_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    """As with Ctrl-C or by CI: the table is still shown, the other lanes do not run."""
    alive, end = ends_of(tmp_path)
    lanes = tmp_path / "lanes.toml"
    lanes.write_text(
        f"""one = {{ minutes = 8, command = "exec 3> '{alive}'; echo begun; {NEVER} & {NEVER}" }}\n"""
        f"""two = {{ minutes = 8, command = "echo never" }}\n"""
    )
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(lanes)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        try:
            assert "begun\n" in iter(process.stdout.readline, "")
            process.send_signal(number)
            rest = process.stdout.read()
        finally:
            process.kill()
        assert process.wait(HANG_S) == 128 + number
    assert is_over(end)
    os.close(end)
    said = rest.splitlines()
    assert said[1] == f"== stopped by {number.name}"
    assert said[3].startswith("== lane one: ENDED, 0.")
    assert [line.split()[:2] for line in said[-2:]] == [["one", "ENDED"], ["two", "not"]]


def test_the_lanes_of_the_project_stay_below_an_hour() -> None:
    """Each one line with a limit and a command; the first is the README's own test command."""
    lanes = it.read_lanes(LANES)
    lines = [line for line in LANES.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(lanes) == len(tomllib.loads(LANES.read_text()))
    assert sum([lane.minutes for lane in lanes]) < 60
    assert (lanes[0].name, lanes[0].command) == ("check", "bash scripts/check")
    assert "\nbash scripts/check\n" in (ROOT / "README.md").read_text()


def test_every_test_is_in_one_of_five_lanes() -> None:
    """What the first command leaves out, the lanes of wide, live, engines' and agents' tests run: they share all of `tests/` by
    markers. The live tests are those of a folder, which marks them (`tests/live/conftest.py`); none of them is wide or an
    agent's, and no agent's is wide."""
    command = (ROOT / "scripts" / "check").read_text()
    chosen = re.findall(r"-m pytest (?:.*--dist worksteal )?(-m .+|tests/.+) \"\$@\"$", command, re.MULTILINE)
    assert chosen == ["tests/live", "-m engines", "-m agents", "-m wide", '-m "$chosen" "${paths[@]}"']
    assert re.findall(r"\bchosen=(\".*?\")", command) == [
        '"not wide and not live and not agents and not engines"',
        '"not live and not agents and not engines"',
    ]
    assert command.count("-m pytest") == 5
    assert not [
        path for path in (ROOT / "tests" / "live").glob("*.py") if re.search(r"mark\.(wide|agents)", path.read_text())
    ]
    assert not [path for path in (ROOT / "tests" / "real_agents").rglob("*.py") if "mark.wide" in path.read_text()]
    assert "\nbash scripts/check --agents 2>&1 | tee" in (ROOT / ".ci" / "agents").read_text()
    assert ("agents", "bash .ci/agents") in [(lane.name, lane.command) for lane in it.read_lanes(LANES)]
    assert "\nbash scripts/check --engines 2>&1 | tee" in (ROOT / ".ci" / "engines").read_text()
    assert ("engines", "bash .ci/engines") in [(lane.name, lane.command) for lane in it.read_lanes(LANES)]
    assert "\nbash scripts/check --live 2>&1 | tee" in (ROOT / ".ci" / "live").read_text()
    assert ("live", "bash .ci/live") in [(lane.name, lane.command) for lane in it.read_lanes(LANES)]
    assert "\nbash scripts/check --wide 2>&1 | tee" in (ROOT / ".ci" / "wide").read_text()
    assert ("wide tests", "bash .ci/wide") in [(lane.name, lane.command) for lane in it.read_lanes(LANES)]
    assert (ROOT / ".ci" / "run").read_text().endswith("scripts/lanes.py .ci/lanes.toml\n")
