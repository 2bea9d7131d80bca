"""What an editor may ask for: sessions new, loaded, listed and forked, prompts, modes and models. Names are the protocol's."""

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import acp
import msgspec
from acp.agent.connection import AgentSideConnection
from acp.exceptions import RequestError
from acp.helpers import start_tool_call, update_tool_call, update_user_message_text
from acp.interfaces import Agent
from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    ClientCapabilities,
    CloseSessionResponse,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    UnstructuredCommandInput,
)

from turnwise._version import __version__
from turnwise.agent.resume_lookup import read_session
from turnwise.base.clock import Clock, TimeOrderedIds, ends_in_time, is_time_ordered, wait_for_task
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
from turnwise.base.threads import load_beside
from turnwise.coding_agent.asked_calls import title_of
from turnwise.coding_agent.last_exchange import ENDS
from turnwise.coding_agent.model_names import Offers
from turnwise.coding_agent.modes import read_mode
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.plan import PLAN, plan_in
from turnwise.coding_agent.repository import foreign_folder
from turnwise.coding_agent.text import clean, clean_answer, clean_line, shortened, visible_line
from turnwise.editors.acp.editor_updates import (
    SaidPiece,
    Updates,
    WholeUpdate,
    kind_of,
    locations_of,
    result_said,
    shown_plan,
)
from turnwise.editors.acp.session import (
    MODE,
    MODEL,
    OLD_NAMES,
    EditorMeans,
    EditorOption,
    EditorSession,
    TurnFailed,
    mode_state,
    options_of,
    read_blocks,
)
from turnwise.errors import CallerError, TurnwiseError
from turnwise.journal.journal import Journal, Session
from turnwise.settings.settings import MCP_FILE, names_mcp_servers, read_layers
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.vocab import Message, Reasoning, Refusal, Text, ToolCall, ToolResult
from turnwise.vocab.file_names import shown_name
from turnwise.vocab.json_values import is_json_object, without
from turnwise.wire.json_fields import UNREADABLE

if TYPE_CHECKING:
    from turnwise.editors.acp.session import PromptBlock

# Messages of JSON-RPC over the editor's two pipes, a line each: bounded, and checked before the protocol's library sees them.


MAX_ERROR_CHARACTERS = 4000  # an error of the library repeats what was wrong, however long it is

EditorMessage = dict[str, Any]


