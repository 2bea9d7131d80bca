"""Appending events to a journal: turnwise's own, or nothing but SQLite with the same table and settings."""

import importlib.metadata
import json
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import msgspec

from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.turn.events import ToolsFinished
from turnwise.vocab import Text, ToolResult

# As the journal's own but for what keeps two writers apart.
TABLE = """create table event (
    turn text not null, seq integer not null, epoch integer not null, kind text not null, body text not null, t real not null,
    primary key (turn, seq)
) strict"""


class Task(TypedDict):
    system: str  # turnwise, sqlite or postgres
    folder: str
    appends: int
    characters: int  # of an event's text


def events(given: Task) -> list[ToolsFinished]:
    text = "x" * given["characters"]
    return [
        ToolsFinished(results=(ToolResult(call_id=f"call_{number}", name="look", content=(Text(text),)),))
        for number in range(given["appends"])
    ]


def timed(given: Task, append: Callable[[ToolsFinished], object]) -> tuple[float, float]:
    """CPU and wall seconds of one append, after some that are not counted."""
    all_events = events(given)
    for event in all_events[:50]:
        append(event)
    counted = all_events[50:]
    cpu, wall = time.process_time(), time.monotonic()
    for event in counted:
        append(event)
    return (time.process_time() - cpu) / len(counted), (time.monotonic() - wall) / len(counted)


def with_turnwise(given: Task, *, path: Path | None, synchronous: str) -> tuple[float, float]:
    with Journal(path, clock=SystemClock(), durability=synchronous) as journal:  # type: ignore[arg-type]
        pen = journal.begin_turn(turn_id="turn", session_id="session", folder="/", title="measured")
        return timed(given, pen.append)


def with_sqlite(given: Task, *, path: Path | None, synchronous: str) -> tuple[float, float]:
    connection = sqlite3.connect(path or ":memory:", isolation_level=None)
    connection.execute(f"pragma synchronous = {synchronous}")
    connection.execute("pragma journal_mode = wal")
    connection.execute(TABLE)
    encode = msgspec.json.Encoder().encode
    number = iter(range(given["appends"]))

    def append(event: ToolsFinished) -> None:
        values = ("turn", next(number), 1, "tools_finished", encode(event).decode(), time.time())
        connection.execute("insert into event values (?, ?, ?, ?, ?, ?)", values)

    try:
        return timed(given, append)
    finally:
        connection.close()


def with_postgres(given: Task, *, fsync: str) -> tuple[float, float]:
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    from postgres_server import PostgresServer, find_programs

    server = PostgresServer(find_programs(), fsync=fsync)
    try:
        with Journal(server.dsn, clock=SystemClock()) as journal:
            pen = journal.begin_turn(turn_id="turn", session_id="session", folder="/", title="measured")
            return timed(given, pen.append)
    finally:
        server.stop()


def on_postgres(given: Task) -> dict[str, object]:
    found: dict[str, object] = {"version": importlib.metadata.version("turnwise")}
    for name, fsync in (("unsynced", "off"), ("synced", "on")):
        cpu_s, wall_s = with_postgres(given, fsync=fsync)
        found |= {f"{name} cpu": cpu_s, f"{name} wall": wall_s}
    return found


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    if given["system"] == "postgres":
        print(json.dumps(on_postgres(given)))
        return
    measured = with_turnwise if given["system"] == "turnwise" else with_sqlite
    version = importlib.metadata.version("turnwise") if given["system"] == "turnwise" else sqlite3.sqlite_version
    found: dict[str, object] = {"version": version}
    for name, synchronous in (("memory", "normal"), ("normal", "normal"), ("full", "full")):
        path = None if name == "memory" else Path(given["folder"], f"{given['system']}-{name}-{time.monotonic_ns()}.db")
        cpu_s, wall_s = measured(given, path=path, synchronous=synchronous)
        found |= {f"{name} cpu": cpu_s, f"{name} wall": wall_s}
    print(json.dumps(found))


main()
