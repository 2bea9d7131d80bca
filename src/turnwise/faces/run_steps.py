"""The step cap of a turn stands among its limits: `MaxSteps(8) | MaxTokens(20_000)`."""

from turnwise.rules.limits import AnyOf, Limit, MaxSteps
from turnwise.turn.config import MAX_STEPS


def steps_and_limits(limits: Limit | None) -> tuple[int, Limit | None]:
    """The step cap that `limits` name, and the limits beside it.

    A `MaxSteps` that stops the turn by itself replaces the usual cap, so it may also be higher. One that stops the turn only
    together with others (`&`) stays among the limits, and the usual cap holds.
    """
    parts = limits.limits if isinstance(limits, AnyOf) else () if limits is None else (limits,)
    caps = [part.steps for part in parts if isinstance(part, MaxSteps)]
    if not caps:
        return MAX_STEPS, limits
    others = tuple([part for part in parts if not isinstance(part, MaxSteps)])
    return min(caps), None if not others else others[0] if len(others) == 1 else AnyOf(others)
