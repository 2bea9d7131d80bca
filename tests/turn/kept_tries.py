"""What is tried at every place of a kept session beside what happened there: interrupts, kills, a word in mid-turn, an event that
nobody waits for. Nothing of it needs a record: it follows from the events and from the commands that answer them."""

from collections.abc import Iterator, Sequence

import msgspec

from turn.kept_sessions import Output, Where, kind_of, said_by_machine, session_form
from turn.kept_starts import spoilt
from turnwise.errors import CallerError, TurnwiseBug
from turnwise.rules.history import waiting_calls
from turnwise.turn.config import Approval
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    Interrupted,
    MessageArrived,
    PlannedCall,
    PrepareStep,
    ResponseReceived,
    RunScript,
    RunTools,
    ScriptFinished,
    SendRequest,
    StepPrepared,
    TurnStarted,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionSoFar, Turn, fold_session, restore
from turnwise.vocab import FinishReason, Message, Reasoning, Response, Text, ToolCall, ToolResult, Usage

WORD = Message("user", (Text("One more thing."),))
PARTIAL = Response(
    message=Message(
        "assistant",
        (Reasoning("Let me see."), Text("Half of an answer"), ToolCall(id="half", name="read", arguments='{"a":')),
    ),
    finish=FinishReason.CUT,
    usage=Usage(input_tokens=70, output_tokens=7),
)


def outputs_of_tries(turns: Sequence[Sequence[Event]]) -> Iterator[Output]:
    """At each place of each turn."""
    for number, events in enumerate(turns, start=1):
        earlier = fold_session(turns[: number - 1]).carried
        for place in range(len(events)):
            where = Where(number, place, kind_of(events[place]))
            try:
                yield from _tried_at(where, turns=turns, earlier=earlier)
            except (CallerError, TurnwiseBug) as error:
                yield Output(where._replace(what="rebuilt"), said_by_machine(error))
                break


def _tried_at(where: Where, *, turns: Sequence[Sequence[Event]], earlier: Carried) -> Iterator[Output]:
    events = turns[where.turn - 1]
    begun, behind = events[: where.event + 1], events[where.event + 1 :]
    turn, commands = restore(begun, earlier=earlier)
    command = commands[-1]
    ended = isinstance(command, FinishTurn)
    wrong = MessageArrived(message=WORD) if ended else events[0]
    yield Output(where._replace(what="what nobody waits for"), _told(turn, [wrong])[0])
    if where.event == 0:
        for what, started in spoilt(_started(events)).items():
            yield Output(where._replace(what=what), _begun(started, earlier=earlier))
    if not ended:
        for what, event in (_interrupts(command) | _wrong(command)).items():
            told = _told(_rebuilt(begun, earlier=earlier), [event])
            yield Output(where._replace(what=what), told[0])
        told = _told(_rebuilt(begun, earlier=earlier), [MessageArrived(message=WORD, at_s=1.0), *behind[:1]])
        for form in told:
            yield Output(where._replace(what="a word in mid-turn"), form)
    # The turn that refused a wrong event is the one that is killed: nothing may have changed.
    yield Output(where._replace(what="killed"), said_by_machine(turn.left_behind()))
    so_far = fold_session([*turns[: where.turn - 1], begun])
    yield Output(where._replace(what="killed, the session then"), session_form(so_far))
    for what, started in _next_turns(so_far, started=_started(events)).items():
        yield Output(where._replace(what=what), _begun(started, earlier=so_far.carried))


def said_by_tool(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text(f"did {plan.call.id}"),))


def _rebuilt(events: Sequence[Event], *, earlier: Carried) -> Turn:
    return restore(events, earlier=earlier)[0]


def _told(turn: Turn, events: Sequence[Event]) -> list[bytes]:
    said: list[bytes] = []
    for event in events:
        try:
            said.append(said_by_machine(turn.receive(event)))
        except (CallerError, TurnwiseBug) as error:
            return [*said, said_by_machine(error)]
    return said


def _interrupts(command: Command) -> dict[str, Interrupted]:
    """Bare, in the middle of what is at hand, and before it has begun."""
    half: tuple[ToolResult, ...] = ()
    started: tuple[str, ...] = ()
    if isinstance(command, RunTools):
        ids = [plan.call.id for plan in command.calls]
        started = tuple(ids[: len(ids) // 2 + 1])
        half = tuple([said_by_tool(plan) for plan in command.calls[: (len(ids) + 1) // 2]])
    partial = PARTIAL if isinstance(command, SendRequest) else None
    return {
        "cancelled": Interrupted(kind="cancel"),
        "time is up in the middle": Interrupted(kind="deadline", results=half, started=started, partial=partial),
        "the journal fails before it begins": Interrupted(
            kind="journal", started=(), sent=False, why="the disk is full"
        ),
    }


def _wrong(command: Command) -> dict[str, Event]:
    """Of a kind that is waited for, and yet nothing that can be true."""
    match command:
        case SendRequest(number=number):
            return {"the response to another request": ResponseReceived(number=number + 1, response=PARTIAL)}
        case RunScript():
            return {"word of another program": ScriptFinished(call_id="another", text="")}
        case PrepareStep():
            return {"a model without a price": StepPrepared(model="m9")}
        case _:
            return {}


def _started(events: Sequence[Event]) -> TurnStarted:
    assert isinstance(events[0], TurnStarted)
    return events[0]


def _next_turns(so_far: SessionSoFar, *, started: TurnStarted) -> dict[str, TurnStarted]:
    """How the session may go on: by a word; where calls wait, with all that they wait for, and with half of it."""
    plain = msgspec.structs.replace(started, input=(WORD,), history=(), approvals=())
    found = {"then gone on with": plain}
    pending = waiting_calls(so_far.carried.messages)
    if pending:
        asked = {ask.call.id for ask in so_far.asks}
        approvals = tuple([Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in so_far.asks])
        results = tuple(
            [
                ToolResult(call_id=call.id, name=call.name, content=(Text(f"client {call.id}"),))
                for call in pending
                if call.id not in asked
            ]
        )
        given = (Message("tool", results),) if results else ()
        found["then answered"] = msgspec.structs.replace(plain, input=(*given, WORD), approvals=approvals)
        found["then approved alone"] = msgspec.structs.replace(plain, input=(), approvals=approvals[:1])
    return found


def _begun(started: TurnStarted, *, earlier: Carried) -> bytes:
    try:
        return said_by_machine(Turn.start(started, earlier=earlier)[1])
    except (CallerError, TurnwiseBug) as error:
        return said_by_machine(error)
