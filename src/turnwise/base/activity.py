"""Whether anything of a turn is being done, or all of it only waits: then its worker can hand it over at any moment."""

from collections.abc import Callable, Generator
from contextlib import contextmanager


class Activity:
    """How many parts of a turn do something: the turn itself, and each call that has been ordered and has no result yet. A part
    rests while it waits for other parts, for a person, for time, or to be handed over. Use it in the event loop's thread."""

    def __init__(self, *, on_rest: Callable[[], None]) -> None:
        """`on_rest` is told whenever nothing is done any more."""
        self._on_rest = on_rest
        self._busy = 1  # the turn itself

    @property
    def rests(self) -> bool:
        return self._busy <= 0

    @contextmanager
    def calls(self, number: int) -> Generator["OpenCalls"]:
        """So many calls are ordered; behind it none of them is open."""
        calls = OpenCalls(self, number=number)
        self.add(number)
        try:
            yield calls
        finally:
            self.add(-calls.number)

    @contextmanager
    def resting(self) -> Generator[None]:
        """The caller counts as idle inside this block."""
        self.add(-1)
        try:
            yield
        finally:
            self.add(1)

    def add(self, number: int) -> None:
        self._busy += number
        if number < 0 and self.rests:
            self._on_rest()


class OpenCalls:
    """Calls without a result. The caller continues when the last one ends, so that call stays open until the block is left."""

    def __init__(self, activity: Activity, *, number: int) -> None:
        self._activity = activity
        self.number = number

    def ended(self) -> None:
        """One more of them has its result, which is recorded."""
        if self.number > 1:
            self.number -= 1
            self._activity.add(-1)
