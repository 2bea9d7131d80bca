"""A session out of its journal, as its next turn finds it."""

from collections.abc import Iterable

from turnwise.journal.journal import Journal, TurnRow
from turnwise.journal.records import begun_calls, events_of
from turnwise.turn.machine import SessionFold, SessionSoFar


def session_so_far(journal: Journal, turns: Iterable[TurnRow]) -> SessionSoFar:
    """What was said in these turns, and what the next one starts from. Calls of a turn that its process left are answered: one
    that had started may have run, one that was only planned has not, unless a damaged
    journal has lost records of the turn."""
    fold = SessionFold()
    for turn in turns:
        entries = journal.entries(turn.id)
        fold.take_events(events_of(entries), begun=None if turn.has_lost_records else begun_calls(entries))
    return fold.so_far
