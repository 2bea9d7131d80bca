"""Faults that were there once, put back: the tests against them fail (the table `mutant` of tests/mutants.toml)."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from waits import HANG_S

ROOT = Path(__file__).resolve().parents[1]
MUTANTS: list[dict[str, str]] = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())["mutant"]


@pytest.mark.promise("run:own-state")
@pytest.mark.parametrize("mutant", MUTANTS, ids=[one["name"] for one in MUTANTS])
def test_a_fault_that_is_put_back_is_noticed(mutant: dict[str, str], tmp_path: Path) -> None:
    """Proves: the test that is named beside it fails where the code has the fault."""
    package = shutil.copytree(
        ROOT / "src" / "turnwise", tmp_path / "turnwise", ignore=shutil.ignore_patterns("__pycache__")
    )
    file = package / Path(mutant["file"]).relative_to("src/turnwise")
    source, lines = file.read_text(), mutant["diff"].strip("\n").split("\n")
    good, bad = ("\n".join([line[1:] for line in lines if line.startswith(sign)]) for sign in "-+")
    assert source.count(good) == 1, "the code has changed: write the mutant anew"
    file.write_text(source.replace(good, bad))
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
