"""The legal moves of a turn: one table. An event that it does not allow raises and changes nothing.

`scripts/draw_transitions.py` draws `docs/transitions.md` from it.
"""

from enum import StrEnum

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.turn.events import (
    Ask,
    Asked,
    CallsInspected,
    CheckOutput,
    Command,
    Event,
    FinishTurn,
    HooksRan,
    InspectCalls,
    Interrupted,
    MessageArrived,
    OutputChecked,
    PrepareStep,
    RequestFailed,
    ResponseReceived,
    RulesAdded,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    StepPrepared,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
    Wait,
    WaitOver,
)


class State(StrEnum):
    """What the turn waits for."""

    READY = "ready"  # not started
    PREPARING = "preparing"  # StepPrepared
    REQUESTING = "requesting"  # ResponseReceived or RequestFailed
    CHECKING = "checking"  # OutputChecked
    INSPECTING = "inspecting"  # CallsInspected
    HOOKING = "hooking"  # HooksRan
    ASKING = "asking"  # Asked
    RUNNING = "running"  # ToolEnded, ToolsFinished
    SCRIPTING = "scripting"  # ScriptCalled or ScriptFinished
    WAITING = "waiting"  # WaitOver
    FINISHED = "finished"  # nothing


class Transition(msgspec.Struct, frozen=True):
    state: State
    event: type[Event]
    command: type[Command]
    next: State
    when: str  # the condition on the event, for people


# What the turn waits for follows from what it has ordered.
WAITS: dict[type[Command], State] = {
    PrepareStep: State.PREPARING,
    RunHooks: State.HOOKING,
    SendRequest: State.REQUESTING,
    CheckOutput: State.CHECKING,
    InspectCalls: State.INSPECTING,
    Ask: State.ASKING,
    RunTools: State.RUNNING,
    RunScript: State.SCRIPTING,
    Wait: State.WAITING,
    FinishTurn: State.FINISHED,
}

_Commands = dict[type[Command], str]

_REQUEST: _Commands = {
    PrepareStep: "the next request; the user gave a prepare_step",
    RunHooks: "the next request; the user gave hooks for it",
    SendRequest: "the next request",
}
_TOOLS: _Commands = {
    Ask: "calls may run if a person allows it, or the model asks the person",
    RunTools: "calls may run",
    RunScript: "a program may run and no other call, or goes on because its calls may not run",
}
_CALLS: _Commands = {
    RunHooks: "calls may run, and the user gave hooks for tools; or the next request, and hooks for it",
    InspectCalls: "calls on paths or of a shell may run, and there are rules to judge them by",
    **_TOOLS,
}
_NO_CALL: _Commands = {
    PrepareStep: "the next request, because no call may run; the user gave a prepare_step",
    SendRequest: "the next request, because no call may run",
    FinishTurn: "calls are pending, or no request is left within the limits",
}
_AFTER_CALLS: _Commands = {**_REQUEST, FinishTurn: "calls are pending, or no request is left within the limits"}
_OUTPUT = "an answer fits the wanted schema, and its type may know more"
_STEPS = "the step limit is near, and a person may allow more steps"
_RULES = "always: the command at hand goes on, the next calls are judged by the rules"
_MESSAGE = "always: the command at hand goes on, the next request carries the message"

