"""Arguments whose pieces each repeat all before them, as some upstreams send them: a client gets the object, or an error."""

import pytest

from relay.test_early_words import FAMILY_PROFILES, told
from relay.test_untold_frames import chat_chunk, event
from tables import each
from turnwise.relay.client_exchange import RelayEnd
from turnwise.vocab import ArgumentsState, calls_of
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream


def chat(*pieces: str, id: str | None = None) -> list[bytes]:
    """`id`: said again with each piece."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    again = {} if id is None else {"id": id}
    more = [chat_chunk({"tool_calls": [{"index": 0, **again, "function": {"arguments": piece}}]}) for piece in pieces]
    return [chat_chunk({"tool_calls": [call]}), *more, chat_chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


def messages(*pieces: str) -> list[bytes]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    start = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        event("message_start", message=start),
        event(
            "content_block_start", index=0, content_block={"type": "tool_use", "id": "c1", "name": "look", "input": {}}
        ),
        *[event("content_block_delta", index=0, delta=delta) for delta in deltas],
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]


@pytest.mark.promise("heal:every-case")
@each("early", [False, True])
@each("name", ["openai_chat", "anthropic_messages"])
@each(
    ("pieces", "arguments"),
    [
        (['{"path":', '{"path":"a.txt"}'], None),
        (['{"a":1,"path":', '{"a":1,"path":"a longer text than a continuation needs to find its seam"}'], None),
        (['{"path":', '{"path":"a', '{"path":"a.txt"}'], '{"path":"a.txt"}'),
        (['{"path":', '{"path":"a.txt"}', "}"], '{"path":{"path":"a.txt"}}'),
    ],
)
def test_a_piece_with_two_readings_is_no_call_of_either(
    name: str, early: bool, pieces: list[str], arguments: str | None
) -> None:
    """Proves: a last piece that may be the whole object or a part of it ends in an error, and is not asked to be continued: the
    client got half a call without an error, which a continuation closed around the object. What other pieces tell is read."""
    found = told(name, (chat if name == "openai_chat" else messages)(*pieces), early=early)
    assert isinstance(found.end, RelayEnd)
    assert (found.end.fault is None) is (arguments is not None)
    profile = builtin_profiles()[FAMILY_PROFILES[name]]
    response = read_stream([found.out], family=family(name), profile=profile, tool_names=frozenset({"look"}))
    complete = [call.arguments for call in calls_of(response.message) if call.state is ArgumentsState.COMPLETE]
    assert complete == ([] if arguments is None else [arguments])


@pytest.mark.promise("heal:every-case", "assembly:cumulative")
@each("early", [False, True])
@each("name", ["openai_chat", "anthropic_messages"])
@each(
    ("pieces", "arguments"),
    [
        (["{", '{"path":"a.txt"}'], None),
        (['{"path', '{"path":"a.txt"}'], None),
        (["{", "{", '{"path":"a.txt"}'], None),
        (["{", '{"path":', '"a.txt"}'], None),
        (['{"path', '{"path":"a.txt"}', '{"path":"a.txt"}'], '{"path":"a.txt"}'),
        (['{"pa', '{"path":"a', '{"path":"a.txt"}'], '{"path":"a.txt"}'),
    ],
)
def test_a_client_of_the_gateway_reads_what_the_library_does(
    name: str, early: bool, pieces: list[str], arguments: str | None
) -> None:
    """Proves: two pieces of which one begins with the other are no proof of a provider that says all so far each time: the same
    text in one piece is no JSON. It was run as `{"path":"a.txt"}`; now it is invalid for both, in the words that came."""
    events = (chat if name == "openai_chat" else messages)(*pieces)
    profile = builtin_profiles()[FAMILY_PROFILES[name]]
    found = told(name, events, early=early)
    assert isinstance(found.end, RelayEnd) and found.end.fault is None
    for bytes_read in ([found.out], events):
        response = read_stream(bytes_read, family=family(name), profile=profile, tool_names=frozenset({"look"}))
        [call] = calls_of(response.message)
        complete = call.state is ArgumentsState.COMPLETE
        assert (call.arguments, complete) == (arguments or "".join(pieces), arguments is not None)


@pytest.mark.promise("assembly:cumulative")
@pytest.mark.parametrize("is_one_read", [False, True])
def test_pieces_that_say_the_id_again_are_entries_of_their_own(is_one_read: bool) -> None:
    """Proves: where each piece has the call's id once more, two are enough: so say those who report such a provider."""
    events = chat('{"path', '{"path":"a.txt"}', id="c1")
    profile = builtin_profiles()[FAMILY_PROFILES["openai_chat"]]
    response = read_stream([b"".join(events)] if is_one_read else events, family=family("openai_chat"), profile=profile)
    [call] = calls_of(response.message)
    assert (call.arguments, call.state) == ('{"path":"a.txt"}', ArgumentsState.COMPLETE)
