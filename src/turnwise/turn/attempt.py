"""One request and its further attempts: sent, awaited, sent again after a wait (promise wait:retry).

Every attempt counts as a request of its own everywhere. Nothing of an abandoned attempt enters the history or the result. The
phase that holds the attempt decides what a failure means for the step: another model, a rebuilt request, or the response as far
as it came.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.history import NOTHING_STALE, fitted
from turnwise.rules.recovery import find_cut, has_end_mark
from turnwise.rules.retries import GiveUp, TryFallback, WaitThenRetry, judge_retry
from turnwise.turn.events import (
    Event,
    HooksRan,
    Purpose,
    RequestFailed,
    ResponseReceived,
    RunHooks,
    SendRequest,
    SoughtCalls,
    StepPrepared,
    Wait,
    WaitOver,
)
from turnwise.turn.outcomes import (
    FATAL,
    REFUSED,
    Accepted,
    Begin,
    Composed,
    Denied,
    Ends,
    Failed,
    Leaving,
    Left,
    Move,
    Over,
    SummaryFailed,
    Trying,
    WantsAnew,
    WantsFallback,
    Wish,
    arrived_of,
)
from turnwise.turn.request_plan import RequestTerms, asking_of, caching_of
from turnwise.turn.room import NO_ROOM, RoomMade, make_room, summarised, summary_request
from turnwise.turn.step_request import (
    as_taught,
    built,
    lesson_of,
    once_fitted,
    own_texts,
    says_limit,
    tools_of,
    without_stale,
)
from turnwise.turn.turn_spending import AtStake, Pacing
from turnwise.turn.turn_state import (
    Change,
    Counted,
    Fit,
    GaveWay,
    InboxRead,
    Known,
    Paced,
    Posed,
    Prepared,
    Replaced,
    Sending,
    StepTakenBack,
    TakenBack,
    affords,
    below_limits,
    left_s,
    paced,
    why_stopped,
)
from turnwise.vocab import Fault, FaultKind, FinishReason, Request, Response, calls_of, new_tools_in


# The command that sends a request: what it asks of the provider's cache, how long it may take, which calls its text may hold.
class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What the holder of a request allows. `plain`: it is the step's own request, not for the rest of a cut response and not for
    a summary, so it may be rebuilt or go to another model. `answers`: it may bring the answer; otherwise the answer needs a
    further request. `within`: that further request comes in the same step."""

    plain: bool
    answers: bool
    within: bool = False


def order_of(known: Known, request: Request, *, purpose: Purpose, own: int, allowed: Allowed) -> SendRequest:
    """The command for the next request. Its last `own` messages are not part of the history."""
    if (caching := caching_of(known.config, own=own)) is not None:
        request = replace(request, cache=caching)
    if (stale := known.config.stale_thinking) is not NOTHING_STALE:
        request = fitted(request, known=stale, family=known.config.family)
    if known.config.lessons and (lessons := known.config.lessons.get(known.config.lessons_key(request.model))):
        request = replace(request, lessons=lessons)
    if known.config.system_in_input:
        request = replace(request, system_in_input=True)
    if known.config.appends_tools and (told := new_tools_in(*request.messages)):
        offered = {tool.name for tool in request.tools}
        request = replace(request, appended_tools=tuple([name for name in dict.fromkeys(told) if name in offered]))
    if known.config.shows_thinking:
        request = replace(request, shows_thinking=True)
    number = known.spending.requests + 1
    return SendRequest(
        number=number,
        step=known.step,
        purpose=purpose,
        request=request,
        deadlines=known.config.deadlines,
        most_s=None if allowed.answers else known.spending.pacing.most_s(left_s(known)),
        taken_ids=frozenset(known.history.call_ids),
        id_prefix=f"call_{number}",
        calls_in_text=_sought_calls(known, request),
    )


