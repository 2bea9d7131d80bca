"""Where a call stands in code it is text. The judge is a CommonMark parser that we did not write."""

import itertools
import re
import sys
from collections.abc import Iterable
from types import FrameType

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tables import each
from text_calls import read_text
from turnwise.assembly.text_calls.code import MOST_READINGS, MOST_UNSEEN, CodeTracker

MARK = "QMARKQ"
HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
LINE = HERMES.replace("\n", "")
PIECES = (
    *("`", "``", "```", "~~~", "````", "`x`", "\n```", "\n```\n", "\\", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r"),
    *("    ", "\t", " ", "a", "b c", "xml", "> ", "- ", "1. ", "\n# T\n", "•", "=="),
    *("---", "\n***\n", "___\n", "==\n", "- - -\n", "\n--\n", "<!-- x -->\n"),
)
texts = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
# A fence in an item whose end stands at the line's beginning: CommonMark begins another fence there. Models end it so.
FENCE_IN_ITEM = re.compile(r"(?m)^[ \t>]*(?:[-*+]|\d[.)])[ \t].*(?:```|~~~)")


def holds_code(tokens: Iterable[Token]) -> bool:
    """Whether the mark is code for the judge."""
    kinds = ("fence", "code_block", "code_inline")
    return any((one.type in kinds and MARK in one.content) or holds_code(one.children or ()) for one in tokens)


def is_inside(pieces: Iterable[str]) -> bool:
    tracker = CodeTracker()
    for piece in pieces:
        tracker.feed(piece)
    return tracker.is_inside()


@given(before=texts, after=texts)
def test_what_commonmark_takes_for_code_is_code(before: str, after: str) -> None:
    """Done when 1: never inside a fence, backticks or indented code; in doubt it is code."""
    text = f"{before}{MARK}{after}"
    assume(FENCE_IN_ITEM.search(text.replace("\r", "\n")) is None)
    if holds_code(MarkdownIt("commonmark").parse(text)):
        assert is_inside([before])


@given(before=texts, cuts=st.lists(st.integers(0, 40), max_size=3))
def test_pieces_of_a_text_change_nothing_of_where_it_stands(before: str, cuts: list[int]) -> None:
    """Proves: also where the pieces are looked at between two marks, and between the two halves of a line's end."""
    places = sorted({min(cut, len(before)) for cut in cuts} | {0, len(before)})
    tracker = CodeTracker()
    for start, end in itertools.pairwise(places):
        for piece in (before[start:end], *[""] * MOST_UNSEEN):
            tracker.feed(piece)
    assert tracker.is_inside() == is_inside([before])


@each(
    "text",
    [
        f"A literal \\` is escaped; e.g. `{LINE}`.",
        f"A `\\` is one; e.g. `{LINE}`.",
        f"Example:\r\n\r\n    {HERMES}",
        f"Example:\r\n\r\n\t{LINE}\r\n",
        f"It is 5` long:\n- so: `{LINE}`",
        f"# 5` long\nIt is `{LINE}`",
        f"Example: ```xml\n\n{HERMES}\n```",
        f"• ```xml\n\n{HERMES}\n```",
        f"It is 5` long:\n```xml\n\n{HERMES}\n```",
        f"I write ``` so.\n\n```xml\n\n{HERMES}\n```",
        f"# Example\n    {HERMES}",
        f"> Example:\n>\n>     {LINE}",
        f"```\nx\n```\n    {HERMES}",
        f"-     {LINE}",
        f"```\nx\n    ```\n{HERMES}\n```",
        f"```\nx\n- ```\n{HERMES}\n```",
    ],
)
def test_a_call_in_any_kind_of_code_is_text(text: str) -> None:
    """Proves: escaped backticks, line ends of Windows, fences behind words, code in items and quotations."""
    found = read_text(text)
    assert (found.states, found.shown_text) == ([], text)
    assert read_text(list(text)).outcome == found.outcome


INDENTED = "".join([f"    {line}\n" for line in HERMES.split("\n")])


@each(
    "before",
    [
        *(
            "",
            "\n",
            "  \n",
            "Title\n=====\n",
            "Title\n---\n",
            "Title\n -\n",
            "Text\n\n---\n",
            "***\n",
            "_ _ _\n",
            "a\r\n==\r\n",
        ),
        *("> ---\n", "# Title\n", "<!-- x -->\n", "<pre>\nx\n</pre>\n", "> ```\n", "<script>\nx\n</script>\n"),
    ],
)
def test_an_indented_call_behind_what_ends_a_paragraph_is_text(before: str) -> None:
    """The fifth tester's headings, rules and beginning of an answer (CommonMark, "Indented code blocks")."""
    for block in (INDENTED, INDENTED.replace("    ", "\t")):
        assert holds_code(MarkdownIt("commonmark").parse(before + block.replace(HERMES[:11], MARK)))
        for pieces in ([before + block], list(before + block)):
            assert (read_text(pieces).calls, read_text(pieces).text) == ([], before + block)


@pytest.mark.parametrize(
    "before", ["   ", "\n ", "Text\n    ", "Text --- a\n    ", "a\n==b\n    ", "<think>x</think>\n\n"]
)
def test_a_call_behind_blanks_that_begin_no_code_runs(before: str) -> None:
    """Proves: blanks before an answer, and a paragraph that goes on, keep no call from running."""
    assert read_text(before + LINE).calls == read_text(list(before + LINE)).calls == [("read", {"path": "a"})]


@pytest.mark.parametrize(
    ("opens", "closes"),
    [
        ("[quote=Ann]", "[/quote]"),
        ('[QUOTE="Ann Lee, post:1"]', "[/QUOTE]"),
        ("[code=xml]", "[/code]"),
        ("[quote='a']\n", "\n[/quote]"),
    ],
)
def test_a_call_in_a_tag_of_a_forum_is_only_shown(opens: str, closes: str) -> None:
    """The fifth tester's `[quote=Ann]`: a name behind the tag's makes no other tag of it."""
    text = f"See: {opens}{HERMES}{closes}"
    assert [read_text(pieces).states for pieces in (text, list(text))] == [[], []]
    behind = f"{text} So:\n{HERMES}"
    assert [read_text(pieces).calls for pieces in (behind, list(behind))] == [[("read", {"path": "a"})]] * 2


@each(
    "before",
    [
        "```py\r\nx\r\n```\r\nNow:\r\n",
        "Text `a\r\nb` c.\r\n",
        "It costs \\`5\\`.\n",
        "It is 5` long.\n\n",
        "- a\n- b\n\n",
        "> quoted\n\n",
        "~~~\n```\n~~~\n",
        "1. ```bash\nls\n```\n\nNow:\n",
        "# Example\n",
    ],
)
def test_a_call_behind_code_runs(before: str) -> None:
    """Proves: code that has ended hides nothing."""
    assert read_text(f"{before}{HERMES}").calls == [("read", {"path": "a"})]


@pytest.mark.parametrize("mark", ["`", "~", "\\", "\r", "`\\"])
def test_marks_that_come_alone_are_counted_and_not_put_together(mark: str) -> None:
    """Proves: what is kept of a run does not grow with it, so a long one costs as much as it is long."""
    tracker = CodeTracker()
    for _ in range(20_000):
        tracker.feed(mark)
    kept = [getattr(tracker, name) for name in CodeTracker.__slots__]
    assert sum([len(one) for one in kept if isinstance(one, str)]) <= 4


_MANY_WAYS = ">        ``\r````a==a`py=# * ~~~``~~~\t* ```\r\n1. word \r\n\n\n x~~~> \\````\r\n\\\\`\\'"


LOOKS = ("_Reading.words", "_Reading.mark", "_Reading.break_line")


def looks_at(text: str) -> int:
    """How often some words, marks or the end of a line are looked at, in all readings of the text."""
    looks = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal looks
        looks += event == "call" and frame.f_code.co_qualname in LOOKS

    sys.setprofile(count)
    try:
        tracker = CodeTracker()
        tracker.feed(text)
        tracker.is_inside()
    finally:
        sys.setprofile(None)
    return looks


def test_readings_that_come_to_the_same_are_one() -> None:
    """Proves: a doubt that is over costs nothing more. Each kind of doubt doubled the readings for the rest of the text."""
    doubts = "\\` a\n\n    `b` \n\n```x y\n`` ``` py\n\n- # a `\n# b\n\n"
    assert looks_at(doubts + "words\n" * 2_000) <= looks_at(doubts) + 2 * 2_000 + 2


@pytest.mark.parametrize("line", ["x\n", "`\n", "\\`\n", "> `\n", "~\n", "``` py\n"])
def test_a_text_that_can_be_read_in_too_many_ways_is_code(line: str) -> None:
    """Proves: no text is followed in more readings than a few, and in doubt nothing runs."""
    assert looks_at(_MANY_WAYS + line * 2_000) <= looks_at(_MANY_WAYS) + 3 * MOST_READINGS * 2_000
    assert read_text(f"{_MANY_WAYS}{line * 3}\n\n{HERMES}").calls == []


CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'


@pytest.mark.costly
@each(
    "before",
    [
        "The ` is PowerShell's escape.\n",
        "let f `A = 1\n",
        "It's ``quoted''\n",
        "See `foo\n",
        "x=`date\n",
        "a \\\\` b\n",
    ],
)
@each("after", ["", "\n", "\n\nThen `x`.", f"\n{CALL}"])
def test_a_call_behind_a_backtick_without_its_like_is_told(before: str, after: str) -> None:
    """Proves: a lone backtick shows nothing (CommonMark, "Code spans"). Whether its like comes is known too late for the call,
    so that the model is told, and the user is not left with markup in silence."""
    text = before + CALL + after
    found = read_text(text)
    assert found.states == ["invalid"] * text.count(CALL)
    assert found.text == found.shown_text == text
    for at in range(1, len(text)):
        assert read_text([text[:at], text[at:]]).outcome == found.outcome, at
    assert read_text(list(text)).outcome == found.outcome


@pytest.mark.parametrize(
    "text", [f"A ` b\n{CALL}` c", f"`{CALL}`", f"A `` b\n{CALL}\n`` c", f"> `{CALL}", f"```\n`{CALL}\n```"]
)
def test_a_call_between_backticks_is_only_shown(text: str) -> None:
    """Proves: what is code, whatever follows, is told to nobody."""
    found = read_text(text)
    assert (found.states, found.text) == ([], text)
    assert read_text(list(text)).outcome == found.outcome


@pytest.mark.parametrize(
    "before", ["> ```py\n> x\n\n", "> ```py\n> x\n", "> ```py\n>\n", "> > ```\n> > x\n\n", "> ~~~\n> x\n\nWords.\n"]
)
def test_a_fence_ends_with_the_quotation_that_it_stands_in(before: str) -> None:
    """Proves: a call behind the quotation runs (CommonMark, "Block quotes", examples 237 and 238)."""
    text = before + CALL
    assert read_text(text).calls == read_text(list(text)).calls == [("read", {"path": "a"})]


@pytest.mark.parametrize("before", ["> ```py\n> ", "> > ```py\n> > ", "> ```py\n"])
def test_a_fence_in_a_quotation_shows_what_stands_in_both(before: str) -> None:
    """Proves: as long as the quotation goes on, the fence does; without its mark the line stands in neither."""
    assert len(read_text(before + CALL).calls) == (before == "> ```py\n")


@pytest.mark.parametrize(
    "before",
    [
        "return CODES[code]\n",
        "find(x)[quote]\n",
        "rows[0][code] = 1\n",
        "STATES[thinking]\n",
        "List<Example> all;\n",
        "Map<String, List<Template>> m;\n",
        "Optional<Thought> one\n",
    ],
)
def test_an_index_and_a_type_are_no_tags(before: str) -> None:
    """Proves: code outside of a fence opens nothing, so that the call behind it runs."""
    text = before + CALL
    assert read_text(text).calls == [("read", {"path": "a"})]
    for at in range(1, len(text)):
        assert read_text([text[:at], text[at:]]).outcome == read_text(text).outcome, at
    assert read_text(list(text)).outcome == read_text(text).outcome


@pytest.mark.parametrize(
    "before", ["[code]", "a [code]", "a<example>", "a <Example>", "(<example>", "An example:<Example>"]
)
def test_a_tag_that_shows_is_one_behind_words_too(before: str) -> None:
    """Proves: what is shown does not run; if the tag is never closed, the model is told."""
    close = "[/code]" if "[" in before else "</example>"
    assert read_text(before + CALL + close).states == []
    assert read_text(before + CALL).states == read_text(list(before + CALL)).states == ["invalid"]


@pytest.mark.parametrize("before", ["<code> ", "[code]\n", "<example>\n\n"])
def test_a_call_between_backticks_behind_an_open_tag_is_only_shown(before: str) -> None:
    """Proves: one of both is enough; a call that the answer quotes is told to nobody."""
    text = f"{before}It writes `{CALL}` there."
    assert (read_text(text).states, read_text(text).text) == ([], text)
    assert read_text(list(text)).outcome == read_text(text).outcome
