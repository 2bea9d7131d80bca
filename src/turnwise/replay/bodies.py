"""The bodies of a turn's requests, encoded anew: their hashes tell whether today's code would send the same."""

from collections.abc import Iterator
from itertools import chain

import msgspec

from turnwise.endpoints.body_hash import BodyHash
from turnwise.endpoints.cache_refusals import CacheRefusals, Refused, narrowed_by
from turnwise.settings.endpoint_rows import known_profiles
from turnwise.turn.commands import Purpose, SendRequest
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import RequestFailed
from turnwise.turn.request_plan import asked_of_cache
from turnwise.vocab import Request, ToolChoice
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import Profile
from turnwise.wire.registry import family as find_family

# What an endpoint may have refused before this session began; its journal does not hold that.
EARLIER_REFUSALS: tuple[tuple[Refused, ...], ...] = (("all",), ("hour",), ("top",), ("hour", "top"))


class Body(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    size_bytes: int


class Bodies:
    """Encodes the requests of one turn in order, as `Sender` does: without a key, as the key is no part of a body."""

    def __init__(self, config: TurnConfig, *, refusals: CacheRefusals) -> None:
        self._profile = known_profiles().get(config.profile)
        self._plain: ToolChoice = config.tool_choice
        self._refusals = refusals
        self._history = EncodedHistory()
        self._hash = BodyHash()
        self._purpose: Purpose | None = None
        self._last: tuple[Request, Profile, HttpCall] | None = None

    def encode(self, command: SendRequest) -> Iterator[Body] | None:
        """The body, then the others that it may have been if the endpoint had refused marks or keys for its cache. None if nobody
        here knows the endpoint's profile. To be called once for each request that left."""
        if self._profile is None:
            return None
        asked = self._asked(command)
        request, profile = self._refusals.narrowed(asked, self._profile, door=_door(asked))
        call = find_family(profile.family).encode_request(request, profile, history=self._history)
        self._last = request, profile, call
        body = Body(sha256=self._hash.sha256_of(call), size_bytes=len(call.body))
        return chain((body,), self._others(asked, profile=self._profile))

    def saw(self, event: RequestFailed) -> None:
        """A failure may say that the endpoint does not take what was asked of its cache: the next request asks for less."""
        if self._last is not None:
            request, profile, call = self._last
            self._refusals.saw(event.fault, request=request, profile=profile, call=call, door=_door(request))

    def _asked(self, command: SendRequest) -> Request:
        before, self._purpose = self._purpose, command.purpose
        return asked_of_cache(command.request, purpose=command.purpose, before=before, plain=self._plain)

    def _others(self, request: Request, *, profile: Profile) -> Iterator[Body]:
        for refused in EARLIER_REFUSALS if request.cache is not None else ():
            less, narrow = narrowed_by(refused, request=request, profile=profile)
            call = find_family(narrow.family).encode_request(less, narrow)
            yield Body(sha256=BodyHash().sha256_of(call), size_bytes=len(call.body))


def _door(request: Request) -> tuple[str, str]:
    """One endpoint's: a session's turns may go to several, and a model's name tells them apart well enough."""
    return "", request.model
