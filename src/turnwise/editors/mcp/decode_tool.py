"""`decode`: what a recorded stream of a provider holds. Nothing is read, written or asked for."""

import asyncio
import io
import threading
from collections.abc import Mapping
from typing import Protocol, cast

import msgspec

from turnwise.agent.models import find_profile
from turnwise.coding_agent.text import visible_line
from turnwise.endpoints.recorded_responses import decoded_of, is_stream, read_stream
from turnwise.errors import CallerError
from turnwise.tools.mcp.protocol_repair import MAX_LEVELS, is_deeper
from turnwise.wire.json_fields import UNREADABLE

MAX_STREAM = 4 * 1024 * 1024  # characters: an answer of a million tokens, in deltas of a few
MAX_TOOLS = 200
MAX_NAME = 200
MAX_REPAIRS = 200  # that are listed one by one
_ARGUMENTS = ("stream", "family", "tools")

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "stream": {
            "type": "string",
            "maxLength": MAX_STREAM,
            "description": "The body of a provider's response as it came: server-sent events, or the JSON of an answer that was "
            "not streamed. It may be cut or broken.",
        },
        "family": {
            "type": "string",
            "maxLength": MAX_NAME,
            "description": "The API family (openai_chat, openai_responses, anthropic_messages, gemini) or a provider's name.",
        },
        "tools": {
            "type": "array",
            "maxItems": MAX_TOOLS,
            "items": {"type": "string", "maxLength": MAX_NAME},
            "description": "Names of the tools that were on offer. Helps with odd names; calls in the text count for these only.",
        },
    },
    "required": ["stream", "family"],
    "additionalProperties": False,
}


class StreamWish(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `decode`."""

    stream: str
    family: str
    tools: tuple[str, ...] = ()


def read_decode(arguments: Mapping[str, object]) -> StreamWish:
    """Raises CallerError that names the argument and says what to do."""
    for name in arguments:
        if name not in _ARGUMENTS:
            raise CallerError(
                f"`{visible_line(name[:40])}` is no argument of `decode`: there are {', '.join(_ARGUMENTS)}"
            )
    stream, family, tools = (arguments.get(name) for name in _ARGUMENTS)
    if not isinstance(stream, str) or not isinstance(family, str):
        missing = "stream" if not isinstance(stream, str) else "family"
        raise CallerError(f"`{missing}` is missing: give a text")
    if len(stream) > MAX_STREAM:
        raise CallerError(
            f"`stream` has {len(stream):,} characters, more than {MAX_STREAM:,}: use `turnwise decode FILE` for it"
        )
    names = [] if tools is None else cast("list[object]", tools) if isinstance(tools, list) else [None]
    if len(names) > MAX_TOOLS or not all(isinstance(name, str) and len(name) <= MAX_NAME for name in names):
        raise CallerError(f"`tools` is a list of at most {MAX_TOOLS} names")
    find_profile(family[:MAX_NAME])
    return StreamWish(stream=stream, family=family, tools=tuple(cast("list[str]", names)))


class _Content(io.BytesIO):
    """Ends early once nobody wants to know any more."""

    def __init__(self, content: bytes, *, stop: threading.Event) -> None:
        super().__init__(content)
        self._stop = stop

    def read(self, size: int | None = -1, /) -> bytes:
        return b"" if self._stop.is_set() else super().read(size)


def decoded(wish: StreamWish, *, stop: threading.Event) -> tuple[dict[str, object], bool]:
    """What the stream holds, as plain data, and whether it is a stream of that family at all. Once `stop` is set, it ends with
    its piece of 64 KiB. One JSON body is a single piece: of `MAX_STREAM` characters, one takes a third of a second, and one
    made to be slow (thousands of calls in its text) two seconds, in a thread. Nothing else bounds it, nor has to."""
    content = _Content(wish.stream.encode(errors="surrogatepass"), stop=stop)
    response = read_stream(content, profile=find_profile(wish.family), tool_names=frozenset(wish.tools))
    told = decoded_of(response, file="")
    told = msgspec.structs.replace(
        told,
        repairs=told.repairs[:MAX_REPAIRS],
        tool_calls=[msgspec.structs.replace(call, arguments=_plain(call.arguments)) for call in told.tool_calls],
    )
    data = cast("dict[str, object]", msgspec.to_builtins(told))
    del data["file"]
    return {**data, "repairs_in_all": len(response.repairs)}, is_stream(response)


class Decode(Protocol):
    """What the stream holds, and whether it is one. It runs in a thread, and ends soon once `stop` is set."""

    def __call__(self, wish: StreamWish, /, *, stop: threading.Event) -> tuple[dict[str, object], bool]: ...


class Decodes:
    """The decodes of one client, one stream after the other: more at once would hold up all messages."""

    def __init__(self, decode: Decode = decoded) -> None:
        self._decode = decode
        self._at_work = asyncio.Lock()

    async def decoded(self, wish: StreamWish) -> tuple[dict[str, object], bool]:
        """As `decoded` has it. A cancelled call ends its thread, and the next one begins once that has ended."""
        stop = threading.Event()
        await self._at_work.acquire()
        task = asyncio.ensure_future(asyncio.to_thread(self._decode, wish, stop=stop))

        def ended(task: asyncio.Future[tuple[dict[str, object], bool]]) -> None:
            self._at_work.release()
            if not task.cancelled():
                task.exception()  # else asyncio tells the terminal of it

        task.add_done_callback(ended)
        try:
            return await asyncio.shield(task)
        finally:
            stop.set()


def _plain(arguments: object) -> object:
    """None for what JSON libraries do not read (numbers of thousands of digits, hundreds of levels): the raw text has it."""
    if not isinstance(arguments, msgspec.Raw):
        return arguments
    try:
        value: object = msgspec.json.decode(arguments)
    except (*UNREADABLE, ValueError):
        return None
    return None if is_deeper(value, than=MAX_LEVELS) else value
