"""Ids for sessions and turns: they sort by the time at which they were made."""

import secrets

from turnwise.drivers.clock import Clock


class TimeOrderedIds:
    """26 hex digits: 48 bits of UTC milliseconds, 56 random bits. One source never gives two in the wrong order, even if the
    clock steps back. (UUIDv7 without its fixed bits, RFC 9562 section 5.7.)"""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> str:
        fresh = (int(self._clock.now() * 1000) << 56) | secrets.randbits(56)
        self._last = fresh if fresh > self._last else self._last + 1
        return f"{self._last:026x}"