def sending(known: Known, request: Request, *, purpose: Purpose, own: int) -> Sending:
    """The request leaves."""
    stake = None
    if (price := known.config.prices.get(request.model)) is not None:
        now = replace(known.coming(), price=price)
        projected = known.spending.pacing.at_stake(request, own=own, coming=now)
        stake = AtStake(row=price, model=request.model, step=known.step, projected_usd=projected)
    return Sending(request=request, purpose=purpose, own=own, stake=stake)


def _sought_calls(known: Known, request: Request) -> SoughtCalls | None:
    """Which calls count in the text of the response. If no tool may be called, calls in the text are still told from the answer,
    so that the turn notices that the model disobeyed. Calls that a continuation or a summary quotes are part of its text. Without
    tools there are no calls, but reasoning may still come at the text's beginning."""
    config, asking = known.config, known.asking
    if config.calls_in_text == "off" or (config.calls_in_text == "auto" and not config.leaves_calls_in_text):
        return None
    leading = asking is not None and asking.purpose in ("continue", "compact")
    is_forced = leading or (asking is not None and asking.forced)
    tools = known.specs if is_forced else request.tools
    if request.output is not None or (request.tool_choice == "none" and not is_forced):
        tools = ()
    return SoughtCalls(
        tools=tools,
        unmarked=bool(tools) and config.calls_in_text == "on",
        leading=leading,
        earlier=known.history.left_out if tools else (),
    )


# A server that ends its stream in good order without a finish reason did so on purpose, or because a gateway told it to. One time
# may be chance, unless the response fills half the output limit. After that the model continues from what has come, or is told to
# write less in one response.
SILENT_ENDS = 2
DROPPED = Fault(kind=FaultKind.DISCONNECTED, message="the stream ended in the middle of the response")
LOST_PIECE = Fault(kind=FaultKind.DISCONNECTED, message="a piece of the response could not be read")
NO_ROOM_LEFT = "The limits leave no room for another request."


