"""Who runs a turn: a name for a process that another one can check for life."""

import functools
import os
import socket
from pathlib import Path


@functools.cache
def _host() -> str:
    return socket.gethostname()


def our_name() -> str:
    """`host:pid:start`; the start time tells a process from a later one with the same number."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_started(pid)}"


def is_alive(name: str) -> bool:
    """True unless the process is known to be gone; of another machine nothing is known."""
    host, pid_text, started = name.rsplit(":", 2)
    if host != _host():
        return True
    pid = int(pid_text)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, as another user's
    return _started(pid) == started


def _started(pid: int) -> str:
    """Clock ticks since boot at which it started (proc(5), field 22); "" where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
