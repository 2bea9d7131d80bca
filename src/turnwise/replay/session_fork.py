"""A new session that goes on from a step of another one: it has the same records up to there, and the other stays as it is."""

from collections.abc import Callable

import msgspec

from turnwise.endpoints.transport import CacheRefusals
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session
from turnwise.journal.turn_writer import JournalRecord
from turnwise.replay.playback import TurnPlayer, step_of
from turnwise.replay.session_file import RecordedTurn
from turnwise.turn.config import TurnResult
from turnwise.turn.events import FinishTurn, Interrupted
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionFold


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """The new session's id, and what it goes on from: the end of `step` of `turn`. Both count from 1; step 0 is the prompt."""

    session: str
    turn: int
    step: int


class _Copy(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a turn. Without a `result` it was left by its process, as in the original."""

    records: list[JournalRecord]
    result: TurnResult | None
    step: int


def fork(
    journal: Journal, session: Session, *, new_id: Callable[[], str], turn: int | None = None, step: int | None = None
) -> Forked:
    """Begin the new session. Without `step`, it has all of the turn; without `turn`, it ends with the last turn.

    A turn whose later steps are left out ends there as cancelled. A turn that has not ended is cancelled behind its last whole
    step. Raises CallerError for a turn or a step that does not exist, and for records that today's machine does not accept.
    """
    if not session.turns:
        raise CallerError(f"session `{session.row.id}` has no turns: there is nothing to go on from")
    last = turn or len(session.turns)
    if last > len(session.turns):
        raise CallerError(f"session `{session.row.id}` has no turn {last}: its last is turn {len(session.turns)}")
    fold = SessionFold()
    copies: list[_Copy] = []
    for number, row in enumerate(session.turns[:last], start=1):
        recorded = RecordedTurn(row=row, entries=tuple(journal.entries(row.id)))
        player = _player(recorded, number=number, earlier=fold.carried)
        if number < last:
            copies.append(_whole(player))
            player.fold_into(fold)
        else:
            copies.append(_up_to(step, player=player, earlier=fold.carried))
    new = new_id()
    for one in copies:
        row = session.row
        pen = journal.begin_turn(
            turn_id=new_id(), session_id=new, folder=row.folder, title=row.title, labels=row.labels
        )
        for record in one.records:
            pen.later(record)
        if one.result is None:
            pen.abandon()
        else:
            pen.close(one.result)
    return Forked(session=new, turn=last, step=copies[-1].step)


def _player(recorded: RecordedTurn, *, number: int, earlier: Carried) -> TurnPlayer:
    return TurnPlayer(
        recorded,
        number=number,
        session=recorded.row.session,
        earlier=earlier,
        refusals=CacheRefusals(),
        compares=False,
    )


def _whole(player: TurnPlayer) -> _Copy:
    records = [played.entry.record for played in player.play()]
    _check(player)
    result = player.command.result if isinstance(player.command, FinishTurn) else None
    return _Copy(records=records, result=result, step=0)


def _up_to(step: int | None, *, player: TurnPlayer, earlier: Carried) -> _Copy:
    """The turn up to the end of that step, or all of it."""
    records: list[JournalRecord] = []
    seen = whole = 0  # the current step; so many records end with the last whole one
    for played in player.play():
        records.append(played.entry.record)
        if (now := step_of(played.after)) > seen:
            seen, whole = now, len(records)
        if step is not None and now > step:
            break
    _check(player)
    number = player.number
    if step is not None and step > seen:
        raise CallerError(f"turn {number} has no step {step}: its last is step {seen}")
    if isinstance(player.command, FinishTurn):
        return _Copy(records=records, result=player.command.result, step=seen)
    if not whole:
        raise CallerError(f"turn {number} ended before it began: name an earlier one with --turn")
    if step is not None and step == seen:
        raise CallerError(f"step {step} of turn {number} has not ended: name an earlier one with --step")
    entries = player.recorded.entries[:whole]
    again = _player(msgspec.structs.replace(player.recorded, entries=entries), number=number, earlier=earlier)
    for _ in again.play():
        pass
    stopped = Interrupted(kind="cancel", started=(), sent=False)
    assert again.turn is not None, "it has begun"
    end = again.turn.receive(stopped)
    assert isinstance(end, FinishTurn), "an interrupt ends the turn"
    return _Copy(records=[*records[:whole], stopped], result=end.result, step=seen - 1)


def _check(player: TurnPlayer) -> None:
    if player.is_refused:
        raise CallerError(
            f"today's turnwise cannot go on from turn {player.number}: `turnwise replay {player.recorded.row.session[-8:]}` "
            f"shows the record that it does not take"
        )
