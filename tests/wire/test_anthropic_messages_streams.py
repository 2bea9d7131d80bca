"""Answers of the Messages API, streamed and not: every quirk that was seen, and the SDK as the judge of what we write."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.testing.wire_conformance import (
    assemble,
    check_endless_line,
    check_every_split,
    check_foreign_answer_is_a_protocol_fault,
    check_foreign_bytes_never_raise,
    check_long_response,
    decode_stream,
)
from turnwise.vocab import (
    ArgumentsState,
    Citation,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Message,
    Opaque,
    ProviderItem,
    Reasoning,
    Repair,
    Request,
    Response,
    Text,
    ToolCall,
    Usage,
    calls_of,
    text_of,
)
from turnwise.wire.anthropic_messages import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile

NAME = "anthropic_messages"
PROFILE = Profile(name="test", family="anthropic_messages")
REQUEST = Request(model="claude", messages=(Message("user", (Text("hi"),)),))


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events])


def start(**message: Any) -> dict[str, Any]:
    plain = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    return {"type": "message_start", "message": plain | {"usage": {"input_tokens": 5, "output_tokens": 1}} | message}


def opens(index: int | None, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int | None, type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **fields}}


def closes(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ends(word: str, **usage: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    reason = {"stop_reason": word, "stop_sequence": None}
    return {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 9} | usage}, {"type": "message_stop"}


def frames_from(*events: dict[str, Any]) -> list[Frame]:
    return decode_stream(FAMILY, [sse(*events)], profile=PROFILE)


def response_from(*events: dict[str, Any]) -> Response:
    return assemble(frames_from(*events))


def own(**fields: Any) -> Opaque:
    return Opaque(NAME, msgspec.json.encode(fields).decode())


WHOLE = sse(
    start(),
    opens(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Größe"),
    delta(0, "signature_delta", signature="sig"),
    closes(0),
    opens(1, type="text", text=""),
    {"type": "ping"},
    delta(1, "text_delta", text="Let me \u2028 look "),
    delta(1, "text_delta", text="👋"),
    closes(1),
    opens(2, type="tool_use", id="toolu_1", name="read", input={}),
    delta(2, "input_json_delta", partial_json=""),
    delta(2, "input_json_delta", partial_json='{"path": "a'),
    delta(2, "input_json_delta", partial_json='.txt"}'),
    closes(2),
    *ends("tool_use", output_tokens=40, output_tokens_details={"thinking_tokens": 7}, cache_read_input_tokens=3),
)


@pytest.mark.promise("assembly:kinds", "assembly:order")
def test_a_whole_answer_becomes_frames() -> None:
    """Each event as the API sends it, in its block; the usage is merged and counted our way."""
    assert assemble(decode_stream(FAMILY, [WHOLE], profile=PROFILE)) == Response(
        message=Message(
            "assistant",
            (
                Reasoning("Größe", opaque=own(signature="sig")),
                Text("Let me \u2028 look 👋"),
                ToolCall(id="toolu_1", name="read", arguments='{"path": "a.txt"}'),
            ),
        ),
        finish=FinishReason.TOOL_CALLS,
        provider_finish="tool_use",
        usage=Usage(
            input_tokens=8,
            output_tokens=40,
            reasoning_tokens=7,
            cache_read_tokens=3,
            provider='{"input_tokens":5,"output_tokens":40,"output_tokens_details":{"thinking_tokens": 7},'
            '"cache_read_input_tokens":3}',
        ),
        id="msg_1",
        model="claude",
    )


@pytest.mark.promise("assembly:split-anywhere")
def test_the_network_may_cut_anywhere() -> None:
    """Every two pieces and byte by byte, also with CRLF, comments, and without the last blank line."""
    check_every_split(FAMILY, WHOLE, profile=PROFILE)
    crlf = b": hello\r\n\r\n" + WHOLE.replace(b"\n", b"\r\n").rstrip(b"\r\n")
    assert decode_stream(FAMILY, [crlf], profile=PROFILE) == decode_stream(FAMILY, [WHOLE], profile=PROFILE)


def test_a_second_message_start_begins_anew() -> None:
    """A gateway fell back to another model: what came before does not count, and its open blocks are forgotten."""
    response = response_from(
        start(id="msg_1"),
        opens(0, type="tool_use", id="a", name="n", input={"x": 1}),
        start(id="msg_2", usage={"input_tokens": 2, "output_tokens": 0}),
        opens(0, type="text", text=""),
        delta(0, "text_delta", text="hello"),
        closes(0),
        *ends("end_turn"),
    )
    assert (response.id, response.message.parts) == ("msg_2", (Text("hello"),))
    assert response.usage == Usage(input_tokens=2, output_tokens=9, provider='{"input_tokens":2,"output_tokens":9}')


def test_a_call_without_arguments_has_an_empty_object() -> None:
    """`""` pieces say nothing; no piece at all is `{}`."""
    response = response_from(
        start(),
        opens(0, type="tool_use", id="a", name="now", input={}),
        delta(0, "input_json_delta", partial_json=""),
        closes(0),
        *ends("tool_use"),
    )
    assert calls_of(response.message) == (ToolCall(id="a", name="now", arguments="{}"),)


@pytest.mark.parametrize("stops", [True, False])
def test_an_input_that_comes_whole_with_the_start_is_taken_once(stops: bool) -> None:
    """Some compatible servers send the object at once, some without a stop; where deltas follow, they are the input."""
    whole = [opens(0, type="tool_use", id="a", name="n", input={"x": 1})]
    response = response_from(start(), *whole, *([closes(0)] if stops else []), *ends("tool_use"))
    assert calls_of(response.message) == (ToolCall(id="a", name="n", arguments='{"x": 1}'),)
    response = response_from(
        start(), *whole, delta(0, "input_json_delta", partial_json='{"x":2}'), closes(0), *ends("tool_use")
    )
    assert calls_of(response.message) == (ToolCall(id="a", name="n", arguments='{"x":2}'),)


@pytest.mark.promise("cut:never-run")
def test_a_call_cut_by_the_limit_is_truncated() -> None:
    """Streamed pieces that stop inside the JSON, none at all, and an object of a body that ended by its limit."""
    for pieces in ([], [delta(0, "input_json_delta", partial_json='{"path": "a')]):
        opened = opens(0, type="tool_use", id="a", name="n", input={})
        response = response_from(start(), opened, *pieces, closes(0), *ends("max_tokens"))
        assert [call.state for call in calls_of(response.message)] == [ArgumentsState.TRUNCATED]
        assert response.finish is FinishReason.LENGTH
    body = json.dumps(
        {
            "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {"x": 1}}],
            "stop_reason": "max_tokens",
            "usage": {},
        }
    ).encode()
    response = assemble(FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS))
    assert [call.state for call in calls_of(response.message)] == [ArgumentsState.TRUNCATED]


def test_items_without_a_word_of_ours_are_whole_and_in_place() -> None:
    """A server-side call gets its input, its result comes whole, a compaction its content; order as sent."""
    response = response_from(
        start(),
        opens(0, type="compaction", content=None),
        delta(0, "compaction_delta", content="sum", encrypted_content="e"),
        closes(0),
        opens(1, type="server_tool_use", id="srv", name="web_search", input={}),
        delta(1, "input_json_delta", partial_json='{"query":'),
        delta(1, "input_json_delta", partial_json=' "q"}'),
        closes(1),
        opens(2, type="web_search_tool_result", tool_use_id="srv", content=[{"url": "u"}]),
        closes(2),
        opens(3, type="text", text="", citations=[]),
        delta(3, "citations_delta", citation={"type": "web_search_result_location", "url": "u", "cited_text": "c"}),
        delta(3, "text_delta", text="found"),
        closes(3),
        opens(4, type="something_new", payload=1),
        closes(4),
        *ends("pause_turn"),
    )
    parts = response.message.parts
    assert [(part.kind, json.loads(part.json)) for part in parts if isinstance(part, ProviderItem)] == [
        ("compaction", {"type": "compaction", "content": "sum", "encrypted_content": "e"}),
        ("server_tool_use", {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}}),
        ("web_search_tool_result", {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"url": "u"}]}),
        ("something_new", {"type": "something_new", "payload": 1}),
    ]
    citation = '{"type": "web_search_result_location", "url": "u", "cited_text": "c"}'
    assert parts[3] == Text("found", citations=(Citation(family=NAME, raw=citation, url="u", cited_text="c"),))
    assert response.finish is FinishReason.PAUSE


def test_redacted_thinking_and_unknown_fields_go_back_unchanged() -> None:
    """Data that we cannot read, and fields of blocks that we have no word for, stay with their part."""
    response = response_from(
        start(),
        opens(0, type="redacted_thinking", data="enc"),
        closes(0),
        opens(
            1, type="tool_use", id="a", name="n", input={}, caller={"type": "code_execution_20260120", "tool_id": "s"}
        ),
        closes(1),
        *ends("tool_use"),
    )
    assert response.message.parts == (
        Reasoning("", opaque=own(data="enc")),
        ToolCall(
            id="a", name="n", opaque=Opaque(NAME, '{"caller":{"type": "code_execution_20260120", "tool_id": "s"}}')
        ),
    )
    call = FAMILY.encode_request(Request(model="m", messages=(response.message, REQUEST.messages[0])), PROFILE)
    assert json.loads(call.body)["messages"][0]["content"] == [
        {"type": "redacted_thinking", "data": "enc"},
        {
            "type": "tool_use",
            "id": "a",
            "name": "n",
            "input": {},
            "caller": {"type": "code_execution_20260120", "tool_id": "s"},
        },
    ]


def test_a_call_by_the_model_itself_says_nothing_of_its_caller() -> None:
    """It is what the API takes where nothing is said, so servers that do not know the field are not sent it."""
    response = response_from(
        start(),
        opens(0, type="tool_use", id="a", name="n", input={}, caller={"type": "direct"}),
        closes(0),
        *ends("tool_use"),
    )
    assert response.message.parts == (ToolCall(id="a", name="n"),)


@pytest.mark.parametrize("index", [0, None])
def test_blocks_that_all_have_one_index_are_told_apart(index: int | None) -> None:
    """A gateway that numbers every block 0, or none: a new start is a new block, and the repair is recorded."""
    response = response_from(
        start(),
        opens(index, type="text", text=""),
        delta(index, "text_delta", text="a"),
        opens(index, type="tool_use", id="a", name="n", input={}),
        delta(index, "input_json_delta", partial_json='{"x":1}'),
        *ends("tool_use"),
    )
    assert response.message.parts == (Text("a"), ToolCall(id="a", name="n", arguments='{"x":1}'))
    assert [repair.kind for repair in response.repairs] == ["index_reused"]


def test_an_error_event_is_a_fault_and_keeps_what_came() -> None:
    """Overloaded in mid-stream: the kind that a retry judges by."""
    response = response_from(
        start(),
        opens(0, type="text", text=""),
        delta(0, "text_delta", text="half"),
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"},
    )
    assert response.fault == Fault(
        kind=FaultKind.OVERLOADED, message="Overloaded", code="overloaded_error", request_id="req_1"
    )
    assert text_of(response.message) == "half"


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"explanation": "blocked"}, "blocked"),
        ({"category": "cyber", "explanation": "blocked"}, "blocked (category `cyber`)"),
        ({"category": "bio", "recommended_model": "m-1"}, "(category `bio`, recommended model `m-1`)"),
        ({"category": None, "explanation": "no", "recommended_model": "m-1"}, "no (recommended model `m-1`)"),
        ({"category": None}, None),
    ],
)
def test_why_it_refused_is_kept(details: dict[str, object], said: str | None) -> None:
    """Proves: `stop_details` gives the provider's sentence, the category and the model that it recommends; they are not the
    model's text."""
    delta = {"stop_reason": "refusal", "stop_details": {"type": "refusal", **details}}
    frames = frames_from(start(), {"type": "message_delta", "delta": delta})
    assert frames[-1] == Finished(FinishReason.REFUSAL, provider_reason="refusal", explanation=said)


