"""What a route asks before a request leaves, and the headers that go with it: both from gateway.toml."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from gateway.calling import call_of
from gateway.relayed import Gathered
from lab.failing import settled
from turnwise.errors import CallerError
from turnwise.gateway.before_request import WITHIN_S, BeforeRequest
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress, upstream_of
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Reply, ScriptedTransport, Stall
from turnwise.vocab import Fault, FaultKind

JSON = {"content-type": "application/json"}
ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    + (b'"content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"}]}')
)
URL, SECRET = "http://127.0.0.1:9000/allow", "a-secret-of-the-operator"
ENV = {"LAB_KEY": "k", "HOOK_KEY": SECRET, "TEAM_KEY": SECRET}
UPSTREAM = UpstreamAddress(url="http://lab.invalid/v1", key_env="LAB_KEY")


def asked(
    *replies: Reply, otherwise: Any = "refuse", upstream: UpstreamAddress = UPSTREAM
) -> tuple[Gathered, ScriptedTransport, float]:
    """The answer, what was sent, and how many seconds it took."""
    transport, outlet, clock = ScriptedTransport(replies), Gathered(), FakeClock()
    hook = BeforeRequest(url=URL, key_env="HOOK_KEY", otherwise=otherwise)

    async def run() -> None:
        means = ServiceMeans(transport=transport, clock=clock, env=ENV)
        config = GatewayConfig(routes=(GatewayRoute(upstream=upstream, before_request=hook),))
        service = RelayService(config, means=means, forward_key=False)
        await settled(service.answer(call_of("openai_chat", "m", stream=False), outlet), clock=clock)

    asyncio.run(run())
    return outlet, transport, clock.monotonic()


def said(body: bytes, *, status: int = 200) -> Reply:
    return Reply(status=status, headers=JSON, pieces=(body,))


def test_an_allowed_request_goes_on_as_it_came() -> None:
    """Proves: the hook sees who asks what, with its own key; the upstream gets the same body, and nothing of the hook."""
    outlet, transport, _ = asked(said(b'{"allow": true}'), said(ANSWER))
    hook, upstream = transport.requests
    assert (outlet.status, b"".join(outlet.pieces)) == (200, ANSWER)
    assert (hook.url, dict(hook.headers)["authorization"]) == (URL, f"Bearer {SECRET}")
    told = json.loads(hook.body)
    assert {key: told[key] for key in ("id", "family", "kind", "path", "model")} == {
        "id": "tw-1",
        "family": "openai_chat",
        "kind": "generate",
        "path": "/v1/chat/completions",
        "model": "m",
    }
    assert told["body"] == json.loads(upstream.body)
    assert SECRET not in repr(hook) + str(upstream.headers)


def test_a_forbidden_request_is_refused_with_the_hooks_reason() -> None:
    """Proves: 403 in the client's family, without characters that a terminal would obey, and nothing leaves."""
    outlet, transport, _ = asked(said(b'{"allow": false, "reason": "no customer data\\u001b[2J"}'))
    error = json.loads(b"".join(outlet.pieces))["error"]
    assert (outlet.status, len(transport.requests)) == (403, 1)
    assert error["message"] == "no customer data<U+001B>[2J"


@pytest.mark.parametrize(
    "reply",
    [
        said(b'{"allow": true}', status=500),
        Reply(status=302, headers={**JSON, "location": "http://127.0.0.1:9001/"}, pieces=(b'{"allow": true}',)),
        said(b"yes"),
        said(b'{"allow": "true"}'),
        said(b'{"allow": true, "reason": "\xff"}'),
        said(b'{"allow": true}' + b" " * 70_000),
        Reply(before=Fault(kind=FaultKind.UNREACHABLE, message="no connection")),
    ],
)
def test_without_a_readable_answer_the_routes_rule_decides(reply: Reply) -> None:
    """Proves: it refuses unless the file says otherwise; an answer that is nearly one is none."""
    outlet, transport, _ = asked(reply)
    assert (outlet.status, len(transport.requests)) == (503, 1)
    outlet, transport, _ = asked(reply, said(ANSWER), otherwise="allow")
    assert (outlet.status, len(transport.requests)) == (200, 2)


def test_a_silent_hook_is_waited_for_two_seconds() -> None:
    """Proves: on the gateway's clock, and not longer."""
    outlet, _, took_s = asked(msgspec.structs.replace(said(b'{"allow": true}'), before=Stall()))
    assert (outlet.status, took_s) == (503, WITHIN_S)


def test_headers_of_the_file_go_to_the_upstream_and_their_secrets_nowhere_else() -> None:
    """Proves: a value from the environment is sent, and hidden where the upstream quotes it."""
    upstream = msgspec.structs.replace(UPSTREAM, headers=("X-Team: search",), headers_env=("X-Team-Key: TEAM_KEY",))
    refusal = json.dumps({"error": {"message": f"no such team: {SECRET}", "type": "invalid_request_error"}}).encode()
    outlet, transport, _ = asked(said(b'{"allow": true}'), said(refusal, status=400), upstream=upstream)
    sent = dict(transport.requests[1].headers)
    assert (sent["x-team"], sent["x-team-key"], sent["authorization"]) == ("search", SECRET, "Bearer k")
    assert outlet.status == 400
    assert SECRET.encode() not in b"".join(outlet.pieces)


@pytest.mark.parametrize(
    "line", ["Authorization: x", "host: x", "Cookie: a=b", "transfer-encoding: chunked", "x-a", "x-a: b\nc: d"]
)
def test_headers_that_the_gateway_writes_itself_are_no_settings(line: str) -> None:
    """Proves: keys, the host, cookies and hop-by-hop headers are an error of the file, which shows no value."""
    with pytest.raises(CallerError) as raised:
        upstream_of(msgspec.structs.replace(UPSTREAM, headers=(line,)))
    assert "chunked" not in str(raised.value)


def test_a_variable_that_is_not_set_is_told_before_anything_is_served() -> None:
    """Proves: for a header and for the hook's key."""
    route = GatewayRoute(upstream=msgspec.structs.replace(UPSTREAM, headers_env=("x-a: NONE_SUCH",)))
    hooked = GatewayRoute(upstream=UPSTREAM, before_request=BeforeRequest(url=URL, key_env="NONE_SUCH"))
    for one in (route, hooked):
        means = ServiceMeans(transport=ScriptedTransport([]), clock=FakeClock(), env=ENV)
        with pytest.raises(CallerError, match="NONE_SUCH"):
            RelayService(GatewayConfig(routes=(one,)), means=means, forward_key=False)
