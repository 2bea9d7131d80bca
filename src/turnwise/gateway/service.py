"""Behind the doors: from a client's request to the upstream that serves it, and back."""

import asyncio
import contextlib
import functools
import hashlib
import logging
import random
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from turnwise.base.clock import Clock, Overdue, SystemClock, Watchdog
from turnwise.base.threads import beside_loop
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.local_servers import ask_for_models
from turnwise.endpoints.transport import EndHabits, Transport, read_bounded
from turnwise.errors import CallerError, ProviderFault
from turnwise.gateway.accounts import NO_LEDGER, Account, AccountMeans, GatewayCounts, open_accounts, received_body
from turnwise.gateway.before_request import check_allowed
from turnwise.gateway.client_bounds import LONG_ANSWER_BYTES, OpenAnswer, OpenAnswers, give_memory_back
from turnwise.gateway.client_limits import LONGEST_RETRY_S
from turnwise.gateway.config import DEFAULTS as DEADLINES
from turnwise.gateway.config import (
    SHARED,
    ChosenRoute,
    GatewayConfig,
    GatewayDeadlines,
    GatewayRoute,
    Upstream,
    choose_route,
    configured_models,
)
from turnwise.gateway.delivery import (
    PAGE,
    Delivery,
    DeliveryMeans,
    is_page,
    not_carried_header,
    without_address,
    write_body,
    write_found,
)
from turnwise.gateway.doors import ClientCall, ClientGone, DoorReason, Outlet, encode_own
from turnwise.gateway.equal_turns import JOINED, EqualTurns, turn_key
from turnwise.gateway.passed_answers import Passing
from turnwise.gateway.passing import PassedCall, costs_nothing, passes, read_passed
from turnwise.gateway.stored_objects import OwningOutlet, StoredObjects, owner_of, owning_outlet
from turnwise.gateway.upstreams import (
    AskedUpstreams,
    OpenUpstream,
    Upstreams,
    as_told,
    conversation_of,
    opening_of,
    secret_of,
)
from turnwise.journal.ledger import ReceivedResponse
from turnwise.relay.client_exchange import (
    UNBOUND,
    BoundConversation,
    BoundThinking,
    ClientSide,
    Relay,
    RelayEnd,
    RelayRules,
    SoughtInText,
    UpstreamSide,
)
from turnwise.relay.client_request import (
    ClientRequest,
    RequestRefused,
    embed_path,
    read_body,
    read_client_request,
    refusal_answer,
    refuse_stored,
    renamed_embeds,
)
from turnwise.relay.event_reader import ArrayAnswer
from turnwise.relay.openai_apis import ApiRefusal, api_refusal, choose_api, other_api
from turnwise.relay.stored_ids import StoredId, ids_in_request, ids_of_files, place_of
from turnwise.relay.terms import RouteTerms, UpstreamRequest, names_not_carried
from turnwise.relay.token_counting import (
    UpstreamCount,
    counts_not,
    read_count,
    read_count_request,
    translate_count,
    write_count,
)
from turnwise.relay.translation import translate
from turnwise.relay.upstream_choice import COOL_S
from turnwise.rules.prompt_room import UNKNOWN_LIMITS
from turnwise.rules.retries import RetryPolicy
from turnwise.settings.catalogue import find_end, find_limits
from turnwise.turn.config import Deadlines
from turnwise.vocab import Fault, FaultKind, Request, ServerLesson
from turnwise.vocab.json_values import without_nones
from turnwise.wire.anthropic_messages.thinking import binds_thinking
from turnwise.wire.family import HttpCall, family
from turnwise.wire.json_fields import encode, string_of
from turnwise.wire.profiles import DEFAULT_LIMITS, FamilyName
from turnwise.wire.relay_facts import AskedPath, ListedModel, relay_facts

if TYPE_CHECKING:
    from turnwise.gateway.reloading import RenewableService

# What upstreams have refused. It is remembered here, because a client does not repeat it.
#
# For a server and model: how it wants a conversation written. For a client's conversation: that its model refuses its thinking.
#
# A conversation is known by a keyed hash of its upstream, model, client and first message; dropped thinking by a keyed print of
# its signature. No text is kept, and the key of the hashes belongs to this process. Entries that are unused for some hours are
# forgotten, and the oldest if there are too many; a forgotten conversation costs one refused request.


MOST = 20_000  # conversations: some 5 MB
MOST_PRINTS = 100_000  # of all conversations together: some 10 MB
KEPT_S = 24 * 3600.0  # since the last request


