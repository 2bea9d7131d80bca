"""Routes for one client, and routes that no request can reach."""

import re
from pathlib import Path

import msgspec
import pytest

from gateway.calling import answered, call_of, upstream_at
from gateway.serving import gateway, status_of
from turnwise.errors import CallerError
from turnwise.gateway.client_bounds import ClientKey, add_key
from turnwise.gateway.config import GatewayConfig, GatewayRoute, check_clients


def keys_of(*names: str) -> tuple[ClientKey, ...]:
    return tuple([ClientKey(name=name, sha256="0" * 64, added="2026-11-01") for name in names])


@pytest.mark.parametrize(
    ("one_client", "keys", "said"),
    [
        (True, keys_of("ann", "ben"), "`route` 1 has `one_client = true`, and there are keys of 2 clients"),
        ("cid", keys_of("ann", "ben"), "`route` 1 is for the client `cid`, and there is no such key"),
        ("cid", None, "`route` 1 is for the client `cid`, and there is no such key"),
    ],
)
def test_a_route_for_one_client_is_not_opened_to_several(
    one_client: bool | str, keys: tuple[ClientKey, ...] | None, said: str
) -> None:
    """Under the gateway's key each would read what the others stored at the provider."""
    with pytest.raises(CallerError, match=re.escape(said)):
        check_clients([GatewayRoute(upstream="openai:*", one_client=one_client)], keys=keys)


@pytest.mark.parametrize(
    ("one_client", "keys"),
    [(True, None), (True, ()), (True, keys_of("ann")), ("ann", keys_of("ann", "ben")), (False, keys_of("ann", "ben"))],
)
def test_a_route_whose_client_is_clear_is_served(one_client: bool | str, keys: tuple[ClientKey, ...] | None) -> None:
    """One key, the name of one, or no keys at all: then the gateway listens on loopback alone."""
    check_clients([GatewayRoute(upstream="openai:*", one_client=one_client)], keys=keys)


async def test_a_second_key_is_seen_while_the_gateway_runs(tmp_path: Path) -> None:
    """The service is told with each call whether its client is the only one."""
    path = tmp_path / "keys.json"
    key = add_key(path, "ann", admin=False, today="2026-11-01")
    async with gateway(keys=path) as there:
        assert status_of(await there.said(there.post(authorization=f"Bearer {key}"))) == 200
        add_key(path, "ben", admin=False, today="2026-11-01")
        assert status_of(await there.said(there.post(authorization=f"Bearer {key}"))) == 200
        assert [call.is_only_client for call in there.service.calls] == [True, False]


def test_a_request_on_a_route_that_several_share_is_refused() -> None:
    """Nothing is sent; the error says what to write."""
    call = msgspec.structs.replace(call_of("openai_chat", "plain-answer", stream=False), is_only_client=False)
    route = GatewayRoute(upstream=upstream_at("openai_chat"), one_client=True)
    found = answered(call, route)
    assert (found.outlet.status, found.requests) == (403, [])
    assert b'one_client = \\"NAME\\"' in found.body
    named = msgspec.structs.replace(route, one_client="ann")
    assert answered(msgspec.structs.replace(call, client="ann"), named).outlet.status == 200


ANY = GatewayRoute(upstream="openai:*")
GPT = GatewayRoute(upstream="openai:*", models=("gpt-*",))


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ((GatewayRoute(upstream="openai:*", models=()),), "`route` 1 serves no model"),
        ((ANY, GPT), "`route` 2 is never reached"),
        ((GPT, ANY, GatewayRoute(upstream="openai:*", models=(), aliases={"fast": "x"})), "`route` 3 is never reached"),
        ((GPT, GatewayRoute(upstream="openai:*", models=("gpt-5*", "gpt-4.1"))), "`route` 2 is never reached"),
    ],
)
def test_a_route_that_no_request_can_reach_is_an_error(routes: tuple[GatewayRoute, ...], said: str) -> None:
    """Before anything is served: its author expects that it is used."""
    with pytest.raises(ValueError, match=re.escape(said)):
        GatewayConfig(routes=routes)


@pytest.mark.parametrize(
    "routes",
    [
        (GPT, ANY),
        (GatewayRoute(upstream="openai:*", one_client="ann"), ANY),
        (ANY, GatewayRoute(upstream="openai:*", passes=("/v1/embeddings",))),
        (GatewayRoute(upstream="openai:*", models=(), aliases={"fast": "x"}), ANY),
        (GatewayRoute(upstream="openai:*", models=("gpt-?",)), GatewayRoute(upstream="openai:*", models=("gpt-*",))),
    ],
)
def test_a_route_that_some_request_reaches_is_served(routes: tuple[GatewayRoute, ...]) -> None:
    """Another client's route hides nothing, and paths to pass may name no model."""
    assert GatewayConfig(routes=routes).routes == routes
