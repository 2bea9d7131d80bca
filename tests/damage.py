"""Recorded streams with one event damaged, and what must hold for the response that is left (promise assembly:lost-piece).

The judge compares a damaged stream with the same stream as it was recorded: a call that may run must be one of the recorded
calls, none may run twice, and a response that does not say that it lost something must have lost nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from recordings import Row, decode
from turnwise.vocab import ArgumentsState, FinishReason, Response, calls_of, refusal_of, text_of

ENDED = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.LENGTH, FinishReason.PAUSE})
NUMBER = "sequence_number"
REPEATING = frozenset(
    {"response.output_item.done", "response.content_part.done", "response.reasoning_summary_part.done"}
)
"""Events of the Responses API that say something whole; with the `.done` of each delta and the terminal events."""


class Stream(NamedTuple):
    """A stream taken apart. `events` are its pieces as they stood; joined they are the stream."""

    events: tuple[bytes, ...]
    is_array: bool


class Damaged(NamedTuple):
    """A stream with one change: `kind` of damage, `at` which event."""

    kind: str
    at: int
    chunks: Sequence[bytes]


def take_apart(body: bytes) -> Stream:
    """The events of a stream, each with the blank line behind it; or the elements of a JSON array."""
    begun = body.lstrip()
    if begun.startswith((b"[", b"{")):
        return Stream(tuple(_elements(body)), is_array=True)
    events: list[bytes] = []
    lines: list[bytes] = []
    for line in body.splitlines(keepends=True):
        lines.append(line)
        if not line.strip():
            events.append(b"".join(lines))
            lines = []
    if lines:
        events.append(b"".join(lines))
    return Stream(tuple(events), is_array=False)


def _elements(body: bytes) -> Iterator[bytes]:
    """Each element of an array, with what stands before it; the last one with the rest."""
    text = body.decode()
    decoder = json.JSONDecoder()
    start = 0
    at = text.find("{")
    while at >= 0:
        _, end = decoder.raw_decode(text, at)
        following = text.find("{", end)
        stop = len(text) if following < 0 else end
        yield text[start:stop].encode()
        start, at = stop, following


def payload_span(event: bytes) -> tuple[int, int] | None:
    """Where the JSON of an event stands; None where it has none on one line."""
    start = event.find(b"{")
    end = event.rfind(b"}") + 1
    if start < 0 or end <= start or b"\n" in event[start:end].strip():
        return None
    return start, end


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# ---- damage to one event


def with_newline(event: bytes, *, share: float = 0.5) -> bytes | None:
    """A stray newline inside the event's JSON: the rest of it is no line of the format."""
    span = payload_span(event)
    if span is None:
        return None
    start, end = span
    at = start + max(1, int((end - start) * share))
    return event[:at] + b"\n" + event[at:]


def without_brace(event: bytes) -> bytes | None:
    span = payload_span(event)
    return None if span is None else event[: span[1] - 1] + event[span[1] :]


def without_quote(event: bytes) -> bytes | None:
    """One quote lost, so that what is left is no JSON."""
    span = payload_span(event)
    if span is None:
        return None
    for at in range(span[1] - 1, span[0], -1):
        if event[at : at + 1] == b'"' and not is_json(event[span[0] : at] + event[at + 1 : span[1]]):
            return event[:at] + event[at + 1 :]
    return None


def with_bad_byte(event: bytes) -> bytes | None:
    """A byte that is no UTF-8, inside the longest string of the event."""
    span = payload_span(event)
    if span is None:
        return None
    longest, best = 0, None
    at = event.find(b'"', span[0])
    while at >= 0 and at < span[1]:
        end = at + 1
        while end < span[1] and event[end] != 0x22:
            end += 2 if event[end] == 0x5C else 1
        if end - at > longest and event[end + 1 : end + 2] != b":":
            longest, best = end - at, end
        at = event.find(b'"', end + 1)
    return None if best is None else event[:best] + b"\xff" + event[best:]


def without_data(event: bytes) -> bytes | None:
    """The event's data lost, and only its name left."""
    name = next((line for line in event.splitlines(keepends=True) if line.startswith(b"event:")), None)
    return None if name is None or payload_span(event) is None else name + b"\n"


BREAKS: dict[str, Callable[[bytes], bytes | None]] = {
    "newline": with_newline,
    "newline early": lambda event: with_newline(event, share=0.2),
    "newline late": lambda event: with_newline(event, share=0.85),
    "brace lost": without_brace,
    "quote lost": without_quote,
    "no UTF-8": with_bad_byte,
    "data lost": without_data,
}

NOISE = {
    "comment": b": keep-alive\n\n",
    "ping": b'event: ping\ndata: {"type": "ping"}\n\n',
    "unknown event": b'event: x.unknown\ndata: {"type": "x.unknown", "note": "nothing of yours"}\n\n',
    "bare words": b"data: still working\n\n",
    "empty data": b"data:\n\n",
}


# ---- the streams to try


def broken(stream: Stream) -> Iterator[Damaged]:
    """The stream with each event made unreadable in turn, in each way."""
    for at, event in enumerate(stream.events):
        for kind, change in BREAKS.items():
            changed = change(event)
            if changed is not None:
                yield Damaged(kind, at, (*stream.events[:at], changed, *stream.events[at + 1 :]))


