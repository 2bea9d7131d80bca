"""A turn on a worker asks a person: it waits without any process, and goes on with an answer from anywhere, or when its time is
over."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postgres_server import PostgresServer
from terminal.running import running_lab
from turnwise.lab import parse_script
from workers.asking import SCRIPTS as ASKING
from workers.asking import asking_worker
from workers.farm import Farm, scripts

pytestmark = pytest.mark.costly

SCRIPTS = [*scripts(), *[parse_script(text, name=name) for name, text in ASKING.items()]]


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(SCRIPTS) as lab:
        found = Farm(tmp_path / "a földer", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


@pytest.mark.promise("keep:machines")
def test_an_ask_outlives_its_worker_and_is_answered_from_anywhere(farm: Farm) -> None:
    """Proves: the worker that asked is killed; the ask is shown with tool, arguments and folder, the session's next turn stays
    behind it, the answers reach another worker at once, and no effect happens twice."""
    session = farm.submit("asks")
    first = asking_worker(farm)
    assert first.until("asks")["session"] == session
    first.send(signal.SIGKILL)
    first.wait()
    farm.submit("plain", "--session", session)
    behind, turn = farm.turns(session)
    assert behind["waits_for"] == "an answer to the turn before it"
    assert turn["waits_for"] == "a person's answer"
    assert [(ask["tool"], ask["arguments"]) for ask in turn["asks"]] == [
        ("do", '{"name":"first"}'),
        ("do", '{"name":"second"}'),
    ]
    assert turn["asks_folder"] == str(farm.folder)
    said = farm.run("status", session).stdout
    assert 'do {"name":"first"}' in said and f"turnwise answer {session} --approve " in said
    second = asking_worker(farm)
    one, other = [ask["id"] for ask in turn["asks"]]
    done = farm.approves("answer", session, "--approve", one)
    assert (done.returncode, done.stdout) == (0, "1 answer; 1 ask still open\n")
    done = farm.run("answer", session, "--deny", other, "--because", "not now", "--json")
    assert json.loads(done.stdout) == {"session": session, "answered": [other], "open": 0}
    assert second.until("resumed")["session"] == session
    second.until("asks")
    assert farm.effects() == ["first"]
    assert farm.approves("answer", session, "--approve", "all").stdout == "1 answer; the turn goes on\n"
    ended = farm.ended(session)
    assert [turn["stop_reason"] for turn in ended["turns"]] == ["answered", "answered"]
    assert farm.effects() == ["first", "third", "a"]


def test_the_first_answer_counts(farm: Farm) -> None:
    """Proves: a second answer is told that there was a first one, and changes nothing; so is one to what is not asked."""
    session = farm.submit("asks")
    worker = asking_worker(farm)
    worker.until("asks")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    one = farm.turns(session)[0]["asks"][0]["id"]
    assert farm.run("answer", session, "--deny", one).returncode == 0
    again = farm.approves("answer", session, "--approve", one)
    assert (again.returncode, again.stdout) == (2, "")
    assert f"`{one}` was answered already (denied): the first answer counts" in again.stderr
    assert farm.approves("answer", session, "--approve", "all").stdout == "1 answer; the turn goes on\n"
    late = farm.approves("answer", session, "--approve", "all", "--json")
    assert late.returncode == 2 and "takes no answer any more: it was answered already" in late.stdout
    strange = farm.run("answer", "0123456789", "--approve", "all")
    assert strange.returncode == 2 and "nothing of session `0123456789` waits" in strange.stderr
    assert farm.run("answer", session).returncode == 2
    asking_worker(farm).until("asks")
    assert farm.effects() == ["second"]


@pytest.mark.promise("keep:machines")
def test_an_answer_in_time_counts_however_late_the_next_worker_takes_the_turn(farm: Farm, postgres_dsn: str) -> None:
    """Proves: a call that a person allowed within the time runs, though an hour has passed since it was asked by the clock of the
    worker that goes on: no worker was there before, or its clock is ahead. Once, it was denied."""
    session = farm.submit("asks")
    first = asking_worker(farm)
    first.until("asks")
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    assert farm.approves("answer", session, "--approve", "all").returncode == 0
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("update turnwise.record set t = t - 3600")
    asking_worker(farm).until("asks")
    assert sorted(farm.effects()) == ["first", "second"]


def test_what_nobody_answers_in_time_is_denied(farm: Farm) -> None:
    """Proves: after the deadline a worker goes on by itself, as on one machine: the calls are denied, and the model is told."""
    session = farm.submit("hurries")
    worker = asking_worker(farm, "--lease", "4")
    worker.until("asks")
    worker.until("resumed")
    worker.until("asks")
    ended = farm.ended(session)
    assert (ended["code"], ended["turns"][0]["stop_reason"]) == (0, "answered")
    assert "because nobody answered, so the call is denied" in ended["answer"]
    assert farm.effects() == []


def test_a_turn_that_asks_can_be_cancelled(farm: Farm) -> None:
    """Proves: it ends at once, without any worker, and the session goes on behind it, told that the calls have not run."""
    session = farm.submit("asks")
    worker = asking_worker(farm)
    worker.until("asks")
    done = farm.run("cancel", session, "--json")
    assert json.loads(done.stdout) == {"session": session, "cancelled": 1}
    answer = farm.ended(farm.submit("plain", "--session", session))["answer"]
    assert "Not run: the run was interrupted before this call had started." in answer
    assert farm.effects() == []


@pytest.mark.promise("keep:machines")
def test_an_ask_outlives_the_database(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Proves: the database crashes and starts again while a turn asks; the answer counts."""
    with running_lab(SCRIPTS) as lab:
        farm = Farm(tmp_path / "farm", dsn=own_postgres.dsn, url=lab.url)
        try:
            session = farm.submit("asks")
            worker = asking_worker(farm)
            worker.until("asks")
            own_postgres.crash()
            own_postgres.start()
            assert farm.approves("answer", session, "--approve", "all").returncode == 0
            worker.until("asks")
            assert farm.run("answer", session, "--deny", "all").returncode == 0
            assert farm.ended(session)["code"] == 0
            assert sorted(farm.effects()) == ["first", "second"]
        finally:
            farm.end()
