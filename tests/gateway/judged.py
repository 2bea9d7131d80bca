"""The lab and a real `turnwise gateway` before it, each in a process of its own, and how the vendors' clients fare with both."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anthropic
import openai
from google.genai import errors as genai_errors

from gateway.official_clients import Heard, HeardCall, Place, ask
from turnwise.lab import builtin_scripts
from turnwise.lab.gateway_check import FAILING_CASES, HEALTHY_CASES, HOPELESS_CASES, all_cases, malformed_cases
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
UPSTREAMS = ("ollama_chat", "cohere_chat")  # which no client of the gateway speaks
CLIENTS = {
    "openai_chat": "openai, Chat",
    "openai_responses": "openai, Responses",
    "anthropic_messages": "anthropic",
    "gemini": "google-genai",
}
SCRIPTS = builtin_scripts()
MALFORMED = malformed_cases()
HEALTHY = HEALTHY_CASES
FAILING = FAILING_CASES
HOPELESS = HOPELESS_CASES
MAY_FAIL = "right or one error"
CASES = all_cases()


class Cell(NamedTuple):
    """One question: which script, in which upstream's family, asked by which client."""

    case: str
    upstream: str
    client: str
    streamed: bool

    @property
    def model(self) -> str:
        """The gateway's name for it, from which its route follows."""
        return f"{self.upstream}--{self.case}"


class ToldByServer(Exception):
    """The server's own error, as a client in another process got it."""


class Judged(NamedTuple):
    """What became of it: `heard`, or the `error` that the client raised."""

    heard: Heard | None
    error: Exception | None

    def verdict(self, wanted: Heard | None) -> str:
        """`right`, `wrong`, `error` for one of the client's own kind, `crash` for any other."""
        if self.error is not None:
            is_clean = isinstance(self.error, (*CLEAN, ToldByServer)) and not isinstance(self.error, UNCLEAN)
            return "error" if is_clean else "crash"
        assert self.heard is not None
        return "right" if wanted is not None and is_right(self.heard, wanted) else "wrong"


CLEAN = (openai.APIError, anthropic.APIError, genai_errors.APIError)
UNCLEAN = (
    openai.APIConnectionError,
    anthropic.APIConnectionError,
    openai.APIResponseValidationError,
    anthropic.APIResponseValidationError,
    genai_errors.UnknownApiResponseError,
)


def is_right(heard: Heard, wanted: Heard) -> bool:
    """The same text, calls and end; ids are the client's to tell calls apart by, where its family has them."""
    same = (heard.text, heard.calls, heard.finish) == (wanted.text, wanted.calls, wanted.finish)
    return same and len(set(heard.ids)) == len(heard.ids) and all(heard.ids)


class Stage(NamedTuple):
    """Both running."""

    lab: str
    gateway: str

    def through(self, cell: Cell) -> Judged:
        return judge(cell, at=Place(self.gateway), model=cell.model)

    def without(self, cell: Cell) -> Judged:
        """The client at the lab itself, so the upstream is of the client's own family."""
        return judge(cell, at=Place(self.lab), model=cell.case)

    def wanted(self, case: str) -> Heard | None:
        """What the script means: not streamed, the lab says it well. Where no request gets a whole answer, the calls that a
        broken response was to hold; None where it was to hold none."""
        cell = Cell(case, "openai_chat", "openai_chat", streamed=False)
        for _ in range(2):  # a failure that happens once is over then
            if (found := self.without(cell)).heard is not None:
                return found.heard
        step = SCRIPTS[case].steps[0] if SCRIPTS[case].steps else None
        broken = () if step is None or step.fault is None else step.fault.calls or step.calls
        calls = tuple([HeardCall(call.name, call.arguments) for call in broken])
        return Heard(text="", calls=calls, finish="calls") if calls else None

    def forget(self) -> None:
        """Steps that fail at first do so again."""
        asked = urllib.request.Request(f"{self.lab}/_lab/requests", method="DELETE")
        urllib.request.urlopen(asked, timeout=HANG_S).close()


def judge(cell: Cell, *, at: Place, model: str) -> Judged:
    # The clients raise what they like, also `AssertionError` and `KeyError`: each is what their user gets.
    try:
        return Judged(ask(cell.client, at=at, model=model, streamed=cell.streamed), None)
    except Exception as error:  # noqa: BLE001
        return Judged(None, error)


def cells(case: str) -> Iterator[Cell]:
    """Every way to ask for it."""
    for upstream in FAMILIES:
        if SCRIPTS[case].speaks(upstream):
            for client in FAMILIES:
                yield from (Cell(case, upstream, client, streamed) for streamed in (True, False))


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Both processes, until the end of the block. `folder` holds the configuration."""
    with contextlib.ExitStack() as stack:
        lab = _line(stack.enter_context(_running(["lab"], folder=folder))).split()
        url = next(word for word in lab if word.startswith("http://")).rstrip("/.,")
        config = folder / "gateway.toml"
        config.write_text(configuration(url), encoding="utf-8")
        command = ["gateway", "--config", str(config), "--port", "0", "--json", "--grace", "0"]
        address = json.loads(_line(stack.enter_context(_running(command, folder=folder))))
        yield Stage(lab=url, gateway=address["url"].rstrip("/"))


def configuration(lab: str) -> str:
    """One route for each family of an upstream, where `FAMILY--SCRIPT` is the name of the lab's script."""
    routes: list[str] = []
    for name in (*FAMILIES, *UPSTREAMS):
        base = lab if name in UPSTREAMS else f"{lab}/v1beta" if name == "gemini" else f"{lab}/v1"
        upstream = f'{{ url = "{base}", family = "{name}", key_env = "LAB_KEY" }}'
        aliases = ", ".join([f'"{name}--{case}" = "{case}"' for case in CASES])
        routes.append(f"[[route]]\nmodels = []\naliases = {{ {aliases} }}\nupstream = {upstream}\n")
    return "\n".join(routes)


@contextlib.contextmanager
def _running(arguments: list[str], *, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "turnwise", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "LAB_KEY": "none", "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)},
        cwd=folder,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended before it took a connection"
    return line
