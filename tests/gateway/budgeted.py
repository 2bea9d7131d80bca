"""A gateway's service before a lab in this process, its keys and budgets in a journal, and clients that ask at once."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from gateway.relayed import Gathered
from gateway.test_service import lab_at
from journal.store_conformance import Target
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.gateway.accounts import AccountMeans
from turnwise.gateway.client_limits import LimitedClient
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.gateway.shared_clients import SharedClients
from turnwise.gateway.unreachable_store import StoreOutage, UnreachableStore
from turnwise.journal.file import BUSY_S
from turnwise.journal.gateway_rows import Actor, GatewayOwner, OwnerChange, digest_of
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.journal.prices import Prices, read_prices
from turnwise.journal.request_budgets import HeldRow, held_rows
from turnwise.lab import Lab

BY = Actor(who="tester", place="a test")
# Dollars per million tokens.
PRICES = Prices(user=read_prices({"plain-answer": {"input": 1, "output": 10}}, named="test", source="test"))
ROUTE = GatewayRoute(upstream=lab_at(model="plain-answer"), retry=0)
STALLS = GatewayRoute(models=("stalls",), upstream=lab_at(model="fault-stall"), retry=0)


def limits(**told: str | int) -> OwnerChange:
    """`usd_day=5` for `usd/day`."""
    return OwnerChange(limits={name.replace("_", "/"): Decimal(str(amount)) for name, amount in told.items()})


def add_key(target: Target, change: OwnerChange | None = None, *, name: str = "laptop") -> str:
    with Journal(target) as journal:
        owner = GatewayOwner(name=name)
        return journal.gateway.add_key(owner if change is None else change.over(owner), by=BY)


class Budgeted:
    """One gateway. `ask` answers with the status and what the client got."""

    def __init__(self, service: RelayService, shared: SharedClients, *, lab: Lab) -> None:
        self.service, self.shared, self.lab = service, shared, lab

    def client(self, key: str) -> LimitedClient:
        found = (self.shared.over(None) or {})[digest_of(key)]
        assert isinstance(found, LimitedClient)
        return found

    async def ask(self, key: str, *, id: str = "tw-1", model: str = "any", **more: Any) -> Gathered:
        body = {"model": model, "messages": [{"role": "user", "content": "Look."}], "max_tokens": 100, **more}
        call = ClientCall(
            id=id,
            path="/v1/chat/completions",
            body=msgspec.json.encode(body),
            family="openai_chat",
            kind="generate",
            client="laptop",
            limits=self.client(key),
        )
        outlet = Gathered()
        await self.service.answer(call, outlet)
        return outlet

    async def ask_many(self, key: str, number: int, **more: Any) -> Counter[int]:
        outlets = await asyncio.gather(*[self.ask(key, **more) for _ in range(number)])
        return Counter([outlet.status for outlet in outlets])


@contextlib.asynccontextmanager
async def budgeted(
    target: Target,
    *,
    lab: Lab,
    routes: Sequence[GatewayRoute] = (STALLS, ROUTE),
    now: Callable[[], float] | None = None,
    rule: UnreachableStore | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    prices: Prices = PRICES,
) -> AsyncIterator[Budgeted]:
    """Closed in the order of a gateway's own end. With a `rule`, a store that is held for 0.2 s cannot be reached."""
    clock = SystemClock()
    shared = SharedClients(Journal(target), now=now or clock.now)
    ledger = LedgerThread(target, clock=clock, limit_s=BUSY_S if rule is None else 0.2)
    outage = None if rule is None else StoreOutage(rule, ledger, monotonic=monotonic)
    accounts = AccountMeans(ledger=ledger, clock=clock, prices=prices, holder=shared.holder, outage=outage)
    means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, accounts=accounts)
    try:
        yield Budgeted(
            RelayService(GatewayConfig(routes=tuple(routes)), means=means, forward_key=False), shared, lab=lab
        )
    finally:
        await asyncio.to_thread(ledger.close)
        await asyncio.to_thread(shared.close)


def rows_of(target: Target) -> dict[str, HeldRow]:
    """The budgets, by whose they are and what period."""
    with Journal(target) as journal:
        return {row.name.removeprefix("gateway/").rsplit("/", 1)[0]: row for row in held_rows(journal.gateway.store)}
