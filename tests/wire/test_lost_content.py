"""What of a response is lost on the way is told by kinds that the chair knows; what only looks odd is not."""

import pytest

from tables import each
from turnwise.assembly.response_reading import read_body
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    Finished,
    FinishReason,
    Request,
    Started,
    ToolCallDelta,
    calls_of,
    text_of,
)
from turnwise.wire.family import family as family_named
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

CHAT = b'data: {"id":"c","choices":[{"index":0,"delta":%s}]}\n\n'
CHAT_END = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
ANTHROPIC = b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}\n\n'
ANTHROPIC_END = b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
RESPONSES = b'data: {"type":"response.output_text.delta","output_index":0,"delta":%s}\n\n'
RESPONSES_END = b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'
GEMINI = b'data: {"candidates":[{"content":{"parts":[{"text":%s}]}}]}\n\n'
GEMINI_END = b'data: {"candidates":[{"finishReason":"STOP"}]}\n\n'
WHOLE = {
    "openai_chat": (CHAT % b'{"content":"a"}', CHAT_END),
    "anthropic_messages": (ANTHROPIC % b'"a"', ANTHROPIC_END),
    "openai_responses": (RESPONSES % b'"a"', RESPONSES_END),
    "gemini": (GEMINI % b'"a"', GEMINI_END),
}
LOSSES = [
    ("openai_chat", b'data: {"id":"c","choi\n\n', "chunk_skipped"),
    ("openai_chat", CHAT % b'{"content":{"odd":"b"}}', "content_skipped"),
    ("anthropic_messages", b'data: {"type":"content_block_del\n\n', "unreadable_event"),
    ("anthropic_messages", ANTHROPIC % b"5.5.5", "unreadable_event"),
    ("openai_responses", b'data: {"type":"response.output_te\n\n', "event_left_out"),
    ("openai_responses", b'data: {"type":"response.in_progress"} and "more\n\n', "event_left_out"),
    ("gemini", b'data: {"candidates":[{"con\n\n', "undecodable_chunk"),
    ("gemini", b'data: {"candidates":[{"content":{"parts":[{"text":5}]}}]}\n\n', "undecodable_chunk"),
    *[(family, whole[0].replace(b'"a"', b'"\xff"'), "invalid_utf8") for family, whole in WHOLE.items()],
]


@each(("family", "lost", "kind"), LOSSES)
def test_a_piece_that_is_lost_is_told_as_such(family: str, lost: bytes, kind: str) -> None:
    """Proves: what came before and behind it is kept, and the response says that something is lost."""
    begin, end = WHOLE[family]
    response = read_stream([begin, lost, end], family=family_named(family), profile=builtin_profiles()[family])
    assert text_of(response.message).startswith("a")
    assert [repair.kind for repair in response.repairs] == [kind]
    assert response.lost


@each("family", WHOLE)
@each("noise", [b"data: ping\n\n", b"data: : still working\n\n"])
def test_a_keep_alive_that_is_no_json_loses_nothing(family: str, noise: bytes) -> None:
    """Proves: bare words that some gateways send as data leave the answer complete; they are told all the same."""
    begin, end = WHOLE[family]
    response = read_stream([begin, noise, end], family=family_named(family), profile=builtin_profiles()[family])
    assert (text_of(response.message), [repair.kind for repair in response.repairs]) == ("a", ["noise_skipped"])
    assert not response.lost


BODY = b'{"id":"r","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (BODY + b' {"output', "damaged_body"),
        (BODY + BODY, "damaged_body"),
        (BODY.replace(b"hi", b"h\xff"), "invalid_utf8"),
        (BODY.replace(b"hi", b"h\n"), "loose_body"),
    ],
)
def test_a_damaged_body_says_that_something_of_it_is_lost(body: bytes, kind: str) -> None:
    """Proves: what stands behind the body counts as lost, and so does a line break in a string, which tore it."""
    family = family_named("openai_responses")
    response, _ = read_body(body, family=family, profile=builtin_profiles()["openai_responses"])
    assert text_of(response.message).startswith("h")
    assert [repair.kind for repair in response.repairs] == [kind]
    assert response.lost


