"""A thousand random schedules of faults: each turn ends with an answer or a reason, in time, and none hangs."""

import random
from collections import Counter
from decimal import Decimal

import pytest

from lab.failing import FAMILIES, Ended, turn
from tables import each
from thoroughness import rounds
from turnwise.journal.prices import read_prices
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import FaultName, FaultPoint, Script, ScriptedCall, ScriptedFault, ScriptedStep
from turnwise.rules.limits import Limit, MaxCost, MaxRequests, MaxWallTime
from turnwise.rules.retries import RetryPolicy
from turnwise.running.watcher_events import RequestFinished, RequestStarted
from turnwise.turn.config import Fallback
from turnwise.vocab import StopReason, Text

SCHEDULES = len(rounds(1_000, check=250))
BATCHES = 10
LOST = "LOST words, " * 20
KEPT = "The words that were accepted."
KINDS: tuple[FaultName, ...] = (
    "status",
    "status",
    "error-in-stream",
    "reset",
    "eof",
    "stall",
    "pings",
    "html",
    "random-bytes",
    "invalid-utf8",
)
PLACES: tuple[FaultPoint, ...] = ("headers", "start", "text", "arguments", "finish")
STATUSES = (400, 401, 404, 408, 409, 413, 429, 429, 500, 502, 503, 529)
WAITS = ({}, {}, {"retry-after": "3"}, {"retry-after-ms": "40"}, {"retry-after": "900"}, {"x-should-retry": "false"})


def drawn_fault(chance: random.Random) -> ScriptedFault:
    kind = chance.choice(KINDS)
    called = chance.random() < 0.5
    return ScriptedFault(
        kind=kind,
        at=chance.choice(PLACES) if kind not in ("status", "html", "random-bytes", "invalid-utf8") else None,
        status=chance.choice(STATUSES) if kind == "status" else 500,
        headers=chance.choice(WAITS),
        text="" if called else LOST,
        calls=(ScriptedCall(name="note", arguments={"text": LOST}),) if called else (),
    )


def drawn_script(chance: random.Random, *, name: str) -> Script:
    """One to three steps, each of them well after so many failures."""

    def faults() -> tuple[ScriptedFault, ...]:
        return tuple([drawn_fault(chance) for _ in range(chance.choice((0, 1, 1, 2, 3, 6)))])

    call = ScriptedCall(name="note", arguments={"text": KEPT})
    steps = [ScriptedStep(calls=(call,), faults=faults()) for _ in range(chance.randrange(3))]
    return Script(name=name, title="", steps=(*steps, ScriptedStep(text=KEPT, faults=faults())))


async def played(seed: int) -> tuple[Ended, Limit | None, RetryPolicy]:
    chance = random.Random(seed)
    script, other = drawn_script(chance, name="script"), drawn_script(chance, name="other")
    limits = chance.choice((None, None, MaxRequests(chance.randint(1, 6)), MaxWallTime(chance.randint(1, 90))))
    policy = RetryPolicy(attempts=chance.randint(1, 5))
    ended = await turn(
        Lab([script, other]),
        script,
        family=chance.choice(FAMILIES),
        stream=chance.random() < 0.7,
        limits=limits,
        retry=policy,
        fallbacks=chance.choice(((), (Fallback(model="other"),))),
    )
    return ended, limits, policy


@pytest.mark.costly
@pytest.mark.promise("wait:retry", "wait:stream", "end:reason", "end:never-empty")
@each("batch", range(BATCHES))
async def test_every_schedule_ends_in_time_with_an_answer_or_a_reason(batch: int) -> None:
    """Seeded, so that a failure names its schedule; the requests are the lab's own count."""
    for seed in range(batch, SCHEDULES, BATCHES):
        ended, limits, policy = await played(seed)
        result = ended.result
        assert result.text.strip() and result.requests == ended.received, seed
        assert result.fault is not None or result.stop_reason is not StopReason.PROVIDER_FAILED, seed
        match limits:
            case MaxRequests(requests):
                assert result.requests <= requests, seed
            case MaxWallTime(seconds):
                assert ended.took_s <= seconds, seed
            case _:
                pass
        if result.complete:
            broken = {one.number for one in ended.seen if isinstance(one, RequestFinished) and one.fault is not None}
            again = {one.number - 1 for one in ended.seen if isinstance(one, RequestStarted) and one.retry_of}
            assert broken <= again, seed
            # Whole attempts only: one that broke off behind its finish reason was whole.
            said = [part.text for one in result.messages for part in one.parts if isinstance(part, Text)]
            whole = {text for text in said if "\ufffd" not in text}
            assert whole <= {"Please.", KEPT, LOST}, seed
        assert {note for note in ended.noted if "\ufffd" not in note} <= {KEPT, LOST}, seed
        longest = max([sum(1 for _ in run) for run in runs_of_retries(ended)], default=0)
        assert longest < 2 * policy.attempts, seed


