"""What goes wrong on purpose: a reply's pieces, and how they end, bent as a script's fault says."""

import random
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.lab.families.family import LabFamily
from turnwise.lab.raw import dump, parse, table, text
from turnwise.lab.script import FaultPoint, ScriptedFault
from turnwise.lab.strict import Rejected
from turnwise.vocab import Finished, Frame, Response, TextDelta, ToolCallDelta
from turnwise.wire.sse import encode_event

EVENT_STREAM = "text/event-stream"
LINES = "application/x-ndjson"
JSON = "application/json"
ENDLESS_BYTES = 10 * 1024 * 1024  # past every line limit; issue: "a 10 MB line without an end"
RANDOM_BYTES = 4096
HTML = (
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>Sign in to the network</h1></body></html>\n"
)
BROKEN_BYTE = b"\xff"  # never part of UTF-8

BLANK = b" "  # gateways send white space before a body, so that a connection stays alive

Ending = Literal["close", "reset", "stall", "pings"]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it goes over the wire. `ending` is what happens after the last piece; where it is not `close` and no piece
    is left, not even the headers are sent. With `pings` these go on until the client closes."""

    status: int
    content_type: str
    pieces: tuple[bytes, ...]
    headers: tuple[tuple[str, str], ...] = ()
    ending: Ending = "close"
    ping: bytes = b""


def bend(
    healthy: Outgoing,
    *,
    fault: ScriptedFault,
    family: LabFamily,
    streamed: bool,
    text: str,
    before: tuple[bytes, ...] | None = None,
) -> Outgoing:
    """`healthy` with the fault in it. `text` is what the response says, or its call, for the faults that hit it; `before` are
    the pieces of a stream that go out before it, where the fault has a place."""
    if fault.at is not None and fault.kind in ("error-in-stream", "reset", "eof", "stall", "pings"):
        return broken_at(healthy, fault=fault, family=family, streamed=streamed, before=before)
    match fault.kind:
        case "status":
            return refused(fault, family=family)
        case "error-in-stream":
            if not streamed:
                return refusal(family, rejected=failure(fault), retry_after_s=fault.retry_after_s)
            whole = healthy.pieces[:-1][: fault.after]
            return replace(healthy, pieces=(*whole, error_event(family, failure(fault))))
        case "html":
            return Outgoing(status=200, content_type="text/html; charset=utf-8", pieces=(HTML,))
        case "eof":
            return replace(healthy, pieces=sent_before(healthy.pieces, after=fault.after))
        case "reset" | "stall" | "pings":
            ping = ping_of(family, streamed=streamed)
            return replace(healthy, pieces=sent_before(healthy.pieces, after=fault.after), ending=fault.kind, ping=ping)
        case "endless-line":
            start = b"data: {" if streamed and not family.lines else b'{"'
            return replace(healthy, pieces=(start, *[b"x" * 65536] * (ENDLESS_BYTES // 65536)))
        case "random-bytes":
            return replace(healthy, pieces=(random.Random(0).randbytes(RANDOM_BYTES),))
        case "sent-twice":
            return replace(healthy, pieces=healthy.pieces * 2) if streamed else healthy
        case "torn-event":
            return replace(healthy, pieces=torn(healthy.pieces, before=before, lines=family.lines))
        case "invalid-utf8":
            word = text[:4].encode()
            if not word:
                return healthy  # there is nothing to hit
            return replace(healthy, pieces=tuple([piece.replace(word, BROKEN_BYTE + word) for piece in healthy.pieces]))


def torn(pieces: tuple[bytes, ...], *, before: tuple[bytes, ...] | None, lines: bool) -> tuple[bytes, ...]:
    """The pieces with a stray line break inside the event that `before` ends with or in. A body gets a byte that is no
    UTF-8 inside its first string with a space, which is what the model said."""
    whole = b"".join(pieces)
    if before is None:
        at = whole.find(b" ")
        return (whole[:at] + BROKEN_BYTE + whole[at:],)
    end = len(b"".join(before))
    head, gap = (b"", b"\n") if lines else (b"data: ", b"\n\n")
    start = whole.rfind(gap, 0, max(0, end - len(gap))) + 1
    at = (whole.find(head, start) + len(head) + whole.find(gap, start + 1)) // 2
    return (whole[:at] + b"\n" + whole[at:],)


def refused(fault: ScriptedFault, *, family: LabFamily) -> Outgoing:
    """The status with everything that it says of a retry."""
    outgoing = refusal(family, rejected=failure(fault), retry_after_s=fault.retry_after_s)
    headers = (*outgoing.headers, *fault.headers.items())
    if fault.retry_delay is None:
        return replace(outgoing, headers=headers)
    error = table(parse(outgoing.pieces[0])).get("error")
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": fault.retry_delay}]
    return replace(outgoing, headers=headers, pieces=(dump({"error": {**table(error), "details": details}}),))


def broken_at(
    healthy: Outgoing, *, fault: ScriptedFault, family: LabFamily, streamed: bool, before: tuple[bytes, ...] | None
) -> Outgoing:
    """The response as far as its place, and then what goes wrong. Before the first event something that says nothing is sent,
    so that there are headers."""
    silence = family.comment if streamed else BLANK
    pieces = before if before is not None else body_until(fault.at, body=b"".join(healthy.pieces))
    if fault.at == "start":
        pieces = (silence,)
    match fault.kind:
        case "error-in-stream" if streamed:
            # An error is an event of its own: no torn one stands before it.
            pieces = tuple([piece for piece in pieces if piece.endswith(b"\n")])
            return replace(healthy, pieces=(*pieces, error_event(family, failure(fault))))
        case "error-in-stream":
            return replace(healthy, pieces=(dump(family.judge.error(failure(fault))),))
        case "reset" | "stall":
            return replace(healthy, pieces=pieces, ending=fault.kind)
        case "pings":
            ping = ping_of(family, streamed=streamed)
            return replace(healthy, pieces=pieces or (ping,), ending="pings", ping=ping)
        case _:
            return replace(healthy, pieces=pieces)


def ping_of(family: LabFamily, *, streamed: bool) -> bytes:
    if not streamed:
        return BLANK
    return event_of(family, family.ping.encode()) if family.ping else family.comment


def sent_until(at: FaultPoint, *, frames: Sequence[Frame], written: Sequence[bytes]) -> tuple[bytes, ...]:
    """The pieces that go out before `at`; `written` are those of the frames in order, and the end.

    Where the place lies within a piece (Gemini sends a call whole), half of that piece goes out.
    """
    if at in ("headers", "start"):
        return ()
    kind = {"text": TextDelta, "arguments": ToolCallDelta, "finish": Finished}[at]
    places = [place for place, frame in enumerate(frames) if isinstance(frame, kind)] or [0]
    middle = places[len(places) // 2]
    whole = [piece for piece in written[: middle + 1] if piece]
    if any(written[places[0] : middle + 1]):
        return tuple(whole)
    held = next((piece for piece in written[middle + 1 :] if piece), b"")
    return (*whole, held if at == "finish" else held[: len(held) // 2])


def body_until(at: FaultPoint | None, *, body: bytes) -> tuple[bytes, ...]:
    """A body has no events: its middle stands for every place within it."""
    match at:
        case "headers" | "start":
            return ()
        case "finish":
            return (body,)
        case _:
            return (body[: len(body) // 2],)


def sent_before(pieces: tuple[bytes, ...], *, after: int) -> tuple[bytes, ...]:
    """The first `after` pieces; where there are no more than that, half of the bytes (Gemini sends a call in one piece)."""
    if after < len(pieces):
        return pieces[:after]
    body = b"".join(pieces)
    return (body[: len(body) // 2],)


def failure(fault: ScriptedFault) -> Rejected:
    return Rejected(fault.message, status=fault.status, code=fault.code)


def refusal(family: LabFamily, *, rejected: Rejected, retry_after_s: float | None = None) -> Outgoing:
    headers = () if retry_after_s is None else (("retry-after", f"{retry_after_s:g}"),)
    body = dump(family.judge.error(rejected))
    return Outgoing(status=rejected.status, content_type=JSON, pieces=(body,), headers=headers)


def error_event(family: LabFamily, rejected: Rejected) -> bytes:
    """The event in which this family's API reports an error in mid-stream."""
    return event_of(family, dump(family.error_event(rejected) if family.error_event else family.judge.error(rejected)))


def event_of(family: LabFamily, data: bytes) -> bytes:
    """An event as this family's API sends it, with its type as its name where it has names."""
    if family.lines:
        return data + b"\n"
    fields = table(parse(data)) if family.names_events else {}
    return encode_event(data, name=text(fields.get("event_type") or fields.get("type")))


# Streams written out in a script, line by line: shapes that no healthy encoder would ever send.
#
# A line of Chat Completions is the `delta` of a chunk, with a finish reason after it if it has one:
#     {"tool_calls":[{"id":"call_1","function":{"name":"read","arguments":""}}]}
#     {"content":"text"} finish stop
#     finish tool_calls
#     usage          a chunk with the usage and no choices
#     done           data: [DONE]
#     chunk {...}    a whole chunk, as it is
# Of every other family a line is the JSON of one event; `raw ...` is a line of the stream as it is, in all of them.


def stream_of(lines: str, *, family: LabFamily, response: Response) -> list[bytes]:
    """The pieces of the stream, one a line. Raises ValueError for a line in none of the forms above."""
    return [
        line.removeprefix("raw ").encode() + b"\n"
        if line.startswith("raw ")
        else event_of(family, family.line_data(line, response))
        for line in map(str.strip, lines.splitlines())
        if line
    ]
