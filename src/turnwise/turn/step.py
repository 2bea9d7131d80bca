"""A step: from the verdict of the limits to calls that are answered, an answer, or an end.

It composes its request, sends it, recovers a cut response, and reads the result. Its wish and the answer of `prepare_step` are
used again if the request is rebuilt, repeated, or sent beyond the cap.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import CallerError, TurnwiseBug
from turnwise.rules.limits import MaxSteps, counted, counts_cost, no_price
from turnwise.rules.pricing import can_project
from turnwise.rules.prompt_room import ATE_ALL
from turnwise.rules.recovery import Settled, as_ended
from turnwise.turn.attempt import Attempt, Composing
from turnwise.turn.call_sorting import TakenUp, before_answer
from turnwise.turn.config import OneAsk
from turnwise.turn.events import Ask, Asked, Event, PrepareStep, RulesAdded, StepPrepared
from turnwise.turn.next_phase import BeyondCap, follows
from turnwise.turn.outcomes import (
    FATAL,
    PLAIN_WISH,
    Accepted,
    AskAnew,
    Begin,
    BeginCalls,
    Broken,
    CallsOver,
    CallsWait,
    Composed,
    Corrects,
    CutShort,
    Eaten,
    End,
    Ended,
    Ends,
    Failed,
    Fails,
    GoesOn,
    GoOn,
    Leaving,
    Left,
    Move,
    Opened,
    Over,
    Recovered,
    SummaryFailed,
    WantsAnew,
    WantsFallback,
    Wish,
    arrived_of,
)
from turnwise.turn.recovery_phase import cut_of, settling, taken_in
from turnwise.turn.request_plan import RequestTerms, own_choice, repairs_of_preparing
from turnwise.turn.settled_response import left_in_history, read
from turnwise.turn.step_request import again, falling_back, lesson_of, once_fitted, own_texts, tools_of
from turnwise.turn.turn_spending import NOTHING_PREPARED, Pacing
from turnwise.turn.turn_state import (
    Appended,
    Change,
    Fit,
    Known,
    Paced,
    PauseSettled,
    Prepared,
    Repaired,
    Replaced,
    StepBegun,
    StepTakenBack,
    affords,
    paced,
    why_stopped,
)
from turnwise.turn.verdicts import Barred
from turnwise.vocab import Fault, Message, Request, Response, StopReason, Text, ToolCall

# How a step begins: the verdict of the limits, then the user's `prepare_step`.


def _begun(known: Known, *, pacing: Pacing) -> list[Change]:
    room = known.room.begin_step()
    return [StepBegun(pacing)] if room is known.room else [StepBegun(pacing), Replaced(room=room)]


def _has_more_steps(known: Known) -> bool:
    """Whether the number of steps alone makes this the last step, and a person may allow more."""
    policy = known.config.policy
    is_last = known.spending.pacing.bound == MaxSteps(known.config.max_steps) and known.step > 1
    ends = known.guarding.ends is not None or bool(known.room.ends)
    return is_last and not ends and policy is not None and policy.attended and policy.more_steps > 0


def _more_steps(known: Known) -> int:
    """As many as the turn may take so far: a long turn asks ever more rarely."""
    policy = known.config.policy
    return 0 if policy is None else max(policy.more_steps, known.config.max_steps)


def _ask_for_steps(known: Known) -> Ask:
    step, requests = known.step, known.spending.requests
    more = f'{{"more":{_more_steps(known)}}}'
    call = ToolCall(id=f"steps-{step}", name="more_steps", arguments=more)
    subject = f"{counted(step - 1, 'step')}, {counted(requests, 'request')}"
    ask = OneAsk(call=call, arguments=more, subject=subject, kind="steps", can_wait=False)
    return Ask(step=step, asks=(ask,), deadline_s=before_answer(known, known.config.deadlines.ask_s))


class Opening(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`prepared` is the answer of `prepare_step`. `before` is what stopped the step, while the prompt is made smaller."""

    wish: Wish
    stage: Literal["begin", "begun", "further", "fitted", "prepare", "fitted prepared"] = "begin"
    prepared: StepPrepared = NOTHING_PREPARED
    before: Pacing | None = None

    def go(self, known: Known) -> Move:
        match self.stage:
            case "begin":
                begun = _begun(known, pacing=paced(known, step=known.step + 1))
                return Move(replace(self, stage="begun"), begun)
            case "further":
                return Move(replace(self, stage="begun"), (Paced(paced(known)),))
            case "begun" if _has_more_steps(known):
                return Move(self, (), _ask_for_steps(known))
            case "begun":
                return self._judge(known, known.spending.pacing, then="fitted") or self._prepare(known)
            case "fitted":
                return self._prepare(known) if known.fits else self._stop(known)
            case "prepare":
                return self._ask_to_prepare(known)
            case "fitted prepared":
                return self._over(self.prepared) if known.fits else self._stop(known)

    def receive(self, event: Event, known: Known) -> Move:
        """Take the answer of `prepare_step`. With a model of another price, the limits may not allow the step. Or take a person's
        answer: whether the turn may have more steps."""
        if isinstance(event, RulesAdded):
            return self.go(known)
        if isinstance(event, Asked):
            return self._asked(known, event)
        if not isinstance(event, StepPrepared):
            raise TurnwiseBug(f"a step does not wait for {type(event).__name__}")
        config = known.config
        repairs = repairs_of_preparing(
            event,
            specs=known.specs,
            tools=tools_of(known, prepared=event),
            own=own_choice(config, has_called=known.tally.has_called),
            step=known.step,
        )
        changes: tuple[Change, ...] = (Repaired(repairs),) if repairs else ()
        if not counts_cost(config.limits) or event.model is None:
            return self._over(event, changes)
        row = event.price or config.prices.get(event.model)
        if row is None or not can_project(row):
            raise CallerError(no_price(event.model, profile=config.profile, row=row))
        priced = config.priced(event.model, row=row)
        coming = replace(known.coming(), price=row, is_billed=False)
        pacing = known.spending.pacing.judge(priced, coming=coming)
        # a prompt that is made smaller is weighed at this model's price
        changes = (*changes, Replaced(config=priced), Prepared(event), Paced(pacing))
        now = replace(self, prepared=event)
        return now._judge(known, pacing, then="fitted prepared", changes=changes) or now._over(event, changes)

    def hear(self, outcome: object, known: Known) -> Move:
        raise TurnwiseBug("the beginning of a step begins no phase")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        return Left()

    def _asked(self, known: Known, event: Asked) -> Move:
        if not any(one.verdict == "allow" for one in event.approvals):
            return self._judge(known, known.spending.pacing, then="fitted") or self._prepare(known)
        further = known.config.allowing(_more_steps(known))
        return Move(replace(self, stage="further"), (Replaced(config=further),))

    def _judge(
        self,
        known: Known,
        pacing: Pacing,
        *,
        then: Literal["fitted", "fitted prepared"],
        changes: Sequence[Change] = (),
    ) -> Move | None:
        """Judge the step. If the limits do not even allow an answer, they may allow one to a smaller prompt."""
        if pacing.bound is None or pacing.pace != "stop":
            return None
        fit = Fit(own=own_texts(known.spending.prepared, note=self.wish.note), limits=True)
        wish = once_fitted(self.wish, known=known)
        return Move(replace(self, wish=wish, stage=then, before=pacing), (*changes, fit))

    def _stop(self, known: Known) -> Move:
        assert self.before is not None
        ends = Ends(why=why_stopped(known, pacing=self.before))
        return Move(self, (StepTakenBack(),), Over(ends))

    def _prepare(self, known: Known) -> Move:
        settles = known.history.paused and known.spending.pacing.pace == "answer"
        now = replace(self, wish=once_fitted(self.wish, known=known)) if settles else self
        changes = (PauseSettled(),) if settles else ()
        if not known.config.prepares_steps:
            return now._over(NOTHING_PREPARED, changes)
        now = replace(now, stage="prepare")
        return Move(now, changes) if changes else now._ask_to_prepare(known)

    def _ask_to_prepare(self, known: Known) -> Move:
        order = PrepareStep(
            step=known.step,
            max_steps=known.config.max_steps,
            messages=tuple(known.history.messages),
            usage=known.spending.usage,
            requests=known.spending.requests,
        )
        return Move(self, (), order)

    def _over(self, prepared: StepPrepared, changes: Sequence[Change] = ()) -> Move:
        return Move(self, changes, Over(Opened(prepared=prepared, wish=self.wish)))


