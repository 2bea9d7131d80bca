"""Chat Completions answers, streamed and not: every shape that endpoints were seen to send, and the SDK as the judge."""

import json
import string
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import recordings
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
    BlockData,
    Citation,
    Fault,
    Faulted,
    FaultKind,
    File,
    Finished,
    FinishReason,
    Mended,
    Opaque,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, builtin_profiles
from wire.openai_chat_streams import (
    END,
    PROFILE,
    STOP,
    body,
    call,
    delta,
    frames,
    respond,
    respond_to_body,
    stream_of,
)

# The pieces of a stream


def test_a_call_fragment_is_passed_on_as_it_stood_there() -> None:
    """Null, missing and empty are kept apart: the assembler judges them, the decoder does not."""
    assert frames(
        call(index=0, id="call_1", type="function", function={"name": "read", "arguments": ""}),
        call(index=0, id="", function={"name": "", "arguments": '{"a'}),
        call(index=None, id=None, function={"name": None, "arguments": None}),
        call(function={"arguments": '":1}'}),
        call(index=3),
    ) == [
        ToolCallDelta(index=0, id="call_1", name="read", arguments=""),
        ToolCallDelta(index=0, id="", name="", arguments='{"a'),
        ToolCallDelta(index=None, id=None, name=None, arguments=None),
        ToolCallDelta(arguments='":1}'),
        ToolCallDelta(index=3),
    ]


@pytest.mark.promise("assembly:object-args")
def test_arguments_sent_as_an_object_are_whole() -> None:
    """The JSON text of the object, marked `whole`; no other repair is told, the assembler tells this one."""
    assert frames(call(index=0, id="a", function={"name": "f", "arguments": {"q": "é", "n": [1, 2.5, None]}})) == [
        ToolCallDelta(index=0, id="a", name="f", arguments='{"q":"é","n":[1,2.5,null]}', whole=True)
    ]


def test_a_free_form_call_has_its_input_as_arguments() -> None:
    """OpenAI's custom tools: `custom.input` in place of `function.arguments`."""
    custom = {"name": "patch", "input": "*** Begin"}
    assert frames(call(index=0, id="a", type="custom", custom=custom)) == [
        ToolCallDelta(index=0, id="a", name="patch", arguments="*** Begin", free_form=True)
    ]
    answer = respond_to_body(content=None, tool_calls=[{"id": "a", "type": "custom", "custom": custom}])
    assert answer.message.parts == (ToolCall(id="a", name="patch", arguments="*** Begin", free_form=True),)


def test_the_legacy_function_call_is_a_call_like_any_other() -> None:
    """`function_call`, in deltas and in messages, before `tool_calls` came."""
    streamed = respond(
        delta({"function_call": {"name": "f", "arguments": ""}}),
        delta({"function_call": {"arguments": '{"a":'}}),
        delta({"function_call": {"arguments": "1}"}}),
        delta({}, "function_call"),
    )
    whole = respond_to_body(content=None, function_call={"name": "f", "arguments": '{"a":1}'})
    assert [(part.name, part.arguments) for part in streamed.message.parts if isinstance(part, ToolCall)] == [
        ("f", '{"a":1}')
    ]
    assert streamed.message == whole.message
    assert streamed.finish is FinishReason.TOOL_CALLS


def test_gemini_signatures_stay_with_their_call() -> None:
    """Gemini's compatible endpoint wants `extra_content` of a call back, else it refuses the next request."""
    extra = {"google": {"thought_signature": "c2ln"}}
    fields = {"id": "a", "type": "function", "extra_content": extra, "function": {"name": "f", "arguments": "{}"}}
    expected = ToolCall(
        id="a", name="f", opaque=Opaque("openai_chat", '{"extra_content":{"google":{"thought_signature":"c2ln"}}}')
    )
    assert respond(call(index=0, **fields), END).message.parts == (expected,)
    assert respond_to_body(content=None, tool_calls=[fields]).message.parts == (expected,)


@pytest.mark.parametrize("message", [None, "missing"])
def test_a_delta_that_is_null_or_missing_says_nothing(message: str | None) -> None:
    chunk = delta(None, "stop")
    if message == "missing":
        del chunk["choices"][0]["delta"]
    assert frames(delta({"content": "a"}), chunk) == [TextDelta("a"), STOP]


