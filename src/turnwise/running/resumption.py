"""What was open in a turn that its process left, read from its journal. Finished work counts; work that had begun may have
happened."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from turnwise.base.clock import Clock
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.journal.turn_writer import AskAnswered, JournalEntry, Noted, RequestSent, ScriptBegan, ToolsStarted
from turnwise.rules.history import error_result
from turnwise.rules.permissions import PermissionRule
from turnwise.running.run_context import RunAtHand, context_of, giving
from turnwise.running.tool_output import cut_middle
from turnwise.running.tools import OutcomeUnknown, Tool, reconciled
from turnwise.turn.config import Approval, OneAsk, ResumeTerms, TurnConfig
from turnwise.turn.events import (
    Ask,
    Command,
    Event,
    MessageArrived,
    PlannedCall,
    RulesAdded,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptResult,
    ToolEnded,
    TurnStarted,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import UNKNOWN_OUTCOME, is_unknown
from turnwise.vocab import Fault, FaultKind, Message, ToolCall, ToolResult

LOST_REQUEST = Fault(
    kind=FaultKind.DISCONNECTED,
    message="our process ended before the response was recorded: the request may be billed, and is sent anew",
)
SHOWN_ARGUMENTS = 200  # characters
MOST_TRIES = 5  # how often in a row a turn was taken up and left again without progress (DISPATCH)
STUCK = (
    f"it was taken up {MOST_TRIES} times in a row, and each time the process died before the turn had come any further"
)


class ProgramSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a program and the results that it got. It runs again with the same results, at the same times. `time` is what
    its clock said at its beginning. `ordered_s` is when it began and when each result came (seconds of the turn)."""

    begun: RunScript
    time: float | None = None
    ordered_s: tuple[float, ...] = ()
    asked: tuple[tuple[ToolCall, ...], ...] = ()
    given: tuple[tuple[ScriptResult, ...], ...] = ()


class LeftTurn(msgspec.Struct, kw_only=True):
    """A turn as its process left it.

    `at_s`: seconds from its beginning to its last event. `since_s`: when the current command was ordered, or the last of its asks
    answered (UTC, seconds since 1970). `was_sent`: the current request may have been sent. `begun`: ids of calls of the current
    command that may have run; `ended`: of those with a recorded result. `answered`: the answers to the current asks. `added`: the
    rules that earlier resumptions added. `unknown`: calls that were told as unknown, here or before. `program`: the current
    program. `tries`: how often in a row it was taken up without progress. `is_cancelled`: somebody has cancelled it meanwhile.
    `why_raised`: what a tool has raised; the turn ends with that.
    """

    turn: Turn
    config: TurnConfig
    at_s: float
    since_s: float
    was_sent: bool
    begun: frozenset[str]
    ended: frozenset[str]
    program: ProgramSoFar | None
    tries: int
    answered: tuple[Approval, ...] = ()
    added: tuple[PermissionRule, ...] = ()
    unknown: list[ToolCall] = []
    terms: ResumeTerms = ResumeTerms()
    is_cancelled: bool = False
    why_raised: str = ""

    @property
    def is_stuck(self) -> bool:
        return self.tries >= MOST_TRIES

    def left_of(self, seconds: float, *, now_s: float) -> float:
        """How much of the current command's time is left. Time without a process counts, because the person could answer
        meanwhile."""
        return max(0.0, seconds - max(0.0, now_s - self.since_s))

    @property
    def new_rules(self) -> tuple[PermissionRule, ...]:
        """The rules of the resuming caller that the turn does not have yet. Empty for a turn without rules, because it asks
        nobody."""
        policy = self.turn.known.config.policy
        return () if policy is None else tuple([rule for rule in self.terms.rules if rule not in policy.rules])

    @property
    def terms_below(self) -> ResumeTerms:
        """The terms for its sub-agents. They have rules of their own, so rules that were added to this turn are added to
        theirs."""
        return msgspec.structs.replace(self.terms, rules=(*self.added, *self.terms.rules))

    @property
    def answers(self) -> tuple[Approval, ...]:
        """The answers to the current asks, from the journal and from the resuming caller."""
        if not isinstance(command := self.turn.at_hand, Ask):
            return ()
        known = {one.call_id: one for one in self.answered}
        found = [known.get(ask.call.id) or self.terms.answer_to(ask) for ask in command.asks]
        return tuple([one for one in found if one is not None])

    @property
    def open_asks(self) -> tuple[OneAsk, ...]:
        """The current asks without an answer."""
        answered = {one.call_id for one in self.answers}
        command = self.turn.at_hand
        return tuple([ask for ask in command.asks if ask.call.id not in answered]) if isinstance(command, Ask) else ()

    def ask_s(self, command: Ask, *, now_s: float) -> float:
        """How long these asks may wait."""
        return self.left_of(command.deadline_s, now_s=now_s) if self.terms.ask_s is None else self.terms.ask_s

    @property
    def ordered_s(self) -> float:
        """When the current program got its last result: seconds of the turn."""
        return 0.0 if self.program is None else self.program.ordered_s[-1]

    @property
    def open_in_program(self) -> tuple[ToolCall, ...]:
        """The calls that the current program waits for."""
        program = self.program
        return () if program is None or len(program.given) == len(program.asked) else program.asked[-1]


