"""Responses whose text is a call, where the server says nothing of their end (issue 16, section A)."""

import asyncio
import json

import pytest

from text_calls import TOOLS, WRITERS
from turnwise.base.clock import SystemClock
from turnwise.endpoints.endpoints import Endpoint, build_http_request
from turnwise.endpoints.exchange import Exchange
from turnwise.testing import FakeClock, Reply, ScriptedTransport, Stall
from turnwise.turn.config import Deadlines
from turnwise.turn.events import RequestFailed, ResponseReceived, SendRequest, SoughtCalls
from turnwise.vocab import ArgumentsState, Fault, FaultKind, Message, Request, Text, calls_of
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

ASKED = [("read", {"path": "notes.txt"})]
HERMES = WRITERS["hermes"](ASKED)
# What may stand behind a whole call, or be missing from it: a stop token of the model, which servers leave out.
WHOLE = {
    "a whole block": HERMES,
    "words before it": f"I look.\n{HERMES}",
    "reasoning before it": f"<think>\nHm.\n</think>\n\n{HERMES}",
    "blanks behind it": f"{HERMES}\n\n",
    "two blocks": f"{HERMES}\n{HERMES}",
    "no closing mark": HERMES.removesuffix("\n</tool_call>"),
    "half a closing mark": HERMES.removesuffix("call>"),
    "no stop token, llama": WRITERS["llama"](ASKED),
    "no stop token, harmony": WRITERS["harmony"](ASKED).removesuffix("<|call|>"),
    "a python list": "[read(path='notes.txt')]",
}
OPEN = {
    "words": "I look.",
    "words behind it": f"{HERMES}\nI wait for",
    "the beginning of a marker behind it": f"{HERMES}\n<tool",
    "cut arguments": HERMES[:50],
    "an example in a fence": f"```\n{HERMES}",
    "what was asked": "What does <tool_call>\n{} mean?",
}


def chunk(text: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': text}}]})}\n\n".encode()


def exchange_of(*pieces: bytes | Stall | Fault, clock: FakeClock | SystemClock) -> asyncio.Task[object]:
    endpoint = Endpoint(profile=builtin_profiles()["vllm"], base_url="http://x")
    request = Request(model="m", messages=(Message("user", (Text("hi"),)),), tools=TOOLS, stream=True)
    order = SendRequest(
        number=1,
        step=1,
        purpose="step",
        request=request,
        deadlines=Deadlines(),
        calls_in_text=SoughtCalls(tools=TOOLS),
    )
    call = endpoint.family.encode_request(request, endpoint.profile)
    transport = ScriptedTransport([Reply(pieces=pieces)])
    exchange = Exchange(order, endpoint=endpoint, transport=transport, clock=clock, on_frames=None)
    return asyncio.create_task(exchange.run(build_http_request(endpoint, call, connect_s=1)))


async def left_open(text: str, *, waits_s: tuple[float, ...]) -> tuple[list[bool], object]:
    """Whether the exchange was over after each of these waits, and its end."""
    clock = FakeClock()
    running = exchange_of(chunk(text[:20]), chunk(text[20:]), Stall(), clock=clock)
    await asyncio.wait_for(clock.until_waiting(Deadlines().left_open_s), HANG_S)
    ends: list[bool] = []
    for seconds in waits_s:
        await clock.advance(seconds)
        ends.append(running.done())
    return ends, await asyncio.wait_for(running, HANG_S)


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("what", WHOLE)
async def test_a_stream_left_open_behind_a_whole_call_is_taken_after_five_seconds(what: str) -> None:
    """Proves: as for calls that come as such; nothing waits for `idle_s`, and the call runs."""
    ends, event = await left_open(WHOLE[what], waits_s=(4.9, 0.2))
    assert isinstance(event, ResponseReceived) and ends == [False, True]
    calls = calls_of(event.response.message)
    assert [(one.name, json.loads(one.arguments)) for one in calls] == ASKED * (2 if what == "two blocks" else 1)
    assert {one.state for one in calls} == {ArgumentsState.COMPLETE} and event.response.is_closed
    assert "left_open" in [one.kind for one in event.response.repairs]


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("what", OPEN)
async def test_a_stream_left_open_behind_anything_else_waits_for_more(what: str) -> None:
    """Proves: words may go on, and a call that is not whole never runs."""
    ends, event = await left_open(OPEN[what], waits_s=(20.0, 69.0, 2.0))
    assert ends == [False, False, True] and isinstance(event, RequestFailed)


@pytest.mark.parametrize("what", WHOLE)
@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"], ids=["no end mark", "the end mark only"])
async def test_a_stream_that_ends_without_a_finish_reason_behind_a_whole_call_is_whole(what: str, end: bytes) -> None:
    """Proves: what only a missing word says nothing of is no cut: the call counts, its stop token left out or not."""
    pieces = [piece for piece in (chunk(WHOLE[what]), end) if piece]
    event = await asyncio.wait_for(exchange_of(*pieces, clock=SystemClock()), HANG_S)
    assert isinstance(event, ResponseReceived)
    assert {one.state for one in calls_of(event.response.message)} == {ArgumentsState.COMPLETE}


async def test_a_call_of_a_stream_that_broke_off_is_no_response() -> None:
    """Proves: cut:never-run. Behind a broken connection nothing is known to be whole."""
    broken = Fault(kind=FaultKind.DISCONNECTED, message="gone")
    event = await asyncio.wait_for(exchange_of(chunk(HERMES), broken, clock=SystemClock()), HANG_S)
    assert isinstance(event, RequestFailed)
