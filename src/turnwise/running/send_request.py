"""One `SendRequest`: entered in the ledger, sent, and completed there; or removed, if it was never sent."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from turnwise.assembly.response_reading import unread_response
from turnwise.endpoints.endpoints import Addressing, BodyHash
from turnwise.endpoints.exchange import Exchange
from turnwise.endpoints.habits import HINT, Door
from turnwise.endpoints.transport import HttpRequest, make_ready
from turnwise.journal.ledger import CacheMissed, LedgerEntry
from turnwise.journal.records import RequestSent
from turnwise.journal.turn_writer import Bookkeeper
from turnwise.running.runner_config import EndpointRecovery, RunnerMeans
from turnwise.running.watcher_events import RequestFinished, RequestStarted, RunNoted, TurnObserver, Watchers
from turnwise.turn.commands import Purpose, SendRequest
from turnwise.turn.events import RequestFailed, ResponseReceived
from turnwise.turn.request_plan import asked_of_cache
from turnwise.vocab import ADAPTED, FinishReason, NamedTool, Repair, Request, Response, ToolChoice, calls_of
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import Profile

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
        notes = self._books.ledger.notes
        if text not in notes:
            notes.append(text)
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
