"""Faults that were there once, put back: the tests against them fail (the table `mutant` of tests/mutants.toml)."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tables import each
from thoroughness import spread
from waits import HANG_S

ROOT = Path(__file__).resolve().parents[1]
MUTANTS: list[dict[str, str]] = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())["mutant"]
# Each takes a copy of the package and a process. `spread` tries the others in `ci` by and by.
TRIED = spread(MUTANTS, one_of=6, name="faults that are put back")


def changed(mutant: dict[str, str]) -> str:
    """The source of the file with the fault in it."""
    source, lines = (ROOT / mutant["file"]).read_text(), mutant["diff"].strip("\n").split("\n")
    good, bad = ("\n".join([line[1:] for line in lines if line.startswith(sign)]) for sign in "-+")
    assert source.count(good) == 1, "the code has changed: write the mutant anew"
    return source.replace(good, bad)


@each("mutant", MUTANTS, ids=[one["name"] for one in MUTANTS])
def test_each_fault_can_be_put_back(mutant: dict[str, str]) -> None:
    """Proves: the code that it changes stands there once, and the test that is named beside it exists."""
    assert changed(mutant)
    file, _, name = mutant["test"].partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


@pytest.mark.costly
@pytest.mark.promise("run:own-state")
@pytest.mark.parametrize("mutant", TRIED, ids=[one["name"] for one in TRIED])
def test_a_fault_that_is_put_back_is_noticed(mutant: dict[str, str], tmp_path: Path) -> None:
    """Proves: the test that is named beside it fails where the code has the fault."""
    # With what Python has compiled of it, so that it need not do all of it again; of the fault it does.
    package = shutil.copytree(ROOT / "src" / "turnwise", tmp_path / "turnwise")
    file = package / Path(mutant["file"]).relative_to("src/turnwise")
    file.write_text(changed(mutant))
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", mutant["test"]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    if "1 skipped" in ran.stdout:
        pytest.skip("its test needs what this machine does not have")
    assert ran.returncode == 1 and "1 failed" in ran.stdout, ran.stdout + ran.stderr
