"""One connection to PostgreSQL that never waits without end, and speaks the journal's SQL; and the tables of its database."""

import functools
import os
import re
import time
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, NoReturn, TypeVar, cast

import msgspec
import psycopg
from psycopg import errors, sql
from psycopg.abc import PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.types.numeric import NumericLoader
from psycopg.types.string import StrDumper

from turnwise._version import __version__
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.stores import FoundRows, Values

if TYPE_CHECKING:
    from psycopg.abc import Buffer

# Where a database is, and how it is reached: nothing here shows a password.


# A connection that fails does so within seconds; the address may say otherwise. Measured in the spike on dispatch: without
# `tcp_user_timeout` a half-open connection holds its process for 15 minutes.
USUAL: Mapping[str, str] = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "2",
    "application_name": "turnwise",
}
HIDDEN = "***"
PORTS = re.compile(r"[0-9,]*")
SHORTEST_HIDDEN = 4  # characters: a shorter password would strike out parts of words


class DatabaseAddress(msgspec.Struct, frozen=True):
    """`conninfo` holds the password; `name` is how messages call it."""

    conninfo: str
    name: str
    password: str = ""

    def __repr__(self) -> str:
        return f"DatabaseAddress({self.name!r})"

    def hide(self, text: str) -> str:
        """The text without the password, should a library have put it there."""
        return text.replace(self.password, HIDDEN) if len(self.password) >= SHORTEST_HIDDEN else text


def read_address(dsn: str) -> DatabaseAddress:
    """Raises CallerError where it is no address of a database, or where nobody can say where its password ends. libpq's own
    message is not shown: it quotes what it was given."""
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        _refuse()
    if not _is_cut_well(dsn, given):
        _refuse()
    password = given.get("password", "")
    shown = {key: value for key, value in given.items() if key in ("user", "host", "hostaddr", "port", "dbname")}
    where = shown.get("host") or shown.get("hostaddr") or ""
    port = f":{shown['port']}" if "port" in shown else ""
    user = f"{shown['user']}@" if "user" in shown else ""
    name = f"postgresql://{user}{where}{port}/{shown.get('dbname', '')}"
    return DatabaseAddress(make_conninfo("", **{**USUAL, **given}), name, password)


def _is_cut_well(dsn: str, given: Mapping[str, str]) -> bool:
    """False where a part may hold a piece of the password: one with a plain `/` or `@` ends up in the host, port or database."""
    _, is_uri, rest = dsn.partition("://")
    authority, _, path = rest.partition("?")[0].partition("/")
    if is_uri and (authority.count("@") > 1 or any(sign in path for sign in "@:/")):
        return False
    hosts = given.get("host", "").split(",")
    sockets = ("/", "@")  # a folder, or a name that is no file
    return PORTS.fullmatch(given.get("port", "")) is not None and not any(
        "@" in host or "/" in host for host in hosts if not host.startswith(sockets)
    )


def _refuse() -> NoReturn:
    raise CallerError(
        "the address of the journal's database cannot be read: it looks like "
        "`postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full`; in its parts write `%40` for `@`, `%3A` for `:` and `%2F` "
        "for `/`, or leave the password to PGPASSWORD or `~/.pgpass`"
    ) from None


# Any Python text in a column of PostgreSQL, and the same text back.
#
# PostgreSQL stores neither the character NUL nor half of a surrogate pair. Both are written as an escape that begins with the
# character SUBSTITUTE (U+001A), which is escaped too. Bodies of records never need it: JSON escapes all three.
ESCAPE = "\x1a"
_ESCAPE_BYTE = ESCAPE.encode()
_UNSTORABLE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def storable(text: str) -> str:
    return _UNSTORABLE.sub(lambda found: f"{ESCAPE}{ord(found[0]):04x}", text)


