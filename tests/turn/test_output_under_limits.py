"""How much output a request may ask for where a limit of the turn leaves less than the model can give (issue 18: mutants that no
test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from tables import each
from turn.playing import play, says
from turn.test_after_a_summary import TALK
from turn.test_room import ROOMY
from turnwise.rules.limits import Limit, MaxRequests, MaxTokens
from turnwise.rules.prompt_room import ModelLimits
from turnwise.vocab import Message, Settings, Text

LARGE = replace(ROOMY, model_limits=ModelLimits(context_window_tokens=200_000, max_output_tokens=32_000))


@pytest.mark.promise("end:budget", "cut:budget")
@each("room", ["compact", "budget", "off"])
@each(
    ("limit", "own", "asked"),
    [
        (None, None, 32_000),
        (MaxTokens(90_000, "output"), None, 32_000),
        (MaxTokens(20_000, "output"), None, 19_000),
        (MaxTokens(20_000, "output"), 5_000, 5_000),
        (MaxTokens(5_000, "output"), 5_000, 4_000),
        (MaxTokens(5_000, "output"), None, 4_000),
    ],
)
def test_a_step_asks_for_no_more_than_a_limit_leaves_beside_the_answer(
    limit: Limit | None, own: int | None, asked: int, room: str
) -> None:
    """Proves: the lowest of the user's, the model's and the limit's; 1,000 tokens of the limit are the answer's. Without room
    kept, nobody says what the model can give."""
    config = replace(LARGE, limits=limit, room=room, settings=Settings(max_output_tokens=own))
    found = play([says("Done.")], config=config).requests[0].request.settings.max_output_tokens
    unsaid = room == "off" and own is None and asked > 4_096
    assert found == (None if unsaid else asked)


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("limit", [None, MaxRequests(2), MaxRequests(9)])
def test_a_prompt_that_is_too_long_by_our_guess_goes_out_where_a_request_is_left_after_it(limit: Limit | None) -> None:
    """Proves: a limit with room for another request changes nothing; only the last request has to fit for sure."""
    huge = Message("user", (Text("x" * 3 * 16_000),))
    sent = play([says("Hello.")], config=replace(ROOMY, limits=limit), input=(huge,)).requests
    assert [one.request.messages for one in sent] == [(huge,)]
    asked = sent[0].request.settings.max_output_tokens
    assert asked is not None and 3_700 < asked < 4_000


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize(("tokens", "asked"), [(2_100, 1_100), (2_150, 1_150), (2_500, 1_200)])
def test_a_summary_leaves_the_answer_its_output(tokens: int, asked: int) -> None:
    """Proves: a summary is not the answer, so 1,000 tokens of the limit are not its own."""
    sent = play(
        [says("SUMMARY"), says("Done.")], config=replace(ROOMY, limits=MaxTokens(tokens, "output")), earlier=TALK
    )
    assert sent.requests[0].purpose == "compact"
    assert sent.requests[0].request.settings.max_output_tokens == asked
