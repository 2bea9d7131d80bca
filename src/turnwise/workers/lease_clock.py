"""The clock of the leases."""

import time


def lease_clock() -> float:
    """Seconds that also pass while the machine sleeps, where it can tell."""
    number = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if number is None else time.clock_gettime(number)
