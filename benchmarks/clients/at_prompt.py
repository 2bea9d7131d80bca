"""Start an agent at a terminal, wait for its prompt, give it one, and stop it as soon as the answer's first word is shown.

`python clients/at_prompt.py TASK` prints `prompt_cpu_s` and `prompt_s` (from the start to the prompt), `first_cpu_s` and
`first_s` (from the first delta that the provider sends to its word on the terminal). CPU is that of the main process with all
of its threads, by the kernel's count.
"""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from process_cpu import cpu_of

PATIENCE_S = 60.0
COLUMNS, LINES = 100, 40
WORD = b"Marmalade"
# What programs ask a terminal, and what an ordinary one says.
REPORTS = (
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[?u", b"\x1b[?0u"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b]10;?", b"\x1b]10;rgb:dddd/dddd/dddd\x1b\\"),
    (b"\x1b]11;?", b"\x1b]11;rgb:1111/1111/1111\x1b\\"),
)


class Provider:
    """Answers each POST with `stream` up to the first delta with WORD, notes when the first went, and keeps the stream open."""

    def __init__(self, stream: bytes, *, models: bytes) -> None:
        end = stream.index(b"\n\n", stream.index(WORD)) + 2
        self._head, self._models = stream[:end], models
        self.sent_at: float | None = None
        self.cpu_before = 0.0
        self.pid = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE_S)
            if not (request := read_request(connection)):
                return
            if not request.startswith(b"POST"):
                length = f"{len(self._models)}".encode()
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
                    + length
                    + b"\r\n\r\n"
                    + self._models
                )
                return
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            if self.sent_at is None:
                self.cpu_before, self.sent_at = cpu_of(self.pid), time.monotonic()
            connection.sendall(self._head)
            connection.recv(1)  # until the agent is stopped


def read_request(connection: socket.socket) -> bytes:
    got = b""
    while True:
        top, blank, body = got.partition(b"\r\n\r\n")
        lengths = [line for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if blank and len(body) >= (int(lengths[0].partition(b":")[2]) if lengths else 0):
            return got
        piece = connection.recv(65536)
        if not piece:
            return b""
        got += piece


@contextlib.contextmanager
def at_terminal(argv: list[str], *, env: dict[str, str], work: Path) -> Iterator[tuple[int, int]]:
    """The program in a session of its own: its process, and the terminal's other end."""
    end, theirs = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    words = ["setsid", "--ctty", *argv]  # it becomes the program, in a session whose terminal this is
    child = subprocess.Popen(words, env=env, cwd=work, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield child.pid, end
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(end)


def wait_for(pattern: re.Pattern[bytes], end: int, *, until: float) -> None:
    """Read what the program writes, and answer what it asks of its terminal, until the pattern has come."""
    shown = b""
    while not pattern.search(shown):
        left = until - time.monotonic()
        if left <= 0 or not select.select([end], [], [], left)[0]:
            raise SystemExit(f"nothing like {pattern.pattern!r} within {PATIENCE_S:g} s, but {shown[-600:]!r}")
        try:
            piece = os.read(end, 65536)
        except OSError:
            raise SystemExit(f"it ended, and had shown {shown[-600:]!r}") from None
        shown += piece
        for wanted, report in REPORTS:
            if wanted in piece:
                os.write(end, report)


def main() -> None:
    given = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        home.mkdir()
        work.mkdir()
        provider = Provider(Path(given["stream"]).read_bytes(), models=b'{"object": "list", "data": []}')
        filled = [("{url}", provider.url), ("{work}", str(work)), ("{home}", str(home))]

        def fill(text: str) -> str:
            for name, value in filled:
                text = text.replace(name, value)
            return text

        for name, text in given["files"].items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(fill(text))
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color", "HOME": str(home)}
        env |= {name: fill(value) for name, value in given["env"].items()}
        begin = time.monotonic()
        with at_terminal([fill(word) for word in given["argv"]], env=env, work=work) as (pid, end):
            provider.pid = pid
            wait_for(re.compile(given["ready"].encode()), end, until=begin + PATIENCE_S)
            prompt_s, prompt_cpu_s = time.monotonic() - begin, cpu_of(pid)
            time.sleep(given["settle_s"])
            os.write(end, b"Continue")
            wait_for(re.compile(rb"Continue"), end, until=time.monotonic() + PATIENCE_S)
            os.write(end, b"\r")
            wait_for(re.compile(WORD), end, until=time.monotonic() + PATIENCE_S)
            shown_at, cpu_s = time.monotonic(), cpu_of(pid)
        assert provider.sent_at is not None
    print(
        json.dumps(
            {
                "prompt_s": prompt_s,
                "prompt_cpu_s": prompt_cpu_s,
                "first_s": shown_at - provider.sent_at,
                "first_cpu_s": cpu_s - provider.cpu_before,
                "version": given["version"],
            }
        )
    )


main()
