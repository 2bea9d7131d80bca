"""The turns that wait for a worker: submitted, claimed, renewed, given back, cancelled."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import Notify, errors

from turnwise.base.clock import Clock, TimeOrderedIds
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.owners import Claim
from turnwise.journal.postgres.connection import (
    BoundedConnection,
    DatabaseAddress,
    bring_up_to_date,
    connect,
    read_address,
    refuse_newer,
    version_of,
)
from turnwise.journal.postgres.news import FOLLOWERS, TURNS
from turnwise.journal.postgres.store import raise_explained
from turnwise.journal.session_rows import (
    NO_LABELS,
    Labels,
    check_same,
    check_session_id,
    labels_in,
    labels_text,
    read_labels,
)
from turnwise.running.resumption import MOST_TRIES
from turnwise.vocab.file_names import is_text
from turnwise.workers import statements
from turnwise.workers.open_asks import AskedElsewhere, listed_as, read_answers, read_asked, write_text
from turnwise.workers.turn_status import (
    ALL_TURNS,
    ENDED,
    NO_WISHES,
    STATES,
    QueueTotals,
    RetriedTurn,
    TurnFilter,
    TurnStatus,
    TurnWishes,
    retried_turn,
    status_of,
    totals_of,
    write_wishes,
)

# How workers hear that a session may have a turn to run.
#
# A lost, doubled or late ring does no harm: only the lease decides who runs what, and workers also look from time to time. So
# another mechanism can replace this.


def ring(connection: BoundedConnection, *, session: str = "") -> None:
    """All listeners hear it once the current transaction is committed."""
    connection.execute("select pg_notify(%s, %s)", (TURNS, session))


def listen(connection: BoundedConnection, *, on_follower: Callable[[str], None]) -> None:
    """The connection's socket becomes readable as soon as somebody rings, or begins to follow a session: `on_follower` is told
    which, when the ring is taken up."""

    def take(notice: Notify) -> None:  # without a handler, psycopg keeps each of them
        if notice.channel == FOLLOWERS:
            on_follower(notice.payload)

    connection.add_notify_handler(take)
    connection.execute(f"listen {TURNS}; listen {FOLLOWERS}")


def take_up(connection: BoundedConnection) -> None:
    """Forget all rings so far."""
    connection.execute("select 1")


# The clock of the leases.


def lease_clock() -> float:
    """Seconds that also pass while the machine sleeps, if the system can tell."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if number is None else time.clock_gettime(number)


STUCK = f"it was claimed {MOST_TRIES} times, and each time the worker died before anything was recorded"
LONGEST_TITLE = 80
MOST_SHOWN = 1000
MOST_ROWS = 1_000_000_000
MOST_URGENT = 2**31 - 1  # the column's type
LONGEST = 32 * 1024 * 1024  # bytes of a prompt, as of any other text of a row: no model accepts more
TOO_LONG = f"its prompt, or what it may have at most, has more than {LONGEST:,} bytes"
MOST_NUMBERS = 100  # tried in a row for one turn
LONGEST_ASK_S = 10 * 365 * 86_400.0
Result = TypeVar("Result")


def _values_of(only: TurnFilter) -> dict[str, Any]:
    if only.state not in ("", *STATES):
        raise CallerError(f"`state` must be one of {', '.join(STATES)}, not `{only.state}`")
    labels = read_labels(only.labels)
    return {"state": only.state, "agent": only.agent, "names": [*labels], "texts": [*labels.values()]}


