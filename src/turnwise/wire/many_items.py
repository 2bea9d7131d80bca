"""What an event or a body would cost to read, judged as text before a value of it is built.

Python takes 50 to 200 bytes for a list item or an object's field, which may have two. So what is longer than a usual event is
counted first: all that stands in the lists and objects that the decoders read. What they pass over (`logprobs`, ids of tokens)
or take as text (the arguments of a call) may hold any number of values.
"""

import re

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.json_fields import UNREADABLE, read_string
from turnwise.wire.limits import Limits
from turnwise.wire.long_calls import call_too_long, without_long_calls
from turnwise.wire.long_texts import STRING

COUNTED_BYTES = 64 * 1024
"""What is no longer costs little, whatever it holds."""
MAX_VALUES = 32_768
"""Of one body or event that are read. A response of 4,096 parts has eight for each."""

_READ = frozenset(
    {"choices", "delta", "message", "content", "thinking", "reasoningdetails", "toolcalls", "function", "custom"}
    | {"functioncall", "annotations", "annotation", "executedtools", "images", "xgroq", "citations", "citation"}
    | {"searchresults", "extracontent", "usage", "error", "response", "output", "item", "part", "summary", "detail"}
    | {
        "incompletedetails",
        "contentblock",
        "stopdetails",
        "source",
        "candidates",
        "parts",
        "partialargs",
        "usagemetadata",
    }
    | {"groundingmetadata", "groundingchunks", "groundingsupports", "groundingchunkindices", "web", "retrievedcontext"}
    | {"maps", "image", "citationmetadata", "citationsources", "urlcontextmetadata", "urlmetadata", "promptfeedback"}
    | {"inlinedata", "filedata", "functionresponse"}
)
"""The keys whose lists and objects a decoder reads, in all families; without underscores, and in small letters."""

_TOKEN = re.compile(rb'[^"\[\]{},]*+(?:(' + STRING + rb")|([\[\]{},]))", re.DOTALL)
_SMALL = re.compile(rb'(?:[^"\[\]{},]*+,|[ \t\r\n]*+(?:"[^"\\,\[\]{}]*+"[^"\[\]{},]*+|\{\}|\[\])[ \t\r\n]*+,)++')
"""Numbers, short strings, fields of these, and empty lists and objects: any number of them at once."""
_OPENING = b"[{"
TOO_DEEP = 2048
"""No decoder reads what is nested deeper: nothing of it is built."""


def _passed_over() -> re.Pattern[bytes]:
    """All up to the next bracket that has more than six levels in it, or that closes. Possessive: never backtracks."""
    inner = rb'(?:[^"\[\]{}]++|' + STRING + rb")*+"
    for _ in range(6):
        inner = rb'(?:[^"\[\]{}]++|' + STRING + rb"|[\[{]" + inner + rb"[\]}])*+"
    return re.compile(inner + rb"([\[\]{}])", re.DOTALL)


_PASSED_OVER = _passed_over()


def too_much(text: bytes, *, call_bytes: int) -> Fault | None:
    """What is wrong, if an event or a body holds a call longer than this, or too many values."""
    if (fault := call_too_long(text, limit_bytes=call_bytes)) is not None:
        return fault
    if len(text) <= COUNTED_BYTES or not has_too_many_items(text):
        return None
    return Fault(kind=FaultKind.TOO_LARGE, message=f"more than {MAX_VALUES} values in one event or body")


def told_long_calls(body: bytes, *, limits: Limits) -> bytes:
    """The body in which something short stands for the arguments that are past the limit, where these are told."""
    return without_long_calls(body, limit_bytes=limits.call_bytes) if limits.tells_long_calls else body


def has_too_many_items(text: bytes, *, most: int = MAX_VALUES) -> bool:
    """Whether the lists and objects that are read hold more. The text need not be JSON."""
    if text.count(b",") + text.count(b"[") + text.count(b"{") < most:
        return False
    count = depth = at = 0
    said = b""  # the last string, if nothing came behind it: a key, where something opens now
    while True:
        if not said and (small := _SMALL.match(text, at)) is not None:
            start, at = at, small.end()
            count += text.count(b",", start, at) + text.count(b"{", start, at) + text.count(b"[", start, at)
            if count > most:
                return True
        found = _TOKEN.match(text, at)
        if found is None:
            return False
        at = found.end()
        if found[2] is None:
            said = _key(text, *found.span(1))
            continue
        if found[2] in _OPENING:
            if said and not _is_read(said):
                at = _end_of_value(text, at)
            else:
                depth += 1
                count += 1
        elif found[2] == b",":
            count += 1
        else:
            depth -= 1
        said = b""
        if count > most:
            return True


_LONGEST_KEY = 6 * max(map(len, _READ)) + 16  # each character may be an escape


def _key(text: bytes, start: int, end: int) -> bytes:
    """A string with its quotes; of one too long for a key that is read, how it begins."""
    return text[start:end] if end - start <= _LONGEST_KEY else text[start : start + _LONGEST_KEY]


def _is_read(key: bytes) -> bool:
    try:
        name = read_string(key)
    except UNREADABLE:
        return False
    return name.replace("_", "").lower() in _READ


def _end_of_value(text: bytes, at: int) -> int:
    """Where the list or object ends that begins just before."""
    depth = 1
    while 0 < depth < TOO_DEEP and (found := _PASSED_OVER.match(text, at)) is not None:
        depth += 1 if found[1] in _OPENING else -1
        at = found.end()
    return at if not depth else len(text)
