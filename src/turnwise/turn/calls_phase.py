"""The calls of a response, of a program, or of an earlier run: which of them run, and what becomes of each.

All calls take the same way: the hooks before tools, the facts for a verdict, the verdict, the person, the tool, the hooks after
tools. A stop on this way is a command only if there is something to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.history import error_result, fit_result
from turnwise.rules.loops import LoopGuard, LoopVerdict
from turnwise.rules.permission_facts import CallFacts
from turnwise.turn.call_sorting import (
    CallSource,
    FromProgram,
    before_answer,
    beyond_places,
    grant,
    paid,
    place,
    sort_source,
    whole_bytes_of,
)
from turnwise.turn.config import Approval, OneAsk, settled
from turnwise.turn.events import (
    Ask,
    Asked,
    CallsInspected,
    Event,
    HookOutcome,
    HooksRan,
    InspectCalls,
    PlannedCall,
    RulesAdded,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    ScriptResult,
    ToolEnded,
    ToolsFinished,
)
from turnwise.turn.outcomes import (
    INTERRUPTED,
    LOST,
    NOT_REPORTED,
    NOT_STARTED,
    Begin,
    BeginCalls,
    CalledTools,
    CallsLeft,
    CallsOver,
    CallsWait,
    Leaving,
    Left,
    Move,
    Over,
    ProgramsLeft,
    ProgramsOver,
    had_no_time,
    in_call_order,
    is_unknown,
    stray_result,
)
from turnwise.turn.programs import (
    LEFT_FOR_LATER,
    cut_off,
    functions_of,
    is_callable,
    program_of,
    script_results,
    undecided,
)
from turnwise.turn.room import entered
from turnwise.turn.turn_state import (
    Change,
    KeptWhole,
    Known,
    LeftWaiting,
    Repaired,
    Replaced,
    ResultsAppended,
)
from turnwise.turn.verdicts import (
    Sifted,
    after_hooks,
    answered,
    changed_results,
    edited_by_person,
    judge_calls,
    left_asks,
    questions,
    recalled,
    remembered,
    told_of_edits,
)
from turnwise.vocab import Message, Text, ToolCall, ToolResult

# Scripted steps: programs whose calls take the way of all calls, and that give the model one result.
#
# A program runs after the plain calls of its response, in the runner's interpreter. Each time it needs tools, its calls come here
# and go through arguments, hooks, rules, asks and tools like a response's own calls. They are in the journal's events, not in the
# history.


class Program(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The programs of a response. `names` are the tools that they may call, `place` is the current program. `ran`, `guard`,
    `judged` and the times belong to the current program: `ran` are the tools that it has run, `unknown` the tools that may have
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
    asked_s: float = 0.0  # how long it waited for answers of the user

    @classmethod
    def of(cls, plans: tuple[PlannedCall, ...], *, known: Known) -> "Program":
        """The programs of a response, in order."""
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
        """The programs that cannot finish get a result."""
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
        """The programs after the current one."""
        return self.plans[self.place + 1 :]

    def _check(self, call_id: str) -> None:
        if self._plan.call.id != call_id:
            raise TurnwiseBug(f"word of the program `{call_id}`, which is not at hand")


def _not_started(plan: PlannedCall, *, kind: Literal["cancel", "deadline", "tool", "journal", "lost"]) -> ToolResult:
    return error_result(plan.call, text=NOT_STARTED[kind])


def what_ran(planned: Sequence[PlannedCall], *, results: Iterable[ToolResult]) -> CallsLeft:
    """The tools of the calls that had run when these results came, and those that may have run in part."""
    of = {result.call_id: result for result in results}
    told = [(plan.call.name, of[plan.call.id]) for plan in planned if plan.call.id in of]
    unknown = tuple([name for name, result in told if is_unknown(result)])
    ran = tuple([name for name, result in told if not is_unknown(result) and not had_no_time(result)])
    return CallsLeft(ran=ran, at_hand=unknown)


def calls_left_by(leaving: Leaving, *, planned: Sequence[PlannedCall], results: Mapping[str, ToolResult]) -> CallsLeft:
    """What became of a program's calls when the turn ended in the middle of them."""
    if isinstance(leaving.command, RunHooks) and leaving.command.point == "after_tool":
        return what_ran(planned, results=results.values())
    if not leaving.is_running:
        return CallsLeft(ran=(), at_hand=())
    ended = {**results, **{result.call_id: result for result in leaving.results}}
    begun = {plan.call.id for plan in planned} if leaving.started is None else {*leaving.started}
    told = what_ran(planned, results=ended.values())
    running = tuple([plan.call.name for plan in planned if plan.call.id in begun - ended.keys()])
    return replace(told, at_hand=(*told.at_hand, *running))


