"""What clients of a served gateway see: the paths, the doors, the keys, and errors in their own family."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.serving import CHAT, JSON, Gateway, error_of, gateway, status_of
from turnwise.gateway.app import DoorRules
from turnwise.gateway.client_bounds import Bounds, add_key, revoke_key
from turnwise.gateway.doors import EXPOSED, ClientCall
from waits import HANG_S

PAGE = "https://chat.example"


async def ask(
    there: Gateway,
    path: str = CHAT,
    *,
    method: str = "POST",
    body: bytes = b"{}",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers in lower case, body."""
    timeout = aiohttp.ClientTimeout(total=HANG_S)
    every = {**(JSON if method == "POST" else {}), **(headers or {})}
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.request(method, there.url + path, data=body if method == "POST" else None, headers=every) as response,
    ):
        return response.status, {key.lower(): value for key, value in response.headers.items()}, await response.read()


def echoed(path: str, family: str, **more: Any) -> dict[str, Any]:
    plain = {
        "query": [],
        "headers": [],
        "kind": "generate",
        "model": None,
        "streams": False,
        "client": "",
        "client_key": "",
    }
    return {"path": path, "family": family, **plain, "bytes": 2, **more}


@pytest.mark.parametrize(
    ("path", "call"),
    [
        (CHAT, echoed(CHAT, "openai_chat")),
        ("/v1/responses", echoed("/v1/responses", "openai_responses")),
        ("/v1/messages?beta=true", echoed("/v1/messages", "anthropic_messages", query=[["beta", "true"]])),
        ("/v1/messages/count_tokens", echoed("/v1/messages/count_tokens", "anthropic_messages", kind="count")),
        (
            "/v1beta/models/a%2Fb:streamGenerateContent?alt=sse&key=secret",
            echoed(
                "/v1beta/models/a%2Fb:streamGenerateContent",
                "gemini",
                query=[["alt", "sse"]],
                model="a/b",
                streams=True,
            ),
        ),
        ("/v1/embeddings", echoed("/v1/embeddings", "openai_chat", kind="passed")),
    ],
)
async def test_a_call_reaches_the_service_with_what_its_path_says(path: str, call: dict[str, Any]) -> None:
    """Each family's paths, and one that the configuration lists; without anything that carries a key."""
    async with gateway(DoorRules(passes=frozenset({"/v1/embeddings"}))) as there:
        secrets = {"authorization": "Bearer secret", "x-api-key": "secret", "cookie": "secret"}
        timeout = aiohttp.ClientTimeout(total=HANG_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            import yarl

            url = yarl.URL(there.url + path, encoded=True)
            async with session.post(url, data=b"{}", headers={**JSON, **secrets}) as response:
                assert (response.status, msgspec.json.decode(await response.read())) == (200, call)


async def test_models_are_listed_in_the_clients_family() -> None:
    """Three families share a path: Anthropic's clients say their version, Google's have a header for their key."""
    async with gateway() as there:
        version = {"anthropic-version": "2023-06-01"}
        google = {"x-goog-api-key": "any"}
        found = [await ask(there, "/v1/models", method="GET", headers=headers) for headers in ({}, version, google)]
        found.append(await ask(there, "/v1beta/models", method="GET"))
        assert [(status, msgspec.json.decode(body)["family"]) for status, _, body in found] == [
            (200, "openai_chat"),
            (200, "anthropic_messages"),
            (200, "gemini"),
            (200, "gemini"),
        ]


async def test_health_and_readiness_are_told_apart() -> None:
    """A gateway that is not ready is alive."""
    async with gateway() as there:
        there.service.ready = False
        found = [await ask(there, path, method="GET") for path in ("/healthz", "/readyz")]
        there.service.ready = True
        found.append(await ask(there, "/readyz", method="GET"))
        assert [(status, body) for status, _, body in found] == [
            (200, b'{"status":"ok"}'),
            (503, b'{"status":"not ready"}'),
            (200, b'{"status":"ok"}'),
        ]


@pytest.mark.parametrize(
    ("method", "path", "status", "word"),
    [
        ("POST", "/v1/embeddings", 404, "the gateway has no such path"),
        ("GET", "/v1/files", 404, "the gateway has no such path"),
        ("GET", "/", 404, "the gateway has no such path"),
        ("POST", "//v1/chat/completions", 404, "the gateway has no such path"),
        ("GET", CHAT, 405, "this path takes POST"),
        ("POST", "/v1/models", 405, "this path takes GET"),
        ("DELETE", "/v1/responses", 405, "this path takes POST"),
    ],
)
async def test_other_paths_are_refused_with_the_reason(method: str, path: str, status: int, word: str) -> None:
    """The service hears of none of them."""
    async with gateway() as there:
        answer = await there.said(there.head(path, method=method, connection="close") + b"\r\n")
        assert (status_of(answer), word in error_of(answer)["message"], there.service.calls) == (status, True, [])


async def test_a_request_id_goes_through_all_of_it() -> None:
    """The client's own where it is harmless, else a new one; on answers and refusals."""
    async with gateway() as there:
        _, kept, _ = await ask(there, headers={"x-request-id": "req-1"})
        _, made, _ = await ask(there, headers={"x-request-id": "a b"})
        _, refused, _ = await ask(there, "/v1/none", headers={"x-request-id": "req-2"})
        assert [call.id for call in there.service.calls] == ["req-1", made["x-request-id"]]
        assert (kept["x-request-id"], refused["x-request-id"]) == ("req-1", "req-2")
        assert made["x-request-id"].startswith("tw-")


async def test_pages_of_listed_origins_alone_are_served() -> None:
    """With the headers that a browser wants to see, also on errors and before it asks; others get none and no answer."""
    async with gateway(DoorRules(origins=frozenset({PAGE}))) as there:
        wanted = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "x-a"}
        status, before, body = await ask(there, method="OPTIONS", headers=wanted)
        assert (status, body, before["access-control-allow-origin"], before["access-control-allow-headers"]) == (
            204,
            b"",
            PAGE,
            "x-a",
        )
        for path, expected in ((CHAT, 200), ("/v1/none", 404)):
            status, headers, _ = await ask(there, path, headers={"origin": PAGE})
            cors = (headers["access-control-allow-origin"], headers["access-control-expose-headers"], headers["vary"])
            assert (status, cors) == (expected, (PAGE, EXPOSED, "origin"))
        for origin in ("https://evil.example", "null", there.url):
            for method in ("POST", "OPTIONS", "GET"):
                status, headers, body = await ask(there, method=method, headers={**wanted, "origin": origin})
                assert (status, [key for key in headers if key.startswith("access-control")]) == (403, [])
                assert "Origin" in msgspec.json.decode(body)["error"]["message"]
        assert len(there.service.calls) == 1