class EditorPipe:
    """A `Transport` of the protocol's library. What is no message is answered with an error and goes no further.

    `receive` gives None once the editor is gone.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, clock: Clock) -> None:
        self._lines = LinePipe(reader, writer, clock=clock, whose="the editor")
        self._door = RequestDoor(self._lines)

    @property
    def is_open(self) -> bool:
        return self._lines.is_open

    def end(self) -> None:
        """Nothing is read or written any more."""
        self._lines.end()

    async def receive(self) -> EditorMessage | None:
        while (line := await self._lines.read_line()) is not None:
            if (message := await self._checked(line)) is not None:
                return message
        return None

    async def send(self, message: EditorMessage) -> None:
        """Raises ConnectionError once the editor is gone."""
        if "method" not in message:
            self._door.leaves(message.get("id"))
        await self._lines.write_line(_encoded(message))

    async def close(self) -> None:
        await self._lines.close()

    async def _checked(self, line: bytes | LongLine) -> EditorMessage | None:
        if isinstance(line, LongLine):
            await self._door.refuse(INVALID_REQUEST, f"the message has more than {MAX_LINE_BYTES:,} bytes")
            return None
        if not line.strip():
            return None
        try:
            decoded: object = msgspec.json.decode(line)
        except UNREADABLE:
            await self._door.refuse(PARSE_ERROR, "the line is no JSON")
            return None
        if not is_json_object(decoded):
            await self._door.refuse(INVALID_REQUEST, "the message is no JSON object; one message a line, no batches")
            return None
        message = decoded
        return _response(message) if "method" not in message else await self._request(message)

    async def _request(self, message: EditorMessage) -> EditorMessage | None:
        method, id, params = message["method"], message.get("id"), message.get("params")
        if not isinstance(method, str) or isinstance(id, bool | float | list | dict):
            await self._door.refuse(INVALID_REQUEST, "`method` must be a text and `id` a text or a whole number")
            return None
        kept: EditorMessage = {"jsonrpc": "2.0", "method": method}
        if is_json_object(params):
            # the library hands what stands in `_meta` to its handlers as if it were fields of the request
            kept["params"] = without(params, ("_meta",))
        if id is None:
            return kept if _is_heeded(kept) else None
        return {**kept, "id": id} if await self._door.lets_in(id) else None


def _is_heeded(notification: EditorMessage) -> bool:
    """The protocol wants others to be ignored; the library would log each with a traceback."""
    params: object = notification.get("params")
    if notification["method"] != "session/cancel" or not is_json_object(params):
        return False
    return isinstance(params.get("sessionId"), str)


def _response(message: EditorMessage) -> EditorMessage | None:
    """An answer to a request of ours, in the shape that the library expects; None for what answers nothing."""
    id = message.get("id")
    if not isinstance(id, int) or isinstance(id, bool):
        return None
    if "error" not in message or "result" in message:
        return {"jsonrpc": "2.0", "id": id, "result": message.get("result")}
    error: object = message["error"]
    code, said = -32603, "the editor failed"
    if is_json_object(error):
        code = one if isinstance(one := error.get("code"), int) else code
        said = two[:MAX_ERROR_CHARACTERS] if isinstance(two := error.get("message"), str) else said
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": said}}


def _encoded(message: EditorMessage) -> bytes:
    """A line. Of an error that cannot be written, or is too long, code and message stay."""
    error = message.get("error")
    if is_json_object(error):
        short = {**error}
        try:
            if len(msgspec.json.encode(short)) <= MAX_ERROR_CHARACTERS:
                return msgspec.json.encode(message)
        except (TypeError, ValueError):
            pass
        short["message"] = str(short.get("message", ""))[:MAX_ERROR_CHARACTERS]
        short.pop("data", None)
        return msgspec.json.encode({**message, "error": short})
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # half of a pair: as an escape it is JSON
        return json.dumps(message).encode()


async def own_pipes(*, clock: Clock) -> EditorPipe:
    """The pipe over this process's standard input and output. Raises CallerError where one of the two is a file."""
    reader, writer = await own_streams(started="an editor starts `turnwise acp`")
    return EditorPipe(reader, writer, clock=clock)


MAX_SESSIONS = 64  # open at once: each holds what was read in its folder
PAGE = 50
MAX_LISTED = 5000  # of the journal, the latest first
TITLE = 100
MAX_SERVERS_TOLD = 10
SETTLE_S = 10.0  # that turns have to end in once the editor is gone

OWN_SERVERS = (
    f"MCP servers of turnwise.toml and {MCP_FILE} do not start in an editor's session: "
    "the model does not have their tools"
)
INVALID_PARAMS, FAILED = -32602, -32603
Result = TypeVar("Result")
_log = logging.getLogger("turnwise")