class StaleConversations:
    """The conversations of one process. Threads may ask: large requests are read beside the event loop."""

    def __init__(self, clock: Clock, *, most: int = MOST, most_prints: int = MOST_PRINTS) -> None:
        self._clock = clock
        self._most = most
        self._most_prints = most_prints
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[BoundConversation, float]] = OrderedDict()  # and its last use
        self._prints = 0

    def of(self, call: ClientCall, request: Request, *, endpoint: Endpoint) -> BoundConversation:
        """What is known of the request's conversation; `UNBOUND` if its model refuses no thinking."""
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
        """Keep the outcome of a request. Another request of the conversation may have been answered meanwhile."""
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
        here = (endpoint.profile.name, endpoint.base_url, request.model, call.client, call.client_key)
        named = (*here, *opening_of(request))
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
    """What one process has learned of one kind."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[str, str], tuple[tuple[L, ...], float]] = OrderedDict()

    def known(self, endpoint: Endpoint, *, model: str) -> tuple[L, ...]:
        """What this server has taught about the model; nothing once it is a day old."""
        door = (endpoint.base_url, model)
        lessons, learned_s = self._known.get(door, ((), 0.0))
        if lessons and self._clock.monotonic() - learned_s > LESSONS_S:
            self._known.pop(door, None)  # another thread may have done so
            return ()
        return lessons

    def learned(self, endpoint: Endpoint, *, model: str, lessons: tuple[L, ...]) -> None:
        """A request with these lessons was accepted."""
        if self.known(endpoint, model=model) != lessons:
            self._known[endpoint.base_url, model] = (lessons, self._clock.monotonic())
            while len(self._known) > MOST_SERVERS:
                self._known.popitem(last=False)


_log = logging.getLogger("turnwise")

COUNTS_NOT_S = 600.0  # how long an upstream without an endpoint for counting is not asked again: it may be updated

DAY_S = 86_400.0  # the longest deadline of a file

NO_STREAMS = (
    "a stream needs HTTP 1.1, and this request came over HTTP 1.0. A proxy before the gateway may do that: nginx needs "
    "`proxy_http_version 1.1;`"
)


class ServiceMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What the service works with."""

    transport: Transport
    clock: Clock
    env: Mapping[str, str] = {}
    deadlines: Deadlines = Deadlines()
    accounts: AccountMeans = msgspec.field(default_factory=AccountMeans)


class Learned:
    """What a service knows besides its configuration. It outlives the service where the configuration is read again."""

    def __init__(self, answers: OpenAnswers, *, clock: Clock) -> None:
        self.answers = answers
        self.told_ends: set[str] = set()  # as many as the table of ends has sentences
        self.habits = EndHabits()
        self.stale = StaleConversations(clock)
        self.lessons = ServerLessons[ServerLesson](clock)
        self.api_refusals = ServerLessons[ApiRefusal](clock)
        self.counts_not_until: dict[str, float] = {}  # by the name of the upstream and the clock's `monotonic`
        self.upstreams: Upstreams | None = None
        self.turns = EqualTurns(clock)