def stored(text: str) -> str:
    """What `storable` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


class TextDumper(StrDumper):
    """Of parameters. Their type is left to the server, as in text of SQL."""

    oid = 0

    def dump(self, obj: str) -> "Buffer | None":
        if "\x00" not in obj and ESCAPE not in obj:
            try:
                return obj.encode()
            except UnicodeEncodeError:
                pass
        return storable(obj).encode()


class TextLoader(Loader):
    """Of columns."""

    def load(self, data: "Buffer") -> str:
        content = bytes(data)
        text = content.decode()
        return stored(text) if _ESCAPE_BYTE in content else text


class SumLoader(NumericLoader):
    """A sum of integers is an integer. No column is `numeric`: amounts of money are exact text."""

    def load(self, data: "Buffer") -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return int(bytes(data))


STATEMENT_S = 10
SCHEMA = "turnwise"


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the event loop's thread waits at most. `answer_s` is for a server that has taken a statement and says nothing
    more: longer than the statement may take. `reconnect_s` is for one that is gone: a restart takes a second or two. `all_s`
    is the limit of all tries of one piece of work together: below the 24 s after which a worker without its lease ends itself."""

    answer_s: float = 12.0
    reconnect_s: float = 10.0
    all_s: float = 12.0


USUAL_WAITS = Waits()

T = TypeVar("T")
PostgresRows = psycopg.Cursor[TupleRow]


class BoundedConnection(psycopg.Connection[TupleRow]):
    """Gives up after `answer_s` and is closed then. The outcome of its statement is unknown."""

    answer_s = USUAL_WAITS.answer_s

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval=interval, timeout=self.answer_s if timeout is None else timeout)
        except errors.OperationalError as error:
            if error.sqlstate is None:
                self.pgconn.finish()
            raise


def connect(
    address: DatabaseAddress, *, waits: Waits = USUAL_WAITS, within_s: float | None = None
) -> BoundedConnection:
    """A connection whose settings are the journal's. Raises psycopg.Error, after `within_s` at the latest."""
    conninfo = address.conninfo
    if within_s is not None:
        own_s = int(conninfo_to_dict(conninfo).get("connect_timeout") or 0)
        limit_s = max(ceil(within_s), 2)  # of less psycopg makes two
        conninfo = make_conninfo(conninfo, connect_timeout=min(own_s, limit_s) if own_s > 0 else limit_s)
    connection = BoundedConnection.connect(conninfo, autocommit=True)
    connection.answer_s = waits.answer_s if within_s is None else within_s
    try:
        connection.adapters.register_dumper(str, TextDumper)
        for type_name in ("text", "varchar"):
            connection.adapters.register_loader(type_name, TextLoader)
        connection.adapters.register_loader("numeric", SumLoader)
        connection.execute(_SETTINGS)
        _use_own_zone(connection)
    except BaseException:
        connection.close()
        raise
    return connection


# `idle_in_transaction`: what a lost machine or a frozen process has locked is free again before those who wait for it give up.
# `read committed`, whatever the server's default is: a snapshot of the whole transaction would not see that a turn was taken over
# meanwhile.
_SETTINGS: LiteralString = """
set search_path = turnwise;
set client_encoding = 'UTF8';
set statement_timeout = '10s';
set idle_in_transaction_session_timeout = '5s';
set session characteristics as transaction isolation level read committed;
set standard_conforming_strings = on;
"""


def _use_own_zone(connection: BoundedConnection) -> None:
    """A day of the ledger is one of the user's own clock, not of the server's."""
    set_zone = "select set_config('TimeZone', %s, false)"
    if zone := own_zone():
        try:
            connection.execute(set_zone, (zone,))
            return
        except errors.DataError:
            pass  # the server does not know it
    ahead_s = time.localtime().tm_gmtoff
    sign, minutes = "-" if ahead_s >= 0 else "+", abs(ahead_s) // 60  # POSIX counts westward
    connection.execute(set_zone, (f"<own>{sign}{minutes // 60}:{minutes % 60:02}",))


@functools.cache
def own_zone() -> str:
    """Its name in the tz database; "" where nobody says."""
    if named := os.environ.get("TZ", "").removeprefix(":"):
        return named
    _, found, name = str(Path("/etc/localtime").resolve()).rpartition("/zoneinfo/")
    return name if found else ""