def left_turn(entries: Sequence[JournalEntry], *, earlier: Sequence[Message] | Carried, tries: int = 0) -> LeftTurn:
    """The turn with these records. `earlier` is what the session's earlier turns pass on.

    Raises CallerError if nothing of the turn was recorded.
    """
    if not entries or not isinstance(started := entries[0].record, TurnStarted):
        raise CallerError("nothing of the turn was recorded before its process died: there is nothing to go on with")
    turn, command = Turn.start(started, earlier=earlier)
    at_s, was_sent, since_s = 0.0, False, entries[0].time
    begun, ended, answered = set[str](), set[str](), list[Approval]()
    program: ProgramSoFar | None = None
    added: tuple[PermissionRule, ...] = ()
    unknown: list[ToolCall] = []
    why_raised = ""
    for entry in entries[1:]:
        record = entry.record
        if isinstance(record, RequestSent):
            was_sent = True
        elif isinstance(record, ToolsStarted):
            begun.update(record.call_ids)
        elif isinstance(record, ScriptBegan):
            if program is not None and program.begun.call.id == record.call_id:
                program = msgspec.structs.replace(program, time=record.time)
        elif isinstance(record, AskAnswered):
            answered.append(record.approval)
            since_s = entry.time  # the next ask was not shown earlier than that
        elif isinstance(record, Noted):
            why_raised = record.text if record.ends else why_raised
        else:
            if isinstance(record, ToolEnded):
                ended.add(record.result.call_id)
                unknown += _unknown_in(record, command=command)
            elif not isinstance(record, MessageArrived | RulesAdded):  # these do not change the current command
                was_sent, since_s = False, entry.time
                begun, ended, answered = set[str](), set[str](), list[Approval]()
            command = turn.receive(record)
            added = (*added, *record.rules) if isinstance(record, RulesAdded) else added
            program = _followed(program, event=record, command=command)
            at_s = max(at_s, _at_s(record))
    return LeftTurn(
        turn=turn,
        config=started.config,
        why_raised=why_raised,
        at_s=at_s,
        since_s=since_s,
        was_sent=was_sent,
        begun=frozenset(begun),
        ended=frozenset(ended),
        program=program,
        tries=tries,
        answered=tuple(answered),
        added=added,
        unknown=unknown,
    )


def _unknown_in(record: ToolEnded, *, command: Command) -> list[ToolCall]:
    if not isinstance(command, RunTools) or not is_unknown(record.result):
        return []
    return [plan.call for plan in command.calls if plan.call.id == record.result.call_id]


def unknown_said(calls: Sequence[str]) -> str:
    """What the caller that started them is told about calls of unknown outcome."""
    return (
        f"The process was interrupted while these calls ran, so their outcome is unknown: {', '.join(calls)}. "
        "Look at what they have done before you repeat any of it."
    )


def call_said(call: ToolCall) -> str:
    """`do` {"name":"x"}"""
    return f"`{call.name}` {cut_middle(call.arguments, limit=SHOWN_ARGUMENTS)}"


def _at_s(event: Event) -> float:
    return float(getattr(event, "at_s", 0.0))


def _followed(program: ProgramSoFar | None, *, event: Event, command: object) -> ProgramSoFar | None:
    """The current program after this event, and the command that it led to."""
    if isinstance(event, ScriptCalled) and program is not None and program.begun.call.id == event.call_id:
        program = msgspec.structs.replace(program, asked=(*program.asked, event.calls))
    if not isinstance(command, RunScript):
        return program
    if program is None or program.begun.call.id != command.call.id:
        return ProgramSoFar(begun=command, ordered_s=(_at_s(event),))
    if len(program.given) < len(program.asked):
        ordered_s = (*program.ordered_s, _at_s(event))
        return msgspec.structs.replace(program, given=(*program.given, command.results), ordered_s=ordered_s)
    return program


async def begun_below(
    calls: Sequence[PlannedCall], *, left: LeftTurn, tools: Mapping[str, Tool], journal: Journal | None
) -> frozenset[str]:
    """The calls whose sub-agent has begun to work: such a call has progress of its own."""
    subs = {name for name, tool in tools.items() if tool.start is not None}
    called = {planned.call.id for planned in calls if planned.call.name in subs} & left.begun
    if not called or journal is None:
        return frozenset()
    children = await journal.beside(partial(journal.children, left.config.turn_id))
    return frozenset(called.intersection([call_id for call_id, _ in children]))


async def results_of_left(
    calls: Sequence[PlannedCall],
    *,
    left: LeftTurn,
    tools: Mapping[str, Tool],
    clock: Clock,
    run: RunAtHand | None = None,
) -> list[tuple[PlannedCall, ToolResult]]:
    """The calls that may have run, each with a result: from its tool's `reconcile`, or saying that its outcome is unknown. Calls
    that did not happen, and calls that may happen twice, are left out: those run."""
    found: list[tuple[PlannedCall, ToolResult]] = []
    for planned in calls:
        tool = tools.get(planned.call.name)
        if planned.call.id not in left.begun - left.ended or (tool is not None and tool.goes_again):
            continue
        with giving(partial(context_of, run, call=planned.call)):
            result = await _result_of_left(planned, tool=tool, turn_id=left.config.turn_id, clock=clock)
        if result is not None:
            found.append((planned, result))
    return found


async def _result_of_left(planned: PlannedCall, *, tool: Tool | None, turn_id: str, clock: Clock) -> ToolResult | None:
    try:
        if tool is not None and tool.reconcile is not None:
            return await reconciled(tool.reconcile, planned, key=f"{turn_id}/{planned.call.id}", clock=clock)
    except OutcomeUnknown:
        pass
    return error_result(planned.call, text=UNKNOWN_OUTCOME)
