"""`McpServer`: the tools of an MCP server, for an agent."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, get_args

import msgspec

from turnwise.agent.tools import OneTool
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.extras import require_extras
from turnwise.errors import CallerError
from turnwise.rules.arguments import mcp_tool_name
from turnwise.rules.permission_paths import escape_pattern
from turnwise.rules.permissions import PermissionRule
from turnwise.running.run_context import context_at_hand
from turnwise.running.tools import Arguments, CallJudging, Tool
from turnwise.running.working_call import model_at_hand
from turnwise.settings.mcp_files import (
    MAX_SAMPLING,
    START_S,
    ServerAddress,
    ServerCommand,
    ServerEntry,
    ServerObject,
    check_server_name,
    is_web_address,
)
from turnwise.tools.mcp.kept_server import RunningServer
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import ToolSpec

if TYPE_CHECKING:
    from turnwise.tools.mcp.offered_tools import Listing, OfferedTool

Admit = Callable[["Listing"], "tuple[Sequence[OfferedTool], str]"]
"""Says which of a server's tools are offered, and what the user is told about the others."""

_LIST = "list_resources"
_READ = "read_resource"


class ServerToolset:
    """The tools of one server entry. `admit` says which of them are offered. `one_turn`: the toolset is for one turn, so no later
    tools come."""

    def __init__(
        self, entry: ServerEntry, *, clock: Clock | None = None, admit: Admit | None = None, one_turn: bool = False
    ) -> None:
        self.entry, self._admit = entry, admit
        self._clock, self._one_turn = clock or SystemClock(), one_turn
        self._first = self._another()
        self._idle = [self._first]
        self._of_loops: dict[asyncio.AbstractEventLoop, RunningServer] = {}

    def _another(self) -> RunningServer:
        return RunningServer(self.entry, clock=self._clock, one_turn=self._one_turn)

    @property
    def _running(self) -> RunningServer:
        """The server of this event loop. `run_sync` in several threads starts one in each."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._first
        return self._of_loops.get(loop, self._first)

    @property
    def name(self) -> str:
        """The prefix of its tools' names."""
        return self.entry.name

    @property
    def listing(self) -> "Listing | None":
        """What the server offers; None if it does not run."""
        return self._running.listing

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What a turn that begins now should know: it lacks the server's tools, or some of them."""
        return self._running.shortcomings

    def heard_by(self, tell: Callable[[str], object]) -> AbstractContextManager[None]:
        """Inside this block, `tell` hears what happens to the server."""
        return self._running.heard_by(tell)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of one of its prompts. Raises ToolFault if it has no such prompt."""
        return await self._running.prompt(name, arguments)

    async def __aenter__(self) -> Self:
        running = self._idle.pop() if self._idle else self._another()
        loop = asyncio.get_running_loop()
        self._of_loops[loop] = running
        try:
            await running.start()
        except BaseException:
            self._let_go(loop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._running.stop()
        finally:
            self._let_go(asyncio.get_running_loop())

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Keep one idle server: it knows how the server died while nobody listened."""
        running = self._of_loops.pop(loop, None)
        if running is not None and not self._idle:
            self._idle.append(running)

    async def tools(self) -> Sequence[OneTool]:
        """The tools that it offers now; none if it does not run."""
        await self._running.refresh()
        listing = self._running.listing
        if listing is None:
            return []
        offered, told = (listing.tools, "") if self._admit is None else self._admit(listing)
        if told:
            self._running.say(told)
        tools = [self._tool(one) for one in offered]
        names = {one.name for one in tools}
        own = self._resource_tools() if listing.has_resources else []
        return [*tools, *[one for one in own if one.name not in names]]

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    def _tool(self, offered: "OfferedTool") -> Tool:
        async def run(arguments: Arguments) -> object:
            return await self._running.call(
                offered.own_name,
                arguments,
                context=context_at_hand(),
                model=model_at_hand(),
                again=offered.offer.idempotent,
            )

        return self._judged(Tool(offer=offered.offer, function=run, takes_context=True))

    def _judged(self, one: Tool) -> Tool:
        """The tool with rules for the verdict on its calls. Here it has none: the command line's own rules know servers."""
        return one

    def _resource_tools(self) -> list[Tool]:
        """The tools that list the server's resources and read one."""

        async def resources(arguments: Arguments) -> object:
            cursor = arguments.get("cursor")
            return await self._running.resources(cursor if isinstance(cursor, str) and cursor else None)

        async def read(arguments: Arguments) -> object:
            return await self._running.read_resource(str(arguments.get("uri", "")), context=context_at_hand())

        list_offer = self._resource_offer(
            _LIST,
            f"List the resources (documents, data) of the MCP server `{self.name}`.",
            {"cursor": {"type": "string", "description": "From the page before, for the next one"}},
            required=(),
        )
        read_offer = self._resource_offer(
            _READ,
            f"Read a resource of the MCP server `{self.name}` by its address.",
            {"uri": {"type": "string", "description": "Its address, as it was listed or named in a result"}},
            required=("uri",),
        )
        reading = Tool(offer=read_offer, function=read, takes_context=True)
        return [self._judged(one) for one in (Tool(offer=list_offer, function=resources), reading)]

    def _resource_offer(
        self, name: str, description: str, properties: Mapping[str, object], *, required: Sequence[str]
    ) -> ToolOffer:
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return ToolOffer(
            spec=ToolSpec(
                name=mcp_tool_name(self.name, name),
                description=description,
                parameters=msgspec.json.encode(schema).decode(),
            ),
            effect=self._effect_of(name),
            idempotent=True,
            timeout_s=self.entry.call_s,
        )

    def _effect_of(self, name: str) -> Effect:
        from turnwise.tools.mcp.offered_tools import effect_of

        return effect_of(name, entry=self.entry, read_only=True)


