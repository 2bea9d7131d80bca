r"""One spelling for JSON text, so that pieces of it can be compared by what they say: `\u00e9` and é, `\/` and / are the same.

Only escapes are rewritten; they occur inside strings alone, so a rewritten text has the value that it had.
"""

import re
from collections import deque
from functools import lru_cache

_HEX = "[0-9a-fA-F]"
_HIGH, _LOW = f"[dD][89abAB]{_HEX}{{2}}", f"[dD][c-fC-F]{_HEX}{{2}}"
ESCAPE = re.compile(rf"\\(?:u({_HIGH})\\u({_LOW})|u({_HEX}{{4}})|.)", re.DOTALL)
_RESPELT = re.compile(rf"(\\(?:u{_HIGH}\\u{_LOW}|u{_HEX}{{4}}|[\\/]))")  # each other escape stays as it is
_HALF = re.compile(
    rf"\\(?:u{_HIGH}\\u{_LOW}|(?P<half>(?:u{_HIGH}(?:\\(?:u{_HEX}{{0,3}})?)?|u{_HEX}{{0,3}})?\Z)|u{_HEX}{{4}}|.)",
    re.DOTALL,
)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_ONE_CODE = len("\\u00e9")
_LONGEST_HALF = len("\\ud83d\\ude0")


def plainly(text: str) -> str:
    """The JSON text with every character as itself where JSON allows that, else by its shortest escape."""
    if "\\u" not in text and "\\/" not in text:
        return text
    pieces = _RESPELT.split(text)  # what is between the escapes, and these
    pieces[1::2] = map(_plain_escape, pieces[1::2])
    return "".join(pieces)


def without_half_escape(text: str) -> str:
    """The text without an escape at its end that was cut, half a pair of surrogates included."""
    start = aligned(text, before=len(text) - _LONGEST_HALF)
    half = next((found.start() for found in _HALF.finditer(text, start) if found["half"] is not None), len(text))
    return text[:half]


def aligned(text: str, *, before: int) -> int:
    """A place at or before `before` that is inside no escape, or in the digits of one."""
    start = max(0, before)
    while start and text[start - 1] == "\\":
        start -= 1
    return start


def open_string(text: str) -> int | None:
    """Where the string begins that is open at the end of this beginning of a JSON text; None where there is none."""
    strings = deque(_STRING.finditer(text), maxlen=1)
    return strings[0].start() if strings and not strings[0][1] else None


@lru_cache(maxsize=4096)  # a text has few escapes, and has them often
def _plain_escape(escape: str) -> str:
    if len(escape) > _ONE_CODE:
        return chr(0x10000 + ((int(escape[2:6], 16) - 0xD800) << 10) + (int(escape[8:], 16) - 0xDC00))
    if len(escape) < _ONE_CODE:
        return "/" if escape == "\\/" else escape
    character = chr(int(escape[2:], 16))
    if character < " " or "\ud800" <= character <= "\udfff":
        return _SHORT.get(character, escape.lower())
    return _SHORT.get(character, character)
