"""How a step begins: the limits' word, then the user's `prepare_step`."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import CallerError, TurnwiseBug
from turnwise.rules.limits import counts_cost, no_price
from turnwise.rules.projection import can_project
from turnwise.turn.changes import (
    Change,
    Fit,
    Learned,
    Paced,
    PauseSettled,
    Prepared,
    Repaired,
    Roomed,
    StepBegun,
    StepTakenBack,
)
from turnwise.turn.commands import PrepareStep
from turnwise.turn.events import Event, StepPrepared
from turnwise.turn.limit_pace import Pacing
from turnwise.turn.outcomes import Leaving, Left, Move, Opened, Over, Wish
from turnwise.turn.rebuilt_request import once_fitted
from turnwise.turn.request_limits import paced, why_stopped
from turnwise.turn.request_plan import own_choice, repairs_of_preparing
from turnwise.turn.step_request import own_texts, tools_of
from turnwise.turn.turn_end import Ends
from turnwise.turn.turn_spending import NOTHING_PREPARED
from turnwise.turn.turn_state import Known


def opens_at_once(known: Known) -> tuple[Change, ...] | None:
    """What a step changes that begins with its request; None where the limits, a pause or `prepare_step` have a word in it."""
    if known.config.prepares_steps:
        return None
    pacing = paced(known, step=known.step + 1)
    return tuple(_begun(known, pacing=pacing)) if pacing.pace == "go" else None


def _begun(known: Known, *, pacing: Pacing) -> list[Change]:
    room = known.room.begin_step()
    return [StepBegun(pacing)] if room is known.room else [StepBegun(pacing), Roomed(room)]


class Opening(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`prepared` is what `prepare_step` said, `before` what stopped the step, while the prompt is made smaller."""

    wish: Wish
    stage: Literal["begin", "begun", "fitted", "prepare", "fitted prepared"] = "begin"
    prepared: StepPrepared = NOTHING_PREPARED
    before: Pacing | None = None

    def go(self, known: Known) -> Move:
        match self.stage:
            case "begin":
                begun = _begun(known, pacing=paced(known, step=known.step + 1))
                return Move(replace(self, stage="begun"), begun)
            case "begun":
                return self._judge(known, known.spending.pacing, then="fitted") or self._prepare(known)
            case "fitted":
                return self._prepare(known) if known.fits else self._stop(known)
            case "prepare":
                return self._ask_to_prepare(known)
            case "fitted prepared":
                return self._over(self.prepared) if known.fits else self._stop(known)

    def receive(self, event: Event, known: Known) -> Move:
        """A model of another price may make the step one that the limits do not allow."""
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
        changes = (*changes, Learned(priced), Prepared(event), Paced(pacing))
        now = replace(self, prepared=event)
        return now._judge(known, pacing, then="fitted prepared", changes=changes) or now._over(event, changes)

    def hear(self, outcome: object, known: Known) -> Move:
        raise TurnwiseBug("the beginning of a step begins no phase")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        return Left()

    def _judge(
        self,
        known: Known,
        pacing: Pacing,
        *,
        then: Literal["fitted", "fitted prepared"],
        changes: Sequence[Change] = (),
    ) -> Move | None:
        """Where the limits allow not even an answer: they may allow one to a smaller prompt."""
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
