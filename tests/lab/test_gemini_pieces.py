"""Gemini's arguments in pieces: what the lab sends is what Vertex AI sends, and a cut call keeps the prefix that it can have."""

import json

import msgspec
import pytest

from turnwise.assembly.response_reading import ResponseReader
from turnwise.lab.families.gemini import FAMILY, OpenString, stream_in_pieces, values_of
from turnwise.lab.faults import stream_of
from turnwise.vocab import ArgumentsState, FinishReason, Message, Reasoning, Response, Text, ToolCall, Usage
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

ARGUMENTS = {
    "path": "b.txt",
    "edits": [{"line": 12, "new": 'a\n"😀" x'}, {"line": -3.5, "new": "", "keep": [True, None, ["q", "r"]]}],
    "last": False,
}
TEXT = json.dumps(ARGUMENTS, ensure_ascii=False, separators=(",", ":"))
USAGE = Usage(input_tokens=9, output_tokens=7, reasoning_tokens=2)


def sent(arguments: str, *, state: ArgumentsState, finish: FinishReason, piece: int) -> Response:
    """The response as it is read from the lab's stream."""
    call = ToolCall(id="a", name="edit", arguments=arguments, state=state)
    parts = (Reasoning("thinking of it"), Text("I will."), call)
    response = Response(message=Message("assistant", parts), finish=finish, usage=USAGE, id="r", model="gemini-3")
    reader = ResponseReader(
        family("gemini"), profile=builtin_profiles()["vertex-gemini"], tool_names=frozenset({"edit"})
    )
    lines = stream_in_pieces(response, piece)
    for event in stream_of(lines, family=FAMILY, response=response):
        reader.feed(event)
    return reader.finish()


@pytest.mark.promise("assembly:whole-in-one")
@pytest.mark.parametrize("piece", [1, 3, 24, 1000])
def test_a_whole_call_in_pieces_is_the_call(piece: int) -> None:
    """Proves: values of every type, nested, arrive under their paths as what the model wrote."""
    found = sent(TEXT, state=ArgumentsState.COMPLETE, finish=FinishReason.TOOL_CALLS, piece=piece)
    assert found.message.parts == (
        Reasoning("thinking of it"),
        Text("I will."),
        ToolCall(id="a", name="edit", arguments=TEXT),
    )
    assert found.usage is not None
    usage = msgspec.structs.replace(found.usage, provider="")
    assert (found.finish, usage, found.repairs) == (FinishReason.TOOL_CALLS, USAGE, ())


@pytest.mark.promise("cut:never-run", "cut:continued")
def test_a_call_cut_at_any_character_is_truncated_and_a_beginning() -> None:
    """Proves: no cut call is taken for whole, and what arrived is a prefix of what the model wrote."""
    spelt = json.dumps(ARGUMENTS, separators=(",", ":"))  # with escapes, so that cuts fall into them
    for at in range(1, len(spelt)):
        found = sent(spelt[:at], state=ArgumentsState.TRUNCATED, finish=FinishReason.LENGTH, piece=5)
        call = found.message.parts[-1]
        assert isinstance(call, ToolCall)
        assert call.state is ArgumentsState.TRUNCATED, at
        assert TEXT.startswith(call.arguments), (at, call.arguments)
        assert found.finish is FinishReason.LENGTH


def test_keys_and_numbers_have_no_pieces() -> None:
    """Proves: what has come of a value is a string's beginning or nothing."""
    assert list(values_of('{"a":12')) == []
    assert list(values_of('{"a":12,"bc')) == [("$.a", 12)]
    ((path, value),) = values_of('{"a":"x\\ud83d')
    assert (path, value, isinstance(value, OpenString)) == ("$.a", "x", True)
