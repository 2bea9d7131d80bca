"""Calls in braces whose strings stand between marks of their own: `call:NAME{path:<|"|>a b<|"|>,count:2,tags:[<|"|>x<|"|>]}`.

Nothing is escaped: a string ends at the next mark, and keys are bare. A value that holds the mark leaves something behind that is
no value, so that the call is told as written wrongly.

Sources: Gemma 4's chat template (macro `format_argument`) and vLLM `gemma4_tool_parser.py`; FunctionGemma's model card and vLLM
`functiongemma_tool_parser.py` (`<escape>`).
"""

import re

from turnwise.assembly.text_calls.block_cursor import Beyond, Cursor, Wrong
from turnwise.assembly.text_calls.pythonic import MAX_DEPTH
from turnwise.assembly.text_calls.values import Members, is_json, quoted

_KEY = re.compile(r"[^:,{}\[\]<>\n]{1,128}")
_BARE = re.compile(r"[A-Za-z0-9_.+-]*+")
_NULLS = {"None": "null", "True": "true", "False": "false"}  # as Python writes them where a template does not


def call(cursor: Cursor, *, mark: str, end: str) -> None:
    """`mark` stands around strings, `end` closes the block."""
    cursor.space()
    cursor.expects("call:")
    cursor.peek()
    cursor.begin_call(cursor.tool_name())
    if cursor.peek() != "{":
        raise Wrong("`{` was expected behind the tool's name")
    arguments = _members(cursor, cursor.begin_members(), mark=mark, depth=0)
    cursor.space()
    cursor.expects(end)
    cursor.end_call(arguments)


def _members(cursor: Cursor, members: Members, *, mark: str, depth: int) -> str:
    """The members of an object. The cursor stands before its brace."""
    cursor.at += 1
    while cursor.next() != "}":
        key = _key(cursor, mark=mark)
        if members.has(key):
            raise Wrong(f"`{key[:64]}` is named twice")
        if depth == 0 and cursor.text.startswith(mark, cursor.at):
            _name_open(cursor, members, key=key, mark=mark)
        members.add(key, _value(cursor, mark=mark, depth=depth))
        if cursor.next() != "}":
            cursor.expects(",")
    cursor.at += 1
    return members.text


def _name_open(cursor: Cursor, members: Members, *, key: str, mark: str) -> None:
    """Keep the beginning of a string that is cut."""
    start = cursor.at + len(mark)
    if cursor.text.find(mark, start) < 0:
        so_far = cursor.text[start:]
        cut = next((size for size in range(len(mark) - 1, 0, -1) if so_far.endswith(mark[:size])), 0)
        cursor.arguments = members.with_open(key, so_far[: len(so_far) - cut])


def _key(cursor: Cursor, *, mark: str) -> str:
    if cursor.takes(mark):
        key = cursor.until(mark)
        cursor.next()
    else:
        key = cursor.run(_KEY).strip()
    cursor.expects(":")
    cursor.next()
    if not key:
        raise Wrong("a value has no name")
    return key


def _value(cursor: Cursor, *, mark: str, depth: int) -> str:
    """The value that begins here, as JSON text."""
    if depth > MAX_DEPTH:
        raise Wrong("nested too deeply")
    if cursor.takes(mark):
        start, end = cursor.at, cursor.text.find(mark, cursor.at)
        if end < 0:
            raise Beyond
        cursor.at = end + len(mark)
        return quoted(cursor.text[start:end])
    if cursor.peek() == "{":
        return _members(cursor, Members(), mark=mark, depth=depth + 1)
    if cursor.peek() == "[":
        cursor.at += 1
        items: list[str] = []
        while cursor.next() != "]":
            items.append(_value(cursor, mark=mark, depth=depth + 1))
            if cursor.next() != "]":
                cursor.expects(",")
        cursor.at += 1
        return f"[{','.join(items)}]"
    bare = cursor.run(_BARE)
    text = _NULLS.get(bare, bare)
    if not text or not is_json(text):
        raise Wrong("a value that is neither a string between marks nor JSON")
    return text
