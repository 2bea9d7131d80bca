"""The journal's database: how it is reached, made, brought up to date and refused, and what it must never show."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import postgres_server
from flat_agents import flat_agent
from journal.store_conformance import begin, result, sent
from postgres_server import NoPostgres, find_programs
from tables import each
from turnwise import Journal, tool
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.postgres.connection import (
    SCHEMA_VERSION,
    UPGRADES,
    Upgrades,
    bring_up_to_date,
    connect,
    read_address,
    version_of,
)
from turnwise.journal.postgres.store import PostgresStore
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.vocab.file_names import shown_name
from waits import HANG_S

PASSWORD = "hunter2-hunter2"


def opened(dsn: str) -> Journal:
    return Journal(dsn, clock=FakeClock())


@pytest.fixture
def admin(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection


# -- its address


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/nowhere?connect_timeout=2",
        f"postgres://me:{PASSWORD}@/nowhere?host=/no/such/folder",
        f"postgresql://me:{PASSWORD}%zz@127.0.0.1/nowhere",
        f"postgresql://127.0.0.1:1/nowhere?pasword={PASSWORD}",
        f"postgresql://me:{PASSWORD}@127.0.0.1:port/nowhere",
    ],
)
def test_no_error_shows_the_password(dsn: str) -> None:
    """Proves: whatever is wrong with an address, the message names the database and never the password."""
    with pytest.raises(CallerError) as caught:
        opened(dsn)
    assert PASSWORD not in str(caught.value) and "journal" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "address",
    [f"mysql://me:{PASSWORD}@db/turns", Path(f"postgresql://me:{PASSWORD}@db/turns"), f"postgres:/{PASSWORD}"],
)
def test_what_looks_like_an_address_makes_no_file(
    address: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: another database, or an address as a `Path`, is refused, and no file bears its password in its name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallerError, match="give `postgresql://USER@HOST/DATABASE` as a text") as caught:
        Journal(address, clock=FakeClock())
    assert PASSWORD not in str(caught.value) and list(tmp_path.iterdir()) == []


@contextmanager
def role(admin: psycopg.Connection, *, prefix: str = "worker") -> Iterator[str]:
    """A user of the server that may do nothing, with PASSWORD: some servers ask for it."""
    name = f"{prefix}_{admin.info.dbname}"
    admin.execute(f"create role {name} login password '{PASSWORD}'")
    try:
        yield name
    finally:
        admin.execute(f"drop owned by {name} cascade; drop role {name}")


def test_an_address_shows_itself_without_its_password(postgres_dsn: str, admin: psycopg.Connection) -> None:
    """Proves: `repr` of an address and of an open journal's parts, and what a message would take from them, hold no secret."""
    address = read_address(f"postgresql://me:{PASSWORD}@db.example:5433/turns")
    assert (repr(address), address.name) == (
        "DatabaseAddress('postgresql://me@db.example:5433/turns')",
        "postgresql://me@db.example:5433/turns",
    )
    assert address.hide(f"wrong: {PASSWORD}") == "wrong: ***"
    with role(admin) as name:
        admin.execute(f"grant create on database {admin.info.dbname} to {name}")
        with opened(f"{postgres_dsn}&user={name}&password={PASSWORD}") as journal:
            shown = " ".join([repr(journal), repr(journal._store), repr(journal.ledger)])
    assert PASSWORD not in shown and "turnwise_test" in shown


@each("secret", ["Secr3t/Pa55word", "Secr3t@Pa55word", "1234567890/Secr3t", "Secr3t/Pa55word?a=b", "a@Secr3t/b"])
@each("where", ["host/db", "host:5432/db", "/db?host=/tmp", "one,two/db"])
def test_an_address_whose_password_is_not_escaped_is_refused(secret: str, where: str) -> None:
    """Proves: a plain `/` or `@` in a password, which libpq takes for the end of a part, is refused, and no piece is shown."""
    with pytest.raises(CallerError, match=r"write `%40` for `@`.*PGPASSWORD") as caught:
        read_address(f"postgresql://tester:{secret}@{where}")
    for piece in ("Secr3t", "Pa55word", "1234567890", "tester"):
        assert piece not in str(caught.value)


