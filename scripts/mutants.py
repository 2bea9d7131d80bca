"""Change the code in small ways and see which changes no test notices: mutation tests of a room.

Usage: python scripts/mutants.py --room turn|rules|assembly|tools/mcp|journal|workers|editors/acp|
           relay|gateway [--sample N] [--seed N] [--jobs N] [--budget SECONDS] [--resume] [--only PATTERN] [--json FILE]
           [--draft FILE] [--check]

A sample of the room's mutants (scripts/mutants_made.py says what they are), drawn by a seed, is tried one by one. The tests of a
mutant are those that run its line: first the file of the same name, then the room's own folder, the fastest first. A mutant of a
declaration is tried with the room's tests that run no line at all, too: they look at what is declared. They run in a
copy of the tree, in a process with limits of time and memory. Each mutant is one of these:
  killed     a test fails
  timed out  a test does not end; it counts as killed
  survived   all its tests pass: a test is missing, or the mutant says the same as the code
  no test    no test runs its line
`tests/mutants.toml` lists known survivors, each with its reason; the line numbers do not matter. `--check` exits with 1 if a
mutant survives that is not listed. `--draft` writes such mutants down in that form, without reasons. Ctrl-C ends the run with
what it has found; `--resume` goes on from there. Which test runs which line is recorded once for each state of `src` and `tests`,
and kept in the user's cache folder (XDG_CACHE_HOME, else ~/.cache), as are the outcomes.
Needs the group `mutation`: uv pip install --constraint requirements-dev.lock --group mutation
"""

import argparse
import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

if TYPE_CHECKING:  # where its group is not installed, the command says so
    from mutants_made import Mutant

KNOWN = ROOT / "tests" / "mutants.toml"
# The folders whose tests judge a room, its own first.
ROOMS = {
    "turn": ("tests/turn",),
    "rules": ("tests/rules", "tests/turn"),
    "assembly": ("tests/assembly", "tests/wire"),
    "tools/mcp": ("tests/editors/mcp", "tests/terminal/test_mcp.py", "tests/terminal/test_mcp_sessions.py"),
    "workers": ("tests/workers/queue", "tests/workers"),
    "editors/acp": ("tests/editors/acp",),
    "gateway": ("tests/gateway",),
    "relay": ("tests/relay", "tests/gateway"),
    "journal": (
        *("tests/journal", "tests/agent/test_every_miss.py", "tests/agent/test_shared_budgets.py"),
        "tests/terminal/test_durability.py",
    ),
}
OUTCOMES = ("killed", "timed out", "survived", "no test")
AN_HOUR = 3600.0
MOST_TESTS = 2000  # for one mutant
MOST_TEST_S = 40.0  # of tests for one mutant, as they took while they were recorded
START_S = 60.0  # for a process of its own to collect its tests
RECORD_S = 2400.0  # assembly and wire take twelve minutes where nothing else runs
KEPT_S = 14 * 86_400.0  # what the cache folder holds of a state of the tree
SHOWN_EVERY_S = 15.0
AT_IMPORT = -1


