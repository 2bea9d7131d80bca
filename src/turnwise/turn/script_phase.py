"""Scripted steps: programs whose calls take the way of all calls, and give the model one result.

A program runs after the plain calls of its response, in the driver's interpreter; each time it needs tools, its calls
come here and go through arguments, hooks, rules, asks and the tools like a response's own. They are in the journal's
events, not in the history.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.history import error_result
from turnwise.rules.loops import LoopGuard, LoopVerdict
from turnwise.turn.call_sorting import FromProgram
from turnwise.turn.commands import PlannedCall, RunHooks, RunScript, ScriptResult
from turnwise.turn.endings import NOT_STARTED, had_no_time, is_unknown
from turnwise.turn.events import Event, ScriptCalled, ScriptFinished
from turnwise.turn.outcomes import (
    BeginCalls,
    CalledTools,
    CallsLeft,
    Leaving,
    Left,
    Move,
    Over,
    ProgramsLeft,
    ProgramsOver,
)
from turnwise.turn.programs import cut_off, functions_of, is_callable, program_of, script_results
from turnwise.turn.turn_state import Known
from turnwise.vocab import Text, ToolResult


class Program(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The programs of a response. `names` are the tools that they may call, `place` the program at hand; `ran`, `guard`,
    `judged` and the times belong to this program: `ran` are the tools that it has run, `unknown` the tools that may have
    run."""

    plans: tuple[PlannedCall, ...]
    names: tuple[str, ...]
    began_s: float
    results: dict[str, ToolResult] = {}
    place: int = 0
    ran: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    guard: LoopGuard = LoopGuard()
    judged: LoopVerdict | None = None
    asked_s: float = 0.0  # that it waited for answers of the user

    @classmethod
    def of(cls, plans: tuple[PlannedCall, ...], *, known: Known) -> "Program":
        """Those of a response, in order."""
        names = tuple(known.offers) if known.asking is None else known.asking.tools
        return cls(
            plans=plans,
            names=tuple([name for name in names if is_callable(known.offers[name])]),
            began_s=known.spending.pacing.at_s,
        )

    def go(self, known: Known) -> Move:
        return self._run(known)

    def receive(self, event: Event, known: Known) -> Move:
        match event:
            case ScriptCalled(call_id=call_id, calls=calls):
                self._check(call_id)
                judged = self.guard.before(calls)
                source = FromProgram(calls=calls, names=self.names, judged=judged)
                return Move(replace(self, judged=judged), (), BeginCalls(source))
            case ScriptFinished(call_id=call_id, text=text, is_error=is_error):
                self._check(call_id)
                return self._finished(known, text=text, is_error=is_error)
            case _:
                raise TurnwiseBug(f"a program does not wait for {type(event).__name__}")

    def hear(self, outcome: object, known: Known) -> Move:
        assert isinstance(outcome, CalledTools)
        guard, at_s = self.guard, known.spending.pacing.at_s
        if self.judged is not None:
            spared = frozenset([name for name, offer in known.offers.items() if offer.repeatable])
            guard, _ = guard.after(self.judged, results=outcome.results, spared=spared)
        ran, asked_s = (*self.ran, *outcome.ran), self.asked_s + outcome.asked_s
        unknown = (*self.unknown, *outcome.unknown)
        went_on = replace(self, guard=guard, judged=None, ran=ran, unknown=unknown, asked_s=asked_s)
        took_s, limit_s = at_s - self.began_s - asked_s, known.config.script_limits.wall_s
        stop = f"it had taken {took_s:,.0f} s, and {limit_s:g} s is the limit" if took_s > limit_s else ""
        return went_on._run(known, results=script_results(outcome.results), stop=stop)

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        """The programs that will not come to their end get a result."""
        assert leaving.kind != "denied"
        of_calls = told if isinstance(told, CallsLeft) else CallsLeft(ran=(), at_hand=())
        results = {plan.call.id: _not_started(plan, kind=leaving.kind) for plan in self._further}
        ran, at_hand = [*self.ran, *of_calls.ran], [*self.unknown, *of_calls.at_hand]
        results[self._plan.call.id] = cut_off(self._plan, kind=leaving.kind, ran=ran, at_hand=at_hand)
        return Left((), ProgramsLeft({**self.results, **results}))

    def _run(self, known: Known, *, results: tuple[ScriptResult, ...] = (), stop: str = "") -> Move:
        plan = self._plan
        order = RunScript(
            step=known.step,
            call=plan.call,
            program=program_of(plan),
            functions=functions_of(known.offers, names=self.names),
            limits=known.config.script_limits,
            results=results,
            ran=self.ran,
            stop=stop,
            most_s=known.spending.pacing.calls_s,
        )
        return Move(self, (), order)

    def _finished(self, known: Known, *, text: str, is_error: bool) -> Move:
        call = self._plan.call
        result = ToolResult(call_id=call.id, name=call.name, content=(Text(text),), is_error=is_error)
        done = replace(self, results={**self.results, call.id: result})
        if not done._further:
            return Move(done, (), Over(ProgramsOver([done.results[plan.call.id] for plan in self.plans])))
        at_s = known.spending.pacing.at_s
        then = replace(done, place=self.place + 1, ran=(), unknown=(), guard=LoopGuard(), began_s=at_s, asked_s=0.0)
        return then._run(known)

    @property
    def _plan(self) -> PlannedCall:
        return self.plans[self.place]

    @property
    def _further(self) -> tuple[PlannedCall, ...]:
        """Those that come after the one at hand."""
        return self.plans[self.place + 1 :]

    def _check(self, call_id: str) -> None:
        if self._plan.call.id != call_id:
            raise TurnwiseBug(f"word of the program `{call_id}`, which is not at hand")


def _not_started(plan: PlannedCall, *, kind: Literal["cancel", "deadline", "journal", "lost"]) -> ToolResult:
    return error_result(plan.call, text=NOT_STARTED[kind])


def whole_bytes_of(known: Known, *, calls: int) -> int:
    """What the result of each of so many calls of a program may have."""
    limits = known.config.script_limits
    return min(limits.call_bytes, limits.exchanged_bytes // calls)


def what_ran(planned: Sequence[PlannedCall], *, results: Iterable[ToolResult]) -> CallsLeft:
    """The tools of the calls that had run when these results came, and those that may have run in part."""
    of = {result.call_id: result for result in results}
    told = [(plan.call.name, of[plan.call.id]) for plan in planned if plan.call.id in of]
    unknown = tuple([name for name, result in told if is_unknown(result)])
    ran = tuple([name for name, result in told if not is_unknown(result) and not had_no_time(result)])
    return CallsLeft(ran=ran, at_hand=unknown)


def calls_left_by(leaving: Leaving, *, planned: Sequence[PlannedCall], results: Mapping[str, ToolResult]) -> CallsLeft:
    """What became of a program's calls, when the turn ended in the middle of them."""
    if isinstance(leaving.command, RunHooks) and leaving.command.point == "after_tool":
        return what_ran(planned, results=results.values())
    if not leaving.is_running:
        return CallsLeft(ran=(), at_hand=())
    ended = {**results, **{result.call_id: result for result in leaving.results}}
    begun = {plan.call.id for plan in planned} if leaving.started is None else {*leaving.started}
    told = what_ran(planned, results=ended.values())
    running = tuple([plan.call.name for plan in planned if plan.call.id in begun - ended.keys()])
    return replace(told, at_hand=(*told.at_hand, *running))
