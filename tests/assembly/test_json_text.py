"""Whole, cut or no JSON: judged strictly, with the place where it stops."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.assembly.json_text import Complete, Invalid, JsonScanner, Truncated, classify

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=5)


def written(value: Any, *, spaces: bool, ascii: bool) -> str:
    return json.dumps(
        value, ensure_ascii=ascii, separators=None if spaces else (",", ":"), indent=1 if spaces else None
    )


@given(value=OBJECTS, spaces=st.booleans(), ascii=st.booleans())
def test_what_a_json_writer_writes_is_complete(value: dict[str, Any], spaces: bool, ascii: bool) -> None:
    text = written(value, spaces=spaces, ascii=ascii)
    assert isinstance(classify(text), Complete)
    scanner = JsonScanner()
    scanner.feed(text)
    assert (scanner.whole, scanner.verdict()) == (True, None)


@given(value=OBJECTS, spaces=st.booleans(), ascii=st.booleans(), at=st.integers(0))
def test_every_proper_prefix_is_truncated(value: dict[str, Any], spaces: bool, ascii: bool, at: int) -> None:
    """The standard library's writer is the oracle: its output cut anywhere is a prefix, never invalid, never whole."""
    text = written(value, spaces=spaces, ascii=ascii)
    prefix = text[: at % len(text)]
    verdict = classify(prefix)
    assert isinstance(verdict, Truncated)
    assert verdict.total_chars == len(prefix)
    assert verdict.chars <= len(prefix)


@given(text=st.text(alphabet='{}[]",:\\ntrue0123.eE+-u \x01é', max_size=12))
def test_the_scanner_agrees_with_the_standard_library(text: str) -> None:
    """`json` (without its extensions) is the judge of whole texts. It takes halves of surrogate pairs, so does the grammar."""
    try:
        json.loads(text, parse_constant=_refuse)
        valid = True
    except ValueError:
        valid = False
    scanner = JsonScanner()
    scanner.feed(text)
    assert scanner.whole == valid
    if isinstance(classify(text), Complete):
        assert valid


def _refuse(word: str) -> None:
    raise ValueError(word)


@given(value=OBJECTS, ascii=st.booleans(), cuts=st.lists(st.integers(0, 200), max_size=8), keep=st.integers(0, 200))
def test_pieces_are_judged_like_the_whole(value: dict[str, Any], ascii: bool, cuts: list[int], keep: int) -> None:
    """Cut inside escapes, numbers, literals: the scanner says the same as for the text in one piece."""
    text = written(value, spaces=False, ascii=ascii)[:keep]
    whole, pieces = JsonScanner(), JsonScanner()
    whole.feed(text)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        pieces.feed(text[start:end])
    assert (pieces.viable, pieces.whole, pieces.verdict()) == (whole.viable, whole.whole, whole.verdict())


@pytest.mark.promise("cut:named")
@each(
    ("text", "reason"),
    [
        ('{"path":"b","content":"xx', "cut inside the string at `$.content` after 2 characters"),
        ('{"path":"b","content":"xx\\', "cut inside the string at `$.content` after 3 characters"),
        ('{"path":"b","content":"\\u12', "cut inside the string at `$.content` after 4 characters"),
        ('{"edits":[{"old":"a","new":"bc', "cut inside the string at `$.edits[0].new` after 2 characters"),
        ('{"a b":{"c":[1,2', 'cut inside the number at `$["a b"].c[1]` after 1 characters'),
        ('{"a":tru', "cut inside the literal at `$.a` after 3 characters"),
        ('{"a":', "cut inside the value at `$.a` after 0 characters"),
        ('{"a', "cut inside the object at `$` after 3 characters"),
        ('{"a":{"b":1', "cut inside the number at `$.a.b` after 1 characters"),
        ('{"a":{"b":"1"', "cut inside the object at `$.a` after 8 characters"),
        ("", "cut inside the value at `$` after 0 characters"),
    ],
)
def test_a_cut_is_named_by_argument_and_length(text: str, reason: str) -> None:
    """Which argument was cut, after how many of its characters."""
    verdict = classify(text)
    assert isinstance(verdict, Truncated)
    assert verdict.reason == reason


@pytest.mark.promise("cut:never-run")
@each(
    ("text", "reason"),
    [
        ('{"a":NaN}', "not valid JSON at `$.a`, character 5: a value was expected"),
        ('{"a":Infinity}', "not valid JSON at `$.a`, character 5: a value was expected"),
        ('{"a":1,}', "not valid JSON at `$.a`, character 7: a key in double quotes was expected"),
        ('{"a":[1,]}', "not valid JSON at `$.a[1]`, character 8: a value was expected"),
        ("{'a':1}", "not valid JSON at `$`, character 1: a key in double quotes was expected"),
        ('{"a":"x\ny"}', "not valid JSON at `$.a`, character 7: a control character must be escaped"),
        ('{"a":"\\x41"}', "not valid JSON at `$.a`, character 6: no such escape"),
        ('{"a":01}', "not valid JSON at `$.a`, character 6: a comma or `}` was expected"),
        ('{"a":1.}', "not valid JSON at `$.a`, character 7: a digit was expected in the number"),
        ('{"a":1}}', "not valid JSON at `$`, character 7: text follows the end of the value"),
        ('{"a":1}{"a":2}', "not valid JSON at `$`, character 7: text follows the end of the value"),
        ('{"a" 1}', "not valid JSON at `$.a`, character 5: a colon was expected after the key"),
        ('{"a":1e999}', "not valid JSON at `$`, character 0: a number is too large"),
        ('{"a":"\\ud800"}', "not valid JSON at `$`, character 0: a half of a surrogate pair stands alone"),
        ("// no\n{}", "not valid JSON at `$`, character 0: a value was expected"),
        ("\ufeff{}", "not valid JSON at `$`, character 0: a value was expected"),
    ],
)
def test_what_no_continuation_mends_is_invalid(text: str, reason: str) -> None:
    """Everything that lenient parsers let pass is refused, with the place."""
    verdict = classify(text)
    assert isinstance(verdict, Invalid)
    assert verdict.reason == reason


@pytest.mark.costly
@pytest.mark.promise("assembly:bounded")
def test_nesting_of_any_depth_is_survived() -> None:
    """A million brackets neither overflow the stack nor give an endless path."""
    deep = classify("[" * 1_000_000)
    assert isinstance(deep, Truncated)
    assert len(deep.reason) < 300
    assert classify("[" * 100_000 + "]" * 100_000) == Invalid(path="$", position=0, why="nested too deeply")