@pytest.mark.parametrize("path", [CHAT, "/metrics", "/v1/models"])
async def test_a_name_that_leads_here_is_no_host(path: str) -> None:
    """DNS rebinding: a page's own name, which its owner has lead to 127.0.0.1. A listed name is answered."""
    async with gateway(DoorRules(hosts=frozenset({"gate.example"}))) as there:
        method = "POST" if path == CHAT else "GET"
        found = [
            status_of(await there.said(there.post(path=path, host=host).replace(b"POST", method.encode(), 1)))
            for host in (f"evil.example:{there.port}", f"localhost:{there.port + 1}", "gate.example")
        ]
        assert found == [403, 403, 200]


@pytest.mark.parametrize("host", ["10.42.0.7:8484", "evil.example", "a", ""])
async def test_a_probe_comes_by_any_name(host: str, tmp_path: Path) -> None:
    """A cluster asks by the address that it gave. What is told is the same for everybody, key or not; nothing else is open."""
    add_key(tmp_path / "keys.json", "one", admin=False, today="2026-11-30")
    async with gateway(keys=tmp_path / "keys.json") as there:
        found = [
            await there.said(there.head(path, method="GET", host=host, connection="close") + b"\r\n")
            for path in ("/healthz", "/readyz", "/metrics")
        ]
        assert [status_of(one) for one in found] == [200, 200, 403]
        assert {one.partition(b"\r\n\r\n")[2] for one in found[:2]} == {b'{"status":"ok"}'}


@pytest.mark.parametrize(("network", "status"), [("127.0.0.0/8", 200), ("10.0.0.0/8", 401)])
async def test_the_counts_are_open_to_a_network_by_the_address_of_the_peer(
    network: str, status: int, tmp_path: Path
) -> None:
    """Whatever it sends as `Host`; a key is not asked for there, and everything else asks for one."""
    add_key(tmp_path / "keys.json", "one", admin=False, today="2026-11-30")
    rules = DoorRules(metrics=(network,), hosts=frozenset({"10.0.0.0/8"}))
    async with gateway(rules, keys=tmp_path / "keys.json") as there:
        found = [
            await there.said(there.head(path, method="GET", host="10.0.0.1", connection="close") + b"\r\n")
            for path in ("/metrics", "/v1/models")
        ]
        assert [status_of(one) for one in found] == [status, 401]


