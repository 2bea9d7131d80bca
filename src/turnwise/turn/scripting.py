"""Scripted steps: programs whose calls take the way of all calls, and give the model one result.

A program runs after the plain calls of its response, in the driver's interpreter; each time it needs tools, its calls
come here and go through arguments, hooks, rules, asks and the tools like a response's own. They are in the journal's
events, not in the history.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.history import error_result
from turnwise.rules.permission_facts import CallFacts
from turnwise.turn.approvals import Approval
from turnwise.turn.calling import Calling
from turnwise.turn.calls import sort_calls
from turnwise.turn.commands import Ask, Command, RunHooks, RunScript, RunTools, ScriptResult
from turnwise.turn.endings import NOT_REPORTED, NOT_STARTED, in_call_order
from turnwise.turn.programs import (
    LEFT_FOR_LATER,
    Programs,
    cut_off,
    functions_of,
    is_callable,
    looped,
    program_of,
    script_results,
)
from turnwise.turn.transitions import State
from turnwise.vocab import FinishReason, Text, ToolCall, ToolResult


class Scripting(Calling, kw_only=True):
    """The programs of a turn."""

    # the way of their calls

    def _start_tools(self) -> Command:
        if self.programs is None:
            self.due = tuple([plan for plan in self.planned if self.offers[plan.call.name].script])
            if self.due:
                self.planned = tuple([plan for plan in self.planned if not self.offers[plan.call.name].script])
        elif self.pending:
            self.results |= {call.id: error_result(call, text=LEFT_FOR_LATER) for call in self.pending}
            self.pending, self.asks = (), ()
        command = super()._start_tools()
        if self.programs is None or not isinstance(command, RunTools):
            return command
        limits = self.config.script_limits
        most_bytes = min(limits.call_bytes, limits.exchanged_bytes // len(command.calls))
        return replace(command, whole_bytes=most_bytes)

    def _judge(self, facts: Sequence[CallFacts]) -> Command:
        command = super()._judge(facts)
        if self.programs is None or not isinstance(command, Ask):
            return command
        self.programs = replace(self.programs, asking_since_s=self.pacing.at_s)
        self.asks = tuple([replace(ask, can_wait=False) for ask in self.asks])
        return replace(command, asks=tuple([replace(ask, can_wait=False) for ask in command.asks]))

    def _asked(self, approvals: Sequence[Approval]) -> Command:
        programs = self.programs
        if programs is not None and programs.asking_since_s is not None:
            waited_s = self.pacing.at_s - programs.asking_since_s
            self.programs = replace(programs, asked_s=programs.asked_s + waited_s, asking_since_s=None)
        return super()._asked(approvals)

    def _after_tools(self, reported: Sequence[ToolResult]) -> Command:
        if self.programs is not None:
            return self._go_on_with_program(self.programs, reported=reported)
        if self.due:
            return self._begin_programs(reported)
        return super()._after_tools(reported)

    # the programs

    def _begin_programs(self, reported: Sequence[ToolResult]) -> Command:
        """Put the response's own calls aside, with their results so far."""
        calls = [plan.call for plan in self.planned]
        results = self._in_order(calls, reported=reported)
        names = tuple(self.offers) if self.asking is None else self.asking.tools
        self.programs = Programs(
            plans=self.due,
            names=tuple([name for name in names if is_callable(self.offers[name])]),
            calls=self.calls,
            results={**self.results, **{result.call_id: result for result in results}},
            pending=self.pending,
            asks=self.asks,
            began_s=self.pacing.at_s,
        )
        self.due, self.pending, self.asks = (), (), ()
        self._clear_calls()
        return self._run_program(self.programs)

    def _run_program(self, programs: Programs, *, results: tuple[ScriptResult, ...] = (), stop: str = "") -> RunScript:
        plan = programs.plan
        return RunScript(
            step=self.step,
            call=plan.call,
            program=program_of(plan),
            functions=functions_of(self.offers, names=programs.names),
            limits=self.config.script_limits,
            results=results,
            ran=programs.ran,
            stop=stop,
            most_s=self.pacing.calls_s,
        )

    def _script_called(self, call_id: str, *, calls: tuple[ToolCall, ...]) -> Command:
        """Take the calls of the program at hand the way of all calls."""
        programs = self._programs_at(call_id)
        sorted_ = sort_calls(
            calls,
            finish=FinishReason.TOOL_CALLS,
            names=programs.names,
            limit_tokens=None,
            offers=self.offers,
            config=self.config,
        )
        verdict = programs.guard.before(calls)
        self.programs = replace(programs, judged=verdict)
        again = looped([plan.call for plan in sorted_.planned], verdict=verdict)
        self.calls = calls
        self.results = {**sorted_.results, **again}
        self.planned = tuple([plan for plan in sorted_.planned if plan.call.id not in again])
        return self._hook_before()

    def _go_on_with_program(self, programs: Programs, *, reported: Sequence[ToolResult]) -> Command:
        results = self._in_order(self.calls, reported=reported)
        spared = frozenset([name for name, offer in self.offers.items() if offer.repeatable])
        guard = programs.guard
        if programs.judged is not None:
            guard, _ = guard.after(programs.judged, results=results, spared=spared)
        ran = (*programs.ran, *[plan.call.name for plan in self.planned])
        self.programs = replace(programs, guard=guard, judged=None, ran=ran)
        self._clear_calls()
        took_s = self.pacing.at_s - programs.began_s - programs.asked_s
        limit_s = self.config.script_limits.wall_s
        stop = f"it had taken {took_s:,.0f} s, and {limit_s:g} s is the limit" if took_s > limit_s else ""
        return self._run_program(self.programs, results=script_results(results), stop=stop)

    def _script_finished(self, call_id: str, *, text: str, is_error: bool) -> Command:
        programs = self._programs_at(call_id)
        call = programs.plan.call
        result = ToolResult(call_id=call.id, name=call.name, content=(Text(text),), is_error=is_error)
        programs = replace(programs, results={**programs.results, call.id: result})
        if programs.left:
            self.programs = replace(
                programs,
                place=programs.place + 1,
                ran=(),
                guard=type(programs.guard)(),
                began_s=self.pacing.at_s,
                asked_s=0.0,
            )
            return self._run_program(self.programs)
        self._put_back(programs)
        self.planned = programs.plans
        return self._ran([self.results.pop(plan.call.id) for plan in programs.plans], children=())

    def _leave_programs(self, kind: str, *, finished: Sequence[ToolResult]) -> bool:
        """Give the programs that will not come to their end a result; true if one of them had begun. `finished` are results
        of calls that the one at hand has made."""
        programs, due, self.due = self.programs, self.due, ()
        if programs is None:
            self.results |= {plan.call.id: error_result(plan.call, text=NOT_STARTED[kind]) for plan in due}
            return False
        ended = {result.call_id for result in finished}
        calls = [plan.call for plan in self.planned] if self.state is State.RUNNING else []
        ran = [*programs.ran, *[call.name for call in calls if call.id in ended]]
        if isinstance(self.at_hand, RunHooks) and self.at_hand.point == "after_tool":
            ran += [plan.call.name for plan in self.planned]
        at_hand = [call.name for call in calls if call.id not in ended]
        results = {plan.call.id: error_result(plan.call, text=NOT_STARTED[kind]) for plan in programs.left}
        results[programs.plan.call.id] = cut_off(programs.plan, kind=kind, ran=ran, at_hand=at_hand)
        self._put_back(replace(programs, results={**programs.results, **results}))
        return True

    def _put_back(self, programs: Programs) -> None:
        self._clear_calls()
        self.programs = None
        self.calls, self.results = programs.calls, programs.results
        self.pending, self.asks = programs.pending, programs.asks

    def _clear_calls(self) -> None:
        self.calls, self.planned, self.results, self.facts = (), (), {}, {}

    def _in_order(self, calls: Sequence[ToolCall], *, reported: Sequence[ToolResult]) -> list[ToolResult]:
        results, repairs = in_call_order(calls, own=self.results, reported=reported, missing=NOT_REPORTED)
        self.repairs += repairs
        return results

    def _programs_at(self, call_id: str) -> Programs:
        if self.programs is None or self.programs.plan.call.id != call_id:
            raise TurnwiseBug(f"word of the program `{call_id}`, which is not at hand")
        return self.programs
