"""What travels with a call to the code that opens its paths or waits: what the call was judged on, the time that the turn leaves
it, and its turn."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from pathlib import Path
from typing import Any, TypeVar, cast

from turnwise.base.clock import Clock, ends_in_time
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.read_only_commands import JudgedPrograms
from turnwise.running.tool_output import words_of
from turnwise.turn.commands import InspectCalls, PlannedCall, RunTools
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import CallsInspected
from turnwise.turn.verdicts import changed_since
from turnwise.vocab import ToolResult
from turnwise.vocab.file_names import unmarked

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
def judged_programs(programs: JudgedPrograms | None, *, unasked: bool = False) -> Generator[None]:
    """Inside this block, a command runs these programs under their names. `unasked`: nobody was asked about the command. Also
    holds for tasks and threads that begin inside."""
    token, before = _programs.set(programs), _unasked.set(unasked)
    try:
        yield
    finally:
        _unasked.reset(before)
        _programs.reset(token)


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
        _log.warning("the inspector of calls raised %s; they are asked about", scrub(words_of(error)))
        return ()
    facts = tuple([one for one in given if isinstance(one, CallFacts)])
    if len(facts) < len(given):
        _log.warning("the inspector of calls found what are no CallFacts; such calls are asked about")
    return facts
