"""The benchmarks of what is around a loop run: paced streams, the journal, tools, the start. No clock is asserted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from waits import HANG_S

pytestmark = pytest.mark.wide

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SYSTEMS = {
    "journal_append": {"turnwise", "bare SQLite", "turnwise, PostgreSQL"},
    "tool_dispatch": {"turnwise"},
    "resuming": {"turnwise"},
    "pieces": {"turnwise"},
    "telemetry": {"turnwise"},
    "cold_start": {"turnwise", "turnwise, as a library"},
    "first_reply": {"turnwise", "bare agent"},
    "at_prompt": {"turnwise"},
    "answer": {"turnwise", "turnwise, --plain", "printing raw"},
    "paced": {"turnwise", "turnwise, uvloop, TLS"},
    "gateway": {"turnwise", "turnwise, uvloop", "floor", "no gateway"},
}


@pytest.mark.skipif(sys.platform != "linux", reason="they read /proc and pin processes to cores")
@pytest.mark.parametrize("name", SYSTEMS)
def test_each_benchmark_runs_without_its_peers(name: str) -> None:
    """Tiny sizes: each system has a number for each of its measures, and nothing failed."""
    argv = [sys.executable, f"{name}.py", "--quick", "--only", "turnwise", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=BENCHMARKS)
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["records"]
    assert {record["system"] for record in records} == SYSTEMS[name]
    assert [record for record in records if "failed" in record or record["median"] is None] == []
