"""How long a stream may take to begin: the endpoint's own time, unless the user names another."""

import asyncio

import pytest

from tables import each
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.exchange import Exchange
from turnwise.testing import FakeClock, Reply, ScriptedTransport, Stall
from turnwise.turn.config import Deadlines
from turnwise.turn.events import RequestFailed, ResponseReceived, SendRequest
from turnwise.vocab import Message, Request, Text
from turnwise.wire.profiles import builtin_profiles

# Servers that may read a long prompt on a CPU.
SLOW = ("ollama", "ollama-native", "ollama_chat", "vllm", "llamacpp", "lmstudio", "lmstudio-responses")
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'


def started(
    profile: str, *pieces: bytes | Stall, deadlines: Deadlines, clock: FakeClock
) -> "asyncio.Task[ResponseReceived | RequestFailed]":
    """One streamed request to that endpoint, which sends these pieces and then falls silent."""
    endpoint = Endpoint(profile=builtin_profiles()[profile], base_url="http://x", key=Secret("k"))
    request = Request(model="m", messages=(Message("user", (Text("hi"),)),), stream=True)
    order = SendRequest(number=1, step=1, purpose="step", request=request, deadlines=deadlines)
    transport = ScriptedTransport([Reply(pieces=(*pieces, Stall()))])
    exchange = Exchange(order, endpoint=endpoint, transport=transport, clock=clock, on_frames=None)
    call = endpoint.family.encode_request(request, endpoint.profile)
    return asyncio.create_task(exchange.run(build_http_request(endpoint, call, connect_s=1)))


async def silence_s(profile: str, *, deadlines: Deadlines) -> float:
    """After how many seconds without an event the request is given up."""
    clock = FakeClock()
    request = started(profile, deadlines=deadlines, clock=clock)
    while not request.done():
        await clock.advance(30.0)
    event = await request
    assert isinstance(event, RequestFailed)
    assert event.fault.message == f"the provider was silent: no first event within {clock.monotonic():g} s"
    return clock.monotonic()


@pytest.mark.promise("wait:stream")
@each("profile", sorted(builtin_profiles()))
async def test_a_slow_endpoint_has_longer_to_begin(profile: str) -> None:
    """Proves: 900 s where a CPU may read the prompt, 120 s elsewhere. Source: issue 12, line 12."""
    assert await silence_s(profile, deadlines=Deadlines()) == (900.0 if profile in SLOW else 120.0)


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("profile", ["llamacpp", "openai"])
@pytest.mark.parametrize("seconds", [30.0, 120.0, 1500.0])
async def test_what_the_user_sets_holds_at_every_endpoint(profile: str, seconds: float) -> None:
    """Proves: an explicit time wins, also if it is the usual one, or longer than a whole response may take."""
    assert await silence_s(profile, deadlines=Deadlines(first_event_s=seconds)) == seconds


@pytest.mark.promise("wait:stream")
async def test_a_response_has_its_whole_time_however_long_the_prompt_took() -> None:
    """Proves: `total_s` counts from the first event on; a prompt that took 800 of 900 s leaves more than 100 s to answer."""
    clock, goes_on = FakeClock(), [asyncio.Event() for _ in range(20)]
    pieces: list[bytes | Stall] = []
    for event in goes_on:
        pieces += [Stall(until=event), EVENT]
    request = started("llamacpp", *pieces, deadlines=Deadlines(), clock=clock)
    await clock.advance(800.0)
    for event in goes_on:
        event.set()
        await clock.advance(60.0)
        if request.done():
            break
    event = await request
    assert isinstance(event, RequestFailed)
    assert (event.fault.message, clock.monotonic()) == ("the provider was silent: no end within 900 s", 1_700.0)
