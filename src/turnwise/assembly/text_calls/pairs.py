"""A whole pair of marks that holds something like a call, in which no reader finds one. The model meant a call, so it is told."""

import re

import msgspec

from turnwise.assembly.text_calls.block_cursor import NAME, Beyond, BlockReading
from turnwise.assembly.text_calls.broken_blocks import end_mark
from turnwise.assembly.text_calls.syntaxes import Syntax
from turnwise.assembly.text_calls.tools import OfferedTools

# How what is no words begins: objects, lists, fences, quotation marks, `<function name=..>`.
_LIKE_A_CALL = re.compile(r"""\s*(?:[{\[("'`]|<function(?!\w))""")
# The same between marks that know other tags: also these, and a name with what belongs to it.
_LIKE_CALLS = re.compile(rf"""\s*(?:[{{\[("'`<]|{NAME.pattern}\s*[{{\[("'`<=])""")
# Behind `<function=` the name stands at once.
_NAME_AT_ONCE = re.compile(rf"""\s*["'`]?(?P<name>{NAME.pattern})(?!\w)""")
_NAMED = re.compile(
    rf"""(?:\b(?:name|function|tool)["']?\s*[:=]\s*|<function\s+(?:name\s*=\s*)?)["']?(?P<name>{NAME.pattern})""",
    re.IGNORECASE,
)
_MAY_BE_A_NAME = re.compile(rf"""\s*["'`]?(?:{NAME.pattern})?\s*\Z""")
_BEHIND_NAMES = ".:/-"  # marks that a name may hold, and that end the word there
# Between these marks stands nothing but calls.
_ONLY_CALLS = frozenset({"dsml", "minimax", "kimi", "deepseek", "lfm", "pythonic"})


def told_of(text: str, *, found: BlockReading, syntax: Syntax, tools: OfferedTools) -> BlockReading | None:
    """The block with the name of the tool that it seems to call; None where it is words, or a call of another tool.

    Raises Beyond as long as the mark that closes it may come.
    """
    start = len(syntax.marker)
    if found.is_other or not _is_like_a_call(text, start, syntax=syntax, tools=tools):
        return None
    end = end_mark(text, syntax=syntax)
    if text.find(syntax.marker, start, len(text) if end is None else end) >= 0:
        return None
    if end is None:
        raise Beyond
    name = _name_in(text[start:end], tools=tools)
    return None if name is None else msgspec.structs.replace(found, name=name, end=end)


def _is_like_a_call(text: str, start: int, *, syntax: Syntax, tools: OfferedTools) -> bool:
    if syntax.name != "tool_call" and _MAY_BE_A_NAME.match(text, start) is not None:
        raise Beyond
    if syntax.name == "qwen3-coder":
        named = _NAME_AT_ONCE.match(text, start)
        return named is not None and tools.has(named.group("name").rstrip(_BEHIND_NAMES))
    if syntax.name in _ONLY_CALLS:
        return _LIKE_CALLS.match(text, start) is not None
    return syntax.name == "tool_call" and _LIKE_A_CALL.match(text, start) is not None


def _name_in(inner: str, *, tools: OfferedTools) -> str | None:
    """The tool on offer that is named there, or whose name stands there as a word if none is."""
    if (named := _NAMED.search(inner)) is not None:
        name = named.group("name")
        return name if tools.has(name) else None
    words = (found.group().rstrip(_BEHIND_NAMES) for found in NAME.finditer(inner))
    return next((word for word in words if tools.has(word)), None)
