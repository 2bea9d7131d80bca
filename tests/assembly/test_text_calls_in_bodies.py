"""A body says what a stream of the same response says: calls, reasoning and words of a text come out alike (issue 16, A)."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import TOOLS, WRITERS
from thoroughness import examples
from turnwise.assembly.response import Assembler
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.testing.wire_conformance import encode_stream, frames_of
from turnwise.vocab import (
    FinishReason,
    Frame,
    Message,
    Part,
    Reasoning,
    Request,
    Response,
    Text,
    ToolCall,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, FamilyName, Profile

FAMILIES: tuple[FamilyName, ...] = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
# Families whose response may hold several texts, and calls before them.
IN_ORDER = ("openai_responses", "anthropic_messages")
WRONG = '<tool_call>\n{"name": "read", "arguments": {,}}\n</tool_call>'
ASKED = Request(model="m", messages=(Message("user", (Text("Go."),)),), tools=TOOLS)
OWN = ToolCall(id="own_1", name="list", arguments='{"path":"x"}')
pieces = st.sampled_from(
    [
        *[write([("read", {"path": "notes.txt"})]) for write in WRITERS.values()],
        *(
            WRONG,
            "ok",
            " ",
            "\n",
            "Hello.\n\n",
            "<think>",
            "</think>",
            "<think>abc</think>\nok",
            "<tool_call>",
            "`",
            '"',
        ),
        *("<|channel|>analysis<|message|>hm<|end|>", "<|start|>assistant<|channel|>final<|message|>", "<|end|>"),
        *("<tool_call>\n<function=read>", "[TOOL_CALLS]", "<function=read> and"),
    ]
)
texts = st.lists(pieces, min_size=1, max_size=5).map("".join).map(Text)


def _read(pieces: Sequence[Sequence[Frame]]) -> Response:
    finder = CallFinder(tools=TOOLS)
    assembler = Assembler(tool_names=frozenset([tool.name for tool in TOOLS]))
    for frames in pieces:
        assembler.receive_all(finder.take([*frames]))
    assembler.receive_all(finder.finish())
    return assembler.finish()


def as_body(name: FamilyName, response: Response) -> Response:
    found = family(name)
    body = found.encode_body(response, ASKED)
    return _read([found.decode_body(body, Profile(name=name, family=name), DEFAULT_LIMITS)])


def as_stream(name: FamilyName, response: Response, *, size: int) -> Response:
    found = family(name)
    stream = encode_stream(found, frames_of(response, piece=size), request=ASKED)
    decoder = found.stream_decoder(Profile(name=name, family=name), DEFAULT_LIMITS)
    came = [decoder.feed(stream[at : at + 200]) for at in range(0, len(stream), 200)]
    return _read([frames for frames in [*came, decoder.finish()] if frames])


def said(response: Response) -> tuple[object, ...]:
    return response.message, response.finish, [one for one in response.repairs if one.kind != "final_item_wins"]


@st.composite
def responses(draw: st.DrawFn, *, in_order: bool) -> Response:
    parts: list[Part] = [Reasoning("I think.")] if draw(st.booleans()) else []
    if in_order:
        parts += draw(
            st.lists(st.one_of(texts, st.just(OWN), st.just(Reasoning("Hm."))), min_size=1, max_size=3, unique_by=id)
        )
    else:
        parts += [draw(texts)] + ([OWN] if draw(st.booleans()) else [])
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if len(calls) > 1:
        parts = [part for part in parts if part is not OWN or part is parts[-1]]
    finish = (
        FinishReason.TOOL_CALLS if OWN in parts else draw(st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]))
    )
    return Response(message=Message("assistant", tuple(parts)), finish=finish, provider_finish=None, id="r", model="m")


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), size=st.sampled_from([1, 5, 1000]))
def test_a_body_and_its_stream_give_the_same_parts(name: FamilyName, data: st.DataObject, size: int) -> None:
    """Proves: words, reasoning, calls in the text and calls of the response's own come out alike, in the same order, whether
    the response came as one body or as a stream in any pieces."""
    response = data.draw(responses(in_order=name in IN_ORDER))
    assert said(as_body(name, response)) == said(as_stream(name, response, size=size))


@each("name", FAMILIES)
@each(
    "text",
    [
        "<think>abc</think>\nok",
        "<|channel|>analysis<|message|>abc<|end|><|start|>assistant<|channel|>final<|message|>ok",
    ],
    ids=["tag", "harmony"],
)
def test_reasoning_in_the_text_beside_an_own_call_leaves_the_text(name: FamilyName, text: str) -> None:
    """Proves: a reasoning model on a server without a reasoning parser gets reasoning and words apart in each step that calls
    a tool, and its marks are sent to nobody again."""
    response = Response(
        message=Message("assistant", (Text(text), OWN)), finish=FinishReason.TOOL_CALLS, id="r", model="m"
    )
    for found in (as_body(name, response), as_stream(name, response, size=3)):
        parts = found.message.parts
        assert [type(part) for part in parts] == [Reasoning, Text, ToolCall]
        assert [part.text for part in parts if isinstance(part, Reasoning | Text)] == ["abc", "ok"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_wrong_block_beside_an_own_call_is_told_in_a_body_too(name: FamilyName) -> None:
    """Proves: the model learns of the call that did not arrive, and no markup is left in the text."""
    response = Response(
        message=Message("assistant", (Text(f"I look.\n{WRONG}"), OWN)),
        finish=FinishReason.TOOL_CALLS,
        id="r",
        model="m",
    )
    for found in (as_body(name, response), as_stream(name, response, size=3)):
        text, wrong, own = found.message.parts
        assert isinstance(text, Text) and text.text == "I look.\n"
        assert isinstance(wrong, ToolCall) and wrong.state.value == "invalid"
        assert isinstance(own, ToolCall) and own.state.value == "complete"
