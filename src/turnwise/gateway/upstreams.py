"""The upstreams of a configuration with their keys, and how each of them does: who is asked next for one client's request.

`relay/upstream_choice.py` decides; this keeps what it has decided, for all requests of the process.
"""

import contextlib
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from math import ceil

import msgspec
from msgspec.structs import replace

from turnwise.base.clock import Clock
from turnwise.endpoints.endpoints import Endpoint, Secret, find_key
from turnwise.errors import CallerError
from turnwise.gateway.config import ChosenRoute, GatewayRoute, GivenUpstream, Upstream, upstream_of
from turnwise.gateway.key_files import read_key_file
from turnwise.relay.upstream_choice import (
    COOL_S,
    OF_ALL_MODELS,
    OF_KEY,
    WELL,
    AllDead,
    Health,
    Pick,
    UpstreamDoor,
    after_answer,
    after_failure,
    in_order,
    kind_of,
    pick,
    probed,
)
from turnwise.vocab import Fault, FaultKind, Repair, Request, Text

_log = logging.getLogger("turnwise")

MOST_HEALTHS = 1000  # of doors and models that are not well: clients may name any model
KEY_REFUSED = "upstream_key_refused"
ALL_DOWN = "upstreams_down"


class OpenUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream of the configuration with one of its keys. `chat`: the same address with Chat Completions, if each request
    goes to the API that can serve it. `api` is the profile that a request then got, and `told` what is known of that.
    `is_keyless`: the key is each client's own."""

    upstream: Upstream
    endpoint: Endpoint
    name: str
    is_keyless: bool = False
    chat: Endpoint | None = None
    api: str = ""
    told: tuple[Repair, ...] = ()

    @property
    def door(self) -> str:
        """Which of all upstreams and keys it is, for rows that outlive the process."""
        return _digest(self.name)

    @property
    def account(self) -> str:
        """Where ids of what is stored are unique: all keys of one address."""
        return _digest(self.endpoint.base_url)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def open_upstream(upstream: Upstream, *, env: Mapping[str, str], forward_key: bool) -> tuple[OpenUpstream, ...]:
    """Once for each of its keys. Raises CallerError or MissingKey."""
    profile, base_url = upstream.profile, upstream.base_url or upstream.profile.base_url
    assert base_url is not None, "the configuration has refused it"
    names: Sequence[str | None] = (None,) if forward_key else (*upstream.key_envs, *upstream.key_files) or (None,)
    secrets = [(name, secret_of(variable, env=env)) for name, variable in upstream.headers_env]
    headers = (*upstream.headers, *[(name, secret.reveal()) for name, secret in secrets])
    hidden = tuple([secret for _, secret in secrets])
    found: list[OpenUpstream] = []
    for name in names:
        key = None
        if not forward_key:
            given = read_key_file(name) if name is not None and name in upstream.key_files else None
            key = find_key(
                profile, env=env, api_key=given, api_key_env=name, way="name it with `key_env` or `key_file`"
            )
        endpoint = Endpoint(profile=profile, base_url=base_url, key=key, headers=headers, hidden=hidden)
        chat = None if upstream.chat is None else replace(endpoint, profile=upstream.chat)
        shown = f"{profile.name} at {base_url.partition('?')[0]}{f' ({name})' if name else ''}"
        found.append(OpenUpstream(upstream=upstream, endpoint=endpoint, chat=chat, name=shown, is_keyless=forward_key))
    return tuple(found)


def secret_of(variable: str, *, env: Mapping[str, str]) -> Secret:
    """Raises CallerError."""
    if not (value := env.get(variable, "").strip()):
        raise CallerError(f"the variable `{variable}`, which gateway.toml names, is not set")
    return Secret(value)


