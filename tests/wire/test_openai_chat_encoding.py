"""Chat Completions streams and bodies as we write them, read back by us and by the official SDK."""

import json
import string
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

import recordings
from thoroughness import examples
from turnwise.testing.wire_conformance import (
    assemble,
    check_response_round_trip,
    decode_stream,
    encode_stream,
    frames_of,
)
from turnwise.vocab import (
    Citation,
    Fault,
    Faulted,
    FaultKind,
    File,
    Finished,
    FinishReason,
    Message,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    Refusal,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS
from wire.openai_chat_streams import (
    PROFILE,
    REQUEST,
)

# What we write

JSON_TEXTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=8), max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False)
)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=10)

NOTE = '{"type":"url_citation","url_citation":{"url":"http://a","title":"A","start_index":0,"end_index":1}}'
CITATIONS = st.sampled_from(
    [
        Citation(family="openai_chat", raw=NOTE, url="http://a", title="A"),
        Citation(family="openai_chat", raw='{"url":"http://b","title":"B"}', url="http://b", title="B"),
        Citation(family="openai_chat", raw='"http://c"', url="http://c"),
    ]
)
DETAILS = Opaque("openai_chat", '{"reasoning_details":[{"type":"reasoning.encrypted","data":"x","index":0}]}')
SIGNED = Opaque("openai_chat", '{"extra_content":{"google":{"thought_signature":"s"}}}')
FOREIGN = Opaque("gemini", '{"thoughtSignature":"s"}')


@st.composite
def carried_parts(draw: st.DrawFn) -> tuple[Part, ...]:
    """Parts in the order that this family has; no kind but calls twice."""
    parts: list[Part] = []
    if draw(st.booleans()):
        parts.append(Reasoning(draw(TEXTS), draw(st.sampled_from([None, DETAILS]))))
    if draw(st.booleans()):
        citations = draw(st.lists(CITATIONS, unique=True, max_size=3))
        # Annotations stand in the message, Perplexity's sources beside it: they come out in this order.
        order = {NOTE: 0, '{"url":"http://b","title":"B"}': 1, '"http://c"': 1}
        one_kind = [c for c in citations if c.raw != '"http://c"'] or citations
        parts.append(Text(draw(TEXTS), tuple(sorted(one_kind, key=lambda c: order[c.raw]))))
    if draw(st.booleans()):
        parts.append(Refusal(draw(TEXTS)))
    for i in range(draw(st.integers(0, 3))):
        free_form = draw(st.booleans())
        parts.append(
            ToolCall(
                id=f"call_{i}",
                name=draw(NAMES),
                arguments=draw(TEXTS if free_form else JSON_TEXTS),
                free_form=free_form,
                opaque=draw(st.sampled_from([None, SIGNED])),
            )
        )
    return tuple(parts)


@st.composite
def carried_responses(draw: st.DrawFn) -> Response:
    parts = draw(carried_parts())
    finish = draw(st.sampled_from([FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.ERROR]))
    word = {FinishReason.LENGTH: "length", FinishReason.CONTENT_FILTER: "content_filter", FinishReason.ERROR: "error"}
    if any(isinstance(part, ToolCall) for part in parts):
        finish = FinishReason.TOOL_CALLS
    elif any(isinstance(part, Refusal) for part in parts):
        finish = FinishReason.REFUSAL
    elif draw(st.booleans()):
        finish = FinishReason.STOP
    provider = {
        FinishReason.TOOL_CALLS: "tool_calls",
        FinishReason.REFUSAL: "stop",
        FinishReason.STOP: "stop",
        **word,
    }[finish]
    usage = {
        "prompt_tokens": draw(st.integers(0, 99)),
        "completion_tokens": draw(st.integers(0, 99)),
        "total_tokens": 0,
    }
    counted = Usage(
        input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"], provider=encoded(usage)
    )
    return Response(
        message=Message("assistant", parts),
        finish=finish,
        provider_finish=provider,
        usage=draw(st.sampled_from([None, counted])),
        id=draw(st.sampled_from(["c1", "gen-2"])),
        model="m1",
    )


def encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