class RelayService:
    """A `GatewayService` over the relay. Raises CallerError or MissingKey for an upstream that cannot be used."""

    def __init__(
        self, config: GatewayConfig, *, means: ServiceMeans, forward_key: bool, learned: "Learned | None" = None
    ) -> None:
        """What the service before has `learned` counts for this one, too."""
        self._config = config
        self._means = means
        self._forward_key = forward_key
        # What may raise comes first: a configuration that cannot be used changes nothing.
        for hook in [route.before_request for route in config.routes if route.before_request is not None]:
            if hook.key_env is not None:
                secret_of(hook.key_env, env=means.env)
        before = None if learned is None else learned.upstreams
        opened = Upstreams(config.routes, env=means.env, forward_key=forward_key, clock=means.clock, before=before)
        self._limits = msgspec.structs.replace(
            DEFAULT_LIMITS, response_bytes=config.bounds.response_bytes, tells_long_calls=False
        )
        most_bytes = config.bounds.answers_bytes
        share_bytes = most_bytes // config.bounds.streams
        if learned is None:
            answers = OpenAnswers(most_bytes=most_bytes, clock=means.clock, share_bytes=share_bytes)
            learned = Learned(answers, clock=means.clock)
        else:
            learned.answers.bound(most_bytes=most_bytes, share_bytes=share_bytes)
        self._learned = learned
        self._upstreams = learned.upstreams = opened
        means.accounts.counts.configure(configured_models(config.routes))
        means.accounts.counts.measure = self._measure
        self._answers, self._told_ends, self._habits = learned.answers, learned.told_ends, learned.habits
        self._stored = StoredObjects(means.accounts.ledger, clock=means.clock)
        self._stale, self._lessons, self._api_refusals = learned.stale, learned.lessons, learned.api_refusals
        self._counts_not_until = learned.counts_not_until
        for opened in self._upstreams.every():
            if opened.upstream.model:
                self._warn_of_end(opened.upstream.model, opened.upstream)
        self._began = datetime.fromtimestamp(means.clock.now(), UTC)

    def renewed(self, config: GatewayConfig, /) -> "RelayService":
        means = self._means
        if (read := means.accounts.read_prices) is not None:
            means = msgspec.structs.replace(means, accounts=msgspec.structs.replace(means.accounts, prices=read()))
        return RelayService(config, means=means, forward_key=self._forward_key, learned=self._learned)

    def reloaded(self, *, is_good: bool) -> None:
        self._means.accounts.counts.set("turnwise_gateway_last_reload_good", int(is_good))

    def _warn_of_end(self, model: str, upstream: Upstream) -> None:
        """One log line for a model that will end, and one more once it has ended."""
        end = find_end(model, profile=upstream.profile, base_url=upstream.base_url)
        if end is None:
            return
        said = f"{upstream.profile.name}:{end.row} {end.said(now_s=self._means.clock.now())}"
        if said not in self._told_ends:
            self._told_ends.add(said)
            _log.warning("gateway: %s", said)

    def is_ready(self) -> bool:
        return self._means.accounts.is_ready

    def stop_keeping(self) -> None:
        self._learned.turns.end()

    def refused(self, reason: DoorReason, *, family: FamilyName, kind: str, status: int) -> None:
        self._means.accounts.counts.refused(reason, family=family, kind=kind, status=status)

    def is_full(self) -> bool:
        return self._answers.is_full

    def metrics(self) -> bytes:
        return self._means.accounts.counts.text()

    def _measure(self) -> None:
        counts = self._means.accounts.counts
        counts.set("turnwise_gateway_answer_bytes", self._answers.size)
        counts.set("turnwise_gateway_store_reachable", int(self._means.accounts.is_well))
        counts.set_each("turnwise_gateway_upstream_left_alone", self._upstreams.states())

    async def answer(self, call: ClientCall, outlet: Outlet) -> None:
        """Serve until the answer is whole or the client has left; then the upstream's request is broken off, too."""
        account = Account(call, means=self._means.accounts)
        with account.open(outlet) as watched:
            await self._answer(call, watched, account=account)

    async def _answer(self, call: ClientCall, outlet: Outlet, *, account: Account) -> None:
        serving = asyncio.ensure_future(self._serve(call, outlet, account=account))
        leaving = asyncio.ensure_future(outlet.gone())
        has_left = False
        try:
            await asyncio.wait([serving, leaving], return_when=asyncio.FIRST_COMPLETED)
            has_left = not serving.done()
            if has_left and account.outlive is not None:
                await account.outlive(serving)
        finally:
            leaving.cancel()
            serving.cancel()
            await asyncio.gather(leaving, serving, return_exceptions=True)  # what it has sent upstream is recorded
            account.outlive = None
        try:
            if serving.cancelled():
                raise ClientGone
            serving.result()
            if has_left:
                raise ClientGone
        finally:
            del serving  # it holds the exception that it raised, and that holds this frame

    async def _serve(self, call: ClientCall, outlet: Outlet, *, account: Account) -> None:
        try:
            if call.kind == "passed":
                await self._pass_on(call, outlet, account=account)
            elif call.kind == "count":
                await self._count(call, outlet, account=account)
            elif call.kind == "embed":
                await self._embed(call, outlet, account=account)
            else:
                with self._answers.open() as answer:
                    await self._generate(call, outlet, account=account, answer=answer)
                if answer.received_bytes > LONG_ANSWER_BYTES:
                    asyncio.get_running_loop().run_in_executor(None, give_memory_back)
        except RequestRefused as refused:
            status, body = refusal_answer(refused, client=call.family)
            await write_body(status, body, outlet=outlet)

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _generate(self, call: ClientCall, outlet: Outlet, *, account: Account, answer: OpenAnswer) -> None:
        chosen, asked, sticks = await beside_loop(lambda: self._read(call), size=len(call.body))
        account.route = self._name_of(chosen.route)
        if asked.streams and not call.takes_streams:
            raise RequestRefused(NO_STREAMS, status=505)
        await self._check_allowed(chosen.route, call, model=chosen.model)
        door = await self._door_of(
            chosen.route, call, ids=lambda: ids_in_request(call.family, call.body) | ids_of_files(asked.request)
        )
        is_teams = chosen.route.stored_is == "team"

        async def write(to: Outlet) -> None:
            owning = owning_outlet(to, call, asked, stored=self._stored) if is_teams else None
            try:
                with self._upstreams.asking(chosen, sticks=sticks, door=door) as asking:
                    await self._ask_each(
                        asking, asked, chosen=chosen, call=call, outlet=owning or to, account=account, answer=answer
                    )
            except RequestRefused as refused:
                status, body = refusal_answer(refused, client=call.family)
                await write_body(status, body, outlet=to)
            else:
                if owning is not None:
                    await owning.flush()

        rejoin_s = self._times(chosen.route).rejoin_s
        if not call.same_turn or not rejoin_s:
            await write(outlet)
            return
        turns, key = self._learned.turns, await beside_loop(lambda: turn_key(call), size=len(call.body))
        if (found := turns.find(key, route=chosen.route)) is not None:
            if (fault := await account.refuses_joining(found.account)) is not None:
                account.relayed(RelayEnd(fault=fault))
                await write_found(fault, client=call.family, outlet=outlet)
                return
            found = turns.find(key, route=chosen.route)  # it may be over by now
        if found is not None:
            account.joins(found.account)
            await found.listen(outlet, headers=[(JOINED, found.account.id)])
            return
        shared = turns.open(key, route=chosen.route, account=account, rejoin_s=rejoin_s)
        account.outlive = shared.outlive
        await shared.tell(outlet, write)

    async def _ask_each(
        self,
        asking: AskedUpstreams,
        asked: ClientRequest,
        *,
        chosen: ChosenRoute,
        call: ClientCall,
        outlet: Outlet,
        account: Account,
        answer: OpenAnswer,
    ) -> None:
        """One upstream after the other, until one answers."""
        route = chosen.route
        fault: Fault | None = None
        wants_array = relay_facts(call.family).arrays and ("alt", "sse") not in call.query
        array = ArrayAnswer() if asked.streams and wants_array else None
        last: tuple[Delivery, RelayEnd, OpenUpstream] | None = None
        times = self._times(route)
        assert times.total_s is not None, "the defaults have it"
        ends_s = self._means.clock.monotonic() + times.total_s
        other: OpenUpstream | None = None  # the same upstream, with its other API
        while (found := other or asking.next()) is not None:
            if isinstance(found, Fault):
                account.relayed(RelayEnd(fault=found))
                await write_found(found, client=call.family, outlet=outlet)
                return
            opened = self._with_api(self._for_client(found, call), asked, chosen=chosen)
            if isinstance(outlet, OwningOutlet):
                outlet.opened = opened
            try:
                deliver = functools.partial(
                    self._delivery,
                    asked,
                    chosen=chosen,
                    opened=opened,
                    call=call,
                    outlet=outlet,
                    account=account,
                    times=times,
                    ends_s=ends_s,
                    array=array,
                    started=last is not None and last[0].started,
                    answer=answer,
                    asking=asking,
                )
                delivery = await beside_loop(deliver, size=len(call.body))
            except RequestRefused:
                if fault is None:
                    raise
                continue  # a fallback that cannot carry the request must not hide why the one before it failed
            end = await delivery.attempt()
            self._stale.learned(delivery.bound)
            if end.fault is None and (lessons := delivery.lessons):
                self._lessons.learned(opened.endpoint, model=delivery.model, lessons=lessons)
            account.relayed(end)
            fault, last = end.fault, (delivery, end, opened)
            if (other := self._other_api(opened, delivery, fault)) is not None:
                fault = fault if delivery.started else None  # if neither API accepts a field, the refusal names it
                continue
            if fault is None or delivery.has_content or (delivery.started and not route.heal):
                break
            # Another upstream may not answer if the request itself is wrong, or if nothing may be sent.
            is_final = fault.kind is FaultKind.BAD_REQUEST or fault is NO_LEDGER or fault is account.refused
            if is_final or self._means.clock.monotonic() >= ends_s:
                break
        assert last is not None, "there is one upstream at least"
        delivery, end, opened = last
        if end.fault is not None:
            end = replace(end, fault=self._as_told(end.fault, opened, account=account))
        await delivery.end(end)
        if end.fault is not None and not delivery.started:
            await _write_fault(end.fault, call=call, outlet=outlet, account=account)

    def _as_told(self, fault: Fault, opened: OpenUpstream, *, account: Account) -> Fault:
        """The fault for the client; what it leaves out is in the log."""
        told = as_told(fault, opened)
        if told is not fault:
            account.upstream_said(fault.message, provider=opened.name)
        return told

    def _with_api(self, opened: OpenUpstream, asked: ClientRequest, *, chosen: ChosenRoute) -> OpenUpstream:
        """The upstream with the API that can serve the request, if it has two."""
        chat = opened.chat
        if chat is None:
            return opened
        model = chosen.name_at(opened.upstream) or asked.request.model
        row = chat.profile.taught(self._lessons.known(chat, model=model))
        refused = self._api_refusals.known(chat, model=model)
        api = choose_api(asked, model=model, chat=row, refused=refused)
        endpoint = chat if api == "chat" else opened.endpoint
        return replace(opened, endpoint=endpoint, api=endpoint.profile.name)

    def _other_api(self, opened: OpenUpstream, delivery: Delivery, fault: Fault | None) -> OpenUpstream | None:
        """The upstream once more, if it has just taught that its other API is the right one for this request."""
        if fault is None or opened.chat is None or opened.endpoint.profile != opened.chat.profile:
            return None
        taught, known = api_refusal(fault), self._api_refusals.known(opened.chat, model=delivery.model)
        if taught is None or opened.told or delivery.has_content:
            return None
        if taught not in known:  # another request may have been refused meanwhile
            self._api_refusals.learned(opened.chat, model=delivery.model, lessons=(*known, taught))
        own = replace(opened.chat, profile=opened.upstream.profile)
        return replace(opened, endpoint=own, told=(other_api(taught, row=own.profile.name),))

    def _read(self, call: ClientCall) -> tuple[ChosenRoute, ClientRequest, bytes]:
        """The route, the request, and what its conversation is known by. Raises RequestRefused."""
        chosen = self._route_of(call)
        one_client = bool(chosen.route.one_client)
        opens = chosen.route.stored_is != "refused"
        asked = read_client_request(_asked(call, chosen.model), call.body, one_client=opens)
        return chosen, asked, conversation_of(call.client, asked.request, one_client=one_client)

    def _delivery(
        self,
        asked: ClientRequest,
        *,
        chosen: ChosenRoute,
        opened: OpenUpstream,
        call: ClientCall,
        outlet: Outlet,
        account: Account,
        times: GatewayDeadlines,
        ends_s: float,
        array: ArrayAnswer | None,
        started: bool,
        answer: OpenAnswer,
        asking: AskedUpstreams,
    ) -> Delivery:
        route, endpoint, means = chosen.route, opened.endpoint, self._means
        model = chosen.name_at(opened.upstream)
        self._warn_of_end(model, opened.upstream)
        has_dialects = relay_facts(endpoint.profile.family).has_dialects
        terms = RouteTerms(
            model=model,
            max_output_tokens=route.max_output_tokens,
            one_call_at_a_time=route.one_call_at_a_time,
            # They are about Chat Completions, and the address may also have another API.
            lessons=self._lessons.known(endpoint, model=model or asked.request.model) if has_dialects else (),
        )

        def written(lessons: tuple[ServerLesson, ...]) -> UpstreamRequest:
            found = translate(asked, terms=replace(terms, lessons=lessons), profile=endpoint.profile)
            return replace(found, call=_with_client_headers(found.call, call, same=found.keeps_bytes))

        heals = route.heal and not asked.has_choices  # of several answers only one could be healed
        sent = written(terms.lessons)
        account.not_carried = names_not_carried(sent.told)
        rules = RelayRules(
            heals=heals,
            has_choices=asked.has_choices,
            hands_over=asking.hands_over and route.heal,
            continues="calls" if route.continues and heals else "off",
            most_calls=1 if route.one_call_at_a_time and not asked.has_choices else None,
            most_output_tokens=route.max_output_tokens,
            retries=RetryPolicy(attempts=route.retry + 1),
            limits=find_limits(model, profile=endpoint.profile.name) or UNKNOWN_LIMITS,
            bounds=self._limits,
        )
        relay = Relay(
            upstream=UpstreamSide(
                request=sent.request,
                tools=sent.tools,
                stops=sent.stops,
                call=sent.call,
                family=endpoint.family,
                profile=endpoint.profile,
                in_text=_sought(route, endpoint=endpoint, request=sent.request),
                rewrite=written if has_dialects else None,
            ),
            client=ClientSide(request=asked.request, family=family(call.family), counts=not sent.adds_usage),
            rules=rules,
            told=(*opened.told, *sent.told),
            spread=random.random(),
            conversation=self._stale.of(call, sent.request, endpoint=endpoint),
            stamp=account.stamp,
        )
        return Delivery(
            relay,
            means=DeliveryMeans(
                endpoint=endpoint,
                transport=means.transport,
                clock=means.clock,
                deadlines=_attempt_deadlines(means.deadlines, times=times, streams=sent.request.stream),
                limits=self._limits,
                jitter=random.random,
                retry_s=times.retry_s,
                ends_s=ends_s,
                habits=self._habits,
                saw=asking.saw,
                sends_trace=opened.upstream.traceparent,
            ),
            outlet=outlet,
            streams=asked.streams,
            account=account,
            array=array,
            not_carried=account.not_carried,
            api=opened.api,
            started=started,
            answer=answer,
        )

    async def _count(self, call: ClientCall, outlet: Outlet, *, account: Account) -> None:
        """Ask the upstream if it counts tokens, otherwise estimate; a header says so."""
        chosen = await beside_loop(lambda: self._route_of(call), size=len(call.body))
        account.route = self._name_of(chosen.route)
        await self._check_allowed(chosen.route, call, model=chosen.model)
        door = await self._door_of(chosen.route, call, ids=lambda: ids_in_request(call.family, call.body))
        with self._upstreams.asking(chosen, door=door) as asking:
            await self._count_by(asking, chosen=chosen, call=call, outlet=outlet, account=account)

    async def _count_by(
        self, asking: AskedUpstreams, *, chosen: ChosenRoute, call: ClientCall, outlet: Outlet, account: Account
    ) -> None:
        """One upstream after the other, until one has counted, or its API cannot."""
        began_s = self._means.clock.monotonic()
        fault: Fault | None = None
        found = asking.next()
        while fault is None or isinstance(found, OpenUpstream):
            given = found if isinstance(found, OpenUpstream) else self._upstreams.first(chosen.route)
            opened = self._for_client(given, call)
            name = chosen.name_at(opened.upstream)
            prepare = functools.partial(self._counting, call, chosen=chosen, opened=opened, model=name)
            try:
                count, known = await beside_loop(prepare, size=len(call.body))
            except RequestRefused:
                if fault is None:
                    raise
                found = asking.next()  # as with a request to generate, an earlier failure is told
                continue
            account.not_carried = names_not_carried(count.told)
            tokens: int | Fault | None = None
            may_ask = given is found and began_s >= self._counts_not_until.get(opened.name, 0.0)
            if count.call is not None and may_ask:
                bound = BoundThinking(count.call, model=name, family=opened.endpoint.family, known=known)
                tokens = await self._counted(
                    bound, opened, model=name, asking=asking, chosen=chosen, account=account, began_s=began_s
                )
            if not isinstance(tokens, Fault):
                said = count.estimated_tokens if tokens is None else tokens
                headers = not_carried_header(account.not_carried)
                if tokens is None:
                    headers.append(("turnwise-estimated", "true"))
                await write_body(200, write_count(said, client=call.family), outlet=outlet, headers=headers)
                return
            fault = self._as_told(tokens, opened, account=account)
            if fault.kind is FaultKind.BAD_REQUEST or self._whole_s(chosen.route, began_s=began_s) <= 0:
                break
            found = asking.next()
        await write_found(fault, client=call.family, outlet=outlet)

    def _counting(
        self, call: ClientCall, *, chosen: ChosenRoute, opened: OpenUpstream, model: str
    ) -> tuple[UpstreamCount, BoundConversation]:
        """How this upstream is asked to count. Raises RequestRefused."""
        opens = chosen.route.stored_is != "refused"
        asked = read_count_request(_asked(call, chosen.model), call.body, one_client=opens)
        request = msgspec.structs.replace(asked.request, model=model)
        conversation = self._stale.of(call, request, endpoint=opened.endpoint)
        return translate_count(asked, terms=RouteTerms(model=model), profile=opened.endpoint.profile), conversation

    async def _counted(
        self,
        bound: BoundThinking,
        opened: OpenUpstream,
        *,
        model: str,
        asking: AskedUpstreams,
        chosen: ChosenRoute,
        account: Account,
        began_s: float,
    ) -> int | Fault | None:
        """The tokens, None if it cannot count, or why it did not."""
        profile = opened.endpoint.profile
        found = await self._told_of(bound, opened, asking=asking, route=chosen.route, account=account, began_s=began_s)
        has_none = isinstance(found, Fault) and counts_not(found, model=model)
        account.counted(profile.name, model, found, is_estimated=has_none)
        if has_none:
            self._counts_not_until[opened.name] = self._means.clock.monotonic() + COUNTS_NOT_S
            return None
        return found if isinstance(found, Fault) else read_count(found, upstream=profile.family)

    async def _pass_on(self, call: ClientCall, outlet: Outlet, *, account: Account) -> None:
        """A path that a route lists: body and answer are passed on unchanged, apart from the name that an alias replaces."""
        read = await beside_loop(lambda: read_passed(call), size=len(call.body))
        named = read.model
        chosen = self._route_of_model(named, call) if named else self._route_of_path(call)
        account.route = self._name_of(chosen.route)
        if not passes(chosen.route.passes, call.method, call.path):
            raise RequestRefused(
                f"the route of the model `{named}` does not list `{call.path}` in `pass`", field="model", status=404
            )
        if chosen.route.stored_is == "refused":
            families: set[FamilyName] = {call.family, self._upstreams.first(chosen.route).endpoint.profile.family}
            for family in families:
                await beside_loop(functools.partial(read.refuse_stored, family), size=len(call.body))
        model = chosen.model or string_of(read.fields, "model") or ""
        await self._check_allowed(chosen.route, replace(call, body=read.told), model=model)
        at = self._upstreams.of(chosen.route)
        place = place_of(call.path, at[0].endpoint.profile.family)
        door = await self._door_of(chosen.route, call, ids=lambda: read.ids(call, place))
        ask = functools.partial(
            self._ask_up, call=call, outlet=outlet, chosen=chosen, model=model, account=account, door=door
        )
        passing = Passing(call, read, ask=ask, stored=self._stored, at=at, chosen=chosen, place=place)
        await passing.run(outlet)

    async def _embed(self, call: ClientCall, outlet: Outlet, *, account: Account) -> None:
        """Gemini's embeddings, of an upstream with its API: body and answer as they are, apart from the model's name."""
        chosen = self._route_of(call)
        first = self._upstreams.first(chosen.route)
        if first.endpoint.profile.family != call.family:
            title, model = relay_facts(call.family).title, call.model
            raise RequestRefused(
                f"the upstream of `{model}` does not speak {title}, which alone has this path", status=404
            )
        model = chosen.name_at(first.upstream)
        fields = await beside_loop(lambda: read_body(call.body), size=len(call.body))
        body = call.body if model == call.model else renamed_embeds(fields, model=model)
        if chosen.route.stored_is == "refused":
            await beside_loop(lambda: refuse_stored(call.family, fields), size=len(call.body))
        door = await self._door_of(chosen.route, call, ids=lambda: ids_in_request(call.family, call.body))
        await self._check_allowed(chosen.route, call, model=model)
        up = HttpCall(path=embed_path(call.path, model=model), body=body, headers=call.headers)
        asking = self._ask_up(up, call=call, outlet=outlet, chosen=chosen, model=model, account=account, door=door)
        if (found := await asking) is not None:
            await write_found(found[0], client=call.family, outlet=outlet)

    async def _check_allowed(self, route: GatewayRoute, call: ClientCall, *, model: str) -> None:
        """Raises RequestRefused if the route's hook forbids the request."""
        if (hook := route.before_request) is not None:
            means = self._means
            await check_allowed(hook, call, model=model, transport=means.transport, clock=means.clock, env=means.env)

    async def _ask_up(
        self,
        up: HttpCall,
        *,
        call: ClientCall,
        outlet: Outlet,
        chosen: ChosenRoute,
        model: str,
        account: Account,
        door: str = "",
    ) -> tuple[bytes | Fault, OpenUpstream | None] | None:
        """The whole answer and who gave it; where an upstream fails, the next one is asked. None: the client was told."""
        began_s = self._means.clock.monotonic()
        told: bytes | Fault | None = None
        opened: OpenUpstream | None = None
        sticks = owner_of(call).encode() if chosen.route.stored_is == "team" else b""
        first = self._upstreams.first(chosen.route).endpoint.profile.family
        is_billed = not (isinstance(up, PassedCall) and costs_nothing(up, first))
        with self._upstreams.asking(chosen, sticks=sticks, is_first_group=not door, door=door) as asking:
            while (found := asking.next()) is not None:
                if isinstance(found, Fault):
                    told = found
                    break
                opened = self._for_client(found, call)
                provider = opened.endpoint.profile.name
                sent = None
                if is_billed:
                    sent = await account.sends(
                        "step", provider=provider, model=model, sent_bytes=len(up.body), body=up.body
                    )
                if isinstance(sent, Fault):
                    await _write_fault(sent, call=call, outlet=outlet, account=account)
                    return None
                received = ReceivedResponse(cancelled=True, answered=False)
                try:
                    whole_s = self._whole_s(chosen.route, began_s=began_s)
                    told = await self._told(opened, up, asking=asking, whole_s=whole_s, account=account)
                    received = received_body(told)
                finally:
                    if sent is not None:
                        sent.ended(received)
                if sent is None:
                    account.counted(provider, model, told, purpose="pass")
                if not isinstance(told, Fault):
                    break
                told = self._as_told(told, opened, account=account)
                if told.kind not in COOL_S or self._whole_s(chosen.route, began_s=began_s) <= 0:
                    break
        assert told is not None, "there is one upstream at least"
        return told, opened

    async def _door_of(self, route: GatewayRoute, call: ClientCall, *, ids: Callable[[], Collection[StoredId]]) -> str:
        """The upstream and key that has the objects that the request names; "" if it names none. Raises RequestRefused unless
        all of them are the client's."""
        if route.stored_is != "team":
            return ""
        found = await beside_loop(ids, size=len(call.body))
        return await self._stored.check(found, owner=owner_of(call), at=self._upstreams.of(route))

    def _name_of(self, route: GatewayRoute) -> str:
        """What counts call it."""
        places = [str(place) for place, one in enumerate(self._config.routes, start=1) if one is route]
        return route.name or "".join(places)

    def _times(self, route: GatewayRoute) -> GatewayDeadlines:
        """The route's own times, then the file's, then the defaults."""
        return route.deadlines.over(self._config.deadlines.over(DEADLINES))

    def _whole_s(self, route: GatewayRoute, *, began_s: float) -> float:
        """How long an attempt at an answer without a stream may take, for a request that began then."""
        times = self._times(route)
        assert times.whole_s is not None and times.total_s is not None, "the defaults have them"
        return min(times.whole_s, began_s + times.total_s - self._means.clock.monotonic())

    async def _told_of(
        self,
        bound: BoundThinking,
        opened: OpenUpstream,
        *,
        asking: AskedUpstreams,
        route: GatewayRoute,
        account: Account,
        began_s: float,
    ) -> bytes | Fault:
        """As `_told`, and once more after each refusal of thinking that could be corrected."""
        while True:
            whole_s = self._whole_s(route, began_s=began_s)
            found = await self._told(opened, bound.call, asking=asking, whole_s=whole_s, account=account)
            if not (isinstance(found, Fault) and bound.mends(found)):
                self._stale.learned(bound)
                return found

    async def _told(
        self, opened: OpenUpstream, sent: HttpCall, *, asking: AskedUpstreams, whole_s: float, account: Account
    ) -> bytes | Fault:
        """One request and its whole answer, or the fault as the client may know it."""
        endpoint, began_s = opened.endpoint, self._means.clock.monotonic()
        found = await self._ask_upstream(endpoint, sent, whole_s=whole_s)
        asking.saw(found if isinstance(found, Fault) else None, began_s=began_s)
        if not isinstance(found, Fault):
            return found
        if found.kind is FaultKind.TIMEOUT and found.status is None:
            found = replace(found, status=504)  # for the client
        told = without_address(found, base_url=endpoint.base_url)
        if told.log:
            account.upstream_said(told.log, provider=endpoint.profile.name)
        return told.fault

    async def _ask_upstream(self, endpoint: Endpoint, sent: HttpCall, *, whole_s: float) -> bytes | Fault:
        """One request and its whole answer, bounded in time and size."""
        request = build_http_request(endpoint, sent, connect_s=self._means.deadlines.connect_s)
        passed = sent if isinstance(sent, PassedCall) else None
        if passed is not None:
            request = passed.addressed(request, endpoint)
        most = self._limits.response_bytes
        try:
            async with Watchdog(self._means.clock, total_s=whole_s), self._means.transport.send(request) as reply:
                answer = await read_bounded(reply.chunks, most_bytes=most)
        except Overdue:
            return Fault(kind=FaultKind.TIMEOUT, message="the upstream did not answer in time")
        except ProviderFault as error:
            return error.fault
        if len(answer) > most:
            return Fault(kind=FaultKind.TOO_LARGE, message="the upstream's answer is too long", status=502)
        if not 200 <= reply.status < 300:
            said = endpoint.scrub(answer.decode("utf-8", "replace")).encode()
            return endpoint.family.decode_fault(reply.status, reply.headers, said)
        if passed is not None:
            passed.saw(reply.status, reply.headers)
        if is_page(reply.headers, answer) and (passed is None or passed.method != "GET"):
            return Fault(kind=FaultKind.PROTOCOL, message=f"the upstream answered with {PAGE}", status=502)
        return answer

    # -- models ------------------------------------------------------------------------------------------------------

    async def models(self, call: ClientCall) -> bytes | None:
        """Names that the client may use: those of the configuration, and the lists of upstreams that serve any name."""
        found: dict[str, int | str | None] = {}
        model, routes = call.model, self._config.routes
        if model is not None:
            try:
                routes = (self._route_of_model(model, call).route,)
            except RequestRefused:
                return None
        for route in routes:
            if isinstance(route.one_client, str) and route.one_client != call.client:
                continue
            found.update(dict.fromkeys(route.aliases))
            plain = [pattern for pattern in route.models if not set(pattern) & set("*?[")]
            found.update(dict.fromkeys(plain))
            opened = self._upstreams.first(route)
            if len(plain) < len(route.models) and opened.upstream.model is None and not self._forward_key:
                found.update(await self._listed(opened.endpoint, route=route))
            elif opened.upstream.model is not None and not plain and not route.aliases:
                found[opened.upstream.model] = None
        facts = relay_facts(call.family)
        if model is not None:
            return encode(facts.model_row(self._told_model(model, found[model]))) if model in found else None
        named = [(name, created) for name, created in found.items() if self._may_name(name, call)]
        return encode(facts.model_list([facts.model_row(self._told_model(*one)) for one in named]))

    def _may_name(self, model: str, call: ClientCall) -> bool:
        try:
            self._route_of_model(model, call)
        except RequestRefused:
            return False
        return True

    async def _listed(self, endpoint: Endpoint, *, route: GatewayRoute) -> dict[str, int | str | None]:
        """The names of the upstream, and since when it has each."""
        try:
            found = await ask_for_models(endpoint, transport=self._means.transport)
        except (ProviderFault, CallerError):
            return {}  # without a list, a client can still name a model
        return {model.name: model.created for model in found}

    def _told_model(self, name: str, created: int | str | None) -> ListedModel:
        """A name that no upstream lists with a time is as old as this gateway."""
        at = self._began
        with contextlib.suppress(ValueError, OverflowError, OSError):
            if isinstance(created, str):
                at = datetime.fromisoformat(created).astimezone(UTC)
            elif created is not None:
                at = datetime.fromtimestamp(created, UTC)
        said = at.isoformat(timespec="seconds").replace("+00:00", "Z")
        return ListedModel(name=name, created_s=int(at.timestamp()), created_at=said)

    # -- routes and upstreams ----------------------------------------------------------------------------------------

    def _route_of(self, call: ClientCall) -> ChosenRoute:
        """Raises RequestRefused."""
        return self._route_of_model(call.model or string_of(read_body(call.body), "model") or "", call)

    def _route_of_path(self, call: ClientCall) -> ChosenRoute:
        """For a body without a model: the first route that lists the path. Raises RequestRefused."""
        found = [
            route
            for route in self._config.routes
            if (not isinstance(route.one_client, str) or route.one_client == call.client)
            and passes(route.passes, call.method, call.path)
        ]
        if found:  # several vendors have `/v1/files`
            families: list[FamilyName] = [self._upstreams.first(route).endpoint.profile.family for route in found]
            fits = [family[:6] == call.family[:6] for family in families]  # both of OpenAI's are one
            best = fits.index(True) if True in fits else 0
            if call.limits is not None and call.limits.models and not costs_nothing(call, families[best]):
                raise RequestRefused("this key may use some models only, and the request names none", status=403)
            return self._for_whom(ChosenRoute(route=found[best], model=""), call)
        raise RequestRefused(f"no route of this gateway passes `{call.path}` on for this client's key", status=404)

    def _route_of_model(self, model: str, call: ClientCall) -> ChosenRoute:
        """Raises RequestRefused."""
        if call.limits is not None and (why := call.limits.why_not(model)):
            raise RequestRefused(why, field="model", status=403)
        chosen = choose_route(self._config.routes, model, client=call.client)
        if not model and (chosen is None or self._upstreams.first(chosen.route).upstream.model is None):
            raise RequestRefused("the request names no model: say which in `model`", field="model")
        if chosen is None:
            raise RequestRefused(f"no route of this gateway serves the model `{model}`", field="model", status=404)
        return self._for_whom(chosen, call)

    def _for_whom(self, chosen: ChosenRoute, call: ClientCall) -> ChosenRoute:
        """Raises RequestRefused if a second key, added since the gateway began, has opened one client's route to several
        clients."""
        if chosen.route.one_client is True and not call.is_only_client and not self._forward_key:
            raise RequestRefused(f"this request is refused: {SHARED}", status=403)
        return chosen

    def _for_client(self, opened: OpenUpstream, call: ClientCall) -> OpenUpstream:
        """With the client's own key, if that is the key to send."""
        if not self._forward_key:
            return opened
        key = Secret(call.client_key) if call.client_key else None
        chat = None if opened.chat is None else replace(opened.chat, key=key)
        return replace(opened, endpoint=replace(opened.endpoint, key=key), chat=chat)


