"""A stream that passes for long as it came, and then has to be written anew: the encoder has caught up on all of it."""

import json

import pytest

from relay.test_early_words import FAMILY_PROFILES, told
from turnwise.relay.client_exchange import RelayEnd
from turnwise.relay.client_stream import MOST_UNTOLD
from turnwise.vocab import FinishReason, calls_of, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

WORDS = [f"w{number} " for number in range(MOST_UNTOLD + 25)]


def chat_chunk(delta: object, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def chat() -> list[bytes]:
    """Behind the words a call without an id, and a finish reason that is not true."""
    call = {"index": 0, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    words = [chat_chunk({"content": word}) for word in WORDS]
    return [*words, chat_chunk({"tool_calls": [call]}), chat_chunk({}, "stop"), b"data: [DONE]\n\n"]


def event(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def messages() -> list[bytes]:
    """Behind the words a call, and a finish reason that is not true."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    call = {"type": "tool_use", "id": "", "name": "look", "input": {}}
    words = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS]
    return [
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *words,
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block=call),
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": "{}"}),
        event("content_block_stop", index=1),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]


STREAMS = {"openai_chat": chat, "anthropic_messages": messages}


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("name", STREAMS)
def test_a_long_stream_that_is_written_anew_in_the_end_is_whole(name: str) -> None:
    """Past `MOST_UNTOLD` frames the encoder is told of one for each that passes. No word is missing or there twice, the call has
    an id, and the finish reason is true."""
    pieces = STREAMS[name]()
    found = told(name, pieces, early=False)
    assert isinstance(found.end, RelayEnd)
    assert found.end.fault is None
    assert found.out.startswith(b"".join(pieces[: len(WORDS)])), "the words passed as they came"
    profile = builtin_profiles()[FAMILY_PROFILES[name]]
    response = read_stream([found.out], family=family(name), profile=profile, tool_names=frozenset({"look"}))
    assert text_of(response.message) == "".join(WORDS)
    assert [(call.name, call.arguments, bool(call.id)) for call in calls_of(response.message)] == [("look", "{}", True)]
    assert (response.finish, response.repairs) == (FinishReason.TOOL_CALLS, ())
