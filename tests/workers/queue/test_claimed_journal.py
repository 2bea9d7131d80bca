"""The pen of a claimed turn: it writes while the lease is its own, and not a word later."""

from collections.abc import Iterator, Sequence

import psycopg
import pytest

from journal.store_conformance import begin, result, sent, started
from turnwise import Journal
from turnwise.base.activity import Activity
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.owners import Claim
from turnwise.vocab import Frame
from turnwise.workers.queue import TurnQueue, WorkerTerms

ONE = WorkerTerms(name="worker@one:1:1", agents=("helper",))
TWO = WorkerTerms(name="worker@two:1:1", agents=("helper",))


class CountedLease:
    """Says how often it was asked."""

    ends = False
    is_over = False

    def __init__(self) -> None:
        self.activity = Activity(on_rest=lambda: None)
        self.checks = 0

    def check(self) -> None:
        self.checks += 1

    def see_frames(self, turn: str, frames: Sequence[Frame], /, *, number: int) -> None:
        """Nobody follows."""

    def let_go(self) -> None:
        raise JournalFailed("given back")


@pytest.fixture
def journal(postgres_dsn: str) -> Iterator[Journal]:
    with Journal(postgres_dsn, clock=SystemClock()) as found:
        yield found


def claimed(queue: TurnQueue, terms: WorkerTerms) -> Claim:
    claim = queue.claim(terms)
    assert claim is not None
    return claim


def lapse(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update turnwise.turn set lease_until = now() - interval '1 s'")


def test_a_pen_whose_turn_was_taken_over_writes_nothing(queue: TurnQueue, journal: Journal, postgres_dsn: str) -> None:
    """Proves: the row that was claimed becomes the turn; once another worker has it, the first pen neither writes nor ends it,
    and the second goes on behind its last record."""
    session = queue.submit("Go", agent="helper")
    lease = CountedLease()
    first = journal.under(claimed(queue, ONE), lease=lease)
    pen = begin(first, session, "t1", started=started("t1", "Go"))
    pen.append(sent(1))
    assert lease.checks == 1
    lapse(postgres_dsn)
    second = journal.under(claimed(queue, TWO), lease=CountedLease())
    with pytest.raises(JournalFailed, match="another process has taken this turn over"):
        pen.append(sent(2))
    assert second.find_session(session).turns[-1].status == "lost"
    again = second.resume_turn("t1")
    again.append(sent(2))
    again.close(result())
    assert [entry.seq for entry in journal.entries("t1")] == [1, 2, 3]
    assert [turn.status for turn in queue.status(session)] == ["done"]


def test_a_worker_that_lost_its_turn_does_not_begin_it(queue: TurnQueue, journal: Journal, postgres_dsn: str) -> None:
    """Proves: between the claim and the first record the lease may lapse, too; the turn then begins at the other worker."""
    session = queue.submit("Go", agent="helper")
    late = journal.under(claimed(queue, ONE), lease=CountedLease())
    lapse(postgres_dsn)
    second = journal.under(claimed(queue, TWO), lease=CountedLease())
    with pytest.raises(JournalFailed, match="another process has taken this turn over"):
        begin(late, session, "t1", started=started("t1", "Go"))
    begin(second, session, "t2", started=started("t2", "Go")).close(result())
    assert [turn.id for turn in journal.find_session(session).turns] == ["t2"]


def test_nobody_else_runs_a_session_that_a_worker_has(queue: TurnQueue, journal: Journal) -> None:
    """Proves: a program that opens the same database does not take a worker's turn for one that was left."""
    session = queue.submit("Go", agent="helper")
    begin(journal.under(claimed(queue, ONE), lease=CountedLease()), session, "t1", started=started("t1", "Go"))
    with pytest.raises(CallerError, match="is running already"):
        begin(journal, session, "t2")
    with pytest.raises(CallerError, match="is running"):
        journal.resume_turn("t1")


def test_a_pen_whose_turn_was_let_go_writes_nothing(queue: TurnQueue, journal: Journal) -> None:
    """Proves: what a worker gives back it neither goes on with nor ends: the turn is as it was, whoever claims it next."""
    session = queue.submit("Go", agent="helper")
    lease = CountedLease()
    pen = begin(journal.under(claimed(queue, ONE), lease=lease), session, "t1", started=started("t1", "Go"))
    lease.is_over = True
    with pytest.raises(JournalFailed, match="this worker stops"):
        pen.append(sent(1))
    pen.abandon()
    assert [entry.seq for entry in journal.entries("t1")] == [1]
    assert [turn.status for turn in queue.status(session)] == ["running"]


@pytest.mark.promise("keep:machines")
def test_a_turn_ends_though_its_sessions_row_is_locked(journal: Journal, queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: whoever has locked the session's row does not hold up the end of its turn, whose status says why it ended, and the
    session's time is that of the end. Once, the worker waited for 10 s, and the finished turn was lost."""
    session = queue.submit("Go", agent="helper")
    claim = claimed(queue, ONE)
    own = journal.under(claim, lease=CountedLease())
    pen = begin(own, session, "t1", started=started("t1", "Go"))
    with psycopg.connect(postgres_dsn) as other:
        other.execute("select 1 from turnwise.session where id = %s for update", (session,))
        pen.close(result(), problem="it was stuck")
        (status,) = queue.status(session)
    assert (status.status, status.problem) == ("done", "it was stuck")
    assert journal.find_session(session).row.updated == status.finished