def main() -> int:
    parser = argparse.ArgumentParser(description="Say which changes of a room's code no test notices.")
    parser.add_argument("--room", choices=list(ROOMS), required=True)
    parser.add_argument("--sample", type=int, default=1000, help="mutants to try (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes to use")
    parser.add_argument("--budget", type=float, default=AN_HOUR, help="seconds, an hour at most")
    parser.add_argument("--only", default="*", help="only files whose names fit this pattern, such as `machine*`")
    parser.add_argument("--resume", action="store_true", help="take up the run of this seed where it ended")
    parser.add_argument("--json", type=Path, help="write the outcomes into this file")
    parser.add_argument(
        "--draft", type=Path, help="write unknown survivors into this file, in the form of tests/mutants.toml"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if an unknown mutant survives")
    given = parser.parse_args()
    try:
        import mutants_made
    except ModuleNotFoundError as missing:
        print(
            f"mutants: `{missing.name}` is not installed: uv pip install -c requirements-dev.lock --group mutation",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C: no process of ours is left
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        recording = recorded(given.room, folder=Path(folder))
        if recording.failed:
            print(f"left out, as they do not pass without a mutant: {', '.join(recording.failed)}", file=sys.stderr)
        files = sorted((ROOT / "src" / "turnwise" / given.room).rglob("*.py"))
        tell(f"reading {len(files)} files")
        sources = [
            mutants_made.Source(file, room=given.room, root=ROOT) for file in files if fnmatch(file.name, given.only)
        ]
        places = mutants_made.drawn(sources, seed=given.seed)
        made = (mutant for source, place in places if (mutant := source.mutant(place)) is not None)
        run = Run(given, recording=recording, folder=Path(folder), until=began + min(given.budget, AN_HOUR))
        run.all_of(made, sample=given.sample)
    report = Report(run.tried, known=known_survivors(), possible=len(places))
    report.show(seconds=time.monotonic() - began, sample=given.sample, room=given.room)
    if given.json:
        given.json.write_text(json.dumps(report.plain(), indent=1) + "\n")
    if given.draft:
        given.draft.write_text("".join([entry(one, reason="") for one in report.unknown]))
    return 1 if given.check and report.unknown else 0


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# which test runs which line


class Recording(NamedTuple):
    """Which tests there are, how long each takes, and which of them run a line."""

    tests: list[tuple[str, float]]
    failed: list[str]
    lines: dict[str, dict[int, list[int]]]
    state: str  # of the tree, as a digest
    folders: tuple[str, ...]

    def is_run_at_import(self, file: str, *, lines: Sequence[int]) -> bool:
        ran = self.lines.get(file, {})
        return any(AT_IMPORT in ran.get(line, ()) for line in lines)

    def running(self, file: str, *, lines: Sequence[int]) -> set[int]:
        ran = self.lines.get(file, {})
        return {test for line in lines for test in ran.get(line, ())} - {AT_IMPORT}

    def nearest(self, mutant: "Mutant") -> list[tuple[str, float]]:
        """The tests of a mutant, those first that are most likely to say something about it."""
        own = f"test_{Path(mutant.file).stem}.py"
        found = self.running(mutant.file, lines=mutant.lines) or self.running(mutant.file, lines=mutant.statement)
        if not mutant.in_body:
            found |= self.using(mutant)
        if not found and self.is_run_at_import(mutant.file, lines=mutant.statement):  # a table: what runs beside it
            found = self.running(mutant.file, lines=list(self.lines[mutant.file])) or set(range(len(self.tests)))
            # and what only reads the table, as a test that a page is drawn from it
            found |= {nth for nth, (name, _) in enumerate(self.tests) if Path(name.partition("::")[0]).name == own}
        if not mutant.in_body:
            found |= self.looking_at_declarations()
        passing = [self.tests[one] for one in found if self.tests[one][0] not in self.failed]

        def distance(test: tuple[str, float]) -> tuple[bool, int, float, str]:
            file = test[0].partition("::")[0]
            folder = next((at for at, one in enumerate(self.folders) if file.startswith(one)), len(self.folders))
            return Path(file).name != own, folder, test[1], test[0]

        chosen: list[tuple[str, float]] = []
        left = MOST_TEST_S
        for test in sorted(passing, key=distance)[:MOST_TESTS]:
            if test[1] <= left or not chosen:
                chosen.append(test)
                left -= test[1]
        return chosen

    def looking_at_declarations(self) -> set[int]:
        """Tests of the room's own folder that run none of its lines: they judge what its modules declare."""
        running = {test for ran in self.lines.values() for tests in ran.values() for test in tests}
        own = self.folders[0] + "/"
        return {number for number, test in enumerate(self.tests) if number not in running and test[0].startswith(own)}

    def using(self, mutant: "Mutant") -> set[int]:
        """Tests that run a line where the name stands that a line outside of all functions sets."""
        if not mutant.named:
            return set()
        word = re.compile(rf"\b{re.escape(mutant.named)}\b")
        found: set[int] = set()
        for file in self.lines:
            text = (ROOT / file).read_text().splitlines()
            found |= self.running(file, lines=[number for number, line in enumerate(text, 1) if word.search(line)])
        return found


def tree_files() -> list[str]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], check=True, stdout=subprocess.PIPE
    )
    return sorted([name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()])


def tree_state() -> str:
    """A digest of all that decides what a test does."""
    digest = hashlib.sha256(sys.version.encode())
    for name in tree_files():
        if name.startswith(("src/", "tests/", "pyproject.toml")) and name != "tests/mutants.toml":
            digest.update(name.encode() + b"\0" + hashlib.sha256((ROOT / name).read_bytes()).digest())
    return digest.hexdigest()[:16]


def copy_of_tree(folder: Path) -> Path:
    folder.mkdir()
    for name in tree_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def cache_folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnwise-mutants"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def plain_name(room: str) -> str:
    """As it stands in the name of a file."""
    return room.replace("/", "-")


