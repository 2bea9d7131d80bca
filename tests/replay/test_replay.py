"""A recorded session through today's machine: the same commands, and where they are others, both sides by name."""

from collections.abc import Iterator, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from journal.journalled import SESSION, journalled, led_by_lab
from lab.failing import FAMILIES
from tables import each
from turn.kept_lab import scripts_of_lab
from turn.kept_parts import RECORDINGS, STAND_INS, allowed_differences, file_of, part_names
from turn.kept_sessions import WIDTH, KeptSession, digest_of, read_part, said_by_machine
from turnwise.journal.journal import JournalEntry, TurnRow
from turnwise.journal.turn_writer import JournalRecord, RequestSent, ToolsStarted
from turnwise.lab import builtin_scripts
from turnwise.replay.playback import Difference, SessionPlayer
from turnwise.replay.session_file import RecordedSession, RecordedTurn
from turnwise.turn.events import Command, RunTools, ToolEnded, ToolsFinished
from turnwise.vocab import StopReason

SAMPLE = "drawn-00"
TAKEN = 60  # of the sample; the wide lane takes all of all parts


def played(session: RecordedSession) -> tuple[list[list[Command]], SessionPlayer]:
    """The commands of each turn behind each event."""
    player = SessionPlayer(session)
    commands: list[list[Command]] = []
    for turn in player.turns():
        said = [
            one.after
            for one in turn.play()
            if one.after is not None and not isinstance(one.entry.record, RequestSent | ToolsStarted)
        ]
        commands.append(said)
    return commands, player


def with_events_alone(session: RecordedSession) -> RecordedSession:
    """Kept sessions have no records of starts: nobody knows which calls of a turn that was left had begun."""
    turns = [
        replace(turn, row=replace(turn.row, status="lost", stop_reason=turn.row.stop_reason or StopReason.CANCELLED))
        for turn in session.turns
    ]
    return replace(session, turns=tuple(turns))


def assert_same_commands(kept: KeptSession) -> None:
    """Behind the digests of a turn stands that of the session then; an event that no turn takes has one too, of its error."""
    commands, player = played(with_events_alone(journalled(kept.turns)))
    at = 0
    for said, turn in zip(commands, player.played, strict=True):
        wanted = [kept.digests[WIDTH * place : WIDTH * (place + 1)] for place in range(at, at + len(said))]
        assert [digest_of(said_by_machine(command)) for command in said] == wanted, kept.name
        at += len(said) + turn.is_refused + 1


def kept_in(part: str) -> Iterator[KeptSession]:
    """The sessions of a part, but for those that today's machine is allowed to answer otherwise."""
    allowed = [key.partition(":")[0] for one in allowed_differences() for key in one.sessions]
    return (kept for kept in read_part(file_of(part)) if kept.name not in allowed)


@pytest.mark.promise("keep:replay")
def test_a_sample_of_the_kept_sessions_replays_to_the_same_commands() -> None:
    """Proves: through a journal and the player, each command is the one that was kept, to the byte."""
    for _, kept in zip(range(TAKEN), kept_in(SAMPLE), strict=False):
        assert_same_commands(kept)


@pytest.mark.wide
@pytest.mark.promise("keep:replay")
@pytest.mark.parametrize("part", [part for part in part_names() if part not in (RECORDINGS, STAND_INS)])
def test_all_kept_sessions_replay_to_the_same_commands(part: str) -> None:
    """Proves: the same of every session whose events the suite keeps (issue 20, Done when 4)."""
    for kept in kept_in(part):
        assert_same_commands(kept)


def no_differences(name: str, *, family: str, stream: bool) -> None:
    session = led_by_lab(scripts_of_lab()[name], family=family, stream=stream)
    _, player = played(session)
    assert player.differences == [], name
    sent = [one for turn in session.turns for one in turn.entries if isinstance(one.record, RequestSent)]
    assert (sum([turn.bodies_compared for turn in player.played]), len(sent)) == (len(sent), len(sent))


SOME = (
    "read-edit-answer",
    "parallel-calls",
    "cut-call",
    "cut-text",
    "fault-once-429",
    "fault-reset",
    "pause",
    "client-tool",
)


@pytest.mark.promise("keep:replay")
@each("name", SOME)
def test_a_turn_with_the_lab_replays_to_the_same_bytes(name: str) -> None:
    """Proves: requests are the same in number, purpose and each byte of their bodies, calls are the same, and the end is."""
    family = FAMILIES[len(name) % len(FAMILIES)]
    if not builtin_scripts()[name].speaks(family):
        family = "openai_chat"
    no_differences(name, family=family, stream=True)


@pytest.mark.wide
@pytest.mark.promise("keep:replay")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_script_of_the_lab_replays_to_the_same_bytes(family: str) -> None:
    """Proves: the same of every script in every family, streamed and as a whole body."""
    for name, script in scripts_of_lab().items():
        for stream in (True, False) if script.speaks(family) else ():
            no_differences(name, family=family, stream=stream)


def changed(session: RecordedSession, *, records: Sequence[JournalRecord], **row: object) -> RecordedSession:
    """The session with these records in its only turn."""
    (turn,) = session.turns
    entries = tuple([JournalEntry(seq=seq, time=float(seq), record=one) for seq, one in enumerate(records, start=1)])
    told = RecordedTurn(row=msgspec.structs.replace(turn.row, **row), entries=entries)
    return msgspec.structs.replace(session, turns=(told,))


