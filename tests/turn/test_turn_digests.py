"""The turn's machine, to the letter: its commands for the kept sessions are those that it gave when they were written.

A part runs in each lane, all of them in the wide one. `python scripts/turn_digests.py --check` does the same and shows the
commands that differ; docs/self-checks.md says when to write them anew.
"""

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from lab.failing import FAMILIES
from stand_ins import are_stand_ins
from turn.kept_drawing import WAYS, draw_session
from turn.kept_lab import lab_sessions, scripts_of_lab
from turn.kept_parts import (
    ALLOWED,
    DRAWN,
    IN_A_PART,
    RECORDINGS,
    STAND_INS,
    AllowedDifference,
    Difference,
    allowed_differences,
    compare,
    difference_in,
    file_of,
    judge,
    make_part,
    outputs_of_session,
    part_names,
    part_of,
    without_parts,
)
from turn.kept_sessions import FOLDER as KEPT
from turn.kept_sessions import WIDTH, KeptSession, form_of, parts_in, read_part, write_part
from turnwise.turn.events import Event, TurnStarted
from turnwise.vocab import Message, Text

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = "drawn-00"
NO_DIGEST = "0" * WIDTH


def differing(part: str, *, corpus: Path | None = None) -> tuple[list[str], list[str]]:
    compared = compare(part, corpus=corpus)
    assert compared.sessions > 0 and compared.outputs > compared.sessions
    wrong, stale = judge(
        compared.differences, allowed=allowed_differences(), is_of_part=lambda key: part_of(key) == part
    )
    return [one.key for one in wrong], stale


@pytest.mark.costly
@pytest.mark.promise("keep:replay")
def test_a_sample_of_the_kept_sessions_leads_to_the_same_commands() -> None:
    """Proves: no command, no message of a session and no end differs by a byte from what the machine said when the digests were
    made, nor does an allowed difference stand in the list that is none (issue 18, "The same, to the letter")."""
    assert differing(SAMPLE) == ([], []), "python scripts/turn_digests.py --check --part drawn-00 --against REV"


@pytest.mark.wide
@pytest.mark.promise("keep:replay")
@pytest.mark.parametrize("part", [part for part in part_names() if part != RECORDINGS])
def test_all_kept_sessions_lead_to_the_same_commands(part: str) -> None:
    """Proves: the same of every part that is made from a seed, from limits of every kind or from the lab."""
    assert differing(part) == ([], []), f"python scripts/turn_digests.py --check --part {part} --against REV"


@pytest.mark.wide
@pytest.mark.promise("keep:replay")
def test_turns_with_recorded_responses_give_the_same_commands(corpus: Path) -> None:
    """Proves: the same with what real providers sent, of which nothing but digests is kept; or with what stands in for it."""
    assert differing(STAND_INS if are_stand_ins(corpus) else RECORDINGS, corpus=corpus) == ([], [])


@pytest.mark.wide
def test_every_script_of_the_lab_is_kept_in_each_of_its_families() -> None:
    """Proves: a script that the lab gained is in the net once `--write --part lab` has run."""
    kept = Counter([session.name.rsplit(" ", 2)[0] for session in read_part(file_of("lab"))])
    assert kept == {
        name: 2 * len([family for family in FAMILIES if script.speaks(family)])
        for name, script in scripts_of_lab().items()
        if any(script.speaks(family) for family in FAMILIES)
    }


def test_all_parts_are_there_and_small() -> None:
    """Proves: 5,000 drawn sessions and the others, in far less than the 20 MB that they may take."""
    files = {file.name.partition(".")[0]: file.stat().st_size for file in parts_in(KEPT)}
    assert sorted(files) == sorted(part_names())
    assert IN_A_PART * len([part for part in files if part.startswith("drawn-")]) == DRAWN
    assert sum(files.values()) < 20_000_000 / 4


def test_the_recordings_leave_nothing_but_digests() -> None:
    """Proves: no byte of a recording is in the repository, its file's name included."""
    for session in read_part(file_of(RECORDINGS)):
        kept = msgspec.structs.asdict(session)
        assert re.fullmatch(r"recording [0-9a-f]{8}", kept.pop("name"))
        assert re.fullmatch(r"[0-9a-f]+", kept.pop("digests")) and re.fullmatch(r"[0-9a-f]{8}", kept.pop("told"))
        assert kept == {"turns": (), "is_tried": False}


@pytest.mark.costly
def test_a_seed_gives_the_session_that_is_kept_of_it() -> None:
    """Proves: writing is deterministic as long as the machine is the same: whatever was drawn before, and in any process."""
    for number, session in zip(range(12), make_part(SAMPLE, corpus=None), strict=False):
        assert session == next(one for at, one in enumerate(read_part(file_of(SAMPLE))) if at == number)
    way = tuple(WAYS)[7 % len(WAYS)]
    assert draw_session(way, seed=7) == draw_session(way, seed=7) != draw_session(way, seed=8)


def test_the_lab_gives_the_session_that_is_kept_of_a_script() -> None:
    """Proves: a turn with the lab is the same each time, faults, waits and all."""
    wanted = {"fault-stall gemini stream", "cut-call openai_responses stream", "plain-answer anthropic_messages body"}
    kept = {one.name: one.turns for one in read_part(file_of("lab")) if one.name in wanted}
    assert {one.name: one.turns for one in lab_sessions(lambda name: name in wanted)} == kept
    assert kept.keys() == wanted


