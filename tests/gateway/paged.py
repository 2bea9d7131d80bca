"""A page before a journal that has something to show, served in this process, and a client that is no browser."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import aiohttp
import msgspec

from gateway.budgeted import BY
from journal.store_conformance import Target
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.gateway.admin import AdminApi
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.page import PageApp
from turnwise.gateway.page_access import KeyAccess
from turnwise.gateway.page_server import served
from turnwise.gateway.page_tail import live_tail
from turnwise.gateway.page_views import PageViews
from turnwise.gateway.serve import BoundSocket
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.direct_ledger import ANY, EntryBecame, EntryLeaves, LedgerLine, RepairSeen
from turnwise.journal.gateway_rows import GatewayOwner, OwnerChange
from turnwise.journal.ledger import LedgerEntry
from turnwise.vocab import Usage
from waits import HANG_S

HOSTILE = '<img src=x onerror="window.hacked=1">\'"></script><script>window.hacked=1</script>'
COUNTS = b"""turnwise_gateway_open_requests 3
turnwise_gateway_upstream_left_alone{upstream="openai at https://api.example.org/v1 (KEY)"} 0
turnwise_gateway_upstream_left_alone{upstream="a \\"quoted\\" one"} 1
"""


def entry(
    number: int, *, at: float, client: str, outcome: str | None = "ok", model: str = "gpt-6.1-sol"
) -> LedgerEntry:
    session = f"gateway:{client}" if client else "gateway"
    is_ok = outcome == "ok"
    return LedgerEntry(
        session=session,
        turn=f"tw-{number:06}",
        root_session=session,
        root_turn=f"tw-{number:06}",
        number=1,
        step=1,
        purpose="step",
        provider="openai",
        model=model,
        started=at,
        sent_bytes=1200,
        first_event=at + 0.25 + (number % 20) / 20 if is_ok else None,
        ended=None if outcome is None else at + 2.5,
        outcome=outcome,
        usage=Usage(input_tokens=900 + number, output_tokens=150, provider="{}") if is_ok else None,
        plan="token" if is_ok else None,
        usd=Decimal("0.0125") if is_ok else None,
        priced_by="table" if is_ok else None,
    )


def fill(journal: Journal, *, now: float, days: int = 3, a_day: int = 6) -> None:
    """Two teams, their requests, some of which failed, and what was mended."""
    clients = {"ci": "web", "ann-laptop": "web", "batch": "data"}
    known = journal.gateway.owners().keys
    for name, team in clients.items():
        if name not in known:
            limits = {"usd/month": Decimal(50), "requests/minute": Decimal(60)} if name == "ci" else {}
            change = OwnerChange(team=team, user=name.partition("-")[0], limits=dict(limits))
            journal.gateway.add_key(change.over(GatewayOwner(name=name)), by=BY)
    month = OwnerChange(limits={"usd/month": Decimal(500)})
    journal.gateway.set_owner("team", "web", month.over, by=BY)
    names, models = list(clients), ("gpt-6.1-sol", "claude-sonnet-5")
    for number in range(days * a_day):
        at = now - 20 - (number // a_day) * 86_400 - (number % a_day) * 61
        outcome = "server" if number % 7 == 3 else "ok"
        told = entry(number, at=at, client=names[number % 3], outcome=outcome, model=models[number % 2])
        write(journal, told)
    day = "2026-11-30"
    seen = [
        RepairSeen(day=day, provider="openai", family="openai_chat", model="gpt-6.1-sol", kind=kind, times=2)
        for kind in ("index_missing", "finish_hides_calls", "continued_text", ANY)
    ]
    journal.repairs.write(seen)


def write(journal: Journal, told: LedgerEntry) -> None:
    line = LedgerLine()
    journal.direct.write([EntryLeaves(line=line, entry=told)])
    if told.ended is not None:
        journal.direct.write([EntryBecame(line=line, entry=told)])


class Paged:
    """One page. `ask` answers with the status, the headers and the body."""

    def __init__(self, url: str, app: PageApp, shared: SharedClients) -> None:
        self.url, self.app, self.shared = url, app, shared

    async def ask(
        self, method: str, path: str, body: object = None, *, cookie: str = "", **headers: str
    ) -> tuple[int, Any, Any]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            sent["cookie"] = cookie
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            sent.setdefault("content-type", "application/json")
        timeout = aiohttp.ClientTimeout(total=HANG_S)
        jar = aiohttp.DummyCookieJar()
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=jar) as session,
            session.request(method, self.url + path, headers=sent, data=data) as response,
        ):
            got = await response.read()
            is_json = response.content_type == "application/json" and got
            return response.status, response.headers, msgspec.json.decode(got) if is_json else got

    async def sign_in(self, key: str) -> tuple[str, str]:
        """The cookie, and the word that goes with changes."""
        status, headers, told = await self.ask("POST", "/page/session", {"key": key}, origin=self.url)
        assert status == 200, told
        return headers["set-cookie"].partition(";")[0], told["csrf"]


@contextlib.asynccontextmanager
async def paged(
    target: Target,
    *,
    now: Callable[[], float] | None = None,
    monotonic: Callable[[], float] | None = None,
    is_tls: bool = False,
) -> AsyncIterator[Paged]:
    clock = SystemClock()
    at = now or clock.now
    shared = SharedClients(Journal(target), now=at)
    listening = BoundSocket("127.0.0.1", 0)
    with live_tail() as tail, Journal(target) as journal:
        book = journal.gateway
        app = PageApp(
            PageViews(book.store, now=at, book=book, counts=lambda: COUNTS),
            access=KeyAccess(shared, store=book.store, now=at),
            admin=AdminApi(shared),
            tail=tail,
            is_tls=is_tls,
            bounds=Bounds(),
            monotonic=monotonic or clock.monotonic,
        )
        try:
            async with served(app, listening, bounds=Bounds()):
                yield Paged(listening.url, app, shared)
        finally:
            await asyncio.to_thread(shared.close)
