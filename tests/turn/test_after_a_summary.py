"""What follows a request for a summary: the step, the answer alone, a smaller prompt, or the end, by what it has cost (issue 18:
lines that no test ran, and mutants that none noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from turn.playing import Played, play, says
from turn.test_room import ROOMY, _exchange
from turnwise.rules.limits import MaxTokens
from turnwise.turn.events import RequestFailed
from turnwise.turn.outcomes import why_failed
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, StopReason, Usage

TALK: tuple[Message, ...] = tuple([one for number in range(60) for one in _exchange(number)])
LIMIT = MaxTokens(34_000)
REVOKED = Fault(kind=FaultKind.AUTH, message="revoked", status=401)


def after_summary(input_tokens: int) -> Played:
    """A summary that has cost so much, and the answer if it is asked for."""
    summary = replace(says("SUMMARY"), usage=Usage(input_tokens=input_tokens, output_tokens=20))
    script = [summary, says("Done.")] if input_tokens < LIMIT.tokens else [summary]
    return play(script, config=replace(ROOMY, limits=LIMIT), earlier=TALK)


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize(
    ("input_tokens", "choice", "messages", "reason"),
    [
        (10_000, "auto", 65, StopReason.ANSWERED),
        (28_000, "auto", 65, StopReason.ANSWERED),
        (31_000, "none", 66, StopReason.BUDGET),
        (33_000, "none", 8, StopReason.BUDGET),
    ],
)
def test_the_step_behind_a_summary_is_what_the_summary_has_left(
    input_tokens: int, choice: str, messages: int, reason: StopReason
) -> None:
    """Proves: a step, or the answer with all that is known, or the answer to a prompt that was made to fit."""
    played = after_summary(input_tokens)
    assert [sent.purpose for sent in played.requests] == ["compact", "step"]
    assert [sent.step for sent in played.requests] == [1, 1]
    last = played.requests[-1].request
    assert (last.tool_choice, len(last.messages)) == (choice, messages)
    result = played.result
    assert (result.text, result.origin, result.steps, result.stop_reason) == ("Done.", "model", 1, reason)
    assert result.complete is (reason is StopReason.ANSWERED)


@pytest.mark.promise("end:budget")
def test_a_summary_that_took_all_of_the_limit_ends_the_turn_with_the_reason() -> None:
    """Proves: the step does not count, and the result says which limit it was and what there was no room for."""
    played = after_summary(34_100)
    result = played.result
    assert ([sent.purpose for sent in played.requests], result.steps) == (["compact"], 0)
    assert (result.origin, result.stop_reason, result.complete) == ("local", StopReason.BUDGET, False)
    assert result.text == (
        "The limit of 34,000 tokens leaves no room for another step (34,120 used). 40,000 tokens would."
    )


@pytest.mark.parametrize("broken", [True, False], ids=["a response with a fault", "no response"])
def test_a_summary_that_can_never_be_had_ends_the_turn_in_the_providers_words(broken: bool) -> None:
    """Proves: what had arrived of a summary is no answer, and the session stays whole."""
    half = replace(says("half a summary", finish=FinishReason.ERROR), fault=REVOKED)
    played = play([half if broken else RequestFailed(number=1, fault=REVOKED)], config=ROOMY, earlier=TALK)
    assert [sent.purpose for sent in played.requests] == ["compact"]
    assert played.result.text == why_failed(REVOKED)
    assert (played.result.stop_reason, played.result.fault) == (StopReason.PROVIDER_FAILED, REVOKED)
    assert played.turn.known.history.messages[: len(TALK)] == list(TALK)