def test_a_whole_message_in_a_chunk_is_not_counted_beside_its_delta() -> None:
    """Perplexity sends both: `delta` with the piece, `message` with everything so far."""
    assert frames(
        delta({"content": "Hel"}, message={"role": "assistant", "content": "Hel"}),
        delta({"content": "lo"}, message={"role": "assistant", "content": "Hello"}),
        delta({"content": ""}, "stop", message={"role": "assistant", "content": "Hello"}),
    ) == [TextDelta("Hel"), TextDelta("lo"), STOP]


def test_a_whole_message_in_place_of_a_delta_is_the_final_form() -> None:
    """Some gateways send the message once more at the end, or in a single chunk."""
    end = delta(None, "stop", message={"content": "Hello", "tool_calls": None})
    assert frames(delta({"content": "Hel"}), end) == [TextDelta("Hel"), PartDone("text", Text("Hello")), STOP]
    tools = [{"id": "a", "function": {"name": "f", "arguments": '{"a":1}'}}]
    only = delta({}, "tool_calls", message={"content": "Hello", "tool_calls": tools})
    assert respond(only).message.parts == (Text("Hello"), ToolCall(id="a", name="f", arguments='{"a":1}'))
    again = respond(call(index=0, **tools[0]), delta(None, "tool_calls", message={"tool_calls": tools}))
    assert again.message.parts == (ToolCall(id="a", name="f", arguments='{"a":1}'),)


def test_content_as_typed_parts_is_text_and_reasoning() -> None:
    """Mistral: `content` is a list as soon as the model thinks."""
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}]
    assert frames(
        delta({"content": thinking}),
        delta({"content": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}]}),
        delta({"content": "b"}, "stop"),
    ) == [ReasoningDelta("hm"), TextDelta("a"), TextDelta("b"), STOP]


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"content": [{"type": "thinking", "thinking": "hm"}], "reasoning_content": "hm"},
    ],
    ids=["reasoning_content", "reasoning", "both", "content too"],
)
def test_reasoning_is_counted_once_wherever_it_stands(fields: dict[str, Any]) -> None:
    assert frames(delta(fields), delta(fields)) == [ReasoningDelta("hm"), ReasoningDelta("hm")]


def test_reasoning_stays_with_its_first_source() -> None:
    """A gateway that repeats the whole reasoning in another field at the end does not double it."""
    whole = {"content": "a", "reasoning_content": "hm, yes"}
    assert frames(delta({"reasoning": "hm, "}), delta({"reasoning": "yes"}), delta(whole)) == [
        ReasoningDelta("hm, "),
        ReasoningDelta("yes"),
        TextDelta("a"),
    ]


