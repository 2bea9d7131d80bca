"""One connection to a server: the handshake, what it offers, calls, and what it asks meanwhile."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.extension import advertise
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    GetPromptRequest,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    ListPromptsResult,
    ListToolsResult,
    Prompt,
    PromptListChangedNotification,
    ReadResourceRequest,
    ReadResourceRequestParams,
    ReadResourceResult,
    Tool,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from turnwise._version import __version__
from turnwise.base.clock import Clock, sleep
from turnwise.base.processes import passed_on
from turnwise.errors import ToolFault
from turnwise.running.run_context import turn_at_work
from turnwise.running.tool_output import cut_middle
from turnwise.running.working_call import NoAnswer, OwnModel
from turnwise.settings.mcp_files import ServerAddress, ServerCommand, ServerEntry, ServerObject
from turnwise.tools.mcp.elicitation import OUTSIDE, AskingCall, CallAtServer, elicit
from turnwise.tools.mcp.long_calls import EXTENSION, CallTask, result_of
from turnwise.tools.mcp.offered_tools import Listing, parts_of, read_prompts, read_tools, resource_parts, said_by_server
from turnwise.tools.mcp.protocol_repair import MAX_LEVELS, Deliver, is_deeper, message_in, message_streams
from turnwise.tools.mcp.server_bounds import MAX_PAGES, MAX_TOOLS, LineCutter, McpFailure, UnaskedMeter
from turnwise.tools.mcp.transports import FORGOTTEN, WANTS_LOGIN, ServerProcess, http_streams, speaks_former_sse
from turnwise.tools.sandbox import Scratch
from turnwise.vocab import File, Text
from turnwise.vocab.hidden_characters import visible_line


# The messages of a server that speaks over its standard input and output, one JSON line each.
#
# The package `mcp` has such a transport, but reads a line of any length, and starts the process itself: ours runs in a sandbox.
@asynccontextmanager
async def stdio_streams(
    process: ServerProcess, *, clock: Clock, gone: Callable[[str], object]
) -> AsyncGenerator[TransportStreams]:
    """Streams of messages over the pipes of the process, which is not ended. `gone` is told why nothing comes any more."""
    waiting = _Waiting()

    async def receive(deliver: Deliver) -> None:
        cutter, meter = LineCutter(), UnaskedMeter(clock)
        why = ""
        try:
            while piece := await process.read():
                for line in cutter.take(piece):
                    message = message_in(line)
                    if not waiting.take(message):
                        meter.count(len(line))
                    if message is not None:
                        await deliver(message)
            await process.exits_soon()
        except McpFailure as error:
            why = str(error)
        finally:
            gone(why or process.why_ended())

    async def send(message: SessionMessage, line: bytes) -> None:
        waiting.sent(message)
        await process.write(line + b"\n")

    async with message_streams(receive, send=send) as streams:
        yield streams


class _Waiting:
    """The requests that wait for an answer, by their ids. An answer to nothing is one more message that nobody asked for."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def sent(self, message: SessionMessage) -> None:
        if isinstance(message.message, JSONRPCRequest):
            self._ids.add(str(message.message.id))

    def take(self, message: SessionMessage | None) -> bool:
        """Whether it is the answer to one of them, which waits no longer then."""
        if message is None or not isinstance(message.message, JSONRPCResponse | JSONRPCError):
            return False
        id = str(message.message.id)
        was_waiting = id in self._ids
        self._ids.discard(id)
        return was_waiting


for _name in ("mcp", "client", "httpx2"):  # their messages go to handlers that a program adds, and not to the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())

MAX_ROUNDS = 10  # as often may a server ask in one call; the other clients of the protocol have the same bound
MAX_MESSAGE = 2000  # characters of what a server says went wrong
_HINTS = {401: "; are its headers right?", 403: "; are its headers right?", 404: "; is its address right?"}
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 0.25
LEFT_S = 60.0  # for which a server may still ask in a call that was given up: it hears of that late, or never
WHOSE = "calls of several runs are at work, and the question does not say in which of them: nobody is asked"
FORMER_SSE = (
    "it speaks the former transport HTTP+SSE (version 2024-11-05 of MCP), which turnwise does not: give the address of its "
    "streamable HTTP, which often ends in `/mcp`"
)
OUTSIDE_ASK = "nobody is asked outside of a call"

