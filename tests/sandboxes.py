"""The sandboxes of this machine, for tests that run commands in each."""

import os
import select
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest

from turnwise.errors import CallerError
from turnwise.tools.sandbox import Sandbox, SandboxKind, find_sandbox
from waits import HANG_S

# The one below a virtual environment: that may lie in a temporary folder, which a sandbox has one of its own in place of.
PYTHON = f"{getattr(sys, '_base_executable', sys.executable)} -I -S"
CONFINING = ("bubblewrap", "landlock", "landlock-1")
EVERY = (*CONFINING, "none")
# For tests of what each means keeps out by itself: bubblewrap as on a kernel without Landlock, too.
WALLS = ("bubblewrap", "bubblewrap-alone", "landlock", "landlock-1")
_KINDS: dict[str, SandboxKind] = {
    "bubblewrap": "bubblewrap",
    "bubblewrap-alone": "bubblewrap",
    "landlock": "landlock",
    "landlock-1": "landlock",
    "none": "none",
}


@cache  # it is tried with a command of its own, and hundreds of tests ask
def _find(kind: SandboxKind) -> Sandbox | CallerError:
    try:
        return find_sandbox(wanted=kind)
    except CallerError as error:
        return error


def sandbox_called(name: str) -> Sandbox:
    """`landlock-1` is Landlock with the rules of its first version, `bubblewrap-alone` has no Landlock beside it. Skips, saying
    what is missing, where there is none."""
    sandbox = _find(_KINDS[name])
    if isinstance(sandbox, CallerError):
        pytest.skip(f"{sandbox}; nothing of `{name}` is tested (`.ci/run` installs bubblewrap)")
    if name == "bubblewrap-alone":
        return msgspec.structs.replace(sandbox, landlock=0, pipes=False)
    if name == "landlock-1":
        return msgspec.structs.replace(sandbox, landlock=1)
    return sandbox


def script(path: Path, text: str) -> str:
    """The command that runs the Python `text` from a file."""
    path.write_text(text)
    return f"{PYTHON} {path}"


class Held:
    """A pipe in the workspace that a command and all that it starts hold open: at its end, none of them lives.

    Numbers of processes would say nothing: a sandbox has its own.
    """

    def __init__(self, root: Path) -> None:
        os.mkfifo(root / "held")
        self._reader = os.open(root / "held", os.O_RDONLY | os.O_NONBLOCK)

    def wait_for(self, text: bytes) -> None:
        seen = b""
        while text not in seen:
            ready, _, _ = select.select([self._reader], [], [], HANG_S)
            assert ready, f"{text!r} did not come, only {seen!r}"
            seen += os.read(self._reader, 100)

    def assert_ended(self) -> None:
        ready, _, _ = select.select([self._reader], [], [], HANG_S)
        while ready and os.read(self._reader, 4096):
            ready, _, _ = select.select([self._reader], [], [], HANG_S)
        assert ready, "something still runs"

    def close(self) -> None:
        os.close(self._reader)