@pytest.mark.promise("assembly:kinds")
def test_reasoning_details_come_back_in_whole_entries() -> None:
    """OpenRouter wants the sequence back as it was: fragments of one entry joined, signatures and encrypted data kept."""
    parts = respond(
        delta({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]}),
        delta({"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0}]}),
        delta({"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0, "format": None}]}),
        delta({"content": "yes", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 1}]}),
        delta({"reasoning_details": [{"type": "reasoning.encrypted", "data": "y", "index": 1}]}, "stop"),
    ).message.parts
    details = [
        {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "sig"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
        {"type": "reasoning.encrypted", "data": "y", "index": 1},
    ]
    opaque = Opaque("openai_chat", msgspec.json.encode({"reasoning_details": details}).decode())
    assert parts == (Reasoning("ab", opaque), Text("yes"))


def test_encrypted_reasoning_without_text_stands_before_the_text() -> None:
    details = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
    opaque = Opaque("openai_chat", msgspec.json.encode({"reasoning_details": details}).decode())
    expected = (Reasoning("", opaque), Text("yes"))
    assert respond(delta({"reasoning_details": details}), delta({"content": "yes"}), END).message.parts == expected
    assert respond_to_body(content="yes", reasoning_details=details).message.parts == expected


def test_reasoning_in_details_alone_is_read_from_them() -> None:
    """Snowflake and some OpenRouter routes have no other field."""
    details = [{"type": "reasoning.summary", "summary": "hm"}, {"type": "reasoning.text", "text": ", yes"}]
    assert frames(delta({"reasoning_details": details}))[0] == ReasoningDelta("hm, yes")


def test_a_cut_stream_keeps_its_reasoning_details() -> None:
    """They come out when the stream ends, if no finish reason came before."""
    details = [{"type": "reasoning.text", "text": "a", "signature": "s", "index": 0}]
    found = frames(delta({"reasoning_details": details}), done=False)
    encoded = msgspec.json.encode({"reasoning_details": details}).decode()
    assert found == [ReasoningDelta("a"), BlockData("reasoning", Opaque("openai_chat", encoded))]


def test_a_refusal_is_a_part_and_a_reason() -> None:
    """OpenAI ends a refusal with `stop`; only the field tells."""
    expected = (FinishReason.REFUSAL, "stop", (Refusal("I can't."),))
    streamed = respond(delta({"refusal": "I can"}), delta({"refusal": "'t."}), END)
    whole = respond_to_body(content=None, refusal="I can't.")
    for answer in (streamed, whole):
        assert (answer.finish, answer.provider_finish, answer.message.parts) == expected


def test_citations_are_kept_once_and_hang_on_the_text() -> None:
    """Annotations come in deltas, Perplexity's sources in every chunk and before the first word."""
    note = {"type": "url_citation", "url_citation": {"url": "http://a", "title": "A", "content": "c", "start_index": 0}}
    found = {"title": "B", "url": "http://b", "date": None, "snippet": "s"}
    first = {**delta({"role": "assistant"}), "search_results": [found], "citations": ["http://b"]}
    second = {**delta({"content": "yes"}), "search_results": [found], "citations": ["http://b"]}
    text = Text(
        "yes",
        citations=(
            Citation(family="openai_chat", raw=json.dumps(found), url="http://b", title="B", cited_text="s"),
            Citation(family="openai_chat", raw=json.dumps(note), url="http://a", title="A", cited_text="c"),
        ),
    )
    assert respond(first, second, delta({"annotations": [note]}), END).message.parts == (text,)
    alone = {**delta({"content": "yes"}), "citations": ["http://b"]}
    assert respond(alone, END).message.parts == (
        Text("yes", citations=(Citation(family="openai_chat", raw='"http://b"', url="http://b"),)),
    )


def test_tools_that_ran_on_the_server_are_items_and_images_are_files() -> None:
    """Groq sends the call and then the same again with its output: one item, in its last form."""
    begun = {"index": 0, "type": "search", "arguments": "{}"}
    ended = {**begun, "output": "found"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    parts = respond(
        delta({"executed_tools": [begun]}),
        delta({"executed_tools": [ended]}),
        delta({"content": "a", "images": [image]}),
        END,
    ).message.parts
    assert parts == (
        ProviderItem("openai_chat", "executed_tools", json.dumps(ended)),
        Text("a"),
        File(media_type="image/png", data=b"hi"),
    )


def test_other_choices_are_passed_over() -> None:
    other = delta({"content": "no"}, "stop")
    other["choices"][0]["index"] = 1
    both = delta({"content": "yes"})
    both["choices"].append({"index": 1, "delta": {"content": "no"}, "finish_reason": "length"})
    assert frames(other, both, END) == [TextDelta("yes"), STOP]


def test_a_chunk_without_id_and_choices_does_not_begin_the_response() -> None:
    """Azure's first chunk carries `prompt_filter_results` alone; ids that change later begin nothing new."""
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    later = {**delta({"content": "b"}), "id": "c2", "model": "m2"}
    assert decode_stream(FAMILY, [stream_of(first, delta({"content": "a"}), later, done=False)], profile=PROFILE) == [
        Started("c1", "m1"),
        TextDelta("a"),
        TextDelta("b"),
    ]


# Why it ended


def test_an_upstream_word_tells_of_a_limit_that_the_first_word_hides() -> None:
    """Five recorded OpenRouter streams end with `tool_calls` though the limit cut the call."""
    assert frames(delta({}, "tool_calls", native_finish_reason="MAX_TOKENS")) == [
        Finished(FinishReason.TOOL_CALLS, "tool_calls", limit_reached=True)
    ]
    assert frames(delta({}, "stop", native_finish_reason="completed")) == [STOP]


def test_a_repeated_finish_reason_is_told_once_and_a_new_one_again() -> None:
    assert frames(END, END, delta({}, "tool_calls")) == [STOP, Finished(FinishReason.TOOL_CALLS, "tool_calls")]


@each(
    ("word", "reason"),
    [
        ("length", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("MAX_OUTPUT_TOKENS_REACHED", FinishReason.STOP),
        ("eos_token", FinishReason.STOP),
        ("insufficient_system_resource", FinishReason.ERROR),
        ("called_a_tool", FinishReason.STOP),
        ("sensitive", FinishReason.CONTENT_FILTER),
        ("nobody knows", FinishReason.STOP),
    ],
)
def test_a_servers_own_word_is_known_whole_and_kept(word: str, reason: FinishReason) -> None:
    """Proves: nothing is guessed from a part of a word; what nobody knows is an end, and its content decides."""
    assert frames(delta({"content": "a"}, word))[-1] == Finished(reason, word)


def test_a_stream_that_just_ends_has_no_finish() -> None:
    """The assembler makes `cut` of it; `[DONE]` alone is no reason either, but says that it did not break off."""
    marked = Repair("no_finish_reason", "response", "it ended with `[DONE]`, without a word about why")
    assert frames(delta({"content": "a"})) == [TextDelta("a")]
    assert frames(delta({"content": "a"}), done=True) == [TextDelta("a"), Mended(marked)]
    assert frames(delta({"content": "a"}), b"[DONE]", done=True) == [TextDelta("a"), Mended(marked)]
    failed = [delta({"content": "a"}), {"error": {"message": "overloaded", "code": 503}}]
    assert not any(isinstance(frame, Mended) for frame in frames(*failed, done=True))
    answer = respond(delta({"content": "a"}))
    assert (answer.finish, answer.repairs) == (FinishReason.CUT, (marked,))


# Usage


def counted(usage: dict[str, Any], *, profile: str = "openai_chat") -> Usage:
    stream = stream_of(END, {**delta({}), "choices": [], "usage": usage})
    found = decode_stream(FAMILY, [stream], profile=builtin_profiles()[profile])
    (reported,) = [frame.usage for frame in found if isinstance(frame, UsageReported)]
    assert json.loads(reported.provider) == usage
    return msgspec.structs.replace(reported, provider="")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(input_tokens=10, output_tokens=5, reasoning_tokens=2, cache_read_tokens=4, cache_write_tokens=3),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": None},
            Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 1,
            },
            Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, cache_write_tokens=1),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "cached_tokens": 4,
                "reasoning_tokens": 2,
                "total_tokens": 15,
            },
            Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2),
        ),
        (
            {"prompt_tokens": None, "completion_tokens": "five"},
            Usage(untold=("input_tokens", "output_tokens")),
        ),
    ],
    ids=["openai", "deepseek", "databricks", "together", "nonsense"],
)
def test_usage_follows_our_definition(usage: dict[str, Any], expected: Usage) -> None:
    assert counted(usage) == expected


