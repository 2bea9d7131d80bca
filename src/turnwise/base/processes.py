"""A child process in a group of its own, ended with everything that it started."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path

from turnwise.base.keeper import LONGEST_END_S, descendants, send
from turnwise.base.threads import in_thread
from turnwise.errors import CallerError

TERM_GRACE_S = 0.2  # within the half second that a cancelled tool has to settle
# For one that ends by itself what it started: it takes 0.01 s, with a fork bomb some seconds.
KEEPER_S = LONGEST_END_S + 5.0
LAST_OUTPUT_S = 0.1

# A guard in the child's group waits for the end of a pipe that we alone hold open, and then ends the group: `kill -9` of us
# lets us tidy up nothing. (Linux's PR_SET_PDEATHSIG reaches the first process only, not what it started.) It is nobody's
# child (a subshell between them has ended) and holds no output. Costs 3 ms.
_GUARDED = 'exec {n}<&0 </dev/null; ( (read -r _ <&{n}; kill -9 0) >/dev/null 2>&1 & ); exec {n}<&-; exec "$@"'
_DESCRIPTORS = range(3, 10)  # a shell is sure to know numbers of one digit


class _Child(asyncio.Protocol):
    """A started process: its output, its input, and its exit, which is heard at once.

    Started by `subprocess`, not by the event loop: uvloop closes no descriptors for a child, so a command would hold what
    others opened, and asyncio's `Process.wait` waits for the pipes too before Python 3.13 (python/cpython#119710): a child
    that left something in the background would look alive.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, on_output: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._on_output = on_output
        self._output: asyncio.BaseTransport | None = None
        self._input: asyncio.WriteTransport | None = None
        self.exited = exit_of(process)
        self.closed: asyncio.Future[None] = loop.create_future()  # when the last holder closed its output

    @property
    def group(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.returncode

    async def connect(self) -> None:
        """Listen to its output, and make its input ready."""
        loop = asyncio.get_running_loop()
        self._output, _ = await loop.connect_read_pipe(lambda: self, self._process.stdout)
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._process.stdin)

    def write_all(self, given: bytes) -> None:
        assert self._input is not None, "it is connected"
        self._input.write(given)
        self._input.close()

    def close_input(self) -> None:
        if self._input is not None:
            self._input.close()

    def close(self) -> None:
        """Let go of the pipes; those that were never connected, too."""
        for transport, pipe in ((self._output, self._process.stdout), (self._input, self._process.stdin)):
            if transport is not None:
                transport.close()
            elif pipe is not None:
                pipe.close()

    def data_received(self, data: bytes) -> None:
        self._on_output(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


def exit_of(process: subprocess.Popen[bytes]) -> asyncio.Future[None]:
    """Done once the process has ended, which is heard at once; its `returncode` is set then."""
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[None] = loop.create_future()
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # no Linux, or one before 5.3
        waiting = asyncio.ensure_future(in_thread(process.wait, name="turnwise-wait"))
        waiting.add_done_callback(lambda _: exited.set_result(None))
        return exited

    def hear() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        process.wait()
        exited.set_result(None)

    loop.add_reader(descriptor, hear)
    return exited


async def run_group(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    on_output: Callable[[bytes], None],
    given: bytes = b"",
    descriptors: Sequence[int] = (),
    layers: int = 0,
    watches: bool = False,
) -> int:
    """Run it to its end and return its exit code (negative: the signal that ended it).

    `given` is its standard input; `on_output` gets standard output and error as they come. Raises TimeoutError after
    `timeout_s`. Whatever happens, nothing of its group runs afterwards; where `given` is empty, not even if we are killed.

    `descriptors` are passed on. `layers`: so many processes stand around the command (a sandbox), so a polite signal is for those
    below them only. `watches`: it ends all that it started when its standard input, which then is a pipe, closes.
    """
    if not given and not watches:
        command = ["/bin/sh", "-c", _guard(descriptors), "sh", *command]
    child = _Child(_start(command, cwd=cwd, env=env, descriptors=descriptors), on_output=on_output)
    try:
        await child.connect()
        if given:
            child.write_all(given)
        ended, _ = await asyncio.wait([child.exited], timeout=timeout_s)
        if not ended:
            raise TimeoutError
    finally:
        await _end(child, layers=layers, watches=watches)
    assert child.code is not None, "the process has exited"
    return child.code


def _start(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        bufsize=0,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=descriptors,
    )


def _guard(descriptors: Sequence[int]) -> str:
    """The script of the guard, whose pipe gets a number that is not among `descriptors`."""
    return _GUARDED.format(n=next(number for number in _DESCRIPTORS if number not in descriptors))


async def _end(child: _Child, *, layers: int, watches: bool) -> None:
    group = child.group
    try:
        if not child.exited.done():
            if layers:
                send(signal.SIGTERM, to=descendants(group, generation=layers))
            else:
                signal_group(group, signal.SIGTERM)
            await asyncio.wait([child.exited], timeout=TERM_GRACE_S)
    finally:
        if watches and not child.exited.done():
            child.close_input()
            # It is not killed in the midst of that: what multiplies would go on without it. If nobody waits any more, it ends
            # all of it by itself.
            await asyncio.wait([child.exited], timeout=KEEPER_S)
            send(signal.SIGKILL, to=() if child.exited.done() else descendants(group))  # it hangs
        signal_group(group, signal.SIGKILL)  # also what it left in the background
        await asyncio.wait([child.exited])
        # A child that made a session of its own may hold the output open: what it says later is not waited for.
        await asyncio.wait([child.closed], timeout=LAST_OUTPUT_S)
        child.close()


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all of them have ended
        os.killpg(group, number)


# The mark that `turnwise mcp serve` leaves in the environment of all that its runs start, so that no process among them serves
# again.
#
# It stops a server that is among its own MCP servers, or that a command of the model starts, from calling itself without end. A
# program that takes the mark away is not stopped.


DEPTH = "TURNWISE_MCP_DEPTH"


def enter(env: MutableMapping[str, str]) -> None:
    """What is started with this environment is below a server. Raises CallerError where we are that already."""
    if env.get(DEPTH, "0") not in ("", "0"):
        raise CallerError(
            f"`{DEPTH}` is set: a run of `turnwise mcp serve` has started this server, and a server does not call itself. Take "
            "it out of the MCP servers that the run starts"
        )
    env[DEPTH] = "1"


def passed_on(env: Mapping[str, str]) -> dict[str, str]:
    """The mark alone, for an environment that is built from nothing; empty if there is no mark."""
    return {DEPTH: env[DEPTH]} if env.get(DEPTH) else {}