class McpServer(ServerToolset):
    """A toolset: the tools of one MCP server. Its tools are called `NAME__TOOL`. Needs `turnwise[mcp]`.

        agent = Agent("anthropic:claude-sonnet-5", tools=[McpServer("git", command=["mcp-server-git"])])

    Give exactly one of `command`, `url` and `server`:

    - `command` starts a program, which speaks over its standard input and output. It runs in `folder` (the current one),
      sees `mcp`'s default environment variables and those in `env`, and ends with the agent. It runs in a sandbox: it can
      write in `folder` only and has no network unless `network` is set. `sandbox=False` runs it without.
    - `url` is a server's address (streamable HTTP). `headers` go with every request.
    - `server` is a server object of the package `mcp`, in this process.

    Servers of an agent start side by side. The first turn waits `start_s` seconds; the tools of a server that needs longer
    come with the next turn, and `RunResult.notes` says that they are missing. A server that dies is started again, at most
    three times in five minutes. A call that was under way then is sent again only if the server calls its tool idempotent.
    A changed list of tools holds from the next turn on.

    `effects` says what tools do, by their names or globs: `{"read_*": "read"}`. A tool that nothing is said of has the effect
    `execute`. With `trusts_hints` a tool that the server calls read-only has the effect `read`. turnwise asks before it runs
    a tool of another effect if the agent has a policy, an approver or a `Workspace`; where nobody can be asked, the call is
    denied. An agent with none of the three runs its tools at once. With `asks=True` it denies them, and with `asks=False`
    the server's tools run at once in every agent. The rules of a policy go before both.

    `call_s` are the seconds for one call. What a server asks a person becomes an ask of the call (`RunContext.ask`).

    Runs that go on at once share the connection, and whatever the server itself keeps. A server of protocol version
    2025-11-25 or earlier does not say in which call it asks: it gets no answer while calls of several runs are at work. Give
    each run a server of its own if it must ask, or if it keeps what a user said: `agent.run(..., tools=[McpServer(...)])`.

    `sampling` says how often the server may ask the run's model in one call of a tool (0: never). A sub-agent with the
    agent's model answers, without tools and without anything of the conversation. Its requests count in the run's limits
    and stand in its bill, and watchers are told of each.

    Raises CallerError for options that cannot work.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        url: str = "",
        server: object = None,
        folder: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        sandbox: bool = True,
        network: bool = False,
        headers: Mapping[str, str] | None = None,
        start_s: float = START_S,
        call_s: float | None = None,
        effects: Mapping[str, Effect] | None = None,
        trusts_hints: bool = False,
        asks: bool | None = None,
        sampling: int = 0,
        clock: Clock | None = None,
    ) -> None:
        require_extras("mcp")
        check_server_name(name)
        _check_times(start_s=start_s, call_s=call_s)
        _check_effects(effects or {})
        _check_sampling(sampling)
        _check_one(command=command, url=url, server=server)
        if command:
            reached: ServerCommand | ServerAddress | ServerObject = ServerCommand(
                argv=tuple(command), folder=_real_folder(folder), env=env or {}, sandbox=sandbox, network=network
            )
        elif url:
            reached = ServerAddress(url=url, headers=headers or {})
        else:
            reached = ServerObject(server=server)
        entry = ServerEntry(
            name=name,
            reached=reached,
            start_s=start_s,
            call_s=call_s,
            effects=effects or {},
            trusts_hints=trusts_hints,
            sampling=sampling,
            is_shared=True,
        )
        super().__init__(entry, clock=clock)
        self._asks = asks

    def _judged(self, one: Tool) -> Tool:
        """The tool with an ask by its effect, also in an agent without a policy. With `asks=False`, a rule before all others
        allows it."""
        if self._asks is False:
            judging = CallJudging(rules=(PermissionRule(verdict="allow", tool=escape_pattern(one.name)),))
        else:
            judging = CallJudging(without_policy="always" if self._asks else "asked")
        return msgspec.structs.replace(one, judging=judging)


def _check_one(*, command: Sequence[str], url: str, server: object) -> None:
    given = [name for name, one in (("command", command), ("url", url), ("server", server)) if one]
    if len(given) != 1:
        raise CallerError(
            f"`McpServer` needs one of `command`, `url` and `server`, and has {' and '.join(given) or 'none'}"
        )
    if isinstance(command, str):
        raise CallerError(f"`command` of `McpServer` is a list of words: `command={command.split()}`")
    if url and not is_web_address(url):
        raise CallerError("`url` of `McpServer` begins with `https://` or `http://`")


def _check_times(*, start_s: float, call_s: float | None) -> None:
    for name, value in (("start_s", start_s), ("call_s", call_s)):
        if value is not None and not value > 0:
            raise CallerError(f"`{name}` of `McpServer` is {value:g}: it must be more than 0 seconds")


def _check_sampling(sampling: object) -> None:
    if not isinstance(sampling, int) or isinstance(sampling, bool) or not 0 <= sampling <= MAX_SAMPLING:
        raise CallerError(
            f"`sampling` of `McpServer` is {sampling!r}: it must be a number from 0 (off) to {MAX_SAMPLING}"
        )


def _check_effects(effects: Mapping[str, Effect]) -> None:
    for pattern, effect in effects.items():
        if effect not in get_args(Effect):
            raise CallerError(
                f"`effects` of `McpServer`: `{pattern}` is `{effect}`; it must be one of: {', '.join(get_args(Effect))}"
            )


def _real_folder(given: Path | str | None) -> Path:
    """The real path of the folder in which a server runs. Raises CallerError if it does not exist."""
    folder = Path.cwd() if given is None else Path(given).expanduser()
    if not folder.is_dir():
        raise CallerError(f"`{folder}` is no folder: an MCP server needs one to run in")
    return folder.resolve()
