"""What a provider's cache has kept, and what was written to it and never read: by counts alone."""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from turnwise.rules.pricing import EXACT, SHARE_PLACES
from turnwise.vocab import Usage

MOST_LOOKED_AT = 50  # writes: a read that ends inside an earlier one is of a recent one, or of its session's first


class CacheCounts(NamedTuple):
    """What one request read from the cache and wrote to it. `endpoint` is a provider and a model: others share no cache."""

    session: str
    endpoint: str
    read: int
    written: int


def kept_tokens(usage: Usage, *, is_asked: bool, has_hit: bool) -> int:
    """How much of the prompt that was counted so its provider has kept. `is_asked`: it keeps what was marked alone, and tells
    what it wrote. Others tell nothing, so a prompt counts as kept once something of one has been read (`has_hit`)."""
    if is_asked or usage.cache_write_tokens:
        return usage.cache_read_tokens + usage.cache_write_tokens
    return usage.input_tokens if has_hit or usage.cache_read_tokens else 0


class _Write(NamedTuple):
    """The part of a prompt that a request wrote: from the token where its read ended."""

    place: int
    begins: int
    ends: int


class _Writes:
    """Of one session, or of a whole endpoint."""

    def __init__(self) -> None:
        self._by_end: dict[int, _Write] = {}
        self._listed: list[_Write] = []

    def add(self, write: _Write) -> None:
        self._by_end[write.ends] = write
        self._listed.append(write)

    def read_by(self, tokens: int) -> _Write | None:
        """The write whose end a read of so many tokens has reached: a provider reads up to a place where it wrote. Else the
        latest one that it ends inside of: what was marked there were the tools or the system text."""
        if (exact := self._by_end.get(tokens)) is not None:
            return exact
        looked_at = (*reversed(self._listed[-MOST_LOOKED_AT:]), *self._listed[:1])
        return next((one for one in looked_at if one.begins < tokens < one.ends), None)


def unread_tokens(requests: Iterable[CacheCounts]) -> list[int]:
    """Of each request, in the order in which they left, the tokens that it wrote and no later one has read."""
    unread: list[int] = []
    of_sessions: dict[tuple[str, str], _Writes] = {}
    of_endpoints: dict[str, _Writes] = {}
    for place, one in enumerate(requests):
        own = of_sessions.setdefault((one.session, one.endpoint), _Writes())
        every = of_endpoints.setdefault(one.endpoint, _Writes())
        if one.read and (found := own.read_by(one.read) or every.read_by(one.read)) is not None:
            unread[found.place] = min(unread[found.place], found.ends - one.read)
        unread.append(one.written)
        if one.written:
            write = _Write(place, one.read, one.read + one.written)
            own.add(write)
            every.add(write)
    return unread


def unread_usd(cache_write_usd: Decimal, *, unread: int, written: int) -> Decimal:
    """What the unread part of a write cost more than plain input."""
    if unread == written:
        return cache_write_usd
    share = EXACT.divide(EXACT.multiply(cache_write_usd, Decimal(unread)), Decimal(written))
    return share.quantize(SHARE_PLACES, context=EXACT)
