"""Keys, users and teams over HTTP: who may, what is told, and what stays behind in the audit log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.budgeted import BY, add_key
from gateway.serving import CHAT, Echo
from journal.store_conformance import Target
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.gateway.admin import MINUTE_S, MOST_TRIES, AdminApi
from turnwise.gateway.app import DoorRules, GatewayApp
from turnwise.gateway.client_bounds import ClientKey, KeyRing
from turnwise.gateway.doors import DoorRefusal
from turnwise.gateway.serve import BoundSocket, serve
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.gateway_rows import OwnerChange, digest_of
from waits import HANG_S


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return tmp_path / "j.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


class Administered:
    def __init__(self, url: str) -> None:
        self._url = url

    async def ask(self, key: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"authorization": f"Bearer {key}"}
        timeout = aiohttp.ClientTimeout(total=HANG_S)
        sent = {} if body is None else {"json": body}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, self._url + path, headers=headers, **sent) as response,
        ):
            return response.status, msgspec.json.decode(await response.read())


@asynccontextmanager
async def administered(target: Target) -> AsyncIterator[Administered]:
    shared = SharedClients(Journal(target), now=SystemClock().now)
    listening = BoundSocket("127.0.0.1", 0)
    ring = KeyRing(Path("/nonexistent/keys.json"), shared=shared)
    app = GatewayApp(Echo(), rules=DoorRules(), keys=ring, admin=AdminApi(shared))
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(app, listening, bounds=DoorRules().bounds, grace_s=HANG_S, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), HANG_S)
        yield Administered(listening.url)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        shared.close()


def test_a_key_is_made_changed_rotated_and_revoked_over_http(target: Target) -> None:
    """Proves: each change counts at once in this gateway, a new key is told once, lists hold no secret, and mistakes have the
    status that a program expects."""
    admin = add_key(target, OwnerChange(rights="admin"), name="boss")

    async def run() -> None:
        async with administered(target) as there:
            body = {"name": "ci", "team": "web", "limits": {"usd/month": "50"}, "expires": "2036-01-01T00:00:00Z"}
            status, made = await there.ask(admin, "POST", "/admin/keys", body)
            key = made["key"]
            assert (status, sorted(made)) == (201, ["key", "name"])
            assert (await there.ask(key, "POST", CHAT, {}))[0] == 200
            status, changed = await there.ask(
                admin, "PATCH", "/admin/keys/ci", {"limits": {"usd/month": None, "streams": 4}, "models": ["gpt-*"]}
            )
            assert (status, changed["limits"], changed["models"], changed["team"]) == (
                200,
                {"streams": "4"},
                ["gpt-*"],
                "web",
            )
            assert (await there.ask(admin, "PATCH", "/admin/teams/web", {"limits": {"tokens/day": 1000}}))[0] == 200
            _, teams = await there.ask(admin, "GET", "/admin/teams")
            assert [(one["name"], one["limits"]) for one in teams["teams"]] == [("web", {"tokens/day": "1000"})]
            _, rotated = await there.ask(admin, "POST", "/admin/keys/ci/rotate")
            opens = [(await there.ask(one, "POST", CHAT, {}))[0] for one in (key, rotated["key"])]
            assert opens == [401, 200]
            assert (await there.ask(admin, "DELETE", "/admin/keys/ci"))[1]["revoked"]
            assert (await there.ask(rotated["key"], "POST", CHAT, {}))[0] == 401
            listed = msgspec.json.encode((await there.ask(admin, "GET", "/admin/keys"))[1]).decode()
            assert not any(secret in listed for one in (key, rotated["key"], admin) for secret in (one, digest_of(one)))
            wrong: list[tuple[str, str, object, int]] = [
                ("POST", "/admin/keys", {"name": "ci"}, 409),
                ("POST", "/admin/keys", {"name": "a/b"}, 400),
                ("POST", "/admin/keys", {"name": "x", "limit": {}}, 400),
                ("POST", "/admin/keys", {"name": "x", "limits": {"usd/year": 1}}, 400),
                ("PATCH", "/admin/keys/nobody", {}, 404),
                ("DELETE", "/admin/teams/web", None, 404),
                ("GET", "/admin/secrets", None, 404),
                ("GET", "/admin/usage?by=planet", None, 400),
            ]
            found = [(await there.ask(admin, method, path, body))[0] for method, path, body, _ in wrong]
            assert found == [status for *_, status in wrong]
            assert (await there.ask(admin, "GET", "/admin/usage?by=team&since=0"))[1] == {"rows": []}

    asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_a_key_without_the_right_is_refused_and_that_is_in_the_audit_log(target: Target) -> None:
    """Proves: a key that opens /metrics makes no keys; who tried what from where is written down, with refused changes of the
    command line beside it, and nothing of it can be changed."""
    key = add_key(target, OwnerChange(rights="metrics"), name="prometheus")

    async def run() -> list[int]:
        async with administered(target) as there:
            tried = (("POST", "/admin/keys", {"name": "mine", "rights": "admin"}), ("GET", "/admin/audit", None))
            return [(await there.ask(who, *one))[0] for who in (key, "tw-unknown") for one in tried]

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == [403, 403, 401, 401]
    with Journal(target) as journal:
        with pytest.raises(Exception, match="there is a key `prometheus` already"):
            add_key(target, name="prometheus")
        rows = journal.gateway.audit()
        assert journal.gateway.owners().keys.keys() == {"prometheus"}
    assert [(row.who, row.place, row.action, bool(row.refused)) for row in rows] == [
        (BY.who, BY.place, "add", False),
        ("key prometheus", "127.0.0.1", "POST /admin/keys", True),
        ("key prometheus", "127.0.0.1", "GET /admin/audit", True),
        ("no known key", "127.0.0.1", "POST /admin/keys", True),
        ("no known key", "127.0.0.1", "GET /admin/audit", True),
        (BY.who, BY.place, "add", True),
    ]


def test_each_refused_change_is_in_the_audit_log_once_and_no_key_is(target: Target) -> None:
    """Proves: by whatever it was refused; a key that was written where a name belongs is not in it; a key of the older file has
    no right; and a client that tries again and again fills no table."""
    admin = add_key(target, OwnerChange(rights="admin"), name="boss")
    slip = f"tw-{'Ab0_' * 10}xyz"
    tried: list[tuple[str, str, object, int]] = [
        ("PATCH", "/admin/keys/nobody", {}, 404),
        ("PATCH", "/admin/teams/web", {"limits": {"usd/year": 1}}, 400),
        ("PATCH", "/admin/teams/web", {"zone": "Nowhere/Land"}, 400),
        ("POST", "/admin/keys", {"name": "x", "limit": {}}, 400),
        ("POST", "/admin/keys", {"name": "x", "limits": {"usd/year": 1}}, 400),
        ("POST", "/admin/keys", {"name": slip + "/"}, 400),
        ("POST", "/admin/keys", {"name": "boss"}, 409),
        ("POST", f"/admin/keys/{slip}/rotate", None, 404),
        ("DELETE", f"/admin/keys/{slip}", None, 404),
        ("DELETE", "/admin/teams/web", None, 404),
    ]

    async def run() -> list[int]:
        async with administered(target) as there:
            return [(await there.ask(admin, method, path, body))[0] for method, path, body, _ in tried]

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == [status for *_, status in tried]
    with Journal(target) as journal:
        rows = journal.gateway.audit()[1:]
        assert journal.gateway.owners().keys.keys() == {"boss"}
    assert [(row.who, bool(row.refused), row.changes) for row in rows] == [("key boss", True, {})] * len(tried)
    assert slip not in msgspec.json.encode(rows).decode() and "(a key)" in rows[-2].name

    now_s = 0.0
    shared = SharedClients(Journal(target), now=SystemClock().now)
    api = AdminApi(shared, monotonic=lambda: now_s)
    old = ClientKey(name="of-the-file", sha256="0" * 64, admin=True, added="2026-01-01")
    call = api.call("POST", "/admin/keys", query=(), body=b'{"name":"mine"}', client=old, place="10.0.0.7")

    async def flood() -> list[int]:
        found = [await api.answer(call) for _ in range(MOST_TRIES + 2)]
        return [one.status for one in found if isinstance(one, DoorRefusal)]

    assert asyncio.run(flood()) == [403] * MOST_TRIES + [429] * 2
    now_s += MINUTE_S
    assert asyncio.run(flood())[0] == 403
    shared.close()
    with Journal(target) as journal:
        told = [(row.who, row.place) for row in journal.gateway.audit()[1 + len(tried) :]]
    assert told == [("key of-the-file", "10.0.0.7")] * 2 * MOST_TRIES
