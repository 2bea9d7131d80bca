"""A response that the limit cut, before the step takes it in. The rules judge its calls. Then the model continues it, or is asked
for it once more, or it is settled as it is. The core is `rules/recovery.py`; here are the requests, and what the limits allow.

The journal has only the replies themselves: joining them is pure.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.prompt_room import ATE_ALL
from turnwise.rules.recovery import (
    Continuing,
    Cut,
    Means,
    Settled,
    as_far_as_it_came,
    ate_all,
    begin,
    continue_request,
    find_cut,
    give_up,
    least_reasoning,
    limit_hit,
    mark_cut,
    room_for_answer,
    roomier,
    take_reply,
)
from turnwise.turn.attempt import Allowed, Attempt
from turnwise.turn.events import CallsInspected, Event, InspectCalls
from turnwise.turn.outcomes import (
    FATAL,
    Accepted,
    AskAnew,
    Begin,
    Broken,
    CutShort,
    Eaten,
    Failed,
    Leaving,
    Left,
    Move,
    Over,
    Recovered,
)
from turnwise.turn.request_plan import RequestTerms, limit_of
from turnwise.turn.room import Room
from turnwise.turn.turn_state import Change, Known, Posed, Reasoned, Repaired, Replaced, affords, below_limits
from turnwise.turn.verdicts import Barred, barred_by, may_be_barred, to_inspect, without
from turnwise.vocab import Request, Response, calls_of, reasoning_of


class Recovery(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`posed` is what the `request` of the cut response allowed, `asking` the same under the limit that judges it. `retried`: the
    model was already asked for it once more. `found` is the part that the model continues."""

    response: Response
    request: Request
    asking: RequestTerms
    posed: RequestTerms
    cut: Cut
    retried: bool = False
    found: Continuing | None = None
    barred: tuple[Barred, ...] = ()

    def go(self, known: Known) -> Move:
        if known.config.recover != "off" and ate_all(self.response, cut=self.cut):
            return self._reasoning_ate_all(known)
        return self._weigh(known)

    def receive(self, event: Event, known: Known) -> Move:
        if not isinstance(event, CallsInspected):
            raise TurnwiseBug(f"a recovery does not wait for {type(event).__name__}")
        return self._weighed(known, facts=event.facts)

    def hear(self, outcome: object, known: Known) -> Move:
        """Take the outcome of a request for more."""
        assert self.found is not None and known.asking is not None
        match outcome:
            case Accepted(response=response):
                changes, asking = taken_in(response, known=known, asking=known.asking)
                return self._ask_or_settle(
                    known, take_reply(self.found, reply=response, limit_tokens=asking.limit_tokens), changes=changes
                )
            case Failed(fault=fault, gave_up=gave_up):
                if fault.kind in FATAL:
                    left = as_far_as_it_came(self.found)
                    return Move(self, (), Over(Broken(fault=fault, left=left, gave_up=gave_up)))
                return self._ask_or_settle(known, give_up(self.found, why=f"the request failed: {fault.kind}"))
            case _:
                raise TurnwiseBug(f"a continuation does not end with {type(outcome).__name__}")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        if self.found is not None:
            return Left((), CutShort(as_far_as_it_came(self.found)))
        return Left((), CutShort(mark_cut(self.response, cut=self.cut)))

    # reasoning that used up the response

    def _reasoning_ate_all(self, known: Known) -> Move:
        """Once more with more room for the answer, then the forced answer with the least reasoning, then turnwise's own
        answer."""
        tally, settings = known.tally.after("eaten"), self.request.settings
        if tally.eaten == 1:
            more = room_for_answer(settings, response=self.response, means=self._means(known))
            if more is not None and affords(known, answers=known.is_forced):
                anew = AskAnew(settings=more, stands=Settled(response=self.response), note=ATE_ALL)
                return Move(self, (Replaced(tally=tally),), Over(anew))
            tally = tally.after("eaten")
        return Move(self, (Replaced(tally=tally),), Over(Eaten(settings=least_reasoning(settings))))

    # the verdict of the rules

    def _weigh(self, known: Known) -> Move:
        """Let the rules judge the cut calls before turnwise pays for more of them."""
        config, offers = known.config, known.offers
        calls = may_be_barred(self.cut, asking=self.asking, offers=offers, config=config)
        if plans := to_inspect(calls, offers=offers, config=config):
            return Move(self, (), InspectCalls(step=known.step, calls=plans))
        return self._weighed(known, facts=())

    def _weighed(self, known: Known, *, facts: Sequence[CallFacts]) -> Move:
        """Continue with the calls that may run, or ask for the response once more with more room."""
        config, offers = known.config, known.offers
        cut, worth = self.cut, known.guarding.spare(self.cut)
        barred: tuple[Barred, ...] = ()
        if calls := may_be_barred(cut, asking=self.asking, offers=offers, config=config):
            barred = barred_by(calls, facts=facts, offers=offers, config=config)
        plain = worth == cut
        if barred:
            worth, _ = without(worth, barred=barred)
            _, cut = without(cut, barred=barred)
        weighed = replace(self, barred=barred)
        means = self._means(known)
        found = begin(self.response, cut=worth, request=self.request, means=means)
        if isinstance(found, Settled) and not self.retried and plain and known.room.cap_tokens is None:
            more = roomier(found, cut=cut, request=self.request, limit_tokens=self.asking.limit_tokens, means=means)
            if more is not None and affords(known, answers=self.asking.forced):
                return Move(weighed, (), Over(AskAnew(settings=more, stands=found, barred=barred)))
        return weighed._ask_or_settle(known, found)

    def _means(self, known: Known) -> Means:
        """What may be done about the response."""
        config = known.config
        names = [name for name in self.asking.tools if known.offers[name].effect in config.allowed]
        return Means(
            recover=config.recover,
            callable=names,  # empty in the last step: no tool may be called there
            limits=config.model_limits,
            ceiling_tokens=config.settings.max_output_tokens,
            prefill=config.accepts_prefill,
            tool_choice_none=config.tool_choice_none,
            traits=config.traits,
        )

    # continuing it

    def _ask_or_settle(self, known: Known, found: Continuing | Settled, *, changes: Sequence[Change] = ()) -> Move:
        while isinstance(found, Continuing):
            answers = self.asking.forced or found.place is None
            if affords(known, answers=answers):
                return self._ask_for_more(known, found, answers=answers, changes=changes)
            found = give_up(found, why="the limits leave no room for another request")
        recovered = Recovered(response=found.response, asking=self.posed, barred=self.barred)
        return Move(self, (*changes, *settling(known, found, asking=self.posed)), Over(recovered))

    def _ask_for_more(self, known: Known, found: Continuing, *, answers: bool, changes: Sequence[Change]) -> Move:
        request = continue_request(found, means=self._means(known))
        own = len(request.messages) - len(found.request.messages)
        request = below_limits(known, request, own=own, answers=answers)
        limit_tokens = limit_of(request.settings, config=known.config)
        asking = replace(self.asking, purpose="continue", tools=(), output=None, limit_tokens=limit_tokens)
        allowed = Allowed(plain=False, answers=answers)
        attempt = Attempt(request=request, own=own, purpose="continue", asking=asking, allowed=allowed)
        return Move(replace(self, found=found), (*changes, Posed(asking)), Begin(attempt))