class WorkerTerms(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's name, its agents, what it offers, and how long its leases last."""

    name: str
    agents: tuple[str, ...]
    offers: tuple[str, ...] = ()
    lease_s: float = 30.0

    def values(self) -> dict[str, Any]:
        return {
            "owner": self.name,
            "agents": list(self.agents),
            "offers": list(self.offers),
            "lease_s": self.lease_s,
        }


class HeldTurn(msgspec.Struct, frozen=True):
    """A turn that no other worker has. `is_over`: it has ended here. `is_renewed`: its lease was renewed; otherwise its row is
    locked."""

    is_over: bool
    is_renewed: bool
    cancel: bool
    is_followed: bool = False


class TurnQueue:
    """One connection, used by one thread at a time. A failure raises JournalFailed or CallerError, which says what to do; the
    next call connects again. `close` it at the end."""

    def __init__(self, dsn: str, *, clock: Clock) -> None:
        self.address: DatabaseAddress = read_address(dsn)
        self._clock = clock
        self._ids = TimeOrderedIds(clock)
        self._lock = threading.Lock()
        self._connection: BoundedConnection | None = None

    def open(self) -> None:
        """On return the tables are those of this version."""
        with self._lock:
            try:
                bring_up_to_date(self._connected(), name=self.address.name)
            except psycopg.Error as error:
                raise_explained(error, self.address)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def submit(
        self,
        prompt: str,
        *,
        agent: str,
        session: str = "",
        priority: int = 0,
        needs: Sequence[str] = (),
        folder: Path | str = "",
        wishes: TurnWishes = NO_WISHES,
        labels: Labels = NO_LABELS,
    ) -> str:
        """Queue a turn of that session, or of a new session with these `labels`. The turn gets at most its `wishes`. Returns the
        session's id. Raises CallerError if the session does not exist or has other labels."""
        check_session_id(session)
        if not agent.strip():
            raise CallerError("the agent's name is empty: give the one by which workers call it")
        if not is_text("".join((prompt, agent, session, str(folder), *needs, wishes.model, wishes.instructions))):
            raise CallerError("what is submitted is no UTF-8 text: it has half of a surrogate pair")
        if len(prompt.encode(errors="surrogatepass")) > LONGEST:
            raise CallerError(f"the prompt has more than {LONGEST:,} bytes: put it into a file that the agent reads")
        if not -MOST_URGENT <= priority <= MOST_URGENT:
            raise CallerError(f"`priority` must be from -{MOST_URGENT:,} to {MOST_URGENT:,}, not {priority}")
        submitted_to = session or self._ids.new()
        values = {
            "session": submitted_to,
            "turn": self._ids.new(),
            "now": self._clock.now(),
            "title": " ".join(prompt.split())[:LONGEST_TITLE],
            "folder": str(folder),
            "agent": agent,
            "priority": priority,
            "needs": list(needs),
            "prompt": prompt,
            "wishes": None if wishes == NO_WISHES else write_wishes(wishes),
            "labels": labels_text(read_labels(labels)),
        }

        def write(connection: BoundedConnection) -> str:
            if session:
                found = connection.execute("select labels from session where id = %s for update", (session,)).fetchone()
                if found is None:
                    raise CallerError(f"there is no session `{session}`: leave it out to start a new one")
                check_same(labels, kept=labels_in(found[0]), session=session)
            connection.execute(statements.KEEP_SESSION, values)
            connection.execute(statements.SUBMIT, values)
            ring(connection, session=submitted_to)
            return submitted_to

        return self._numbered(write)

    def claim(self, terms: WorkerTerms) -> Claim | None:
        """The most urgent turn that this worker may run, under a lease; None if there is none. A turn that was claimed MOST_TRIES
        times without success ends instead."""
        passed: list[str] = []
        while True:
            session, claim = self._numbered(lambda connection: self._claimed(connection, terms, passed=passed))
            if claim is not None or session is None:
                return claim
            passed.append(session)

    def _claimed(
        self, connection: BoundedConnection, terms: WorkerTerms, *, passed: Sequence[str]
    ) -> tuple[str | None, Claim | None]:
        """The first session that nobody locks, and a turn of it that is now ours. Without a turn: look further, without that
        session."""
        values: dict[str, Any] = {**terms.values(), "passed": passed, "longest": LONGEST}
        connection.execute(statements.BY_INDEX)
        if (left := connection.execute(statements.LOCK_LEFT, values).fetchone()) is not None:
            session, number = left
            row = connection.execute(statements.LOOK_LEFT, {**values, "number": number}).fetchone()
            return self._taken(connection, row, session=session, values=values)
        if (found := connection.execute(statements.LOCK_NEXT, values).fetchone()) is None:
            return None, None
        session, in_line = found
        row = connection.execute(statements.LOOK_NEXT, {**values, "session": session}).fetchone()
        taken = self._taken(connection, row, session=session, values=values)
        connection.execute(statements.MOVE, {"session": session, "in_line": in_line})
        return taken

    def _taken(
        self, connection: BoundedConnection, row: Sequence[Any] | None, *, session: str, values: dict[str, Any]
    ) -> tuple[str, Claim | None]:
        """Claim the turn that was found for us, or end it."""
        if row is None:
            return session, None  # another worker was faster; the end of that turn rings again
        refuse_newer(version_of(connection), name=self.address.name)
        number, epoch, is_recorded, tried_from, is_too_long, cancel = row
        values = {**values, "number": number}
        if cancel and not is_recorded:  # its worker died, or gave it back, before it heard of the cancellation
            connection.execute(statements.END_CANCELLED, {"number": number, "now": self._clock.now()})
            return "", None  # its session may have another turn
        is_stuck = not is_recorded and epoch - tried_from >= MOST_TRIES
        if is_stuck or is_too_long:
            connection.execute("update turn set status = 'running' where number = %s", (number,))
            problem = STUCK if is_stuck else TOO_LONG
            connection.execute(statements.FAIL, self._failing(number, epoch=epoch, problem=problem))
            return "", None  # its session may have another turn
        since_s = lease_clock()
        statement = statements.TAKE_OVER if is_recorded else statements.BEGIN
        row = connection.execute(statement, values).fetchone()
        assert row is not None, "the row is locked"
        turn_id, number, epoch, agent, prompt, tried_from, wishes, asked, answers = row
        return session, Claim(
            session=session,
            turn_id=turn_id,
            number=number,
            epoch=epoch,
            agent=agent,
            prompt=prompt,
            is_new=not is_recorded,
            since_s=since_s,
            tried_from=tried_from,
            wishes=wishes or "",
            asked=listed_as(read_asked(asked).asks),
            answers=tuple([one.approval for one in read_answers(answers)]),
            cancel=cancel,
        )

    def renew(self, held: Sequence[Claim], *, terms: WorkerTerms) -> dict[int, HeldTurn]:
        """Renew the leases. Returns the turns, by number, that no other worker has. Other workers see that this worker is
        there."""
        values = {
            **terms.values(),
            "numbers": [claim.number for claim in held],
            "epochs": [claim.epoch for claim in held],
        }

        rows = self.attempt(lambda connection: connection.execute(statements.RENEW, values).fetchall(), alone=True)
        return {number: HeldTurn(*found) for number, *found in rows}

    def release(self, claim: Claim, *, blameless: bool = False) -> None:
        """On return any worker may claim the turn, and our pen writes nothing to it. `blameless`: the worker itself failed, so
        this does not count as a try of the turn. Nothing happens if the turn is not ours any more."""
        self._ringing(statements.RELEASE, {"number": claim.number, "epoch": claim.epoch, "blameless": blameless})

    def park(self, claim: Claim, *, asked: AskedElsewhere, deadline_s: float) -> None:
        """On return the turn has no worker, until a person has answered or that time is over. Raises JournalFailed if the turn is
        not ours any more."""

        def write(connection: BoundedConnection) -> bool:
            values = {
                "number": claim.number,
                "epoch": claim.epoch,
                "asks": write_text(asked),
                "deadline_s": min(deadline_s, LONGEST_ASK_S),
            }
            ring(connection, session=claim.session)
            return connection.execute(statements.PARK, values).fetchone() is not None

        if not self.attempt(write):
            raise JournalFailed("another process has taken this turn over")

    def fail(self, claim: Claim, *, problem: str) -> None:
        """End the turn; `status` says why. Nothing happens if the turn is not ours any more."""
        self._ringing(statements.FAIL, self._failing(claim.number, epoch=claim.epoch, problem=problem))

    def refuse(self, claim: Claim, *, terms: WorkerTerms, problem: str) -> None:
        """Leave the turn to another worker; `status` says why. Nothing happens if the turn is not ours any more."""
        values = self._failing(claim.number, epoch=claim.epoch, problem=problem)
        self._ringing(statements.REFUSE, {**values, "owner": terms.name})

    def _failing(self, number: int, *, epoch: int, problem: str) -> dict[str, Any]:
        return {"number": number, "epoch": epoch, "problem": problem, "now": self._clock.now()}

    def ring(self, session: str) -> None:
        """Make waiting workers look for a turn, and followers of the session look how it stands."""
        self.attempt(lambda connection: ring(connection, session=session))

    def cancel(self, session: str) -> int:
        """Cancel the session's turns, and return how many end: waiting turns end at once, a running turn ends when its worker
        hears of it. Raises CallerError for an impossible session id."""
        check_session_id(session)
        values = {"session": session, "now": self._clock.now()}

        def write(connection: BoundedConnection) -> int:
            connection.execute("select labels from session where id = %s for update", (session,))
            queued = connection.execute(statements.CANCEL_QUEUED, values).rowcount
            running = connection.execute(statements.CANCEL_RUNNING, values).rowcount
            ring(connection, session=session)
            return queued + running

        return self.attempt(write)

    def retry(self, session: str) -> RetriedTurn:
        """Queue the session's last turn again, if it failed. Raises CallerError, with the reason, if it cannot run again."""
        check_session_id(session)

        def write(connection: BoundedConnection) -> RetriedTurn:
            connection.execute("select labels from session where id = %s for update", (session,))
            row = connection.execute(statements.LAST_BEGUN, {"session": session}).fetchone()
            retried = retried_turn(row, session=session)
            values = {"turn": self._ids.new(), "now": self._clock.now(), "number": row and row[0]}
            connection.execute(statements.AGAIN, values)
            ring(connection, session=session)
            return retried

        return self._numbered(write)

    def status(self, session: str = "", *, limit: int = MOST_SHOWN, only: TurnFilter = ALL_TURNS) -> list[TurnStatus]:
        """The turns that were submitted, the latest first, at most `limit` of them. A filter without a state chooses among the
        turns that have not ended. Raises CallerError for an impossible session id, for an invalid limit or state, and for a
        session beside a filter."""
        check_session_id(session)
        if not 0 < limit <= MOST_ROWS:
            raise CallerError(f"`limit` must be from 1 to {MOST_ROWS:,}, not {limit}")
        if session and only != ALL_TURNS:
            raise CallerError("give a session, or a state, agent and labels, and not both")
        values = {**_values_of(only), "session": session, "limit": limit, "longest": LONGEST}

        def read(connection: BoundedConnection) -> list[TurnStatus]:
            statement = statements.STATUS_OF_ONE if session else statements.STATUS_OF_ALL
            if only != ALL_TURNS:
                statement = statements.STATUS_OF_ENDED if only.state == ENDED else statements.STATUS_OF_OPEN
                connection.execute(statements.BY_PARTIAL_INDEX)
            return [status_of(row) for row in connection.execute(statement, values).fetchall()]

        return self.attempt(read)

    def totals(self, *, only: TurnFilter = ALL_TURNS) -> QueueTotals:
        """How many turns wait and run, and the workers. Turns that have ended are neither counted nor read."""
        values = {**_values_of(only), "limit": MOST_SHOWN}

        def read(connection: BoundedConnection) -> QueueTotals:
            connection.execute(statements.BY_PARTIAL_INDEX)
            turns = connection.execute(statements.TOTALS, values).fetchall()
            return totals_of(turns, workers=connection.execute(statements.WORKERS, values).fetchall())

        return self.attempt(read)

    def leave(self, terms: WorkerTerms) -> None:
        """Other workers no longer count on this one."""
        self.attempt(lambda connection: connection.execute(statements.FORGET, terms.values()))

    def _ringing(self, statement: Any, values: dict[str, Any]) -> None:
        def write(connection: BoundedConnection) -> None:
            connection.execute(statement, values)
            ring(connection)

        self.attempt(write)

    def attempt(self, work: Callable[[BoundedConnection], Result], *, alone: bool = False) -> Result:
        """Do the work in one transaction. `alone`: it is a single statement."""
        with self._lock:
            try:
                connection = self._connected()
                with contextlib.nullcontext() if alone else connection.transaction():
                    return work(connection)
            except psycopg.Error as error:
                if self._connection is not None and self._connection.broken:
                    self._drop()
                raise_explained(error, self.address)

    def _numbered(self, work: Callable[[BoundedConnection], Result]) -> Result:
        """Do work that gives a turn its number. If a row that turnwise did not write has the number, it takes the next one."""

        def tried(connection: BoundedConnection) -> tuple[Result] | None:
            try:
                with connection.transaction():
                    return (work(connection),)
            except errors.UniqueViolation as error:
                if error.diag.constraint_name != "turn_number_key":
                    raise
                return None

        for _ in range(MOST_NUMBERS):
            if (found := self.attempt(tried, alone=True)) is not None:
                return found[0]
        raise JournalFailed(
            f"the journal `{self.address.name}`: its next {MOST_NUMBERS} numbers of turns are taken by rows that turnwise did "
            "not write: delete them, or let the sequence `turnwise.turn_number_seq` go on behind them"
        )

    def _connected(self) -> BoundedConnection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.address)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
