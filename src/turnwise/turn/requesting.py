"""What a turn asks for: the next request, within the limits and the room."""

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.budget import kept_below
from turnwise.rules.last_step import GO_ON, SYNTHESIS
from turnwise.rules.limits import Spent, counts_cost, no_price, said, wall_time_s
from turnwise.rules.loops import LoopGuard, why_it_ends
from turnwise.rules.pricing import PriceRow, add
from turnwise.rules.projection import can_project
from turnwise.turn.asking import (
    PAUSE_GOES_BACK_LAST,
    Asking,
    asking_of,
    build_request,
    caching_of,
    limit_of,
    own_choice,
    prefix_changes,
    repairs_of_preparing,
    sent_as,
    tools_chosen,
)
from turnwise.turn.commands import Command, FinishTurn, PrepareStep, Purpose, SendRequest, SoughtCalls
from turnwise.turn.events import StepPrepared
from turnwise.turn.finishing import Finishing
from turnwise.turn.pacing import Pacing
from turnwise.turn.purse import AtStake
from turnwise.turn.room import NO_ROOM, handle_of
from turnwise.vocab import Request, Response, ToolSpec

NOTHING_PREPARED = StepPrepared()


class Requesting(Finishing, kw_only=True):
    """The requests of a turn."""

    @property
    def _spent(self) -> Spent:
        """Up to the step at hand, whose requests and tokens count as they are made."""
        return self._spent_in(self.step - 1)

    def _spent_in(self, steps: int) -> Spent:
        """What so many steps have spent, those of their children included."""
        usage, requests, usd = self.usage, self.requests, self.purse.usd
        for child in self.children:
            usage, requests = usage + child.usage, requests + child.requests
            usd = usd if child.charged_usd is None else add(usd, child.charged_usd)
        spent = self.pacing.spent(usage, steps=steps, requests=requests)
        return msgspec.structs.replace(spent, cost_usd=usd, projected=self.purse.projected) + self.also_spent

    @property
    def _is_plain(self) -> bool:
        """The request at hand is the turn's own: neither for more of a cut response nor for a summary."""
        return self.continuing is None and self.asked_again is None and self.room.planned is None

    @property
    def _writes_answer(self) -> bool:
        """The request at hand may bring the answer; after another one the answer has to be asked for."""
        if self.room.planned is not None:
            return False
        if self.continuing is not None:
            return (self.cut_asking is not None and self.cut_asking.forced) or self.continuing.place is None
        return self.asked_again is None or self._is_forced

    @property
    def _left_s(self) -> float | None:
        """Of the turn's time; None where nothing limits it."""
        limits = self.config.limits
        total_s = None if limits is None else wall_time_s(limits)
        return None if total_s is None else total_s - self.pacing.at_s

    @property
    def _prompt_tokens(self) -> int:
        """Of the next request; 0 where no limit asks."""
        return 0 if self.config.limits is None else self.pacing.prompt_tokens(self.room, messages=self.messages)

    @property
    def _price(self) -> PriceRow | None:
        """Of the model that is asked next; None where no limit of cost needs it."""
        return self.config.prices.get(self.prepared.model or self.config.model)

    def _paced(self) -> Pacing:
        """The pace of the step that begins now, or that has to be sent again."""
        if self.config.limits is None:
            return self.pacing.begin_plain_step(self.config.max_steps, steps=self.step - 1)
        return self.pacing.begin_step(
            self.config,
            spent=self._spent,
            prompt_tokens=self._prompt_tokens,
            price=self._price,
            is_billed=self.purse.is_billed(self.step),
        )

    def _affords(self, *, answers: bool, within: bool = False, after_s: float = 0.0, model: str = "") -> bool:
        """Whether the limits allow one request more in this step, so many seconds from now: one that `answers`, or one before the
        answer, which may come `within` the step (after a summary), or in the next one; of the model at hand, or of another
        `model`."""
        if self.config.limits is None:
            return True
        return self.pacing.affords(
            self.config,
            spent=self._spent,
            prompt_tokens=self._prompt_tokens,
            answers=answers,
            within=within,
            after_s=after_s,
            price=self.config.prices.get(model) if model else self._price,
            is_billed=self.purse.is_billed(self.step),
        )

    def _kept_below(self, request: Request, *, own: int, answers: bool) -> Request:
        """The request with no more output than the limits leave; its last `own` messages are no part of the history."""
        if self.config.limits is None:
            return request
        # what the assistant had said stands in the usage of the response that it is of
        extra = [message for message in request.messages[len(request.messages) - own :] if message.role == "user"]
        left = self.pacing.output_left(
            self.config,
            spent=self._spent,
            prompt_tokens=self._prompt_tokens,
            own=extra,
            answers=answers,
            price=self._price,
            is_billed=self.purse.is_billed(self.step),
        )
        if left is None:
            return request
        ceiling = request.settings.max_output_tokens
        if ceiling is None and self.config.room != "off":
            ceiling = self.config.model_limits.max_output_tokens
        if ceiling is None:
            ceiling = limit_of(request.settings, config=self.config)
        settings = kept_below(request.settings, tokens=left, sent_tokens=ceiling)
        return request if settings is request.settings else msgspec.structs.replace(request, settings=settings)

    def _may_go_on(self) -> bool:
        """Whether the limits allow one more step like any other."""
        if self.config.limits is None:
            return self.pacing.begin_plain_step(self.config.max_steps, steps=self.step).pace == "go"
        spent = self._spent_in(self.step)
        coming = self.pacing.begin_step(self.config, spent=spent, prompt_tokens=self._prompt_tokens, price=self._price)
        return coming.pace == "go"

    def _begin_step(self) -> Command:
        self.step += 1
        self.room.begin_step()
        self.pacing = self._paced()
        if (stopped := self._stopped()) is not None:
            return stopped
        if self.paused and self.pacing.pace == "answer":
            self._settle_pause()
            self.note = ""
        if not self.config.prepares_steps:
            return self._ask(NOTHING_PREPARED)
        return PrepareStep(
            step=self.step,
            max_steps=self.config.max_steps,
            messages=tuple(self.messages),
            usage=self.usage,
            requests=self.requests,
        )

    def _judged(self) -> Pacing:
        """The pace of the step at hand, judged anew."""
        return self.pacing.judge(
            self.config,
            spent=self._spent,
            prompt_tokens=self._prompt_tokens,
            price=self._price,
            is_billed=self.purse.is_billed(self.step),
        )

    def _stopped(self) -> FinishTurn | None:
        """The end without the step that has just begun, where the limits allow not even an answer; None where they do, if only
        to a smaller prompt."""
        bound = self.pacing.bound
        if bound is None or self.pacing.pace != "stop" or self._fit_limits():
            return None
        spent = self._spent
        wanted = self.pacing.wanted(
            spent=spent,
            prompt_tokens=self._prompt_tokens,
            price=self._price,
            is_billed=self.purse.is_billed(self.step),
        )
        self.step -= 1
        return self._answer_locally(said(bound, spent=spent, wanted=wanted))

    def _fit_limits(self) -> bool:
        """Leave out of the prompt what the limits leave no room for; true where they allow an answer then."""
        if self.config.limits is None:
            return False
        most_tokens = self.pacing.most_prompt_tokens(
            self.config,
            spent=self._spent,
            prompt_tokens=self._prompt_tokens,
            price=self._price,
            is_billed=self.purse.is_billed(self.step),
        )
        if most_tokens is None or not self._fit(most_tokens):
            return False
        bound, self.pacing = self.pacing.bound, self._judged()
        if self.pacing.pace == "go":  # only the answer's request carries less
            self.pacing = msgspec.structs.replace(self.pacing, pace="answer", bound=bound)
        return self.pacing.pace != "stop"

    def _fit(self, most_tokens: int | None = None) -> bool:
        """Leave out of the prompt what an answer leaves no room for; false where that is not possible."""
        if self.paused:
            self._settle_pause()
            self.note = ""
        own = (self.note, self.prepared.instruction or "", SYNTHESIS)
        return self.room.fit(self.messages, config=self.config, own=own, most_tokens=most_tokens)

    def _is_last(self) -> bool:
        """Whether the request that comes is the last that the limits allow, whatever becomes of it."""
        return self.pacing.is_last(
            self.config,
            spent=self._spent,
            prompt_tokens=self._prompt_tokens,
            price=self._price,
            is_billed=self.purse.is_billed(self.step),
        )

    def _ask_as_prepared(self, prepared: StepPrepared) -> Command:
        """Ask; a model of another price may make the step one that the limits do not allow."""
        self.repairs += repairs_of_preparing(
            prepared,
            specs=self.specs,
            tools=self._tools_on_offer(prepared),
            own=own_choice(self.config, has_called=self.has_called),
            step=self.step,
        )
        if counts_cost(self.config.limits) and prepared.model is not None:
            row = prepared.price or self.config.prices.get(prepared.model)
            if row is None or not can_project(row):
                raise CallerError(no_price(prepared.model, profile=self.config.profile, row=row))
            self.config = msgspec.structs.replace(self.config, prices={**self.config.prices, prepared.model: row})
            self.pacing = self.pacing.judge(
                self.config, spent=self._spent, prompt_tokens=self._prompt_tokens, price=row
            )
            if (stopped := self._stopped()) is not None:
                return stopped
        return self._ask(prepared)

    def _read_inbox(self) -> None:
        """Take up the words that came in mid-turn; nothing may come between a pause and what goes on with it."""
        if self.paused:
            return
        for message in self.inbox:
            self._append(message)
            self.unfit = ""  # an answer to what was asked before
        self.inbox = ()

    def _ask(self, prepared: StepPrepared, *, disobeyed: bool = False) -> SendRequest | FinishTurn:
        self._read_inbox()
        self.prepared = prepared
        may_ask = not disobeyed and self._affords(answers=False, within=True)
        if self.room.make_room(
            self.messages, prepared=prepared, config=self.config, paused=self.paused, may_ask=may_ask
        ):
            return self._ask_for_summary(prepared)
        tools = self._tools_on_offer(prepared)
        built = self._build(prepared, tools=tools, disobeyed=disobeyed)
        if built is None and self._fit():
            built = self._build(prepared, tools=tools, disobeyed=disobeyed)
        if built is None:
            return self._answer_locally(NO_ROOM)
        request, self.asking, own = built
        self.noted, self.note, self.purpose, self.request = self.note, "", "step", request
        return self._send(request, purpose=self.asking.purpose, own=own)

    def _build(
        self, prepared: StepPrepared, *, tools: tuple[ToolSpec, ...], disobeyed: bool
    ) -> tuple[Request, Asking, int] | None:
        """The request, what it allows, and how many of its last messages are no part of the history; None where there is no
        room for it."""
        config = self.config
        forced = self.eaten > 1 or self.guarding.ends is not None or self.pacing.pace != "go" or bool(self.room.ends)
        # A first step without tools has nothing to sum up, and a correction has its own words (promise end:early).
        partial = forced and not self.correcting and (bool(config.tools) or self.step > 1 or disobeyed)
        trailing = self._trailing(prepared, synthesis=partial)
        own = 1 if trailing else 0
        request = build_request(
            config,
            messages=tuple(self.messages),
            trailing=trailing,
            tools=tools,
            prepared=prepared,
            forced=forced,
            disobeyed=disobeyed,
            has_called=self.has_called,
        )
        request = self._kept_below(request, own=own, answers=forced or not request.tools)
        budget = self.room.budget(request.settings, config=config, trailing=trailing, is_last=self._is_last())
        if budget is None:
            return None
        if budget is not request.settings:
            request = msgspec.structs.replace(request, settings=budget)
        asking = asking_of(request, purpose=self.purpose, forced=forced, partial=partial, config=config)
        return request, asking, own

    def _ask_beyond_cap(self, why: str, *, disobeyed: bool) -> Command:
        if self.extra_used or not (self._affords(answers=True) or self._fit_limits()):
            return self._answer_locally(why)
        self.extra_used = True
        return self._ask(self.prepared, disobeyed=disobeyed)

    def _ask_for_summary(self, prepared: StepPrepared) -> SendRequest:
        request = self.room.summary_request(self.config, prepared=prepared, tools=self._tools_on_offer(prepared))
        request = self._kept_below(request, own=1, answers=False)
        self.asking = asking_of(request, purpose="compact", forced=True, partial=False, config=self.config)
        return self._send(request, purpose="compact", own=1)

    def _summarised(self, response: Response | None) -> Command:
        """Go on with the request that there was no room for."""
        self.room.take_summary(self.messages, response=response)
        self.guarding = msgspec.structs.replace(self.guarding, guard=LoopGuard())
        if self.config.limits is not None:  # the summary took a request: what is left may be the answer's
            self.pacing = self._judged()
            if (stopped := self._stopped()) is not None:
                return stopped
        return self._ask(self.prepared)

    def _send(self, request: Request, *, purpose: Purpose, own: int) -> SendRequest:
        """Its last messages that are no part of the history are `own` ones."""
        self.requests += 1
        self.purse_before = self.purse
        if (price := self.config.prices.get(request.model)) is not None:
            projected = self.pacing.at_stake(
                request,
                own=own,
                prompt_tokens=self._prompt_tokens,
                price=price,
                is_billed=self.purse.is_billed(self.step),
            )
            self.purse = self.purse.stakes(
                AtStake(row=price, model=request.model, step=self.step, projected_usd=projected)
            )
        if (caching := caching_of(self.config, own=own)) is not None:
            request = msgspec.structs.replace(request, cache=caching)
        before = self.sent if self.has_left else self.left_before
        compacted = self.room.changed or (self.changed_before and not self.has_left)
        self.left_before, self.has_left, self.changes_before = before, True, len(self.prefix_changes)
        if self.config.limits is not None:
            self.pacing = self.pacing.weigh_less(self.room, messages=self.messages)
        self.changed_before, self.room.changed = compacted, False
        self.sent = sent_as(request, own=own, config=self.config)
        changes = prefix_changes(
            before,
            now=self.sent,
            compacted=compacted,
            family=self.config.family,
            marks_cache=self.config.marks_cache and caching is not None,
        )
        if changes:
            self.prefix_changes += [f"request {self.requests}: {change}" for change in changes]
        self.purposes[purpose] = self.purposes.get(purpose, 0) + 1
        return SendRequest(
            number=self.requests,
            step=self.step,
            purpose=purpose,
            request=request,
            deadlines=self.config.deadlines,
            most_s=None if self._writes_answer else self.pacing.most_s(self._left_s),
            taken_ids=frozenset(self.call_ids),
            id_prefix=f"call_{self.requests}",
            calls_in_text=self._sought_calls(request),
        )

    def _sought_calls(self, request: Request) -> SoughtCalls | None:
        """Which calls count in the text of the response. Where no tool may be called they are told from the answer all the same,
        so that the model is seen to disobey; what a continuation or a summary quotes is theirs. Without a tool there is no call,
        but reasoning may still stand at the text's beginning."""
        config, asking = self.config, self.asking
        if config.calls_in_text == "off" or (config.calls_in_text == "auto" and not config.leaves_calls_in_text):
            return None
        leading = asking is not None and asking.purpose in ("continue", "compact")
        is_forced = leading or (asking is not None and asking.forced)
        tools = self.specs if is_forced else request.tools
        if request.output is not None or (request.tool_choice == "none" and not is_forced):
            tools = ()
        return SoughtCalls(
            tools=tools,
            unmarked=bool(tools) and config.calls_in_text == "on",
            leading=leading,
            earlier=self.room.left_out if tools else (),
        )

    def _tools_on_offer(self, prepared: StepPrepared) -> tuple[ToolSpec, ...]:
        return tools_chosen(prepared, specs=self.specs, always=handle_of(self.config))

    def _trailing(self, prepared: StepPrepared, *, synthesis: bool) -> tuple[str, ...]:
        """The user-role texts at the end of this request only. Without one the last message must not be an assistant's,
        unless the endpoint is known to accept it (promise end:no-prefill)."""
        goes_back_last = self.paused and self.config.family in PAUSE_GOES_BACK_LAST
        if goes_back_last:
            if prepared.instruction:
                self._repair("instruction_dropped", f"step {self.step}", "nothing may follow a paused response")
            return ()
        if not (synthesis or self.note or prepared.instruction) and self.messages[-1].role != "assistant":
            return ()
        circle = why_it_ends(self.guarding.ends) if synthesis and self.guarding.ends else None
        texts = [text for text in (self.note, prepared.instruction, circle, SYNTHESIS if synthesis else None) if text]
        ends_open = self.messages[-1].role == "assistant" and not self.config.accepts_prefill
        return tuple(texts or ([GO_ON] if ends_open else []))
