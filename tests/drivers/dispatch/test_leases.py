"""What a worker holds, and for how long it counts on it."""

import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.dispatch.lease_clock import lease_clock
from turnwise.drivers.dispatch.leases import Leases
from turnwise.drivers.dispatch.queue import TurnQueue, WorkerTerms
from turnwise.drivers.journal.claims import Claim

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
