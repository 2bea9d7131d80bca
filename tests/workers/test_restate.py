"""Turns on Restate, as the example runs them: a real server, a real worker, and one that is killed."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postgres_server import end_with_parent
from real_agents import places
from turnwise import Journal
from waits import HANG_S

ROOT = Path(__file__).parents[2]
PACKAGE = "@restatedev/restate-server"
PROGRAM = places.NODE_MODULES / f"{PACKAGE}-linux-x64" / "bin" / "restate-server"
PAUSE_S = 0.05


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class RestateServer:
    """On the loopback, with ports of its own and little memory."""

    def __init__(self, folder: Path) -> None:
        self.ingress, self.admin = free_port(), free_port()
        settings = {
            "INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.ingress}",
            "ADMIN__BIND_ADDRESS": f"127.0.0.1:{self.admin}",
            "BIND_ADDRESS": f"127.0.0.1:{free_port()}",
            "LISTEN_MODE": "tcp",
            "DEFAULT_NUM_PARTITIONS": "1",
            "ROCKSDB_TOTAL_MEMORY_SIZE": "256MB",
            "DISABLE_TELEMETRY": "true",
            "BASE_DIR": str(folder),
        }
        environment = {**os.environ, **{f"RESTATE_{name}": value for name, value in settings.items()}}
        self.process = started([str(PROGRAM), "--no-logo"], env=environment)
        self.until(f"http://127.0.0.1:{self.admin}/health")

    def until(self, url: str) -> None:
        give_up = time.monotonic() + HANG_S
        while True:
            try:
                urllib.request.urlopen(url, timeout=HANG_S).close()
            except OSError:
                assert self.process.poll() is None and time.monotonic() < give_up, "the Restate server did not start"
                time.sleep(PAUSE_S)
            else:
                return

    def register(self, port: int) -> None:
        asked(f"http://127.0.0.1:{self.admin}/deployments", {"uri": f"http://127.0.0.1:{port}", "use_http_11": True})

    def call(self, path: str, value: object = None) -> Any:
        return asked(f"http://127.0.0.1:{self.ingress}/{path}", value)


def started(command: list[str], **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if "cwd" in options else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 (one call into the C library)
        **options,
    )


def asked(url: str, value: object) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request(url, body, {} if body is None else {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return json.loads(answer.read() or "null")


def worker(folder: Path, *, port: int) -> subprocess.Popen[str]:
    """The example, once it takes connections."""
    example = str(ROOT / "examples" / "engines" / "restate_turns.py")
    process = started([sys.executable, example, str(folder / "turns.db"), str(port)], cwd=folder)
    await_port(port, process=process)
    return process


def await_port(port: int, *, process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + HANG_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=HANG_S).close()
        except OSError:
            assert process.poll() is None and time.monotonic() < give_up, "the worker did not start"
            time.sleep(PAUSE_S)
        else:
            return


@pytest.fixture
def restate(tmp_path: Path) -> Iterator[RestateServer]:
    pytest.importorskip("restate", reason="restate-sdk is missing")
    if missing := places.missing_npm(PACKAGE):
        pytest.skip(f"{missing} is not installed: {places.SETUP} --agent {PACKAGE}")
    server = RestateServer(tmp_path / "restate")
    yield server
    server.process.kill()
    server.process.wait(HANG_S)


@pytest.mark.engines
@pytest.mark.promise("keep:engines", "run:key")
def test_a_turn_on_restate_waits_without_a_worker(restate: RestateServer, tmp_path: Path) -> None:
    """Proves: the worker is killed while a call waits for a person, the answer comes while none lives, and the next worker ends
    the turn: the tool has run once. The same key sent again gives the
    same result."""
    port = free_port()
    first = worker(tmp_path, port=port)
    restate.register(port)
    with Journal(tmp_path / "turns.db") as journal:
        assert journal.accept("customer-1", "message-1", "Refund order 7.")
    sent = restate.call("turns/customer-1/turn/send", "message-1")
    while not (shown := restate.call("turns/customer-1/asks")).get("asks"):
        time.sleep(PAUSE_S)
    first.kill()
    output, _ = first.communicate(timeout=HANG_S)
    (ask,) = shown["asks"]
    assert (ask["arguments"], output) == ('{"order":7}', "")
    answer = {"call_id": ask["call_id"], "digest": ask["digest"], "verdict": "allow"}
    restate.call(f"restate/awakeables/{shown['answer_to']}/resolve", [answer])
    second = worker(tmp_path, port=port)
    ended = restate.call(f"restate/invocation/{sent['invocationId']}/attach")
    assert ended == {"text": "Order 7 is refunded.", "stopped": "answered", "asks": []}
    assert [restate.call("turns/customer-1/turn", "message-1") for _ in range(3)] == [ended] * 3
    second.kill()  # its server does not end at SIGTERM while Restate holds a connection
    output, _ = second.communicate(timeout=HANG_S)
    assert output.count("refunding order 7") == 1
