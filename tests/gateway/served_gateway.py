"""`turnwise gateway` as a process of its own, before a lab in this one, and a client that speaks plain HTTP."""

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from waits import HANG_S

CONTENT = "the-prompts-own-words"
ANY = {"type": "object", "properties": {}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": ANY}} for name in ("read", "list", "note", "write")
]
BODY = {"messages": [{"role": "user", "content": CONTENT}], "stream": True, "tools": TOOLS}


class ServedGateway(NamedTuple):
    process: "subprocess.Popen[str]"
    port: int
    env: dict[str, str]
    log: BinaryIO
    admin: str = ""  # the address of its page

    def ask(self, path: str, body: object, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        every = {
            "content-type": "application/json",
            "connection": "close",
            **{key.replace("_", "-"): value for key, value in headers.items()},
        }
        connection.request("POST", path, msgspec.json.encode(body), every)
        return connection.getresponse()

    def stalling(self) -> http.client.HTTPResponse:
        """An answer that has begun and does not go on."""
        answer = self.ask("/v1/chat/completions", {"model": "fault-stall", **BODY})
        assert answer.read(1)
        return answer

    def chat(self, model: str, **headers: str) -> bytes:
        """The whole answer to a streamed request of Chat Completions."""
        return self.ask("/v1/chat/completions", {"model": model, **BODY}, **headers).read()

    def get(self, path: str, **headers: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        connection.request("GET", path, headers={"connection": "close", **headers})
        return connection.getresponse().read()

    def wait_until_open(self, key: str) -> None:
        """A new key counts within a second, and each of these requests takes a while."""
        for _ in range(2000):
            if b'"error"' not in (told := self.get("/v1/models", authorization=f"Bearer {key}")):
                return
        raise AssertionError(told)

    def run(self, *words: str) -> str:
        """What `turnwise WORDS` prints beside it."""
        line = [sys.executable, "-m", "turnwise", *words]
        ran = subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=HANG_S, check=True)
        return ran.stdout

    def usage(self, *words: str) -> dict[str, Any]:
        return msgspec.json.decode(self.run("usage", "--json", "--since", "all", *words), type=dict[str, Any])

    def end(self) -> str:
        """Gently. What it logged."""
        self.process.terminate()
        self.process.communicate(timeout=HANG_S)
        self.log.seek(0)
        return self.log.read().decode()


@contextlib.contextmanager
def served_gateway(
    folder: Path,
    *words: str,
    upstream: str | None,
    env: dict[str, str] | None = None,
    log_to: int | None = None,
) -> Iterator[ServedGateway]:
    """With state, configuration and cache of its own below `folder`. `log_to`: its standard error, if no file."""
    own = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("TURNWISE_", "XDG_"))},
        "TURNWISE_STATE_DIR": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        **(env or {}),
    }
    chosen = () if upstream is None else ("--upstream", upstream)
    line = [sys.executable, "-m", "turnwise", "gateway", *chosen, "--port", "0", "--json", *words]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=log if log_to is None else log_to, text=True, env=own
        ) as process,
    ):
        try:
            assert process.stdout is not None
            told = msgspec.json.decode(process.stdout.readline(), type=dict[str, Any])
            yield ServedGateway(process, told["port"], own, log, admin=told.get("admin", ""))
        finally:
            process.kill()
