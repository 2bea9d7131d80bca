"""What every client of a gateway does: start it on a core of its own, read what it spends, speak plain HTTP with it.

Standard library only: this runs in the environments of the peers, too.
"""

import contextlib
import importlib.metadata
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

READY_S = 90.0  # a gateway that is imported for the first time compiles all of itself
ENDED_S = 15.0
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024


class GatewayTask(TypedDict):
    argv: list[str]  # empty: no gateway, the provider itself is asked
    env: dict[str, str]
    provider: str  # its port
    port: int  # where the gateway is told to listen, 0 where it says so itself
    distribution: str
    core: int  # the gateway's; the client and the provider share another
    own_core: int
    key: str  # that the client shows


class Served:
    """A gateway that runs, and what it has spent so far."""

    def __init__(self, port: int, pid: int | None) -> None:
        self.port = port
        self._pid = pid

    @property
    def cpu_s(self) -> float:
        """Of all its threads: clock_getcpuclockid(3) gives this number for another process."""
        return 0.0 if self._pid is None else time.clock_gettime((~self._pid << 3) | 2)

    @property
    def kib(self) -> float:
        if self._pid is None:
            return 0.0
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * PAGE_KIB


@contextlib.contextmanager
def served(given: GatewayTask) -> Iterator[Served]:
    """The gateway of the task, once it answers; none where the task has none."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if os.environ.get("TURNWISE_PACED_REALTIME"):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if not given["argv"]:
        os.sched_setaffinity(0, {given["own_core"]})
        yield Served(int(given["provider"]), None)
        return
    os.sched_setaffinity(0, {given["core"]})  # for the child, which inherits it
    process = subprocess.Popen(
        given["argv"],
        env={**os.environ, **given["env"]},
        stdout=subprocess.DEVNULL if given["port"] else subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    os.sched_setaffinity(0, {given["own_core"]})
    try:
        yield Served(given["port"] or said_port(process), process.pid if wait_until_ready(given, process) else None)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(ENDED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said_port(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("the gateway said no address")
    return int(json.loads(line)["port"])


def wait_until_ready(given: GatewayTask, process: "subprocess.Popen[bytes]") -> bool:
    """A gateway that says its address takes connections then; another is asked until it does."""
    until = time.monotonic() + READY_S
    while given["port"]:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", given["port"])):
            break
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the gateway did not start within {READY_S:g} s, exit code {process.returncode}")
        time.sleep(0.1)
    return True


def request(model: str, *, stream: bool, close: bool) -> bytes:
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Go on."}], "stream": stream}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {task()['key']}\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + (b"Connection: close\r\n" if close else b"") + b"\r\n" + body


def for_port(asked: bytes, port: int) -> bytes:
    return asked.replace(b"{port}", b"%d" % port)


def finished(given: GatewayTask, figures: dict[str, float]) -> None:
    version = importlib.metadata.version(given["distribution"]) if given["distribution"] else ""
    print(json.dumps({"version": version, **figures}), flush=True)


def task() -> GatewayTask:
    return json.loads(sys.argv[1])
