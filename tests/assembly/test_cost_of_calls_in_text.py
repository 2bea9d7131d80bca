"""What a text costs that is made to cost much: counted in calls of functions, never by a clock."""

import sys
from collections.abc import Sequence

import pytest

from text_calls import TOOLS, WRITERS
from thoroughness import spread
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.assembly.text_calls.syntaxes import BY_MARK, SYNTAXES
from turnwise.vocab import Finished, FinishReason, Message, Text, TextDelta

OPENERS = (
    "<tool_call>\n<function=read>\n",
    "<function=read><tool_call>",
    "<function=read>{",
    "<tool_call>read\n",
    "<tool_call>read\n<arg_key>",
    '<tool_call>{"name":"read","arguments":{',
    "[TOOL_CALLS]read[ARGS]{",
    "<|python_tag|>read.call(",
    "<|tool_call_start|>[read(",
    '<minimax:tool_call><invoke name="read">',
    "<|start|>assistant<|channel|>commentary to=functions.read<|message|>{",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>{",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{",
)
CLOSERS = tuple(sorted({mark for syntax in SYNTAXES for mark in syntax.ends + syntax.closes} | {"</parameter>\n"}))
IN_A_VALUE = "<tool_call>\n<function=read>\n<parameter=path>\n"
OTHERS = (IN_A_VALUE, '{"a":', "[[", "[read(", "(", '"', '\\"', "<think>", "</think>", "<pre>", "<q>", "```", "`")
WHOLE = tuple([write([("read", {"path": "a"})]) for write in WRITERS.values()])
SHAPES = tuple(dict.fromkeys([*OPENERS, *CLOSERS, *OTHERS, *WHOLE, *sorted(BY_MARK)]))
MOST_CALLS = 20  # of functions, for each further character


def calls_of_functions(text: str, *, size: int, earlier: Sequence[Message] = ()) -> int:
    """How many functions are called, those of the interpreter among them, while the text comes in pieces of this size."""
    finder, count = CallFinder(tools=TOOLS, earlier=earlier), 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for at in range(0, len(text), size):
            finder.take([TextDelta(text[at : at + size])])
        finder.take([Finished(FinishReason.STOP, "stop")])
        finder.finish()
    finally:
        sys.setprofile(before)
    return count


def repeated(shape: str, length: int) -> str:
    return (shape * (length // len(shape) + 1))[:length]


@pytest.mark.costly
@pytest.mark.parametrize("shape", spread(SHAPES, one_of=3, name="costs"))
@pytest.mark.parametrize("beginning", ["", IN_A_VALUE], ids=["alone", "in a value"])
def test_the_cost_of_a_hostile_text_is_linear_and_small(shape: str, beginning: str) -> None:
    """The tester's megabyte of opening tags took 11.6 s: no shape costs more than a few calls of functions a character."""
    counts = [calls_of_functions(beginning + repeated(shape, length), size=256) for length in (8_192, 32_768)]
    assert counts[1] <= 5 * counts[0]
    assert counts[1] - counts[0] <= MOST_CALLS * (32_768 - 8_192)


@pytest.mark.costly
@pytest.mark.parametrize("shape", spread(OPENERS, one_of=3, name="costs behind the last block"))
def test_a_text_behind_the_last_block_costs_almost_nothing(shape: str) -> None:
    """Proves: once as many blocks were looked at as a response may have, the rest passes as it came, quoted or not."""
    short, long = repeated(shape, 40_000), repeated(shape, 160_000)
    costs = [calls_of_functions(text, size=4_096, earlier=[Message("user", (Text(text),))]) for text in (short, long)]
    assert costs[1] - costs[0] <= 120_000
