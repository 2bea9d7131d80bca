"""Toolsets: the methods of an object, and any toolset with other names, fewer tools, or calls that are asked about."""

import asyncio
import contextlib
import contextvars
import difflib
import fnmatch
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Protocol, cast, runtime_checkable
from weakref import WeakKeyDictionary

import msgspec

from turnwise.agent.children import AgentTool, Subagents
from turnwise.agent.schemas import check_tool_name
from turnwise.agent.tools import FunctionTool, OneTool, Toolset, is_toolset, read_tool, tool
from turnwise.base.clock import Clock, Overdue, Watchdog
from turnwise.errors import BadTool, CallerError, TurnwiseError
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule
from turnwise.running.run_context import Inspector
from turnwise.running.tools import CallJudging, Tool
from turnwise.running.watcher_events import ToolsetNoted, Watch
from turnwise.turn.config import Effect
from turnwise.turn.events import PlannedCall
from turnwise.vocab import ToolSpec

GLOB = frozenset("*?[")


class MethodsOf:
    """The public methods of an object as tools: those whose parameters all have type hints.

    `names` chooses some of the methods, in that order. `keep` takes a name and returns whether this method is a tool.
    `effect` is what these tools do to the world; a method with its own `@tool(...)` keeps the options of that. Raises
    BadTool if a name is no public method, or if a method cannot be described to a model. Raises CallerError if no method is
    left.
    """

    def __init__(
        self,
        instance: object,
        *,
        names: Sequence[str] = (),
        keep: Callable[[str], bool] = bool,
        effect: Effect = "none",
    ) -> None:
        kind = type(instance).__name__
        if isinstance(names, str):
            raise CallerError(f'`names` of `MethodsOf` must be a list, also of a single one: `names=["{names}"]`')
        public = _public_methods(instance)
        if strange := [name for name in names if name not in public]:
            raise BadTool(f"`{strange[0]}` is no public method of `{kind}`. {_offers(strange[0], among=list(public))}")
        chosen = names or [name for name, method in public.items() if _is_hinted(method)]
        self._of = kind
        self._tools = [_method_tool(public[name], effect=effect) for name in chosen if keep(name)]
        if not self._tools:
            raise CallerError(
                f"`MethodsOf({kind})` has no tool: no public method whose parameters have type hints is left"
            )

    async def tools(self) -> Sequence[OneTool]:
        """The methods, as tools. Each turn gets the same tools."""
        return self._tools

    def __repr__(self) -> str:
        return f"MethodsOf({self._of})"


class WrappedToolset:
    """A toolset whose tools are changed, as `prefixed`, `filtered` and `approved` return it. It is opened together with the inner
    one."""

    def __init__(
        self, source: "Toolset | Sequence[OneTool]", change: Callable[[Sequence[Tool]], Sequence[Tool]], said: str
    ) -> None:
        if not is_toolset(source) and not isinstance(source, Sequence):
            raise CallerError(f"`{said}` wants a toolset or a list of tools")
        self._source: Toolset | Sequence[OneTool] = source
        self._change, self._said = change, said

    @property
    def innermost(self) -> object:
        """The toolset to open and close: the first inner toolset that is no wrapper."""
        return self._source.innermost if isinstance(self._source, WrappedToolset) else self._source

    async def tools(self) -> Sequence[OneTool]:
        source = self._source
        given = source if isinstance(source, Sequence) else await offered_by(source)
        return self._change([read_one_tool(one) for one in given])

    def __repr__(self) -> str:
        return f"{self._said}({name_of(self._source)})"


def prefixed(source: Toolset | Sequence[OneTool], prefix: str) -> Toolset:
    """The same tools with `prefix` in front of each name. In rules and hooks, use the longer name."""

    check_tool_name(f"{prefix}a")

    def change(tools: Sequence[Tool]) -> Sequence[Tool]:
        inspectors: dict[Inspector, Inspector] = {}
        return [_renamed(one, f"{prefix}{one.name}", prefix=prefix, inspectors=inspectors) for one in tools]

    return WrappedToolset(source, change, "prefixed")


def filtered(
    source: Toolset | Sequence[OneTool], *names: str, keep: Callable[[ToolSpec], bool] | None = None
) -> Toolset:
    """Only the tools with these names (globs: `read_*`). With `keep`, only those of them for which `keep` returns True.

    If the toolset does not offer a name (one without a glob), the run raises CallerError when it begins.
    """

    if not names and keep is None:
        raise CallerError("`filtered` needs names, or `keep=`: without them nothing is left out")

    def change(tools: Sequence[Tool]) -> Sequence[Tool]:
        _check_offered(names, tools=tools, what="filtered")
        return [one for one in tools if _is_named(one, names) and (keep is None or keep(one.offer.spec))]

    return WrappedToolset(source, change, "filtered")


