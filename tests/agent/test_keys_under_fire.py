"""Turns with keys while processes are killed and frozen and tasks cancelled: a small fire (`scripts/keys_under_fire.py`)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from waits import HANG_S

SCRIPT = Path(__file__).parents[2] / "scripts" / "keys_under_fire.py"


@pytest.mark.costly
@pytest.mark.promise("run:key", "run:task-is-not-turn", "keep:crash")
@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_keys_hold_under_fire(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Proves: each key has one turn and one result for all who asked, and each effect happened once or was told as unknown."""
    place = str(tmp_path / "turns.db") if where == "sqlite" else request.getfixturevalue("postgres_dsn")
    sizes = {"processes": 3, "keys": 12, "asks": 3, "kills": 3, "freezes": 1, "cancels": 4}
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--journal", place, "--json"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert (told["keys"], told["asks"], told["problems"]) == (12, 36, [])
    assert told["kill"] == 3
