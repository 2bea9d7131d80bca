"""Streams that end without a word, and attempts that run out of time or of the limits.

Mutants that no test noticed. Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import CONFIG, call, play, results_in, says
from turn.test_learned_room import SEARCH
from turn.test_retrying import BUSY, asked, waited
from turn.test_retrying import play as play_stream
from turnwise.rules.limits import MaxRequests
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.events import RequestFailed
from turnwise.vocab import FinishReason, Settings, StopReason, Text, Usage


@pytest.mark.promise("cut:not-blamed")
def test_a_stream_whose_end_has_a_word_that_nobody_knows_is_taken_as_it_came() -> None:
    """Proves: the provider did say why it ended, so the connection did not break, and no request is made for it."""
    ended = replace(says("Done.", finish=FinishReason.CUT), provider_finish="bored")
    commands, _, turn = play_stream([ended])
    assert asked(commands) == [("step", None)]
    assert turn.result is not None
    assert (turn.result.text, turn.result.complete) == ("Done.", False)


@pytest.mark.promise("cut:not-blamed")
def test_a_whole_call_in_a_stream_that_ended_without_a_word_is_asked_for_again_at_any_length() -> None:
    """Proves: as many tokens as were asked for do not cut a call whose arguments are whole, so the connection may have broken."""
    ended = replace(says(call("a"), finish=FinishReason.CUT), usage=Usage(output_tokens=1_000))
    commands, _, turn = play_stream([ended, says(call("b")), says("Done.")], settings=Settings(max_output_tokens=1_000))
    assert asked(commands) == [("step", None), ("retry", "step"), ("step", None)]
    assert list(results_in(turn.added)) == ["b"]


@pytest.mark.promise("cut:not-blamed", "step:one-request")
def test_an_object_without_what_its_tool_demands_is_the_models_own_and_not_asked_for_again() -> None:
    """Proves: an object comes in one piece, so what it lacks no connection has lost. The model is told what to correct."""
    ended = says(call("a", arguments="{}"), finish=FinishReason.CUT)
    commands, _, turn = play_stream([ended, says("Done.")], **of_family("gemini"))
    assert asked(commands) == [("step", None), ("step", None)]
    assert "path" in results_in(turn.added)["a"]
    whole = says(call("a"), finish=FinishReason.CUT)
    commands, _, _ = play_stream([whole, says("Done.")], **of_family("gemini"))
    assert asked(commands) == [("step", None), ("retry", "step")]


@pytest.mark.promise("wait:retry")
def test_attempts_end_so_long_after_the_first_failure() -> None:
    """Proves: the waits and the attempts since the first failure count together, not since the last one."""
    policy = RetryPolicy(attempts=50, base_s=4.0, cap_s=4.0, total_s=10.0)
    commands, _, turn = play_stream([BUSY] * 4, retry=policy)
    assert waited(commands) == [3.0, 3.0, 3.0]
    assert turn.result is not None and turn.result.stop_reason is StopReason.PROVIDER_FAILED


@pytest.mark.promise("wait:retry", "end:budget")
def test_a_failure_that_the_limits_leave_no_attempt_after_says_so() -> None:
    """Proves: the provider's words, and why nothing more was tried."""
    config = replace(CONFIG, limits=MaxRequests(1), retry=RetryPolicy())
    result = play([RequestFailed(number=1, fault=BUSY)], config=config).result
    assert result.fault == replace(BUSY, message="busy. The limits leave no room for another request.")


@pytest.mark.promise("step:history-healed")
def test_a_pause_goes_back_to_anthropic_without_white_space_at_its_end() -> None:
    """Proves: a last text that ends in white space is refused there, so it stands in the history without."""
    paused = says(SEARCH, "Looking. \n", finish=FinishReason.PAUSE)
    played = play([paused, says("Found.")], config=replace(CONFIG, **of_family("anthropic_messages")))
    assert played.requests[1].request.messages[-1].parts == (SEARCH, Text("Looking."))
    other = play([paused, says("Found.")], config=CONFIG)
    assert other.requests[1].request.messages[-2].parts == (SEARCH, Text("Looking. \n"))


@pytest.mark.promise("end:reason")
def test_an_answer_that_the_provider_paused_in_the_last_step_says_so() -> None:
    """Proves: nothing continues it then, and it is no complete answer."""
    result = play([says("So far.", finish=FinishReason.PAUSE)], config=replace(CONFIG, max_steps=1)).result
    assert (result.text, result.complete) == ("So far.", False)
    assert result.why_incomplete == "the step limit was reached: the provider paused in the middle of the answer"


@pytest.mark.promise("end:never-empty")
@pytest.mark.parametrize("nothing", [" \n", "\u200b"])
def test_what_was_said_in_a_pause_stands_as_it_was_though_something_came_that_nobody_sees(nothing: str) -> None:
    """Proves: the answer of ours quotes what was said, and no character behind it that says nothing."""
    paused = says(SEARCH, "Looking.", finish=FinishReason.PAUSE)
    result = play([paused, RequestFailed(number=2, fault=BUSY, partial=says(nothing))], config=CONFIG).result
    assert result.text.endswith("The model had said:\nLooking.")


@pytest.mark.parametrize("stream", [True, False])
def test_requests_ask_for_a_stream_or_a_body_as_the_turn_wants(stream: bool) -> None:
    """Proves: each of them, the answer's too."""
    played = play([says(call("a")), says("So.")], config=replace(CONFIG, stream=stream, max_steps=2))
    assert [sent.request.stream for sent in played.requests] == [stream, stream]


@pytest.mark.promise("step:one-request")
def test_a_turn_that_forbids_tools_forbids_them_after_a_call_as_well() -> None:
    """Proves: a model that calls one all the same does not bring the tools back. The call has a result, and does not run."""
    played = play([says(call("a")), says("So.")], config=replace(CONFIG, tool_choice="none"))
    assert [sent.request.tool_choice for sent in played.requests] == ["none", "none"]
    assert (played.ran, list(results_in(played.result.messages))) == ([], ["a"])
