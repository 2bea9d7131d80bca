"""How workers hear of turns: whatever becomes of a ring, each turn runs, and runs once. With real worker processes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from journal.cutting_proxy import CuttingProxy
from postgres_server import PostgresServer
from terminal.running import running_lab
from turnwise.base.clock import SystemClock
from turnwise.journal.postgres.news import TURNS
from turnwise.workers.queue import TurnQueue, WorkerTerms
from workers.farm import Farm, scripts

pytestmark = pytest.mark.costly

TERMS = WorkerTerms(name="worker@one:1:1", agents=("helper",))
RACES = 40
SUBMITTED_IN_SILENCE = """
insert into turnwise.session (id, folder, title, created, updated) values ('silent', '', 'go', 0, 0);
insert into turnwise.turn (id, session, status, epoch, owner, created, agent, prompt)
values ('unheard', 'silent', 'queued', 0, '', 0, 'plain', 'Go.')"""


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(scripts()) as lab:
        found = Farm(tmp_path / "farm", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


@pytest.mark.promise("keep:machines")
def test_a_turn_whose_ring_was_lost_runs_all_the_same(farm: Farm, postgres_dsn: str) -> None:
    """Proves: of a turn that nobody rang for (its doorbell was deleted) workers hear because they look."""
    farm.worker("--lease", "4")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        for statement in SUBMITTED_IN_SILENCE.split(";"):
            connection.execute(statement.encode())
    assert farm.ended("silent")["answer"] == "Done: did a"
    assert farm.effects() == ["a"]


@pytest.mark.promise("keep:machines")
def test_a_doubled_ring_runs_nothing_twice(farm: Farm, postgres_dsn: str) -> None:
    """Proves: two workers that hear of one turn many times run it once."""
    farm.worker()
    farm.worker()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        session = farm.submit("plain")
        for _ in range(100):
            connection.execute("select pg_notify(%s, %s)", (TURNS, session))
    assert farm.ended(session)["answer"] == "Done: did a"
    assert farm.effects() == ["a"]


@pytest.mark.promise("keep:machines")
def test_a_turn_that_is_submitted_while_another_worker_looks_is_not_lost(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a turn of a session is submitted at the same time as two workers look for one. Each turn is claimed once, in order,
    however the three meet."""
    session = queue.submit("0", agent="helper")
    submitter = TurnQueue(postgres_dsn, clock=SystemClock())
    claimed: list[str] = []

    def submit_all() -> None:
        for number in range(1, RACES):
            submitter.submit(str(number), agent="helper", session=session)

    def claim_all() -> None:
        own = TurnQueue(postgres_dsn, clock=SystemClock())
        while len(claimed) < RACES:
            claim = own.claim(TERMS)
            if claim is not None:
                claimed.append(claim.prompt)
                own.fail(claim, problem="it was enough to claim it")
        own.close()

    threads = [threading.Thread(target=work) for work in (submit_all, claim_all, claim_all)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    submitter.close()
    assert claimed == [str(number) for number in range(RACES)]


@pytest.mark.promise("keep:machines")
def test_a_half_open_connection_ends_its_worker_and_no_turn(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Proves: a way to the database that stops forwarding without a word costs the worker behind it its lease: it ends with 70,
    and the worker that still reaches the database ends the turn."""
    proxy = CuttingProxy(own_postgres.socket)
    with running_lab(scripts()) as lab:
        farm = Farm(tmp_path / "farm", dsn=own_postgres.dsn, url=lab.url)
        try:
            session = farm.submit("waits")
            behind = farm.worker("--lease", "4", "--database", proxy.dsn)
            behind.until("entered")
            proxy.stop_forwarding()
            ahead = farm.worker("--lease", "8")
            assert ahead.until("resumed")["session"] == session
            assert behind.wait() == 70
            assert farm.ended(session)["code"] == 0
            assert farm.effects() == ["before", "middle", "after"]
        finally:
            farm.end()
            proxy.close()