def approved(source: Toolset | Sequence[OneTool], *names: str) -> Toolset:
    """The same tools, but turnwise asks before each call, through the agent's policy. Names (globs) choose some of the
    tools.

    A rule of the policy that allows such a call does not replace the ask. An answer with `always=True` allows the tool for
    the rest of the turn. The run raises CallerError if the agent has neither a policy nor an approver, or if the
    toolset does not offer a name.
    """

    def change(tools: Sequence[Tool]) -> Sequence[Tool]:
        _check_offered(names, tools=tools, what="approved")
        return [_asked(one) if _is_named(one, names) else one for one in tools]

    return WrappedToolset(source, change, "approved")


async def offered_by(toolset: Toolset) -> Sequence[OneTool]:
    """What the toolset offers now. Raises CallerError if that is not a list, and whatever the toolset raises."""
    told = cast("object", toolset.tools())
    if not inspect.isawaitable(told):
        raise CallerError(f"`tools` of the toolset `{name_of(toolset)}` must be an `async` method")
    offered: object = await told
    if not isinstance(offered, Sequence) or isinstance(offered, str | bytes | bytearray):
        kind = type(offered).__name__
        raise CallerError(f"`tools()` of the toolset `{name_of(toolset)}` must return a list of tools, not {kind}")
    return cast("Sequence[OneTool]", offered)


def read_one_tool(given: object) -> Tool:
    """One offered tool as a Tool. Raises BadTool for anything else, and for agents: those belong into the agent's own `tools`."""
    if isinstance(given, Subagents | AgentTool) or is_toolset(given):
        raise BadTool(
            f"a toolset offers tools, not a `{type(given).__name__}`: give that in `Agent(tools=[...])` itself"
        )
    return read_tool(cast("OneTool", given))


def name_of(source: object) -> str:
    """How an error names a toolset: only by its class, because its content may be secret."""
    return repr(source) if isinstance(source, MethodsOf | WrappedToolset) else type(source).__name__


def _public_methods(instance: object) -> dict[str, object]:
    """The public methods, in the order of the class definitions, base classes first. No property is read."""
    found: dict[str, object] = {}
    for kind in reversed(type(instance).__mro__):
        for name, member in vars(kind).items():
            if name.startswith("_"):
                continue
            if inspect.isfunction(member) or isinstance(member, FunctionTool | classmethod | staticmethod):
                found[name] = getattr(instance, name)
            else:
                found.pop(name, None)
    return found


def _is_hinted(method: object) -> bool:
    if isinstance(method, FunctionTool):
        return True
    parameters = inspect.signature(cast("Callable[..., object]", method)).parameters.values()
    described = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.annotation is not one.empty and one.kind not in described for one in parameters)


def _method_tool(method: object, *, effect: Effect) -> Tool:
    if isinstance(method, FunctionTool):
        return cast("FunctionTool[..., object]", method).tool
    return tool(effect=effect)(cast("Callable[..., object]", method)).tool


def _renamed(one: Tool, name: str, *, prefix: str, inspectors: dict[Inspector, Inspector]) -> Tool:
    check_tool_name(name)
    spec = msgspec.structs.replace(one.offer.spec, name=name)
    offer, judging = msgspec.structs.replace(one.offer, spec=spec), one.judging
    if judging is not None:
        rules = tuple([_rule_renamed(rule, prefix=prefix) for rule in judging.rules])
        if (inside := judging.inspect) is not None:
            inspectors.setdefault(inside, _RenamedInspector(inside, prefix))
            judging = msgspec.structs.replace(judging, inspect=inspectors[inside])
        judging = msgspec.structs.replace(judging, rules=rules)
    return msgspec.structs.replace(one, offer=offer, judging=judging)


def _rule_renamed(rule: PermissionRule, *, prefix: str) -> PermissionRule:
    return msgspec.structs.replace(rule, tool=f"{prefix}{rule.tool}")


class _RenamedInspector(msgspec.Struct, frozen=True):
    """Finds the facts of calls under the tools' inner names."""

    inside: Inspector
    prefix: str

    async def __call__(self, calls: Sequence[PlannedCall]) -> Sequence[CallFacts]:
        names = {plan.call.id: plan.call.name for plan in calls}
        found = await self.inside([self._as_inside(plan) for plan in calls])
        return [msgspec.structs.replace(one, tool=names[one.call_id]) for one in found if one.call_id in names]

    def _as_inside(self, plan: PlannedCall) -> PlannedCall:
        call = msgspec.structs.replace(plan.call, name=plan.call.name.removeprefix(self.prefix))
        return msgspec.structs.replace(plan, call=call)


