"""What gives way for room is kept aside, and small windows are tried no further (issue 18: mutants that no test noticed).

Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, call, play, says
from turn.test_learned_room import OVERFLOW
from turn.test_room import LONG, ROOMY, failed, steps
from turnwise.rules.prompt_room import ModelLimits
from turnwise.turn.events import PlannedCall
from turnwise.vocab import Message, StopReason, Text, ToolResult, text_of


def some(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text(LONG[:7_000]),))


@pytest.mark.promise("cut:budget")
def test_a_result_that_was_shortened_to_make_room_can_be_read_whole() -> None:
    """Proves: it went out whole at first, gave way later, and `read_result` gives the very characters that were left out."""
    back = call("back", "read_result", '{"call_id":"c0","offset":3000,"limit":1000}')
    played = play([*steps(9), says(back), says("Done.")], config=ROOMY, run=some)
    sent = [
        text_of(Message("user", part.content))
        for request in (played.requests[1], played.requests[-1])
        for message in request.request.messages
        for part in message.parts
        if isinstance(part, ToolResult) and part.call_id in ("c0", "back")
    ]
    whole, shortened, read = sent
    assert whole == LONG[:7_000] and len(shortened) < len(whole)
    assert read.startswith(LONG[3_000:4_000])


@pytest.mark.promise("cut:budget", "end:never-empty")
def test_a_small_prompt_is_refused_for_good_where_no_output_was_asked_for_with_it() -> None:
    """Proves: there is nothing to ask less of, so the provider's refusal is the end."""
    limits = ModelLimits(context_window_tokens=1_200)
    config = replace(CONFIG, room="compact", model_limits=limits)
    result = play([failed(1, OVERFLOW)], config=config, input=(ASK,)).result
    assert (result.requests, result.stop_reason) == (1, StopReason.PROVIDER_FAILED)
