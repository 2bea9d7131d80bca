"""The commands over a database: rows that a stranger has written, words that are no text, and failures with their exit codes."""

import json
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postgres_server import PostgresServer
from turnwise.errors import CallerError
from turnwise.workers.queue import TurnQueue, WorkerTerms
from workers.farm import Farm

pytestmark = pytest.mark.costly

ASKS = '{"asks":[{"call":{"id":"call_1","name":"charge","arguments":"{}"},"arguments":"{}","subject":"","why":"why"}]}'
# Each is one way to write into a row that makes it hard to show.
HARD_TO_SHOW = {
    "a time without end": f"status = 'waiting', asks = '{ASKS}', wake_at = 'infinity'",
    "a time far away": f"status = 'waiting', asks = '{ASKS}', wake_at = '200000-01-01'",
    "a time long ago": f"status = 'waiting', asks = '{ASKS}', wake_at = '-infinity'",
    "an agent that is no text": "agent = chr(26) || 'd8ff'",
    "needs that are no text": "needs = array[chr(26) || 'dcff']",
    "a problem that is no text": "problem = chr(26) || 'dcff'",
    "a refusal that is no text": "refusal = chr(26) || 'dcff'",
    "needs within needs": "needs = array[array['a', null]]",
    "a status that is none": "status = chr(26) || 'dcff'",
    "an epoch at its end": "epoch = 2147483647",
}
NO_TEXT = os.fsdecode(b"a\xff")


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Farm:
    return Farm(tmp_path / "farm", dsn=postgres_dsn, url="http://127.0.0.1:9")


