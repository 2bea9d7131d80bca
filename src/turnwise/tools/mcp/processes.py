"""The process of an MCP server: started in a sandbox, spoken to by pipes, and ended with everything that it started."""

import asyncio
import os
import signal
import subprocess
from asyncio.streams import FlowControlMixin
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from turnwise.base.keeper import descendants, send
from turnwise.base.processes import exit_of, signal_group
from turnwise.base.programs import is_program
from turnwise.errors import CallerError
from turnwise.running.working_call import last_line
from turnwise.settings.mcp_files import ServerCommand
from turnwise.tools.mcp.server_bounds import CLOSE_INPUT_S, KILLED_S, TERM_S, McpFailure, Tail
from turnwise.tools.sandbox import Sandbox, Scratch, Wrapped, find_sandbox

_PIECE = 64 * 1024
_OF_SANDBOX = ("TMPDIR", "XDG_CACHE_HOME", "npm_config_cache")  # folders that it can write in


class ServerProcess:
    """A started server. `end` has to be called, whatever happens; `kill` does at once what it would do in the end."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", *, wrapped: Wrapped, given: int, hidden: Sequence[str]
    ) -> None:
        self._process, self._wrapped, self._given, self._hidden = process, wrapped, given, hidden
        self.exited = exit_of(process)
        self.stderr = Tail()
        self.may_quote: Callable[[], bool] = lambda: True  # whether everybody may read what it wrote
        self._reader = asyncio.StreamReader(limit=_PIECE)
        self._writer: asyncio.StreamWriter | None = None
        self._pipes: list[asyncio.BaseTransport] = []

    @classmethod
    def start(cls, command: ServerCommand, *, scratch: Scratch, inherited: Mapping[str, str]) -> "ServerProcess":
        """`inherited` is `mcp`'s default environment; what the entry names is put over it. Raises McpFailure."""
        env = {**inherited, **command.env}
        program = program_of(command.argv[0], path=env.get("PATH"), folder=command.folder)
        if program is None:
            words = command.argv[0].split()
            is_line = len(words) > 1 and "/" not in words[0]
            hint = f"write each word for itself, {words}" if is_line else "install it, or correct the server's command"
            raise McpFailure(f"there is no program `{command.argv[0]}`: {hint}", is_final=True)
        ours, theirs = os.pipe()
        try:
            wrapped, hidden = _wrapped(command, program=program, scratch=scratch, given=ours)
        except BaseException:
            os.close(ours)
            os.close(theirs)
            raise
        own = {name: wrapped.env[name] for name in _OF_SANDBOX if name in wrapped.env}
        try:
            process = subprocess.Popen(
                wrapped.argv,
                bufsize=0,
                cwd=command.folder,
                env={**inherited, **own, **command.env},
                stdin=subprocess.PIPE if wrapped.watches else ours,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(*wrapped.descriptors, *((ours,) if wrapped.watches else ())),
            )
        except (OSError, ValueError) as error:
            os.close(theirs)
            raise McpFailure(f"it could not be started: {getattr(error, 'strerror', None) or error}") from None
        finally:
            for descriptor in (*wrapped.descriptors, ours):
                os.close(descriptor)
        return cls(process, wrapped=wrapped, given=theirs, hidden=hidden)

    async def connect(self) -> None:
        """Its pipes can be read and written now."""
        loop = asyncio.get_running_loop()
        assert self._process.stdout is not None, "it has pipes"
        protocol = asyncio.StreamReaderProtocol(self._reader)
        output, _ = await loop.connect_read_pipe(lambda: protocol, self._process.stdout)
        errors, _ = await loop.connect_read_pipe(lambda: _Listener(self.stderr), self._process.stderr)
        file, self._given = os.fdopen(self._given, "wb", buffering=0), -1
        given, flow = await loop.connect_write_pipe(FlowControlMixin, file)
        self._writer = asyncio.StreamWriter(given, flow, None, loop)
        self._pipes = [output, errors, given]

    async def read(self) -> bytes:
        """A piece of its output; empty at the end of it."""
        return await self._reader.read(_PIECE)

    async def write(self, line: bytes) -> None:
        """Raises OSError once it has closed its input."""
        assert self._writer is not None, "it is connected"
        self._writer.write(line)
        await self._writer.drain()

    async def end(self) -> None:
        """It and everything that it started has ended: it is asked to by the end of its input, then by a signal, then made to."""
        try:
            if self._writer is not None:
                self._writer.close()
            await self._exits(CLOSE_INPUT_S)
            if not self.exited.done():
                self._ask()
                await self._exits(TERM_S)
            if self._wrapped.watches and not self.exited.done():
                self._close_watched()
                await self._exits(TERM_S)
        finally:
            self.kill()
        await self._exits(KILLED_S)

    def kill(self) -> None:
        """What is left of it is killed, and the pipes are closed. Waits for nothing."""
        if self._wrapped.layers and not self.exited.done():
            send(signal.SIGKILL, to=descendants(self._process.pid))
        signal_group(self._process.pid, signal.SIGKILL)  # also what it left in the background
        self._close_watched()
        for pipe in self._pipes:
            pipe.close()
        if self._given >= 0:
            os.close(self._given)
            self._given = -1
        for file in (self._process.stdout, self._process.stderr):
            if file is not None and not self._pipes:
                file.close()

    async def exits_soon(self) -> None:
        """Its output is at an end: its exit code is known in a moment, where it is ending."""
        await self._exits(TERM_S)

    def why_ended(self) -> str:
        """How it ended, the last line that it wrote for people if everybody may read it, and what of its command the sandbox
        hides."""
        code = self._process.returncode
        said = "it closed its output" if code is None else f"it ended with exit code {code}"
        line = last_line(self.stderr.bytes) if self.may_quote() else ""
        said = f"{said}; its last words: {line}" if line else said
        return f"{said}; its sandbox hides {', '.join([f'`{one}`' for one in self._hidden])}" if self._hidden else said

    def _ask(self) -> None:
        if self._wrapped.layers:
            send(signal.SIGTERM, to=descendants(self._process.pid, generation=self._wrapped.layers))
        else:
            signal_group(self._process.pid, signal.SIGTERM)

    def _close_watched(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _exits(self, within_s: float) -> None:
        await asyncio.wait([self.exited], timeout=within_s)


class _Listener(asyncio.Protocol):
    def __init__(self, tail: Tail) -> None:
        self._tail = tail

    def data_received(self, data: bytes) -> None:
        self._tail.take(data)


def program_of(name: str, *, path: str | None, folder: Path) -> str | None:
    """The absolute path of the program, which the kernel would find for a command in `folder`; None where there is none.

    `shutil.which` looks from where turnwise runs: with `--cwd` that is another folder, and another program.
    """
    places = [""] if "/" in name else (os.defpath if path is None else path).split(os.pathsep)
    found = (os.path.join(folder, place, name) for place in places)  # noqa: PTH118
    return next((os.path.abspath(one) for one in found if is_program(one)), None)  # noqa: PTH100


def _wrapped(command: ServerCommand, *, program: str, scratch: Scratch, given: int) -> tuple[Wrapped, Sequence[str]]:
    """What to start, and which of the paths among its words are not there for it. Raises McpFailure."""
    words = [program, *command.argv[1:]]
    try:
        sandbox = _sandbox_of(command)
        named = [word for word in words if word.startswith("/") and os.path.exists(word)]  # noqa: PTH110
        hidden = [one for one in named if sandbox.hides(Path(one), workspace=command.folder, scratch=scratch)]
        if program in hidden:
            raise McpFailure(_hidden_program(program, command=command), is_final=True)
        wrapped = sandbox.wrap(words, workspace=command.folder, scratch=scratch, network=command.network, given=given)
        return wrapped, hidden
    except (OSError, CallerError) as error:  # nothing runs without the sandbox that was promised
        raise McpFailure(f"it was not started, as its sandbox could not be made: {error}", is_final=True) from None


def _hidden_program(program: str, *, command: ServerCommand) -> str:
    elsewhere = "install it elsewhere, not in `/tmp` or among secrets"
    apart = (
        ""
        if command.is_confined
        else ", or run it without a sandbox (`sandbox=False`, in your own file `sandbox = false`)"
    )
    return f"its sandbox hides the program `{program}`: {elsewhere}{apart}"


def _sandbox_of(command: ServerCommand) -> Sandbox:
    if not command.sandbox:
        return find_sandbox(wanted="none")
    return checked_sandbox(find_sandbox(workspace=command.folder), command=command)


def checked_sandbox(found: Sandbox, *, command: ServerCommand) -> Sandbox:
    """The sandbox that was found. Raises CallerError where it is none, and the server may not run without."""
    if command.is_confined and found.kind == "none":
        raise CallerError("no sandbox works on this machine, and it may be another program each time")
    return found


def folder_of(given: Path | str | None) -> Path:
    """The real path of the folder in which a server runs. Raises CallerError where there is none."""
    folder = Path.cwd() if given is None else Path(given).expanduser()
    if not folder.is_dir():
        raise CallerError(f"`{folder}` is no folder: an MCP server needs one to run in")
    return folder.resolve()
