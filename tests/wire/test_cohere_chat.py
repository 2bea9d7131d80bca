"""Cohere's v2 API: its events, its requests, its errors, and v1, which is refused by name."""

import json
from typing import Any

import msgspec
import pytest

from tables import each
from turnwise.assembly.response_reading import read_body
from turnwise.testing.frames import byte_by_byte, frames_of, random_splits
from turnwise.vocab import (
    ArgumentsState,
    Citation,
    FaultKind,
    File,
    FinishReason,
    Message,
    NamedTool,
    OutputSchema,
    ProviderItem,
    Reasoning,
    Request,
    Response,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
    reasoning_of,
    text_of,
)
from turnwise.wire.family import BadRequest, family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

COHERE = family("cohere_chat")
ROW = builtin_profiles()["cohere"]
ASKED = Request(model="command-a", messages=(Message("user", (Text("hi"),)),))
READ = ToolSpec(
    name="read", description="Read.", parameters='{"type":"object","properties":{"path":{"type":"string"}}}'
)
PLAN = ProviderItem("cohere_chat", "tool_plan", '{"type":"tool_plan","tool_plan":"I will read."}')


def event(kind: str, index: int | None = None, **message: Any) -> bytes:
    told: dict[str, Any] = {"type": kind} | ({} if index is None else {"index": index})
    if message:
        told["delta"] = {"message": message}
    return f"event: {kind}\ndata: {json.dumps(told)}\n\n".encode()


def end(word: str | None = "COMPLETE", **more: Any) -> bytes:
    usage = {
        "billed_units": {"input_tokens": 5, "output_tokens": 3},
        "tokens": {"input_tokens": 70, "output_tokens": 9, "reasoning_tokens": 4},
        "cached_tokens": 64,
    }
    told = {"type": "message-end", "delta": {"finish_reason": word, "usage": usage, **more}}
    return b"event: message-end\ndata: " + json.dumps(told).encode() + b"\n\n"


START = b'event: message-start\ndata: {"id":"r1","type":"message-start","delta":{"message":{"role":"assistant"}}}\n\n'
SOURCE = {"start": 2, "end": 5, "text": "two", "sources": [{"type": "tool", "id": "read:0"}], "content_index": 1}
ANSWER = (
    START
    + event("content-start", 0, content={"type": "thinking", "thinking": ""})
    + event("content-delta", 0, content={"thinking": "Hm."})
    + event("content-end", 0)
    + event("content-start", 1, content={"type": "text", "text": ""})
    + event("content-delta", 1, content={"text": "It is "})
    + event("content-delta", 1, content={"text": "two: ä."})
    + event("citation-start", 0, citations=SOURCE)
    + event("citation-end", 0)
    + event("content-end", 1)
    + end()
    + b"data: [DONE]\n\n"
)


def call_events(index: int, *pieces: str) -> bytes:
    call = {"id": f"c{index}", "type": "function", "function": {"name": "read", "arguments": ""}}
    found = event("tool-call-start", index, tool_calls=call)
    found += b"".join([event("tool-call-delta", index, tool_calls={"function": {"arguments": one}}) for one in pieces])
    return found + event("tool-call-end", index)


CALLS = (
    START
    + event("tool-plan-delta", tool_plan="I will ")
    + event("tool-plan-delta", tool_plan="read.")
    + call_events(0, '{"path":', ' "a"}')
    + call_events(1)
    + end("TOOL_CALL")
)


def read(stream: bytes, pieces: list[bytes] | None = None) -> Response:
    return read_stream(pieces or [stream], family=COHERE, profile=ROW, tool_names=frozenset({"read"}))


def body_of(request: Request) -> dict[str, Any]:
    return json.loads(COHERE.encode_request(request, ROW).body)


