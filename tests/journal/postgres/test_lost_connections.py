"""A connection that is lost at any moment: each record stands once, in order, and the turn goes on."""

import threading
import time
from collections.abc import Iterator
from typing import get_args

import psycopg
import pytest

from journal.cutting_proxy import Cut, CuttingProxy
from journal.store_conformance import NOW, begin, ended, entry, result, sent, started
from postgres_server import PostgresServer
from turnwise import Journal
from turnwise.errors import JournalFailed
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.postgres.connection import Waits
from turnwise.journal.postgres.store import PostgresStore
from turnwise.journal.turn_writer import TurnJournal
from turnwise.testing import FakeClock
from waits import HANG_S

CUTS: tuple[Cut, ...] = get_args(Cut)
SHORT = Waits(answer_s=0.4, reconnect_s=HANG_S, all_s=HANG_S)
BEGINNING = 7  # messages of `begin_turn`, its commit among them
TAKING_OVER = 7  # of `resume_turn`


@pytest.fixture
def proxy(own_postgres: PostgresServer) -> Iterator[CuttingProxy]:
    made = CuttingProxy(own_postgres.socket)
    yield made
    made.close()


def opened(dsn: str, *, waits: Waits = SHORT) -> Journal:
    return Journal.over(PostgresStore.open(dsn, waits=waits), clock=FakeClock(now=NOW))


def write_all(pen: TurnJournal, proxy: CuttingProxy, cut: Cut) -> int:
    """Each kind of write, and each of them is cut. Returns how many there were."""
    writes = (
        lambda: (pen.later(started("t1", "a")), pen.append(started("t1", "b"))),
        lambda: pen.request_leaves(sent(1), entry(1)),
        lambda: (pen.request_became(ended(1)), pen.append(started("t1", "c"))),
        lambda: (pen.later(started("t1", "d")), pen.request_leaves(sent(2), entry(2))),
        lambda: pen.request_leaves(sent(3), entry(3)),
        lambda: (pen.request_stayed(entry(2)), pen.append(started("t1", "e"))),
        lambda: (pen.request_became(ended(3)), pen.write()),
        lambda: pen.close(result()),
    )
    for write in writes:
        proxy.cut_at(1, cut)
        write()
    return len(writes)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("cut", CUTS)
def test_each_record_stands_once_wherever_the_connection_is_cut(proxy: CuttingProxy, cut: Cut) -> None:
    """Proves: before the statement, after it, or without a word to anybody, no write is lost and none stands twice."""
    with opened(proxy.dsn) as journal:
        assert write_all(begin(journal), proxy, cut) == proxy.cuts == 8
        records = [one.record for one in journal.entries("t1")]
        assert records == [
            *(started("t1", "a"), started("t1", "b"), sent(1), started("t1", "c"), started("t1", "d")),
            *(sent(2), sent(3), started("t1", "e")),
        ]
        assert journal.ledger.entries(LedgerSpan()) == [ended(1), ended(3)]
        assert [row.status for row in journal.sessions()] == ["done"]


@pytest.mark.costly
def test_a_turn_begins_once_wherever_the_connection_is_cut(proxy: CuttingProxy) -> None:
    """Proves: also where its commit was done and nobody was told, the turn is there once, runs, and takes records."""
    places: list[tuple[int, Cut]] = [
        (message, cut) for message in range(1, BEGINNING + 1) for cut in ("before", "after")
    ]
    with opened(proxy.dsn) as journal:
        for number, (message, cut) in enumerate(places, 1):
            begin(journal, turn=f"before{number}").close(result())
            proxy.cut_at(message, cut)
            pen = begin(journal, turn=f"t{number}")
            assert proxy.cuts == number
            pen.append(sent(1))
            session = journal.last_session("/here")
            assert session is not None
            assert [(turn.id, turn.status) for turn in session.turns][-2:] == [
                (f"before{number}", "done"),
                (f"t{number}", "running"),
            ]
            pen.close(result())


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
def test_a_turn_is_taken_over_once_wherever_the_connection_is_cut(proxy: CuttingProxy) -> None:
    """Proves: also where the commit was done and nobody was told, the epoch has grown by one, and the pen takes records."""
    with opened(proxy.dsn) as journal:
        begin(journal, started=started("t1", "a"))
        places: list[tuple[int, Cut]] = [
            (message, cut) for message in range(1, TAKING_OVER + 1) for cut in ("before", "after")
        ]
        for number, (message, cut) in enumerate(places, 1):
            journal.leave("t1")
            proxy.cut_at(message, cut)
            pen = journal.resume_turn("t1")
            assert proxy.cuts == number and journal.tries_in_vain("t1") == 1
            pen.append(started("t1", str(number)))
        assert [one.record for one in journal.entries("t1")][1:] == [
            started("t1", str(number)) for number in range(1, len(places) + 1)
        ]


