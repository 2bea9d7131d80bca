"""The legal moves of a turn: one table. An event that it does not allow raises and changes nothing.

`docs/transitions.md` is drawn from it by `scripts/draw_transitions.py`.
"""

from enum import StrEnum

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.turn.commands import Command, FinishTurn, PrepareStep, RunTools, SendRequest
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)


class State(StrEnum):
    """What the turn waits for."""

    READY = "ready"  # not started
    PREPARING = "preparing"  # StepPrepared
    REQUESTING = "requesting"  # ResponseReceived or RequestFailed
    RUNNING = "running"  # ToolsFinished
    FINISHED = "finished"  # nothing


class Move(msgspec.Struct, frozen=True):
    state: State
    event: type[Event]
    command: type[Command]
    next: State
    when: str  # what is true of the event, for people


MOVES = (
    Move(State.READY, TurnStarted, PrepareStep, State.PREPARING, "the user gave a prepare_step"),
    Move(State.READY, TurnStarted, SendRequest, State.REQUESTING, "else"),
    Move(State.READY, TurnStarted, FinishTurn, State.FINISHED, "the limits do not allow one request"),
    Move(State.PREPARING, StepPrepared, SendRequest, State.REQUESTING, "the prompt leaves room for an answer"),
    Move(State.PREPARING, StepPrepared, FinishTurn, State.FINISHED, "else"),
    Move(State.PREPARING, Interrupted, FinishTurn, State.FINISHED, "always"),
    Move(State.REQUESTING, ResponseReceived, RunTools, State.RUNNING, "it holds calls that may run"),
    Move(
        State.REQUESTING,
        ResponseReceived,
        SendRequest,
        State.REQUESTING,
        "no call may run, a pause, an empty answer, a disobedient last step, output that does not fit, or a cut response",
    ),
    Move(
        State.REQUESTING, ResponseReceived, PrepareStep, State.PREPARING, "the same, where the user gave a prepare_step"
    ),
    Move(
        State.REQUESTING,
        ResponseReceived,
        FinishTurn,
        State.FINISHED,
        "an answer, a refusal, a fault, only pending calls, or no request is left within the limits",
    ),
    Move(State.REQUESTING, RequestFailed, RunTools, State.RUNNING, "it was for more of a cut response; calls may run"),
    Move(State.REQUESTING, RequestFailed, SendRequest, State.REQUESTING, "the same, and no call may run"),
    Move(State.REQUESTING, RequestFailed, PrepareStep, State.PREPARING, "the same, where the user gave a prepare_step"),
    Move(State.REQUESTING, RequestFailed, FinishTurn, State.FINISHED, "else"),
    Move(State.REQUESTING, Interrupted, FinishTurn, State.FINISHED, "always"),
    Move(State.RUNNING, ToolsFinished, SendRequest, State.REQUESTING, "every call has its result"),
    Move(State.RUNNING, ToolsFinished, PrepareStep, State.PREPARING, "the same, where the user gave a prepare_step"),
    Move(
        State.RUNNING,
        ToolsFinished,
        FinishTurn,
        State.FINISHED,
        "calls of client-side tools are pending, or no request is left within the limits",
    ),
    Move(State.RUNNING, Interrupted, FinishTurn, State.FINISHED, "always"),
)

_LEGAL: dict[tuple[State, type[Event]], dict[type[Command], State]] = {}
for _move in MOVES:
    _LEGAL.setdefault((_move.state, _move.event), {})[_move.command] = _move.next


def check_legal(state: State, *, event: Event) -> None:
    """Raise TurnwiseBug for an event that `state` does not wait for."""
    if (state, type(event)) not in _LEGAL:
        waited = ", ".join(sorted({kind.__name__ for where, kind in _LEGAL if where is state})) or "nothing"
        raise TurnwiseBug(f"a turn that is {state} takes {waited}, not {type(event).__name__}")


def state_after(state: State, *, event: Event, command: Command) -> State:
    """The state that the turn is in once it has answered `event` with `command`."""
    try:
        return _LEGAL[state, type(event)][type(command)]
    except KeyError:
        text = f"no move of the table answers {type(event).__name__} in {state} with {type(command).__name__}"
        raise TurnwiseBug(text) from None
