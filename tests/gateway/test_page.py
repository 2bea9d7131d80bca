"""The page's doors and figures, asked by programs: who is let in, what a page of another site gets, and what is told."""

import asyncio
import contextlib
import http.client
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.budgeted import add_key
from gateway.paged import HOSTILE, Paged, entry, fill, paged, write
from gateway.served_gateway import served_gateway
from journal.store_conformance import Target
from turnwise import Journal
from turnwise.errors import CallerError
from turnwise.gateway.config import GatewayConfig, GatewayRoute, admin_address
from turnwise.gateway.page_access import SESSION_S, OnceAccess
from turnwise.gateway.page_server import MOST_CONNECTIONS, bind_page
from turnwise.journal.gateway_rows import OwnerChange
from turnwise.journal.request_budgets import UNSPENT
from turnwise.rules.reservations import BudgetPart
from waits import HANG_S

NOW = 1_796_040_000.0  # 2026-11-30, noon in UTC
VIEWS = ("session", "now", "spend", "repairs", "errors", "owners", "tail")
CALLS = (
    *[("GET", f"/page/{name}") for name in VIEWS],
    ("DELETE", "/page/session"),
    ("PUT", "/page/now"),
    ("GET", "/page/unknown"),
    ("HEAD", "/page/now"),
    *[("GET", f"/admin/{name}") for name in ("keys", "users", "teams", "audit", "usage")],
    ("POST", "/admin/keys"),
    ("PATCH", "/admin/keys/ci"),
    ("DELETE", "/admin/keys/ci"),
    ("POST", "/admin/keys/ci/rotate"),
    ("GET", "/unknown"),
)


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return tmp_path / "j.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await work()

    asyncio.run(bounded())


def admin_key(target: Target, name: str = "boss") -> str:
    return add_key(target, OwnerChange(rights="admin"), name=name)


async def statuses(page: Paged, *, cookie: str = "", **headers: str) -> set[int]:
    bodies = {"POST": {"name": "x"}, "PATCH": {}, "PUT": {}}
    return {(await page.ask(how, path, bodies.get(how), cookie=cookie, **headers))[0] for how, path in CALLS}


def test_every_call_without_the_cookie_is_401(target: Target) -> None:
    """Proves: no cookie, a foreign one, a long one, two at once, the keys of clients and of Prometheus open nothing, and what is
    told to anybody has no figure."""
    admin_key(target)
    weak = [add_key(target, OwnerChange(rights=rights), name=f"weak{rights}") for rights in ("", "metrics")]

    async def work() -> None:
        async with paged(target) as page:
            name = f"turnwise-page-{page.url.rpartition(':')[2]}"
            for cookie in ("", f"{name}=wrong", f"{name}={'x' * 9000}", f"{name}=", f"{name}=a; {name}=b", "other=1"):
                assert await statuses(page, cookie=cookie) == {401}, cookie
            for key in weak:
                async with paged(target) as other:  # each has five guesses of its own
                    assert (await other.ask("GET", "/page/now", authorization=f"Bearer {key}"))[0] == 401
                    assert (await other.ask("GET", "/admin/keys", authorization=f"Bearer {key}"))[0] == 403
                    assert (await other.ask("POST", "/page/session", {"key": key}))[0] == 401
                    tried = [(row.who, row.action, row.place) for row in other.shared.book.audit()[-2:]]
                    assert [row[1:] for row in tried] == [
                        ("GET /admin/keys", "127.0.0.1"),
                        ("sign in", "127.0.0.1, page"),
                    ]
            for path in ("/", "/page.js", "/page.css", "/icon.svg"):
                status, headers, _ = await page.ask("GET", path)
                policy = headers["content-security-policy"]
                assert (status, headers["x-content-type-options"]) == (200, "nosniff")
                assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
            assert (await page.ask("GET", "/../gateway/page.py"))[0] == 401
            form = {"content_type": "application/x-www-form-urlencoded"}
            assert (await page.ask("POST", "/admin/keys", {"name": "x"}, **form))[0] == 401

    run(work)