@pytest.mark.costly
def test_a_reader_asks_again(proxy: CuttingProxy) -> None:
    """Proves: who lists sessions or sums up costs does not notice a restart."""
    with opened(proxy.dsn) as journal:
        begin(journal).append(sent(1))
        for cut in CUTS:
            proxy.cut_at(1, cut)
            assert [row.id for row in journal.sessions()] == ["s1"]
            proxy.cut_at(1, cut)
            assert journal.ledger.entries(LedgerSpan()) == []
        assert proxy.cuts == 8


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
def test_a_statement_that_still_runs_on_the_lost_connection_does_not_double_its_record(
    own_postgres: PostgresServer, proxy: CuttingProxy
) -> None:
    """Proves: the first attempt waits in the server while the second is sent; whichever comes first, one record stands."""
    with opened(proxy.dsn) as journal, psycopg.connect(own_postgres.dsn) as blocking:
        pen = begin(journal)
        blocking.execute("select 1 from turnwise.turn for update")
        released = threading.Thread(target=_release_when_two_wait, args=(own_postgres.dsn, blocking))
        released.start()
        proxy.cut_at(1, "mute")
        # The proxy would wait for the answer: it is cut where this process gives up, and the server goes on.
        pen.append(sent(1))
        released.join(HANG_S)
        assert [one.record for one in journal.entries("t1")] == [sent(1)]


def _release_when_two_wait(dsn: str, blocking: psycopg.Connection) -> None:
    give_up = time.monotonic() + HANG_S
    with psycopg.connect(dsn, autocommit=True) as watching:
        while time.monotonic() < give_up:
            row = watching.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'").fetchone()
            if row is not None and row[0] >= 2:
                break
    blocking.commit()


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
def test_a_restart_in_the_middle_of_a_turn_loses_nothing(own_postgres: PostgresServer) -> None:
    """Proves: the server is killed and comes back three times while a turn writes 300 records: each stands once, in order."""
    with opened(own_postgres.dsn) as journal:
        pen = begin(journal)
        for number in range(300):
            writing = threading.Thread(target=pen.append, args=(sent(number),))
            if number % 100 == 50:
                own_postgres.crash()
                writing.start()
                own_postgres.start()  # here: the kernel ends it with the thread that has started it
            else:
                writing.start()
            writing.join(HANG_S)
        assert [one.record for one in journal.entries("t1")] == [sent(number) for number in range(300)]


@pytest.mark.costly
def test_a_server_that_stays_away_fails_the_write_within_its_bound(own_postgres: PostgresServer) -> None:
    """Proves: the caller is told which database and why; what waited is written when it is back."""
    with opened(own_postgres.dsn, waits=Waits(reconnect_s=0.2)) as journal:
        pen = begin(journal)
        own_postgres.crash()
        pen.later(started("t1", "waits"))
        with pytest.raises(JournalFailed, match=r"the journal `postgresql://tester@.*/postgres` cannot be used"):
            pen.append(sent(1))
        own_postgres.start()
        pen.append(sent(2))
        assert [one.record for one in journal.entries("t1")] == [started("t1", "waits"), sent(2)]


@pytest.mark.costly
def test_a_network_that_says_nothing_fails_the_write_within_one_limit_for_all_tries(proxy: CuttingProxy) -> None:
    """Proves: the wait for an answer and those for new connections are parts of one limit; each had its own, 30 s together and
    more (issue 40)."""
    began = time.monotonic()
    with opened(proxy.dsn, waits=Waits(answer_s=0.3, reconnect_s=HANG_S, all_s=1.0)) as journal:
        pen = begin(journal)
        proxy.stop_forwarding()
        with pytest.raises(JournalFailed, match="cannot be used"):
            pen.append(sent(1))
    assert time.monotonic() - began < HANG_S / 2


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
def test_a_turn_that_was_taken_over_while_the_connection_was_away_stays_fenced(proxy: CuttingProxy) -> None:
    """Proves: the second attempt of a write is fenced like the first."""
    with opened(proxy.dsn) as journal, opened(proxy.dsn) as other:
        pen = begin(journal)
        other.leave("t1")
        begin(other, turn="t2")
        proxy.cut_at(1, "before")
        with pytest.raises(JournalFailed, match="taken this turn over"):
            pen.append(sent(1))
        assert proxy.cuts == 1 and other.entries("t1") == []
