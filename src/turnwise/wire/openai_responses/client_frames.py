"""The Responses API over a WebSocket: what a client's frames ask, and what answers them beside the events of a stream.

Sources: OpenAI's guide "WebSocket mode"; the types of both directions in the `openai` package; Codex's own client.
"""

from collections.abc import Mapping

import msgspec

from turnwise.wire.family import BadRequest
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    first_byte,
    is_null,
    read_fields,
    string_of,
    write_object,
)
from turnwise.wire.relay_facts import FALSE, TRUE, SocketAsk, SocketForm, SocketNote

CREATE, STEER = "response.create", "response.steer"
PASSED_OVER = frozenset({"response.processed"})
"""Frames that want no answer. Codex says so that it has all of a response."""
PREVIOUS, LANE = "previous_response_id", "stream_id"
NOT_FOUND = "previous_response_not_found"
NO_STEERING = (
    "the words were not taken: this gateway cannot reach a response that is under way; send them in the next one"
)
_ITEM_DONE = "response.output_item.done"
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_KEPT = frozenset({"response.completed", "response.incomplete"})
_NOTED = (_ITEM_DONE.encode(), *[end.encode() for end in _ENDS])


def read_ask(text: bytes) -> SocketAsk | None:
    """Raises BadRequest."""
    try:
        fields = read_fields(text)
    except UNREADABLE as error:
        raise BadRequest(f"the frame is no JSON object: {error}") from None
    kind = string_of(fields, "type")
    if kind in PASSED_OVER:
        return None
    lane = string_of(fields, LANE) or ""
    if kind == STEER:
        return SocketAsk(fields={}, lane=lane, answer=_not_steered(fields))
    if kind != CREATE:
        raise BadRequest(f"`type` of a frame is `{CREATE}`; this one has another one, or none")
    generates = fields.pop("generate", TRUE)
    left = {key: raw for key, raw in fields.items() if key not in ("type", LANE)}
    return SocketAsk(fields=left, previous=string_of(fields, PREVIOUS) or "", lane=lane, is_prewarm=generates == FALSE)


def _not_steered(fields: Fields) -> bytes:
    error = {"code": "steering_not_supported", "message": NO_STEERING, "type": "invalid_request_error"}
    steer = {key: fields[key] for key in ("input", PREVIOUS, "id") if key in fields}
    return encode({"type": f"{STEER}.failed", "sequence_number": 0, "error": error, "steer": steer})


def whole_body(ask: SocketAsk, context: tuple[bytes, ...] | None) -> tuple[bytes, tuple[bytes, ...]]:
    """The body of the same request over HTTP, and the items of its input in pieces. With a `context` the input goes on from
    there. Raises BadRequest."""
    fields = dict(ask.fields)
    new = _items_of(fields.get("input"))
    pieces = (*(context or ()), *new)
    if context is not None:
        fields.pop(PREVIOUS, None)
        fields["input"] = msgspec.Raw(b"[" + b",".join(pieces) + b"]")
    fields["stream"] = TRUE
    return write_object(fields), pieces


def _items_of(given: msgspec.Raw | None) -> tuple[bytes, ...]:
    if given is None or is_null(given):
        return ()
    match first_byte(given):
        case b'"':
            return (b'{"role":"user","content":' + bytes(given) + b"}",)
        case b"[":
            inner = bytes(given).strip()[1:-1].strip()
            return (inner,) if inner else ()
        case _:
            raise BadRequest("`input` is neither a text nor a list of items")


class _NamedResponse(msgspec.Struct, frozen=True):
    id: str = ""


class _NotedEvent(msgspec.Struct):
    type: str = ""
    item: msgspec.Raw = msgspec.Raw(b"")
    response: _NamedResponse = _NamedResponse()


_noted_event = msgspec.json.Decoder(_NotedEvent)


def note_of(event: bytes) -> SocketNote | None:
    """What an event says that a later request may go on from."""
    if not any(mark in event for mark in _NOTED):
        return None
    try:
        read = _noted_event.decode(event)
    except UNREADABLE:
        return None
    if read.type == _ITEM_DONE:
        return SocketNote(item=bytes(read.item))
    return SocketNote(id=read.response.id if read.type in _KEPT else "", is_last=True) if read.type in _ENDS else None


def error_event(status: int, headers: Mapping[str, str], body: bytes, ask: SocketAsk | None) -> bytes:
    """The answer that HTTP would have had."""
    try:
        error: Fields = read_fields(read_fields(body)["error"])
    except (*UNREADABLE, KeyError):
        error = {"message": msgspec.Raw(encode("the request failed")), "type": msgspec.Raw(b'"server_error"')}
    if ask is not None and ask.previous and string_of(error, "param") == PREVIOUS:
        said = f"this connection has no response `{ask.previous[:100]}`: send the whole input without `{PREVIOUS}`"
        code = string_of(error, "code")
        if code != NOT_FOUND:
            error |= {"code": msgspec.Raw(encode(NOT_FOUND)), "message": msgspec.Raw(encode(said))}
    told = {"type": "error", "status": status, "error": error}
    return encode({**told, "headers": headers} if headers else told)


def not_found(ask: SocketAsk) -> bytes:
    """The body of an answer to a request that goes on from a response that is not there."""
    error = {"message": "", "type": "invalid_request_error", "param": PREVIOUS, "code": None}
    return encode({"error": error})


def in_lane(event: bytes, lane: str) -> bytes:
    return b'{"stream_id":' + encode(lane) + b"," + event.lstrip()[1:] if lane else event


CLIENT_SOCKET = SocketForm(
    beta="responses_websockets",
    read=read_ask,
    whole_body=whole_body,
    note_of=note_of,
    error_event=error_event,
    not_found=not_found,
    in_lane=in_lane,
)
