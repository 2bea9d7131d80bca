"""One result for each call of a response, in call order: when its calls are over, or the turn ends in the middle of them."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.rules.history import error_result, fit_result
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.changes import Change, ChildrenPaid, Guarded, KeptWhole, LeftWaiting, Repaired, ResultsAppended
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ChildReport
from turnwise.turn.endings import INTERRUPTED, LOST, NOT_REPORTED, NOT_STARTED, in_call_order, stray_result
from turnwise.turn.pending_calls import undecided
from turnwise.turn.phase_moves import Leaving
from turnwise.turn.results_room import entered
from turnwise.turn.turn_state import Known
from turnwise.vocab import Message, ToolCall, ToolResult


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Calls without a result in the history, and what is known of them. `due` are programs that have not begun."""

    calls: tuple[ToolCall, ...]
    results: dict[str, ToolResult]
    pending: tuple[ToolCall, ...]
    asks: tuple[OneAsk, ...]
    approved: tuple[Approval, ...]
    due: tuple[PlannedCall, ...]

    def with_ended(
        self, result: ToolResult, *, planned: Sequence[PlannedCall]
    ) -> tuple[dict[str, ToolResult], tuple[Change, ...]]:
        """The results with that of one of the calls that run."""
        call = next((plan.call for plan in planned if plan.call.id == result.call_id), None)
        if call is None or call.id in self.results:
            return self.results, (Repaired((stray_result(result),)),)
        return {**self.results, call.id: fit_result(result, call=call)}, ()

    def in_order(
        self, calls: Sequence[ToolCall], reported: Sequence[ToolResult]
    ) -> tuple[list[ToolResult], tuple[Change, ...]]:
        results, repairs = in_call_order(calls, own=self.results, reported=reported, missing=NOT_REPORTED)
        return results, (Repaired(repairs),) if repairs else ()

    def close(self, known: Known, reported: Sequence[ToolResult], *, missing: str) -> tuple[Change, ...]:
        """Give each call its one result; those of pending calls are handed in later."""
        calls: Sequence[ToolCall] = self.calls
        if self.pending:
            waiting = {call.id for call in self.pending}
            calls = [call for call in self.calls if call.id not in waiting]
        results, repairs = in_call_order(calls, own=self.results, reported=reported, missing=missing)
        guarding, told = known.guarding.close(results, offers=known.offers)
        changes: list[Change] = [Repaired(repairs)] if repairs else []
        changes.append(Guarded(guarding))
        if told:
            taken = entered(results, told=told, config=known.config, prompt=known.history.prompt)
            changes += [KeptWhole(taken.originals)] if taken.originals else []
            changes.append(ResultsAppended(Message("tool", taken.results)))
        return tuple(changes)

    def wait(self) -> LeftWaiting:
        waiting = {call.id for call in self.pending}
        return LeftWaiting(self.pending, tuple([ask for ask in self.asks if ask.call.id in waiting]))

    def leave(self, leaving: Leaving, known: Known, *, of_programs: dict[str, ToolResult] | None) -> tuple[Change, ...]:
        """The turn ends in the middle of them; a program may have been at work (`of_programs`: the results of all of them)."""
        assert leaving.kind != "denied"
        not_started = NOT_STARTED[leaving.kind]
        due = {plan.call.id: error_result(plan.call, text=not_started) for plan in self.due}
        left = replace(self, results=self.results | (due if of_programs is None else of_programs))
        left = replace(left, pending=left._left_waiting(known))
        if leaving.is_running and of_programs is None:
            changes = left._stop(leaving, known, not_started=not_started)
        else:
            changes = left.close(known, (), missing=not_started)
        return (*changes, left.wait())

    def _stop(self, leaving: Leaving, known: Known, *, not_started: str) -> tuple[Change, ...]:
        """Some were at work, and some may not have begun."""
        assert leaving.kind != "denied"
        results = self.results
        if leaving.started is not None:
            waited = {call.id for call in self.calls} - self.results.keys() - set(leaving.started)
            waited -= {call.id for call in self.pending}
            idle = [call for call in self.calls if call.id in waited]
            results = results | {call.id: error_result(call, text=not_started) for call in idle}
        missing = LOST if leaving.kind == "lost" else INTERRUPTED[leaving.kind]
        return replace(self, results=results).close(known, leaving.results, missing=missing)

    def _left_waiting(self, known: Known) -> tuple[ToolCall, ...]:
        """The calls at hand that wait on, whatever ends the turn: those that are the client's, those that a person left for
        later, and those that an earlier run left and nobody has decided. Their time is not the turn's, so no end of it answers
        them. An ask that is before the approver is not left: it ends with the turn."""
        if not known.keeps_waiting:
            return ()
        left = undecided(self.approved) | {call.id for call in self.pending}
        return tuple([call for call in self.calls if call.id in left and call.id not in self.results])


def paid(children: Sequence[ChildReport], *, planned: Sequence[PlannedCall]) -> tuple[Change, ...]:
    """What the sub-agents of these calls cost."""
    return (ChildrenPaid(children, {plan.call.id: plan for plan in planned}),) if children else ()
