"""Who may see the page: an admin key, or a token of one use, is exchanged for a cookie."""

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from turnwise.gateway.client_limits import LimitedClient
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.gateway_rows import Actor, digest_of
from turnwise.journal.page_sessions import PageSession, PageSessionBook
from turnwise.journal.stores import JournalStore

SESSION_S = 8 * 3600.0
WRONG_A_MINUTE = 5
MOST_ADDRESSES = 10_000  # that are remembered for a wrong key


class PageUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks. Without a `client` nothing can be changed."""

    name: str
    client: LimitedClient | None = None


# Whatever gives access may have to wait for the journal, and raises CallerError where that cannot be read.


class KeyAccess:
    """For keys of the journal with the right `admin`. A session ends when its key is revoked, exchanged or expires."""

    def __init__(self, shared: SharedClients, *, store: JournalStore, now: Callable[[], float]) -> None:
        """`store` keeps the sessions."""
        self._shared, self._now = shared, now
        self._book = PageSessionBook(store, now=now)

    def user_of_key(self, key: str, /) -> PageUser | None:
        """Who has this key, whatever it may do."""
        client = self._client_by(digest_of(key))
        return None if client is None else PageUser(name=client.name, client=client)

    def open(self, key: str, *, place: str) -> tuple[PageUser, str] | None:
        """The user and the token of a new session; None for a key that opens none. `place`: from where it came."""
        user = self.user_of_key(key)
        if user is None or user.client is None:
            return None
        if user.client.rights != "admin":
            by = Actor(who=f"key {user.name}", place=place)
            self._shared.book.note_refused(
                "sign in", kind="key", name=user.name, why="the key has no right to it", by=by
            )
            return None
        return user, self._book.open(PageSession(sha256=digest_of(key), ends=self._now() + SESSION_S))

    def user_of(self, token: str, /) -> PageUser | None:
        """Whose session it is, if it still holds."""
        session = self._book.find(token)
        client = None if session is None else self._client_by(session.sha256)
        return None if client is None or client.rights != "admin" else PageUser(name=client.name, client=client)

    def end(self, token: str, /) -> None:
        self._book.end(token)

    def _client_by(self, sha256: str) -> LimitedClient | None:
        client = (self._shared.over(None) or {}).get(sha256)
        return client if isinstance(client, LimitedClient) and self._shared.uses(client) else None


class OnceAccess:
    """For the user who has started this process and was told `key`, which opens one session."""

    def __init__(self, *, now: Callable[[], float]) -> None:
        self.key = secrets.token_urlsafe(32)
        self._now, self._user = now, PageUser(name="")
        self._is_used = False
        self._session = ("", 0.0)  # the digest of its token, and when it ends

    def user_of_key(self, key: str, /) -> PageUser | None:
        return None

    def open(self, key: str, *, place: str) -> tuple[PageUser, str] | None:
        if self._is_used or not hmac.compare_digest(digest_of(key), digest_of(self.key)):
            return None
        self._is_used, token = True, secrets.token_urlsafe(32)
        self._session = digest_of(token), self._now() + SESSION_S
        return self._user, token

    def user_of(self, token: str, /) -> PageUser | None:
        digest, ends = self._session
        return self._user if hmac.compare_digest(digest_of(token), digest) and self._now() < ends else None

    def end(self, token: str, /) -> None:
        if self.user_of(token) is not None:
            self._session = ("", 0.0)


def csrf_of(token: str) -> str:
    """What the page sends with each change: another page cannot know it, and the cookie cannot be found from it."""
    return hmac.new(token.encode(), b"turnwise page", hashlib.sha256).hexdigest()


class WrongKeys:
    """How often an address has shown a wrong key in the last minute."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._times: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, ip: str) -> float:
        """How long the address must wait before its next try; 0: it may try now."""
        recent = self._recent(_network_of(ip))
        return 0.0 if len(recent) < WRONG_A_MINUTE else recent[0] + 60.0 - self._monotonic()

    def note(self, ip: str) -> None:
        network = _network_of(ip)
        self._times[network] = [*self._recent(network), self._monotonic()]
        self._times.move_to_end(network)
        if len(self._times) > MOST_ADDRESSES:
            self._times.popitem(last=False)

    def take_back(self, ip: str) -> None:
        """The latest one was right."""
        network = _network_of(ip)
        self._times[network] = self._recent(network)[:-1]

    def _recent(self, network: str) -> list[float]:
        return [at for at in self._times.get(network, ()) if self._monotonic() - at < 60.0]


def _network_of(ip: str) -> str:
    """One person may have all addresses of a /64 of IPv6."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return ip if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
