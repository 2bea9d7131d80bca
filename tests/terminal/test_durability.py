"""What `--durability full` is for: the disk has a request before it leaves, and a call before its tool is entered."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from terminal.forking import TURNWISE
from terminal.running import WAIT_S, Cli, at, running_lab, script
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, UnknownOption
from turnwise.lab import Lab

WRITES = script(
    "writes-once",
    '[[steps]]\ncalls = [{ name = "write", arguments = { path = "made.txt", content = "made" } }]\n[[steps]]\ntext = "Done."',
)
TRACED = "openat,pwrite64,fdatasync,fsync,sendto,sendmsg,write,writev"
SYNCED = re.compile(r"(?:fdatasync|fsync)\(\d+<[^>]*journal\.db-wal>")
WRITTEN = r"pwrite64\(\d+<[^>]*journal\.db-wal>.*{}"


class Calls(NamedTuple):
    """The system calls of a run, in order, a line each."""

    lines: list[str]

    def first(self, pattern: str, *, after: int = -1) -> int:
        """The place of the first line that matches behind another. Fails where there is none."""
        for number in range(after + 1, len(self.lines)):
            if re.search(pattern, self.lines[number]):
                return number
        raise AssertionError(f"no line matches {pattern!r}")

    def is_synced(self, between: int, until: int) -> bool:
        return any(SYNCED.search(line) for line in self.lines[between:until])


def traced(folder: Path, *args: str, to: Path) -> Calls:
    """`turnwise ARGS` under strace. Skips where that is missing or may not look."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    may_look = subprocess.run([strace, "-o", str(to), "true"], capture_output=True, timeout=WAIT_S, check=False)
    if may_look.returncode:
        pytest.skip("strace may not look into a process here")
    start = [strace, "-f", "-y", "-s", "9000", "-e", f"trace={TRACED}", "-o", str(to)]
    ran = subprocess.run(
        [*start, *TURNWISE, *args],
        cwd=folder,
        env=os.environ.copy(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return Calls(to.read_text(errors="replace").splitlines())


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("durability", ["full", "normal"])
def test_full_durability_syncs_a_start_before_what_it_starts(folder: Path, tmp_path: Path, durability: str) -> None:
    """Proves with the system's own list of calls: `full` syncs the write-ahead log between a start's record and its effect.
    `normal` does not, so the test would notice."""
    with running_lab([WRITES]) as lab:
        options = ("--no-sandbox", "--allow", "write", "--durability", durability, *at(lab, "writes-once"))
        calls = traced(folder, "run", "Go.", *options, to=tmp_path / "trace")
    noted = calls.first(WRITTEN.format("request_sent"))
    left = calls.first(r"(?:sendto|sendmsg|write|writev)\(.*POST /", after=noted)
    started = calls.first(WRITTEN.format("tools_started"))
    entered_tool = calls.first(r'openat\(.*"made\.txt"', after=started)
    assert calls.is_synced(noted, left) == calls.is_synced(started, entered_tool) == (durability == "full")


def test_durability_is_read_of_the_users_file_and_refused_of_a_projects(
    lab: Lab, folder: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typo is named; a folder from elsewhere cannot say how safely the user's journal is kept."""
    own = tmp_path / "own.toml"
    monkeypatch.setenv("TURNWISE_CONFIG", str(own))
    own.write_text('durability = "full"\n')
    assert cli("run", "Go.", *at(lab, "plain-answer")).code == 0
    own.write_text('durability = "fully"\n')
    ran = cli("run", "Go.", *at(lab, "plain-answer"))
    assert ran.code == 2 and "`durability` must be `normal` or `full`" in ran.err
    own.write_text("")
    (folder / "turnwise.toml").write_text('durability = "normal"\n')
    ran = cli("run", "Go.", *at(lab, "plain-answer"))
    assert ran.code == 2 and "a project's file cannot say how safely your journal is kept: give --durability" in ran.err


def test_the_library_names_the_word_that_it_takes(tmp_path: Path) -> None:
    """`synchronous` was its name before; an unknown word is told, too."""
    with pytest.raises(UnknownOption, match=r"`synchronous` is no option of `Journal`. Did you mean `durability`\?"):
        Journal(tmp_path / "j.db", clock=SystemClock(), synchronous="full")
    with pytest.raises(CallerError, match='`durability` must be "normal" or "full", not \'off\''):
        Journal(tmp_path / "j.db", clock=SystemClock(), durability="off")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    for durability, level in (("normal", 1), ("full", 2)):
        with Journal(None, clock=SystemClock(), durability=durability) as journal:  # type: ignore[arg-type]
            journal.keep(durability)  # type: ignore[arg-type]
            with journal._store.statement() as connection:
                assert connection.execute("pragma synchronous").fetchone() == (level,)