def test_reasoning_that_the_output_leaves_out_is_added() -> None:
    """xAI's total tells; where there is no total, the profile does."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 7}}
    added = Usage(input_tokens=10, output_tokens=12, reasoning_tokens=7)
    assert counted({**usage, "total_tokens": 22}) == added
    assert counted(usage, profile="xai") == added
    assert counted(usage).output_tokens == 5
    assert counted({**usage, "total_tokens": 15}, profile="xai").output_tokens == 5


@pytest.mark.promise("assembly:no-done")
def test_usage_in_several_chunks_is_counted_once() -> None:
    """A later count replaces an earlier one, a null does not; Groq's own field counts where there is no other."""
    first = {"prompt_tokens": 10, "completion_tokens": None}
    second = {"prompt_tokens": None, "completion_tokens": 5}
    answer = respond(
        {**delta({"content": "a"}), "usage": first},
        {**END, "usage": second, "x_groq": {"usage": {"prompt_tokens": 99}}},
        {**END, "usage": second},
        done=False,
    )
    assert recordings.five_counts(answer.usage) == (10, 5, 0, 0, 0)
    groq = respond({**END, "x_groq": {"id": "r", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}})
    assert recordings.five_counts(groq.usage) == (3, 2, 0, 0, 0)


# What goes wrong


@pytest.mark.parametrize(
    ("chunk", "fault"),
    [
        (
            {"error": {"message": "Too many", "code": 429, "metadata": {}}},
            Fault(kind=FaultKind.RATE_LIMITED, message="Too many", status=429, code="429"),
        ),
        (
            {**delta({"content": ""}), "error": {"message": "overloaded", "code": 503}},
            Fault(kind=FaultKind.OVERLOADED, message="overloaded", status=503, code="503"),
        ),
        (
            {
                "error": {
                    "message": "Failed to call a function.",
                    "type": "invalid_request_error",
                    "code": "tool_use_failed",
                }
            },
            Fault(kind=FaultKind.BAD_REQUEST, message="Failed to call a function.", code="tool_use_failed"),
        ),
        (
            {"object": "error", "message": "it broke", "type": "InternalServerError", "code": 500},
            Fault(kind=FaultKind.SERVER, message="it broke", status=500, code="500"),
        ),
        ({"error": "plain words"}, Fault(kind=FaultKind.SERVER, message="plain words")),
    ],
    ids=["openrouter", "beside choices", "groq", "vllm", "a string"],
)
def test_an_error_inside_the_stream_is_a_fault_and_what_came_before_is_kept(chunk: object, fault: Fault) -> None:
    answer = respond(delta({"content": "a"}), chunk)
    assert (answer.fault, answer.message.parts) == (fault, (Text("a"),))


