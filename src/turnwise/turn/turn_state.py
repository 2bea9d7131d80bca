"""What a turn knows: the values that outlive its phases. Phases read it; only `Turn` has their changes applied.

At the end of this module: what the limits say about the next request. These functions depend on what is known, never on a phase.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from turnwise.rules.history import Healed
from turnwise.rules.limits import said, wall_time_s
from turnwise.rules.prompt_room import PromptSize, kept_below, witnessed
from turnwise.turn.config import ChildReport, OneAsk, ToolOffer, TurnConfig
from turnwise.turn.events import PlannedCall, Purpose, StepPrepared
from turnwise.turn.fault_counts import Guarding, Record, Tally, Words
from turnwise.turn.history import History
from turnwise.turn.request_plan import RequestTerms, limit_of
from turnwise.turn.room import GiveWay, Room, fitting, may_fit
from turnwise.turn.turn_spending import AtStake, NextRequest, Pacing, Spending
from turnwise.vocab import Message, Repair, Request, ToolCall, ToolResult, ToolSpec, Usage

# The changes that a phase of a turn orders to the values that outlive it. Only `Known.apply` carries them out.


class Appended(msgspec.Struct, frozen=True):
    """A message at the end of the history. `paused`: the provider wants it back in order to continue."""

    message: Message
    paused: bool = False


class ResultsAppended(msgspec.Struct, frozen=True):
    message: Message


class KeptWhole(msgspec.Struct, frozen=True):
    """Whole results of which the history holds a shortened form, by call id."""

    originals: Mapping[str, ToolResult]


class PauseSettled(msgspec.Struct, frozen=True):
    """Nothing will continue the pause."""


class InboxRead(msgspec.Struct, frozen=True):
    """The messages that came in mid-turn are taken up."""


class WordsPutBy(msgspec.Struct, frozen=True):
    """Healed messages that came in mid-turn: the next request carries them."""

    healed: Healed


class PutBack(msgspec.Struct, frozen=True):
    """The history is whole again."""


class IdsTaken(msgspec.Struct, frozen=True):
    ids: Collection[str]


class LeftWaiting(msgspec.Struct, frozen=True):
    """Calls that keep waiting, and the asks about them."""

    pending: tuple[ToolCall, ...]
    asks: tuple[OneAsk, ...]


class GaveWay(msgspec.Struct, frozen=True):
    """Older messages give way. `changed` alone: the coming request does not begin with all of the history."""

    to: GiveWay | None
    changed: bool = False


class Fit(msgspec.Struct, frozen=True):
    """Leave out of the prompt what leaves no room for the answer and its `own` texts; `Known.fits` says whether that worked. With
    `limits`, the turn's limits set the room, and the step is judged again."""

    own: tuple[str, ...]
    limits: bool = False


class Recounted(msgspec.Struct, frozen=True):
    """The provider told the size of the prompt when it refused it."""

    prompt: PromptSize


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """New values for old ones; None: the old value stays. `words` are what the model has said outside the history. `config` is
    the configuration as it is known now."""

    config: TurnConfig | None = None
    room: Room | None = None
    guarding: Guarding | None = None
    tally: Tally | None = None
    words: Words | None = None


class StepBegun(msgspec.Struct, frozen=True):
    pacing: Pacing


class StepTakenBack(msgspec.Struct, frozen=True):
    """The limits do not allow the step."""


class Paced(msgspec.Struct, frozen=True):
    pacing: Pacing


class Prepared(msgspec.Struct, frozen=True):
    """What the coming request asks for."""

    prepared: StepPrepared


class Posed(msgspec.Struct, frozen=True):
    """What the coming request allows."""

    asking: RequestTerms


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """A request is sent; its last `own` messages are not part of the history."""

    request: Request
    purpose: Purpose
    own: int
    stake: AtStake | None


class TakenBack(msgspec.Struct, frozen=True):
    """The current request was not sent, so it does not count."""


class Excused(msgspec.Struct, frozen=True):
    """The current request was refused and then corrected, so no limit of requests counts it."""


