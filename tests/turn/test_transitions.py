"""The table of legal moves is the whole truth about them."""

import runpy
from pathlib import Path
from typing import get_args

from turnwise.turn.events import Command, Event
from turnwise.turn.transitions import MOVES, State

ROOT = Path(__file__).resolve().parents[2]


def test_the_drawn_transitions_are_up_to_date() -> None:
    """docs/transitions.md is what scripts/draw_transitions.py draws from the table (h11's make-state-diagrams)."""
    page = runpy.run_path(str(ROOT / "scripts" / "draw_transitions.py"))["page"]()
    assert (ROOT / "docs" / "transitions.md").read_text(encoding="utf-8") == page


def test_every_event_command_and_state_has_its_place() -> None:
    """A new event or command without a row could never happen."""
    assert {move.event for move in MOVES} == set(get_args(Event))
    assert {move.command for move in MOVES} == set(get_args(Command))
    assert {move.state for move in MOVES} | {State.FINISHED} == set(State)


def test_no_move_stands_twice_and_each_command_leads_to_one_state() -> None:
    """The next state follows from the command alone, so the table cannot contradict itself."""
    assert len({(move.state, move.event, move.command) for move in MOVES}) == len(MOVES)
    assert len({(move.command, move.next) for move in MOVES}) == len(get_args(Command))