def last_line(farm: Farm, *words: str) -> tuple[int, dict[str, Any]]:
    done = farm.run(*words)
    assert "a bug in turnwise" not in done.stderr and "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_one_row_hides_no_other(farm: Farm, queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: `status` shows all turns, with and without --json, whatever stands in one of them."""
    sessions: list[str] = []
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        for what in HARD_TO_SHOW.values():
            sessions.append(queue.submit("Go.", agent="plain"))
            connection.execute(f"update turnwise.turn set {what} where session = '{sessions[-1]}'".encode())
    for words in (["status"], ["status", "--json"]):
        done = farm.run(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert [session for session in sessions if session not in done.stdout] == []
    told = dict(zip(HARD_TO_SHOW, sessions, strict=True))
    assert "it takes no answer any more" in farm.run("status", told["a time long ago"]).stdout
    assert "answer: turnwise answer" in farm.run("status", told["a time without end"]).stdout
    assert "no worker takes a turn that was claimed" in farm.run("status", told["an epoch at its end"]).stdout


def test_status_begins_with_the_totals(farm: Farm, queue: TurnQueue) -> None:
    """Proves: without a session, a table and an object tell the turns by agent and state and the workers; filters choose turns,
    and belong to no session."""
    session = queue.submit("Go.", agent="plain", labels={"team": "a"})
    queue.submit("Go.", agent="other")
    terms = WorkerTerms(name="w", agents=("plain",))
    queue.renew((), terms=terms)
    assert queue.claim(terms) is not None
    lines = farm.run("status").stdout.splitlines()
    assert lines[0].split() == ["agent", "state", "turns", "oldest"]
    assert sorted([line.split()[:3] for line in lines[1:3]]) == [["other", "queued", "1"], ["plain", "running", "1"]]
    assert [line.split() for line in lines[4:6]] == [["worker", "runs", "sessions"], ["w", "1", session]]
    totals, turn = map(json.loads, farm.run("status", "--json", "--label", "team=a").stdout.splitlines())
    assert totals["depth"] == {"plain": 1} and totals["workers"][0]["sessions"] == [session]
    assert [(one["agent"], one["state"], one["turns"]) for one in totals["turns"]] == [("plain", "running", 1)]
    assert turn["session"] == session
    assert "no such turn was submitted" in farm.run("status", "--agent", "plain", "--state", "waiting").stderr
    assert farm.run("status", session, "--agent", "plain").returncode == 2


def test_words_that_are_no_text_are_wrong_use(farm: Farm, queue: TurnQueue) -> None:
    """Proves: bytes that are no UTF-8, an empty prompt and an empty agent are told by name, in JSON too, and nothing is kept."""
    for words, said in (
        (["submit", "--agent", NO_TEXT, "Go."], "--agent"),
        (["submit", "--agent", "a", "--needs", NO_TEXT, "Go."], "--needs"),
        (["submit", "--agent", "a", "--model", NO_TEXT, "Go."], "--model"),
        (["submit", "--agent", "a", NO_TEXT], "PROMPT"),
        (["submit", "--agent", " ", "Go."], "agent's name is empty"),
        (["submit", "--agent", "a", " "], "the prompt is empty"),
        (["cancel", NO_TEXT], "SESSION"),
        (["status", NO_TEXT], "SESSION"),
        (["status", "nosuch"], "nosuch"),
        (["answer", NO_TEXT, "--approve", "all"], "SESSION"),
        (["status", "--nosuch"], "--nosuch"),
        (["submit", "--agent", "a", "--key", "k", "Go."], "`--key` needs `--engine temporal`"),
        (["submit", "--agent", "a", "--engine", "temporal", "--needs", "b", "Go."], "`--needs` is for turnwise"),
        (["submit", "--agent", "a", "--engine", "temporal", "--max-cost", "1", "Go."], "`--max-cost` is for turnwise"),
        (["submit", "--agent", "a", "--engine", "temporal", "--key", NO_TEXT, "Go."], "--key"),
    ):
        code, line = last_line(farm, *words, "--json")
        assert (code, line["exit_code"]) == (2, 2) and said in line["error"], words
    with pytest.raises(CallerError, match="no UTF-8"):
        queue.submit("Go.", agent=NO_TEXT)
    assert queue.status() == []


def test_a_database_that_fails_is_no_wrong_use(farm: Farm, own_postgres: PostgresServer) -> None:
    """Proves: where the database is locked or gone each command ends with exit code 1 and says so, in JSON too."""
    farm.environment["TURNWISE_DATABASE"] = own_postgres.dsn
    session = farm.submit("plain")
    commands = [
        ["status"],
        ["submit", "--agent", "a", "Go."],
        ["cancel", session],
        ["answer", session, "--deny", "all"],
    ]
    with psycopg.connect(own_postgres.dsn) as connection:
        connection.execute("alter role tester set lock_timeout = 1")
        connection.commit()
        connection.execute("lock table turnwise.turn in access exclusive mode")
        locked = [last_line(farm, *words, "--json") for words in commands]
    own_postgres.crash()
    gone = [last_line(farm, *words, "--json") for words in commands]
    for code, line in (*locked, *gone):
        assert (code, line["exit_code"]) == (1, 1) and "the journal" in line["error"]
        assert "CONTEXT" not in line["error"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nagent = = 2\n", "SyntaxError at {}:2"),
        ("def agent():\n    raise ValueError('hunter2')\n", "ValueError at {}:2"),
        ("import json\n\nagent = json.loads('hunter2')\n", "JSONDecodeError at {}:3"),
        ("from json import nosuch\n", "ImportError at {}:1"),
        ("raise SystemExit('hunter2')\n", "SystemExit at {}:1"),
    ],
)
def test_a_module_that_raises_is_told_with_its_place(text: str, said: str, farm: Farm) -> None:
    """Proves: an agent's module with a mistake is wrong use: the place and the exception's type, and nothing that it says."""
    path = farm.folder / "bad.py"
    path.write_text(text)
    done = farm.run("worker", "--agent", "a=bad:agent")
    assert done.returncode == 2 and said.format(path) in done.stderr
    assert "hunter2" not in done.stderr and "a bug in turnwise" not in done.stderr