def runs_of_retries(ended: Ended) -> list[list[int]]:
    """The further attempts at each request; a fallback has as many of its own, its first one included."""
    runs: list[list[int]] = []
    for seen in ended.seen:
        if isinstance(seen, RequestStarted):
            if seen.retry_of and runs:
                runs[-1].append(seen.number)
            elif not seen.retry_of:
                runs.append([])
    return runs


PRICED = 160
MILLION = Decimal(1_000_000)
CENT = Decimal("0.01")
# The row of every model, and what one request costs by it: from what the lab has received and answered, and by nothing else.
ROWS: dict[str, dict[str, object]] = {
    "tokens": {"input": 3, "output": 15},
    "request": {"request": "0.01", "bills_errors": True},
    "request, errors free": {"request": "0.01", "bills_errors": False},
}


def billed(one: Received, *, plan: str) -> Decimal:
    match plan:
        case "request":
            return CENT
        case "request, errors free":
            return CENT if one.status < 400 else Decimal(0)
        case _ if one.usage is None:
            return Decimal(0)
        case _:
            return (3 * one.usage.input_tokens + 15 * one.usage.output_tokens) / MILLION


def last_output(one: Received, *, plan: str) -> Decimal:
    return 15 * one.usage.output_tokens / MILLION if plan == "tokens" and one.usage is not None else Decimal(0)


@pytest.mark.promise("end:budget", "bill:wire", "bill:plans")
@pytest.mark.parametrize("batch", range(4))
async def test_a_limit_of_cost_holds_under_every_schedule(batch: int) -> None:
    """Property: the limit is never overshot by more than the last request's own output, whatever fails, is sent again or handed
    to another model; by what the lab would bill, and by what it said in streams that broke off. The ledger has each request
    that the lab has, and by request it knows each to the cent."""
    ended: set[StopReason] = set()
    for seed in range(batch, PRICED, 4):
        chance = random.Random(seed)
        plan = chance.choice(list(ROWS))
        limit_usd = Decimal(chance.randint(1, 80)) / 1000
        script, other = drawn_script(chance, name="script"), drawn_script(chance, name="other")
        lab = Lab([script, other])
        row = read_prices({"*": ROWS[plan]}, named="the test", source="the test")["*"]
        result, *_, ledger = await turn(
            lab,
            script,
            family=chance.choice(FAMILIES),
            stream=chance.random() < 0.7,
            find_price=lambda model, at_s, row=row: row,
            limits=MaxCost(limit_usd),
            prices={"script": row, "other": row},
            retry=RetryPolicy(attempts=chance.randint(1, 5)),
            fallbacks=chance.choice(((), (Fallback(model="other"),))),
        )
        ended.add(result.stop_reason)
        assert result.text.strip(), seed
        sent = [(entry.model, entry.sent_bytes) for entry in ledger]
        assert sent == [(one.model, len(one.body)) for one in lab.requests], seed
        assert Counter([entry.purpose for entry in ledger]) == result.requests_by_purpose, seed
        bills = [billed(one, plan=plan) for one in lab.requests]
        known = [entry.usd or Decimal(0) for entry in ledger]
        spent = sum([max(pair) for pair in zip(bills, known, strict=True)], Decimal(0))
        over = last_output(lab.requests[-1], plan=plan) if lab.requests else Decimal(0)
        assert spent <= limit_usd + over, (seed, plan, spent, limit_usd)
        if plan != "tokens":
            assert [entry.usd for entry in ledger if entry.usd is not None] == [
                bill for bill, entry in zip(bills, ledger, strict=True) if entry.usd is not None
            ], (seed, plan)
    assert ended >= {StopReason.ANSWERED, StopReason.PROVIDER_FAILED, StopReason.BUDGET}
