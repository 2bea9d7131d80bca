"""A call that a tool shows with something of its own around each line: the same call is quoted, one with another value is not."""

import pytest

from shown_files import VIEWS
from tables import each
from text_calls import TOOLS, WRITERS
from turnwise.assembly.text_calls.quotations import Quotations
from turnwise.assembly.text_calls.values import OfferedTools
from turnwise.vocab import Message, Text

# A prefix, a mark, a number or a cell at each line.
LINES = (
    *(
        "numbers",
        "numbers, glued",
        "blame",
        "two logs",
        "tsv",
        "quoted mail",
        "comment",
        "added",
        "colours",
        "xml lines",
    ),
    *("log", "markdown table", "json lines of a log", "as it is", "double spaced", "yaml"),
)
# What is quoted, and beginnings, ends and pieces of it, and the other way round.
PAIRS = (
    *[("src/app.py", other) for other in ("src/app", "src", "app.py", "app", "py", "src/app.py.orig")],
    *[("ls -la src", other) for other in ("ls", "ls -la", "la", "src")],
    *[("50", "5"), ("50", "0"), ("5", "50"), ("foobar", "foo"), ("foobar", "bar"), ("漢字かな", "漢字"), ("a", "b")],
    *[("[1, 2]", "[1]"), ("[1, 2]", "[2]"), ("src/app", "src/app.py")],
)
# Values of several lines, in syntaxes that do not escape them; a log whose lines differ leaves nothing to tell them by.
LINES_OF_VALUES = (
    *[("cat a\ncat b", "cat a"), ("cat a\ncat b", "cat b"), ("cat a\nls\ncat b", "ls")],
    ("cat a\nls\ncat b", "cat a\ncat b"),
)
UNESCAPED = ("qwen3-coder", "glm", "minimax", "dsml", "dsml v4")


def _is_quoted(view: str, *, syntax: str, quoted: str, asked: str) -> bool:
    blocks = [WRITERS[syntax]([("read", {"path": value, "count": 3})]) for value in (quoted, asked)]
    said = VIEWS[view](f"# How to\n\n{blocks[0]}\n\nend of it")
    return Quotations([Message("user", (Text(said),))], tools=OfferedTools(TOOLS)).hold(blocks[1])


@each("syntax", sorted(WRITERS))
@each("view", LINES, meeting="each")
def test_a_call_runs_that_differs_in_a_value_from_the_shown_one(view: str, syntax: str) -> None:
    """The tester's example: `src/app` is another call than `src/app.py`, however the lines of a file begin and end."""
    is_told = syntax in UNESCAPED and view not in ("log", "markdown table")
    if view == "json lines of a log" and syntax.startswith("dsml"):
        is_told = False  # its marks are escaped there
    pairs = PAIRS + (LINES_OF_VALUES if is_told else ())
    assert [pair for pair in pairs if _is_quoted(view, syntax=syntax, quoted=pair[0], asked=pair[1])] == []
    values = [value for pair in pairs for value in pair]
    assert all(_is_quoted(view, syntax=syntax, quoted=value, asked=value) for value in values)


@pytest.mark.costly
@each("syntax", sorted(WRITERS))
@each("view", VIEWS, meeting="each")
def test_the_shown_call_itself_is_quoted_in_every_view(view: str, syntax: str) -> None:
    """Proves: what tells two calls apart never makes another one of the same call."""
    values = {value for pair in PAIRS + LINES_OF_VALUES for value in pair}
    assert all(_is_quoted(view, syntax=syntax, quoted=value, asked=value) for value in sorted(values))


@pytest.mark.parametrize("value", [" " * 100_000, "1" * 100_000, "a 1:b\n" * 20_000, "\n" * 100_000])
def test_a_long_value_in_a_view_holds_no_other_block(value: str) -> None:
    """Proves: what finds the additions of a tool reads no row of blanks once for each of them."""
    assert not _is_quoted("numbers, glued", syntax="qwen3-coder", quoted=f"{value}b", asked="other")
