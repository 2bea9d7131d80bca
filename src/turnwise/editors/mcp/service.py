"""The two tools of the server: a client's messages, what it sees of the tools, and their calls."""

import asyncio
import io
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast, get_args

import mcp
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from turnwise._version import __version__
from turnwise.agent.models import find_profile
from turnwise.base.clock import wait_for_task
from turnwise.base.own_pipes import (
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    PARSE_ERROR,
    LinePipe,
    LongLine,
    RequestDoor,
    ended_by_signals,
    library_is_silent,
    own_streams,
)
from turnwise.coding_agent.text import clean_line, visible_line
from turnwise.editors.mcp.client_asks import Question
from turnwise.editors.mcp.runs import (
    DECODE_OUTPUT,
    RUN_OUTPUT,
    RunWish,
    Served,
    ServedRun,
    ServeMeans,
    decode_result,
    failed,
    may_swap,
    read_run,
    run_result,
    run_schema,
)
from turnwise.endpoints.recorded_responses import decoded_of, is_stream, read_stream
from turnwise.errors import CallerError, TurnwiseError
from turnwise.tools.mcp.protocol_repair import MAX_LEVELS, Deliver, Streams, is_deeper, message_streams
from turnwise.vocab.file_names import shown_name
from turnwise.vocab.json_values import is_json_array
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.profiles import FamilyName

# `decode`: what a recorded stream of a provider holds. Nothing is read, written or asked for.


MAX_STREAM = 4 * 1024 * 1024  # characters: an answer of a million tokens, in deltas of a few
MAX_TOOLS = 200
MAX_NAME = 200
MAX_REPAIRS = 200  # that are listed one by one
_ARGUMENTS = ("stream", "family", "tools")

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "stream": {
            "type": "string",
            "maxLength": MAX_STREAM,
            "description": "The body of a provider's response as it came: server-sent events, or the JSON of an answer that was "
            "not streamed. It may be cut or broken.",
        },
        "family": {
            "type": "string",
            "maxLength": MAX_NAME,
            "description": f"The API family ({', '.join(get_args(FamilyName))}) or a provider's name.",
        },
        "tools": {
            "type": "array",
            "maxItems": MAX_TOOLS,
            "items": {"type": "string", "maxLength": MAX_NAME},
            "description": "Names of the tools that were on offer. Helps with odd names; calls in the text count for these only.",
        },
    },
    "required": ["stream", "family"],
    "additionalProperties": False,
}


