"""Ordinary texts hold no calls (issue 16, "Done when" 1); `python tests/ordinary_texts.py 20000` reads ten times as many."""

import pytest

from ordinary_texts import calls_in, texts
from text_calls import read_text
from turnwise.vocab import FinishReason

COUNT = 2_000


@pytest.mark.costly
def test_ordinary_texts_make_no_call() -> None:
    """Proves: pages, code, XML and JSON, and quoted examples of calls stay the very text that they were."""
    assert [text for text in texts(COUNT) if calls_in(text)] == []


@pytest.mark.wide
def test_twenty_thousand_ordinary_texts_make_no_call() -> None:
    """Done when 1: so many; other ones than those above, and half of them in pieces."""
    found = [
        number for number, text in enumerate(texts(20_000, seed=3)) if calls_in(text, piece=(number % 2) * 9 or None)
    ]
    assert found == []


def test_ordinary_texts_make_no_call_in_pieces() -> None:
    """Proves: the same however they come."""
    for number, text in enumerate(texts(300, seed=2)):
        assert calls_in(text, piece=1 + number % 11) == []


def test_a_text_that_ends_with_a_marker_is_a_call_only_where_it_was_cut() -> None:
    """Proves: a marker that names no tool is words, unless the limit cut what was to follow."""
    for marker in ("<tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "<minimax:tool_call>"):
        assert read_text(f"It writes {marker}").states == []
        assert read_text(f"I look. {marker}", reason=FinishReason.LENGTH).states == ["truncated"]
