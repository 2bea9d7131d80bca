"""Whether the process that runs a turn still lives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnwise.drivers.journal.owners import is_alive, our_name

HOST = our_name().rpartition(":")[0].rpartition(":")[0]


def name_of(pid: int) -> str:
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{HOST}:{pid}:{started}"


def test_we_live_and_a_later_process_with_our_number_is_another() -> None:
    """Proves: the number alone is no name."""
    assert is_alive(our_name())
    assert not is_alive(f"{HOST}:{os.getpid()}:1") or not Path("/proc").exists()


@pytest.mark.promise("keep:crash")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says what state a process is in")
def test_a_process_that_nobody_has_waited_for_is_gone() -> None:
    """Proves: after `kill -9` its turn can be resumed at once, also in a container whose first process waits for nobody."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    name = name_of(process.pid)
    assert is_alive(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still there
    assert not is_alive(name)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    assert not is_alive(name)


@pytest.mark.parametrize("name", ["", "x", "a:b", f"{HOST}:one:1", f"{HOST}:{10**30}:1", f"{HOST}:-1:1"])
def test_of_a_name_that_is_none_of_ours_nothing_is_known(name: str) -> None:
    """Proves: whatever stands in a journal as the owner of a turn, nobody takes the turn over, and nothing breaks."""
    assert is_alive(name)
