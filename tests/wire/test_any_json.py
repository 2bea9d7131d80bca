"""What a decoder owes whatever JSON arrives: frames, never an exception. Each family's real chunks with values swapped."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.assembly.response import Assembler
from turnwise.testing.wire_conformance import assemble
from turnwise.vocab import FinishReason, Mended, Repair, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles

Json = Any
NAMES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")

CHAT: list[Json] = [
    {
        "id": "c",
        "object": "chat.completion.chunk",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "delta": {
                    "role": "assistant",
                    "content": "hi",
                    "reasoning": "r",
                    "reasoning_details": [
                        {"type": "reasoning.text", "text": "r", "index": 0, "id": None, "signature": "s"},
                        {"type": "reasoning.summary", "summary": "r", "index": 1},
                        {"type": "reasoning.encrypted", "data": "x", "index": 2},
                    ],
                    "refusal": "no",
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "a",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{}"},
                            "extra_content": {"google": {"thought_signature": "s"}},
                        },
                        {"index": 1, "id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
                    ],
                    "function_call": {"name": "f", "arguments": "{}"},
                    "annotations": [{"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}],
                    "executed_tools": [{"index": 0, "type": "search"}],
                    "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
                },
                "finish_reason": None,
                "native_finish_reason": None,
            }
        ],
    },
    {
        "id": "c",
        "choices": [
            {
                "index": 0,
                "message": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}]},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "total_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
        "x_groq": {"usage": {"prompt_tokens": 1}},
        "citations": ["u"],
        "search_results": [{"url": "u", "title": "t"}],
        "error": {"message": "m", "code": 500, "metadata": {"raw": "x"}},
    },
]

_MESSAGE = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [
        {
            "type": "output_text",
            "text": "hi",
            "annotations": [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0}],
            "logprobs": [],
        },
        {"type": "refusal", "refusal": "no"},
    ],
}
_CALL = {"id": "fc", "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"}
_THOUGHT = {
    "id": "rs",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "t"}],
    "encrypted_content": "x",
}
_RESPONSE = {
    "id": "r",
    "model": "m",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "error": {"code": "server_error", "message": "m"},
    "output": [_THOUGHT, _MESSAGE, _CALL, {"type": "web_search_call", "id": "w"}],
    "usage": {"input_tokens": 1, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}},
}
RESPONSES: list[Json] = [
    {"type": "response.created", "response": _RESPONSE},
    {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE},
    {"type": "response.content_part.added", "output_index": 0, "content_index": 0, "item_id": "msg", "part": {}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg", "delta": "hi"},
    {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {"type": "url_citation"}},
    {"type": "response.output_text.done", "output_index": 0, "content_index": 1, "item_id": "msg", "text": "hi"},
    {"type": "response.refusal.done", "output_index": 0, "content_index": 2, "item_id": "msg", "refusal": "hi"},
    {"type": "response.output_item.added", "output_index": 1, "item": _CALL},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc", "delta": "{}"},
    {"type": "response.function_call_arguments.done", "output_index": 2, "item_id": "fd", "arguments": "{}"},
    {"type": "response.reasoning_summary_text.delta", "output_index": 3, "item_id": "rs", "delta": "t"},
    {"type": "response.output_item.done", "output_index": 3, "item": _THOUGHT},
    {"type": "response.output_item.done", "output_index": 0, "item": _MESSAGE},
    {"type": "error", "error": {"type": "t", "code": "c", "message": "m"}},
    {"type": "response.incomplete", "response": _RESPONSE},
]

_BLOCKS: list[Json] = [
    {"type": "text", "text": "hi", "citations": [{"type": "web", "url": "u", "title": "t", "cited_text": "c"}]},
    {"type": "thinking", "thinking": "t", "signature": "s"},
    {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
    {"type": "server_tool_use", "id": "b", "name": "web_search", "input": {}},
    {"type": "compaction", "content": "c"},
]
_DELTAS: list[Json] = [
    {"type": "text_delta", "text": "x"},
    {"type": "signature_delta", "signature": "s"},
    {"type": "input_json_delta", "partial_json": "{}"},
    {"type": "input_json_delta", "partial_json": "{}"},
    {"type": "compaction_delta", "content": "c", "encrypted_content": "d"},
]
_USAGE = {"input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"thinking_tokens": 1}}
_PARTS: list[Json] = []
for _index, (_block, _piece) in enumerate(zip(_BLOCKS, _DELTAS, strict=True)):
    _PARTS += [
        {"type": "content_block_start", "index": _index, "content_block": _block},
        {"type": "content_block_delta", "index": _index, "delta": _piece},
        {"type": "content_block_stop", "index": _index},
    ]
MESSAGES: list[Json] = [
    {
        "type": "message_start",
        "message": {"id": "m", "model": "m", "content": _BLOCKS, "usage": _USAGE, "stop_reason": None},
    },
    *_PARTS,
    {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "u"}}},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_details": {"type": "refusal", "explanation": "e"}},
        "usage": _USAGE,
    },
    {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
    {"type": "message_stop"},
]

GEMINI: list[Json] = [
    {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"text": "t", "thought": True, "thoughtSignature": "s"},
                        {"text": "hi"},
                        {"functionCall": {"id": "a", "name": "f", "args": {"a": 1}}, "thoughtSignature": "s"},
                        {"functionCall": {"name": "g", "willContinue": True}},
                        {
                            "functionCall": {
                                "partialArgs": [
                                    {"jsonPath": "$.a", "stringValue": "x", "willContinue": True},
                                    {"jsonPath": "$.b[0]", "numberValue": 1},
                                ],
                                "willContinue": True,
                            }
                        },
                        {"functionCall": {}},
                        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                        {"executableCode": {"language": "PYTHON", "code": "1"}},
                    ],
                },
                "index": 0,
                "finishReason": "STOP",
                "finishMessage": "m",
                "groundingMetadata": {
                    "groundingChunks": [{"web": {"uri": "u", "title": "t"}}],
                    "groundingSupports": [{"segment": {"text": "s"}, "groundingChunkIndices": [0]}],
                },
                "citationMetadata": {"citationSources": [{"uri": "u", "title": "t"}]},
                "urlContextMetadata": {"urlMetadata": [{"retrievedUrl": "u"}]},
            }
        ],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2, "thoughtsTokenCount": 1},
        "modelVersion": "m",
        "responseId": "r",
        "promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "m"},
        "error": {"code": 500, "message": "m", "status": "INTERNAL", "details": [{"retryDelay": "1s"}]},
    }
]

STREAMS = {"openai_chat": CHAT, "openai_responses": RESPONSES, "anthropic_messages": MESSAGES, "gemini": GEMINI}
BODIES: dict[str, Json] = {
    "openai_chat": CHAT[1],
    "openai_responses": _RESPONSE,
    "anthropic_messages": {
        "id": "m",
        "type": "message",
        "model": "m",
        "content": _BLOCKS,
        "usage": _USAGE,
        "stop_reason": "end_turn",
        "stop_details": {"explanation": "e"},
    },
    "gemini": GEMINI[0],
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([2**63, 2**70, -(2**64), 1e300, 1.5, 1.0])
    | st.sampled_from(
        ["", "q", "0", "1", "null", "\ud800", "\udc00x", "{", "[DONE]", "response.done", "text", "tool_use"]
    )
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "index", "content", "q"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value: Json, at: tuple[Json, ...] = ()) -> list[tuple[Json, ...]]:
    """The paths to every value inside."""
    found = [at]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*at, key))
    return found


def swapped(value: Json, at: tuple[Json, ...], new: Json) -> Json:
    if not at:
        return new
    value = copy.copy(value)
    value[at[0]] = swapped(value[at[0]], at[1:], new)
    return value


GONE = "\x00gone"


def without_gone(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: without_gone(inner) for key, inner in value.items() if inner != GONE}
    return [without_gone(inner) for inner in value if inner != GONE] if isinstance(value, list) else value


values_or_gone = values | st.just(GONE)


@st.composite
def damaged(draw: st.DrawFn, value: Json) -> Json:
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(places(value)))
        value = swapped(value, at, draw(values_or_gone))
    return without_gone(value)


def encoded(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


def event(value: Json, name: str) -> bytes:
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + encoded(value) + b"\n\n"


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(250), deadline=None)
@given(draw=st.data())
def test_no_stream_makes_a_decoder_raise(name: str, draw: st.DataObject) -> None:
    """Any value of any chunk may be any JSON, or gone; the frames that come of it can be assembled."""
    found, chunks = family(name), STREAMS[name]
    names = [chunk.get("type", "") if name in ("openai_responses", "anthropic_messages") else "" for chunk in chunks]
    chunks = draw.draw(damaged(chunks))
    chunks = chunks if isinstance(chunks, list) else [chunks]
    named = draw.draw(st.booleans())
    stream = b"".join([event(chunk, names[i] if named and i < len(names) else "") for i, chunk in enumerate(chunks)])
    decoder = found.stream_decoder(builtin_profiles()[name], DEFAULT_LIMITS)
    assemble(decoder.feed(stream) + decoder.finish())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(150), deadline=None)
@given(draw=st.data())
def test_no_body_makes_a_decoder_raise(name: str, draw: st.DataObject) -> None:
    """The same for whole bodies."""
    body = encoded(draw.draw(damaged(BODIES[name])))
    assemble(family(name).decode_body(body, builtin_profiles()[name], DEFAULT_LIMITS))


ODD: tuple[Json, ...] = (GONE, None, True, 5, 1.5, 2**70, "q", "", "\ud800", [], ["q"], [["q"]], {}, {"q": []})


@pytest.mark.costly
@each("is_named", [True, False])
@each("name", NAMES, meeting="each")
def test_every_value_of_every_chunk_may_be_anything(name: str, is_named: bool) -> None:
    """One value after the other becomes each odd thing, whether the events have names or not."""
    found, chunks, profile = family(name), STREAMS[name], builtin_profiles()[name]
    events = [event(chunk, chunk.get("type", "") if is_named else "") for chunk in chunks]
    for i, chunk in enumerate(chunks):
        for at in places(chunk):
            for odd in ODD:
                damage = event(without_gone(swapped(chunk, at, odd)), chunk.get("type", "") if is_named else "")
                decoder = found.stream_decoder(profile, DEFAULT_LIMITS)
                assemble(decoder.feed(b"".join([*events[:i], damage, *events[i + 1 :]])) + decoder.finish())


@each("depth", [100, 985, 990, 994, 3000])
@each("name", NAMES)
def test_every_value_may_be_nested_without_end(name: str, depth: int) -> None:
    """Around the depth that decoders take, which is not that of encoders."""
    found, chunks, profile = family(name), STREAMS[name], builtin_profiles()[name]
    deep = b"[" * depth + b"]" * depth
    for chunk in chunks:
        for at in places(chunk):
            damage = event(swapped(chunk, at, "@deep@"), "").replace(b'"@deep@"', deep)
            decoder = found.stream_decoder(profile, DEFAULT_LIMITS)
            assemble(decoder.feed(damage) + decoder.finish())


@pytest.mark.parametrize("name", NAMES)
def test_the_undamaged_chunks_are_read(name: str) -> None:
    """The proofs above begin with chunks that the decoder knows, else they prove nothing."""
    decoder = family(name).stream_decoder(builtin_profiles()[name], DEFAULT_LIMITS)
    response = assemble(decoder.feed(b"".join([event(chunk, "") for chunk in STREAMS[name]])) + decoder.finish())
    assert response.finish is FinishReason.ERROR and "hi" in text_of(response.message)


def test_the_repairs_of_one_response_are_bounded() -> None:
    """A stream whose every chunk had to be mended tells of the first hundred, at a cost linear in its chunks."""
    assembler = Assembler()
    for number in range(5000):
        assembler.receive(Mended(Repair("chunk_skipped", f"event {number}", "it is no JSON")))
    repairs = assembler.finish().repairs
    assert len(repairs) == 101 and repairs[-1].kind == "more_repairs"
