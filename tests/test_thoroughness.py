"""What `check` leaves out of a table: no value, and in `pairs` no two values that meet. `ci` draws by its seed; `all` is all."""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import thoroughness
from tables import each
from thoroughness import Meeting, cells, drawn, examples, pairs, rounds, spread
from waits import HANG_S

SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=5)
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _as_in_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_TESTS", "check")
    monkeypatch.delenv("TURNWISE_TESTS_SEED", raising=False)


@given(sizes=SIZES)
def test_any_two_values_of_two_axes_meet_in_few_cells(sizes: list[int]) -> None:
    """Property: of any table, against all pairs counted here. No cell stands twice, and there are not more than of the whole."""
    chosen = pairs(sizes)
    met = {
        ((one, cell[one]), (other, cell[other]))
        for cell in chosen
        for one, other in itertools.combinations(range(len(sizes)), 2)
    }
    assert len(met) == sum(one * other for one, other in itertools.combinations(sizes, 2))
    assert all({cell[axis] for cell in chosen} == set(range(size)) for axis, size in enumerate(sizes))
    assert len(set(chosen)) == len(chosen) <= math.prod(sizes)


def test_pairs_are_far_fewer_than_the_whole() -> None:
    """Proves: it is worth it. The larger two axes alone need 48 cells here."""
    assert len(pairs((2, 2, 3, 8, 6))) < 55 < math.prod((2, 2, 3, 8, 6)) == 576


@pytest.mark.parametrize("meeting", ["all", "pairs", "each"])
def test_each_profile_tries_what_the_one_before_does_and_more(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: every value stands in `check`, `ci` adds a tenth of the others, `all` leaves nothing out."""
    sizes = (4, 3, 5)
    found: dict[str, list[tuple[int, ...]]] = {}
    for profile in ("check", "ci", "all"):
        monkeypatch.setenv("TURNWISE_TESTS", profile)
        found[profile] = list(cells(sizes, meeting=meeting, name="x"))
    assert found["all"] == list(itertools.product(range(4), range(3), range(5)))
    assert set(found["check"]) <= set(found["ci"]) <= set(found["all"])
    left = 60 - len(found["check"])
    assert len(found["ci"]) - len(found["check"]) == math.ceil(left / 10)
    assert all({cell[axis] for cell in found["check"]} == set(range(size)) for axis, size in enumerate(sizes))


def test_a_seed_draws_the_same_again_and_another_one_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: what `ci` drew can be drawn again with the printed line; two tables are not drawn alike; all is drawn in time."""
    monkeypatch.setenv("TURNWISE_TESTS", "ci")
    monkeypatch.setenv("TURNWISE_TESTS_SEED", "7")
    found = spread(range(100), one_of=50, name="x")
    assert thoroughness.told() == "TURNWISE_TESTS=ci TURNWISE_TESTS_SEED=7"
    assert found == spread(range(100), one_of=50, name="x") != spread(range(100), one_of=50, name="y")
    assert {0, 50} <= set(found) and len(found) == 12
    seen = set[int]()
    for seed in range(200):
        monkeypatch.setenv("TURNWISE_TESTS_SEED", str(seed))
        seen.update(drawn(range(100), name="x"))
    assert seen == set(range(100))


def test_how_many_examples_a_profile_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: a number in a test is what `all` draws; few stay few."""
    counted: dict[str, list[int]] = {}
    for profile in ("check", "ci", "all"):
        monkeypatch.setenv("TURNWISE_TESTS", profile)
        counted[profile] = [examples(400), examples(6), examples(2), len(rounds(60, check=6)), len(rounds(8, check=6))]
    assert counted == {"check": [100, 3, 2, 6, 6], "ci": [200, 3, 2, 30, 6], "all": [400, 6, 2, 60, 8]}


def test_an_unknown_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: a slip in the variable does not thin out the tests in silence."""
    monkeypatch.setenv("TURNWISE_TESTS", "al")
    with pytest.raises(AssertionError, match="`al`; it may be check, ci, all"):
        examples(3)


FAULTY = """
import pytest
from tables import each

@each("one", range(4))
@each("two", range(4), meeting="each")
def test_table(one, two):
    assert (one, two) != (3, 3), "a fault"

@pytest.mark.wide
@pytest.mark.parametrize("number", range(40))
def test_wide(number):
    pass
"""


@each(("profile", "runs"), [("ci", 5), ("all", 41)])
def test_a_run_says_its_seed_and_a_cell_that_fails_its_name(profile: str, runs: int, tmp_path: Path) -> None:
    """Proves: with real pytest, a wide test has a tenth of its cases in `ci`, and all of them in `all`."""
    file = tmp_path / "test_faulty.py"
    file.write_text(FAULTY)
    env = {**os.environ, "TURNWISE_TESTS": profile, "TURNWISE_TESTS_SEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "conftest", "--rootdir", tmp_path, file],
        cwd=ROOT,
        env={**env, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    seed = " TURNWISE_TESTS_SEED=7" if profile == "ci" else ""
    assert f"tests: TURNWISE_TESTS={profile}{seed}\n" in ran.stdout
    assert ": 3-3]\n" in ran.stdout and "a fault" in ran.stdout and f"1 failed, {runs - 1} passed" in ran.stdout


COSTLY = """
import pytest

@pytest.mark.costly
def test_costly():
    pass

@pytest.mark.costly
@pytest.mark.parametrize("number", range(5))
def test_costly_cases(number):
    pass

def test_cheap():
    pass
"""


@each(
    ("profile", "words", "runs"),
    [("check", [], 1), ("check", ["test_it.py"], 7), ("check", ["-k", "test"], 7), ("ci", [], 5), ("all", [], 7)],
)
def test_only_a_check_of_everything_leaves_costly_tests_out(
    profile: str, words: list[str], runs: int, tmp_path: Path
) -> None:
    """Proves: with real pytest and its processes, whoever names a file or a word gets all of it, and CI has each costly test,
    those with cases by half of them."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\nmarkers =\n    costly\n")
    (tmp_path / "test_it.py").write_text(COSTLY)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "-n", "1", *words],
        cwd=tmp_path,
        env={**os.environ, "TURNWISE_TESTS": profile, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert f"{runs} passed" in ran.stdout, ran.stdout + ran.stderr