def test_the_cookie_opens_everything_until_its_key_is_revoked(target: Target) -> None:
    """Proves: the cookie has every attribute, another process knows it, its end is an end, and a key that is rotated or revoked
    takes its sessions with it, a running tail included."""
    key, other = admin_key(target), admin_key(target, "second")

    async def work() -> None:
        async with paged(target) as page, paged(target) as elsewhere:
            status, headers, _ = await page.ask("POST", "/page/session", {"key": key}, origin=page.url)
            fields = [part.strip() for part in headers["set-cookie"].split(";")]
            assert status == 200
            assert fields[1:] == ["Path=/", f"Max-Age={SESSION_S:.0f}", "HttpOnly", "SameSite=Strict"]
            assert SESSION_S == 8 * 3600
            cookie, word = await page.sign_in(key)
            assert (await page.ask("GET", "/page/now", cookie=cookie))[0] == 200
            moved = cookie.replace(page.url.rpartition(":")[2], elsewhere.url.rpartition(":")[2])
            assert (await elsewhere.ask("GET", "/page/owners", cookie=moved))[0] == 200
            second, second_word = await page.sign_in(other)
            assert (await page.ask("DELETE", "/page/session", cookie=cookie, x_turnwise_page=word))[0] == 200
            assert await statuses(page, cookie=cookie) == {401}
            assert (await page.ask("GET", "/page/now", cookie=second))[0] == 200
            cookie, _ = await page.sign_in(key)
            timeout = aiohttp.ClientTimeout(total=HANG_S)
            async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
                response = await session.get(page.url + "/page/tail", headers={"cookie": cookie})
                assert response.content_type == "text/event-stream"
                how = {"cookie": second, "x_turnwise_page": second_word}
                assert (await page.ask("DELETE", "/admin/keys/boss", **how))[0] == 200
                assert await statuses(page, cookie=cookie) == {401}
                await response.read()  # ends by itself
            assert (await page.ask("POST", "/page/session", {"key": key}))[0] == 401
            assert (await page.ask("POST", "/admin/keys/second/rotate", **how))[0] == 200
            assert await statuses(page, cookie=second) == {401}

    run(work)


def test_over_tls_a_cookie_goes_to_this_host_alone(tmp_path: Path) -> None:
    """Proves: `Secure` and `__Host-` with TLS of our own, and with a proxy's, of which the browser itself tells."""
    key = admin_key(tmp_path / "j.db")

    async def work() -> None:
        for is_tls in (True, False):
            async with paged(tmp_path / "j.db", is_tls=is_tls) as page:
                origin = page.url.replace("http:", "https:")
                _, headers, told = await page.ask("POST", "/page/session", {"key": key}, origin=origin)
                name, *fields = headers["set-cookie"].split("; ")
                assert name.startswith("__Host-turnwise-page-") and "Secure" in fields and "Path=/" in fields
                assert (await page.ask("GET", "/page/now", cookie=name))[0] == 200
                ended = await page.ask(
                    "DELETE", "/page/session", cookie=name, origin=origin, x_turnwise_page=told["csrf"]
                )
                assert (
                    ended[1]["set-cookie"].startswith("__Host-turnwise-page-") and "Max-Age=0" in ended[1]["set-cookie"]
                )

    run(work)


def test_a_session_ends_after_eight_hours(tmp_path: Path) -> None:
    """Proves: by the gateway's clock, whatever the browser keeps."""
    key, times = admin_key(tmp_path / "j.db"), [NOW]

    async def work() -> None:
        async with paged(tmp_path / "j.db", now=lambda: times[0]) as page:
            cookie, _ = await page.sign_in(key)
            times[0] += SESSION_S - 1
            assert (await page.ask("GET", "/page/session", cookie=cookie))[0] == 200
            times[0] += 2
            assert await statuses(page, cookie=cookie) == {401}

    run(work)


