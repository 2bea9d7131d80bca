"""Special tokens of chat templates at the end of an answer, and marks at which the limit cut it (issue 16, section A)."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import WRITERS, read_text
from thoroughness import examples
from turnwise.assembly.text_calls.tags import TOKENS
from turnwise.vocab import FinishReason, Frame, PartDone, Text, ToolCallDelta

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
LIST = '[read(path="a")]'
OBJECT = '{"name": "read", "arguments": {"path": "a"}}'
READ = [("read", {"path": "a"})]
each_token = each("token", TOKENS)


@pytest.mark.costly
@each_token
@each(
    "words",
    [
        "Done.",
        "Done.\n",
        "# T\n\nx `y`.",
        "```py\nx\n```",
        "- ~~~\n  x\n  ~~~",
        "> It is so.",
        "> ```\n> x\n> ```",
        "<think>hm</think>\nok",
        "",
    ],
)
def test_a_token_that_ends_the_answer_is_no_part_of_it(token: str, words: str) -> None:
    """Proves: a stop token that the server left in the text is shown to nobody, streamed and whole."""
    plain = read_text(words)
    for text in (f"{words}{token}", f"{words}{token}{token}\n"):
        found = read_text(text)
        assert (found.text, found.shown_text, found.states) == (plain.text, plain.text, [])
        for at in range(1, len(text)):
            assert read_text([text[:at], text[at:]]).outcome == found.outcome, at
        whole: tuple[Frame, ...] = (PartDone("text", Text(text)),)
        assert read_text([], before=whole).text == plain.text


@each_token
@each("text", ["It ends with {}", "`{}", 'It is "{}"', "{} begins it.", "a {} b", "```\n{}"])
def test_a_token_that_the_words_are_about_stays(token: str, text: str) -> None:
    """Proves: no words of an answer about templates are lost."""
    said = text.format(token)
    assert read_text(said).text == said
    assert read_text(list(said)).text == read_text(list(said)).shown_text == said


@pytest.mark.costly
@each_token
@each("syntax", sorted(WRITERS))
def test_a_token_behind_a_call_changes_nothing(token: str, syntax: str) -> None:
    """Proves: in each syntax, and no token is left in the text."""
    for text in (WRITERS[syntax](READ) + token, f"{WRITERS[syntax](READ)}\n{token}\n"):
        found = read_text(text)
        assert (found.calls, found.text) == (READ, "")
        assert read_text(list(text)).outcome == found.outcome


@each("end", ["", *TOKENS, "\n<|eot|>\n"])
@each("text", [LIST, f"<|python_start|>{LIST}<|python_end|>", f"<|python_start|>{LIST}"])
def test_a_list_of_python_calls_runs_between_the_marks_of_llama_4(text: str, end: str) -> None:
    """Proves: with its marks, without them, and before a stop token (vLLM `llama4_pythonic_tool_parser.py`)."""
    found = read_text(text + end)
    assert (found.calls, found.text) == (READ, "")
    assert read_text(list(text + end)).outcome == found.outcome


@pytest.mark.parametrize(
    "text",
    [
        f"```json\r\n{OBJECT}\r\n```",
        f"```json\r\n{OBJECT}\r\n```\r\n",
        f"{OBJECT}<|eot_id|>",
        '{"name": "read", "arguments": "{\\"path\\": \\"a\\"}"}',
    ],
)
def test_an_answer_that_is_only_a_call_counts_in_any_form(text: str) -> None:
    """Proves: with `on`, lines may end with `\\\\r\\\\n`, and arguments may be a string as between Hermes' marks."""
    assert read_text(text, unmarked=True).calls == read_text(list(text), unmarked=True).calls == READ


def test_blanks_may_stand_between_a_sign_and_its_number() -> None:
    """Proves: as Python reads it; a sign before a sign is no number here."""
    assert read_text("[list(count=- 5)]").calls == [("list", {"count": -5})]
    assert read_text("[list(count=- -5)]").calls == []


@pytest.mark.parametrize(
    "text", ["Use the <tool_call>", "Use the <tool_call>\n", "Then `x`, and <|python_tag|>", "(see <function="]
)
def test_words_that_the_limit_cuts_at_a_marker_stay_words(text: str) -> None:
    """Proves: no call without a name is made of them, and none of them is lost; a marker on a line of its own is a cut call."""
    found = read_text(text, reason=FinishReason.LENGTH)
    assert (found.states, found.text) == ([], text)
    assert read_text(list(text), reason=FinishReason.LENGTH).outcome == found.outcome
    assert read_text("Go.\n<tool_call>\n", reason=FinishReason.LENGTH).states == ["truncated"]


