"""A session while it is written: what a watcher would have been told of each new record."""

import msgspec

from turnwise.endpoints.cache_refusals import CacheRefusals
from turnwise.errors import UnreadableTurn
from turnwise.journal.journal import JournalEntry, TurnRow, WrittenPlace, WrittenRecord
from turnwise.journal.records import decode_record
from turnwise.replay.playback import Played, TurnPlayer
from turnwise.replay.recorded_session import RecordedTurn
from turnwise.replay.replayed_events import PersonSpoke, TurnTeller
from turnwise.running.watcher_events import WatcherEvent
from turnwise.turn.snapshot import SessionFold


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What one record of a session told. `number` is the record's own in its session, from 1: several events may have it. `time`
    is UTC, seconds since 1970."""

    number: int
    turn: str
    time: float
    seen: WatcherEvent | PersonSpoke


class SessionFollower:
    """Takes the records of a session one after the other, from the first. Raises UnreadableTurn for one of a newer version."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._fold = SessionFold()
        self._refusals = CacheRefusals()
        self._player: TurnPlayer | None = None
        self._teller: TurnTeller | None = None
        self._turns = 0
        self.place = WrittenPlace()  # of the last record
        self.number = 0  # of that record

    def take(self, written: WrittenRecord) -> list[SessionEvent]:
        """What it told."""
        try:
            record = decode_record(written.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UnreadableTurn(
                f"session `{self._session}` cannot be followed here: {error}; it is damaged, or from a newer turnwise"
            ) from None
        if self._player is None or written.place.turn != self.place.turn:
            self._begin(written)
        player, teller = self._player, self._teller
        assert player is not None and teller is not None, "a turn has begun"
        self.place = written.place
        self.number += 1
        entry, before = JournalEntry(seq=written.place.seq, time=written.time, record=record), player.command
        player.take(entry)
        if player.is_refused:
            raise UnreadableTurn(
                f"session `{self._session}` cannot be followed here: this version makes no turn of its records"
            )
        told = teller.tell_one(Played(entry=entry, before=before, after=player.command))
        return [SessionEvent(number=self.number, turn=written.turn_id, time=one.time, seen=one.seen) for one in told]

    def _begin(self, written: WrittenRecord) -> None:
        before = self._player
        if before is not None and before.turn is not None and before.started is not None:
            self._fold.take(before.turn, started=before.started)
        self._turns += 1
        row = TurnRow(
            id=written.turn_id,
            session=self._session,
            status="running",
            created=written.time,
            finished=None,
            stop_reason=None,
            complete=None,
        )
        self._player = TurnPlayer(
            RecordedTurn(row=row, entries=()),
            number=self._turns,
            session=self._session,
            earlier=self._fold.carried,
            refusals=self._refusals,
            compares=False,
        )
        self._teller = TurnTeller(self._player, players=[])
