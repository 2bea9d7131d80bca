"""Which endpoints are left alone for a while: the circuits of `rules.circuit`, kept across requests and turns."""

from turnwise.base.clock import Clock
from turnwise.rules.retries import CLOSED, Circuit, CircuitPolicy, after_response, let_through
from turnwise.vocab import Fault

Door = tuple[str, str]
"""An endpoint's address and a model behind it: one model's overload says nothing about another's."""


class Circuits:
    """One circuit a door. `ask` before a request, `saw` after it; an interrupted request says nothing."""

    def __init__(self, *, clock: Clock, policy: CircuitPolicy = CircuitPolicy()) -> None:  # noqa: B008 (frozen)
        self._clock = clock
        self._policy = policy
        self._circuits: dict[Door, Circuit] = {}

    def ask(self, door: Door) -> Fault | None:
        """None where the request may go out, else what to report in its place."""
        known = self._circuits.get(door)
        if known is None:
            return None
        found = let_through(known, policy=self._policy, now_s=self._clock.monotonic())
        if isinstance(found, Fault):
            return found
        self._circuits[door] = found
        return None

    def saw(self, door: Door, *, fault: Fault | None) -> None:
        before = self._circuits.get(door, CLOSED)
        if before is CLOSED and fault is None:
            return
        after = after_response(before, fault=fault, policy=self._policy, now_s=self._clock.monotonic())
        if after == CLOSED:
            self._circuits.pop(door, None)
        else:
            self._circuits[door] = after
