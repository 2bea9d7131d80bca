"""Budgets of keys, users and teams: what is over one never reaches an upstream, and what was not spent comes back."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gateway.budgeted import BY, add_key, budgeted, limits, rows_of
from gateway.relayed import Gathered
from gateway.test_service import lab_at
from journal.store_conformance import TESTS, Target
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.gateway.client_limits import LimitedClient, span_of, zone_of
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.shared_clients import BEAT_S, LEASE_S, STALE_S, SharedClients
from turnwise.journal.direct_ledger import EntryBecame, EntryLeaves, EntryStayed, LedgerLine
from turnwise.journal.gateway_rows import OwnerChange, Period, digest_of
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.journal.request_budgets import RequestPart
from turnwise.lab import Lab
from waits import HANG_S


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return tmp_path / "j.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


def error_of(outlet: Gathered) -> dict[str, object]:
    return msgspec.json.decode(b"".join(outlet.pieces), type=dict[str, dict[str, object]])["error"]


@pytest.mark.promise("serve:budget")
def test_a_hundred_at_once_on_a_budget_for_ten_send_ten(target: Target) -> None:
    """Proves: two gateways that share a journal send ten in all, by the upstream's own count, although all requests have one id;
    the others are told when to come again; afterwards nothing is reserved, and the budget is what the ledger says."""

    async def run() -> tuple[int, int, int, Gathered]:
        key = add_key(target, limits(requests_day=10))
        async with Lab() as lab, budgeted(target, lab=lab) as one, budgeted(target, lab=lab) as two:
            found = await asyncio.gather(one.ask_many(key, 50), two.ask_many(key, 50))
            over = await one.ask(key)
            return found[0][200] + found[1][200], found[0][429] + found[1][429], len(lab.requests), over

    good, refused, received, over = asyncio.run(asyncio.wait_for(run(), HANG_S))
    assert (good, refused, received) == (10, 90, 10)
    assert over.status == 429 and 0 < int(over.headers["retry-after"]) <= 86_400
    assert error_of(over)["code"] == "rate_limit_exceeded"
    assert "the key `laptop` may use 10 requests a day" in str(error_of(over)["message"])
    state = rows_of(target)["key/laptop/day"].state
    assert (state.parts, state.used[0]) == ({}, 10)
    with Journal(target) as journal:
        (total,) = journal.ledger.totals(LedgerSpan(), by="session")
        assert (total.cost.requests, total.input_tokens + total.output_tokens, total.cost.usd) == (10, *state.used[1:])


@pytest.mark.promise("serve:budget")
def test_money_is_reserved_at_its_most_and_what_was_not_spent_comes_back(target: Target) -> None:
    """Proves: a request whose most does not fit gets 402 although its real cost would; after the others ended it fits."""

    async def run() -> list[tuple[int, str]]:
        # One request may cost 100 tokens out and some 300 in, so some $0.0013; it costs less.
        key = add_key(target, limits(usd_month="0.0020"))
        async with Lab() as lab, budgeted(target, lab=lab) as gateway:
            together = await asyncio.gather(*[gateway.ask(key) for _ in range(3)])
            later = await gateway.ask(key)
            dear = await gateway.ask(key, max_tokens=1000)
            assert len(lab.requests) == 2
            told = [*sorted(together, key=lambda one: one.status), later, dear]
            return [(one.status, one.headers.get("retry-after", "")) for one in told]

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == [(200, ""), (402, "5"), (402, "5"), (200, ""), (402, "")]


@pytest.mark.promise("serve:budget")
def test_a_team_and_a_user_bound_all_their_keys_together(target: Target) -> None:
    """Proves: keys of one team share its budget, and a route's own limit goes up where the client names none."""

    async def run() -> tuple[list[int], list[int]]:
        keys = [
            add_key(target, OwnerChange(team="web", user=user), name=user + place)
            for user in ("ann", "bob")
            for place in ("1", "2")
        ]
        with Journal(target) as journal:
            journal.gateway.set_owner("team", "web", limits(requests_day=3).over, by=BY)
            journal.gateway.set_owner("user", "ann", limits(requests_week=1).over, by=BY)
        async with Lab() as lab, budgeted(target, lab=lab) as gateway:
            found = [await gateway.ask(key) for key in (*keys, *keys)]
            return [one.status for one in found], [len(lab.requests)]

    # ann, ann (over her week), bob, bob; then the team is over its day
    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == ([200, 429, 200, 200, 429, 429, 429, 429], [3])


