"""Who runs a turn: a name for a process that another one can check for life."""

import functools
import os
import socket
from pathlib import Path

ENDED = frozenset("ZXx")  # states of a process that has ended (proc(5))


@functools.cache
def _host() -> str:
    return socket.gethostname()


LONGEST_PID = 9  # digits; Linux has 4,194,304 at the most


def our_name() -> str:
    """`host:pid:start`; the start time tells a process from a later one with the same number."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_started(pid)}"


def is_alive(name: str) -> bool:
    """True unless the process is known to be gone; of another machine nothing is known, nor of a name that is none of ours. One
    that has ended and that nobody has waited for (in a container without an init, say) is gone."""
    parts = name.rsplit(":", 2)
    if len(parts) < 3 or parts[0] != _host() or not parts[1].isdecimal() or len(parts[1]) > LONGEST_PID:
        return True
    pid, started = int(parts[1]), parts[2]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, as another user's
    fields = _status(pid)
    if not fields:
        return not started  # there is no /proc here, and was none
    return fields[0] not in ENDED and fields[19] == started


def is_here(name: str) -> bool:
    """Whether it names a process of this machine."""
    return name.rsplit(":", 2)[0] == _host()


def _started(pid: int) -> str:
    """Clock ticks since boot at which it started (proc(5), field 22); "" where there is no /proc."""
    fields = _status(pid)
    return fields[19] if fields else ""


def _status(pid: int) -> list[str]:
    """What Linux says of it, from its state on (proc(5), field 3); nothing where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
