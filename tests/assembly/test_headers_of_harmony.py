"""A header of harmony is the same header however the text was cut (issue 16, section A)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text_calls import read_text
from thoroughness import examples
from turnwise.assembly.text_calls.block_cursor import Beyond
from turnwise.assembly.text_calls.harmony import Header, header_of

CALL = '<tool_call>{"name":"read","arguments":{"path":"notes.txt"}}</tool_call>'
beginnings = st.sampled_from(["<|start|>", "<|channel|>"])
words = st.sampled_from(
    [
        *("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|", "|>", "<", ">", "</b>", CALL),
        *(
            "assistant",
            "user",
            "analysis",
            "Analysis",
            "final",
            "commentary",
            "to",
            "to=",
            "to=functions.read",
            "functions.",
        ),
        *("json", "code", "x", "t", "{", "}", '{"path":"a"}', " ", "\n", "x" * 90),
    ]
)
texts = st.builds(lambda first, rest: first + "".join(rest), beginnings, st.lists(words, min_size=1, max_size=8))


def judged(text: str) -> Header | str | None:
    try:
        return header_of(text)
    except Beyond:
        return "open"


@settings(max_examples=examples(1500), deadline=None)
@given(text=texts)
def test_more_text_never_changes_what_a_header_was_taken_for(text: str) -> None:
    """Proves: the first beginning that decides is decided as the whole is; what is no header by then becomes none."""
    first = next((verdict for at in range(1, len(text)) if (verdict := judged(text[:at])) != "open"), judged(text))
    assert first == judged(text)


@pytest.mark.costly
@settings(max_examples=examples(300), deadline=None)
@given(text=texts)
def test_text_with_headers_means_the_same_at_every_split(text: str) -> None:
    """Proves: no cut of the text decides about calls, words and reasoning (promise assembly:split-anywhere)."""
    found = read_text(text)
    assert read_text(list(text)).outcome == found.outcome
    for at in range(1, len(text)):
        assert read_text([text[:at], text[at:]]).outcome == found.outcome, at


@pytest.mark.parametrize(
    "text",
    [
        f"<|start|>assistant{CALL}<|message|>ok",
        f"<|start|>assistant {CALL}\n<|message|>",
        "<|start|>assistant<|tool_call_start|>[list()]<|tool_call_end|><|message|>x",
    ],
)
def test_a_call_is_no_part_of_a_header(text: str) -> None:
    """Proves: a call behind `<|start|>assistant` was swallowed where the text came in one piece, and ran where it did not."""
    assert (read_text(text).states, read_text(list(text)).states) == (["complete"], ["complete"])
