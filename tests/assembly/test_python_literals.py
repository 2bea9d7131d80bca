"""Values of calls that are written as Python: what is read is what Python itself reads (issue 16, section A)."""

import ast
import json
import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import lfm, python_list, read_text
from thoroughness import examples

# In these three ways a literal may differ from Python's: it can be read in one way only.
ONLY_READ_HERE = ("\n", "\r", "true", "false", "null")
PIECES = (
    *(
        "'",
        '"',
        '"""',
        "'''",
        "\\",
        "\\\\",
        "\n",
        "\r\n",
        "\r",
        "a",
        "r",
        "R",
        "u",
        "b",
        "f",
        "é",
        "😀",
        "\t",
        "\f",
        "\0",
    ),
    *(
        "0",
        "1",
        "7",
        "8",
        "9",
        "x",
        "+",
        "-",
        ".",
        "_",
        "e",
        "j",
        "1e400",
        "0x1F",
        "0o17",
        "0b1",
        "1_0",
        "1__0",
        "007",
        "1.",
    ),
    *("{", "}", "[", "]", "(", ")", ",", ":", " ", "#", "=", "*", "None", "True", "False", "true", "null", "nan", "N"),
    *(
        "\\N{bel}",
        "\\N{DIGIT ONE}",
        "\\N{no}",
        "\\x41",
        "\\x+1",
        "\\x4",
        "\\u0041",
        "\\ud83d",
        "\\ude00",
        "\\U0001F600",
    ),
    *("\\U00110000", "\\033", "\\0", "\\101", "\\777", "\\a", "\\v", "\\/", "\\d", "\\\n", "\\\r\n", "{'a':", "'b'"),
)
AROUND = ("{}", "'{}'", '"{}"', '"""{}"""', "[{}]", "({})", "{{'k':{}}}", "r'{}'", "'a' {}", "-{}")


def read_here(written: str) -> str | None:
    """The value as JSON, or None where the block is no call."""
    found = read_text(f"[read(options={written})]").calls
    return None if not found else json.dumps(found[0][1]["options"])


def read_by_python(written: str) -> str | None:
    """The same by Python. Two escapes of one character are one in JSON."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = json.dumps(ast.literal_eval(written))
        return json.dumps(json.loads(read.encode("utf-8")))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


@each(
    ("written", "value"),
    [
        (r"'\033[31m'", "\x1b[31m"),
        (r"'a\0b'", "a\0b"),
        (r"'\101\60'", "A0"),
        (r"'\a\b\f\v\e\d\/'", "\a\b\f\v\\e\\d\\/"),
        (r"'\N{DIGIT ONE}\x41\u0041\U0001F600'", "1AA😀"),
        (r"'\ud83d\ude00'", "😀"),
        ("'a\\\nb\\\r\nc'", "abc"),
        ("'''a\r\nb\rc'''", "a\nb\nc"),
        (r"r'C:\new\dir'", "C:\\new\\dir"),
        (r"""R'a\'b' u"c" """, "a\\'bc"),
        ("('a'\n 'b')", "ab"),
        ("(1)", 1),
        ("('a')", "a"),
        ("(1,)", [1]),
        ("()", []),
        ("{'a' 'b': [(1, 2), {}]}", {"ab": [[1, 2], {}]}),
        ("1_000", 1000),
        ("0x1F", 31),
        ("-0b11", -3),
        ("1_0.5e0_1", 105.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("007.5", 7.5),
        ("-0", 0),
        ("9007199254740993", 9007199254740993),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("[None, True, False]", [None, True, False]),
        ('""""a\'"""', "\"a'"),
        ('"" \'\' """"""', ""),
    ],
)
def test_a_python_value_is_what_python_reads(written: str, value: object) -> None:
    """Proves: escapes, prefixes, strings side by side, parentheses and numbers are Python's. From the second tester of issue 16:
    `\\033` and its like stayed as they were written. `(1)` became a list."""
    for text in (f"[read(options={written})]", f"<|tool_call_start|>[read(options={written})]<|tool_call_end|>"):
        found = read_text(text)
        assert json.dumps(found.calls) == json.dumps([("read", {"options": value})])
        assert read_text(list(text)).outcome == found.outcome
    assert read_by_python(written) == json.dumps(value)


@each(
    "written",
    [
        *(
            "b'a'",
            "f'a'",
            "f'{1}'",
            "rb'a'",
            "'a' b'b'",
            "'a' + 'b'",
            "'a' * 2",
            "'%s' % 1",
            "'a'.upper()",
            "x",
            "2*3",
            "1+1j",
        ),
        *(
            "nan",
            "inf",
            "1e400",
            "float('nan')",
            "1__0",
            "1_",
            "007",
            ".",
            "+.",
            ".e5",
            "0x",
            "0b2",
            "--1",
            "...",
            "{1, 2}",
        ),
        *(
            "{1: 'a'}",
            "{'a': 1, 'a': 2}",
            "{**{}}",
            "[*[]]",
            "[,]",
            "(,)",
            "lambda: 1",
            "'\\x4'",
            "'\\x+1'",
            "'\\u00_1'",
        ),
        *(
            "'\\N{no such thing}'",
            "'\\N'",
            "'\\U00110000'",
            "'\\ud83d'",
            "'a\0b'",
            "'''a''",
            "Truex",
            "[1][0]",
            "-True",
        ),
    ],
)
def test_what_is_no_value_of_python_and_of_json_does_not_run(written: str) -> None:
    """Proves: a value is read as Python reads it, or the call does not run."""
    assert read_text(f"[read(options={written})]").calls == []
    marked = read_text(f"<|tool_call_start|>[read(options={written})]<|tool_call_end|>")
    assert marked.calls == [] and len(marked.states) == 1


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join), st.sampled_from(AROUND))
def test_whatever_is_read_of_python_is_what_python_reads(pieces: str, around: str) -> None:
    """Proves: the same for anything, with `ast.literal_eval` as the judge."""
    written = around.format(pieces)
    found = read_here(written)
    if found is not None and not any(one in written for one in ONLY_READ_HERE):
        assert found == read_by_python(written)
    if found is not None and (value := read_by_python(written)) is not None:
        assert found == value


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner) | st.tuples(inner, inner),
    max_leaves=12,
)


@settings(max_examples=examples(200), deadline=None)
@given(_VALUES)
def test_every_value_that_json_has_is_read_from_its_python(value: object) -> None:
    """Proves: nothing that a model may mean is lost or changed, as Python itself writes it."""
    call = ("read", {"options": value})
    told = json.loads(json.dumps(value))
    for text in (python_list([call]), lfm([call])):
        assert json.dumps(read_text(text).calls) == json.dumps([("read", {"options": told})])
