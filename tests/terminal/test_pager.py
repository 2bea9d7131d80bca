"""The pager shows all of a text, whatever its lines and the terminal's width; the screen shows answers as they are."""

import io
from contextlib import redirect_stdout

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.running.watcher_events import FrameSeen, RequestStarted
from turnwise.terminal.pager import Pages
from turnwise.terminal.screen import Screen
from turnwise.vocab import TextDelta

LINES = st.lists(st.text(alphabet="ab é日本\t-+@x", max_size=60), max_size=30)


@pytest.mark.promise("safe:seen")
@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(lines=LINES, columns=st.integers(2, 90), height=st.integers(1, 12))
def test_no_character_is_lost_between_the_pages(lines: list[str], columns: int, height: int) -> None:
    """Proves (issue 13, 9): page after page, all of every line comes by, in order, at any width; a row fits the screen."""
    pages = Pages(lines, coloured=True)
    seen: list[str] = []
    count = len(pages.rows(columns=columns))
    while len(seen) < count:
        pages.top = len(seen)
        page = [text for _, text in pages.page(columns=columns, height=height)]
        assert page and len(page) <= height
        seen = [*seen[: pages.top], *page]
    assert "".join(seen) == "".join([line.expandtabs(8) for line in lines])
    assert all(sum(2 if char in "日本" else 1 for char in row) <= max(columns, 2) for row in seen)


def test_a_narrower_window_keeps_the_place() -> None:
    """Proves: what stood on top is near it after a resize, and the end stays reachable."""
    pages = Pages([f"line {number} {'x' * 30}" for number in range(100)], coloured=False)
    pages.rows(columns=80)
    pages.top = 50
    assert pages.page(columns=20, height=5)[0][1].startswith("line 50")
    pages.top = 10_000
    assert pages.page(columns=20, height=5)[-1][1].endswith("x")


def test_a_streamed_answer_is_shown_as_the_whole_one() -> None:
    """Proves: an emoji's selector and a line end of Windows that are torn between two pieces, and a hidden character."""
    for pieces in (["❤", "\ufe0f a\r", "\nb\u200b", "c"], ["❤\ufe0f a\r\nb\u200bc"], list("❤\ufe0f a\r\nb\u200bc")):
        screen, out = Screen(notes=io.StringIO(), follows=True), io.StringIO()
        with redirect_stdout(out):
            screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
            for piece in pieces:
                screen(FrameSeen(number=1, frame=TextDelta(text=piece)))
        assert out.getvalue() == "❤\ufe0f a\nb<U+200B>c"