@each("word", FAMILY.finish_reasons)
def test_every_stop_reason_has_its_finish(word: str) -> None:
    """The table; a word that is new ends the response without a promise, and is kept."""
    frames = frames_from(start(), *ends(word))
    assert frames[-1] == Finished(FAMILY.finish_reasons[word], provider_reason=word)
    assert frames_from(start(), *ends("brand_new"))[-1] == Finished(FinishReason.STOP, provider_reason="brand_new")


@pytest.mark.promise("assembly:no-done", "assembly:split-anywhere")
def test_what_does_not_belong_changes_nothing() -> None:
    """Pings, a `[DONE]`, unknown events, unknown deltas, a repeated end: the same answer without a repair."""
    plain = [start(), opens(0, type="text", text=""), delta(0, "text_delta", text="a"), closes(0), *ends("end_turn")]
    odd = [
        *plain[:2],
        {"type": "ping"},
        {"type": "brand_new_event", "x": [1]},
        delta(0, "brand_new_delta", x=1),
        *plain[2:],
        *ends("end_turn"),
    ]
    assert assemble(
        decode_stream(FAMILY, [sse(*odd) + b"event: data\ndata: [DONE]\n\n"], profile=PROFILE)
    ) == response_from(*plain)


# --- bytes that are wrong