@given(carried_responses())
def test_a_response_that_the_family_can_carry_comes_back_equal(response: Response) -> None:
    """As a body and as a stream, both assembled again."""
    check_response_round_trip(FAMILY, response, profile=PROFILE, request=REQUEST, expected=response)


ANYTHING = st.lists(
    st.one_of(
        TEXTS.map(Text),
        st.just(Text("")),
        st.builds(Reasoning, TEXTS, st.sampled_from([None, DETAILS, FOREIGN])),
        TEXTS.map(Refusal),
        st.just(ProviderItem("anthropic_messages", "server_tool_use", "{}")),
        st.just(ProviderItem("openai_chat", "executed_tools", '{"index":0,"type":"search"}')),
        st.just(File(media_type="image/png", data=b"hi")),
        st.builds(
            ToolCall,
            id=st.uuids().map(str),
            name=NAMES,
            arguments=JSON_TEXTS.filter(
                lambda text: text != "{}"
            ),  # beside the finish reason `length` it counts as cut
            opaque=st.sampled_from([None, FOREIGN]),
        ),
    ),
    max_size=6,
).map(tuple)


def less_the_losses(parts: Sequence[Part]) -> tuple[Part, ...]:
    """What `losses` says of a response's parts: one of each kind, in the family's order; nothing of other families."""
    found: list[Part] = []
    reasonings = [part for part in parts if isinstance(part, Reasoning)]
    if reasonings:
        opaque = next((part.opaque for part in reversed(reasonings) if part.opaque and part.opaque == DETAILS), None)
        found.append(Reasoning("".join([part.text for part in reasonings]), opaque))
    text = "".join([part.text for part in parts if isinstance(part, Text)])
    refusal = "".join([part.text for part in parts if isinstance(part, Refusal)])
    found += [Text(text)] if text else []
    found += [Refusal(refusal)] if refusal else []
    found += [msgspec.structs.replace(part, opaque=None) for part in parts if isinstance(part, ToolCall)]
    found += [part for part in parts if isinstance(part, ProviderItem) and part.family == "openai_chat"][:1]
    found += [part for part in parts if isinstance(part, File)]
    return tuple(found)


@given(ANYTHING)
def test_a_body_loses_what_the_loss_table_says_and_nothing_else(parts: tuple[Part, ...]) -> None:
    """Order, doubled kinds, empty texts and what belongs to other families; all else comes back."""
    response = Response(message=Message("assistant", parts), finish=FinishReason.LENGTH, provider_finish="max_tokens")
    answer = assemble(FAMILY.decode_body(FAMILY.encode_body(response, REQUEST), PROFILE, DEFAULT_LIMITS))
    assert answer.message.parts == less_the_losses(parts)
    assert (answer.finish, answer.provider_finish) == (FinishReason.LENGTH, "max_tokens")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((FinishReason.PAUSE, "pause_turn", ()), (FinishReason.PAUSE, "pause_turn")),
        ((FinishReason.PAUSE, None, ()), (FinishReason.STOP, "stop")),
        ((FinishReason.REFUSAL, "refusal", ()), (FinishReason.REFUSAL, "refusal")),
        ((FinishReason.REFUSAL, "SPII", ()), (FinishReason.CONTENT_FILTER, "content_filter")),
        ((FinishReason.STOP, "stop", (Refusal("no"),)), (FinishReason.REFUSAL, "stop")),
        (
            (FinishReason.TOOL_CALLS, "completed", (ToolCall(id="a", name="f"),)),
            (FinishReason.TOOL_CALLS, "tool_calls"),
        ),
        ((FinishReason.CUT, None, (Text("a"),)), (FinishReason.CUT, None)),
    ],
)
def test_a_reason_that_the_family_has_no_word_for_becomes_the_nearest(
    response: tuple[FinishReason, str | None, tuple[Part, ...]], expected: tuple[FinishReason, str | None]
) -> None:
    """As the loss table says; a cut response never ends like a whole one: no finish reason, no `[DONE]`."""
    finish, word, parts = response
    whole = Response(message=Message("assistant", parts), finish=finish, provider_finish=word)
    stream = encode_stream(FAMILY, frames_of(whole), request=REQUEST)
    for answer in (
        assemble(FAMILY.decode_body(FAMILY.encode_body(whole, REQUEST), PROFILE, DEFAULT_LIMITS)),
        assemble(decode_stream(FAMILY, [stream], profile=PROFILE)),
    ):
        assert (answer.finish, answer.provider_finish) == expected
    assert stream.endswith(b"data: [DONE]\n\n") == (finish is not FinishReason.CUT)


