"""Which conversations of clients have thinking that its model refuses: remembered, as no client says so again.

A conversation is known by a keyed hash of its upstream, model, client and first message. Its text is not kept, and the key of the
hash is the process's own. What is not used for some hours is forgotten, and of many the oldest; a forgotten conversation costs
one refused request.
"""

import hashlib
import secrets
from collections import OrderedDict

from turnwise.drivers.clock import Clock
from turnwise.drivers.endpoints.endpoints import Endpoint
from turnwise.faces.gateway.calls import ClientCall
from turnwise.relay.bound_thinking import BoundThinking, StaleMeans
from turnwise.vocab import Request, Text

MOST = 20_000  # conversations: some 3 MB
KEPT_S = 24 * 3600.0  # since the last request


class StaleConversations:
    """Of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[str, tuple[StaleMeans, float]] = OrderedDict()  # means, and when it was used last

    def key_of(self, call: ClientCall, request: Request, *, endpoint: Endpoint) -> str:
        """The conversation's; empty where no model of the upstream's family refuses thinking."""
        if endpoint.family.with_binding is None or not request.messages:
            return ""
        opening = next((one for one in request.messages if one.role == "user"), request.messages[0])
        said = [part.text for part in opening.parts if isinstance(part, Text)]
        named = (endpoint.profile.name, endpoint.base_url, request.model, call.client, call.client_key, *said)
        found = hashlib.blake2b(key=self._secret, digest_size=16)
        for one in named:
            found.update(len(one).to_bytes(8, "big") + one.encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    def means_of(self, key: str) -> StaleMeans:
        found = self._known.get(key)
        if found is None:
            return ""
        means, used_s = found
        if self._clock.monotonic() - used_s > KEPT_S:
            del self._known[key]
            return ""
        self._keep(key, means)
        return means

    def learned(self, bound: BoundThinking) -> None:
        """What came of a request."""
        if bound.key and bound.means:
            self._keep(bound.key, bound.means)

    def _keep(self, key: str, means: StaleMeans) -> None:
        self._known[key] = (means, self._clock.monotonic())
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
