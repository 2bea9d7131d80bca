"""A gateway whose store cannot be reached: it refuses, or goes on for a while and some money, and writes all of it later."""

import asyncio
import sqlite3
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.budgeted import BY, add_key, budgeted, limits, rows_of
from gateway.served_gateway import ServedGateway, served_gateway
from gateway.test_many_gateways import status_from
from postgres_server import PostgresServer
from terminal.running import running_lab
from turnwise import Journal
from turnwise.errors import CallerError
from turnwise.gateway.config import read_config
from turnwise.gateway.unreachable_store import UnreachableStore
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.lab import Lab
from waits import HANG_S

CONFIG = """
metrics = ["127.0.0.0/8"]
[[route]]
upstream = {{ url = "{url}/v1", model = "plain-answer" }}
[unreachable_store]
goes_on_s = {goes_on_s}
usd = {usd}
"""


@pytest.mark.promise("serve:budget")
def test_while_its_file_is_held_a_gateway_goes_on_for_its_money_and_bills_all_of_it_later(tmp_path: Path) -> None:
    """Proves: each request may cost a tenth of a cent and costs less, which comes back; what does not fit into the money, has no
    price, or comes after the time is refused; in the end the ledger has each request that the upstream got, and no budget holds
    anything, though one is spent beyond its limit."""
    path = tmp_path / "j.db"
    key = add_key(path, limits(requests_day=2, tokens_day=10**6))

    async def run() -> tuple[Counter[int], list[int], int]:
        late_s = 0.0
        rule = UnreachableStore(goes_on_s=60, usd=0.004)
        async with (
            Lab() as lab,
            budgeted(path, lab=lab, rule=rule, monotonic=lambda: time.monotonic() + late_s) as gateway,
        ):
            before = await gateway.ask(key)
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("begin immediate")
            together = await gateway.ask_many(key, 6)  # some 0.0013 dollars each, at most
            while (later := await gateway.ask(key)).status == 500:
                pass  # until the thread that waits for the file has seen what the others did cost
            ready = gateway.service.is_ready()
            dear = await gateway.ask(key, max_tokens=1000)
            late_s = 61.0
            over = await gateway.ask(key)
            other.execute("rollback")
            other.close()
            assert (ready, gateway.service.is_ready()) == (True, False)
            return together, [before.status, later.status, dear.status, over.status], len(lab.requests)

    together, others, received = asyncio.run(asyncio.wait_for(run(), HANG_S))
    answered = together[200]  # three fit at once; what an early answer did not cost pays for another one
    assert (answered >= 3, others) == (True, [200, 200, 500, 500])
    assert together == Counter({200: answered, 500: 6 - answered})
    assert received == answered + 2
    state = rows_of(path)["key/laptop/day"].state
    with Journal(path) as journal:
        entries = journal.ledger.entries(LedgerSpan())
    assert [entry.outcome for entry in entries] == ["ok"] * received
    tokens = sum([entry.usage.input_tokens + entry.usage.output_tokens for entry in entries if entry.usage])
    assert (state.parts, state.used[:2]) == ({}, (received, tokens))


def test_without_a_rule_nothing_leaves_while_the_file_is_held(tmp_path: Path) -> None:
    """Proves: the default is to refuse, and what was refused is in no sum."""
    path = tmp_path / "j.db"
    key = add_key(path, limits(requests_day=9))

    async def run() -> tuple[Counter[int], Counter[int], int]:
        async with Lab() as lab, budgeted(path, lab=lab, rule=UnreachableStore()) as gateway:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("begin immediate")
            held = await gateway.ask_many(key, 3)
            other.execute("rollback")
            other.close()
            return held, await gateway.ask_many(key, 2), len(lab.requests)

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == (Counter({500: 3}), Counter({200: 2}), 2)
    assert rows_of(path)["key/laptop/day"].state.used[0] == 2
    with Journal(path) as journal:
        assert len(journal.ledger.entries(LedgerSpan())) == 2


def told(gateway: ServedGateway) -> bool:
    return b"turnwise_gateway_store_reachable 1\n" in gateway.get("/metrics")


def until_told(gateway: ServedGateway, *, reachable: bool) -> None:
    ends_s = time.monotonic() + HANG_S
    while told(gateway) is not reachable:
        assert time.monotonic() < ends_s


@pytest.mark.promise("serve:budget")
@pytest.mark.parametrize("how", ["crash", "hold"])
def test_a_server_that_is_gone_or_says_nothing_is_known_within_seconds(
    tmp_path: Path, own_postgres: PostgresServer, how: str
) -> None:
    """Proves: with PostgreSQL stopped or frozen requests still leave after a bounded wait, while a key that is revoked or
    expired opens nothing; once the server is back, the ledger has all of them and the budget holds nothing."""
    dsn = own_postgres.dsn
    key = add_key(dsn, limits(usd_day=1), name="good")
    revoked = add_key(dsn, name="revoked")
    with Journal(dsn) as journal:
        journal.gateway.revoke_key("revoked", by=BY)
    (tmp_path / "prices.toml").write_text("plain-answer = { input = 1, output = 10 }\n")
    with running_lab() as lab:
        config = tmp_path / "gateway.toml"
        config.write_text(CONFIG.format(url=lab.url, goes_on_s=60, usd=1))
        env = {"TURNWISE_PRICES": str(tmp_path / "prices.toml")}
        words = ("--config", str(config), "--database", dsn)
        with served_gateway(tmp_path, *words, upstream=None, env=env) as gateway:
            assert status_from(gateway.port, key) == 200 and told(gateway)
            own_postgres.crash() if how == "crash" else own_postgres.hold()
            began_s = time.monotonic()
            assert [status_from(gateway.port, one) for one in (key, revoked, key)] == [200, 401, 200]
            assert time.monotonic() - began_s < 20
            until_told(gateway, reachable=False)
            assert gateway.get("/readyz") == b'{"status":"ok"}'
            own_postgres.start() if how == "crash" else own_postgres.free()
            until_told(gateway, reachable=True)
            assert status_from(gateway.port, key) == 200
            gateway.end()
        received = len(lab.requests)
    state = rows_of(dsn)["key/good/day"].state
    with Journal(dsn) as journal:
        entries = journal.ledger.entries(LedgerSpan())
    assert [entry.outcome for entry in entries] == ["ok"] * received and received == 4
    assert (state.parts, state.used[0], state.used[2]) == ({}, 4, sum([one.usd or Decimal(0) for one in entries]))


def test_time_and_money_go_together_and_are_bounded(tmp_path: Path) -> None:
    """Proves: the file says both or neither, and a minute at most."""
    config = tmp_path / "gateway.toml"
    for goes_on_s, usd, wrong in (
        (60, 1, ""),
        (0, 0, ""),
        (60, 0, "go together"),
        (0, 1, "go together"),
        (61, 1, "60"),
    ):
        config.write_text(CONFIG.format(url="http://127.0.0.1:1", goes_on_s=goes_on_s, usd=usd))
        if not wrong:
            assert read_config(config).unreachable_store == UnreachableStore(goes_on_s=goes_on_s, usd=usd)
            continue
        with pytest.raises(CallerError, match=wrong):
            read_config(config)
