"""Endpoints that end an answer with neither a finish reason nor the end mark of their API, learned once each."""

from collections.abc import Hashable
from typing import Literal

from turnwise.endpoints.circuits import Door

UnmarkedEnd = Literal["ended", "left open"]
"""The body ended in good order, or its connection fell silent."""

MOST_DOORS = 256  # clients of a gateway may name any model
MOST_ASKED = 32  # requests at a door that may be asked again at the same time


class _Habit:
    __slots__ = ("asked", "learned", "marks")

    def __init__(self) -> None:
        self.marks = False  # an answer had its end mark
        self.asked: dict[tuple[UnmarkedEnd, Hashable], None] = {}  # requests whose answer had none
        self.learned: set[UnmarkedEnd] = set()


class EndHabits:
    """Of one process. An answer without an end mark may have lost its rest, so it is asked for again. If the same request then
    ends in the same way, and no answer from there ever had a mark, that is how answers end there."""

    def __init__(self) -> None:
        self._habits: dict[Door, _Habit] = {}

    def saw_unmarked(self, door: Door, end: UnmarkedEnd, *, request: Hashable) -> bool:
        """Whether an answer to `request` that ended so is taken as whole."""
        habit = self._at(door)
        if habit.marks or end in habit.learned:
            return not habit.marks
        if (end, request) in habit.asked:
            habit.learned.add(end)
            habit.asked.clear()
            return True
        habit.asked[end, request] = None
        if len(habit.asked) > MOST_ASKED:
            del habit.asked[next(iter(habit.asked))]
        return False

    def saw_mark(self, door: Door) -> None:
        """An answer from there had a finish reason or an end mark."""
        habit = self._at(door)
        habit.marks = True
        habit.learned.clear()
        habit.asked.clear()

    def _at(self, door: Door) -> _Habit:
        habit = self._habits.get(door)
        if habit is None:
            habit = self._habits[door] = _Habit()
            if len(self._habits) > MOST_DOORS:
                del self._habits[next(iter(self._habits))]
        return habit
