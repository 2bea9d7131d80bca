"""A block that was said to the model before is quoted, however a tool had shown it."""

import html
import json
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text_calls import WRITERS, read_text
from turnwise.assembly.calls_in_text.quotations import Quotations
from turnwise.vocab import File, Message, ProviderItem, Text, ToolResult

HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
QWEN = "<tool_call>\n<function=read>\n<parameter=path>\n%s\n</parameter>\n</function>\n</tool_call>"


def holds(said: str, block: str) -> bool:
    """Whether a block is quoted, if a tool had said this."""
    message = Message("tool", (ToolResult(call_id="1", name="bash", content=(Text(said),)),))
    return Quotations([message]).hold(block)


def shown(text: str, mark: str, *, first: int = 8) -> str:
    """Each line behind the mark, `{n}` being its number."""
    return "\n".join([mark.replace("{n}", str(n)) + line for n, line in enumerate(text.split("\n"), start=first)])


# As `grep -r`, `rg` in a pipe, `git grep REVISION`, `git blame`, `journalctl`, `docker logs` and coloured `rg` show lines.
MARKS = (
    "",
    "docs/a.md:",
    "my docs/a.md:{n}:",
    "C:\\a b\\c.md:{n}:",
    "HEAD:a.md:{n}:",
    "a.md-{n}-",
    "^1a2b3c4d (Ada Lovelace 2024-01-01 10:00:00 +0100 {n}) ",
    "Jan 01 10:00:0{n} host app[12]: ",
    "2024-01-01T10:00:00Z ",
    "\x1b[35mdocs/a.md\x1b[0m:\x1b[32m{n}\x1b[0m:",
    "| {n} | ",
    "  {n}→",
    "    // ",
    "• ",
)
ESCAPES: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: text.replace("\n", "\r\n"),
    json.dumps,
    ascii,
    html.escape,
    lambda text: html.escape(html.escape(text)),
    lambda text: json.dumps(json.dumps(text)),
    lambda text: json.dumps({"source": [f"{line}\n" for line in text.split("\n")]}, indent=1),
    lambda text: " +\n".join([json.dumps(line) for line in text.split("\n")]),
)
values = st.text(st.sampled_from("ab1é😀｜-:/ \n"), max_size=12)


@given(
    syntax=st.sampled_from(sorted(WRITERS)),
    path=values,
    mark=st.sampled_from(MARKS),
    escape=st.sampled_from(ESCAPES),
    first=st.sampled_from([1, 8, 99]),
    quotes_in_one_line=st.booleans(),
)
def test_a_block_is_found_however_its_lines_began(
    syntax: str, path: str, mark: str, escape: Callable[[str], str], first: int, quotes_in_one_line: bool
) -> None:
    """Done when 1: quoted blocks from tool results run 0 times."""
    block = WRITERS[syntax]([("write_file", {"path": path, "content": "x\ny"})])
    said = escape(shown(f"# How to\n{block}\nend", mark, first=first))
    assert holds(said, block.replace("\n", " ") if quotes_in_one_line else block)


names = st.text(st.sampled_from(string.ascii_lowercase), min_size=1, max_size=6)


@given(syntax=st.sampled_from(sorted(WRITERS)), paths=st.lists(names, min_size=2, max_size=6, unique=True))
def test_another_call_of_the_same_shape_is_no_quotation(syntax: str, paths: list[str]) -> None:
    """Proves: examples of a syntax in the history do not keep the model from writing in it."""
    *earlier, path = paths
    said = "\n".join([WRITERS[syntax]([("read", {"path": one})]) for one in earlier])
    assert not holds(said, WRITERS[syntax]([("read", {"path": path})]))


def test_the_end_of_a_longer_value_is_another_value() -> None:
    """Proves: what stands before a line is left out of all lines or of none."""
    assert not holds(QWEN % "docs/b.txt", QWEN % "b.txt")
    assert not holds(f"{QWEN % 'test1.py'}\n{QWEN % 'test2.py'}", QWEN % "test12.py")
    assert holds(shown(QWEN % "b.txt", "docs/"), QWEN % "b.txt")


def test_a_quoted_block_is_shown_and_does_not_run() -> None:
    """The tester's example: `grep -r` writes a path before each line, and no number."""
    said = Message("user", (Text(shown(HERMES, "docs/a.md:")),))
    found = read_text(f"It says: {HERMES}", earlier=(said,))
    assert (found.states, found.shown_text) == ([], f"It says: {HERMES}")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_a_file_protects_in_whichever_encoding_it_is(encoding: str) -> None:
    """Proves: the model's server reads it, so the model may quote it."""
    block = HERMES.replace('"a"', '"é"')
    file = File(media_type="text/plain", data=f"Read:\n{block}\n".encode(encoding))
    assert Quotations([Message("user", (file,))]).hold(block)


def test_what_the_providers_own_search_found_protects() -> None:
    """Proves: a page that came so is as foreign as one that a tool has read."""
    item = ProviderItem(family="openai_chat", kind="search", json=json.dumps({"text": HERMES}))
    assert Quotations([Message("assistant", (item,))]).hold(HERMES)


@pytest.mark.parametrize(
    "text",
    [
        "tool_call " + "-" * 50_000,
        "tool_call " + "\\" * 50_000,
        "tool_call " + "1:" * 50_000,
        "tool_call" + "\x1b[" * 50_000,
        "tool_call" + "&amp" * 50_000,
    ],
)
def test_a_long_row_of_marks_holds_no_block(text: str) -> None:
    """Proves: no pattern reads such a row once for each of its characters."""
    assert not holds(text, HERMES)


def test_a_text_made_to_cost_much_counts_as_a_quotation() -> None:
    """Proves: what is compared is bounded, and in doubt nothing runs."""
    block = f"<tool_call>{'a' * 2_000}b</tool_call>"
    assert holds(f"<tool_call>{'a' * 500}\n" + "aaa\naa\na\n" * 30_000, block)
