"""Continuations that misbehave, end to end: a right file, or the split path, or a result that says that it is not all."""

from pathlib import Path

import pytest

from lab.cut_cells import LIMITS, MAX_STEPS, OBJECTS, RAW, WAYS, ask_writer, calls_made
from turnwise.lab.script import Habit, Writer
from turnwise.lab.writer import file_text
from turnwise.vocab import StopReason

pytestmark = pytest.mark.wide

SIZE = 40_000
PIECE = 96  # characters at a time: fewer events, other tests are about the pieces
JOINED: tuple[tuple[Habit, ...], ...] = (
    ("repeats",),
    ("fences",),
    ("apologises",),
    ("adds",),
    ("repeats", "fences"),
    ("apologises", "repeats", "fences", "adds"),
)
REFUSED: tuple[tuple[Habit, ...], ...] = (
    ("restarts",),
    ("restarts", "fences"),
    ("apologises", "restarts"),
    ("ignores",),
    ("nothing",),
    ("calls",),
    ("unescapes",),
    ("half-escapes",),
    ("skips-character",),
    ("skips-word",),
    ("skips-line",),
    ("stutters",),
    ("wraps",),
    ("repeats", "restarts"),
)
# Joined or not, as the cut falls: what they change may stand nowhere near it.
EITHER: tuple[tuple[Habit, ...], ...] = (("respells",), ("reflows",), ("curls",))


@pytest.mark.promise("cut:continued", "cut:split", "cut:never-run")
@pytest.mark.parametrize(
    ("family", "stream", "habits"),
    [(*way, habits) for way in RAW for habits in (*JOINED, *REFUSED)]
    # Of an object nothing is gone on with, so no habit shows; that they change nothing is shown by one.
    + [(*way, JOINED[-1]) for way in OBJECTS],
)
@pytest.mark.parametrize("limit", LIMITS)
async def test_every_habit_ends_in_the_right_file(
    habits: tuple[Habit, ...], limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: what shows its seam is joined, once; what does not is written in pieces instead; both are the wanted file."""
    writer = Writer(size=SIZE, piece=PIECE, habits=habits, escapes=True, half="\ufffd")
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert (result.complete, result.stop_reason) == (True, StopReason.ANSWERED)
    if (family, stream) in RAW:
        refused = [repair for repair in result.repairs if repair.kind == "continuation_refused"]
        assert bool(refused) is (habits in REFUSED)
        assert (calls_made(result) == ["write"]) is (habits in JOINED)


@pytest.mark.promise("cut:continued", "cut:split", "cut:never-run")
@pytest.mark.parametrize("habits", EITHER, ids="-".join)
@pytest.mark.parametrize(("family", "stream"), RAW)
@pytest.mark.parametrize("limit", LIMITS)
async def test_another_spelling_makes_no_other_file(
    habits: tuple[Habit, ...], limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: what is said again is compared by what it says, and other quotation marks are not taken for the file's."""
    writer = Writer(size=SIZE, piece=PIECE, habits=habits)
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert (result.complete, result.stop_reason) == (True, StopReason.ANSWERED)


@pytest.mark.promise("cut:continued", "cut:split")
@pytest.mark.parametrize(("family", "stream"), RAW)
@pytest.mark.parametrize("repeats", [1, 7, 24, 60, 400, 7000])
async def test_however_much_is_repeated_nothing_is_doubled(
    repeats: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: one character or most of the response, the seam is where the text was cut."""
    writer = Writer(size=SIZE, piece=PIECE, habits=("repeats",), repeats=repeats)
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=4000)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert result.complete


@pytest.mark.promise("cut:split", "cut:never-run")
@pytest.mark.parametrize(("family", "stream"), WAYS)
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_model_that_neither_goes_on_nor_splits_ends_honestly(
    limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: no file is better than a wrong one; the turn ends within its cap and says that it is not complete."""
    writer = Writer(size=SIZE, piece=PIECE, habits=("restarts", "insists"))
    result, received = await ask_writer(
        writer, family=family, stream=stream, folder=tmp_path, limit=limit, max_steps=MAX_STEPS
    )
    assert not (tmp_path / "big.txt").exists()
    assert not result.complete and result.text.strip()
    assert result.stop_reason in (StopReason.LOOP, StopReason.STEP_LIMIT)
    assert result.steps <= MAX_STEPS and len(received) <= 2 * MAX_STEPS


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize(("family", "stream"), WAYS)
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(
    "habits", [("repeats",), ("apologises",), ("restarts",), ("ignores",), ("nothing",), ("fences",)], ids="-".join
)
async def test_a_text_is_joined_rightly_or_said_to_be_partial(
    habits: tuple[Habit, ...], limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: whatever the habit, the answer is the wanted text, or a beginning of it that is flagged."""
    writer = Writer(size=SIZE, piece=PIECE, writes="answer", habits=habits)
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit, tools=())
    wanted = file_text(SIZE).strip()
    assert wanted.startswith(result.text) and len(result.text.encode()) > 3 * limit
    assert result.complete is (result.text == wanted)
    if habits in (("repeats",), ("apologises",)):
        assert result.complete
