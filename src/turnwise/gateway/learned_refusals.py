"""What upstreams have refused: remembered, as no client says so again.

Of a server and model, how it wants a conversation written. Of a client's conversation, that its model refuses its thinking.

A conversation is known by a keyed hash of its upstream, model, client and first message; thinking that is left out of it by a
keyed print of its signature. No text is kept, and the key of the hashes is the process's own. What is not used for some hours is
forgotten, and of many the oldest; a forgotten conversation costs one refused request.
"""

import hashlib
import secrets
import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from msgspec.structs import replace

from turnwise.base.clock import Clock
from turnwise.endpoints.endpoints import Endpoint
from turnwise.gateway.doors import ClientCall
from turnwise.relay.bound_requests import UNBOUND, BoundConversation, BoundThinking
from turnwise.vocab import Request, Text
from turnwise.wire.anthropic_messages.thinking import binds_thinking

MOST = 20_000  # conversations: some 5 MB
MOST_PRINTS = 100_000  # of all conversations together: some 10 MB
KEPT_S = 24 * 3600.0  # since the last request


class StaleConversations:
    """Of one process. Threads may ask: large requests are read beside the event loop."""

    def __init__(self, clock: Clock, *, most: int = MOST, most_prints: int = MOST_PRINTS) -> None:
        self._clock = clock
        self._most = most
        self._most_prints = most_prints
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[BoundConversation, float]] = OrderedDict()  # and when it was used last
        self._prints = 0

    def of(self, call: ClientCall, request: Request, *, endpoint: Endpoint) -> BoundConversation:
        """What is known of the conversation that the request belongs to; `UNBOUND` where its model refuses no thinking."""
        if endpoint.family.with_binding is None or not request.messages or not binds_thinking(request.model):
            return UNBOUND
        key = self._key_of(call, request, endpoint=endpoint)
        with self._lock:
            found, used_s = self._known.get(key, (None, 0.0))
            if found is not None:
                self._forget(key)
                if self._clock.monotonic() - used_s <= KEPT_S:
                    self._keep(found)
                    return found
        return BoundConversation(key=key, secret=self._secret)

    def learned(self, bound: BoundThinking) -> None:
        """What came of a request. Another one of the conversation may have been answered meanwhile."""
        told = bound.conversation
        if not told.key or not (told.means or told.left_out):
            return
        with self._lock:
            found, _ = self._known.get(told.key, (told, 0.0))
            self._forget(told.key)
            means, left_out = told.means or found.means, told.left_out
            if found.left_out is not left_out:
                left_out |= found.left_out
            self._keep(replace(told, means=means, left_out=left_out))

    def _key_of(self, call: ClientCall, request: Request, *, endpoint: Endpoint) -> str:
        opening = next((one for one in request.messages if one.role == "user"), request.messages[0])
        said = [part.text for part in opening.parts if isinstance(part, Text)]
        named = (endpoint.profile.name, endpoint.base_url, request.model, call.client, call.client_key, *said)
        found = hashlib.blake2b(key=self._secret, digest_size=16)
        for one in named:
            found.update(len(one).to_bytes(8, "big") + one.encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    def _keep(self, one: BoundConversation) -> None:
        self._known[one.key] = (one, self._clock.monotonic())
        self._prints += len(one.left_out)
        while len(self._known) > self._most or self._prints > self._most_prints:
            self._forget(next(iter(self._known)))

    def _forget(self, key: str) -> None:
        found, _ = self._known.pop(key, (UNBOUND, 0.0))
        self._prints -= len(found.left_out)


L = TypeVar("L")

MOST_SERVERS = 1000  # servers and models
LESSONS_S = 24 * 3600.0  # since the lesson: a server changes with its next version


class ServerLessons(Generic[L]):
    """Of one process: what is learned of one kind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[tuple[L, ...], float]] = OrderedDict()

    def known(self, endpoint: Endpoint, *, model: str) -> tuple[L, ...]:
        """What this server has taught of the model; nothing once it is a day old."""
        door = (endpoint.base_url, model)
        lessons, learned_s = self._known.get(door, ((), 0.0))
        if lessons and self._clock.monotonic() - learned_s > LESSONS_S:
            self._known.pop(door, None)  # another thread may have done so
            return ()
        return lessons

    def learned(self, endpoint: Endpoint, *, model: str, lessons: tuple[L, ...]) -> None:
        """A request that was written so has passed."""
        if self.known(endpoint, model=model) != lessons:
            self._known[endpoint.base_url, model] = (lessons, self._clock.monotonic())
            while len(self._known) > MOST_SERVERS:
                self._known.popitem(last=False)
