"""Ollama's own API: its lines, its requests and the window that they ask for, its errors and losses."""

import json
from typing import Any

import msgspec
import pytest

from tables import each
from turnwise.assembly.response_reading import read_body
from turnwise.testing.frames import byte_by_byte, frames_of, random_splits
from turnwise.vocab import (
    ArgumentsState,
    FaultKind,
    File,
    FinishReason,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
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
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import BadRequest, family
from turnwise.wire.ollama_chat.request import LEAST_WINDOW
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile, builtin_profiles
from whole_streams import read_stream

OLLAMA = family("ollama_chat")
ROW = builtin_profiles()["ollama-native"]
ASKED = Request(model="qwen3:8b", messages=(Message("user", (Text("hi"),)),))
READ = ToolSpec(
    name="read", description="Read.", parameters='{"type":"object","properties":{"path":{"type":"string"}}}'
)


def line(message: dict[str, Any] | None = None, **more: Any) -> bytes:
    told = {} if message is None else {"message": {"role": "assistant", "content": "", **message}}
    return json.dumps({"model": "m", "created_at": "x", **told, "done": False, **more}).encode() + b"\n"


def calls(*arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": "read", "arguments": one}} for one in arguments]}


LAST = line({}, done=True, done_reason="stop", prompt_eval_count=9, eval_count=4, total_duration=5)
WHOLE = (
    line({"thinking": "Hm"})
    + line({"thinking": ", two."})
    + line({"content": "I read "})
    + line({"content": "both: ä."})
    + line(calls({"path": "a"}, {"path": "b"}))
    + LAST
)


def read(stream: bytes, pieces: list[bytes] | None = None, limits: Limits = DEFAULT_LIMITS) -> Response:
    names = frozenset({"read"})
    return read_stream(pieces or [stream], family=OLLAMA, profile=ROW, tool_names=names, limits=limits)


def body_of(request: Request, profile: Profile = ROW) -> dict[str, Any]:
    return json.loads(OLLAMA.encode_request(request, profile).body)


# Answers


def test_a_stream_of_lines_is_the_same_at_every_split() -> None:
    """Thinking, text and parallel calls, which are whole and get ids of ours; the last line has the counts."""
    whole = read(WHOLE)
    assert (reasoning_of(whole.message), text_of(whole.message)) == ("Hm, two.", "I read both: ä.")
    assert [(call.name, call.arguments, call.state) for call in calls_of(whole.message)] == [
        ("read", '{"path":"a"}', ArgumentsState.COMPLETE),
        ("read", '{"path":"b"}', ArgumentsState.COMPLETE),
    ]
    ids = [call.id for call in calls_of(whole.message)]
    assert all(ids) and len(set(ids)) == 2
    assert (whole.finish, whole.provider_finish) == (FinishReason.TOOL_CALLS, "stop")
    assert whole.usage is not None and (whole.usage.input_tokens, whole.usage.output_tokens) == (9, 4)
    cuts = [byte_by_byte(WHOLE), *random_splits(WHOLE, seed=1, count=20)]
    cuts += [[WHOLE[:at], WHOLE[at:]] for at in range(1, len(WHOLE))]
    assert all(read(WHOLE, cut) == whole for cut in cuts)
    assert read(WHOLE.removesuffix(b"\n")) == whole
    assert read(WHOLE.replace(b"\n", b"\r\n\n")) == whole, "blank lines keep a connection alive"


def test_a_stream_without_its_last_line_is_cut() -> None:
    """At the end of any line, and within one: never an answer, and a call that came whole is kept as such."""
    for at in range(1, len(WHOLE) - len(LAST) + 1):
        got = read(WHOLE[:at])
        assert got.finish is FinishReason.CUT or got.fault is not None, at
    assert len(calls_of(read(WHOLE[: -len(LAST)]).message)) == 2


def test_an_error_in_mid_stream_is_a_fault_and_ends_it() -> None:
    got = read(line({"content": "I"}) + b'{"error":"an error was encountered while running the model"}\n' + LAST)
    assert got.fault is not None and got.fault.kind is FaultKind.SERVER and "running the model" in got.fault.message
    assert text_of(got.message) == "I" and got.finish is not FinishReason.STOP


@each("broken", [b'{"message":{"content":"x"', b'{"message":{"content":"\xff"}}', b'{"message":3}', b'{"a":1}'])
def test_a_broken_line_is_told_as_lost(broken: bytes) -> None:
    """Whatever it was a piece of: the answer is not whole, and no call behind or before it may run."""
    got = read(line(calls({"path": "a"})) + broken + b"\n" + LAST)
    assert got.lost and [call.state for call in calls_of(got.message)] == [ArgumentsState.LOST]


def test_limits_hold_for_lines_streams_and_bodies() -> None:
    """A line without an end, and a stream past its bytes, are faults; what came whole before stays."""
    few = Limits(line_bytes=200, stream_bytes=2_000, response_bytes=2_000)
    for pieces in ([line({"content": "I"}), b"x" * 150, b"x" * 150], [line({"content": "I"}) + b"x" * 201]):
        got = read(b"", pieces, few)
        assert got.fault is not None and got.fault.kind is FaultKind.TOO_LARGE and text_of(got.message) == "I"
    got = read(line({"content": "I"}) * 40, limits=few)
    assert got.fault is not None and got.fault.kind is FaultKind.TOO_LARGE
    frames = OLLAMA.decode_body(b'{"message":{"content":"' + b"x" * 2_000 + b'"},"done":true}', ROW, few)
    assert [frame.fault.kind for frame in frames if hasattr(frame, "fault")] == [FaultKind.TOO_LARGE]  # type: ignore[union-attr]


@each("stream", [b"", b"\n\n", b"<html>no</html>", b"[1]\n"])
def test_what_is_no_answer_is_told(stream: bytes) -> None:
    fault = read(stream).fault
    assert fault is not None and fault.kind in (FaultKind.PROTOCOL, FaultKind.DISCONNECTED)


def test_what_the_encoder_writes_is_read_back_streamed_and_whole() -> None:
    parts = (Reasoning("hm"), Text("Two."), ToolCall(id="c1", name="read", arguments='{"path":"a"}'))
    for finish, said in ((FinishReason.TOOL_CALLS, parts), (FinishReason.LENGTH, parts[:2])):
        usage = Usage(input_tokens=3, output_tokens=2)
        response = Response(message=Message("assistant", said), finish=finish, usage=usage, model="m")
        encoder = OLLAMA.stream_encoder(ASKED)
        stream = b"".join([*[encoder.encode(frame) for frame in frames_of(response)], encoder.finish()])
        body = OLLAMA.encode_body(response, ASKED)
        streamed = read(stream)
        for got in (streamed, read_body(body, family=OLLAMA, profile=ROW)[0]):
            assert (got.message, got.finish) == (response.message, finish)
            assert got.usage is not None and got.usage.input_tokens == 3


def test_a_call_cut_within_its_arguments_is_not_handed_out() -> None:
    call = ToolCall(id="c", name="read", arguments='{"pa', state=ArgumentsState.TRUNCATED)
    response = Response(message=Message("assistant", (Text("I"), call)), finish=FinishReason.LENGTH)
    encoder = OLLAMA.stream_encoder(ASKED)
    stream = b"".join([*[encoder.encode(frame) for frame in frames_of(response)], encoder.finish()])
    assert b"tool_calls" not in stream and b"tool_calls" not in OLLAMA.encode_body(response, ASKED)


# Requests


def test_a_request_has_ollamas_own_fields() -> None:
    history = (
        Message("user", (Text("Look."), File(media_type="image/png", data=b"png"))),
        Message(
            "assistant", (Reasoning("hm"), Text("I read."), ToolCall(id="c", name="read", arguments='{"path": "a"}'))
        ),
        Message("tool", (ToolResult(call_id="c", name="read", content=(Text("one"), Text("two"))),)),
    )
    settings = Settings(max_output_tokens=50, temperature=0.5, top_p=0.9, stop=("x",), seed=7, reasoning_effort="high")
    output = OutputSchema(schema='{"type":"object"}')
    request = Request(
        model="m",
        messages=history,
        system=(Text("Be"), Text("brief.")),
        tools=(READ,),
        settings=settings,
        output=output,
    )
    assert body_of(request) == {
        "model": "m",
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "Read.", "parameters": json.loads(READ.parameters)},
            }
        ],
        "messages": [
            {"role": "system", "content": "Be\n\nbrief."},
            {"role": "user", "content": "Look.", "images": ["cG5n"]},
            {
                "role": "assistant",
                "content": "I read.",
                "thinking": "hm",
                "tool_calls": [{"id": "c", "function": {"name": "read", "arguments": {"path": "a"}}}],
            },
            {"role": "tool", "content": "one\n\ntwo", "tool_name": "read", "tool_call_id": "c"},
        ],
        "stream": True,
        "format": {"type": "object"},
        "truncate": False,
        "shift": False,
        "think": True,
        "options": {
            "num_predict": 50,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": ["x"],
            "seed": 7,
            "num_ctx": LEAST_WINDOW,
        },
    }
    again = OLLAMA.decode_request(OLLAMA.encode_request(request, ROW).body, "/api/chat")
    assert again.settings == settings and again.output is not None and again.output.schema == output.schema
    assert again.tools == (READ,) and again.system == (Text("Be\n\nbrief."),)
    assert [message.role for message in again.messages] == ["user", "assistant", "tool"]


