"""A response that is cut, eaten by reasoning, or did not come: what is asked for in its place."""

from collections.abc import Sequence

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.rules.budget import ATE_ALL
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.recovery import (
    Continuing,
    Means,
    Settled,
    as_far_as_it_came,
    begin,
    continue_request,
    give_up,
    least_reasoning,
    mark_cut,
    room_for_answer,
    roomier,
)
from turnwise.rules.truncation import limit_hit
from turnwise.turn.asking import Asking, limit_of
from turnwise.turn.calls import adopt
from turnwise.turn.commands import Command, InspectCalls
from turnwise.turn.endings import NOT_RUN_CONTINUING
from turnwise.turn.requesting import Requesting
from turnwise.turn.weighing import Weighing, barred_by, may_be_barred, to_inspect, without
from turnwise.vocab import Fault, FaultKind, Response, Settings, calls_of, text_of

# After these the next request fails in the same way.
FATAL = frozenset({FaultKind.AUTH, FaultKind.QUOTA, FaultKind.NOT_FOUND})


class Recovering(Requesting, kw_only=True):
    """Recovery of a response before the turn takes it in."""

    cap_tokens: int | None = None  # the server's own limit of output, where it is below what was asked for

    def _under_cap(self, response: Response, *, asking: Asking) -> Asking:
        """What `response` is judged by: a server that ends at its own cap, whatever it calls that, ends there again. Exactly
        there; more tokens show that it was none."""
        usage = response.usage
        cap, used = self.cap_tokens, 0 if usage is None else usage.output_tokens
        # llama.cpp ends where prompt and answer fill the window, and its Responses endpoint calls that `completed`
        # (docs/live.md). Exactly there: more tokens show that the window is larger than what is known of it.
        if usage is not None and usage.input_tokens + used == self.config.model_limits.context_window_tokens:
            return msgspec.structs.replace(asking, limit_tokens=used)
        if cap is not None and used > cap:
            self.cap_tokens = cap = None
        if cap is None or (asking.limit_tokens is not None and asking.limit_tokens <= cap):
            return asking
        return msgspec.structs.replace(asking, limit_tokens=cap)

    def _met_limit(self, response: Response, *, asking: Asking) -> Asking:
        """The same once the limit has cut it: the model is told of the limit that it met, and is not asked for more than that
        server gives."""
        hit = limit_hit(response, limit_tokens=asking.limit_tokens)
        if hit == asking.limit_tokens:
            return asking
        if asking.limit_tokens is not None:
            self.cap_tokens = hit
        return msgspec.structs.replace(asking, limit_tokens=hit)

    def _adopt(self, response: Response, *, asking: Asking) -> Command:
        """Take the response in: the floor above does."""
        raise TurnwiseBug("a response came to a floor that takes none in")

    def _weigh(self, weighing: Weighing) -> Command:
        """Ask the rules about the cut calls before more of them is bought."""
        self.barred = ()
        calls = may_be_barred(weighing.cut, asking=weighing.asking, offers=self.offers, config=self.config)
        if plans := to_inspect(calls, offers=self.offers, config=self.config):
            self.weighing = weighing
            return InspectCalls(step=self.step, calls=plans)
        return self._weighed(weighing, facts=())

    def _weighed(self, weighing: Weighing, *, facts: Sequence[CallFacts]) -> Command:
        """Go on with what of a cut response may run, or ask for it once more with more room."""
        self.weighing = None
        response, asking, cut, worth = weighing.response, weighing.asking, weighing.cut, weighing.worth
        if calls := may_be_barred(cut, asking=asking, offers=self.offers, config=self.config):
            self.barred = barred_by(calls, facts=facts, offers=self.offers, config=self.config)
        plain = worth == cut
        if self.barred:
            worth, _ = without(worth, barred=self.barred)
            _, cut = without(cut, barred=self.barred)
        if self.request is None:
            raise TurnwiseBug("a response without a request")
        means = self._means(asking)
        found = begin(response, cut=worth, request=self.request, means=means)
        if isinstance(found, Settled) and not weighing.retried and plain and self.cap_tokens is None:
            more = roomier(found, cut=cut, request=self.request, limit_tokens=asking.limit_tokens, means=means)
            if more is not None and self._affords(answers=asking.forced):
                self.asked_again = found
                return self._retry(more)
        return self._go_on(found)

    def _means(self, asking: Asking) -> Means:
        """What may be done about a cut response to such a request."""
        config = self.config
        names = [name for name in asking.tools if self.offers[name].effect in config.allowed]
        return Means(
            recover=config.recover,
            callable=() if asking.forced else names,
            limits=config.model_limits,
            ceiling_tokens=config.settings.max_output_tokens,
            prefill=config.accepts_prefill,
            tool_choice_none=config.tool_choice_none,
            family=config.family,
        )

    def _go_on(self, found: Continuing | Settled) -> Command:
        asking = self.asking if self.cut_asking is None else self.cut_asking
        if asking is None:
            raise TurnwiseBug("a response without a request")
        if isinstance(found, Settled):
            self.continuing, self.cut_asking, self.asking = None, None, asking
            self.repairs += found.repairs
            self.guarding = self.guarding.recovered(calls_of(found.response.message), repairs=found.repairs)
            return self._adopt(found.response, asking=asking)
        answers = asking.forced or found.place is None
        if not self._affords(answers=answers):
            return self._go_on(give_up(found, why="the limits leave no room for another request"))
        self.continuing, self.cut_asking = found, asking
        request = continue_request(found, means=self._means(asking))
        own = len(request.messages) - len(found.request.messages)
        request = self._kept_below(request, own=own, answers=answers)
        self.asking = msgspec.structs.replace(
            asking,
            purpose="continue",
            tools=(),
            output=None,
            limit_tokens=limit_of(request.settings, config=self.config),
        )
        return self._send(request, purpose="continue", own=own)

    def _retry(self, settings: Settings, *, note: str = "") -> Command:
        """The same request once more, in the same step, with more room."""
        self.purpose, self.note = "retry", note
        return self._ask(msgspec.structs.replace(self.prepared, settings=settings))

    def _reasoning_ate_all(self, response: Response, *, asking: Asking) -> Command:
        """Once more with more room for the answer, then the forced answer with the least reasoning, then our own."""
        self.eaten += 1
        settings = self.config.settings if self.request is None else self.request.settings
        if self.eaten == 1:
            more = room_for_answer(settings, response=response, means=self._means(asking))
            if more is not None and self._affords(answers=self._is_forced):
                self.asked_again = Settled(response=response)
                return self._retry(more, note=ATE_ALL)
            self.eaten += 1
        self.note, self.purpose = ATE_ALL, "answer"
        self.prepared = msgspec.structs.replace(self.prepared, settings=least_reasoning(settings))
        return self._ask_beyond_cap(
            "The model's reasoning used up the whole output more than once, so there is no answer of its own.",
            disobeyed=False,
        )

    def _summarised(self, response: Response | None) -> Command:
        if response is not None and response.fault is not None:
            return self._without_reply(response.fault)
        return super()._summarised(response)

    def _without_reply(self, fault: Fault, *, arrived: str = "") -> Command:
        """A request for more of a cut response failed: make do with what there is, unless the next one must fail too."""
        continuing, retried = self.continuing, self.asked_again
        if self.room.planned is not None and fault.kind not in FATAL:
            if learned := self._learned(fault):
                return learned
            if self.room.unsaid is not None:  # it was not about room: nothing is to be lost for it
                return self._fail(self.room.unsaid, arrived=arrived)
            self.config = self.room.without_refusals(self.config)
            return self._summarised(None)
        if continuing is None and retried is None and (learned := self._learned(fault)):
            return learned
        if fault.kind in FATAL or (continuing is None and retried is None):
            self._leave_cut()
            return self._fail(fault, arrived=arrived)
        if continuing is not None:
            return self._go_on(give_up(continuing, why=f"the request failed: {fault.kind}"))
        self.asked_again = None
        assert retried is not None
        if not self.eaten:
            return self._go_on(retried)
        self.eaten, self.purpose = 2, "answer"
        self.prepared = msgspec.structs.replace(self.prepared, settings=None)
        return self._ask_beyond_cap("The model's reasoning used up the whole output.", disobeyed=False)

    def _learned(self, fault: Fault) -> Command | None:
        """The same request once more, in the room that the provider's error told of, or the forced answer where the limits have
        room for that only; what a summary was to make room for has its note and its purpose still."""
        is_plain = self.room.planned is None
        pacing = self.pacing
        if not self._affords(answers=self._is_forced, within=True):
            pacing = self._judged()
            if not is_plain or pacing.pace != "answer":
                return None
        output_tokens = None if self.asking is None else self.asking.limit_tokens
        if not (learned := self.room.learn(fault, config=self.config, output_tokens=output_tokens)):
            return None
        self.config, self.pacing = learned, pacing  # the last request is the answer's
        if is_plain:
            self.note, self.purpose = self.noted, "retry"
        return self._ask(self.prepared)

    def _leave_cut(self) -> None:
        """Record a cut response that nothing will continue, its calls answered (promise step:every-call-answered)."""
        left = None if self.continuing is None else as_far_as_it_came(self.continuing)
        if self.asked_again is not None and not self.eaten:
            left = self.asked_again.response
        if self.weighing is not None:
            left = mark_cut(self.weighing.response, cut=self.weighing.cut)
        self.continuing = self.cut_asking = self.asked_again = self.weighing = None
        if left is None:
            return
        adopted = adopt(left, offers=self.offers, on_offer=(), taken=self.call_ids, family=self.config.family)
        self.call_ids.update([call.id for call in adopted.calls])
        self.last_text = text_of(left.message) or self.last_text
        self._record(adopted, calls_answer=NOT_RUN_CONTINUING)
