"""The turn machine: takes events and says what to do next. It is pure; every wait belongs to the driver (the runner)."""

from collections.abc import Collection, Iterable, Sequence
from typing import cast

import msgspec

from turnwise.errors import BadTool, CallerError, TurnwiseBug
from turnwise.rules.answer_room import GO_ON
from turnwise.rules.history import heal
from turnwise.rules.limits import counts_cost, fault_of_limit, no_price
from turnwise.rules.pricing import can_project
from turnwise.rules.schema import fault_of_schema
from turnwise.turn.attempt import Attempt, Composing
from turnwise.turn.call_sorting import CallSource, TakenUp
from turnwise.turn.calls_phase import Calls, Program
from turnwise.turn.config import OneAsk, TurnConfig, TurnResult
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    Interrupted,
    MessageArrived,
    RequestFailed,
    ResponseReceived,
    RulesAdded,
    TurnStarted,
)
from turnwise.turn.fault_counts import Record
from turnwise.turn.history import Carried, LeftHistory, carried_of, told_system_in
from turnwise.turn.next_phase import Answer
from turnwise.turn.outcomes import (
    NOT_RECORDED,
    Begin,
    BeginCalls,
    Denied,
    Ended,
    Ends,
    Fails,
    GoOn,
    Leaving,
    Move,
    Over,
    Phase,
    Stopped,
    arrived_of,
    ended,
    result_of,
    why_interrupted,
)
from turnwise.turn.programs import reopened, repairs_but_reopened, still_waiting, taken_up, under_healed_ids
from turnwise.turn.recovery_phase import Recovery
from turnwise.turn.room import with_own_tools
from turnwise.turn.step import Opening, Step
from turnwise.turn.transitions import State, check_legal, state_after
from turnwise.turn.turn_spending import Spending
from turnwise.turn.turn_state import (
    ChildrenLeft,
    InboxRead,
    Known,
    PauseSettled,
    PutBack,
    Replaced,
    ToolKinds,
    WordsPutBy,
    mended,
)
from turnwise.vocab import Message, NamedTool, StopReason, Text

AnyPhase = Step | Opening | Composing | Attempt | Recovery | Calls | Program | Answer


