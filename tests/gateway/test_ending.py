"""How a gateway ends: open answers have their time, and nothing new is taken."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.errors import CallerError
from turnwise.gateway.client_bounds import add_key, read_keys
from turnwise.gateway.serve import BoundSocket, check_reach
from waits import HANG_S

PROGRAM = Path(__file__).with_name("program.py")
TESTS = Path(__file__).parents[1]
SOON_S = "0"  # of grace: the deadline has passed at once


class Served:
    """The process, and a connection that has asked for an answer that does not end."""

    def __init__(self, folder: Path, *, grace_s: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), grace_s, str(folder / "keys.json")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=HANG_S)
        head = f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\ncontent-type: application/json\r\n"
        self.connection.sendall(f'{head}content-length: 14\r\n\r\n{{"do": "wait"}}'.encode())
        self.said = self.until(b"data: begun")

    def until(self, end: bytes) -> bytes:
        said = b""
        while end not in said and (piece := self.connection.recv(65_536)):
            said += piece
        return said

    def is_refused(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=HANG_S).close()
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # just as the gateway stopped listening
            return False
        return False

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, out, err


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """`request.param` seconds of grace."""
    found = Served(tmp_path, grace_s=request.param)
    yield found
    found.connection.close()
    found.process.kill()
    found.process.communicate(timeout=HANG_S)


@pytest.mark.parametrize("served", [str(HANG_S)], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_answers_end_before_the_process_does(served: Served, number: signal.Signals) -> None:
    """`kill -TERM` and the first Ctrl-C: no connection is taken any more, the answer at hand goes on to its end."""
    served.process.send_signal(number)
    while not served.is_refused():
        assert served.process.poll() is None
    served.process.send_signal(signal.SIGUSR1)  # the service's upstream goes on
    assert b"data: ended" in served.until(b"0\r\n\r\n")
    assert served.end() == (0, 'closed after []\n{"at_once":false}\n', "")


@pytest.mark.parametrize("served", [SOON_S], indirect=True)
def test_past_the_deadline_what_is_open_is_dropped(served: Served) -> None:
    """Without its end, so no client takes it for whole; the service is closed all the same."""
    served.process.send_signal(signal.SIGTERM)
    assert b"0\r\n\r\n" not in served.until(b"0\r\n\r\n")
    assert served.end() == (0, "closed after ['cancelled']\n{\"at_once\":false}\n", "")


@pytest.mark.parametrize("served", [str(HANG_S)], indirect=True)
def test_ctrl_c_twice_ends_at_once(served: Served) -> None:
    """Whatever is open."""
    served.process.send_signal(signal.SIGINT)
    while not served.is_refused():
        assert served.process.poll() is None
    served.process.send_signal(signal.SIGINT)
    assert b"data: ended" not in served.until(b"data: ended")
    assert served.end() == (0, "closed after ['cancelled']\n{\"at_once\":true}\n", "")


def test_an_address_that_is_taken_is_told() -> None:
    """With host, port and reason."""
    first = BoundSocket("127.0.0.1", 0)
    first.socket.listen()
    try:
        with pytest.raises(CallerError, match=rf"cannot listen on `127.0.0.1`, port {first.own.port}: .*in use"):
            BoundSocket("127.0.0.1", first.own.port)
    finally:
        first.close()


@pytest.mark.parametrize("host", ["no such host", "256.0.0.1", "a" * 64 + ".example"])
def test_a_host_that_is_none_is_told(host: str) -> None:
    """Nothing is looked up beyond what the system does."""
    with pytest.raises(CallerError, match=r"cannot listen on `.*`, port 0: "):
        BoundSocket(host, 0)


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("localhost", True), ("127.0.0.2", True), ("0.0.0.0", False)]
)
def test_without_keys_only_this_machine_is_let_in(tmp_path: Path, host: str, is_local: bool) -> None:
    """Issue 19, Doors: it is the address that was taken that counts, not how it was written."""
    listening = BoundSocket(host, 0)
    try:
        check_reach(listening, has_keys=True)
        assert listening.is_loopback is is_local
        if is_local:
            check_reach(listening, has_keys=False)
            return
        with pytest.raises(CallerError, match="clients need keys: `turnwise gateway keys add NAME`"):
            check_reach(listening, has_keys=False)
        add_key(tmp_path / "keys.json", "laptop", admin=False, today="2026-11-23")
        check_reach(listening, has_keys=bool(read_keys(tmp_path / "keys.json")))
    finally:
        listening.close()