LEAVES = """
import asyncio, sys
from turnwise.base.clock import SystemClock
from turnwise import Journal
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.ledger_thread import LedgerThread
from gateway.test_budgets import part_and_entry
async def run():
    shared = SharedClients(Journal(sys.argv[1]), now=SystemClock().now)
    thread = LedgerThread(sys.argv[1], clock=SystemClock())
    part, entry = part_and_entry(shared, sys.argv[2])
    await thread.leaves(entry, part=part)
    print("has left", flush=True)
    await asyncio.sleep(600)
asyncio.run(run())
"""


def part_and_entry(shared: SharedClients, key: str, *, holder: str = "") -> tuple[RequestPart, LedgerEntry]:
    """A request of that key that costs half a dollar at most, of that gateway or another one."""
    (client,) = [one for one in (shared.over(None) or {}).values() if isinstance(one, LimitedClient)]
    entry = LedgerEntry(
        session="gateway:laptop",
        turn="tw-1",
        root_session="gateway:laptop",
        root_turn="tw-1",
        number=1,
        step=1,
        purpose="step",
        provider="openai_chat",
        model="m",
        started=time.time(),
        sent_bytes=10,
    )
    part = RequestPart(
        id=f"part-{key[-8:]}",
        holder=holder or shared.holder,
        asks=client.asks(entry.started),
        tokens=700,
        usd=lambda: Decimal("0.5"),
    )
    return part, entry


def standing(target: Target) -> dict[str, tuple[int, tuple[object, ...]]]:
    """How many requests hold a part of each budget, and what is spent of it."""
    return {name: (len(row.state.parts), row.state.used) for name, row in rows_of(target).items()}


@pytest.mark.promise("serve:budget")
def test_what_a_killed_gateway_had_reserved_counts_as_spent_at_once(target: Target) -> None:
    """Proves: after kill -9 the next look of another gateway on the machine finds nothing reserved and nothing under way; what
    may have been billed is not given to others."""
    key = add_key(target, limits(usd_day=1, streams=2))
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    line = [sys.executable, "-c", LEAVES, str(target), key]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "has left\n"
            other = SharedClients(Journal(target), now=SystemClock().now)
            assert {name: parts for name, (parts, _) in standing(target).items()} == {
                "key/laptop/day": 1,
                "key/laptop": 1,
            }
        finally:
            process.kill()
        process.wait(HANG_S)
    other.close()
    SharedClients(Journal(target), now=SystemClock().now).close()
    assert standing(target) == {"key/laptop/day": (0, (1, 700, Decimal("0.5"))), "key/laptop": (0, (0, 0, Decimal(0)))}


@pytest.mark.promise("serve:budget")
def test_a_gateway_that_thaws_behind_its_lease_changes_no_budget(target: Target) -> None:
    """Proves: of a machine that cannot be seen, beats that stand still are waited for until the lease is over, by the judge's own
    clock; then its request counts at its most, and its late end completes the ledger and nothing else."""

    async def run() -> None:
        now_s = 0.0
        key = add_key(target, limits(usd_day=1))
        judge = SharedClients(Journal(target), now=SystemClock().now, monotonic=lambda: now_s)
        thread = LedgerThread(target, clock=SystemClock())
        part, entry = part_and_entry(judge, key, holder="elsewhere:1:1:boot:spaces#1")
        judge.book.beat(part.holder, 1)
        line = await thread.leaves(entry, part=part)
        for now_s in (10.0, 20.0):  # noqa: B007 (the judge reads it)
            judge.look()
        judge.book.beat(part.holder, 2)  # it lives
        for now_s in (30.0, 30.0 + LEASE_S):  # noqa: B007
            judge.look()
        assert standing(target) == {"key/laptop/day": (1, (0, 0, Decimal(0)))}
        now_s += BEAT_S
        judge.look()
        spent = {"key/laptop/day": (0, (1, 700, Decimal("0.5")))}
        assert standing(target) == spent
        thread.became(line, lambda: msgspec.structs.replace(entry, outcome="ok", ended=1.0, usd=Decimal("0.1")))
        await asyncio.to_thread(thread.close)
        judge.close()
        assert standing(target) == spent
        with Journal(target) as journal:
            assert [one.usd for one in journal.ledger.entries(LedgerSpan())] == [Decimal("0.1")]

    asyncio.run(asyncio.wait_for(run(), HANG_S))


