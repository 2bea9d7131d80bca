"""Find in the journal a turn that its process left, with everything that is needed to resume it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import msgspec

from turnwise.agent.run_setup import TypedRunOptions
from turnwise.errors import CallerError, NothingToResume, TurnRefused, TurnwiseError, UnreadableTurn
from turnwise.journal.journal import Journal, Session, SessionRow, TurnRow, session_so_far
from turnwise.journal.ledger import Ledger
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.session_rows import Labels, check_same
from turnwise.journal.stores import WouldWait
from turnwise.journal.turn_keys import check_new_id
from turnwise.journal.turn_writer import JournalEntry, notes_of
from turnwise.rules.history import open_calls
from turnwise.running.resumption import LeftTurn, left_turn
from turnwise.running.tools import ChildOrder
from turnwise.turn.config import OneAsk, TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionSoFar
from turnwise.turn.programs import asks_of


class LeftRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last turn of a session, left by its process: the `session`, its state `before` the turn, the turn, and its bill so
    far."""

    session: Session
    before: SessionSoFar
    turn_id: str
    left: LeftTurn
    ledger: Ledger
    has_key: bool = False


MAY_LACK_LAST = (
    "the machine has started again since the turn was interrupted: if it lost power, the turn's last records may be missing, "
    'unless its journal was kept with `durability = "full"`; calls of which nothing is recorded may have run'
)


def is_left(session: Session) -> bool:
    """Whether a process that has died left the session's last turn."""
    return bool(session.turns) and goes_on(session.turns[-1])


def goes_on(last: TurnRow | SessionRow) -> bool:
    """Whether a session's last turn was left and can be resumed. It cannot if a damaged journal has lost its last records: the
    calls that they named may have run."""
    return last.status == "lost" and last.stop_reason is None


def left_run(journal: Journal, session: Session) -> LeftRun:
    """The turn to resume. Raises CallerError if the session's last turn has ended, or still runs."""
    if not session.turns:
        raise NothingToResume(f"session `{session.row.id}` has no turn yet: there is nothing to resume")
    last = session.turns[-1]
    journal.refuse_running(session)
    if last.status != "lost":
        raise NothingToResume(f"the last turn of session `{session.row.id}` has ended: there is nothing to resume")
    if not goes_on(last):
        raise CallerError(
            f"the journal was damaged and has lost the last records of session `{session.row.id}`: what they told of may have "
            "run, so the turn cannot be resumed; `turnwise run --session ID PROMPT` goes on behind what is left"
        )
    before = folded(journal, session.turns[:-1])
    with _readable(last.id):
        entries = journal.entries(last.id)
        left = left_turn(entries, earlier=before.carried, tries=journal.tries_in_vain(last.id))
        before = begun_with(entries, before=before)
        left.is_cancelled = journal.is_cancelled(last.id)
    ledger = ledger_of(journal, session=session.row.id, turn_id=last.id, entries=entries)
    if journal.may_lack_last(last.id):
        ledger.note(MAY_LACK_LAST)
    return LeftRun(
        session=session,
        before=before,
        turn_id=last.id,
        left=left,
        ledger=ledger,
        has_key=last.key is not None,
    )


def begun_with(entries: Sequence[JournalEntry], *, before: SessionSoFar) -> SessionSoFar:
    """What the session was before the turn of these records: `before`, or the history that the turn was given."""
    started = entries[0].record if entries else None
    if not isinstance(started, TurnStarted) or not started.history:
        return before
    return SessionSoFar(messages=started.history, carried=Carried(messages=started.history))


def ledger_of(journal: Journal, *, session: str, turn_id: str, entries: Sequence[JournalEntry]) -> Ledger:
    """All requests of a turn and of its sub-agents, and the notes that its records, `entries`, have."""
    ledger = Ledger(root_session=session, root_turn=turn_id)
    ledger.notes += notes_of(entries)
    for entry in journal.ledger.entries(LedgerSpan(session=session)):
        if entry.root_turn == turn_id:
            ledger.put(entry)
    return ledger