pieces = st.sampled_from(
    [*TOKENS, "<", "</", "<|", "s>", " ", "\n", "ok", "`", CALL, LIST, "<think>", "</think>", "<|im_end", " " * 40]
)


@settings(max_examples=examples(150), deadline=None)
@given(
    text=st.lists(pieces, min_size=1, max_size=6).map("".join),
    reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
)
def test_the_end_of_an_answer_is_the_same_however_it_was_cut(text: str, reason: FinishReason) -> None:
    """Proves: promise assembly:split-anywhere; nothing is shown that is taken back."""
    found = read_text(text, reason=reason)
    assert found.text == found.shown_text
    assert read_text(list(text), reason=reason).outcome == found.outcome
    for at in range(1, len(text), 1 + len(text) // 40):
        assert read_text([text[:at], text[at:]], reason=reason).outcome == found.outcome, at


@each("marker", ["<tool_call>", "<function=", "[TOOL_CALLS]", "<|python_tag|>", "<minimax:tool_call>"])
@each("before", ["Use the ", "Then comes: ", 'It ends with "', "(see ", "1. ", "| "])
@each("after", [" and then", " read", " to call", "...", ", ", "` is"])
def test_words_about_a_marker_that_the_limit_cuts_stay_words(marker: str, before: str, after: str) -> None:
    """Proves: a blank and a word behind a marker are no cut call, and none of the words is lost."""
    text = before + marker + after
    found = read_text(text, reason=FinishReason.LENGTH)
    assert (found.states, found.text) == ([], text)
    assert read_text(list(text), reason=FinishReason.LENGTH).outcome == found.outcome


@pytest.mark.parametrize(
    "text", ["Go. <tool_call>", "Go:\n<tool_call>", "So. <tool_call>rea", "Go <tool_call>\n{", "x 1) <|python_tag|>{"]
)
def test_a_cut_call_behind_words_is_told(text: str) -> None:
    """Proves: behind the end of a sentence, on a line of its own, or with its bracket, a marker is a call that was cut."""
    found = read_text(text, reason=FinishReason.LENGTH)
    assert found.states == ["truncated"]
    assert read_text(list(text), reason=FinishReason.LENGTH).outcome == found.outcome


@each_token
def test_a_fence_before_a_token_is_only_a_call(token: str) -> None:
    """Proves: with `on`, a stop token directly behind the fence changes nothing."""
    for end in (token, f"\n{token}", f"\r\n{token}\n"):
        text = f"```json\n{OBJECT}\n```{end}"
        assert read_text(text, unmarked=True).calls == read_text(list(text), unmarked=True).calls == READ


@each_token
def test_a_token_before_a_call_of_the_response_is_dropped(token: str) -> None:
    """Proves: the text before a native call ends as an answer does."""
    own = ToolCallDelta(block="c", id="c1", name="read", arguments='{"path": "a"}')
    found = read_text(f"I look.{token}", after=(own,), reason=FinishReason.TOOL_CALLS)
    assert (found.text, found.shown_text, found.calls) == ("I look.", "I look.", READ)
    whole: tuple[Frame, ...] = (PartDone("text", Text(f"I look.{token}")), own)
    assert read_text([], before=whole, reason=FinishReason.TOOL_CALLS).text == "I look."


@each("syntax", sorted(WRITERS))
def test_lines_of_a_call_may_end_with_returns(syntax: str) -> None:
    """Proves: in each syntax, marks and values are read the same."""
    text = WRITERS[syntax](READ).replace("\n", "\r\n")
    found = read_text(text)
    assert (found.calls, found.text) == (READ, "")
    assert read_text(list(text)).outcome == found.outcome


numbers = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "-", "+", "- ", "-\t", "--", "- -", "+\n"]),
    st.sampled_from(["", "(", "( ", "(("]),
    st.sampled_from(["5", "0", "1_0", "0x1F", ".5", "5.", "1e3", "00", "01", "1__0", "True", "'a'", "2j", "-5"]),
    st.sampled_from(["", ")", " )", "))"]),
    st.sampled_from(["", " ", "\n", " 5", "+1"]),
)


@settings(max_examples=examples(300), deadline=None)
@given(written=numbers)
def test_a_number_is_what_python_reads(written: str) -> None:
    """Proves: `ast.literal_eval` is the judge; what it refuses, and what JSON has not, is no call."""
    try:
        value = ast.literal_eval(f"[{written}]")[0]
    except (SyntaxError, ValueError, TypeError):
        value = None
    expected = [] if value is None or isinstance(value, complex) else [("list", {"options": value})]
    assert read_text(f"[list(options={written})]").calls == expected
