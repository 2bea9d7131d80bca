"""The time of one turn: its limit, and what ends before it so that the answer has the time that was kept for it."""

import math
from collections.abc import Callable

from turnwise.base.clock import Clock, Timer
from turnwise.rules.limits import Limit, kept_s, wall_time_s


class TurnTime:
    """Calls `at_end` when the turn's time is over.

    What has a deadline before that ends first, in whatever order a late event loop finds the two: `end_first` ends what there is
    of it, and is true if there was any.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Limit | None,
        end_first: Callable[[], bool],
        at_end: Callable[[], object],
        spent_s: float = 0.0,
    ) -> None:
        """`spent_s` of its time has passed already: in a process that has died."""
        self._clock = clock
        self._began_s = clock.monotonic() - spent_s
        self._limit_s = None if limits is None else wall_time_s(limits)
        self._end_first = end_first
        self._at_end = at_end
        self._alarm: Timer | None = None  # at the end of that time
        self._has_rung = False  # while something was at hand that ends first
        self._behind_s = 0.0  # that a late event loop took from the turn

    def now_s(self) -> float:
        """Since the turn began, but for what a late event loop took."""
        return self._clock.monotonic() - self._began_s - self._behind_s

    def start(self) -> None:
        """Set the alarm, or set it anew."""
        self.stop()
        if self._limit_s is not None:
            self._alarm = self._clock.call_later(max(self._limit_s - self.now_s(), 0.0), self.is_up)

    def left_after(self, seconds: float) -> float:
        """What the turn has left once so many have passed: the time of the answer."""
        return math.inf if self._limit_s is None else max(self._limit_s - self.now_s() - seconds, 0.0)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def is_up(self) -> None:
        """The turn's time is over, as this turn finds or its parent."""
        if self._behind_s and self._limit_s is not None and self.now_s() < self._limit_s:
            return  # what was late has ended, and the answer has the time that was kept for it
        if not self._end_first():
            self._at_end()
            return
        if not self._has_rung:  # their parent may find it as well
            self._set_last_alarm()
        self._has_rung = True

    def _set_last_alarm(self) -> None:
        """What ends in good order has the time that was kept for the answer."""
        self.stop()
        left_s = kept_s(self._limit_s or 0.0, longest_request_s=0.0)
        self._alarm = self._clock.call_later(left_s, self._at_end)

    def ended(self, due_s: float | None) -> None:
        """Something that the answer comes after was due at `due_s` (None: nobody said), and is over.

        Where the loop looks so late that the time of the answer is gone, the turn's clock is set back to that, once a turn: the
        answer has the time that was kept for it.
        """
        if self._limit_s is None:
            return
        late_s, kept = 0.0 if due_s is None else self.now_s() - due_s, kept_s(self._limit_s, longest_request_s=0.0)
        is_late = late_s > 0.0 and self.now_s() > self._limit_s - kept
        if is_late and not self._behind_s:
            self._behind_s = late_s
        if is_late or self._has_rung:
            self._has_rung = False
            self.start()
