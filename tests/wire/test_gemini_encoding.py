"""Gemini streams and bodies as we write them, read back by us and by the official SDK."""

import base64
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from google.genai.types import GenerateContentResponse
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
    ArgumentsState,
    BlockData,
    BlockEnded,
    Citation,
    File,
    Finished,
    FinishReason,
    Frame,
    Message,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
    calls_of,
)
from turnwise.wire.endings import says_same
from turnwise.wire.gemini import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS
from wire.gemini_streams import (
    COUNTED,
    NAME,
    PROFILE,
    REQUEST,
    USAGE,
    own,
)

# Writing


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
OPAQUE = st.none() | TEXTS.map(lambda text: own(thoughtSignature=text))
OBJECTS = (
    st.dictionaries(TEXTS, TEXTS | st.integers(-5, 5) | st.none(), max_size=3)
    .map(msgspec.json.encode)
    .map(bytes.decode)
)
CALLS = st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=OBJECTS, opaque=OPAQUE)
ITEMS = st.sampled_from(
    [
        ProviderItem(NAME, "executableCode", '{"executableCode":{"language":"PYTHON","code":"1\\n"}}'),
        File(media_type="image/png", data=b"\x89PNG"),
        File(media_type="image/png", file_id="files/abc", opaque=own(thoughtSignature="x")),
    ]
)
PARTS = st.lists(TEXTS.map(Text) | TEXTS.map(Reasoning) | CALLS | ITEMS, max_size=5).map(tuple)
SIGNED = st.lists(
    st.builds(Text, TEXTS | st.just(""), opaque=OPAQUE) | st.builds(Reasoning, TEXTS, opaque=OPAQUE), max_size=5
)
ENDS = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.ERROR])
USAGES = st.builds(
    lambda prompt, output, reasoning, cached: Usage(
        input_tokens=prompt + cached,
        output_tokens=output + reasoning,
        reasoning_tokens=reasoning,
        cache_read_tokens=cached,
    ),
    *[st.integers(0, 99)] * 4,
)


def merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The loss that every test here meets: plain texts that follow each other are one."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Text | Reasoning) and part.opaque is None and not part.text:
            continue
        if (
            isinstance(part, Text | Reasoning)
            and type(last) is type(part)
            and last.opaque is None
            and part.opaque is None
        ):
            found[-1] = type(part)(last.text + part.text)
        else:
            found.append(part)
    return tuple(found)


def expected_of(response: Response) -> Response:
    """The response less what the loss table names."""
    parts = merged(response.message.parts)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    ids: dict[str, int] = {}
    for part in calls:
        ids[part.id] = ids.get(part.id, 0) + 1
    word = {FinishReason.STOP: "STOP", FinishReason.LENGTH: "MAX_TOKENS", FinishReason.CONTENT_FILTER: "SAFETY"}
    finish = FinishReason.TOOL_CALLS if calls and response.finish is FinishReason.STOP else response.finish
    usage = response.usage
    if usage is not None:
        counts = {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
        }
        kept = {key: n for key, n in counts.items() if n or not key.startswith(("thoughts", "cached"))}
        usage = msgspec.structs.replace(usage, provider=msgspec.json.encode(kept).decode())
    return msgspec.structs.replace(
        response,
        message=Message("assistant", parts),
        finish=finish,
        provider_finish=word.get(response.finish, "OTHER"),
        usage=usage,
    )


