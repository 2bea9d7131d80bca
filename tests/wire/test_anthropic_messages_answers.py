"""Answers that we write in the manner of the Messages API: read back by us, and by the SDK, as they were."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaMessage
from hypothesis import given
from hypothesis import strategies as st

import recordings
from turnwise.testing.wire_conformance import (
    assemble,
    check_response_round_trip,
    decode_stream,
    encode_stream,
    frames_of,
)
from turnwise.vocab import (
    BlockEnded,
    Citation,
    Fault,
    Faulted,
    FaultKind,
    File,
    Finished,
    FinishReason,
    Frame,
    Message,
    Opaque,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.wire.anthropic_messages import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile

NAME = "anthropic_messages"
PROFILE = Profile(name="test", family="anthropic_messages")
REQUEST = Request(model="claude", messages=(Message("user", (Text("hi"),)),))


def own(**fields: Any) -> Opaque:
    return Opaque(NAME, msgspec.json.encode(fields).decode())


# --- there and back

texts = st.text(min_size=1, max_size=20)
ids = st.text("abcXYZ019_-", min_size=1, max_size=12)
objects = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3).map(
    lambda value: msgspec.json.encode(value).decode()
)
cited = Citation(
    family=NAME,
    raw='{"type":"web_search_result_location","cited_text":"c","title":"t","url":"u","encrypted_index":"e"}',
    url="u",
    title="t",
    cited_text="c",
)
parts = st.one_of(
    st.builds(Text, texts, citations=st.sampled_from([(), (cited,)])),
    st.builds(Reasoning, texts, opaque=st.sampled_from([None, own(signature="s")])),
    st.just(Reasoning("", opaque=own(data="d"))),
    st.builds(ToolCall, id=ids, name=ids, arguments=objects),
    st.builds(
        lambda item: ProviderItem(NAME, "server_tool_use", item),
        objects.map(lambda text: '{"type":"server_tool_use","id":"i","name":"web_search","input":' + text + "}"),
    ),
    st.just(
        ProviderItem(NAME, "web_search_tool_result", '{"type":"web_search_tool_result","tool_use_id":"i","content":[]}')
    ),
)
usages = st.builds(
    lambda read, write, plain, thought, said: Usage(
        input_tokens=read + write + plain,
        output_tokens=thought + said,
        reasoning_tokens=thought,
        cache_read_tokens=read,
        cache_write_tokens=write,
    ),
    *[st.integers(0, 99)] * 5,
)


def as_decoded(response: Response) -> Response:
    """The usage object becomes the API's own; the finish is what our assembler makes of calls or none."""
    counts = response.usage
    assert counts is not None
    spent: dict[str, object] = {
        "input_tokens": counts.input_tokens - counts.cache_read_tokens - counts.cache_write_tokens,
        "cache_creation_input_tokens": counts.cache_write_tokens,
        "cache_read_input_tokens": counts.cache_read_tokens,
        "cache_creation": None,
        "server_tool_use": None,
        "service_tier": None,
        "inference_geo": None,
        "output_tokens_details": {"thinking_tokens": counts.reasoning_tokens},
        "output_tokens": counts.output_tokens,
    }
    usage = msgspec.structs.replace(counts, provider=msgspec.json.encode(spent).decode())
    return msgspec.structs.replace(response, usage=usage)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """Answers that lose nothing: unique call ids, and the finish that fits them."""
    drawn = draw(
        st.lists(parts, max_size=4, unique_by=lambda part: part.id if isinstance(part, ToolCall) else object())
    )
    called = any(isinstance(part, ToolCall) for part in drawn)
    word, finish = ("tool_use", FinishReason.TOOL_CALLS) if called else ("end_turn", FinishReason.STOP)
    return Response(
        message=Message("assistant", tuple(drawn)),
        finish=finish,
        provider_finish=word,
        usage=draw(usages),
        id=draw(texts),
        model=draw(texts),
    )


@given(responses())
@pytest.mark.promise("assembly:stream-equals-body")
def test_answers_come_back_as_they_were(response: Response) -> None:
    """Encoded as body and as stream, decoded again: equal."""
    check_response_round_trip(FAMILY, response, profile=PROFILE, request=REQUEST, expected=as_decoded(response))


LOST: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "refusals": ((Refusal("no"),), (Text("no"),)),
    "files in assistant messages": ((File(media_type="image/png", data=b"x"), Text("a")), (Text("a"),)),
    "empty texts": ((Text(""), Text("a")), (Text("a"),)),
    "free-form calls": (
        (ToolCall(id="a", name="n", arguments='say "hi"\n', free_form=True),),
        (ToolCall(id="a", name="n", arguments='{"input":"say \\"hi\\"\\n"}'),),
    ),
    "characters of a call id other than `a-z`, `A-Z`, `0-9`, `_` and `-`": (
        (ToolCall(id="a.b:0", name="n"),),
        (ToolCall(id="a_b_0_fa26af0e", name="n"),),
    ),
    "opaque data, citations and provider items of other families, and their server-side tools": (
        (Text("a", citations=(Citation(family="gemini", raw="{}"),)), ProviderItem("gemini", "x", "{}")),
        (Text("a"),),
    ),
}