_TABLE: dict[tuple[State, type[Event]], _Commands] = {
    (State.READY, TurnStarted): {
        **_REQUEST,
        **_CALLS,
        RunHooks: "the user gave hooks for the next request, or for the pending calls that were answered",
        FinishTurn: "the limits do not allow one request, or calls stay pending",
    },
    (State.PREPARING, StepPrepared): {
        RunHooks: "the prompt leaves room for an answer; the user gave hooks for requests",
        SendRequest: "the prompt leaves room for an answer",
        FinishTurn: "else",
    },
    (State.REQUESTING, ResponseReceived): {
        **_CALLS,
        PrepareStep: "the same as SendRequest, where the user gave a prepare_step",
        Wait: "it broke off, and is worth another attempt",
        CheckOutput: _OUTPUT,
        SendRequest: "no call may run, a pause, an empty answer, a disobedient last step, output that does not fit, a cut "
        "response, or a message has come",
        FinishTurn: "an answer, a refusal, a fault, only pending calls, or no request is left within the limits",
    },
    (State.REQUESTING, RequestFailed): {
        **_CALLS,
        PrepareStep: "the same as SendRequest, where the user gave a prepare_step",
        Wait: "the request is worth another attempt",
        CheckOutput: _OUTPUT,
        SendRequest: "it was for more of a cut response, and no call may run; turnwise asks another model, or asks for less; a "
        "crash lost the request",
        FinishTurn: "else",
    },
    (State.CHECKING, OutputChecked): {
        Ask: _STEPS,
        PrepareStep: "the same as SendRequest, where the user gave a prepare_step",
        RunHooks: "the same as SendRequest, where the user gave hooks for requests",
        SendRequest: "the answer was refused, or a message has come",
        FinishTurn: "else",
    },
    (State.HOOKING, HooksRan): {
        **_NO_CALL,
        InspectCalls: _CALLS[InspectCalls],
        **_TOOLS,
        RunHooks: "the next request; the user gave hooks for it",
        FinishTurn: "a hook denied the request, calls are pending, or no request is left within the limits",
    },
    (State.INSPECTING, CallsInspected): {
        **_TOOLS,
        **_NO_CALL,
        SendRequest: "no call may run, or only a cut one: the model continues it",
        RunHooks: "the next request, and the user gave hooks for it; or a cut call is denied, and there are hooks for the others",
        InspectCalls: "a cut call is denied, and others of the response may run",
    },
    (State.ASKING, Asked): {
        RunTools: _TOOLS[RunTools],
        RunScript: _TOOLS[RunScript],
        **_NO_CALL,
        RunHooks: _REQUEST[RunHooks],
        InspectCalls: "the person has changed a call: it is judged anew",
        Ask: f"the person has changed a call that is asked about; or {_STEPS}",
    },
    (State.WAITING, WaitOver): {
        RunHooks: "always but for the next; the user gave hooks for requests",
        SendRequest: "always but for the next",
        FinishTurn: "no request is left within the limits",
    },
    (State.RUNNING, ToolEnded): {RunTools: "always: the command at hand goes on"},
    (State.RUNNING, ToolsFinished): {
        **_AFTER_CALLS,
        RunHooks: "the user gave hooks for results, or for the next request",
        RunScript: "a program comes next, or continues with these results",
        Ask: _STEPS,
    },
    (State.SCRIPTING, ScriptCalled): {
        RunHooks: "calls of the program may run, and the user gave hooks for tools",
        InspectCalls: _CALLS[InspectCalls],
        Ask: _TOOLS[Ask],
        RunTools: "calls of the program may run",
        RunScript: "its calls may not run: it continues with their results",
    },
    (State.SCRIPTING, ScriptFinished): {
        **_AFTER_CALLS,
        RunHooks: "the user gave hooks for results, or for the next request",
        RunScript: "the next program of the response",
        Ask: _STEPS,
    },
    **{(state, RulesAdded): {command: _RULES} for command, state in WAITS.items() if state is not State.FINISHED},
    (State.ASKING, RulesAdded): {
        Ask: "some of the asks remain",
        RunTools: "the rules allow calls that were asked about",
        RunScript: "they allow a program, and no other call runs",
    },
    **{(state, MessageArrived): {command: _MESSAGE} for command, state in WAITS.items() if state is not State.FINISHED},
    **{(state, Interrupted): {FinishTurn: "always"} for state in State if state not in (State.READY, State.FINISHED)},
}

MOVES = tuple(
    [
        Transition(state, event, command, WAITS[command], when)
        for (state, event), commands in _TABLE.items()
        for command, when in commands.items()
    ]
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