class Counted(msgspec.Struct, frozen=True):
    """The provider's count for the current request."""

    usage: Usage


class CallsCounted(msgspec.Struct, frozen=True):
    """So many calls are given to their tools."""

    number: int


class ChildrenLeft(msgspec.Struct, frozen=True):
    """Children that were running when the turn ended."""

    children: tuple[ChildReport, ...]


class ChildrenPaid(msgspec.Struct, frozen=True):
    children: Sequence[ChildReport]
    plans: Mapping[str, PlannedCall]


class Reasoned(msgspec.Struct, frozen=True):
    text: str


class Repaired(msgspec.Struct, frozen=True):
    repairs: Sequence[Repair]


Change = (
    Appended
    | ResultsAppended
    | KeptWhole
    | PauseSettled
    | InboxRead
    | WordsPutBy
    | PutBack
    | IdsTaken
    | LeftWaiting
    | GaveWay
    | Fit
    | Recounted
    | Replaced
    | StepBegun
    | StepTakenBack
    | Paced
    | Prepared
    | Posed
    | Sending
    | TakenBack
    | Excused
    | Counted
    | CallsCounted
    | ChildrenLeft
    | ChildrenPaid
    | Reasoned
    | Repaired
)


def mended(kind: str, where: str, what: str) -> Repaired:
    return Repaired((Repair(kind, where, what),))


# Purposes whose request is little more than the turn's history, so that its token count is the prompt's.
COUNTS_HISTORY = frozenset({"step", "retry", "answer"})


class ToolKinds(msgspec.Struct, frozen=True, kw_only=True):
    scripts: bool
    children: bool
    questions: bool

    @classmethod
    def of(cls, offers: Iterable[ToolOffer]) -> "ToolKinds":
        offers = tuple(offers)
        return cls(
            scripts=any(offer.script for offer in offers),
            children=any(offer.child or offer.samples for offer in offers),
            questions=any(offer.asks_user for offer in offers),
        )


