"""A request that failed, sent again: after a wait, to the same model or the next one (promise wait:retry).

Every attempt is a request of its own in every count. Nothing of one that is given up enters the history or the result.
"""

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.rules.arguments import Unsound, judge_call
from turnwise.rules.retries import GiveUp, TryFallback, WaitThenRetry, judge_retry
from turnwise.rules.truncation import Cut, fills_half, find_cut, hands_out_objects, has_end_mark
from turnwise.turn.commands import RECOVERY, Command, FinishTurn, Purpose, SendRequest, Wait
from turnwise.turn.endings import REFUSED
from turnwise.turn.recovering import Recovering
from turnwise.vocab import Fault, FaultKind, FinishReason, Request, Response, calls_of

# A server that ends its stream in good order without a finish reason did so on purpose, or was told to by a gateway. Once
# may be chance, unless what came fills half the output limit; after that the model continues from what
# has come, or is told to write less at once.
SILENT_ENDS = 2
DROPPED = Fault(kind=FaultKind.DISCONNECTED, message="the stream ended in the middle of the response")
# A gateway that broke the responses of two steps breaks the next one, too. Then what arrives has to do.
LOSING_STEPS = 2
LOST_PIECE = Fault(kind=FaultKind.DISCONNECTED, message="a piece of the response could not be read")


class Trying(msgspec.Struct, frozen=True, kw_only=True):
    """The request at hand, which has failed before. `attempt` is its last one's number, `failed_s` when the first one had
    failed, `fault` how the last one did."""

    attempt: int
    failed_s: float
    fault: Fault


