"""`max_output_tokens` of a route caps what a client gets, whatever it asks for and however often the answer is continued."""

import pytest

from gateway.calling import answered, call_of, read, upstream_at
from gateway.relayed import FAMILIES
from tables import each
from turnwise.gateway.config import GatewayRoute
from turnwise.lab.script import Script, Writer
from turnwise.vocab import FinishReason, calls_of
from turnwise.wire.profiles import FamilyName

LIMITED = Script(name="limited", title="cuts at 150 tokens by itself", writer=Writer(writes="answer", limit=150))


@each("stream", [True, False])
@each("asked", [2_000, None])
@each("model", ["writer-answer", "writer-file"])
@each("upstream", FAMILIES)
@each("client", FAMILIES)
def test_the_cap_of_a_route_holds(
    client: FamilyName, upstream: FamilyName, model: str, asked: int | None, stream: bool
) -> None:
    """Cut texts and cut calls alike: one request, 100 tokens, and a finish reason that says so."""
    if client == "anthropic_messages" and asked is None:
        asked = 5_000  # its API asks for a limit
    call = call_of(client, model, stream=stream, limit_tokens=asked, tool="write")
    found = answered(call, GatewayRoute(upstream=upstream_at(upstream), max_output_tokens=100))
    assert (found.outlet.status, len(found.requests)) == (200, 1)
    response = read(found, family=client, stream=stream)
    assert response.finish is FinishReason.LENGTH
    assert response.usage is not None
    assert response.usage.output_tokens <= 100
    if not stream and asked is not None:
        assert found.outlet.headers["turnwise-repairs"].startswith("output_capped")


@pytest.mark.parametrize("stream", [True, False])
def test_what_the_server_cuts_below_the_cap_is_continued_up_to_it(stream: bool) -> None:
    """The sum of all continuations stays within the cap."""
    call = call_of("openai_chat", "limited", stream=stream)
    route = GatewayRoute(upstream=upstream_at("openai_chat"), max_output_tokens=400)
    found = answered(call, route, scripts=[LIMITED])
    response = read(found, family="openai_chat", stream=stream)
    assert len(found.requests) == 3
    assert response.finish is FinishReason.LENGTH
    assert response.usage is not None
    assert 300 < response.usage.output_tokens <= 400


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_cut_by_the_clients_lower_limit_is_continued_up_to_the_cap(stream: bool) -> None:
    """A client's own limit bounds one request, the route's cap bounds the answer."""
    call = call_of("openai_chat", "writer-file", stream=stream, limit_tokens=200, tool="write")
    found = answered(call, GatewayRoute(upstream=upstream_at("openai_chat"), max_output_tokens=500))
    response = read(found, family="openai_chat", stream=stream)
    assert 1 < len(found.requests) <= 4
    assert response.finish is FinishReason.LENGTH
    assert response.usage is not None
    assert response.usage.output_tokens <= 500


def test_a_call_that_is_cut_by_the_cap_reaches_no_client_as_a_whole_one() -> None:
    """Gemini hands out what was whole of it as an object, in which the cut does not show."""
    call = call_of("openai_chat", "writer-file", stream=False, tool="write")
    found = answered(call, GatewayRoute(upstream=upstream_at("gemini"), max_output_tokens=100))
    response = read(found, family="openai_chat", stream=False)
    assert (calls_of(response.message), response.finish) == ((), FinishReason.LENGTH)