def test_a_part_is_reserved_and_settled_once_however_often_it_is_tried(target: Target) -> None:
    """Proves: what a lost connection makes a gateway write again changes nothing: no second part, no second entry, no second
    sum; a part that comes back after its end stays out."""
    key = add_key(target, limits(usd_day=1, requests_day=1))
    shared = SharedClients(Journal(target), now=SystemClock().now)
    part, entry = part_and_entry(shared, key)
    with Journal(target) as journal:
        line = LedgerLine(part)
        leaves = EntryLeaves(line=line, entry=entry)
        became = EntryBecame(
            line=line, entry=msgspec.structs.replace(entry, outcome="ok", usd=Decimal("0.1"), ended=1.0)
        )
        assert journal.direct.write([leaves]) == {}
        with journal.direct._store.transaction() as connection:
            rows, refused = journal.direct._written([leaves], connection=connection, is_first=False)
        assert (list(rows.values()), refused) == ([line.row_id], {})
        assert journal.direct.write([became]) == {}
        journal.direct.write([became, EntryStayed(line=LedgerLine(part))])
        assert standing(target) == {"key/laptop/day": (0, (1, 700, Decimal("0.1")))}
        assert len(journal.ledger.entries(LedgerSpan())) == 1
    shared.close()


def taken_back(attempt: Callable[..., object]) -> Callable[..., object]:
    """An attempt that fails when all of it is written."""

    def fail(work: Callable[..., object], *around: object) -> None:
        work(*around)
        raise ArithmeticError

    return lambda work: attempt(partial(fail, work))


