"""A response with a call that is longer than a call may be (docs/limits.md, "Calls of one response")."""

import json

from turn.playing import play
from turnwise.vocab import FaultKind, StopReason
from turnwise.wire import registry
from turnwise.wire.limits import DEFAULT_LIMITS
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream


def test_a_call_past_8_mib_ends_the_turn_as_the_page_says() -> None:
    """Proves: the response fails as `too_large`, is not asked for again, and the turn ends as `provider_failed`; a byte less is
    a call like any other. The page promised a result."""
    for over, kind in ((0, None), (1, FaultKind.TOO_LARGE)):
        arguments = '{"path":"' + "x" * (DEFAULT_LIMITS.call_bytes - 11 + over) + '"}'
        assert len(arguments) == 8 * 1024 * 1024 + over
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}
        body = {"choices": [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        profile = builtin_profiles()["openai-chat"]
        family = registry.family("openai_chat")
        response = read_stream(
            [json.dumps(body).encode()], family=family, profile=profile, tool_names=frozenset({"read"})
        )
        assert (response.fault and response.fault.kind) == kind
    played = play([response])
    assert (played.result.stop_reason, len(played.requests)) == (StopReason.PROVIDER_FAILED, 1)