class Attempt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`request` is what is sent; its last `own` messages are not part of the history. `own_texts` are what the answer's request
    would add to it. `order` is the last command, `reply` the last event for a command."""

    request: Request
    own: int
    purpose: Purpose
    asking: RequestTerms
    allowed: Allowed
    own_texts: tuple[str, ...] = ()
    retry_of: Purpose | None = None
    trying: Trying | None = None
    stage: Literal["send", "hooks", "sent", "reply", "fitted", "again", "refitted"] = "send"
    order: SendRequest | None = None
    reply: ResponseReceived | RequestFailed | None = None
    refused: int | None = None  # this much of its thinking stands before the block that was refused as stale
    lessons: int = 0  # learned from refusals of this request
    wait: Wait | None = None  # once there is room for the request after it

    @classmethod
    def of(cls, composed: Composed, *, plain: bool) -> "Attempt":
        """The first attempt at a step's request; `plain` as in `Allowed`."""
        asking, wish = composed.asking, composed.wish
        return cls(
            request=composed.request,
            own=composed.own,
            purpose=asking.purpose,
            asking=asking,
            allowed=Allowed(plain=plain, answers=plain or asking.forced),
            own_texts=composed.own_texts,
            retry_of=wish.retry_of,
            trying=wish.trying,
        )

    def go(self, known: Known) -> Move:
        match self.stage:
            case "reply":
                return self._judge(known)
            case "fitted":
                return self._wait(known) if known.fits else self._give_up(known, why=NO_ROOM_LEFT)
            case "again":
                return self._again(known)
            case "refitted":
                return self._over(WantsAnew()) if known.fits else self._stands()
            case "send":
                return self._send(known)
            case _:
                raise TurnwiseBug(f"a request at `{self.stage}` waits for its event")

    def receive(self, event: Event, known: Known) -> Move:
        if type(event) is ResponseReceived:
            response = event.response
            changes = () if response.usage is None else (Counted(response.usage),)
            if response.fault is None and not response.lost and response.finish is not FinishReason.CUT:
                return Move(self, changes, Over(Accepted(response=response)))
            return Move(replace(self, stage="reply", reply=event), changes)
        match event:
            case HooksRan(outcomes=outcomes):
                denied = next((outcome for outcome in outcomes if outcome.denied is not None), None)
                if denied is not None:
                    return self._over(Denied(by=denied.by, why=denied.denied or "it did not say why"))
                assert self.order is not None
                return self._leaves(known, self.order)
            case RequestFailed(partial=partial, sent=sent):
                counted = () if partial is None or partial.usage is None else (Counted(partial.usage),)
                changes = counted if sent else (*counted, TakenBack())
                return Move(replace(self, stage="reply", reply=event), changes)
            case WaitOver():
                return Move(replace(self, stage="again"))
            case _:
                raise TurnwiseBug(f"a request does not wait for {type(event).__name__}")

    def hear(self, outcome: object, known: Known) -> Move:
        raise TurnwiseBug("a request begins no phase")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        partial, changes = leaving.partial, list[Change]()
        if partial is not None and partial.usage is not None:
            changes.append(Counted(partial.usage))
        if self.stage == "sent" and not leaving.sent:
            changes.append(TakenBack())
        return Left(changes)

    # while it is on its way

    def _send(self, known: Known) -> Move:
        order = order_of(known, self.request, purpose=self.purpose, own=self.own, allowed=self.allowed)
        if self.retry_of is not None and order.purpose == "retry":
            order = replace(order, retry_of=self.retry_of)
        if "before_request" not in known.config.hooks:
            return self._leaves(known, order)
        held = replace(self, order=order, stage="hooks")
        deadlines = known.config.deadlines
        return Move(held, (), RunHooks(step=known.step, point="before_request", deadlines=deadlines, request=order))

    def _leaves(self, known: Known, order: SendRequest) -> Move:
        sent = replace(self, order=order, stage="sent")
        return Move(sent, (sending(known, order.request, purpose=order.purpose, own=self.own),), order)

    # its reply

    def _judge(self, known: Known) -> Move:
        match self.reply:
            case ResponseReceived(response=response):
                return self._broken_off(response, known)
            case RequestFailed(fault=fault) if changes := without_stale(known, self.order, fault, refused=self.refused):
                purpose, valid = self.asking.purpose, fault.valid_thinking
                return Move(replace(self, stage="send", purpose="retry", retry_of=purpose, refused=valid), changes)
            case RequestFailed(fault=fault) if changes := as_taught(known, self.order, fault, lessons=self.lessons):
                purpose = self.asking.purpose
                again = replace(self, stage="send", purpose="retry", retry_of=purpose, lessons=self.lessons + 1)
                return Move(again, changes)
            case RequestFailed(fault=fault, lost=True):
                return self._send_anew(fault, known)
            case RequestFailed(fault=fault):
                return self._try_again(fault, known)
            case None:
                raise TurnwiseBug("a request without a reply is judged")

    def _broken_off(self, response: Response, known: Known) -> Move:
        """What to do if the provider or the connection broke the response off. Otherwise the response is accepted."""
        if response.fault is not None:
            return self._try_again(response.fault, known)
        if response.lost:
            return self._ask_for_lost(response, known)
        if response.provider_finish is not None or has_end_mark(response):
            return self._accept(response)
        limit_tokens = self.asking.limit_tokens
        cut = find_cut(response, limit_tokens=limit_tokens, hands_out_objects=False)
        if not known.config.stream or says_limit(response, known, cut=cut, limit_tokens=limit_tokens):
            return self._accept(response)  # a whole body did not break off
        tally = known.tally.after("ended silently")
        if tally.silent_ends >= SILENT_ENDS:
            return Move(self, (Replaced(tally=tally),), Over(Accepted(response=response)))
        again = self._try_again(DROPPED, known)
        return replace(again, changes=(Replaced(tally=tally), *again.changes))

    def _ask_for_lost(self, response: Response, known: Known) -> Move:
        """Try again if a piece of the response was lost on the way (promise assembly:lost-piece); otherwise the response stands.

        Once a step, in two steps of the turn. If some of its calls can run, the last request of the limits stays reserved for the
        answer. The new attempt goes to the same model, which is not at fault.
        """
        tally = known.tally
        if response.finish in REFUSED or known.step in tally.losing or not tally.may_ask_for_lost:
            return self._accept(response)
        keeps_last = self.allowed.plain and not self.asking.forced and bool(calls_of(response.message))
        if keeps_last and not affords(known, answers=False):
            return self._accept(response)
        return self._try_again(LOST_PIECE, known, may_fall_back=False)

    def _try_again(self, fault: Fault, known: Known, *, may_fall_back: bool = True) -> Move:
        """The wait before another attempt, or the wish for the next model; otherwise this failure stands."""
        assert self.reply is not None
        pacing, allowed = known.spending.pacing, self.allowed
        trying = Trying.of(fault, before=self.trying, at_s=known.spending.pacing.at_s)
        left = left_s(known)
        verdict = judge_retry(
            fault,
            policy=known.config.retry,
            attempt=trying.attempt,
            waited_s=pacing.at_s - trying.failed_s,
            jitter=self.reply.jitter,
            has_fallback=may_fall_back and bool(known.config.fallbacks) and allowed.plain,
            left_s=left if allowed.answers else pacing.most_s(left),
            answer_s=pacing.longest_request_s if allowed.answers else 0.0,
        )
        match verdict:
            case GiveUp(why=why):
                return self._give_up(known, why=why)
            case TryFallback(why=why):
                otherwise = self._outcome(NO_ROOM_LEFT)
                return self._over(WantsFallback(why=why, fault=fault, otherwise=otherwise))
            case WaitThenRetry(seconds=seconds, why=why):
                wait = Wait(number=known.spending.requests, seconds=seconds, why=why)
                waiting = replace(self, wait=wait, trying=trying)
                if waiting._affords_again(known, wait_s=seconds):
                    return waiting._wait(known)
                if allowed.plain:
                    fit = Fit(own=self.own_texts, limits=True)
                    return Move(replace(waiting, stage="fitted"), (fit,))
                return self._give_up(known, why=NO_ROOM_LEFT)

    def _send_anew(self, fault: Fault, known: Known) -> Move:
        """Send the same request again at once, if the limits allow one more: the loss was nobody's failure."""
        trying = Trying.of(fault, before=self.trying, at_s=known.spending.pacing.at_s)
        again = replace(self, trying=replace(trying, attempt=trying.attempt - 1), stage="again")
        if self.allowed.plain or again._affords_again(known, wait_s=0.0):
            return Move(again)
        return self._give_up(known, why=NO_ROOM_LEFT)

    def _wait(self, known: Known) -> Move:
        assert self.wait is not None and self.trying is not None
        changes = (Replaced(tally=known.tally.lost_in(known.step)),) if self.trying.fault is LOST_PIECE else ()
        return Move(self, changes, self.wait)

    def _affords_again(self, known: Known, *, wait_s: float) -> bool:
        """A plain request may use the last request of the limits, as the answer. Any other request must leave one, also after its
        wait: afterwards it would be too late."""
        allowed = self.allowed
        after_s = 0.0 if allowed.plain else wait_s
        return affords(known, answers=allowed.answers, within=allowed.within, after_s=after_s)

    def _again(self, known: Known) -> Move:
        """After the wait: the same request, or the forced answer if the limits allow only that."""
        trying = self.trying
        if trying is None:
            raise TurnwiseBug("a wait without a request that failed")
        next_one = replace(trying, attempt=trying.attempt + 1)
        sends = replace(
            self,
            stage="send",
            trying=next_one,
            purpose="retry" if known.spending.has_left else known.spending.ordered,
            retry_of=self.asking.purpose,
        )
        if not self.allowed.plain:
            return Move(sends)
        if not self.asking.forced and known.config.limits is not None:
            pacing = paced(known)
            if pacing.pace == "stop":
                return Move(replace(self, stage="refitted"), (Paced(pacing), Fit(own=self.own_texts, limits=True)))
            return Move(sends, (Paced(pacing),)) if pacing.pace == "go" else self._over(WantsAnew(), Paced(pacing))
        if known.history.changed:  # the request that failed was larger than the limits now allow
            return self._over(WantsAnew(trying=next_one))
        if not affords(known, answers=True):  # the wait took the time that a limit of `&` had left
            return self._stands()
        return Move(sends)

    # how it ends

    def _accept(self, response: Response) -> Move:
        return self._over(Accepted(response=response))

    def _give_up(self, known: Known, *, why: str) -> Move:
        return self._over(self._outcome(why))

    def _outcome(self, gave_up: str) -> Accepted | Failed:
        """The part of the reply that stands."""
        match self.reply:
            case ResponseReceived(response=response):
                return Accepted(response=response, gave_up=gave_up)
            case RequestFailed(fault=fault, partial=partial):
                return Failed(fault=fault, partial=partial, gave_up=gave_up)
            case None:
                raise TurnwiseBug("a request without a reply is given up")

    def _stands(self) -> Move:
        assert self.trying is not None
        return self._over(Failed(fault=self.trying.fault))

    def _over(self, outcome: object, *changes: Change) -> Move:
        return Move(self, changes, Over(outcome))