_Sent = TypeVar("_Sent", CallToolResult, GetPromptResult, ReadResourceResult)
_CALLED: TypeAdapter[CallToolResult | InputRequiredResult | CallTask] = TypeAdapter(
    CallToolResult | InputRequiredResult | CallTask
)
_PROMPTED: TypeAdapter[GetPromptResult | InputRequiredResult] = TypeAdapter(GetPromptResult | InputRequiredResult)
_READ: TypeAdapter[ReadResourceResult | InputRequiredResult] = TypeAdapter(ReadResourceResult | InputRequiredResult)


class ConnectionLost(Exception):
    """The connection ended while the server was at work: whether it did what was asked is unknown."""


class SessionForgotten(ConnectionLost):
    """The server does not know the session any more, and did not do what was asked."""


class Connection:
    """An open connection. `listing` is what the server offered last, `is_stale` whether it has changed since."""

    def __init__(self, entry: ServerEntry, *, clock: Clock, gone: Callable[[str], object]) -> None:
        self.entry, self._clock, self._gone = entry, clock, gone
        self.listing = Listing()
        self.is_stale = False
        self.is_forgotten = False  # the server knows the session no more
        self._client: Client | None = None
        self._lost = ""
        self._status = 0  # of the last failed request over HTTP
        self._at_work: list[CallAtServer] = []
        self._turns: list[str] = []  # of all requests at work; "" is that of one outside of any run, such as a prompt's
        self._left: dict[str, float] = {}  # when the last call of a turn was given up, by the turn's id
        self.had_calls = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def drained(self) -> None:
        """No request is at work any more."""
        await self._idle.wait()

    @property
    def was_refused(self) -> bool:
        """The server answered, and not as the protocol has it."""
        return self._status >= 400

    @property
    def client(self) -> Client:
        assert self._client is not None, "the connection is open"
        return self._client

    def lose(self, why: str) -> None:
        """Nothing comes any more."""
        self._lost = self._lost or why
        self._gone(why)

    def hear_status(self, status: int) -> None:
        """It answered a request over HTTP with this, and with no message."""
        self._status = status

    def why_refused(self, error: MCPError) -> str:
        """Why there is no connection: it ended, or the server said no."""
        if error.data is WANTS_LOGIN:
            return error.message
        if self._lost or not self._status:
            return self._lost or f"it refused the connection: {cut_middle(error.message, limit=MAX_MESSAGE)}"
        what = "; it redirects, and no redirect is followed" if self._status < 400 else ""
        return f"it answered with HTTP {self._status}{what or _HINTS.get(self._status, '')}"

    def why_failed(self, group: ExceptionGroup[Exception]) -> str:
        """The same, for what the library's task groups raised; no text of it: it may hold an address with a key."""
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
        if isinstance(first, MCPError):
            return self.why_refused(first)
        if isinstance(first, ValidationError):
            return f"its answer breaks the protocol: {_where(first)}"
        return self._lost or f"the connection failed (`{type(first).__name__}`)"

    async def open(self, stack: AsyncExitStack, *, transport: object) -> None:
        """The handshake is done, and what the server offers is listed. Raises McpFailure for lies, MCPError for a refusal."""
        self._client = await stack.enter_async_context(
            Client(
                transport,  # pyright: ignore[reportArgumentType]
                client_info=Implementation(name="turnwise", version=__version__),
                elicitation_callback=self._elicit,
                sampling_callback=self._sample if self.entry.sampling else None,
                message_handler=self._hear,
                extensions=[advertise(EXTENSION)],
                cache=None,
            )
        )
        await self.relist()

    async def relist(self) -> None:
        """`listing` is what the server offers now."""
        self.is_stale = False
        try:
            await self._list()
        except MCPError as error:
            if self._is_forgotten(error):
                raise SessionForgotten(self._lost) from None
            raise

    async def _list(self) -> None:
        can = self.client.server_capabilities
        prompts, odd_prompts = list[Prompt](), ""
        try:
            tools = await self._pages(self._tools_page) if can.tools is not None else []
            try:
                prompts = await self._pages(self._prompts_page) if can.prompts is not None else []
            except MCPError as error:
                if error.data is FORGOTTEN or self._is_lost(error):
                    raise
                odd_prompts = f"error {error.code}"
        except ValidationError as error:
            raise McpFailure(f"what it says that it offers breaks the protocol: {_where(error)}") from None
        # Others go on meanwhile: a server may send schemas that take long to read.
        offered, left_out = await asyncio.to_thread(read_tools, tools, entry=self.entry)
        self.listing = Listing(
            tools=offered,
            prompts=read_prompts(prompts),
            odd_prompts=odd_prompts,
            has_resources=can.resources is not None,
            left_out=left_out,
        )
        # Later versions of the protocol tell only subscribers about changes, so their lists are asked for again.
        self.is_stale = self.client.session.initialize_result is None

    async def call(
        self, name: str, arguments: Mapping[str, object], *, context: AskingCall, model: OwnModel | None = None
    ) -> list[Text | File]:
        """The parts of the result; the server may ask the `model` meanwhile. Raises ToolFault if it says no, ConnectionLost."""

        async def tell(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            context.report(f"{share} {message or ''}".strip())

        if is_deeper(arguments, than=MAX_LEVELS):  # writing them would fail, and end the connection
            raise ToolFault(f"the arguments are nested more than {MAX_LEVELS} levels deep: send fewer levels")

        async def send(answers: Any, state: str | None) -> CallToolResult | InputRequiredResult:
            params = CallToolRequestParams(
                name=name, arguments=dict(arguments), input_responses=answers, request_state=state
            )
            session = self.client.session
            result = await session.send_request(CallToolRequest(params=params), _CALLED, progress_callback=tell)
            if not isinstance(result, CallTask):
                return result
            return await result_of(
                result,
                session=session,
                clock=self._clock,
                put=lambda one: self._put(one, work=work),
                report=context.report,
            )

        work = CallAtServer(context, model=model, server=self.entry.name)
        return parts_of(await self._answered(send, work=work), server=self.entry.name)

    async def read_resource(self, uri: str, *, context: AskingCall) -> list[Text | File]:
        """The contents of a resource. Raises as `call` does."""

        async def send(answers: Any, state: str | None) -> ReadResourceResult | InputRequiredResult:
            params = ReadResourceRequestParams(uri=uri, input_responses=answers, request_state=state)
            return await self.client.session.send_request(ReadResourceRequest(params=params), _READ)

        work = CallAtServer(context, model=None, server=self.entry.name)
        result = await self._answered(send, work=work)
        return [said_by_server(self.entry.name), *resource_parts(result.contents)]

    async def resources(self, cursor: str | None) -> list[Text | File]:
        """One page of the resources that there are. Raises as `call` does."""

        async def send(_: Any, __: str | None) -> CallToolResult:
            page = await self.client.list_resources(cursor=cursor)
            lines = [f"{one.uri} ({one.name}{f', {one.mime_type}' if one.mime_type else ''})" for one in page.resources]
            more = [] if page.next_cursor is None else [f"more with the cursor {page.next_cursor}"]
            text = "\n".join([visible_line(line) for line in [*lines, *more]]) or "(none)"
            return CallToolResult.model_validate({"content": [{"type": "text", "text": text}]})

        return parts_of(await self._answered(send, work=None), server=self.entry.name)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        """A prompt, filled in. Raises as `call` does."""

        async def send(answers: Any, state: str | None) -> GetPromptResult | InputRequiredResult:
            params = GetPromptRequestParams(
                name=name, arguments=dict(arguments), input_responses=answers, request_state=state
            )
            return await self.client.session.send_request(GetPromptRequest(params=params), _PROMPTED)

        return await self._answered(send, work=None)

    async def _answered(
        self,
        send: Callable[[Any, str | None], Awaitable[_Sent | InputRequiredResult]],
        *,
        work: CallAtServer | None,
    ) -> _Sent:
        self.had_calls = True
        turn = turn_at_work()
        self._turns.append(turn)
        self._idle.clear()
        if work is not None:
            self._at_work.append(work)
        try:
            return await self._rounds(send, work=work)
        except asyncio.CancelledError:
            self._left[turn] = self._clock.monotonic()
            raise
        except MCPError as error:
            if self._is_forgotten(error):
                raise SessionForgotten(self._lost) from None
            if error.data is WANTS_LOGIN:
                raise ToolFault(f"the MCP server `{self.entry.name}` did not do it: {error.message}") from None
            if self._is_lost(error):
                raise ConnectionLost(self._lost or error.message) from None
            if error.code == PARSE_ERROR and isinstance(self.entry.reached, ServerAddress):
                raise ConnectionLost("its answer broke off, or is no message of the protocol") from None
            said = cut_middle(error.message, limit=MAX_MESSAGE)
            raise ToolFault(f"{said_by_server(self.entry.name).text}\nerror {error.code}: {said}") from None
        except ValidationError as error:
            raise ToolFault(
                f"the answer of the MCP server `{self.entry.name}` breaks the protocol: {_where(error)}"
            ) from None
        finally:
            self._turns.remove(turn)
            if not self._turns:
                self._idle.set()
            if work is not None:
                self._at_work.remove(work)
                await work.leave()

    async def _rounds(
        self,
        send: Callable[[Any, str | None], Awaitable[_Sent | InputRequiredResult]],
        *,
        work: CallAtServer | None,
    ) -> _Sent:
        answers: dict[str, ElicitResult | CreateMessageResult] | None = None
        state: str | None = None
        wait_s = _FIRST_WAIT_S
        for _ in range(MAX_ROUNDS):
            result = await send(answers, state)
            if not isinstance(result, InputRequiredResult):
                return result
            state, answers = result.request_state, None
            if result.input_requests:
                answers = {key: await self._put(one, work=work) for key, one in result.input_requests.items()}
            else:
                await sleep(self._clock, seconds=wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        raise ToolFault(f"the MCP server `{self.entry.name}` asked {MAX_ROUNDS} times in one call: the call was ended")

    async def _put(self, request: object, *, work: CallAtServer | None) -> ElicitResult | CreateMessageResult:
        """What a server of a later version asks: its call ended with the question, and is sent again with the answer."""
        if isinstance(request, CreateMessageRequest) and self.entry.sampling:
            try:
                return await self._model_said(request.params, work=work)
            except NoAnswer as error:
                raise ToolFault(
                    f"the MCP server `{self.entry.name}` asks the model, and gets no answer: {error}"
                ) from None
        if not isinstance(request, ElicitRequest):
            raise ToolFault(
                f"the MCP server `{self.entry.name}` wants a model's answer, or the folders of the user: neither is given"
            )
        if work is None:
            return ElicitResult(action="cancel")
        return await elicit(request.params, server=self.entry.name, asker=work.asker)

    async def _sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | ErrorData:
        """As `_elicit`, of the newest call that may ask the model."""
        del context
        try:
            work = next((one for one in reversed(self._asking()) if one.may_sample), None)
            return await self._model_said(params, work=work)
        except NoAnswer as error:
            return ErrorData(code=INVALID_REQUEST, message=str(error))

    async def _model_said(
        self, params: CreateMessageRequestParams, *, work: CallAtServer | None
    ) -> CreateMessageResult:
        if work is None:
            raise NoAnswer(OUTSIDE)
        return await work.sample(params)

    async def _elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """What a server of an earlier version asks: it does not say in which call, so it is taken for that of the newest."""
        del context
        try:
            work = next(reversed(self._asking()), None)
        except NoAnswer as error:
            return ErrorData(code=INVALID_REQUEST, message=str(error))
        if work is None:
            return ErrorData(code=INVALID_REQUEST, message=OUTSIDE_ASK)
        return await elicit(params, server=self.entry.name, asker=work.asker)

    def _asking(self) -> list[CallAtServer]:
        """The calls of which one asks. Raises NoAnswer for calls of several runs: the words of one must not reach another."""
        since = self._clock.monotonic() - LEFT_S
        self._left = {turn: left_s for turn, left_s in self._left.items() if left_s > since}
        turns = {*self._left, *self._turns}
        if self.entry.is_shared and self._at_work and len(turns) > 1:
            raise NoAnswer(WHOSE)
        return self._at_work

    async def _hear(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            self.is_stale = True

    def _is_forgotten(self, error: MCPError) -> bool:
        if error.data is not FORGOTTEN:
            return False
        self.is_forgotten = True
        self.lose("it had forgotten the session")
        return True

    def _is_lost(self, error: MCPError) -> bool:
        """A server may use the code for an error of its own."""
        if self._lost:
            return True
        closed = error.message == "Connection closed" or error.message.startswith("SSE stream")
        if error.code == CONNECTION_CLOSED and closed:
            self.lose("the connection was closed")  # not in the server's words: every run is told
        return bool(self._lost)

    async def _tools_page(self, cursor: str | None) -> tuple[Sequence[Tool], str | None]:
        page: ListToolsResult = await self.client.list_tools(cursor=cursor)
        return page.tools, page.next_cursor

    async def _prompts_page(self, cursor: str | None) -> tuple[Sequence[Prompt], str | None]:
        page: ListPromptsResult = await self.client.list_prompts(cursor=cursor)
        return page.prompts, page.next_cursor

    async def _pages(
        self, page_of: "Callable[[str | None], Awaitable[tuple[Sequence[_Listed], str | None]]]"
    ) -> "list[_Listed]":
        """All pages; of a list without an end those that hold more than can be offered."""
        found: list[_Listed] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page, cursor = await page_of(cursor)
            found += page
            if cursor is None or len(found) > 2 * MAX_TOOLS:
                break
        return found


_Listed = TypeVar("_Listed", Tool, Prompt)


@asynccontextmanager
async def connected(
    entry: ServerEntry, *, clock: Clock, scratch: Scratch, gone: Callable[[str], object]
) -> AsyncGenerator[Connection]:
    """An open connection to the server, which is started for it and ended with it. `gone` is told why nothing comes any more."""
    connection = Connection(entry, clock=clock, gone=gone)
    refused: McpFailure | None = None  # raised outside: the library's task groups would wrap it
    async with AsyncExitStack() as stack:
        match entry.reached:
            case ServerCommand() as command:
                command = msgspec.structs.replace(command, env={**command.env, **passed_on(os.environ)})
                process = ServerProcess.start(command, scratch=scratch, inherited=get_default_environment())
                process.may_quote = lambda: not (entry.is_shared and connection.had_calls)
                stack.push_async_callback(process.end)
                await process.connect()
                transport: object = stdio_streams(process, clock=clock, gone=connection.lose)
            case ServerAddress() as address:
                transport = http_streams(
                    address, name=entry.name, clock=clock, gone=connection.lose, refused=connection.hear_status
                )
            case ServerObject(server=server):
                transport = server
        try:
            await connection.open(stack, transport=transport)
        except McpFailure as error:
            refused = error
        except MCPError as error:
            refused = McpFailure(connection.why_refused(error))
        except ExceptionGroup as group:
            refused = McpFailure(connection.why_failed(group))
        else:
            yield connection
    if refused is not None:
        if (
            isinstance(entry.reached, ServerAddress)
            and connection.was_refused
            and await speaks_former_sse(entry.reached)
        ):
            raise McpFailure(FORMER_SSE, is_final=True)
        raise refused


def _where(error: ValidationError) -> str:
    """The first problem with its path, without the values: they may be of any size."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    path = ".".join([str(step) for step in first["loc"]][:8])
    return cut_middle(f"{path}: {first['msg']}", limit=200)
