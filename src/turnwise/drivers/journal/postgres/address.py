"""Where a database is, and how it is reached: nothing here shows a password."""

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
    """Raises CallerError where it is no address of a database. libpq's own message is not shown: it quotes what it was given."""
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.Error:
        _refuse()
    password = given.get("password", "")
    shown = {key: value for key, value in given.items() if key in ("user", "host", "hostaddr", "port", "dbname")}
    where = shown.get("host") or shown.get("hostaddr") or ""
    port = f":{shown['port']}" if "port" in shown else ""
    user = f"{shown['user']}@" if "user" in shown else ""
    name = f"postgresql://{user}{where}{port}/{shown.get('dbname', '')}"
    return DatabaseAddress(make_conninfo("", **{**USUAL, **given}), name, password)


def _refuse() -> NoReturn:
    raise CallerError(
        "the address of the journal's database cannot be read: it looks like "
        "`postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full`; write `%40` for an `@` and `%2F` for a `/` in its parts"
    ) from None