def told(method: Callable[..., Awaitable[Result]]) -> Callable[..., Awaitable[Result]]:
    """What goes wrong becomes an error of the protocol in one sentence; what is a bug of ours says no more than that."""

    @functools.wraps(method)
    async def answered(*args: Any, **fields: Any) -> Result:
        try:
            return await method(*args, **fields)
        except CallerError as error:
            raise RequestError(INVALID_PARAMS, clean_line(str(error))) from None
        except TurnFailed as error:
            raise RequestError(FAILED, str(error)) from None
        except TurnwiseError as error:
            raise RequestError(FAILED, clean_line(str(error))) from None
        except (RequestError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 (the editor keeps its other sessions)
            _log.exception("a request of the editor failed")
            raise RequestError(FAILED, f"this is a bug in turnwise, please report it: {type(error).__name__}") from None

    return answered


def load_ahead() -> None:
    """Load what the first request needs while the person still types: it takes a third of a second."""
    load_beside("turnwise.endpoints.aiohttp_transport")


class EditorService:
    """One editor's agent. The library of the protocol calls its methods by their names, with the fields of the request."""

    def __init__(self, *, given: Given, journal: Journal, clock: Clock, env: Mapping[str, str]) -> None:
        self._given = given
        self._journal = journal
        self._clock = clock
        self._env = env
        self._ids = TimeOrderedIds(clock)
        self._sessions: dict[str, EditorSession] = {}
        self._offers = Offers()
        self._client: AgentSideConnection | None = None
        self._can = ClientCapabilities()

    def on_connect(self, conn: "AgentSideConnection") -> None:
        self._client = conn

    async def close(self) -> None:
        """The editor is gone: turns end with what they have, within bounds."""
        await self._settled(*self._sessions.values())

    async def _settled(self, *sessions: EditorSession) -> None:
        for session in sessions:
            session.close()
        task = asyncio.ensure_future(asyncio.gather(*[session.settled() for session in sessions]))
        if not await wait_for_task(cast("asyncio.Task[object]", task), clock=self._clock, timeout_s=SETTLE_S):
            task.cancel()

    @told
    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: object
    ) -> InitializeResponse:
        self._can = client_capabilities or ClientCapabilities()
        asyncio.get_running_loop().call_soon(load_ahead)  # the editor is answered first
        return InitializeResponse(
            protocol_version=min(max(protocol_version, 1), PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
            agent_info=Implementation(name="turnwise", title="turnwise", version=__version__),
        )

    @told
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: object,
    ) -> NewSessionResponse:
        folder = self._folder_of(cwd, others=additional_directories)
        session = self._open(self._ids.new(), folder=folder, begun=False, mcp_servers=mcp_servers)
        return NewSessionResponse(
            session_id=session.id, modes=mode_state(session.mode), config_options=self._options(session)
        )

    @told
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: object,
    ) -> LoadSessionResponse:
        folder = self._folder_of(cwd, others=additional_directories)
        session, found = await self._again(session_id, folder=folder, mcp_servers=mcp_servers)
        if found is not None:
            messages = read_session(self._journal, found).messages
            tell_history(messages, updates=session.updates, workspace=session.place.workspace)
        await session.updates.flush()
        return LoadSessionResponse(modes=mode_state(session.mode), config_options=self._options(session))

    @told
    async def resume_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: object,
    ) -> ResumeSessionResponse:
        folder = self._folder_of(cwd, others=additional_directories)
        session = (await self._again(session_id, folder=folder, mcp_servers=mcp_servers))[0]
        return ResumeSessionResponse(modes=mode_state(session.mode), config_options=self._options(session))

    @told
    async def fork_session(
        self,
        cwd: str,
        session_id: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: object,
    ) -> ForkSessionResponse:
        from turnwise.replay.session_fork import fork  # few editors want it

        folder = self._folder_of(cwd, others=additional_directories)
        found = self._found(session_id)
        id = self._ids.new() if found is None else fork(self._journal, found, new_id=self._ids.new).session
        session = self._open(id, folder=folder, begun=found is not None, mcp_servers=mcp_servers)
        return ForkSessionResponse(
            session_id=session.id, modes=mode_state(session.mode), config_options=self._options(session)
        )

    @told
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: object
    ) -> ListSessionsResponse:
        """Those of the folder, or all, the latest first."""
        start = 0
        if cursor is not None:
            if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 6:
                raise CallerError("`cursor` is none that an earlier answer gave: leave it out")
            start = int(cursor)
        folder = None if cwd is None else shown_name(str(self._folder_of(cwd)))
        rows = [row for row in self._journal.sessions(limit=MAX_LISTED) if folder is None or row.folder == folder]
        page = rows[start : start + PAGE]
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=row.id,
                    cwd=row.folder,
                    title=shortened(row.title, limit=TITLE) or None,
                    updated_at=datetime.fromtimestamp(row.updated, UTC).isoformat(),
                )
                for row in page
            ],
            next_cursor=str(start + PAGE) if start + PAGE < len(rows) else None,
        )

    @told
    async def close_session(self, session_id: str, **_: object) -> CloseSessionResponse:
        await self._settled(self._opened(session_id))
        self._sessions.pop(session_id, None)
        return CloseSessionResponse()

    @told
    async def set_session_mode(self, mode_id: str, session_id: str, **_: object) -> SetSessionModeResponse:
        session = self._opened(session_id)
        await self._choose_mode(session, mode_id)
        session.updates.put(
            ConfigOptionUpdate(session_update="config_option_update", config_options=self._options(session))
        )
        await session.updates.flush()
        return SetSessionModeResponse()

    @told
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: object
    ) -> SetSessionConfigOptionResponse:
        session = self._opened(session_id)
        if config_id == MODE:
            await self._choose_mode(session, value)
            session.updates.put(
                CurrentModeUpdate(session_update="current_mode_update", current_mode_id=session.mode.chosen)
            )
        elif config_id == MODEL and isinstance(value, str):
            async with session.alone():
                session.change_model(value, offers=self._offers)
        else:
            raise CallerError(f"there is no option `{visible_line(config_id)[:40]}`: there are `mode` and `model`")
        await session.updates.flush()
        return SetSessionConfigOptionResponse(config_options=self._options(session))

    @told
    async def prompt(self, prompt: "list[PromptBlock]", session_id: str, **_: object) -> PromptResponse:
        session = self._opened(session_id)
        read = read_blocks(prompt, workspace=session.place.workspace)
        command = command_in(read.typed)
        if command is None:
            return await session.prompt(read)
        from turnwise.editors.acp.slash_commands import SlashCommands  # with what takes changes back

        commands = SlashCommands(session, offers=self._offers, changed=lambda: self._tell_options(session))
        return await session.obey(lambda: commands.obey(*command))

    async def cancel(self, session_id: str, **_: object) -> None:
        if (session := self._sessions.get(session_id)) is not None:
            session.cancel()

    def _folder_of(self, cwd: str, *, others: list[str] | None = None) -> "Path":
        """`others` are further roots: turnwise works in one folder, so they are refused and not left out in silence."""
        if others:
            raise CallerError("turnwise works in one folder: leave `additionalDirectories` out")
        return foreign_folder(cwd, name="cwd", env=self._env)

    async def _choose_mode(self, session: EditorSession, mode: object) -> None:
        wanted = OLD_NAMES.get(mode) or read_mode(str(mode))
        if session.is_busy and session.tightens(wanted):
            return
        async with session.alone():
            session.choose(mode=wanted)

    def _options(self, session: EditorSession) -> list[EditorOption]:
        choice = session.place.choice
        return options_of(session.mode, model=choice.model, offered=self._offers.names(choice))

    def _tell_options(self, session: EditorSession) -> None:
        session.updates.put(
            ConfigOptionUpdate(session_update="config_option_update", config_options=self._options(session))
        )

    def _opened(self, id: str) -> EditorSession:
        if (session := self._sessions.get(id)) is None:
            raise CallerError(f"session `{visible_line(id)[:40]}` is not open: begin, load, resume or fork one first")
        return session

    def _found(self, id: str) -> Session | None:
        """The session with this whole id; never a sub-agent's. None if it had no prompt yet: the journal does not know it. Raises
        CallerError."""
        try:
            found = self._journal.find_session(id)
        except CallerError:
            if id in self._sessions or is_time_ordered(id):
                return None
            raise
        if self._journal.parent_of(id) is not None:
            raise CallerError(f"there is no session `{visible_line(id)[:40]}`")
        return found

    async def _again(
        self, id: str, *, folder: "Path", mcp_servers: list[Any] | None
    ) -> tuple[EditorSession, Session | None]:
        """The session, opened again, and what the journal has of it."""
        opened = self._sessions.get(id)
        async with contextlib.nullcontext() if opened is None else opened.alone():
            found = self._found(id)
            session = self._open(id, folder=folder, begun=found is not None, mcp_servers=mcp_servers)
        if found is None and opened is None:  # its process has ended, or somebody has deleted what there was
            session.note_later("no prompt of this session is known, so it begins with this one")
        elif found is not None and found.turns and (end := ENDS.get(found.turns[-1].status)):
            session.note_later(f"the last turn of this session has no answer: {end}")
        return session, found

    def _open(self, id: str, *, folder: "Path", begun: bool, mcp_servers: list[Any] | None) -> EditorSession:
        if len(self._sessions) >= MAX_SESSIONS and id not in self._sessions:
            raise CallerError(f"{MAX_SESSIONS} sessions are open: close one first")
        assert self._client is not None, "a request came over it"
        means = EditorMeans(
            given=self._given,
            journal=self._journal,
            clock=self._clock,
            env=self._env,
            client=self._client,
            can=self._can,
        )
        session = EditorSession(means, id=id, folder=folder, begun=begun)
        session.options_changed = lambda: self._tell_options(session)
        for line in session.place.notes:
            session.note_later(line)
        if mcp_servers:
            names = ", ".join([visible_line(str(server.name))[:40] for server in mcp_servers[:MAX_SERVERS_TOLD]])
            more = len(mcp_servers) - MAX_SERVERS_TOLD
            named = f"{names} and {more} more" if more > 0 else names
            session.note_later(
                f"the editor's MCP servers are not started ({named}): the model does not have their tools"
            )
        if names_mcp_servers(folder, layers=read_layers(folder, env=self._env)):
            session.note_later(OWN_SERVERS)
        self._sessions[id] = session
        # not before the editor knows the session: it gets the answer first
        asyncio.get_running_loop().call_soon(lambda: session.updates.put(available()))
        return session