NAMED = b"event: content_block_delta\n"


def test_broken_events_are_mended_or_left_out() -> None:
    """Bytes that are no UTF-8, a lone surrogate, two objects in one event, an index as text, JSON that stops."""
    pieces = [
        sse(start(), opens(0, type="text", text="")),
        NAMED + b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\xff"}}\n\n',
        NAMED + b'data: {"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"b\\ud800"}}\n\n',
        NAMED + b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"c"}}'
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"d"}}\n\n',
        b'data: {"type":"content_block_del\n\n',
        NAMED + b'data: {"type":"content_block_delta","index":0,"delta":"x"}\n\n',
        sse(closes(0), *ends("end_turn")),
    ]
    frames = decode_stream(FAMILY, pieces, profile=PROFILE)
    assert text_of(assemble(frames).message) == "a\ufffdb\ufffdcd"
    told = [frame for frame in frames if isinstance(frame, Mended | Lost)]
    assert [(type(frame), frame.repair.kind) for frame in told] == [
        (Lost, "invalid_utf8"),
        (Mended, "unreadable_json"),
        (Mended, "glued_json"),
        (Lost, "unreadable_event"),
        (Mended, "unreadable_json"),
        (Lost, "unreadable_event"),
    ]
    assert told[3].repair == Repair(
        "unreadable_event", "event", 'left out an event that is no JSON: {"type":"content_block_del'
    )


