"""Real worker processes share one PostgreSQL: they are killed, frozen and stopped, and the world counts what tools did."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postgres_server import PostgresServer
from terminal.running import running_lab
from turnwise import Budget, Journal, MaxRequests
from waits import HANG_S
from workers.farm import Farm, scripts


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(scripts()) as lab:
        found = Farm(tmp_path / "a földer", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


@pytest.mark.promise("keep:machines")
def test_a_cancelled_turn_whose_worker_died_does_nothing_more(farm: Farm) -> None:
    """Proves: the worker that takes it over ends it as cancelled, before its next request or tool. Once, it ran to its end."""
    session = farm.submit("waits")
    first = farm.worker()
    first.until("entered")
    first.send(signal.SIGKILL)
    first.wait()
    assert farm.run("cancel", session).returncode == 0
    farm.go()
    farm.lapse()
    second = farm.worker()
    assert second.until("ended")["text"] == "cancelled"
    (turn,) = farm.turns(session)
    assert (turn["status"], turn["stop_reason"]) == ("done", "cancelled")
    assert farm.effects() == ["before", "middle"]


def test_a_log_that_nobody_reads_holds_up_nothing(farm: Farm) -> None:
    """Proves: a worker whose log is a full pipe runs its turn and ends with SIGTERM. Once, its event loop stood still in the
    middle of a line, and it kept its leases without end."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writes, b"." * 4096):
            pass
    os.set_blocking(writes, True)
    process = subprocess.Popen(
        [sys.executable, "-m", "turnwise", "worker", "--agent", "plain=farm_agents:plain"],
        cwd=farm.folder,
        env=farm.environment,
        stdin=subprocess.DEVNULL,
        stderr=writes,
    )
    try:
        assert farm.ended(farm.submit("plain"))["answer"] == "Done: did a"
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reads)
        os.close(writes)


def test_a_submitted_turn_is_run_by_a_worker(farm: Farm) -> None:
    """Proves: `submit` prints a session, a worker runs its turn, `status` has the answer, and the session goes on."""
    session = farm.submit("plain")
    assert farm.turns(session)[0]["waits_for"] == "a worker with the agent `plain`"
    farm.worker()
    ended = farm.ended(session)
    assert (ended["code"], ended["answer"]) == (0, "Done: did a")
    assert farm.submit("plain", "--session", session) == session
    ended = farm.ended(session)
    assert [turn["stop_reason"] for turn in ended["turns"]] == ["answered", "answered"]
    assert farm.effects() == ["a", "a"]


@pytest.mark.promise("keep:machines")
def test_a_killed_workers_turn_ends_on_another(farm: Farm) -> None:
    """Proves: a worker that dies in the middle of a tool loses nothing: the turn ends on the other one, and no effect of a tool
    that is not idempotent happens twice."""
    session = farm.submit("waits")
    first = farm.worker()
    first.until("entered")
    second = farm.worker("--lease", "8")
    first.send(signal.SIGKILL)
    first.wait()
    farm.lapse()
    assert second.until("resumed")["session"] == session
    ended = farm.ended(session)
    assert ended["code"] == 0 and ended["answer"].startswith("Done: ")
    assert farm.effects() == ["before", "middle", "after"]


@pytest.mark.promise("keep:machines")
def test_a_frozen_worker_ends_itself(farm: Farm) -> None:
    """Proves: a worker that was frozen past its lease and thawed ends with 70, while the turn and the session's next one end on
    another one, one after the other, with one answer each and no effect twice."""
    session = farm.submit("waits")
    farm.submit("plain", "--session", session)
    first = farm.worker("--lease", "4")
    first.until("entered")
    second = farm.worker("--lease", "8")
    first.send(signal.SIGSTOP)
    assert second.until("resumed")["session"] == session
    ended = farm.ended(session)
    farm.go()
    first.send(signal.SIGCONT)
    assert first.wait() == 70
    assert "no lease was renewed" in first.rest()
    assert ended["code"] == 0
    assert [turn["stop_reason"] for turn in farm.turns(session)] == ["answered", "answered"]
    assert farm.effects() == ["before", "middle", "after", "a"]


def test_a_worker_that_is_stopped_hands_its_turn_over_between_two_steps(farm: Farm) -> None:
    """Proves: after SIGTERM the tool that runs comes to its end, its result counts, another worker goes on at once (the lease is
    30 s), and the exit code is 0."""
    session = farm.submit("waits")
    first = farm.worker()
    first.until("entered")
    second = farm.worker()
    first.send(signal.SIGTERM)
    farm.go()
    assert first.until("handed_over")["session"] == session
    assert first.wait() == 0
    assert second.until("resumed")["session"] == session
    ended = farm.ended(session)
    assert ended["code"] == 0 and "unknown" not in ended["answer"]
    assert farm.effects() == ["before", "middle", "after"]


def test_a_worker_that_is_stopped_lets_go_of_a_tool_that_takes_too_long(farm: Farm) -> None:
    """Proves: after the grace the turn is another one's, the call is told as unknown, and the exit code is 0."""
    session = farm.submit("waits")
    first = farm.worker("--grace", "0")
    first.until("entered")
    second = farm.worker()
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    assert second.until("resumed")["session"] == session
    assert farm.ended(session)["code"] == 0
    assert farm.effects() == ["before", "middle", "after"]


