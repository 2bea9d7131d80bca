"""Sessions whose last turn was left by a process that died: which there are, and how they go on."""

from collections.abc import Sequence

from turnwise.agent.formatting import many
from turnwise.agent.resume_lookup import goes_on
from turnwise.coding_agent.text import short_id
from turnwise.journal.journal import Journal, SessionRow

MOST_SESSIONS = 100_000  # more than a journal holds


def interrupted_rows(journal: Journal) -> list[SessionRow]:
    """The oldest first; those of sub-agents go on with their parents."""
    return [row for row in reversed(journal.sessions(limit=MOST_SESSIONS)) if goes_on(row)]


def how_they_go_on(rows: Sequence[SessionRow]) -> str:
    """A line for at least one of them."""
    if len(rows) == 1:
        return f"1 session was interrupted: `turnwise resume {short_id(rows[0].id)}` goes on with it"
    many_were = f"{many(len(rows), 'session')} were interrupted"
    return f"{many_were}: `turnwise resume ID` goes on with one of them, `turnwise resume --all` with all"
