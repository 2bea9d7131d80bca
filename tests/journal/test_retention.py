"""Old sessions are deleted with all that belongs to them, and nothing else is: running ones, others, the bill."""

import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest

from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.journal.session_rows import KeptSession
from turnwise.journal.turn_writer import ToolsStarted
from turnwise.settings.settings import KeepRule, Layer, read_keep_rule, read_span
from turnwise.terminal.sessions import OldSessions, choose_old
from turnwise.testing import FakeClock

SAID = "something that was said"


def begin(journal: Journal, name: str, *, parent: tuple[str, str] | None = None) -> None:
    """A turn `t-NAME` of the session NAME, left by its process."""
    pen = journal.begin_turn(turn_id=f"t-{name}", session_id=name, folder="/here", title=name, parent=parent)
    pen.append(ToolsStarted(step=1, call_ids=(f"{SAID} {name}",)))
    pen.abandon()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db", clock=FakeClock())


def names(sessions: list[KeptSession]) -> list[str]:
    return sorted([one.id for one in sessions])


def count(path: Path, table: str) -> int:
    with sqlite3.connect(path) as connection:
        (found,) = connection.execute(f"select count(*) from {table}").fetchone()
    connection.close()
    return int(found)


def test_a_session_goes_with_its_sub_agents_and_no_byte_of_it_is_left(journal: Journal, tmp_path: Path) -> None:
    """Proves: sessions at each depth, their turns and records are gone, from the file's free pages too; another one is whole."""
    begin(journal, "old00000")
    begin(journal, "child000", parent=("t-old00000", "c1"))
    begin(journal, "grand000", parent=("t-child000", "c2"))
    begin(journal, "other000")
    found = journal.retention.sessions()
    assert [(one.id, one.subagents) for one in found] == [("other000", 0), ("old00000", 2)]
    assert names(journal.retention.delete([one for one in found if one.id == "old00000"]).gone) == ["old00000"]
    path = tmp_path / "journal.db"
    assert [count(path, table) for table in ("session", "turn", "record")] == [1, 1, 1]
    assert [one.seq for one in journal.entries("t-other000")] == [1]
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert f"{SAID} old".encode() not in content and f"{SAID} grand".encode() not in content
    assert f"{SAID} other".encode() in path.read_bytes()
    begin(journal, "fresh000")
    assert [one.seq for one in journal.entries("t-fresh000")] == [1]


def test_a_running_session_stays_and_so_does_one_with_a_running_sub_agent(journal: Journal) -> None:
    """Proves: our own process lives, so what it runs is not deleted, even if it was not running when it was listed."""
    begin(journal, "old00000")
    listed = journal.retention.sessions()
    journal.begin_turn(turn_id="t-child", session_id="child000", folder="/here", title="x", parent=("t-old00000", "c1"))
    assert not listed[0].is_running and journal.retention.delete(listed).gone == []
    (now,) = journal.retention.sessions()
    assert now.is_running and journal.retention.delete([now]).gone == []
    assert choose_old([now], rule=KeepRule(keep=0), now_s=9e9) == OldSessions(go=[], stay=[(now, "running")])


def test_the_bill_is_the_same_without_the_session(journal: Journal, tmp_path: Path) -> None:
    """Proves: no row of the ledger goes with its session."""
    begin(journal, "old00000")
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        connection.execute(
            "insert into request (session, turn, root_session, root_turn, path, number, step, purpose, provider, model, started,"
            " sent_bytes, usd)"
            " values ('old00000', 't-old00000', 'old00000', 't-old00000', '[]', 1, 1, 'step', 'p', 'm', 5, 9, '0.25')"
        )
    connection.close()
    journal.retention.delete(journal.retention.sessions())
    assert count(tmp_path / "journal.db", "session") == 0
    with sqlite3.connect(tmp_path / "journal.db") as connection:
        assert [Decimal(usd) for (usd,) in connection.execute("select usd from request")] == [Decimal("0.25")]
    connection.close()


def kept(name: str, *, days_ago: float) -> KeptSession:
    return KeptSession(
        id=name, title="", folder="/", updated=1e9 - days_ago * 86_400, turns=1, subagents=0, is_running=False
    )


def test_both_rules_have_to_agree() -> None:
    """Proves: the latest stay however old they are, and what is not old stays however many there are."""
    sessions = [kept("a", days_ago=1), kept("b", days_ago=50), kept("c", days_ago=100), kept("d", days_ago=200)]

    def chosen(**rule: float | int) -> list[str]:
        return names(choose_old(sessions, rule=KeepRule(**rule), now_s=1e9).go)  # type: ignore[arg-type]

    assert chosen(older_than_s=90 * 86_400.0) == ["c", "d"]
    assert chosen(older_than_s=90 * 86_400.0, keep=3) == ["d"]
    assert chosen(keep=1) == ["b", "c", "d"] and chosen(keep=9) == []
    assert [read_span(text) for text in ("24h", "90d", "2w")] == [86_400.0, 7_776_000.0, 1_209_600.0]


def test_the_users_file_may_say_the_rule_and_a_project_may_not() -> None:
    """Proves: a folder from elsewhere cannot choose what is deleted, and a slip of the keyboard does not delete anything."""

    def rule(table: object, *, source: str = "user") -> KeepRule:
        return read_keep_rule([Layer(source=source, table={"sessions": table}, path=Path("/f/turnwise.toml"))])  # type: ignore[arg-type]

    assert rule({"older_than": "90d", "keep": 100}) == KeepRule(older_than_s=7_776_000.0, keep=100)
    assert read_keep_rule([Layer(source="user", table={})]) == KeepRule()
    for table, said in (
        ({"older": "90d"}, "`sessions`.older: no such setting; there are `older_than` and `keep`"),
        ({"older_than": 90}, "`sessions.older_than`: `90` is no time"),
        ({"keep": True}, "`sessions.keep` is `True`"),
        ({"keep": -1}, "`sessions.keep` is `-1`"),
        ([], "`sessions` is no table"),
    ):
        with pytest.raises(CallerError) as refused:
            rule(table)
        assert said in str(refused.value)
    with pytest.raises(CallerError, match="put it into your own file"):
        rule({"keep": 0}, source="project")


def test_a_session_that_changed_since_it_was_listed_stays(tmp_path: Path) -> None:
    """Proves: what a person went on with while the list was on the screen is not deleted; listed anew it goes."""
    path = tmp_path / "journal.db"
    with Journal(path, clock=FakeClock(now=1_000.0)) as journal:
        begin(journal, "old00000")
        begin(journal, "other000")
        listed = journal.retention.sessions()
    with Journal(path, clock=FakeClock(now=2_000.0)) as journal:
        pen = journal.begin_turn(turn_id="t-again", session_id="old00000", folder="/here", title="x", parent=None)
        pen.abandon()
        assert names(journal.retention.delete(listed).gone) == ["other000"]
        assert names(journal.retention.delete(journal.retention.sessions()).gone) == ["old00000"]
