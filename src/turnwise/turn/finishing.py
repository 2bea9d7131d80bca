"""How a turn ends: with the text that there is, a reason, and every call answered."""

import msgspec

from turnwise.rules.last_step import local_answer
from turnwise.rules.limits import Spent, stop_reason
from turnwise.rules.loops import why_it_ends
from turnwise.turn.approvals import OneAsk
from turnwise.turn.books import Books
from turnwise.turn.commands import FinishTurn
from turnwise.turn.config import TurnResult
from turnwise.turn.endings import NO_OUTPUT, SAY_NOTHING, why_failed, why_incomplete
from turnwise.vocab import Fault, Response, StopReason, ToolCall, text_of
from turnwise.vocab.hidden_characters import says_something


class Finishing(Books, kw_only=True):
    """The ends of a turn."""

    def _fail(self, fault: Fault, *, arrived: str) -> FinishTurn:
        if self.unfit:  # the model has answered, if not in the wanted form
            return self._finish(StopReason.ANSWERED, text=self.unfit, lacks=NO_OUTPUT, fault=fault)
        text = self._local_answer(why_failed(fault), arrived=arrived)
        return self._finish(StopReason.PROVIDER_FAILED, text=text, local=True, fault=fault)

    def _text_so_far(self, partial: Response | None) -> str:
        """What the model had said in its paused responses and in the one that broke off; a piece of a cut response stands
        in that one."""
        if partial is None or self.continuing is not None:
            return ""
        text = text_of(partial.message)
        return self.said + text if says_something(text) else ""

    def _local_answer(self, why: str, *, arrived: str = "") -> str:
        said = next((text for text in (arrived, self.said, self.unfit, self.last_text) if says_something(text)), "")
        return local_answer(why, said=said, messages=self.added, left_out=SAY_NOTHING)

    def _answer_locally(self, why: str) -> FinishTurn:
        partial = self.asking is not None and self.asking.partial
        if self.unfit:
            return self._finish(self._reason(partial=partial), text=self.unfit, lacks=NO_OUTPUT)
        circle = why_it_ends(self.guarding.ends) + " " if self.guarding.ends else ""
        text = self._local_answer(circle + why)
        return self._finish(self._reason(partial=partial or self.pacing.pace == "stop"), text=text, local=True)

    def _reason(self, *, partial: bool) -> StopReason:
        if self.room.ends:
            return StopReason.BUDGET
        if not partial:
            return StopReason.ANSWERED
        if self.guarding.ends is not None:
            return StopReason.LOOP
        return StopReason.ANSWERED if self.pacing.bound is None else stop_reason(self.pacing.bound)

    @property
    def waiting_asks(self) -> tuple[OneAsk, ...]:
        """Those that were left for later."""
        return tuple([msgspec.structs.replace(ask, call=self._known(ask.call)) for ask in self.asks])

    def _finish(
        self,
        stop_reason: StopReason,
        *,
        text: str,
        complete: bool = False,
        output: str | None = None,
        lacks: str = "",
        pending: tuple[ToolCall, ...] = (),
        fault: Fault | None = None,
        local: bool = False,
    ) -> FinishTurn:
        self._settle_pause()
        self.room.put_back(self.messages)
        self.result = TurnResult(
            text=text,
            stop_reason=stop_reason,
            complete=complete,
            steps=self.step,
            requests=self.requests,
            usage=self.usage,
            charged_usd=self.purse.usd if self.config.prices else None,
            also_spent=self.also_spent + Spent(projected=self.purse.projected),
            recovery_usage=self.recovery_usage,
            messages=tuple(self.added),
            output=output,
            reasoning="\n\n".join(self.reasonings),
            repairs=tuple(self.repairs),
            pending=tuple([self._known(call) for call in pending]),
            asks=self.waiting_asks if pending else (),
            unread=self.inbox,
            children=self.children,
            fault=fault,
            origin="local" if local else "model",
            why_incomplete="" if complete else why_incomplete(stop_reason, lacks=lacks, fault=fault),
            prefix_changes=tuple(self.prefix_changes),
            requests_by_purpose=dict(self.purposes),
            history=tuple(self.messages) if self.room.gave_way else None,
        )
        return FinishTurn(result=self.result)
