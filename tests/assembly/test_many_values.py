"""Arguments are judged as the strict decoder judges them, and counted, before a value of them is built."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.assembly.argument_text import ArgumentText
from turnwise.assembly.json_text import Complete, classify
from turnwise.rules.arguments import Sound, Unsound, judge_call
from turnwise.vocab import ArgumentsState, FinishReason, ToolCall, ToolSpec
from turnwise.vocab.schema_bounds import MAX_VALUES, has_too_many_values

PUT = ToolSpec(name="put", description="", parameters='{"type":"object"}')
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)
NUMBERS = st.from_regex(r"-?[0-9]{1,5}(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
DIGITS = st.builds(
    lambda times, end: "1" * times + end, st.integers(290, 5000), st.sampled_from(["", ".5", "e5", "e-400"])
)
MADE = st.sampled_from(
    ['"', "\\", "\\u12", "\\ud800", "\n", "\x01", "[", "]", "{", "}", ",", ":", "1e999", "nul", "é", " "]
)


def count(value: object) -> int:
    """As values are counted: an empty list or object counts as two."""
    if isinstance(value, dict):
        return 1 + (sum(map(count, value.values())) or 1)
    return 1 + (sum(map(count, value)) or 1) if isinstance(value, list) else 1


@given(
    st.one_of(
        JSON.map(json.dumps), st.lists(st.one_of(NUMBERS, DIGITS, MADE)).map(lambda items: f"[{','.join(items)}]")
    ),
    st.data(),
)
def test_text_is_whole_where_the_strict_decoder_says_so(text: str, data: st.DataObject) -> None:
    """The judge that builds nothing agrees with the decoder that builds all, also on broken texts and on numbers out of range."""
    at = data.draw(st.integers(0, len(text)))
    text = text[:at] + data.draw(st.just("") | MADE) + text[at:]
    try:
        msgspec.json.decode(text)
        whole = True
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        whole = False
    assert isinstance(classify(text), Complete) == whole


@given(JSON, st.integers(1, 40), st.booleans())
def test_values_are_counted_as_they_stand_outside_of_strings(value: object, most: int, spaced: bool) -> None:
    """Commas and brackets inside of strings are no values."""
    text = json.dumps(value, indent=1 if spaced else None, ensure_ascii=spaced)
    assert has_too_many_values(text, most=most) == (count(value) > most)


def settled(arguments: str) -> ToolCall:
    text = ArgumentText()
    text.add(arguments)
    found = text.settle(cut_if_silent=False, cut_if_growing=False, cut_if_handed_out=False)
    return ToolCall(id="c", name="put", arguments=found.arguments, state=found.state, reason=found.reason)


@pytest.mark.parametrize(("more", "runs"), [(0, True), (1, False)])
def test_call_with_more_values_than_any_model_writes_is_not_run_and_says_so(more: int, runs: bool) -> None:
    """The object and its list are two of them. Arguments that a hook changed are held to the same bound."""
    call = settled('{"z":[' + "1," * (MAX_VALUES - 3 + more) + "1]}")
    assert (call.state is ArgumentsState.COMPLETE) is runs
    for judged in (call, msgspec.structs.replace(call, state=ArgumentsState.COMPLETE, reason=None)):
        verdict = judge_call(judged, tools={"put": PUT}, finish=FinishReason.TOOL_CALLS, limit_tokens=None)
        if runs:
            assert isinstance(verdict, Sound)
        else:
            assert isinstance(verdict, Unsound) and re.match(
                "Not run: the arguments of this call of `put` hold more than 65,536 JSON values", verdict.text
            )


def test_long_text_with_many_commas_is_one_value() -> None:
    """A table that is written to a file is a text."""
    assert settled(json.dumps({"text": "1,[{" * 100_000})).state is ArgumentsState.COMPLETE
