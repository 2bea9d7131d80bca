"""How deep a body is nested is known before anything decodes it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.relay.client_request import is_deeper

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{}[]"\\a\n'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='{}[]"\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=30,
)


def depth_of(value: object) -> int:
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else None
    return 0 if inner is None else 1 + max([depth_of(each) for each in inner], default=0)


@given(value=VALUES)
def test_the_depth_of_any_json_is_found_to_the_level(value: object) -> None:
    """Brackets, quotation marks and backslashes within strings count for nothing."""
    body, depth = msgspec.json.encode(value), depth_of(value)
    assert [is_deeper(body, most=most) for most in (depth, depth + 1)] == [False, False]
    assert depth == 0 or is_deeper(body, most=depth - 1)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[{}," * 100_000,
        b"[" * 60 + b"[" * 60 + b"]" * 60,
        b'["\\\\",' + b"[" * 200,
        b"[[[" + b"]]]" * 3 + b"[" * 200,
    ],
)
def test_what_would_go_too_deep_is_found_though_it_is_no_whole_json(body: bytes) -> None:
    """A decoder goes down before it finds out that nothing closes."""
    assert is_deeper(body, most=100)


@pytest.mark.parametrize("body", [b"", b"[]]]]]", b'"[[[[[[[[', b"[[]" * 2])
def test_what_no_decoder_goes_deep_into_is_let_on(body: bytes) -> None:
    """That it is no JSON is found by who decodes it."""
    assert not is_deeper(body, most=3)
