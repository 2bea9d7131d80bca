"""A call in the text that the limit cuts: what is kept of it is a beginning of its arguments (issue 16, section A)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text_calls import CLOSE, TAGGED, WRITERS, read_text
from thoroughness import examples
from turnwise.vocab import FinishReason, calls_of

contents = st.lists(
    st.sampled_from(["a", " b", "\n", "<", "</", "<b>", "</parameter", "<parameter=", "x</p>", "</arg_value", "é"]),
    max_size=6,
).map("".join)


def arguments_of(text: str, reason: FinishReason) -> list[str]:
    return [
        call.arguments
        for call in calls_of(read_text(text, reason=reason).response.message)
        if call.name == "write_file"
    ]


@pytest.mark.parametrize("syntax", sorted(TAGGED))
@settings(max_examples=examples(25), deadline=None)
@given(content=contents, path=st.sampled_from(["a.txt", "", "b c"]))
def test_no_tag_of_the_syntax_becomes_a_part_of_a_cut_value(syntax: str, content: str, path: str) -> None:
    """Proves: wherever the limit cuts, what is kept is a beginning of what the whole call says, so that a continuation joins
    it to the right arguments (promise cut:text-continued). The last piece of a tag may look like a value as long as nothing
    shows that it is none."""
    whole = WRITERS[syntax]([("write_file", {"path": path, "content": content})])
    (arguments,) = arguments_of(whole, FinishReason.STOP)
    if json.loads(arguments).get("content") != content:
        return  # what looks like a tag in it makes it no whole call
    for at in range(len(whole)):
        for kept in arguments_of(whole[:at], FinishReason.LENGTH):
            assert arguments.startswith(kept) or kept == "{}", whole[:at]


@pytest.mark.parametrize("syntax", sorted(TAGGED))
def test_a_value_whose_tag_is_closed_is_whole_at_every_cut_behind_it(syntax: str) -> None:
    """Proves: between a closing tag and the end of the next tag the value stands, and is closed."""
    whole = WRITERS[syntax]([("write_file", {"path": "a.txt", "content": "hello"})])
    close = whole.rfind(CLOSE[syntax]) + len(CLOSE[syntax])
    for at in range(close, len(whole)):
        (kept,) = arguments_of(whole[:at], FinishReason.LENGTH)
        assert kept.removesuffix("}") == '{"path":"a.txt","content":"hello"'


@pytest.mark.parametrize("content", ["hello", "a\r\nb", "", "a\r"])
def test_a_cut_value_in_lines_that_end_with_returns_is_a_beginning_of_the_whole(content: str) -> None:
    """Proves: the line breaks of Qwen3-Coder's template are no part of a value, whichever they are."""
    written = WRITERS["qwen3-coder"]([("write_file", {"path": "a.txt", "content": content})])
    whole = written if "\r" in content else written.replace("\n", "\r\n")
    (arguments,) = arguments_of(whole, FinishReason.STOP)
    assert json.loads(arguments) == {"path": "a.txt", "content": content}
    for at in range(len(whole)):
        for kept in arguments_of(whole[:at], FinishReason.LENGTH):
            assert arguments.startswith(kept) or kept == "{}", whole[:at]