@pytest.mark.parametrize("what", LOST)
def test_each_loss_of_answers_is_exactly_as_the_table_says(what: str) -> None:
    """One answer for each row that a part decides."""
    before, after = LOST[what]
    finish = FinishReason.TOOL_CALLS if any(isinstance(part, ToolCall) for part in before) else FinishReason.STOP
    word = "tool_use" if finish is FinishReason.TOOL_CALLS else "end_turn"
    response = Response(
        message=Message("assistant", tuple(before)),
        finish=finish,
        provider_finish=word,
        usage=Usage(),
        id="i",
        model="m",
    )
    expected = msgspec.structs.replace(response, message=Message("assistant", tuple(after)))
    check_response_round_trip(FAMILY, response, profile=PROFILE, request=REQUEST, expected=as_decoded(expected))


@pytest.mark.parametrize(
    ("finish", "provider", "word"),
    [
        (FinishReason.STOP, "stop", "end_turn"),
        (FinishReason.CONTENT_FILTER, "content_filter", "refusal"),
        (FinishReason.LENGTH, "length", "max_tokens"),
        (FinishReason.PAUSE, None, "pause_turn"),
        (FinishReason.LENGTH, "model_context_window_exceeded", "model_context_window_exceeded"),
        (FinishReason.ERROR, "error", None),
        (FinishReason.CUT, None, None),
    ],
)
def test_the_finish_is_told_in_the_apis_words(finish: FinishReason, provider: str | None, word: str | None) -> None:
    """Other families' words become this one's; for an error or a cut it has none, and the stream just stops."""
    response = Response(message=Message("assistant", (Text("a"),)), finish=finish, provider_finish=provider)
    assert json.loads(FAMILY.encode_body(response, REQUEST))["stop_reason"] == word
    stream = encode_stream(FAMILY, frames_of(response), request=REQUEST)
    assert (b"message_stop" in stream) == (word is not None)
    assert word is None or f'"stop_reason":"{word}"'.encode() in stream


def test_losses_of_answers_all_have_their_proof() -> None:
    """No row of the table without one of the tests here."""
    rows = {loss.what for loss in FAMILY.losses if loss.direction in ("response", "both")}
    assert rows - set(LOST) == {
        "the reason why a call is not complete",
        "opaque fields that come after the start of their text or call",
        "finish reasons `error` and `cut`",
        "finish reason `content_filter`",
        "the provider's own finish word and usage object",
        "the explanation of a finish other than `refusal`",
        "what the response held before a fault",
        "repairs",
    }


