"""A person at a pseudo-terminal: reads what is there until a text comes, types, and waits for the end. Every wait is bounded."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from terminal.forking import Process, start
from terminal.running import WAIT_S

ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>78])|\x07")
AGAIN_S = 5.0  # a person who sees nothing happen types again
CTRL_C, CTRL_D, ENTER, ESC_ENTER = "\x03", "\x04", "\r", "\x1b\r"


class Person:
    """`said` is everything on the screen so far, without what only moves or colours."""

    def __init__(self, process: Process, *, end: int) -> None:
        self.process = process
        self._end = end
        self._raw = b""
        self._read_to = 0

    @property
    def raw(self) -> str:
        return self._raw.decode("utf-8", "replace")

    @property
    def said(self) -> str:
        return ESCAPE.sub("", self.raw).replace("\r", "")

    def sees(self, text: str) -> str:
        """Wait for a text that was not waited for before; what came up to its end."""
        deadline = time.monotonic() + WAIT_S
        while (at := self.said.find(text, self._read_to)) < 0:
            assert time.monotonic() < deadline, f"`{text}` never came:\n{self.said[self._read_to :]}"
            assert self._more(), f"`{text}` never came, and it is over:\n{self.said[self._read_to :]}"
        before, self._read_to = self._read_to, at + len(text)
        return self.said[before : self._read_to]

    def types(self, text: str) -> None:
        os.write(self._end, text.encode())

    def types_after(self, keys: str, *, pause_s: float) -> None:
        """Read for so long, then type them: a person who has looked at the question."""
        deadline = time.monotonic() + pause_s
        while time.monotonic() < deadline:
            self._more()
        self.types(keys)

    def types_until(self, keys: str, text: str, *, pause_s: float) -> None:
        """Types them after a pause, and again where a slow program took them for more of what was typed before: until that text
        comes, or the end."""
        deadline = time.monotonic() + WAIT_S
        while True:
            assert time.monotonic() < deadline, f"`{text}` never came:\n{self.said[self._read_to :]}"
            self._reads_for(pause_s, text)
            self.types(keys)
            if self._reads_for(AGAIN_S, text):
                return

    def _reads_for(self, seconds: float, text: str) -> bool:
        """Whether it came, or it is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self._more():
                return True
            if (at := self.said.find(text, self._read_to)) >= 0:
                self._read_to = at + len(text)
                return True
        return False

    def leaves_by(self, code: int) -> str:
        """Wait for the end; what came since the last text that was waited for."""
        deadline = time.monotonic() + WAIT_S
        while self._more():
            assert time.monotonic() < deadline, f"it does not end:\n{self.said[self._read_to :]}"
        assert self.process.wait(timeout=WAIT_S) == code, self.said
        assert "Traceback" not in self.said, self.said
        return self.said[self._read_to :]

    def is_over_before(self, text: str) -> bool:
        """Wait for the end or for a text that was not waited for before, whichever comes first."""
        deadline = time.monotonic() + WAIT_S
        while (at := self.said.find(text, self._read_to)) < 0:
            assert time.monotonic() < deadline, f"neither its end nor `{text}`:\n{self.said[self._read_to :]}"
            if not self._more():
                return True
        self._read_to = at + len(text)
        return False

    def hangs_up(self) -> None:
        """The window is closed."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._end)
        os.close(null)

    def resizes(self, *, columns: int, lines: int) -> None:
        """The window gets another size."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, size)

    def is_cooked(self) -> bool:
        """Whether the terminal is as a shell wants it: lines, echo and signals."""
        local = termios.tcgetattr(self._end)[3]
        wanted = termios.ICANON | termios.ECHO | termios.ISIG
        return local & wanted == wanted

    def _more(self) -> bool:
        if not select.select([self._end], [], [], 0.2)[0]:
            return True
        try:
            piece = os.read(self._end, 65536)
        except OSError:  # Linux: the other end is closed
            return False
        self._raw += piece
        return bool(piece)


@contextlib.contextmanager
def at_terminal(
    *args: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: bool | int = True,
    stdout: bool = True,
    real: bool = False,
    columns: int | None = None,
    program: Sequence[str] = (),
) -> Iterator[Person]:
    """`turnwise ARGS` with a terminal of its own, which it controls, so that Ctrl-C is a signal to it. What is left of it at
    the end is ended. `stdin` may be the end of a pipe in its place. A `real` process is started by the system. Without `columns`
    the terminal does not say how wide it is. `program`: a shell, say, in place of turnwise."""
    end, theirs = pty.openpty()
    if columns is not None:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = start(
        args,
        cwd=cwd,
        env={"TERM": "xterm", **(env or {})},
        stdin=theirs if stdin is True else stdin or subprocess.DEVNULL,
        stdout=theirs if stdout else subprocess.DEVNULL,
        stderr=theirs,
        leads=True,
        controls=0 if stdin is True else 2,
        real=real,
        program=program,
    )
    os.close(theirs)
    try:
        yield Person(process, end=end)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=WAIT_S)
        os.close(end)