def test_a_page_of_another_site_reads_and_changes_nothing(tmp_path: Path) -> None:
    """Proves: with the cookie that a browser would send, a foreign `Host`, `Origin` or `Sec-Fetch-Site` is refused, and so is a
    change without the word of the session, with a wrong one, or with that of another session."""
    key = admin_key(tmp_path / "j.db")

    async def work() -> None:
        async with paged(tmp_path / "j.db") as page:
            cookie, word = await page.sign_in(key)
            _, other = await page.sign_in(key)
            port = page.url.rpartition(":")[2]
            foreign: list[dict[str, str]] = [
                {"host": "evil.example.org"},
                {"host": f"evil.example.org:{port}"},
                {"origin": "https://evil.example.org"},
                {"origin": "null"},
                {"origin": "http://127.0.0.1:1"},
                {"sec_fetch_site": "cross-site"},
                {"sec_fetch_site": "same-site"},
            ]
            for headers in foreign:
                assert await statuses(page, cookie=cookie, x_turnwise_page=word, **headers) == {403}, headers
                assert (await page.ask("POST", "/page/session", {"key": key}, **headers))[0] == 403
            changes = [call for call in CALLS if call[0] not in ("GET", "HEAD")]
            for told in ({}, {"x_turnwise_page": ""}, {"x_turnwise_page": "0" * 64}, {"x_turnwise_page": other}):
                for how, path in changes:
                    body = None if how == "DELETE" else {}
                    status, _, answer = await page.ask(how, path, body, cookie=cookie, origin=page.url, **told)
                    assert (status, answer["error"]["code"]) == (403, "csrf"), (how, path, told)
            form = {"content_type": "application/x-www-form-urlencoded"}
            made = await page.ask("POST", "/admin/keys", {"name": "x"}, cookie=cookie, x_turnwise_page=word, **form)
            assert made[0] == 415
            sent = {"cookie": cookie, "x_turnwise_page": word, "origin": page.url, "sec_fetch_site": "same-origin"}
            assert (await page.ask("POST", "/admin/keys", {"name": "x"}, **sent))[0] == 201
            assert list(page.shared.book.owners().keys) == ["boss", "x"]
            assert page.shared.book.audit()[-1].place == "127.0.0.1, page"
            assert "access-control-allow-origin" not in (await page.ask("GET", "/page/now", **sent))[1]

    run(work)


def test_five_wrong_keys_a_minute(tmp_path: Path) -> None:
    """Proves: the sixth key of an address is not looked at, right or wrong, also where all come at once; a minute later it is."""
    key, times = admin_key(tmp_path / "j.db"), [100.0]

    async def work() -> None:
        async with paged(tmp_path / "j.db", monotonic=lambda: times[0]) as page:
            cookie, _ = await page.sign_in(key)
            many = [page.ask("POST", "/page/session", {"key": f"tw-{number}"}) for number in range(20)]
            found = sorted([status for status, *_ in await asyncio.gather(*many)])
            assert found == [401] * 5 + [429] * 15
            status, headers, _ = await page.ask("POST", "/page/session", {"key": key})
            assert (status, 0 < int(headers["retry-after"]) <= 60) == (429, True)
            assert (await page.ask("GET", "/page/now", cookie=cookie))[0] == 200
            bearers = [{"authorization": f"Bearer tw-{number}"} for number in range(6)]
            assert [(await page.ask("GET", "/admin/keys", **one))[0] for one in bearers] == [401] * 5 + [429]
            times[0] += 61
            assert (await page.ask("POST", "/page/session", {"key": key}))[0] == 200
            assert (await page.ask("GET", "/admin/keys", authorization=f"Bearer {key}"))[0] == 200
            for body in ({"key": 1}, [], {"other": "x"}, {"key": key + "x" * 60_000}):
                assert (await page.ask("POST", "/page/session", body))[0] in (400, 401)
            assert (await page.ask("POST", "/page/session", {"key": "x" * 70_000}))[0] == 413

    run(work)


