"""Clients and SDKs through one gateway to each family of upstreams: who is tried, and what comes of it.

`python scripts/run_clients.py` installs and runs them, and draws docs/gateway-clients.md.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from real_agents import places
from real_agents.running import base_env
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from waits import HANG_S

FAMILIES = {
    "openai_chat": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic_messages": "Messages",
    "gemini": "Gemini",
}
SEEN = "quiet at the harbour"
PROMPT = "Please look at the harbour."
LOOK = ScriptedCall(name="look", arguments={"place": "harbour"})
LONGEST_S = 120.0
SAID_CHARACTERS = 400
FOLDER = places.INSTALLED / "clients"
SDKS, AIDER, NODE_MODULES = FOLDER / "sdks", FOLDER / "aider", FOLDER / "node" / "node_modules"
SETUP = "python scripts/run_clients.py --setup"
# Each in an environment of its own: aider pins what it is made of.
PYTHON = {
    SDKS: ("litellm==1.110.2", "smolagents[openai]==1.26.0", "instructor==1.17.0", "anthropic==2.14.0"),
    AIDER: ("aider-chat==0.86.2",),
}

SCRIPTS = (
    Script(
        name="looks",
        title="looks by a tool, and tells",
        steps=(ScriptedStep(calls=(LOOK,)), ScriptedStep(text="It is {result}.")),
    ),
    Script(
        name="gives",
        title="fills a form",
        steps=(ScriptedStep(calls=(ScriptedCall(name="Look", arguments={"place": "harbour"}),)),),
    ),
    Script(
        name="answers",
        title="looks, and answers by a tool",
        steps=(
            ScriptedStep(calls=(LOOK,)),
            # It sends a result as a user's text.
            ScriptedStep(
                asked="Observation:",
                calls=(ScriptedCall(name="final_answer", arguments={"answer": f"It is {SEEN}."}),),
            ),
        ),
    ),
    Script(
        name="writes",
        title="writes a file by a tool",
        steps=(
            ScriptedStep(
                calls=(ScriptedCall(name="write_file", arguments={"file_path": "notes.txt", "content": f"{SEEN}\n"}),)
            ),
            ScriptedStep(text="It is written."),
        ),
    ),
    Script(
        name="edits",
        title="writes a file in its text",
        steps=(ScriptedStep(text=f"notes.txt\n```\n{SEEN}\n```\n"),),
    ),
)


PACKAGES = {"aider": "aider-chat", "gemini-cli": "@google/gemini-cli"}  # where the name is another one


class Client(NamedTuple):
    """`api` is what it speaks. `program` is one of the folder `programs`, or the client's own. `ways`: streamed, not, or both.
    `writes`: it is right if it has written the file, else if it has said what was seen."""

    title: str
    api: str
    program: str
    script: str = "looks"
    ways: tuple[bool, ...] = (True, False)
    writes: bool = False

    @property
    def package(self) -> str:
        return self.title.partition(" ")[0].partition(",")[0]

    @property
    def version(self) -> str:
        listed = [one.split("==") for each in PYTHON.values() for one in each]
        known = {**places.npm_versions(), **{name.partition("[")[0]: version for name, version in listed}}
        return known[PACKAGES.get(self.package, self.package)]

    @property
    def is_python(self) -> bool:
        """Whether `asked.py` asks by it."""
        return self.program.endswith(".py")

    @property
    def is_node(self) -> bool:
        return self.program.endswith((".mjs", ".js"))

    def missing(self) -> str | None:
        """None if the version of the list is there."""
        if self.is_node:
            kept = NODE_MODULES / PACKAGES.get(self.package, self.package) / "package.json"
            there = json.loads(kept.read_text(encoding="utf-8"))["version"] if kept.exists() else None
            return None if there == self.version else f"{self.package} {self.version}"
        folder = AIDER if self.package == "aider" else SDKS
        return None if (folder / "bin" / "python").exists() else self.package


CLIENTS = {
    "openai-chat": Client("openai of npm", "chat", "openai_client.mjs"),
    "openai-responses": Client("openai of npm, Responses", "responses", "openai_client.mjs"),
    "anthropic": Client("@anthropic-ai/sdk", "messages", "anthropic_client.mjs"),
    "google": Client("@google/genai", "gemini", "google_client.mjs"),
    "litellm-chat": Client("litellm", "chat", "litellm_client.py"),
    "litellm-messages": Client("litellm, Messages", "messages", "litellm_client.py"),
    "litellm-gemini": Client("litellm, Gemini", "gemini", "litellm_client.py"),
    "smolagents": Client("smolagents", "chat", "smolagents_client.py", script="answers"),
    "instructor-chat": Client("instructor", "chat", "instructor_client.py", script="gives"),
    "instructor-messages": Client("instructor, Messages", "messages", "instructor_client.py", script="gives"),
    "gemini-cli": Client("gemini-cli", "gemini", "gemini.js", script="writes", ways=(True,), writes=True),
    "aider": Client("aider", "chat", "aider", script="edits", writes=True),
}


class Run(NamedTuple):
    client: str
    upstream: str
    streamed: bool


class Told(NamedTuple):
    verdict: str
    said: str


def command_of(run: Run, *, url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    client, model = CLIENTS[run.client], f"{run.upstream}--{CLIENTS[run.client].script}"
    node = str(places.node())
    if run.client == "gemini-cli":
        settings = home / ".gemini"
        settings.mkdir()
        quiet = {
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        }
        (settings / "settings.json").write_text(json.dumps(quiet), encoding="utf-8")
        program = NODE_MODULES / "@google" / "gemini-cli" / "bundle" / "gemini.js"
        words = [node, str(program), "-m", model, "--approval-mode", "yolo", "-p", PROMPT]
        return words, {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    if run.client == "aider":
        flags = "--yes-always --no-git --no-check-update --no-show-model-warnings --analytics-disable --no-auto-lint"
        way = "--stream" if run.streamed else "--no-stream"
        words = [str(AIDER / "bin" / "aider"), *flags.split(), way, "--edit-format", "whole", "--map-tokens", "0"]
        own = {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return [*words, "--model", f"openai/{model}", "--message", PROMPT, "notes.txt"], own
    words = [
        node,
        str(places.PROGRAMS / client.program),
        client.api,
        url,
        model,
        "yes" if run.streamed else "no",
        PROMPT,
    ]
    return words, {"NODE_PATH": str(NODE_MODULES)}


class PythonClient:
    """One process that asks by one client, question after question."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, run: Run) -> tuple[int, str]:
        """The exit code, as of a program, and what it said."""
        assert self._process.stdin is not None and self._process.stdout is not None
        model = f"{run.upstream}--{CLIENTS[run.client].script}"
        self._process.stdin.write(f"{model} {'yes' if run.streamed else 'no'}\n".encode())
        told = json.loads(await self._process.stdout.readline() or b'{"error": "it ended"}')
        return ("error" in told, told.get("said") or told.get("error", ""))


