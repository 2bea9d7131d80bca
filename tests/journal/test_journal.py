"""The journal: what is written stays, whoever else writes, and whatever happens to the process."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path

import pytest

from families import of_family
from left_journals import unseen_owner
from turn.playing import session_messages
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.direct_ledger import RepairSeen
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.turn_writer import JournalEntry, RequestSent, TurnJournal
from turnwise.testing import FakeClock
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.events import RequestFailed, ResponseReceived, TurnStarted
from turnwise.vocab import NO_USAGE, Fault, FaultKind, FinishReason, Message, Response, StopReason, Text, Usage
from waits import HANG_S

CONFIG = TurnConfig(session_id="s1", turn_id="t1", model="m", **of_family("openai_chat"))
STARTED = TurnStarted(config=CONFIG, input=(Message("user", (Text("grüß dich"),)),))
ANSWER = ResponseReceived(
    number=1, response=Response(message=Message("assistant", (Text("hallo"),)), finish=FinishReason.STOP)
)
RESULT = TurnResult(
    text="hallo", stop_reason=StopReason.ANSWERED, complete=True, steps=1, requests=1, usage=NO_USAGE, messages=()
)


def begin(
    journal: Journal, session: str = "s1", turn: str = "t1", folder: str = "/here", title: str = "go"
) -> TurnJournal:
    return journal.begin_turn(turn_id=turn, session_id=session, folder=folder, title=title)


def test_a_path_may_be_text(tmp_path: Path) -> None:
    """As docs/library.md says, `or a path`: whoever writes one as text gets the same file, and the same errors."""
    with Journal(str(tmp_path / "new" / "j.db"), clock=FakeClock()) as journal:
        assert journal.sessions() == []
    assert (tmp_path / "new" / "j.db").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CallerError, match="is a folder, not a file"):
        Journal(str(tmp_path), clock=FakeClock())


def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Whole values, in order, with their times, from another opening of the file."""
    clock = FakeClock(now=1000)
    sent = RequestSent(number=1, purpose="step", url="http://x", body_sha256="00", body_bytes=2)
    with Journal(tmp_path / "j.db", clock=clock) as journal:
        pen = begin(journal)
        for record in (STARTED, sent, ANSWER):
            pen.append(record)
        pen.close(RESULT)
    with Journal(tmp_path / "j.db", clock=clock) as journal:
        assert journal.entries("t1") == [
            JournalEntry(seq=1, time=1000, record=STARTED),
            JournalEntry(seq=2, time=1000, record=sent),
            JournalEntry(seq=3, time=1000, record=ANSWER),
        ]
        assert journal.events("t1") == [STARTED, ANSWER]
        (row,) = journal.sessions()
        assert (row.id, row.title, row.turns, row.status, row.stop_reason, row.complete) == (
            *("s1", "go", 1, "done"),
            *(StopReason.ANSWERED, True),
        )


async def test_sessions_are_found_by_id_part_and_folder() -> None:
    """The latest first; a part that fits several, or none, is told."""
    clock = FakeClock()
    with Journal(None, clock=clock) as journal:
        for number, (session, folder) in enumerate([("aaaa1111", "/a"), ("aaaa2222", "/b"), ("bbbb2222", "/a")]):
            begin(journal, session, f"t{number}", folder).close(RESULT)
            await clock.advance(1)
        assert [row.id for row in journal.sessions()] == ["bbbb2222", "aaaa2222", "aaaa1111"]
        assert [row.id for row in journal.sessions(limit=1)] == ["bbbb2222"]
        assert journal.find_session_by_part("aaaa1").row.id == "aaaa1111"
        assert journal.find_session_by_part("1111").row.id == "aaaa1111"
        last = journal.last_session("/a")
        assert last is not None and last.row.id == "bbbb2222"
        assert journal.last_session("/c") is None
        with pytest.raises(CallerError, match="fits several sessions: aaaa2222, aaaa1111"):
            journal.find_session_by_part("aaaa")
        with pytest.raises(CallerError, match="there is no session"):
            journal.find_session_by_part("cccc")
        with pytest.raises(CallerError, match="is no session id"):
            journal.find_session_by_part("a*")
        begin(journal, "user-12", "t3", "/a").close(RESULT)
        assert journal.find_session_by_part("user-12").row.id == "user-12"
        with pytest.raises(CallerError, match="is no session id"):
            journal.find_session_by_part("user-1")


