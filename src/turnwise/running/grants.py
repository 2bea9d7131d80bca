"""What a call was judged on, the time that the turn leaves it, and which turn that is, carried to the hand that opens the paths
or waits."""

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
    """A context variable that belongs to one run, and to what works for it. Another run does not inherit it (`apart`)."""
    variable: ContextVar[Value] = ContextVar(f"turnwise_{name}", default=default)
    _of_runs.append((variable, default))
    return variable


def apart() -> Context:
    """The context at hand, for a run of its own: with the program's variables, and without those of a run at work. A tool may
    start other runs, and so may a task that a tool has started and that outlives it."""
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
    """Within it, the file tools touch these resolved paths only, inside the workspace or outside of it; what lies below a
    folder goes with the folder. A path that leads elsewhere by now is refused. None is no judgement. Holds for the tasks and
    threads begun in it.
    """
    token = _judged.set(None if paths is None else frozenset(Path(unmarked(str(path))) for path in paths))
    try:
        yield
    finally:
        _judged.reset(token)


def was_judged(path: Path) -> bool | None:
    """Whether the call at hand was judged on the resolved `path`; None where no judgement was handed down."""
    judged = _judged.get()
    if judged is None:
        return None
    return path in judged or not judged.isdisjoint(path.parents)


@contextmanager
def judged_programs(programs: JudgedPrograms | None, *, unasked: bool = False) -> Generator[None]:
    """Within it, a command runs these programs under their names. `unasked`: nobody was asked about it. Holds for the tasks and
    threads begun in it."""
    token, before = _programs.set(programs), _unasked.set(unasked)
    try:
        yield
    finally:
        _unasked.reset(before)
        _programs.reset(token)


def programs_at_hand() -> JudgedPrograms | None:
    """What the command at hand was judged on; None where that was not handed down, or PATH leaves no doubt."""
    return _programs.get()


def runs_unasked() -> bool:
    """Whether the command at hand runs because turnwise judged it harmless: neither a person nor a rule for it allowed it."""
    return _unasked.get()


class CallTerms:
    """Within it, a tool with a deadline of its own has no more `seconds` than these (None is as many as it asks for), and results
    go to a program that `computes` with them, or (False) to the model. `call` is the name of the call among those of all turns.
    Holds for the tasks and threads begun in it.

    It is no generator as its sisters are: each call of a tool passes here, and two generators take three times the calls.
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
    """Whether the result of the call at hand has to be the bare value, with nothing said beside it."""
    return _computes.get()


def call_at_work() -> str:
    """The name of the call at hand, the same in a process that goes on with its turn; empty outside of any."""
    return _call.get()


def seconds_of(wanted_s: float) -> tuple[float, bool]:
    """The seconds that the call at hand has of those that it wants, and whether the turn's time makes them fewer."""
    given_s = _seconds.get()
    return (wanted_s, False) if given_s is None or given_s >= wanted_s else (given_s, True)


@contextmanager
def working_for(turn_id: str) -> Generator[None]:
    """Within it, what is changed belongs to that turn, and so does what its sub-agents change. Holds for the tasks and threads
    begun in it."""
    token = _turn.set(turn_id)
    try:
        yield
    finally:
        _turn.reset(token)


def turn_at_work() -> str:
    """The id of the turn that the call at hand belongs to; empty outside of any."""
    return _turn.get()


# The facts of calls, from an inspector that may be anybody's. One that fails finds nothing, and what is not known is asked
# about: it neither ends the turn nor lets a call through.


INSPECT_S = 10.0  # twice what the inspector of the workspace gives itself: that one knows why it found nothing
SETTLE_S = 0.5

_log = logging.getLogger("turnwise")

Inspector = Callable[[Sequence[PlannedCall]], Awaitable[Sequence[CallFacts]]]
"""The facts of calls: resolved paths, parsed shell commands. What it leaves out, raises over or finds after `INSPECT_S` seconds
is not known, and asked about."""


async def find_facts(
    order: InspectCalls, *, inspector: Inspector | None, clock: Clock, scrub: Callable[[str], str] = str
) -> CallsInspected:
    """What the inspector found in time. What it raised is logged, through `scrub`."""
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
    """The results of the calls that would do something else by now than a person was shown and allowed, by call id."""
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