def test_interleaved_calls_are_written_one_after_the_other() -> None:
    """Chat Completions may interleave; the API never has two blocks open, and text stays before what followed it."""
    frames: list[Frame] = [
        Started(),
        TextDelta("a"),
        ToolCallDelta(block="x", id="1", name="f", arguments='{"a":'),
        ToolCallDelta(block="y", id="2", name="g", arguments='{"b":'),
        ToolCallDelta(block="x", arguments="1}"),
        TextDelta("late"),
        ToolCallDelta(block="y", arguments="2}"),
        BlockEnded("x"),
        UsageReported(Usage(output_tokens=3)),
        Finished(FinishReason.TOOL_CALLS, "tool_calls"),
    ]
    stream = encode_stream(FAMILY, frames, request=REQUEST)
    events = [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: ")]
    assert [(event["type"], event.get("index")) for event in events] == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("content_block_start", 3),
        ("content_block_delta", 3),
        ("content_block_stop", 3),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert assemble(decode_stream(FAMILY, [stream], profile=PROFILE)).message.parts == (
        Text("a"),
        ToolCall(id="1", name="f", arguments='{"a":1}'),
        ToolCall(id="2", name="g", arguments='{"b":2}'),
        Text("late"),
    )


def test_a_fault_is_an_error_event_and_the_end() -> None:
    """As the API reports it in mid-stream; the body is the error object."""
    fault = Fault(kind=FaultKind.OVERLOADED, message="busy")
    frames: list[Frame] = [Started(), TextDelta("a"), Faulted(fault)]
    stream = encode_stream(FAMILY, frames, request=REQUEST)
    assert stream.endswith(
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    )
    response = Response(message=Message("assistant", ()), finish=FinishReason.ERROR, fault=fault)
    assert (
        FAMILY.encode_body(response, REQUEST)
        == b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
    )


# --- judged by others


def accumulated(stream: bytes) -> BetaMessage | None:
    """What the SDK makes of a stream."""
    snapshot = None
    buffers: dict[int, bytes] = {}
    for line in stream.decode().split("\n"):
        if line.startswith("data: ") and '"type":"ping"' not in line.replace(" ", "") and line != "data: [DONE]":
            snapshot = accumulate_event(
                event=json.loads(line[6:]),
                current_snapshot=snapshot,
                json_bufs=buffers,
                request_headers=httpx2.Headers(),
            )
    return snapshot


@given(responses())
def test_the_sdk_reads_the_streams_and_bodies_that_we_write(response: Response) -> None:
    """The accumulator of the anthropic package and its own type agree with each other about one answer of ours."""
    stream = accumulated(encode_stream(FAMILY, frames_of(response), request=REQUEST))
    body = BetaMessage.model_validate_json(FAMILY.encode_body(response, REQUEST))
    assert stream is not None
    assert (stream.id, stream.stop_reason, len(stream.content)) == (body.id, body.stop_reason, len(body.content))
    assert stream.usage.output_tokens == body.usage.output_tokens
    for block, whole, part in zip(stream.content, body.content, response.message.parts, strict=True):
        assert block.type == whole.type
        match part:
            case Text():
                assert block.text == whole.text == part.text
                assert len(block.citations or []) == len(whole.citations or []) == len(part.citations)
            case Reasoning() if part.text:
                assert (block.thinking, block.signature) == (whole.thinking, whole.signature)
            case ToolCall():
                assert (block.id, block.name) == (part.id, part.name)
                assert block.input == whole.input == json.loads(part.arguments)
            case _:
                assert block.type in ("redacted_thinking", "server_tool_use", "web_search_tool_result")


@pytest.mark.promise("assembly:kinds")
def test_recorded_streams_decode_to_what_is_expected(corpus: Path) -> None:
    """All of them, with their server-side items in order."""
    compared = 0
    for row in recordings.of_family(corpus, NAME):
        response = recordings.decode(row)
        assert recordings.differences(row, response) == [], row.file
        items = [part.kind for part in response.message.parts if isinstance(part, ProviderItem)]
        assert items == (row.expected.get("other_items") or []), row.file
        compared += 1
    assert compared >= 284


@pytest.mark.costly
@pytest.mark.promise("assembly:split-anywhere")
def test_recorded_streams_decode_alike_however_they_are_cut(corpus: Path) -> None:
    """20 random splits each, and byte by byte where they are short."""
    rng = random.Random(7)
    for row in recordings.of_family(corpus, NAME):
        content = row.path.read_bytes()
        whole = decode_stream(FAMILY, [content], profile=PROFILE)
        for _ in range(20 if len(content) < 20_000 else 3):
            cuts = sorted(rng.randrange(len(content) + 1) for _ in range(5))
            pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]
            assert decode_stream(FAMILY, pieces, profile=PROFILE) == whole, (row.file, cuts)
        if len(content) < 4000:
            assert decode_stream(FAMILY, [content[i : i + 1] for i in range(len(content))], profile=PROFILE) == whole


@pytest.mark.promise("assembly:stream-equals-body")
def test_the_bodies_that_the_sdk_accumulates_decode_to_the_same_messages(corpus: Path) -> None:
    """Each recorded stream, made a body by the SDK, not by us, gives the message that the stream gave."""
    disputed = {"spliced-message-start", "gateway-message-delta-metadata"}  # the SDK fails on both (manifest)
    compared = 0
    for row in recordings.of_family(corpus, NAME):
        if any(name in row.file for name in disputed):
            continue
        message = accumulated(row.path.read_bytes())
        assert message is not None
        body = message.to_json(exclude_none=True, exclude_unset=False).encode()
        ours = recordings.decode(row).message
        theirs = assemble(FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS)).message
        assert plain(theirs) == plain(ours), row.file
        compared += 1
    assert compared >= 280


def plain(message: Message) -> list[object]:
    """The parts with JSON as values: the SDK writes its own spacing and defaults."""
    found: list[object] = []
    for part in message.parts:
        match part:
            case ToolCall():
                found.append((part.id, part.name, json.loads(part.arguments), part.state))
            case ProviderItem():
                item = json.loads(part.json)
                found.append((part.kind, item.get("id"), item.get("tool_use_id"), item.get("input")))
            case Text():
                found.append((part.text, [citation.cited_text for citation in part.citations]))
            case Reasoning():
                found.append((part.text, part.opaque and json.loads(part.opaque.json)))
            case _:
                found.append(part)
    return found


def test_recorded_answers_survive_our_own_writing(corpus: Path) -> None:
    """Each recorded answer, written by us as a stream and as a body, reads as the same message."""
    for row in recordings.of_family(corpus, NAME):
        response = recordings.decode(row)
        stream = encode_stream(FAMILY, frames_of(response), request=REQUEST)
        streamed = assemble(decode_stream(FAMILY, [stream], profile=PROFILE))
        whole = assemble(FAMILY.decode_body(FAMILY.encode_body(response, REQUEST), PROFILE, DEFAULT_LIMITS))
        assert without_caller(streamed.message) == without_caller(response.message), row.file
        assert whole.message == response.message or response.finish is FinishReason.LENGTH, row.file
        assert (streamed.finish, streamed.provider_finish) == (response.finish, response.provider_finish)


def without_caller(message: Message) -> Message:
    """`frames_of` tells opaque fields after the arguments, when the call's start has gone out."""
    return Message(
        message.role,
        tuple(
            msgspec.structs.replace(part, opaque=None) if isinstance(part, ToolCall) else part for part in message.parts
        ),
    )
