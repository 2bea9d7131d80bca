"""A quoted block does not run if escapes, doubled marks or unseen characters hide its very name."""

import html
import json
import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import TOOLS, WRITERS, Arguments, read_text
from thoroughness import examples
from turnwise.assembly.text_calls.quotations import Quotations
from turnwise.assembly.text_calls.values import OfferedTools
from turnwise.vocab import Message, Text, ToolResult

View = Callable[[str], str]


def told(said: str) -> list[Message]:
    return [Message("tool", (ToolResult(call_id="1", name="list", content=(Text(said),)),))]


def holds(said: str, block: str) -> bool:
    return Quotations(told(said), tools=OfferedTools(TOOLS)).hold(block)


def _each_byte(pattern: str) -> View:
    return lambda text: "".join([pattern % byte for byte in text.encode()])


def _each_character(pattern: str) -> View:
    return lambda text: "".join([pattern % ord(character) for character in text])


def _utf16(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join([f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)])


def _only(characters: str, escape: View) -> View:
    """Of escapes that stand there, nothing is escaped."""
    pattern = re.compile(rf"\\(?:u....|.)|[{characters}]", re.DOTALL)
    return lambda text: pattern.sub(lambda found: found[0] if found[0][0] == "\\" else escape(found[0]), text)


_IN_YAML = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P"}


def yaml(text: str, *, width: int = 80, indent: int = 2) -> str:
    """As PyYAML writes a string with `default_style='"'` (`Emitter.write_double_quoted`)."""
    said = ['"']
    column = start = 0
    for end in range(len(text) + 1):
        one = text[end] if end < len(text) else None
        if one is None or one in _IN_YAML or not " " <= one <= "~":
            said.append(text[start:end])
            column += end - start
            start = end
            if one is not None:
                code = ord(one)
                plain = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65_536 else f"\\U{code:08x}"
                said.append(_IN_YAML.get(one, plain))
                column += len(said[-1])
                start = end + 1
        if 0 < end < len(text) - 1 and (one == " " or start >= end) and column + end - start > width:
            said.append(f"{text[start:end]}\\\n{' ' * indent}")
            start = max(start, end)
            column = indent
            if text[start] == " ":
                said.append("\\")
    return "".join([*said, '"'])


CODES = {
    "unicode": _utf16,
    "unicode in capitals": lambda text: re.sub(r"\\u....", lambda found: "\\u" + found[0][2:].upper(), _utf16(text)),
    "unicode twice": lambda text: json.dumps(_utf16(text)),
    "long unicode": _each_character("\\U%08x"),
    "rust": _each_character("\\u{%x}"),
    "perl": _each_character("\\x{%x}"),
    "hexadecimal": _each_byte("\\x%02x"),
    "octal": _each_byte("\\%03o"),
    "percent": _each_byte("%%%02X"),
    "percent twice": _each_byte("%%25%02X"),
    "html": _each_character("&#%d;"),
    "html, hexadecimal": _each_character("&#x%X;"),
    "html twice": lambda text: html.escape(_each_character("&#%d;")(text)),
    "backslash within html": lambda text: _utf16(text).replace("\\", "&#92;"),
}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
SHOWN: dict[str, View] = {
    **CODES,
    **{f"{name}, letters": _only(LETTERS, CODES[name]) for name in CODES if "twice" not in name},
    **{f"{name}, lower lines": _only("_", CODES[name]) for name in CODES if "twice" not in name},
    "lower line as HTML names it": lambda text: html.escape(text).replace("_", "&lowbar;"),
    "percents in lines": lambda text: "\n".join(re.findall(".{1,60}", CODES["percent"](text))),
    "SQL": lambda text: "INSERT INTO m VALUES('" + text.replace("'", "''") + "');",
    "CSV": lambda text: '"1","' + text.replace('"', '""') + '"\n',
    "zero width": "\u200b".join,
    "word joiners": "\u2060".join,
    "zero width of JSON": lambda text: json.dumps("\u200b".join(text), ensure_ascii=False),
    "YAML": lambda text: f"said: {yaml(text)}\n",
    "YAML, narrow": lambda text: f"- m:\n    said: {yaml(text, width=20, indent=6)}\n",
}
values = st.text(st.sampled_from("ab1_é漢😀-:/.,%&=<>()|'\"$ \n"), max_size=24) | st.sampled_from(
    ["it's", "a ''b''", '"', "x\ny", "a\n\n b", "docs/a b.md", "word " * 40]
)
arguments: st.SearchStrategy[Arguments] = st.fixed_dictionaries(
    {"path": values}, optional={"content": values, "count": st.integers(0, 99)}
)


