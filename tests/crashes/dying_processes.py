"""Starts `dying.py`, and gives it orders."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from crashes.dying import Ended, Order

TESTS = Path(__file__).parents[1]
KILLED = 9


class Processes:
    """Runs one process after another; each begins with turnwise loaded."""

    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._server = server

    def __call__(self, order: Order, *, kill_after_us: int = 0) -> Ended | None:
        """How its turn ended; None where the process was killed."""
        assert self._server.stdin is not None and self._server.stdout is not None
        said = Path(order.folder) / "ended.json"
        said.unlink(missing_ok=True)
        self._server.stdin.write(f"{kill_after_us} {msgspec.json.encode(order).decode()}\n")
        self._server.stdin.flush()
        signal = int(self._server.stdout.readline())
        if said.exists():
            return msgspec.json.decode(said.read_bytes(), type=Ended)
        assert signal == KILLED, signal
        return None


@contextmanager
def dying_processes() -> Generator[Processes]:
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(TESTS)!r}); from crashes.dying import main; main()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Processes(server)
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
