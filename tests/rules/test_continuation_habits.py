"""What a misbehaving model makes of a cut call: the wanted file or none, over content, cut and habit."""

import json
import random

import pytest

from rules.continued_contents import CONTENTS
from tables import each
from turnwise.lab.script import Habit
from turnwise.lab.writer import misbehave
from turnwise.rules.continuation import (
    Grown,
    NoGrowth,
    NoSeam,
    SplitText,
    hold_back,
    plainly,
    stitch,
    without_half_escape,
)

CUTS = 40  # of each content and habit
SPELLINGS = ("plain", "ascii", "slashes", "spaced")
HABITS: tuple[tuple[Habit, ...], ...] = (
    (),
    ("repeats",),
    ("restarts",),
    ("repeats", "restarts"),
    ("fences",),
    ("apologises", "repeats", "fences", "adds"),
    ("unescapes",),
    ("unescapes", "fences"),
    ("unescapes", "adds"),
    ("unescapes", "repeats"),
    ("half-escapes",),
    ("skips-character",),
    ("skips-word",),
    ("skips-line",),
    ("skips-line", "repeats"),
    ("stutters",),
    ("respells",),
    ("reflows",),
    ("curls",),
    ("wraps",),
)
SAFE = ((), ("repeats",), ("fences",), ("apologises", "repeats", "fences", "adds"), ("respells",))


def arguments_of(content: str, *, spelling: str, shape: str) -> str:
    value: object = {"path": "big.txt", "content": content}
    if shape == "append":
        value = {"path": "big.txt", "content": content, "append": True}
    elif shape == "edits":
        half = len(content) // 2
        value = {"edits": [{"old": "x", "new": content[:half]}, {"old": "y", "new": content[half:], "n": 12e3}]}
    separators = (", ", ": ") if spelling == "spaced" else (",", ":")
    text = json.dumps(value, ensure_ascii=spelling == "ascii", separators=separators)
    return text.replace("/", "\\/") if spelling == "slashes" else text


def is_own_choice(reply: str, *, held: SplitText, habits: tuple[Habit, ...]) -> bool:
    """Whether the reply reads as any text that goes on from there: it leaves something out behind the held text only, or has
    quotation marks of print where it was shown none of the other kind."""
    if "curls" in habits:
        return '\\"' not in held.shown + held.held
    return any(habit.startswith("skips") for habit in habits) and plainly(held.held) in plainly(reply)


def outcome(wanted: str, *, cut_at: int, per_reply: int, habits: tuple[Habit, ...], repeats: int) -> str | None:
    """The text that came of it, None where it was refused; also where the model left out what no one can miss."""
    received = wanted[:cut_at]
    for _ in range(200):
        held = hold_back(received, kind="json")
        if held is None:
            return None
        whole = wanted if wanted.startswith(held.shown) else plainly(wanted)
        reply = misbehave(whole, shown=held.shown, habits=habits, repeats=repeats)
        if is_own_choice(reply, held=held, habits=habits):
            return None
        match stitch(held, reply=reply[:per_reply], kind="json", cut=len(reply) > per_reply):
            case Grown(text=text, whole=True):
                return text
            case Grown(text=text):
                # The file's own text may look like a beginning for a while; what comes of it is what counts.
                assert "unescapes" in habits or plainly(wanted).startswith(plainly(without_half_escape(text)))
                received = text
            case NoGrowth() | NoSeam():
                return None
    raise AssertionError("it does not end")


@pytest.mark.costly
@pytest.mark.promise("cut:continued", "cut:never-run")
@each("habits", HABITS, ids=lambda habits: "-".join(habits) or "obeys")
@each("content", CONTENTS)
def test_a_habit_ends_in_the_wanted_arguments_or_in_none(content: str, habits: tuple[Habit, ...]) -> None:
    """Proves: whatever is written, wherever it was cut, however the model misbehaves: never other arguments."""
    chance = random.Random(f"{content} {habits}")
    for _ in range(CUTS):
        spelling, shape = chance.choice(SPELLINGS), chance.choice(("write", "append", "edits"))
        wanted = arguments_of(CONTENTS[content](chance), spelling=spelling, shape=shape)
        got = outcome(
            wanted,
            cut_at=chance.randrange(41, len(wanted)),
            per_reply=chance.choice((700, 3000, 10**6)),
            habits=habits,
            repeats=chance.choice((0, 5, 40, 400, 9000)),
        )
        assert got is None or json.loads(got) == json.loads(wanted)


def test_that_is_ten_thousand_cases() -> None:
    """Proves: the number that is promised."""
    assert len(HABITS) * len(CONTENTS) * CUTS >= 10_000


@pytest.mark.costly
@pytest.mark.promise("cut:continued")
@each("content", ["prose", "code", "compact_json", "indented_json", "latex", "windows_paths", "csv", "html"])
@each("habits", SAFE, ids=lambda habits: "-".join(habits) or "obeys")
def test_what_goes_on_rightly_is_seldom_refused(content: str, habits: tuple[Habit, ...]) -> None:
    """Proves: refusing is not how it stays safe: of replies that hold the seam nine in ten are joined, in each kind of file."""
    chance, joined = random.Random(f"{content} {habits}"), 0
    for _ in range(CUTS):
        wanted = arguments_of(CONTENTS[content](chance), spelling="plain", shape="write")
        cut_at = chance.randrange(700, len(wanted) - 100)
        got = outcome(wanted, cut_at=cut_at, per_reply=10**6, habits=habits, repeats=chance.choice((5, 40, 400)))
        joined += got is not None
    assert joined >= CUTS * 0.9