_PLACES = re.compile(r"\?|(?<!:):(\w+)")


@functools.cache
def spoken(sql: str) -> LiteralString:
    """The journal's SQL as psycopg takes it: `%s` for `?`, `%(name)s` for `:name`. No text in it has any of these signs."""
    placed = _PLACES.sub(lambda found: f"%({found[1]})s" if found[1] else "%s", sql.replace("%", "%%"))
    return cast("LiteralString", placed)


class SpokenConnection:
    """A connection that takes the journal's SQL."""

    def __init__(self, connection: BoundedConnection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Values = (), /) -> FoundRows:
        given: Any = values if isinstance(values, Mapping) else tuple(values)
        return self._connection.execute(spoken(sql), given)


def is_lost(error: psycopg.Error, connection: BoundedConnection | None) -> bool:
    """Whether another connection may do what this one could not: it is broken, or its server goes away or takes no writes."""
    gone = (
        errors.AdminShutdown,
        errors.CrashShutdown,
        errors.CannotConnectNow,
        errors.DeadlockDetected,  # the server has undone it
        errors.IdleInTransactionSessionTimeout,
        errors.ReadOnlySqlTransaction,
    )
    return isinstance(error, gone) or connection is None or connection.closed or connection.broken


# The tables on PostgreSQL, and how a database is brought up to them.
#
# They stand in a schema of their own, `turnwise`. `turn` has what the dispatch over several workers needs, too: a lease, a
# priority, the wish that it be cancelled. Text is compared by its bytes (`collate "C"`), as SQLite does. Bodies of records are
# `text`, not `jsonb`: `jsonb` has no NUL and no half of a surrogate pair, and forgets how a number was written.
#
# A version is reached in one transaction under an advisory lock, so of several processes that start at once one does it and the
# others find it done. A change waits for readers LOCK_S at most and is tried again later, because everybody in line behind it
# would wait, too.


SCHEMA_VERSION = 8
OLDEST_SERVER = 13
_LOCK_KEY = 0x7475726E  # "turn"
LOCK_S = 2
TRY_FOR_S = 30.0
TRY_AGAIN_S = 0.2

