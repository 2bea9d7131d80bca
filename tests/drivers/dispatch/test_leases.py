"""What a worker holds, and for how long it counts on it."""

import os
import resource
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.dispatch.lease_clock import lease_clock
from turnwise.drivers.dispatch.leases import FENCED, Leases
from turnwise.drivers.dispatch.queue import TurnQueue, WorkerTerms
from turnwise.drivers.journal.claims import Claim

HANG_S = 60.0
SRC = Path(__file__).parents[3] / "src"
TERMS = WorkerTerms(name="worker@one:1:1", agents=("helper",), lease_s=30.0)


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


SILENT = """
import sys, threading
from turnwise.drivers.clock import SystemClock
from turnwise.drivers.dispatch.leases import Leases
from turnwise.drivers.dispatch.queue import TurnQueue, WorkerTerms

dsn, clock = sys.argv[1], SystemClock()
terms = WorkerTerms(name="worker@silent:1:1", agents=("helper",), lease_s=2.0)
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
