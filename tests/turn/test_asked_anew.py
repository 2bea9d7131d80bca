"""Requests that are built anew: after a refusal, for a response that was cut, instead of a summary, and what each may cost.

Mutants that no test noticed. Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, Played, call, play, says
from turn.test_after_a_summary import TALK
from turn.test_begin_again import BUSY
from turn.test_continuing import WRITE
from turn.test_learned_room import OVERFLOW, SEARCH, messages_of
from turn.test_room import ROOMY, failed
from turnwise.rules.answer_room import SYNTHESIS
from turnwise.rules.limits import Limit, MaxRequests, MaxSteps, MaxTokens, Spent
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.events import RequestFailed, StepPrepared, WaitOver
from turnwise.turn.turn_spending import NextRequest, Pacing
from turnwise.vocab import FaultKind, FinishReason, Message, Settings, StopReason, Text, Usage

LESS_OUTPUT = "max_tokens: 4000 > 2048, which is the maximum allowed number of output tokens for m"
CREDITS = (
    "This request requires more credits, or fewer max_tokens. You requested up to 4000 tokens, but can only afford 300."
)
OBJECT = says(call("a", "write", "{}"), finish=FinishReason.LENGTH)  # it may have been more


def asked(played: Played) -> list[tuple[str, object, int | None]]:
    return [
        (sent.purpose, sent.request.tool_choice, sent.request.settings.max_output_tokens) for sent in played.requests
    ]


@pytest.mark.promise("cut:budget")
def test_credits_that_are_too_few_for_a_summary_lead_to_a_request_that_they_pay_for() -> None:
    """Proves: the error tells of a lower limit of output. With that the prompt has room, and no summary is needed."""
    played = play([failed(1, CREDITS, FaultKind.QUOTA), says("Done.")], config=ROOMY, earlier=TALK)
    assert asked(played) == [("compact", "none", 1_200), ("step", "auto", 300)]
    assert (played.result.text, played.result.complete) == ("Done.", True)


# The step asks for 1,000 tokens of output and its prompt leaves these. Eight times as much needs a smaller prompt.
RAISED = replace(
    ROOMY,
    tools=(WRITE,),
    **of_family("gemini"),
    recover="continue",
    model_limits=ModelLimits(context_window_tokens=16_000, max_output_tokens=8_000),
    prepares_steps=True,
)
PREPARED = StepPrepared(settings=Settings(max_output_tokens=1_000))


@pytest.mark.promise("cut:budget", "cut:split")
def test_a_summary_for_a_cut_response_that_is_refused_is_made_smaller_too() -> None:
    """Proves: a refusal for size teaches the same, whatever the summary makes room for."""
    script = [OBJECT, failed(2, OVERFLOW), says("SUMMARY"), says("Done.")]
    played = play(script, config=RAISED, earlier=TALK[:108], prepare=[PREPARED])
    assert [(purpose, tokens) for purpose, _, tokens in asked(played)] == [
        ("step", 1_000),
        ("compact", 1_066),
        ("compact", 1_066),
        ("retry", 8_000),
    ]
    refused, smaller = [len(sent.request.messages) for sent in played.requests[1:3]]
    assert smaller < refused
    assert (played.result.text, played.result.complete) == ("Done.", True)


@pytest.mark.promise("cut:budget", "step:every-call-answered")
def test_credits_that_are_too_few_for_the_summary_of_a_cut_response_end_the_turn() -> None:
    """Proves: less output is no help where more was asked for. The cut call stands in the history with a result."""
    script = [OBJECT, failed(2, CREDITS, FaultKind.QUOTA)]
    result = play(script, config=RAISED, earlier=TALK[:108], prepare=[PREPARED]).result
    assert (result.requests_by_purpose, result.stop_reason) == ({"step": 1, "compact": 1}, StopReason.PROVIDER_FAILED)
    assert [message.role for message in result.messages] == ["user", "assistant", "tool"]


@pytest.mark.promise("cut:split", "wait:retry")
def test_a_cut_object_is_asked_for_once_more_only_once_though_the_limit_stays_below_the_models() -> None:
    """Proves: the window leaves less than the model's limit each time, so a higher limit is always there to ask for. Without a
    count of the tries the turn would ask for the same response without end."""
    limits = ModelLimits(context_window_tokens=10_000, max_output_tokens=10_000)
    config = replace(ROOMY, tools=(WRITE,), **of_family("gemini"), recover="continue", model_limits=limits)
    played = play([OBJECT, OBJECT, says("Done.")], config=config, earlier=messages_of(9_000))
    assert [purpose for purpose, _, _ in asked(played)] == ["step", "retry", "step"]
    assert (played.ran, played.result.text, played.result.complete) == ([], "Done.", True)


@pytest.mark.promise("end:budget", "end:forced-answer")
@pytest.mark.parametrize(
    ("limit", "choices"),
    [
        (MaxSteps(1) & MaxRequests(2), ["auto", "none"]),
        (MaxSteps(1) & MaxRequests(3), ["auto", "auto", "none"]),
        (MaxSteps(2) & MaxRequests(2), ["auto", "auto", "none"]),
    ],
)
def test_a_request_that_is_refused_and_built_anew_leaves_one_for_the_answer(limit: Limit, choices: list[str]) -> None:
    """Proves: calls of the new request are answered in the next step, so that step has to be affordable as well. Before, the
    first of these turns ended with calls and words of ours."""
    refused = failed(1, LESS_OUTPUT, FaultKind.BAD_REQUEST)
    calls = [says(call("a"))] if len(choices) == 3 else []
    played = play([refused, *calls, says("So.")], config=replace(ROOMY, limits=limit))
    assert [choice for _, choice, _ in asked(played)] == choices
    assert (played.result.text, played.result.origin, len(played.ran)) == ("So.", "model", len(calls))


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("text", ["Looking. ", " "])
def test_words_about_a_pause_go_with_the_pause_that_a_smaller_prompt_has_no_room_for(text: str) -> None:
    """Proves: of the pause its text is kept, and the answer's request sums up what there is. `Go on` would ask the model to
    continue what nobody continues."""
    paused = says(SEARCH, text, finish=FinishReason.PAUSE)
    paused = replace(paused, usage=Usage(input_tokens=15_000, output_tokens=100))
    played = play([paused, says("So.")], config=ROOMY, earlier=messages_of(20_000))
    kept = [Message("assistant", (Text(text),))] if text.strip() else []
    assert played.requests[1].request.messages[2:] == (ASK, *kept, Message("user", (Text(SYNTHESIS),)))
    assert (played.result.text, played.result.stop_reason) == (f"{text}So.", StopReason.BUDGET)


@pytest.mark.promise("cut:budget")
def test_the_count_of_a_request_that_asks_for_an_answer_is_the_prompts() -> None:
    """Proves: after an empty response the provider's count of the next prompt is taken, as in any step. It is larger than the
    guess here, and the step behind it has no room without a summary."""
    counted = replace(says(call("a")), usage=Usage(input_tokens=13_000, output_tokens=20))
    script = [says(""), counted, says("SUMMARY"), says("Done.")]
    played = play(script, config=ROOMY, earlier=messages_of(9_000, 9_000))
    assert [purpose for purpose, _, _ in asked(played)] == ["step", "answer", "compact", "step"]
    assert (played.result.text, played.result.complete) == ("Done.", True)


@pytest.mark.promise("cut:never-run", "cut:split")
@pytest.mark.parametrize(("family", "streamed", "runs"), [("gemini", True, False), ("anthropic_messages", True, True)])
def test_an_object_that_the_limit_may_have_cut_does_not_run(family: str, streamed: bool, runs: bool) -> None:
    """Proves: where arguments come as objects a cut does not show, so the last call of a response that met its limit counts as
    cut though it looks whole."""
    script = [says(call("a"), call("b"), finish=FinishReason.LENGTH), says("Done.")]
    played = play(script, config=replace(CONFIG, **of_family(family), stream=streamed))
    assert [[plan.call.id for plan in planned] for planned in played.ran] == [["a", "b"] if runs else ["a"]]
    assert played.result.text == "Done."


@pytest.mark.promise("end:budget", "wait:retry")
def test_what_a_failure_had_counted_is_the_prompt_of_the_next_request() -> None:
    """Proves: the usage of a response that broke off is one of the messages so far. The answer behind it may say what is left of
    the limit by that usage, once for what was spent and once for the prompt, and by our own words."""
    begun = replace(says("Half"), usage=Usage(input_tokens=1_000, output_tokens=10))
    broken = RequestFailed(number=1, fault=BUSY, partial=begun)
    config = replace(CONFIG, limits=MaxTokens(4_000), retry=RetryPolicy(attempts=2))
    played = play([broken, says("So.")], config=config, answer=lambda _: WaitOver())
    words = played.requests[1].request.messages[-1]
    assert words == Message("user", (Text(SYNTHESIS),))
    left = 4_000 - 2 * 1_010 - -(-message_bytes(words) // 3)
    assert [(purpose, choice) for purpose, choice, _ in asked(played)] == [("step", "auto"), ("retry", "none")]
    assert asked(played)[1][2] == left


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("prompt_tokens", [500, 1_500])
def test_the_largest_prompt_within_a_limit_is_found_to_the_token(prompt_tokens: int) -> None:
    """Proves: none larger is allowed, and none that is allowed is given up."""
    coming = NextRequest(spent=Spent(), prompt_tokens=prompt_tokens)
    found: list[int] = []
    for most in range(800, 1_400, 25):
        config = replace(CONFIG, limits=MaxTokens(most))
        largest = Pacing().most_prompt_tokens(config, coming=coming)
        assert largest is not None
        pace = [Pacing().judge(config, coming=replace(coming, prompt_tokens=largest + more)).pace for more in (0, 1)]
        assert pace == ["answer", "answer" if largest == prompt_tokens else "stop"]
        found.append(largest)
    assert found == sorted(found) and found[0] < found[-1]
