"""The pictures in docs/pictures are those of new runs (issue 46, 'Done when' 1): text, colours and places."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAWN = runpy.run_path(str(ROOT / "scripts" / "draw_pictures.py"))
PICTURES = {one.name: one for one in DRAWN["PICTURES"]}


def test_each_picture_is_a_row_and_there_are_not_too_many() -> None:
    """Proves: no picture is left behind by a scene that is gone, and the whole can be looked at."""
    assert sorted(path.stem for path in DRAWN["FOLDER"].glob("*.svg")) == sorted(PICTURES)
    assert len(PICTURES) <= DRAWN["MOST"]


@pytest.mark.costly
@pytest.mark.parametrize("name", PICTURES)
def test_a_person_sees_what_the_picture_shows(name: str) -> None:
    """Proves: the diff, the end of the output, the plan and the bottom line at 60, 80 and 200 columns, what Ctrl-O opens, asks,
    the first key, the plan, `/undo`, and the prompt's figures; `python scripts/draw_pictures.py` draws them anew."""
    picture = PICTURES[name]
    seen = DRAWN["drawn"](picture, DRAWN["screen_of"](picture))
    assert (DRAWN["FOLDER"] / f"{name}.svg").read_text(encoding="utf-8") == seen
