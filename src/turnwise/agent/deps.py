"""What a run's own functions need beside their arguments (a database, a user's id). The caller gives it, or a factory makes
it."""

import asyncio
import contextlib
import inspect
import logging
import typing
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast, overload

import msgspec

from turnwise.base.clock import Clock, Overdue, wait_for_task
from turnwise.errors import CallerError
from turnwise.journal.session_rows import NO_LABELS, Labels
from turnwise.running.hooks import SETTLE_S, said_by
from turnwise.running.run_context import RunAtHand, class_of
from turnwise.running.tools import Tool

THREAD = "turnwise-deps"

_log = logging.getLogger("turnwise")

Deps = TypeVar("Deps")


class SessionKey(msgspec.Struct, frozen=True, kw_only=True):
    """What a `DepsFactory` learns about the run.

    `id` is the id of the session; it is the same after a crash. `labels` are the labels that the session was begun with
    (the run option `labels`). `path` names the sub-agents that lead to the run, outermost first. It is empty at the root.
    """

    id: str
    labels: Mapping[str, str] = {}
    path: tuple[str, ...] = ()


class DepsFactory(Generic[Deps]):
    """Makes the deps of runs that get no `deps=`: `Agent(deps_type=DepsFactory(function))`.

    `function` takes a `SessionKey`. It may be async; a plain function runs in a thread of its own. If
    `contextlib.asynccontextmanager` made it, the run enters it, and leaves it when the run ends; it sees what the run
    raised. Opening and closing have `Deadlines.hook_s` seconds each.

    The run raises what the opening raises. A closing that fails or is late is logged.
    """

    @overload
    def __init__(self, function: Callable[[SessionKey], AbstractAsyncContextManager[Deps, bool | None]], /) -> None: ...
    @overload
    def __init__(self, function: Callable[[SessionKey], Awaitable[Deps]], /) -> None: ...
    @overload
    def __init__(self, function: Callable[[SessionKey], Deps], /) -> None: ...
    def __init__(self, function: Callable[[SessionKey], Any], /) -> None:
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise CallerError(
                f"`DepsFactory`: `{name_of(function)}` is a generator function: write `@asynccontextmanager` above an async one, "
                "or return the deps"
            )
        self.function = function

    def __repr__(self) -> str:
        return f"DepsFactory({name_of(self.function)})"


def factory_of(wanted: object) -> DepsFactory[object] | None:
    """The factory that `deps_type` is; None if it is a type."""
    return cast("DepsFactory[object]", wanted) if isinstance(wanted, DepsFactory) else None


class DepsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The deps that an agent's runs need: its `deps_type`, its `tools`, and the same for the agents `below` it. `timeout_s` is
    how many seconds making the deps may take, and closing them."""

    wanted: object
    tools: Sequence[Tool]
    below: "Mapping[str, DepsWanted]"
    clock: Clock
    timeout_s: float

    @property
    def lacks_factory(self) -> bool:
        """Whether a run cannot begin unless the caller gives deps."""
        if self.wanted is None:
            return any(one.lacks_factory for one in self.below.values())
        return factory_of(self.wanted) is None

    @contextlib.asynccontextmanager
    async def opened(
        self,
        options: Mapping[str, object],
        *,
        session: str,
        labels: Labels = NO_LABELS,
        path: tuple[str, ...] = (),
        above: RunAtHand | None = None,
    ) -> AsyncGenerator[RunAtHand]:
        """A run with its deps: those of its options, or those that the factory makes. A sub-agent that wants deps has those of
        the run `above`. Raises CallerError if they do not fit."""
        factory = factory_of(self.wanted)
        if above is not None:
            labels = above.labels
        if factory is not None and "deps" not in options:
            key = SessionKey(id=session, labels=MappingProxyType(dict(labels)), path=path)
            async with _made(factory.function, key=key, clock=self.clock, timeout_s=self.timeout_s) as deps:
                self._check_tools(deps)
                yield RunAtHand(deps=deps, session=session, path=path, labels=labels)
            return
        deps = options.get("deps") if above is None or self.wanted is None else above.deps
        check_deps(deps, wanted=self.wanted)
        self._check_tools(deps)
        yield RunAtHand(deps=deps, session=session, path=path, labels=labels)

    def _check_tools(self, deps: object, *, of: str = "") -> None:
        """Raise CallerError if a tool of this agent or of a sub-agent cannot work with these deps."""
        for tool in self.tools:
            if tool.deps is None or isinstance(deps, tool.deps):
                continue
            name = tool.deps.__name__
            has = "has no deps" if deps is None else f"has a `{type(deps).__name__}` as its deps"
            hint = f"give the sub-agent `deps_type={name}`" if of else f"give a `{name}` as `deps=`"
            raise CallerError(
                f"the tool `{tool.name}` takes a `RunContext[{name}]`, and {of or 'the run'} {has}: {hint}"
            )
        for name, one in self.below.items():
            if factory_of(one.wanted) is None:
                check_deps(deps, wanted=one.wanted, of=f"the sub-agent `{name}`")
                one._check_tools(None if one.wanted is None else deps, of=f"the sub-agent `{name}`")


@contextlib.asynccontextmanager
async def _made(
    function: Callable[[SessionKey], object], *, key: SessionKey, clock: Clock, timeout_s: float
) -> AsyncGenerator[object]:
    late = CallerError(
        f"`deps_type`: `{name_of(function)}` did not make the deps within {timeout_s:g} s: make it quicker, or raise "
        "`Deadlines(hook_s=...)`"
    )
    try:
        made = await said_by(function, key, clock=clock, timeout_s=timeout_s, name="deps", thread=THREAD)
    except Overdue:
        raise late from None
    if made.error is not None:
        raise made.error
    if not isinstance(
        made.value, contextlib.AsyncContextDecorator
    ):  # another object may be shared (a pool) and must stay open
        yield made.value
        return
    held = _Held(cast("AbstractAsyncContextManager[object]", made.value), clock=clock, timeout_s=timeout_s)
    try:
        deps = await held.open()
    except Overdue:
        raise late from None
    try:
        yield deps
    except BaseException as error:
        await held.close(error)
        raise
    await held.close(None)


class _Held:
    """A context manager that one task enters and leaves, because some managers belong to a task."""

    def __init__(self, manager: AbstractAsyncContextManager[object], *, clock: Clock, timeout_s: float) -> None:
        self._manager, self._clock, self._timeout_s = manager, clock, timeout_s
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[None] = loop.create_future()
        self._released: asyncio.Future[None] = loop.create_future()
        self._deps: list[object] = []

    async def open(self) -> object:
        """Enter the manager. Raises Overdue, and what the manager raises."""
        self._task = asyncio.create_task(self._hold(), name="deps")
        try:
            await wait_for_task(self._task, clock=self._clock, timeout_s=self._timeout_s, over=self._entered)
        except asyncio.CancelledError:
            self._task.cancel()
            await wait_for_task(self._task, clock=self._clock, timeout_s=SETTLE_S)
            raise
        if self._deps:
            return self._deps[0]
        if not self._task.done():
            self._task.cancel()
            await wait_for_task(self._task, clock=self._clock, timeout_s=SETTLE_S)
            raise Overdue("deps", self._timeout_s)
        self._task.result()
        raise CallerError("`deps_type`: the context manager ended without giving the deps")

    async def close(self, error: BaseException | None) -> None:
        """Leave the manager; it sees what the run raised. Raises nothing but a cancellation."""
        if error is None:
            self._released.set_result(None)
        else:
            self._released.set_exception(error)
        try:
            ended = await wait_for_task(self._task, clock=self._clock, timeout_s=self._timeout_s)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not ended:
            self._task.cancel()
            await wait_for_task(self._task, clock=self._clock, timeout_s=SETTLE_S)
            _log.warning("the deps of a run were not closed within %g s and were left behind", self._timeout_s)
        elif not self._task.cancelled() and (failed := self._task.exception()) is not None and failed is not error:
            _log.warning("closing the deps of a run raised `%s`", type(failed).__name__)

    async def _hold(self) -> None:
        async with self._manager as deps:
            self._deps.append(deps)
            if not self._entered.done():
                self._entered.set_result(None)
            await self._released


def is_deps_type(wanted: object) -> bool:
    """Whether an agent may have this as its `deps_type`: a factory, None, a class, or a type of `typing` (`Db | None`, `Any`)."""
    is_typing = typing.get_origin(wanted) is not None or type(wanted).__module__ == "typing"
    return wanted is None or isinstance(wanted, DepsFactory | type) or is_typing


def check_deps(deps: object, *, wanted: object, of: str = "this agent") -> None:
    """Raise CallerError if an agent without a factory wants deps, and these are not of that type."""
    if wanted is None or wanted is type(None) or factory_of(wanted) is not None:
        return
    name = name_of(wanted)
    if deps is None:
        raise CallerError(
            f"{of} has `deps_type={name}`: give the run `deps=`, or the agent a function that makes them, "
            "`deps_type=DepsFactory(...)`"
        )
    kind = class_of(wanted)
    if kind is not None and not isinstance(deps, kind):
        raise CallerError(f"{of} has `deps_type={name}`, and the run's `deps` are a `{type(deps).__name__}`")


def name_of(thing: object) -> str:
    return str(getattr(thing, "__name__", None) or type(thing).__name__)
