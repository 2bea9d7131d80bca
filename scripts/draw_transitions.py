"""Draw docs/transitions.md from the table of legal moves. `--check` only says whether the file is up to date."""

import sys
from pathlib import Path

from turnwise.turn.transitions import MOVES, State

TARGET = Path(__file__).resolve().parents[1] / "docs" / "transitions.md"

HEAD = """\
# The moves of a turn

Drawn from `MOVES` in `src/turnwise/turn/transitions.py` by `scripts/draw_transitions.py`; edit the table, not this file.
An event that the table does not allow raises `TurnwiseBug` and changes nothing. A state is named for what the turn waits
for; an arrow is `event / command`.
"""


def page() -> str:
    """The whole file: the diagram, then the table with the condition of each move."""
    return "\n".join([HEAD, "```mermaid", *_diagram(), "```", "", *_rows()]) + "\n"


def _diagram() -> list[str]:
    labels: dict[tuple[State, State], list[str]] = {}
    for move in MOVES:
        label = f"{move.event.__name__} / {move.command.__name__}"
        labels.setdefault((move.state, move.next), []).append(label)
    arrows = [f"    {start} --> {end}: {'<br>'.join(texts)}" for (start, end), texts in labels.items()]
    return ["stateDiagram-v2", f"    [*] --> {State.READY}", *arrows, f"    {State.FINISHED} --> [*]"]


def _rows() -> list[str]:
    rows = [
        f"| {move.state} | {move.event.__name__} | {move.command.__name__} | {move.next} | {move.when} |"
        for move in MOVES
    ]
    return ["| state | event | command | next | when |", "|---|---|---|---|---|", *rows]


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == page() else 1
    TARGET.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
