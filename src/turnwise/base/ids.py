"""Ids for sessions and turns: they sort by the time at which they were made."""

import re
import secrets

from turnwise.base.clock import Clock

_OWN = re.compile(r"[0-9a-f]{26}", re.ASCII)
_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")  # ours, and what a program that names its sessions itself may well take


def is_id(text: str) -> bool:
    """Whether it can be shown and typed anywhere as it is: letters, digits, `_` and `-`."""
    return _ID.fullmatch(text) is not None


def is_time_ordered(text: str) -> bool:
    """Whether it has the form of turnwise's own ids."""
    return _OWN.fullmatch(text) is not None


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
