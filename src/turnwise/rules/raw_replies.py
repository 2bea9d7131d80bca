r"""Does a reply say the value's own text where JSON text was asked for? (cut:continued)

A model that goes on with the file itself writes `"` for `\"` and `\theta` for `\\theta`. Most of that is no JSON and shows by
itself; the rest is read as something else: `"}` ends the arguments in the middle of a JSON file, `\t` is a tab. What gives it
away is the part of the value that is there already, whose spelling is known. Nothing here is sure that a reply is right; each
rule names a sign that it is not, and a doubt costs a refusal.
"""

import json
import re
from collections.abc import Callable
from typing import cast

from turnwise.rules.json_spelling import open_string, plainly, without_half_escape

TELLING_CHARACTERS = 200  # of a value; what so much of it does not hold, its rest does not bring up by chance
# What raw text turns into by being read as JSON; line breaks and tabs are in most files, these in next to none.
_RARE = re.compile(r"[bf]|u00[01][0-9a-f]")
_KINDS = re.compile(r"\\(?:([bfnrt]|u00[01][0-9a-f])|.)", re.DOTALL)
_CODES = re.compile(r"\\(?:(u[0-9a-fA-F]{4})|.)", re.DOTALL)
_RUN = re.compile(r"(\\+)(.?)", re.DOTALL)
_BODY = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
# A quotation mark, or a line break before anything but a word: commands of LaTeX and folders of Windows begin with a letter.
_OF_JSON = re.compile(r'\\(?:("|n(?!\w|\Z))|.)', re.DOTALL)
_decode: Callable[[str], object] = json.JSONDecoder(strict=False).decode
# Backslashes that the reply should have held, going by the value so far, before their lack says something.
_EXPECTED = 3
_ESCAPED_AGAIN = (("\n", "\\n"), ("\t", "\\t"), ('"', '\\"'), ("/", "\\/"))


def sign_of_own_text(known: str, *, added: str, proven: bool, codes: bool) -> str | None:
    """Why `added` reads as the value's own text, None where nothing says so.

    `known` is the JSON text that is sure, `added` what the reply puts behind it. Of the known part that the reply wrote once
    more, `proven`: it held a backslash, spelt as JSON does; `codes`: it held a `\\u`.
    """
    if (sign := sign_of_translation(known, added=added, quote='\\"')) is not None:
        return sign
    start, place = open_string(known), 0
    if start is None:
        place = added.find('"') + 1
        if not place:
            return None
    shown = "" if start is None else known[start + 1 :]
    while True:
        body = _match(_BODY, added, place)
        place += len(body)
        sign = _sign(
            shown,
            kinds=_kinds(shown or known),
            body=without_half_escape(body),
            closed=added.startswith('"', place),
            proven=proven,
            codes=codes,
        )
        if sign is not None:
            return sign
        after = added.find('"', place + 1)
        if not added.startswith('"', place) or after < 0:
            return None
        shown, place = "", after + 1


def _match(pattern: re.Pattern[str], text: str, place: int) -> str:
    found = pattern.match(text, place)
    return "" if found is None else found[0]


def _sign(shown: str, *, kinds: set[str], body: str, closed: bool, proven: bool, codes: bool) -> str | None:
    """The first sign in one string: `shown` is its text so far, `body` what the reply adds to it, both as JSON text.

    `kinds` are the escapes of its text so far; of all text before it where it begins in the reply."""
    value, added = _value(shown), _value(body)
    if new := _kinds(body) - kinds:
        told = ", ".join([f"`\\{kind}`" for kind in sorted(new)])
        # A piece of a short value may be too short for a sign of JSON; the next piece has more of the value to be held against.
        small = not closed and len(body) < TELLING_CHARACTERS
        sure = proven or small or any(_OF_JSON.findall(body + '"' * closed))
        escapes_backslashes = any(
            length > 1 and after not in ("", "other") for length, after in _runs(body) - _runs(value)
        )
        telling = len(value) >= TELLING_CHARACTERS or any(map(_RARE.fullmatch, new))
        if not sure or (telling and not (proven or escapes_backslashes)):
            return f"the reply brings {told} into a text that has none"
    if "\\" in body and not proven and _runs(body) <= _runs(value) and _is_raw_size(body, value=value):
        return "the reply reads as text without JSON's escapes as well"
    if not codes and _has_codes(body) and not _has_codes(shown) and ("\\" in value or not value.isascii()):
        return "the reply spells characters as no text before it does"
    if closed and _ends_quoted(value + added):
        return "the text would end inside a quotation of its own, as if its quotation marks were not escaped"
    for character, escape in _ESCAPED_AGAIN:
        bare = character in added.replace(escape, "")
        if escape in added and escape not in value and character in value and not bare:
            return f"the reply has `{escape}` where the text before it has the character itself"
    return None


def sign_of_translation(known: str, *, added: str, quote: str = '"') -> str | None:
    """Why `added` has quotation marks of print for those of `known`, where a `"` is written as `quote`."""
    for straight, curly in ((quote, "“”„«»"), ("'", "‘’‚")):
        if straight in known and straight not in added and _any(curly, added) and not _any(curly, known):
            return "the reply has other quotation marks than the text before it"
    return None


def _value(body: str) -> str:
    try:
        return cast("str", _decode(f'"{body}"'))
    except ValueError:
        return body


def _kinds(body: str) -> set[str]:
    return set(_KINDS.findall(plainly(body))) - {""}


def _has_codes(body: str) -> bool:
    return any(_CODES.findall(body))


def _runs(text: str) -> set[tuple[int, str]]:
    """Every run of backslashes in it, with what kind of character follows."""
    return {(len(run), _class_of(after)) for run, after in set(_RUN.findall(text))}


def _class_of(character: str) -> str:
    if character in 'bfnrtu"/':
        return character
    return "letter" if character.isalpha() else "other"


def _is_raw_size(body: str, *, value: str) -> bool:
    """Whether text of the value's own can be so long without a line break, or lacks backslashes that it should have."""
    expected = value.count("\\") * len(body) // max(len(value), 1)
    lacks = "\\\\" not in body and expected >= _EXPECTED
    return lacks or "\n" not in value or len(body) <= max(map(len, value.split("\n")))


def _ends_quoted(value: str) -> bool:
    """Whether the value ends inside a quotation of its own, within braces of its own: a JSON file that lost its end."""
    bare = re.sub(r"\\.", "", value, flags=re.DOTALL)
    if bare.count('"') % 2 == 0:
        return False
    outside = re.sub(r'"[^"]*(?:"|\Z)', "", bare)
    return any(text.count("{") != text.count("}") for text in (bare, outside))


def _any(characters: str, text: str) -> bool:
    return any(character in text for character in characters)
