"""One agent, one case, with the gateway or without it: the lab in this process, the other two in processes of their own."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from real_agents.cases import CASES
from real_agents.roster import AGENTS, Outing
from turnwise.lab import Lab
from waits import HANG_S

LOOP_REQUESTS = 20  # no case needs half of them, with all that an agent asks for besides
LOOK_S = 0.5
# As providers send. deep-chat calls a stream empty if words and end come at once: of a healthy provider in 5 of 8 runs.
CHUNK_DELAY_S = 0.05
QUIET_S = 180.0  # an agent that does nothing for so long hangs; the gateway ends a silence after 90 s
LONGEST_S = HANG_S
SAID_CHARACTERS = 1_500
WITHOUT = ""  # in the place of an upstream's family: the agent asks the lab itself


class Trial(NamedTuple):
    """`upstream` is the family behind the gateway, or WITHOUT."""

    agent: str
    case: str
    upstream: str


class Outcome(NamedTuple):
    """`verdict` is `right`, or what happened. `asked` are the hosts beyond loopback that the agent wanted to reach."""

    verdict: str
    requests: int
    asked: tuple[str, ...]
    said: str


async def run_trial(trial: Trial, folder: Path) -> Outcome:
    """`folder` is empty, and the agent's home and working folder are made in it."""
    agent, case = AGENTS[trial.agent], CASES[trial.case]
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    script = case.script(agent.write(work), agent.one_call)
    script = msgspec.structs.replace(script, name=f"model-{trial.case}")
    is_gateway = trial.upstream != WITHOUT
    async with contextlib.AsyncExitStack() as stack:
        lab = await stack.enter_async_context(Lab([script], chunk_delay_s=CHUNK_DELAY_S))
        asked = await stack.enter_async_context(watched())
        url = lab.url
        page = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        if is_gateway:
            origin = f"http://127.0.0.1:{page.getsockname()[1]}"
            url = await stack.enter_async_context(gateway(folder, lab=lab.url, trial=trial, origin=origin))
        outing = Outing(url=url, model=script.name, home=home, work=work, page=page.fileno(), is_gateway=is_gateway)
        command = agent.prepare(outing)
        env = {**base_env(home, proxy=asked.url), **command.env}
        ended = await run_agent(command.words, env=env, work=work, lab=lab, page=page.fileno())
        found = {path: read(work / path) for path in case.files}
        return Outcome(
            verdict=verdict_of(ended, found=found, wanted=case.files),
            requests=lab.count(),
            asked=tuple(sorted(set(asked.hosts))),
            said=ended.said[-SAID_CHARACTERS:],
        )


def read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return None


class Ended(NamedTuple):
    how: str  # `exit`, `loop` or `hang`
    code: int | None
    said: str


def verdict_of(ended: Ended, *, found: Mapping[str, str | None], wanted: Mapping[str, str]) -> str:
    """The files first: what else happened counts if they are right, too."""
    files = "right" if found == wanted else "wrong file" if any(found.values()) else "no file"
    if files == "wrong file" and all(one in (None, wanted[path]) for path, one in found.items()):
        files = "a file is missing"
    if ended.how != "exit":
        return f"right, then a {ended.how}" if files == "right" else f"{files}, {ended.how}"
    if ended.code != 0:
        return f"{files}, then an error" if files == "right" else f"{files}, error"
    return files


def base_env(home: Path, *, proxy: str) -> dict[str, str]:
    """Nothing of this process but where programs are. All but loopback goes to a proxy that refuses it."""
    away = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
    near = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
    folders = {f"XDG_{name.upper()}_HOME": str(home / name) for name in ("config", "data", "state", "cache")}
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        "TERM": "dumb",
        **folders,
        **away,
        **near,
    }


async def run_agent(words: list[str], *, env: Mapping[str, str], work: Path, lab: Lab, page: int) -> Ended:
    """Until it ends, asks for too much, or does nothing any more. Nothing of its process group is left then."""
    output = work.parent / "said.txt"
    with output.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *words,
            env=dict(env),
            cwd=work,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            pass_fds=[page],
        )
    try:
        how = await watch(process, lab=lab)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = await process.wait()
    return Ended(how=how, code=code if how == "exit" else None, said=output.read_text("utf-8", "replace"))


async def watch(process: asyncio.subprocess.Process, *, lab: Lab) -> str:
    waiting = asyncio.ensure_future(process.wait())
    loop = asyncio.get_running_loop()
    began = moved = loop.time()
    seen = 0
    while True:
        ended, _ = await asyncio.wait([waiting], timeout=LOOK_S)
        now = loop.time()
        if ended:
            return "exit"
        if lab.count() > LOOP_REQUESTS:
            return "loop"
        if lab.count() != seen:
            seen, moved = lab.count(), now
        if now - moved > QUIET_S or now - began > LONGEST_S:
            return "hang"


@contextlib.asynccontextmanager
async def gateway(folder: Path, *, lab: str, trial: Trial, origin: str) -> AsyncIterator[str]:
    """`turnwise gateway` before the lab; its address."""
    config = folder / "gateway.toml"
    ways = 'provider = "anthropic"' if trial.upstream == "anthropic_messages" else f'family = "{trial.upstream}"'
    version = "v1beta" if trial.upstream == "gemini" else "v1"
    upstream = f'{{ url = "{lab}/{version}", {ways}, key_env = "LAB_KEY" }}'
    config.write_text(
        f'origins = ["{origin}"]\n[[route]]\nupstream = {upstream}\n{AGENTS[trial.agent].route}', encoding="utf-8"
    )
    own = folder / "gateway"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWISE_", "XDG_"))}
    env = {
        **kept,
        "LAB_KEY": "none",
        "TURNWISE_STATE_DIR": str(own / "state"),
        "XDG_CONFIG_HOME": str(own / "config"),
        "XDG_CACHE_HOME": str(own / "cache"),
    }
    command = [
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
        process = await asyncio.create_subprocess_exec(
            *command, env=env, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), HANG_S)
        assert line, (folder / "gateway.log").read_text()
        yield json.loads(line)["url"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait_for(process.wait(), HANG_S)


class Watched(NamedTuple):
    url: str
    hosts: list[str]


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    """A proxy that refuses every request, and notes for which host it was."""
    hosts: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.LimitOverrunError, ValueError):
            line = await reader.readline()
            hosts.append(line.decode("latin-1").strip())
            writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        yield Watched(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", hosts=hosts)
