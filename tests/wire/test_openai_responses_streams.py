"""The Responses event stream: what arrives is read whole, whatever an endpoint or the network does to it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordings import decode, of_family, profile_of
from tables import each
from thoroughness import examples
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
    FinishReason,
    Message,
    Opaque,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    Repair,
    Response,
    Text,
    ToolCall,
    Usage,
    calls_of,
    text_of,
)
from turnwise.wire.faults import too_large
from turnwise.wire.openai_responses import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits
from wire.openai_responses_streams import PROFILE, USAGE, begin, call, call_events, end, event, read

EVERYTHING = [
    begin(),
    event("response.in_progress", response={"id": "resp_1", "model": "gpt-5"}),
    event("response.output_item.added", output_index=0, item={"id": "rs_1", "type": "reasoning", "summary": []}),
    event("response.reasoning_summary_text.delta", output_index=0, summary_index=0, delta="Think "),
    event("response.reasoning_summary_text.delta", output_index=0, summary_index=1, delta="twice ✓"),
    event(
        "response.output_item.done",
        output_index=0,
        item={
            "id": "rs_1",
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Think "}, {"type": "summary_text", "text": "twice ✓"}],
            "encrypted_content": "gAAA",
        },
    ),
    event("response.output_item.added", output_index=1, item={"id": "ws_1", "type": "web_search_call"}),
    event("response.web_search_call.searching", output_index=1, item_id="ws_1"),
    event("response.output_item.done", output_index=1, item={"id": "ws_1", "type": "web_search_call", "n": 1.50}),
    event(
        "response.output_item.added",
        output_index=2,
        item={"id": "msg_1", "type": "message", "role": "assistant", "content": [], "phase": "final_answer"},
    ),
    event("response.content_part.added", output_index=2, content_index=0, part={"type": "output_text", "text": ""}),
    event("response.output_text.delta", item_id="other", output_index=2, content_index=0, delta="Grüße"),
    event(
        "response.output_text.annotation.added",
        output_index=2,
        content_index=0,
        annotation={"type": "url_citation", "url": "https://a.example", "title": "A"},
    ),
    event("response.content_part.added", output_index=2, content_index=1, part={"type": "refusal", "refusal": ""}),
    event("response.refusal.delta", output_index=2, content_index=1, delta="not that"),
    event(
        "response.output_item.done",
        output_index=2,
        item={
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "phase": "final_answer",
            "content": [
                {
                    "type": "output_text",
                    "text": "Grüße",
                    "annotations": [{"type": "url_citation", "url": "https://a.example", "title": "A"}],
                    "logprobs": [],
                },
                {"type": "refusal", "refusal": "not that"},
            ],
        },
    ),
    *call_events(3, arguments='{"path":"a"}'),
    event(
        "response.output_item.added",
        output_index=4,
        item={"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_4", "name": "sql", "input": ""},
    ),
    event("response.custom_tool_call_input.delta", output_index=4, delta="select "),
    event("response.custom_tool_call_input.delta", output_index=4, delta="1"),
    event(
        "response.output_item.done",
        output_index=4,
        item={"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_4", "name": "sql", "input": "select 1"},
    ),
    end(),
]
MESSAGE_FIELDS = Opaque("openai_responses", '{"id":"msg_1","status":"completed","phase":"final_answer"}')
WHOLE = Response(
    id="resp_1",
    may_hide_cut=("call_4",),  # free-form text shows no cut
    model="gpt-5",
    message=Message(
        "assistant",
        (
            Reasoning(
                "Think twice ✓",
                Opaque(
                    "openai_responses",
                    '{"id":"rs_1","summary":[{"type":"summary_text","text":"Think "},'
                    '{"type":"summary_text","text":"twice \\u2713"}],"encrypted_content":"gAAA"}',
                ),
            ),
            ProviderItem("openai_responses", "web_search_call", '{"id":"ws_1","type":"web_search_call","n":1.5}'),
            Text(
                "Grüße",
                (
                    Citation(
                        family="openai_responses",
                        raw='{"type":"url_citation","url":"https://a.example","title":"A"}',
                        url="https://a.example",
                        title="A",
                    ),
                ),
                MESSAGE_FIELDS,
            ),
            Refusal("not that", MESSAGE_FIELDS),
            call(3, arguments='{"path":"a"}'),
            ToolCall(
                id="call_4",
                name="sql",
                arguments="select 1",
                free_form=True,
                opaque=Opaque("openai_responses", '{"id":"ctc_1"}'),
            ),
        ),
    ),
    finish=FinishReason.TOOL_CALLS,
    provider_finish="completed",
    usage=Usage(
        input_tokens=12,
        output_tokens=7,
        reasoning_tokens=3,
        cache_read_tokens=4,
        cache_write_tokens=2,
        provider=USAGE,
    ),
)


@pytest.mark.promise("assembly:kinds", "assembly:order")
def test_every_kind_of_item_becomes_its_part_in_place() -> None:
    """Reasoning, server-side items, texts, refusals, citations, calls of both kinds, with their own fields."""
    assert read(*EVERYTHING) == WHOLE


@pytest.mark.costly
@pytest.mark.promise("assembly:split-anywhere")
def test_no_split_of_the_bytes_changes_a_frame() -> None:
    """Every two pieces, and byte by byte."""
    check_every_split(FAMILY, b"".join(EVERYTHING), profile=PROFILE)


@pytest.mark.promise("assembly:split-anywhere")
def test_framing_does_not_matter() -> None:
    """No `event:` lines, CRLF, comments, padding, unknown events, `[DONE]`, no blank line at the end."""
    plain = b"".join(EVERYTHING)
    without_names = b"\n".join([line for line in plain.split(b"\n") if not line.startswith(b"event:")])
    noisy = plain.replace(
        b"event: response.output_item", b': ping\n\nevent: keepalive\ndata: {"type":"keepalive"}\n\nevent: x'
    )
    for stream in (without_names, noisy, plain.replace(b"\n", b"\r\n"), plain + b"data: [DONE]\n\n", plain.rstrip()):
        assert assemble(decode_stream(FAMILY, [stream], profile=PROFILE)) == WHOLE


@pytest.mark.promise("assembly:interleaved")
def test_interleaved_calls_never_mix() -> None:
    """Blocks are keyed by `output_index`; item ids that change from event to event say nothing."""
    first, second = list(call_events(0, arguments='{"a":1}')), list(call_events(1, arguments='{"b":2}'))
    mixed = [
        piece.replace(b'"item_id":"fc_', b'"item_id":"z') for pair in zip(first, second, strict=True) for piece in pair
    ]
    expected = (call(0, arguments='{"a":1}'), call(1, arguments='{"b":2}'))
    assert read(begin(), *mixed, end()).message.parts == expected


@pytest.mark.promise("assembly:stream-equals-body")
def test_the_final_item_wins_over_its_deltas() -> None:
    """Two recorded streams differ; the assembler records it. An empty final form takes nothing away."""
    item = {"id": "msg_1", "type": "message", "role": "assistant"}

    def streamed(text: str) -> Response:
        return read(
            begin(),
            event("response.output_item.added", output_index=0, item=item | {"content": []}),
            event("response.output_text.delta", output_index=0, content_index=0, delta="helo"),
            event(
                "response.output_item.done",
                output_index=0,
                item=item | {"content": [{"type": "output_text", "text": text, "annotations": []}]},
            ),
            end(),
        )

    assert text_of(streamed("hello").message) == "hello"
    assert [repair.kind for repair in streamed("hello").repairs] == ["final_item_wins"]
    assert text_of(streamed("").message) == "helo"


@pytest.mark.promise("assembly:stream-equals-body", "assembly:whole-in-one")
def test_the_terminal_event_adds_what_no_other_brought() -> None:
    """An item without `output_item.done`, and one without any event; with rotating ids nothing doubles."""
    events = list(call_events(0, arguments='{"a":1}'))
    unseen = {"id": "fc_9", "type": "function_call", "call_id": "call_9", "name": "read", "arguments": "{}"}
    known = {"id": "new", "type": "function_call", "call_id": "call_0", "name": "read", "arguments": '{"a":1}'}
    response = read(begin(), *events[:-2], end(output=[known, unseen]))
    assert [(c.id, c.arguments) for c in calls_of(response.message)] == [("call_0", '{"a":1}'), ("call_9", "{}")]
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    rotating = read(
        begin(),
        event("response.output_item.added", output_index=0, item={"id": "msg_a", **text, "content": []}),
        event("response.output_text.delta", output_index=0, content_index=0, delta="hi"),
        event("response.output_item.done", output_index=0, item={"id": "msg_b", **text}),
        end(output=[{"id": "msg_c", **text}]),
    )
    assert text_of(rotating.message) == "hi"


@pytest.mark.promise("assembly:no-index")
def test_events_without_output_index_go_to_their_item() -> None:
    """By item id, else the newest item."""
    events = [*call_events(0, arguments='{"a":1}'), *call_events(1, arguments='{"b":2}')]
    bare = [piece.replace(b'"output_index":0,', b"").replace(b'"output_index":1,', b"") for piece in events]
    assert read(begin(), *bare, end()).message.parts == (call(0, arguments='{"a":1}'), call(1, arguments='{"b":2}'))


@pytest.mark.parametrize(
    ("piece", "whole", "added", "done"),
    [
        (
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_part.done",
        ),
        ("response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.added", None),
        # Open Responses has words of its own for the same (openresponses-types 2.4).
        ("response.reasoning.delta", "response.reasoning.done", "response.content_part.added", None),
    ],
)
def test_reasoning_is_shown_as_it_comes(piece: str, whole: str, added: str, done: str | None) -> None:
    """Proves: its deltas are shown, and its whole stands where the stream breaks off before the item does."""
    at: dict[str, object] = {"output_index": 0, "content_index": 0, "summary_index": 0, "item_id": "rs_1"}
    part = {"type": "summary_text" if done else "reasoning_text", "text": "Think twice"}
    events = [
        begin(),
        event("response.output_item.added", output_index=0, item={"id": "rs_1", "type": "reasoning", "summary": []}),
        event(added, **at, part=part | {"text": ""}),
        event(piece, **at, delta="Think ", obfuscation="x"),
        event(piece, **at, delta="tw"),
        event(whole, **at, text="Think twice"),
        *([event(done, **at, part=part)] if done else []),
    ]
    frames = decode_stream(FAMILY, [b"".join(events)], profile=PROFILE)
    assert [frame.text for frame in frames if isinstance(frame, ReasoningDelta)] == ["Think ", "tw"]
    assert read(*events, end()).message.parts == (
        Reasoning("Think twice", Opaque("openai_responses", '{"id":"rs_1"}')),
    )


@pytest.mark.promise("assembly:object-args")
def test_arguments_as_an_object_are_taken() -> None:
    """Some gateways send the parsed object; its JSON text is what counts."""
    item = {"id": "fc_0", "type": "function_call", "call_id": "call_0", "name": "read", "arguments": {"a": 1}}
    assert read(begin(), event("response.output_item.done", output_index=0, item=item), end()).message.parts == (
        ToolCall(id="call_0", name="read", arguments='{"a":1}', opaque=Opaque("openai_responses", '{"id":"fc_0"}')),
    )


@pytest.mark.promise("step:incomplete-response", "cut:complete-sibling")
@pytest.mark.parametrize("streamed", [True, False])
def test_an_incomplete_response_keeps_its_whole_call_beside_the_cut_one(*, streamed: bool) -> None:
    """Stream and body alike: the finished call is complete, the one under way is cut."""
    cut = {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "call_1",
        "name": "read",
        "arguments": '{"b":"x',
        "status": "incomplete",
    }
    whole = {
        "id": "fc_0",
        "type": "function_call",
        "call_id": "call_0",
        "name": "read",
        "arguments": '{"a":1}',
        "status": "completed",
    }
    details = {"reason": "max_output_tokens"}
    if streamed:
        events = [*call_events(0, arguments='{"a":1}'), *list(call_events(1, arguments='{"b":"x'))[:-2]]
        done = event("response.output_item.done", output_index=1, item=cut)
        response = read(begin(), *events, done, end("incomplete", incomplete_details=details))
    else:
        body = {"id": "resp_1", "status": "incomplete", "incomplete_details": details, "output": [whole, cut]}
        response = assemble(FAMILY.decode_body(json.dumps(body).encode(), PROFILE, DEFAULT_LIMITS))
    assert (response.finish, response.provider_finish) == (FinishReason.LENGTH, "incomplete:max_output_tokens")
    assert [(c.id, c.arguments, c.state) for c in calls_of(response.message)] == [
        ("call_0", '{"a":1}', ArgumentsState.COMPLETE),
        ("call_1", '{"b":"x', ArgumentsState.TRUNCATED),
    ]


@pytest.mark.promise("step:incomplete-response", "cut:not-blamed")
def test_a_dropped_connection_loses_no_call() -> None:
    """No terminal event: `cut`, with everything that had come, also arguments that stood in `added` only."""
    item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read", "arguments": '{"b":2}'}
    search = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
    response = read(
        begin(),
        *call_events(0, arguments='{"a":1}'),
        event("response.output_item.added", output_index=1, item=item),
        event("response.output_item.added", output_index=2, item=search),
        event("response.output_item.added", output_index=3, item={"id": "rs_1", "type": "reasoning", "summary": []}),
    )
    assert (response.finish, response.provider_finish) == (FinishReason.CUT, None)
    assert [c.arguments for c in calls_of(response.message)] == ['{"a":1}', '{"b":2}']
    assert response.message.parts[2:] == (
        ProviderItem("openai_responses", "web_search_call", json.dumps(search, separators=(",", ":"))),
        Reasoning("", Opaque("openai_responses", '{"id":"rs_1"}')),
    )


@pytest.mark.promise("step:incomplete-response")
@pytest.mark.parametrize(
    ("events", "fault", "word"),
    [
        (
            [
                event("error", error={"type": "x", "code": "insufficient_quota", "message": "No quota"}),
                end("failed", error={"code": "insufficient_quota", "message": "No quota"}),
            ],
            Fault(kind=FaultKind.QUOTA, message="No quota", code="insufficient_quota"),
            "failed",
        ),
        (
            [end("failed", error={"code": "server_error", "message": "Oops"})],
            Fault(kind=FaultKind.SERVER, message="Oops", code="server_error"),
            "failed",
        ),
        (
            [event("error", code="rate_limit_exceeded", message="Slow, try again in 1.5s", param=None)],
            Fault(
                kind=FaultKind.RATE_LIMITED,
                message="Slow, try again in 1.5s",
                code="rate_limit_exceeded",
                retry_after_s=1.5,
            ),
            None,
        ),
        (
            [b'data: {"error":{"message":"upstream broke","code":502}}\n\n'],
            Fault(kind=FaultKind.SERVER, message="upstream broke"),
            None,
        ),
    ],
)
def test_an_error_inside_the_stream_is_a_fault_and_keeps_what_had_come(
    events: list[bytes], fault: Fault, word: str | None
) -> None:
    """`error` in both shapes, `response.failed`, and an error object without a type."""
    response = read(begin(), *call_events(0, arguments='{"a":1}'), *events)
    assert (response.fault, response.finish, response.provider_finish) == (fault, FinishReason.ERROR, word)
    assert response.message.parts == (call(0, arguments='{"a":1}'),)


@pytest.mark.parametrize(
    ("status", "fields", "finish", "word"),
    [
        (
            "incomplete",
            {"incomplete_details": {"reason": "content_filter"}},
            FinishReason.CONTENT_FILTER,
            "incomplete:content_filter",
        ),
        ("incomplete", {"incomplete_details": {"reason": "moon_phase"}}, FinishReason.CUT, "incomplete:moon_phase"),
        ("incomplete", {"incomplete_details": None}, FinishReason.CUT, "incomplete"),
        ("completed", {}, FinishReason.STOP, "completed"),
        ("cancelled", {}, FinishReason.CUT, "cancelled"),
    ],
)
def test_every_status_has_its_finish(status: str, fields: dict[str, object], finish: FinishReason, word: str) -> None:
    """The word is kept; an unknown reason is a cut."""
    response = read(begin(), end(status, **fields))
    assert (response.finish, response.provider_finish) == (finish, word)


def test_a_refusal_alone_finishes_as_one() -> None:
    """The API says `completed`; the items say what it was."""
    item = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    response = read(begin(), event("response.output_item.done", output_index=0, item=item), end())
    assert (response.finish, response.provider_finish) == (FinishReason.REFUSAL, "completed")


def test_the_event_name_says_what_the_data_leaves_out() -> None:
    """Events without a `type` of their own, as a server writes them that trusts the SSE name."""
    events = EVERYTHING
    untyped = [piece.replace(b'data: {"type":"' + _name_of(piece) + b'",', b"data: {") for piece in events]
    assert untyped != events
    assert read(*untyped) == WHOLE


def _name_of(piece: bytes) -> bytes:
    return piece[len(b"event: ") : piece.index(b"\n")]


def test_a_second_beginning_discards_the_first_but_a_changing_id_does_not() -> None:
    """A gateway fell back to another model; another changes the id from event to event (Copilot)."""
    second = begin().replace(b"resp_1", b"resp_2")
    fallback = read(begin(), *call_events(0, arguments="{}"), second, *call_events(0, arguments='{"a":1}'), end())
    assert (fallback.id, fallback.message.parts) == ("resp_2", (call(0, arguments='{"a":1}'),))
    rotating = event("response.in_progress", response={"id": "resp_x", "model": "gpt-5"})
    response = read(begin(), *call_events(0, arguments="{}"), rotating, end())
    assert (response.id, response.message.parts) == ("resp_1", (call(0, arguments="{}"),))


def test_damaged_events_are_read_as_far_as_they_can_be() -> None:
    """Bytes that are not UTF-8, two objects in one event, a broken object: each recorded, nothing guessed."""
    delta = event("response.output_text.delta", output_index=0, content_index=0, delta="a~b")
    response = read(
        begin(),
        delta.replace(b"~", b"\xff"),
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"c"}'
        b'{"type":"response.output_text.delta","output_index":0,"delta":"d"}\n\n',
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"lost\n\n',
        end(),
    )
    assert text_of(response.message) == "a�bcd"
    assert [repair.kind for repair in response.repairs] == ["invalid_utf8", "damaged_event", "event_left_out"]
    assert response.repairs[1] == Repair(
        "damaged_event", "stream", "2 JSON objects in one event read one after the other"
    )


def test_a_plain_body_in_place_of_a_stream_is_read() -> None:
    """A server that ignores `stream`: the answer counts, and the repair is told."""
    item = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    body = json.dumps({"id": "resp_1", "status": "completed", "output": [item]}, indent=1).encode()
    response = assemble(decode_stream(FAMILY, [body[:7], body[7:]], profile=PROFILE))
    assert (text_of(response.message), response.finish) == ("hi", FinishReason.STOP)
    assert [repair.kind for repair in response.repairs] == ["body_for_stream"]


@pytest.mark.promise("assembly:bounded")
def test_lines_and_responses_are_bounded() -> None:
    """Past a limit: one fault, then silence."""
    check_endless_line(FAMILY, b'data: {"type":"response.output_text.delta","delta":"', profile=PROFILE)
    check_long_response(
        FAMILY, event("response.output_text.delta", output_index=0, content_index=0, delta="x" * 50), profile=PROFILE
    )
    limits = Limits(response_bytes=1000)  # a body in place of a stream is kept, so it has the limit of one
    found = decode_stream(FAMILY, [b'{"id":"', *[b"x" * 100] * 20], profile=PROFILE, limits=limits)
    assert [frame.fault.message for frame in found if isinstance(frame, Faulted)] == [too_large(1000).message]


@pytest.mark.parametrize(
    ("blob", "shown"),
    [
        (b"<html><body>502 Bad Gateway</body></html>", "502 Bad Gateway"),
        (b"", "empty"),
        (b"\n\n\n", "empty"),
        (bytes(range(256)), "begins with"),
        (b"[1,2,3]", "[1,2,3]"),
        (b"data: {}\n\n", ""),
        (b"data: [DONE]\n\n", ""),
    ],
)
def test_what_is_no_response_is_a_protocol_fault(blob: bytes, shown: str) -> None:
    """The message shows how it begins."""
    check_foreign_answer_is_a_protocol_fault(FAMILY, blob, profile=PROFILE, shown=shown)


@each(
    "blob",
    [
        b"data: 3\n\n",
        b'data: {"type":3}\n\n',
        b'data: {"type":"response.output_item.done","item":7}\n\n',
        b'data: {"type":"response.output_item.done","output_index":"x","item":{"type":"message","content":[3]}}\n\n',
        b'data: {"type":"response.output_item.added","output_index":-4,"item":{"type":"message","content":{}}}\n\n',
        b'data: {"type":"response.completed","response":{"output":[{"type":"reasoning","summary":[[]]}],"usage":[]}}\n\n',
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":{"a":1}}\n\n',
        b'{"output":[{"type":"message","content":[{"type":"output_text","text":"\\ud800"}]}]}',
        b'{"status":"completed","output":{"a":1},"error":"x"}',
        b'{"output":' + b"[" * 5000,
        b'{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"\\ud800"}]}],"model":"m"}',
    ],
)
def test_foreign_shapes_never_raise(blob: bytes) -> None:
    """As a stream, a body, an error or a request."""
    check_foreign_bytes_never_raise(FAMILY, blob, profile=PROFILE)


WORDS = st.sampled_from(
    """type item output_index content_index delta id call_id name arguments input content text summary annotations output
    status usage error message code role response.output_item.added response.output_item.done response.completed error
    response.output_text.delta response.function_call_arguments.done response.content_part.added function_call reasoning
    custom_tool_call function_call_output output_text input_image image_url model tools text format assistant user""".split()
)
SCALARS = WORDS | st.none() | st.booleans() | st.integers(-3, 3) | st.just("data:image/png;base64,eA==")
SHAPES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4))
EVENTS = st.fixed_dictionaries(
    {"type": WORDS},
    optional={
        "item": SHAPES,
        "response": SHAPES,
        "output_index": SCALARS,
        "delta": SHAPES,
        "part": SHAPES,
        "error": SHAPES,
    },
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=4), SHAPES)
def test_no_shape_makes_a_decoder_raise(events: list[dict[str, object]], body: object) -> None:
    """Known words in any places; as a stream, a body, an error and a request."""
    stream = b"".join([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])
    assert decode_stream(FAMILY, [stream], profile=PROFILE)
    assemble(decode_stream(FAMILY, [stream], profile=PROFILE))
    for blob in (stream, json.dumps(body).encode(), json.dumps({"model": "m", "input": [body]}).encode()):
        check_foreign_bytes_never_raise(FAMILY, blob, profile=PROFILE)


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_make_a_decoder_raise(blob: bytes) -> None:
    """Whatever a socket may hold."""
    check_foreign_bytes_never_raise(FAMILY, blob, profile=PROFILE)


@pytest.mark.promise("assembly:stream-equals-body")
def test_recorded_streams_equal_their_terminal_events_bodies(corpus: Path) -> None:
    """The response object that the provider itself sent at the end, read as a body: same parts, finish and usage."""
    compared = 0
    for row in of_family(corpus, "openai_responses"):
        body = terminal_response(row.path.read_bytes())
        if body is None or "terminal_output_empty" in row.row["quirks"]:
            continue
        streamed, whole = decode(row), assemble(FAMILY.decode_body(body, profile_of(row), DEFAULT_LIMITS))
        assert bare(streamed) == bare(whole), row.file
        compared += 1
    assert compared >= 275


def terminal_response(stream: bytes) -> bytes | None:
    for line in stream.splitlines():
        if line.startswith(b"data:") and b'"response.' in line:
            try:
                found = json.loads(line[5:])
            except ValueError:
                continue
            if found["type"] in ("response.completed", "response.incomplete", "response.failed"):
                return json.dumps(found["response"], ensure_ascii=False).encode()
    return None


def bare(response: Response) -> tuple[object, ...]:
    """Without item ids and encrypted content: gateways change both between an item and its repetition."""
    parts: list[object] = []
    for part in response.message.parts:
        match part:
            case Text(text=text, citations=citations):
                parts.append((text, [json.loads(citation.raw) for citation in citations]))
            case Reasoning(text=text) | Refusal(text=text):
                parts.append((type(part), text))
            case ToolCall():
                parts.append((part.id, part.name, part.arguments, part.state, part.free_form))
            case ProviderItem(kind=kind):
                parts.append(kind)
            case _:
                raise AssertionError(part)
    usage = response.usage and (response.usage.input_tokens, response.usage.output_tokens)
    return (parts, response.finish, response.provider_finish, usage, response.fault)
