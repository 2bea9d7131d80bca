"""Bounds of what a response may tell, and characters, numbers and objects that come in an odd way.

Mutants that no test noticed. Frames in, a response out.
"""

import json

import pytest

from assembly.test_assembler import CALLS, STOP, assemble
from turnwise.assembly.argument_text import TOO_MANY, ArgumentText
from turnwise.assembly.json_text import Complete, JsonKind, Truncated, classify
from turnwise.assembly.response import MAX_REPAIRS, Assembler
from turnwise.vocab import (
    ArgumentsState,
    FaultKind,
    Mended,
    Part,
    PartDone,
    Reasoning,
    Refusal,
    Repair,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from turnwise.vocab.schema_bounds import MAX_VALUES


@pytest.mark.parametrize("more", [-1, 0, 1, 50])
def test_of_many_repairs_the_first_are_told_and_that_there_were_more(more: int) -> None:
    """Proves: to the last one that is told; one that is known already is no further one."""
    repairs = [Repair("noise", f"chunk {nth}", "left out") for nth in range(MAX_REPAIRS + more)]
    response = assemble(TextDelta("a"), *map(Mended, repairs), Mended(repairs[0]), STOP)
    rest = Repair("more_repairs", "response", "and more: only the first 100 are told")
    told = repairs[:MAX_REPAIRS] + ([rest] if more > 0 else [])
    assert response.repairs == tuple(told)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (Text("a\ud83d"), Text("a\ufffd")),
        (Reasoning("a\ud83d"), Reasoning("a\ufffd")),
        (Refusal("a\ud83d"), Refusal("a\ufffd")),
        (Text("a\ud83d\ude00"), Text("a\U0001f600")),
    ],
)
def test_half_a_character_of_a_whole_part_is_replaced_and_counts_as_lost(part: Part, whole: Part) -> None:
    """Proves: two halves that stand together are one character, and nothing is lost then."""
    response = assemble(PartDone(block="0", part=part), STOP)
    assert response.message.parts == (whole,)
    assert response.lost is ("\ufffd" in str(whole))


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_a_call_that_comes_whole_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    """Proves: a provider that hands out objects leaves an empty one out."""
    delta = ToolCallDelta(index=0, id="a", name="look", arguments=arguments, whole=True)
    (call,) = assemble(delta, CALLS).message.parts
    assert isinstance(call, ToolCall)
    assert (call.arguments, call.state) == ("{}", ArgumentsState.COMPLETE)


def test_arguments_with_too_many_values_are_invalid_however_they_are_encoded() -> None:
    """Proves: the bound holds for an object, for one that was encoded twice, and not for one value fewer."""
    for numbers, state in ((MAX_VALUES - 2, ArgumentsState.COMPLETE), (MAX_VALUES - 1, ArgumentsState.INVALID)):
        plain = json.dumps({"a": [0] * numbers}, separators=(",", ":"))
        for text in (plain, json.dumps(plain)):
            arguments = ArgumentText()
            arguments.add(text)
            settled = arguments.settle(cut_if_silent=False, cut_if_growing=False, cut_if_handed_out=False)
            assert (settled.state, settled.arguments) == (state, plain)
            assert settled.reason == (TOO_MANY if state is ArgumentsState.INVALID else None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{}", "object"),
        (" [1]", "list"),
        ('"a"', "string"),
        ("true", "boolean"),
        ("false", "boolean"),
        ("null", "null"),
        ("-1.5E+3", "number"),
    ],
)
def test_whole_json_is_told_by_its_kind(text: str, kind: JsonKind) -> None:
    """Proves: the words of a result say what came in place of an object."""
    assert classify(text) == Complete(kind)


@pytest.mark.parametrize("number", ["1e5", "1E5", "1E+5", "-0.5E-7", "10", "0"])
def test_a_number_before_the_cut_does_not_make_arguments_invalid(number: str) -> None:
    """Proves: in each spelling that JSON has; the value behind it is the one that was cut."""
    found = classify(f'{{"a":{number},"b":"x')
    assert isinstance(found, Truncated)
    assert (found.path, found.inside, found.chars) == ("$.b", "string", 1)


@pytest.mark.parametrize(
    ("arguments", "came"),
    [
        ("true", "true or false"),
        ("false", "true or false"),
        ("[1]", "a list"),
        ("5", "a number"),
        ('"a"', "a string"),
    ],
)
def test_arguments_that_are_no_object_are_told_for_what_they_are(arguments: str, came: str) -> None:
    """Proves: the model reads what it has to write instead."""
    (call,) = assemble(ToolCallDelta(index=0, id="a", name="look", arguments=arguments), CALLS).message.parts
    assert isinstance(call, ToolCall) and call.state is ArgumentsState.INVALID
    assert call.reason == f"arguments must be a JSON object, not {came}"


@pytest.mark.parametrize(("room", "fits"), [(0, True), (-1, False)])
def test_a_call_that_comes_whole_may_be_as_long_as_one_that_comes_in_pieces(room: int, fits: bool) -> None:
    """Proves: the bound holds to the byte in both ways, and the fault names the call."""
    text = json.dumps({"path": "a" * 100})
    for whole in (True, False):
        assembler = Assembler(call_bytes=len(text) + room)
        delta = ToolCallDelta(index=0, id="a", name="look", arguments=text, whole=whole)
        response = assemble(delta, CALLS, assembler=assembler)
        if fits:
            assert response.fault is None
        else:
            assert response.fault is not None and response.fault.kind is FaultKind.TOO_LARGE
            limit = len(text) + room
            assert response.fault.message == f"the arguments of the call `look` are longer than {limit} bytes"