def test_an_address_whose_parts_are_escaped_is_read() -> None:
    """Proves: escaped signs, a folder of a socket, several hosts, an address of version 6 and a colon in a password pass."""
    assert read_address("postgresql://t:a%2Fb%40c:d@host:5432/db").name == "postgresql://t@host:5432/db"
    assert read_address("postgresql://t@%2Ftmp%2Fpg/db").name == "postgresql://t@/tmp/pg/db"
    assert read_address("postgresql://t@%40pg/db").name == "postgresql://t@@pg/db"
    assert read_address("postgresql:///db?host=/tmp/pg").name == "postgresql:///tmp/pg/db"
    assert read_address("postgresql://one:1,two:2/db").name == "postgresql://one,two:1,2/db"
    assert read_address("postgresql://t@[::1]:5432/db").name == "postgresql://t@::1:5432/db"


def test_a_database_that_does_not_exist_is_told_at_once(postgres_dsn: str) -> None:
    """Proves: the message says which, without trying again."""
    with pytest.raises(JournalFailed, match='database "no_such" does not exist'):
        opened(f"{postgres_dsn}&dbname=no_such")


def test_a_file_needs_no_psycopg() -> None:
    """Proves: `import turnwise`, and a journal in a file, load nothing of it."""
    code = (
        "import sys\nfrom turnwise import Journal\nfrom turnwise.base.clock import SystemClock\n"
        "Journal(None, clock=SystemClock()).close()\nassert not [n for n in sys.modules if 'psycopg' in n]"
    )
    subprocess.run([sys.executable, "-c", code], timeout=HANG_S, check=True)


# -- its tables


def test_a_newer_database_is_refused(postgres_dsn: str, admin: psycopg.Connection) -> None:
    """Proves: one clear line; and a journal that was open already begins no turn whose tables it does not know."""
    with opened(postgres_dsn) as journal:
        pen = begin(journal)
        admin.execute("insert into turnwise.schema_version (version) values (99)")
        with pytest.raises(
            CallerError, match=rf"is from a newer turnwise \(version 99, this one knows {SCHEMA_VERSION}\): upgrade, or"
        ):
            opened(postgres_dsn)
        with pytest.raises(CallerError, match="is from a newer turnwise"):
            begin(journal, "s2", "t2")
        pen.append(sent(1))
        pen.close(result())


NEXT: Upgrades = {**UPGRADES, SCHEMA_VERSION: ("alter table turn add column tried integer not null default 0",)}


def upgrade(dsn: str, *, upgrades: Upgrades = NEXT) -> None:
    connection = connect(read_address(dsn))
    try:
        bring_up_to_date(connection, name="it", upgrades=upgrades, version=SCHEMA_VERSION + 1)
    finally:
        connection.close()


def test_an_upgrade_waits_for_a_reader_and_stops_none(postgres_dsn: str, admin: psycopg.Connection) -> None:
    """Proves: while somebody reads in a long transaction, the change is tried again and again, and others read and write
    between; with the reader's end it is done, and the older journal that is open writes on."""
    with opened(postgres_dsn) as journal:
        pen = begin(journal)
        admin.execute("begin")
        admin.execute("select count(*) from turnwise.turn")
        changing = threading.Thread(target=upgrade, args=(postgres_dsn,))
        changing.start()
        _wait_for_a_refused_lock(postgres_dsn)
        pen.append(sent(1))
        assert len(journal.sessions()) == 1
        admin.execute("commit")
        changing.join(HANG_S)
        row = admin.execute("select max(version), count(*) from turnwise.schema_version").fetchone()
        assert row == (SCHEMA_VERSION + 1, SCHEMA_VERSION + 1)
        pen.append(sent(2))
        assert len(journal.entries("t1")) == 2


