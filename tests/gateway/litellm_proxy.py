"""LiteLLM's proxy as another gateway before the lab, from an environment of its own. `benchmarks/setup` makes it."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from waits import HANG_S

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / ".venv" / "litellm" / "bin" / "litellm"
SETUP = "benchmarks/setup installs LiteLLM's proxy"
LOOK_S = 0.5
START_S = 5 * HANG_S  # it loads for half a minute on a busy machine

# The model's name goes on as it is. A deployment that has failed would be left out for the next cases.
SETTINGS = """
model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/*", api_base: "{url}/v1", api_key: none}}
litellm_settings: {{telemetry: false, drop_params: true}}
router_settings: {{disable_cooldowns: true}}
"""
# It fetches no list of prices, asks for no newer version and reports nothing; whatever else leaves the machine fails at once.
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOG": "ERROR",
    "DISABLE_ADMIN_UI": "True",
    "NO_DOCS": "True",
    "LITELLM_DONT_SHOW_FEEDBACK_BOX": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # on loopback; turnwise asks for no key here, either
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}


def missing_proxy() -> str:
    """What is not installed; empty where it is."""
    return "" if PROGRAM.exists() else "LiteLLM's proxy is not installed"


class LiteLlmProxy:
    """The proxy, started again where it has ended: the question at which it ended has its verdict, and the next ones theirs."""

    def __init__(self, folder: Path, *, lab: str) -> None:
        self._folder = folder
        self._settings = folder / "litellm.yaml"
        self._settings.write_text(SETTINGS.format(url=lab), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: socket.socket | None = None  # its port, which nobody else gets meanwhile
        self._url = ""
        self.starts = 0

    def url(self) -> str:
        """Where it listens and answers."""
        if self._process is None or self._process.poll() is not None or not _answers(self._url):
            self.stop()
            self._start()
        return self._url

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(HANG_S)
            self._process = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _start(self) -> None:
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", 0))
        port = int(self._kept.getsockname()[1])
        self._url, self.starts = f"http://127.0.0.1:{port}", self.starts + 1
        log = self._folder / f"litellm-{self.starts}.log"
        with log.open("w", encoding="utf-8") as out:
            self._process = subprocess.Popen(
                [str(PROGRAM), "--config", str(self._settings), "--host", "127.0.0.1", "--port", str(port)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **QUIET, "HOME": str(self._folder)},
                cwd=self._folder,
            )
        until = time.monotonic() + START_S
        while not _answers(self._url):
            if time.monotonic() > until or self._process.poll() is not None:
                told = log.read_text(encoding="utf-8")[-2000:]
                raise AssertionError(f"LiteLLM's proxy does not answer: {told}")
            time.sleep(LOOK_S)


@contextlib.contextmanager
def litellm_proxy(folder: Path, *, lab: str) -> Iterator[LiteLlmProxy]:
    """Until the end of the block. `folder` holds its settings."""
    proxy = LiteLlmProxy(folder, lab=lab)
    try:
        yield proxy
    finally:
        proxy.stop()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health/liveliness", timeout=HANG_S).close()
    except OSError:
        return False
    return True
