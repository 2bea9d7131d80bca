"""Responses that we write ourselves: openai-python, which we did not write, reads what was meant."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from recordings import decode, of_family, profile_of
from thoroughness import examples
from turnwise.testing.wire_conformance import as_said, assemble, decode_stream, encode_stream, frames_of
from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Citation,
    Fault,
    Faulted,
    FaultKind,
    FinishReason,
    Frame,
    Lost,
    Message,
    Opaque,
    OutputSchema,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Request,
    Response,
    Settings,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
    Usage,
    calls_of,
    reasoning_of,
    refusal_of,
    text_of,
)
from turnwise.wire.openai_responses import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles

PROFILE = builtin_profiles()["openai_responses"]
REQUEST = Request(
    model="gpt-5",
    system=(Text("Be brief."),),
    messages=(Message("user", (Text("hi"),)),),
    tools=(ToolSpec(name="read", parameters='{"type":"object","properties":{"path":{"type":"string"}}}'),),
    settings=Settings(max_output_tokens=100, temperature=0.5, reasoning_effort="low"),
    output=OutputSchema(schema='{"type":"object"}'),
)
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WHOLE_USAGE = (
    '{"input_tokens": 3,"output_tokens":2,"total_tokens":5,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
    '"output_tokens_details":{"reasoning_tokens":0}}'
)


def own(**fields: object) -> Opaque:
    return Opaque("openai_responses", json.dumps(fields, separators=(",", ":"), ensure_ascii=False))


def client(reply: bytes, *, content_type: str) -> openai.OpenAI:
    """The official client, its bytes coming from us."""
    answer = httpx2.Response(200, content=reply, headers={"content-type": content_type})
    return openai.OpenAI(
        api_key="none",
        base_url="http://localhost/v1",
        http_client=httpx2.Client(transport=httpx2.MockTransport(lambda _: answer)),
    )


def read_by_sdk(stream: bytes) -> SdkResponse:
    """What `client.responses.stream` has put together; its accumulator checks indexes, ids and order."""
    with (
        client(stream, content_type="text/event-stream") as sdk,
        sdk.responses.stream(model="gpt-5", input="hi") as events,
    ):
        for _ in events:
            pass
        return events.get_final_response()


def said(response: Response) -> tuple[object, ...]:
    calls = [(call.id, call.name, call.arguments) for call in calls_of(response.message)]
    return text_of(response.message), reasoning_of(response.message), refusal_of(response.message), calls


def said_to_sdk(response: SdkResponse) -> tuple[object, ...]:
    """The same, read from the SDK's objects by the API's own definitions."""
    text, reasoning, refusal, calls = "", "", "", []
    for item in response.output:
        match item.type:
            case "message":
                for part in item.content:
                    text += part.text if part.type == "output_text" else ""
                    refusal += part.refusal if part.type == "refusal" else ""
            case "reasoning":
                summary = "".join([part.text for part in item.summary])
                reasoning += summary or "".join([part.text for part in item.content or []])
            case "function_call":
                calls.append((item.call_id, item.name, item.arguments))
            case "custom_tool_call":
                calls.append((item.call_id, item.name, item.input))
            case _:
                pass
    return text, reasoning, refusal, calls


def frames_with_ids_first(response: Response) -> list[Frame]:
    """As a decoder of this family gives them: a block begins with the fields of its item."""
    frames: list[Frame] = []
    seen: set[str] = set()
    opaques = {frame.block: frame for frame in frames_of(response) if isinstance(frame, BlockData)}
    for frame in frames_of(response):
        block = getattr(frame, "block", None)
        if block in opaques and block not in seen:
            seen.add(block)
            frames.append(opaques[block])
        if not isinstance(frame, BlockData):
            frames.append(frame)
    return frames


# ---- generated responses

texts = st.text(st.characters(codec="utf-8"), max_size=12)
citation = Citation(family="openai_responses", raw='{"type":"url_citation","url":"u","title":"t"}', url="u", title="t")


@cache  # making and checking the strategies took most of the time of these tests
def parts_at(n: int) -> st.SearchStrategy[Part]:
    message = own(id=f"msg_{n // 2}", status="completed", phase="final_answer")
    return st.one_of(
        st.builds(Text, texts, st.sampled_from([(), (citation,)]), st.just(message)),
        st.builds(Refusal, texts.filter(bool), st.just(message)),
        st.builds(Reasoning, texts, st.just(own(id=f"rs_{n}", encrypted_content="g"))),
        st.builds(
            ToolCall,
            id=st.just(f"call_{n}"),
            name=st.just("read"),
            arguments=texts.map(lambda text: json.dumps({"path": text})),
            opaque=st.just(own(id=f"fc_{n}", status="completed")),
        ),
        st.builds(
            ToolCall,
            id=st.just(f"call_{n}"),
            name=st.just("sql"),
            arguments=texts,
            free_form=st.just(True),
            opaque=st.just(own(id=f"ctc_{n}", status="completed")),
        ),
        st.just(
            ProviderItem(
                "openai_responses",
                "web_search_call",
                f'{{"id":"ws_{n}","type":"web_search_call","status":"completed"}}',
            )
        ),
    )


usages = st.none() | st.just(Usage(input_tokens=3, output_tokens=2, provider=WHOLE_USAGE))


@st.composite
def responses(draw: st.DrawFn) -> Response:
    parts = [draw(parts_at(n)) for n in range(draw(st.integers(0, 4)))]
    has_calls = any(isinstance(part, ToolCall) for part in parts)
    has_refusal = any(isinstance(part, Refusal) for part in parts)
    finish = FinishReason.TOOL_CALLS if has_calls else FinishReason.REFUSAL if has_refusal else FinishReason.STOP
    return Response(
        id="resp_1",
        model="gpt-5",
        message=Message("assistant", tuple(parts)),
        finish=finish,
        provider_finish="completed",
        usage=draw(usages),
    )


@settings(max_examples=examples(250), deadline=None)
@given(responses())
@pytest.mark.promise("assembly:stream-equals-body", "assembly:kinds")
def test_a_response_survives_as_body_and_as_stream(response: Response) -> None:
    """Parts, their own fields, usage, reason: the same, also cut at any byte by the network."""
    body = FAMILY.encode_body(response, REQUEST)
    assert as_said(assemble(FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS))) == response, body.decode()
    stream = encode_stream(FAMILY, frames_with_ids_first(response), request=REQUEST)
    assert as_said(assemble(decode_stream(FAMILY, [stream], profile=PROFILE))) == response, stream.decode()


@settings(max_examples=examples(40), deadline=None)
@given(responses())
@pytest.mark.promise("assembly:stream-equals-body")
def test_the_official_client_reads_what_was_meant(response: Response) -> None:
    """Body and stream, with the ids given early, late, or never."""
    bare = [
        part if isinstance(part, ProviderItem) else msgspec.structs.replace(part, opaque=None)
        for part in parts_of(response)
    ]
    without_ids = msgspec.structs.replace(response, message=Message("assistant", tuple(bare)))
    for frames in (frames_with_ids_first(response), frames_of(response), frames_of(without_ids)):
        assert said_to_sdk(read_by_sdk(encode_stream(FAMILY, frames, request=REQUEST))) == said(response)
    sdk = client(FAMILY.encode_body(response, REQUEST), content_type="application/json")
    assert said_to_sdk(sdk.responses.create(model="gpt-5", input="hi")) == said(response)


def parts_of(response: Response) -> Sequence[Any]:
    return response.message.parts


def test_every_event_is_one_that_the_sdk_knows_field_by_field() -> None:
    """Validated strictly, not only constructed; numbered from 0 without a gap; the request's settings are repeated."""
    response = Response(
        id="resp_1",
        model="gpt-5",
        message=Message(
            "assistant",
            (
                Reasoning("Hm", own(id="rs_1", encrypted_content="g")),
                Text(
                    "a",
                    (Citation(family="openai_responses", raw=CITATION, url="u", title="t"),),
                    own(id="msg_1", status="completed"),
                ),
                Refusal("b", SAME),
                ToolCall(id="call_1", name="read", arguments='{"path":"p"}'),
                ToolCall(id="call_2", name="sql", arguments="select 1", free_form=True),
            ),
        ),
        finish=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=3, output_tokens=2),
    )
    stream = encode_stream(FAMILY, frames_with_ids_first(response), request=REQUEST)
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
    names = [line[7:].decode() for line in stream.splitlines() if line.startswith(b"event: ")]
    for event in events:
        EVENTS.validate_python(event)
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [name.removeprefix("response.") for name in names if not name.endswith(".delta")] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.annotation.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "refusal.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    final = events[-1]["response"]
    assert final["output"] == [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (final["instructions"], final["max_output_tokens"], final["temperature"]) == ("Be brief.", 100, 0.5)
    assert final["tools"][0]["name"] == "read"
    assert final["usage"]["total_tokens"] == 5


SAME = own(id="msg_1", status="completed")
CITATION = '{"type":"url_citation","url":"u","title":"t","start_index":0,"end_index":1}'


@pytest.mark.parametrize(
    ("finish", "status", "details"),
    [
        (FinishReason.LENGTH, "incomplete", {"reason": "max_output_tokens"}),
        (FinishReason.CONTENT_FILTER, "incomplete", {"reason": "content_filter"}),
        (FinishReason.CUT, "incomplete", None),
        (FinishReason.PAUSE, "completed", None),
    ],
)
def test_an_unfinished_response_says_so(finish: FinishReason, status: str, details: dict[str, str] | None) -> None:
    """The cut call is `incomplete` and keeps its raw prefix; the reason of another API is not repeated."""
    call = ToolCall(id="c", name="read", arguments='{"pa', state=ArgumentsState.TRUNCATED)
    response = Response(message=Message("assistant", (call,)), finish=finish, provider_finish="length")
    body = json.loads(FAMILY.encode_body(response, REQUEST))
    frames = [frame for frame in frames_of(response) if not isinstance(frame, BlockEnded)]
    events = [
        json.loads(line[6:])
        for line in encode_stream(FAMILY, frames, request=REQUEST).splitlines()
        if line.startswith(b"data: ")
    ]
    for sent in (body, events[-1]["response"]):
        assert (sent["status"], sent["incomplete_details"]) == (status, details)
        assert sent["output"][0]["arguments"] == '{"pa'
    assert body["output"][0]["status"] == "incomplete"
    assert events[-1]["type"] == f"response.{status}"


def test_a_fault_ends_the_stream_as_failed() -> None:
    """`error`, then `response.failed`; what had come before stays; the official client raises it."""
    frames: list[Frame] = [
        Started("resp_1", "gpt-5"),
        TextDelta("half"),
        Faulted(Fault(kind=FaultKind.OVERLOADED, message="Too busy", code="server_is_overloaded")),
    ]
    stream = encode_stream(FAMILY, frames, request=REQUEST)
    response = assemble(decode_stream(FAMILY, [stream], profile=PROFILE))
    assert (text_of(response.message), response.finish, response.provider_finish) == (
        "half",
        FinishReason.ERROR,
        "failed",
    )
    assert response.fault == Fault(kind=FaultKind.OVERLOADED, message="Too busy", code="server_is_overloaded")
    with pytest.raises(openai.APIError, match="Too busy"):
        read_by_sdk(stream)


def test_interleaved_and_late_pieces_are_written_in_their_place() -> None:
    """Blocks of several items at once, a name that comes after arguments, a final form that knows more."""
    frames: list[Frame] = [
        ToolCallDelta(block="b", id="call_2", arguments='{"b"'),
        ReasoningDelta("Hm", "r"),
        ToolCallDelta(block="a", id="call_1", name="read", arguments='{"a"'),
        ToolCallDelta(block="b", name="write", arguments=":2}"),
        ToolCallDelta(block="a", arguments=":1}"),
        RefusalDelta("No"),
        PartDone("text", Text("whole")),
        PartDone("refusal", Refusal("No!")),
    ]
    final = read_by_sdk(encode_stream(FAMILY, frames + frames_of(ended(FinishReason.STOP))[1:], request=REQUEST))
    calls = [("call_1", "read", '{"a":1}'), ("call_2", "write", '{"b":2}')]
    assert said_to_sdk(final) == ("whole", "Hm", "No!", calls)


def ended(finish: FinishReason) -> Response:
    return Response(message=Message("assistant", ()), finish=finish)


@pytest.mark.costly
@pytest.mark.promise("assembly:stream-equals-body")
def test_the_official_client_reads_recorded_streams_that_we_wrote_again(corpus: Path) -> None:
    """Each of them, decoded, encoded and read by openai-python: text, reasoning, refusal and calls as before."""
    compared = 0
    for row in of_family(corpus, "openai_responses"):
        response = decode(row)
        frames = decode_stream(FAMILY, [row.path.read_bytes()], profile=profile_of(row))
        stream = encode_stream(FAMILY, frames, request=REQUEST)
        again = assemble(decode_stream(FAMILY, [stream], profile=PROFILE))
        assert said(again) == said(response), row.file
        if response.finish in (FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.REFUSAL):
            assert said_to_sdk(read_by_sdk(stream)) == said(response), row.file
            compared += 1
    assert compared >= 285


@pytest.mark.costly
@pytest.mark.promise("assembly:stream-equals-body")
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # for tools that it does not know
def test_the_official_accumulator_agrees_on_recorded_streams(corpus: Path) -> None:
    """The bytes as recorded, read by openai-python: what it can read, it reads as we do."""
    agreed, refused = 0, 0
    for row in of_family(corpus, "openai_responses"):
        if "terminal_output_empty" in row.row["quirks"]:
            continue  # it takes the empty list for the output
        try:
            final = read_by_sdk(row.path.read_bytes())
        except (openai.OpenAIError, RuntimeError, ValueError, IndexError, AttributeError, TypeError, AssertionError):
            refused += 1
            continue
        assert said_to_sdk(final) == said(decode(row)), row.file
        agreed += 1
    assert agreed >= 250, (agreed, refused)


@pytest.mark.parametrize("finish", [FinishReason.REFUSAL, FinishReason.CONTENT_FILTER, FinishReason.LENGTH])
def test_a_call_cut_before_its_arguments_is_the_same_from_stream_and_body(finish: FinishReason) -> None:
    """Beside a refusal the stream made a complete call without arguments of it, which would have run."""
    cut = ToolCall(id="a", name="f", arguments="", state=ArgumentsState.TRUNCATED)
    response = Response(message=Message("assistant", (Refusal("No."), cut)), finish=finish, id="resp_1", model="m")
    request, profile = Request(model="m", messages=()), builtin_profiles()["openai_responses"]
    stream = encode_stream(FAMILY, frames_of(response), request=request)
    streamed = assemble(decode_stream(FAMILY, [stream], profile=profile))
    whole = assemble(FAMILY.decode_body(FAMILY.encode_body(response, request), profile, DEFAULT_LIMITS))
    assert streamed == whole
    assert [call.state for call in calls_of(streamed.message)] == [ArgumentsState.TRUNCATED]


def test_what_says_nothing_does_not_begin_a_response() -> None:
    """A loss may be told before the start: a second `response.created` with another id makes the official client raise."""
    encoder = FAMILY.stream_encoder(Request(model="m", messages=(), stream=True))
    assert encoder.encode(Lost(Repair("event_left_out", "stream", "an event"))) == b""
    begun = encoder.encode(Started(id="resp_1", model="m")) + encoder.encode(TextDelta("a", "0")) + encoder.finish()
    assert begun.count(b'"type":"response.created"') == 1
    assert b"resp_0" not in begun
