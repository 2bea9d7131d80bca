"""The end of a single call is an event of its own: what had ended is lost by nothing that happens to the others."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import of_family
from tables import each
from thoroughness import examples
from turn.drawn import starts
from turn.drawn_events import next_event
from turnwise.turn.config import ChildReport, ToolOffer, TurnConfig
from turnwise.turn.events import (
    Event,
    FinishTurn,
    Interrupted,
    ResponseReceived,
    RunTools,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, fold_session, replay
from turnwise.vocab import FinishReason, Message, Response, StopReason, Text, ToolCall, ToolResult, ToolSpec, Usage

CALLS = tuple([ToolCall(id=f"c{nth}", name="look", arguments="{}") for nth in range(3)])
CONFIG = TurnConfig(
    session_id="s",
    turn_id="t",
    model="m",
    **of_family("openai_chat"),
    tools=(ToolOffer(spec=ToolSpec(name="look", description="", parameters='{"type":"object"}')),),
)
STARTED = TurnStarted(config=CONFIG, input=(Message("user", (Text("Look."),)),))
CALLED = ResponseReceived(
    number=1,
    response=Response(
        message=Message("assistant", CALLS), finish=FinishReason.TOOL_CALLS, provider_finish="tool_calls"
    ),
    jitter=0.5,
)


def result(call: ToolCall, text: str = "seen") -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=(Text(f"{text} {call.id}"),))


def at_work() -> tuple[Turn, RunTools]:
    turn, _ = Turn.start(STARTED)
    command = turn.receive(CALLED)
    assert isinstance(command, RunTools)
    return turn, command


def results_in(messages: Sequence[Message]) -> dict[str, str]:
    """The text of each result, by call id."""
    return {
        part.call_id: "".join([one.text for one in part.content if isinstance(one, Text)])
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResult)
    }


def told_apart(data: st.DataObject, event: ToolsFinished, *, running: RunTools) -> list[Event]:
    """The same in pieces: some of the calls end one by one, in any order, before the rest is told."""
    first: dict[str, ToolResult] = {}
    for one in event.results:
        if one.call_id in {plan.call.id for plan in running.calls}:
            first.setdefault(one.call_id, one)
    picked = data.draw(st.lists(st.sampled_from(sorted(first)), unique=True)) if first else []
    alone = [first[id] for id in picked]
    rest = tuple([one for one in event.results if not any(one is other for other in alone)])
    ends = [ToolEnded(result=one, at_s=event.at_s) for one in alone]
    return [*ends, msgspec.structs.replace(event, results=rest)]


@pytest.mark.promise("step:every-call-answered", "keep:replay")
@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_calls_that_end_one_by_one_lead_to_the_same_commands(started: TurnStarted, data: st.DataObject) -> None:
    """Whatever the turn: with its ends told apart it goes on as with all results at once, and its journal leads there again."""
    turn, command = Turn.start(started)
    apart, _ = Turn.start(started)
    events: list[Event] = [started]
    while not isinstance(command, FinishTurn):
        event = next_event(data, command)
        pieces = [event]
        if isinstance(event, ToolsFinished) and isinstance(command, RunTools):
            pieces = told_apart(data, event, running=command)
        for piece in pieces[:-1]:
            assert apart.receive(piece) is apart.at_hand
        events += pieces
        command = turn.receive(event)
        assert apart.receive(pieces[-1]) == command
    assert apart.added == turn.added
    assert replay(events)[-1] == command


@pytest.mark.promise("keep:crash", "step:every-call-answered")
@each("kind", ["cancel", "deadline", "lost"])
@each("order", [(0,), (2, 0), (1, 2, 0)])
def test_a_call_that_had_ended_keeps_its_result_whatever_ends_the_turn(kind: str, order: tuple[int, ...]) -> None:
    """An interrupt or a crash while others run: the results that were told stand, the others say that they may have run."""
    turn, command = at_work()
    for place in order:
        assert turn.receive(ToolEnded(result=result(CALLS[place]))) is command
    if kind == "lost":
        left = turn.left_behind()
    else:
        ended = turn.receive(Interrupted(kind="cancel" if kind == "cancel" else "deadline", started=("c0", "c1", "c2")))
        assert isinstance(ended, FinishTurn)
        left = ended.result.messages
    told = results_in(left)
    assert list(told) == ["c0", "c1", "c2"]
    for place, call in enumerate(CALLS):
        assert (told[call.id] == f"seen {call.id}") is (place in order)


def test_a_call_that_ended_is_not_said_to_be_idle() -> None:
    """An interrupt names the calls that had begun: one that ended is none that never began, whether it is named or not."""
    turn, _ = at_work()
    turn.receive(ToolEnded(result=result(CALLS[1])))
    ended = turn.receive(Interrupted(kind="cancel", started=("c0",), results=(result(CALLS[0]),)))
    assert isinstance(ended, FinishTurn)
    told = results_in(ended.result.messages)
    assert (told["c0"], told["c1"]) == ("seen c0", "seen c1")
    assert told["c2"].startswith("Not run")


def test_a_result_of_no_call_at_work_is_left_out() -> None:
    """An unknown call, and one that has ended already: the first result counts, and the repair says so."""
    turn, command = at_work()
    for one in (result(CALLS[0]), result(CALLS[0], "again"), ToolResult(call_id="zz", name="look", content=())):
        assert turn.receive(ToolEnded(result=one)) is command
    turn.receive(ToolsFinished(results=(result(CALLS[1]), result(CALLS[2]))))
    assert results_in(turn.added)["c0"] == "seen c0"
    assert [one.where for one in turn.known.record.repairs if one.kind == "stray_result"] == ["call c0", "call zz"]


def test_a_sub_agent_that_ended_is_paid_for_at_once() -> None:
    """Its requests and tokens are the turn's from its end on, also where the turn ends before the other calls do."""
    turn, _ = at_work()
    child = ChildReport(
        call_id="c0",
        session_id="s1",
        stop_reason=StopReason.ANSWERED,
        usage=Usage(input_tokens=7, output_tokens=3),
        requests=2,
    )
    turn.receive(ToolEnded(result=result(CALLS[0]), children=(child,)))
    ended = turn.receive(Interrupted(kind="cancel"))
    assert isinstance(ended, FinishTurn)
    assert ended.result.children == (child,)


def test_a_session_goes_on_after_calls_that_ended_one_by_one() -> None:
    """The fold of a journal that stops in the middle of calls holds the results that were told."""
    events = (STARTED, CALLED, ToolEnded(result=result(CALLS[2])))
    told = results_in(fold_session([events]).messages)
    assert told["c2"] == "seen c2"
    assert all("or may not" in told[id] for id in ("c0", "c1"))
