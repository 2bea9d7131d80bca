"""Counts of tokens where the upstream's API could count, and this server does not."""

import asyncio
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec
import pytest

from gateway.calling import call_of, upstream_at
from gateway.relayed import Gathered
from tables import each
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import COUNTS_NOT_S, RelayService, ServiceMeans
from turnwise.relay.token_counting import counts_not
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.profiles import FamilyName
from waits import HANG_S

JSON = {"content-type": "application/json"}
COUNTING: tuple[FamilyName, ...] = ("openai_responses", "anthropic_messages", "gemini")
NOT_FOUND = b'{"error":{"message":"no such path"}}'
GOOD = {
    "openai_responses": b'{"object":"response.input_tokens","input_tokens":907713}',
    "anthropic_messages": b'{"input_tokens":907713}',
    "gemini": b'{"totalTokens":907713}',
}
PATHS = {
    "openai_responses": "/v1/responses/input_tokens",
    "anthropic_messages": "/v1/messages/count_tokens",
    "gemini": "/v1beta/models/some-model:countTokens",
}


def count_of(client: FamilyName) -> ClientCall:
    call = call_of(client, "some-model", stream=False)
    return msgspec.structs.replace(call, path=PATHS[client], kind="count")


def counted(
    upstream: FamilyName, replies: Sequence[tuple[int, bytes]], *, waits_s: Sequence[float], client: FamilyName
) -> list[Gathered]:
    """The answers to counts with these waits before them."""

    async def run() -> list[Gathered]:
        made = [Reply(status=status, headers=JSON, pieces=(body,)) for status, body in replies]
        clock, transport, outlets = FakeClock(), ScriptedTransport(made), list[Gathered]()
        means = ServiceMeans(transport=transport, clock=clock, env={"LAB_KEY": "k"})
        config = GatewayConfig(routes=(GatewayRoute(upstream=upstream_at(upstream)),))
        service = RelayService(config, means=means, forward_key=False)
        for wait_s in waits_s:
            await clock.advance(wait_s)
            outlets.append(Gathered())
            await asyncio.wait_for(service.answer(count_of(client), outlets[-1]), HANG_S)
        assert len(transport.requests) == len(replies)
        return outlets

    return asyncio.run(run())


@each("client", COUNTING)
@each("upstream", COUNTING)
@each("status", [404, 405, 501])
def test_a_server_without_the_endpoint_is_not_asked_again_for_a_while(
    status: int, upstream: FamilyName, client: FamilyName
) -> None:
    """The count is an estimate, which a header says; after ten minutes the server may have learned to count."""
    replies = [(status, NOT_FOUND), (200, GOOD[upstream])]
    first, second, third = counted(upstream, replies, waits_s=[0, 1, COUNTS_NOT_S], client=client)
    assert [first.status, second.status, third.status] == [200] * 3
    assert first.headers["turnwise-estimated"] == second.headers["turnwise-estimated"] == "true"
    assert "turnwise-estimated" not in third.headers
    assert b"907713" in b"".join(third.pieces)


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_other_failures_are_told(status: int) -> None:
    """They are the answer of an endpoint that is there."""
    (found,) = counted("anthropic_messages", [(status, NOT_FOUND)], waits_s=[0], client="anthropic_messages")
    assert found.status == (502 if status == 401 else status)  # the gateway's own key was refused, not the client's
    assert "turnwise-estimated" not in found.headers


@each("failure", [401, 404, 429, 500, 503, "refused"])
@each("second", COUNTING)
def test_the_next_upstream_counts_where_one_fails(failure: int | str, second: FamilyName) -> None:
    """As for a request to generate. A model that is not there leads on, too; where nobody counts, the last failure is told."""
    words = b'{"error":{"message":"model: some-model"}}'
    fails = Reply(status=failure, headers=JSON, pieces=(words,)) if isinstance(failure, int) else REFUSED
    for last, status in ((Reply(headers=JSON, pieces=(GOOD[second],)), 200), (BUSY, 503)):
        outlet, asked = fallen_back(fails, last, second=second)
        assert (outlet.status, asked) == (status, ["one.invalid", "two.invalid"])
        assert (re.search(rb"\b907713\b", b"".join(outlet.pieces)) is not None) is (status == 200)
        assert "turnwise-estimated" not in outlet.headers


def test_no_other_upstream_counts_what_is_wrong_itself() -> None:
    """A refused request is told, and an upstream that cannot count leads to an estimate."""
    for status, told in ((400, 400), (404, 200)):
        outlet, asked = fallen_back(Reply(status=status, headers=JSON, pieces=(NOT_FOUND,)), BUSY, second="gemini")
        assert (outlet.status, asked) == (told, ["one.invalid"])


BUSY = Reply(status=503, headers=JSON, pieces=(NOT_FOUND,))
REFUSED = Reply(before=Fault(kind=FaultKind.UNREACHABLE, message="no connection"))


def fallen_back(first: Reply, last: Reply, *, second: FamilyName) -> tuple[Gathered, list[str]]:
    """The answer to one count, and the hosts that were asked for it."""

    async def run() -> tuple[Gathered, list[str]]:
        transport, outlet = ScriptedTransport([first, last]), Gathered()
        means = ServiceMeans(transport=transport, clock=FakeClock(), env={"LAB_KEY": "k"})
        one, two = [
            msgspec.structs.replace(upstream_at(family), url=upstream_at(family).url.replace("lab", host))
            for family, host in (("anthropic_messages", "one"), (second, "two"))
        ]
        config = GatewayConfig(routes=(GatewayRoute(upstream=one, fallbacks=(two,)),))
        service = RelayService(config, means=means, forward_key=False)
        await asyncio.wait_for(service.answer(count_of("anthropic_messages"), outlet), HANG_S)
        return outlet, [urlsplit(request.url).hostname or "" for request in transport.requests]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "message", "is_none"),
    [
        (404, "model: some-model", False),
        (404, "models/some-model is not found for API version v1beta, or is not supported for countTokens", False),
        (404, "Not Found: /v1beta/models/some-model:countTokens", True),
        (404, "Not Found", True),
        (405, "some-model", True),
        (429, "Not Found", False),
    ],
)
def test_a_model_that_is_not_there_is_no_missing_endpoint(status: int, message: str, is_none: bool) -> None:
    """Of a 404 the message tells, which then has the model's name."""
    fault = Fault(kind=FaultKind.NOT_FOUND, message=message, status=status)
    assert counts_not(fault, model="some-model") is is_none