class Turn(msgspec.Struct, kw_only=True):
    """One turn: `start` gives the first command, `receive` the next, until it is FinishTurn.

    Plain data: `replay` rebuilds it from its journal. `known` outlives its phases. The phases form a stack: each was begun by the
    one before it, and the last one waits for the ordered command.
    """

    known: Known
    phases: list[AnyPhase]
    state: State = State.READY
    at_hand: Command | None = None
    result: TurnResult | None = None

    @classmethod
    def start(cls, started: TurnStarted, *, earlier: Sequence[Message] | Carried = ()) -> tuple["Turn", Command]:
        """A turn and its first command. `earlier` are the messages of the session's earlier turns, or what these pass on.

        Raises CallerError for a configuration that cannot work.
        """
        check_config(started.config)
        carried = carried_of(earlier)
        config = carried.fit(with_own_tools(started.config))
        started = carried.with_tools(carried.with_system(started, config=config), config=config)
        started = carried.with_words(started)
        resumed = taken_up(started, earlier=carried.messages)
        healed, history = carried.begin(resumed.new, config=config)
        messages, repairs = list(healed.messages), list(healed.repairs)
        if resumed.calls:
            given = (*carried.messages, *resumed.new)
            resumed = under_healed_ids(resumed, healed=healed.messages, given=given)
            messages = reopened(messages, calls=resumed.calls)
            repairs = repairs_but_reopened(repairs, calls=resumed.calls)
        if is_empty := all(message.role == "system" for message in messages):
            messages.append(Message("user", (Text(GO_ON),)))
        history.open(
            messages,
            added=resumed.added,
            known_as=resumed.known_as if started.keeps_waiting else {},
            is_shorter=bool(resumed.calls),
        )
        known = Known(
            config=config,
            offers={offer.spec.name: offer for offer in config.tools},
            specs=tuple([offer.spec for offer in config.tools]),
            kinds=ToolKinds.of(config.tools),
            history=history,
            spending=Spending.behind(carried.sent, changed=carried.changed),
            record=Record(repairs=repairs, adapted_before=carried.adapted),
            keeps_waiting=started.keeps_waiting,
        )
        calls = TakenUp(calls=resumed.calls, approvals=resumed.approvals) if resumed.calls else None
        turn = cls(known=known, phases=[Step(taken_up=calls)])
        if resumed.calls:
            turn._put_by(resumed.words)
        if is_empty:
            known.apply(mended("nothing_to_send", "input", "put a user message in the place of none"))
        return turn, turn.receive(started)

    def receive(self, event: Event) -> Command:
        """The command that `event` leads to. Raises TurnwiseBug for an illegal event, and then nothing has changed."""
        check_legal(self.state, event=event)
        known = self.known
        spending = known.spending
        if (type(event) is ResponseReceived or type(event) is RequestFailed) and event.number != spending.requests:
            raise TurnwiseBug(f"a response to request {event.number} came while request {spending.requests} is at hand")
        spending.see(event, config=known.config, messages=len(known.history.messages))
        if type(event) is MessageArrived:  # the current command continues unchanged
            self._put_by((event.message,))
            return self._at_hand
        if type(event) is RulesAdded:
            command = self._add_rules(event)
        elif type(event) is Interrupted:
            command = self._interrupt(event)
        elif type(event) is TurnStarted:
            command = self._run(self.phases[-1].go(known))
        else:
            command = self._run(self.phases[-1].receive(event, known))
        self.state = state_after(self.state, event=event, command=command)
        self.at_hand = command
        return command

    def _run(self, move: Move) -> Command:
        """Continue until there is a command."""
        known = self.known
        phases = cast(list[Phase], self.phases)
        while True:
            for change in move.changes:
                known.apply(change)
            phase, then = move.phase, move.then
            phases[-1] = phase
            if then is None:
                move = phase.go(known)
            elif type(then) is Over:
                phases.pop()
                if phases and type(then.outcome) is not Denied:
                    move = phases[-1].hear(then.outcome, known)
                elif type(then.outcome) is GoOn:
                    phases.append(Step(wish=then.outcome.wish))
                    move = phases[-1].go(known)
                else:
                    return self._end(then.outcome)
            elif type(then) is Begin:
                phases.append(then.phase)
                move = then.phase.go(known)
            elif type(then) is BeginCalls:
                phases.append(Calls(source=cast(CallSource, then.source)))
                move = phases[-1].go(known)
            else:
                return cast(Command, then)

    def _end(self, outcome: object) -> FinishTurn:
        """End the turn, because its last step or a hook before a request says so."""
        if isinstance(outcome, Denied):
            self._leave(Leaving(kind="denied", command=self.at_hand))
            why = f"The hook `{outcome.by}` stopped the turn before its next request: {outcome.why}."
            return self._finish(Stopped(reason=StopReason.CANCELLED, why=why))
        assert isinstance(outcome, Ends | Fails | Ended)
        return self._finish(outcome)

    def left_behind(self, begun: Collection[str] | None = None) -> tuple[Message, ...]:
        """What the turn adds to its session if nothing more happens; every call that may have run has a result. The calls in
        `begun` (ids) had started; None: it is unknown which calls had.

        Used after a crash. The turn takes no event afterwards.
        """
        if self.state is not State.FINISHED:
            is_running = self.state is State.RUNNING
            started = None if begun is None else tuple(begun)
            self._leave(Leaving(kind="lost", command=self.at_hand, started=started, is_running=is_running))
            self.known.apply(PauseSettled())
            if not self.known.pending:
                self.known.apply(InboxRead())  # nobody was told that these messages were taken up
            self.known.apply(PutBack())
            self.state = State.FINISHED
        return tuple(self.known.history.added)

    def _interrupt(self, event: Interrupted) -> Command:
        last = self.phases[-1]
        is_continuing = any(isinstance(phase, Recovery) and phase.found is not None for phase in self.phases)
        arrived = "" if is_continuing else arrived_of(event.partial, known=self.known)
        arrived = last.text if isinstance(last, Answer) else arrived
        if event.children:
            self.known.apply(ChildrenLeft(event.children))
        self._leave(
            Leaving(
                kind="lost" if event.kind == "cancel" and event.why else event.kind,  # no person has cancelled it
                command=self.at_hand,
                partial=event.partial,
                sent=event.sent,
                results=event.results,
                started=event.started,
                is_running=self.state is State.RUNNING,
            )
        )
        if event.kind == "journal":
            self.known.apply(mended(NOT_RECORDED, "journal", event.why))
        reason, why = why_interrupted(event)
        stopped = Stopped(reason=reason, why=why, arrived=arrived, keeps_unfit=event.kind == "deadline")
        return self._finish(stopped)

    def _add_rules(self, event: RulesAdded) -> Command:
        config = self.known.config
        if config.policy is not None:
            rules = (*config.policy.rules, *event.rules)
            self.known.apply(Replaced(config=config.under(msgspec.structs.replace(config.policy, rules=rules))))
        return self._run(self.phases[-1].receive(event, self.known)) if self.state is State.ASKING else self._at_hand

    def _leave(self, leaving: Leaving) -> None:
        """Let the phases end, the last one first."""
        told: object = None
        while self.phases:
            left = self.phases.pop().leave(leaving, self.known, told)
            for change in left.changes:
                self.known.apply(change)
            told = left.told

    def _finish(self, end: Ends | Fails | Stopped | Ended) -> FinishTurn:
        said = ended(end, known=self.known)
        self.known.apply(PauseSettled())
        self.known.apply(PutBack())
        self.result = result_of(said, known=self.known)
        return FinishTurn(result=self.result)

    def _put_by(self, messages: Sequence[Message]) -> None:
        """Keep messages for the next request, healed for it: the history itself is not healed again."""
        known = self.known
        healed = heal(
            messages, family=known.config.family, traits=known.config.traits, taken_ids=known.history.call_ids
        )
        self.known.apply(WordsPutBy(healed))

    @property
    def messages(self) -> Sequence[Message]:
        """The messages that the next request carries."""
        return self.known.history.messages

    @property
    def added(self) -> Sequence[Message]:
        """What the turn has added to the session so far."""
        return self.known.history.added

    @property
    def _at_hand(self) -> Command:
        if self.at_hand is None:
            raise TurnwiseBug("a turn that has ordered nothing takes no message")
        return self.at_hand


