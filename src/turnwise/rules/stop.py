"""When a turn stops, and what its stop means for whoever waits for it."""

import msgspec

from turnwise.vocab import StopReason


class Outcome(msgspec.Struct, frozen=True):
    stop_reason: StopReason
    complete: bool
    exit_code: int


# Every way in which a turn can end. A pair that is not here cannot occur (promise end:reason).
OUTCOMES = (
    Outcome(StopReason.ANSWERED, True, 0),
    Outcome(StopReason.ANSWERED, False, 3),
    Outcome(StopReason.STEP_LIMIT, False, 3),
    Outcome(StopReason.BUDGET, False, 3),
    Outcome(StopReason.TIME_LIMIT, False, 3),
    Outcome(StopReason.LOOP, False, 3),
    Outcome(StopReason.WAITING, False, 4),
    Outcome(StopReason.REFUSED, False, 5),
    Outcome(StopReason.PROVIDER_FAILED, False, 6),
    Outcome(StopReason.JOURNAL_FAILED, False, 7),
    Outcome(StopReason.GIVEN_UP, False, 9),
    Outcome(StopReason.CANCELLED, False, 130),
)


FAILED = frozenset({StopReason.PROVIDER_FAILED, StopReason.JOURNAL_FAILED, StopReason.GIVEN_UP, StopReason.CANCELLED})
"""The turn came to no answer, as something went wrong or somebody ended it. Any other reason is an end of its own."""


def exit_code(stop_reason: StopReason, *, complete: bool) -> int:
    """The command line's exit code. Raises KeyError for a pair that cannot occur."""
    return _EXIT_CODES[stop_reason, complete]


_EXIT_CODES = {(outcome.stop_reason, outcome.complete): outcome.exit_code for outcome in OUTCOMES}
