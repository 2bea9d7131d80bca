"""Making do where a response was cut, eaten or empty and the next one does not come (issue 18: mutants that no test noticed).

Events in, commands and results out.
"""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, call, cut, play, results_in, says
from turn.test_asked_anew import OBJECT, PREPARED, RAISED, asked
from turn.test_learned_room import messages_of
from turn.test_room import ROOMY
from turnwise.rules.answer_room import EMPTY_AGAIN, SYNTHESIS
from turnwise.rules.limits import MaxRequests, MaxTokens
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.turn.events import RequestFailed
from turnwise.turn.outcomes import why_failed
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Reasoning,
    Response,
    Settings,
    StopReason,
    Text,
    Usage,
)

LOST = RequestFailed(number=2, fault=Fault(kind=FaultKind.DISCONNECTED, message="reset"))
REVOKED = Fault(kind=FaultKind.AUTH, message="revoked", status=401)


def used(response: Response, output_tokens: int, *, prompt: int = 100) -> Response:
    return replace(response, usage=Usage(input_tokens=prompt, output_tokens=output_tokens))


EATEN = used(says(Reasoning("Hmm."), finish=FinishReason.LENGTH), 1_000)
THINKING = replace(
    CONFIG,
    recover="continue",
    default_max_tokens=1_000,
    model_limits=ModelLimits(context_window_tokens=100_000, max_output_tokens=8_000),
)


@pytest.mark.promise("end:forced-answer", "cut:budget")
def test_reasoning_that_ate_a_response_and_a_failure_behind_it_leave_the_forced_answer() -> None:
    """Proves: the answer is asked for once more, without tools and with the turn's own settings."""
    played = play([EATEN, LOST, says("So.")], config=THINKING)
    assert asked(played) == [("step", "auto", None), ("retry", "auto", 8_000), ("answer", "none", None)]
    assert (played.result.text, played.result.origin) == ("So.", "model")


@pytest.mark.promise("end:never-empty", "end:budget")
def test_where_no_request_is_left_the_answer_says_that_reasoning_used_up_the_output() -> None:
    """Proves: the turn ends in words of ours that say what happened, not what a gateway said."""
    played = play([EATEN, LOST], config=replace(THINKING, max_steps=1, limits=MaxRequests(2)))
    assert asked(played) == [("step", "none", None), ("retry", "none", 8_000)]
    result = played.result
    assert (result.text, result.origin) == ("The model's reasoning used up the whole output.", "local")
    assert (result.stop_reason, result.complete) == (StopReason.STEP_LIMIT, False)


@pytest.mark.promise("cut:split", "step:every-call-answered")
def test_a_key_that_is_revoked_while_a_cut_response_is_asked_for_anew_ends_the_turn() -> None:
    """Proves: in the provider's words alone. What arrived of the second response is not shown, and the first one stands in the
    history with a result for its call."""
    revoked = replace(says("Hal", finish=FinishReason.ERROR), fault=REVOKED)
    result = play([OBJECT, revoked], config=RAISED, prepare=[PREPARED]).result
    assert (result.text, result.stop_reason) == (why_failed(REVOKED), StopReason.PROVIDER_FAILED)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]
    assert list(results_in(result.messages)) == ["a"]


@pytest.mark.promise("end:budget", "cut:budget", "end:never-empty")
def test_an_empty_last_answer_is_asked_for_again_with_a_prompt_that_the_limit_pays_for() -> None:
    """Proves: the request beyond the cap is still the answer's, and says why it is made, though older messages gave way."""
    limits = ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000)
    config = replace(ROOMY, max_steps=1, limits=MaxTokens(13_000), model_limits=limits)
    empty = used(says(""), 10, prompt=6_900)
    played = play([empty, says("So.")], config=config, earlier=messages_of(20_000))
    assert [purpose for purpose, _, _ in asked(played)] == ["step", "answer"]
    first, second = [sent.request.messages for sent in played.requests]
    assert sum(map(message_bytes, second)) < sum(map(message_bytes, first)) * 9 // 10
    assert second[-1] == Message("user", (Text(EMPTY_AGAIN), Text(SYNTHESIS)))
    assert (played.result.text, played.result.origin) == ("So.", "model")


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize(("longer", "complete"), [(2_000, True), (1_001, True), (1_000, False), (500, False)])
def test_a_response_that_is_longer_than_a_servers_cap_shows_that_there_is_none(longer: int, complete: bool) -> None:
    """Proves: a server cut at 1,000 tokens where 4,000 were asked for. An answer of just so many counts as cut there, too, unless
    a longer response came meanwhile."""
    first = used(says(cut("a"), finish=FinishReason.LENGTH), 1_000)
    script = [first, used(says(call("b")), longer), used(says("It is done."), 1_000)]
    played = play(script, config=replace(CONFIG, settings=Settings(max_output_tokens=4_000)))
    assert (played.result.text, played.result.complete) == ("It is done.", complete)


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize(("tokens", "told"), [(1_000, " (1,000 tokens)"), (None, "")])
def test_the_result_of_a_cut_call_tells_the_limit_that_was_asked_for(tokens: int | None, told: str) -> None:
    """Proves: the model can size its next call by it."""
    config = replace(CONFIG, settings=Settings(max_output_tokens=tokens))
    played = play([says(cut("a"), finish=FinishReason.LENGTH), says("Done.")], config=config)
    assert f"because the response reached its limit of output tokens{told}." in results_in(played.result.messages)["a"]