@given(PARTS, ENDS, st.none() | USAGES)
def test_responses_come_back_as_they_were(parts: tuple[Part, ...], finish: FinishReason, usage: Usage | None) -> None:
    """As a body and as a stream of small deltas; only the losses of the table are missing."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if len({part.id for part in calls}) < len(calls) or (finish is FinishReason.LENGTH and calls):
        return  # the assembler renames and judges those
    response = Response(message=Message("assistant", parts), finish=finish, usage=usage, id="r", model="m")
    check_response_round_trip(FAMILY, response, profile=PROFILE, request=REQUEST, expected=expected_of(response))


@given(SIGNED)
def test_signed_texts_come_back_as_they_were(parts: list[Part]) -> None:
    """Where they are whole: in bodies, and as finished parts in streams."""
    response = Response(message=Message("assistant", tuple(parts)), finish=FinishReason.STOP, id="r", model="m")
    frames: list[Frame] = [Started("r", "m")]
    frames += [PartDone(f"p{i}", part) for i, part in enumerate(parts)]
    stream = encode_stream(FAMILY, [*frames, Finished(FinishReason.STOP)], request=REQUEST)
    expected = expected_of(response)
    assert assemble(decode_stream(FAMILY, [stream], profile=PROFILE)) == expected
    body = FAMILY.encode_body(response, REQUEST)
    assert assemble(FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS)) == expected


def test_a_signature_that_comes_after_its_text_follows_in_an_empty_part() -> None:
    """The text is on its way already; the API itself ends its texts so."""
    frames = [
        TextDelta("a", "t"),
        BlockData("t", own(thoughtSignature="1")),
        ReasoningDelta("b", "r"),
        BlockData("r", own(thoughtSignature="2")),
        BlockData("r", Opaque("openai_responses", '{"id":"rs"}')),
        Finished(FinishReason.STOP),
    ]
    decoded = assemble(decode_stream(FAMILY, [encode_stream(FAMILY, frames, request=REQUEST)], profile=PROFILE))
    assert decoded.message.parts == (
        Text("a"),
        Text("", opaque=own(thoughtSignature="1")),
        Reasoning("b"),
        Reasoning("", own(thoughtSignature="2")),
    )


def test_losses_become_what_the_table_says() -> None:
    """Cut calls are left out, refusals are text, a pause is a stop, cache writes are part of the prompt."""
    parts = (
        Refusal("I will not."),
        ToolCall(id="a", name="cut", arguments='{"x": "', state=ArgumentsState.TRUNCATED),
        ProviderItem("anthropic_messages", "server_tool_use", "{}"),
        ToolCall(id="b", name="free", arguments="*** text", free_form=True),
    )
    response = Response(
        message=Message("assistant", parts),
        finish=FinishReason.PAUSE,
        provider_finish="pause_turn",
        usage=Usage(input_tokens=5, output_tokens=1, cache_write_tokens=2, provider='{"input_tokens":3}'),
    )
    stream = encode_stream(FAMILY, frames_of(response), request=REQUEST)
    for frames in (
        decode_stream(FAMILY, [stream], profile=PROFILE),
        FAMILY.decode_body(FAMILY.encode_body(response, REQUEST), PROFILE, DEFAULT_LIMITS),
    ):
        assert assemble(frames) == Response(
            message=Message(
                "assistant", (Text("I will not."), ToolCall(id="b", name="free", arguments='{"input":"*** text"}'))
            ),
            finish=FinishReason.TOOL_CALLS,
            provider_finish="STOP",
            usage=Usage(
                input_tokens=5,
                output_tokens=1,
                provider='{"promptTokenCount":5,"candidatesTokenCount":1,"totalTokenCount":6}',
            ),
            model="gemini-3",
            may_hide_cut=("b",),
        )


def test_calls_come_out_whole_and_in_the_order_in_which_they_began() -> None:
    """Interleaved pieces of parallel calls, one that never ends, and usage after the finish."""
    frames = [
        ToolCallDelta(block="1", id="a", name="x", arguments='{"p":'),
        ToolCallDelta(block="2", id="b", name="y", arguments="{"),
        ToolCallDelta(block="2", arguments="}", opaque=own(thoughtSignature="s")),
        BlockEnded("2"),
        ToolCallDelta(block="1", arguments="1}"),
        BlockEnded("1"),
        ToolCallDelta(block="3", id="c", name="z", arguments='{"cut'),
        Finished(FinishReason.LENGTH),
        UsageReported(COUNTED),
    ]
    stream = encode_stream(FAMILY, frames, request=REQUEST)
    written = [json.loads(line[6:]) for line in stream.decode().split("\r\n") if line]
    parts = [part for each in written for part in each["candidates"][0]["content"]["parts"]]
    assert parts == [
        {"functionCall": {"id": "a", "name": "x", "args": {"p": 1}}},
        {"functionCall": {"id": "b", "name": "y", "args": {}}, "thoughtSignature": "s"},
        {"text": ""},
    ]
    assert (written[-1]["candidates"][0]["finishReason"], written[-1]["usageMetadata"]) == ("MAX_TOKENS", USAGE)


# The SDK as the judge


def read_by_sdk(stream: bytes) -> list[GenerateContentResponse]:
    """Its types refuse unknown words with a warning, and warnings are errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [sdk_response(line[6:]) for line in stream.decode().split("\r\n") if line]


def sdk_response(text: str | bytes) -> GenerateContentResponse:
    """As its client does it: fields that its version does not know are passed over."""
    return GenerateContentResponse._from_response(response=json.loads(text), kwargs={})