def test_an_event_named_error_is_a_fault() -> None:
    stream = stream_of(delta({"content": "a"}), done=False) + b'event: error\ndata: {"message":"no","code":503}\n\n'
    assert decode_stream(FAMILY, [stream], profile=PROFILE)[-1] == Faulted(
        Fault(kind=FaultKind.OVERLOADED, message="no", status=503, code="503")
    )


def test_invalid_utf8_becomes_replacement_characters_and_is_told() -> None:
    line = json.dumps(delta({"content": "a?b"})).encode().replace(b"?", b"\xff")
    answer = respond(line, END)
    assert answer.message.parts == (Text("a\ufffdb"),)
    assert answer.repairs == (Repair("invalid_utf8", "event 1", "invalid UTF-8 became replacement characters"),)


def test_halves_of_a_character_in_two_chunks_are_joined() -> None:
    """A server that cuts `\\ud83d\\ude00` writes a lone surrogate into each chunk."""
    halves = [json.dumps(delta({"content": half})).encode() for half in ("a\ud83d", "\ude00b")]
    assert respond(*halves, END).message.parts == (Text("a😀b"),)


@pytest.mark.parametrize("glue", [b"", b"data: ", b" data:", b"\ndata: "], ids=["nothing", "data", "space", "line"])
def test_chunks_glued_together_are_read_apart_and_told(glue: bytes) -> None:
    first, second = (json.dumps(delta({"content": text})).encode() for text in "ab")
    answer = respond(first + glue + second, END)
    assert answer.message.parts == (Text("ab"),)
    assert answer.repairs == (Repair("chunks_glued", "event 1", "2 JSON values stood in one event"),)


def test_what_is_no_chunk_is_skipped_and_told() -> None:
    """A torn event costs what it held and no more. An empty array says nothing at all."""
    answer = respond(delta({"content": "a"}), b'{"id":"c1","choi', b"[]", delta({"content": "b"}), END)
    assert answer.message.parts == (Text("ab"),)
    assert answer.repairs == (Repair("chunk_skipped", "event 2", "it is no JSON"),)


def test_the_end_of_the_stream_may_have_a_blank_after_it() -> None:
    """Three recorded streams of Groq and OpenRouter end with `[DONE] `: that is no torn event."""
    stream = stream_of(delta({"content": "a"}), END, done=False) + b"data: [DONE] "
    assert assemble(decode_stream(FAMILY, [stream], profile=PROFILE)).repairs == ()


def test_a_field_of_another_kind_is_skipped_and_told() -> None:
    answer = respond(delta({"content": "a", "annotations": {"no": 1}}), END)
    assert answer.message.parts == (Text("a"),)
    assert [(repair.kind, repair.where) for repair in answer.repairs] == [("field_skipped", "event 1")]
    assert "`$.choices[0].delta.annotations`" in answer.repairs[0].what
    assert not answer.lost


def test_a_body_in_place_of_a_stream_is_read_and_told() -> None:
    """Some endpoints ignore `stream`. Leading blanks are OpenRouter's keep-alives."""
    for pieces in (
        [b"\n   \n" + body(content="hi")],
        [b" ", *[body(content="hi")[i : i + 1] for i in range(len(body(content="hi")))]],
    ):
        answer = assemble(decode_stream(FAMILY, pieces, profile=PROFILE))
        assert (answer.message.parts, answer.finish) == ((Text("hi"),), FinishReason.STOP)
        assert [repair.kind for repair in answer.repairs] == ["body_for_stream"]


def test_a_stream_in_place_of_a_body_is_read() -> None:
    stream = stream_of(delta({"content": "hi"}), END)
    assert assemble(FAMILY.decode_body(stream, PROFILE, DEFAULT_LIMITS)).message.parts == (Text("hi"),)


