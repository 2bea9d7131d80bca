"""What goes wrong on purpose: a reply's pieces, and how they end, bent as a script's fault says."""

import random
from typing import Literal

import msgspec

from turnwise.lab.raw import dump
from turnwise.lab.script import ScriptedFault
from turnwise.lab.strict import Rejected
from turnwise.lab.strict.verdicts import error_object
from turnwise.wire.sse import encode_event

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
ENDLESS_BYTES = 10 * 1024 * 1024  # past every line limit; issue: "a 10 MB line without an end"
RANDOM_BYTES = 4096
HTML = (
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>Sign in to the network</h1></body></html>\n"
)
BROKEN_BYTE = b"\xff"  # never part of UTF-8

Ending = Literal["close", "reset", "stall"]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it goes over the wire. `ending` is what happens after the last piece; where it is not `close` and no piece
    is left, not even the headers are sent."""

    status: int
    content_type: str
    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...] = ()
    ending: Ending = "close"


def bend(healthy: Outgoing, *, fault: ScriptedFault, family: str, streamed: bool, text: str) -> Outgoing:
    """`healthy` with the fault in it. `text` is what the response says, for the faults that hit it."""
    replace = msgspec.structs.replace
    match fault.kind:
        case "status":
            return refusal(family, rejected=failure(fault), retry_after_s=fault.retry_after_s)
        case "error-in-stream":
            if not streamed:
                return refusal(family, rejected=failure(fault), retry_after_s=fault.retry_after_s)
            whole = healthy.pieces[:-1][: fault.after]
            return replace(healthy, pieces=(*whole, error_event(family, rejected=failure(fault))))
        case "html":
            return Outgoing(status=200, content_type="text/html; charset=utf-8", pieces=(HTML,))
        case "reset" | "stall":
            return replace(healthy, pieces=sent_before(healthy.pieces, after=fault.after), ending=fault.kind)
        case "endless-line":
            start = b"data: {" if streamed else b'{"'
            return replace(healthy, pieces=(start, *[b"x" * 65536] * (ENDLESS_BYTES // 65536)))
        case "random-bytes":
            return replace(healthy, pieces=(random.Random(0).randbytes(RANDOM_BYTES),))
        case "invalid-utf8":
            word = text[:4].encode()
            return replace(healthy, pieces=tuple([piece.replace(word, BROKEN_BYTE + word) for piece in healthy.pieces]))


def sent_before(pieces: tuple[bytes, ...], *, after: int) -> tuple[bytes, ...]:
    """The first `after` pieces; where there are no more than that, half of the bytes (Gemini sends a call in one piece)."""
    if after < len(pieces):
        return pieces[:after]
    body = b"".join(pieces)
    return (body[: len(body) // 2],)


def failure(fault: ScriptedFault) -> Rejected:
    return Rejected(fault.message, status=fault.status, code=fault.code)


def refusal(family: str, *, rejected: Rejected, retry_after_s: float | None = None) -> Outgoing:
    headers = () if retry_after_s is None else (("retry-after", f"{retry_after_s:g}"),)
    body = dump(error_object(family, rejected=rejected))
    return Outgoing(status=rejected.status, content_type=JSON, pieces=(body,), headers=headers)


def error_event(family: str, *, rejected: Rejected) -> bytes:
    """The event in which this family's API reports an error in mid-stream."""
    error = error_object(family, rejected=rejected)
    match family:
        case "anthropic_messages":
            return encode_event(dump(error), name="error")
        case "openai_responses":
            code = rejected.code or "server_error"
            event = {"type": "error", "code": code, "message": rejected.message, "param": None, "sequence_number": 99}
            return encode_event(dump(event), name="error")
        case _:
            return encode_event(dump(error))
