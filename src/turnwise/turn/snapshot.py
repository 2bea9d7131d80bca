"""A turn out of its journal: the same events give the same commands, anywhere, without running anything."""

from collections.abc import Collection, Iterable, Sequence

from turnwise.errors import TurnwiseBug
from turnwise.rules.history import heal
from turnwise.turn.commands import Command
from turnwise.turn.events import Event, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.vocab import Message


def restore(
    events: Iterable[Event], *, earlier: Sequence[Message] = (), taken_ids: Collection[str] = ()
) -> tuple[Turn, list[Command]]:
    """The turn as its journal left it, and every command it gave; the last is the one at hand.

    `earlier` are the messages of the session's earlier turns, as `session_messages` gives them.
    Raises TurnwiseBug for a journal that does not begin with TurnStarted, or whose events are no legal sequence.
    """
    journal = iter(events)
    turn, command = Turn.start(_first(next(journal, None)), earlier=earlier, taken_ids=taken_ids)
    return turn, [command, *[turn.receive(event) for event in journal]]


def replay(events: Iterable[Event], *, earlier: Sequence[Message] = ()) -> list[Command]:
    """Every command that these events led to, in order."""
    return restore(events, earlier=earlier)[1]


def session_messages(journals: Iterable[Sequence[Event]]) -> tuple[Message, ...]:
    """The messages of a session, from the journals of its turns in order; what the next turn starts from.

    A turn that was killed in mid-way keeps what it had: its open calls get the result that the run was interrupted and
    that the tool may or may not have run. Linear where no room is made: a turn is then replayed without the messages of
    those before it, as what it adds depends on their call ids only. Which requests were summaries depends on all of them.
    """
    messages: list[Message] = []
    taken: frozenset[str] = frozenset()
    family: str | None = None
    for events in journals:
        if not events:
            continue
        started = _first(events[0])
        if family != started.config.family:
            # Ids are fitted to the family, so another one may have found other ids taken.
            family = started.config.family
            taken = heal(messages, family=family).call_ids
        makes_room = started.config.room != "off"
        turn, _ = restore(events, earlier=messages if makes_room else (), taken_ids=taken)
        messages += started.history
        messages += turn.left_behind()
        taken = frozenset(turn.call_ids)
    return tuple(messages)


def _first(event: Event | None) -> TurnStarted:
    if not isinstance(event, TurnStarted):
        raise TurnwiseBug(f"a journal begins with TurnStarted, not {type(event).__name__}")
    return event