def test_an_error_body_with_status_200_is_a_fault() -> None:
    found = FAMILY.decode_body(b'{"error":{"message":"no model","code":404}}', PROFILE, DEFAULT_LIMITS)
    assert found == [Faulted(Fault(kind=FaultKind.NOT_FOUND, message="no model", status=404, code="404"))]


@each(
    ("blob", "shown"),
    [
        (
            b"<!DOCTYPE html>\n<html><head>\n<title>502 Bad\tGateway</title>",
            "<!DOCTYPE html> <html><head> <title>502 Bad Gateway",
        ),
        (b"", "the response was empty"),
        (b": keep-alive\n\n: keep-alive\n\n", "the response was empty"),
        (b"data: [DONE] \n\n", "the response was empty"),
        (b'{"hello": "world"}', '{"hello": "world"}'),
        (b'data: {"type":"message_start","message":{}}\n\n', "message_start"),
        (b"data: 7\n\n", "data: 7"),
        (b"\x00\x01\xfe\xff" * 30, "expected a Chat Completions response"),
        (b'{"id":"c1","choices":[{"index":0,"mess', "choices"),
    ],
    ids=["html", "nothing", "comments", "done", "other json", "other family", "number", "binary", "torn body"],
)
def test_what_is_no_answer_is_one_protocol_fault_that_shows_it(blob: bytes, shown: str) -> None:
    check_foreign_answer_is_a_protocol_fault(FAMILY, blob, profile=PROFILE, shown=shown)


def test_a_stream_of_nothing_but_torn_events_is_given_up() -> None:
    """What we record about garbage is bounded too."""
    found = decode_stream(FAMILY, [b"data: {\n\n" * 500], profile=PROFILE)
    assert [frame.fault.message for frame in found if isinstance(frame, Faulted)] == [
        "more than 100 events of the stream are no JSON"
    ]
    assert len(found) == 101


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("begin", [b"data: ", b": ", b"<html>", b'{"id":"', b""])
def test_an_endless_line_is_refused_at_the_limit(begin: bytes) -> None:
    if begin.startswith(b"{"):  # a body has one line; its limit is the response's
        limits = Limits(line_bytes=1000, response_bytes=1500)
        found = decode_stream(FAMILY, [begin, *[b"x" * 100] * 20], profile=PROFILE, limits=limits)
        assert [frame.fault.kind for frame in found if isinstance(frame, Faulted)] == [FaultKind.TOO_LARGE]
    else:
        check_endless_line(FAMILY, begin, profile=PROFILE)


@pytest.mark.promise("assembly:bounded")
def test_an_endless_response_is_refused_at_the_limit() -> None:
    check_long_response(FAMILY, stream_of(delta({"content": "abc"}), done=False), profile=PROFILE)


@settings(deadline=None)  # the deep examples take their time
@given(st.binary(max_size=60) | st.text(alphabet=string.printable, max_size=60).map(str.encode))
@example(b'data: {"choices":[{"delta":{"content":[[["')
@example(b'{"choices":' + b"[" * 5000)
@example(b'data: {"choices":' + b"[" * 100_000 + b"\n\n")
@example(b'{"choices":[{"message":{"content":{"a":1},"tool_calls":{"id":[]}}}],"usage":[1],"error":7}')
@example(b'data: {"choices":[{"delta":{"tool_calls":[{"index":true,"function":{"arguments":NaN}}]}}]}\n\n')
def test_random_bytes_never_raise(blob: bytes) -> None:
    check_foreign_bytes_never_raise(FAMILY, blob, profile=PROFILE)


@pytest.mark.promise("assembly:split-anywhere")
def test_a_stream_of_every_shape_is_the_same_at_every_split() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "http://a"}}
    details = [{"type": "reasoning.text", "text": "hm", "index": 0}]
    stream = b"\xef\xbb\xbf: hello\r\n\r\n" + stream_of(
        delta({"role": "assistant", "content": "", "reasoning_details": details}),
        delta({"content": "é😀", "annotations": [note]}),
        call(index=0, id="a", function={"name": "f", "arguments": {"q": 1}}),
        b'{"torn":',
        delta({"content": "x"}),
        {**delta({}, "tool_calls"), "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    ).replace(b"\n", b"\r\n")
    check_every_split(FAMILY, stream, profile=PROFILE)
    check_every_split(FAMILY, b" \xef\xbb\xbf\n" + body(content="hi"), profile=PROFILE)
    check_every_split(FAMILY, b"<html>nothing</html>", profile=PROFILE)
