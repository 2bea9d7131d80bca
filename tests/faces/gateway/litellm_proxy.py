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

PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / ".venv" / "litellm" / "bin" / "litellm"
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


@contextlib.contextmanager
def litellm_proxy(folder: Path, *, lab: str) -> Iterator[str]:
    """Its address, until the end of the block. `folder` holds its settings."""
    settings = folder / "litellm.yaml"
    settings.write_text(SETTINGS.format(url=lab), encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with (folder / "litellm.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(PROGRAM), "--config", str(settings), "--host", "127.0.0.1", "--port", str(port)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET, "HOME": str(folder)},
            cwd=folder,
        )
        try:
            _wait(f"http://127.0.0.1:{port}/health/liveliness", process=process, log=folder / "litellm.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait(HANG_S)


def _wait(url: str, *, process: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=HANG_S):
            return
        time.sleep(LOOK_S)
    raise AssertionError(f"LiteLLM's proxy does not answer: {log.read_text(encoding='utf-8')[-2000:]}")
