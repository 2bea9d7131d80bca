"""Responses that ended without a finish reason, although everything in them had its own end on the wire.

From issue 12, line 7: such a response was asked for again, although all its calls had arrived.
"""

import msgspec
import pytest

from tables import each
from turnwise.assembly.response import Assembler
from turnwise.assembly.response_reading import ResponseReader
from turnwise.vocab import (
    BlockData,
    BlockEnded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Opaque,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

LOST = Repair("chunk_skipped", "event 1", "it is no JSON")


def is_closed(*frames: Frame) -> bool:
    """As the whole response says, and the running one before it."""
    assembler = Assembler()
    for frame in frames:
        assembler.receive(frame)
    running = assembler.is_closed()
    response = assembler.finish()
    assert response.is_closed is running
    return running


def named_call(arguments: str = '{"path":"a"}', *, block: str = "1") -> list[Frame]:
    return [
        ToolCallDelta(block=block, id=f"id_{block}", name="read"),
        ToolCallDelta(block=block, arguments=arguments),
        BlockEnded(block),
    ]


TEXT: list[Frame] = [TextDelta("Hello", "0"), BlockEnded("0")]


@pytest.mark.parametrize(
    "frames",
    [
        TEXT,
        [RefusalDelta("No.", "0"), BlockEnded("0")],
        [PartDone("0", Text("Hello")), BlockEnded("0")],
        named_call(),
        named_call("{}"),
        [*TEXT, *named_call(), *named_call(block="2")],
        [ReasoningDelta("hm", "0"), BlockEnded("0"), *named_call()],
    ],
)
def test_blocks_that_all_have_their_end_close_a_response(frames: list[Frame]) -> None:
    """Anthropic and Responses; Gemini's calls."""
    assert is_closed(Started("r"), *frames)


@each(
    "frames",
    [
        [],
        [TextDelta("Hel", "0")],
        [TextDelta("", "0"), BlockEnded("0")],
        [ReasoningDelta("hm", "0"), BlockEnded("0")],
        named_call()[:-1],
        named_call('{"path":"a'),
        [ToolCallDelta(block="0", id="a", name="go"), BlockEnded("0")],
        [*TEXT, *named_call()[:-1]],
        [*named_call(), TextDelta("and", "2")],
        [*named_call(), ReasoningDelta("hm", "2")],
        [*named_call(), BlockData("2", Opaque("openai_responses", '{"id":"ws_1"}'))],
    ],
)
def test_open_block_and_nothing_said_do_not_close_a_response(frames: list[Frame]) -> None:
    """More was coming, or nothing came that could be taken as it is."""
    assert not is_closed(Started("r"), *frames)


def placed_call(arguments: str | None, *, index: int = 0, id: str | None = "a", whole: bool = False) -> Frame:
    return ToolCallDelta(index=index, id=id, name="read", arguments=arguments, whole=whole)


WHOLE = placed_call('{"path":"a"}')


@pytest.mark.parametrize(
    "frames",
    [
        [WHOLE],
        [TextDelta("I look."), WHOLE],
        [WHOLE, placed_call('{"path":"b"}', index=1, id="b"), TextDelta("So.")],
        [placed_call('{"path":"a"}', id=None)],
        [placed_call('{"path":"a"}', whole=True)],
        [ReasoningDelta("hm"), WHOLE],
    ],
)
def test_placed_calls_that_are_all_whole_close_a_response(frames: list[Frame]) -> None:
    """Chat Completions has no mark for the end of a part: whole arguments are the end of a call."""
    assert is_closed(Started("r"), *frames)


@each(
    "frames",
    [
        [TextDelta("Hello")],
        [placed_call('{"path":"a')],
        [placed_call("")],
        [placed_call(None)],
        [placed_call("{}")],
        [placed_call("{}", whole=True)],
        [placed_call(" null ")],
        [WHOLE, placed_call("", index=1, id="b")],
        [WHOLE, placed_call('{"path":"a"}{"path":"b"}', index=1, id="b")],
        [ToolCallDelta(index=0, id="a", name="patch", arguments="*** Begin", free_form=True)],
        [WHOLE, ToolCallDelta(block="function_call", name="read", arguments='{"path":"a"}')],
    ],
)
def test_silent_cut_or_free_form_placed_call_does_not_close_a_response(frames: list[Frame]) -> None:
    """Arguments that say nothing may still be coming; a text alone has no end of its own."""
    assert not is_closed(Started("r"), *frames)


@pytest.mark.parametrize(
    "end",
    [
        Finished(FinishReason.TOOL_CALLS, "tool_calls"),
        Faulted(Fault(kind=FaultKind.SERVER, message="boom")),
        Lost(LOST),
        Lost(LOST, reaches_ended=True),
    ],
)
def test_finish_fault_and_loss_leave_nothing_to_close(end: Frame) -> None:
    """A response that says why it ended, failed or lost something is judged by that."""
    assert not is_closed(*TEXT, *named_call(), end)
    assert not is_closed(WHOLE, end)


CHAT_CALL = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"path":"a"}'}}
TOOL_USE = {"type": "tool_use", "id": "a", "name": "read", "input": {}}
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "read", "arguments": '{"path":"a"}'}
STREAMS: dict[str, list[dict[str, object]]] = {
    "openai_chat": [{"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [CHAT_CALL]}}]}],
    "anthropic_messages": [
        {"type": "message_start", "message": {"id": "r", "model": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": TOOL_USE},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"path":"a"}'},
        },
        {"type": "content_block_stop", "index": 0},
    ],
    "openai_responses": [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**ITEM, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"path":"a"}'},
        {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    ],
    "gemini": [
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "read", "args": {"path": "a"}}}]}}]},
    ],
}


@pytest.mark.parametrize("name", STREAMS)
def test_reader_says_after_the_last_event_only_that_nothing_but_the_finish_is_missing(name: str) -> None:
    """While the stream is running, which is when the exchange asks; in every family."""
    reader = ResponseReader(family(name), profile=builtin_profiles()[name])
    seen: list[bool] = []
    for event in STREAMS[name]:
        reader.feed(b"data: " + msgspec.json.encode(event) + b"\n\n")
        seen.append(reader.is_closed())
    assert seen == [False] * (len(seen) - 1) + [True]
    response = reader.finish()
    assert response.is_closed and response.finish is FinishReason.CUT
    calls = [part for part in response.message.parts if isinstance(part, ToolCall)]
    assert [(call.name, call.arguments) for call in calls] == [("read", '{"path":"a"}')]
