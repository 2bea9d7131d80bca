"""A whole pair of marks that holds something like a call, in which no reader finds one. The model meant a call, so it is told."""

import re

import msgspec

from turnwise.assembly.calls_in_text.reading import NAME, Beyond, Found
from turnwise.assembly.calls_in_text.syntaxes import Syntax
from turnwise.assembly.calls_in_text.tools import OfferedTools
from turnwise.assembly.calls_in_text.wrongs import end_mark

# How what is no words begins: objects, lists, fences, quotation marks, `<function name=..>`.
_LIKE_A_CALL = re.compile(r"""\s*(?:[{\[("'`]|<function(?!\w))""")
_NAMED = re.compile(
    rf"""(?:\b(?:name|function|tool)["']?\s*[:=]\s*|<function\s+(?:name\s*=\s*)?)["']?(?P<name>{NAME.pattern})""",
    re.IGNORECASE,
)
# Between these marks stands nothing but calls.
_ONLY_CALLS = frozenset({"qwen3-coder", "dsml", "minimax", "kimi", "deepseek", "lfm", "pythonic"})


def told_of(text: str, *, found: Found, syntax: Syntax, tools: OfferedTools) -> Found | None:
    """The block with the name of the tool that it seems to call; None where it is words, or a call of another tool.

    Raises Beyond as long as the mark that closes it may come.
    """
    start = len(syntax.marker)
    if found.is_other or not (syntax.name in _ONLY_CALLS or _is_like_a_call(text, start, syntax=syntax)):
        return None
    end = end_mark(text, syntax=syntax)
    if text.find(syntax.marker, start, len(text) if end is None else end) >= 0:
        return None
    if end is None:
        raise Beyond
    name = _name_in(text[start:end], tools=tools)
    return None if name is None else msgspec.structs.replace(found, name=name, end=end)


def _is_like_a_call(text: str, start: int, *, syntax: Syntax) -> bool:
    return syntax.name == "tool_call" and _LIKE_A_CALL.match(text, start) is not None


def _name_in(inner: str, *, tools: OfferedTools) -> str | None:
    """The tool on offer that is named there, or whose name stands there as a word if none is."""
    if (named := _NAMED.search(inner)) is not None:
        name = named.group("name")
        return name if tools.has(name) else None
    words = (found.group().rstrip(".:/-") for found in NAME.finditer(inner))
    return next((word for word in words if tools.has(word)), None)
