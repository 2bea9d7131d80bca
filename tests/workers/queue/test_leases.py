"""What a worker holds, and for how long it counts on it."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from turnwise.base.clock import SystemClock
from turnwise.errors import JournalFailed
from turnwise.journal.owners import Claim
from turnwise.turn.config import OneAsk
from turnwise.vocab import ToolCall
from turnwise.workers.leases import FENCED, Leases, TurnLease
from turnwise.workers.queue import TurnQueue, WorkerTerms, lease_clock
from waits import HANG_S

SRC = Path(__file__).parents[3] / "src"
TERMS = WorkerTerms(name="worker@one:1:1", agents=("helper",), lease_s=30.0)
ASK = OneAsk(call=ToolCall(id="a", name="do"), arguments="{}", subject="do", digest="of a")


def told_nothing(claim: Claim) -> None:
    raise AssertionError(f"{claim.session} was told of")


def test_a_claim_that_took_too_long_is_given_back_and_does_not_end_the_process(
    queue: TurnQueue, postgres_dsn: str
) -> None:
    """Proves: where the database kept a claim waiting for most of a lease, the worker does not count on that lease, and goes on.
    Once, it took the turn for one whose lease had not been renewed in time, and ended itself with all its other turns."""
    queue.submit("Go", agent="helper")
    claim = queue.claim(TERMS)
    assert claim is not None
    assert lease_clock() - claim.since_s < TERMS.lease_s / 2, "the clock begins with the lease and not before"
    leases = Leases(
        postgres_dsn,
        terms=TERMS,
        clock=SystemClock(),
        on_lost=told_nothing,
        on_cancel=told_nothing,
        on_ring=lambda: None,
    )
    late = msgspec.structs.replace(claim, since_s=claim.since_s - 25.0)
    assert not leases.hold(late)
    leases.check()
    assert leases.hold(claim)
    leases.check()
    leases.drop(claim)


def test_a_process_with_thousands_of_descriptors_hears_of_turns(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: the thread of the leases waits for its bell behind descriptor 1,024, too. Once, it died of that, and with it
    each of the worker's turns."""
    rings = threading.Semaphore(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with ExitStack() as stack:
            for _ in range(1100):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            leases = Leases(
                postgres_dsn,
                terms=msgspec.structs.replace(TERMS, lease_s=600.0),
                clock=SystemClock(),
                on_lost=told_nothing,
                on_cancel=told_nothing,
                on_ring=rings.release,
            )
            leases.start()
            stack.callback(leases.stop)
            assert rings.acquire(timeout=HANG_S), "it listens"
            queue.submit("Go", agent="helper")
            assert rings.acquire(timeout=HANG_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def leases(postgres_dsn: str, told: list[str]) -> Iterator[Leases]:
    """Without its threads: a test does their work."""
    found = Leases(
        postgres_dsn,
        terms=TERMS,
        clock=SystemClock(),
        on_lost=lambda claim: told.append("lost"),
        on_cancel=lambda claim: told.append("cancelled"),
        on_ring=lambda: told.append("rung"),
        on_trouble=told.append,
    )
    found._threads.clear()
    yield found
    found.stop()
    found._drop_bell()


def test_a_ring_is_heard_once_and_a_trouble_told_once(queue: TurnQueue, leases: Leases, told: list[str]) -> None:
    """Proves: what has rung is forgotten with the look that it leads to; of one trouble that goes on, whatever it says behind the
    colon, there is one line, and of the next one another."""
    assert leases._wait_for_the_bell(0.0), "somebody may have rung while nobody listened"
    queue.submit("Go", agent="helper")
    assert leases._wait_for_the_bell(HANG_S) and not leases._wait_for_the_bell(0.0)
    for error in (
        JournalFailed("no way: 1"),
        JournalFailed("no way: 2"),
        OSError("a secret"),
        JournalFailed("no way: 3"),
    ):
        leases._tell_trouble(error)
    assert told == [f"the leases are not renewed: {why}" for why in ("no way: 1", "`OSError`", "no way: 3")]


def test_a_turn_that_was_handed_over_is_not_held_and_not_lost(
    queue: TurnQueue, postgres_dsn: str, leases: Leases, told: list[str]
) -> None:
    """Proves: a held turn is renewed, and its worker hears that it was cancelled, or is locked, or is another's; one that was let
    go, or parked for a person, is renewed no more, and is none that was lost."""
    for prompt in ("renewed", "let go", "parked", "lost"):
        queue.submit(prompt, agent="helper")
    held = [claim for claim in _claims(4, queue=queue, terms=TERMS) if leases.hold(claim)]
    assert len(held) == 4 and leases._renew() and told == []
    first, second, third, fourth = [_lease_of(claim, leases=leases, queue=queue) for claim in held]
    assert first.ends and not first.asks
    with pytest.raises(JournalFailed, match="this worker stops"):
        second.let_go()
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("insert into turnwise.record values (%s, 1, 1, 'any', '{}', 0)", (held[2].number,))
    with pytest.raises(JournalFailed, match="a person is asked"):
        third.ask([ASK], deadline_s=600.0, folder="/srv")
    assert (second.is_over, second.asks, third.is_over, third.asks) == (True, False, True, True)
    assert set(leases._held) == {held[0].number, held[3].number}
    assert leases._renew() and told == []
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("select 1 from turnwise.turn where number = %s for update", (held[0].number,))
        assert not leases._renew(), "a locked row is renewed soon"
    queue.cancel(held[0].session)
    queue.release(held[3])
    other = WorkerTerms(name="worker@two:1:1", agents=("helper",))
    assert {claim.session for claim in _claims(2, queue=queue, terms=other)} == {held[1].session, held[3].session}
    assert leases._renew() and sorted(told) == ["cancelled", "lost"] and not fourth.is_over


@pytest.mark.promise("keep:machines")
def test_a_lapsed_lease_ends_the_process_also_where_its_turn_is_anothers(
    queue: TurnQueue, leases: Leases, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: a worker that was frozen past its lease ends itself, also where the renewal runs before the thread that looks at
    the clock. Once, that thread was then told of a lost turn alone, and the worker went on."""

    def end(since_s: float) -> None:
        raise SystemExit(FENCED)

    monkeypatch.setattr("turnwise.workers.leases._end_ourselves", end)
    queue.submit("Go", agent="helper")
    (claim,) = _claims(1, queue=queue, terms=TERMS)
    assert leases.hold(claim)
    leases._held[claim.number] = (claim, claim.since_s - TERMS.lease_s)
    queue.release(claim)
    with pytest.raises(SystemExit):
        leases._renew()
    assert told == []


def _claims(count: int, *, queue: TurnQueue, terms: WorkerTerms) -> list[Claim]:
    claims = [queue.claim(terms) for _ in range(count)]
    return [claim for claim in claims if claim is not None]


def _lease_of(claim: Claim, *, leases: Leases, queue: TurnQueue) -> TurnLease:
    async def at_once(work: Callable[[], Any]) -> Any:
        return work()

    return TurnLease(
        claim,
        leases=leases,
        queue=queue,
        ends=lambda: True,
        in_thread=at_once,
        on_asks=lambda path: None,
        on_rest=lambda: None,
        on_pieces=lambda: None,
    )


SILENT = """
import sys, threading
from turnwise.base.clock import SystemClock
from turnwise.workers.leases import Leases
from turnwise.workers.queue import TurnQueue, WorkerTerms

dsn, clock = sys.argv[1], SystemClock()
terms = WorkerTerms(name="worker@silent:1:1", agents=("helper",), lease_s=6.0)
claim = TurnQueue(dsn, clock=clock).claim(terms)
told = lambda *_: None
leases = Leases(dsn, terms=terms, clock=clock, on_lost=told, on_cancel=told, on_ring=told, on_trouble=print, silent_s=0.0)
assert leases.hold(claim)
leases.beat()
leases.start()
threading.Event().wait()
"""


def test_nothing_is_renewed_for_an_event_loop_that_does_not_run(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a worker whose loop is blocked ends itself with exit code 70, so that others go on with its turns. Once, it renewed
    its leases without end."""
    queue.submit("Go", agent="helper")
    done = subprocess.run(
        [sys.executable, "-c", SILENT, postgres_dsn],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == FENCED, done.stderr
    assert "this worker ends, and others go on with its turns" in done.stderr
