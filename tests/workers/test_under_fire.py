"""Many turns on several workers under a supervisor, while workers are killed, frozen and stopped, and the database is cut off and
restarted. `TURNWISE_TEST_TURNS=1000` sets how many turns the larger test runs."""

import os
import re
import sys
from pathlib import Path

import psycopg
import pytest

from postgres_server import PostgresServer
from terminal.running import running_lab
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.workers.queue import TurnQueue
from workers.farm import Farm, scripts, until
from workers.supervisor import Supervisor, Troubles

pytestmark = pytest.mark.costly

TURNS = int(os.environ.get("TURNWISE_TEST_TURNS", "50"))
LEASE_S = "4"
EFFECTS = 3  # of a turn
REQUESTS = 3
KINDS = ("kill", "freeze", "cut", "kill", "restart", "stop", "freeze", "kill")
WORD = re.compile(r"turn-[0-9]{5}")
ENDS = {0, 70, -9, -15}  # -15: it was stopped before it was ready


def run_under_fire(server: PostgresServer, folder: Path, *, count: int, turns: int, seed: int) -> None:
    """Fails where a turn is lost, doubled, or ends otherwise than it should. Prints what happened."""

    def restart() -> None:
        server.crash()
        server.start()

    with running_lab(scripts()) as lab:
        farm = Farm(folder, dsn=server.dsn, url=lab.url)
        queue = TurnQueue(server.dsn, clock=SystemClock())
        queue.open()
        sessions = [queue.submit(word_of(number), agent="short") for number in range(turns)]
        queue.close()
        supervisor = Supervisor(farm, "--lease", LEASE_S, "--concurrency", "4", count=count)
        troubles = Troubles(supervisor, dsn=server.dsn, restart=restart, seed=seed)
        try:
            for number, kind in enumerate(KINDS, start=1):
                due = number * turns * EFFECTS // (len(KINDS) + 1)
                until(lambda due=due: len(farm.effects()) >= due or open_turns(server.dsn) == 0)
                troubles.befall(kind)
            until(lambda: open_turns(server.dsn) == 0)
        finally:
            supervisor.end()
        check_all(server.dsn, farm=farm, lab=lab, sessions=sessions)
        assert set(supervisor.ends) <= ENDS, supervisor.ends
        assert supervisor.ends[-9] == troubles.counts["kill"]
        sys.stdout.write(
            f"{turns} turns, {count} workers: {dict(troubles.counts)}, exit codes {dict(supervisor.ends)}, "
            f"{taken_over(server.dsn)} take-overs, {len(farm.hits())} hits of the window, {lost(server.dsn)} requests lost\n"
        )


def check_all(dsn: str, *, farm: Farm, lab: Lab, sessions: list[str]) -> None:
    effects = farm.effects()
    assert len(effects) == len(set(effects)), sorted(name for name in effects if effects.count(name) > 1)
    with psycopg.connect(dsn, autocommit=True) as connection:
        ends = connection.execute(
            "select session, status, stop_reason, complete, problem from turnwise.turn order by session"
        ).fetchall()
        responses = connection.execute(
            "select turn, count(*) from turnwise.record where kind = 'response_received' group by turn"
        ).fetchall()
        (ledger,) = connection.execute("select count(*) from turnwise.request").fetchone() or (0,)
    assert ends == [(session, "done", "answered", 1, None) for session in sorted(sessions)]
    assert {count for _, count in responses} == {REQUESTS}
    check_words(dsn, lab=lab, sessions=sessions)
    # A request is entered before its first byte leaves: what the lab has not seen is in the ledger as lost.
    assert ledger - lost(dsn) <= len(lab.requests) <= ledger


def word_of(number: int) -> str:
    """What the user of a turn says; none is a part of another."""
    return f"turn-{number:05}"


def check_words(dsn: str, *, lab: Lab, sessions: list[str]) -> None:
    """No word of one turn stands in a record or a request of another, though one agent runs them all at once."""
    words = {word_of(number) for number in range(len(sessions))}
    own = {session: word_of(number) for number, session in enumerate(sessions)}
    with psycopg.connect(dsn, autocommit=True) as connection:
        records = connection.execute(
            "select turn.session, record.body from turnwise.record join turnwise.turn on turn.number = record.turn"
        ).fetchall()
    assert {session for session, _ in records} == set(sessions)
    assert all(set(WORD.findall(body)) <= {own[session]} for session, body in records)
    for request in lab.requests:
        found = set(WORD.findall(str(request.body)))
        assert len(found) == 1 and found <= words, found


def open_turns(dsn: str) -> int:
    return number_of("select count(*) from turnwise.turn where status in ('queued', 'running')", dsn=dsn)


def lost(dsn: str) -> int:
    return number_of("select count(*) from turnwise.request where outcome = 'lost'", dsn=dsn)


def taken_over(dsn: str) -> int:
    return number_of("select sum(epoch) - count(*) from turnwise.turn", dsn=dsn)


def number_of(sql: str, *, dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return int((connection.execute(sql.encode()).fetchone() or (0,))[0])


@pytest.mark.promise("keep:machines", "run:own-state")
def test_every_turn_of_two_workers_ends_once(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Proves: of fifty turns on two workers each ends with one answer, no effect of a tool that is not idempotent happens twice,
    and the ledger has every request that the lab saw, though workers are killed, frozen past their lease and stopped, their
    connections are cut and the database restarts. No word of one turn reaches another."""
    run_under_fire(own_postgres, tmp_path / "farm", count=2, turns=50, seed=20)


@pytest.mark.wide
@pytest.mark.promise("keep:machines")
def test_every_turn_of_four_workers_ends_once(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Proves: the same with four workers, which take over from each other."""
    run_under_fire(own_postgres, tmp_path / "farm", count=4, turns=TURNS, seed=21)