def test_an_answer_is_the_same_at_every_split() -> None:
    """Thinking, text, a citation with its text, and five counts: the billed ones leave out what Cohere adds to a prompt."""
    whole = read(ANSWER)
    assert (reasoning_of(whole.message), text_of(whole.message)) == ("Hm.", "It is two: ä.")
    said = whole.message.parts[-1]
    assert isinstance(said, Text) and said.citations == (
        Citation(family="cohere_chat", raw=json.dumps(SOURCE, separators=(",", ":")), cited_text="two"),
    )
    assert (whole.finish, whole.provider_finish, whole.id) == (FinishReason.STOP, "COMPLETE", "r1")
    usage = whole.usage
    assert usage is not None and (usage.input_tokens, usage.output_tokens) == (70, 9)
    assert (usage.reasoning_tokens, usage.cache_read_tokens, usage.unread) == (4, 64, ())
    for stream, want in ((ANSWER, whole), (CALLS, read(CALLS))):
        cuts = [byte_by_byte(stream), *random_splits(stream, seed=1, count=20)]
        cuts += [[stream[:at], stream[at:]] for at in range(1, len(stream))]
        assert all(read(stream, cut) == want for cut in cuts)


def test_parallel_calls_and_the_plan_for_them() -> None:
    """A call without arguments has ended on the wire, so it is whole; the plan is no text: it goes back as it came."""
    got = read(CALLS)
    assert got.message.parts[0] == PLAN and text_of(got.message) == reasoning_of(got.message) == ""
    assert [(call.id, call.arguments, call.state) for call in calls_of(got.message)] == [
        ("c0", '{"path": "a"}', ArgumentsState.COMPLETE),
        ("c1", "{}", ArgumentsState.COMPLETE),
    ]
    assert got.finish is FinishReason.TOOL_CALLS


def test_a_stream_without_its_end_is_cut() -> None:
    last = len(CALLS) - len(end("TOOL_CALL"))
    for at in range(1, last + 1):
        got = read(CALLS[:at])
        assert got.finish is FinishReason.CUT or got.fault is not None, at
        whole = [call for call in calls_of(got.message) if call.state is ArgumentsState.COMPLETE]
        assert tuple(whole) == tuple(calls_of(read(CALLS).message))[: len(whole)], at


@each("lost", [b"event: content-delta\n\n", b'event: content-delta\ndata: {"type":"content-delta","in\n\n'])
def test_an_event_that_cannot_be_read_is_told_as_lost(lost: bytes) -> None:
    got = read(ANSWER.replace(event("content-end", 1), lost + event("content-end", 1)))
    assert got.lost and text_of(got.message) == "It is two: ä."
    kept = b'event: ping\ndata: {"type":"ping"}\n\n: comment\n\ndata:\n\nevent: debug\ndata: {"type":"debug","prompt":"x"}\n\n'
    assert read(ANSWER.replace(event("content-end", 1), kept + event("content-end", 1))) == read(ANSWER)


@each(
    ("told", "kind"),
    [
        ("an internal error", FaultKind.SERVER),
        ("too many tokens: size limit exceeded by 25836 tokens.", FaultKind.CONTEXT_OVERFLOW),
    ],
)
def test_an_error_at_the_end_is_a_fault(told: str, kind: FaultKind) -> None:
    got = read(START + event("content-delta", 0, content={"text": "I"}) + end("ERROR", error=told))
    assert got.fault is not None and (got.fault.kind, got.fault.message) == (kind, told)
    assert text_of(got.message) == "I" and got.finish is not FinishReason.STOP
    fault = COHERE.decode_fault(400, {}, json.dumps({"id": "x", "message": told}).encode())
    assert (fault.kind, fault.message) == (FaultKind.BAD_REQUEST if kind is FaultKind.SERVER else kind, told)


def test_v1_is_refused_by_name() -> None:
    """As a stream, as lines and as a request."""
    for stream in (
        b'data: {"event_type":"text-generation","text":"hi"}\n\n',
        b'event: text-generation\ndata: {"is_finished":false,"event_type":"text-generation","text":"hi"}\n\n',
    ):
        fault = read(stream).fault
        assert fault is not None and "v1" in fault.message and "/v2/chat" in fault.message
    with pytest.raises(BadRequest, match="v1"):
        COHERE.decode_request(b'{"model":"m","message":"hi","chat_history":[]}', "/v2/chat")


