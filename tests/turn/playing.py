"""Plays a turn against scripted responses: the shortest possible driver."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from families import of_family
from turnwise.turn.config import Approval, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    Interrupted,
    PlannedCall,
    PrepareStep,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import Turn, fold_session
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FinishReason,
    Message,
    Part,
    Response,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    text_of,
)

SCHEMA = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}'
READ = ToolOffer(spec=ToolSpec(name="read", parameters=SCHEMA), effect="read")
WRITE = ToolOffer(spec=ToolSpec(name="write", parameters=SCHEMA), effect="write", exclusive=True, timeout_s=5.0)
CLIENT = ToolOffer(spec=ToolSpec(name="client"), client_side=True)
PROGRAM = '{"type":"object","properties":{"program":{"type":"string"}},"required":["program"]}'
SCRIPT = ToolOffer(spec=ToolSpec(name="script", parameters=PROGRAM), script=True, exclusive=True)
CONFIG = TurnConfig(
    session_id="s",
    turn_id="t",
    model="m",
    tools=(READ, WRITE, CLIENT),
    system=(Text("Be kind."),),
    **of_family("openai_chat"),
)
ASK = Message("user", (Text("change it"),))
PATH = '{"path":"a"}'


class Played(NamedTuple):
    requests: list[SendRequest]
    ran: list[tuple[PlannedCall, ...]]
    result: TurnResult
    events: list[Event]
    turn: Turn


def call(id: str, name: str = "read", arguments: str = PATH, **more: object) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments, **more)  # type: ignore[arg-type]


def cut(id: str, arguments: str = '{"path":"a', name: str = "read") -> ToolCall:
    return call(
        id,
        name,
        arguments,
        state=ArgumentsState.TRUNCATED,
        reason="cut inside the string at `$.path` after 1 character",
    )


def says(*parts: Part | str, finish: FinishReason = FinishReason.STOP, fault: Fault | None = None) -> Response:
    whole = tuple([Text(part) if isinstance(part, str) else part for part in parts])
    return Response(message=Message("assistant", whole), finish=finish, fault=fault)


def done(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text(f"did {plan.call.id}"),))


def results_in(messages: Sequence[Message]) -> dict[str, str]:
    """Call id -> the text of its one result."""
    found: dict[str, str] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                assert part.call_id not in found, "two results for one call"
                found[part.call_id] = text_of(Message("user", part.content))
    return found


def session_messages(journals: Iterable[Sequence[Event]]) -> tuple[Message, ...]:
    """All messages of a session, whole, from the journals of its turns."""
    return tuple(fold_session(journals).messages)


def play(
    script: Sequence[Response | RequestFailed | ToolsFinished | Interrupted],
    *,
    config: TurnConfig = CONFIG,
    input: tuple[Message, ...] = (ASK,),
    history: tuple[Message, ...] = (),
    earlier: tuple[Message, ...] | Carried = (),
    run: Callable[[PlannedCall], ToolResult] = done,
    prepare: Sequence[StepPrepared] = (),
    approvals: tuple[Approval, ...] = (),
    answer: Callable[[Command], Event] | None = None,
    keeps_waiting: bool = False,
) -> Played:
    """Responses answer requests in order, and so do failures; tools run by `run` unless the script has their event next.
    `answer` gives the event to any other command."""
    started = TurnStarted(config=config, input=input, history=history, approvals=approvals, keeps_waiting=keeps_waiting)
    turn, command = Turn.start(started, earlier=earlier)
    events: list[Event] = [started]
    requests: list[SendRequest] = []
    ran: list[tuple[PlannedCall, ...]] = []
    coming, preparing = list(script), list(prepare)
    while not isinstance(command, FinishTurn):
        match command:
            case PrepareStep():
                event: Event = preparing.pop(0) if preparing else StepPrepared()
            case SendRequest(number=number):
                requests.append(command)
                next_ = coming.pop(0)
                event = ResponseReceived(number=number, response=next_) if isinstance(next_, Response) else next_
            case RunTools(calls=planned):
                ran.append(planned)
                reported = coming and isinstance(coming[0], ToolsFinished | Interrupted)
                event = coming.pop(0) if reported else ToolsFinished(results=tuple([run(plan) for plan in planned]))
            case _:
                assert answer is not None, f"nothing answers {command}"
                event = answer(command)
        events.append(event)
        command = turn.receive(event)
    assert not coming, "the turn ended before its script did"
    return Played(requests, ran, command.result, events, turn)
