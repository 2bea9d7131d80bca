"""What is said of the calls of a turn that its process left: only one whose start was recorded may have run."""

from collections.abc import Callable, Sequence

import msgspec
import pytest

from turn.playing import ASK, CONFIG, SCRIPT, call, results_in, says
from turnwise.agent.resume_lookup import read_session
from turnwise.journal.journal import Journal, Session, session_so_far
from turnwise.journal.turn_writer import JournalRecord, ToolsStarted
from turnwise.replay.playback import SessionPlayer
from turnwise.replay.redacted_session import without_secrets
from turnwise.replay.session_file import read_recorded
from turnwise.testing import FakeClock
from turnwise.turn.events import ResponseReceived, ScriptCalled, TurnStarted
from turnwise.vocab import Message

STARTED = TurnStarted(config=msgspec.structs.replace(CONFIG, tools=(*CONFIG.tools, SCRIPT)), input=(ASK,))
PARALLEL = (STARTED, ResponseReceived(number=1, response=says(call("a"), call("b"))))
PROGRAM = (
    STARTED,
    ResponseReceived(number=1, response=says(call("s", "script", '{"program": "read(path=1)"}'))),
    ScriptCalled(call_id="s", calls=(call("s/1"), call("s/2"))),
)


def left(records: Sequence[JournalRecord], *, damaged: bool = False) -> tuple[Journal, Session]:
    """A session of one turn with these records, whose process has died."""
    journal = Journal(None, clock=FakeClock())
    pen = journal.begin_turn(turn_id="turn", session_id="session", folder="/here", title="go")
    for record in records:
        pen.append(record)
    pen.abandon()
    session = journal.find_session("session")
    if damaged:  # as `sessions rescue` marks it
        (turn,) = session.turns
        session = Session(row=session.row, turns=(msgspec.structs.replace(turn, stop_reason="journal_failed"),))
    return journal, session


def of_replay(journal: Journal, session: Session) -> Sequence[Message]:
    player = SessionPlayer(read_recorded(journal, session))
    (turn,) = player.turns()
    assert turn.turn is not None
    return turn.turn.left_behind(turn.begun)


def of_export(journal: Journal, session: Session) -> Sequence[Message]:
    recorded = without_secrets(read_recorded(journal, session), env={}, texts=()).session
    (turn,) = SessionPlayer(recorded).turns()
    for _ in turn.play():
        pass
    assert turn.turn is not None
    return turn.turn.left_behind(turn.begun)


READERS: dict[str, Callable[[Journal, Session], Sequence[Message]]] = {
    "a session that goes on": lambda journal, session: read_session(journal, session).messages,
    "what the next turn starts from": lambda journal, session: session_so_far(journal, session.turns).carried.messages,
    "a replay": of_replay,
    "an export": of_export,
}


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_only_a_call_that_had_started_may_have_run(read: Callable[[Journal, Session], Sequence[Message]]) -> None:
    """Proves: of two calls side by side the one whose start was recorded is told as perhaps run, the other as not run."""
    said = results_in(read(*left((*PARALLEL, ToolsStarted(step=1, call_ids=("a",))))))
    assert "may or may not have run" in said["a"]
    assert said["b"] == "Not run: the run was interrupted before this call had started."


@pytest.mark.promise("keep:crash")
def test_of_calls_that_were_only_planned_none_may_have_run() -> None:
    """Proves: a process that died before the first start leaves calls that have not run."""
    said = told(left(PARALLEL))
    assert set(said.values()) == {"Not run: the run was interrupted before this call had started."}


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize(("begun", "words"), [((), "No call had run."), (("s/1",), "`read` may have run in part.")])
def test_a_program_tells_of_the_calls_that_had_started(begun: tuple[str, ...], words: str) -> None:
    """Proves: its result counts no call that was only planned."""
    records = (*PROGRAM, *([ToolsStarted(step=1, call_ids=begun)] if begun else []))
    said = told(left(records))["s"]
    assert words in said and said.count("`read`") == len(begun) and " x2" not in said


def test_where_a_damaged_journal_lost_records_any_call_may_have_run() -> None:
    """Proves: that no start is recorded says nothing then."""
    said = told(left(PARALLEL, damaged=True))
    assert all("may or may not have run" in one for one in said.values()) and len(said) == 2


def told(found: tuple[Journal, Session]) -> dict[str, str]:
    journal, session = found
    return results_in(session_so_far(journal, session.turns).messages)
