"""One connection to PostgreSQL that never waits without end, and speaks the journal's SQL."""

import functools
import os
import re
import time
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, NoReturn, TypeVar, cast

import msgspec
import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.types.numeric import NumericLoader
from psycopg.types.string import StrDumper

from turnwise.errors import CallerError
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