class Upstreams:
    """Every upstream of the configuration, and the health of each of its doors."""

    def __init__(
        self,
        routes: Sequence[GatewayRoute],
        *,
        env: Mapping[str, str],
        forward_key: bool,
        clock: Clock,
        before: "Upstreams | None" = None,
    ) -> None:
        """What is known of the upstreams `before` counts for these, too. Raises CallerError or MissingKey for an upstream that
        cannot be used."""
        self._opened: dict[GivenUpstream, tuple[OpenUpstream, ...]] = {
            given: open_upstream(upstream_of(given), env=env, forward_key=forward_key)
            for route in routes
            for given in route.every_upstream
        }
        self._clock = clock
        # By door, for all models (None) and for one. Doors that are well are not in it.
        self._healths: OrderedDict[tuple[str, str | None], Health] = (
            OrderedDict() if before is None else before._healths
        )
        if before is not None:
            self._forget_renewed(before)

    def _forget_renewed(self, before: "Upstreams") -> None:
        """What the old key in a file did says nothing of the new one, also if requests with it are still under way."""
        old = {one.name: one.endpoint.key for one in before.every()}
        renewed = {one.name for one in self.every() if old.get(one.name, one.endpoint.key) != one.endpoint.key}
        if renewed:
            self._healths = OrderedDict([(door, one) for door, one in self._healths.items() if door[0] not in renewed])

    def every(self) -> list[OpenUpstream]:
        return [opened for several in self._opened.values() for opened in several]

    @property
    def now_s(self) -> float:
        return self._clock.monotonic()

    def first(self, route: GatewayRoute) -> OpenUpstream:
        return self._opened[route.groups[0][0]][0]

    def of(self, route: GatewayRoute) -> list[OpenUpstream]:
        return [opened for given in route.every_upstream for opened in self._opened[given]]

    @contextlib.contextmanager
    def asking(
        self, chosen: ChosenRoute, *, sticks: bytes = b"", is_first_group: bool = False, door: str = ""
    ) -> "Generator[AskedUpstreams]":
        """For one request of a client. `sticks`: what its conversation is known by; without it, any upstream will do.
        `is_first_group`: those of last resort are not asked. `door`: only this one is, if the route still has it."""
        groups = chosen.route.groups[:1] if is_first_group else chosen.route.groups
        several: list[OpenUpstream] = []
        doors: list[UpstreamDoor] = []
        for number, group in enumerate(groups):
            for given in group:
                keys = self._opened[given]
                several += keys
                weight = keys[0].upstream.weight / len(keys)
                doors += [
                    UpstreamDoor(name=f"{one.name} {one.upstream.model}", group=number, weight=weight) for one in keys
                ]
        if door and (places := [place for place, one in enumerate(several) if one.door == door]):
            several, doors = [several[place] for place in places], [doors[place] for place in places]
        asking = AskedUpstreams(self, several, doors, chosen=chosen, sticks=sticks or secrets.token_bytes(8))
        try:
            yield asking
        finally:
            asking.leave()

    def healths_of(self, opened: OpenUpstream, *, model: str) -> tuple[Health, Health]:
        """For all models, and for this one."""
        if not self._healths:
            return WELL, WELL
        return self._healths.get((opened.name, None), WELL), self._healths.get((opened.name, model), WELL)

    def looked_at(self, opened: OpenUpstream, *, model: str, is_probed: bool) -> None:
        """Whether a request is on its way to see if it is well again."""
        for key in ((opened.name, None), (opened.name, model)):
            if (known := self._healths.get(key)) is not None:
                self._healths[key] = probed(known, is_probed=is_probed)

    def saw(
        self,
        opened: OpenUpstream,
        fault: Fault | None,
        *,
        model: str,
        began_s: float,
        before: tuple[Health, Health] = (WELL, WELL),
    ) -> None:
        """What became of a request that began then; None: an answer has begun. `before`: what was known when it began, if it then
        came to nothing."""
        if fault is None and not self._healths:
            return
        kind = None if fault is None else kind_of(fault)
        if opened.is_keyless and kind in OF_KEY:
            return
        for of_model, earlier in zip((None, model), before, strict=True):
            key = (opened.name, of_model)
            known = self._healths.get(key, WELL)
            if fault is None or kind not in COOL_S:
                self._keep(key, before=known, after=after_answer(known, began_s=began_s))
            elif (kind in OF_ALL_MODELS) is (of_model is None):
                known = earlier if known is WELL else known
                after = after_failure(known, fault, began_s=began_s, now_s=self._clock.monotonic())
                self._keep(key, before=known, after=after)

    def _keep(self, key: tuple[str, str | None], *, before: Health, after: Health) -> None:
        if after is before:
            return
        shown = key[0] if key[1] is None else f"{key[0]}, model `{key[1][:100]}`"
        if after is WELL:
            del self._healths[key]
            _log.info("gateway: %s answers again", shown)
            return
        self._healths[key] = after
        self._healths.move_to_end(key)
        if len(self._healths) > MOST_HEALTHS:
            self._healths.popitem(last=False)
        if after.rounds != before.rounds:
            wait_s = after.until_s - after.failed_s
            _log.warning("gateway: %s is left alone for %.0f s: %s", shown, wait_s, after.kind)

    def states(self) -> dict[str, int]:
        """Each upstream and key: 1 if it is left alone for all of its models, else 0."""
        return {one.name: int((one.name, None) in self._healths) for one in self.every()}


