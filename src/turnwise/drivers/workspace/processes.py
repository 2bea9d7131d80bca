"""A child process in a group of its own, ended with everything that it started."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from turnwise.drivers.sandbox.keeper import descendants, send

TERM_GRACE_S = 0.2  # within the half second that a cancelled tool has to settle
KEEPER_S = 0.2  # for one that ends by itself what it started; then it is ended like any other
LAST_OUTPUT_S = 0.1

# A guard in the child's group waits for the end of a pipe that we alone hold open, and then ends the group: `kill -9` of us
# lets us tidy up nothing. (Linux's PR_SET_PDEATHSIG reaches the first process only, not what it started.) It is nobody's
# child (a subshell between them has ended) and holds no output. Costs 3 ms.
_GUARDED = 'exec {n}<&0 </dev/null; ( (read -r _ <&{n}; kill -9 0) >/dev/null 2>&1 & ); exec {n}<&-; exec "$@"'
_DESCRIPTORS = range(3, 10)  # a shell is sure to know numbers of one digit


class _Child(asyncio.SubprocessProtocol):
    """Hears the exit at once. (`asyncio.subprocess.Process.wait` waits for the pipes too, before Python 3.13: a child that
    left something in the background would look alive, python/cpython#119710.)"""

    def __init__(self, on_output: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._on_output = on_output

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._on_output(data)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)


async def run_group(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    on_output: Callable[[bytes], None],
    given: bytes = b"",
    descriptors: Sequence[int] = (),
    supervised: bool = False,
    watches: bool = False,
) -> int:
    """Run it to its end and return its exit code (negative: the signal that ended it).

    `given` is its standard input; `on_output` gets standard output and error as they come. Raises TimeoutError after
    `timeout_s`. Whatever happens, nothing of its group runs afterwards; where `given` is empty, not even if we are killed.

    `descriptors` are passed on. `supervised`: it is a sandbox around the command, so a polite signal is for those below it
    only. `watches`: it ends all that it started when its standard input, which then is a pipe, closes.
    """
    if not given and not watches:
        command = ["/bin/sh", "-c", _guard(descriptors), "sh", *command]
    transport, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Child(on_output),
        *command,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        pass_fds=descriptors,
    )
    try:
        if given:
            _input_of(transport).write(given)
            _input_of(transport).close()
        ended, _ = await asyncio.wait([child.exited], timeout=timeout_s)
        if not ended:
            raise TimeoutError
    finally:
        await _end(transport, child, supervised=supervised, watches=watches)
    code = transport.get_returncode()
    assert code is not None, "the process has exited"
    return code


def _guard(descriptors: Sequence[int]) -> str:
    """The script of the guard, whose pipe gets a number that is none of `descriptors`."""
    return _GUARDED.format(n=next(number for number in _DESCRIPTORS if number not in descriptors))


def _input_of(transport: asyncio.SubprocessTransport) -> asyncio.WriteTransport:
    # uvloop's is one in all but name, so nothing can be asserted of it
    return cast("asyncio.WriteTransport", transport.get_pipe_transport(0))


async def _end(transport: asyncio.SubprocessTransport, child: _Child, *, supervised: bool, watches: bool) -> None:
    group = transport.get_pid()
    try:
        if not child.exited.done():
            if supervised:
                send(signal.SIGTERM, to=descendants(group))
            else:
                _signal(group, signal.SIGTERM)
            await asyncio.wait([child.exited], timeout=TERM_GRACE_S)
        if watches and not child.exited.done():
            _input_of(transport).close()
            await asyncio.wait([child.exited], timeout=KEEPER_S)
    finally:
        if watches and not child.exited.done():  # it did not manage: what left its group can still be found below it
            send(signal.SIGKILL, to=descendants(group))
        _signal(group, signal.SIGKILL)  # also what it left in the background
        await asyncio.wait([child.exited])
        # A child that made a session of its own may hold the output open: what it says later is not waited for.
        await asyncio.wait([child.closed], timeout=LAST_OUTPUT_S)
        transport.close()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all of them have ended
        os.killpg(group, number)
