"""A turn out of its journal: the same events give the same commands, anywhere, without running anything."""

from collections.abc import Iterable, Sequence

from turnwise.errors import TurnwiseBug
from turnwise.turn.commands import Command
from turnwise.turn.events import Event, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.vocab import Message


def restore(events: Iterable[Event], *, earlier: Sequence[Message] = ()) -> tuple[Turn, list[Command]]:
    """The turn as its journal left it, and every command it gave; the last is the one at hand.

    `earlier` are the messages of the session's earlier turns, as `session_messages` gives them.
    Raises TurnwiseBug for a journal that does not begin with TurnStarted, or whose events are no legal sequence.
    """
    journal = iter(events)
    first = next(journal, None)
    if not isinstance(first, TurnStarted):
        raise TurnwiseBug(f"a journal begins with TurnStarted, not {type(first).__name__}")
    turn, command = Turn.start(first, earlier=earlier)
    return turn, [command, *[turn.receive(event) for event in journal]]


def replay(events: Iterable[Event], *, earlier: Sequence[Message] = ()) -> list[Command]:
    """Every command that these events led to, in order."""
    return restore(events, earlier=earlier)[1]


def session_messages(journals: Iterable[Iterable[Event]]) -> tuple[Message, ...]:
    """The messages of a session, from the journals of its turns in order; what the next turn starts from.

    A turn that was killed in mid-way keeps what it had: its open calls get the result that the run was interrupted and
    that the tool may or may not have run.
    """
    messages: list[Message] = []
    for events in journals:
        journal = list(events)
        if not journal:
            continue
        turn, _ = restore(journal, earlier=messages)
        first = journal[0]
        if isinstance(first, TurnStarted):
            messages += first.history
        messages += turn.left_behind()
    return tuple(messages)