def recorded(room: str, *, folder: Path) -> Recording:
    state = tree_state()
    kept = cache_folder() / f"{plain_name(room)}-{state}.lines.json"
    if not kept.exists():
        tell(f"recording which of the tests in {', '.join(ROOMS[room])} run which lines: a few minutes, once")
        tree = copy_of_tree(folder / "recorded")
        made = folder / "lines.json"
        more = {
            "MUTANTS_RECORD": str(made),
            "MUTANTS_ROOT": str(tree),
            "MUTANTS_SOURCE": str(tree / "src" / "turnwise" / room),
        }
        ended = run_bounded(pytest_command(*ROOMS[room]), tree=tree, more=more, seconds=RECORD_S)
        if not made.exists():
            raise SystemExit(f"mutants: the tests could not be recorded ({ended}): run them without mutants first")
        for old in cache_folder().iterdir():
            if time.time() - old.stat().st_mtime > KEPT_S:
                old.unlink()  # of a state of the tree that nobody tries any more
        shutil.copy(made, kept)
    found = json.loads(kept.read_text())
    lines = {file: {int(line): tests for line, tests in ran.items()} for file, ran in found["lines"].items()}
    return Recording([(name, s) for name, s in found["tests"]], found["failed"], lines, state, ROOMS[room])


# trying a mutant


def pytest_command(*tests: str) -> list[str]:
    plain = ["-q", "-p", "mutants_tried", "-p", "no:xdist", "-m", "not wide and not live"]
    return [sys.executable, "-m", "pytest", *plain, *tests]


def environment(tree: Path, *, more: dict[str, str]) -> dict[str, str]:
    corpus = os.environ.get("TURNWISE_CORPUS") or str(ROOT.parent / "shared" / "corpus")
    paths = os.pathsep.join([str(tree / "src"), str(tree / "scripts")])
    plain = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "TURNWISE_CORPUS": corpus}
    return {**os.environ, **plain, **more}


