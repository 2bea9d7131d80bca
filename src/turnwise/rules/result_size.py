"""Tool results of bounded size: limited when they enter, shortened when they are old, and read back by page.

A shortened result keeps its head, its tail and a handle: the id of its call, by which the tool `read_result` gives the rest.
The whole result is an event of the turn's journal, so it is at hand wherever the turn is; nothing is stored twice.
"""

from collections.abc import Mapping

import msgspec

from turnwise.rules.budget import BYTES_A_TOKEN, PART_BYTES, part_bytes
from turnwise.rules.schema import decode_strictly
from turnwise.vocab import File, Text, ToolResult, ToolSpec

READ_RESULT = ToolSpec(
    name="read_result",
    description=(
        "Read a part of an earlier tool result that was shortened to save room. The shortened result names its call_id."
    ),
    parameters=(
        '{"type":"object","properties":{"call_id":{"type":"string","description":"As the shortened result says"},'
        '"offset":{"type":"integer","minimum":0,"description":"The first character to read; 0 is the beginning"},'
        '"limit":{"type":"integer","minimum":1,"description":"How many characters to read"}},'
        '"required":["call_id"],"additionalProperties":false}'
    ),
)

GONE = (
    "The whole result of a call `{id}` is not at hand: what stands in this conversation is all that is left of it. If you "
    "need the rest, call the tool itself again."
)

# Results of one step may take this much of the largest prompt together: the newest step stays untouched, so one step
# must not be able to fill the window.
STEP_SHARE = 4
# A small window should not cut a result that would have been no trouble.
MIN_RESULT_BYTES = 2048
# An old result keeps about a screen of head and tail; what matters of it is mostly in the model's own words by then.
OLD_RESULT_BYTES = 1200
# A result is worth shortening where it is at least this much longer.
WORTH_BYTES = 2 * OLD_RESULT_BYTES
# In place of a handle: the answer is asked for, and no tool can be called.
NO_CALL = ""


class ReadResultArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    call_id: str
    offset: int = 0
    limit: int | None = None


def result_limit(capacity_tokens: int, *, results: int) -> int:
    """The bytes that one of so many results of a step may have when it enters a history of `capacity_tokens` at most."""
    together = capacity_tokens * BYTES_A_TOKEN // STEP_SHARE
    return max(MIN_RESULT_BYTES, together // max(1, results))


def shorten(result: ToolResult, *, limit_bytes: int, handle: str | None) -> ToolResult:
    """The result within `limit_bytes`, a note about the rest not counted; itself where it fits.

    Texts share the limit in proportion; a file that does not fit is named in its place. `handle` is the tool that reads the
    rest; None where there is none, NO_CALL where no tool can be called any more.
    """
    size = part_bytes(result)
    if size <= limit_bytes:
        return result
    texts = sum([part_bytes(part) for part in result.content if isinstance(part, Text)])
    content = tuple(
        [
            _cut(part, limit_bytes=limit_bytes * part_bytes(part) // texts, call_id=result.call_id, handle=handle)
            if isinstance(part, Text)
            else Text(f"({part.media_type}, left out to save room)")
            for part in result.content
        ]
    )
    shortened = msgspec.structs.replace(result, content=content)
    return shortened if part_bytes(shortened) < size else result


def _cut(part: Text, *, limit_bytes: int, call_id: str, handle: str | None) -> Text:
    text = part.text
    size = part_bytes(part) - PART_BYTES
    if size <= limit_bytes:
        return part
    half = limit_bytes * len(text) // size // 2
    left_out = len(text) - 2 * half
    how = "; call the tool again if you need them" if handle is None else ""
    if handle:
        how = f'; call `{handle}` with {{"call_id": "{call_id}", "offset": {half}}} to read them'
    tail = text[len(text) - half :]
    cut = msgspec.structs.replace(
        part, text=f"{text[:half]}\n[... {left_out} of {len(text)} characters left out to save room{how} ...]\n{tail}"
    )
    # A heading beside a long text is no longer than the note.
    return cut if part_bytes(cut) < part_bytes(part) else part


def read_back(arguments: str, *, originals: Mapping[str, ToolResult], page_bytes: int) -> tuple[str, bool]:
    """What `read_result` answers, and whether it is an error. `originals` are whole results by the id of their call."""
    try:
        decode_strictly(arguments)
        given = msgspec.json.decode(arguments, type=ReadResultArguments)
    except ValueError as error:
        return f"The arguments of `{READ_RESULT.name}` do not fit: {error}", True
    original = originals.get(given.call_id)
    if original is None:
        return GONE.format(id=given.call_id), True
    texts = [part.text if isinstance(part, Text) else _named(part) for part in original.content]
    text = "\n".join(texts)
    start = max(0, given.offset)
    if start >= len(text):
        return f"The result of `{given.call_id}` has {len(text)} characters only.", True
    page = len(text[start : start + page_bytes]) * page_bytes // max(1, len(text[start : start + page_bytes].encode()))
    page = min(max(1, page), page_bytes)
    end = min(len(text), start + page, start + (given.limit if given.limit and given.limit > 0 else page))
    if end == len(text):
        return text[start:end], False
    return f"{text[start:end]}\n[characters {start} to {end} of {len(text)}; go on with offset={end}]", False


def _named(part: File) -> str:
    return f"({part.media_type})"