@contextlib.asynccontextmanager
async def open_service(
    config: GatewayConfig,
    *,
    env: Mapping[str, str],
    forward_key: bool,
    database: str | None = None,
    holder: str = "",
    counts: GatewayCounts | None = None,
) -> "AsyncGenerator[RenewableService]":
    """The service with its own connections. Raises CallerError."""
    clock = SystemClock()
    counts = counts or GatewayCounts()
    opened = open_accounts(
        env, clock=clock, database=database, holder=holder, counts=counts, rule=config.unreachable_store
    )
    with opened as accounts:
        async with AiohttpTransport(env=env) as transport, counts.told():
            # A stream may take all the time of its client's request.
            attempts = Deadlines(total_s=DAY_S)
            means = ServiceMeans(transport=transport, clock=clock, env=env, deadlines=attempts, accounts=accounts)
            yield RelayService(config, means=means, forward_key=forward_key)


async def _write_fault(fault: Fault, *, call: ClientCall, outlet: Outlet, account: Account) -> None:
    """An upstream's error as its status has it, or the gateway's own with the status that it says. Raises ClientGone."""
    if fault is not account.refused or fault.status is None:
        await write_found(fault, client=call.family, outlet=outlet)
        return
    again_s = fault.retry_after_s
    headers = [] if again_s is None else [("retry-after", str(round(again_s)))]
    is_soon = again_s is not None and again_s <= LONGEST_RETRY_S
    headers.append(("x-should-retry", "true" if is_soon else "false"))  # read by the SDKs of OpenAI and Anthropic
    await write_body(fault.status, encode_own(fault, family=call.family), outlet=outlet, headers=headers)