class Known(msgspec.Struct, kw_only=True):
    """`offers` are the tools by name. `specs` are the tools as each request sends them, always the same. `kinds` says which kinds
    of tools are among them, besides plain ones."""

    config: TurnConfig
    offers: dict[str, ToolOffer]
    specs: tuple[ToolSpec, ...]
    kinds: ToolKinds
    history: History
    record: Record
    keeps_waiting: bool
    room: Room = Room()
    spending: Spending = msgspec.field(default_factory=Spending)
    guarding: Guarding = Guarding()
    tally: Tally = Tally()
    words: Words = Words()
    pending: tuple[ToolCall, ...] = ()  # calls that keep waiting after the turn
    asks: tuple[OneAsk, ...] = ()  # the asks about them
    fits: bool = False  # whether the last `Fit` worked

    @property
    def asking(self) -> RequestTerms | None:
        return self.spending.asking

    @property
    def is_forced(self) -> bool:
        asking = self.spending.asking
        return asking is not None and asking.forced

    @property
    def step(self) -> int:
        return self.spending.step

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the next request's prompt; 0 if no limit needs them."""
        return 0 if self.config.limits is None else self.spending.pacing.prompt_tokens(self.history)

    def coming(self, *, step: int | None = None, model: str = "") -> NextRequest:
        """The next request as the limits see it: for the current step or for `step`, for the current model or for another."""
        spending, config = self.spending, self.config
        at = spending.step if step is None else step
        return NextRequest(
            spent=spending.spent_in(at - 1),
            prompt_tokens=self.prompt_tokens,
            price=config.prices.get(model or spending.prepared.model or config.model),
            is_billed=spending.purse.is_billed(at),
        )

    def judged(self) -> Pacing:
        """The pace of the current step, judged again."""
        return self.spending.pacing.judge(self.config, coming=self.coming())

    def known_call(self, call: ToolCall) -> ToolCall:
        """The call as the session knows it."""
        ids = self.history.known_as
        return replace(call, id=ids[call.id]) if call.id in ids else call

    @property
    def waiting_asks(self) -> tuple[OneAsk, ...]:
        """The asks that were left for later."""
        return tuple([replace(ask, call=self.known_call(ask.call)) for ask in self.asks])

    def apply(self, change: Change) -> None:
        """Carry out a change."""
        self._CARRIED_OUT[type(change)](self, change)

    def _replace(self, now: Replaced) -> None:
        self.config = now.config or self.config
        self.room = now.room or self.room
        self.guarding = now.guarding or self.guarding
        self.tally = now.tally or self.tally
        self.words = now.words or self.words

    def _fit(self, change: Fit) -> None:
        self.fits = self._fit_limits(change) if change.limits else self._fit_room(change.own)

    def _give_way(self, to: GiveWay | None, *, changed: bool) -> None:
        if to is not None:
            self.history.give_way(to.messages, shortened=to.shortened)
        else:
            self.history.goes_out(changed=changed)

    def _send(self, change: Sending) -> None:
        self.spending.send(
            change.request,
            purpose=change.purpose,
            own=change.own,
            stake=change.stake,
            history=self.history,
            config=self.config,
        )
        self.history.goes_out()

    def _count(self, usage: Usage) -> None:
        self.spending.count(usage, config=self.config)
        asking = self.asking
        if self.config.room == "off" or asking is None:
            return
        if asking.purpose in COUNTS_HISTORY:
            self.room = self.room.went_through(self.history.prompt.bytes)
            self.history.count(usage)
        # an accepted request may show that the limits are wider than assumed
        self.config = self.config.with_limits(witnessed(self.config.model_limits, usage=usage))

    def _fit_room(self, own: tuple[str, ...], *, most_tokens: int | None = None) -> bool:
        self.history.settle_pause()
        if not may_fit(self.room, config=self.config):
            return False
        self.history.put_back()
        fitted = fitting(self.history, config=self.config, own=own, most_tokens=most_tokens)
        if fitted is None:
            return False
        self.history.fit(fitted)
        self.room = self.room.fitted()
        return True

    def _fit_limits(self, change: Fit) -> bool:
        pacing = self.spending.pacing
        most_tokens = pacing.most_prompt_tokens(self.config, coming=self.coming())
        if most_tokens is None or not self._fit_room(change.own, most_tokens=most_tokens):
            return False
        now = self.judged()
        if now.pace == "go":  # only the answer's request carries less
            now = now.answering(pacing.bound)
        self.spending.pace(now)
        return now.pace != "stop"

    def _leave_waiting(self, pending: tuple[ToolCall, ...], *, asks: tuple[OneAsk, ...]) -> None:
        """The history records what was shown of the calls that wait for a person (promise wait:ask)."""
        self.pending, self.asks = pending, asks
        if asks and self.keeps_waiting:
            self.history.mark(asks)

    def _put_by(self, healed: Healed) -> None:
        self.history.take_ids(healed.call_ids)
        self.record.repair(healed.repairs)
        self.history.put_by(healed.messages)

    def _read_inbox(self) -> None:
        if self.history.inbox:
            self.words = self.words.asked_anew()
            self.history.read_inbox()

    # How each change is carried out. It is a table, because `match` tries one class after the other; a test checks that it is
    # complete.
    _CARRIED_OUT: ClassVar[dict[type[Change], Callable[["Known", Any], None]]] = {
        Appended: lambda self, it: self.history.append(it.message, paused=it.paused),
        ResultsAppended: lambda self, it: self.history.append_results(it.message),
        KeptWhole: lambda self, it: self.history.keep_whole(it.originals),
        PauseSettled: lambda self, it: self.history.settle_pause(),
        PutBack: lambda self, it: self.history.put_back(),
        IdsTaken: lambda self, it: self.history.take_ids(it.ids),
        Recounted: lambda self, it: self.history.recount(it.prompt),
        GaveWay: lambda self, it: self._give_way(it.to, changed=it.changed),
        Fit: lambda self, it: self._fit(it),
        InboxRead: lambda self, it: self._read_inbox(),
        WordsPutBy: lambda self, it: self._put_by(it.healed),
        LeftWaiting: lambda self, it: self._leave_waiting(it.pending, asks=it.asks),
        Sending: lambda self, it: self._send(it),
        Counted: lambda self, it: self._count(it.usage),
        TakenBack: lambda self, it: self.spending.take_back(),
        Excused: lambda self, it: self.spending.excuse(),
        StepBegun: lambda self, it: self.spending.begin_step(it.pacing),
        StepTakenBack: lambda self, it: self.spending.take_back_step(),
        Paced: lambda self, it: self.spending.pace(it.pacing),
        Prepared: lambda self, it: self.spending.prepare(it.prepared),
        Posed: lambda self, it: self.spending.ask(it.asking),
        CallsCounted: lambda self, it: self.spending.count_calls(it.number),
        ChildrenLeft: lambda self, it: self.spending.take_children(it.children),
        ChildrenPaid: lambda self, it: self.spending.pay_for(it.children, plans=it.plans),
        Repaired: lambda self, it: self.record.repair(it.repairs),
        Reasoned: lambda self, it: self.record.reason(it.text),
        Replaced: lambda self, it: self._replace(it),
    }