def test_a_part_is_the_same_bytes_each_time_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Proves: what was written comes back, and twice the same sessions are one file."""
    sessions = list(read_part(file_of(SAMPLE)))[:5]
    for name in ("one", "two"):
        write_part(tmp_path / name, sessions=sessions)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert list(read_part(tmp_path / "one")) == sessions


def test_another_digest_is_told_with_its_session_and_event() -> None:
    """Proves: each single digest counts, and the difference says where it is and what the machine says there."""
    session = next(one for one in read_part(file_of(SAMPLE)) if len(one.turns) > 1 and one.is_tried)
    outputs = list(outputs_of_session(session))
    assert difference_in(session, outputs=outputs) is None
    for place in range(len(outputs)):
        kept = session.digests[: place * WIDTH] + NO_DIGEST + session.digests[(place + 1) * WIDTH :]
        found = difference_in(msgspec.structs.replace(session, digests=kept), outputs=outputs)
        assert found == Difference(session.name, place, str(outputs[place].where), outputs[place].form)
    assert str(outputs[0].where) == "turn 1, event 0 (turn_started)"


def test_too_few_and_too_many_outputs_are_differences() -> None:
    """Proves: a machine that ends sooner or later than the one before is caught."""
    session = next(iter(read_part(file_of(SAMPLE))))
    outputs = list(outputs_of_session(session))
    assert difference_in(session, outputs=outputs[:-1]) is not None
    assert difference_in(msgspec.structs.replace(session, digests=session.digests[:-WIDTH]), outputs=outputs)


def test_events_that_are_given_to_another_turn_give_other_digests() -> None:
    """Proves: what a request carries is in its digest: one word of the user's changes each of them."""
    session = next(one for one in read_part(file_of(SAMPLE)) if len(one.turns[0]) > 3)
    first, *others = session.turns[0]
    assert isinstance(first, TurnStarted)
    word = Message("user", (Text("Something else."),))
    changed: tuple[Event, ...] = (msgspec.structs.replace(first, input=(word,), history=()), *others)
    found = difference_in(session, outputs=outputs_of_session(msgspec.structs.replace(session, turns=(changed,))))
    assert found is not None and found.place == 0


def test_the_canonical_form_does_not_depend_on_the_order_of_sets_and_dicts() -> None:
    """Proves: what has no order has one here, so that another seed of Python's hashes changes nothing."""
    assert form_of([{"b": 1, "a": {"y", "x"}}]) == form_of([{"a": {"x", "y"}, "b": 1}]) == b'[{"a":["x","y"],"b":1}]'


def test_a_listed_difference_is_allowed_and_one_that_is_gone_fails() -> None:
    """Proves: the list is exact both ways, to the place, and a part that was not compared says nothing about it."""
    differs = Difference("drawn 17 work", 3, "turn 1, event 2 (asked)", b"{}")
    listed = AllowedDifference(
        sessions=(differs.key, "drawn 300 any: turn 2, event 1 (asked)"), why="it forgot", test="tests/x.py::test_y"
    )
    of_first = judge([differs], allowed=[listed], is_of_part=lambda key: part_of(key) == "drawn-00")
    assert of_first == ([], [])
    assert judge([differs], allowed=[listed], is_of_part=lambda _: True) == ([], [listed.sessions[1]])
    elsewhere = differs._replace(where="turn 1, event 1 (asked)")
    assert judge([elsewhere], allowed=[listed], is_of_part=lambda key: key == differs.key) == (
        [elsewhere],
        [differs.key],
    )


def test_parts_that_were_written_anew_leave_the_list() -> None:
    """Proves: the list loses these parts and nothing else, and a difference of which no session is left."""
    head = "# about\n# [[difference]]\n"
    first = '\n[[difference]]\nsessions = [\n    "drawn 17 work: x",\n    "drawn 300 any: x",\n]\nwhy = "`a\\"b`"\ntest = "a"\n'
    second = '\n[[difference]]\nsessions = [\n    "world 5: x",\n]\nwhy = "c"\ntest = "c"\n'
    listed = f"{head}{first}{second}"
    assert without_parts(listed, parts=()) == listed == without_parts(listed, parts=["lab"])
    assert without_parts(listed, parts=["drawn-00", "worlds"]) == head + first.replace('    "drawn 17 work: x",\n', "")
    assert without_parts(listed, parts=part_names()) == head
    kept = ALLOWED.read_text(encoding="utf-8")
    assert without_parts(kept, parts=()) == kept


def test_each_allowed_difference_has_a_reason_and_a_test_that_exists() -> None:
    """Proves: nothing is allowed without the test that shows the bug (issue 18, done when 1)."""
    for one in allowed_differences():
        assert one.sessions and one.why.strip()
        assert {part_of(key) for key in one.sessions} <= set(part_names())
        file, _, name = one.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), one.test


def test_a_session_is_kept_as_the_journal_writes_it() -> None:
    """Proves: the events are lines of JSON under the journal's own names of kinds, so that moved modules still read them."""
    session = next(iter(read_part(file_of(SAMPLE))))
    raw = msgspec.json.decode(form_of(session))
    assert raw["turns"][0][0]["type"] == "turn_started"
    assert msgspec.json.decode(form_of(session), type=KeptSession) == session
