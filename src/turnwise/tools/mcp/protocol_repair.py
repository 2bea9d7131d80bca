"""A line of a server -> a message; what breaks the protocol is mended where that is sure, and else answers its call.

An answer that cannot be read would leave its call waiting for the deadline, and nobody would know why.
"""

import functools
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast, get_args

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter
from mcp_types.methods import SERVER_RESULTS
from pydantic import BaseModel, TypeAdapter, ValidationError

from turnwise.running.tool_output import MAX_PARTS
from turnwise.vocab.json_values import is_json_array, is_json_object, object_or_empty, without

MAX_SHOWN_PARTS = MAX_PARTS - 10  # so that nobody cuts them and counts a second time
MAX_LEVELS = 190  # of JSON inside of a message: pydantic reads no more than 200, and writes no more than 255
_UNREADABLE = "its answer is no message of the protocol ({why})"
AS_IT_CAME = "turnwise: as it came"  # keeps a schema that the protocol forbids for `listing`, which judges it
_VERSIONS = ("2025-11-25", "2026-07-28")  # each has its own types; those of the versions before are the first ones
_MAX_KIND = 80
_ID = re.compile(rb'"id"\s*:\s*(?:([0-9]{1,15})|"([^"\\]{1,100})")')
_END = 2048  # bytes: the id stands before the result or behind it


def message_in(line: bytes) -> SessionMessage | None:
    """None for a line that is no message and answers nothing: a server's log that went the wrong way."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _mended(line)
    return mended(SessionMessage(message))


def mended(message: SessionMessage) -> SessionMessage:
    """One odd thing in a list is left out or replaced, so that the library does not refuse the others with it."""
    if isinstance(response := message.message, JSONRPCResponse):
        _cut_parts(response.result)
        _mend_result(response.result)
    return message


def _cut_parts(result: dict[str, object]) -> None:
    """Of hundreds of thousands of parts only those are read that are shown: each would take 2 KB, and all of them seconds."""
    content = result.get("content")
    if not is_json_array(content) or len(parts := content) <= MAX_SHOWN_PARTS:
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
    if not is_json_object(given):
        return None
    if is_deeper(given, than=MAX_LEVELS):
        return _refusal(_id_in(line), why="nested too deeply")
    id = given.get("id")
    if isinstance(id, float) and id.is_integer():
        given["id"] = id = int(id)
    try:
        return mended(SessionMessage(jsonrpc_message_adapter.validate_python(given, by_name=False)))
    except ValueError:
        is_answer = "method" not in given and isinstance(id, int | str)
        return _refusal(id if is_answer else None, why="without a result")


def _mend_result(result: dict[str, object]) -> None:
    if "structuredContent" in result:
        if not isinstance(result.get("content"), list):
            result["content"] = []
        if not isinstance(given := result["structuredContent"], dict):
            del result["structuredContent"]
            if not result["content"] and given is not None:
                result["content"] = [{"type": "text", "text": json.dumps(given, ensure_ascii=False)}]
    for name in ("isError", "nextCursor", "_meta"):
        if name in result and result[name] is None:
            del result[name]
    for name, mend in _ELEMENTS.items():
        if is_json_array(listed := result.get(name)):
            made = [_element(one, name=name, mend=mend) for one in listed]
            result[name] = [one for one in made if one is not None]


def _element(given: object, *, name: str, mend: "Callable[[dict[str, Any]], object]") -> object:
    if _fits(given, name=name):
        return given
    return mend(object_or_empty(given))


def _fits(given: object, *, name: str) -> bool:
    try:
        for adapter in _adapters(name):
            adapter.validate_python(given, by_name=False)
    except ValidationError:
        return False
    return True


@functools.cache
def _adapters(name: str) -> tuple[TypeAdapter[object], ...]:
    """For one element of the list `name` in a result, as each version of the protocol has it."""
    adapters: list[TypeAdapter[object]] = []
    for version in _VERSIONS:
        of_version = cast("object", SERVER_RESULTS[_METHODS[name], version])
        kinds = cast("tuple[type[BaseModel], ...]", get_args(of_version) or (of_version,))
        listed = next(kind.model_fields[name].annotation for kind in kinds if name in kind.model_fields)
        adapters.append(TypeAdapter(get_args(listed)[0]))
    return tuple(adapters)


def _tool(given: dict[str, Any]) -> object:
    """With what can be read of it; a schema that the protocol forbids is put into one that it allows."""
    name = given.get("name")
    schema = {"type": "object", AS_IT_CAME: given.get("inputSchema")}
    tool: dict[str, Any] = {"name": name if isinstance(name, str) else "", "inputSchema": schema}
    for key in ("inputSchema", "description", "annotations"):
        if key in given and _fits(more := {**tool, key: given[key]}, name="tools"):
            tool = more
    return tool


def _block(given: dict[str, Any]) -> object:
    """Without what only describes it; else a stand-in that names its type."""
    plain = _without(given, "annotations", "_meta", "icons", "size", "title", "description")
    if _fits(plain, name="content"):
        return plain
    kind = given.get("type")
    named = f"of the type `{kind[:_MAX_KIND]}`" if isinstance(kind, str) else "without a type"
    is_known = kind in ("text", "image", "audio", "resource", "resource_link")
    why = "it breaks the protocol" if is_known else "turnwise does not know the type"
    return {"type": "text", "text": f"[content {named}: left out, as {why}]"}


def _contents(given: dict[str, Any]) -> object:
    plain = _without(given, "annotations", "_meta", "mimeType")
    if _fits(plain, name="contents"):
        return plain
    uri = given.get("uri")
    return {"uri": uri if isinstance(uri, str) else "", "text": "[contents that break the protocol: left out]"}


def _message(given: dict[str, Any]) -> object:
    role = given.get("role")
    content = _element(given.get("content"), name="content", mend=_block)
    return {"role": role if role in ("user", "assistant") else "user", "content": content}


def _named(given: dict[str, Any], *, name: str) -> object:
    """A prompt or a resource: without what only describes it, else it is not there."""
    plain = _without(given, "description", "title", "icons", "_meta", "annotations", "mimeType", "size")
    return plain if _fits(plain, name=name) else None


def _without(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return without(given, names)


_METHODS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "content": "tools/call",
    "contents": "resources/read",
    "messages": "prompts/get",
}
_ELEMENTS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "tools": _tool,
    "prompts": functools.partial(_named, name="prompts"),
    "resources": functools.partial(_named, name="resources"),
    "content": _block,
    "contents": _contents,
    "messages": _message,
}


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
    if is_json_object(value):
        return value.values()
    return value if is_json_array(value) else ()


# Two memory streams of messages, as the package `mcp` wants its transports, over whatever carries lines.


Deliver = Callable[[SessionMessage], Awaitable[None]]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def message_streams(
    receive: Callable[[Deliver], Awaitable[None]], *, send: Callable[[SessionMessage, bytes], Awaitable[None]]
) -> AsyncGenerator[Streams]:
    """The two streams, until the block ends; then both tasks behind them are cancelled.

    `receive` delivers what comes, and returns when nothing comes any more: the first stream ends then. A delivery that nobody
    waits for ends it, too. `send` is given each message with its line (without the line break), and raises OSError once nobody
    reads it.
    """
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with received:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await receive(received.send)

    async def write() -> None:
        async with to_send:
            with suppress(OSError):
                async for message in to_send:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await send(message, line.encode())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            for stream in (received, incoming, outgoing, to_send):
                stream.close()
