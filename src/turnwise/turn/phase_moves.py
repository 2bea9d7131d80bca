"""How a phase of a turn answers: what it is from now on, what changes, and what comes next.

A phase is a frozen value. Those of a turn stand in a row, each begun by the one before it. `Turn` applies the changes of a move
before anything else happens; then it gives the command, begins the next phase, tells the outcome to the phase before, or (where
the move says nothing of these) asks the same phase to go on.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from turnwise.turn.changes import Change
from turnwise.turn.commands import Command
from turnwise.turn.config import ChildReport
from turnwise.turn.events import Event
from turnwise.turn.turn_state import Known
from turnwise.vocab import Response, ToolResult


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Why the turn ends here, and what the driver knew. `is_running`: tools of a response or of a program were at work."""

    kind: Literal["cancel", "deadline", "journal", "lost", "denied"]
    command: Command | None
    partial: Response | None = None
    sent: bool = True
    results: tuple[ToolResult, ...] = ()
    started: tuple[str, ...] | None = None
    children: tuple[ChildReport, ...] = ()
    is_running: bool = False


class Left(msgspec.Struct, frozen=True):
    """What a phase leaves behind: changes, and a word to the phase before it."""

    changes: Sequence[Change] = ()
    told: object = None


class Phase(Protocol):
    """`go`: begin, or go on after changes. `receive`: an event that it waits for. `hear`: the outcome of the phase that it began.
    `leave`: what stands if nothing more happens; `told` is the word of the phase that it began."""

    def go(self, known: Known) -> "Move": ...

    def receive(self, event: Event, known: Known) -> "Move": ...

    def hear(self, outcome: Any, known: Known) -> "Move": ...

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left: ...


class Begin(msgspec.Struct, frozen=True):
    """The next phase."""

    phase: Phase


class BeginCalls(msgspec.Struct, frozen=True):
    """The phase of these calls (`sorting.Source`): a program has calls too, and they have programs."""

    source: object


class Over(msgspec.Struct, frozen=True):
    """The phase is over, with this outcome."""

    outcome: object


class Move(msgspec.Struct, frozen=True):
    phase: Phase
    changes: Sequence[Change] = ()
    then: Command | Begin | BeginCalls | Over | None = None
