"""Which upstream of a route is asked next, judged from what became of earlier requests.

A route has groups of upstreams; a group is asked when the groups before it cannot answer. Each upstream and key is a door, with a
health of its own that this module only computes: outcomes and times come in as data. A door that failed is left alone for a
while, then one request is let through to see. Nobody else waits for it meanwhile.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from math import inf, log
from typing import Literal

import msgspec

from turnwise.vocab import Fault, FaultKind

# Seconds for which a door is left alone after its first failure; they double with each further round. A silence costs the request
# that looks as long as the first one, so it is looked at seldom.
COOL_S: Mapping[FaultKind, float] = {
    FaultKind.UNREACHABLE: 2.0,
    FaultKind.DISCONNECTED: 2.0,
    FaultKind.SERVER: 2.0,
    FaultKind.OVERLOADED: 2.0,
    FaultKind.PROTOCOL: 2.0,
    FaultKind.RATE_LIMITED: 5.0,
    FaultKind.TIMEOUT: 30.0,
    FaultKind.AUTH: 60.0,
    FaultKind.QUOTA: 60.0,
}
LONGEST_S = 60.0
LONGEST_ASKED_S = 3600.0  # where the upstream itself says for how long
# What is true of all models behind a door; the rest is kept by model.
OF_ALL_MODELS = frozenset(
    {FaultKind.UNREACHABLE, FaultKind.DISCONNECTED, FaultKind.TIMEOUT, FaultKind.AUTH, FaultKind.QUOTA}
)
OF_KEY = frozenset({FaultKind.RATE_LIMITED, FaultKind.AUTH, FaultKind.QUOTA})
"""What says something of the key alone. Where each client sends its own, it says nothing of the door."""
# A door that says nothing at all, so often in a row, is asked by looks alone, even if there is no other one.
DEAD_KINDS = frozenset({FaultKind.UNREACHABLE, FaultKind.TIMEOUT})
DEAD_FAILURES = 8  # two requests with all their attempts
HIGHEST = 2**64


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a door, for all models or for one. `failures` counts requests in a row, `rounds` the times that it was
    left alone. `failed_s` is when the last round began, `until_s` when it ends; `is_probed`: one request is on its way to see."""

    kind: FaultKind | None = None
    failures: int = 0
    rounds: int = 0
    failed_s: float = -inf
    until_s: float = -inf
    is_probed: bool = False

    @property
    def is_dead(self) -> bool:
        return self.kind in DEAD_KINDS and self.failures >= DEAD_FAILURES


WELL = Health()


def kind_of(fault: Fault) -> FaultKind:
    """What it says of the door. A server whose own time is over (408, 504) has answered: that is no silence."""
    return FaultKind.SERVER if fault.kind is FaultKind.TIMEOUT and fault.status is not None else fault.kind


def after_failure(health: Health, fault: Fault, *, began_s: float, now_s: float) -> Health:
    """The health once a request that began at `began_s` has failed. A request that began before the last round was over begins no
    new one: many were on their way when the door died, and some are asked again meanwhile. A fault that says nothing bad of the
    door is an answer."""
    kind = kind_of(fault)
    if (first_s := COOL_S.get(kind)) is None:
        return after_answer(health, began_s=began_s)
    asked_s = fault.retry_after_s or 0.0
    is_new = began_s >= health.until_s
    rounds = health.rounds + 1 if is_new else health.rounds
    cool_s = min(asked_s, LONGEST_ASKED_S) if asked_s > 0 else min(LONGEST_S, first_s * 2.0 ** min(rounds - 1, 30))
    failures = health.failures + 1
    if not is_new:
        until_s = max(health.until_s, now_s + cool_s) if asked_s > 0 else health.until_s
        return msgspec.structs.replace(health, failures=failures, until_s=until_s)
    return Health(kind=kind, failures=failures, rounds=rounds, failed_s=now_s, until_s=now_s + cool_s)


def after_answer(health: Health, *, began_s: float) -> Health:
    """An answer to a request that began before the last failure says nothing."""
    return WELL if began_s >= health.failed_s else health


def probed(health: Health, *, is_probed: bool) -> Health:
    return health if health is WELL else msgspec.structs.replace(health, is_probed=is_probed)


DoorState = Literal["well", "due", "cooling", "dead"]
"""`due`: it was left alone long enough, and one request may see."""


def state_of(healths: Sequence[Health], *, now_s: float) -> DoorState:
    """The state of a door, by what is known of it for all models and for one."""
    ill = [one for one in healths if one.failures]
    if not ill:
        return "well"
    if all(now_s >= one.until_s and not one.is_probed for one in ill):
        return "due"
    return "dead" if any(one.is_dead for one in ill) else "cooling"


class UpstreamDoor(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream with one key. `group`: lower ones are asked first; `weight`: its share of the conversations of its group."""

    name: str
    group: int = 0
    weight: float = 1.0


def in_order(doors: Sequence[UpstreamDoor], *, sticks: bytes) -> list[int]:
    """The places of the doors in the order in which a conversation asks them: the same for all of its requests, in every process,
    so that the provider's cache of its prompt is found again. If a door is left out, only its conversations move. (Rendezvous
    hashing by weight: Schindelhauer and Schomaker, 2005.)"""

    def score(door: UpstreamDoor) -> float:
        hashed = hashlib.blake2b(door.name.encode() + b"\0" + sticks, digest_size=8).digest()
        return -log((int.from_bytes(hashed, "big") + 1) / (HIGHEST + 1)) / door.weight

    places = range(len(doors))
    if len(doors) < 2:
        return [*places]
    return sorted(places, key=lambda at: (doors[at].group, score(doors[at])))


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """The door to ask. `is_probe`: the request looks whether it is well again. `hands_over`: where it fails for a moment, the
    next door is asked at once, instead of this one again."""

    place: int
    is_probe: bool = False
    hands_over: bool = False


class AllDead(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody is asked: no door has said a word for long. `wait_s` from now the next request may see."""

    wait_s: float


def pick(
    doors: Sequence[UpstreamDoor],
    *,
    order: Sequence[int],
    healths: Sequence[Sequence[Health]],
    tried: Collection[int],
    now_s: float,
) -> Pick | AllDead | None:
    """The next door of a request that has `tried` some; None if there is none left. The first one that is well, or that a request
    has to look at. If there is none, one that is left alone is better than nothing, unless it is dead."""
    left = [(place, state_of(healths[place], now_s=now_s)) for place in order if place not in tried]
    useful = [(place, state) for place, state in left if state in ("well", "due")]
    if useful:
        (place, state), rest = useful[0], useful[1:]
        # Before a group of last resort, a door that was well so far is asked again.
        others = [one for one, _ in rest if state == "due" or doors[one].group == doors[place].group]
        return Pick(place=place, is_probe=state == "due", hands_over=bool(others))
    if cooling := [place for place, state in left if state == "cooling"]:
        return Pick(place=min(cooling, key=lambda place: (_until(healths[place]), order.index(place))))
    if left and not tried:
        return AllDead(wait_s=max(0.0, min(_until(healths[place]) for place, _ in left) - now_s))
    return None


def _until(healths: Sequence[Health]) -> float:
    return max(one.until_s for one in healths)
