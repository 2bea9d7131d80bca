"""A thousand random schedules of faults: each turn ends with an answer or a reason, in time, and none hangs."""

import random

import pytest

from lab.failing import FAMILIES, Ended, turn
from turnwise.drivers.watching import RequestFinished, RequestStarted
from turnwise.lab import Lab
from turnwise.lab.script import FaultName, Point, Script, ScriptedCall, ScriptedFault, Step
from turnwise.rules.limits import Limit, MaxRequests, MaxWallTime
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import Fallback
from turnwise.vocab import StopReason, Text

SCHEDULES = 1_000
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
PLACES: tuple[Point, ...] = ("headers", "start", "text", "arguments", "finish")
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
    steps = [Step(calls=(call,), faults=faults()) for _ in range(chance.randrange(3))]
    return Script(name=name, title="", steps=(*steps, Step(text=KEPT, faults=faults())))


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


@pytest.mark.promise("wait:retry", "wait:stream", "end:reason", "end:never-empty")
@pytest.mark.parametrize("batch", range(BATCHES))
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
