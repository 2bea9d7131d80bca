"""Real worker processes share one PostgreSQL: they are killed, frozen and stopped, and the world counts what tools did."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from faces.cli.running import running_lab
from workers.farm import Farm, scripts


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(scripts()) as lab:
        found = Farm(tmp_path / "a földer", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


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


def test_a_killed_workers_turn_ends_on_another(farm: Farm) -> None:
    """Proves: a worker that dies in the middle of a tool loses nothing: the turn ends on the other one, and no effect of a tool
    that is not idempotent happens twice."""
    session = farm.submit("waits")
    first = farm.worker("--lease", "2")
    first.until("entered")
    second = farm.worker("--lease", "2")
    first.send(signal.SIGKILL)
    assert second.until("resumed")["session"] == session
    ended = farm.ended(session)
    assert ended["code"] == 0 and ended["answer"].startswith("Done: ")
    assert farm.effects() == ["before", "middle", "after"]


def test_a_frozen_worker_ends_itself(farm: Farm) -> None:
    """Proves: a worker that was frozen past its lease and thawed ends with 70 (or its pen is fenced), while the turn ends on
    another one with one answer and no effect twice."""
    session = farm.submit("waits")
    first = farm.worker("--lease", "2")
    first.until("entered")
    second = farm.worker("--lease", "2")
    first.send(signal.SIGSTOP)
    assert second.until("resumed")["session"] == session
    ended = farm.ended(session)
    farm.go()
    first.send(signal.SIGCONT)
    assert first.wait() == 70
    assert "no lease was renewed" in first.rest()
    assert ended["code"] == 0
    assert [turn["stop_reason"] for turn in farm.turns(session)] == ["answered"]
    assert farm.effects() == ["before", "middle", "after"]


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
    """Proves: a turn that runs elsewhere ends as cancelled within a renewal of its lease."""
    session = farm.submit("waits")
    worker = farm.worker("--lease", "2")
    worker.until("entered")
    done = farm.run("cancel", session, "--json")
    assert json.loads(done.stdout) == {"session": session, "cancelled": 1}
    assert worker.until("ended")["text"] == "cancelled"
    assert farm.ended(session)["turns"][0]["stop_reason"] == "cancelled"
    assert farm.effects() == ["before", "middle"]
