"""What a user's function learns about the run that it works for: a `RunContext`, as its first argument."""

import asyncio
import hashlib
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, cast

from typing_extensions import TypeVar

from turnwise.base.clock import Clock, ends_in_time
from turnwise.errors import CallerError
from turnwise.rules.permission_facts import CallFacts, Keeps, Mode
from turnwise.rules.read_only_commands import JudgedPrograms
from turnwise.running.tool_output import traceback_of
from turnwise.turn.config import Approval, ToolOffer
from turnwise.turn.events import CallsInspected, InspectCalls, PlannedCall, RunTools
from turnwise.turn.verdicts import changed_since
from turnwise.vocab import NO_USAGE, ToolCall, ToolResult, Usage
from turnwise.vocab.file_names import unmarked

# What travels with a call to the code that opens its paths or waits: what the call was judged on, the time that the turn leaves
# it, and its turn.


Value = TypeVar("Value")

_of_runs: list[tuple[ContextVar[Any], object]] = []


def variable_of_run(name: str, *, default: Value) -> ContextVar[Value]:
    """A context variable of one run and of everything that works for it. Another run does not inherit it (`apart`)."""
    variable: ContextVar[Value] = ContextVar(f"turnwise_{name}", default=default)
    _of_runs.append((variable, default))
    return variable


def apart() -> Context:
    """The current context for a new run: with the program's variables, and without those of a running run. A tool may start other
    runs, and so may a task that a tool has started and that lives longer."""
    context = copy_context()
    for variable, default in _of_runs:
        context.run(variable.set, default)
    return context


_judged: ContextVar[frozenset[Path] | None] = variable_of_run("judged_paths", default=None)

_seconds: ContextVar[float | None] = variable_of_run("seconds_given", default=None)

_computes: ContextVar[bool] = variable_of_run("computes", default=False)

_unasked: ContextVar[bool] = variable_of_run("runs_unasked", default=False)

_programs: ContextVar[JudgedPrograms | None] = variable_of_run("judged_programs", default=None)

_keeps: ContextVar[Keeps] = variable_of_run("keeps", default="")

# Not of one run: what a tool starts by itself is in the same mode.
_mode: ContextVar[Callable[[], Mode] | None] = ContextVar("turnwise_mode", default=None)

_call: ContextVar[str] = variable_of_run("call_at_work", default="")

_turn: ContextVar[str] = variable_of_run("turn_at_work", default="")


@contextmanager
def judged_paths(paths: Iterable[Path | str] | None) -> Generator[None]:
    """Inside this block, the file tools touch only these resolved paths, inside the workspace or outside; a folder includes what
    lies below it. A path that leads elsewhere by now is refused. None means that there was no judgement. Also holds for tasks and
    threads that begin inside."""
    token = _judged.set(None if paths is None else frozenset(Path(unmarked(str(path))) for path in paths))
    try:
        yield
    finally:
        _judged.reset(token)


def was_judged(path: Path) -> bool | None:
    """Whether the current call was judged on the resolved `path`; None if no judgement was passed on."""
    judged = _judged.get()
    if judged is None:
        return None
    return path in judged or not judged.isdisjoint(path.parents)


@contextmanager
def judged_programs(programs: JudgedPrograms | None, *, unasked: bool = False, keeps: Keeps = "") -> Generator[None]:
    """Inside this block, a command runs these programs under their names. `unasked`: nobody was asked about the command. `keeps`
    is what it finds read-only. Also holds for tasks and threads that begin inside."""
    token, before, kept = _programs.set(programs), _unasked.set(unasked), _keeps.set(keeps)
    try:
        yield
    finally:
        _keeps.reset(kept)
        _unasked.reset(before)
        _programs.reset(token)


@contextmanager
def in_mode(mode: Callable[[], Mode]) -> Generator[None]:
    """Inside this block, `mode` says in which mode the session is now: plan mode holds at once, also for calls that were judged
    before. Also holds for tasks and threads that begin inside, so for sub-agents."""
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def is_planning() -> bool:
    """Whether the person has the session in plan mode now."""
    mode = _mode.get()
    return mode is not None and mode() == "plan"