# Version 1 is what SQLite's file has in its version 7.
TABLES: tuple[LiteralString, ...] = (
    """create table session (
        id text collate "C" primary key, folder text collate "C" not null, title text collate "C" not null,
        created double precision not null, updated double precision not null,
        parent_turn text collate "C", parent_call text collate "C"
    )""",
    "create index session_by_folder on session (folder, updated)",
    "create index session_by_parent on session (parent_turn)",
    "create index session_by_time on session (updated, id)",
    """create table turn (
        id text collate "C" primary key, session text collate "C" not null references session (id),
        number bigint generated always as identity unique, status text collate "C" not null,
        epoch integer not null default 1, owner text collate "C" not null,
        created double precision not null, finished double precision,
        stop_reason text collate "C", complete integer,
        agent text collate "C", priority integer not null default 0, needs text[] not null default '{}', job_id bigint,
        lease_until timestamptz not null default '-infinity', wake_at timestamptz, cancel boolean not null default false
    )""",
    "create index turn_by_session on turn (session, number)",
    "create index turn_open on turn (session, number) where status in ('queued', 'running', 'waiting')",
    "create index turn_by_lease on turn (lease_until) where status = 'running'",
    # By the turn's number: an index over 8 bytes is a third of one over its id.
    """create table record (
        turn bigint not null, seq integer not null, epoch integer not null, kind text collate "C" not null,
        body text collate "C" not null, t double precision not null, primary key (turn, seq)
    )""",
    """create view written as select turn.id as turn, record.seq, record.kind, record.body, record.t
        from turn join record on record.turn = turn.number""",
    """create table request (
        id bigint generated always as identity primary key,
        session text collate "C" not null, turn text collate "C" not null,
        root_session text collate "C" not null, root_turn text collate "C" not null, path text collate "C" not null,
        number bigint not null, step bigint not null, purpose text collate "C" not null, retry_of text collate "C",
        provider text collate "C" not null, model text collate "C" not null,
        started double precision not null, first_event double precision, ended double precision,
        sent_bytes bigint not null, received_bytes bigint not null default 0,
        outcome text collate "C", discarded bigint not null default 0, calls bigint not null default 0,
        input_tokens bigint, output_tokens bigint, reasoning_tokens bigint, cache_read_tokens bigint,
        cache_write_tokens bigint, provider_usage text collate "C",
        plan text collate "C", usd text collate "C", usd_pico bigint, priced_by text collate "C",
        price_note text collate "C" not null default '', cache_saved_usd text collate "C", cache_saved_pico bigint,
        programs bigint not null default 0, program_calls bigint not null default 0,
        cache_missed_tokens bigint not null default 0, cache_write_usd text collate "C"
    )""",
    "create index request_by_time on request (started)",
    "create index request_by_session on request (root_session, started)",
    """create table repair_seen (
        day text collate "C" not null, provider text collate "C" not null, family text collate "C" not null,
        model text collate "C" not null, kind text collate "C" not null,
        times bigint not null, requests bigint not null, example text collate "C" not null default '',
        primary key (provider, family, model, kind, day)
    )""",
    "create index repair_seen_by_day on repair_seen (day)",
    # The exact sum of amounts as text, each so many times. SQLite's file has a function of that name, too.
    """create function exact_add(numeric, text, bigint) returns numeric language sql immutable parallel safe
        as 'select $1 + coalesce($2::numeric * $3, 0)'""",
    """create function exact_add(numeric, text) returns numeric language sql immutable parallel safe
        as 'select $1 + coalesce($2::numeric, 0)'""",
    """create function exact_text(numeric) returns text language sql immutable parallel safe
        as 'select $1::text'""",
    """create aggregate exact_sum(text, bigint)
        (sfunc = exact_add, stype = numeric, initcond = '0', finalfunc = exact_text, parallel = restricted)""",
    """create aggregate exact_sum(text)
        (sfunc = exact_add, stype = numeric, initcond = '0', finalfunc = exact_text, parallel = restricted)""",
)
# Rights that were given on all tables are rights on the tables of that time: who has them on `turn` gets them on new tables.
_LIKE_TURN: LiteralString = """do $$ declare given record; begin
    for given in select distinct grantee, privilege_type from pg_class, aclexplode(relacl)
        where oid = 'turn'::regclass and grantee <> relowner and grantee <> 0
        and privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    loop
        execute format('grant %s on TABLES to %s', given.privilege_type, given.grantee::regrole);
    end loop;
end $$"""
Upgrades = Mapping[int, Sequence[LiteralString]]
UPGRADES: Upgrades = {
    1: (  # turns that wait for a worker
        """alter table turn add column prompt text collate "C", add column problem text collate "C" """,
        """create table worker (
            name text collate "C" primary key, agents text[] not null, offers text[] not null,
            seen timestamptz not null, until timestamptz not null
        )""",
    ),
    2: (  # what a turn asks a person, what it may have at most, which workers cannot run it, and who follows it
        """alter table turn
            add column asks text collate "C", add column answers text collate "C", add column wishes text collate "C",
            add column refusal text collate "C", add column refused_by text[] not null default '{}',
            add column tried_from integer not null default 0, add column watched_until timestamptz""",
        "create index turn_in_line on turn (priority desc, number) where status in ('queued', 'running', 'waiting')",
        "create index turn_waiting on turn (session) where status = 'waiting'",
        "create index turn_that_waits on turn (wake_at) where status = 'waiting' and asks is not null",
    ),
    3: (  # a turn's place in its session, the sessions that have a turn to begin, and the latest turns: each by an index
        "alter table turn add column place bigint",  # the number under which it was submitted, once it has another
        """create table line (
            id bigint generated always as identity primary key, session text collate "C" not null,
            priority integer not null, place bigint not null, agent text collate "C", needs text[] not null
        )""",
        "create index line_in_order on line (priority desc, place)",
        "create index line_by_session on line (session)",
        # The check of the foreign key comes before (triggers fire by their names): it locks the session's row, so no worker takes
        # the session's place away before the turn can be seen. A user who submits needs no right on the line.
        """create function stand_in_line() returns trigger language plpgsql security definer
            set search_path = turnwise, pg_temp as $$
            begin
                if tg_op = 'UPDATE' or new.number = (select number from turn where session = new.session
                        and status = 'queued' order by coalesce(place, number) limit 1) then
                    insert into line (session, priority, place, agent, needs)
                        values (new.session, new.priority, coalesce(new.place, new.number), new.agent, new.needs);
                end if;
                return null;
            end $$""",
        """create trigger turn_is_submitted after insert on turn for each row when (new.status = 'queued')
            execute function stand_in_line()""",
        """create trigger turn_is_given_back after update of status on turn for each row
            when (new.status = 'queued' and old.status <> 'queued') execute function stand_in_line()""",
        """insert into line (session, priority, place, agent, needs)
            select distinct on (session) session, priority, number, agent, needs from turn
            where status = 'queued' order by session, number""",
        # A user with rights on the turns has the same rights on their line.
        _LIKE_TURN.replace("TABLES", "line"),
        "drop index turn_in_line",
        "drop index turn_open",
        "create index turn_queued on turn (session, (coalesce(place, number))) where status = 'queued'",
        "create index turn_running on turn (session) where status = 'running'",
        "create index turn_begun on turn (session, number) where status <> 'queued'",
        "create index turn_by_time on turn (created desc, number desc) where agent is not null",
        "create index turn_of_session_by_time on turn (session, created desc, number desc) where agent is not null",
    ),
    4: (  # budgets that processes share, and the labels of a session
        """create table budget (
            name text collate "C" primary key, state text collate "C" not null, updated double precision not null
        )""",
        """create table budget_run (
            budget text collate "C" not null, turn text collate "C" not null, root_session text collate "C" not null,
            root_turn text collate "C" not null, path text collate "C" not null, primary key (budget, turn)
        )""",
        """alter table session add column labels text collate "C" not null default '{}'""",
        _LIKE_TURN.replace("TABLES", "budget, budget_run"),
    ),
    5: (  # a session belongs to the user who began it; who began the older ones is not known
        """alter table session add column began_by text collate "C" """,
        "alter table session alter column began_by set default current_user",
        # A user who may change the status of turns (a worker, a person) works on all sessions. Not `security definer`: the
        # function asks who has called it.
        """create function turnwise.is_of_caller(began_by text) returns boolean language sql stable
            as $$ select coalesce(began_by = current_user, true)
                or has_column_privilege(current_user, 'turnwise.turn', 'status', 'update') $$""",
        # A user who submits needs no right to read sessions.
        """create function turnwise.beginner_of(session text) returns text language sql stable security definer
            set search_path = turnwise, pg_temp as $$ select began_by from session where id = $1 $$""",
        """create function refuse_others() returns trigger language plpgsql as $$
            declare whose text; id text;
            begin
                if tg_table_name = 'session' then
                    whose := old.began_by; id := old.id;
                else
                    whose := turnwise.beginner_of(new.session); id := new.session;
                end if;
                if not turnwise.is_of_caller(whose) then
                    raise exception 'permission denied: session `%` was begun by another user of the database', id
                        using errcode = 'insufficient_privilege';
                end if;
                return new;
            end $$""",
        """create trigger turn_is_of_its_session before insert on turn for each row execute function refuse_others()""",
        """create trigger session_is_of_its_user before update on session for each row
            when (old.began_by is distinct from current_user::text) execute function refuse_others()""",
    ),
    6: (  # the caller's key of a turn, and a digest of what it was asked
        """alter table turn add column key text collate "C", add column asked text collate "C" """,
        "create unique index turn_by_key on turn (session, key) where key is not null",
    ),
    7: (  # the gateway's keys, teams and users, what was done to them, and the gateways that run
        """create table gateway (
            kind text collate "C", name text collate "C", body text collate "C" not null, primary key (kind, name)
        )""",
        # Nobody has rights on it by the rights on turns: a worker must not make keys.
    ),
}
"""What brings the tables up to the next version, by their version."""