@pytest.mark.parametrize(
    ("blob", "shown"),
    [
        (b"", "the response was empty"),
        (b"<!DOCTYPE html><html>\x00<b>Bad gateway", "<!DOCTYPE html><html> <b>Bad gateway"),
        (b"\x00\x01\xff\xfe" * 50, "what came begins with:"),
        (b"event: x\n\n: nothing\n\n", "what came begins with:"),
        (b"[1, 2]", "[1, 2]"),
        (b'{"id": "x"}', '{"id": "x"}'),
        (b"data: hello\n\n", "data: hello"),
    ],
)
def test_what_is_no_answer_is_said_to_be_none(blob: bytes, shown: str) -> None:
    """The fault shows how it began."""
    check_foreign_answer_is_a_protocol_fault(FAMILY, blob, profile=PROFILE, shown=shown)


@given(st.binary(max_size=60) | st.text('{}[]":,a0\n data:event', max_size=60).map(str.encode))
def test_no_bytes_raise(blob: bytes) -> None:
    """Whatever arrives."""
    check_foreign_bytes_never_raise(FAMILY, blob, profile=PROFILE)


@given(st.integers(0, len(WHOLE)), st.binary(max_size=5), st.integers(0, 20))
def test_no_damage_to_a_stream_raises(at: int, inserted: bytes, lost: int) -> None:
    """A healthy stream with bytes lost and others put in."""
    check_foreign_bytes_never_raise(FAMILY, WHOLE[:at] + inserted + WHOLE[at + lost :], profile=PROFILE)


@pytest.mark.promise("assembly:bounded")
def test_nothing_grows_without_bound() -> None:
    """A line without end, and a response without end."""
    check_endless_line(FAMILY, sse(start()) + b"data: ", profile=PROFILE)
    check_long_response(FAMILY, sse(delta(0, "text_delta", text="x" * 50)), profile=PROFILE)


def test_a_server_that_streams_or_not_against_our_wish_is_understood() -> None:
    """A body in place of a stream, and a stream in place of a body."""
    body = FAMILY.encode_body(assemble(decode_stream(FAMILY, [WHOLE], profile=PROFILE)), REQUEST)
    pieces = [body[:30], body[30:]]
    assert decode_stream(FAMILY, pieces, profile=PROFILE) == FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS)
    assert FAMILY.decode_body(WHOLE, PROFILE, DEFAULT_LIMITS) == decode_stream(FAMILY, [WHOLE], profile=PROFILE)
    fault = json.dumps({"type": "error", "error": {"type": "api_error", "message": "m"}}).encode()
    expected: list[Frame] = [Faulted(Fault(kind=FaultKind.SERVER, message="m", code="api_error"))]
    assert decode_stream(FAMILY, [fault], profile=PROFILE) == expected


def test_a_message_that_stops_without_a_stop_reason_did_not_break_off() -> None:
    """Proves: the end mark is told of where no reason came before it, and only there."""
    said = [start(), opens(0, type="text", text="a"), closes(0)]
    whole = decode_stream(FAMILY, [sse(*said, {"type": "message_stop"}, {"type": "message_stop"})], profile=PROFILE)
    marked = Repair("no_finish_reason", "response", "it ended with `message_stop`, without a word about why")
    assert [frame for frame in whole if isinstance(frame, Mended)] == [Mended(marked)]
    assert assemble(whole).finish is FinishReason.CUT
    for end in ([], ends("end_turn"), [{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}]):
        frames = decode_stream(FAMILY, [sse(*said, *end)], profile=PROFILE)
        assert not any(isinstance(frame, Mended) for frame in frames)


@pytest.mark.promise("step:bound-thinking")
def test_thinking_that_was_left_out_is_told() -> None:
    """At the start; and at the end, where another model took over in the middle."""
    dropped = {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"}
    allowed = {"type": "thinking_mismatch_allowed", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"}
    told, stop = ends("end_turn")
    begun = start(input_transformations=[dropped, dropped, {"type": "next_year"}])
    found = response_from(begun, told | {"input_transformations": [allowed]}, stop).repairs
    assert [(one.kind, one.where) for one in found] == [
        ("thinking_dropped", "messages.1.content.0"),
        ("thinking_stale", "messages.3.content.0"),
    ]
    assert found[0].what.endswith("2 x prefix_binding_mismatch")
