"""Long secrets of base64 or hex, found again by any twelve of their characters that stand together.

One look at each place of a text is enough, however many secrets there are: so their number does not count.
"""

import re
from collections.abc import Iterator

import msgspec

from turnwise.replay.stand_ins import StandIns

WINDOW = 12  # characters that are no accident
_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{12,}")


class FoundRun(msgspec.Struct, frozen=True):
    """From `start` on a text holds `old`, a part of `secret`, for which `new` stands."""

    start: int
    old: str
    new: str
    secret: str


class LongRuns:
    """What two secrets have in common gets the stand-in that it has in the first of them."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins
        self._windows: dict[str, tuple[str, int]] = {}

    def add(self, run: str) -> bool:
        """Whether it was new."""
        before = len(self._windows)
        for place in range(len(run) - WINDOW + 1):
            self._windows.setdefault(run[place : place + WINDOW], (run, place))
        return len(self._windows) > before

    def found_in(self, text: str) -> Iterator[FoundRun]:
        for token in _TOKEN.finditer(text) if self._windows else ():
            start, end = token.span()
            while start <= end - WINDOW:
                known = self._windows.get(text[start : start + WINDOW])
                if known is None:
                    start += 1
                    continue
                run, place = known
                length = WINDOW
                while start + length < end and run[place + length : place + length + 1] == text[start + length]:
                    length += 1
                new = self._stand_ins.of(run)[place : place + length]
                yield FoundRun(start, text[start : start + length], new, run)
                start += length
