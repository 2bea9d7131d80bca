"""A claim among many turns, and numbers of turns that others have taken."""

from typing import Any

import psycopg
import pytest

from turnwise.drivers.dispatch import statements
from turnwise.drivers.dispatch.queue import MOST_NUMBERS, TurnQueue, WorkerTerms
from turnwise.errors import JournalFailed

MANY = 2000
TERMS = WorkerTerms(name="w", agents=("plain",))


def fill(connection: psycopg.Connection, *, session: str) -> None:
    """`session` is SQL of `i`, the number of a turn."""
    connection.execute("set search_path = turnwise")
    connection.execute(
        f"insert into session select distinct {session}, '', '', 0, 0 from generate_series(1, {MANY}) i".encode()
    )
    connection.execute(
        f"insert into turn (id, session, status, owner, created, agent, prompt, epoch) select 't' || i, {session}, 'queued',"
        f" '', 0, 'plain', 'Go.', 0 from generate_series(1, {MANY}) i".encode()
    )


def steps(connection: psycopg.Connection, statement: Any, **values: Any) -> list[dict[str, Any]]:
    """Of the plan, each as it was executed."""
    with connection.transaction():
        connection.execute(statements.BY_INDEX)
        row = connection.execute(
            "explain (analyze, format json) " + statement, {**TERMS.values(), "longest": 9, **values}
        ).fetchone()
    assert row is not None
    found = [row[0][0]["Plan"]]
    for step in found:
        found += step.get("Plans", [])
    return found


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize(("session", "is_busy"), [("'s' || i", False), ("'s'", False), ("'s'", True)])
def test_a_claim_looks_at_an_index_and_not_at_all_turns(
    session: str, is_busy: bool, is_analyzed: bool, queue: TurnQueue, postgres_dsn: str
) -> None:
    """Proves: with many turns, of one session or of as many, with or without statistics, nothing is sorted, and it is looked for
    earlier turns of a session at most once, and not at all behind one that runs."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        fill(connection, session=session)
        if is_busy:
            assert queue.claim(TERMS) is not None
        if is_analyzed:
            connection.execute("analyze turn; analyze session")
        found = steps(connection, statements.LOCK_SESSION, passed=[])
        within = steps(connection, statements.LOOK, session="s" if session == "'s'" else "s1")
    assert not [step for step in found if "Sort" in step["Node Type"]]
    assert "turn_in_line" in [step.get("Index Name") for step in found]
    [earlier] = [step for step in found if step.get("Alias") == "earlier"]
    assert earlier["Actual Loops"] == (0 if is_busy else 1)
    if not is_busy:
        assert max(step["Actual Rows"] + step.get("Rows Removed by Filter", 0) for step in within) <= 1
        assert queue.claim(TERMS) is not None


def test_numbers_that_are_taken_are_passed_over(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: rows with the next numbers hold up neither a claim nor a submit; where too many are taken, it is said."""
    session = queue.submit("Go.", agent="plain")
    take = (
        "insert into turnwise.turn (id, session, number, status, owner, created) overriding system value"
        " select 'x' || i, %s, i, 'done', '', 0 from generate_series(%s::int, %s::int) i"
    )
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(take, (session, 2, 20))
        assert queue.claim(TERMS) is not None
        assert queue.submit("Go.", agent="plain")
        connection.execute(take, (session, 23, 23 + 2 * MOST_NUMBERS))
    with pytest.raises(JournalFailed, match=f"next {MOST_NUMBERS} numbers of turns are taken"):
        queue.submit("Go.", agent="plain")