class Retrying(Recovering, kw_only=True):
    """Further attempts at a request."""

    ordered: Purpose = "step"  # that of the request at hand
    trying: Trying | None = None
    silent_ends: int = 0  # responses of this turn that ended without a word
    losing: tuple[int, ...] = ()  # steps that made a request more because a piece of a response was lost
    gave_up: str = ""  # why there was no further attempt

    def _send(self, request: Request, *, purpose: Purpose, own: int) -> SendRequest:
        self.ordered, self.trying, self.gave_up = purpose, None, ""
        return super()._send(request, purpose=purpose, own=own)

    def _not_sent(self) -> None:
        """The request at hand never left: there was no connection, or its endpoint is left alone for a while."""
        self.requests -= 1
        self.purse = self.purse_before
        self.purposes[self.ordered] -= 1
        if not self.purposes[self.ordered]:
            del self.purposes[self.ordered]
        self.has_left = False
        del self.prefix_changes[self.changes_before :]

    def _count(self, response: Response | None) -> None:
        super()._count(response)
        counted = self.asking is not None and self.asking.purpose in RECOVERY
        if response is not None and response.usage is not None and self.ordered == "retry" and not counted:
            self.recovery_usage += response.usage

    def _fail(self, fault: Fault, *, arrived: str) -> FinishTurn:
        if self.gave_up:
            fault = msgspec.structs.replace(fault, message=f"{fault.message.rstrip('. ')}. {self.gave_up}")
        return super()._fail(fault, arrived=arrived)

    def _broken_off(self, response: Response, *, jitter: float) -> Command | None:
        """What to do in place of taking in a response that the provider or the connection broke off; None: take it."""
        if response.fault is not None:
            return self._try_again(response.fault, jitter=jitter)
        if response.lost:
            return self._ask_for_lost(response, jitter=jitter)
        limit_tokens = None if self.asking is None else self.asking.limit_tokens
        if response.finish is not FinishReason.CUT or response.provider_finish is not None or has_end_mark(response):
            return None
        cut = find_cut(response, limit_tokens=limit_tokens, hands_out_objects=False)
        if not self.config.stream or self._says_limit(response, cut=cut, limit_tokens=limit_tokens):
            return None  # a body that is whole did not break off
        self.silent_ends += 1
        return None if self.silent_ends >= SILENT_ENDS else self._try_again(DROPPED, jitter=jitter)

    def _ask_for_lost(self, response: Response, *, jitter: float) -> Command | None:
        """Another attempt at a response of which a piece was lost on the way (promise assembly:lost-piece); None: it stands.

        Once a step, in two steps of the turn.
        Beside calls that can run it leaves the last request of the limits to the answer. It goes to the same model, whose
        fault it is not.
        """
        if response.finish in REFUSED or self.step in self.losing or not self._may_ask_for_lost:
            return None
        keeps_last = self._is_plain and not self._is_forced and bool(calls_of(response.message))
        if keeps_last and not self._affords(answers=False):
            return None
        again = self._try_again(LOST_PIECE, jitter=jitter, may_fall_back=False)
        if again is None:
            self.gave_up = ""
        else:
            self._count_lost()
        return again

    @property
    def _may_ask_for_lost(self) -> bool:
        return len(self.losing) < LOSING_STEPS

    def _count_lost(self) -> None:
        self.losing = (*self.losing, self.step)

    def _says_limit(self, response: Response, *, cut: Cut | None, limit_tokens: int | None) -> bool:
        """Whether the output limit is the likelier reason why a stream ended without a word. An object comes in one piece:
        one without what its schema demands was left so by the model, not by the connection."""
        if cut is not None and (cut.limited or fills_half(cut, limit_tokens=limit_tokens)):
            return True
        calls = calls_of(response.message)
        offer = self.offers.get(calls[-1].name) if calls else None
        if offer is None or not hands_out_objects(self.config.family, streamed=True):
            return False
        verdict = judge_call(
            calls[-1], tools={offer.spec.name: offer.spec}, finish=response.finish, limit_tokens=limit_tokens
        )
        return isinstance(verdict, Unsound) and verdict.kind == "schema_mismatch"

    def _try_again(self, fault: Fault, *, jitter: float, may_fall_back: bool = True) -> Command | None:
        """The wait before another attempt, or the request to the next model; None where this failure stands."""
        before = self.trying
        trying = Trying(
            attempt=1 if before is None else before.attempt,
            failed_s=self.pacing.at_s if before is None else before.failed_s,
            fault=fault,
        )
        verdict = judge_retry(
            fault,
            policy=self.config.retry,
            attempt=trying.attempt,
            waited_s=self.pacing.at_s - trying.failed_s,
            jitter=jitter,
            has_fallback=may_fall_back and bool(self.config.fallbacks) and self._is_plain,
            left_s=self._left_s if self._writes_answer else self.pacing.most_s(self._left_s),
            answer_s=self.pacing.longest_request_s if self._writes_answer else 0.0,
        )
        match verdict:
            case GiveUp(why=why):
                self.gave_up = why
            case TryFallback(why=why):
                if learned := self._learned(fault):
                    return learned
                if self._affords(answers=True, model=self.config.fallbacks[0].model):
                    return self._fall_back(why)
                self.gave_up = "The limits leave no room for another request."
            case WaitThenRetry(seconds=seconds, why=why):
                if self._affords_again(seconds) or (self._is_plain and self._fit_limits()):
                    self.trying = trying
                    return Wait(number=self.requests, seconds=seconds, why=why)
                self.gave_up = "The limits leave no room for another request."
        return None

    def _send_again(self) -> Command:
        """After the wait: the same request, or the forced answer where the limits have room for that only."""
        trying, sent, asking = self.trying, self.sent, self.asking
        if trying is None or sent is None or asking is None:
            raise TurnwiseBug("a wait without a request that failed")
        if self._is_plain and not asking.forced and self.config.limits is not None:
            self.pacing = self._paced()
            if self.pacing.pace == "stop" and not self._fit_limits():
                return self._fail(trying.fault, arrived="")
            if self.pacing.pace != "go":
                return self._ask_again()
        elif self._is_plain and self.room.changed:  # what failed was larger than the limits leave room for now
            order = self._ask_again()
            self.trying = msgspec.structs.replace(trying, attempt=trying.attempt + 1)
            return order
        elif self._is_plain and not self._affords(answers=True):  # the wait took the time that a limit of `&` had left
            return self._fail(trying.fault, arrived="")
        order = self._send(sent.request, purpose=self._again, own=sent.own)
        self.trying = msgspec.structs.replace(trying, attempt=trying.attempt + 1)
        return msgspec.structs.replace(order, retry_of=asking.purpose) if order.purpose == "retry" else order

    @property
    def _again(self) -> Purpose:
        """The purpose of a further attempt: a request that never left has not been made, so the next one is the first."""
        return "retry" if self.has_left else self.ordered

    def _fall_back(self, why: str) -> Command:
        """The next model takes over for the rest of the turn: one that has just failed so often is not asked in each step."""
        (fallback, *rest), asked = self.config.fallbacks, self.prepared.model or self.config.model
        self._repair(
            "model_fallback", f"request {self.requests}", f"`{asked}` failed ({why}); asked `{fallback.model}`"
        )
        self.config = msgspec.structs.replace(
            self.config, model=fallback.model, model_limits=fallback.limits, fallbacks=tuple(rest)
        )
        if self.prepared.model is not None:
            self.prepared = msgspec.structs.replace(self.prepared, model=fallback.model)
        if self.config.limits is not None and not self._is_forced:
            self.pacing = self._paced()
        return self._ask_again()

    def _ask_again(self) -> Command:
        """The request at hand, built anew: for another model, or as the forced answer."""
        of = "step" if self.asking is None else self.asking.purpose
        self.note, self.purpose = self.noted, self._again
        command = self._ask(self.prepared)
        if isinstance(command, SendRequest) and command.purpose == "retry":
            return msgspec.structs.replace(command, retry_of=of)
        return command

    def _affords_again(self, wait_s: float) -> bool:
        """A plain request may use the last one that the limits allow, as the answer; another must leave that, also after its
        wait: nothing else can be done about it then."""
        after_s = 0.0 if self._is_plain else wait_s
        return self._affords(answers=self._writes_answer, within=self.room.planned is not None, after_s=after_s)
