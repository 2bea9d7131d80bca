"""The escapes of JSON, URLs and HTML, read back: `\\/`, `\\u002f`, `%2F`, `&#47;`, `&sol;`, and one in another.

Nothing is known of the text around them, so each is read wherever it stands. The plain text is for looking things up only.
"""

import re
from html.entities import html5
from types import MappingProxyType

LAYERS = 4  # of one kind in another; more of the same kind (`%25252F`) are one layer
_BEGINS = re.compile(r"[\\%&]")
_NAMES = MappingProxyType(
    {name[:-1]: said for name, said in html5.items() if name.endswith(";") and len(said) == 1 and said <= "\xff"}
)
_SHORT = MappingProxyType({"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"})
# Each alternative takes its whole run at once, so that a long one costs no more than its length.
_ESCAPE = re.compile(
    rf"""
    \\+ (?: u(?P<unicode>[0-9a-fA-F]{{4}}) | x(?P<hex>[0-9a-fA-F]{{2}}) | (?P<short>[bfnrt"/]) )?
    | % (?:25)* (?P<percent>[0-9a-fA-F]{{2}})
    | & (?:amp;)* (?: \#0*(?P<number>[0-9]{{1,5}}) | \#[xX]0*(?P<hex_number>[0-9a-fA-F]{{1,4}}) | (?P<name>{"|".join(_NAMES)}) ) ;
    """,
    re.VERBOSE,
)
# The beginning of an escape, where the text ends.
_HALF = re.compile(
    r"(?:\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%(?:25)*[0-9a-fA-F]?|&(?:amp;)*(?:#[0-9a-fA-FxX]{0,12}|[A-Za-z0-9]{0,24}))\Z"
)
_LONGEST_HALF = 64


def may_escape(text: str) -> bool:
    return _BEGINS.search(text) is not None


def plain(text: str) -> str:
    """The text without escapes."""
    for _ in range(LAYERS):
        before, text = text, _ESCAPE.sub(_character, text)
        if text == before:
            break
    return text


def plain_spans(text: str) -> tuple[str, list[int]]:
    """`plain(text)`, and where in `text` each of its characters begins; one more for its end."""
    places = list(range(len(text) + 1))
    for _ in range(LAYERS):
        pieces: list[str] = []
        kept: list[int] = []
        at = 0
        for found in _ESCAPE.finditer(text):
            pieces += (text[at : found.start()], _character(found))
            kept += places[at : found.start() + 1]
            at = found.end()
        before, text = text, "".join([*pieces, text[at:]])
        places = kept + places[at:]
        if text == before:
            break
    return text, places


def half_at_end(text: str) -> int:
    """Where an escape begins that the end of the text cuts off, as `&#4%3` (of `&#47%3B`); its length where there is none."""
    end = len(text)
    for _ in range(LAYERS):
        if (found := _HALF.search(text, max(0, end - _LONGEST_HALF), end)) is None:
            break
        end = found.start()
    return end


def _character(found: re.Match[str]) -> str:
    for group, base in (("unicode", 16), ("hex", 16), ("percent", 16), ("number", 10), ("hex_number", 16)):
        if digits := found[group]:
            return chr(int(digits, base))
    if short := found["short"]:
        return _SHORT.get(short, short)
    if name := found["name"]:
        return _NAMES[name]
    return "\\"
