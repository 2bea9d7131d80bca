"""What requests have taught of an endpoint, learned once each: which to leave alone for a while, how answers end there, and which
cache settings it refuses."""

import re
from collections.abc import Hashable
from typing import Literal

import msgspec

from turnwise.base.clock import Clock
from turnwise.rules.retries import CLOSED, Circuit, CircuitPolicy, after_response, let_through
from turnwise.vocab import Caching, Fault, Repair, Request
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import MARK_WAYS, Profile

# --- which are left alone for a while: the circuits of `rules.circuit`, kept across requests and turns

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


# --- cache settings that are refused, for each model

Refused = Literal["hour", "top", "all"]
"""The longer time, the field at the top of the body (marks on blocks do the same), or all that is asked for."""

STATUSES = frozenset({400, 403, 422})
HINT = 'if this model or gateway takes no cache marks or keys, `cache="off"` (`--cache off`) sends none'
_NOT_TAKEN = (
    r"(extra (inputs|fields)|not (permitted|allowed|supported)|does(n't| not) support|unsupported|unrecognized|unknown"
    r"|unexpected|no longer|invalid parameter)"
)
# Bedrock: "tools.0.custom.cache_control.ephemeral.ttl: Extra inputs are not permitted"; OpenAI: "Unsupported parameter:
# 'prompt_cache_retention'"
_OF_HOUR = re.compile(
    rf"(\bttl\b|prompt_cache_retention).*{_NOT_TAKEN}|{_NOT_TAKEN}.*(\bttl\b|prompt_cache_retention)",
    re.IGNORECASE | re.DOTALL,
)
# Bedrock and Vertex AI: "cache_control: Extra inputs are not permitted" (inspect_ai#3851)
_OF_TOP = re.compile(rf"(?<![.\w])cache_control\W+{_NOT_TAKEN}", re.IGNORECASE)
# Bedrock: "You invoked an unsupported model or your request did not allow prompt caching"; strict servers: "Unknown parameter:
# 'prompt_cache_key'", "messages.0.content.0.cache_control: Extra inputs are not permitted"
_OF_ALL = re.compile(
    rf"did not allow prompt caching|(cache_control|prompt_cache_key|cachePoint|prompt caching).*{_NOT_TAKEN}"
    rf"|{_NOT_TAKEN}.*(cache_control|prompt_cache_key|cachePoint|prompt caching)",
    re.IGNORECASE | re.DOTALL,
)
SAID: dict[Refused, str] = {
    "hour": "does not keep prompts for longer on request: sent again without that, they are kept for the usual time",
    "top": "does not take a cache mark at the top of the body: sent again with marks on blocks alone",
    "all": "takes no cache marks or keys: sent again without them",
}


class CacheRefusals:
    """Of one process. `narrowed` before a request, `saw` after it was refused."""

    def __init__(self) -> None:
        self._known: dict[Door, tuple[Refused, ...]] = {}

    def narrowed(self, request: Request, profile: Profile, *, door: Door) -> tuple[Request, Profile]:
        """Both without what was refused there."""
        return narrowed_by(self._known.get(door, ()), request=request, profile=profile)

    def saw(self, fault: Fault, *, request: Request, profile: Profile, call: HttpCall, door: Door) -> Repair | None:
        """What was learned, if the fault says that something turnwise asked for is not taken."""
        refused = refused_by(fault, request=request, profile=profile, call=call)
        known = self._known.get(door, ())
        if refused is None or refused in known:
            return None
        self._known[door] = (*known, refused)
        return Repair("cache_not_taken", f"`{request.model}`", SAID[refused])


def narrowed_by(refused: tuple[Refused, ...], *, request: Request, profile: Profile) -> tuple[Request, Profile]:
    """Both without that."""
    if not refused or request.cache is None:
        return request, profile
    cache: Caching | None = request.cache
    if "all" in refused:
        cache = None
    elif "hour" in refused:
        cache = msgspec.structs.replace(cache, hour=False)
    if "top" in refused and profile.cache == "top":
        profile = msgspec.structs.replace(profile, cache="blocks")
    return msgspec.structs.replace(request, cache=cache), profile


def refused_by(fault: Fault, *, request: Request, profile: Profile, call: HttpCall) -> Refused | None:
    """What of our own asking the fault refuses; the user's own marks and key are the user's."""
    way = profile.cache_way(request.model)
    asks = bool(call.marks) if way in MARK_WAYS else way == "key"
    if request.cache is None or not asks or fault.status not in STATUSES:
        return None
    said = fault.message
    if request.cache.hour and _OF_HOUR.search(said):
        return "hour"
    if way == "top" and _OF_TOP.search(said):
        return "top"
    return "all" if _OF_ALL.search(said) and not _OF_HOUR.search(said) else None
