"""A person's answers to a turn that waits for them, from any machine: the first answer to an ask counts."""

from collections.abc import Collection, Sequence
from typing import Any, LiteralString

import msgspec

from turnwise.base.clock import Clock
from turnwise.errors import CallerError
from turnwise.journal.postgres.connection import BoundedConnection
from turnwise.journal.session_rows import check_session_id
from turnwise.turn.config import Approval, OneAsk
from turnwise.workers.open_asks import AskedElsewhere, GivenAnswer, read_answers, read_asked, write_text
from turnwise.workers.queue import TurnQueue, ring

# The one turn of a session that may ask: the last turn that has begun. While it runs, its asks are those of its sub-agents.
_ASKING: LiteralString = """
select number, asks, answers, status = 'running', wake_at <= clock_timestamp(),
    extract(epoch from clock_timestamp())::double precision from turn
where session = %(session)s and agent is not null and status in ('waiting', 'running') and asks is not null
order by number desc limit 1"""

# The turn's worker writes there, too, without the session's lock. This statement sees what the worker has decided meanwhile.
_LOCK: LiteralString = f"""
select 1 from turn where number = (select number from ({_ASKING}) asking) for no key update"""

_ANSWER: LiteralString = """
update turn set answers = %(answers)s, wake_at = case when %(is_whole)s then clock_timestamp() else wake_at end
where number = %(number)s"""


class OpenAsks(msgspec.Struct, frozen=True, kw_only=True):
    """The asks of a session's turn, and their answers so far. If the turn runs (`is_running`), these are the asks of its
    sub-agents, by the ids that people know."""

    asked: AskedElsewhere
    answers: tuple[GivenAnswer, ...] = ()
    is_running: bool = False


def open_asks(queue: TurnQueue, session: str) -> OpenAsks:
    """The open asks of a session. Raises CallerError if nothing of the session waits for a person."""
    check_session_id(session)
    return queue.attempt(lambda connection: _found(connection, session=session)[1])


def answer(queue: TurnQueue, session: str, approvals: Sequence[Approval], *, clock: Clock) -> int:
    """Store these answers. Returns how many asks of the session are then still open; if there are none, the turn continues.

    Raises CallerError, and stores no answer, if one of them belongs to nothing that waits, to an ask that was answered before, or
    to another call than the one that is asked about now.
    """

    check_session_id(session)

    def write(connection: BoundedConnection) -> int:
        connection.execute("select 1 from session where id = %s for update", (session,))
        connection.execute(_LOCK, {"session": session})
        number, found = _found(connection, session=session)
        answers = (*found.answers, *_new(approvals, found=found, session=session, at_s=clock.now()))
        left = len(found.asked.asks) - len({one.approval.call_id for one in answers} & _ids(found.asked.asks))
        is_whole = left <= 0 and not found.is_running
        values = {"number": number, "answers": write_text(answers), "is_whole": is_whole}
        connection.execute(_ANSWER, values)
        ring(connection, session=session)
        return left

    return queue.attempt(write)


def check_asked(ids: Collection[str], *, found: OpenAsks) -> None:
    """Raise CallerError if one of the ids was asked about but takes no answer any more."""
    asked = _ids(found.asked.asks)
    past = {*found.asked.past, *[one.id for one in found.asked.below]} - asked
    if late := [id for id in ids if id in past]:
        raise CallerError(
            f"`{late[0]}` takes no answer any more: it was answered already, or its time is over; the session asks about "
            f"{', '.join(sorted(asked))}"
        )


def _found(connection: BoundedConnection, *, session: str) -> tuple[int, OpenAsks]:
    row = connection.execute(_ASKING, {"session": session}).fetchone()
    found = None if row is None else _read(row)
    if row is None or found is None:
        raise CallerError(
            f"nothing of session `{session}` waits for an answer: it was answered already, its time was over, or nothing was "
            f"asked; `turnwise status {session}` says how it stands"
        )
    number, _, _, _, is_due, _ = row
    if is_due and not found.is_running:
        is_whole = len(found.answers) == len(found.asked.asks)
        why = "it was answered already" if is_whole else "its time is over"
        raise CallerError(f"what session `{session}` asked takes no answer any more: {why}")
    return number, found


def _read(row: Sequence[Any]) -> OpenAsks | None:
    """None if the turn runs and none of its sub-agents asks."""
    _, asks, answers, is_running, _, now_s = row
    asked = read_asked(asks)
    if not is_running:
        return OpenAsks(asked=asked, answers=read_answers(answers))
    below = asked.open_below(now_s=now_s)
    if not below:
        return None
    named = msgspec.structs.replace(asked, asks=tuple([one.named for one in below]), folder=below[0].origin.folder)
    return OpenAsks(asked=named, answers=read_answers(answers), is_running=True)


def _ids(asks: Sequence[OneAsk]) -> set[str]:
    return {ask.call.id for ask in asks}


def _new(approvals: Sequence[Approval], *, found: OpenAsks, session: str, at_s: float) -> list[GivenAnswer]:
    check_asked([approval.call_id for approval in approvals], found=found)
    asked = {ask.call.id: ask for ask in found.asked.asks}
    given = {one.approval.call_id: one.approval for one in found.answers}
    new: list[GivenAnswer] = []
    for approval in approvals:
        ask = asked.get(approval.call_id)
        if ask is None:
            raise CallerError(
                f"session `{session}` asks nothing about `{approval.call_id}`; it asks about {', '.join(asked)}"
            )
        if (before := given.get(approval.call_id)) is not None:
            said = "allowed" if before.verdict == "allow" else "denied"
            raise CallerError(f"`{approval.call_id}` was answered already ({said}): the first answer counts")
        if approval.verdict == "later":
            raise CallerError(
                f"`{approval.call_id}`: `later` is no answer here, as the turn waits anyway; allow or deny it"
            )
        if approval.digest not in ("", ask.digest):
            raise CallerError(
                f"`{approval.call_id}`: what is asked now is not what the answer is for; look at it again"
            )
        given[approval.call_id] = approval
        bound = msgspec.structs.replace(approval, digest=ask.digest, always=False)
        new.append(GivenAnswer(approval=bound, at=at_s))
    return new