class RunBefore(msgspec.Struct, frozen=True, kw_only=True):
    """What a new run finds: its session so far, the session's id, and its labels. `goes_on`: the journal has the session."""

    so_far: SessionSoFar
    session_id: str
    labels: Labels
    goes_on: bool = False


def run_before(options: TypedRunOptions, *, journal: Journal | None, new_id: Callable[[], str]) -> RunBefore:
    """The session that the options name, or a new session with the history that they give. Raises CallerError if the options
    contradict each other or the session."""
    history, session, labels = tuple(options.get("history") or ()), options.get("session"), options.get("labels", {})
    if session and journal is None:
        raise CallerError("`session` needs a journal: Agent(..., journal=Journal(PATH)), or pass `history`")
    found = journal.known_session(session) if session and journal is not None else None
    if found is None:
        so_far = SessionSoFar(messages=history, carried=Carried(messages=history))
        named = check_new_id(session, what="the session's id") if session else new_id()
        return RunBefore(so_far=so_far, session_id=named, labels=labels)
    assert journal is not None, "it has the session"
    if history:
        raise CallerError("give either `session` or `history`, not both: the session has its own messages")
    check_same(labels, kept=found.row.labels, session=found.row.id)
    journal.check_free(found.row.id, drop_left=options.get("drop_left", False))
    return RunBefore(
        so_far=read_session(journal, found), session_id=found.row.id, labels=found.row.labels, goes_on=True
    )


def read_session(journal: Journal, session: Session) -> SessionSoFar:
    """The messages of a session, and what its next turn starts from. Open calls of a killed turn are answered."""
    return folded(journal, session.turns)


def folded(journal: Journal, turns: Sequence[TurnRow]) -> SessionSoFar:
    """The session from these turns. Raises UnreadableTurn if this version cannot read their records."""
    with _readable(turns[-1].id if turns else ""):
        return session_so_far(journal, turns)


@contextmanager
def _readable(turn_id: str) -> Generator[None]:
    try:
        yield
    except (CallerError, WouldWait):
        raise
    except Exception as error:  # noqa: BLE001 (the records may be anything: a newer version's, a stranger's)
        said = str(error) if isinstance(error, TurnwiseError) else type(error).__name__
        raise UnreadableTurn(
            f"this version makes no turn of the records up to turn `{turn_id}`: {said}; damaged, or from a newer turnwise"
        ) from None


class LeftChild(msgspec.Struct, frozen=True, kw_only=True):
    """The only turn of a sub-agent. It has ended (`left.turn.result`), or its process left it."""

    session_id: str
    turn_id: str
    left: LeftTurn


def left_child(journal: Journal, order: ChildOrder) -> LeftChild | None:
    """What the call's sub-agent has done; None if it never started."""
    for call_id, session in journal.children(order.parent_turn):
        if call_id == order.call.id:
            turn_id = session.turns[-1].id
            with _readable(turn_id):
                left = left_turn(journal.entries(turn_id), earlier=(), tries=journal.tries_in_vain(turn_id))
            return LeftChild(session_id=session.row.id, turn_id=turn_id, left=left)
    return None


def check_endpoint(config: TurnConfig, *, own: TurnConfig) -> None:
    """Raise CallerError if an agent of another API family would continue the turn."""
    if (config.family, config.profile) != (own.family, own.profile):
        raise TurnRefused(
            f"the turn was begun at `{config.profile}` ({config.family}), and this agent asks `{own.profile}` ({own.family}): "
            "resume it with an agent of the same provider"
        )


def asks_in(journal: Journal | None, session: str) -> tuple[OneAsk, ...]:
    """The asks that the session waits for."""
    before = run_before({"session": session}, journal=journal, new_id=str).so_far
    messages = before.carried.messages
    return asks_of(open_calls(messages), asks=before.asks, messages=messages)