def test_what_the_encoder_writes_is_read_back_streamed_and_whole() -> None:
    cited = Text("Two.", (Citation(family="cohere_chat", raw='{"text":"Two"}', cited_text="Two"),))
    call = ToolCall(id="c1", name="read", arguments='{"path":"a"}')
    for finish, parts in (
        (FinishReason.STOP, (Reasoning("hm"), cited)),
        (FinishReason.TOOL_CALLS, (PLAN, call, msgspec.structs.replace(call, id="c2"))),
        (FinishReason.LENGTH, (Text("Two"),)),
    ):
        usage = Usage(input_tokens=3, output_tokens=2, reasoning_tokens=1, cache_read_tokens=1)
        response = Response(message=Message("assistant", parts), finish=finish, usage=usage, id="r")
        encoder = COHERE.stream_encoder(ASKED)
        stream = b"".join([*[encoder.encode(frame) for frame in frames_of(response)], encoder.finish()])
        body = COHERE.encode_body(response, ASKED)
        for got in (read(stream), read_body(body, family=COHERE, profile=ROW)[0]):
            assert (got.message, got.finish, got.id) == (response.message, finish, "r")
            assert got.usage is not None
            assert (got.usage.input_tokens, got.usage.reasoning_tokens, got.usage.cache_read_tokens) == (3, 1, 1)


def test_a_request_has_coheres_own_fields() -> None:
    history = (
        Message("user", (Text("Look."), File(media_type="image/png", data=b"png"))),
        Message("assistant", (PLAN, ToolCall(id="c", name="read", arguments='{"path": "a"}'))),
        Message("tool", (ToolResult(call_id="c", name="read", content=(Text('{"a": 1}'),)),)),
        Message("assistant", (Reasoning("hm"), Text("It is 1."))),
        Message("user", (Text("Again."),)),
    )
    settings = Settings(max_output_tokens=50, temperature=0.5, top_p=0.9, stop=("x",), seed=7, reasoning_tokens=30)
    request = Request(
        model="m",
        messages=history,
        system=(Text("Be"), Text("brief.")),
        tools=(READ,),
        settings=settings,
        tool_choice="none",
    )
    body = body_of(request)
    assert body["messages"] == [
        {"role": "system", "content": "Be\n\nbrief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            ],
        },
        {
            "role": "assistant",
            "tool_plan": "I will read.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "document", "document": {"data": {"a": 1}}}]},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "It is 1."}],
        },
        {"role": "user", "content": "Again."},
    ]
    del body["messages"], body["tools"]
    assert body == {
        "model": "m",
        "stream": True,
        "tool_choice": "NONE",
        "thinking": {"type": "enabled", "token_budget": 30},
        "max_tokens": 50,
        "temperature": 0.5,
        "p": 0.9,
        "stop_sequences": ["x"],
        "seed": 7,
    }
    again = COHERE.decode_request(COHERE.encode_request(request, ROW).body, "/v2/chat")
    assert (again.settings, again.tools, again.tool_choice, again.extra) == (settings, (READ,), "none", None)
    assert [message.role for message in again.messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert again.messages[1] == history[1]


def test_a_schema_and_a_choice_go_as_the_api_takes_them() -> None:
    """No schema beside tools, so it is told in words; a named tool is required, and named in words."""
    output = OutputSchema(schema='{"type":"object"}')
    alone = msgspec.structs.replace(ASKED, output=output)
    assert body_of(alone)["response_format"] == {"type": "json_object", "json_schema": {"type": "object"}}
    decoded = COHERE.decode_request(COHERE.encode_request(alone, ROW).body, "/v2/chat").output
    assert decoded is not None and decoded.schema == output.schema
    body = body_of(msgspec.structs.replace(alone, tools=(READ,), tool_choice=NamedTool("read")))
    assert "response_format" not in body and "JSON Schema" in body["messages"][0]["content"]
    assert (body["tool_choice"], body["messages"][-1]["content"]) == ("REQUIRED", "Call the tool `read` now.")
