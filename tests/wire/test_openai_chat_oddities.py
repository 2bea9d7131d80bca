"""Chat Completions answers of odd servers: fields that are there and say nothing, wrong types, words that nobody documented."""

import json
from typing import Any

import pytest

from turnwise.testing.wire_conformance import assemble, decode_stream
from turnwise.vocab import (
    ArgumentsState,
    CitationAdded,
    FinishReason,
    Message,
    Response,
    Text,
    ToolCall,
    Usage,
    calls_of,
)
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles

PROFILE = builtin_profiles()["openai_chat"]


def chunk(fields: dict[str, Any], finish: object = None, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}], **more}


def streamed(*chunks: object) -> Response:
    lines = [b"data: " + json.dumps(part).encode() + b"\n\n" for part in (*chunks, chunk({}, "stop"))]
    return assemble(decode_stream(FAMILY, [b"".join(lines)], profile=PROFILE))


def whole(message: dict[str, Any], finish: object = "stop", **more: Any) -> Response:
    body = {"id": "c1", "model": "m1", "choices": [{"index": 0, "message": message, "finish_reason": finish}], **more}
    return assemble(FAMILY.decode_body(json.dumps(body).encode(), PROFILE, DEFAULT_LIMITS))


def answered(text: str = "hi", **more: Any) -> Response:
    return Response(
        message=Message("assistant", (Text(text),)),
        finish=FinishReason.STOP,
        provider_finish="stop",
        id="c1",
        model="m1",
        **more,
    )


@pytest.mark.parametrize("empty", [None, {}, "", False, []])
def test_an_error_that_says_nothing_is_no_error(empty: object) -> None:
    """Servers write the field beside a healthy answer, in every chunk or in the body."""
    assert streamed(chunk({"content": "hi"}, error=empty)) == answered()
    assert whole({"content": "hi"}, error=empty) == answered()


def test_fields_that_are_null_say_nothing() -> None:
    """Null is the same as not sent, for usage, Groq's extension and a call's extra content."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": None}
    assert streamed(chunk({"content": "hi"}, usage=None, x_groq={"usage": None})) == answered()
    assert streamed(chunk({"content": "hi"}, usage=None, x_groq={"usage": {"prompt_tokens": 3}})).usage == Usage(
        input_tokens=3, provider='{"prompt_tokens":3}', untold=("output_tokens",)
    )
    assert streamed(chunk({"tool_calls": [call]})) == streamed(
        chunk({"tool_calls": [{key: value for key, value in call.items() if value is not None}]})
    )


def test_each_of_many_sources_is_told_once_with_its_chunk() -> None:
    """A new source in every chunk: no chunk tells (or walks) those of the chunks before it."""
    decoder = FAMILY.stream_decoder(PROFILE, DEFAULT_LIMITS)
    urls: list[str | None] = []
    for number in range(2000):
        sources = [{"type": "url_citation", "url_citation": {"url": f"https://x/{i}"}} for i in (number, number - 1)]
        line = json.dumps(chunk({"content": "x", "annotations": sources})).encode()
        cited = [frame for frame in decoder.feed(b"data: " + line + b"\n\n") if isinstance(frame, CitationAdded)]
        urls += [frame.citation.url for frame in cited]
    assert sorted(urls, key=str) == sorted([f"https://x/{number}" for number in range(-1, 2000)])


def function(arguments: object, name: str = "f") -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize(("arguments", "text"), [(True, "true"), (False, "false"), (1.5, "1.5"), (5, "5")])
def test_arguments_that_are_no_object_and_no_string_are_invalid(arguments: object, text: str) -> None:
    """A call with `true` for its arguments must not run with none."""
    response = whole({"tool_calls": [{"id": "a", "function": function(arguments)}]}, "tool_calls")
    (call,) = calls_of(response.message)
    assert (call.arguments, call.state) == (text, ArgumentsState.INVALID)


def test_one_call_said_in_the_old_and_in_the_new_field_is_one() -> None:
    pieces = [{"name": "f", "arguments": ""}, {"arguments": '{"a":'}, {"arguments": "1}"}]
    deltas = [
        chunk({"function_call": piece, "tool_calls": [{"index": 0, "id": "a", "function": piece}]}) for piece in pieces
    ]
    expected = (ToolCall(id="a", name="f", arguments='{"a":1}'),)
    assert calls_of(streamed(*deltas).message) == expected
    both = {"function_call": function('{"a":1}'), "tool_calls": [{"id": "a", "function": function('{"a":1}')}]}
    assert calls_of(whole(both).message) == expected


def test_another_call_in_the_old_field_is_a_second_one() -> None:
    both = {"function_call": function("{}", "g"), "tool_calls": [{"id": "a", "function": function("{}")}]}
    assert [call.name for call in calls_of(whole(both).message)] == ["f", "g"]


@pytest.mark.parametrize("one", ["1", 1.0])
def test_counts_and_indexes_of_another_type_are_read(one: object) -> None:
    usage = {"prompt_tokens": one, "completion_tokens": one, "completion_tokens_details": {"reasoning_tokens": one}}
    found = whole({"content": "hi"}, usage=usage).usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens, found.reasoning_tokens) == (1, 1, 1)
    other = chunk({"content": "no"})
    other["choices"][0]["index"] = one
    assert streamed(chunk({"content": "hi"}), other).message == answered().message


def test_half_of_a_character_in_an_id_is_written_out() -> None:
    """`call_\\ud800` and `call_\\ud801` became `call_?`, one id for two calls; names and ids of the response likewise."""
    calls = [
        {"id": f"call_{half}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for half in ("\ud800", "\ud801")
    ]
    found = whole({"content": None, "tool_calls": calls}, "tool_calls")
    assert [call.id for call in calls_of(found.message)] == ["call_\\ud800", "call_\\ud801"]
