"""The request of a step: new messages are taken up, room is made (by a summary if necessary), then the request is built."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.turn.attempt import Allowed, Attempt
from turnwise.turn.changes import Change, Fit, GaveWay, InboxRead, Paced, Posed, Prepared, Replaced, StepTakenBack
from turnwise.turn.endings import FATAL, Ends, arrived_of
from turnwise.turn.events import Event, StepPrepared
from turnwise.turn.limit_pace import Pacing
from turnwise.turn.outcomes import Accepted, Begin, Failed, Leaving, Left, Move, Over, SummaryFailed, Wish
from turnwise.turn.request_plan import asking_of
from turnwise.turn.room import NO_ROOM, RoomMade, make_room, summarised, summary_request
from turnwise.turn.step_request import built, lesson_of, once_fitted, own_texts, tools_of
from turnwise.turn.turn_state import Known, affords, below_limits, why_stopped
from turnwise.vocab import Fault, Response

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
