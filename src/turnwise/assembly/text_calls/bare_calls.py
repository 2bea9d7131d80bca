"""An answer that is nothing but a call: a list of Python calls, and with `on` a fence or JSON."""

import re

from turnwise.assembly.text_calls import endings, json_calls, pythonic
from turnwise.assembly.text_calls.block_cursor import BlockReading, ReadCall, read
from turnwise.assembly.text_calls.syntaxes import BY_MARKER, MARKERS
from turnwise.assembly.text_calls.tools import OfferedTools

_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^\s`~]*)[ \t]*\r?\n")
# What the sources call such a fence: Gemma's guide (`tool_code`), Llama's and Qwen2.5-Coder's answers (`json`, `python`), and the
# marks of the syntaxes. A fence of another language shows something.
_LANGUAGES = frozenset(
    ["", "json", "python", "py", "xml", "tool_code", "tool_call", "tool_calls", "tool_use", "tool", "function_call"]
)


def read_whole(text: str, *, tools: OfferedTools, is_final: bool) -> BlockReading | None:
    """What the answer is as one call; None where more has to come before it can be looked at."""
    if text[:3] in ("```", "~~~"):
        return _read_fence(text, tools=tools, is_final=is_final)
    reader = pythonic.alone if pythonic.begins_call(text) is not None else json_calls.bare
    return read(reader, text, at=0, tools=tools, is_final=is_final)


def is_all(found: BlockReading | None, text: str) -> bool:
    """Whether the text is calls and nothing else."""
    return found is not None and (found.is_enough or (found.state == "whole" and endings.is_end(text[found.end :])))


def is_cut(found: BlockReading | None, text: str, *, by_itself: bool) -> bool:
    """Whether the text ends within calls. JSON may be an answer, unless the limit cut it; a list of Python calls is not."""
    if found is None or found.state != "open":
        return False
    if by_itself:
        return bool(found.name) and name_of_whole(text) == "pythonic"
    return bool(found.name or found.calls)


def name_of_whole(text: str) -> str:
    """The syntax of such an answer."""
    if text[:1] in "`~":
        return "fenced"
    return "bare JSON" if text[:1] == "{" or text.startswith("[{") else "pythonic"


def _read_fence(text: str, *, tools: OfferedTools, is_final: bool) -> BlockReading | None:
    """A fence that is all of the text: JSON, Python calls, or a block of a marked syntax in it."""
    head = _FENCE.match(text)
    if head is None:
        return None if "\n" not in text else BlockReading(state="wrong")
    if head.group(2).lower() not in _LANGUAGES:
        return BlockReading(state="wrong")
    close = re.compile(rf"\n[ \t]*{re.escape(head.group(1))}[ \t]*(?:\r?\n|$|(?={endings.ANY.pattern}))").search(
        text, head.end() - 1
    )
    if close is None:
        return BlockReading(state="wrong") if is_final else None
    if not (endings.is_end if is_final else endings.may_end)(text[close.end() :]):
        return BlockReading(state="wrong")
    inner = text[head.end() : close.start()].strip()
    calls = _calls_within(inner, tools=tools)
    return BlockReading(state="whole", calls=calls, end=len(text)) if calls else BlockReading(state="wrong")


def _calls_within(inner: str, *, tools: OfferedTools) -> tuple[ReadCall, ...]:
    """The calls that the text consists of; none where there is anything else in it."""
    if inner[:1] in ("{", "["):
        reader = pythonic.alone if pythonic.begins_call(inner) is not None else json_calls.bare
        found = read(reader, inner, at=0, tools=tools, is_final=True)
        return _all_of(found, inner)
    mark = MARKERS.match(inner)
    if mark is not None:
        syntax = BY_MARKER[mark.group()]
        return _all_of(read(syntax.reader, inner, at=mark.end(), tools=tools, is_final=True), inner)
    return _all_of(read(pythonic.code, inner, at=0, tools=tools, is_final=True), inner)


def _all_of(found: BlockReading, text: str) -> tuple[ReadCall, ...]:
    return found.calls if found.state == "whole" and not text[found.end :].strip() else ()