def bring_up_to_date(
    connection: BoundedConnection, *, name: str, upgrades: Upgrades = UPGRADES, version: int = SCHEMA_VERSION
) -> None:
    """On return the tables are those of this version. Raises CallerError where they are from a newer turnwise, or where the
    database cannot hold them; psycopg.Error where there is no right to make them."""
    _check_server(connection, name=name)
    give_up = time.monotonic() + TRY_FOR_S
    while (found := version_of(connection)) != version:
        if found > version:
            refuse_newer(found, version=version, name=name)
        try:
            _upgrade(connection, upgrades=upgrades, version=version)
        except (errors.LockNotAvailable, errors.QueryCanceled):
            if time.monotonic() > give_up:
                raise JournalFailed(
                    f"the tables of `{name}` cannot be brought up to version {version}: others have used them for "
                    f"{TRY_FOR_S:g} s without a break; try again"
                ) from None
            time.sleep(TRY_AGAIN_S)


def version_of(connection: BoundedConnection) -> int:
    """0 where there are no tables yet."""
    there = "select 1 from pg_tables where schemaname = %s and tablename = 'schema_version'"
    if connection.execute(there, (SCHEMA,)).fetchone() is None:
        return 0
    row = connection.execute("select coalesce(max(version), 0) from turnwise.schema_version").fetchone()
    return 0 if row is None else row[0]


