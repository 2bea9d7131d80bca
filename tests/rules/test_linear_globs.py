"""Patterns of rules take time linear in the text, and mean what they meant to `re`."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.errors import CallerError
from turnwise.rules.permission_commands import Match, matches_narrowly, matches_widely
from turnwise.rules.permission_facts import CommandFact, Word
from turnwise.rules.permission_paths import path_glob, path_matches, word_glob
from turnwise.rules.permissions import names_match, plain_command

PATTERNS = st.lists(
    st.sampled_from(["a", "b", "/", "*", "**", "/**/", "/**", "?", "\\*", "\\?", "\\", ".", "\n"]), max_size=9
)
TEXTS = st.text(alphabet="ab/*?\\.\n", max_size=12)


def path_regex(pattern: str) -> re.Pattern[str]:
    """As rules were compiled before: the judge."""
    tokens = {"/**/": "/(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts: list[str] = []
    for found in re.finditer(r"\\(.)|/\*\*/|/\*\*$|\*\*|\*|\?|[^\\*?/]+|[/\\]", pattern, re.DOTALL):
        text = found[0]
        parts.append(re.escape(found[1]) if found[1] else tokens.get(text, re.escape(text)))
    return re.compile("".join(parts), re.DOTALL)


def word_regex(pattern: str) -> re.Pattern[str]:
    parts: list[str] = []
    for found in re.finditer(r"\\(.)|\*|\?|[^\\*?]+|\\", pattern, re.DOTALL):
        text = found[0]
        parts.append(re.escape(found[1]) if found[1] else {"*": ".*", "?": "."}.get(text, re.escape(text)))
    return re.compile("".join(parts), re.DOTALL)


@given(pattern=PATTERNS.map("".join), text=TEXTS)
def test_both_ways_of_matching_agree_with_the_regular_expression(pattern: str, text: str) -> None:
    """For paths and for words: with few stars `re` matches, with many the bits do."""
    of_path, of_word = path_glob(pattern), word_glob(pattern)
    expected = path_regex(pattern).fullmatch(text) is not None
    assert (of_path.fits(text), of_path.fits_linearly(text)) == (expected, expected)
    expected = word_regex(pattern).fullmatch(text) is not None
    assert (of_word.fits(text), of_word.fits_linearly(text)) == (expected, expected)


@pytest.mark.parametrize("stars", ["*a", "**a", "/**/a*"])
def test_a_pattern_of_many_stars_ends(stars: str) -> None:
    """Of paths, tools and commands: a project's file gives the pattern, the model the name (issue 13, hostile tester, 11c)."""
    pattern = stars * 60 + "b"
    name = "/".join(["a" * 200] * 20)
    assert not path_matches(pattern, path=f"/w/{name}", workspace="/w", home="/h", any_case=True)
    assert not names_match(pattern, name=name)
    command = CommandFact(words=(Word("x"), Word(name)), text="x")
    assert matches_widely(("x", pattern), command=command) is Match.NO
    assert not matches_narrowly(("x", pattern), command=command)


def test_a_glob_of_the_model_ends_too() -> None:
    """A word of a command is compared with what a prohibition names."""
    command = CommandFact(words=(Word("git"), Word("*a" * 60 + "b", glob=True)), text="x")
    assert matches_widely(("git", "a" * 200), command=command) is Match.NO
    command = CommandFact(words=(Word("git"), Word("[" * 60_000, glob=True)), text="x")
    assert matches_widely(("git", "push"), command=command) is Match.NO


def test_a_command_pattern_has_a_length() -> None:
    """As a path has: what reads it goes back and forth in it."""
    with pytest.raises(CallerError, match="more than 4096 characters"):
        plain_command("{" + "," * 500_000, where="turnwise.toml: rules[0]")
