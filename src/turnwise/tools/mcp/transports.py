"""How messages reach an MCP server: pipes to a process in a sandbox, ended with all that it started, or streamable HTTP."""

import asyncio
import contextvars
import json
import os
import re
import signal
import subprocess
from asyncio.streams import FlowControlMixin
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import anyio
import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, METHOD_NOT_FOUND, ErrorData, JSONRPCError

from turnwise.base.clock import Clock
from turnwise.base.keeper import descendants, send
from turnwise.base.processes import exit_of, signal_group
from turnwise.base.programs import is_program
from turnwise.errors import CallerError
from turnwise.running.working_call import last_lines
from turnwise.settings.mcp_files import ServerAddress, ServerCommand
from turnwise.tools.mcp.logins import TurnLogin, login_hint
from turnwise.tools.mcp.protocol_repair import mended
from turnwise.tools.mcp.server_bounds import (
    CLOSE_INPUT_S,
    KILLED_S,
    MAX_MESSAGE_BYTES,
    TERM_S,
    McpFailure,
    Tail,
    UnaskedMeter,
)
from turnwise.tools.sandbox import Sandbox, Scratch, Wrapped, find_sandbox
from turnwise.vocab.wording import in_ticks

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
        line = "".join(last_lines(self.stderr.bytes, most=1)) if self.may_quote() else ""
        said = f"{said}; its last words: {line}" if line else said
        return f"{said}; its sandbox hides {in_ticks(self._hidden)}" if self._hidden else said

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
    """The sandbox that was found. Raises CallerError if there is no sandbox and the server must not run without one."""
    if command.is_confined and found.kind == "none":
        raise CallerError("no sandbox works on this machine, and it may be another program each time")
    return found


# The messages of a server elsewhere, over streamable HTTP. Bodies have a size, and nothing is unpacked.


FORGOTTEN = object()  # the data of an error that stands for: the server does not know the session, and did nothing
WANTS_LOGIN = object()  # and for: it wants a login, or one that may do more; its text says what a person does
_CONNECT_S = 10.0
_FORMER_S, _FORMER_BYTES = 2.0, 4096
_FORMER = re.compile(rb"^event: ?endpoint\r?$", re.MULTILINE)
_LINES = 10  # of an event, at most, as far as the bound on messages goes


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


class _MeteredBody(httpx2.AsyncByteStream):
    """A stream of events has no end. What it carries in a while is bounded, comments too."""

    def __init__(self, body: httpx2.AsyncByteStream, *, meter: UnaskedMeter, gone: Callable[[str], object]) -> None:
        self._body, self._meter, self._gone = body, meter, gone

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            try:
                self._meter.count(len(piece), messages=_messages_in(piece))
            except McpFailure as flood:
                self._gone(str(flood))
                raise httpx2.StreamError(str(flood)) from None
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def _messages_in(piece: bytes) -> int:
    """How many messages may have ended in it. A line ends with a line feed, a carriage return or both."""
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return max(piece.count(b"\n\n"), piece.count(b"\n") // _LINES)


class _Received:
    """The messages that came, mended. Requests that were `refused` have an error that no server can send."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], *, refused: Mapping[object, ErrorData]) -> None:
        self._inner, self._refused = inner, refused

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the last message's sender. The library looks for this property."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next one, as `ReadStream` has it."""
        return self._read(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._read(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)

    def _read(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception):
            return item
        message = item.message
        if isinstance(message, JSONRPCError) and (error := self._refused.get(message.id)) is not None:
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
        return mended(item)


def _asked_by(response: httpx2.Response) -> int | str | None:
    """The id of the request that it answers; None if the protocol has no such request."""
    if response.request.method != "POST":
        return None
    sent = json.loads(response.request.content)
    return cast("int | str", sent["id"]) if "method" in sent and "id" in sent else None


async def _is_forgotten(response: httpx2.Response) -> bool:
    """Whether a request was refused because the server does not know its session.

    The protocol has status 404 for it; servers on older libraries answer 400, and say so. A method that a server does not know
    may be 404, too: then its error has the code for that.
    """
    if MCP_SESSION_ID not in response.request.headers or response.status_code not in (400, 404):
        return False
    code, said = await _error_of(response)
    return (response.status_code == 404 and code != METHOD_NOT_FOUND) or "session" in said.casefold()


async def _error_of(response: httpx2.Response) -> tuple[object, str]:
    """Code and text of an error; the whole body where it is no JSON of the protocol."""
    if "event-stream" in response.headers.get("content-type", ""):
        return None, ""
    try:
        body = (await response.aread()).decode("utf-8", "replace")
    except (httpx2.HTTPError, httpx2.StreamError):
        return None, ""
    try:
        error = json.loads(body)["error"]
        return error["code"], str(error["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, body


@asynccontextmanager
async def http_streams(
    address: ServerAddress,
    *,
    name: str,
    clock: Clock,
    gone: Callable[[str], object],
    refused: Callable[[int], object],
) -> AsyncGenerator[TransportStreams]:
    """Streams of messages over HTTP. What waits for an answer has a deadline of its own, so reading has none here.

    `gone` is told why nothing comes any more, `refused` the status of each failed request. No redirect is followed: the headers
    are for this address.
    """
    meter = UnaskedMeter(clock)
    refusals: dict[object, ErrorData] = {}

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            gone("it compressed its answer, though it was asked not to")
            raise httpx2.StreamError("a compressed answer")
        if response.status_code >= 300:
            refused(response.status_code)
        body = response.stream
        if not isinstance(body, httpx2.AsyncByteStream):
            return
        if "event-stream" in response.headers.get("content-type", ""):
            response.stream = _MeteredBody(body, meter=meter, gone=gone)
        else:
            response.stream = _BoundedBody(body)
        if response.status_code >= 400 and (id := _asked_by(response)) is not None:
            if address.uses_login and (hint := login_hint(response, name=name)):
                refusals[id] = ErrorData(code=INVALID_REQUEST, message=hint, data=WANTS_LOGIN)
            elif await _is_forgotten(response):
                refusals[id] = ErrorData(code=CONNECTION_CLOSED, message="the session is not known", data=FORGOTTEN)

    async with (
        httpx2.AsyncClient(
            headers={**address.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_S, read=None),
            event_hooks={"response": [bound]},
            auth=TurnLogin(address, clock=clock, env=os.environ) if address.uses_login else None,
            follow_redirects=False,
        ) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
            received,
            sent,
        ),
    ):
        yield _Received(received, refused=refusals), sent


async def speaks_former_sse(address: ServerAddress) -> bool:
    """Whether a stream of events begins there with the address to post to: the transport of 2024-11-05, replaced in 2025."""
    try:
        async with (
            httpx2.AsyncClient(headers=dict(address.headers), timeout=_FORMER_S, follow_redirects=False) as client,
            client.stream("GET", address.url, headers={"accept": "text/event-stream"}) as response,
        ):
            if "event-stream" not in response.headers.get("content-type", ""):
                return False
            begun = b""
            with anyio.move_on_after(_FORMER_S):
                async for piece in response.aiter_bytes():
                    begun += piece
                    if b"\n\n" in begun.replace(b"\r\n", b"\n") or len(begun) > _FORMER_BYTES:
                        break
            return _FORMER.search(begun) is not None
    except (httpx2.HTTPError, httpx2.StreamError, OSError):
        return False
