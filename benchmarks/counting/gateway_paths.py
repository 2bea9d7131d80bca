"""The hot paths of the gateway: a client's request through the application, as its server calls it, and back. No socket.

With budgets the key stands in the journal and belongs to a team, and both have a limit of money. Without, there are no keys.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Any

Runs = Callable[[Callable[[], Coroutine[object, object, object]]], Callable[[], object]]
SMALL_BODY = (
    b'{"id":"c1","object":"chat.completion","created":1800000000,"model":"m","choices":[{"index":0,"message":{"role":'
    b'"assistant","content":"This is the answer."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,'
    b'"completion_tokens":4,"total_tokens":13}}'
)
SHORT, STREAMED = "short", "streamed"
PATIENCE_S = 600.0  # under valgrind all is slow


def gateway(
    what: str, *, budgets: bool, streamed: Callable[[int], list[bytes]], in_loop: Runs
) -> Callable[[int], Callable[[], object]]:
    """`size` chunks of one answer, or `size` short requests one after another."""

    def prepare(size: int) -> Callable[[], object]:
        from turnwise.base.clock import SystemClock
        from turnwise.gateway.accounts import AccountMeans
        from turnwise.gateway.app import DoorRules, GatewayApp
        from turnwise.gateway.client_bounds import KeyRing
        from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
        from turnwise.gateway.service import RelayService, ServiceMeans
        from turnwise.journal.ledger_thread import LedgerThread
        from turnwise.journal.prices import Prices, read_prices
        from turnwise.testing import Reply, ScriptedTransport

        folder = tempfile.TemporaryDirectory()
        path, clock = Path(folder.name) / "journal.db", SystemClock()
        key, shared = with_key(path, clock) if budgets else ("", None)
        pieces = tuple(streamed(size)) if what == STREAMED else (SMALL_BODY,)
        kind = "text/event-stream" if what == STREAMED else "application/json"
        times = 1 if what == STREAMED else size
        reply = Reply(pieces=pieces, headers={"content-type": kind})
        route = GatewayRoute(upstream=UpstreamAddress(url="http://counted.invalid/v1"), retry=0)
        body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Go on."}]}
        content = json.dumps({**body, "stream": what == STREAMED}).encode()

        async def run() -> object:
            ledger = LedgerThread(path, clock=clock, limit_s=PATIENCE_S)
            prices = Prices(user=read_prices({"m": {"input": 1, "output": 10}}, named="counted", source="counted"))
            accounts = AccountMeans(
                ledger=ledger, clock=clock, prices=prices, holder="" if shared is None else shared.holder
            )
            means = ServiceMeans(transport=ScriptedTransport([reply] * times), clock=clock, accounts=accounts)
            service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)
            ring = KeyRing(Path(folder.name) / "no-keys.json", shared=shared)
            app = GatewayApp(service, rules=DoorRules(), keys=ring)
            for _ in range(times):
                await ask(app, content, key=key)
            await asyncio.to_thread(ledger.close)
            return folder

        return in_loop(run)

    return prepare


def with_key(path: Path, clock: Any) -> tuple[str, Any]:
    from turnwise import Journal
    from turnwise.gateway.shared_clients import SharedClients

    return add_key(path), SharedClients(Journal(path), now=clock.now, stale_s=inf)


def add_key(path: Path) -> str:
    """A key with two budgets that are never full: its own and its team's."""
    from turnwise import Journal
    from turnwise.journal.gateway_rows import Actor, GatewayOwner, OwnerTerms

    by = Actor(who="counted", place="here")
    with Journal(path) as journal:
        terms = OwnerTerms(limits={"usd/month": Decimal(10**6)})
        key = journal.gateway.add_key(GatewayOwner(name="counted", team="web", terms=terms), by=by)
        journal.gateway.set_owner("team", "web", lambda owner: GatewayOwner(name=owner.name, terms=terms), by=by)
    return key


async def ask(app: Any, content: bytes, *, key: str) -> None:
    """As uvicorn with httptools calls it, with the way past ASGI that a connection gives to its answers."""
    from turnwise.gateway.doors import WRITER, PieceWriter

    statuses: list[int] = []
    written = 0

    def put(data: bytes) -> None:
        nonlocal written
        written += len(data)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    told = asyncio.Event()

    async def receive() -> dict[str, object]:
        if not told.is_set():
            told.set()
            return {"type": "http.request", "body": content, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    writer = PieceWriter()
    writer.put = put
    headers = [
        (b"host", b"127.0.0.1:8484"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    if key:
        headers.append((b"authorization", b"Bearer " + key.encode()))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "headers": headers,
        "server": ("127.0.0.1", 8484),
        "client": ("127.0.0.1", 50000),
        "state": {WRITER: writer},
    }
    await app(scope, receive, send)
    assert statuses == [200], statuses