# What the limits say about the next request.


def left_s(known: Known) -> float | None:
    """Seconds that are left of the turn's time; None if nothing limits it."""
    limits = known.config.limits
    total_s = None if limits is None else wall_time_s(limits)
    return None if total_s is None else total_s - known.spending.pacing.at_s


def paced(known: Known, *, step: int | None = None) -> Pacing:
    """The pace of the step that begins now, or that must be sent again."""
    config, pacing = known.config, known.spending.pacing
    at = known.step if step is None else step
    if config.limits is None:
        return pacing.begin_plain_step(config.max_steps, steps=at - 1)
    return pacing.begin_step(config, coming=known.coming(step=at))


def affords(known: Known, *, answers: bool, within: bool = False, after_s: float = 0.0, model: str = "") -> bool:
    """Whether the limits allow one more request in this step, so many seconds from now: a request that `answers`, or one before
    the answer. The answer may come `within` the step (after a summary), or in the next one. For the current model, or for another
    `model`."""
    limits = known.config.limits
    if limits is None:
        return True
    return known.spending.pacing.affords(
        limits, coming=known.coming(model=model), answers=answers, within=within, after_s=after_s
    )


def affords_step(known: Known) -> bool:
    """Whether the limits allow one more ordinary step."""
    config, pacing = known.config, known.spending.pacing
    if config.limits is None:
        return pacing.begin_plain_step(config.max_steps, steps=known.step).pace == "go"
    next_one = msgspec.structs.replace(known.coming(step=known.step + 1), is_billed=False)
    return pacing.begin_step(config, coming=next_one).pace == "go"


def is_last(known: Known) -> bool:
    """Whether the coming request is the last that the limits allow, whatever becomes of it."""
    limits = known.config.limits
    return limits is not None and known.spending.pacing.is_last(known.config, coming=known.coming())


def why_stopped(known: Known, *, pacing: Pacing) -> str:
    """What the limits say that made `pacing` stop the turn."""
    now = known.coming()
    assert pacing.bound is not None
    return said(pacing.bound, spent=now.spent, wanted=known.spending.pacing.wanted(now))


def below_limits(known: Known, request: Request, *, own: int, answers: bool) -> Request:
    """The request with no more output than the limits leave; its last `own` messages are not part of the history."""
    config = known.config
    if config.limits is None:
        return request
    # the assistant's own words are in the usage of the response that brought them
    extra = [message for message in request.messages[len(request.messages) - own :] if message.role == "user"]
    left = known.spending.pacing.output_left(config, coming=known.coming(), own=extra, answers=answers)
    if left is None:
        return request
    ceiling = request.settings.max_output_tokens
    if ceiling is None and config.room != "off":
        ceiling = config.model_limits.max_output_tokens
    if ceiling is None:
        ceiling = limit_of(request.settings, config=config)
    settings = kept_below(request.settings, tokens=left, sent_tokens=ceiling)
    return request if settings is request.settings else msgspec.structs.replace(request, settings=settings)
