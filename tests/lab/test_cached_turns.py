"""What caches save over whole turns, against the lab (promise bill:cached, issue 17, done-when 1 and 3)."""

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DRAWN: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "draw_caches.py"))


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("provider", DRAWN["PROVIDERS"])
def test_a_turn_of_twenty_steps_pays_for_what_is_new(provider: str) -> None:
    """Done-when 1: at least 90 % of the input of steps 2 to 20 together, and of each step from 6 on, is read from the cache; the
    turn costs at most 0.3 of that without marks, 0.35 of that at a provider that keeps nothing."""
    found = DRAWN["measure"](provider)
    assert found.kind == "plain"
    asked = provider in DRAWN["ASKED"]
    assert found.read >= 0.9
    assert found.poorest >= 0.9
    assert found.cost <= (0.3 if asked else 0.35)
    assert found.most_marks == (0 if not asked else 3 if "models" in provider else 4)


def test_the_page_has_the_figures_of_the_command() -> None:
    page = (ROOT / "docs" / "billing.md").read_text(encoding="utf-8")
    assert "\n".join(DRAWN["table"]()) in page, "run python scripts/draw_caches.py --write"