@pytest.fixture
def parallel() -> RecordedSession:
    return led_by_lab(builtin_scripts()["parallel-calls"], family="openai_chat", stream=True, said=("Go.",))


def records_of(session: RecordedSession) -> list[JournalRecord]:
    return [entry.record for entry in session.turns[0].entries]


def differences(session: RecordedSession) -> list[tuple[int, str, str, str]]:
    found: list[Difference] = played(session)[1].differences
    assert all((one.session, one.turn) == (SESSION, 1) for one in found)
    return [(one.record, one.kind, one.recorded, one.now) for one in found]


def test_another_request_is_named_with_both_sides(parallel: RecordedSession) -> None:
    """Proves: number and purpose are compared, and so are the bytes of the body."""
    records = records_of(parallel)
    at = next(at for at, one in enumerate(records) if isinstance(one, RequestSent))
    sent = records[at]
    assert isinstance(sent, RequestSent)
    other = msgspec.structs.replace(sent, number=7, purpose="retry")
    found = differences(changed(parallel, records=[*records[:at], other, *records[at + 1 :]]))
    assert found == [(at + 1, "request", "request 7 (retry)", "request 1 (step)")]
    other = msgspec.structs.replace(sent, body_sha256="0" * 64, body_bytes=1234)
    ((record, kind, recorded, now),) = differences(
        changed(parallel, records=[*records[:at], other, *records[at + 1 :]])
    )
    assert (record, kind, recorded) == (at + 1, "body", "request 1 (step) with 1,234 bytes, SHA-256 000000000000")
    assert now == f"the same with {sent.body_bytes:,} bytes, SHA-256 {sent.body_sha256[:12]}"


def test_other_calls_are_named_with_both_sides(parallel: RecordedSession) -> None:
    """Proves: a call that today's code would not run is a difference, and so is a result that is missing."""
    records = records_of(parallel)
    other = [
        msgspec.structs.replace(one, call_ids=("nobody",)) if isinstance(one, ToolsStarted) else one for one in records
    ]
    starts = [at for at, one in enumerate(records, start=1) if isinstance(one, ToolsStarted)]
    assert len(starts) == 2  # each call's is a record of its own
    assert differences(changed(parallel, records=other)) == [
        (at, "tools", "starts nobody", "starts call_1_1, call_1_2") for at in starts
    ]
    fewer = [msgspec.structs.replace(one, results=()) if isinstance(one, ToolsFinished) else one for one in records]
    assert differences(changed(parallel, records=fewer))[0][1:] == (
        "tools",
        "results of call_1_1",
        "starts call_1_1, call_1_2",
    )


def test_an_event_that_no_turn_takes_ends_the_replay_of_its_turn(parallel: RecordedSession) -> None:
    """Proves: it is named with what today's turn waits for, and nothing behind it is compared."""
    records = records_of(parallel)
    at = next(at for at, one in enumerate(records, start=1) if isinstance(one, ToolsFinished))
    without_start = [one for one in records if not isinstance(one, ToolsStarted)]
    assert differences(changed(parallel, records=without_start)) == []  # nothing that the machine needs
    first, *_ = differences(changed(parallel, records=[records[0], *records[at - 1 :]]))
    assert (first[0], first[1], first[2]) == (2, "event", "`tools_finished`")
    assert first[3].startswith("request 1 (step); ")


def test_another_end_is_a_difference(parallel: RecordedSession) -> None:
    """Proves: the reason with which the list of sessions shows a turn is the one of today's machine."""
    records = records_of(parallel)
    found = differences(changed(parallel, records=records, stop_reason=StopReason.STEP_LIMIT, complete=False))
    assert found == [(0, "end", "ends the turn: step_limit, incomplete", "ends the turn: answered")]
    found = differences(changed(parallel, records=records[:-1]))
    assert found == [(0, "end", "ends the turn: answered", "request 2 (step)")]


def test_calls_that_start_and_end_one_by_one_are_no_difference(parallel: RecordedSession) -> None:
    """Proves: a journal with a record for the start of each call, and one for its end, replays as the other does; also where a
    process died in between and another went on."""
    records: list[JournalRecord] = []
    for record in records_of(parallel):
        match record:
            case ToolsStarted(step=step, call_ids=ids):
                records += [ToolsStarted(step=step, call_ids=(one,)) for one in (*ids, ids[-1])]
            case ToolsFinished(results=results):
                records += [*[ToolEnded(result=one) for one in results[:-1]], ToolsFinished(results=results[-1:])]
            case _:
                records.append(record)
    session = changed(parallel, records=records)
    commands, player = played(session)
    assert player.differences == []
    assert commands[0][-1] == played(parallel)[0][0][-1]
    assert any(isinstance(one, RunTools) for one in commands[0])


def test_a_turn_of_which_only_the_request_is_left_is_told(parallel: RecordedSession) -> None:
    """Proves: a journal that begins in the middle is a difference and no crash; one without any record is empty."""
    records = records_of(parallel)
    found = differences(changed(parallel, records=records[1:]))
    assert found[0] == (1, "request", "request 1 (step)", "nothing: the turn has not begun")
    assert (found[1][1], found[1][3]) == ("event", "a turn begins with `turn_started`")
    row: TurnRow = parallel.turns[0].row
    empty = msgspec.structs.replace(
        parallel, turns=(RecordedTurn(row=msgspec.structs.replace(row, status="lost"), entries=()),)
    )
    assert played(empty)[1].differences == []