def kept_of_command() -> Keeps:
    """What the current command finds read-only."""
    return "folder" if is_planning() else _keeps.get()


def programs_at_hand() -> JudgedPrograms | None:
    """The programs that the current command was judged on. None if no judgement was passed on, or if PATH leaves no doubt."""
    return _programs.get()


def runs_unasked() -> bool:
    """Whether the current command runs because turnwise judged it harmless: neither a person nor a rule allowed it."""
    return _unasked.get()


class CallTerms:
    """Inside this block, a tool with its own deadline has at most these `seconds` (None: as many as it asks for). Results go to a
    program that `computes` with them, or (False) to the model. `call` is the call's name, unique over all turns. Also holds for
    tasks and threads that begin inside.

    This is not a generator like the functions around it: each call of a tool passes here, and two generators take three times the
    calls.
    """

    __slots__ = ("_call", "_computes", "_seconds", "_tokens")

    def __init__(self, *, seconds: float | None, computes: bool, call: str = "") -> None:
        self._seconds = seconds
        self._computes = computes
        self._call = call

    def __enter__(self) -> None:
        self._tokens = _seconds.set(self._seconds), _computes.set(self._computes), _call.set(self._call)

    def __exit__(self, *_: object) -> None:
        seconds, computes, call = self._tokens
        _call.reset(call)
        _computes.reset(computes)
        _seconds.reset(seconds)


def is_for_program() -> bool:
    """Whether the result of the current call must be the bare value, without further text."""
    return _computes.get()


def call_at_work() -> str:
    """The name of the current call, the same in a process that continues the turn; empty outside of any call."""
    return _call.get()


def seconds_of(wanted_s: float) -> tuple[float, bool]:
    """How many of the wanted seconds the current call gets, and whether the turn's time makes them fewer."""
    given_s = _seconds.get()
    return (wanted_s, False) if given_s is None or given_s >= wanted_s else (given_s, True)


@contextmanager
def working_for(turn_id: str) -> Generator[None]:
    """Inside this block, changes belong to that turn, also those of its sub-agents. Also holds for tasks and threads that begin
    inside."""
    token = _turn.set(turn_id)
    try:
        yield
    finally:
        _turn.reset(token)


def turn_at_work() -> str:
    """The id of the turn of the current call; empty outside of any call."""
    return _turn.get()


# The facts of calls, from an inspector, which may be foreign code. If it fails, nothing is known about the call, and turnwise
# asks about it: a failure neither ends the turn nor lets a call through.


INSPECT_S = 10.0  # twice the time that the workspace's inspector gives itself: that one says why it found nothing
SETTLE_S = 0.5

_log = logging.getLogger("turnwise")

Inspector = Callable[[Sequence[PlannedCall]], Awaitable[Sequence[CallFacts]]]
"""Finds the facts of calls: resolved paths, parsed shell commands. Facts that are missing after an omission, an error or
`INSPECT_S` seconds are unknown, and turnwise asks about the call."""


async def find_facts(
    order: InspectCalls, *, inspector: Inspector | None, clock: Clock, scrub: Callable[[str], str] = str
) -> CallsInspected:
    """The facts that the inspector found in time. Its errors are logged, through `scrub`."""
    if inspector is None:
        return CallsInspected(facts=())
    task = asyncio.create_task(_found(inspector, order.calls, scrub=scrub))
    if not await ends_in_time(task, clock=clock, timeout_s=INSPECT_S, settle_s=SETTLE_S):
        _log.warning("the inspector of calls found nothing within %g s; they are asked about", INSPECT_S)
        return CallsInspected(facts=())
    return CallsInspected(facts=() if task.cancelled() else task.result())


