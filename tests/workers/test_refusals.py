"""What a worker does not take: turns of a newer version, turns that ask for more than its agent has, and rows of a stranger."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from terminal.running import running_lab
from turnwise.base.clock import SystemClock
from turnwise.workers.queue import MOST_TRIES, TurnQueue
from workers.farm import Farm, scripts

pytestmark = pytest.mark.costly

# Each is one way to write into a row, from whoever may write there. `{}` is the id of the session.
HOSTILE = {
    "epoch": "update turn set epoch = -7 where session = '{}'",
    "largest epoch": "update turn set epoch = 2147483647 where session = '{}'",
    "tried from": "update turn set tried_from = -2147483648 where session = '{}'",
    "owner": "update turn set owner = repeat('x', 1000000) where session = '{}'",
    "prompt": "update turn set prompt = repeat('x', 40000000) where session = '{}'",
    "no prompt": "update turn set prompt = null where session = '{}'",
    "nul": "update turn set prompt = chr(26) || '0000', id = chr(26) || '0000' || id where session = '{}'",
    "times": "update turn set created = 'NaN', finished = 'Infinity' where session = '{}'",
    "wishes are no JSON": "update turn set wishes = '; drop table turnwise.turn' where session = '{}'",
    "wishes of a newer version": "update turn set wishes = '{{\"temper\": 1}}' where session = '{}'",
    "wishes of other types": 'update turn set wishes = \'{{"max_steps": "many", "model": []}}\' where session = \'{}\'',
    "negative wishes": "update turn set wishes = '{{\"max_requests\": -1}}' where session = '{}'",
    "money that is none": "update turn set wishes = '{{\"max_cost\": \"NaN\"}}' where session = '{}'",
    "deep wishes": "update turn set wishes = '{{\"model\":' || repeat('[', 100000) where session = '{}'",
    "an effect that is none": "update turn set wishes = '{{\"effects\": [\"sudo\"]}}' where session = '{}'",
    "asks": "update turn set status = 'waiting', wake_at = '-infinity', asks = repeat('[', 100000) where session = '{}'",
    "answers": "update turn set status = 'waiting', wake_at = '-infinity', asks = '{{\"asks\": []}}', answers = '[{{}}]'"
    " where session = '{}'",
    "no record": "update turn set status = 'running' where session = '{}'",
    "a record of no kind": "insert into record select number, 1, 1, 'evil', '{{\"type\": \"evil\"}}', 0 from turn"
    " where session = '{}'",
    "a record that is deep": "insert into record select number, 1, 1, 'turn_started', repeat('{{\"config\":', 100000), 0"
    " from turn where session = '{}'",
    "a record out of place": "insert into record select number, 9, 1, 'wait_over', '{{\"type\": \"wait_over\"}}', 0 from turn"
    " where session = '{}'",
    "needs": "update turn set needs = array[null, chr(27)] where session = '{}'",
    "the agent's name": "update turn set agent = 'os:system' where session = '{}'",
}


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(scripts()) as lab:
        found = Farm(tmp_path / "farm", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


@pytest.fixture
def queue(postgres_dsn: str) -> Iterator[TurnQueue]:
    found = TurnQueue(postgres_dsn, clock=SystemClock())
    found.open()
    yield found
    found.close()


def change(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"set search_path = turnwise; {sql}".encode())


def status(farm: Farm, session: str) -> dict[str, Any]:
    return farm.turns(session)[0]


def test_rows_of_a_stranger_do_not_end_a_worker(farm: Farm, queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: whatever stands in a row, the worker lives and runs the turn behind it; each row is run as if it were plain, or
    ended, or waits, and `status` says why."""
    sessions: dict[str, str] = {}
    for name, sql in HOSTILE.items():
        sessions[name] = queue.submit(name, agent="plain")
        change(postgres_dsn, sql.format(sessions[name]))
    worker = farm.worker("--concurrency", "3")
    assert farm.ended(farm.submit("plain", "--priority", "-9"))["answer"] == "Done: did a"
    said = {turn.session: turn for turn in queue.status()}
    told = {name: said[session].problem or said[session].waits_for for name, session in sessions.items()}
    ran = {name for name, session in sessions.items() if said[session].stop_reason == "answered"}
    assert ran == {"epoch", "owner", "nul", "times", "asks", "answers", "no record"}
    assert {name for name, why in told.items() if not why} == ran
    assert "`temper`" in told["wishes of a newer version"] and "evil" in told["a record of no kind"]
    assert "has more than" in told["prompt"]
    assert worker.process.poll() is None


