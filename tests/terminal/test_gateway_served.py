"""`turnwise gateway` in a process of its own, before the lab."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from terminal.running import running_lab
from turnwise._version import __version__
from turnwise.lab import Lab
from waits import HANG_S


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab() as found:
        yield found


class Served:
    """`turnwise gateway` on a free port, and the one line that it printed."""

    def __init__(self, folder: Path, *words: str) -> None:
        line = [sys.executable, "-m", "turnwise", "gateway", "--port", "0", "--json", *words]
        env = {**os.environ, "HOME": str(folder), "TURNWISE_STATE_DIR": str(folder / "state")}
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=folder
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if not first:
            raise AssertionError(self.process.communicate(timeout=HANG_S))
        self.told: dict[str, Any] = msgspec.json.decode(first)

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {} if body is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.told["url"] + path, data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=HANG_S) as response:
            return response.status, response.read()

    def end(self, number: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, out, err


@pytest.fixture
def served(lab: Lab, tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path, "--upstream", f"{lab.url}/v1")
    yield found
    found.process.kill()
    found.process.communicate(timeout=HANG_S)


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_tells_its_address_serves_and_ends_with_0(served: Served, number: signal.Signals) -> None:
    """`--port 0 --json`: one line with the address that was taken; issue 19."""
    port = served.told["port"]
    assert served.told == {
        "turnwise": __version__,
        "url": f"http://127.0.0.1:{port}",
        "host": "127.0.0.1",
        "port": port,
    }
    assert [served.ask(path)[0] for path in ("/healthz", "/readyz", "/v1/models", "/metrics")] == [200] * 4
    asked = {"model": "read-edit-answer", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
    status, said = served.ask("/v1/chat/completions", msgspec.json.encode(asked))
    assert (status, said.endswith(b"data: [DONE]\n\n")) == (200, True)
    code, out, err = served.end(number)
    assert (code, out) == (0, "")
    (line,) = [msgspec.json.decode(line) for line in err.splitlines()]
    assert (line["status"], line["end"], line["requests"]) == (200, "whole", 1)