def check_config(config: TurnConfig) -> None:
    """Raise CallerError for a configuration that cannot work. The error says what to change."""
    if config.max_steps < 1:
        raise CallerError(f"`max_steps` is {config.max_steps}; a turn needs at least 1")
    if config.retry.attempts < 1:
        raise CallerError(f"`retry`: {config.retry.attempts} attempts make no request; 1 is without a retry")
    if config.limits is not None and (fault := fault_of_limit(config.limits)):
        raise CallerError(f"`limits`: {fault}")
    if counts_cost(config.limits):
        for model in (config.model, *[fallback.model for fallback in config.fallbacks]):
            row = config.prices.get(model)
            if row is None or not can_project(row):
                raise CallerError(no_price(model, profile=config.profile, row=row))
    names = [offer.spec.name for offer in config.tools]
    if isinstance(config.tool_choice, NamedTool) and config.tool_choice.name not in names:
        raise CallerError(f"`tool_choice` names `{config.tool_choice.name}`, which is none of the tools")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CallerError(f"two tools are called `{twice[0]}`; give each its own name")
    for offer in config.tools:
        if fault := fault_of_schema(offer.spec.parameters):
            raise BadTool(f"the parameters of tool `{offer.spec.name}` are no usable JSON Schema: {fault}")
    if config.output is not None and (fault := fault_of_schema(config.output.schema)):
        raise CallerError(f"the output schema is no usable JSON Schema: {fault}")


# Rebuilding a turn from its journal: the same events give the same commands anywhere, without running anything.


class SessionSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """A session between two turns. `messages` are all messages of its turns, whole, even if they were summarised. A result that
    was too large when it came is there as the model saw it; its whole text is in the journal. `carried` is what the next turn
    starts from, `asks` what the last turn left undecided."""

    messages: Sequence[Message] = ()
    carried: Carried = Carried()
    asks: tuple[OneAsk, ...] = ()


def restore(events: Iterable[Event], *, earlier: Sequence[Message] | Carried = ()) -> tuple[Turn, list[Command]]:
    """The turn as its journal left it, and every command it gave; the last one is the current command.

    `earlier` is what the session's earlier turns pass on, as `fold_session` gives it, or their messages. Raises TurnwiseBug for a
    journal that does not begin with TurnStarted, or whose events are not a legal sequence.
    """
    commands: list[Command] = []
    turn = rebuilt(events, earlier=earlier, commands=commands)
    return turn, commands


