"""Responses whose every call and text has its own end, and whose API's end mark is missing, over real sockets: asked for again,
and taken once the same request ended so twice.

The server's own count of requests tells what the turn made of them.
"""

import json
from collections.abc import Callable

import pytest

from families import of_family
from lab.raw_server import Body, Ending, Served, serving
from tables import each
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint
from turnwise.rules.retries import RetryPolicy
from turnwise.running.runner import Runner
from turnwise.running.runner_config import Observation, RunnerMeans
from turnwise.running.tools import Arguments, Tool
from turnwise.running.watcher_events import WatcherEvent
from turnwise.turn.config import Deadlines, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Text, ToolSpec
from turnwise.wire.profiles import builtin_profiles

SOON = Deadlines(first_event_s=5, idle_s=0.3, total_s=10)
QUICKLY = RetryPolicy(base_s=0.001)
FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
MARKS_TEXTS = ("openai_responses", "anthropic_messages")


def sse(*events: object) -> tuple[bytes, ...]:
    return tuple([f"data: {json.dumps(event)}\n\n".encode() for event in events])


PATH = {"path": "a"}
CALL_ARGUMENTS = '{"path":"a"}'
CALLS = {
    "openai_chat": sse(
        *[
            {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **piece}]}}]}
            for piece in (
                {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": ""}},
                {"function": {"arguments": CALL_ARGUMENTS[:6]}},
                {"function": {"arguments": CALL_ARGUMENTS[6:]}},
            )
        ]
    ),
    "openai_responses": sse(
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": ""},
        },
        {
            "type": "response.function_call_arguments.delta",
            "item_id": "fc_1",
            "output_index": 0,
            "delta": CALL_ARGUMENTS,
        },
        {
            "type": "response.function_call_arguments.done",
            "item_id": "fc_1",
            "output_index": 0,
            "arguments": CALL_ARGUMENTS,
        },
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "read",
                "arguments": CALL_ARGUMENTS,
                "status": "completed",
            },
        },
    ),
    "anthropic_messages": sse(
        {
            "type": "message_start",
            "message": {"id": "m", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": CALL_ARGUMENTS},
        },
        {"type": "content_block_stop", "index": 0},
    ),
    "gemini": sse(
        {
            "candidates": [
                {
                    "index": 0,
                    "content": {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {"path": "a"}}}]},
                }
            ]
        }
    ),
}
TEXTS = {
    "openai_chat": sse(
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "It is "}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "done."}}]},
    ),
    "openai_responses": sse(
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []},
        },
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "It is ",
        },
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "done.",
        },
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "It is done.", "annotations": []}],
            },
        },
    ),
    "anthropic_messages": sse(
        {
            "type": "message_start",
            "message": {"id": "m", "model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}},
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It is done."}},
        {"type": "content_block_stop", "index": 0},
    ),
    "gemini": sse(
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "It is "}]}}]},
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "done."}]}}]},
    ),
}
ENDS = {
    "openai_chat": (
        *sse({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        b"data: [DONE]\n\n",
    ),
    "openai_responses": sse(
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}}
    ),
    "anthropic_messages": sse(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ),
    "gemini": sse({"candidates": [{"index": 0, "finishReason": "STOP"}]}),
}


OFFER = ToolOffer(
    spec=ToolSpec(name="read", parameters='{"type":"object","properties":{"path":{"type":"string"}}}'), effect="read"
)


async def turn(
    served: Served,
    *,
    family: str,
    stream: bool = True,
    watch: Callable[[WatcherEvent], None] | None = None,
    max_steps: int = 20,
) -> tuple[TurnResult, list[object]]:
    """The result, and the arguments of each run of the tool."""
    profile = builtin_profiles()[family]
    ran: list[object] = []

    def read(arguments: Arguments) -> str:
        ran.append(arguments)
        return "a note"

    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model="m",
        deadlines=SOON,
        stream=stream,
        max_steps=max_steps,
        retry=QUICKLY,
        tools=(OFFER,),
        recover="continue",
        **of_family(family),
        profile=profile.name,
    )
    async with AiohttpTransport(env={}) as transport:
        tool = Tool(offer=OFFER, function=read)
        runner = Runner(
            RunnerMeans(
                endpoint=Endpoint(profile=profile, base_url=served.url),
                transport=transport,
                tools=[tool],
                observation=Observation(watch=watch),
            )
        )
        result = await runner.run(TurnStarted(config=config, input=(Message("user", (Text("Please."),)),)))
        return result, ran


@pytest.mark.promise("step:one-request", "wait:stream")
@each("ending", ["last chunk", "length", "open"])
@each("family", FAMILIES)
async def test_calls_that_end_twice_without_an_end_mark_are_taken(family: str, ending: Ending) -> None:
    """Behind a body that ends in good order, or that stays open without another byte: asked for once more, one run."""
    answer = Body(pieces=(*TEXTS[family], *ENDS[family]))
    unmarked = Body(pieces=CALLS[family], ending=ending)
    async with serving([unmarked, unmarked, answer]) as served:
        result, ran = await turn(served, family=family)
    assert (served.requests, result.requests_by_purpose, ran) == (3, {"step": 2, "retry": 1}, [PATH])
    assert (result.text, result.complete) == ("It is done.", True)


@pytest.mark.promise("wait:retry")
@each("ending", ["missing chunk", "short", "reset", "close"])
@each("family", FAMILIES)
async def test_calls_of_a_body_that_did_not_end_in_good_order_are_asked_for_again(family: str, ending: Ending) -> None:
    """A reset, a missing last chunk, fewer bytes than were announced, and HTTP/1.0, where the end proves nothing."""
    whole = Body(pieces=(*CALLS[family], *ENDS[family]))
    answer = Body(pieces=(*TEXTS[family], *ENDS[family]))
    async with serving([Body(pieces=CALLS[family], ending=ending), whole, answer]) as served:
        result, ran = await turn(served, family=family)
    assert (served.requests, result.requests_by_purpose, ran) == (3, {"step": 2, "retry": 1}, [PATH])
    assert (result.text, result.complete) == ("It is done.", True)


@pytest.mark.promise("wait:stream")
@each("ending", ["last chunk", "length", "open"])
@each("family", FAMILIES)
async def test_a_text_that_ends_twice_without_an_end_mark_is_taken(family: str, ending: Ending) -> None:
    """In Chat Completions and Gemini a text has no end of its own: one that only falls silent may have stalled, each time."""
    whole = Body(pieces=(*TEXTS[family], *ENDS[family]))
    unmarked = Body(pieces=TEXTS[family], ending=ending)
    async with serving([unmarked, unmarked, whole]) as served:
        result, _ = await turn(served, family=family)
    assert served.requests == (2 if family in MARKS_TEXTS or ending != "open" else 3)
    assert (result.text, result.complete) == ("It is done.", True)


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_response_that_stops_within_a_call_is_asked_for_again(family: str) -> None:
    """In the middle of its arguments, behind a body that ends in good order."""
    stream = b"".join(CALLS[family])
    begun = stream[: stream.index(b"path") + 8]
    whole = Body(pieces=(*CALLS[family], *ENDS[family]))
    answer = Body(pieces=(*TEXTS[family], *ENDS[family]))
    async with serving([Body(pieces=(begun,)), whole, answer]) as served:
        result, ran = await turn(served, family=family)
    assert (served.requests, ran, result.complete) == (3, [PATH], True)