def test_usage_of_another_family_is_written_in_this_ones_words() -> None:
    usage = Usage(
        input_tokens=9,
        output_tokens=8,
        reasoning_tokens=7,
        cache_read_tokens=6,
        cache_write_tokens=5,
        provider='{"x":1}',
    )
    response = Response(message=Message("assistant", (Text("a"),)), finish=FinishReason.STOP, usage=usage)
    answer = assemble(FAMILY.decode_body(FAMILY.encode_body(response, REQUEST), PROFILE, DEFAULT_LIMITS))
    assert recordings.five_counts(answer.usage) == (9, 8, 7, 6, 5)


def test_usage_is_streamed_only_to_who_asked_for_it() -> None:
    """As the API does: `stream_options.include_usage`."""
    response = Response(
        message=Message("assistant", (Text("a"),)), finish=FinishReason.STOP, usage=Usage(input_tokens=1, provider="{}")
    )
    raw = {"model": "m", "messages": [], "stream": True}
    for asked, options in ((False, None), (False, {"include_usage": False}), (True, {"include_usage": True})):
        request = FAMILY.decode_request(json.dumps({**raw, "stream_options": options}).encode(), "")
        assert (b'"usage"' in encode_stream(FAMILY, frames_of(response), request=request)) == asked


def test_a_fault_in_the_middle_is_written_as_the_error_object() -> None:
    """And nothing that a client could take for a good end follows it."""
    fault = Fault(kind=FaultKind.OVERLOADED, message="busy", code="503")
    sent = [Started("c1", "m1"), TextDelta("a"), Faulted(fault)]
    stream = encode_stream(FAMILY, sent, request=REQUEST)
    assert b"[DONE]" not in stream
    answer = assemble(decode_stream(FAMILY, [stream], profile=PROFILE))
    assert answer.message.parts == (Text("a"),)
    assert answer.fault == Fault(kind=FaultKind.OVERLOADED, message="busy", status=503, code="503")


def test_final_parts_add_what_the_deltas_have_not_said() -> None:
    """Frames of another family, whose final items may hold more than their deltas."""
    sent = [
        Started("c1", "m1"),
        TextDelta("Hel", "0"),
        PartDone("0", Text("Hello")),
        PartDone("1", ToolCall(id="a", name="f", arguments='{"a":1}')),
        ToolCallDelta(block="2", id="b", name="g", arguments='{"b'),
        PartDone("2", ToolCall(id="b", name="g", arguments='{"b":2}')),
        Finished(FinishReason.TOOL_CALLS, "completed"),
    ]
    answer = assemble(decode_stream(FAMILY, [encode_stream(FAMILY, sent, request=REQUEST)], profile=PROFILE))
    assert answer.message.parts == (
        Text("Hello"),
        ToolCall(id="a", name="f", arguments='{"a":1}'),
        ToolCall(id="b", name="g", arguments='{"b":2}'),
    )


# The official SDK as the judge


def sdk_reads_stream(stream: bytes) -> ChatCompletion:
    state = ChatCompletionStreamState()
    for line in stream.split(b"\n\n"):
        if line.startswith(b"data: {"):
            state.handle_chunk(ChatCompletionChunk.model_validate_json(line[6:]))
    return state.get_final_completion()  # type: ignore[return-value]


def told_by_sdk(completion: ChatCompletion) -> tuple[object, ...]:
    message = completion.choices[0].message
    calls = [
        (call.id, call.function.name, call.function.arguments)
        if call.type == "function"
        else (call.id, call.custom.name, call.custom.input)
        for call in message.tool_calls or ()
    ]
    usage = completion.usage
    return (
        message.content or "",
        message.refusal or "",
        calls,
        completion.choices[0].finish_reason,
        None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
    )


def written_word(response: Response) -> str | None:
    """The provider's own, unless it contradicts the reason: `stop` on calls is written as `tool_calls`."""
    contradicts = response.finish is FinishReason.TOOL_CALLS and response.provider_finish == "stop"
    return "tool_calls" if contradicts else response.provider_finish


