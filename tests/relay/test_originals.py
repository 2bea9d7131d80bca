"""What official clients cannot read does not pass as it came, although our decoders understand it.

Each event is from a recorded stream; tests/gateway/test_recorded_streams.py has the clients themselves as judges.
"""

from collections.abc import Sequence

import pytest

from tables import each
from turnwise.assembly.response_reading import ResponseReader
from turnwise.relay.client_exchange import as_for_another
from turnwise.relay.client_stream import ClientStream, is_stray, reads_original
from turnwise.vocab import FinishReason, Message, Request, Response, Text
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.relay_facts import relay_facts

pytestmark = pytest.mark.promise("heal:every-case")
CREATED = b'data: {"type":"response.created","response":{"id":"resp_1","output":[]}}\n\n'
CLEAR = {
    "openai_chat": [
        b'data: {"choices":[{"index":0,"delta":{"content":"a \\"content\\":[ text"}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[]}}]}\n\n',
        b'data: {"choices":[],"usage":{}}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"type":"function","function":{"name":"f"}}]}}]}\n\n',
        b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"","arguments":"{"}}]}}]}\n\n',
        b": comment\n\n",
        b"data: [DONE]\n\n",
    ],
    "openai_responses": [
        b": comment\n\n",
        CREATED,
        b'data: {"type":"response.in_progress","response":{"id":"resp_1"}}\n\n',
        b'data: {"type":"response.content_part.added","item_id":"i","content_index":0}\n\n',
        b'data: {"type":"response.content_part.added","item_id":"i","content_index":1}\n\n',
    ],
    "anthropic_messages": [b'data: {"type":"ping"}\n\n'],
    "gemini": [b'data: {"candidates":[]}\r\n\r\n'],
}
UNCLEAR = {
    "parts in place of a text": (
        "openai_chat",
        [b'data: {"choices":[{"delta":{"role":"assistant","content":[{}]}}]}\n\n'],
    ),
    "no delta": ("openai_chat", [b'data: {"choices":[{"finish_reason":null,"index":0}]}\n\n']),
    "no type": (
        "openai_chat",
        [b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}\n\n'],
    ),
    "type null": ("openai_chat", [b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"type":null}]}}]}\n\n']),
    "another id": (
        "openai_responses",
        [CREATED, b'data: {"type":"response.in_progress","response":{"id":"resp_2"}}\n\n'],
    ),
    "a part that skips a number": (
        "openai_responses",
        [CREATED, b'data: {"type":"response.content_part.added","item_id":"i","content_index":1}\n\n'],
    ),
    "no beginning": ("openai_responses", [b'data: {"type":"response.output_item.added"}\n\n']),
    "a beginning that is no JSON": ("openai_responses", [b'data: {"type":"response.created","response":{\n\n']),
    "an array": ("gemini", [b'[{"candidates":[]}\r\n,']),
}


def are_read(name: str, events: Sequence[bytes]) -> list[bool]:
    reads = relay_facts(name).client_reading()
    return [reads_original(raw, reads=reads) for raw in events]


@pytest.mark.parametrize("name", CLEAR)
def test_usual_events_are_clear(name: str) -> None:
    """What a family's API sends passes, and a text about such fields, too."""
    assert are_read(name, CLEAR[name]) == [True] * len(CLEAR[name])
    assert not any(is_stray(raw, facts=relay_facts(name)) for raw in CLEAR[name])


@each("why", UNCLEAR)
def test_what_a_client_trips_over_is_not_clear(why: str) -> None:
    """Each makes the vendor's client raise, or lose a piece; everything behind it is written anew, too."""
    name, events = UNCLEAR[why]
    assert are_read(name, events) == [True] * (len(events) - 1) + [False]


def test_an_end_mark_of_another_family_is_stray() -> None:
    """Anthropic's and Google's clients try to read `[DONE]` as JSON."""
    mark = b"event: data\ndata: [DONE]\n\n"
    assert {name: is_stray(mark, facts=relay_facts(name)) for name in CLEAR} == {
        "openai_chat": False,
        "openai_responses": False,
        "anthropic_messages": True,
        "gemini": True,
    }


def test_a_last_event_without_output_does_not_tell_the_message() -> None:
    """Codex's backend leaves the output of `response.completed` empty, and the client takes its answer from there."""
    last = b'data: {"type":"response.completed","response":{"id":"r","output":[%s]}}\n\n'
    tells = relay_facts("openai_responses").end_tells
    assert (tells(last % b""), tells(last % b"{}"), tells(last.replace(b"completed", b"created") % b"")) == (
        False,
        True,
        True,
    )


def test_nothing_passes_behind_the_end_of_a_message() -> None:
    """Our decoder is deaf behind the end, while a client would read the second copy of a response."""
    stream = (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
        b'"content":[],"model":"c","usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text"}}\n\n'
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n'
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}\n\n'
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )
    here = family("anthropic_messages")
    reader = ResponseReader(here, profile=builtin_profiles()["anthropic_messages"])
    client = ClientStream(here, request=Request(model="c", messages=(), stream=True), passes=True, counts=True)
    out: list[bytes] = []
    for event in (stream * 2).split(b"\n\n")[:-1]:
        frames = reader.decode(event + b"\n\n")
        out.append(client.take(event + b"\n\n", frames, reader.heal(frames)))
    out.append(client.settle(reader.finish(), is_altered=False))
    assert b"".join(out) == stream


def test_a_word_for_the_end_stays_in_its_family() -> None:
    """`completed` of Responses is no finish reason of Chat; a refusal that only a word tells is not an ordinary end elsewhere."""
    said = Message("assistant", (Text("No."),))
    plain = as_for_another(Response(message=said, finish=FinishReason.STOP, provider_finish="completed"))
    assert (plain.finish, plain.provider_finish) == (FinishReason.STOP, None)
    refused = as_for_another(Response(message=said, finish=FinishReason.REFUSAL, provider_finish="refusal"))
    assert (refused.finish, refused.provider_finish) == (FinishReason.CONTENT_FILTER, None)


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
def test_a_byte_order_mark_is_not_passed_on(family: str) -> None:
    """Proves: a client that takes it for a part of the first line would lose the first event."""
    event = b'data: {"type":"response.created","response":{"id":"r"}}\n\n'
    assert are_read(family, [event]) == [True] and are_read(family, [b"\xef\xbb\xbf" + event]) == [False]