def test_slow_connections_keep_nobody_out(tmp_path: Path) -> None:
    """Proves: more of them than the page has room for, silent or in the middle of a request, and the operator still signs in."""
    key = admin_key(tmp_path / "j.db")

    async def work() -> None:
        async with paged(tmp_path / "j.db") as page:
            host = page.url.partition("//")[2]
            whole = f"GET /page.css HTTP/1.1\r\nhost: {host}\r\n\r\n"
            part = f"POST /page/session HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{"
            slow: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
            for number in range(MOST_CONNECTIONS + 60):
                slow.append(await asyncio.open_connection("127.0.0.1", int(host.rpartition(":")[2])))
                slow[-1][1].write(("", "GET / HTTP/1.1\r\n", part, whole)[number % 4].encode())
            cookie, _ = await page.sign_in(key)
            assert (await page.ask("GET", "/page/now", cookie=cookie))[0] == 200
            with contextlib.suppress(ConnectionError):
                assert await slow[0][0].read() == b""
            for _, writer in slow:
                writer.transport.abort()

    run(work)


def test_the_figures_are_those_of_the_ledger(target: Target) -> None:
    """Proves: minutes, first tokens, sums by day, model and team, budgets, repairs and failed requests, over both databases;
    nothing of a digest or a key; texts of a client are told as they are, as JSON."""
    key = admin_key(target)
    with Journal(target) as journal:
        fill(journal, now=NOW)
        part = BudgetPart((1, 100, Decimal("0.5")), "somebody")
        for month, used, parts in (
            ("2026-11-01", (7, 900, Decimal("41.25")), {"x": part}),
            ("2026-10-01", (1, 1, 1), {}),
        ):
            state = msgspec.structs.replace(UNSPENT, used=used, parts=parts)
            row = (f"gateway/key/ci/month/{month}", msgspec.json.encode(state).decode(), NOW)
            statement = "insert into budget (name, state, updated) values (?, ?, ?)"
            journal.gateway.store.execute_all([(statement, row)])
        write(journal, entry(900, at=NOW - 5, client="ci", outcome=None))
        write(journal, entry(901, at=NOW - 4, client="ci", outcome="rate_limited", model=HOSTILE))

    async def work() -> None:
        async with paged(target, now=lambda: NOW) as page:
            cookie, _ = await page.sign_in(key)

            async def seen(path: str) -> Any:
                status, _, told = await page.ask("GET", path, cookie=cookie)
                assert status == 200, told
                return told

            now = await seen("/page/now")
            assert sum(one["requests"] for one in now["minutes"]) == 8
            assert sum(one["failed"] for one in now["minutes"]) == 2
            assert all(NOW / 60 - 60 < one["minute"] <= NOW / 60 for one in now["minutes"])
            assert (now["open"], now["first_token"]["of"]) == (3, 5)
            assert 0.25 <= now["first_token"]["p50"] <= now["first_token"]["p99"] <= 0.6
            assert [(one["name"], one["left_alone"]) for one in now["upstreams"]] == [
                ("openai at https://api.example.org/v1 (KEY)", False),
                ('a "quoted" one', True),
            ]
            spend = await seen("/page/spend?days=7")
            paid = Decimal("0.0125") * 15
            assert {by: sum(Decimal(row["usd"]) for row in spend[by]) for by in ("day", "model", "team")} == {
                "day": paid,
                "model": paid,
                "team": paid,
            }
            assert [row["name"] for row in spend["team"]] == ["web", "data"]
            assert [row["name"] for row in (await seen("/page/spend?days=1"))["day"]] == [spend["day"][-1]["name"]]
            errors = (await seen("/page/errors"))["rows"]
            assert (errors[0]["request"], errors[0]["outcome"], errors[0]["model"]) == (
                "tw-000901",
                "rate_limited",
                HOSTILE,
            )
            (repaired,) = (await seen("/page/repairs?days=999999999999"))["providers"]
            assert [(one["kind"], one["whose"]) for one in repaired["kinds"]] == [
                ("continued_text", "limit"),
                ("finish_hides_calls", "provider"),
                ("index_missing", "provider"),
            ]
            assert all(one["rule"] and one["source"] for one in repaired["kinds"])
            owners = await seen("/page/owners")
            assert [one["name"] for one in owners["keys"]] == ["ann-laptop", "batch", "boss", "ci"]
            assert owners["budgets"]["key/ci"] == {"requests/month": "8", "tokens/month": "1000", "usd/month": "41.75"}
            assert [(one["name"], one["limits"]) for one in owners["teams"]] == [("web", {"usd/month": "500"})]
            told = msgspec.json.encode([now, spend, errors, repaired, owners]).decode()
            held = [one.sha256 for one in page.shared.book.owners().keys.values()]
            assert not any(secret in told for secret in (key, *held))

    run(work)


