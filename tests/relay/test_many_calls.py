"""An answer of very many calls costs what each call costs, and past the bound it is not read."""

import sys
from typing import Any

import pytest

from gateway.relayed import FAMILIES, ask, profile_of
from relay.many_calls import MANNERS, Manner, stream_of_calls
from tables import each
from thoroughness import spread
from turnwise.assembly.response import MAX_PARTS
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, UpstreamSide
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.family import family
from turnwise.wire.profiles import FamilyName

SLICE = 16 * 1024


def read(stream: bytes, *, upstream: FamilyName, client: FamilyName) -> tuple[int, Fault | None]:
    """How many bytes were read, and the error at the end."""
    request, there, profile = ask("m"), family(upstream), profile_of(upstream)
    relay = Relay(
        upstream=UpstreamSide(
            request=request, call=there.encode_request(request, profile), family=there, profile=profile
        ),
        client=ClientSide(request=request, family=family(client)),
        rules=RelayRules(),
    )
    reader = relay.reader()
    at = 0
    while at < len(stream) and not reader.faulted:
        reader.feed(stream[at : at + SLICE])
        at += SLICE
    reader.flush()
    response = reader.finish()
    step = relay.ended(response, response.fault, waited_s=0.0, jitter=0.5)
    assert isinstance(step.next, RelayEnd)
    return at, step.next.fault


def work(stream: bytes, *, upstream: FamilyName, client: FamilyName) -> int:
    """How many functions are called, those in C included."""
    calls = 0

    def count(_: object, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        read(stream, upstream=upstream, client=client)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.costly
@pytest.mark.promise("assembly:bounded")
@each(
    ("upstream", "client", "manner"),
    [
        *spread([(there, here, "usual") for there in FAMILIES for here in FAMILIES], one_of=3, name="many calls"),
        *[("openai_chat", "openai_chat", manner) for manner in MANNERS[1:]],
    ],
)
def test_an_answer_of_twice_as_many_calls_costs_twice_as_much(
    upstream: FamilyName, client: FamilyName, manner: Manner
) -> None:
    """Each event was compared with all calls before it, and each call of the end with all that the client knows."""
    read(stream_of_calls(upstream, 8, manner=manner), upstream=upstream, client=client)  # what is made once
    few, many = [
        work(stream_of_calls(upstream, number, manner=manner), upstream=upstream, client=client)
        for number in (400, 800)
    ]
    assert many < 2.2 * few


@pytest.mark.costly
@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("upstream", spread(FAMILIES, one_of=2, name="too many calls"))
def test_a_stream_of_too_many_calls_is_not_read_to_its_end(upstream: FamilyName) -> None:
    """20,000 calls kept everybody waiting for four seconds: behind the bound nothing of them was kept, and all of it read."""
    stream = stream_of_calls(upstream, 2 * MAX_PARTS)
    most = len(stream_of_calls(upstream, MAX_PARTS + 2)) + SLICE
    read_bytes, fault = read(stream, upstream=upstream, client=upstream)
    assert fault is not None
    assert (fault.kind, read_bytes <= most) == (FaultKind.TOO_LARGE, True)
    assert f"more than {MAX_PARTS}" in fault.message
