"""A process of the fork server is what the system would have started: the system's own start is the judge."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from terminal.forking import ALWAYS_REAL, RUNNING, Forked, start
from terminal.running import WAIT_S
from terminal.test_processes import wait_until

TOLD = """
import gc, json, locale, os, signal, subprocess, sys, tempfile, termios, threading, warnings

def told(stream):
    return [stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.isatty(), stream.fileno()]

def controlled():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
        return [os.tcgetpgrp(2) == os.getpid(), termios.tcgetattr(2)[3]]
    except OSError as error:
        return error.errno

status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "argv": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "name": [__name__, sys.modules["__main__"].__dict__ is globals()],
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "environ": sorted(subprocess.check_output(["env", "-0"]).decode().split("\\0")),
    "streams": [told(sys.stdin), told(sys.stdout), told(sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "files": sorted(os.listdir("/proc/self/fd")),
    "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")],
    "handlers": [str(signal.getsignal(number)) for number in (1, 13, 15, 17)],
    "ctrl_c": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "leads": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "session": os.getsid(0) if os.getsid(0) != os.getpid() else 0,
    "controlled": controlled(),
    "threads": [len(os.listdir("/proc/self/task")), threading.main_thread().name, threading.active_count()],
    "umask": status["Umask"],
    "tracer": status["TracerPid"],
    "locale": locale.setlocale(locale.LC_ALL),
    "flags": list(sys.flags),
    "collects": [gc.isenabled(), gc.get_threshold()],
    "warnings": [str(one) for one in warnings.filters if one[0] == "error"],
    "temporary": tempfile.tempdir,
}))
"""


def told(folder: Path, *, real: bool, terminal: bool = False) -> dict[str, Any]:
    env = {"ONE": "zwei", "TMPDIR": str(folder)}
    if not terminal:
        process = start(["a b", "--c"], cwd=folder, env=env, module="told", real=real)
        out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, err) == (0, "")
        return json.loads(out)
    ours, theirs = pty.openpty()
    args: dict[str, Any] = {"stdin": theirs, "stderr": theirs, "leads": True, "controls": 0}
    with os.fdopen(ours, "rb", 0):
        process = start(["a b"], cwd=folder, env=env, module="told", real=real, **args)
        os.close(theirs)
        out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, os.read(ours, 1 << 16).decode()
    return json.loads(out)


@pytest.mark.parametrize("terminal", [False, True], ids=["pipes", "terminal"])
def test_a_forked_process_sees_what_a_started_one_sees(folder: Path, terminal: bool) -> None:
    """Arguments, folder, environment, streams, descriptors, signals, session, terminal."""
    (folder / "told.py").write_text(TOLD)
    assert told(folder, real=False, terminal=terminal) == told(folder, real=True, terminal=terminal)


ENDS = {
    "a code": "import sys; print('out'); sys.exit(3)",
    "no code": "print('out')",
    "a text": "import sys; sys.exit('because')",
    "an error": "1 / 0",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "at once": "import os; print('lost'); os._exit(4)",
    "what was registered": "import atexit, sys; atexit.register(print, 'last'); sys.exit(5)",
    "a thread": "import sys, threading; threading.Timer(0.05, print, ['late']).start(); sys.exit(6)",
    "a full disk": "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('x'); sys.exit(0)",
}


@pytest.mark.parametrize("way", ENDS)
def test_a_forked_process_ends_as_a_started_one(folder: Path, way: str) -> None:
    """Its code, and all that it wrote; of a traceback the last line."""
    (folder / "ends.py").write_text(ENDS[way])
    ended: list[tuple[int, str, list[str]]] = []
    for real in (False, True):
        process = start([], cwd=folder, module="ends", real=real)
        out, err = process.communicate(timeout=WAIT_S)
        ended.append((process.returncode, out, err.splitlines()[-1:]))
    assert ended[0] == ended[1]


def test_a_forked_process_is_waited_for_signalled_and_buried(folder: Path) -> None:
    """Proves: `poll`, `wait` and `kill` do what those of `Popen` do, and no process is left, not even a dead one."""
    if ALWAYS_REAL:
        pytest.skip("each process is started by the system")
    (folder / "waits.py").write_text("import signal; signal.pause()")
    process = start([], cwd=folder, module="waits")
    assert isinstance(process, Forked) and process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0)
    process.kill()
    assert process.communicate(timeout=WAIT_S) == ("", "")
    assert process.wait(timeout=WAIT_S) == process.poll() == process.returncode == -signal.SIGKILL
    wait_until(lambda: not Path(f"/proc/{process.pid}").exists())


def test_the_children_end_with_their_server(folder: Path) -> None:
    """Proves: a worker of pytest that dies leaves nothing behind (its end of the socket is closed then)."""
    if ALWAYS_REAL:
        pytest.skip("each process is started by the system")
    (folder / "waits.py").write_text("import signal; signal.pause()")
    process = start([], cwd=folder, module="waits")
    RUNNING.pop().end()
    process.communicate(timeout=WAIT_S)
    assert process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()


def test_what_python_reads_at_its_start_is_given_to_a_started_process(folder: Path) -> None:
    """Proves: PYTHONIOENCODING, LC_ALL and their like have their effect, as a process is started for them."""
    (folder / "says.py").write_text("import sys; print(sys.stdout.encoding)")
    process = start([], cwd=folder, module="says", env={"PYTHONIOENCODING": "latin-1"})
    assert not isinstance(process, Forked)
    assert process.communicate(timeout=WAIT_S)[0] == "iso8859-1\n"