async def find_changed(
    order: RunTools,
    *,
    inspector: Inspector | None,
    offers: Mapping[str, ToolOffer],
    clock: Clock,
    scrub: Callable[[str], str] = str,
) -> dict[str, ToolResult]:
    """The results of calls that would now do something else than what a person saw and allowed, by call id."""
    shown = [plan for plan in order.calls if plan.shown and plan.call.name in offers]
    inspected = tuple([plan for plan in shown if offers[plan.call.name].inspected])
    found = CallsInspected(facts=())
    if inspected:
        look = InspectCalls(step=order.step, calls=inspected)
        found = await find_facts(look, inspector=inspector, clock=clock, scrub=scrub)
    return changed_since(shown, facts={one.call_id: one for one in found.facts}, offers=offers)


async def _found(
    inspector: Inspector, calls: Sequence[PlannedCall], *, scrub: Callable[[str], str]
) -> tuple[CallFacts, ...]:
    """Raises nothing but a cancellation."""
    try:
        given = tuple(cast("Sequence[object]", await inspector(calls)))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 (a stranger's: `sys.exit()` in it must not end the program)
        _log.warning("the inspector of calls raised; they are asked about\n%s", traceback_of(error, scrub=scrub))
        return ()
    facts = tuple([one for one in given if isinstance(one, CallFacts)])
    if len(facts) < len(given):
        _log.warning("the inspector of calls found what are no CallFacts; such calls are asked about")
    return facts


_NO_LABELS: Mapping[str, str] = MappingProxyType({})
Deps_co = TypeVar("Deps_co", covariant=True, default=Any)


class RunAtHand:
    """One run, as the contexts of its functions see it. The runner sets `so_far`, which gives the current step and the usage.

    No text that is made of it shows the deps: they may hold a password.
    """

    __slots__ = ("deps", "labels", "path", "session", "so_far")

    def __init__(
        self,
        *,
        deps: object = None,
        session: str = "",
        path: tuple[str, ...] = (),
        labels: Mapping[str, str] = _NO_LABELS,
    ) -> None:
        self.deps = deps
        self.session = session
        self.path = path
        self.labels = labels
        self.so_far: Callable[[], tuple[int, Usage]] = _nothing_yet


class WorkingCall(Protocol):
    """The call that a tool's context belongs to."""

    def report(self, text: str) -> None: ...

    async def ask(self, question: str, *, options: Sequence[str], why: str) -> Approval: ...

    def ask_sync(self, question: str, *, options: Sequence[str], why: str) -> Approval: ...


class RunContext(Generic[Deps_co]):
    """What a tool, a hook, an instruction or an output check knows about its run. It is their first parameter; the
    model does not see it.

    - `deps` is what the run got as `deps=`, or what its `DepsFactory` made.
    - `call` is the call that a tool answers. It is None outside of tools.
    - `call_key` names this call of the tool, and no other: give it to a service as its idempotency key. It is the same
      if the call runs again after a crash, also on another machine, and in the tool's `reconcile`. It is 40 letters and
      digits, and empty outside of tools.
    - `step` counts from 1. It is 0 before the first step.
    - `usage` is what the run had used (in tokens) when the function was called, without its sub-agents.
    - `session` is the id of the session. `path` names the sub-agents that lead to this run, outermost first.

    Make one yourself to call a tool in a test: `find(RunContext(deps=fake), "pear")`.
    """

    __slots__ = ("_work", "call", "call_key", "deps", "path", "session", "step", "usage")

    def __init__(
        self,
        deps: Deps_co,
        *,
        call: ToolCall | None = None,
        call_key: str = "",
        step: int = 0,
        usage: Usage = NO_USAGE,
        session: str = "",
        path: tuple[str, ...] = (),
        work: WorkingCall | None = None,
    ) -> None:
        self._work = work
        self.deps = deps
        self.call = call
        self.call_key = call_key
        self.step = step
        self.usage = usage
        self.session = session
        self.path = path

    def __repr__(self) -> str:
        called = "" if self.call is None else f" call={self.call.name!r}"
        return f"<RunContext session={self.session!r} step={self.step}{called}>"

    def report(self, text: str) -> None:
        """Show the progress of a tool: watchers get the last line of `text` as a `ToolProgress` event.

        A line has at most 200 characters. The first report is shown at once, and the last report is always shown. Of the
        reports between them, a few are shown each second. You may call it from any thread. Outside of a tool it does
        nothing. Raises CallerError if `text` is no text.
        """
        given = cast("object", text)
        if not isinstance(given, str):
            raise CallerError(f"`context.report(...)` must be given a text, not {type(given).__name__}")
        if self._work is not None:
            self._work.report(text)

    async def ask(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        """Ask a person a question while the tool runs, and wait for the answer. Until then the tool's own time stands still,
        but the turn's time goes on.

        The run's approver gets an ask with `kind="question"` and `by="tool"`, and has `Deadlines.ask_s` seconds.
        `options` are answers to offer; `why` says why the tool asks. The returned `Approval` has a `verdict` (`allow`
        or `deny`) and a `text`.

        Without an approver, or if the policy is not attended, the verdict is the policy's `unattended`, with
        `by="default"`; a tool at work cannot wait for `later`, so that is `deny`. If nobody answers in time, it is `deny`.
        Raises CallerError outside of a tool.
        """
        return await self._asker().ask(question, options=options, why=why)

    def ask_sync(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        """The same as `ask`, for a plain function. Such a tool runs in a thread of its own."""
        return self._asker().ask_sync(question, options=options, why=why)

    def _asker(self) -> WorkingCall:
        if self._work is None:
            raise CallerError("only a tool at work can ask: this `RunContext` belongs to no call")
        return self._work


def context_of(
    run: RunAtHand | None, *, call: ToolCall | None = None, work: WorkingCall | None = None
) -> RunContext[Any]:
    """A context of the run in its current state. Without a run, the context is empty."""
    key = "" if call is None else key_of_call(call_at_work())
    if run is None:
        return RunContext(None, call=call, call_key=key, work=work)
    step, usage = run.so_far()
    return RunContext(
        run.deps, call=call, call_key=key, step=step, usage=usage, session=run.session, path=run.path, work=work
    )


def key_of_call(name: str) -> str:
    """The name of a call (turn and call id) in letters and digits of a fixed length, which every service takes as a key."""
    return hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:40] if name else ""


_given: ContextVar["Callable[[], RunContext[Any]] | None"] = variable_of_run("context_given", default=None)


@contextmanager
def giving(make: Callable[[], RunContext[Any]]) -> Generator[None]:
    """Inside this block, a tool that takes a context gets what `make` makes. Also holds for tasks and threads that begin
    inside."""
    token = _given.set(make)
    try:
        yield
    finally:
        _given.reset(token)


def context_at_hand() -> RunContext[Any]:
    """The context of the current call; outside of any run an empty one."""
    make = _given.get()
    return context_of(None) if make is None else make()


def is_context(hint: object) -> bool:
    return hint is RunContext or typing.get_origin(hint) is RunContext


def holds_context(hint: object) -> bool:
    """Whether a context occurs anywhere in the hint: `RunContext[Db] | None`."""
    return is_context(hint) or any(holds_context(inner) for inner in typing.get_args(hint))


def deps_class_of(hint: object) -> type | None:
    """The class that a context's deps must have, if its hint names a class that can be checked."""
    (wanted,) = typing.get_args(hint) or (Any,)
    return class_of(wanted)


def class_of(wanted: object) -> type | None:
    """What `isinstance` can check: for `dict[str, int]` the class `dict`. None for None, a union, `Any`, or a protocol that
    cannot be checked at run time."""
    kind: object = typing.get_origin(wanted) or wanted
    if not isinstance(kind, type) or kind is type(None):
        return None
    try:
        isinstance(None, kind)
    except TypeError:
        return None
    return kind


def wants_context(function: Callable[..., object], *, beside: int) -> bool:
    """Whether a function that takes `beside` other arguments wants a context before them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of an extension has no signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in positional and one.default is one.empty]
    return len(needed) == beside + 1


def check_takes_context(function: Callable[..., object], *, what: str) -> None:
    """Raise CallerError for a function that cannot be called with a context alone."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise CallerError(f"{what}: it must take one argument, the `RunContext`") from None
    except ValueError:  # a function of an extension has no signature
        return


def _nothing_yet() -> tuple[int, Usage]:
    return 0, NO_USAGE
