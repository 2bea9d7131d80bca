"""Run the lanes of CI, each within its limit of minutes, and end with a table of them.

`python scripts/lanes.py .ci/lanes.toml` runs every lane one after another, also after one that failed. A lane past its limit
says so at once and in the table. Past `PATIENCE` times its limit it is ended with its whole process group, and fails: machines
are noisy, and a slow one is no reason to lose a result. It ends before that where the lanes behind it would not get their own
limits within `WHOLE_MINUTES`: then nothing goes on, so that the table comes before CI ends it all. Exits with 1 if a lane failed.
It needs Python's own modules only: the lanes set up the environment.
"""

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

MINUTE_S = 60.0
PATIENCE = 3.0  # after this many times its limit, the lane is ended
WHOLE_MINUTES = 85.0  # CI ends everything after 90
GRACE_S = 10.0  # from SIGTERM to SIGKILL: time to remove what lies in temporary folders
LOOK_S = 0.2  # between two looks at whether a signal came
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Lane:
    name: str
    minutes: float
    command: str  # for bash


@dataclass(frozen=True)
class Pace:
    """How long a limit is. Tests give another one."""

    minute_s: float = MINUTE_S
    patience: float = PATIENCE
    whole_minutes: float = WHOLE_MINUTES
    grace_s: float = GRACE_S


@dataclass(frozen=True)
class Outcome:
    lane: Lane
    minutes: float
    code: int | None  # None: ended from here
    is_late: bool
    cpu_minutes: float  # of its processes; what they left behind unwaited is not in it

    @property
    def is_good(self) -> bool:
        return self.code == 0

    @property
    def words(self) -> str:
        late = ", past its limit" if self.is_late else ""
        return f"ENDED{late}" if self.code is None else f"ok{late}" if self.is_good else f"FAILED ({self.code}){late}"


class Stopping:
    """The first signal that asked this process to end; it is looked at between waits, so that no process is left behind."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number


def read_lanes(file: Path) -> list[Lane]:
    """One line a lane: `name = { minutes = 3, command = "..." }`."""
    return [Lane(name=name, **about) for name, about in tomllib.loads(file.read_text(encoding="utf-8")).items()]


def run_lane(lane: Lane, *, pace: Pace, rest_s: float, stopping: Stopping, say: Say) -> Outcome:
    """The lane has ended, and nothing of its process group is left. `rest_s` is what the other lanes leave it."""
    began, cpu_before_s = time.monotonic(), cpu_of_children_s()
    limit_s = lane.minutes * pace.minute_s
    longest_s = min(limit_s * pace.patience, rest_s)
    is_late = False
    process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", lane.command], start_new_session=True)
    try:
        code = ended_within(process, min(limit_s, longest_s), stopping=stopping)
        if code is None and stopping.number is None and limit_s < longest_s:
            is_late = True
            say(f"lane {lane.name}: past its limit of {lane.minutes:g} minutes, goes on")
            code = ended_within(process, longest_s - limit_s, stopping=stopping)
        if stopping.number is not None:
            say(f"stopped by {signal.Signals(stopping.number).name}")
        elif code is None:
            bound = (
                "the time that the other lanes leave it"
                if longest_s < limit_s * pace.patience
                else f"{pace.patience:g} times its limit"
            )
            say(f"lane {lane.name}: past {bound}, ended")
    finally:
        end_group(process, grace_s=pace.grace_s)
    minutes, cpu_minutes = (time.monotonic() - began) / MINUTE_S, (cpu_of_children_s() - cpu_before_s) / MINUTE_S
    return Outcome(lane, minutes=minutes, code=code, is_late=is_late, cpu_minutes=cpu_minutes)


def cpu_of_children_s() -> float:
    """CPU time of the processes that were started from here and have ended, and of their own ones."""
    times = os.times()
    return times.children_user + times.children_system


def ended_within(process: "subprocess.Popen[bytes]", seconds: float, *, stopping: Stopping) -> int | None:
    """Its exit code, or None if it goes on: the time is over, or a signal asks for the end."""
    last = time.monotonic() + seconds
    while stopping.number is None:
        rest_s = last - time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(max(rest_s, 0.0), LOOK_S))
        if rest_s <= LOOK_S:
            break
    return None


def end_group(process: "subprocess.Popen[bytes]", *, grace_s: float) -> None:
    """Also of a lane that has ended by itself: what it left behind must not disturb the next one."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_lanes(lanes: Sequence[Lane], *, pace: Pace, say: Say) -> int:
    """All lanes have run, the table is shown, and the exit code is told. A signal ends the running lane and skips the others."""
    outcomes: list[Outcome] = []
    last = time.monotonic() + pace.whole_minutes * pace.minute_s
    with signals_seen() as stopping:
        for place, lane in enumerate(lanes):
            if stopping.number is not None:
                break
            say(f"lane {lane.name}: {lane.minutes:g} minutes, {lane.command}")
            behind_s = sum(other.minutes for other in lanes[place + 1 :]) * pace.minute_s
            rest_s = max(0.0, last - time.monotonic() - behind_s)
            outcome = run_lane(lane, pace=pace, rest_s=rest_s, stopping=stopping, say=say)
            outcomes.append(outcome)
            say(f"lane {lane.name}: {outcome.words}, {outcome.minutes:.1f} of {lane.minutes:g} minutes")
        say("lanes")
        print("\n".join(table(outcomes, not_run=lanes[len(outcomes) :])), flush=True)
    if stopping.number is not None:
        return 128 + stopping.number
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def table(outcomes: Sequence[Outcome], *, not_run: Sequence[Lane] = ()) -> list[str]:
    rows = [("lane", "result", "minutes", "limit", "CPU minutes")]
    rows += [
        (one.lane.name, one.words, f"{one.minutes:.1f}", f"{one.lane.minutes:g}", f"{one.cpu_minutes:.1f}")
        for one in outcomes
    ]
    rows += [(lane.name, "not run", "-", f"{lane.minutes:g}", "-") for lane in not_run]
    name, words, *numbers = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                f"{row[0]:{name}}",
                f"{row[1]:{words}}",
                *[f"{text:>{size}}" for text, size in zip(row[2:], numbers, strict=True)],
            ]
        )
        for row in rows
    ]


@contextmanager
def signals_seen() -> Iterator[Stopping]:
    """A signal to end is noted, not obeyed at once."""
    stopping = Stopping()
    before = {number: signal.signal(number, stopping) for number in SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_as_headline(text: str) -> None:
    print(f"\n== {text}", flush=True)


def main() -> int:
    return run_lanes(read_lanes(Path(sys.argv[1])), pace=Pace(), say=say_as_headline)


if __name__ == "__main__":
    raise SystemExit(main())