class AskedUpstreams:
    """The upstreams that one client's request asks, one after the other. `hands_over` is about the last one: see `Pick`."""

    def __init__(
        self,
        upstreams: Upstreams,
        several: Sequence[OpenUpstream],
        doors: Sequence[UpstreamDoor],
        *,
        chosen: ChosenRoute,
        sticks: bytes,
    ) -> None:
        self._upstreams, self._several, self._doors, self._chosen = upstreams, several, doors, chosen
        self._order = in_order(doors, sticks=sticks)
        self._tried: set[int] = set()
        self._asked: OpenUpstream | None = None
        self._is_probe = False
        self._before = (WELL, WELL)
        self.hands_over = False

    def next(self) -> OpenUpstream | Fault | None:
        """The next one to ask. A fault is for the client: nobody is asked. None: all were."""
        self.leave()
        healths = [self._upstreams.healths_of(one, model=self._model(one)) for one in self._several]
        now_s = self._upstreams.now_s
        found = pick(self._doors, order=self._order, healths=healths, tried=self._tried, now_s=now_s)
        if not isinstance(found, Pick):
            return None if found is None else all_down(found)
        self._tried.add(found.place)
        self._before = (WELL, WELL)
        self._asked = opened = self._several[found.place]
        self.hands_over, self._is_probe = found.hands_over, found.is_probe
        if found.is_probe:
            self._upstreams.looked_at(opened, model=self._model(opened), is_probed=True)
        return opened

    def saw(self, fault: Fault | None, *, began_s: float) -> None:
        """What became of a request to the last one, which began then. A fault behind None: no word of the answer has come."""
        assert self._asked is not None, "who was asked"
        self.leave()
        model = self._model(self._asked)
        if fault is None:
            self._before = self._upstreams.healths_of(self._asked, model=model)
        self._upstreams.saw(self._asked, fault, model=model, began_s=began_s, before=self._before)

    def leave(self) -> None:
        """If the request was to see whether the upstream is well and has learned nothing, the next one sees."""
        if self._is_probe and self._asked is not None:
            self._is_probe = False
            self._upstreams.looked_at(self._asked, model=self._model(self._asked), is_probed=False)

    def _model(self, opened: OpenUpstream) -> str:
        return self._chosen.name_at(opened.upstream)


def all_down(found: AllDead) -> Fault:
    """For the client of a route of which no upstream has answered for long."""
    return Fault(
        kind=FaultKind.OVERLOADED,
        message="no upstream of this model answers; the gateway looks again soon",
        status=503,
        code=ALL_DOWN,
        retry_after_s=float(max(1, ceil(round(found.wait_s, 3)))),
    )


def as_told(fault: Fault, opened: OpenUpstream) -> Fault:
    """A client's own key is not at fault if an upstream refuses the gateway's. Its words may quote that key."""
    if fault.kind is not FaultKind.AUTH or opened.is_keyless:
        return fault
    status = "" if fault.status is None else f" (HTTP {fault.status})"
    return Fault(
        kind=FaultKind.PROTOCOL,
        message=f"the upstream refused the gateway's own key{status}: its operator finds the upstream's words in the log",
        status=502,
        code=KEY_REFUSED,
        should_retry=False,
    )


def conversation_of(client: str, request: Request, *, one_client: bool) -> bytes:
    """What stays the same in all requests of a conversation: its client and its first words. What one client has stored at a
    provider is found with the same key only."""
    told = hashlib.blake2b(client.encode(), digest_size=16)
    if not one_client:
        for text in opening_of(request):
            told.update(text.encode("utf-8", "surrogatepass"))
    return told.digest()


def opening_of(request: Request) -> list[str]:
    """The texts of the first message that a user wrote."""
    if not request.messages:
        return []
    first = next((one for one in request.messages if one.role == "user"), request.messages[0])
    return [part.text for part in first.parts if isinstance(part, Text)]
