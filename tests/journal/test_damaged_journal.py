"""A journal whose file is broken: the damage is found and named, nothing is made worse, and the rest can be read and used.

The damage is real: noise over pages of SQLite's, drawn from a seed, and a file that lost its end.
"""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from flat_agents import flat_agent
from journal.test_written_before import ENTRY
from turnwise import Journal, tool
from turnwise.agent.resume_lookup import read_session
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalDamaged, JournalFailed
from turnwise.journal.journal import JournalEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.journal.read_only import Rescued, replace_damaged
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.vocab import StopReason

SESSIONS = 8
PAGE = 4096
LONG = "x" * 3000  # most records get pages of their own
TABLES = {"session", "turn", "event", "request", "record", "repair_seen", "budget", "budget_run"}

Content = dict[str, list[JournalEntry]]
"""The records of each session, all of its turns."""


async def one_turn(journal: Journal, *, session: str = "", prompt: str = "Go.") -> StopReason:
    @tool
    def note(text: str) -> str:
        """Keep a note."""
        return LONG

    model = ScriptedModel([[call("note", text="a")], f"Done. {LONG}"], family="anthropic_messages")
    agent = flat_agent("anthropic_messages:m", base_url=BASE_URL, tools=[note], transport=model, journal=journal)
    result = await (agent.run(prompt, session=session) if session else agent.run(prompt))
    return result.stop_reason


@pytest.fixture
async def whole(tmp_path: Path) -> Path:
    """A journal of some sessions, closed and whole."""
    path = tmp_path / "whole.db"
    with Journal(path, clock=SystemClock()) as journal:
        for number in range(SESSIONS):
            await one_turn(journal, prompt=f"prompt {number}")
    return path


def content(journal: Journal) -> Content:
    return {
        row.id: [entry for turn in journal.find_session(row.id).turns for entry in journal.entries(turn.id)]
        for row in journal.sessions()
    }


def broken(whole: Path, *, page: int, to: Path) -> Path:
    content = bytearray(whole.read_bytes())
    content[(page - 1) * PAGE : page * PAGE] = random.Random(page).randbytes(PAGE)
    to.write_bytes(content)
    return to


def root_of(whole: Path, table: str) -> int:
    connection = sqlite3.connect(whole)
    (root,) = connection.execute("select rootpage from sqlite_schema where name = ?", (table,)).fetchone()
    connection.close()
    return root


def places(whole: Path) -> Iterator[int]:
    """Every page but the first."""
    yield from range(2, whole.stat().st_size // PAGE + 1)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
def test_noise_over_any_page_costs_what_was_on_it(whole: Path, tmp_path: Path) -> None:
    """Proves: whichever page is broken, all sessions are still listed, and each that is not named as affected has all its
    records; the damaged file is as it was."""
    with Journal(whole, clock=SystemClock()) as journal:
        before = content(journal)
    named: set[str] = set()
    intact = 0
    for page in places(whole):
        path = broken(whole, page=page, to=tmp_path / "broken.db")
        bytes_before = path.read_bytes()
        with Journal.open_to_read(path, clock=SystemClock()) as journal:
            found = journal.is_whole()
        with Journal.open_rescued(path, clock=SystemClock()) as journal:
            (note,) = journal.notes
            after = content(journal)
            affected = {id for id in before if id[-8:] in note}
        assert path.read_bytes() == bytes_before
        assert not found, f"page {page}: {note}"
        assert after.keys() == before.keys() or "`turn`" in note or "`record`" in note, f"page {page}: {note}"
        assert {id for id in before if after.get(id) != before[id]} <= affected, f"page {page}: {note}"
        named |= {table for table in TABLES if f"`{table}`" in note}
        intact += len(before) - len(affected)
    assert named == TABLES
    assert intact > 0.7 * SESSIONS * len(list(places(whole))), "one page is seldom everybody's"


@pytest.mark.promise("keep:crash")
def test_what_was_lost_is_said_in_a_few_words() -> None:
    """Proves: sums are said to be too small where the ledger lost entries, and nowhere else."""
    said = Rescued(tables=("record",), sessions=2, affected=("x" * 24 + "01234567",)).said()
    assert said == "damaged: `record`; 1 of 2 sessions lost something: 01234567"
    said = Rescued(tables=("record", "request"), sessions=2, affected=()).said()
    assert said.endswith("0 of 2 sessions lost something; the ledger lost entries, so its sums are too small")


def test_a_file_that_lost_its_end_keeps_its_beginning(whole: Path, tmp_path: Path) -> None:
    """Proves: SQLite refuses the whole file, and yet what stands before the cut is read."""
    with Journal(whole, clock=SystemClock()) as journal:
        before = content(journal)
    path = tmp_path / "short.db"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4 - 100])
    with pytest.raises(JournalDamaged, match=r"is damaged .*malformed.*`turnwise sessions rescue`"):
        Journal(path, clock=SystemClock())
    with Journal.open_rescued(path, clock=SystemClock()) as journal:
        after = content(journal)
        affected = {id for id in before if id[-8:] in journal.notes[0]}
    assert after.keys() == before.keys() and 0 < len(affected) < SESSIONS
    assert {id for id in before if after[id] != before[id]} <= affected