SUMMARIES = {
    "usage": "what the session has used: money, tokens, requests by purpose",
    "undo": "take back the last turn's changes to files; again: the turn before",
    "model": "show the model and others; `/model NAME` changes to that one",
    "permissions": "the rules that hold, in their order",
}
TAKES = {"model": "NAME"}


def available() -> AvailableCommandsUpdate:
    return AvailableCommandsUpdate(
        session_update="available_commands_update",
        available_commands=[
            AvailableCommand(name=name, description=summary, input=_input_of(name))
            for name, summary in SUMMARIES.items()
        ],
    )


def command_in(text: str) -> tuple[str, str] | None:
    """The command and what follows it. None: words for the model, a path for example."""
    name, _, rest = text.strip().partition(" ")
    return (name[1:], rest.strip()) if name[:1] == "/" and name[1:] in SUMMARIES else None


def _input_of(name: str) -> AvailableCommandInput | None:
    hint = TAKES.get(name)
    return None if hint is None else AvailableCommandInput(root=UnstructuredCommandInput(hint=hint))


def tell_history(messages: Sequence[Message], *, updates: Updates, workspace: WorkspacePaths) -> None:
    """Texts that turnwise put beside a person's words are left out, as they were when the turn ran."""
    for message in messages:
        for update in _updates_of_history(message, workspace=workspace):
            updates.put(update)