@pytest.mark.parametrize("type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_page_cannot_send_without_asking_first(type: str) -> None:
    """The types that a browser sends without a preflight are refused, each in the client's family."""
    async with gateway() as there:
        status, _, body = await ask(there, "/v1/messages", headers={"content-type": type})
        error = msgspec.json.decode(body)
        assert (status, error["type"], error["error"]["type"]) == (415, "error", "invalid_request_error")


async def test_with_keys_every_request_needs_one_and_metrics_an_admins(tmp_path: Path) -> None:
    """In each place where a client of the four families puts it. A key that is revoked opens nothing from then on."""
    path = tmp_path / "keys.json"
    async with gateway(DoorRules(origins=frozenset({PAGE})), keys=path) as there:
        assert (await ask(there))[0] == 200
        plain, admin = [add_key(path, name, admin=name == "admin", today="2026-11-23") for name in ("plain", "admin")]
        shown = [
            (CHAT, {"authorization": f"Bearer {plain}"}),
            ("/v1/messages", {"x-api-key": plain}),
            (CHAT, {"api-key": plain}),
            ("/v1beta/models/m:generateContent", {"x-goog-api-key": plain}),
            (f"/v1beta/models/m:generateContent?key={plain}", {}),
        ]
        assert [(await ask(there, path, headers=headers))[0] for path, headers in shown] == [200] * 5
        assert [(call.client, call.client_key) for call in there.service.calls[1:]] == [("plain", "")] * 5
        wrong = [
            {},
            {"authorization": "Bearer tw-wrong"},
            {"authorization": plain},
            {"authorization": f"Basic {plain}"},
        ]
        assert [(await ask(there, headers=headers))[0] for headers in wrong] == [401] * 4
        assert [(await ask(there, path, method="GET"))[0] for path in ("/healthz", "/readyz")] == [200, 200]
        assert (await ask(there, method="OPTIONS", headers={"origin": PAGE}))[0] == 204
        assert (await ask(there, headers={"origin": PAGE}))[0] == 401
        assert [(await ask(there, path, method="GET"))[0] for path in ("/v1/models", "/v1/none")] == [401, 401]
        asked = [await ask(there, "/metrics", method="GET", headers={"x-api-key": key}) for key in (plain, admin, "no")]
        assert [status for status, _, _ in asked] == [403, 200, 401]
        assert (asked[1][1]["content-type"], asked[1][2]) == (
            "text/plain; version=0.0.4; charset=utf-8",
            b"turnwise_requests_total 1\n",
        )
        revoke_key(path, "plain")
        assert (await ask(there, headers=shown[0][1]))[0] == 401
        assert len(there.service.calls) == 6


async def test_a_key_goes_up_only_if_it_is_to_be_forwarded(tmp_path: Path) -> None:
    """With the gateway's own keys a client shows two: the one for the gateway stays here."""
    path = tmp_path / "keys.json"
    own = add_key(path, "plain", admin=False, today="2026-11-23")
    old = add_key(path, "old", admin=False, today="2026-11-23")
    revoke_key(path, "old")
    shown = [{"x-api-key": "sk-theirs"}, {}, {"x-api-key": old, "x-goog-api-key": "AIza-theirs"}, {"x-api-key": own}]
    async with gateway(DoorRules(forward_key=True), keys=path) as there:
        for headers in shown:
            assert (await ask(there, "/v1/messages", headers={**headers, "authorization": f"Bearer {own}"}))[0] == 200
        assert [call.client_key for call in there.service.calls] == ["sk-theirs", "", "AIza-theirs", ""]


def test_a_call_shows_neither_its_body_nor_a_key() -> None:
    """In logs and errors."""
    call = ClientCall(id="r", path=CHAT, body=b"secret", family="openai_chat", kind="generate", client_key="secret")
    assert (repr(call), str(call)) == (f"ClientCall(r generate openai_chat {CHAT}, 6 bytes)",) * 2


async def test_what_is_refused_is_logged_without_keys_and_bodies(caplog: pytest.LogCaptureFixture) -> None:
    """Line breaks in a path make no lines; a bug's words stay out as well."""
    async with gateway() as there:
        with caplog.at_level(logging.DEBUG):
            await there.said(there.post(b'{"sk-secret":1}', "/v1/x?key=sk-secret", authorization="Bearer sk-secret"))
            await there.said(there.post(b"sk-secret", f"{CHAT}?key=sk-secret", content_type="text/plain"))
            await there.said(there.post(path="/v1/%0asecond-line"))
            answer = await there.said(there.post(b'{"do": "fail", "a": "sk-secret"}', authorization="Bearer sk-secret"))
        logged = [record.getMessage() for record in caplog.records if record.name == "turnwise"]
        assert [line.partition(" [")[0] for line in logged] == [
            "gateway: 404 for POST /v1/x",
            f"gateway: 415 for POST {CHAT}",
            "gateway: 404 for POST /v1/%0asecond-line",
            "gateway: bug at",
            f"gateway: 500 for POST {CHAT}",
        ]
        assert "ValueError at Echo._do" in logged[3]
        assert "sk-secret" not in caplog.text and b"sk-secret" not in answer


@pytest.mark.parametrize("do", ["fail", "nothing"])
async def test_a_bug_is_an_error_of_the_family_and_the_process_lives(do: str) -> None:
    """A service that raises or says nothing; the next request is served."""
    async with gateway() as there:
        status, _, body = await ask(there, "/v1/messages", body=b'{"do": "%s"}' % do.encode())
        assert (status, msgspec.json.decode(body)["error"]["type"]) == (500, "api_error")
        assert (await ask(there))[0] == 200


async def test_an_answer_that_fails_midway_has_no_end() -> None:
    """The chunked body breaks off, so no client takes it for whole."""
    async with gateway() as there:
        body = b'{"do": "fail late"}'
        answer = await there.said(there.post(body, connection="keep-alive"))
        assert (status_of(answer), answer.endswith(b"d\r\ndata: begun\n\n\r\n")) == (200, True)


@pytest.mark.parametrize("do", ["wait for the client to go", "flood"])
async def test_the_service_hears_that_the_client_has_gone(do: str) -> None:
    """While it waits for the upstream, and while it sends."""
    async with gateway() as there:
        _, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.write(there.post(b'{"do": "%s"}' % do.encode()))
        await asyncio.wait_for(there.service.waiting.wait(), HANG_S)
        writer.transport.abort()
        await asyncio.wait_for(there.service.told_gone.wait(), HANG_S)
        assert (there.service.ended, (await ask(there))[0]) == (["client gone"], 200)


async def test_past_the_bound_of_streams_a_client_is_told_to_wait() -> None:
    """503 with `retry-after` in its own family; a place is free again once an answer has ended."""
    async with gateway(DoorRules(bounds=Bounds(streams=1))) as there:
        first = asyncio.create_task(ask(there, body=b'{"do": "wait"}'))
        await asyncio.wait_for(there.service.waiting.wait(), HANG_S)
        status, headers, body = await ask(there, "/v1/messages")
        assert (status, headers["retry-after"]) == (503, "1")
        assert msgspec.json.decode(body)["error"]["type"] == "overloaded_error"
        assert (await ask(there, "/healthz", method="GET"))[0] == 200
        there.service.go_on.set()
        assert (await first)[2] == b"data: begun\n\ndata: ended\n\n"
        assert (await ask(there, "/v1/messages"))[0] == 200


async def test_a_client_of_http_1_0_is_known() -> None:
    """It cannot take an answer in chunks."""
    async with gateway() as there:
        for version, takes in ((b"1.1", True), (b"1.0", False)):
            answer = await there.said(there.post().replace(b"HTTP/1.1", b"HTTP/" + version))
            assert (status_of(answer), there.service.calls[-1].takes_streams) == (200, takes)


async def test_the_pieces_of_a_stream_over_http_1_1_go_straight_to_the_socket() -> None:
    """Proves: an answer in chunks has the way past ASGI, which costs a fifth less for a word; one with a length, or for a client
    of HTTP 1.0, has none, as its bytes stand for themselves."""
    async with gateway() as there:
        there.service.go_on.set()
        streamed = there.post(b'{"do": "wait"}')
        for request in (streamed, streamed.replace(b"HTTP/1.1", b"HTTP/1.0"), there.post()):
            assert status_of(await there.said(request)) == 200
        assert [way is not None for way in there.service.ways] == [True, False, False]