@pytest.mark.promise("keep:crash", "end:reason")
async def test_damage_in_mid_turn_ends_it_and_the_file_is_not_written_any_more(whole: Path, tmp_path: Path) -> None:
    """Proves: whoever meets the damage names the table, and no later commit goes into the file; what is rescued of it goes on."""
    path = broken(whole, page=root_of(whole, "record"), to=tmp_path / "journal.db")
    with Journal(path, clock=SystemClock()) as journal:
        with pytest.raises(JournalDamaged, match=r"damaged in table `record` \(database disk image is malformed\)"):
            await one_turn(journal)
        changes = journal_counter(path)
        with pytest.raises(JournalDamaged, match="is not written any more"):
            journal.begin_turn(turn_id="t", session_id="s", folder="/", title="later")
        assert journal_counter(path) == changes
        assert len(journal.sessions()) >= SESSIONS, "the list is on other pages"


@pytest.mark.promise("end:reason", "end:never-empty", "bill:wire")
async def test_a_turn_that_meets_damage_ends_with_a_result_that_names_it(whole: Path, tmp_path: Path) -> None:
    """Proves: the entry of the first request cannot be written, so it does not leave, and the result says why."""
    path = broken(whole, page=root_of(whole, "request"), to=tmp_path / "journal.db")
    with Journal(path, clock=SystemClock()) as journal:
        model = ScriptedModel(["Never."], family="anthropic_messages")
        agent = flat_agent("anthropic_messages:m", base_url=BASE_URL, transport=model, journal=journal)
        result = await agent.run("Go.")
        assert (result.stop_reason, result.complete, model.asked) == (StopReason.JOURNAL_FAILED, False, [])
        assert "damaged in table `request`" in result.text and "`turnwise sessions rescue`" in result.text
        assert [row.status for row in journal.sessions()] == ["running", *["done"] * SESSIONS], (
            "not even its end is written"
        )


def journal_counter(path: Path) -> tuple[int, int]:
    """What any commit changes: the sizes of the file and of its log."""
    return path.stat().st_size, path.with_name(f"{path.name}-wal").stat().st_size


@pytest.mark.promise("keep:crash")
async def test_what_is_rescued_is_a_journal_to_go_on_with(whole: Path, tmp_path: Path) -> None:
    """Proves: the new file is whole, keeps the ledger, takes further turns of old sessions, the affected one among them; the
    damaged file stands beside it, byte for byte."""
    with Journal(whole, clock=SystemClock()) as journal:
        requests = len(journal.ledger.entries(LedgerSpan()))
    connection = sqlite3.connect(whole)
    (leaf,) = connection.execute(
        "select pageno from dbstat where name = 'record' and pagetype = 'leaf' limit 1"
    ).fetchone()
    connection.close()
    path = broken(whole, page=leaf, to=tmp_path / "journal.db")
    damaged = path.read_bytes()
    rescued, kept = replace_damaged(path, clock=FakeClock(now=0))
    assert (kept.name, kept.read_bytes()) == ("journal.db.damaged-19700101-000000", damaged)
    assert rescued.tables == ("record",) and len(rescued.affected) == 1 and rescued.sessions == SESSIONS
    assert path.stat().st_mode & 0o777 == 0o600
    with Journal(path, clock=SystemClock()) as journal:
        assert journal.is_whole() and len(journal.ledger.entries(LedgerSpan())) == requests
        for row in journal.sessions():
            read_session(journal, journal.find_session(row.id))
            assert await one_turn(journal, session=row.id, prompt="And?") is StopReason.ANSWERED
        (affected,) = [row for row in journal.sessions() if row.id in rescued.affected]
        assert [turn.status for turn in journal.find_session(affected.id).turns] == ["lost", "done"]


