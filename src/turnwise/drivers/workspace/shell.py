"""The tool `bash`: a command in the workspace, with a deadline, a bounded output and no process left behind."""

import os
import shutil
from collections import deque
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.drivers.workspace.paths import Workspace
from turnwise.drivers.workspace.processes import run_group
from turnwise.errors import ToolFault

DEFAULT_S = 120
MAX_S = 1800
KEPT_BYTES = 24 * 1024  # of the head and of the tail each; below the cap on results

DESCRIPTION = """Run a command with bash in the workspace folder. Its output (standard output and error together) is \
returned, and its exit code where that is not 0. It has no terminal and no standard input. When it ends or runs out of \
time, everything that it started is ended too."""

# A pager or a password prompt would wait for a person for ever.
QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


class BashArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="The command")]
    timeout_s: Annotated[int, Meta(ge=1, le=MAX_S, description="Seconds after which it is ended")] = DEFAULT_S


class Tape:
    """The head and the tail of a byte stream, with a count of what fell out between."""

    def __init__(self, *, kept_bytes: int) -> None:
        self._kept = kept_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0

    def write(self, chunk: bytes) -> None:
        self._total += len(chunk)
        room = self._kept - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail.append(chunk)
            self._tail_bytes += len(chunk)
            while self._tail_bytes - len(self._tail[0]) >= self._kept:
                self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        tail = b"".join(self._tail)[-self._kept :]
        left_out = self._total - len(self._head) - len(tail)
        note = f"\n[... {left_out:,} bytes left out ...]\n".encode() if left_out else b""
        return (bytes(self._head) + note + tail).decode("utf-8", "replace")


async def bash(workspace: Workspace, given: BashArguments, *, hidden: frozenset[str] = frozenset()) -> str:
    """`hidden` are variables that the command does not see: the provider's key is none of its business."""
    shell = shutil.which("bash") or shutil.which("sh")
    if shell is None:
        raise ToolFault("there is no bash on this machine")
    if "\0" in given.command:
        raise ToolFault("a command must not hold a NUL character")
    tape = Tape(kept_bytes=KEPT_BYTES)
    try:
        code = await run_group(
            [shell, "-c", given.command],
            cwd=workspace.root,
            env={name: value for name, value in os.environ.items() if name not in hidden} | QUIET,
            timeout_s=given.timeout_s,
            on_output=tape.write,
        )
    except TimeoutError:
        ended = f"[timed out after {given.timeout_s} s; it and what it started were ended]"
        raise ToolFault(_with_break(tape.text()) + ended) from None
    if code:
        raise ToolFault(f"{_with_break(tape.text())}[exit code {code}]")
    return tape.text()


def _with_break(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"