async def test_turns_of_a_session_come_in_order_with_the_last_ones_state() -> None:
    """Two turns: the row speaks of the last, the session holds both."""
    clock = FakeClock()
    with Journal(None, clock=clock) as journal:
        begin(journal, turn="z").close(RESULT)
        await clock.advance(1)
        begin(journal, turn="a", title="later")
        last = journal.last_session("/here")
        assert last is not None
        assert [(turn.id, turn.status) for turn in last.turns] == [("z", "done"), ("a", "running")]
        assert (last.row.title, last.row.turns, last.row.status) == ("go", 2, "running")


def test_running_session_is_not_started_twice_and_free_after_the_run() -> None:
    """Two turns of one session at once would each miss what the other says."""
    with Journal(None, clock=FakeClock()) as journal:
        pen = begin(journal)
        with pytest.raises(CallerError, match="session `s1` is running already"):
            begin(journal, turn="t2")
        pen.abandon()
        begin(journal, turn="t2")
        with pytest.raises(CallerError, match="taken this turn over"):
            pen.append(STARTED)


@pytest.mark.promise("keep:crash", "run:own-state")
def test_a_turn_whose_process_cannot_be_seen_is_taken_over_by_the_callers_word_alone() -> None:
    """Proves: another boot with our host name counts as running, a worker's turn is its lease's, a living process is refused."""
    with Journal(None, clock=FakeClock()) as journal:
        pen = begin(journal)
        with pytest.raises(CallerError, match="is running already"):
            journal.take_over("s1")
        set_owner(journal, "worker@elsewhere:1:2")
        with pytest.raises(CallerError, match="is with a worker"):
            journal.take_over("s1")
        set_owner(journal, unseen_owner())
        assert journal.find_session("s1").turns[-1].status == "running"
        for refused in (lambda: begin(journal, turn="t2"), lambda: journal.resume_turn("t1")):
            with pytest.raises(CallerError, match="--take-over"):
                refused()
        assert journal.take_over("s1").turns[-1].status == "lost"
        journal.resume_turn("t1")
        with pytest.raises(JournalFailed, match="taken this turn over"):
            pen.append(STARTED)


def set_owner(journal: Journal, owner: str) -> None:
    with journal._store.transaction() as connection:
        connection.execute("update turn set owner = ?", (owner,))


def test_file_is_private(tmp_path: Path) -> None:
    """Prompts and results are nobody else's business: the file and its companions are 0600, the folder 0700."""
    path = tmp_path / "state" / "journal.db"
    with Journal(path, clock=FakeClock()) as journal:
        begin(journal)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_damaged_foreign_and_newer_files_are_told(tmp_path: Path) -> None:
    """One clear line each, naming the file and what to do; the file is left as it is."""
    damaged, foreign, newer = tmp_path / "damaged.db", tmp_path / "foreign.db", tmp_path / "newer.db"
    damaged.write_bytes(b"this is not a database at all" * 100)
    connection = sqlite3.connect(foreign)
    connection.execute("create table other (x)")
    connection.close()
    Journal(newer, clock=FakeClock()).close()
    connection = sqlite3.connect(newer)
    connection.execute("pragma user_version = 99")
    connection.close()
    for path, text in ((damaged, "damaged or no SQLite file"), (foreign, "not a journal"), (newer, "newer turnwise")):
        before = path.read_bytes()
        with pytest.raises(CallerError, match=text) as caught:
            Journal(path, clock=FakeClock())
        assert str(path) in str(caught.value) and "TURNWISE_STATE_DIR" in str(caught.value)
        assert path.read_bytes() == before
    with pytest.raises(CallerError, match="is a file, not a folder"):
        Journal(damaged / "below-a-file.db", clock=FakeClock())


def test_journal_path_follows_the_environment() -> None:
    """TURNWISE_STATE_DIR, then XDG_STATE_HOME (absolute only), then the home folder."""
    assert journal_path({"TURNWISE_STATE_DIR": "/x", "XDG_STATE_HOME": "/y"}) == Path("/x/journal.db")
    assert journal_path({"XDG_STATE_HOME": "/y"}) == Path("/y/turnwise/journal.db")
    home = Path.home() / ".local" / "state" / "turnwise" / "journal.db"
    assert journal_path({"XDG_STATE_HOME": "relative"}) == journal_path({}) == home


WRITER = """
import sys
from pathlib import Path
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import Journal
from turnwise.journal.turn_writer import RequestSent
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Text

path, name, count, hang = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "hang"
journal = Journal(path, clock=SystemClock())
pen = journal.begin_turn(turn_id="t" + name, session_id="s" + name, folder="/here", title=name)
config = TurnConfig(session_id="s" + name, turn_id="t" + name, model="m")
pen.append(TurnStarted(config=config, input=(Message("user", (Text("hi"),)),)))
for number in range(count):
    pen.append(RequestSent(number=number, purpose="step", url="u", body_sha256="0", body_bytes=0))
print("written", flush=True)
if hang:
    sys.stdin.read()
"""


