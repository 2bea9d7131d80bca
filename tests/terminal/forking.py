"""`python -m turnwise ARGS` without its start: children of a process that has loaded turnwise (`fork_server.py`).

TURNWISE_TESTS_START=real starts each process by the system instead, as `real=True` does for one.
"""

import contextlib
import io
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from terminal.fork_server import BEGUN, ENDED, Order, report_of
from turnwise.vocab.file_names import is_text
from waits import HANG_S

SERVER = Path(__file__).with_name("fork_server.py")
TURNWISE = (sys.executable, "-m", "turnwise")
# What Python and the C library read once, when a process starts.
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ")
# The server needs what only Linux has (`pidfd_open`, `/proc`).
ALWAYS_REAL = os.environ.get("TURNWISE_TESTS_START") == "real" or sys.platform != "linux"
REPORT_BYTES = len(report_of(ENDED, 0))


class Process(Protocol):
    """What tests use of `subprocess.Popen`."""

    pid: int
    stdout: IO[Any] | None
    stderr: IO[Any] | None

    @property
    def returncode(self) -> Any: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[Any, Any]: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


class Forked:
    """A child of the fork server. It is told from a `Popen` by its parent only, which buries it at once."""

    def __init__(self, report: int, *, stdout: IO[str] | None, stderr: IO[str] | None) -> None:
        self._report = report
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self.pid = self._next_report(BEGUN)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.returncode = self._next_report(ENDED)
            os.close(self._report)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._report], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("turnwise", timeout or 0.0)
        return code

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str | None, str | None]:
        """Read to the end of both outputs, and wait. Each is None if it is no pipe."""
        deadline = None if timeout is None else time.monotonic() + timeout
        read = {
            stream: bytearray() for stream in (self.stdout, self.stderr) if stream is not None and not stream.closed
        }
        with selectors.DefaultSelector() as selector:
            for stream in read:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(_left(deadline))
                if not ready:
                    raise subprocess.TimeoutExpired("turnwise", timeout or 0.0)
                for key, _ in ready:
                    piece = os.read(key.fd, 1 << 16)
                    read[key.fileobj] += piece
                    if not piece:
                        selector.unregister(key.fileobj)
        said = {stream: io.TextIOWrapper(io.BytesIO(text)).read() for stream, text in read.items()}
        for stream in read:
            stream.close()
        self.wait(_left(deadline))
        return (said.get(self.stdout), said.get(self.stderr))

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _next_report(self, kind: bytes) -> int:
        said = os.read(self._report, REPORT_BYTES)
        assert len(said) == REPORT_BYTES, "the fork server has ended"
        value = int.from_bytes(said[1:], "little", signed=True)
        assert said[:1] == kind, f"it ended with {value} before it began"
        return value


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class ForkServer:
    """Started with the first order; ended by `end`, or with this process."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # No certificates: aiohttp reads those of all the world when it is imported.
        self._env = {**os.environ, "SSL_CERT_FILE": os.devnull}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=self._env,
            )

    def can_start(self, env: Mapping[str, str], args: Sequence[str]) -> bool:
        """Whether a child can still be told what is different in its environment, and an order can hold its arguments."""
        if not all(is_text(arg) for arg in args):
            return False
        names = [name for name in {*env, *self._env} if name.startswith(READ_AT_START)]
        return all(env.get(name) == self._env.get(name) for name in names)

    def start(self, order: Order, *, stdin: int, stdout: int, stderr: int) -> Forked:
        """The streams as `Popen` takes them: a descriptor, DEVNULL or PIPE."""
        ours: dict[str, IO[str]] = {}
        theirs: list[int] = []
        try:
            for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
                if stream == subprocess.PIPE:
                    assert name != "stdin"
                    reading, stream = os.pipe()
                    ours[name] = os.fdopen(reading)
                elif stream == subprocess.DEVNULL:
                    stream = os.open(os.devnull, os.O_RDWR)
                else:
                    stream = os.dup(stream)
                theirs.append(stream)
            report, told = os.pipe()
            theirs.append(told)
            socket.send_fds(self._ours, [msgspec.json.encode(order)], theirs)
        finally:
            for stream in theirs:
                os.close(stream)
        return Forked(report, stdout=ours.get("stdout"), stderr=ours.get("stderr"))

    def end(self) -> None:
        self._ours.close()
        self._process.wait(HANG_S)


RUNNING: list[ForkServer] = []  # one at most


@contextlib.contextmanager
def ending_the_fork_server() -> Iterator[None]:
    try:
        yield
    finally:
        while RUNNING:
            RUNNING.pop().end()


def start(
    args: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.PIPE,
    stderr: int | IO[Any] = subprocess.PIPE,
    leads: bool = False,
    controls: int | None = None,
    real: bool = False,
    module: str = "turnwise",
    program: Sequence[str] = (),
) -> Process:
    """`turnwise ARGS` as a process of its own, its outputs as text, with `env` added to the environment.

    `leads`: in a session of its own. `controls`: the standard stream that is the terminal it controls. `real`: by the system.
    `module`: another one than turnwise. `program`: another one than Python, by the system."""
    whole = {**os.environ, **(env or {})}
    if not (real or program or ALWAYS_REAL):
        if not RUNNING:
            RUNNING.append(ForkServer())
        if RUNNING[0].can_start(whole, args):
            order = Order(module=module, args=tuple(args), cwd=str(cwd), env=whole, leads=leads, controls=controls)
            in_, out, err = (one if isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr))
            return RUNNING[0].start(order, stdin=in_, stdout=out, stderr=err)

    def take_terminal() -> None:
        import fcntl
        import termios

        fcntl.ioctl(controls or 0, termios.TIOCSCTTY, 0)

    return subprocess.Popen(
        [*(program or (sys.executable, "-m", module)), *args],
        cwd=cwd,
        env=whole,
        text=True,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=leads,
        preexec_fn=None if controls is None else take_terminal,  # noqa: PLW1509 (it runs before any thread of ours could be forked)
    )
