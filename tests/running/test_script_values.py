"""Values of a program: whatever they hold, they are named or shown, within bounds."""

import datetime
import math

import pytest

from turnwise.running.script_values import MAX_DEPTH, MAX_VALUES, json_problem, shown


def deep(times: int) -> object:
    value: object = []
    for _ in range(times):
        value = [value]
    return value


def doubled(times: int) -> object:
    """Sixty lists in memory, 2 ** 60 when they are written out."""
    value: object = [1]
    for _ in range(times):
        value = [value, value]
    return value


def circle() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -(2**63),
        0.5,
        "text",
        [1, ("a",)],
        {"a": {2, 3}},
        {1: "one", "two": 2},
        datetime.date(2020, 1, 2),
        datetime.datetime(2020, 1, 2, 3, 4),
        deep(MAX_DEPTH),
    ],
)
def test_what_json_can_carry_has_no_problem(value: object) -> None:
    """Proves: values that lose nothing on their way are let through."""
    assert json_problem(value, limit_bytes=1000) == ""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"a": [math.nan]}, "nan, which is no number of JSON"),
        (-math.inf, "-inf, which is no number of JSON"),
        ([b"x"], "bytes: decode them to text, or encode them in base64 yourself"),
        ({1: 2, "1": 3}, "the key 1 twice, as a number and as text"),
        ({None: 1}, "a key of type `NoneType`: keys are texts"),
        ({True: 1}, "a key of type `bool`: keys are texts"),
        (2**70, "a whole number of 71 bits"),
        (..., "a value of type `ellipsis`"),
        (
            ["<coroutine external_future(0)>"],
            "`<coroutine external_future(0)>`, a call whose result is not there yet: `await` it first",
        ),
        ("<gather(1)>", "`<gather(1)>`, a call whose result is not there yet: `await` it first"),
        (
            "<function '<lambda>' at 0x6c>",
            "`<function '<lambda>' at 0x6c>`, which is an object of the program and no value",
        ),
        ("<class 'C'>", "`<class 'C'>`, which is an object of the program and no value"),
        ("<module 're'>", "`<module 're'>`, which is an object of the program and no value"),
        ("<list_iterator object>", "`<list_iterator object>`, which is an object of the program and no value"),
        (
            "<re.Match object; span=(0, 1), match='a'>",
            "`<re.Match object; span=(0, 1), match='a'>`, which is an object of the program and no value",
        ),
        (deep(100_000), f"nested more than {MAX_DEPTH} deep, or holding itself"),
        (circle(), f"nested more than {MAX_DEPTH} deep, or holding itself"),
        (doubled(60), f"more than {MAX_VALUES:,} values"),
        (["x" * 150_000] * 2, "more than 200,000 bytes"),
        ({"x" * 200_001: 1}, "more than 200,000 bytes"),
    ],
)
def test_what_json_cannot_carry_is_named(value: object, problem: str) -> None:
    """Proves: nothing becomes `null`, base64 or one key of two in silence, and no value is walked without end."""
    assert json_problem(value, limit_bytes=200_000) == problem


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        ([1, {"a": None}], '[1,{"a":null}]'),
        (math.nan, "nan"),
        ([b"x", (1,), {3}, set[int](), ...], "[b'x', (1,), {3}, set(), Ellipsis]"),
        ({1: 2, "1": 3}, "{1: 2, '1': 3}"),
        ({(1, 2): [b""], b"": ()}, "{<tuple>: [b''], b'': ()}"),
        ([10**5000], "[<int, too long to write>]"),
        (ValueError("a"), "ValueError('a')"),
        (deep(100_000), "[" * 21 + "..." + "]" * 21),
        (circle(), "[" * 21 + "..." + "]" * 21),
    ],
)
def test_every_value_can_be_shown(value: object, expected: str) -> None:
    """Proves: JSON where that says it all, else as Python writes it, without recursion."""
    assert shown(value, limit=1000) == expected


def test_what_is_long_and_no_json_is_shown_from_its_beginning() -> None:
    """Proves: 2 ** 60 lists, and a thousand times the same megabyte, are written no further than anybody reads."""
    said = shown(doubled(60), limit=100)
    assert (said[:24], said[100:]) == ("[" * 21 + "...", "\n[... the rest of this value is left out]")
    said = shown(["x" * 1_000_000] * 1000, limit=10)
    assert said == "['xxxxxxxx\n[... the rest of this value is left out]"