def writer(path: Path, name: str, *, count: int, hang: bool) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path), name, str(count), "hang" if hang else "end"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_killed_process_leaves_a_readable_session(tmp_path: Path) -> None:
    """kill -9 in the middle of a request: everything appended is there, the turn is `lost`, the session goes on."""
    path = tmp_path / "j.db"
    child = writer(path, "a", count=3, hang=True)
    assert child.stdout is not None and child.stdout.readline() == "written\n"
    with Journal(path, clock=SystemClock()) as journal:
        with pytest.raises(CallerError, match="running already"):
            begin(journal, "sa", "t2")
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=HANG_S)
        session = journal.last_session("/here")
        assert session is not None and [turn.status for turn in session.turns] == ["lost"]
        assert len(journal.entries("ta")) == 4
        assert session_messages([journal.events("ta")]) == (Message("user", (Text("hi"),)),)
        begin(journal, "sa", "t2").append(
            RequestFailed(number=1, fault=Fault(kind=FaultKind.TIMEOUT, message="the lost one is not in the way"))
        )


# What version 4 had, of a file of version 5.
WITHOUT_11 = "drop table gateway;"
WITHOUT_10 = (
    f"{WITHOUT_11} drop index turn_by_key; alter table turn drop column key; alter table turn drop column asked;"
)
WITHOUT_9 = f"{WITHOUT_10} drop table budget; drop table budget_run; alter table session drop column labels;"
WITHOUT_7 = f"{WITHOUT_9} drop table repair_seen;"
WITHOUT_6 = (
    f"{WITHOUT_7} alter table request drop column cache_missed_tokens; alter table request drop column cache_write_usd;"
)
WITHOUT_5 = (
    f"{WITHOUT_6} "
    "insert into event (turn, seq, epoch, kind, body, t) select turn, seq, 1, kind, body, t from written;"
    " drop view written; drop table record; drop index turn_by_number; alter table turn drop column number;"
    " create unique index request_by_turn on request (turn, number);"
)


