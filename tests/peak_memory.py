"""Responses as each family writes them, and what the drivers take in memory for one, as Python counts it."""

import json
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager

from turnwise.base.clock import SystemClock
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.exchange import Exchange
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.turn.config import Deadlines
from turnwise.turn.events import RequestFailed, SendRequest
from turnwise.vocab import FaultKind, Message, Request, Text
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, builtin_profiles

KiB, MiB = 1024, 1024 * 1024
FAMILIES = ["openai_chat", "openai_responses", "anthropic_messages", "gemini"]
READ_BYTES = 64 * KiB
TIMES = 3
PART_BYTES = 4 * KiB  # what one part takes beside its bytes; a response has 4,096 at most
START_BYTES = 256 * KiB  # what decoding takes once: frames of a read, tables, modules
ITEM = {"type": "function_call", "name": "read"}


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def text_event(name: str, text: str) -> bytes:
    match name:
        case "openai_chat":
            return event({"id": "r", "choices": [{"index": 0, "delta": {"content": text}}]})
        case "openai_responses":
            return event({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text})
        case "anthropic_messages":
            delta = {"type": "text_delta", "text": text}
            return event({"type": "content_block_delta", "index": 0, "delta": delta})
        case _:
            return event({"candidates": [{"index": 0, "content": {"parts": [{"text": text}]}}]})


def call_events(name: str, number: int, pieces: Iterable[str]) -> Iterator[bytes]:
    """One call; Gemini hands it out whole."""
    index, id = number + 1, f"c{number}"
    match name:
        case "openai_chat":
            head = {"index": number, "id": id, "function": {"name": "read", "arguments": ""}}
            yield event({"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [head]}}]})
            for piece in pieces:
                more = {"index": number, "function": {"arguments": piece}}
                yield event({"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [more]}}]})
        case "openai_responses":
            item = {**ITEM, "id": f"f{number}", "call_id": id}
            yield event(
                {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}}
            )
            said: list[str] = []
            for piece in pieces:
                said.append(piece)
                yield event({"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece})
            whole = {**item, "arguments": "".join(said)}
            yield event({"type": "response.output_item.done", "output_index": index, "item": whole})
        case "anthropic_messages":
            block = {"type": "tool_use", "id": id, "name": "read", "input": {}}
            yield event({"type": "content_block_start", "index": index, "content_block": block})
            for piece in pieces:
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield event({"type": "content_block_delta", "index": index, "delta": delta})
            yield event({"type": "content_block_stop", "index": index})
        case _:
            call = {"name": "read", "args": json.loads("".join(pieces))}
            yield event({"candidates": [{"index": 0, "content": {"parts": [{"functionCall": call}]}}]})


def end_events(name: str) -> Iterator[bytes]:
    match name:
        case "openai_chat":
            yield event({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        case "openai_responses":
            done = {"id": "r", "status": "completed", "output": []}
            yield event({"type": "response.completed", "response": done})
        case "anthropic_messages":
            yield event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
        case _:
            yield event({"candidates": [{"index": 0, "content": {"parts": []}, "finishReason": "STOP"}]})


def reads(events: Iterable[bytes]) -> Iterator[bytes]:
    """In the pieces that a socket gives."""
    held = bytearray()
    for one in events:
        held += one
        while len(held) >= READ_BYTES:
            yield bytes(held[:READ_BYTES])
            del held[:READ_BYTES]
    if held:
        yield bytes(held)


class Counted:
    """The most that was taken between two looks, as Python counts it."""

    def __init__(self) -> None:
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]

    def end(self) -> int:
        peak = tracemalloc.get_traced_memory()[1] - self._before
        tracemalloc.stop()
        return peak


class LazyTransport:
    """Makes the bytes of its one answer while they are read, so that no one else holds them."""

    def __init__(self, pieces: Iterable[bytes], *, kind: str) -> None:
        self.sent_bytes = 0
        self._pieces = pieces
        self._kind = kind

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncIterator[HttpReply]:
        async with aclosing(self._chunks()) as chunks:
            yield HttpReply(status=200, headers={"content-type": self._kind}, chunks=chunks)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        for chunk in reads(self._pieces):
            self.sent_bytes += len(chunk)
            yield chunk


async def taken(
    name: str, pieces: Iterable[bytes], *, stream: bool, limits: Limits = DEFAULT_LIMITS
) -> tuple[int, int, FaultKind | None]:
    """The most that the exchange took, how much came, and what was wrong with it."""
    endpoint = Endpoint(profile=builtin_profiles()[name], base_url="http://x", key=Secret("tw-no-key-of-anyone"))
    request = Request(model="m", messages=(Message("user", (Text("hi"),)),), stream=stream)
    order = SendRequest(number=1, step=1, purpose="step", request=request, deadlines=Deadlines())
    transport = LazyTransport(pieces, kind="text/event-stream" if stream else "application/json")
    exchange = Exchange(
        order, endpoint=endpoint, transport=transport, clock=SystemClock(), on_frames=None, limits=limits
    )
    call = build_http_request(endpoint, endpoint.family.encode_request(request, endpoint.profile), connect_s=1)
    counted = Counted()
    received = await exchange.run(call)
    peak = counted.end()
    fault = received.fault if isinstance(received, RequestFailed) else received.response.fault
    return peak, transport.sent_bytes, None if fault is None else fault.kind