def rebuilt(
    events: Iterable[Event], *, earlier: Sequence[Message] | Carried, commands: list[Command] | None = None
) -> Turn:
    """Only the turn: each command holds the history at its time, and all commands of a long turn together would be quadratic."""
    journal = iter(events)
    turn, command = Turn.start(_first(next(journal, None)), earlier=earlier)
    if commands is not None:
        commands.append(command)
    for event in journal:
        command = turn.receive(event)
        if commands is not None:
            commands.append(command)
    return turn


def replay(events: Iterable[Event], *, earlier: Sequence[Message] | Carried = ()) -> list[Command]:
    """Every command that these events led to, in order."""
    return restore(events, earlier=earlier)[1]


def fold_session(journals: Iterable[Sequence[Event]]) -> SessionSoFar:
    """A session from the journals of its turns, in order.

    A turn that was killed in the middle keeps what it had: its open calls get the result that the run was interrupted and that
    the tool may or may not have run (the events do not say which calls had begun). Linear: a turn takes over what the one before
    it had healed and weighed.
    """
    fold = SessionFold()
    for events in journals:
        fold.take_events(events)
    return fold.so_far


class SessionFold:
    """A session that grows turn by turn: `carried` is what its next turn starts from."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._asks: tuple[OneAsk, ...] = ()
        self.carried = Carried(messages=self._messages)

    @property
    def so_far(self) -> SessionSoFar:
        return SessionSoFar(messages=self._messages, carried=self.carried, asks=self._asks)

    def take_events(self, events: Sequence[Event], *, begun: Collection[str] | None = None) -> None:
        """`take` the turn of these events; without events nothing is added."""
        if events:
            self.take(rebuilt(events, earlier=self.carried), started=_first(events[0]), begun=begun)

    def take(self, turn: Turn, *, started: TurnStarted, begun: Collection[str] | None = None) -> None:
        """Add the session's next turn after the others. A turn that has not ended is left as it is. The model is told that the
        open calls in `begun` (ids) may have run; None: any of them may have. The turn takes no event afterwards."""
        messages = self._messages
        messages += started.history
        messages += turn.left_behind(begun)
        if started.keeps_waiting:  # calls that an earlier turn left may still wait
            self._asks = still_waiting((*self._asks, *turn.known.waiting_asks), messages=messages)
        else:
            self._asks = () if turn.result is None else turn.result.asks
        self.carried = _carry_on(self.carried, turn=turn, started=started, whole=messages)


def _carry_on(before: Carried, *, turn: Turn, started: TurnStarted, whole: list[Message]) -> Carried:
    history, spending = turn.known.history, turn.known.spending
    left = LeftHistory(
        messages=history.messages,
        sizes=history.sizes[: len(history.messages)],
        prompt=history.prompt,
        config=turn.known.room.without_refusals(turn.known.config),
        given_limits=started.config.model_limits,
    )
    gave_way = history.gave_way or before.gave_way
    messages: Sequence[Message] = history.messages if gave_way else whole
    if history.known_as and not history.gave_way:  # the session keeps its own ids; they are healed again
        left = None
        messages = [*before.messages, *started.history, *history.added] if gave_way else whole
    told = told_system_in(messages if history.gave_way else history.added)
    return Carried(
        messages=messages,
        words=history.inbox if turn.result is None and turn.known.pending else (),
        left=left,
        originals=history.originals,
        gone=history.gone,
        call_ids=frozenset(history.call_ids),
        gave_way=gave_way,
        sent=spending.last_sent,
        stale_thinking=turn.known.config.stale_thinking,
        adapted=turn.known.record.adapted,
        told_system=before.told_system if told is None and not history.gave_way else told,
        lessons=turn.known.config.lessons,
        changed=history.changed or (spending.changed_before and not spending.has_left),
    )


def _first(event: Event | None) -> TurnStarted:
    if not isinstance(event, TurnStarted):
        raise TurnwiseBug(f"a journal begins with TurnStarted, not {type(event).__name__}")
    return event
