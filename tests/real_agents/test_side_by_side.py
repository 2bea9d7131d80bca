"""The page of questions and keys beside other agents: what it counts, and that it has every mode of the table.
`python scripts/side_by_side.py` sits at the agents; that takes half an hour, so it is no test."""

from pathlib import Path

import pytest

from real_agents import places
from real_agents.errands import ERRANDS, PROBES, furnish, is_right, script_of
from real_agents.roster import AGENTS
from real_agents.seats import SEATS, Seat
from turnwise.lab.script import ScriptedCall

PAGE = places.ROOT / "docs" / "side-by-side.md"
# The end of a screen, and the keys that answer each question once and for more.
SCREENS = {
    "claude-code": (
        " Do you want to proceed?\n ❯ 1. Yes\n   2. Yes, and don’t ask again for: pytest *\n   3. No\n",
        "\r",
        "2",
    ),
    "codex": ("  Would you like to run the following command?\n› 1. Yes, proceed (y)\n", "y", "a"),
    "turnwise": ("[y] yes, once  [a] always in this session  [n] no\ny, a or n (299 s, then no):\n", "y", "a"),
}


@pytest.mark.parametrize("seat", SEATS, ids=lambda seat: seat.name)
def test_each_errand_has_the_calls_that_its_title_says(seat: Seat, tmp_path: Path) -> None:
    """In each agent's own tools; and one call a step."""
    counts = {name: len(errand.steps(seat.hands, tmp_path)) for name, errand in ERRANDS.items()}
    assert counts == {"edits": 14, "refactoring": 60}
    calls: list[ScriptedCall] = ERRANDS["edits"].steps(seat.hands, tmp_path)
    assert [len(step.calls) for step in script_of(calls).steps] == [*[1] * 14, 0, 0]


def test_a_folder_is_right_once_every_module_is_renamed(tmp_path: Path) -> None:
    """As an agent's edits leave it."""
    furnish(tmp_path, files=2)
    assert not is_right(tmp_path, files=2)
    for path in tmp_path.glob("part_*.py"):
        path.write_text(path.read_text(encoding="utf-8").replace("old_name", "new_name"), encoding="utf-8")
    assert is_right(tmp_path, files=2)


@pytest.mark.parametrize("agent", SCREENS)
def test_a_question_is_known_by_its_screen_and_answered_by_the_fewest_keys(agent: str) -> None:
    """A screen as it was recorded; a prompt is no question."""
    screen, once, more = SCREENS[agent]
    seat = next(seat for seat in SEATS if seat.agent == agent)
    found = [one for one in seat.questions if one.is_on(screen)]
    assert found and not found[0].first
    assert ("".join(found[0].keys), "".join(found[0].all_keys)) == (once, more)
    assert not any(one.is_on("❯ \n› \n> \n") for one in seat.questions)


def test_the_page_has_every_mode_and_probe_with_the_pinned_versions() -> None:
    """And in the end every agent's files are right."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    counted = [row for row in rows if len(row) == 7 and row[2].isdecimal()]
    assert {row[0] for row in counted} == {f"{seat.title}: {seat.mode}" for seat in SEATS}
    assert {row[6] for row in counted} == {"right"}
    assert {probe.title for probe in PROBES.values()} <= {row[0] for row in rows}
    assert all(
        f"{AGENTS[seat.agent].title} {AGENTS[seat.agent].version}" in page for seat in SEATS if seat.agent in AGENTS
    )
