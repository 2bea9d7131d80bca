"""Turns on Temporal while its workers die, freeze and stop: the small fire (`scripts/engines.py --full` is the whole one)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from temporal_server import require_temporal
from waits import HANG_S

SCRIPT = Path(__file__).parents[2] / "scripts" / "engines.py"


@pytest.mark.engines
@pytest.mark.promise("keep:engines", "run:task-is-not-turn", "keep:crash")
def test_turns_on_an_engine_hold_under_fire() -> None:
    """Proves: of a hundred turns none is lost, doubled, out of order or cancelled by nobody, through two kills, a freeze and a
    stop of workers with host names of their own; what was cancelled ends so, and asks are answered while no worker lives."""
    require_temporal()
    ran = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert (told["turns"], told["kill"], told["freeze"], told["stop"], told["problems"]) == (104, 2, 1, 1, [])
    assert told["answered without a worker"] == 4