ARGUMENTS = ('{"path":"/srv/', "old/", 'x"}')
NAMES = {
    "openai_chat": (b'"choices"', b'"delta"', b'"tool_calls"', b'"arguments"'),
    "anthropic_messages": (b'"type"', b'"delta"', b'"partial_json"', b"input_json_delta", b"content_block_delta"),
    "openai_responses": (b'"type"', b'"delta"', b"arguments.delta"),
}


def call_stream(family: str) -> list[bytes]:
    """A call in three pieces, as the family's own encoder writes it; Responses without its wholes."""
    encoder = family_named(family).stream_encoder(Request(model="m", messages=()))
    frames = [
        Started("r"),
        ToolCallDelta(block="0", index=0, id="c", name="remove"),
        *[ToolCallDelta(block="0", index=0, arguments=piece) for piece in ARGUMENTS],
        BlockEnded("0"),
        Finished(FinishReason.TOOL_CALLS, None),
    ]
    whole = b"".join([encoder.encode(frame) for frame in frames] + [encoder.finish()])
    events = [event + b"\n\n" for event in whole.split(b"\n\n") if event]
    return [event for event in events if b".done" not in event and b"response.completed" not in event]


@pytest.mark.promise("assembly:lost-piece")
@each(("family", "name"), [(family, name) for family, names in NAMES.items() for name in names])
@each("control", [b"\x00", b"\x01", b"\t", b"\x1b"])
def test_a_control_character_in_a_name_is_a_loss(family: str, name: bytes, control: bytes) -> None:
    """Source: two testers. The event is no JSON, and a decoder that passes over unknown keys does not see it."""
    events = call_stream(family)
    at = next(i for i, event in enumerate(events) if b"old/" in event)
    events[at] = events[at].replace(name, name[:3] + control + name[3:])
    response = read_stream(events, family=family_named(family), profile=builtin_profiles()[family])
    assert response.lost
    assert [call.state for call in calls_of(response.message)] == [ArgumentsState.LOST]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "torn",
    [
        b'event: ping\ndata: {"type": "pial_json":"old/"}}\n\n',
        b'event: ping\ndata: {"tytype":"input_json_delta","partial_json":"old/"}}\n\n',
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":null}\n\n',
        b': OPENROUTER PROCESSIN{"type":"content_block_delta","index":0,"delta":{}}\n\n',
    ],
)
def test_the_rest_of_a_piece_under_another_name_is_a_loss(torn: bytes) -> None:
    """Source: a tester. Bytes lost between a ping and a delta leave the delta's end under the ping's name."""
    events = [torn if b"old/" in event else event for event in call_stream("anthropic_messages")]
    response = read_stream(
        events, family=family_named("anthropic_messages"), profile=builtin_profiles()["anthropic_messages"]
    )
    assert [call.state for call in calls_of(response.message)] == [ArgumentsState.LOST]


@pytest.mark.promise("assembly:lost-piece")
def test_calls_that_begin_in_one_place_before_their_pieces_do_not_run() -> None:
    """Source: a tester. A gateway with one index for everything: nobody can tell whose pieces came."""
    start = (
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"%s","name":"%s"}}\n\n'
    )
    piece = (
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}\n\n'
    )
    response = read_stream(
        [start % (b"t1", b"remove"), start % (b"t2", b"list"), piece, ANTHROPIC_END],
        family=family_named("anthropic_messages"),
        profile=builtin_profiles()["anthropic_messages"],
    )
    assert [call.state for call in calls_of(response.message)] == [ArgumentsState.LOST] * 2


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("delta", [b"5", b"null", b'{"a":1}', b'["old/"]'])
def test_a_piece_of_the_wrong_kind_is_a_loss(delta: bytes) -> None:
    """Source: two testers. A known event of Responses that brings no text has lost it."""
    events = [event.replace(b'"old/"', delta) for event in call_stream("openai_responses")]
    response = read_stream(
        events, family=family_named("openai_responses"), profile=builtin_profiles()["openai_responses"]
    )
    assert [call.state for call in calls_of(response.message)] == [ArgumentsState.LOST]
