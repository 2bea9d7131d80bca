"""The CPU time of another process, by the kernel's count."""

import os
from pathlib import Path


def cpu_of(pid: int) -> float:
    """Of the living threads to the nanosecond, or of all, those that ended too, to the hundredth of a second: the larger."""
    living = sum([int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return max(living, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