def _asked(call: ClientCall, model: str) -> AskedPath:
    kind = "count" if call.kind == "count" else "generate"
    return AskedPath(family=call.family, kind=kind, model=model if call.model else None, streams=call.streams)


def _sought(route: GatewayRoute, *, endpoint: Endpoint, request: Request) -> SoughtInText | None:
    """Whether calls are looked for in the answer's text. A required JSON object is an answer, not a call."""
    if request.output is not None or request.tool_choice == "none" or not route.heal:
        return None
    if route.calls_in_text == "off" or (route.calls_in_text == "auto" and not endpoint.leaves_calls_in_text):
        return None
    return SoughtInText(unmarked=route.calls_in_text == "on")


def _with_client_headers(sent: HttpCall, call: ClientCall, *, same: bool) -> HttpCall:
    """Send the client's listed headers upstream, if the upstream speaks the client's family: other APIs do not know them. They
    come last, so they replace the gateway's own."""
    if not same or not call.headers:
        return sent
    return msgspec.structs.replace(sent, headers=(*sent.headers, *call.headers))


def _attempt_deadlines(usual: Deadlines, *, times: GatewayDeadlines, streams: bool) -> Deadlines:
    """The deadlines of one attempt."""
    own = {
        "first_event_s": times.first_event_s,
        "idle_s": times.next_event_s,
        "total_s": None if streams else times.whole_s,
    }
    return msgspec.structs.replace(usual, **without_nones(own))
