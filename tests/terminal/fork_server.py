"""A process that has loaded turnwise. For each order it forks a child, which becomes `python -m turnwise ARGS`: the modules are
there, everything else is as in a process started by the system. `forking.py` starts it and gives the orders."""

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import io
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import termios
import threading
from pathlib import Path
from typing import NoReturn

import msgspec

MOST_BYTES = 1 << 20  # of an order; the system allows 208 KiB by default
BEGUN, ENDED = b"b", b"e"
# What turnwise imports within functions; the rest comes with its own modules.
LATE = (
    "aiohttp",
    "jsonschema_rs",
    "pathspec",
    "prompt_toolkit",
    "prompt_toolkit.application",
    "prompt_toolkit.history",
    "prompt_toolkit.output.vt100",
    "rich.console",
    "rich.live",
    "rich.markup",
    "rich.status",
    "tree_sitter",
    "tree_sitter_bash",
    "uvloop",
)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The process that is wanted. Its standard streams and the pipe for its number and its exit come beside it."""

    module: str
    args: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    leads: bool  # a session of its own
    controls: int | None  # which of its standard streams is the terminal that it controls


class Children:
    """Those that have not ended. Each is watched by a descriptor of its own, and told of by its pipe."""

    def __init__(self) -> None:
        self._watched: dict[int, tuple[int, int]] = {}  # its number and its pipe

    def add(self, pid: int, *, report: int) -> int:
        watch = os.pidfd_open(pid)
        self._watched[watch] = (pid, report)
        return watch

    def bury(self, watch: int) -> None:
        """Say how it ended, as `Popen.returncode` does."""
        pid, report = self._watched.pop(watch)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know
            os.write(report, report_of(ENDED, code))
        os.close(report)
        os.close(watch)

    def end(self) -> None:
        for watch, (pid, _) in tuple(self._watched.items()):
            os.kill(pid, signal.SIGKILL)
            self.bury(watch)


def report_of(kind: bytes, value: int) -> bytes:
    """What comes through a process's pipe: its number once it is what was ordered (BEGUN), and how it ended (ENDED)."""
    return kind + value.to_bytes(4, "little", signed=True)


def load() -> None:
    """Import what a run may need. No thread and no open file comes of it: a fork would copy one and not the other."""
    del sys.path[0]  # the folder of this file
    import turnwise

    for module in pkgutil.walk_packages(turnwise.__path__, "turnwise."):
        if not module.name.startswith("turnwise.testing") and not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    threads, files = list(Path("/proc/self/task").iterdir()), list(Path("/proc/self/fd").iterdir())
    assert len(threads) == 1, threads
    assert len(files) == 5, files  # the standard streams, the socket, and the folder that is being listed
    for held in gc.get_objects():
        if isinstance(held, functools._lru_cache_wrapper) and held.__module__.startswith("turnwise"):
            held.cache_clear()
    gc.collect()
    gc.freeze()  # a collection would write to each object, and the system would copy its page


def serve(orders: socket.socket) -> Order:
    """Fork a child for each order; it returns in the child only. Ends with the process that gives the orders."""
    children = Children()
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != orders.fileno():
                poll.unregister(ready)
                children.bury(ready)
                continue
            said, streams, _, _ = socket.recv_fds(orders, MOST_BYTES, 4)
            if not said:
                children.end()
                sys.exit()
            pid = os.fork()
            if not pid:
                orders.detach()  # its number is closed below, and may be another file's afterwards
                order = msgspec.json.decode(said, type=Order)
                become(order, streams=streams[:3], report=streams[3])
                return order
            for stream in streams[:3]:
                os.close(stream)
            poll.register(children.add(pid, report=streams[3]), select.POLLIN)


def become(order: Order, *, streams: list[int], report: int) -> None:
    """What the system and Python do for a process that is started: of the server's own nothing is left."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    if order.leads:
        os.setsid()
    if order.controls is not None:
        fcntl.ioctl(order.controls, termios.TIOCSCTTY, 0)
    os.chdir(order.cwd)
    os.environ.clear()
    os.environ.update(order.env)
    sys.argv = ["-m", *order.args]
    sys.orig_argv = [sys.executable, "-m", order.module, *order.args]
    sys.path.insert(0, order.cwd)
    reopen_standard_streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.write(report, report_of(BEGUN, os.getpid()))
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def reopen_standard_streams() -> None:
    """The old ones know whether the server's were a terminal. Source: `create_stdio` in Python/pylifecycle.c."""
    unbuffered = sys.__stdout__.write_through  # PYTHONUNBUFFERED
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        buffering = 0 if old.write_through else -1
        file = open(descriptor, "wb" if descriptor else "rb", buffering, closefd=False)  # noqa: SIM115 (open until the end)
        stream = io.TextIOWrapper(
            file,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n",
            line_buffering=not unbuffered and (name == "stderr" or file.isatty()),
            write_through=old.write_through,
        )
        stream.mode = old.mode
        getattr(file, "raw", file).name = old.name
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def leave(done: SystemExit) -> NoReturn:
    """End as Python does, but do not take the modules apart: the system would copy most pages of the server to forget them.
    Source: `Py_FinalizeEx` in Python/pylifecycle.c."""
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # Python complains of it, in its own way
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(done.code, int):
            os._exit(done.code)
    raise done


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the tests is theirs; the end of the socket ends the server
    load()
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as done:
        leave(done)


if __name__ == "__main__":
    main()
