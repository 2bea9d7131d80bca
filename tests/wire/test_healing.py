"""What can be read of broken JSON, and how much of it is tried."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.vocab import Lost, Mended, Repair
from turnwise.wire.json_fields import (
    MAX_MENDED_BYTES,
    MAX_MENDED_VALUES,
    breaks_strings,
    check_utf8,
    has_lone_surrogate,
    left_out,
    read_damaged,
)

PIECES = st.sampled_from(
    ['{"a":', '"', "\\", "\n", "\x01", "}", "[", "]", ",", "1", "data: ", " ", '"b"', "\\u00e9", "x"]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_broken_strings_are_those_that_the_strict_decoder_refuses(text: str) -> None:
    """The standard library's strict decoder stops where a string holds a control character, its lenient one does not."""
    reading = read_damaged(text.encode())
    strict, at = json.JSONDecoder(), behind_glue(text, 0)
    while at < reading.end:
        try:
            _, at = strict.raw_decode(text, at)
        except ValueError:
            break
        at = behind_glue(text, at)
    assert breaks_strings(reading) == (at < reading.end)


def behind_glue(text: str, at: int) -> int:
    found = re.compile(r"(?:\s|data:)*").match(text, at)
    return found.end() if found else at


@given(
    st.recursive(st.text(st.characters(codec=None)), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_half_of_a_character_is_found_wherever_it_stands(value: object) -> None:
    """Where UTF-8 cannot carry the JSON of the value."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
        carried = True
    except UnicodeEncodeError:
        carried = False
    assert has_lone_surrogate(value) is not carried


@pytest.mark.parametrize(
    ("size", "text", "is_read"),
    [
        (MAX_MENDED_BYTES, "x", True),
        (MAX_MENDED_BYTES + 1, "x", False),
        (MAX_MENDED_BYTES // 2, "😀", True),
        (MAX_MENDED_BYTES // 2 + 1, "😀", False),
    ],
)
def test_broken_json_past_its_bound_is_lost_and_no_noise(size: int, text: str, is_read: bool) -> None:
    """Python takes four bytes for each character of a text with an emoji, so half as much of it is read."""
    begun = ('{"a":"\n' + text).encode()
    payload = begun + b"x" * (size - len(begun) - 2) + b'"}'
    reading = read_damaged(payload)
    assert bool(reading.values) is is_read
    if not is_read:
        assert isinstance(left_out(Repair("chunk_skipped", "event 1", "it is no JSON"), reading.rest), Lost)


def test_long_text_without_a_mark_of_json_is_noise() -> None:
    """As a short one is; it costs no second request."""
    rest = read_damaged(b"x" * (MAX_MENDED_BYTES + 1)).rest
    assert isinstance(left_out(Repair("chunk_skipped", "event 1", "it is no JSON"), rest), Mended)


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_broken_json_with_too_many_values_is_lost(more: int, is_read: bool) -> None:
    """The list is one of them."""
    text = "[" + "1," * (MAX_MENDED_VALUES - 2 + more) + "1]"
    assert bool(read_damaged(text.encode()).values) is is_read


@given(st.binary(max_size=6), st.integers(0, 12))
def test_utf8_is_judged_in_slices_as_in_one_piece(middle: bytes, shift: int) -> None:
    """Characters that stand where two slices meet included."""
    text = "é中".encode() + b"x" * (64 * 1024 - shift) + middle + b"x"
    try:
        text.decode()
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            check_utf8(text)
    else:
        check_utf8(text)
