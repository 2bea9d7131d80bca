"""The guard against slower hot paths (`benchmarks/counts.py`): it tells a slower path, and it counts the same twice."""

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from waits import HANG_S

pytestmark = pytest.mark.wide

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
QUICK = "tool call, async"


def command(*args: str, slower: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TURNWISE_COUNTS_SLOWER": slower}
    argv = [sys.executable, str(BENCHMARKS / "counts.py"), *args]
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=HANG_S, check=False)


def verdict_of(said: str, name: str) -> str:
    (row,) = [line for line in said.splitlines() if line.startswith(f"{name}  ")]
    return row.split("  ")[-1].strip()


@pytest.fixture(scope="module")
def counts() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("counts")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of figures for one path, as calls."""
    file = tmp_path_factory.mktemp("counts") / "expected.toml"
    done = command("--only", QUICK, "--way", "calls", "--expected", str(file), "--update")
    assert done.returncode == 0, done.stderr
    return file


def test_the_same_path_counts_the_same(expected: Path) -> None:
    """Two processes, one figure: what is compared does not depend on the machine's load."""
    done = command("--only", QUICK, "--way", "calls", "--expected", str(expected), "--tolerance", "0.001")
    assert (done.returncode, verdict_of(done.stdout.partition("blocks")[0], QUICK)) == (0, "ok"), done.stdout


@pytest.mark.parametrize(("slower", "word"), [(QUICK, "SLOWER"), (f"{QUICK}=growing", "NOT FLAT")])
def test_a_slower_path_is_told_and_fails(expected: Path, slower: str, word: str) -> None:
    """The same path with work added to each unit, or more of it the longer it goes on; the yardstick is left as it is."""
    file = expected
    if word == "NOT FLAT":  # as on another Python: nothing but flatness to compare with
        file = expected.with_name("flat.toml")
        file.write_text(expected.read_text().replace("[calls.", "[calls.other-"))
    done = command("--only", QUICK, "--way", "calls", "--expected", str(file), slower=slower)
    said = done.stdout.partition("blocks")[0]
    assert (done.returncode, verdict_of(said, QUICK), verdict_of(said, "yardstick")) == (1, word, "ok"), done.stdout
    assert done.stderr == f"counts: {QUICK}: calls {word.lower()}\n"


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_slower_path_is_told_by_its_instructions() -> None:
    """Under callgrind, against the figures of the project: whatever Python this is, a path that bends is told."""
    name = "journal append, memory"
    done = command("--only", name, "--way", "instructions", slower=f"{name}=growing")
    assert (done.returncode, verdict_of(done.stdout, "yardstick")) == (1, "ok"), done.stdout
    assert verdict_of(done.stdout, name) in ("SLOWER", "NOT FLAT")


def test_what_cannot_be_counted_is_no_verdict(tmp_path: Path) -> None:
    """Without valgrind, instructions cannot be: exit code 2, and what to do."""
    env = {**os.environ, "PATH": str(tmp_path)}
    argv = [sys.executable, str(BENCHMARKS / "counts.py"), "--way", "instructions", "--only", QUICK]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=HANG_S, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "counts: there is no valgrind here: install it, or count `--way calls`\n",
    )


@pytest.mark.parametrize(
    ("only", "slower", "said"),
    [
        ("nonexistent", "", "--only: no path's name holds `nonexistent`; there are `yardstick`, "),
        (QUICK, "no such path", "TURNWISE_COUNTS_SLOWER: no path of those counted is called `no such path`; they are "),
        (QUICK, "one growing call", "TURNWISE_COUNTS_SLOWER: no path of those counted is called `one growing call`; "),
        (
            QUICK,
            f"{QUICK}=grows",
            f"TURNWISE_COUNTS_SLOWER: `{QUICK}=grows` is neither `{QUICK}` nor `{QUICK}=growing`",
        ),
    ],
)
def test_a_name_of_no_path_is_an_error(only: str, slower: str, said: str) -> None:
    """Nothing is counted and nothing passes: exit code 2, with the names that there are."""
    done = command("--only", QUICK, only, "--way", "calls", slower=slower)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"counts: {said}")


@pytest.mark.parametrize(
    ("per_unit", "flat", "word"),
    [
        (100.0, 1.0, "ok"),
        (109.0, 1.09, "ok"),
        (112.0, 1.0, "SLOWER"),
        (112.0, 1.2, "SLOWER"),
        (100.0, 1.2, "NOT FLAT"),
        (80.0, 1.0, "faster"),
        (80.0, 1.2, "NOT FLAT"),
    ],
)
def test_verdicts(counts: ModuleType, per_unit: float, flat: float, word: str) -> None:
    """A path that became cheaper and bends is still a bad one."""
    path = counts.HOT_PATHS[1]
    count = counts.Count("instructions", path, per_unit=per_unit, flatness=flat)
    assert counts.judge(count, expected=100.0, flatness=1.0, tolerance=0.10).word == word


@pytest.mark.parametrize(
    ("yardstick_here", "msgspec_then"), [(20.0, None), (10.0, "0.1.0")], ids=["python", "libraries"]
)
def test_another_build_or_library_is_compared_by_flatness_only(
    counts: ModuleType, yardstick_here: float, msgspec_then: str | None
) -> None:
    """Its yardstick differs, or what is counted with ours: twice the instructions for all are no regression, a bend is one."""
    yardstick, path, bent = counts.HOT_PATHS[:3]
    here = counts.key_of("instructions")
    known = counts.Expected(
        {
            f"instructions.{here}": {yardstick.name: 10.0, path.name: 100.0, bent.name: 100.0},
            "flatness.instructions": {yardstick.name: 1.0, path.name: 1.0, bent.name: 1.0},
        },
        versions={counts.key_of("calls"): {"msgspec": msgspec_then}} if msgspec_then else {},
    )
    found = [
        counts.Count("instructions", yardstick, per_unit=yardstick_here, flatness=1.0),
        counts.Count("instructions", path, per_unit=200.0, flatness=1.0),
        counts.Count("instructions", bent, per_unit=200.0, flatness=2.0),
    ]
    words = [verdict.word for verdict in counts.judge_all(found, known, tolerance=0.10)]
    assert words == ["ok", "ok", "NOT FLAT"]


def test_every_path_has_a_figure_and_every_figure_a_path(counts: ModuleType) -> None:
    """So that no path is counted and never compared."""
    read = tomllib.loads(counts.FILE.read_text())
    names = {path.name for path in counts.HOT_PATHS}
    assert read["calls"]
    for tables in (read["instructions"], read["calls"], read["blocks"], read["flatness"]):
        for key, table in tables.items():
            assert (key, set(table)) == (key, names)