@contextlib.asynccontextmanager
async def python_client(name: str, home: Path, *, url: str) -> AsyncIterator[PythonClient]:
    """It runs until the end of the block."""
    client = CLIENTS[name]
    words = [str(places.PROGRAMS / "asked.py"), client.program.removesuffix(".py"), client.api, url, PROMPT]
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    process = await asyncio.create_subprocess_exec(
        str(SDKS / "bin" / "python"),
        *words,
        env={**base_env(home, proxy="http://127.0.0.1:9"), **quiet},
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield PythonClient(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def try_client(run: Run, folder: Path, *, url: str, lab: Lab, python: "PythonClient | None" = None) -> Told:
    """`folder` is empty. One at a time for each lab: what the lab has refused is the client's."""
    client, before = CLIENTS[run.client], len(lab.requests)
    try:
        async with asyncio.timeout(LONGEST_S):
            code, said = await (run_program(run, folder, url=url) if python is None else python.ask(run))
    except TimeoutError:
        return Told("hang", "")
    refused = [one.refused for one in lab.requests[before:] if one.refused]
    notes = folder / "notes.txt"
    heard = (notes.read_text(encoding="utf-8") if notes.exists() else "") if client.writes else said
    if refused:
        return Told("refused", f"{refused[0]}\n{said[-SAID_CHARACTERS:]}")
    return Told("right" if SEEN in heard and not code else "wrong", said[-SAID_CHARACTERS:])


async def run_program(run: Run, work: Path, *, url: str) -> tuple[int, str]:
    """In a process of its own. Its exit code, and what it said."""
    home = work / ".home"
    home.mkdir()
    words, own = command_of(run, url=url, home=home)
    process = await asyncio.create_subprocess_exec(
        *words,
        env={**base_env(home, proxy="http://127.0.0.1:9"), **own},
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        out, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return process.returncode or 0, out.decode("utf-8", "replace")


@contextlib.asynccontextmanager
async def gateway_to_each(folder: Path, *, lab: str) -> AsyncIterator[str]:
    """`turnwise gateway` with a route for each family of upstreams; its address."""
    config = folder / "gateway.toml"
    routes: list[str] = []
    for family in FAMILIES:
        aliases = ", ".join([f'"{family}--{script.name}" = "{script.name}"' for script in SCRIPTS])
        at = f"{lab}/v1beta" if family == "gemini" else f"{lab}/v1"
        upstream = f'{{ url = "{at}", family = "{family}", key_env = "LAB_KEY" }}'
        routes.append(f"[[route]]\nmodels = []\naliases = {{ {aliases} }}\nupstream = {upstream}\n")
    config.write_text("".join(routes), encoding="utf-8")
    own = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "CACHE")}
    kept: Mapping[str, str] = {
        key: value for key, value in os.environ.items() if not key.startswith(("TURNWISE_", "XDG_"))
    }
    env = {**kept, **own, "LAB_KEY": "none", "TURNWISE_STATE_DIR": str(folder / "state")}
    line = [
        sys.executable,
        "-m",
        "turnwise",
        "gateway",
        "--config",
        str(config),
        "--port",
        "0",
        "--json",
        "--grace",
        "0",
    ]
    with (folder / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*line, env=env, stdout=asyncio.subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        told = await asyncio.wait_for(process.stdout.readline(), HANG_S)
        assert told, (folder / "gateway.log").read_text(encoding="utf-8")
        yield json.loads(told)["url"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), HANG_S)