def test_turns_that_wait_stand_in_line_behind_an_upgrade(postgres_dsn: str, admin: psycopg.Connection) -> None:
    """Proves: of an older database, whose workers keep their rights and whose submitters need no other: each session stands in
    the line with its first turn, and what is submitted afterwards, too."""
    admin.execute("create schema turnwise")
    connection = connect(read_address(postgres_dsn))
    bring_up_to_date(connection, name="it", version=3)
    with role(admin) as worker, role(admin, prefix="submitter") as submitter:
        admin.execute(f"grant usage on schema turnwise to {worker}, {submitter}")
        admin.execute(f"grant select, insert, update, delete on all tables in schema turnwise to {worker}")
        admin.execute(f"grant insert (id, session, status, epoch, owner, created) on turnwise.turn to {submitter}")
        admin.execute(
            "insert into turnwise.session select 's' || i, '', '', 0, 0 from generate_series(1, 3) i;"
            "insert into turnwise.turn (id, session, status, owner, created, priority)"
            " select 't' || i, 's' || (i % 2 + 1), 'queued', '', 0, i from generate_series(1, 6) i;"
        )
        bring_up_to_date(connection, name="it")
        connection.close()
        admin.execute(f"set role {submitter}")
        admin.execute(
            "insert into turnwise.turn (id, session, status, epoch, owner, created) values ('t7', 's3', 'queued', 0, '', 0)"
        )
        admin.execute(f"set role {worker}")
        line = admin.execute("select session, priority from turnwise.line order by session").fetchall()
        admin.execute("delete from turnwise.line")
        admin.execute("reset role")
    assert line == [("s1", 2), ("s2", 1), ("s3", 0)]


def _wait_for_a_refused_lock(dsn: str) -> None:
    """Until the change waits for its lock."""
    with psycopg.connect(dsn, autocommit=True) as watching:
        watching.execute("set statement_timeout = '60s'")
        watching.execute(
            "do $$ begin while not exists (select from pg_locks where not granted and mode = 'AccessExclusiveLock')"
            " loop perform pg_sleep(0.01); perform pg_stat_clear_snapshot(); end loop; end $$"
        )


def test_an_upgrade_that_fails_leaves_the_tables_as_they_were(postgres_dsn: str) -> None:
    """Proves: all of its statements or none."""
    opened(postgres_dsn).close()
    with pytest.raises(psycopg.errors.DivisionByZero):
        upgrade(postgres_dsn, upgrades={SCHEMA_VERSION: (*NEXT[SCHEMA_VERSION], "select 1 / 0")})
    connection = connect(read_address(postgres_dsn))
    assert version_of(connection) == SCHEMA_VERSION
    connection.close()
    upgrade(postgres_dsn)


def test_two_that_upgrade_at_once_both_succeed(postgres_dsn: str) -> None:
    """Proves: one changes the tables, the other finds them changed."""
    opened(postgres_dsn).close()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            upgrade(postgres_dsn)
        except BaseException as error:  # noqa: BLE001 (a thread's failure is told by the test's own thread)
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert problems == []


def test_a_user_without_rights_is_told_where_they_stand(postgres_dsn: str, admin: psycopg.Connection) -> None:
    """Proves: who may not make the tables is told so; once they are made, the rights of docs/postgres.md are enough to work."""
    with role(admin) as name:
        as_worker = f"{postgres_dsn}&user={name}&password={PASSWORD}"
        with pytest.raises(CallerError, match=r"permission denied .* needs the rights of docs/postgres.md"):
            opened(as_worker)
        opened(postgres_dsn).close()
        admin.execute(f"grant usage on schema turnwise to {name}")
        admin.execute(f"grant select, insert, update, delete on all tables in schema turnwise to {name}")
        with opened(as_worker) as journal:
            begin(journal).append(sent(1))
            assert len(journal.entries("t1")) == 1 and journal.ledger.entries(LedgerSpan()) == []