# One result for each call of a response, in call order: when its calls are over, or when the turn ends in the middle of them.
class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Calls without a result in the history, and what is known about them. `due` are programs that have not begun, `edited` the
    arguments that a person gave calls, by call id."""

    calls: tuple[ToolCall, ...]
    results: dict[str, ToolResult]
    pending: tuple[ToolCall, ...]
    asks: tuple[OneAsk, ...]
    approved: tuple[Approval, ...]
    due: tuple[PlannedCall, ...]
    edited: dict[str, str] = {}

    def with_ended(
        self, result: ToolResult, *, planned: Sequence[PlannedCall]
    ) -> tuple[dict[str, ToolResult], tuple[Change, ...]]:
        """The results, and the result of one of the running calls."""
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
        """Give each call its one result. Results of pending calls come later."""
        calls: Sequence[ToolCall] = self.calls
        if self.pending:
            waiting = self._waiting
            calls = [call for call in self.calls if call.id not in waiting]
        results, repairs = in_call_order(calls, own=self.results, reported=reported, missing=missing)
        if self.edited:
            results = told_of_edits(results, edited=self.edited)
        guarding, told = known.guarding.close(results, offers=known.offers)
        changes: list[Change] = [Repaired(repairs)] if repairs else []
        changes.append(Replaced(guarding=guarding))
        if told:
            taken = entered(results, told=told, config=known.config, prompt=known.history.prompt)
            changes += [KeptWhole(taken.originals)] if taken.originals else []
            changes.append(ResultsAppended(Message("tool", taken.results)))
        return tuple(changes)

    @property
    def _waiting(self) -> set[str]:
        return {call.id for call in self.pending}

    def wait(self) -> LeftWaiting:
        waiting = self._waiting
        return LeftWaiting(self.pending, tuple([ask for ask in self.asks if ask.call.id in waiting]))

    def leave(self, leaving: Leaving, known: Known, *, of_programs: dict[str, ToolResult] | None) -> tuple[Change, ...]:
        """End the calls because the turn ends in the middle of them. A program may have been running (`of_programs`: the results
        of all programs)."""
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
        """End the calls of which some were running and some may not have begun."""
        assert leaving.kind != "denied"
        results = self.results
        if leaving.started is not None:
            waited = {call.id for call in self.calls} - self.results.keys() - set(leaving.started)
            waited -= self._waiting
            idle = [call for call in self.calls if call.id in waited]
            results = results | {call.id: error_result(call, text=not_started) for call in idle}
        missing = LOST if leaving.kind == "lost" else INTERRUPTED[leaving.kind]
        return replace(self, results=results).close(known, leaving.results, missing=missing)

    def _left_waiting(self, known: Known) -> tuple[ToolCall, ...]:
        """The current calls that keep waiting, whatever ends the turn: the client's calls, calls that a person left for later,
        and calls of an earlier run that nobody has decided. Their time is not the turn's, so the turn's end does not answer them.
        An ask that the approver has right now does not keep waiting: it ends with the turn."""
        if not known.keeps_waiting:
            return ()
        left = undecided(self.approved) | self._waiting
        return tuple([call for call in self.calls if call.id in left and call.id not in self.results])


class Calls(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The current calls, as they stand in the history. `planned` are on their way to run. `due` are the programs, which run after
    the plain calls. `approved` are answers that the turn was started with. `asks` are asks that wait for an answer or were left
    for later. `edited` are the arguments that a person gave calls; `given` the answers to other asks that came with them."""

    source: CallSource
    calls: tuple[ToolCall, ...] = ()
    planned: tuple[PlannedCall, ...] = ()
    results: dict[str, ToolResult] = {}
    pending: tuple[ToolCall, ...] = ()
    approved: tuple[Approval, ...] = ()
    facts: dict[str, CallFacts] = {}
    asks: tuple[OneAsk, ...] = ()
    due: tuple[PlannedCall, ...] = ()
    edited: dict[str, str] = {}
    given: tuple[Approval, ...] = ()
    beyond: tuple[PlannedCall, ...] = ()  # calls without a place under a limit of tool calls
    asking_since_s: float | None = None
    asked_s: float = 0.0
    stage: Literal["begin", "before", "edited", "grant", "run"] = "begin"
    order: RunTools | None = None  # the calls that run

    @property
    def is_program(self) -> bool:
        return type(self.source) is FromProgram

    def go(self, known: Known) -> Move:
        match self.stage:
            case "begin":
                found = sort_source(self.source, known=known)
                begun = replace(
                    self,
                    calls=found.calls,
                    planned=found.planned,
                    results=found.results,
                    pending=found.pending,
                    approved=found.approved,
                    stage="before",
                )
                return Move(begun, found.changes) if found.changes else begun._hook_before(known)
            case "before" | "edited":
                return self._hook_before(known)
            case "grant":
                return self._grant(known)
            case "run":
                raise TurnwiseBug("calls that run were asked to go on")

    def receive(self, event: Event, known: Known) -> Move:
        if type(event) is ToolsFinished:
            return self._ran(known, event.results, changes=paid(event.children, planned=self.planned))
        match event:
            case ToolEnded(result=result, children=children):
                results, repairs = self._open.with_ended(result, planned=self.planned)
                changes = (*repairs, *paid(children, planned=self.planned))
                return Move(replace(self, results=results), changes, self.order)
            case HooksRan(outcomes=outcomes) if self.stage == "run":
                return self._hooked_after(known, outcomes)
            case HooksRan(outcomes=outcomes):
                specs = {name: offer.spec for name, offer in known.offers.items()}
                return self._sift(after_hooks(self.planned, outcomes=outcomes, tools=specs))._inspect(known)
            case CallsInspected(facts=facts):
                return self._judge(known, facts)
            case Asked(approvals=approvals):
                return self._asked(known, approvals)
            case RulesAdded():
                return self._judge(known, tuple(self.facts.values()))
            case _:
                raise TurnwiseBug(f"calls do not wait for {type(event).__name__}")

    def hear(self, outcome: object, known: Known) -> Move:
        """The programs are over: their results go the same way as all results."""
        assert isinstance(outcome, ProgramsOver)
        return replace(self, planned=self.due, due=())._ran(known, outcome.results)

    # before they run

    def _hook_before(self, known: Known) -> Move:
        calls = tuple([plan for plan in self.planned if self.stage != "edited" or (plan.edited and not plan.shown)])
        if calls and "before_tool" in known.config.hooks:
            deadlines = known.config.deadlines
            order = RunHooks(step=known.step, point="before_tool", deadlines=deadlines, calls=calls)
            return Move(self, (), order)
        return self._inspect(known)

    def _inspect(self, known: Known) -> Move:
        if known.config.policy is None and not self._is_resuming(known):
            return self._judge(known, ())
        inspected = tuple([plan for plan in self.planned if known.offers[plan.call.name].inspected])
        if not inspected:
            return self._judge(known, ())
        return Move(self, (), InspectCalls(step=known.step, calls=inspected))

    def _is_resuming(self, known: Known) -> bool:
        """The current calls were left to a person before: the person's answer decides, beside the rules."""
        return known.keeps_waiting and bool(self.approved)

    def _judge(self, known: Known, facts: Sequence[CallFacts]) -> Move:
        config, offers, is_resuming = known.config, known.offers, self._is_resuming(known)
        policy = config.policy
        now = replace(self, facts={found.call_id: found for found in facts}) if facts else self
        asks_user = known.kinds.questions and any(offers[plan.call.name].asks_user for plan in now.planned)
        if policy is None and not is_resuming and not asks_user:
            return now._start_tools(known)
        decided = [approval.call_id for approval in now.approved]
        asked = questions(
            now.planned,
            offers=offers,
            attended=policy is not None and policy.attended,
            decided=decided if is_resuming else (),
        )
        now, asks = now._sift(asked), asked.asks
        if policy is not None:
            judged = judge_calls(
                now.planned, facts=now.facts, policy=policy, offers=offers, hint=config.allow_hint, decided=decided
            )
            now, asks = now._sift(judged), asks + judged.asks
        if is_resuming:
            asks += left_asks(now.planned, asks=asks, approvals=now.approved, facts=now.facts, offers=offers)
        if not asks:
            return now._start_tools(known)
        before = recalled((*now.approved, *now.given), asks=asks)
        now = replace(now, approved=before.approvals, asks=before.asks)
        now, left = now._worth_asking(known, before.left)
        if not left:
            return now._asked(known, ())
        if now.is_program:  # a program's call cannot wait
            now = replace(now, asks=tuple([replace(ask, can_wait=False) for ask in now.asks]))
            left = tuple([replace(ask, can_wait=False) for ask in left])
        now = replace(now, asking_since_s=known.spending.pacing.at_s)
        deadline_s = before_answer(known, config.deadlines.ask_s)
        return Move(now, (), Ask(step=known.step, asks=left, deadline_s=deadline_s))

    def _worth_asking(self, known: Known, asks: tuple[OneAsk, ...]) -> tuple["Calls", tuple[OneAsk, ...]]:
        """The asks whose calls have a place under the limits if they are allowed; an answer to other asks would change nothing. A
        call without a place has its result; if an earlier run left it waiting, it keeps waiting."""
        beyond = beyond_places(known, planned=self.planned, approved=self.approved, asks=asks)
        if not beyond:
            return self, asks
        worth = tuple([ask for ask in asks if ask.call.id not in beyond])
        if self._is_resuming(known):
            later = [Approval(call_id=id, verdict="later", by="default") for id in beyond]
            return replace(self, approved=(*self.approved, *later)), worth
        kept = tuple([plan for plan in self.planned if plan.call.id not in beyond])
        return self._sift(Sifted(planned=kept, results=beyond)), worth

    def _asked(self, known: Known, approvals: Sequence[Approval]) -> Move:
        answers = settled((*self.approved, *approvals))
        changes: list[Change] = []
        if (policy := known.config.policy) is not None:
            now = remembered(
                policy,
                asks=self.asks,
                answers=answers,
                planned=self.planned,
                facts=self.facts,
                offers=known.offers,
            )
            changes += [] if now is policy else [Replaced(config=known.config.under(now))]
        found = answered(self.planned, asks=self.asks, answers=answers)
        asked_s = self.asked_s
        if self.asking_since_s is not None:
            asked_s += known.spending.pacing.at_s - self.asking_since_s
        then = replace(self._sift(found), asked_s=asked_s, asking_since_s=None)
        tools = {name: offer.spec for name, offer in known.offers.items()}
        if changed := edited_by_person(then.planned, answers=answers, asks=self.asks, tools=tools):
            edited = self.edited | {plan.call.id: plan.arguments for plan in changed.planned if plan.edited}
            given = tuple([one for one in answers.values() if one.arguments is None])
            approved = given if self._is_resuming(known) else ()
            then = replace(then._sift(changed), edited=edited, given=given, approved=approved, stage="edited")
            return Move(then, changes) if changes else then._hook_before(known)
        return then._start_tools(known, changes=changes)

    def _start_tools(self, known: Known, *, changes: Sequence[Change] = ()) -> Move:
        """Start the first calls, as many as the limits allow, and count them. Programs come after them."""
        now = self
        if not self.is_program and known.kinds.scripts:
            due = tuple([plan for plan in self.planned if known.offers[plan.call.name].script])
            if due:
                plain = tuple([plan for plan in self.planned if not known.offers[plan.call.name].script])
                now = replace(now, due=due, planned=plain)
        elif self.pending and self.is_program:
            left = {call.id: error_result(call, text=LEFT_FOR_LATER) for call in self.pending}
            now = replace(now, results=self.results | left)
        if (placed := place(known, planned=now.planned)) is not None:
            now = replace(now, planned=placed.planned, beyond=placed.beyond)
            changes = (*changes, *placed.changes)
        return Move(replace(now, stage="grant"), changes) if changes else now._grant(known)

    def _grant(self, known: Known) -> Move:
        granted = grant(known, placed=self.planned, beyond=self.beyond)
        results = self.results | granted.results if granted.results else self.results
        planned, order = granted.planned, None
        edited = self.edited | {plan.call.id: plan.arguments for plan in planned if plan.edited}
        if planned:
            whole_bytes = whole_bytes_of(known, calls=len(planned)) if self.is_program else None
            order = RunTools(
                step=known.step, calls=planned, most_s=known.spending.pacing.calls_s, whole_bytes=whole_bytes
            )
        now = replace(self, planned=planned, results=results, approved=(), beyond=(), stage="run", order=order)
        now = replace(now, edited=edited)
        if order is None:
            return now._after_tools(known, (), changes=granted.changes)
        return Move(now, granted.changes, order)

    def _sift(self, sifted: Sifted) -> "Calls":
        pending = self.pending
        if sifted.pending:
            waiting = {call.id for call in (*self.pending, *sifted.pending)}
            pending = tuple([call for call in self.calls if call.id in waiting])
        return replace(self, planned=sifted.planned, results=self.results | sifted.results, pending=pending)

    # after the calls have run

    def _ran(self, known: Known, results: Sequence[ToolResult], *, changes: Sequence[Change] = ()) -> Move:
        if not self.planned or "after_tool" not in known.config.hooks:
            return self._after_tools(known, results, changes=changes)
        calls = {plan.call.id: plan.call for plan in self.planned}
        reported = {id: self.results.get(id) or error_result(call, text=NOT_REPORTED) for id, call in calls.items()}
        for one in reversed(results):  # the first result counts
            if one.call_id in calls:
                reported[one.call_id] = fit_result(one, call=calls[one.call_id])
        order = RunHooks(
            step=known.step,
            point="after_tool",
            deadlines=known.config.deadlines,
            calls=self.planned,
            results=tuple(reported.values()),
        )
        return Move(replace(self, results={**self.results, **reported}), changes, order)

    def _hooked_after(self, known: Known, outcomes: Sequence[HookOutcome]) -> Move:
        changed = changed_results(self.planned, outcomes=outcomes)
        return replace(self, results={**self.results, **changed})._after_tools(known, ())

    def _after_tools(self, known: Known, reported: Sequence[ToolResult], *, changes: Sequence[Change] = ()) -> Move:
        if self.is_program:
            results, repairs = self._open.in_order(self.calls, reported)
            told = what_ran(self.planned, results=results)
            over = CalledTools(results=results, ran=told.ran, unknown=told.at_hand, asked_s=self.asked_s)
            return Move(self, (*changes, *repairs), Over(over))
        if self.due:
            return self._begin_programs(known, reported, changes=changes)
        changes = (*changes, *self._open.close(known, reported, missing=NOT_REPORTED))
        if not self.pending:
            return Move(self, changes, Over(CallsOver()))
        return Move(self, (*changes, self._open.wait()), Over(CallsWait()))

    def _begin_programs(self, known: Known, reported: Sequence[ToolResult], *, changes: Sequence[Change]) -> Move:
        results, repairs = self._open.in_order([plan.call for plan in self.planned], reported)
        put_by = replace(self, results={**self.results, **{one.call_id: one for one in results}}, planned=())
        return Move(put_by, (*changes, *repairs), Begin(Program.of(self.due, known=known)))

    # how it ends if nothing more happens

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        if self.is_program:
            return Left((), calls_left_by(leaving, planned=self.planned, results=self.results))
        of_programs = told.results if isinstance(told, ProgramsLeft) else None
        return Left(self._open.leave(leaving, known, of_programs=of_programs))

    @property
    def _open(self) -> Open:
        return Open(
            calls=self.calls,
            results=self.results,
            pending=self.pending,
            asks=self.asks,
            approved=self.approved,
            due=self.due,
            edited=self.edited,
        )
