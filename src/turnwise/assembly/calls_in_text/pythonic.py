"""Calls written as Python: `[f(a=1), g(b="x")]`, keyword arguments with literal values only.

Sources: Llama 3.2's and Llama 4's chat templates ("zero-shot function calling"), LFM2's; vLLM `pythonic_tool_parser.py`. Nothing
is evaluated: the literals are read here, and what is no literal is no call.
"""

import re

from turnwise.assembly.calls_in_text.reading import NAME, Beyond, Cursor, Wrong
from turnwise.assembly.calls_in_text.values import Members, is_json, quoted

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z_][A-Za-z0-9_]*)*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RUN = re.compile(r"[A-Za-z0-9_.-]*+")  # of what a name may hold
_NUMBER_RUN = re.compile(r"[A-Za-z0-9_.+-]*+")
_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_WORD = re.compile(r"[A-Za-z]+")
_PLAIN = {mark: re.compile(rf"[^\\{mark}\n]*+") for mark in "'\""}
_LONG = {mark: re.compile(rf"(?:[^\\{mark}]|{mark}(?!{mark}{mark}))*+") for mark in "'\""}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": "", "b": "\b", "f": "\f", "/": "/"}
_HEX = {"x": 2, "u": 4, "U": 8}
MAX_DEPTH = 32


def calls(cursor: Cursor) -> None:
    """A list of calls."""
    cursor.expects("[")
    while True:
        cursor.space()
        call(cursor)
        cursor.space()
        if cursor.takes("]"):
            return
        cursor.expects(",")


def call(cursor: Cursor) -> None:
    cursor.begin_call(_take_name(cursor))
    cursor.space()
    cursor.expects("(")
    _members(cursor)


def built_in(cursor: Cursor) -> None:
    """`NAME.call(query="..")`, as Llama 3.1 calls its built-in tools."""
    name = _take_name(cursor)
    cursor.begin_call(name.removesuffix(".call"))
    cursor.space()
    cursor.expects("(")
    _members(cursor)


def alone(cursor: Cursor) -> None:
    """A list of calls, and nothing else."""
    calls(cursor)
    cursor.space()


def code(cursor: Cursor) -> None:
    """Calls on lines of their own, within `print(..)` or not, or a list of them: what stands in a `tool_code` fence (Gemma)."""
    cursor.space()
    if cursor.peek() == "[":
        alone(cursor)
        return
    while True:
        is_printed = cursor.text.startswith("print(", cursor.at)
        if is_printed:
            cursor.at += len("print(")
            cursor.space()
        call(cursor)
        cursor.space()
        if is_printed:
            cursor.expects(")")
            cursor.space()
        if cursor.is_at_end or cursor.peek() == "`":
            return


def _take_name(cursor: Cursor) -> str:
    if not (cursor.peek().isalpha() or cursor.peek() == "_"):
        raise Wrong("a tool's name was expected")
    name = _run(cursor, _RUN)
    if _NAME.fullmatch(name) is None:
        raise Wrong("a tool's name was expected")
    return name


def _run(cursor: Cursor, pattern: re.Pattern[str]) -> str:
    """All characters of a kind; more may come where the text ends with them."""
    found = pattern.match(cursor.text, cursor.at)
    end = cursor.at if found is None else found.end()
    if end == len(cursor.text):
        raise Beyond
    run = cursor.text[cursor.at : end]
    cursor.at = end
    return run


def _members(cursor: Cursor) -> None:
    """Keyword arguments up to the closing parenthesis."""
    members = cursor.begin_members()
    while True:
        cursor.space()
        if cursor.takes(")"):
            break
        found = _KEY.match(cursor.text, cursor.at)
        if found is None:
            cursor.peek()
            raise Wrong("an argument without a name")
        cursor.at = found.end()
        key = found.group()
        cursor.space()
        cursor.expects("=")
        cursor.space()
        if members.has(key):
            raise Wrong(f"the argument `{key[:64]}` is named twice")
        members.add(key, _literal(cursor, depth=0))
        cursor.space()
        if cursor.peek() != ")":
            cursor.expects(",")
    cursor.end_call(members.text)