@pytest.mark.parametrize("view", SHOWN)
@settings(max_examples=examples(15))
@given(syntax=st.sampled_from(sorted(WRITERS)), given_=arguments)
def test_a_block_is_quoted_whatever_hides_its_name(view: str, syntax: str, given_: Arguments) -> None:
    """The tester's 15 writers: a look for the name before escapes were read had let their calls run."""
    block = WRITERS[syntax]([("write_file", given_)])
    assert holds(SHOWN[view](f"# How to\n\n{block}\n\nend of it"), block)


@pytest.mark.costly
@each("syntax", sorted(WRITERS))
def test_a_short_block_is_quoted_whatever_hides_its_name(syntax: str) -> None:
    """The tester's examples, one a syntax."""
    blocks = [WRITERS[syntax]([("read", {"path": path})]) for path in ("x", "it's", "a\nb")]
    assert [(view, block) for block in blocks for view in SHOWN if not holds(SHOWN[view](block), block)] == []


@pytest.mark.parametrize("view", SHOWN)
@settings(max_examples=examples(5))
@given(
    syntax=st.sampled_from(sorted(WRITERS)),
    values=st.permutations(["docs/a.md", "src/app.py", "notes", "it's", "two words", "漢字"]),
)
def test_a_call_with_another_value_is_none_of_the_escaped(view: str, syntax: str, values: list[str]) -> None:
    """Proves: what is read for the sake of a name makes no quotation of another call."""
    quoted, asked, *_ = values
    said = SHOWN[view](f"# How to\n\n{WRITERS[syntax]([('read', {'path': quoted, 'count': 3})])}\n\nend of it")
    assert not holds(said, WRITERS[syntax]([("read", {"path": asked, "count": 3})]))


def test_an_escaped_name_far_behind_in_a_long_text_is_found() -> None:
    """Proves: only the surroundings of escapes are read for the name, and these are all looked at."""
    block = WRITERS["hermes"]([("read", {"path": "x"})])
    filler = "an ordinary line\n" * 5_000
    assert holds(f"{filler}caf\\u00e9 %5B\n{filler}{CODES['percent'](block)}\n{filler}", block)


def test_a_name_in_pieces_of_two_kinds_is_found() -> None:
    """Proves: letters that stand as they are count together with those that are escaped."""
    block = WRITERS["hermes"]([("read", {"path": "x"})])
    assert holds(block.replace("tool", "t\\u006f&#111;%6C"), block)


@pytest.mark.parametrize("view", ["unicode", "percent", "octal", "html", "SQL", "zero width", "YAML"])
def test_an_escaped_call_is_shown_and_does_not_run(view: str) -> None:
    """Page "What counts as quoted": a call that somebody else wrote never runs, however a tool shows it."""
    block = WRITERS["mistral, names"]([("read", {"path": "it's"})])
    found = read_text(block, earlier=told(SHOWN[view](block)))
    assert (found.states, found.shown_text) == ([], block)


@given(st.text(st.sampled_from("tol_cal \\u0074%6F&#;x\u200b\n<>"), max_size=200))
def test_ordinary_pieces_of_escapes_quote_no_call(said: str) -> None:
    """Proves: broken escapes raise nothing and make no call of nothing."""
    assume("read" not in said)
    assert not holds(said, WRITERS["hermes"]([("read", {"path": "x"})]))