def test_a_journal_in_use_a_whole_one_and_a_newer_one_are_not_replaced(whole: Path, tmp_path: Path) -> None:
    """Each keeps its bytes, and the message says why."""
    with pytest.raises(CallerError, match=r"no page of the journal .* is broken: there is nothing to rescue"):
        replace_damaged(whole, clock=FakeClock())
    path = broken(whole, page=whole.stat().st_size // PAGE, to=tmp_path / "journal.db")
    with Journal(path, clock=SystemClock()) as journal:
        journal.sessions()
        with pytest.raises(JournalFailed, match="is in use by another process: end it first"):
            replace_damaged(path, clock=FakeClock())
    connection = sqlite3.connect(path)
    connection.execute("pragma user_version = 99")
    connection.close()
    with pytest.raises(JournalFailed, match="from a newer turnwise"):
        replace_damaged(path, clock=FakeClock())
    assert sorted(file.name for file in tmp_path.iterdir() if "journal.db." in file.name) == []


def test_a_header_of_noise_is_told_and_left(whole: Path, tmp_path: Path) -> None:
    """Without its first page nothing tells where the tables are."""
    path = broken(whole, page=1, to=tmp_path / "journal.db")
    before = path.read_bytes()
    for open_it in (Journal, Journal.open_to_read, Journal.open_rescued):
        with pytest.raises(
            JournalDamaged, match=r"is damaged or no SQLite file .*: move it away, or set TURNWISE_STATE_DIR"
        ):
            open_it(path, clock=SystemClock())
    assert path.read_bytes() == before


@pytest.mark.promise("keep:crash")
async def test_noise_in_the_log_reads_as_an_earlier_end(tmp_path: Path) -> None:
    """Proves: wherever the write-ahead log is broken, what is read is a whole journal of an earlier moment."""
    with Journal(tmp_path / "live.db", clock=SystemClock()) as journal:
        for number in range(4):
            await one_turn(journal, prompt=f"prompt {number}")
        before = content(journal)
        file, log = (tmp_path / "live.db").read_bytes(), (tmp_path / "live.db-wal").read_bytes()
    draws = random.Random(7)
    counts: set[int] = set()
    for number in range(12):
        path = tmp_path / f"{number}.db"
        path.write_bytes(file)
        at = draws.randrange(len(log) - 64)
        path.with_name(f"{number}.db-wal").write_bytes(log[:at] + draws.randbytes(64) + log[at + 64 :])
        with Journal(path, clock=SystemClock()) as journal:
            after = content(journal)
            assert journal.is_whole()
        assert all(before[id][: len(entries)] == entries for id, entries in after.items())
        counts.add(len(after))
    assert len(counts) > 2, "it was broken early and late"


async def test_the_gateways_ledger_stops_at_damage(whole: Path, tmp_path: Path) -> None:
    """Proves: no request leaves that cannot be entered, and nothing is written from then on."""
    path = broken(whole, page=root_of(whole, "request"), to=tmp_path / "journal.db")
    thread = LedgerThread(path, clock=FakeClock())
    for _ in range(2):
        with pytest.raises(JournalFailed, match=r"damaged in table `request` .*`turnwise sessions rescue`"):
            await thread.leaves(ENTRY)
        assert not thread.is_well
    thread.close()
    assert path.read_bytes() == broken(whole, page=root_of(whole, "request"), to=tmp_path / "again.db").read_bytes()
