"""How a step begins: what the limits and `prepare_step` know by then (issue 18: mutants that no test noticed).

Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, call, done, says
from turn.test_learned_room import SEARCH
from turn.test_pending_calls import PENDING, YES
from turnwise.rules.limits import MaxWallTime
from turnwise.turn.events import (
    PrepareStep,
    ResponseReceived,
    RunTools,
    SendRequest,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import FinishReason, Message, Text


@pytest.mark.promise("end:forced-answer")
def test_the_last_step_is_prepared_with_what_a_pause_leaves_for_the_answer() -> None:
    """Proves: nothing goes on with the pause, so `prepare_step` is shown its text alone, as the request will carry it."""
    config = replace(CONFIG, **of_family("anthropic_messages"), prepares_steps=True, max_steps=2)
    turn, first = Turn.start(TurnStarted(config=config, input=(ASK,)))
    assert isinstance(first, PrepareStep)
    turn.receive(StepPrepared())
    prepares = turn.receive(ResponseReceived(number=1, response=says("Looking.", SEARCH, finish=FinishReason.PAUSE)))
    kept = (ASK, Message("assistant", (Text("Looking."),)))
    assert isinstance(prepares, PrepareStep) and (prepares.step, prepares.messages) == (2, kept)
    sent = turn.receive(StepPrepared())
    assert isinstance(sent, SendRequest)
    assert (sent.request.tool_choice, sent.request.messages[:2]) == ("none", kept)


@pytest.mark.promise("end:budget")
def test_the_time_of_calls_that_an_earlier_run_left_is_no_steps() -> None:
    """Proves: they took 60 s, the step behind them 30 s. Of 150 s a step like that has room for one more, and one of 60 s would
    not."""
    config = replace(CONFIG, limits=MaxWallTime(150.0))
    turn, ran = Turn.start(TurnStarted(config=config, input=(), approvals=(YES,)), earlier=PENDING)
    assert isinstance(ran, RunTools)
    turn.receive(ToolsFinished(results=(done(ran.calls[0]),), at_s=60.0))
    ran = turn.receive(ResponseReceived(number=1, response=says(call("b")), at_s=65.0))
    assert isinstance(ran, RunTools)
    second = turn.receive(ToolsFinished(results=(done(ran.calls[0]),), at_s=90.0))
    assert isinstance(second, SendRequest)
    assert (second.step, second.request.tool_choice) == (2, "auto")
