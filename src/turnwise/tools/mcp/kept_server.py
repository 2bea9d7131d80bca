"""A server that is kept running: started, heard of when it dies, started again within bounds, and ended."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from turnwise.base.clock import Clock, Overdue, Watchdog, sleep, wait_for_task
from turnwise.base.extras import require_extras
from turnwise.base.threads import in_thread
from turnwise.errors import CallerError, ToolFault
from turnwise.running.tool_output import cut_middle
from turnwise.running.working_call import OwnModel
from turnwise.settings.mcp_files import ServerAddress, ServerEntry
from turnwise.tools.mcp.server_bounds import (
    LISTING_S,
    MAX_PROMPT,
    REFRESH_S,
    RESTARTS,
    STARTING_S,
    McpFailure,
    RestartBudget,
)
from turnwise.tools.sandbox import Scratch
from turnwise.vocab import File, Text

if TYPE_CHECKING:
    from turnwise.tools.mcp.connection import Connection
    from turnwise.tools.mcp.elicitation import AskingCall
    from turnwise.tools.mcp.offered_tools import Listing

ENDING_S = 4.5  # a little less than a toolset has for its end
SETTLE_S = 0.4
DRAIN_S = 2.0  # for other calls of a session that was forgotten: most of them are told so, too, and go again
SHOWN = 3  # of the tools that were left out

Tell = Callable[[str], object]
ServerParts = list[Text | File]
_Sent = TypeVar("_Sent")


class RunningServer:
    """One server, from `start` to `stop`. Call both in the same task. Listeners are told what a person should know of the server.

    `one_turn`: it is there for a single turn, so what comes too late for that does not come at all.
    """

    def __init__(self, entry: ServerEntry, *, clock: Clock, one_turn: bool = False) -> None:
        self.entry, self._clock, self._one_turn = entry, clock, one_turn
        self._scratch = Scratch()
        self._budget = RestartBudget(clock)
        self._listeners: list[Tell] = []
        self._connection: Connection | None = None
        self._listing: Listing | None = None
        self._task: asyncio.Task[None] | None = None
        self._over, self._settled, self._wanted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._why = ""  # there is no connection
        self._is_given_up = self._is_final = False  # `_is_final`: to start it again would change nothing
        self._is_told = False  # that it died
        self._is_forgotten = False  # the session; the server lives
        self._unheard = ""  # how it died while nobody listened

    @property
    def listing(self) -> "Listing | None":
        """What it offers; None until it has said so, and once it is given up. Calls of one that is being started again wait."""
        return None if self._is_given_up else self._listing

    @property
    def shortcomings(self) -> tuple[str, ...]:
        """What a turn that begins now should know: it goes without the tools, or without some of them."""
        if (listing := self.listing) is not None:
            return tuple([self._named(text) for text in _odd_tools_of(listing)])
        goes_on = "this run goes without them" if self._one_turn else "the next turn looks again"
        late = f"it has not started within {self.entry.start_s:g} s; {goes_on}, a higher `start_s` waits longer"
        why = self._why or late
        return (self._named(f"its tools are missing: {why}"),)

    @contextmanager
    def heard_by(self, tell: Tell) -> Generator[None]:
        """`tell` is told what happens to it, and first how it died since somebody was told the last time."""
        unheard, self._unheard = self._unheard, ""
        if unheard and not self._is_given_up:  # else it stands in `shortcomings`
            tell(self._named(unheard))
        self._listeners.append(tell)
        try:
            yield
        finally:
            self._listeners.remove(tell)

    async def start(self) -> None:
        """It runs, or has failed, or needs longer than `start_s`: then it goes on starting. Without `mcp` a program's own server
        raises CallerError; a run goes on without those that a file names."""
        try:
            await _import_mcp()
        except CallerError as error:
            if self.entry.is_shared:
                raise
            self._is_given_up, self._why = True, str(error)
            return
        self._over, self._settled, self._wanted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_given_up, self._why = False, ""
        self._task = asyncio.create_task(self._keep(), name=f"MCP server {self.entry.name}")
        try:
            await self._settles(self.entry.start_s)
        except BaseException:  # the caller gave up, and nobody else would call `stop`
            await self.stop()
            raise

    async def stop(self) -> None:
        """It has ended, with everything that it started."""
        task, self._task = self._task, None
        if task is None:
            return
        self._over.set()
        if self._connection is None:
            task.cancel()  # it is starting, or pausing before that: nothing is there that could be asked to end
        try:
            await wait_for_task(task, clock=self._clock, timeout_s=ENDING_S)
        finally:
            if not task.done():
                task.cancel()
                await wait_for_task(task, clock=self._clock, timeout_s=SETTLE_S)
            self._connection, self._listing = None, None

    async def refresh(self) -> None:
        """`listing` is what it offers now, as far as it says so in time."""
        if self._is_given_up:
            await self._looks_again(min(REFRESH_S, self.entry.start_s))
        connection = self._connection
        if connection is None or not connection.is_stale:
            return
        from turnwise.tools.mcp.connection import SessionForgotten

        try:
            async with Watchdog(self._clock, total_s=REFRESH_S):
                await connection.relist()
        except SessionForgotten:
            await self._looks_again(min(REFRESH_S, self.entry.start_s))  # the new session lists them again
        except Overdue:
            self.say(f"it did not list its tools within {REFRESH_S:g} s: they are those of before")
        except Exception as error:  # noqa: BLE001 (whatever a server's answer makes of the library)
            self.say(f"it could not list its tools, they are those of before: {_words(error)}")
        else:
            self._take_listing(connection)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        context: "AskingCall",
        model: OwnModel | None = None,
        again: bool,
    ) -> ServerParts:
        """The parts of its result. `again`: the call may be sent once more where the connection was lost. It may ask the
        `model` meanwhile. Raises ToolFault."""
        return await self._sent(lambda one: one.call(name, arguments, context=context, model=model), again=again)

    async def read_resource(self, uri: str, *, context: "AskingCall") -> ServerParts:
        """Raises ToolFault."""
        return await self._sent(lambda one: one.read_resource(uri, context=context), again=True)

    async def resources(self, cursor: str | None) -> ServerParts:
        """One page of its resources. Raises ToolFault."""
        return await self._sent(lambda one: one.resources(cursor), again=True)

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> str:
        """The text of a prompt, filled in; of a very long one its beginning and its end. Raises ToolFault."""
        from turnwise.tools.mcp.offered_tools import content_parts

        try:
            async with Watchdog(self._clock, total_s=LISTING_S):
                result = await self._sent(lambda one: one.prompt(name, arguments), again=True)
        except Overdue as error:
            raise ToolFault(f"the MCP server `{self.entry.name}` gave no prompt: {error}") from None
        parts = content_parts([message.content for message in result.messages])
        text = "\n\n".join([part.text for part in parts if isinstance(part, Text)])
        return cut_middle(text, limit=MAX_PROMPT)

    async def _sent(self, send: "Callable[[Connection], Awaitable[_Sent]]", *, again: bool) -> "_Sent":
        """Sent once more at most: where the session was forgotten, as nothing was done then, and after a loss where it may be
        repeated (`again`)."""
        from turnwise.tools.mcp.connection import ConnectionLost, SessionForgotten

        try:
            return await send(await self._ready())
        except SessionForgotten:
            pass
        except ConnectionLost as lost:
            if not again:
                raise self._unknown(lost) from None
        try:
            return await send(await self._ready())
        except SessionForgotten:
            raise ToolFault(
                f"the MCP server `{self.entry.name}` forgets each session at once: the call was not done"
            ) from None
        except ConnectionLost as lost:
            if not again:
                raise self._unknown(lost) from None
            raise ToolFault(
                f"the MCP server `{self.entry.name}` was lost during the call, and again when it was repeated ({lost})"
            ) from None

    def _unknown(self, lost: Exception) -> ToolFault:
        return ToolFault(
            f"the MCP server `{self.entry.name}` was lost during the call ({lost}). Whether the call did anything is "
            "unknown, and it was not sent again: look first, then decide"
        )

    async def _ready(self) -> "Connection":
        """The open connection; it waits while the connection is being opened again. Raises ToolFault."""
        if self._connection is None:
            await self._looks_again(self.entry.start_s)
        if self._connection is None:
            why = self._why or f"it did not start again within {self.entry.start_s:g} s"
            raise ToolFault(f"the MCP server `{self.entry.name}` does not run: {why}")
        return self._connection

    @property
    def _may_come_back(self) -> bool:
        return isinstance(self.entry.reached, ServerAddress) and not self._is_final

    async def _looks_again(self, within_s: float) -> None:
        if self._task is None or (self._is_given_up and not self._may_come_back):
            return
        self._settled.clear()
        if self._is_given_up:
            self._wanted.set()
        await self._settles(within_s)

    async def _settles(self, within_s: float) -> None:
        await self._within(self._settled.wait(), within_s)

    async def _within(self, waited: Coroutine[Any, Any, Any], within_s: float) -> None:
        waiting = asyncio.create_task(waited)
        try:
            await wait_for_task(waiting, clock=self._clock, timeout_s=within_s)
        finally:
            waiting.cancel()

    async def _keep(self) -> None:
        while True:
            self._is_told = self._is_forgotten = False
            self._why = await self._live()
            self._connection = None
            if self._over.is_set():
                return
            if self._is_forgotten:
                continue  # it lives: each new session is one that a request wanted
            pause_s = None if self._is_given_up else self._budget.next_pause()
            if pause_s is None:
                if not self._is_given_up:
                    self._why += f"; it was started {RESTARTS} times again, and is given up"
                self._is_given_up = True
                self.say(self._why)
                self._settled.set()
                if not self._may_come_back:
                    return
                await self._wanted.wait()  # others start it again: each call and each turn looks once
                self._wanted.clear()
                self._is_given_up = False
                continue
            if not self._is_told:
                self._say_died(f"{self._why}; it is started again")
            if self._listing is None:
                self._settled.set()  # a turn that waits for its start goes without it
            await sleep(self._clock, seconds=pause_s)

    async def _live(self) -> str:
        """One life of it: why it ended."""
        from turnwise.tools.mcp.connection import connected

        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def hear(why: str) -> None:
            if not gone.done():
                gone.set_result(why)
                connection, self._connection = self._connection, None
                if connection is not None and not self._over.is_set():
                    self._is_told = True
                    self._say_died(self._what_follows(why, connection=connection))

        over = asyncio.create_task(self._over.wait())
        try:
            async with AsyncExitStack() as stack:
                async with Watchdog(self._clock, total_s=STARTING_S):
                    opening = connected(self.entry, clock=self._clock, scratch=self._scratch, gone=hear)
                    connection = await stack.enter_async_context(opening)
                self._connection = connection
                self._take_listing(connection)
                self._why = ""
                self._settled.set()
                await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
                self._connection = None
                if connection.is_forgotten:
                    self._is_forgotten = True
                    await self._within(connection.drained(), DRAIN_S)
            return gone.result() if gone.done() else ""
        except Overdue:
            return f"it did not start within {STARTING_S:g} s"
        except McpFailure as error:
            self._is_given_up = self._is_final = error.is_final
            return str(error)
        except Exception as error:  # noqa: BLE001 (whatever a server makes of the library; a task group wraps it)
            return gone.result() if gone.done() else _words(error)
        finally:
            over.cancel()

    def _take_listing(self, connection: "Connection") -> None:
        before, self._listing = self._listing, connection.listing
        if before is not None:
            if changed := before.changed_to(self._listing):
                self.say(f"its tools have changed ({changed}); the next turn has them as they are now")
            for text in _odd_tools_of(self._listing):
                if text not in _odd_tools_of(before):
                    self.say(text)

    def _what_follows(self, why: str, *, connection: "Connection") -> str:
        if connection.is_forgotten:
            return f"{why}: turnwise opens a new one, and what the server kept in the old one is gone"
        return f"{why}; it is started again" if self._budget.is_left else why

    def _say_died(self, text: str) -> None:
        """Where nobody listens, the next one is told; of a first start `shortcomings` tell."""
        if self._listeners:
            self.say(text)
        elif self._listing is not None:
            self._unheard = text

    def say(self, text: str) -> None:
        """Tell all listeners."""
        for tell in tuple(self._listeners):
            tell(self._named(text))

    def _named(self, text: str) -> str:
        return f"the MCP server `{self.entry.name}`: {text}"


def _odd_tools_of(listing: "Listing") -> list[str]:
    return [
        f"{said}: {'; '.join(of[:SHOWN])}{f', and {len(of) - SHOWN} more' if len(of) > SHOWN else ''}"
        for said, of in (
            ("some of its tools cannot be offered", listing.left_out),
            ("the schemas of some of its tools were mended", listing.mended),
            ("its prompts cannot be listed", (listing.odd_prompts,) if listing.odd_prompts else ()),
        )
        if of
    ]


async def _import_mcp() -> None:
    """In a thread: it takes a second, and the event loop has other things to do."""
    require_extras("mcp")
    await in_thread(lambda: importlib.import_module("turnwise.tools.mcp.connection"), name="turnwise-mcp")


def _words(error: BaseException) -> str:
    """The first error of a group, in a line; no text of it: it may hold an address with a key."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return f"the connection failed (`{type(error).__name__}`)"