def moved(stream: Stream) -> Iterator[Damaged]:
    """The stream with each event dropped, doubled, and swapped with the one behind it."""
    events = stream.events
    for at, event in enumerate(events):
        yield Damaged("dropped", at, (*events[:at], *events[at + 1 :]))
        yield Damaged("doubled", at, (*events[: at + 1], event, *events[at + 1 :]))
        if at + 1 < len(events):
            yield Damaged("swapped", at, (*events[:at], events[at + 1], event, *events[at + 2 :]))


def noisy(stream: Stream) -> Iterator[Damaged]:
    """The stream with one kind of noise between all of its events."""
    if not stream.is_array:
        for kind, noise in NOISE.items():
            chunks = [piece for event in stream.events[:-1] for piece in (event, noise)]
            yield Damaged(kind, 0, (*chunks, stream.events[-1]))


def without_wholes(stream: Stream) -> Stream:
    """A Responses stream whose provider says nothing twice: no `.done` events, and an empty `output` in the terminal one."""
    kept: list[bytes] = []
    for event in stream.events:
        fields = payload(event)
        kind = fields.get("type", "") if fields is not None else ""
        if kind in REPEATING or (kind.startswith("response.") and kind.endswith(".done")):
            continue
        if fields is not None and isinstance(fields.get("response"), dict) and fields["response"].get("output"):
            fields["response"]["output"] = []
            event = b"event: " + kind.encode() + b"\ndata: " + json.dumps(fields).encode() + b"\n\n"
        kept.append(event)
    return Stream(tuple(kept), is_array=False)


def payload(event: bytes) -> dict[str, Any] | None:
    span = payload_span(event)
    try:
        found = None if span is None else json.loads(event[span[0] : span[1]])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_numbered(stream: Stream) -> bool:
    """Whether the events count themselves without a gap, from the first to the last."""
    payloads = [fields for event in stream.events if (fields := payload(event)) is not None]
    numbers = [fields.get(NUMBER) for fields in payloads]
    return bool(numbers) and numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# ---- the judge


class Outcome(NamedTuple):
    """What may run, and what counts as a complete answer."""

    calls: Counter[tuple[str, str]]
    text: str
    lost: bool
    is_answer: bool


def outcome_of(response: Response) -> Outcome:
    calls = Counter(
        (call.name, call.arguments) for call in calls_of(response.message) if call.state is ArgumentsState.COMPLETE
    )
    told = response.lost or response.fault is not None
    text = text_of(response.message) + refusal_of(response.message)
    return Outcome(calls, text, told, not told and response.finish in ENDED)


def read(row: Row, chunks: Sequence[bytes]) -> Outcome:
    return outcome_of(decode(row, [b"".join(chunks)]))


def faults(got: Outcome, *, want: Outcome) -> list[str]:
    """What must not be: a call that is none of the recorded ones, one that runs twice, a loss that nobody is told of."""
    found = [
        f"a call runs that was never said: {call!r:.300}" for call in got.calls - want.calls if call not in want.calls
    ]
    found += [
        f"a call runs {got.calls[call]} times: {call!r:.300}" for call in got.calls - want.calls if call in want.calls
    ]
    if got.is_answer and got.text != want.text:
        found.append(f"the text counts as whole: {_difference(got.text, want.text)}")
    if got.is_answer and want.calls - got.calls:
        found.append(f"calls are missing without a word: {list(want.calls - got.calls)!r:.200}")
    return found


def _difference(got: str, want: str) -> str:
    """Both texts from shortly before the first character that differs."""
    same = next((at for at, (one, other) in enumerate(zip(got, want, strict=False)) if one != other), len(got))
    at = max(0, same - 20)
    return f"{got[at : at + 60]!r} at character {same}, recorded {want[at : at + 60]!r}"


def kind_of_event(event: bytes) -> str:
    """What the event is, in its family's own words."""
    fields = payload(event)
    if fields is None:
        return "no JSON"
    if isinstance(fields.get("type"), str):
        delta = fields.get("delta")
        kind = delta.get("type") if isinstance(delta, dict) else None
        return f"{fields['type']}/{kind}" if kind else fields["type"]
    match fields:
        case {"choices": [{"finish_reason": str()}, *_]}:
            return "chunk with a finish reason"
        case {"choices": [{"delta": {"tool_calls": [{"id": str(), "function": {"name": str()}}, *_]}}, *_]}:
            return "chunk that begins a call"
        case {"choices": [{"delta": {"tool_calls": [_, *_]}}, *_]}:
            return "chunk with a piece of arguments"
        case {"choices": [{"delta": {"content": str(text)}}, *_]} if text:
            return "chunk with a piece of text"
        case {"choices": []}:
            return "chunk without choices"
        case {"choices": _}:
            return "other chunk"
        case {"candidates": [{"content": {"parts": [{"functionCall": {"partialArgs": _}}, *_]}}, *_]}:
            return "chunk with a piece of arguments"
        case {"candidates": [{"content": {"parts": [{"functionCall": _}, *_]}}, *_]}:
            return "chunk with a call"
        case {"candidates": [{"content": {"parts": [{"text": str()}, *_]}}, *_]}:
            return "chunk with a piece of text"
        case {"candidates": _}:
            return "other chunk"
        case _:
            return "other"