def test_a_database_that_cannot_hold_all_text_is_refused(postgres_dsn: str, admin: psycopg.Connection) -> None:
    """Proves: one that is not UTF-8 is told when it is opened, not at the first umlaut."""
    name = f"{admin.info.dbname}_latin"
    admin.execute(f"create database {name} encoding 'LATIN1' template template0 lc_collate 'C' lc_ctype 'C'")
    try:
        with pytest.raises(
            CallerError, match="stores text as LATIN1: make one with `create database NAME encoding 'UTF8'"
        ):
            opened(f"{postgres_dsn}&dbname={name}")
    finally:
        admin.execute(f"drop database {name} with (force)")


def test_half_a_surrogate_pair_in_a_folder_is_kept(postgres_dsn: str) -> None:
    """Proves: a path whose bytes are no UTF-8 comes back as it is shown, and is found by both."""
    folder = "/tmp/\udcff\udc80 \0 \x1a"
    with opened(postgres_dsn) as journal:
        begin(journal, folder=folder, title="\ud83d").close(result())
        last = journal.last_session(folder)
        assert last is not None and (last.row.folder, last.row.title) == (shown_name(folder), "\ud83d")


# -- a whole run


async def test_a_run_is_kept_like_in_a_file(postgres_dsn: str, tmp_path: Path) -> None:
    """Proves: an agent with a tool, over either store, has the same records and the same ledger but for ids and times."""

    @tool
    def look(word: str) -> str:
        return f"{word} \0 found"

    seen: list[object] = []
    for target in (tmp_path / "j.db", postgres_dsn):
        model = ScriptedModel([call("look", word="a"), [call("look", word="b"), call("look", word="c")], "Done."])
        with Journal(target, clock=SystemClock()) as journal:
            agent = flat_agent(
                "openai_chat:m", base_url="http://scripted.invalid", transport=model, tools=[look], journal=journal
            )
            told = await agent.run("Look.")
            assert told.text == "Done."
            session = journal.last_session(Path.cwd())
            assert session is not None and session.row.stop_reason == told.stop_reason
            kinds = [type(one.record).__name__ for one in journal.entries(session.turns[0].id)]
            entries = journal.ledger.entries(LedgerSpan())
            assert entries == list(told.ledger)
            seen.append((kinds, [(one.number, one.outcome, one.calls, one.usage) for one in entries]))
    assert seen[0] == seen[1]


# -- the tests' own server


def test_where_no_server_can_be_had_the_reason_is_precise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: a skipped test says what was tried and what to install."""
    monkeypatch.setenv(postgres_server.ONLY_VARIABLE, str(tmp_path))
    with pytest.raises(NoPostgres, match=rf"set TURNWISE_TEST_POSTGRES, or install one .* no `initdb` in `{tmp_path}`"):
        find_programs()


def test_a_full_journal_waits_for_the_disk_of_a_server_that_does_not(
    postgres_dsn: str, admin: psycopg.Connection
) -> None:
    """Proves: with `durability="full"`, as a worker has it, commits wait where the database is set not to wait; a stricter
    setting stays, and so does all at "normal"."""
    found: list[str] = []
    for setting in ("off", "remote_write"):
        admin.execute(f"alter role current_user set synchronous_commit = {setting}".encode())
        for durability in ("normal", "full"):
            store = PostgresStore.open(postgres_dsn)
            store.keep(durability)
            with store.statement() as connection:
                (value,) = connection.execute("select current_setting('synchronous_commit')").fetchone()
            store.close()
            found.append(value)
    admin.execute("alter role current_user reset synchronous_commit")
    assert found == ["off", "on", "remote_write", "remote_write"]
