"""Gateways under load, faults and fire: a small one of `scripts/gateway_load.py`."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from waits import HANG_S

SCRIPT = Path(__file__).parents[2] / "scripts" / "gateway_load.py"


@pytest.mark.costly
@pytest.mark.promise("serve:budget")
@pytest.mark.parametrize(
    "words",
    [
        ("--workers", "3", "--kill"),
        ("--database", "postgres", "--gateways", "2", "--kill", "--restart"),
        pytest.param(("--scenarios", "50", "--freeze", "60"), marks=pytest.mark.wide),
    ],
)
def test_the_ledger_is_the_upstreams_bill_whatever_dies(words: tuple[str, ...]) -> None:
    """Proves: no more requests of a full budget come to the upstream than fit, nothing stays reserved, and each request that did
    not die with its process stands in the ledger as the upstream bills it."""
    sizes = ("--streams", "12", "--pieces", "10", "--burst", "40", "--fits", "8", "--scenarios", "4")
    line = [sys.executable, str(SCRIPT), "--json", *sizes, *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=3 * HANG_S, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    found = msgspec.json.decode(done.stdout, type=dict[str, Any])
    assert (found["holds"], found["reserved"], found["wrong"]) == (True, {}, [])
    assert 0 < found["of_the_full_budget"] <= 8 and found["upstream_requests"] > 20
