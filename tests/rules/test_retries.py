"""Which failures are worth another attempt, and when."""

import pytest
from msgspec.structs import replace

from tables import each
from turnwise.rules.retries import (
    NO_RETRY,
    GiveUp,
    RetryPolicy,
    RetryVerdict,
    TryFallback,
    WaitThenRetry,
    backoff_s,
    is_worth_a_retry,
    judge_retry,
)
from turnwise.vocab import Fault, FaultKind

POLICY = RetryPolicy()
PASSES = {"unreachable", "timeout", "disconnected", "rate_limited", "overloaded", "server"}
BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)


def judged(fault: Fault = BUSY, *, attempt: int = 1, waited_s: float = 0.0, **more: object) -> RetryVerdict:
    return judge_retry(fault, policy=POLICY, attempt=attempt, waited_s=waited_s, jitter=0.5, **more)  # type: ignore[arg-type]


@pytest.mark.promise("wait:retry")
@each("kind", FaultKind)
def test_the_kind_decides_where_there_is_no_status(kind: FaultKind) -> None:
    """What passes by itself, and nothing else."""
    assert is_worth_a_retry(Fault(kind=kind, message="")) == (kind in PASSES)


@pytest.mark.promise("wait:retry")
@each(
    ("fault", "worth"),
    [
        (Fault(kind=FaultKind.BAD_REQUEST, message="", status=408), True),
        (Fault(kind=FaultKind.BAD_REQUEST, message="", status=409), True),
        (Fault(kind=FaultKind.BAD_REQUEST, message="", status=500), True),
        (Fault(kind=FaultKind.PROTOCOL, message="", status=502), True),
        (Fault(kind=FaultKind.BAD_REQUEST, message="", status=422), False),
        (Fault(kind=FaultKind.QUOTA, message="", status=429), False),
        (Fault(kind=FaultKind.CONTEXT_OVERFLOW, message="", status=500), False),
        (Fault(kind=FaultKind.BAD_REQUEST, message="", status=400, should_retry=True), True),
        (Fault(kind=FaultKind.OVERLOADED, message="", status=503, should_retry=False), False),
    ],
)
def test_status_and_a_plain_word_count_too(fault: Fault, worth: bool) -> None:
    """A conflict is sent again though it is a client error; a spent quota is not though it is a 429."""
    assert is_worth_a_retry(fault) is worth


@pytest.mark.promise("wait:retry", "end:budget")
def test_a_wait_of_our_own_leaves_the_next_attempt_the_time_of_the_answer() -> None:
    """Proves: with 2.5 s left and an answer that takes 2.25, the wait is 0.25 s and not 0.375; the provider's own time is waited
    for. Where the answer's time is not there any more, nothing is gained by it."""
    assert judged(left_s=2.5, answer_s=2.25) == WaitThenRetry(seconds=0.25, why="overloaded")
    assert judged(left_s=2.0, answer_s=2.0) == WaitThenRetry(seconds=0.0, why="overloaded")
    assert judged(left_s=9.0, answer_s=2.0) == WaitThenRetry(seconds=0.375, why="overloaded")
    assert judged(left_s=2.0, answer_s=2.2) == WaitThenRetry(seconds=0.375, why="overloaded")
    asked = replace(BUSY, retry_after_s=2.0)
    assert judged(asked, left_s=2.5, answer_s=2.2) == judged(asked)


def test_waits_double_up_to_the_cap_and_are_spread() -> None:
    """Between half of the time and all of it."""
    policy = RetryPolicy(base_s=1.0, cap_s=5.0)
    assert [backoff_s(policy, attempt=attempt, jitter=0.0) for attempt in (1, 2, 3, 4, 2000)] == [0.5, 1, 2, 2.5, 2.5]
    assert backoff_s(policy, attempt=3, jitter=0.5) == 3.0


@pytest.mark.promise("wait:retry")
def test_verdicts() -> None:
    """Each bound says that it was the one."""
    slow = Fault(kind=FaultKind.RATE_LIMITED, message="", status=429, retry_after_s=40.0)
    assert judged() == WaitThenRetry(seconds=0.375, why="overloaded")
    assert judged(slow) == WaitThenRetry(seconds=40.25, why="rate_limited; the provider asks for 40 s")
    assert judged(slow, waited_s=150) == GiveUp(why="It asks to wait 40 s, and the bound for retries is 180 s.")
    assert judged(attempt=2, waited_s=179.9) == GiveUp(why="Tried 2 times over 179.9 s, and the bound is 180 s.")
    assert judged(attempt=4, waited_s=3) == GiveUp(why="Tried 4 times over 3.0 s.")
    assert judged(left_s=0.3) == GiveUp(why="A retry in 0.4 s would come after the turn's time is up.")
    assert judge_retry(BUSY, policy=NO_RETRY, attempt=1, waited_s=0, jitter=0) == GiveUp()


@pytest.mark.promise("wait:retry")
def test_a_fallback_takes_over_what_may_be_the_models() -> None:
    """Not a wrong key, not a request at fault, not an endpoint that cannot be reached."""
    kinds = {
        kind
        for kind in FaultKind
        if isinstance(judged(Fault(kind=kind, message=""), attempt=9, has_fallback=True), TryFallback)
    }
    assert kinds == {
        FaultKind.TIMEOUT,
        FaultKind.DISCONNECTED,
        FaultKind.NOT_FOUND,
        FaultKind.RATE_LIMITED,
        FaultKind.QUOTA,
        FaultKind.OVERLOADED,
        FaultKind.SERVER,
        FaultKind.PROTOCOL,
    }
    assert judged(has_fallback=True) == WaitThenRetry(seconds=0.375, why="overloaded")


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize(
    ("asked_s", "words"),
    [
        (3600.0, "3600 s"),
        (9000.0, "2.5 hours"),
        (31_622_400.0, "366 days"),
        (251_601_234_567.0, "2,912,051 days"),
    ],
)
def test_a_long_wait_is_said_as_people_say_it(asked_s: float, words: str) -> None:
    """Proves: a date far away is a number of days, not `2.51601e+11 s`."""
    verdict = judged(Fault(kind=FaultKind.RATE_LIMITED, message="", status=429, retry_after_s=asked_s))
    assert verdict == GiveUp(why=f"It asks to wait {words}, and the bound for retries is 180 s.")