ATE_TWICE = "The model's reasoning used up the whole output more than once, so there is no answer of its own."
ATE_ONCE = "The model's reasoning used up the whole output."


Stage = Literal["plain", "fallen back", "beyond", "fitted beyond"]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`request` is the current request, and `noted` the note that it carried. `stands` is a cut response that the model is asked
    for once more, as far as it came. `beyond` is what is asked for beyond the cap, with `prepared`. `taken_up` are calls of an
    earlier run, before the first step."""

    wish: Wish = PLAIN_WISH
    taken_up: TakenUp | None = None
    stage: Stage = "plain"
    prepared: StepPrepared = NOTHING_PREPARED
    request: Request | None = None
    noted: str = ""
    stands: Settled | None = None
    barred: tuple[Barred, ...] = ()
    gave_up: str = ""
    beyond: BeyondCap | None = None

    def go(self, known: Known) -> Move:
        match self.stage:
            case "plain":
                return self._begin(known)
            case "fallen back":
                return self._fallen_back(known)
            case "beyond":
                return self._ask_beyond_cap(known)
            case "fitted beyond":
                return self._beyond_cap(known) if known.fits else self._no_answer()

    def _begin(self, known: Known) -> Move:
        if self.taken_up is not None:
            return Move(self, (), BeginCalls(self.taken_up))
        # A step begins with its request, unless the limits, a pause or `prepare_step` prevent that.
        if not known.config.prepares_steps:
            pacing = paced(known, step=known.step + 1)
            if pacing.pace == "go":
                return self._compose(NOTHING_PREPARED, changes=_begun(known, pacing=pacing))
        return Move(self, (), Begin(Opening(wish=self.wish)))

    def receive(self, event: Event, known: Known) -> Move:
        raise TurnwiseBug(f"a step does not wait for {type(event).__name__}")

    def hear(self, outcome: object, known: Known) -> Move:
        # the usual outcomes come first, by type: `match` would try one class after the other
        if type(outcome) is Composed:
            sent = replace(self, request=outcome.request, noted=outcome.wish.note, wish=PLAIN_WISH)
            return Move(sent, (), Begin(Attempt.of(outcome, plain=self.stands is None)))
        if type(outcome) is Accepted:
            return self._with_words(outcome.gave_up)._take(known, outcome.response)
        if type(outcome) is CallsOver:
            return self._next_step()
        match outcome:
            case Opened(prepared=prepared, wish=wish):
                return self._compose(prepared, wish=wish)
            case Failed(fault=fault, partial=partial, gave_up=gave_up):
                arrived = arrived_of(partial, known=known)
                return self._with_words(gave_up)._without_reply(known, fault, arrived=arrived)
            case WantsFallback():
                return self._fall_back(known, outcome)
            case WantsAnew(trying=trying):
                return self._compose(known.spending.prepared, wish=again(known, note=self.noted, trying=trying))
            case Recovered(response=response, asking=asking, barred=barred):
                return replace(self, barred=barred)._read(known, response, asking=asking)
            case AskAnew(settings=settings, stands=stands, note=note, barred=barred):
                anew = replace(self, stands=stands, barred=barred)
                prepared = replace(known.spending.prepared, settings=settings)
                return anew._compose(prepared, wish=Wish(note=note, purpose="retry"))
            case Eaten(settings=settings):
                beyond = BeyondCap(why=ATE_TWICE, wish=Wish(note=ATE_ALL, purpose="answer"))
                prepared = replace(known.spending.prepared, settings=settings)
                return self._wants_beyond_cap(known, beyond, prepared=prepared)
            case Corrects(text=text, correction=correction):
                return self._correct(known, text, correction=correction)
            case GoesOn():
                return self._next_step()
            case CallsWait():
                return self._end(Ended(reason=StopReason.WAITING, text=known.words.beside))
            case Broken(fault=fault, left=left, gave_up=gave_up):
                return self._end(Fails(fault=fault, gave_up=gave_up), left_in_history(left, known=known))
            case SummaryFailed(fault=fault, arrived=arrived, gave_up=gave_up):
                return self._end(Fails(fault=fault, arrived=arrived, gave_up=gave_up), self._left_standing(known))
            case Ends() | Ended():
                return self._end(outcome)
            case _:
                raise TurnwiseBug(f"a step does not know {type(outcome).__name__}")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        """Record a cut response that nothing will continue, with results for its calls (promise step:every-call-answered)."""
        return Left(
            left_in_history(told.left, known=known) if isinstance(told, CutShort) else self._left_standing(known)
        )

    # the request

    def _compose(
        self,
        prepared: StepPrepared,
        *,
        wish: Wish | None = None,
        disobeyed: bool = False,
        changes: Sequence[Change] = (),
    ) -> Move:
        composing = Composing(
            prepared=prepared,
            wish=self.wish if wish is None else wish,
            disobeyed=disobeyed,
            anew=self.stands is not None,
        )
        return Move(self, changes, Begin(composing))

    def _with_words(self, gave_up: str) -> "Step":
        return self if gave_up == self.gave_up else replace(self, gave_up=gave_up)

    # rebuilt

    def _fall_back(self, known: Known, wanted: WantsFallback) -> Move:
        if learned := self._learned(known, wanted.fault):
            return learned
        changes = falling_back(known, why=wanted.why)
        if not changes:
            return self.hear(wanted.otherwise, known)
        return Move(replace(self, stage="fallen back"), changes)

    def _fallen_back(self, known: Known) -> Move:
        paces = known.config.limits is not None and not known.is_forced
        changes = (Paced(paced(known)),) if paces else ()
        wish = again(known, note=self.noted)
        return self._compose(known.spending.prepared, wish=wish, changes=changes)

    def _learned(self, known: Known, fault: Fault, *, changes: Sequence[Change] = ()) -> Move | None:
        """Send the same request once more, in the room that the provider's error told. If the limits allow only the forced
        answer, send that."""
        if not (learned := lesson_of(known, fault=fault, answers=True)):
            return None
        wish = Wish(note=self.noted, purpose="retry")
        return self._compose(known.spending.prepared, wish=wish, changes=(*changes, *learned))

    # with a response, or without one

    def _take(self, known: Known, response: Response) -> Move:
        """Take in a whole response; a response that the limit cut is recovered first."""
        if known.asking is None or self.request is None:
            raise TurnwiseBug("a response without a request")
        changes, asking = taken_in(response, known=known, asking=known.asking)
        if response.fault is not None and self.stands is not None:
            return self._without_reply(known, response.fault, changes=changes)
        retried = self.stands is not None
        now = replace(self, stands=None) if retried else self
        found = cut_of(known, response, request=self.request, asking=asking, retried=retried, before=changes)
        if found is None:
            return now._read(known, as_ended(response), asking=asking, changes=changes)
        return Move(now, (*changes, *found.changes), Begin(found.recovery))

    def _without_reply(self, known: Known, fault: Fault, *, arrived: str = "", changes: Sequence[Change] = ()) -> Move:
        """Use what has arrived so far, unless the next request must fail too."""
        stands = self.stands
        if stands is None and (learned := self._learned(known, fault, changes=changes)):
            return learned
        if fault.kind in FATAL or stands is None:
            fails = Fails(fault=fault, arrived=arrived, gave_up=self.gave_up)
            return self._end(fails, (*changes, *self._left_standing(known)))
        now = replace(self, stands=None)
        if known.tally.eaten:
            tallied = Replaced(tally=known.tally.after("eaten"))
            beyond = BeyondCap(why=ATE_ONCE, wish=Wish(purpose="answer"))
            prepared = replace(known.spending.prepared, settings=None)
            return now._wants_beyond_cap(known, beyond, prepared=prepared, changes=(*changes, tallied))
        if known.asking is None:
            raise TurnwiseBug("a response without a request")
        settled = settling(known, stands, asking=known.asking)
        return now._read(known, stands.response, asking=known.asking, changes=(*changes, *settled))

    def _read(self, known: Known, response: Response, *, asking: RequestTerms, changes: Sequence[Change] = ()) -> Move:
        found = read(response, known=known, asking=asking)
        changes = (*changes, *found.changes)
        fault = None if found.adopted.message.parts else response.fault
        if fault is not None and (learned := self._learned(known, fault, changes=changes)):
            return learned
        then = follows(found, known=known, barred=self.barred, gave_up=self.gave_up)
        changes = (*changes, *then.changes)
        if isinstance(then.then, BeyondCap):
            return self._wants_beyond_cap(known, then.then, changes=changes)
        return Move(self, changes, then.then)

    def _correct(self, known: Known, text: str, *, correction: str) -> Move:
        """Ask for the answer once more; `text` is the answer if none comes."""
        corrected = Replaced(tally=known.tally.after("corrected"), words=known.words.corrected(text))
        asks = Appended(Message("user", (Text(correction),)))
        return self._next_step(PLAIN_WISH, (corrected, PauseSettled(), asks))

    # the one request beyond the step cap

    def _wants_beyond_cap(
        self, known: Known, beyond: BeyondCap, *, prepared: StepPrepared | None = None, changes: Sequence[Change] = ()
    ) -> Move:
        prepared = prepared or known.spending.prepared
        return Move(replace(self, stage="beyond", prepared=prepared, beyond=beyond), changes)

    def _ask_beyond_cap(self, known: Known) -> Move:
        assert self.beyond is not None
        if known.tally.extra_used:
            return self._no_answer()
        if affords(known, answers=True):
            return self._beyond_cap(known)
        fit = Fit(own=own_texts(self.prepared, note=self.beyond.wish.note), limits=True)
        wish = once_fitted(self.beyond.wish, known=known)
        return Move(replace(self, stage="fitted beyond", beyond=replace(self.beyond, wish=wish)), (fit,))

    def _beyond_cap(self, known: Known) -> Move:
        assert self.beyond is not None
        tallied = Replaced(tally=known.tally.after("asked beyond the cap"))
        beyond, now = self.beyond, replace(self, beyond=None)
        return now._compose(self.prepared, wish=beyond.wish, disobeyed=beyond.disobeyed, changes=(tallied,))

    def _no_answer(self) -> Move:
        assert self.beyond is not None
        return self._end(Ends(why=self.beyond.why))

    # how it ends

    def _left_standing(self, known: Known) -> Sequence[Change]:
        """What is left of a response that the model was asked for once more; nothing, if reasoning used it up."""
        return () if self.stands is None or known.tally.eaten else left_in_history(self.stands.response, known=known)

    def _next_step(self, wish: Wish = PLAIN_WISH, changes: Sequence[Change] = ()) -> Move:
        return Move(self, changes, Over(GoOn(wish)))

    def _end(self, end: End, changes: Sequence[Change] = ()) -> Move:
        return Move(self, changes, Over(end))
