"""A sub-agent of a turn on a worker asks a person, who is anywhere: the turn keeps running, and goes on with the answer."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from terminal.running import running_lab
from turnwise.lab import parse_script
from waits import HANG_S
from workers.asking import SCRIPTS as ASKING
from workers.asking import asking_worker
from workers.farm import Farm, scripts, until

pytestmark = pytest.mark.costly

SCRIPTS = [*scripts(), *[parse_script(text, name=name) for name, text in ASKING.items()]]


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(SCRIPTS) as lab:
        found = Farm(tmp_path / "a földer", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


def asks_of(farm: Farm, session: str) -> list[dict[str, Any]]:
    (turn,) = farm.turns(session)
    return turn["asks"]


@pytest.mark.promise("keep:machines", "wait:child")
def test_a_sub_agents_ask_is_answered_from_anywhere(farm: Farm) -> None:
    """Proves: the turn keeps running at its worker and shows the ask with the sub-agent's path; the answer reaches the worker;
    the sub-agent's next ask has a name of its own, so a late answer to the first allows nothing; each effect happens once."""
    session = farm.submit("asks_below")
    worker = asking_worker(farm)
    assert worker.until("asks")["text"] == "helper"
    (turn,) = farm.turns(session)
    assert (turn["status"], turn["waits_for"]) == ("running", "a person's answer to a sub-agent")
    (ask,) = turn["asks"]
    assert (ask["tool"], ask["arguments"], ask["path"]) == ("do", '{"name":"before"}', ["helper"])
    assert ask["id"].startswith("helper/") and ask["folder"] == str(farm.folder) == turn["asks_folder"]
    said = farm.run("status", session).stdout
    assert f"  helper asks, in {farm.folder}, until 2" in said
    assert f"turnwise answer {session} --approve {ask['id']}@{ask['mark']}" in said
    done = farm.approves("answer", session, "--approve", ask["id"])
    assert (done.returncode, done.stdout) == (0, "1 answer; the turn goes on\n"), done.stderr
    worker.until("asks")
    assert farm.effects() == ["before"]
    late = farm.run("answer", session, "--deny", ask["id"])
    assert late.returncode == 2 and f"`{ask['id']}` takes no answer any more: it was answered already" in late.stderr
    done = farm.approves("answer", session, "--approve", "all", "--json")
    assert json.loads(done.stdout)["open"] == 0
    ended = farm.ended(session)
    assert (ended["code"], ended["turns"][0]["asks"]) == (0, [])
    assert "Helped: did before\ndid after" in ended["answer"]
    assert farm.effects() == ["before", "after"]
    assert "nothing of session" in farm.run("answer", session, "--approve", "all").stderr


@pytest.mark.promise("keep:machines")
def test_an_ask_of_a_sub_agent_outlives_its_worker(farm: Farm) -> None:
    """Proves: the worker is killed while a sub-agent asks; the answer is given while no worker lives; another worker goes on with
    it and does not ask again, and no effect happens twice."""
    session = farm.submit("asks_below")
    first = asking_worker(farm)
    first.until("asks")
    first.send(signal.SIGKILL)
    first.wait()
    farm.lapse()
    (ask,) = asks_of(farm, session)
    assert farm.approves("answer", session, "--approve", ask["id"]).returncode == 0
    again = farm.run("answer", session, "--deny", ask["id"])
    assert again.returncode == 2 and "was answered already (allowed): the first answer counts" in again.stderr
    second = asking_worker(farm)
    second.until("resumed")
    until(lambda: [one["arguments"] for one in asks_of(farm, session) if not one["answer"]] == ['{"name":"after"}'])
    assert farm.effects() == ["before"]
    second.send(signal.SIGKILL)
    second.wait()
    farm.lapse()
    third = asking_worker(farm)
    third.until("asks")
    (ask,) = [one for one in asks_of(farm, session) if not one["answer"]]
    assert ask["arguments"] == '{"name":"after"}'
    assert farm.approves("answer", session, "--approve", ask["id"]).returncode == 0
    ended = farm.ended(session)
    assert ended["code"] == 0 and "Helped: did before\ndid after" in ended["answer"]
    assert farm.effects() == ["before", "after"]


@pytest.mark.parametrize("agent", ["asks", "asks_below"])
def test_an_answer_that_came_in_time_counts_though_no_worker_lived_to_hear_it(
    farm: Farm, postgres_dsn: str, agent: str
) -> None:
    """Proves: a person answers before the deadline, and a worker comes only after it: the call runs."""
    session = farm.submit(agent)
    first = asking_worker(farm)
    first.until("asks")
    first.send(signal.SIGKILL)
    first.wait()
    farm.lapse()
    asked = [ask["arguments"] for ask in asks_of(farm, session)]
    assert farm.approves("answer", session, "--approve", "all").returncode == 0
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:  # all of it was an hour ago
        connection.execute("update turnwise.record set t = t - 3600")
    second = asking_worker(farm)
    second.until("asks")
    assert [json.loads(arguments)["name"] for arguments in asked] == farm.effects()
    assert farm.run("cancel", session).returncode == 0