def test_a_file_of_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    """Version 1 knew no sub-agents, version 2 no ledger: what it holds stays, and both can be kept in it."""
    path, clock = tmp_path / "journal.db", FakeClock()
    with Journal(path, clock=clock) as journal:
        journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="first").abandon()
    connection = sqlite3.connect(path)
    connection.executescript(
        f"{WITHOUT_5} drop index session_by_parent; alter table session drop column parent_turn;"
        " alter table session drop column parent_call; drop table request; pragma user_version = 1;"
    )
    connection.close()
    with Journal(path, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t2", session_id="s2", folder="/here", title="child", parent=("t1", "call_1"))
        pen.abandon()
        assert [row.id for row in journal.sessions()] == ["s1"]
        assert [(call, child.row.title) for call, child in journal.children("t1")] == [("call_1", "child")]
        assert journal.children("t2") == []
        assert journal.ledger.entries(LedgerSpan()) == []
        assert journal.ledger.totals(LedgerSpan(since=1), by="session") == []


def test_a_ledger_that_knew_no_programs_is_kept(tmp_path: Path) -> None:
    """Version 3: what was sent stays, and no program is told of it."""
    path, clock = tmp_path / "journal.db", FakeClock()
    entry = LedgerEntry(
        session="s1",
        turn="t1",
        root_session="s1",
        root_turn="t1",
        number=1,
        step=1,
        purpose="step",
        provider="p",
        model="m",
        started=1.0,
        sent_bytes=3,
        calls=2,
    )
    with Journal(path, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="first")
        pen.request_leaves(RequestSent(number=1, purpose="step", url="", body_sha256="", body_bytes=3), entry)
        pen.request_became(entry)
        pen.write()
    connection = sqlite3.connect(path)
    connection.executescript(
        f"{WITHOUT_5} alter table request drop column programs; alter table request drop column program_calls;"
        " pragma user_version = 3;"
    )
    connection.close()
    with Journal(path, clock=clock) as journal:
        assert journal.ledger.entries(LedgerSpan()) == [entry]


def test_a_ledger_that_knew_no_misses_is_kept(tmp_path: Path) -> None:
    """Version 5: what was sent stays, and no miss is told of it."""
    path, clock = tmp_path / "journal.db", FakeClock()
    entry = LedgerEntry(
        **dict.fromkeys(("session", "turn", "root_session", "root_turn", "provider", "model"), "s"),  # pyright: ignore[reportArgumentType]
        number=1,
        step=1,
        purpose="step",
        started=1.0,
        sent_bytes=3,
        usage=Usage(input_tokens=9, cache_write_tokens=5),
        cache_saved_usd=Decimal("-0.1"),
    )
    with Journal(path, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="s", session_id="s", folder="/here", title="first")
        pen.request_leaves(RequestSent(number=1, purpose="step", url="", body_sha256="", body_bytes=3), entry)
        pen.request_became(entry)
        pen.write()
    connection = sqlite3.connect(path)
    connection.executescript(f"{WITHOUT_6} pragma user_version = 5;")
    connection.close()
    with Journal(path, clock=clock) as journal:
        assert journal.ledger.entries(LedgerSpan()) == [entry]
        (total,) = journal.ledger.totals(LedgerSpan(), by="model")
        assert (total.cache_misses, total.cache_unread_tokens, total.cache_unread_usd) == (0, 5, None)


def test_turns_of_version_4_stay_readable_beside_new_ones(tmp_path: Path) -> None:
    """Version 5 keeps records elsewhere. A process of version 4 that has the file open goes on with its turn, and that can be
    read as well."""
    path, clock = tmp_path / "journal.db", FakeClock()
    with Journal(path, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="first")
        pen.append(STARTED)
        pen.append(ANSWER)
    older = sqlite3.connect(path)
    older.executescript(f"{WITHOUT_5} pragma user_version = 4;")
    with Journal(path, clock=clock) as journal:
        assert journal.events("t1") == [STARTED, ANSWER]
        for turn in ("t2", "t3"):
            journal.begin_turn(turn_id=turn, session_id=turn, folder="/here", title=turn).append(STARTED)
        older.execute(
            "insert into event (turn, seq, epoch, kind, body, t) select turn, 3, 1, kind, body, t from event limit 1"
        )
        older.commit()
        assert [journal.events(turn) for turn in ("t1", "t2", "t3")] == [
            [STARTED, ANSWER, STARTED],
            [STARTED],
            [STARTED],
        ]
        assert [entry.seq for turn in ("t1", "t2") for entry in journal.entries(turn)] == [1, 2, 3, 1]
    older.close()


def test_no_turn_begins_in_a_file_that_a_newer_turnwise_has_changed_meanwhile(tmp_path: Path) -> None:
    """Proves: a process that has the file open does not go on with a session of which it may not see all."""
    path, clock = tmp_path / "journal.db", FakeClock()
    with Journal(path, clock=clock) as journal:
        journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="first").append(STARTED)
        newer = sqlite3.connect(path)
        newer.execute("pragma user_version = 99")
        newer.close()
        with pytest.raises(CallerError, match=r"from a newer turnwise \(version 99, this one knows \d+\): upgrade"):
            journal.begin_turn(turn_id="t2", session_id="s2", folder="/here", title="second")
        assert [row.id for row in journal.sessions()] == ["s1"]


def test_a_turn_is_read_without_looking_at_the_others(tmp_path: Path) -> None:
    """Proves: the way to the records of one turn is a search in each table, however many turns there are."""
    path = tmp_path / "journal.db"
    with Journal(path, clock=FakeClock()):
        pass
    connection = sqlite3.connect(path)
    plan = [
        row[3]
        for row in connection.execute("explain query plan select body from written where turn = 't' order by seq")
    ]
    connection.close()
    assert [line.partition(" (")[0] for line in plan if "SEARCH" in line or line in ("SCAN record", "SCAN event")] == [
        "SEARCH event USING INDEX sqlite_autoindex_event_1",
        "SEARCH turn USING INDEX sqlite_autoindex_turn_1",
        "SEARCH record USING INTEGER PRIMARY KEY",
    ]


def test_a_file_that_knew_no_repairs_is_brought_up_to_date(tmp_path: Path) -> None:
    """Version 6: what it holds stays, and repairs can be kept in it."""
    path, clock = tmp_path / "journal.db", FakeClock()
    with Journal(path, clock=clock) as journal:
        journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="first").append(STARTED)
    connection = sqlite3.connect(path)
    connection.executescript(f"{WITHOUT_7} pragma user_version = 6;")
    connection.close()
    seen = RepairSeen(day="2026-11-20", provider="p", family="gemini", model="m", kind="id_missing", times=2)
    with Journal(path, clock=clock) as journal:
        journal.repairs.write([seen])
        assert [row.times for row in journal.repairs.sums()] == [2]
        assert journal.events("t1") == [STARTED]
