"""What a runner works with: one list, in groups. `Runner` takes the whole list, and nothing repeats it."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from turnwise.assembly.response_reading import unread_response
from turnwise.base.clock import Clock, SystemClock
from turnwise.endpoints.endpoints import Addressing, BodyHash, Endpoint
from turnwise.endpoints.exchange import Exchange
from turnwise.endpoints.transport import (
    HINT,
    CacheRefusals,
    Circuits,
    Door,
    EndHabits,
    HttpRequest,
    Transport,
    make_ready,
)
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import CacheMissed, Ledger, LedgerEntry
from turnwise.journal.turn_writer import Bookkeeper, PriceFinder, RequestSent, TurnJournal
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Approver, approver_below, ask
from turnwise.running.resumption import LeftTurn
from turnwise.running.run_context import Inspector, RunAtHand
from turnwise.running.tools import AnswerFor, Around, Tool
from turnwise.running.watcher_events import (
    AskClosed,
    AskOpened,
    Feed,
    Observe,
    ObservedTurn,
    RequestFinished,
    RequestStarted,
    RunNoted,
    TurnObserver,
    Watch,
    Watchers,
)
from turnwise.turn.config import Approval, AskOrigin, OneAsk, ResumeTerms, TurnConfig
from turnwise.turn.events import (
    Ask,
    HookOutcome,
    PrepareStep,
    Purpose,
    RequestFailed,
    ResponseReceived,
    RunHooks,
    SendRequest,
    StepPrepared,
)
from turnwise.turn.request_plan import asked_of_cache
from turnwise.vocab import ADAPTED, FinishReason, Message, NamedTool, Repair, Request, Response, ToolChoice, calls_of
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile

OutputChecker = Callable[[str], Sequence[str] | Awaitable[Sequence[str]]]
"""Says what is wrong with an answer whose JSON fits the schema, in words for the model. Runs in the event loop: be quick, or
return an awaitable."""
StepPreparer = Callable[[PrepareStep], StepPrepared | Awaitable[StepPrepared | None] | None]
HookRunner = Callable[[RunHooks], Awaitable[Sequence[HookOutcome]]]
"""Runs the user's hooks of one point, within their deadlines."""

# A cancelled command settles within half a second (tools.SETTLE_S); after this it is left behind. Promise wait:cancel.
SETTLE_S = 0.9