def test_a_turn_of_a_newer_version_waits_for_a_newer_worker(farm: Farm, queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a record of an unknown kind in a turn's journal makes no worker try it more than once, and costs no try: `status`
    says why it waits; once it can be read a new worker ends it, and no effect happens twice."""
    session = farm.submit("waits")
    first = farm.worker()
    first.until("entered")
    first.end()
    change(
        postgres_dsn,
        "insert into record select turn, max(seq) + 1, 1, 'dreamt', '{\"type\": \"dreamt\"}', 0 from record group by turn",
    )
    for _ in range(6):
        farm.lapse()
        worker = farm.worker()
        assert "Invalid value 'dreamt'" in worker.until("refused")["text"]
        worker.end()
    turn = status(farm, session)
    assert turn["status"] == "running" and "newer turnwise" in turn["waits_for"]
    change(postgres_dsn, "delete from record where kind = 'dreamt'")
    farm.lapse()
    farm.worker()
    assert farm.ended(session)["code"] == 0
    assert farm.effects() == ["before", "middle", "after"]


def test_a_worker_hands_over_when_a_newer_version_has_changed_the_tables(farm: Farm, postgres_dsn: str) -> None:
    """Proves: it claims nothing more, hands its turn over, and says what to do (exit code 2)."""
    session = farm.submit("waits")
    worker = farm.worker("--grace", "0")
    worker.until("entered")
    change(postgres_dsn, "insert into schema_version (version) values (99)")
    change(
        postgres_dsn,
        "insert into session (id, folder, title, created, updated) values ('abcdef0123', '', '', 0, 0);"
        " insert into turn (id, session, status, owner, created, agent, prompt, epoch)"
        " values ('abcdef0124', 'abcdef0123', 'queued', '', 0, 'plain', 'x', 0)",
    )
    assert worker.wait() == 2
    assert "is from a newer turnwise (version 99" in worker.rest()
    change(postgres_dsn, "delete from schema_version where version = 99")
    farm.worker()
    farm.go()
    assert farm.ended(session)["code"] == 0


def test_what_a_turn_asks_for_only_narrows_its_agent(farm: Farm) -> None:
    """Proves: limits and effects hold; a model that the worker does not allow, instructions, and an unknown agent leave the turn
    waiting with the reason, until a worker comes that allows them."""
    narrow = farm.submit("plain", "--effect", "read", "--max-steps", "5")
    below = farm.submit("parent", "--effect", "read")
    model = farm.submit("plain", "--model", "named")
    told = farm.submit("plain", "--instructions", "Be brief.")
    farm.worker()
    ended = farm.ended(narrow)
    assert ended["code"] == 0 and "Denied" in ended["answer"]
    assert "The helper says: " in farm.ended(below)["answer"]
    assert farm.effects() == []
    short = farm.submit("waits", "--max-requests", "2")
    farm.go()
    assert farm.ended(short)["turns"][0]["stop_reason"] == "budget"
    for session in (model, told):
        while not (why := status(farm, session)["waits_for"]).startswith("another worker"):
            pass
        assert ("the model `named`" in why) or ("brings instructions" in why)
    assert farm.effects() == ["before"]
    farm.worker("--allow-model", "named", "--allow-instructions")
    assert farm.ended(told)["answer"] == "Done: did a"
    assert farm.ended(model)["code"] in (0, 1)


def test_submit_refuses_what_can_be_known(farm: Farm) -> None:
    """Proves: a negative limit, an effect that is none, and a limit with a typo are wrong use, and nothing is submitted."""
    for words in (["--max-requests", "-1"], ["--effect", "sudo"], ["--max-cots", "1"], ["--max-cost", "nan"]):
        done = farm.run("submit", "--agent", "plain", *words, "Go.")
        assert (done.returncode, done.stdout) == (2, ""), words
    assert json.loads(farm.run("submit", "--agent", "plain", "--json", "Go.").stdout).keys() == {"session"}


@pytest.mark.promise("keep:machines")
def test_a_worker_without_the_rights_ends_and_its_turn_goes_on_elsewhere(farm: Farm, postgres_dsn: str) -> None:
    """Proves: where the database does not let a worker write a turn's records, the worker says so and ends with exit code 2, as
    often as it is started again, and another worker runs the turn. Once, each turn that it claimed was lost."""
    session = farm.submit("plain")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("create role narrow")
        try:
            connection.execute("grant usage on schema turnwise to narrow")
            connection.execute("grant select, insert, update, delete on all tables in schema turnwise to narrow")
            connection.execute("revoke insert on turnwise.record from narrow")
            narrow = f"{postgres_dsn}{'&' if '?' in postgres_dsn else '?'}options=-crole%3Dnarrow"
            for _ in range(MOST_TRIES):
                worker = farm.worker("--database", narrow)
                assert worker.wait() == 2
            assert "its user needs the rights of docs/postgres.md" in worker.rest()
            farm.worker()
            ended = farm.ended(session)
            assert (ended["code"], ended["answer"]) == (0, "Done: did a")
        finally:
            connection.execute("drop owned by narrow")
            connection.execute("drop role narrow")
