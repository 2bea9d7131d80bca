"""A session as it was recorded: its turns with all that was written about them, and the sessions of its sub-agents."""

from collections.abc import Iterator

import msgspec

from turnwise.journal.journal import Journal, JournalEntry, Session, SessionRow, TurnRow
from turnwise.journal.records import events_of
from turnwise.turn.events import Event

MOST_LEVELS = 32  # of sub-agents below one another; turnwise itself starts three


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """`children` are the sessions of its sub-agents, each with the call that it belongs to."""

    row: TurnRow
    entries: tuple[JournalEntry, ...]
    children: tuple[tuple[str, "RecordedSession"], ...] = ()

    @property
    def events(self) -> list[Event]:
        """Those alone that rebuild the turn."""
        return events_of(self.entries)


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    row: SessionRow
    turns: tuple[RecordedTurn, ...]


def read_recorded(journal: Journal, session: Session) -> RecordedSession:
    """All of the session that the journal has. Raises CallerError where a part of it cannot be read."""
    turns = [
        RecordedTurn(
            row=turn,
            entries=tuple(journal.entries(turn.id)),
            children=tuple([(call_id, read_recorded(journal, child)) for call_id, child in journal.children(turn.id)]),
        )
        for turn in session.turns
    ]
    return RecordedSession(row=session.row, turns=tuple(turns))


def all_sessions(session: RecordedSession) -> Iterator[RecordedSession]:
    """The session, and those below it, each before its own sub-agents."""
    yield session
    for turn in session.turns:
        for _, child in turn.children:
            yield from all_sessions(child)
