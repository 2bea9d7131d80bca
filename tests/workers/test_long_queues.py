"""A claim among many turns, and numbers of turns that others have taken."""

from typing import Any

import msgspec
import psycopg
import pytest

from turnwise.errors import CallerError, JournalFailed
from turnwise.workers import statements
from turnwise.workers.queue import MOST_NUMBERS, TurnQueue, WorkerTerms
from turnwise.workers.turn_status import TurnFilter

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


def steps(
    connection: psycopg.Connection, statement: Any, *, is_by_index: bool = True, **values: Any
) -> list[dict[str, Any]]:
    """Of the plan, each as it was executed."""
    with connection.transaction():
        connection.execute(statements.BY_INDEX if is_by_index else statements.BY_PARTIAL_INDEX)
        row = connection.execute(
            "explain (analyze, format json) " + statement, {**TERMS.values(), "longest": 9, **values}
        ).fetchone()
    assert row is not None
    found = [row[0][0]["Plan"]]
    for step in found:
        found += step.get("Plans", [])
    return found


def rows_seen(found: list[dict[str, Any]]) -> float:
    """By all steps of the plan together."""
    return sum([(step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"] for step in found])


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize(("session", "state"), [("'s' || i", ""), ("'s'", ""), ("'s'", "running"), ("'s'", "waiting")])
def test_a_claim_looks_at_one_turn_of_a_session(
    session: str, state: str, is_analyzed: bool, queue: TurnQueue, postgres_dsn: str
) -> None:
    """Proves: however many turns of a session are queued, with or without statistics, and where one of them runs or waits for a
    person, no more than a few rows are seen."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        fill(connection, session=session)
        if state:
            assert queue.claim(TERMS) is not None
            connection.execute("update turn set status = %s, asks = '{}' where status = 'running'", (state,))
            connection.execute("update turn set wake_at = 'infinity' where status = 'waiting'")
        if is_analyzed:
            connection.execute("analyze turn; analyze session; analyze line")
        name = "s" if session == "'s'" else "s1"
        (place,) = connection.execute("select id from line where session = %s", (name,)).fetchone() or (0,)
        found = [
            *steps(connection, statements.LOCK_LEFT, passed=[]),
            *steps(connection, statements.LOCK_NEXT, passed=[]),
            *steps(connection, statements.LOOK_NEXT, session=name),
            *steps(connection, statements.MOVE, session=name, in_line=place),
        ]
        assert rows_seen(found) < 40
        assert "turn_queued" in [step.get("Index Name") for step in found]
        assert queue.claim(TERMS) is None if state else queue.claim(TERMS) is not None


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("session", ["'s' || i", "'s'"])
def test_a_look_at_the_turns_costs_what_it_shows(
    session: str, is_analyzed: bool, queue: TurnQueue, postgres_dsn: str
) -> None:
    """Proves: of many turns, of one session or of as many, only those that are shown are read, and a few rows beside each."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        fill(connection, session=session)
        if is_analyzed:
            connection.execute("analyze turn; analyze session")
        for statement in (statements.STATUS_OF_ALL, statements.STATUS_OF_ONE):
            found = steps(connection, statement, session="s", limit=5)
            assert rows_seen(found) < 100
    assert len(queue.status(limit=5)) == 5


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_totals_read_no_turn_that_has_ended(is_analyzed: bool, queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: beside thousands of ended turns, the totals and the filters read only the open ones: by agent and state, with the
    oldest age, the label of a session, the sessions that can run at once, and what the workers run."""
    queue.submit("Go.", agent="plain", labels={"team": "a"})
    for agent in ("plain", "plain", "other"):
        last = queue.submit("Go.", agent=agent)
    queue.submit("Then.", agent="other", session=last)
    queue.renew((), terms=TERMS)
    claim = queue.claim(TERMS)
    assert claim is not None
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("set search_path = turnwise")
        connection.execute(
            "insert into turn (id, session, status, owner, created, agent, prompt, epoch) select 't' || i, %s, 'done', '', i,"
            f" 'plain', 'Go.', 0 from generate_series(1, {MANY}) i".encode(),
            (last,),
        )
        if is_analyzed:
            connection.execute("analyze turn; analyze session")
        values = {"state": "", "agent": "", "names": ["team"], "texts": ["a"], "session": "", "limit": 5}
        for statement in (statements.TOTALS, statements.STATUS_OF_OPEN, statements.WORKERS):
            assert rows_seen(steps(connection, statement, is_by_index=False, **values)) < 100
        (other_1, other_2) = queue.status(only=TurnFilter(agent="other"))
        assert (other_1.session, other_2.session) == (last, last)
    totals = queue.totals()
    assert {(one.agent, one.state): one.turns for one in totals.turns} == {
        ("plain", "running"): 1,
        ("plain", "queued"): 2,
        ("other", "queued"): 2,
    }
    assert totals.depth == {"plain": 3, "other": 1} and all(one.oldest_s >= 0 for one in totals.turns)
    assert [(one.name, one.sessions) for one in totals.workers] == [("w", (claim.session,))]
    labelled = queue.totals(only=TurnFilter(labels={"team": "a"}))
    assert [(one.agent, one.state, one.turns) for one in labelled.turns] == [("plain", "running", 1)]
    assert [turn.status for turn in queue.status(only=TurnFilter(labels={"team": "a"}))] == ["running"]
    assert len(queue.status(only=TurnFilter(state="ended"), limit=7)) == 7
    with pytest.raises(CallerError, match="`state` must be one of"):
        queue.totals(only=TurnFilter(state="done"))


def test_a_session_stands_in_the_line_as_long_as_a_turn_of_it_is_queued(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: one place for each session, that of its first turn; a turn that is given back stands there again, and a place whose
    turns were cancelled goes with the next look."""
    first = queue.submit("Go.", agent="plain", priority=3)
    queue.submit("On.", agent="other", session=first, priority=1)
    second = queue.submit("Go.", agent="plain")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:

        def line() -> list[tuple[Any, ...]]:
            rows = connection.execute("select session, priority, agent from turnwise.line order by priority desc")
            return rows.fetchall()

        assert line() == [(first, 3, "plain"), (second, 0, "plain")]
        claim = queue.claim(TERMS)
        assert claim is not None and line() == [(first, 1, "other"), (second, 0, "plain")]
        queue.release(claim)
        assert sorted(line()) == sorted([(first, 3, "plain"), (first, 1, "other"), (second, 0, "plain")])
        assert [turn.waits_for for turn in queue.status(first)] == [
            "the turn before it",
            "a worker with the agent `plain`",
        ]
        again = queue.claim(TERMS)
        assert again is not None and again.prompt == "Go." and again.session == first
        assert queue.cancel(second) == 1
        assert queue.claim(TERMS) is None
        assert line() == [(first, 1, "other")]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_turn_that_is_given_back_stays_the_first_of_its_session(queue: TurnQueue, is_refused: bool) -> None:
    """Proves: a worker that gives it back or may not run it changes no order. Once, the turn behind it overtook it."""
    session = queue.submit("one", agent="plain")
    queue.submit("two", agent="plain", session=session)
    claim = queue.claim(TERMS)
    assert claim is not None and claim.prompt == "one"
    if is_refused:
        queue.refuse(claim, terms=TERMS, problem="not here")
        assert queue.claim(TERMS) is None
    else:
        queue.release(claim)
    again = queue.claim(msgspec.structs.replace(TERMS, name="other"))
    assert again is not None and again.prompt == "one"
    assert [turn.waits_for for turn in queue.status(session)] == ["the turn before it", ""]


def test_a_turn_that_was_begun_goes_on_before_others_begin(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: also before one of a higher priority, whose session it may hold up."""
    left = queue.submit("Go.", agent="plain")
    assert queue.claim(TERMS) is not None
    queue.submit("Go.", agent="plain", priority=9)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("update turnwise.turn set lease_until = '-infinity'")
    claim = queue.claim(TERMS)
    assert claim is not None and claim.session == left


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
