"""Requests of the Responses API as messages of a WebSocket, and what its events say of the connection.

Sources: OpenAI docs, "WebSocket mode" and "Responses WebSocket events" (November 2026); the client of openai/codex
(`codex-rs/codex-api/src/endpoint/responses_websocket.rs`), from which the header and the form of an error are.
"""

from collections.abc import Mapping
from typing import cast

import msgspec

from turnwise.wire.family import SocketRequest, SocketSign, SocketWire
from turnwise.wire.json_fields import UNREADABLE, encode, read_fields, read_items, write_object
from turnwise.wire.openai_responses.open_response import TERMINAL_EVENTS

BETA = (("openai-beta", "responses_websockets=2026-02-06"),)
_OF_HTTP = ("stream", "background")  # "transport-specific fields", which a message does not have
_CREATE = {"type": b'"response.create"'}
# The server did nothing: it has forgotten the response before, or the connection is 60 minutes old.
ASKS_ANEW = frozenset(("previous_response_not_found", "websocket_connection_limit_reached"))


def read_request(body: bytes) -> SocketRequest | None:
    """None: it is no request for a stream, and goes over HTTP."""
    try:
        fields = read_fields(body)
    except UNREADABLE:
        return None
    if bytes(fields.get("stream", b"")) != b"true" or bytes(fields.get("background", b"")) == b"true":
        return None
    for name in _OF_HTTP:
        fields.pop(name, None)
    return SocketRequest(fields=fields, session=bytes(fields.get("prompt_cache_key", b"")))


class _Error(msgspec.Struct, frozen=True):
    code: object = None


class _Whole(msgspec.Struct, frozen=True):
    id: str = ""


class _Event(msgspec.Struct, frozen=True):
    """Of one frame; what it says of the response itself is for the decoder."""

    type: str = ""
    response: _Whole | None = None
    output_index: int = 0
    item: msgspec.Raw = msgspec.Raw()
    status: int | str | None = None
    status_code: int | str | None = None
    code: object = None
    error: _Error | str | None = None
    headers: dict[str, str | int | float | bool | None] | None = None


_read_event = msgspec.json.Decoder(_Event).decode


class WarmContext:
    """What a server keeps of one connection: the last response, and the input that led to it."""

    def __init__(self) -> None:
        self._asked: SocketRequest | None = None
        self._output: dict[int, msgspec.Raw] = {}
        self._id = ""  # of a response that is whole

    def message(self, request: SocketRequest) -> bytes:
        """The request whole."""
        return write_object({**_CREATE, **request.fields})

    def next_message(self, request: SocketRequest) -> bytes | None:
        """The request with its new items alone, if its input begins with what was sent here and what came back."""
        before, fields = self._asked, request.fields
        if before is None or not self._id or not _same(_BOUND, fields, before.fields):
            return None
        if _CHAINED & fields.keys():  # a client of the gateway says itself what came before
            return self.message(request) if bytes(fields.get(_EARLIER, b"")) == encode(self._id) else None
        known, whole = bytes(before.fields.get("input", b""))[:-1], bytes(fields.get("input", b""))
        if not (known.startswith(b"[") and len(known) > 1 and whole.startswith(known + b",")):
            return None
        items = read_items(b"[" + whole[len(known) + 1 :])
        output = [item for _, item in sorted(self._output.items())]
        try:
            is_same = len(items) > len(output) and all(map(_is_same, items, output))
        except UNREADABLE:
            return None
        if not is_same:
            return None
        new = b"[" + b",".join(map(bytes, items[len(output) :])) + b"]"
        return write_object({**_CREATE, **fields, _EARLIER: encode(self._id), "input": new})

    def begin(self, request: SocketRequest) -> None:
        """The request was sent."""
        self._asked, self._output, self._id = request, {}, ""

    def saw(self, event: bytes) -> SocketSign:
        try:
            one = _read_event(event)
        except UNREADABLE:
            return SocketSign()
        if one.type == "response.output_item.done":
            self._output[one.output_index] = one.item
        elif one.type == "response.completed" and one.response is not None:
            self._id = one.response.id
        if one.type != "error":
            return SocketSign(is_end=one.type in TERMINAL_EVENTS)
        code = one.error.code if isinstance(one.error, _Error) else one.code
        said = one.status or one.status_code
        status = said if isinstance(said, int) and 400 <= said < 600 else 0
        headers = {name.lower(): f"{value}" for name, value in (one.headers or {}).items()}
        asks_anew = isinstance(code, str) and code in ASKS_ANEW
        return SocketSign(is_end=True, is_error=True, status=status, headers=headers, asks_anew=asks_anew)


_EARLIER = "previous_response_id"
_CHAINED = {_EARLIER, "conversation", "prompt"}
_BOUND = ("model", "store")  # the rest is each request's own: instructions and tools are not carried over


def _same(names: tuple[str, ...], one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return all(one.get(name) == other.get(name) for name in names)


_UNTOLD = ("id", "status")  # what an item may lack when it goes back
_UNTOLD_IN_TEXT = ("annotations", "logprobs")


def _is_same(item: msgspec.Raw, came: msgspec.Raw) -> bool:
    return _told(item) == _told(came)


def _told(item: msgspec.Raw) -> object:
    """What the model reads of an item: the same in the response and where it goes back."""
    read: object = msgspec.json.decode(item)
    if not isinstance(read, dict):
        return read
    told = _without(cast("dict[str, object]", read), _UNTOLD)
    if isinstance(text := told.get("content"), str):
        told["content"] = [{"type": "output_text", "text": text}]
    if isinstance(parts := told.get("content"), list):
        told["content"] = [
            _without(cast("dict[str, object]", part), _UNTOLD_IN_TEXT) if isinstance(part, dict) else part
            for part in cast("list[object]", parts)
        ]
    return told


def _without(fields: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in names and value not in (None, [], "")}


SOCKET = SocketWire(headers=BETA, read=read_request, open_context=WarmContext)
