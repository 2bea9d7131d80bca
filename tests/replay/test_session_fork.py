"""A fork goes on from a step: its history is what the session was then, and the original stays as it is."""

from collections.abc import Callable
from itertools import count

import msgspec
import pytest

from journal.journalled import SESSION, led_by_lab
from turn.kept_lab import scripts_of_lab
from turnwise.agent.resume_lookup import read_session
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.replay.playback import SessionPlayer
from turnwise.replay.session_file import RecordedSession, read_recorded
from turnwise.replay.session_fork import Forked, fork
from turnwise.testing import FakeClock
from turnwise.turn.events import FinishTurn
from turnwise.turn.machine import restore
from turnwise.vocab import Message

SCRIPT = "read-edit-answer"


def ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"new{next(numbers):05d}"


@pytest.fixture(scope="module")
def session() -> RecordedSession:
    """Two turns, the first of three steps."""
    return led_by_lab(scripts_of_lab()[SCRIPT], family="openai_chat", stream=True)


def written(session: RecordedSession, *, left: int | None = None) -> Journal:
    """A journal with it; with `left` only so many records of the last turn, whose process was killed then."""
    journal = Journal(None, clock=FakeClock())
    for number, turn in enumerate(session.turns):
        pen = journal.begin_turn(turn_id=turn.row.id, session_id=SESSION, folder="/here", title="go")
        entries = turn.entries[:left] if number == len(session.turns) - 1 else turn.entries
        for entry in entries:
            pen.later(entry.record)
        pen.write()
        last = restore(turn.events)[1][-1] if number == 0 else None
        if isinstance(last, FinishTurn):
            pen.close(last.result)
        else:
            pen.abandon()
    return journal


def said_in(journal: Journal, name: str) -> list[Message]:
    return list(read_session(journal, journal.find_session(name)).messages)


def forked(journal: Journal, **where: int) -> Forked:
    return fork(journal, journal.find_session(SESSION), new_id=ids(), **where)


def test_a_fork_has_the_messages_up_to_its_step(session: RecordedSession) -> None:
    """Proves: for each step of the first turn the history is the session's of then, to the message; the original has all."""
    before = msgspec.json.encode(session)
    whole = said_in(written(session), SESSION)
    for step, messages in ((1, 3), (2, 5), (3, 6)):
        journal = written(session)
        new = forked(journal, turn=1, step=step)
        assert (new.turn, new.step) == (1, step)
        assert said_in(journal, new.session) == whole[:messages]
        assert said_in(journal, SESSION) == whole
        assert journal.last_session("/here") is not None and journal.ledger is not None
    assert msgspec.json.encode(session) == before


def test_a_fork_without_a_step_has_the_whole_turn(session: RecordedSession) -> None:
    """Proves: the last turn unless another is named; its records are the same, so it replays without a difference."""
    journal = written(session)
    new = forked(journal, turn=1)
    copy = read_recorded(journal, journal.find_session(new.session))
    assert [[one.record for one in turn.entries] for turn in copy.turns] == [
        [one.record for one in session.turns[0].entries]
    ]
    assert (copy.turns[0].row.status, copy.row.title, copy.row.folder) == ("done", "go", "/here")
    player = SessionPlayer(copy)
    for _ in player.turns():
        pass
    assert player.differences == []


def test_a_turn_that_was_killed_is_forked_behind_its_last_whole_step(session: RecordedSession) -> None:
    """Proves: a call that may have run is not in the fork, so nothing of it can run twice; the turns before are."""
    for left in range(1, len(session.turns[1].entries)):
        journal = written(session, left=left)
        new = forked(journal)
        said = said_in(journal, new.session)
        whole = said_in(written(session), SESSION)
        assert said == whole[: len(said)] and len(said) >= 7
        assert not any("interrupted" in str(message) for message in said)
        assert read_recorded(journal, journal.find_session(new.session)).turns[-1].row.status == "done"


def test_what_is_not_there_is_told(session: RecordedSession) -> None:
    """Proves: a turn, a step and a session without turns each have their line, and no session is made."""
    journal = written(session)
    for where, said in (
        ({"turn": 3}, "has no turn 3: its last is turn 2"),
        ({"turn": 1, "step": 4}, "turn 1 has no step 4: its last is step 3"),
    ):
        with pytest.raises(CallerError, match=said):
            forked(journal, **where)
    killed = written(session, left=2)
    with pytest.raises(CallerError, match="step 1 of turn 2 has not ended"):
        forked(killed, step=1)
    assert journal.count_sessions() == killed.count_sessions() == 1
