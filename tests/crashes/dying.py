"""A process that has loaded turnwise and forks a child for each order: the child runs a turn, or goes on with one, and dies where
it is told to. Started by `dying_processes.py`."""

import asyncio
import os
import resource
import select
import signal
import sqlite3
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec

from crashes.turns import PROMPTS, World, agent_of
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.journal.file import JournalFile, prepare

CHANGES = ("insert", "update", "delete")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`dies_at`: the number of the write to the journal at which the process kills itself, `before` or behind it; None: it
    lives. `session`: the one to go on with; empty: a new turn."""

    kind: str
    url: str
    folder: str
    session: str = ""
    dies_at: int | None = None
    before: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended, and at how many writes a process that lived has come by."""

    text: str = ""
    stop_reason: str = ""
    complete: bool = False
    session: str = ""
    pending: int = 0
    error: str = ""
    writes: int = 0


class DyingFile(JournalFile):
    """The journal's file, in which a write may be the process's last."""

    def __init__(self, connection: sqlite3.Connection, *, dies_at: int | None, before: bool) -> None:
        super().__init__(connection)
        self._connected = connection
        self._dies_at = dies_at
        self._before = before
        self.writes = 0
        connection.set_trace_callback(self._see)

    def _see(self, statement: str) -> None:
        """Called before each statement."""
        words = statement.split(None, 2)
        begins = words[:2] == ["begin", "immediate"]
        alone = words[0] in CHANGES and not self._connected.in_transaction
        if begins or alone:
            self.writes += 1
            if self._before and self.writes == self._dies_at:
                die()

    def _look(self) -> None:
        """Called behind each use of the connection."""
        if not self._before and self.writes == self._dies_at and not self._connected.in_transaction:
            die()

    @contextmanager
    def _seen(self, use: AbstractContextManager[sqlite3.Connection]) -> Generator[sqlite3.Connection]:
        with use as connection:
            yield connection
        self._look()

    def statement(self) -> AbstractContextManager[sqlite3.Connection]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._seen(super().statement())

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._seen(super().transaction())


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
    raise AssertionError("it is dead")


def open_file(path: Path, order: Order) -> DyingFile:
    connection = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
    prepare(connection, path, durability="normal")
    return DyingFile(connection, dies_at=order.dies_at, before=order.before)


def run(order: Order) -> Ended:
    folder = Path(order.folder)
    file = open_file(folder / "journal.db", order)
    with Journal.over(file, clock=SystemClock()) as journal:
        agent = agent_of(order.kind, url=order.url, journal=journal, world=World(folder))
        turn = agent.resume(order.session) if order.session else agent.run(PROMPTS.get(order.kind, "Go."))
        result = asyncio.run(turn)
        return Ended(
            text=result.text,
            stop_reason=result.stop_reason.value,
            complete=result.complete,
            session=result.session,
            pending=len(result.pending),
            writes=file.writes,
        )


def child(order: Order) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        ended = run(order)
    except BaseException as error:  # noqa: BLE001 (told to the test)
        ended = Ended(error=f"{type(error).__name__}: {error}")
    (Path(order.folder) / "ended.json").write_bytes(msgspec.json.encode(ended))
    os._exit(0)


def main() -> None:
    """One order a line; one line back for each, with the signal that ended the child, or 0. An order that begins with a number
    and a space: so many microseconds later the child is killed."""
    for line in sys.stdin:
        head, _, text = line.partition(" ")
        order = msgspec.json.decode(text, type=Order)
        pid = os.fork()
        if pid == 0:
            child(order)
        if int(head):
            watch = os.pidfd_open(pid)
            select.select([watch], [], [], int(head) / 1e6)
            os.close(watch)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