def _asked(one: Tool) -> Tool:
    judging = msgspec.structs.replace(one.judging or CallJudging(), asked=True)
    return msgspec.structs.replace(one, judging=judging)


def _is_named(one: Tool, names: Sequence[str]) -> bool:
    return not names or any(fnmatch.fnmatchcase(one.name, name) for name in names)


def _check_offered(names: Sequence[str], *, tools: Sequence[Tool], what: str) -> None:
    offered = [one.name for one in tools]
    for name in names:
        if name not in offered and not GLOB & set(name):
            raise CallerError(f"`{what}` names `{name}`, which is not among its tools. {_offers(name, among=offered)}")


def _offers(name: str, *, among: Sequence[str]) -> str:
    if near := difflib.get_close_matches(name, among, n=1):
        return f"Did you mean `{near[0]}`?"
    return f"There are: {', '.join(among) or 'none'}"


# Open toolsets: each is open once in an event loop, however many agents and runs use it, and is closed after the last user.


_Opens = AbstractAsyncContextManager[object]

CLOSE_S = 5.0  # a server that was told to end may finish its writes
SETTLE_S = 0.5  # for a cancelled toolset, as for a tool

_log = logging.getLogger("turnwise")


class _Keeper:
    """Holds one toolset open in a task of its own: the task that enters it must also leave it (anyio's groups).

    Its context is empty. What a toolset starts continues for other runs: in the context of the run that opened it, it would find
    that run's context variables, such as the user of a web request.
    """

    def __init__(self, toolset: _Opens, *, before: "asyncio.Task[None] | None") -> None:
        self.toolset, self.users = toolset, 0
        self.opened: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.task = asyncio.create_task(
            self._keep(before), name=f"toolset {name_of(toolset)}", context=contextvars.Context()
        )

    def end(self) -> None:
        """Close it, or stop opening it."""
        if self.opened.done():
            self._over.set()
        else:
            self.task.cancel()

    async def _keep(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:  # it is still closing
            await asyncio.wait({before})
        try:
            async with self.toolset:
                self.opened.set_result(None)
                await self._over.wait()
        except asyncio.CancelledError as error:
            if not self.opened.done():
                self.opened.set_result(error)
            raise
        except BaseException as error:  # noqa: BLE001 (another's code: it must not end the program)
            if self.opened.done():
                _log.warning(
                    "the toolset `%s` raised %s when it was closed", name_of(self.toolset), type(error).__name__
                )
            else:
                self.opened.set_result(error)


class _Loop:
    """The toolsets of one event loop, by identity: those in use, and those that are being closed."""

    def __init__(self) -> None:
        self.used: dict[int, _Keeper] = {}
        self.closing: dict[int, asyncio.Task[None]] = {}


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()
_left: set["asyncio.Task[None]"] = set()  # asyncio holds tasks weakly


@contextlib.asynccontextmanager
async def holding(toolsets: Iterable[Toolset], *, clock: Clock, open_s: float) -> AsyncGenerator[None]:
    """Inside this block, all of them are open. Raises CallerError if one failed or was not open within `open_s` seconds."""
    loop = _loops.setdefault(asyncio.get_running_loop(), _Loop())
    inner = [one.innermost if isinstance(one, WrappedToolset) else one for one in toolsets]
    kept = [_keeper_of(cast("_Opens", one), loop) for one in inner if isinstance(one, AbstractAsyncContextManager)]
    try:
        await _all_open(kept, clock=clock, open_s=open_s)
        yield
    finally:
        await _let_go(kept, loop=loop, clock=clock)


async def ask_all(toolsets: Sequence[Toolset], *, clock: Clock, ask_s: float) -> list[Sequence[OneTool]]:
    """The tools that each toolset offers now. Raises CallerError if one fails or does not answer in time."""
    found: list[Sequence[OneTool]] = []
    for toolset in toolsets:
        name = name_of(toolset)
        try:
            async with Watchdog(clock, total_s=ask_s):
                found.append(await offered_by(toolset))
        except Overdue:
            raise CallerError(
                f"the toolset `{name}` did not give its tools within {ask_s:g} s (`Deadlines(toolset_s=...)`)"
            ) from None
        except TurnwiseError:
            raise
        except Exception as error:
            raise CallerError(f"the toolset `{name}` could not give its tools: `{type(error).__name__}`") from error
    return found


def _keeper_of(toolset: _Opens, loop: _Loop) -> _Keeper:
    key = id(toolset)
    keeper = loop.used.get(key)
    if keeper is None:
        keeper = loop.used[key] = _Keeper(toolset, before=loop.closing.get(key))
    keeper.users += 1
    return keeper


async def _all_open(keepers: Sequence[_Keeper], *, clock: Clock, open_s: float) -> None:
    if waited := [keeper.opened for keeper in keepers if not keeper.opened.done()]:
        with contextlib.suppress(Overdue):
            async with Watchdog(clock, total_s=open_s):
                await asyncio.wait(waited)
    for keeper in keepers:
        name = name_of(keeper.toolset)
        if not keeper.opened.done():
            raise CallerError(f"the toolset `{name}` did not open within {open_s:g} s (`Deadlines(toolset_s=...)`)")
        error = keeper.opened.result()
        if isinstance(error, TurnwiseError):
            raise error
        if error is not None:
            raise CallerError(f"the toolset `{name}` could not be opened: `{type(error).__name__}`") from error


async def _let_go(keepers: Sequence[_Keeper], *, loop: _Loop, clock: Clock) -> None:
    """Close the toolsets without users. A toolset that does not close in time is left behind."""
    ending: list[_Keeper] = []
    for keeper in keepers:
        keeper.users -= 1
        if not keeper.users:
            ending.append(keeper)
            loop.used.pop(id(keeper.toolset))
            loop.closing[id(keeper.toolset)] = keeper.task
            keeper.end()
    try:
        await _ended(ending, clock=clock, within_s=CLOSE_S)
        if late := [keeper for keeper in ending if not keeper.task.done()]:
            for keeper in late:
                keeper.task.cancel()
            await _ended(late, clock=clock, within_s=SETTLE_S)
            _log.warning(
                "these toolsets did not close within %g s and were left: %s",
                CLOSE_S,
                ", ".join([name_of(keeper.toolset) for keeper in late]),
            )
    finally:
        for keeper in ending:
            loop.closing.pop(id(keeper.toolset), None)
            if not keeper.task.done():
                keeper.task.cancel()
                _left.add(keeper.task)
                keeper.task.add_done_callback(_left.discard)


async def _ended(keepers: Sequence[_Keeper], *, clock: Clock, within_s: float) -> None:
    if waited := [keeper.task for keeper in keepers if not keeper.task.done()]:
        with contextlib.suppress(Overdue):
            async with Watchdog(clock, total_s=within_s):
                await asyncio.wait(waited)


# What toolsets tell about themselves in a run: a server that did not start, or that died. The result keeps it.


MOST = 50  # a toolset that dies again and again repeats itself


@runtime_checkable
class TellingToolset(Protocol):
    """A toolset that has something to tell: `shortcomings` is what a turn that begins now should know."""

    @property
    def shortcomings(self) -> Sequence[str]: ...

    def heard_by(self, tell: Callable[[str], object], /) -> AbstractContextManager[None]: ...


class RunNotes:
    """The notes of one run, in order, each once."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._tell: Watch | None = None

    def take(self, text: str) -> None:
        """Add one note and tell the watcher."""
        if text in self._texts or len(self._texts) >= MOST:
            return
        self._texts.append(text)
        if self._tell is not None:
            self._tell(ToolsetNoted(text))

    def begin(self, tell: Watch) -> None:
        """From now on `tell` gets each note; first it gets those from before."""
        self._tell = tell
        for text in self._texts:
            tell(ToolsetNoted(text))


def listening(toolsets: Sequence[Toolset], *, stack: AsyncExitStack) -> RunNotes | None:
    """The notes of the toolsets that tell something, until `stack` is left. None: no toolset does."""
    inner = [one.innermost if isinstance(one, WrappedToolset) else one for one in toolsets]
    telling = [one for one in inner if isinstance(one, TellingToolset)]
    if not telling:
        return None
    notes = RunNotes()
    for one in telling:
        for text in one.shortcomings:
            notes.take(text)
        stack.enter_context(one.heard_by(notes.take))
    return notes


def may_ask(toolsets: Sequence[Toolset]) -> bool:
    """Whether one of their tools may ask a person in the middle of a call."""
    inner = [one.innermost if isinstance(one, WrappedToolset) else one for one in toolsets]
    return any(isinstance(one, TellingToolset) for one in inner)