class StreamWish(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `decode`."""

    stream: str
    family: str
    tools: tuple[str, ...] = ()


def read_decode(arguments: Mapping[str, object]) -> StreamWish:
    """Raises CallerError that names the argument and says what to do."""
    for name in arguments:
        if name not in _ARGUMENTS:
            raise CallerError(
                f"`{visible_line(name[:40])}` is no argument of `decode`: there are {', '.join(_ARGUMENTS)}"
            )
    stream, family, tools = (arguments.get(name) for name in _ARGUMENTS)
    if not isinstance(stream, str) or not isinstance(family, str):
        missing = "stream" if not isinstance(stream, str) else "family"
        raise CallerError(f"`{missing}` is missing: give a text")
    if len(stream) > MAX_STREAM:
        raise CallerError(
            f"`stream` has {len(stream):,} characters, more than {MAX_STREAM:,}: use `turnwise decode FILE` for it"
        )
    names = [] if tools is None else tools if is_json_array(tools) else [None]
    if len(names) > MAX_TOOLS or not all(isinstance(name, str) and len(name) <= MAX_NAME for name in names):
        raise CallerError(f"`tools` is a list of at most {MAX_TOOLS} names")
    find_profile(family[:MAX_NAME])
    return StreamWish(stream=stream, family=family, tools=tuple(cast("list[str]", names)))


class _Content(io.BytesIO):
    """Ends early once nobody wants to know any more."""

    def __init__(self, content: bytes, *, stop: threading.Event) -> None:
        super().__init__(content)
        self._stop = stop

    def read(self, size: int | None = -1, /) -> bytes:
        return b"" if self._stop.is_set() else super().read(size)


def decoded(wish: StreamWish, *, stop: threading.Event) -> tuple[dict[str, object], bool]:
    """What the stream holds, as plain data, and whether it is a stream of that family at all. Once `stop` is set, it ends with
    its piece of 64 KiB. One JSON body is a single piece: of `MAX_STREAM` characters, one takes a third of a second, and one
    made to be slow (thousands of calls in its text) two seconds, in a thread. Nothing else bounds it, nor has to."""
    content = _Content(wish.stream.encode(errors="surrogatepass"), stop=stop)
    response = read_stream(content, profile=find_profile(wish.family), tool_names=frozenset(wish.tools))
    told = decoded_of(response, file="")
    told = msgspec.structs.replace(
        told,
        repairs=told.repairs[:MAX_REPAIRS],
        tool_calls=[msgspec.structs.replace(call, arguments=_plain(call.arguments)) for call in told.tool_calls],
    )
    data = cast("dict[str, object]", msgspec.to_builtins(told))
    del data["file"]
    return {**data, "repairs_in_all": len(response.repairs)}, is_stream(response)


class Decode(Protocol):
    """What the stream holds, and whether it is one. It runs in a thread, and ends soon once `stop` is set."""

    def __call__(self, wish: StreamWish, /, *, stop: threading.Event) -> tuple[dict[str, object], bool]: ...


class Decodes:
    """The decodes of one client, one stream after the other: more at once would hold up all messages."""

    def __init__(self, decode: Decode = decoded) -> None:
        self._decode = decode
        self._at_work = asyncio.Lock()

    async def decoded(self, wish: StreamWish) -> tuple[dict[str, object], bool]:
        """As `decoded` has it. A cancelled call ends its thread, and the next one begins once that has ended."""
        stop = threading.Event()
        await self._at_work.acquire()
        task = asyncio.ensure_future(asyncio.to_thread(self._decode, wish, stop=stop))

        def ended(task: asyncio.Future[tuple[dict[str, object], bool]]) -> None:
            self._at_work.release()
            if not task.cancelled():
                task.exception()  # else asyncio tells the terminal of it

        task.add_done_callback(ended)
        try:
            return await asyncio.shield(task)
        finally:
            stop.set()


def _plain(arguments: object) -> object:
    """None for what JSON libraries do not read (numbers of thousands of digits, hundreds of levels): the raw text has it."""
    if not isinstance(arguments, msgspec.Raw):
        return arguments
    try:
        value: object = msgspec.json.decode(arguments)
    except (*UNREADABLE, ValueError):
        return None
    return None if is_deeper(value, than=MAX_LEVELS) else value


# Messages of a client over two pipes, a line each: bounded, and answered here if they are not messages.


# Where libraries write it: before the arguments, or at the very end.
_ID = rb'"id"\s*:\s*("[^"\\]{1,100}"|-?\d{1,18})'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[^"]*"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")


@asynccontextmanager
async def client_streams(pipe: LinePipe) -> AsyncGenerator[Streams]:
    """Streams of messages over the pipe, for the protocol's library. The first one ends with the pipe."""
    doors = _Doors(pipe)

    async def receive(deliver: Deliver) -> None:
        while (line := await pipe.read_line()) is not None:
            message = await doors.checked(line)
            if message is not None:
                await deliver(message)

    async def send(message: SessionMessage, line: bytes) -> None:
        doors.answered(message)
        try:
            await pipe.write_line(line)
        except ConnectionError:
            pipe.end()
            raise

    async with message_streams(receive, send=send) as streams:
        try:
            yield streams
        finally:
            pipe.end()


class _Doors:
    """What may go in. The requests that are open are counted: the library begins each at once, however many there are."""

    def __init__(self, pipe: LinePipe) -> None:
        self._door = RequestDoor(pipe)

    async def checked(self, line: bytes | LongLine) -> SessionMessage | None:
        """The message; None where it was answered with an error."""
        if isinstance(line, LongLine):
            await self._door.refuse(
                INVALID_REQUEST, f"the message has more than {MAX_LINE_BYTES:,} bytes", id=_id_in(line)
            )
            return None
        if not line.strip():
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            await self._refuse_unread(line)
            return None
        match message:
            case JSONRPCNotification() if _has_id(line):  # a request with an invalid id
                await self._door.refuse(INVALID_REQUEST, "`id` must be a text or a whole number")
                return None
            case JSONRPCRequest(id=id):
                if not await self._door.lets_in(id):
                    return None
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                if isinstance(id := (params or {}).get("requestId"), int | str):  # anything else names no request
                    self._door.leaves(id)  # it is not answered any more
            case _:
                pass
        return SessionMessage(message)

    def answered(self, message: SessionMessage) -> None:
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._door.leaves(message.message.id)

    async def _refuse_unread(self, line: bytes) -> None:
        """Refuse it by its id, if it is a request with an id: otherwise its sender would wait."""
        try:
            outline = _outline(line)
        except msgspec.ValidationError:
            await self._door.refuse(INVALID_REQUEST, "the message is no JSON object; one message a line, no batches")
        except UNREADABLE:
            await self._door.refuse(PARSE_ERROR, "the line is no JSON")
        else:
            is_request = outline.method is not msgspec.UNSET and type(outline.id) in (int, str)
            id = cast("int | str", outline.id) if is_request else None
            await self._door.refuse(INVALID_REQUEST, "the line is no message of JSON-RPC 2.0", id=id)


class _Outline(msgspec.Struct, frozen=True):
    """What says whether a message is a request, whatever else is wrong with it."""

    id: object = msgspec.UNSET
    method: object = msgspec.UNSET


def _has_id(line: bytes) -> bool:
    try:
        return _outline(line).id is not msgspec.UNSET
    except UNREADABLE:  # the protocol's library reads more than JSON, as `NaN`
        return False


def _outline(line: bytes) -> _Outline:
    """Raises one of UNREADABLE."""
    return msgspec.json.decode(line, type=_Outline)


def _id_in(line: LongLine) -> int | str | None:
    """The id of a request that was not read whole, where its library writes it at one of the ends."""
    found = _ID_FIRST.match(line.head) or _ID_LAST.search(line.tail)
    return None if found is None else cast("int | str", msgspec.json.decode(found[1]))


STARTED = "an MCP client starts `turnwise mcp serve`"
RUN, DECODE = "run", "decode"
MAX_RUNS = 8  # at work at once
MAX_WAITING = 16  # runs that wait for their client to come back with an answer, or for their result to be fetched
SETTLE_S = 10.0  # that runs have to end in once the client is gone
ClientContext = ServerRequestContext[Any, Any]
_log = logging.getLogger("turnwise")

INSTRUCTIONS = (
    "`run` gives a task to an agent that works in a folder of this machine: it reads and changes files and runs commands, within "
    "the limits and permissions of this server. `decode` says what a recorded stream of a model's provider holds."
)


class ClientService:
    """Serves one client. `close` ends all runs, within bounds."""

    def __init__(self, means: ServeMeans) -> None:
        self._means = means
        self._runs: OrderedDict[str, ServedRun] = OrderedDict()
        self._decodes = Decodes()
        self.server: Server[Any] = Server(
            "turnwise",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def close(self) -> None:
        runs = [run for run in self._runs.values() if not run.task.done()]
        for run in runs:
            run.cancel()
        if not runs:
            return
        task = asyncio.ensure_future(asyncio.wait([run.task for run in runs]))
        if not await wait_for_task(cast("asyncio.Task[object]", task), clock=self._means.clock, timeout_s=SETTLE_S):
            for run in runs:
                run.task.cancel()

    async def _list(self, _: ClientContext, __: PaginatedRequestParams | None) -> ListToolsResult:
        run = Tool(
            name=RUN,
            title="Run an agent in a folder",
            description="Have an agent do a task in a folder: it reads, changes and searches files, runs commands, and answers. "
            f"The folder lies below {visible_line(shown_name(str(self._means.root)))}.",
            input_schema=run_schema(self._means.models),
            output_schema=RUN_OUTPUT,
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
        )
        decode = Tool(
            name=DECODE,
            title="Decode a provider's stream",
            description="Say what the recorded bytes of a model provider's response hold: text, whole tool calls, why it ended, "
            "tokens, and what had to be repaired. Sends nothing.",
            input_schema=SCHEMA,
            output_schema=DECODE_OUTPUT,
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        return ListToolsResult(tools=[run, decode])

    async def _call(
        self, context: ClientContext, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """What goes wrong becomes an error result in one sentence; what is a bug of ours says no more than that."""
        try:
            match params.name:
                case "run":
                    return await self._run(context, params)
                case "decode":
                    wish = read_decode(params.arguments or {})
                    data, is_stream = await self._decodes.decoded(wish)
                    return decode_result(data, is_stream=is_stream, family=wish.family)
                case name:
                    return failed(f"there is no tool `{visible_line(name[:40])}`: there are `{RUN}` and `{DECODE}`")
        except TurnwiseError as error:
            return failed(clean_line(str(error)))
        except Exception as error:  # noqa: BLE001 (the client keeps its other calls)
            _log.exception("a call of the client failed")
            return failed(f"this is a bug in turnwise, please report it: {type(error).__name__}")

    async def _run(self, context: ClientContext, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        if params.request_state is not None:
            run = self._waiting(params.request_state)
            _deliver(run, answers=params.input_responses or {})
        else:
            run = self._begun(params.arguments or {}, asks=_can_ask(context.session.client_capabilities))
        run.is_attended_to = True
        run.progress.report_to(lambda number, line: context.session.report_progress(number, message=line))
        try:
            return await self._listened(context, run)
        except asyncio.CancelledError:
            run.cancel()
            run.task.add_done_callback(lambda task: self._forget(run.token, task))  # nobody will ask for its result
            raise
        finally:
            run.is_attended_to = False
            run.progress.report_to(None)

    async def _listened(self, context: ClientContext, run: ServedRun) -> CallToolResult | InputRequiredResult:
        """The run's result; or, of a client that has to be asked by a result, what it is asked."""
        while not run.task.done():
            waiting = [one for one in run.questions.open if one.is_open]
            if waiting and not context.session.can_send_request:
                run.questions.show(waiting)
                asked = {one.key: ElicitRequest(params=one.form) for one in waiting}
                return InputRequiredResult(input_requests=cast("Any", asked), request_state=run.token)
            run.questions.changed.clear()
            if waiting:
                await _asked(context, waiting[0], run=run)
            else:
                await _first_of(asyncio.ensure_future(run.questions.changed.wait()), run.task)
        await run.progress.flush()
        del self._runs[run.token]
        return (
            failed("the run was cancelled before it began") if run.task.cancelled() else run_result(run.task.result())
        )

    def _begun(self, arguments: Mapping[str, object], *, asks: bool) -> ServedRun:
        means = self._means
        wish = read_run(arguments, root=means.root, models=means.models, env=means.env)
        self._forget_ended()
        if sum(not run.task.done() for run in self._runs.values()) >= MAX_RUNS:
            raise CallerError(f"{MAX_RUNS} runs are at work: wait for one of them")
        self._check_apart(wish)
        run = ServedRun(wish, means=means, asks=asks)
        run.start()
        self._runs[run.token] = run
        return run

    def _check_apart(self, wish: RunWish) -> None:
        """Raises CallerError where this run, or one at work, could put a link in the place of the other's folder."""
        for run in self._runs.values():
            if not run.task.done() and (may_swap(wish, run.wish) or may_swap(run.wish, wish)):
                raise CallerError(
                    f"a run is at work in `{shown_name(str(run.wish.folder))}`: of two folders at once, none may lie inside the "
                    "other, unless the run in the outer one is `read-only`. Wait for it, or work in the same folder"
                )

    def _waiting(self, token: str) -> ServedRun:
        run = self._runs.get(token)
        if run is None:
            raise CallerError("this run is not known any more: begin it anew, without `requestState`")
        if run.is_attended_to:
            raise CallerError("another call listens to this run: wait for its result")
        return run

    def _forget(self, token: str, task: asyncio.Task[Served]) -> None:
        self._runs.pop(token, None)
        if not task.cancelled():
            task.exception()  # else asyncio tells the terminal of it

    def _forget_ended(self) -> None:
        """Runs whose client did not come back; the journal has them."""
        left = [token for token, run in self._runs.items() if run.task.done() and not run.is_attended_to]
        for token in left[: max(0, len(left) - MAX_WAITING)]:
            del self._runs[token]


async def _asked(context: ClientContext, question: Question, *, run: ServedRun) -> None:
    """Put it to a client that takes requests. It is withdrawn there once its deadline has passed here, or the run has ended."""
    elicited = asyncio.ensure_future(
        context.session.elicit_form(
            question.form.message, question.form.requested_schema, related_request_id=context.request_id
        )
    )
    if elicited not in await _first_of(elicited, run.task, question.result):
        return
    try:
        question.answer(elicited.result())
    except (MCPError, ValidationError):  # it has no person, or its answer is invalid
        question.answer(ElicitResult(action="cancel"))


async def _first_of(own: asyncio.Future[Any], *others: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    """Those that are done, as soon as one is. `own` is not waited for any longer."""
    try:
        return (await asyncio.wait([own, *others], return_when=asyncio.FIRST_COMPLETED))[0]
    finally:
        own.cancel()


def _deliver(run: ServedRun, *, answers: Mapping[str, object]) -> None:
    for question in run.questions.open:
        answer = answers.get(question.key)
        if answer is not None:
            question.answer(answer if isinstance(answer, ElicitResult) else ElicitResult(action="cancel"))


def _can_ask(can: ClientCapabilities | None) -> bool:
    """A client that says no more than that it has elicitation has forms (2025-06-18)."""
    asks = None if can is None else can.elicitation
    return asks is not None and (asks.form is not None or asks.url is None)


async def serve(means: ServeMeans) -> None:
    """On this process's own pipes. Raises CallerError if its standard streams are not pipes."""
    reader, writer = await own_streams(started=STARTED)
    pipe = LinePipe(reader, writer, clock=means.clock, whose="the client")
    with ended_by_signals(pipe.end):
        await serve_pipe(pipe, means=means)


async def serve_pipe(pipe: LinePipe, *, means: ServeMeans) -> None:
    """Until the pipe ends; then open runs are cancelled, and have a moment to end in."""
    async with client_streams(pipe) as (incoming, outgoing):
        await serve_streams(incoming, outgoing, means=means)
    await pipe.close()


async def serve_streams(
    incoming: ReadStream[SessionMessage | Exception], outgoing: WriteStream[SessionMessage], *, means: ServeMeans
) -> None:
    """Until the first stream ends."""
    service = ClientService(means)
    with library_is_silent(str(Path(mcp.__file__).parent)):
        try:
            options = service.server.create_initialization_options()
            await service.server.run(incoming, outgoing, options)
        finally:
            await service.close()
