"""What a turn writes, as one statement: fenced, all or none, one round trip, and never twice."""

import functools
from typing import LiteralString, cast

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.journal.ledger import LEAVES, STAYED, Value, update_of, values_before
from turnwise.journal.postgres.connection import BoundedConnection, PostgresRows, spoken
from turnwise.journal.stores import BatchWritten, EventRow, PenBatch

NEWS = "turnwise_records"  # the channel on which those who follow a session hear of its records


def append(batch: PenBatch, *, cursor: PostgresRows) -> BatchWritten:
    """Raises psycopg's UniqueViolation where a record of that number stands already, and writes nothing then."""
    became = [update_of(entry, row_id=row) for entry, row in batch.became]
    values: list[Value] = []
    for _, given in became:
        values += given
    values += batch.stayed
    values += (batch.number, batch.epoch)
    for event in batch.events:
        values += (event.seq, event.kind, event.body, event.time)
    if batch.leaves is not None:
        values += values_before(batch.leaves)
    statement = _statement(
        tuple([update for update, _ in became]), len(batch.stayed), len(batch.events), batch.leaves is not None
    )
    ours, row, _ = cast("tuple[int, int | None, str | None]", cursor.execute(statement, values).fetchone())
    return BatchWritten(ours == 1, row)


@functools.lru_cache(maxsize=256)
def _statement(became: tuple[str, ...], stayed: int, events: int, leaves: bool) -> LiteralString:
    """The row of the turn is locked, so a take-over waits until this stands, and what comes after a take-over finds no row.
    Later parts read the turn only: statements in a `with` do not see what the others change. Whoever follows the turn has said so
    in its row. A turn that nobody follows tells nobody: a NOTIFY makes all commits of the database wait for each other."""
    parts = [f"b{place} as ({update})" for place, update in enumerate(became)]
    parts += [f"s{place} as ({STAYED})" for place in range(stayed)]
    parts.append(
        "t as (select number, epoch, session, watched_until from turn"
        " where number = ? and epoch = ? and status = 'running' for no key update)"
    )
    if events:
        rows = ", ".join(["(?::integer, ?, ?, ?::double precision)"] * events)
        parts.append(
            "e as (insert into record (turn, seq, epoch, kind, body, t)"
            " select t.number, v.seq, t.epoch, v.kind, v.body, v.t"
            f" from t, (values {rows}) as v (seq, kind, body, t))"
        )
    if leaves:
        parts.append(f"l as ({LEAVES.replace('values (', 'select ').removesuffix(')')} from t returning id)")
    row = "(select id from l)" if leaves else "null::bigint"
    told = f"(select pg_notify('{NEWS}', session) from t where watched_until > clock_timestamp())"
    return spoken(f"with {', '.join(parts)} select (select count(*) from t), {row}, {told}")


def without_what_stands(batch: PenBatch, *, connection: BoundedConnection) -> tuple[PenBatch, BatchWritten | None]:
    """What of the batch is still to be written, and, where all of its records stand, what writing it gave.

    An attempt whose connection was lost stands as a whole or not at all. Raises TurnwiseBug where another record has its number.
    """
    if not batch.events:
        return batch, None
    rows = connection.execute(
        "select seq, epoch, body from record where turn = %s and seq = any(%s)",
        (batch.number, [event.seq for event in batch.events]),
    ).fetchall()
    standing = {seq: (epoch, body) for seq, epoch, body in rows}
    missing: list[EventRow] = []
    for event in batch.events:
        if event.seq not in standing:
            missing.append(event)
        elif standing[event.seq] != (batch.epoch, event.body):
            raise TurnwiseBug(f"another record stands as number {event.seq} of turn `{batch.turn}`")
    if missing or batch.leaves is None:
        return msgspec.structs.replace(batch, events=missing), None if missing else BatchWritten(True)
    row = connection.execute(
        "select max(id) from request where turn = %s and number = %s", (batch.leaves.turn, batch.leaves.number)
    ).fetchone()
    return batch, BatchWritten(True, None if row is None else row[0])
