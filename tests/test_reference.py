"""The reference page has every public name, as the code has it."""

import runpy
from collections import Counter
from pathlib import Path

import turnwise
import turnwise.testing

ROOT = Path(__file__).resolve().parents[1]
DRAWN = runpy.run_path(str(ROOT / "scripts" / "draw_reference.py"))


def test_reference_page_is_up_to_date() -> None:
    """Signatures and docstrings stand on the page as they stand in the code."""
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert page == DRAWN["reference"](), "run python scripts/draw_reference.py"


def test_every_public_name_is_on_the_reference_page_once() -> None:
    """A new name needs a place in a group of scripts/draw_reference.py; a name that is gone loses it."""
    grouped = Counter(" ".join(DRAWN["GROUPS"].values()).split())
    assert grouped == Counter(turnwise.__all__)
    assert Counter(DRAWN["TESTING_NAMES"].split()) == Counter(turnwise.testing.__all__)


def test_only_members_that_exist_are_left_out_of_the_reference_page() -> None:
    """A method that was renamed comes onto the page, or its new name is left out on purpose."""
    strange = [
        f"{name}.{member}"
        for name, members in DRAWN["INSIDE"].items()
        for member in members
        if not hasattr(getattr(turnwise.testing if name in turnwise.testing.__all__ else turnwise, name), member)
    ]
    assert strange == []