def _updates_of_history(message: Message, *, workspace: WorkspacePaths) -> Iterator[SaidPiece | WholeUpdate]:
    for part in message.parts:
        match part:
            case Text(note=note) if note:
                pass
            case Text(text=text) | Refusal(text=text) if not text.strip():
                pass
            case Text(text=text) if message.role == "user":
                yield update_user_message_text(clean(text))
            case Text(text=text) | Refusal(text=text) if message.role == "assistant":
                yield SaidPiece("text", f"{clean_answer(text)}\n\n")
            case Reasoning(text=text) if text:
                yield SaidPiece("thought", clean(text))
            case ToolCall(name=name) if name == PLAN:
                if (plan := plan_in(part)) is not None:
                    yield shown_plan(plan)
            case ToolCall():
                yield start_tool_call(
                    f"h.{part.id}",
                    title_of(part),
                    kind=kind_of(part),
                    status="pending",
                    locations=locations_of(part, workspace=workspace) or None,
                )
            case ToolResult(name=name) if name != PLAN:
                yield update_tool_call(
                    f"h.{part.call_id}",
                    status="failed" if part.is_error else "completed",
                    content=list(result_said(part)) or None,
                )
            case _:
                pass


async def serve(*, given: Given, journal: Journal, clock: Clock, env: Mapping[str, str]) -> None:
    """On this process's own pipes. Raises CallerError if its standard streams are not pipes."""
    pipe = await own_pipes(clock=clock)
    with ended_by_signals(pipe.end):
        await serve_over(pipe, given=given, journal=journal, clock=clock, env=env)


async def serve_over(pipe: EditorPipe, *, given: Given, journal: Journal, clock: Clock, env: Mapping[str, str]) -> None:
    """Until the pipe ends; then open turns are cancelled, and have a moment to end in."""
    service = EditorService(given=given, journal=journal, clock=clock, env=env)
    connection = AgentSideConnection(cast("Agent", service), pipe, listening=False, use_unstable_protocol=True)
    with library_is_silent(str(Path(acp.__file__).parent)):
        try:
            await connection.listen()
        finally:
            await service.close()
            # it waits for its tasks without a limit
            closing = asyncio.ensure_future(connection.close())
            await ends_in_time(
                cast("asyncio.Task[object]", closing), clock=clock, timeout_s=SETTLE_S, settle_s=SETTLE_S
            )
