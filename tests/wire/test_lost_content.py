"""What of a response is lost on the way is told by kinds that the chair knows; what only looks odd is not."""

import pytest

from turnwise.drivers.decoding import read_body, read_stream
from turnwise.vocab import text_of
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.registry import family as family_named

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


@pytest.mark.parametrize(("family", "lost", "kind"), LOSSES)
def test_a_piece_that_is_lost_is_told_as_such(family: str, lost: bytes, kind: str) -> None:
    """Proves: what came before and behind it is kept, and the response says that something is lost."""
    begin, end = WHOLE[family]
    response = read_stream([begin, lost, end], family=family_named(family), profile=builtin_profiles()[family])
    assert text_of(response.message).startswith("a")
    assert [repair.kind for repair in response.repairs] == [kind]
    assert response.lost


@pytest.mark.parametrize("family", WHOLE)
@pytest.mark.parametrize("noise", [b"data: ping\n\n", b"data: : still working\n\n"])
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
def test_a_damaged_body_says_whether_something_of_it_is_lost(body: bytes, kind: str) -> None:
    """Proves: what stands behind the body counts as lost; a control character in a string does not."""
    family = family_named("openai_responses")
    response, _ = read_body(body, family=family, profile=builtin_profiles()["openai_responses"])
    assert text_of(response.message).startswith("h")
    assert [repair.kind for repair in response.repairs] == [kind]
    assert response.lost == (kind != "loose_body")
