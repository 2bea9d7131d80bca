"""How the body of an answer can end, and what becomes of the answer: the table of docs/ends.md, and answers to try it with."""

import json
from typing import Any, Literal, NamedTuple

from lab.raw_server import Body, Ending
from lab.test_closed_responses import CALL_ARGUMENTS, CALLS, ENDS, MARKS_TEXTS, PATH, TEXTS

Outcome = Literal["taken", "asked again", "one error"]
Held = Literal["text", "call"]


class End(NamedTuple):
    """How a server ends a body."""

    ending: Ending
    version: str = ""
    headers: str = ""

    def of(self, pieces: tuple[bytes, ...], *, stream: bool) -> Body:
        kind = "text/event-stream" if stream else "application/json"
        return Body(pieces=pieces, ending=self.ending, version=self.version, headers=self.headers, content_type=kind)


class Row(NamedTuple):
    """`first`: the answer has whole texts and calls, and no end mark. `second`, `gateway`: the same request ends so again, and
    nothing before had a mark. `third`: the next request ends so. `open`: within a call, or a body that is not whole. `marked`:
    behind the finish reason or the end mark."""

    first: Outcome
    second: Outcome
    gateway: Outcome
    third: Outcome
    open: Outcome
    marked: Outcome


GOOD = Row("asked again", "taken", "taken", "taken", "asked again", "taken")
BROKEN = Row("asked again", "asked again", "one error", "asked again", "asked again", "taken")
ORDERLY: dict[str, End] = {
    "the last chunk": End("last chunk"),
    "all bytes of its `Content-Length`": End("length"),
    "the connection's end, HTTP/1.0": End("close"),
    "the connection's end, `Connection: close`": End("close", "HTTP/1.1", "connection: close\r\n"),
}
DISORDERLY: dict[str, End] = {
    "the connection's end, without the last chunk": End("missing chunk"),
    "the connection's end, fewer bytes than its `Content-Length`": End("short"),
    "a reset": End("reset"),
}
SILENCE = End("open")
ENDS_OF_BODIES = (*ORDERLY.values(), *DISORDERLY.values(), SILENCE)
TABLE: dict[str, tuple[End, Row]] = {
    **{name: (end, GOOD) for name, end in ORDERLY.items()},
    "silence, behind calls, and texts of Responses and Messages": (SILENCE, GOOD),
    "silence, behind texts of Chat Completions and Gemini": (SILENCE, BROKEN),
    **{name: (end, BROKEN) for name, end in DISORDERLY.items()},
}


def row_of(end: End, *, family: str, held: Held) -> Row:
    """What the table has for an answer that holds this."""
    if end == SILENCE:
        return GOOD if held == "call" or family in MARKS_TEXTS else BROKEN
    return GOOD if end in ORDERLY.values() else BROKEN


HEAD = (
    "the body ends with",
    "no end mark",
    "the same request again, no end mark: library",
    "the same: gateway, behind words that its client has",
    "the next request, no end mark",
    "in a call, or in a body's JSON",
    "behind the end mark",
)


def draw() -> str:
    """The page."""
    lines = [
        "# How an answer can end",
        "<!-- drawn by scripts/draw_ends.py; change tests/lab/ends_of_answers.py, not this file -->",
        "An end mark is a finish reason, or `[DONE]` (Chat Completions), `response.completed` (Responses), `message_stop`",
        "(Messages) or, in an answer that is no stream, its whole JSON. Gemini's streams have the finish reason only. An answer",
        "without an end mark may have lost its rest, however its body ends, so it is asked for again.",
        "",
        "Some endpoints never send an end mark. If the same request ends in good order a second time, and no answer of this",
        "endpoint and model had an end mark before, turnwise takes it and the later ones. An agent and a gateway remember that",
        "until the first end mark comes. An answer that ends within a call is never taken. If the output limit is the likelier",
        "reason (the usage says so, or half the limit is full), the answer is [continued](cut-turn.md).",
        "",
        "The gateway never sends twice what its client has: the next answer must begin with it. Otherwise the client gets one",
        "error. A text or call that is long enough is [continued](cut-turn.md) first, which is one request more.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *[f"| {name} | {' | '.join(row)} |" for name, (_, row) in TABLE.items()],
        "",
        "Silence is believed after a [deadline](deadlines.md): `left_open_s` behind calls and texts that have their own end,",
        "`idle_s` elsewhere. A text of Chat Completions or Gemini has no end of its own, so a server that is silent behind it",
        "may have stalled. It is asked again each time.",
        "",
        "`tests/lab/test_ends_of_answers.py` tries each cell with texts and calls, streamed and not, in the four API families.",
        "It compares turnwise's ledger with the count of a server that writes the bytes itself.",
    ]
    return "\n".join(lines) + "\n"


def unmarked(family: str, *, held: Held) -> tuple[bytes, ...]:
    """A stream without its end mark."""
    return (TEXTS if held == "text" else CALLS)[family]


def begun(family: str, *, held: Held, stream: bool) -> tuple[bytes, ...]:
    """Half a call or half a body."""
    if not stream:
        all_of_it = json.dumps(body(family, held=held)).encode()
        return (all_of_it[: all_of_it.index(b"done" if held == "text" else b"path") + 2],)
    return _cut_call(family)


def whole(family: str, *, held: Held, stream: bool) -> tuple[bytes, ...]:
    if not stream:
        return (json.dumps(body(family, held=held)).encode(),)
    return (*(TEXTS if held == "text" else CALLS)[family], *ENDS[family])


def _cut_call(family: str) -> tuple[bytes, ...]:
    """The events up to the arguments' first piece."""
    half = json.dumps(CALL_ARGUMENTS[:6])
    kept: list[bytes] = []
    for event in CALLS[family]:
        cut = event.replace(json.dumps(CALL_ARGUMENTS).encode(), half.encode())
        kept.append(cut)
        if half.encode() in cut:
            break
    return tuple(kept)


def body(family: str, *, held: Held) -> dict[str, Any]:
    said, is_text = "It is done.", held == "text"
    match family:
        case "openai_chat":
            call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": CALL_ARGUMENTS}}
            message = {"content": said} if is_text else {"content": None, "tool_calls": [call]}
            choice = {"index": 0, "message": {"role": "assistant", **message}}
            return {"id": "c", "choices": [{**choice, "finish_reason": "stop" if is_text else "tool_calls"}]}
        case "openai_responses":
            text = {"type": "output_text", "text": said, "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
            call = {"type": "function_call", "id": "f", "call_id": "c", "name": "read", "arguments": CALL_ARGUMENTS}
            return {"id": "r", "object": "response", "status": "completed", "output": [item if is_text else call]}
        case "anthropic_messages":
            block = {"type": "text", "text": said} if is_text else {"type": "tool_use", "id": "t", "name": "read"}
            block = block if is_text else {**block, "input": PATH}
            word = "end_turn" if is_text else "tool_use"
            return {"id": "m", "type": "message", "role": "assistant", "content": [block], "stop_reason": word}
        case _:
            part = {"text": said} if is_text else {"functionCall": {"name": "read", "args": PATH}}
            content = {"role": "model", "parts": [part]}
            return {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}
