"""`turnwise ARGS` in this process or in one of its own, and a lab in a thread beside it."""

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import pytest

from terminal.forking import Process, start
from turnwise.lab import Lab, Script, parse_script
from turnwise.terminal.main import main
from waits import HANG_S

WAIT_S = HANG_S  # no test waits that long unless something is wrong
BEGUN: list[Process] = []  # by the test at hand; what it left running is ended after it

BASES = {"gemini": "/v1beta", "anthropic_messages": ""}  # Anthropic's base URL has no version


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def events(self) -> list[dict[str, Any]]:
        """The lines of `--json`. Fails where one is no JSON object."""
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in self.out.split("\n") if line]

    def complaints(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("turnwise:")]


class Cli:
    """Runs commands in this process, in a folder and with a journal of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(args)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, out, err)

    def approves(self, *args: str) -> Ran:
        """As somebody who was shown the calls first."""
        shown = self(*args)
        assert shown.code == 2, shown.err
        return self(*with_marks(args, shown=shown.err))


def with_marks(args: Sequence[str], *, shown: str) -> list[str]:
    """The arguments, the ids among them with the marks of what was shown."""
    marked = {one.rpartition("@")[0]: one for one in re.findall(r"\S+@[0-9a-f]{12}", shown)}
    return [marked.get(one, one) for one in args]


def at(lab: Lab, script: str, *, family: str = "openai_chat") -> list[str]:
    """The options that send a run to a script of the lab."""
    return [
        "--model",
        f"{family}:{script}",
        "--base-url",
        lab.url + BASES.get(family, "/v1"),
    ]


@contextlib.contextmanager
def running_lab(
    scripts: Sequence[Script] = (),
    *,
    key: str | None = None,
    strict_paths: bool = False,
    chunk_delay_s: float = 0.0,
    profile: str | None = None,
) -> Iterator[Lab]:
    """A lab with an event loop of its own, so that the program under test has this thread for itself."""
    lab = Lab(scripts, key=key, strict_paths=strict_paths, chunk_delay_s=chunk_delay_s, profile=profile)
    ready = threading.Event()
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with lab:
            stops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="lab")
    thread.start()
    assert ready.wait(WAIT_S)
    try:
        yield lab
    finally:
        for loop, stop in stops:
            loop.call_soon_threadsafe(stop.set)
        thread.join(WAIT_S)
        assert not thread.is_alive()


def script(name: str, text: str) -> Script:
    return parse_script(f'title = "{name}"\n{text}', name=name)


def begin(
    *args: str, cwd: Path, env: Mapping[str, str] | None = None, real: bool = False, **streams: int | IO[str]
) -> Process:
    """`turnwise ARGS` as a process of its own; a `real` one is started by the system."""
    process = start(args, cwd=cwd, env=env, real=real, **streams)
    BEGUN.append(process)
    return process


def end_what_is_left() -> None:
    """A test that failed in the middle leaves its process; the next one must not meet it."""
    while BEGUN:
        process = BEGUN.pop()
        process.kill()
        process.communicate(timeout=WAIT_S)


def end(process: Process) -> Ran:
    out, err = process.communicate(timeout=WAIT_S)
    assert "Traceback" not in err
    return Ran(process.returncode, out, err)
