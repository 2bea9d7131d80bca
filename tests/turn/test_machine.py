"""The chair, move by move: what it orders after what happened."""

import msgspec
import pytest

from turnwise.errors import TurnwiseBug
from turnwise.turn.config import Deadlines, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import (
    FinishTurn,
    Interrupted,
    PlannedCall,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, replay
from turnwise.vocab import (
    FinishReason,
    Message,
    Request,
    Response,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

READ = ToolOffer(spec=ToolSpec(name="read"), effect="read")
EDIT = ToolOffer(spec=ToolSpec(name="edit"), effect="write")
CONFIG = TurnConfig(session_id="s", turn_id="t", model="m", tools=(READ, EDIT))
ASK = Message("user", (Text("change it"),))


def received(number: int, *parts: Text | ToolCall, finish: FinishReason = FinishReason.STOP) -> ResponseReceived:
    usage = Usage(input_tokens=10, output_tokens=1)
    return ResponseReceived(
        number=number, response=Response(message=Message("assistant", parts), finish=finish, usage=usage)
    )


def call(id: str, name: str = "read", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def result(id: str, text: str, name: str = "read") -> ToolResult:
    return ToolResult(call_id=id, name=name, content=(Text(text),))


@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize(("sent", "requests"), [(True, {"step": 2}), (False, {"step": 1})])
def test_a_request_that_never_left_does_not_count(sent: bool, requests: dict[str, int]) -> None:
    """Proves: a turn that is cancelled between its order and the bytes tells what the ledger has."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(received(1, call("a")))
    turn.receive(ToolsFinished(results=(result("a", "old"),)))
    command = turn.receive(Interrupted(kind="cancel", sent=sent))
    assert isinstance(command, FinishTurn)
    found = command.result
    assert (found.requests, found.requests_by_purpose) == (sum(requests.values()), requests)


@pytest.mark.promise("step:one-request", "step:sequential")
def test_read_edit_answer_takes_three_requests() -> None:
    """One request a step, each with the results of all before it (Chutes)."""
    started = TurnStarted(config=CONFIG, input=(ASK,))
    turn, first = Turn.start(started)
    tools = (READ.spec, EDIT.spec)
    request = Request(model="m", messages=(ASK,), tools=tools)
    assert first == SendRequest(
        number=1, step=1, purpose="step", request=request, deadlines=Deadlines(), id_prefix="call_1"
    )

    events = [started, received(1, call("a"))]
    assert turn.receive(events[-1]) == RunTools(
        step=1, calls=(PlannedCall(call=call("a"), arguments="{}", timeout_s=120.0),)
    )
    events.append(ToolsFinished(results=(result("a", "old"),)))
    so_far = (ASK, Message("assistant", (call("a"),)), Message("tool", (result("a", "old"),)))
    assert turn.receive(events[-1]) == SendRequest(
        number=2,
        step=2,
        purpose="step",
        request=Request(model="m", messages=so_far, tools=tools),
        deadlines=Deadlines(),
        taken_ids=frozenset({"a"}),
        id_prefix="call_2",
    )
    events.append(received(2, call("b", "edit")))
    turn.receive(events[-1])
    events.append(ToolsFinished(results=(result("b", "done", "edit"),)))
    turn.receive(events[-1])
    events.append(received(3, Text("It is changed.")))
    last = turn.receive(events[-1])
    answer = Message("assistant", (Text("It is changed."),))
    assert last == FinishTurn(
        result=TurnResult(
            text="It is changed.",
            stop_reason=StopReason.ANSWERED,
            complete=True,
            steps=3,
            requests=3,
            requests_by_purpose={"step": 3},
            usage=Usage(input_tokens=30, output_tokens=3),
            messages=(
                *so_far,
                Message("assistant", (call("b", "edit"),)),
                Message("tool", (result("b", "done", "edit"),)),
                answer,
            ),
        )
    )
    assert replay(events)[-1] == last


def test_an_illegal_event_raises_and_changes_nothing() -> None:
    """Legal moves are one table (h11)."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    before = msgspec.json.encode(turn)
    with pytest.raises(
        TurnwiseBug,
        match="requesting takes Interrupted, MessageArrived, RequestFailed, ResponseReceived, RulesAdded, not ToolsFinished",
    ):
        turn.receive(ToolsFinished(results=()))
    with pytest.raises(TurnwiseBug, match="a response to request 7 came while request 1 is at hand"):
        turn.receive(received(7, Text("late")))
    assert msgspec.json.encode(turn) == before
