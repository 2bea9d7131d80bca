"""Where a database is, and how it is reached: nothing here shows a password."""

import re
from collections.abc import Mapping
from typing import NoReturn

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turnwise.errors import CallerError

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