class Safety(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks at calls before they run: `inspect` finds their facts, `approver` answers asks, `run_hooks` runs the hooks."""

    inspect: Inspector | None = None
    approver: Approver | None = None
    run_hooks: HookRunner | None = None


class EndpointRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """What turnwise has learned from an endpoint's failures. A program with many turns shares it between them.

    `circuits` know which endpoints to leave alone for a while, `refusals` what an endpoint does not accept, `habits` where
    answers have no end mark. `jitter` gives numbers of [0, 1) that spread the waits before retries.
    """

    circuits: Circuits
    refusals: CacheRefusals = msgspec.field(default_factory=CacheRefusals)
    habits: EndHabits = msgspec.field(default_factory=EndHabits)
    jitter: Callable[[], float] = random.random


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Who sees and counts what happens. No observer can harm the turn.

    `watch` sees each event, `feed` the same in batches. `ledger` has an entry for each request, with its price by `find_price`; a
    sub-agent's requests go into its parent's ledger. Without `ledger`, each turn has its own. When a turn begins, `begins` gets
    the object that tells the watchers. `observe` makes the observer of a turn and those of its sub-agents.
    """

    watch: Watch | None = None
    feed: Feed | None = None
    ledger: Ledger | None = None
    find_price: PriceFinder | None = None
    begins: Callable[[Watch], object] | None = None
    observe: Observe | None = None


class RunnerMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner works with. `tools` are those with an implementation.

    `limits` bound what one response may take. Sub-agents keep their turns in `journal` if they have no journal of their own.
    Without `recovery`, the runner begins with an endpoint that has not failed yet. `prepare_step` is the user's function:
    `Runner.run` raises what it raises. `path` names the sub-agents that lead to this turn. Cancelled work has `settle_s` to end
    in. If the task is cancelled, `leaves` says whether the turn is left, to be resumed later, with its sub-agents' turns. `run`
    is what the contexts of the user's functions show. `answers` lets the model answer a question of a tool's call.
    """

    endpoint: Endpoint
    transport: Transport
    tools: Sequence[Tool] = ()
    clock: Clock = msgspec.field(default_factory=SystemClock)
    safety: Safety = Safety()
    recovery: EndpointRecovery | None = None
    observation: Observation = Observation()
    prepare_step: StepPreparer | None = None
    check_output: OutputChecker | None = None
    limits: Limits = DEFAULT_LIMITS
    journal: Journal | None = None
    path: tuple[str, ...] = ()
    settle_s: float = SETTLE_S
    run: RunAtHand | None = None
    answers: AnswerFor | None = None
    leaves: Callable[[], bool] = lambda: False

    def observer_of(
        self, config: TurnConfig, *, given: tuple[Message, ...], ledger: Ledger, is_resumed: bool
    ) -> TurnObserver | None:
        """The observer of a turn that begins, if there is one. `given` is the turn's input."""
        if self.observation.observe is None:
            return None
        return self.observation.observe(
            ObservedTurn(
                config=config,
                input=given,
                path=self.path,
                provider=self.endpoint.profile.name,
                base_url=self.endpoint.base_url,
                scrub=self.endpoint.scrub,
                ledger=ledger,
                clock=self.clock,
                is_resumed=is_resumed,
            )
        )


# What all calls of a turn share.


def around_of(
    config: TurnConfig,
    *,
    means: RunnerMeans,
    journal: TurnJournal | None,
    left: LeftTurn | None,
    tell: Watch,
    books: Bookkeeper,
) -> Around:
    """What all calls of the turn share. `tell` reaches its watchers."""
    return Around(
        turn_id=config.turn_id,
        path=means.path,
        approver=means.safety.approver or approver_below(journal),
        watch=tell,
        ledger=books.ledger,
        journal=means.journal,
        ask_s=config.deadlines.ask_s,
        begun=frozenset() if left is None else left.begun,
        terms=ResumeTerms() if left is None else left.terms_below,
        enter=None if journal is None or journal.lease is None else journal.lease.check,
        activity=None if journal is None or journal.lease is None else journal.lease.activity,
        run=means.run,
        observe=means.observation.observe,
        tool_errors=config.tool_errors,
        answers=means.answers,
        leaves=means.leaves,
        put_ask=ToolAsks(
            approver=means.safety.approver,
            policy=config.policy,
            ask_s=config.deadlines.ask_s,
            clock=means.clock,
            path=means.path,
            scrub=means.endpoint.scrub,
            turn_id=config.turn_id,
            tell=tell,
        ).put,
    )


class ToolAsks:
    """Puts asks to `approver`, who has `ask_s` seconds for each. If nobody is there (no approver, or a policy that is not
    attended), the policy's `unattended` is the answer; without a policy the answer is a denial. An ask without an answer in time
    is denied."""

    def __init__(
        self,
        *,
        approver: Approver | None,
        policy: Policy | None,
        ask_s: float,
        clock: Clock,
        path: tuple[str, ...],
        scrub: Callable[[str], str],
        turn_id: str,
        tell: Watch,
    ) -> None:
        self._approver = approver if policy is None or policy.attended else None
        self._unattended = "allow" if policy is not None and policy.unattended == "allow" else "deny"
        self._ask_s, self._clock, self._path, self._scrub, self._tell = ask_s, clock, path, scrub, tell
        self._origin = AskOrigin(turn_id=turn_id, folder="" if policy is None else policy.workspace)

    async def put(self, one: OneAsk, /, *, left_s: float) -> Approval:
        """The answer, or its default (`by="default"`). An ask that is left for later is denied, because the tool runs now."""
        deadline_s = min(self._ask_s, left_s)
        self._tell(AskOpened(one.call, one.subject, one.options, deadline_s))
        answer = Approval(call_id=one.call.id, verdict="deny", by="failed", text="the call ended before the answer")
        try:
            most_s = None if math.isinf(left_s) else left_s
            answer = await self._answer(one, deadline_s=deadline_s, most_s=most_s)
        finally:
            self._tell(AskClosed(one.call, answer))
        return answer

    async def _answer(self, one: OneAsk, *, deadline_s: float, most_s: float | None) -> Approval:
        default = Approval(call_id=one.call.id, verdict="deny", by="default")
        if self._approver is None:
            return msgspec.structs.replace(default, verdict=self._unattended)
        asked = await ask(
            Ask(step=0, asks=(one,), deadline_s=deadline_s),
            approver=self._approver,
            clock=self._clock,
            path=self._path,
            scrub=self._scrub,
            origin=self._origin,
            most_s=most_s,
        )
        for answer in asked.approvals:
            verdict = "allow" if answer.verdict == "allow" else "deny"
            return msgspec.structs.replace(answer, verdict=verdict, always=False)
        return default


# One `SendRequest`: entered in the ledger, sent, and completed there; or removed, if it was never sent.


OWN_SETTINGS = frozenset({"step", "answer"})  # turnwise itself has chosen the settings of all other requests


class Sender:
    """Sends the requests of one turn. `enter_step` is called when a request is about to leave. `keeps_hash`: somebody reads the
    hash of the body. `exchange` is the current exchange. `was_told`: the watchers know of the last request. `adapted` is what the
    session was told about settings that go to the model in another form."""

    def __init__(
        self,
        means: RunnerMeans,
        *,
        recovery: EndpointRecovery,
        books: Bookkeeper,
        watchers: Watchers,
        enter_step: Callable[[int], Awaitable[None]],
        observer: TurnObserver | None,
        keeps_hash: bool,
        plain_choice: ToolChoice,
    ) -> None:
        self._means = means
        self._endpoint = means.endpoint
        self._clock = means.clock
        self._circuits = recovery.circuits
        self._refusals = recovery.refusals
        self._habits = recovery.habits
        self._learned: tuple[Repair, ...] = ()  # what the next response says was left out for it
        self._draw = recovery.jitter
        self._books = books
        self._watchers = watchers
        self._observer = observer
        self._enter_step = enter_step
        self._addressing = Addressing(means.endpoint)
        self._history = EncodedHistory()
        self._hash = BodyHash() if keeps_hash else None
        self._cache = books.watches_cache()
        self._plain_choice: ToolChoice = plain_choice  # for the turn's own steps
        self._purpose: Purpose | None = None  # of the last request
        self._is_ready = False  # the transport is
        self.exchange: Exchange | None = None
        self.was_told = False
        self.adapted: frozenset[Repair] = frozenset()

    async def send(self, command: SendRequest) -> ResponseReceived | RequestFailed:
        endpoint, number = self._endpoint, command.number
        self.was_told = False
        door = (endpoint.base_url, command.request.model)
        if (closed := self._circuits.ask(door)) is not None:
            await self._enter_step(command.step)
            return RequestFailed(number=number, fault=closed, jitter=self._jitter(), sent=False)
        before, self._purpose = self._purpose, command.purpose
        kept = asked_of_cache(command.request, purpose=command.purpose, before=before, plain=self._plain_choice)
        asked, profile = self._refusals.narrowed(kept, endpoint.profile, door=door)
        call = endpoint.family.encode_request(asked, profile, history=self._history)
        request = self._addressing.build(call, connect_s=command.deadlines.connect_s)
        sent = RequestSent(
            number=number,
            purpose=command.purpose,
            url=self._addressing.shown_url,
            body_sha256="" if self._hash is None else self._hash.sha256_of(call),
            body_bytes=len(request.body),
        )
        # A process needs half a second for its first request. A death during that time must not look like a death after it.
        if not self._is_ready:
            make_ready(self._means.transport, request)
            self._is_ready = True
        entry = await self._books.enter(command, sent)
        await self._enter_step(command.step)
        request = self._tell_started(command, request=request)
        if call.adapted and (command.retry_of or command.purpose) in OWN_SETTINGS:
            self._tell_adapted(call, model=asked.model)
        began = self._clock.monotonic()
        exchange = self.exchange = Exchange(
            command,
            endpoint=endpoint,
            transport=self._means.transport,
            clock=self._clock,
            on_frames=partial(self._watchers.tell_frames, number=number) if self._watchers.are_there else None,
            limits=self._means.limits,
            habits=self._habits,
        )
        try:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                await asyncio.sleep(
                    0
                )  # if the task was cancelled while it waited for the journal, the request does not leave
            event = _with_unread_call(await exchange.run(request))
        except BaseException:
            if self._books.settle(entry, exchange, event=None, asked_hour=asks_hour(call)) is None:
                self._tell_cut_off(number, seconds=self._clock.monotonic() - began)
            raise
        response, fault = (
            (event.response, event.response.fault) if isinstance(event, ResponseReceived) else (None, event.fault)
        )
        missed, changed = None, ""
        if response is not None:
            as_sent = command if asked is command.request else msgspec.structs.replace(command, request=asked)
            missed = self._cache.saw(as_sent, call, usage=response.usage, left_s=began)
            if response.repairs or call.changed_at is not None:
                changed = self._cost_of_change(call, response=response)
        ended = self._books.settle(
            entry, exchange, event=event, missed=missed, asked_hour=asks_hour(call), changed=changed
        )
        self.exchange = None
        if self._watchers.are_there:
            self._tell_finished(event, seconds=self._clock.monotonic() - began, ended=ended, missed=missed)
        if response is not None and asked.tool_choice not in ("auto", "none"):
            self._tell_call_missing(command, request=asked, response=response)
        self._circuits.saw(door, fault=fault)
        if isinstance(event, RequestFailed):
            event = self._learn(event, request=asked, profile=profile, call=call, door=door)
        elif self._learned and response is not None and fault is None:
            response = msgspec.structs.replace(response, repairs=(*response.repairs, *self._learned))
            event, self._learned = msgspec.structs.replace(event, response=response), ()
        if fault is None and response is not None and response.finish is not FinishReason.CUT and not response.lost:
            return event
        return msgspec.structs.replace(event, jitter=self._jitter())

    def _learn(
        self, event: RequestFailed, *, request: Request, profile: Profile, call: HttpCall, door: Door
    ) -> RequestFailed:
        """The failure, with what it says about bound thinking. It is worth another attempt if it refuses the request's cache
        options: the next attempt asks for less."""
        if (with_binding := self._endpoint.family.with_binding) is not None:
            asked = request.drops_stale_thinking
            told = with_binding(event.fault, model=request.model, body=call.body, asked=asked)
            event = msgspec.structs.replace(event, fault=told)
        repair = self._refusals.saw(event.fault, request=request, profile=profile, call=call, door=door)
        if repair is None:
            return event
        self._learned = (*self._learned, repair)
        fault = msgspec.structs.replace(event.fault, message=f"{event.fault.message} ({HINT})", should_retry=True)
        return msgspec.structs.replace(event, fault=fault)

    def _tell_adapted(self, call: HttpCall, *, model: str) -> None:
        """Tell which settings go to the model in another form: once in a session, and in the repairs of the next response."""
        told = [Repair(ADAPTED, f"`{model}`", f"`{one.setting}`: {one.because}") for one in call.adapted]
        new = [repair for repair in told if repair not in self.adapted]
        self.adapted |= frozenset(new)
        self._learned = (*self._learned, *new)
        for one in new:
            self._note(f"{one.where} does not get a setting as you set it: {one.what}")

    def _tell_call_missing(self, command: SendRequest, *, request: Request, response: Response) -> None:
        """Tell that the model answered instead of making the required call."""
        is_step = (command.retry_of or command.purpose) == "step"
        if is_step and response.finish is FinishReason.STOP and not calls_of(response.message):
            choice = request.tool_choice
            wanted = f"`{choice.name}`" if isinstance(choice, NamedTool) else "a tool"
            self._note(f"`{request.model}` was to call {wanted} (`tool_choice`), and answered without the call")

    def _cost_of_change(self, call: HttpCall, *, response: Response) -> str:
        """What the change of the prompt cost in cache and in thinking; empty if it cost nothing."""
        anew = 0 if call.changed_at is None else self._cache.read_anew
        read = [f"{anew:,} tokens read anew, as the prompt has changed"] if anew else []
        return "; ".join([*read, *[one.what for one in response.repairs if one.kind == "thinking_dropped"]])

    def _note(self, text: str) -> None:
        if self._books.ledger.note(text):
            self._watchers.tell(RunNoted(text))

    def _tell_started(self, command: SendRequest, *, request: HttpRequest) -> HttpRequest:
        """The request, with the headers that its observer adds."""
        self.was_told = True
        if self._watchers.are_there:
            if self._observer is not None and (headers := self._observer.asked(command)):
                request = msgspec.structs.replace(request, headers=(*request.headers, *headers))
            self._watchers.tell(
                RequestStarted(
                    number=command.number,
                    step=command.step,
                    purpose=command.purpose,
                    model=command.request.model,
                    retry_of=command.retry_of,
                )
            )
        return request

    def _tell_finished(
        self,
        event: ResponseReceived | RequestFailed,
        *,
        seconds: float,
        ended: LedgerEntry | None,
        missed: CacheMissed | None,
    ) -> None:
        usd, at_least = (None, False) if ended is None else (ended.usd, ended.is_at_least)
        match event:
            case ResponseReceived(number=number, response=response):
                fault = response.fault
                seen = RequestFinished(
                    number=number,
                    response=response,
                    fault=fault,
                    seconds=seconds,
                    usd=usd,
                    cache_missed=missed,
                    usd_at_least=at_least,
                )
            case RequestFailed(number=number, fault=fault, sent=sent):
                seen = RequestFinished(number=number, response=None, fault=fault, seconds=seconds, sent=sent, usd=usd)
        self._watchers.tell(seen)

    def _tell_cut_off(self, number: int, *, seconds: float) -> None:
        """The request that was told as started did not leave: counters of requests take it back."""
        self._watchers.tell(RequestFinished(number=number, response=None, fault=None, seconds=seconds, sent=False))

    def _jitter(self) -> float:
        return round(self._draw(), 6)


def _with_unread_call(event: ResponseReceived | RequestFailed) -> ResponseReceived | RequestFailed:
    """A call that the server could not read is the model's fault, not the provider's."""
    is_failure = isinstance(event, RequestFailed)
    arrived, fault = (event.partial, event.fault) if is_failure else (event.response, event.response.fault)
    response = None if fault is None else unread_response(fault, arrived=arrived)
    return event if response is None else ResponseReceived(number=event.number, response=response)


def asks_hour(call: HttpCall) -> bool:
    """Whether one of turnwise's cache marks asks for an hour."""
    return any(b'"1h"' in call.body[start:end] for start, end in call.marks)
