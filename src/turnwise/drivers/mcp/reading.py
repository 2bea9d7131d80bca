"""A line of a server -> a message; what breaks the protocol is mended where that is sure, and else answers its call.

An answer that cannot be read would leave its call waiting for the deadline, and nobody would know why.
"""

import json
import re
from collections.abc import Iterable
from typing import cast

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from turnwise.drivers.tools.tool_output import MAX_PARTS

MAX_SHOWN_PARTS = MAX_PARTS - 10  # so that nobody cuts them once more, and counts anew
MAX_LEVELS = 190  # of JSON inside of a message: pydantic reads no more than 200, and writes no more than 255
_UNREADABLE = "its answer is no message of the protocol ({why})"
_ID = re.compile(rb'"id"\s*:\s*(?:([0-9]{1,15})|"([^"\\]{1,100})")')
_END = 2048  # bytes: the id stands before the result or behind it


def message_in(line: bytes) -> SessionMessage | None:
    """None for a line that is no message and answers nothing: a server's log that went the wrong way."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _mended(line)
    if isinstance(message, JSONRPCResponse):
        _cut_parts(message.result)
    return SessionMessage(message)


def _cut_parts(result: dict[str, object]) -> None:
    """Of hundreds of thousands of parts only those are read that are shown: each would take 2 KB, and all of them seconds."""
    content = result.get("content")
    if not isinstance(content, list) or len(parts := cast("list[object]", content)) <= MAX_SHOWN_PARTS:
        return
    half = MAX_SHOWN_PARTS // 2
    left_out = {"type": "text", "text": f"[... {len(parts) - 2 * half:,} parts left out ...]"}
    result["content"] = [*parts[:half], left_out, *parts[-half:]]


def _mended(line: bytes) -> SessionMessage | None:
    """With U+FFFD for half characters and for bytes that are no UTF-8: servers cut texts in the middle of an emoji."""
    try:
        given: object = json.loads(line.decode("utf-8", "replace"))
        given = json.loads(json.dumps(given, ensure_ascii=False).encode("utf-8", "replace"))
    except RecursionError:
        return _refusal(_id_in(line), why="nested too deeply")
    except ValueError:
        return _refusal(_id_in(line), why="no JSON")
    if not isinstance(given, dict):
        return None
    message = cast("dict[str, object]", given)
    if is_deeper(message, than=MAX_LEVELS):
        return _refusal(_id_in(line), why="nested too deeply")
    id = message.get("id")
    if isinstance(id, float) and id.is_integer():
        message["id"] = id = int(id)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))
    except ValueError:
        is_answer = "method" not in message and isinstance(id, int | str)
        return _refusal(id if is_answer else None, why="without a result")


def _refusal(id: object, *, why: str) -> SessionMessage | None:
    if not isinstance(id, int | str):
        return None
    error = ErrorData(code=PARSE_ERROR, message=_UNREADABLE.format(why=why))
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=error))


def _id_in(line: bytes) -> int | str | None:
    """The id of an answer that cannot be read as JSON; None where it may be a request."""
    ends = line[:_END], line[-_END:]
    if not line.lstrip().startswith(b"{") or any(b'"method"' in end for end in ends):
        return None
    found = next((found for end in ends if (found := _ID.search(end))), None)
    if found is None:
        return None
    return int(found[1]) if found[1] else found[2].decode("utf-8", "replace")


def is_deeper(value: object, *, than: int) -> bool:
    """Level by level: a value of any depth would end a recursion."""
    level = [value]
    for _ in range(than):
        level = [inner for one in level for inner in _inside(one)]
    return bool(level)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()