@each(
    ("model", "effort", "think"),
    [
        ("qwen3", "none", False),
        ("qwen3", "low", True),
        ("gpt-oss:20b", "minimal", "low"),
        ("gpt-oss:20b", "xhigh", "high"),
        ("gpt-oss:20b", None, None),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(model: str, effort: Any, think: bool | str | None) -> None:
    request = msgspec.structs.replace(ASKED, model=model, settings=Settings(reasoning_effort=effort))
    assert body_of(request).get("think") == think


def test_the_window_holds_the_prompt_and_its_answer() -> None:
    """`num_ctx` is a power of two that only grows, so that a server does not load the model again at each step; images count by
    tokens and not by bytes; the caller's own `num_ctx` stays; and the server has to refuse what it would cut in silence."""
    history, windows = EncodedHistory(), list[int]()
    messages = ASKED.messages
    for _ in range(8):
        messages = (*messages, Message("user", (Text("word " * 4_000),)))
        request = msgspec.structs.replace(ASKED, messages=messages, settings=Settings(max_output_tokens=2_000))
        call = OLLAMA.encode_request(request, ROW, history=history)
        body = json.loads(call.body)
        windows.append(body["options"]["num_ctx"])
        assert windows[-1] >= len(call.body) // 3 + 2_000 and windows[-1] & (windows[-1] - 1) == 0
        assert (body["truncate"], body["shift"]) == (False, False)
    assert windows == sorted(windows) and windows[0] == 16_384 and windows[-1] == 65_536 and len(set(windows)) == 3
    image = Message("user", (File(media_type="image/png", data=b"x" * 3_000_000),))
    assert body_of(msgspec.structs.replace(ASKED, messages=(image,)))["options"]["num_ctx"] == LEAST_WINDOW
    extra = Opaque("ollama_chat", '{"options":{"num_ctx":4096}}')
    own = msgspec.structs.replace(ASKED, extra=extra)
    assert body_of(own)["options"] == {"num_ctx": 4096}


def test_a_choice_of_tools_is_asked_for_in_words() -> None:
    """The API has no field for it, and the tools stay, so that the prompt begins as before."""
    for choice, words in ((NamedTool("read"), "Call the tool `read` now."), ("none", "Answer in text now")):
        body = body_of(msgspec.structs.replace(ASKED, tools=(READ,), tool_choice=choice))
        assert body["messages"][-1]["content"].startswith(words) and body["tools"] and "tool_choice" not in body


def test_calls_and_results_without_ids_are_paired_by_name_and_order() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "assistant", "tool_calls": [{"function": {"name": n, "arguments": {}}} for n in ("a", "b", "a")]},
            *[{"role": "tool", "tool_name": name, "content": name} for name in ("b", "a", "a")],
        ],
    }
    asked, answered = OLLAMA.decode_request(json.dumps(body).encode(), "/api/chat").messages
    ids = {call.id: call.name for call in calls_of(asked)}
    results = [part for part in answered.parts if isinstance(part, ToolResult)]
    assert [(ids[one.call_id], one.name) for one in results] == [("b", "b"), ("a", "a"), ("a", "a")]
    assert len({one.call_id for one in results}) == 3


@each("body", [b"[]", b"{", b'{"messages":[{"role":"poet"}]}', b'{"messages":[{"role":"user","images":["%"]}]}'])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        OLLAMA.decode_request(body, "/api/chat")


@each(
    ("status", "words", "kind"),
    [
        (404, "model 'x' not found", FaultKind.NOT_FOUND),
        (400, "prompt too long; exceeded max context length by 17 tokens", FaultKind.CONTEXT_OVERFLOW),
        (500, "the input length exceeds the context length", FaultKind.CONTEXT_OVERFLOW),
        (503, "server busy, please try again. maximum pending requests exceeded", FaultKind.OVERLOADED),
        (400, '"gemma3:1b" does not support tools', FaultKind.BAD_REQUEST),
    ],
)
def test_errors_are_read_by_status_and_words(status: int, words: str, kind: FaultKind) -> None:
    fault = OLLAMA.decode_fault(status, {}, json.dumps({"error": words}).encode())
    assert (fault.kind, fault.message, fault.status) == (kind, words, status)
    told, body = OLLAMA.encode_fault(fault)
    assert json.loads(body) == {"error": words} and told >= 400
