"""Cache settings that an endpoint refuses, learned from its errors, once for each model."""

import re
from typing import Literal

import msgspec

from turnwise.endpoints.circuits import Door
from turnwise.vocab import Caching, Fault, Repair, Request
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import MARK_WAYS, Profile

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
