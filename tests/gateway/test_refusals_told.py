"""Requests that the doors refuse are counted by reason, status and family, wherever they were refused."""

import asyncio
import http.client
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from gateway.served_gateway import BODY, ServedGateway, served_gateway
from gateway.serving import CHAT, Gateway, error_of, gateway, status_of
from gateway.test_told import read_metrics, valued
from terminal.running import running_lab
from turnwise.gateway.accounts import GatewayCounts
from turnwise.gateway.app import DoorRules
from turnwise.gateway.client_bounds import Bounds, add_key
from turnwise.gateway.doors import DoorReason
from waits import HANG_S

RULES = DoorRules(bounds=Bounds(body_bytes=1_000, query_bytes=100, head_bytes=4_000, depth=5))
MESSAGES = "/v1/messages"
Ask = Callable[[Gateway], bytes]


@pytest.mark.promise("heal:told")
@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda it: it.post(host="evil.example"), ("host", "openai_chat", "generate", 403)),
        (lambda it: it.post(path=MESSAGES, origin="http://a"), ("origin", "anthropic_messages", "generate", 403)),
        (lambda it: it.post(content_type="text/plain"), ("content", "openai_chat", "generate", 415)),
        (lambda it: it.post(b" " * 1_001), ("length", "openai_chat", "generate", 413)),
        (lambda it: it.post(b"[" * 6 + b"]" * 6), ("body", "openai_chat", "generate", 400)),
        (lambda it: it.post(path=f"{CHAT}?alt={'a' * 100}"), ("head", "openai_chat", "generate", 414)),
        (lambda it: it.post(path="/v1beta/none"), ("path", "gemini", "", 404)),
        # The connection refuses these: no request was read.
        (lambda it: it.post(path=MESSAGES, x="y" * 4_000), ("head", "anthropic_messages", "", 431)),
        (lambda it: it.head(content_length="a") + b"\r\n", ("http", "openai_chat", "", 400)),
        (lambda it: b"GET http://evil.example/ HTTP/1.1\r\n\r\n", ("http", "openai_chat", "", 400)),
    ],
)
async def test_each_refusal_is_told_with_its_reason(
    ask: Ask, told: tuple[str, str, str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: once, as the client was answered, and with a line of the log."""
    async with gateway(RULES) as there:
        with caplog.at_level(logging.WARNING, "turnwise"):
            answer = await there.said(ask(there), ends=True)
        assert (status_of(answer), there.service.refusals) == (told[3], [told])
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith(f"gateway: {told[3]} for ") and "evil.example" not in line
        (id,) = re.findall(rb"\r\nx-request-id: (.*)\r\n", answer)
        assert f"[{id.decode()}]" in line


async def test_a_refused_connection_has_the_clients_own_id_and_the_headers_of_its_page() -> None:
    """Proves: as far as the headers were read; a page that is not listed gets none."""
    page = "https://chat.example.org"
    async with gateway(DoorRules(bounds=RULES.bounds, origins=frozenset({page}))) as there:
        known = await there.said(there.post(x_request_id="mine", origin=page, x="y" * 4_000))
        other = await there.said(there.post(origin="https://evil.example", x="y" * 4_000))
        google = await there.said(there.post(path="/v1/models/m", x_goog_api_key="k", x="y" * 4_000))
    assert (status_of(known), status_of(other)) == (431, 431)
    assert b"\r\nx-request-id: mine\r\n" in known
    assert f"\r\naccess-control-allow-origin: {page}\r\n".encode() in known
    assert b"access-control" not in other
    assert error_of(google)["code"] == 431, "Gemini's errors have the status in them"


async def test_a_connection_too_many_has_an_id() -> None:
    """Proves: the answer and its line of the log, though nothing was read."""
    async with gateway(DoorRules(bounds=Bounds(connections=1))) as there:
        first = await asyncio.open_connection("127.0.0.1", there.port)
        first[1].write(there.post(b'{"do": "wait"}'))
        await asyncio.wait_for(there.service.waiting.wait(), HANG_S)
        answer = await there.said(there.post())
        assert (status_of(answer), b"\r\nx-request-id: tw-" in answer) == (503, True)
        first[1].transport.abort()


async def test_wrong_keys_are_told(tmp_path: Path) -> None:
    """Proves: a client without a key, and one whose key is no admin's."""
    keys = tmp_path / "keys.json"
    key = add_key(keys, "laptop", admin=False, today="2026-11-20")
    async with gateway(keys=keys) as there:
        await there.said(there.post())
        await there.said(there.head("/metrics", method="GET", x_api_key=key, connection="close") + b"\r\n")
        assert there.service.refusals == [
            ("key", "openai_chat", "generate", 401),
            ("admin_key", "openai_chat", "", 403),
        ]


async def test_a_bug_of_the_service_is_counted_by_the_service_alone() -> None:
    """Proves: a request that got past the doors is in no count twice."""
    async with gateway() as there:
        assert status_of(await there.said(there.post(b'{"do": "fail"}'))) == 500
        assert there.service.refusals == []


def asked(served: ServedGateway, path: str, body: object, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=HANG_S)
    every: dict[str, Any] = {"content-type": "application/json", "connection": "close", **headers}
    connection.request("POST", path, msgspec.json.encode(body), every)
    return connection.getresponse().status


@pytest.mark.promise("heal:told")
def test_refusals_stand_in_the_metrics_beside_what_was_served(tmp_path: Path) -> None:
    """Proves: with the command itself, by reason, and among all requests by status and family."""
    with running_lab() as lab, served_gateway(tmp_path, upstream=f"{lab.url}/v1") as served:
        served.chat("plain-answer")
        assert asked(served, CHAT, BODY, host="evil.example") == 403
        assert [asked(served, MESSAGES, {}, **{"content-type": "text/plain"}) for _ in range(2)] == [415, 415]
        samples = read_metrics(served.get("/metrics").decode())
    assert valued(samples, "refusals_total") == {("host",): 1, ("content",): 2}
    assert valued(samples, "requests_total") == {
        ("openai_chat", "generate", "200", "whole"): 1,
        ("openai_chat", "generate", "403", "refused"): 1,
        ("anthropic_messages", "generate", "415", "refused"): 2,
    }


def test_the_labels_of_refusals_are_bounded() -> None:
    """Proves: a reason is one of a few words, whatever was sent; each can be counted."""
    counts = GatewayCounts()
    for reason in get_args(DoorReason):
        counts.refused(reason, family="gemini", kind="", status=400)
    found = valued(read_metrics(counts.text().decode()), "refusals_total")
    assert found == {(reason,): 1 for reason in get_args(DoorReason)}
    assert len(found) <= 20