def test_what_nobody_answers_a_sub_agent_in_time_is_denied(farm: Farm) -> None:
    """Proves: after the deadline the sub-agent goes on without the calls, its model is told, and nothing is asked any more."""
    session = farm.submit("hurries_below")
    asking_worker(farm)
    ended = farm.ended(session)
    assert "because nobody answered, so the call is denied" in ended["answer"]
    assert farm.effects() == [] and ended["turns"][0]["asks"] == []


def test_two_sub_agents_ask_side_by_side(farm: Farm) -> None:
    """Proves: both asks are shown, each with its own name; one is allowed and one denied, and each answer reaches its own."""
    session = farm.submit("asks_twice_below")
    worker = asking_worker(farm)
    worker.until("asks")
    worker.until("asks")
    one, other = asks_of(farm, session)
    assert one["id"] != other["id"] and one["path"] == other["path"] == ["helper"]
    denied = one if one["arguments"] == '{"name":"turn-2"}' else other
    allowed = other if denied is one else one
    done = farm.approves("answer", session, "--approve", allowed["id"], "--deny", denied["id"], "--because", "not that")
    assert (done.returncode, done.stdout) == (0, "2 answers; the turn goes on\n"), done.stderr
    ended = farm.ended(session)
    assert ended["code"] == 0
    assert "turn-1: did turn-1" in ended["answer"] and "not that" in ended["answer"]
    assert farm.effects() == ["turn-1"]


def test_a_turn_whose_sub_agent_asks_can_be_cancelled(farm: Farm) -> None:
    """Proves: it ends at once, and asks nothing any more."""
    session = farm.submit("asks_below")
    worker = asking_worker(farm)
    worker.until("asks")
    assert farm.run("cancel", session).returncode == 0
    ended = farm.ended(session)
    assert ended["turns"][0]["stop_reason"] == "cancelled" and ended["turns"][0]["asks"] == []
    assert "nothing of session" in farm.run("answer", session, "--approve", "all").stderr
    assert farm.effects() == []


@pytest.mark.parametrize("grace_s", [0.0, 2 * HANG_S])
def test_a_worker_that_stops_leaves_the_asks_to_the_next_one(farm: Farm, grace_s: float) -> None:
    """Proves: SIGTERM hands the turn over with its sub-agent's ask, which takes an answer in between. However long the grace is,
    the worker does not wait for a person."""
    session = farm.submit("asks_below")
    first = asking_worker(farm, "--grace", str(grace_s))
    first.until("asks")
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    (ask,) = asks_of(farm, session)
    assert farm.approves("answer", session, "--approve", ask["id"]).returncode == 0
    second = asking_worker(farm)
    second.until("asks")
    assert farm.effects() == ["before"]
    assert farm.approves("answer", session, "--approve", "all").returncode == 0
    assert farm.ended(session)["code"] == 0
    assert farm.effects() == ["before", "after"]


def test_a_stopped_worker_waits_for_a_tool_beside_an_ask_and_for_nothing_else(farm: Farm) -> None:
    """Proves: one sub-agent asks while the tool of another runs; after SIGTERM the tool comes to its end and its result counts,
    nothing more is sent, and then the turn is handed over though the grace is long. Each effect happens once."""
    session = farm.submit("asks_beside")
    first = asking_worker(farm, "--grace", str(2 * HANG_S))
    first.until_all("asks", "entered")
    first.send(signal.SIGTERM)
    farm.go()
    assert first.wait() == 0
    assert first.rest().count('"handed_over"') == 1
    assert farm.effects() == ["before", "middle"]
    second = asking_worker(farm)
    second.until("asks")
    for name in ("before", "after"):
        until(lambda name=name: [one["arguments"] for one in asks_of(farm, session)] == [f'{{"name":"{name}"}}'])
        assert farm.approves("answer", session, "--approve", "all").returncode == 0
    ended = farm.ended(session)
    assert ended["code"] == 0 and "unknown" not in ended["answer"]
    assert sorted(farm.effects()) == ["after", "after", "before", "before", "middle"]  # two of them have the same names


def test_a_stopped_worker_does_not_wait_for_a_request_that_is_put_off(farm: Farm, postgres_dsn: str) -> None:
    """Proves: a turn that waits before it sends a request again is handed over at once, in the middle of that time."""
    session = farm.submit("is_put_off")
    first = asking_worker(farm, "--grace", str(2 * HANG_S))

    def kinds() -> list[str]:
        rows = connection.execute("select kind from turnwise.record order by seq").fetchall()
        return [kind for (kind,) in rows]

    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        until(lambda: "request_failed" in kinds())
        first.send(signal.SIGTERM)
        assert first.wait() == 0
        assert "wait_over" not in kinds()
    (turn,) = farm.turns(session)
    assert turn["waits_for"] == "a worker with the agent `is_put_off`"


def test_an_unattended_policy_of_a_sub_agent_asks_nobody(farm: Farm) -> None:
    """Proves: its calls are denied at once, as before."""
    session = farm.submit("unattended_below")
    asking_worker(farm)
    ended = farm.ended(session)
    assert ended["code"] == 0 and "Helped: " in ended["answer"]
    assert farm.effects() == []