class FoundCut(msgspec.Struct, frozen=True, kw_only=True):
    """A cut response: its recovery, and what its limit changes."""

    recovery: Recovery
    changes: tuple[Change, ...]


def cut_of(
    known: Known, response: Response, *, request: Request, asking: RequestTerms, retried: bool, before: Sequence[Change]
) -> FoundCut | None:
    """None if nothing cut the response to this `request`; `asking` is what it is judged by. `before` are the changes that come
    first. `retried`: the model was already asked for it once more."""
    config = known.config
    objects = config.traits.gives_objects(streamed=config.stream)
    cut = find_cut(response, limit_tokens=asking.limit_tokens, hands_out_objects=objects, request=request)
    if cut is None:
        return None
    posed, changes = known.asking or asking, tuple[Change, ...]()
    if cut.limited:
        room = next((one.room for one in before if isinstance(one, Replaced) and one.room is not None), known.room)
        asking, room = met_limit(room, response, asking=asking)
        posed, changes = asking, (Replaced(room=room), Posed(asking))
    recovery = Recovery(response=response, request=request, asking=asking, posed=posed, cut=cut, retried=retried)
    return FoundCut(recovery=recovery, changes=changes)


def settling(known: Known, found: Settled, *, asking: RequestTerms) -> tuple[Change, ...]:
    """The changes for every recovered response, whatever it holds."""
    guarding = known.guarding.recovered(calls_of(found.response.message), repairs=found.repairs)
    return Posed(asking), Repaired(found.repairs), Replaced(guarding=guarding)


def taken_in(response: Response, *, known: Known, asking: RequestTerms) -> tuple[tuple[Change, ...], RequestTerms]:
    """The changes for every response that is not a summary, and what it is judged by."""
    asking, room = under_cap(
        known.room, response, asking=asking, window=known.config.model_limits.context_window_tokens
    )
    changes: list[Change] = [] if room is known.room else [Replaced(room=room)]
    if response.repairs:
        changes.append(Repaired(response.repairs))
    if reasoning := reasoning_of(response.message):
        changes.append(Reasoned(reasoning))
    return tuple(changes), asking


def under_cap(room: Room, response: Response, *, asking: RequestTerms, window: int | None) -> tuple[RequestTerms, Room]:
    """What judges `response`. A server that ends at its own cap, whatever it calls that, ends there again. The token count must
    match exactly; more tokens show that it was no cap."""
    usage = None if response.usage is None else response.usage.last_sampling
    cap, used = room.cap_tokens, 0 if usage is None else usage.output_tokens
    # llama.cpp ends when prompt and answer fill the window, and its Responses endpoint calls that `completed` (docs/live.md). The
    # count must match exactly: more tokens show that the window is larger than the known one.
    if usage is not None and usage.input_tokens + used == window:
        return replace(asking, limit_tokens=used), room
    if cap is not None and used > cap:
        cap = None
    room = room.under_cap(cap)
    if cap is None or (asking.limit_tokens is not None and asking.limit_tokens <= cap):
        return asking, room
    return replace(asking, limit_tokens=cap), room


def met_limit(room: Room, response: Response, *, asking: RequestTerms) -> tuple[RequestTerms, Room]:
    """The same once the limit has cut it: the model is told the limit that it met, and is not asked for more than that server
    gives."""
    hit = limit_hit(response, limit_tokens=asking.limit_tokens)
    if hit == asking.limit_tokens:
        return asking, room
    if asking.limit_tokens is not None:
        room = room.under_cap(hit)
    return replace(asking, limit_tokens=hit), room