def refuse_newer(found: int, *, name: str, version: int = SCHEMA_VERSION) -> None:
    if found > version:
        raise CallerError(
            f"the journal `{name}` is from a newer turnwise (version {found}, this one knows {version}): "
            "upgrade, or give the address of another database"
        )


def _check_server(connection: BoundedConnection, *, name: str) -> None:
    row = connection.execute(
        "select current_setting('server_version_num')::int / 10000, current_setting('server_encoding')"
    ).fetchone()
    assert row is not None
    number, encoding = row
    if number < OLDEST_SERVER:
        raise CallerError(f"`{name}` is PostgreSQL {number}: turnwise needs {OLDEST_SERVER} or later")
    if encoding != "UTF8":
        raise CallerError(
            f"the database `{name}` stores text as {encoding}: make one with `create database NAME encoding 'UTF8' "
            "template template0`"
        )


def _upgrade(connection: BoundedConnection, *, upgrades: Upgrades, version: int) -> None:
    """The lock is taken before the transaction: it begins with what the one before has made, and not with a cache without it."""
    connection.execute("select pg_advisory_lock(%s)", (_LOCK_KEY,))
    try:
        with connection.transaction():
            connection.execute(sql.SQL("set local lock_timeout = {}").format(f"{LOCK_S}s"))
            found = version_of(connection)
            if found == 0:
                _make(connection)
                found = 1
            for older in range(found, version):
                for statement in upgrades[older]:
                    connection.execute(statement)
                _note(connection, older + 1)
    finally:
        if not connection.closed:
            connection.execute("select pg_advisory_unlock(%s)", (_LOCK_KEY,))


def _make(connection: BoundedConnection) -> None:
    """Create the schema only if it is missing: a user who may not create schemas can use one that somebody else made."""
    if connection.execute("select 1 from pg_namespace where nspname = %s", (SCHEMA,)).fetchone() is None:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(SCHEMA)))
    connection.execute(
        "create table schema_version (version integer primary key, applied timestamptz not null default now(), by text)"
    )
    for statement in TABLES:
        connection.execute(statement)
    _note(connection, 1)


def _note(connection: psycopg.Connection, version: int) -> None:
    connection.execute("insert into schema_version (version, by) values (%s, %s)", (version, __version__))
