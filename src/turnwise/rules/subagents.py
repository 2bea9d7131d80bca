"""The bounds on a turn's whole tree: how many sub-agents it has, and how many requests they make together (promise safe:bounded).

Each sub-agent is given its places before it starts, for itself and for those that it starts in turn, so the bounds hold
however many run at once. What it leaves comes back when it has ended.
"""

import msgspec

from turnwise.rules.advice import DO_IT_YOURSELF

MAX_SUBAGENTS = (
    32  # one prompt started 118 that made 884 requests in 15 s; a person cannot look through more than these
)
MAX_SUBAGENT_REQUESTS = 300  # nine each for all of them, or fifteen whole turns of 20 steps


class SubagentBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn's sub-agents may be and do together, theirs included; None: nothing bounds it."""

    subagents: int | None = None
    requests: int | None = None


class Used(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sub-agents of a turn so far, theirs included, and the requests that they made."""

    subagents: int = 0
    requests: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one sub-agent may use: so many of its own below it, and so many requests with them; None: nothing bounds it."""

    subagents: int | None = None
    requests: int | None = None


def places_of(bounds: SubagentBounds, *, used: Used, among: int) -> tuple[Place, ...]:
    """The places of as many of the first of `among` sub-agents as there is room for: each has a request at the least. What
    does not divide evenly goes to the first ones."""
    count = among
    if bounds.subagents is not None:
        count = min(count, bounds.subagents - used.subagents)
    if bounds.requests is not None:
        count = min(count, bounds.requests - used.requests)
    if count <= 0:
        return ()
    below = _divided(None if bounds.subagents is None else bounds.subagents - used.subagents - count, among=count)
    requests = _divided(None if bounds.requests is None else bounds.requests - used.requests, among=count)
    return tuple([Place(subagents=own, requests=most) for own, most in zip(below, requests, strict=True)])


def paid(used: Used, *, subagents: int, requests: int, place: Place | None, has_ended: bool) -> Used:
    """What is used once a sub-agent has come back, with `subagents` below it and `requests` of all of them. One that was left
    behind may go on, so its whole place is used."""
    if place is not None and not has_ended:
        subagents, requests = max(subagents, place.subagents or 0), max(requests, place.requests or 0)
    return Used(subagents=used.subagents + 1 + subagents, requests=used.requests + requests)


def no_place(bounds: SubagentBounds, *, used: Used, started: int) -> str:
    """The result of a call whose sub-agent has no place; `started` are those that start beside it."""
    have = used.subagents + started
    if bounds.subagents is not None and have >= bounds.subagents:
        which = f"the limit of {_count(bounds.subagents, 'sub-agent')} is reached ({have} started, theirs included)"
    else:
        rest = f", the rest is for {_count(started, 'sub-agent')} beside it" if started else ""
        most = _count(bounds.requests or 0, "request")
        which = f"the limit of {most} by sub-agents leaves none for this one ({used.requests} made{rest})"
    return f"Not run: {which}. {DO_IT_YOURSELF}"


def _divided(amount: int | None, *, among: int) -> list[int | None]:
    if amount is None:
        return [None] * among
    each, extra = divmod(amount, among)
    return [each + (place < extra) for place in range(among)]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