@pytest.mark.promise("assembly:stream-equals-body")
def test_the_official_sdk_reads_what_we_write() -> None:
    """Stream and body of one answer, through google-genai's own types: text, thoughts, calls, signatures, usage, finish."""
    image = File(media_type="image/png", data=b"\x89PNG")
    signature = base64.b64encode(b"signature").decode()
    made = ToolCall(id="c", name="read", arguments='{"n": [1]}', opaque=own(thoughtSignature=signature))
    citation = Citation(family="anthropic_messages", raw="{}", url="https://a.example", title="A")
    parts = (Reasoning("hm"), Text("see", (citation,)), image, made)
    response = Response(
        message=Message("assistant", parts), finish=FinishReason.TOOL_CALLS, usage=COUNTED, id="r", model="gemini-3"
    )
    stream = read_by_sdk(encode_stream(FAMILY, frames_of(response), request=REQUEST))
    body = sdk_response(FAMILY.encode_body(response, REQUEST))
    for chunks in (stream, [body]):
        seen = [part for each in chunks for part in (each.parts or []) if part.text != ""]
        assert "".join([part.text for part in seen if part.thought and part.text]) == "hm"
        assert "".join([part.text for part in seen if not part.thought and part.text]) == "see"
        [blob] = [part.inline_data for part in seen if part.inline_data]
        assert (blob.mime_type, blob.data) == ("image/png", b"\x89PNG")
        [signed] = [part for part in seen if part.function_call]
        assert signed.thought_signature == b"signature"
        assert signed.function_call is not None
        assert (signed.function_call.id, signed.function_call.name, signed.function_call.args) == (
            "c",
            "read",
            {"n": [1]},
        )
        last = chunks[-1]
        assert last.candidates is not None
        assert last.usage_metadata is not None
        assert last.candidates[0].finish_reason == "STOP"
        assert last.candidates[0].grounding_metadata is not None
        assert (last.usage_metadata.prompt_token_count, last.usage_metadata.thoughts_token_count) == (10, 5)
        assert (last.response_id, last.model_version) == ("r", "gemini-3")


@pytest.mark.promise("assembly:stream-equals-body")
def test_recordings_written_again_say_the_same(corpus: Path) -> None:
    """Each recorded stream, decoded, encoded as a stream and as a body and decoded again, is the same response; the SDK
    reads each chunk of it."""
    count = 0
    for row in recordings.of_family(corpus, NAME):
        before = recordings.decode(row)
        stream = b""
        encoder = FAMILY.stream_encoder(REQUEST)
        for frame in decode_stream(FAMILY, [row.path.read_bytes()], profile=PROFILE):
            stream += encoder.encode(frame)
        stream += encoder.finish()
        body = FAMILY.encode_body(before, REQUEST)
        # A signature that was made up (the SDK insists on base64), and numbers for words (which it cannot read).
        if "thought_abc123" not in stream.decode() and before.provider_finish != "1":
            read_by_sdk(stream)
            sdk_response(body)
        for frames in (
            decode_stream(FAMILY, [stream], profile=PROFILE),
            FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS),
        ):
            after = assemble(frames)
            if before.provider_finish == "1":
                after = msgspec.structs.replace(after, provider_finish="1")
            assert recordings.differences(row, after) == recordings.differences(row, before), row.file
            assert after.usage and before.usage and says_same(after.usage, before.usage), row.file
            assert [each.arguments for each in calls_of(after.message)] == [
                each.arguments for each in calls_of(before.message)
            ], row.file
            opaque = [getattr(part, "opaque", None) for part in before.message.parts]
            assert [found for part in after.message.parts if (found := getattr(part, "opaque", None))] == [
                found for found in opaque if found
            ], row.file
        count += 1
    assert count == 185


def test_recordings_agree_with_the_sdk(corpus: Path) -> None:
    """What the manifest does not compare: response id, model, parts in their order, as google-genai's types see them."""
    for row in recordings.of_family(corpus, NAME):
        if row.file.endswith(".json") or "partialArgs" in row.path.read_text() or "live-speech" in row.file:
            continue
        if "thought_abc123" in row.path.read_text():
            continue
        lines = [line[5:] for line in row.path.read_text().split("\n") if line.startswith("data:")]
        chunks = [sdk_response(line) for line in lines]
        kinds: list[str] = []
        for each in chunks:
            for part in (
                (each.candidates[0].content.parts or []) if each.candidates and each.candidates[0].content else []
            ):
                signed = part.thought_signature is not None
                kind = "text" if part.text is not None else next(iter(part.model_fields_set - {"thought_signature"}))
                if part.text != "" or signed:
                    kind = f"{kind}{' thought' if part.thought else ''}{' signed' if signed else ''}"
                    if kind not in ("text", "text thought") or kinds[-1:] != [kind]:
                        kinds.append(kind)
        response = recordings.decode(row)
        assert [kind_of(part) for part in response.message.parts] == kinds, row.file
        assert (response.id, response.model) == (chunks[0].response_id, chunks[0].model_version)


def kind_of(part: Part) -> str:
    signed = " signed" if "thoughtSignature" in ((getattr(part, "opaque", None) or own()).json) else ""
    match part:
        case Text():
            return f"text{signed}"
        case Reasoning():
            return f"text thought{signed}"
        case ToolCall():
            return f"function_call{signed}"
        case ProviderItem(kind=kind, json=text):
            words = {"executableCode": "executable_code", "codeExecutionResult": "code_execution_result"}
            return words[kind] + (" signed" if "thoughtSignature" in text else "")
        case _:
            raise AssertionError(part)
