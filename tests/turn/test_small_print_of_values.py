"""What the values that outlive phases say at their edges (issue 18: mutants that no test noticed)."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CLIENT, CONFIG, READ, call, says
from turnwise.turn.events import MessageArrived, PrepareStep, ResponseReceived, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.turn.programs import left_alone, under_known_ids
from turnwise.turn.step_request import again
from turnwise.turn.turn_spending import Pacing, Purse
from turnwise.vocab import FinishReason, Message, ProviderItem, Text, ToolResult


def test_a_request_that_is_built_anew_before_any_was_posed_is_the_steps() -> None:
    """Proves: nothing has been asked yet, and what is asked again has a purpose all the same."""
    turn, command = Turn.start(TurnStarted(config=replace(CONFIG, prepares_steps=True), input=(ASK,)))
    assert isinstance(command, PrepareStep)
    assert again(turn.known, note="").retry_of == "step"


@pytest.mark.promise("bill:plans")
def test_a_sub_agent_of_unknown_cost_counts_as_one_projected_request() -> None:
    """Proves: one more each time, beside the dollars."""
    once = Purse().pays_unknown(Decimal("0.5"))
    assert (once.usd, once.projected) == (Decimal("0.5"), 1)
    assert once.pays_unknown(Decimal("0.25")).projected == 2


def test_calls_without_a_limit_of_time_forget_the_deadline_of_those_before() -> None:
    """Proves: a step whose calls nothing limits has none, also where an earlier one had."""
    assert Pacing(calls_end_s=5.0).begin_calls(None).calls_s is None


def test_nobody_here_decides_about_the_clients_tools_and_those_that_are_gone() -> None:
    """Proves: each of both kinds alone, and no other."""
    calls = [call("a", "gone"), call("b", "client"), call("c", "read")]
    assert left_alone(calls, offers={"client": CLIENT, "read": READ}) == {"a", "b"}


def test_results_are_held_under_the_ids_that_the_session_knows() -> None:
    """Proves: one that has no other id keeps its own, and what is no result stays as it is."""
    parts = (ToolResult(call_id="a", name="read"), ToolResult(call_id="b", name="read"), Text("So."))
    held = under_known_ids(Message("tool", parts), known_as={"a": "a-2"})
    assert held.parts == (replace(parts[0], call_id="a-2"), *parts[1:])


@pytest.mark.promise("keep:crash")
def test_a_turn_that_is_lost_behind_a_pause_leaves_its_text_alone() -> None:
    """Proves: what only makes sense where the model goes on is not what a later turn begins with."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    began = ProviderItem("anthropic_messages", "server_tool_use", "{}")
    turn.receive(ResponseReceived(number=1, response=says(began, "Looking.", finish=FinishReason.PAUSE)))
    assert turn.left_behind() == (ASK, Message("assistant", (Text("Looking."),)))


def test_words_in_mid_turn_that_were_mended_are_told() -> None:
    """Proves: what was left out of them stands in the result."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(MessageArrived(message=Message("user", (ToolResult(call_id="x", name="read"), Text("Hurry.")))))
    assert [repair.kind for repair in turn.known.record.repairs] == ["orphan_result"]
