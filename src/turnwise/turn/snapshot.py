"""A turn out of its journal: the same events give the same commands, anywhere, without running anything."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.turn.approvals import OneAsk
from turnwise.turn.carried_state import Carried, LeftHistory, told_system_in
from turnwise.turn.commands import Command
from turnwise.turn.events import Event, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.turn.pending_calls import still_waiting
from turnwise.vocab import Message


class SessionSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """A session between two turns. `messages` are all that its turns brought, whole, whatever was summarised; a result that
    was too large when it came stands there as the model saw it, and its whole text is in the journal. `carried` is what the
    next turn starts from, `asks` what the last one left to be decided."""

    messages: Sequence[Message] = ()
    carried: Carried = Carried()
    asks: tuple[OneAsk, ...] = ()


def restore(events: Iterable[Event], *, earlier: Sequence[Message] | Carried = ()) -> tuple[Turn, list[Command]]:
    """The turn as its journal left it, and every command it gave; the last is the one at hand.

    `earlier` is what the session's earlier turns carry on, as `fold_session` gives it, or their messages.
    Raises TurnwiseBug for a journal that does not begin with TurnStarted, or whose events are no legal sequence.
    """
    commands: list[Command] = []
    turn = _rebuilt(events, earlier=earlier, commands=commands)
    return turn, commands


def _rebuilt(
    events: Iterable[Event], *, earlier: Sequence[Message] | Carried, commands: list[Command] | None = None
) -> Turn:
    """The turn alone: each command holds the history as it was, and those of a long turn together its square."""
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
    """A session from the journals of its turns in order.

    A turn that was killed in mid-way keeps what it had: its open calls get the result that the run was interrupted and
    that the tool may or may not have run (which of them had begun, the events do not say). Linear: a turn takes over what the
    one before it had healed and weighed.
    """
    fold = SessionFold()
    for events in journals:
        fold.take_events(events)
    return fold.so_far


class SessionFold:
    """A session that grows by one turn after the other: `carried` is what its next turn starts from."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._asks: tuple[OneAsk, ...] = ()
        self.carried = Carried(messages=self._messages)

    @property
    def so_far(self) -> SessionSoFar:
        return SessionSoFar(messages=self._messages, carried=self.carried, asks=self._asks)

    def take_events(self, events: Sequence[Event], *, begun: Collection[str] | None = None) -> None:
        """`take` the turn of these events; one without any adds nothing."""
        if events:
            self.take(_rebuilt(events, earlier=self.carried), started=_first(events[0]), begun=begun)

    def take(self, turn: Turn, *, started: TurnStarted, begun: Collection[str] | None = None) -> None:
        """Put the session's next turn behind the others; one that has not ended is left as it is. The model is told that the
        open calls in `begun` (ids) may have run; None: any of them may have. The turn takes no event afterwards."""
        messages = self._messages
        messages += started.history
        messages += turn.left_behind(begun)
        if started.keeps_waiting:  # what an earlier turn left may wait still
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
    if history.known_as and not history.gave_way:  # the session keeps its own ids; they are healed anew
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
