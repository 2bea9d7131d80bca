"""Calls written as Python: `[f(a=1), g(b="x")]`, keyword arguments with literal values only.

Sources: Llama 3.2's and Llama 4's chat templates ("zero-shot function calling"), LFM2's; vLLM `pythonic_tool_parser.py`. Nothing
is evaluated: `literals.py` reads the values, and what is no literal is no call.
"""

import re

from turnwise.assembly.text_calls.block_cursor import NAME, Cursor, Wrong
from turnwise.assembly.text_calls.literals import literal

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z_][A-Za-z0-9_]*)*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*+)=(?=[^ \t\r\n])")  # an argument as most write it
_RUN = re.compile(r"[A-Za-z0-9_.-]*+")  # of what a name may hold


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
    name = cursor.run(_RUN)
    if _NAME.fullmatch(name) is None:
        raise Wrong("a tool's name was expected")
    return name


def _members(cursor: Cursor) -> None:
    """Keyword arguments up to the closing parenthesis."""
    members = cursor.begin_members()
    while cursor.next() != ")":
        key = _take_key(cursor)
        if members.has(key):
            raise Wrong(f"the argument `{key[:64]}` is named twice")
        members.add(key, literal(cursor))
        if cursor.next() != ")":
            cursor.expects(",")
    cursor.at += 1
    cursor.end_call(members.text)


def _take_key(cursor: Cursor) -> str:
    """The name of an argument; the cursor is behind its `=`."""
    if (found := _NAMED.match(cursor.text, cursor.at)) is not None:
        cursor.at = found.end()
        return found.group(1)
    found = _KEY.match(cursor.text, cursor.at)
    if found is None:
        raise Wrong("an argument without a name")
    cursor.at = found.end()
    cursor.next()
    cursor.expects("=")
    cursor.next()
    return found.group()


def begins_call(text: str) -> str | None:
    """The name of the call that a list begins with, as far as it is there; None where it begins otherwise."""
    found = NAME.match(text, 1) if text.startswith("[") else None
    return None if found is None else found.group()