@pytest.mark.promise("serve:budget")
def test_what_a_gateway_remembers_of_a_budget_is_never_more_than_what_stands(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: two gateways reserve and settle in a drawn order, and some of their transactions are taken back: as many requests
    leave as have room, though each remembers the budgets that it has written."""
    key = add_key(target, limits(usd_day=100, requests_day=12))
    shared = SharedClients(Journal(target), now=SystemClock().now)
    part, entry = part_and_entry(shared, key)
    chance, spent, left, refused = random.Random(1), 0, list[EntryLeaves](), 0
    with Journal(target) as one, Journal(target) as other:
        for number in range(120):
            direct = chance.choice((one, other)).direct
            mine = msgspec.structs.replace(part, id=f"r{number}")
            leaves = EntryLeaves(line=LedgerLine(mine), entry=msgspec.structs.replace(entry, number=number + 1))
            match chance.choice(("leaves", "leaves", "leaves", "becomes", "stays", "fails")):
                case "leaves":
                    no = direct.write([leaves])
                    assert bool(no) == (spent + len(left) >= 12)
                    refused += len(no)
                    left += [] if no else [leaves]
                case "becomes" if left:
                    gone = left.pop(0)
                    direct.write([EntryBecame(line=gone.line, entry=msgspec.structs.replace(gone.entry, outcome="ok"))])
                    spent += 1
                case "stays" if left:
                    direct.write([EntryStayed(line=left.pop().line)])
                case _:
                    with monkeypatch.context() as patched, pytest.raises(ArithmeticError):
                        patched.setattr(direct._store, "attempt", taken_back(direct._store.attempt))
                        direct.write([leaves])
            open_parts, used = standing(target).get("key/laptop/day", (0, (0,)))
            assert (open_parts, used[0]) == (len(left), spent)
    shared.close()
    assert refused


def test_a_key_that_is_revoked_or_expired_opens_nothing_within_a_second(target: Target) -> None:
    """Proves: what another process changes counts with the next look, an end of its own at its moment; where the journal was not
    read for too long, nobody is let in."""
    now_s, clock = 100.0, 1_000.0
    shared = SharedClients(Journal(target), now=lambda: clock, monotonic=lambda: now_s)
    assert shared.over(None) is None, "nobody has ever made a key"
    ends = OwnerChange(expires=datetime.fromtimestamp(2_000.0, UTC))
    keys = [add_key(target, name="a"), add_key(target, ends, name="b")]
    shared.look()
    found = shared.over(None) or {}
    clients = [found[digest_of(key)] for key in keys]
    assert all(isinstance(one, LimitedClient) and shared.uses(one) for one in clients)
    clock = 2_000.0
    assert [isinstance(one, LimitedClient) and shared.uses(one) for one in clients] == [True, False]
    with Journal(target) as journal:
        journal.gateway.revoke_key("a", by=BY)
    shared.look()
    assert list(shared.over(None) or {}) == [digest_of(keys[1])]
    now_s += STALE_S + 1
    with pytest.raises(CallerError, match="cannot be read"):
        shared.over(None)
    shared.look()
    shared.close()
    with Journal(target) as journal:
        assert journal.gateway.last_used() == {"a": 2_000.0, "b": 2_000.0}
        told = [(row.action, row.kind, row.name, *sorted(row.changes)) for row in journal.gateway.audit()]
    assert told == [
        ("add", "key", "a", "sha256"),
        ("add", "key", "b", "expires", "sha256"),
        ("revoke", "key", "a", "revoked"),
    ]
    shown = msgspec.json.encode(told).decode()
    assert not any(secret in shown for key in keys for secret in (key, digest_of(key)))


@pytest.mark.parametrize(
    ("period", "zone", "at", "name", "ends"),
    [
        ("minute", "UTC", "2026-11-30T23:59:59+00:00", "29934719", "2026-12-01T00:00:00+00:00"),
        ("day", "UTC", "2026-11-30T23:59:59+00:00", "2026-11-30", "2026-12-01T00:00:00+00:00"),
        ("day", "Europe/Berlin", "2026-11-30T23:59:59+00:00", "2026-12-01", "2026-12-02T00:00:00+01:00"),
        ("day", "Europe/Berlin", "2026-10-25T12:00:00+00:00", "2026-10-25", "2026-10-26T00:00:00+01:00"),  # of 25 hours
        ("week", "UTC", "2026-12-06T12:00:00+00:00", "2026-11-30", "2026-12-07T00:00:00+00:00"),
        ("month", "America/New_York", "2027-01-01T04:59:00+00:00", "2026-12-01", "2027-01-01T00:00:00-05:00"),
        ("month", "UTC", "2028-02-29T12:00:00+00:00", "2028-02-01", "2028-03-01T00:00:00+00:00"),
    ],
)
def test_periods_begin_and_end_by_the_owners_zone(period: Period, zone: str, at: str, name: str, ends: str) -> None:
    """Proves: also over a change of the clock, a year's end and a leap day."""
    found = span_of(period, at=datetime.fromisoformat(at).timestamp(), zone=zone_of(zone))
    assert (found.name, found.ends) == (name, datetime.fromisoformat(ends).timestamp())


@pytest.mark.promise("serve:budget")
def test_what_has_no_price_is_refused_or_counted_as_the_key_says(target: Target) -> None:
    """Proves: with a budget in dollars a model without a price never leaves, unless the key has a rate; then its tokens cost
    that."""

    async def run() -> tuple[Gathered, Gathered, int]:
        refuses = add_key(target, limits(usd_day=5), name="a")
        counts = add_key(target, msgspec.structs.replace(limits(usd_day=5), unknown_price="1000/1000"), name="b")
        route = GatewayRoute(upstream=lab_at(model="id-missing"), retry=0)
        async with Lab() as lab, budgeted(target, lab=lab, routes=(route,)) as gateway:
            return await gateway.ask(refuses), await gateway.ask(counts, max_tokens=10), len(lab.requests)

    refused, counted, received = asyncio.run(asyncio.wait_for(run(), HANG_S))
    assert (refused.status, error_of(refused)["code"], counted.status, received) == (402, "price_unknown", 200, 1)
    with Journal(target) as journal:
        (entry,) = journal.ledger.entries(LedgerSpan())
    assert entry.usd is None and entry.usage is not None
    tokens = entry.usage.input_tokens + entry.usage.output_tokens
    assert rows_of(target)["key/b/day"].state.used == (1, tokens, Decimal(tokens) / 1000)


def test_a_key_names_only_the_models_that_it_may(target: Target) -> None:
    """Proves: the key's patterns and its team's both hold; what is refused is told in the client's family and never leaves."""

    async def run() -> list[tuple[int, int]]:
        key = add_key(target, OwnerChange(team="web", models=("gpt-*",)))
        with Journal(target) as journal:
            journal.gateway.set_owner("team", "web", OwnerChange(models=("*-mini",)).over, by=BY)
        async with Lab() as lab, budgeted(target, lab=lab) as gateway:
            models = ("gpt-6-mini", "gpt-6", "other-mini")
            return [((await gateway.ask(key, model=model)).status, len(lab.requests)) for model in models]

    assert asyncio.run(asyncio.wait_for(run(), HANG_S)) == [(200, 1), (403, 1), (403, 1)]


def test_no_more_requests_run_at_once_than_a_key_may_have(target: Target) -> None:
    """Proves: `streams` counts what is under way on all gateways, and nothing stays spent."""

    async def run() -> tuple[Counter[int], int]:
        key = add_key(target, limits(streams=2))
        async with Lab() as lab, budgeted(target, lab=lab) as one, budgeted(target, lab=lab) as two:
            hangs = [asyncio.ensure_future(each.ask(key, model="stalls", stream=True)) for each in (one, two)]
            while len(lab.requests) < 2:  # noqa: ASYNC110 (the lab is in this loop, and tells nobody)
                await asyncio.sleep(0)
            found = await one.ask_many(key, 3) + await two.ask_many(key, 3)
            for hanging in hangs:
                hanging.cancel()
            await asyncio.gather(*hangs, return_exceptions=True)
            return found, len(lab.requests)

    found, received = asyncio.run(asyncio.wait_for(run(), HANG_S))
    assert (found, received) == (Counter({429: 6}), 2)
    assert standing(target) == {"key/laptop": (0, (0, 0, Decimal(0)))}