def told_by_us(response: Response) -> tuple[object, ...]:
    parts = response.message.parts
    usage = response.usage
    return (
        "".join([part.text for part in parts if isinstance(part, Text)]),
        "".join([part.text for part in parts if isinstance(part, Refusal)]),
        [(part.id, part.name, part.arguments) for part in parts if isinstance(part, ToolCall)],
        written_word(response),
        None if usage is None else (usage.input_tokens, usage.output_tokens),
    )


@pytest.mark.promise("assembly:stream-equals-body")
@settings(deadline=None, max_examples=examples(50))  # the package's models are built on first use
@given(carried_responses())
def test_the_openai_package_reads_what_we_write(response: Response) -> None:
    """Body and stream, strictly validated; its accumulator finds the same text, refusal, calls, reason and usage.

    (Its accumulator has no free-form calls in streams: those are checked in the body only.)
    """
    raw = FAMILY.encode_body(response, REQUEST)
    strict = ChatCompletion.model_validate_json(raw) if response.provider_finish != "error" else None
    if strict is not None:
        assert told_by_sdk(strict) == told_by_us(response)
    streamable = not any(isinstance(part, ToolCall) and part.free_form for part in response.message.parts)
    if streamable and strict is not None and response.finish not in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER):
        stream = encode_stream(FAMILY, frames_of(response, piece=3), request=REQUEST)
        assert told_by_sdk(sdk_reads_stream(stream)) == told_by_us(response)


@pytest.mark.costly
@pytest.mark.promise("assembly:stream-equals-body")
def test_recorded_streams_written_again_are_read_alike_by_the_openai_package(corpus: Path) -> None:
    """Decode, encode, and the official accumulator agrees with us, on every recorded stream that ends by itself."""
    compared = 0
    for row in recordings.of_family(corpus, "openai_chat"):
        response = recordings.decode(row)
        if response.finish in (FinishReason.STOP, FinishReason.TOOL_CALLS) and response.fault is None:
            stream = encode_stream(FAMILY, frames_of(response), request=REQUEST)
            assert told_by_sdk(sdk_reads_stream(stream)) == told_by_us(response), row.file
            compared += 1
    assert compared >= 500


def test_recorded_bodies_are_read_as_the_openai_package_reads_them(corpus: Path) -> None:
    """The non-streamed answers of the recorded conversations, and those re-encoded."""
    compared = 0
    for path in sorted((corpus / "conversations").glob("openai-chat-*.json")):
        for exchange in json.loads(path.read_text())["exchanges"]:
            raw = exchange["response"]["body"].strip()
            if raw.startswith("{"):
                answer = assemble(FAMILY.decode_body(raw.encode(), PROFILE, DEFAULT_LIMITS))
                judged = ChatCompletion.model_validate(json.loads(raw), strict=False) if '"object"' in raw else None
                if judged is not None:
                    assert told_by_sdk(judged)[:4] == told_by_us(answer)[:4], path.name
                again = assemble(FAMILY.decode_body(FAMILY.encode_body(answer, REQUEST), PROFILE, DEFAULT_LIMITS))
                assert recordings.five_counts(again.usage) == recordings.five_counts(answer.usage)
                assert msgspec.structs.replace(again, usage=answer.usage) == answer, path.name
                compared += 1
    assert compared >= 8


def test_every_recorded_response_comes_back_from_our_own_stream(corpus: Path) -> None:
    """Decoded, encoded, decoded: the same message. Cut calls are apart: a whole stream has none."""
    compared = 0
    for row in recordings.of_family(corpus, "openai_chat"):
        response = recordings.decode(row)
        calls = [part for part in response.message.parts if isinstance(part, ToolCall)]
        if response.finish is not FinishReason.CUT and all(call.state == "complete" for call in calls):
            stream = encode_stream(FAMILY, frames_of(response), request=REQUEST)
            again = assemble(decode_stream(FAMILY, [stream], profile=PROFILE))
            assert again.message == response.message, row.file
            if response.fault is None:
                assert (again.finish, again.provider_finish) == (response.finish, written_word(response)), row.file
            compared += 1
    assert compared >= 500
