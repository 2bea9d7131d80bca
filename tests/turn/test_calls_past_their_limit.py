"""A response with a call that is longer than a call may be (docs/limits.md, "Calls of one response")."""

import json
from collections.abc import Callable

import pytest

from turn.playing import play, results_in, says
from turnwise.rules.advice import asks_for_pieces
from turnwise.vocab import ArgumentsState, StopReason, calls_of
from turnwise.wire import family as registry
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles
from whole_streams import read_stream

MOST = DEFAULT_LIMITS.call_bytes


def arguments_of(size: int) -> str:
    return '{"path":"' + "x" * (size - 11) + '"}'


def calls(*sizes: int) -> list[dict[str, object]]:
    return [
        {
            "index": n,
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "read", "arguments": arguments_of(size)},
        }
        for n, size in enumerate(sizes)
    ]


def event(delta: object, finish: str | None = None) -> bytes:
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode() + b"\n\n"
    )


def body(*sizes: int) -> list[bytes]:
    choice = {"index": 0, "message": {"tool_calls": calls(*sizes)}, "finish_reason": "tool_calls"}
    return [json.dumps({"choices": [choice]}).encode()]


def stream(*sizes: int) -> list[bytes]:
    events: list[bytes] = []
    for call in calls(*sizes):
        function = call["function"]
        assert isinstance(function, dict)
        said = str(function["arguments"])
        events.append(event({"tool_calls": [{**call, "function": {"name": "read", "arguments": ""}}]}))
        for at in range(0, len(said), 256 * 1024):
            piece = {"index": call["index"], "function": {"arguments": said[at : at + 256 * 1024]}}
            events.append(event({"tool_calls": [piece]}))
    return [*events, event({}, "tool_calls"), b"data: [DONE]\n\n"]


@pytest.mark.promise("cut:named", "cut:complete-sibling", "step:every-call-answered")
@pytest.mark.parametrize("as_sent", [body, stream])
def test_a_call_past_8_mib_gets_a_result_and_the_turn_its_answer(as_sent: Callable[..., list[bytes]]) -> None:
    """Proves: the result says how long a call may be and what to do, the call beside it runs, and an answer follows. A byte less
    is a call like any other. The response failed as `too_large` and ended the turn as `provider_failed`."""
    profile, family = builtin_profiles()["openai-chat"], registry.family("openai_chat")
    for over in (0, 1):
        response = read_stream(as_sent(MOST + over, 12), family=family, profile=profile, tool_names=frozenset({"read"}))
        assert response.fault is None
        [long, short] = calls_of(response.message)
        assert (long.state is ArgumentsState.COMPLETE, short.state) == (not over, ArgumentsState.COMPLETE)
    assert long.arguments == "{}"
    played = play([response, says("Done.")])
    assert (played.result.stop_reason, len(played.requests)) == (StopReason.ANSWERED, 2)
    assert [[plan.call.id for plan in ran] for ran in played.ran] == [["c1"]]
    result = results_in(played.requests[1].request.messages)["c0"]
    assert result.startswith(
        "Not run: the arguments of this call of `read` are longer than a call may be: 8,388,608 bytes."
    )
    assert asks_for_pieces(result)