def test_the_page_has_an_address_of_its_own(tmp_path: Path) -> None:
    """Proves: `turnwise gateway --admin` tells both addresses; the page is not on the clients' port, and neither is `/admin`; a
    live view that is open holds up no end; an address that cannot be, or is the clients' own, is refused."""
    env = {"TURNWISE_STATE_DIR": str(tmp_path / "state")}
    words = ("--admin", "127.0.0.1:0", "--quiet")
    with served_gateway(tmp_path, *words, upstream="http://127.0.0.1:9/v1", env=env) as gateway:
        key = gateway.run("gateway", "keys", "add", "--admin", "boss").split()[-1]
        gateway.wait_until_open(key)
        assert gateway.admin and gateway.admin.rpartition(":")[2] != str(gateway.port)
        assert b"unknown_path" in gateway.get("/admin/keys", authorization=f"Bearer {key}")
        assert b"unknown_path" in gateway.get("/page/session", authorization=f"Bearer {key}")
        connection = http.client.HTTPConnection(gateway.admin.removeprefix("http://"), timeout=HANG_S)
        connection.request(
            "POST", "/page/session", msgspec.json.encode({"key": key}), {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        assert answer.read() and answer.status == 200
        connection.request("GET", "/page/tail", headers={"cookie": answer.headers["set-cookie"].partition(";")[0]})
        tail = connection.getresponse()
        assert tail.readline() == b": live\n"
        assert "Traceback" not in gateway.end()
        assert gateway.process.returncode == 0
        with contextlib.suppress(http.client.IncompleteRead):
            assert b"data:" not in tail.read()
        connection.close()

    with pytest.raises(CallerError, match="clients' port"):
        bind_page(_config("127.0.0.1:8484"))
    for wrong in ("8485", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "http://127.0.0.1:1", ":8485"):
        with pytest.raises(ValueError, match="`admin` cannot be"):
            _config(wrong)
    assert [admin_address(one) for one in ("[::1]:8485", "localhost:0")] == [("::1", 8485), ("localhost", 0)]


def _config(admin: str) -> GatewayConfig:
    return GatewayConfig(routes=(GatewayRoute(upstream="http://127.0.0.1:9/v1"),), admin=admin)


def test_a_key_of_one_use_opens_one_session() -> None:
    """Proves: whoever reads the printed address later gets nothing; the session ends after eight hours."""
    times = [NOW]
    access = OnceAccess(now=lambda: times[0])
    assert access.open("x" * 43, place="") is None and access.user_of("") is None
    opened = access.open(access.key, place="")
    assert opened is not None and access.open(access.key, place="") is None
    user, token = opened
    assert (user.client, access.user_of(token), access.user_of_key(access.key)) == (None, user, None)
    times[0] += SESSION_S + 1
    assert access.user_of(token) is None
