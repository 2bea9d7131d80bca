r"""How the scripted writer misbehaves while going on with a text of its own.

All that it knows is the text that it wants to write and how much of it the request shows; what the other side held back it never
sees. Some habits write something that cannot be joined, some something that must not be: the file's own text in place of JSON
text, or a text that lacks a piece right where the shown one ends.
"""

import json
import re
from collections.abc import Collection

from turnwise.lab.raw import parse, text
from turnwise.lab.script import Habit

_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)", re.DOTALL)
_STUTTER = 12  # characters said twice


def misbehave(whole: str, *, shown: str, habits: Collection[Habit], repeats: int) -> str:
    """What it says to go on with `whole` behind `shown`, of which it says `repeats` characters again where it repeats."""
    rest = whole[len(shown) :] if whole.startswith(shown) else f"(not what I wrote){whole[len(shown) :]}"
    again = shown[-repeats:] if repeats else ""
    for habit in ("skips-character", "skips-word", "skips-line"):
        if habit in habits:
            rest = _skip(rest, habit=habit)
    if "stutters" in habits:
        rest = rest[:_STUTTER] + rest
    if "restarts" in habits:
        rest = (again if "repeats" in habits else "") + shown + rest
    elif "respells" in habits:
        rest = respelt(_whole_escapes(again) + rest)
    elif "reflows" in habits:
        rest = re.sub(r"\s+|\\n", " ", again) + rest
    elif "repeats" in habits:
        rest = again + rest
    if "unescapes" in habits:
        rest = own_text(rest)
    elif "half-escapes" in habits:
        rest = own_text(rest.replace("\\n", "\\\\n"))
    if "curls" in habits:
        rest = rest.replace('\\"', "“")
    if "wraps" in habits:
        rest = json.dumps({"continuation": rest}, ensure_ascii=False)
    if "fences" in habits:
        rest = f"```json\n{rest}\n```"
    if "adds" in habits:
        rest = f"{rest}\n\nThat is the whole file."
    if "apologises" in habits:
        rest = f"Sorry for the interruption. Here is the rest:\n{rest}"
    return rest


def own_text(rest: str) -> str:
    """What the escapes in a piece of JSON text stand for: the file's own text, and the end of the arguments behind it."""
    return _ESCAPES.sub(_unescaped, rest)


def respelt(rest: str) -> str:
    r"""The same JSON text with other escapes: `\u00E9` for é and é for `\u00e9`, `\/` for /."""
    found = _ESCAPES.sub(lambda one: _unescaped(one) if one[0][1] in "u/" and _is_plain(one) else one[0], rest)
    if found != rest:
        return found
    spelt = [character if character.isascii() else _codes(character) for character in rest]
    return re.sub(r"\\(?:.)|/", lambda one: "\\/" if one[0] == "/" else one[0], "".join(spelt))


def _skip(rest: str, *, habit: Habit) -> str:
    """The rest without its first character, or without all up to and including the next end of a word or line."""
    if habit == "skips-character":
        return _ESCAPES.sub("", rest, count=1) if _ESCAPES.match(rest) else rest[1:]
    ends = re.search(r"\\n|\n" if habit == "skips-line" else r"[^\w\\]+", rest)
    return rest if ends is None else rest[ends.end() :]


def _whole_escapes(again: str) -> str:
    """It begins to repeat in front of an escape, not in the middle of one."""
    return re.sub(r"\A[^\w\s]*[0-9a-fA-Fu]*", "", again)


def _is_plain(one: re.Match[str]) -> bool:
    value = _unescaped(one)
    return value.isprintable() and value not in '"\\'


def _unescaped(one: re.Match[str]) -> str:
    try:
        return text(parse(f'"{one[0]}"'))
    except ValueError:  # half a character
        return one[0]


def _codes(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join([f"\\u{units[place : place + 2].hex().upper()}" for place in range(0, len(units), 2)])
