"""Answers of the Interactions API in its older shape (`outputs`, `content.*`), and what ends a stream badly."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnwise.assembly.response_reading import read_body
from turnwise.vocab import FaultKind, FinishReason, Message, Reasoning, Request, Response, Text, ToolCall
from turnwise.wire.family import AnswerStamp, BadRequest, family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

FAMILY, PROFILE = family("gemini_interactions"), builtin_profiles()["gemini_interactions"]
USAGE = {"total_input_tokens": 11, "total_output_tokens": 4, "total_reasoning_tokens": 6, "total_cached_tokens": 5}


def streamed(*events: dict[str, Any]) -> Response:
    body = b"".join([b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])
    whole = read_stream([body], family=FAMILY, profile=PROFILE)
    assert whole == read_stream([body[at : at + 1] for at in range(len(body))], family=FAMILY, profile=PROFILE)
    return whole


def started(**more: Any) -> dict[str, Any]:
    return {
        "event_type": "interaction.start",
        "interaction": {"id": "v1_a", "status": "in_progress", "model": "m", **more},
    }


def said(kind: str, index: int, **fields: Any) -> dict[str, Any]:
    return {"event_type": f"content.{kind}", "index": index, **fields}


def ended(status: str, **more: Any) -> dict[str, Any]:
    return {"event_type": "interaction.complete", "interaction": {"id": "v1_a", "status": status, **more}}


def test_older_streams_and_bodies_say_the_same() -> None:
    """Google's migration guide; js-genai 1.x: a call's delta brings it whole."""
    call = {"type": "function_call", "id": "c", "name": "add", "arguments": {"a": 1}}
    stream = streamed(
        started(),
        said("start", 0, content={"type": "thought"}),
        said("delta", 0, delta={"type": "thought_summary", "content": {"type": "text", "text": "Hm."}}),
        said("delta", 0, delta={"type": "thought_signature", "signature": "c2ln"}),
        said("stop", 0),
        said("start", 1, content={"type": "text"}),
        said("delta", 1, delta={"type": "text", "text": "I "}),
        said("delta", 1, delta={"type": "text", "text": "add."}),
        said("stop", 1),
        said("start", 2, content={"type": "function_call"}),
        said("delta", 2, delta=call),
        said("stop", 2),
        ended("requires_action", usage=USAGE),
    )
    outputs = [
        {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "I add."},
        call,
    ]
    whole = {"id": "v1_a", "model": "m", "status": "requires_action", "outputs": outputs, "usage": USAGE}
    body = read_body(json.dumps(whole).encode(), family=FAMILY, profile=PROFILE)[0]
    for one in (stream, body):
        thought, text, made = one.message.parts
        assert (
            isinstance(thought, Reasoning) and thought.text == "Hm." and '"c2ln"' in getattr(thought.opaque, "json", "")
        )
        assert isinstance(text, Text) and text.text == "I add."
        assert (
            isinstance(made, ToolCall)
            and (made.id, made.name) == ("c", "add")
            and json.loads(made.arguments) == {"a": 1}
        )
        assert one.finish is FinishReason.TOOL_CALLS and one.usage is not None
        usage = one.usage
        assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cache_read_tokens) == (
            11,
            10,
            6,
            5,
        )


@pytest.mark.parametrize(
    ("status", "finish"),
    [
        ("completed", FinishReason.STOP),
        ("incomplete", FinishReason.LENGTH),
        ("failed", FinishReason.ERROR),
        ("cancelled", FinishReason.ERROR),
        ("in_progress", FinishReason.CUT),
    ],
)
def test_a_status_says_how_it_ended(status: str, finish: FinishReason) -> None:
    """What is still under way has not ended: work in the background, whose answer comes elsewhere."""
    text = said("delta", 0, delta={"type": "text", "text": "x"})
    assert streamed(started(), said("start", 0, content={"type": "text"}), text, ended(status)).finish is finish


def test_an_error_in_the_stream_keeps_what_came() -> None:
    error = {"event_type": "error", "error": {"code": "resource_exhausted", "message": "Slow down."}}
    text = said("delta", 0, delta={"type": "text", "text": "x"})
    got = streamed(started(), said("start", 0, content={"type": "text"}), text, error)
    assert got.fault is not None and got.fault.kind is FaultKind.RATE_LIMITED and got.message.parts == (Text("x"),)


def test_an_agent_of_the_provider_is_refused_by_name() -> None:
    body = json.dumps({"agent": "deep-research-preview-04-2026", "input": "x", "background": True}).encode()
    with pytest.raises(BadRequest, match="`agent` is not served"):
        FAMILY.decode_request(body, "/v1beta/interactions")


@given(at=st.integers(0, 253_402_300_799))
@example(at=951_782_400)  # 29 February 2000
def test_the_times_of_an_answer_are_those_of_the_calendar(at: int) -> None:
    """Property: any second of four-digit years. The judge is Python's `datetime`, which a pure room does not import."""
    response = Response(message=Message("assistant", (Text("x"),)), finish=FinishReason.STOP)
    body = json.loads(
        FAMILY.encode_body(response, Request(model="m", messages=()), AnswerStamp(created_s=at, ended_s=at))
    )
    assert body["created"] == body["updated"] == f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