# The request of a step: new messages are taken up, room is made (by a summary if necessary), then the request is built.


FOR_SUMMARY = Allowed(plain=False, answers=False, within=True)


class Composing(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`anew`: the request repeats the one for a response that was cut, with more room. `disobeyed`: the model called a tool
    although none was allowed."""

    prepared: StepPrepared
    wish: Wish
    disobeyed: bool
    anew: bool
    stage: Literal["words", "room", "summary", "build", "fitted", "judge", "stopped"] = "words"
    before: Pacing | None = None  # what stopped the step, while the prompt is made smaller

    def go(self, known: Known) -> Move:
        match self.stage:
            case "words":
                return self._read_words(known)
            case "room":
                return self._make_room(known)
            case "summary":
                return self._ask_for_summary(known)
            case "build":
                return self._build(known)
            case "fitted":
                return self._build(known, once_more=True) if known.fits else self._no_room()
            case "judge":
                return self._judge(known)
            case "stopped":
                return self._begin_anew() if known.fits else self._stop(known)

    def receive(self, event: Event, known: Known) -> Move:
        raise TurnwiseBug(f"a request that is composed does not wait for {type(event).__name__}")

    def hear(self, outcome: object, known: Known) -> Move:
        """Take the outcome of the request for a summary."""
        match outcome:
            case Accepted(response=response, gave_up=gave_up):
                if response.fault is None:
                    return self._summarised(known, response)
                return self._without_summary(known, response.fault, arrived="", gave_up=gave_up)
            case Failed(fault=fault, partial=partial, gave_up=gave_up):
                arrived = arrived_of(partial, known=known)
                return self._without_summary(known, fault, arrived=arrived, gave_up=gave_up)
            case _:
                raise TurnwiseBug(f"a summary does not end with {type(outcome).__name__}")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        return Left()

    # before the request

    def _read_words(self, known: Known) -> Move:
        changes: list[Change] = []
        # A pause must be followed at once by the request that continues it.
        if known.history.inbox and not known.history.paused:
            changes.append(InboxRead())
        if self.prepared is not known.spending.prepared:
            changes.append(Prepared(self.prepared))
        return Move(replace(self, stage="room"), changes) if changes else self._make_room(known)

    def _make_room(self, known: Known) -> Move:
        may_ask = not self.disobeyed and affords(known, answers=False, within=True)
        made = make_room(
            known.room, history=known.history, prepared=self.prepared, config=known.config, may_ask=may_ask
        )
        changes = changes_of(made, known=known)
        if not changes and made.asks is None:  # the usual case
            return self._build(known)
        return Move(replace(self, stage="build" if made.asks is None else "summary"), changes)

    # a summary

    def _ask_for_summary(self, known: Known) -> Move:
        planned = known.room.planned
        assert planned is not None
        tools = tools_of(known, prepared=self.prepared)
        request = summary_request(planned, config=known.config, prepared=self.prepared, tools=tools)
        request = below_limits(known, request, own=1, answers=False)
        asking = asking_of(request, purpose="compact", forced=True, partial=False, config=known.config)
        attempt = Attempt(
            request=request, own=1, purpose="compact", asking=asking, allowed=FOR_SUMMARY, trying=self.wish.trying
        )
        # the request after it is not another attempt: the summary's request came between
        then = replace(self, wish=replace(self.wish, retry_of=None, trying=None))
        return Move(then, (Posed(asking),), Begin(attempt))

    def _summarised(self, known: Known, response: Response | None, *changes: Change) -> Move:
        """Continue with the request that there was no room for."""
        assert known.room.planned is not None
        made = summarised(known.room, planned=known.room.planned, response=response)
        changes = (*changes, *changes_of(made, known=known), Replaced(guarding=known.guarding.forgetting()))
        if known.config.limits is None:
            return Move(replace(self, stage="words", disobeyed=False), changes)
        return Move(replace(self, stage="judge"), changes)

    def _judge(self, known: Known) -> Move:
        """The summary took a request: the rest may be reserved for the answer."""
        pacing = known.judged()
        if pacing.pace != "stop":
            return replace(self._begin_anew(), changes=(Paced(pacing),))
        fit = Fit(own=own_texts(self.prepared, note=self.wish.note), limits=True)
        wish = once_fitted(self.wish, known=known)
        return Move(replace(self, wish=wish, stage="stopped", before=pacing), (Paced(pacing), fit))

    def _begin_anew(self) -> Move:
        return Move(replace(self, stage="words", disobeyed=False))

    def _without_summary(self, known: Known, fault: Fault, *, arrived: str, gave_up: str) -> Move:
        """Ask for a smaller summary, in the room that the error told; otherwise continue without one."""
        if fault.kind not in FATAL or not self.anew:
            lesson = lesson_of(known, fault=fault, answers=False)
            if lesson:
                return Move(replace(self, stage="words", disobeyed=False), lesson)
        if fault.kind in FATAL:
            failed = SummaryFailed(fault=fault, arrived=arrived, gave_up=gave_up)
            return Move(self, (), Over(failed))
        if known.room.unsaid is not None:  # the error was not about room: nothing must be lost because of it
            failed = SummaryFailed(fault=known.room.unsaid, arrived=arrived, gave_up=gave_up)
            return Move(self, (), Over(failed))
        return self._summarised(known, None, Replaced(config=known.room.without_refusals(known.config)))

    # the request

    def _build(self, known: Known, *, once_more: bool = False) -> Move:
        """The request. If there is no room for it, the parts that leave no room for the answer are left out, once."""
        found = built(known, prepared=self.prepared, wish=self.wish, disobeyed=self.disobeyed)
        if found.composed is not None:
            return Move(self, found.changes, Over(found.composed))
        if once_more:
            return self._no_room(found.changes)
        fit = Fit(own=own_texts(self.prepared, note=self.wish.note))
        wish = once_fitted(self.wish, known=known)
        return Move(replace(self, wish=wish, stage="fitted"), (*found.changes, fit))

    def _no_room(self, changes: Sequence[Change] = ()) -> Move:
        return Move(self, changes, Over(Ends(why=NO_ROOM)))

    def _stop(self, known: Known) -> Move:
        """End without the step: the limits do not even allow an answer."""
        assert self.before is not None
        return Move(self, (StepTakenBack(),), Over(Ends(why=why_stopped(known, pacing=self.before))))


def changes_of(made: RoomMade, *, known: Known) -> tuple[Change, ...]:
    changes: list[Change] = []
    if made.room is not known.room:
        changes.append(Replaced(room=made.room))
    if made.gives_way is not None:
        changes.append(GaveWay(made.gives_way))
    elif made.asks is not None:
        changes.append(GaveWay(None, changed=made.changed))
    return tuple(changes)