@pytest.mark.promise("end:budget", "keep:machines")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_turn_that_goes_to_another_worker_keeps_its_part_of_a_budget(farm: Farm, how: signal.Signals) -> None:
    """Proves: the part moves with the turn, whether it was handed over or its worker died, and is counted once."""
    session = farm.submit("budgeted")
    first = farm.worker("--grace", "0")
    first.until("entered")
    second = farm.worker()
    with Journal(farm.environment["TURNWISE_DATABASE"]) as journal:
        budget = Budget(MaxRequests(9), journal=journal, name="team")
        assert budget.left == MaxRequests(3)
        first.send(how)
        first.wait()
        if how == signal.SIGKILL:
            farm.lapse()
        assert second.until("resumed")["session"] == session
        assert farm.ended(session)["code"] == 0
        second.send(signal.SIGTERM)
        assert second.wait() == 0
        assert (budget.spent.requests, len(budget.ledger), budget.left) == (4, 4, MaxRequests(5))


def test_labels_come_with_a_submitted_turn(farm: Farm) -> None:
    """Proves: the agent's `DepsFactory` gets them in each turn of the session; other or broken labels are an error."""
    session = farm.submit("labelled", "--label", "user=42=x", "--label", "team=")
    farm.worker()
    assert farm.ended(session)["code"] == 0
    assert farm.submit("labelled", "--session", session) == session
    assert farm.ended(session)["code"] == 0
    assert farm.effects() == ["for-42=x", "a", "for-42=x", "a"]
    for words, said in (
        (("--session", session, "--label", "user=another-users-secret"), "was begun with other labels"),
        (("--label", "user"), "write `--label NAME=TEXT`"),
        (("--label", "user=1", "--label", "user=2"), "was given twice"),
        (("--label", f"user={'x' * 1001}"), "at most 1000 characters"),
    ):
        refused = farm.run("submit", "--agent", "labelled", *words, "Go.")
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
        assert "another-users-secret" not in refused.stderr


def test_a_session_has_one_turn_at_a_time(farm: Farm) -> None:
    """Proves: with two workers that are free, the second turn of a session begins after the first one's end."""
    session = farm.submit("waits")
    farm.submit("plain", "--session", session)
    first = farm.worker()
    first.until("entered")
    other = farm.submit("plain")
    farm.worker()
    assert farm.ended(other)["code"] == 0
    assert farm.turns(session)[0]["waits_for"] == "the turn before it"
    farm.go()
    assert farm.ended(session)["code"] == 0
    assert farm.effects() == ["before", "middle", "a", "after", "a"]


def test_cancel_reaches_the_worker(farm: Farm) -> None:
    """Proves: a turn that runs elsewhere ends as cancelled as soon as its worker hears of it."""
    session = farm.submit("waits")
    worker = farm.worker()
    worker.until("entered")
    done = farm.run("cancel", session, "--json")
    assert json.loads(done.stdout) == {"session": session, "cancelled": 1}
    assert worker.until("ended")["text"] == "cancelled"
    assert farm.ended(session)["turns"][0]["stop_reason"] == "cancelled"
    assert farm.effects() == ["before", "middle"]


@pytest.mark.promise("keep:machines")
def test_a_dead_workers_sub_agent_goes_on_wherever_its_worker_ran(farm: Farm, postgres_dsn: str) -> None:
    """Proves: the turn of a sub-agent is taken over with its parent's, also where its process was another machine's, of which
    nobody can tell whether it lives."""
    session = farm.submit("parent")
    first = farm.worker()
    first.until("entered")
    first.send(signal.SIGKILL)
    first.wait()
    farm.lapse()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            "update turnwise.turn set owner = 'elsewhere:1:1' where agent is null and status = 'running'"
        )
    farm.worker("--lease", "8")
    ended = farm.ended(session)
    assert ended["code"] == 0 and ended["answer"].startswith("The helper says: ")
    assert farm.effects() == ["before", "middle", "after"]


@pytest.mark.promise("keep:machines")
def test_a_restarted_database_loses_no_turn(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Proves: the database crashes and starts again in the middle of a tool; its worker, or the next one, ends the turn, the
    worker hears of new turns again, and no effect happens twice."""
    with running_lab(scripts()) as lab:
        farm = Farm(tmp_path / "farm", dsn=own_postgres.dsn, url=lab.url)
        try:
            session = farm.submit("waits")
            farm.worker().until("entered")
            own_postgres.crash()
            own_postgres.start()
            farm.go()
            assert farm.ended(session)["code"] == 0
            assert farm.ended(farm.submit("plain"))["answer"] == "Done: did a"
            assert farm.effects() == ["before", "middle", "after", "a"]
        finally:
            farm.end()


def test_an_agent_that_raises_ends_its_turn_alone(farm: Farm) -> None:
    """Proves: `status` says of what kind the exception was and not what it said, and the worker goes on."""
    session = farm.submit("broken")
    farm.worker()
    ended = farm.ended(session)
    assert (ended["code"], ended["answer"]) == (1, "")
    assert [(turn["status"], turn["problem"]) for turn in ended["turns"]] == [("lost", "the agent raised `ValueError`")]
    assert farm.ended(farm.submit("plain", "--session", session))["answer"] == "Done: did a"