def _literal(cursor: Cursor, *, depth: int) -> str:
    """The literal that begins here, as JSON text."""
    if depth > MAX_DEPTH:
        raise Wrong("nested too deeply")
    first = cursor.peek()
    if first in "'\"":
        return quoted(_string(cursor))
    if first in "[(":
        return _sequence(cursor, end="]" if first == "[" else ")", depth=depth)
    if first == "{":
        return _mapping(cursor, depth=depth)
    if (word := _WORD.match(cursor.text, cursor.at)) is not None:
        if word.end() == len(cursor.text):
            raise Beyond
        if word.group() not in _WORDS:
            raise Wrong("a value that is no literal")
        cursor.at = word.end()
        return _WORDS[word.group()]
    return _number(cursor)


def _number(cursor: Cursor) -> str:
    run = _run(cursor, _NUMBER_RUN)
    if not run or _NUMBER.fullmatch(run) is None:
        raise Wrong("a value that is no literal")
    text = run.removeprefix("+").replace("_", "")
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    digits = re.sub(r"\.(?=[eE]|$)", ".0", re.sub(r"^(?=\.)", "0", digits))
    if not is_json(sign + digits):
        raise Wrong("a value that is no number")
    return sign + digits


def _sequence(cursor: Cursor, *, end: str, depth: int) -> str:
    cursor.at += 1
    items: list[str] = []
    while True:
        cursor.space()
        if cursor.takes(end):
            return f"[{','.join(items)}]"
        items.append(_literal(cursor, depth=depth + 1))
        cursor.space()
        if cursor.peek() != end:
            cursor.expects(",")


def _mapping(cursor: Cursor, *, depth: int) -> str:
    cursor.at += 1
    members = Members()
    while True:
        cursor.space()
        if cursor.takes("}"):
            return members.text
        if cursor.peek() not in "'\"":
            raise Wrong("a key that is no text")
        key = _string(cursor)
        cursor.space()
        cursor.expects(":")
        cursor.space()
        if members.has(key):
            raise Wrong("a key stands twice")
        members.add(key, _literal(cursor, depth=depth + 1))
        cursor.space()
        if cursor.peek() != "}":
            cursor.expects(",")


def _string(cursor: Cursor) -> str:
    mark = cursor.text[cursor.at]
    cursor.at += 1
    is_long = cursor.text.startswith(mark * 2, cursor.at)
    if not is_long and cursor.text[cursor.at :] == mark:
        raise Beyond  # an empty string, or the beginning of three marks
    if is_long:
        cursor.at += 2
    run, end = (_LONG[mark], mark * 3) if is_long else (_PLAIN[mark], mark)
    pieces: list[str] = []
    while True:
        found = run.match(cursor.text, cursor.at)
        if found is not None:
            pieces.append(found.group())
            cursor.at = found.end()
        following = cursor.peek()
        if following == "\\":
            pieces.append(_escape(cursor))
        elif following == "\n":
            # No string of Python; models write it all the same, and there is one way to read it.
            pieces.append(following)
            cursor.at += 1
        else:
            cursor.expects(end)
            return "".join(pieces)


def _escape(cursor: Cursor) -> str:
    cursor.at += 1
    char = cursor.peek()
    cursor.at += 1
    if char in _ESCAPES:
        return _ESCAPES[char]
    length = _HEX.get(char)
    if length is None:
        return "\\" + char
    digits = cursor.text[cursor.at : cursor.at + length]
    if len(digits) < length:
        raise Beyond
    try:
        found = chr(int(digits, 16))
    except (ValueError, OverflowError):
        raise Wrong("no such character") from None
    cursor.at += length
    return found


def begins_call(text: str) -> str | None:
    """The name of the call that a list begins with, as far as it is there; None where it begins otherwise."""
    found = NAME.match(text, 1) if text.startswith("[") else None
    return None if found is None else found.group()
