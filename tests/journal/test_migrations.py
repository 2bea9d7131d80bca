"""Files of every older version are brought up while others read them, and a kill in the middle leaves the old version whole."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journal.test_journal import ANSWER, RESULT, STARTED
from tables import each
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.errors import JournalFailed
from turnwise.journal.file import APPLICATION_ID, SCHEMA_VERSION, SEQ_BITS, UPGRADES
from turnwise.journal.turn_writer import KINDS, encode_record
from turnwise.testing import FakeClock
from waits import HANG_S

# What the first version made, to the letter.
VERSION_1 = """
create table session (
    id text primary key, folder text not null, title text not null, created real not null, updated real not null
) strict;
create index session_by_folder on session (folder, updated);
create table turn (
    id text primary key, session text not null references session (id), status text not null,
    epoch integer not null default 1, owner text not null, created real not null, finished real,
    stop_reason text, complete integer
) strict;
create index turn_by_session on turn (session, id);
create table event (
    turn text not null references turn (id), seq integer not null, epoch integer not null, kind text not null,
    body text not null, t real not null, primary key (turn, seq)
) strict;
"""
SESSIONS = 40
OLDER = range(1, SCHEMA_VERSION)

# A process of an older version that has the file open: it counts what it knows, again and again, in transactions of its own.
READER = """
import select, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
def look():
    connection.execute("begin")
    counts = [connection.execute(f"select count(*) from {table}").fetchone()[0] for table in ("session", "turn", sys.argv[2])]
    titles = connection.execute("select count(distinct title) from session where folder = '/here'").fetchone()[0]
    connection.execute("commit")
    return [*counts, titles]
first = look()
print("ready", flush=True)
times = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    assert look() == first
    times += 1
assert look() == first
print(times, *first, flush=True)
"""
# Brings the file up, and is killed when it comes to its statement of that number.
KILLED = """
import os, pathlib, signal, sqlite3, sys
from turnwise.journal.file import prepare
left = int(sys.argv[2])
def count(statement):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.set_trace_callback(count)
prepare(connection, pathlib.Path(sys.argv[1]), durability="normal")
"""


def made(path: Path, *, version: int) -> Path:
    """A file as that version left it, with sessions of one turn and two records each."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.executescript(VERSION_1)
    for older in range(1, version):
        for statement in UPGRADES[older]:
            connection.execute(statement)
    connection.execute(f"pragma application_id = {APPLICATION_ID}")
    connection.execute(f"pragma user_version = {version}")
    connection.execute("begin")
    for number in range(1, SESSIONS + 1):
        session, turn = f"session{number}", f"turn{number}"
        connection.execute(
            "insert into session (id, folder, title, created, updated) values (?, '/here', ?, ?, ?)",
            (session, f"title {number}", number, number),
        )
        connection.execute(
            "insert into turn (id, session, status, owner, created, finished, stop_reason, complete)"
            " values (?, ?, 'done', 'host:1:1', ?, ?, 'answered', 1)",
            (turn, session, number, number),
        )
        if version > 4:
            connection.execute("update turn set number = ? where id = ?", (number, turn))
        for seq, record in enumerate((STARTED, ANSWER), start=1):
            kind, body = KINDS[type(record)], encode_record(record).decode()
            if version > 4:
                values = ((number << SEQ_BITS) + seq, 1, kind, body, 1.0)
                connection.execute("insert into record values (?, ?, ?, ?, ?)", values)
            else:
                connection.execute("insert into event values (?, ?, 1, ?, ?, 1.0)", (turn, seq, kind, body))
    connection.execute("commit")
    connection.close()
    return path


def is_all_there(path: Path) -> bool:
    """Whether today's turnwise reads every session, turn and record."""
    with Journal.open_to_read(path, clock=SystemClock()) as journal:
        rows = journal.sessions()
        assert [row.title for row in rows] == [f"title {number}" for number in range(SESSIONS, 0, -1)]
        assert {row.status for row in rows} == {"done"}
        return all(journal.events(f"turn{number}") == [STARTED, ANSWER] for number in range(1, SESSIONS + 1))


def version_of(path: Path) -> tuple[int, list[str], str]:
    """The version, what the file's tables and indexes are, and what SQLite's check says."""
    connection = sqlite3.connect(path)
    (version,) = connection.execute("pragma user_version").fetchone()
    names = [name for (name,) in connection.execute("select coalesce(sql, name) from sqlite_schema order by 1")]
    (check,) = connection.execute("pragma integrity_check").fetchone()
    connection.close()
    return version, names, check


@contextmanager
def reading(path: Path, *, table: str, readers: int) -> Iterator[list[subprocess.Popen[str]]]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(path), table],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(readers)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=HANG_S)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
@each("version", OLDER)
def test_a_file_is_brought_up_while_processes_of_its_version_read_it(tmp_path: Path, version: int) -> None:
    """Proves with real processes: none of them waits, fails or sees half of it, before, meanwhile or after."""
    path = made(tmp_path / "journal.db", version=version)
    table = "record" if version > 4 else "event"
    with reading(path, table=table, readers=2) as processes:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        with Journal(path, clock=SystemClock()):
            assert version_of(path)[0] == SCHEMA_VERSION
            ends = [process.communicate("\n", timeout=HANG_S) for process in processes]
    for out, err in ends:
        assert err == ""
        assert out.split()[1:] == [str(SESSIONS), str(SESSIONS), str(2 * SESSIONS), str(SESSIONS)]
    assert is_all_there(path)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
def test_a_kill_at_any_statement_of_the_way_up_leaves_the_old_version_whole(tmp_path: Path) -> None:
    """Proves from the first version on: killed before its last statement, the file is the old one, else the new one; either is
    sound, and the next start reads all of it."""
    old = version_of(made(tmp_path / "old.db", version=1))
    killed, ends = 0, set[int]()
    while True:
        path = made(tmp_path / f"{killed}.db", version=1)
        ran = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(killed + 1)],
            env=os.environ.copy(),
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )
        found = version_of(path)
        assert found[2] == "ok" and (found == old or found[0] == SCHEMA_VERSION)
        ends.add(found[0])
        with Journal(path, clock=SystemClock()):
            pass
        assert version_of(path)[0] == SCHEMA_VERSION and is_all_there(path)
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL, ran.stderr
        killed += 1
    assert killed > sum(len(statements) for statements in UPGRADES.values()) and ends == {1, SCHEMA_VERSION}


@each("version", OLDER)
def test_a_reader_of_today_leaves_an_older_file_as_it_is(tmp_path: Path, version: int) -> None:
    """Proves: what only reads brings nothing up, and shows all of it."""
    path = made(tmp_path / "journal.db", version=version)
    before = path.read_bytes()
    assert is_all_there(path)
    assert path.read_bytes() == before and version_of(path)[0] == version


def test_a_writer_that_is_still_open_ends_its_turn_and_begins_no_other(tmp_path: Path) -> None:
    """As docs/journal.md says of the file that a newer turnwise brought up meanwhile."""
    path = tmp_path / "journal.db"
    with Journal(path, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="first")
        pen.append(STARTED)
        newer = sqlite3.connect(path)
        newer.executescript(
            "begin; alter table session add column colour text; create table other (x); pragma user_version = 99; commit"
        )
        newer.close()
        pen.append(ANSWER)
        pen.close(RESULT)
        assert journal.events("t1") == [STARTED, ANSWER]
        assert [row.status for row in journal.sessions()] == ["done"]
        with pytest.raises(JournalFailed, match=r"from a newer turnwise \(version 99"):
            journal.begin_turn(turn_id="t2", session_id="s1", folder="/here", title="second")
