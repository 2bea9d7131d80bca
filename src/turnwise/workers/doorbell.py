"""How workers hear that a session may have a turn to run.

A ring that is lost, doubled or late does no harm: the lease alone decides who runs what, and workers look from time to time
anyway. So another engine can take this place.
"""

from psycopg import Notify

from turnwise.journal.postgres.connection import BoundedConnection

CHANNEL = "turnwise_turns"


def ring(connection: BoundedConnection, *, session: str = "") -> None:
    """Whoever listens hears it once the transaction at hand is committed."""
    connection.execute("select pg_notify(%s, %s)", (CHANNEL, session))


def listen(connection: BoundedConnection) -> None:
    """Its socket is ready to be read as soon as somebody rings."""
    connection.add_notify_handler(_forget)  # else psycopg keeps each of them
    connection.execute(f"listen {CHANNEL}")


def _forget(_: Notify) -> None:
    """That it rang is told by its socket."""


def take_up(connection: BoundedConnection) -> None:
    """What has rung so far is forgotten."""
    connection.execute("select 1")