def run_bounded(command: list[str], *, tree: Path, more: dict[str, str], seconds: float) -> int | None:
    """The exit code; None where the time was over. Nothing that it started is left."""
    started = subprocess.Popen(
        command,
        cwd=tree,
        env=environment(tree, more=more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return started.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_group(started)


def end_group(started: "subprocess.Popen[bytes]") -> None:
    """End a process that leads a group of its own, and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


class Tried(NamedTuple):
    mutant: "Mutant"
    outcome: str
    by: str  # the test that failed or did not end
    tests: int


class Worker:
    """A copy of the tree, and a process that has collected the room's tests there and tries mutants in forks of itself."""

    def __init__(self, tree: Path, *, recording: Recording) -> None:
        self.tree = copy_of_tree(tree)
        self.recording = recording
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        to_it, from_us = os.pipe()
        to_us, from_it = os.pipe()
        self.process = subprocess.Popen(
            pytest_command(*self.recording.folders),
            cwd=self.tree,
            env=environment(self.tree, more={"MUTANTS_SERVE": f"{to_it},{from_it}"}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_it, from_it),
            start_new_session=True,
        )
        os.close(to_it)
        os.close(from_it)
        self.orders = os.fdopen(from_us, "wb")
        self.outcomes = os.fdopen(to_us, "rb")
        if not self.outcomes.readline():
            raise SystemExit("mutants: pytest did not collect the tests")

    def end(self) -> None:
        if self.process is not None:
            end_group(self.process)

    def try_one(self, mutant: "Mutant") -> Tried:
        tests = self.recording.nearest(mutant)
        if not tests:
            return Tried(mutant, "no test", "", 0)
        at_import = self.recording.is_run_at_import(mutant.file, lines=mutant.lines)
        if mutant.in_body and not at_import:
            place = {"file": str(self.tree / mutant.file), "function": mutant.function, "line": mutant.first_line}
            said = self.ask({**place, "source": mutant.source, "tests": tests})
            if said["outcome"] != "apart":
                return Tried(mutant, said["outcome"], said.get("by", ""), len(tests))
        return self.try_apart(mutant, tests=tests)

    def ask(self, order: dict[str, object]) -> dict[str, str]:
        self.orders.write(json.dumps(order).encode() + b"\n")
        self.orders.flush()
        answer = self.outcomes.readline()
        if not answer:
            raise EOFError("the process that tries mutants has ended")
        return json.loads(answer)

    def try_apart(self, mutant: "Mutant", *, tests: list[tuple[str, float]]) -> Tried:
        """In a process that imports everything anew, for what runs while a module is imported."""
        file = self.tree / mutant.file
        file.write_text(mutant.source)
        try:
            seconds = START_S + 10 * sum([one[1] for one in tests])
            code = run_bounded(
                pytest_command("-x", *[one[0] for one in tests]), tree=self.tree, more={}, seconds=seconds
            )
        finally:
            shutil.copy2(ROOT / mutant.file, file)
        outcome = "timed out" if code is None else "survived" if code == 0 else "killed"
        return Tried(mutant, outcome, "", len(tests))


class Run:
    """A sample on its way: workers that take one mutant after the other, and what they found so far."""

    def __init__(self, given: argparse.Namespace, *, recording: Recording, folder: Path, until: float) -> None:
        self.jobs: int = given.jobs
        self.recording = recording
        self.folder = folder
        self.until = until
        self.tried: list[Tried] = []
        self.waiting: queue.Queue[Mutant | None] = queue.Queue(maxsize=2 * self.jobs)
        self.lock = threading.Lock()
        self.stopped = False
        self.shown_at = time.monotonic()
        self.kept = cache_folder() / f"{plain_name(given.room)}-{recording.state}-{given.seed}.jsonl"
        self.earlier = dict(earlier_outcomes(self.kept)) if given.resume else {}
        if not given.resume:
            self.kept.unlink(missing_ok=True)

    def all_of(self, mutants: Iterator["Mutant"], *, sample: int) -> None:
        workers = [Worker(self.folder / f"job-{number}", recording=self.recording) for number in range(self.jobs)]
        threads = [threading.Thread(target=self._work, args=(worker,), daemon=True) for worker in workers]
        try:
            for worker in workers:
                worker.start()
            self._check_plain(workers[0])
            for thread in threads:
                thread.start()
            for number, mutant in enumerate(mutants):
                if number >= sample or not self._hand_out(mutant, sample=sample):
                    break
            for _ in threads:
                self.waiting.put(None)
            for thread in threads:
                thread.join(max(1.0, self.until - time.monotonic()))
        except KeyboardInterrupt:
            tell("\nstopped: what was found so far (`--resume` goes on)")
        finally:
            self.stopped = True
            for worker in workers:
                worker.end()

    def _check_plain(self, worker: Worker) -> None:
        """The tests pass in a fork without a mutant; else all that follows would mean nothing. Once for each recording."""
        passed = self.kept.with_name(f"{self.kept.name.partition('-')[0]}-{self.recording.state}.passed")
        if passed.exists():
            return
        tests = [test for test in self.recording.tests if test[0] not in self.recording.failed]
        tell(f"{len(tests)} tests without a mutant first")
        said = worker.ask({"file": "", "function": "", "line": 0, "source": "", "tests": tests})
        if said["outcome"] != "survived":
            raise SystemExit(
                f"mutants: `{said.get('by')}` does not pass in a fork without a mutant ({said['outcome']})"
            )
        passed.touch()

    def _hand_out(self, mutant: "Mutant", *, sample: int) -> bool:
        """Give it to the next worker that is free; False where the time is over."""
        if mutant_name(mutant) in self.earlier:
            outcome, by, tests = self.earlier[mutant_name(mutant)]
            # One that survived fewer tests than it would be tried with now is tried again.
            if outcome != "survived" or tests >= len(self.recording.nearest(mutant)):
                self._found(Tried(mutant, outcome, by, tests))
                return True
        while time.monotonic() < self.until:
            self._show(sample=sample)
            try:
                self.waiting.put(mutant, timeout=1.0)
                return True
            except queue.Full:
                continue
        tell("the time is over: the sample is smaller than asked for (`--resume` goes on)")
        return False

    def _work(self, worker: Worker) -> None:
        while (mutant := self.waiting.get()) is not None and not self.stopped:
            if time.monotonic() >= self.until:
                continue
            try:
                tried = worker.try_one(mutant)
            except (EOFError, OSError):
                if self.stopped:
                    return
                worker.end()
                worker.start()  # a mutant took the process with it
                tried = Tried(mutant, "killed", "", 0)
            if not self.stopped:
                self._found(tried)
                self._keep(tried)

    def _found(self, tried: Tried) -> None:
        with self.lock:
            self.tried.append(tried)

    def _keep(self, tried: Tried) -> None:
        with self.lock, self.kept.open("a") as file:
            file.write(json.dumps([mutant_name(tried.mutant), [tried.outcome, tried.by, tried.tests]]) + "\n")

    def _show(self, *, sample: int) -> None:
        if time.monotonic() - self.shown_at > SHOWN_EVERY_S:
            self.shown_at = time.monotonic()
            with self.lock:
                counted = Counter([one.outcome for one in self.tried])
            left = self.until - self.shown_at
            parts = ", ".join([f"{counted[one]} {one}" for one in OUTCOMES])
            tell(f"{counted.total()} of {sample}: {parts}; {left / 60:.0f} minutes left")


def mutant_name(mutant: "Mutant") -> str:
    """The same one in another run over the same tree."""
    return "\0".join([*mutant.key, mutant.kind, str(mutant.line)])


def earlier_outcomes(kept: Path) -> Iterator[tuple[str, tuple[str, str, int]]]:
    for line in kept.read_text().splitlines() if kept.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):  # the last line of a run that was killed
            name, (outcome, by, tests) = json.loads(line)
            yield name, (outcome, by, tests)


# what it says


def known_survivors() -> dict[tuple[str, str, str, str], str]:
    """The reasons of `tests/mutants.toml`, by what a survivor is called by."""
    from mutants_made import plain

    rows = tomllib.loads(KNOWN.read_text()).get("survivor", []) if KNOWN.exists() else []
    known = {(row["room"], row["file"], row["function"], plain(row["diff"])): row["reason"] for row in rows}
    lacking = [key[1:3] for key, reason in known.items() if not reason.strip()]
    if lacking:
        raise SystemExit(f"mutants: tests/mutants.toml gives no reason for {lacking}")
    return known


def entry(tried: Tried, *, reason: str) -> str:
    mutant = tried.mutant
    head = f'[[survivor]]\nroom = "{mutant.room}"\nfile = "{mutant.file}"\nfunction = "{mutant.function}"\n'
    return f"{head}diff = '''\n{mutant.diff}\n'''\nreason = {json.dumps(reason)}\n\n"


class Report:
    """Outcomes, counted by file and by operator."""

    def __init__(self, tried: Sequence[Tried], *, known: dict[tuple[str, str, str, str], str], possible: int) -> None:
        self.tried = sorted(tried, key=lambda one: (one.mutant.file, one.mutant.line, one.mutant.kind, one.mutant.diff))
        self.known = known
        self.possible = possible
        left = [one for one in self.tried if one.outcome in ("survived", "no test")]
        self.unknown = [one for one in left if one.mutant.key not in known]
        self.listed = [one for one in left if one.mutant.key in known]

    def show(self, *, seconds: float, sample: int, room: str) -> None:
        for one in self.unknown:
            mutant = one.mutant
            told = "no test runs it" if one.outcome == "no test" else f"survived {one.tests} tests"
            print(
                f"{mutant.file}:{mutant.line} {mutant.function or '(module)'} [{mutant.kind}] {told}\n{mutant.diff}\n"
            )
        self._table("operator", [one.mutant.kind for one in self.tried])
        self._table("file", [one.mutant.file for one in self.tried])
        counted = Counter([one.outcome for one in self.tried])
        parts = ", ".join([f"{counted[one]} {one}" for one in OUTCOMES])
        print(
            f"{room}: {len(self.tried)} of {sample} mutants tried in {seconds:.0f} s ({self.possible} possible): {parts}; "
            f"{share(self.tried)} killed; {len(self.listed)} survivors are known, {len(self.unknown)} are not"
        )

    def _table(self, title: str, names: Sequence[str]) -> None:
        width = max([len(name) for name in [title, *names]])
        print(f"{title:<{width}} {'mutants':>8}" + "".join([f"{one:>10}" for one in OUTCOMES]) + f"{'share':>8}")
        for name in sorted(set(names)):
            rows = [one for one, its in zip(self.tried, names, strict=True) if its == name]
            counted = Counter([one.outcome for one in rows])
            print(
                f"{name:<{width}} {len(rows):>8}"
                + "".join([f"{counted[one]:>10}" for one in OUTCOMES])
                + f"{share(rows):>8}"
            )
        print()

    def plain(self) -> dict[str, object]:
        counted = Counter([one.outcome for one in self.tried])
        rows = [
            {
                "file": one.mutant.file,
                "line": one.mutant.line,
                "function": one.mutant.function,
                "operator": one.mutant.kind,
                "diff": one.mutant.diff,
                "outcome": one.outcome,
                "by": one.by,
                "tests": one.tests,
                "reason": self.known.get(one.mutant.key, ""),
            }
            for one in self.tried
        ]
        return {"counts": {one: counted[one] for one in OUTCOMES}, "possible": self.possible, "mutants": rows}


def share(tried: Sequence[Tried]) -> str:
    killed = len([one for one in tried if one.outcome in ("killed", "timed out")])
    return f"{100 * killed / len(tried):.0f} %" if tried else "-"


if __name__ == "__main__":
    sys.exit(main())
