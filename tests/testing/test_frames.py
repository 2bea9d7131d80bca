"""Responses cut into frames come together again."""

import pytest

from turnwise.assembly.response import Assembler
from turnwise.testing.frames import frames_of
from turnwise.testing.wire_conformance import as_said
from turnwise.vocab import (
    Citation,
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Opaque,
    ProviderItem,
    Reasoning,
    Refusal,
    Response,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)

WHOLE = Response(
    message=Message(
        "assistant",
        (
            Reasoning("I have to look.", Opaque("anthropic_messages", '{"signature":"s"}')),
            Text("Let me see: ä€😀.", citations=(Citation(family="gemini", raw="{}", url="https://x.test"),)),
            ToolCall(id="call_1", name="read", arguments='{"path":"a.txt"}'),
            ProviderItem("anthropic_messages", "server_tool_use", '{"type":"server_tool_use"}'),
            ToolCall(id="call_2", name="note", arguments="free text", free_form=True),
            Refusal("No."),
        ),
    ),
    finish=FinishReason.TOOL_CALLS,
    provider_finish="tool_calls",
    usage=Usage(input_tokens=3, output_tokens=4),
    id="r1",
    model="m",
)


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_an_assembler_makes_the_same_response_of_its_frames(piece: int) -> None:
    """Proves: nothing is lost and nothing added, however small the pieces."""
    assembler = Assembler(tool_names=frozenset({"read", "note"}))
    for frame in frames_of(WHOLE, piece=piece):
        assembler.receive(frame)
    assert as_said(assembler.finish()) == WHOLE


def test_a_fault_stands_in_the_place_of_the_end() -> None:
    """Proves: a response with a fault ends with it, and without a finish reason."""
    fault = Fault(kind=FaultKind.SERVER, message="broken")
    broken = Response(message=Message("assistant", (Text("so"),)), finish=FinishReason.ERROR, fault=fault)
    assembler = Assembler()
    for frame in frames_of(broken):
        assembler.receive(frame)
    assert assembler.finish() == broken


def test_pieces_are_as_long_as_asked_for() -> None:
    """Proves: the size is in characters, the last piece shorter; less than one character is refused."""
    response = Response(message=Message("assistant", (Text("abcde"),)), finish=FinishReason.STOP)
    assert [frame for frame in frames_of(response, piece=2) if isinstance(frame, TextDelta)] == [
        TextDelta("ab", "0"),
        TextDelta("cd", "0"),
        TextDelta("e", "0"),
    ]
    with pytest.raises(ValueError, match="`piece` is 0"):
        frames_of(response, piece=0)
