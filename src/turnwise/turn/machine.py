"""The chair: takes what happened, says what to do next. Pure; every wait is the driver's."""

from collections.abc import Collection, Sequence

import msgspec

from turnwise.errors import TurnwiseBug
from turnwise.rules.budget import ATE_ALL
from turnwise.rules.history import error_result, heal
from turnwise.rules.last_step import EMPTY_AGAIN, GO_ON, NOT_RUN_LAST_STEP, SYNTHESIS, local_answer
from turnwise.rules.limits import Spent, said, stop_reason
from turnwise.rules.loops import LoopGuard, why_it_ends
from turnwise.rules.output import Fits, judge_output
from turnwise.rules.truncation import find_cut, hands_out_objects
from turnwise.turn.asking import (
    PAUSE_GOES_BACK_LAST,
    Asking,
    Sent,
    asking_of,
    build_request,
    limit_of,
    prefix_changes,
    sent_as,
    tools_on_offer,
)
from turnwise.turn.calls import Adopted, adopt, sort_calls
from turnwise.turn.checks import check_config
from turnwise.turn.commands import Command, FinishTurn, PrepareStep, Purpose, RunTools, SendRequest
from turnwise.turn.config import ToolOffer, TurnConfig, TurnResult
from turnwise.turn.continuing import (
    FATAL,
    NOT_RUN_CONTINUING,
    RECOVERY,
    Continuing,
    Settled,
    as_far_as_it_came,
    ate_all,
    begin,
    continue_request,
    give_up,
    go_on,
    least_reasoning,
    room_for_answer,
    roomier,
)
from turnwise.turn.endings import (
    ENDED,
    INTERRUPTED,
    LOST,
    NOT_REPORTED,
    NOT_RUN_FAULT,
    NOT_RUN_REFUSED,
    NOT_STARTED,
    REFUSED,
    SAY_NOTHING,
    UNFINISHED,
    answer_text,
    finish_of,
    in_call_order,
    refused_text,
    why_failed,
)
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.guarding import Guarding
from turnwise.turn.pacing import Pacing
from turnwise.turn.room import NO_ROOM, Room, handle_of, with_own_tools
from turnwise.turn.transitions import State, check_legal, state_after
from turnwise.vocab import (
    NO_USAGE,
    Fault,
    FinishReason,
    Message,
    ProviderItem,
    Repair,
    Request,
    Response,
    Settings,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
    reasoning_of,
    refusal_of,
    text_of,
)


class Turn(msgspec.Struct, kw_only=True):
    """One turn: `start` gives the first command, `receive` the next, until it is FinishTurn.

    Plain data: `replay` rebuilds it from its journal. `messages` is what requests carry, healed once and then appended
    to; `added` what this turn brings to the session.
    """

    config: TurnConfig
    messages: list[Message]
    added: list[Message]
    call_ids: set[str]
    offers: dict[str, ToolOffer]
    repairs: list[Repair]
    room: Room
    state: State = State.READY
    step: int = 0
    requests: int = 0
    usage: Usage = NO_USAGE
    recovery_usage: Usage = NO_USAGE  # the part of it that went into requests of RECOVERY
    reasonings: list[str] = []

    # the request at hand, and the next one
    asking: Asking | None = None
    request: Request | None = None
    prepared: StepPrepared = StepPrepared()
    purpose: Purpose = "step"
    note: str = ""  # a user-role text for the next request only
    noted: str = ""  # that of the request at hand
    sent: Sent | None = None
    pause_settled: bool = False  # since the last request
    prefix_changes: list[str] = []
    paused: bool = False  # the last message is the provider's paused content
    said: str = ""  # the text of paused responses, to which the next one belongs

    # the calls of the response at hand, as they stand in history
    has_called: bool = False  # a step of this turn had calls
    calls: tuple[ToolCall, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    results: dict[str, ToolResult] = {}
    last_text: str = ""  # what the model said beside its last calls
    guarding: Guarding = Guarding()
    pacing: Pacing = Pacing()

    continuing: Continuing | None = None  # a cut response that is not taken in yet
    retrying: Settled | None = None  # one that is asked for once more, with more room
    eaten: int = 0  # responses in a row of which reasoning left nothing
    empties: int = 0  # empty responses in a row
    corrections: int = 0
    correcting: bool = False
    extra_used: bool = False  # the one request beyond the cap
    result: TurnResult | None = None

    @classmethod
    def start(
        cls, started: TurnStarted, *, earlier: Sequence[Message] = (), taken_ids: Collection[str] = ()
    ) -> tuple["Turn", Command]:
        """A turn and its first command. `earlier` are the messages of the session's earlier turns; `taken_ids` call ids
        that it has used, of need only where `earlier` is left out.

        Raises CallerError for a configuration that cannot work.
        """
        check_config(started.config)
        config = with_own_tools(started.config)
        given = (*earlier, *started.history, *started.input)
        names = [offer.spec.name for offer in config.tools]
        healed = heal(given, family=config.family, tool_names=frozenset(names), taken_ids=taken_ids)
        turn = cls(
            config=config,
            room=Room.of(config),
            messages=list(healed.messages),
            added=list(started.input),
            call_ids=set(healed.call_ids),
            offers=dict(zip(names, config.tools, strict=True)),
            repairs=list(healed.repairs),
        )
        if all(message.role == "system" for message in turn.messages):
            turn.messages.append(Message("user", (Text(GO_ON),)))
            turn._repair("nothing_to_send", "input", "put a user message in the place of none")
        return turn, turn.receive(started)

    def receive(self, event: Event) -> Command:
        """The command that `event` leads to. Raises TurnwiseBug for an illegal event, and then nothing has changed."""
        check_legal(self.state, event=event)
        if isinstance(event, ResponseReceived | RequestFailed):
            self._check_number(event.number)
        self.pacing = self.pacing.saw(event, messages=len(self.messages))
        match event:
            case TurnStarted():
                command = self._begin_step()
            case StepPrepared():
                command = self._ask(event)
            case ResponseReceived(response=response):
                command = self._take(response)
            case RequestFailed(fault=fault, partial=partial):
                self._count(partial)
                command = self._without_reply(fault, arrived=self._text_so_far(partial))
            case ToolsFinished(results=results):
                command = self._after_tools(results)
            case Interrupted():
                command = self._interrupt(event)
        self.state = state_after(self.state, event=event, command=command)
        return command

    def left_behind(self) -> tuple[Message, ...]:
        """What the turn adds to its session if nothing more happens; every call that may have run has a result.

        Of use after a crash. The turn takes no event afterwards.
        """
        if self.state is not State.FINISHED:
            self._leave_cut()
            if self.state is State.RUNNING:
                self.pending = ()
                self._close_calls((), missing=LOST)
            self._settle_pause()
            self.state = State.FINISHED
        return tuple(self.added)

    @property
    def _is_forced(self) -> bool:
        return self.asking is not None and self.asking.forced

    def _check_number(self, number: int) -> None:
        if number != self.requests:
            raise TurnwiseBug(f"a response to request {number} came while request {self.requests} is at hand")

    # asking

    @property
    def _spent(self) -> Spent:
        """Up to the step at hand, whose requests and tokens count as they are made."""
        return self.pacing.spent(self.usage, steps=self.step - 1, requests=self.requests)

    def _affords(self, *, answers: bool) -> bool:
        """Whether the limits allow one request more in this step: one that `answers`, or one before the answer."""
        return self.pacing.affords(self.config, spent=self._spent, messages=self.messages, answers=answers)

    def _begin_step(self) -> Command:
        self.step += 1
        self.pacing = self.pacing.begin_step(self.config, spent=self._spent, messages=self.messages)
        if self.pacing.bound is not None and self.pacing.pace == "stop":
            self.step -= 1
            return self._answer_locally(said(self.pacing.bound, spent=self._spent))
        if self.paused and self.pacing.pace == "answer":
            self._settle_pause()
            self.note = ""
        if not self.config.prepares_steps:
            return self._ask(StepPrepared())
        return PrepareStep(
            step=self.step,
            max_steps=self.config.max_steps,
            messages=tuple(self.messages),
            usage=self.usage,
            requests=self.requests,
        )

    def _ask(self, prepared: StepPrepared, *, disobeyed: bool = False) -> SendRequest | FinishTurn:
        config = self.config
        self.prepared = prepared
        may_ask = not disobeyed and self._affords(answers=False)
        if self.room.make_room(self.messages, prepared=prepared, config=config, paused=self.paused, may_ask=may_ask):
            return self._ask_for_summary(prepared)
        forced = self.eaten > 1 or self.guarding.ends is not None or self.pacing.pace != "go" or bool(self.room.ends)
        # A first step without tools has nothing to sum up, and a correction has its own words (promise end:early).
        partial = forced and not self.correcting and (bool(config.tools) or self.step > 1 or disobeyed)
        trailing = self._trailing(prepared, synthesis=partial)
        request = build_request(
            config,
            messages=tuple(self.messages),
            trailing=trailing,
            tools=self._tools_on_offer(prepared),
            prepared=prepared,
            forced=forced,
            disobeyed=disobeyed,
            has_called=self.has_called,
        )
        budget = self.room.budget(request.settings, config=config, trailing=trailing)
        if budget is None:
            return self._answer_locally(NO_ROOM)
        request = msgspec.structs.replace(request, settings=budget)
        self.asking = asking_of(request, purpose=self.purpose, forced=forced, partial=partial, config=config)
        self.noted, self.note, self.purpose, self.request = self.note, "", "step", request
        return self._send(request, purpose=self.asking.purpose, changes=self._changes(request, trailing=bool(trailing)))

    def _changes(self, request: Request, *, trailing: bool) -> tuple[str, ...]:
        """In what the request begins otherwise than the one before."""
        before, self.sent = self.sent, sent_as(request, trailing=trailing)
        compacted, self.room.changed = self.room.changed, False
        changes = prefix_changes(before, now=self.sent, pause_settled=self.pause_settled, compacted=compacted)
        self.pause_settled = False
        return changes

    def _ask_for_summary(self, prepared: StepPrepared) -> SendRequest:
        request = self.room.summary_request(self.config, prepared=prepared, tools=self._tools_on_offer(prepared))
        self.asking = asking_of(request, purpose="compact", forced=True, partial=False, config=self.config)
        return self._send(request, purpose="compact", changes=self._changes(request, trailing=True))

    def _summarised(self, response: Response | None) -> Command:
        """Go on with the request that there was no room for."""
        self.room.take_summary(self.messages, response=response)
        self.guarding = msgspec.structs.replace(self.guarding, guard=LoopGuard())
        return self._ask(self.prepared)

    def _send(self, request: Request, *, purpose: Purpose, changes: Sequence[str]) -> SendRequest:
        self.requests += 1
        self.prefix_changes += [f"request {self.requests}: {change}" for change in changes]
        return SendRequest(
            number=self.requests,
            step=self.step,
            purpose=purpose,
            request=request,
            deadlines=self.config.deadlines,
            taken_ids=frozenset(self.call_ids),
            id_prefix=f"call_{self.requests}",
        )

    def _tools_on_offer(self, prepared: StepPrepared) -> tuple[ToolSpec, ...]:
        always = handle_of(self.config)
        tools, repairs = tools_on_offer(self.config, prepared=prepared, always=always, step=self.step)
        self.repairs += repairs
        return tools

    def _trailing(self, prepared: StepPrepared, *, synthesis: bool) -> tuple[str, ...]:
        """The user-role texts at the end of this request only. Without one the last message must not be an assistant's,
        unless the endpoint is known to accept it (promise end:no-prefill)."""
        goes_back_last = self.paused and self.config.family in PAUSE_GOES_BACK_LAST
        if goes_back_last:
            if prepared.instruction:
                self._repair("instruction_dropped", f"step {self.step}", "nothing may follow a paused response")
            return ()
        circle = why_it_ends(self.guarding.ends) if synthesis and self.guarding.ends else None
        texts = [text for text in (self.note, prepared.instruction, circle, SYNTHESIS if synthesis else None) if text]
        ends_open = self.messages[-1].role == "assistant" and not self.config.accepts_prefill
        return tuple(texts or ([GO_ON] if ends_open else []))

    # a response

    def _take(self, response: Response) -> Command:
        """Take in a response that is whole; one that the limit cut is gone on with first, as far as that goes."""
        if self.asking is None or self.request is None:
            raise TurnwiseBug("a response without a request")
        asking = self.asking
        self._count(response)
        if self.room.planned is not None:
            return self._summarised(response)
        self.repairs += response.repairs
        if reasoning := reasoning_of(response.message):
            self.reasonings.append(reasoning)
        if self.continuing is not None:
            return self._go_on(go_on(self.continuing, reply=response, limit_tokens=asking.limit_tokens))
        if response.fault is not None and self.retrying is not None:
            return self._without_reply(response.fault)
        objects = hands_out_objects(self.config.family, streamed=self.config.stream)
        cut = find_cut(response, limit_tokens=asking.limit_tokens, hands_out_objects=objects)
        retried, self.retrying = self.retrying is not None, None
        if cut is None:
            return self._adopt(response, asking=asking)
        if self.config.recover != "off" and ate_all(response, cut=cut):
            return self._reasoning_ate_all(response)
        found = begin(response, cut=cut, asking=asking, request=self.request, offers=self.offers, config=self.config)
        if isinstance(found, Settled) and not retried:
            more = roomier(found, cut=cut, request=self.request, limit_tokens=asking.limit_tokens, config=self.config)
            if more is not None and self._affords(answers=asking.forced):
                self.retrying = found
                return self._retry(more)
        return self._go_on(found)

    def _count(self, response: Response | None) -> None:
        if response is None or response.usage is None:
            return
        self.usage += response.usage
        if self.asking is not None and self.asking.purpose in RECOVERY:
            self.recovery_usage += response.usage
        self.config = self.room.counted(response.usage, asking=self.asking, config=self.config)

    def _go_on(self, found: Continuing | Settled) -> Command:
        if isinstance(found, Settled):
            asking = self.asking if self.continuing is None else self.continuing.asking
            if asking is None:
                raise TurnwiseBug("a response without a request")
            self.continuing, self.asking = None, asking
            self.repairs += found.repairs
            return self._adopt(found.response, asking=asking)
        if not self._affords(answers=found.asking.forced or found.place is None):
            return self._go_on(give_up(found, why="the limits leave no room for another request"))
        self.continuing = found
        request = continue_request(found, config=self.config)
        self.asking = msgspec.structs.replace(
            found.asking,
            purpose="continue",
            tools=(),
            output=None,
            limit_tokens=limit_of(request.settings, config=self.config),
        )
        return self._send(
            request, purpose="continue", changes=("tools",) if request.tools != found.request.tools else ()
        )

    def _retry(self, settings: Settings, *, note: str = "") -> Command:
        """The same request once more, in the same step, with more room."""
        self.purpose, self.note = "retry", note
        return self._ask(msgspec.structs.replace(self.prepared, settings=settings))

    def _reasoning_ate_all(self, response: Response) -> Command:
        """Once more with more room for the answer, then the forced answer with the least reasoning, then our own."""
        self.eaten += 1
        settings = self.config.settings if self.request is None else self.request.settings
        if self.eaten == 1:
            more = room_for_answer(settings, response=response, config=self.config)
            if more is not None and self._affords(answers=self._is_forced):
                self.retrying = Settled(response=response)
                return self._retry(more, note=ATE_ALL)
            self.eaten += 1
        self.note, self.purpose = ATE_ALL, "answer"
        self.prepared = msgspec.structs.replace(self.prepared, settings=least_reasoning(settings))
        return self._ask_beyond_cap(
            "The model's reasoning used up the whole output more than once, so there is no answer of its own.",
            disobeyed=False,
        )

    def _without_reply(self, fault: Fault, *, arrived: str = "") -> Command:
        """A request for more of a cut response failed: make do with what there is, unless the next one must fail too."""
        continuing, retried = self.continuing, self.retrying
        if self.room.planned is not None and fault.kind not in FATAL:
            return self._summarised(None)
        if continuing is None and retried is None and (learned := self._learned(fault)):
            return learned
        if fault.kind in FATAL or (continuing is None and retried is None):
            self._leave_cut()
            return self._fail(fault, arrived=arrived)
        if continuing is not None:
            return self._go_on(give_up(continuing, why=f"the request failed: {fault.kind}"))
        self.retrying = None
        assert retried is not None
        if not self.eaten:
            return self._go_on(retried)
        self.eaten, self.purpose = 2, "answer"
        self.prepared = msgspec.structs.replace(self.prepared, settings=None)
        return self._ask_beyond_cap("The model's reasoning used up the whole output.", disobeyed=False)

    def _learned(self, fault: Fault) -> Command | None:
        """The same request once more, in the room that the provider's error told of."""
        if not self._affords(answers=self._is_forced) or not (learned := self.room.learn(fault, config=self.config)):
            return None
        self.config, self.note, self.purpose = learned, self.noted, "retry"
        return self._ask(self.prepared)

    def _leave_cut(self) -> None:
        """Record a cut response that nothing will go on with, its calls answered (promise step:every-call-answered)."""
        left = None if self.continuing is None else as_far_as_it_came(self.continuing)
        if self.retrying is not None and not self.eaten:
            left = self.retrying.response
        self.continuing = self.retrying = None
        if left is None:
            return
        adopted = adopt(left, offers=self.offers, on_offer=(), taken=self.call_ids, family=self.config.family)
        self.call_ids.update([call.id for call in adopted.calls])
        self.last_text = text_of(left.message) or self.last_text
        self._record(adopted, calls_answer=NOT_RUN_CONTINUING)

    def _adopt(self, response: Response, *, asking: Asking) -> Command:
        adopted = adopt(
            response, offers=self.offers, on_offer=asking.tools, taken=self.call_ids, family=self.config.family
        )
        self.repairs += adopted.repairs
        self.call_ids.update([call.id for call in adopted.calls])
        text = self.said + answer_text(response.message)
        refusal = refusal_of(response.message)

        if response.fault is not None:
            if not adopted.message.parts and (learned := self._learned(response.fault)):
                return learned
            self._record(adopted, calls_answer=NOT_RUN_FAULT)
            return self._fail(response.fault, arrived=text)
        if response.finish in REFUSED or (refusal.strip() and not adopted.calls):
            self._record(adopted, calls_answer=NOT_RUN_REFUSED)
            return self._refuse(response, refusal=refusal, text=text)
        if adopted.calls:
            if asking.forced:
                return self._disobeyed(adopted, text=text, response=response)
            return self._run(adopted, response=response, asking=asking)
        if response.finish is FinishReason.PAUSE and adopted.message.parts and not asking.forced:
            return self._pause(adopted, text=text)
        if not text.strip():
            return self._empty(adopted)
        self._record(adopted, calls_answer=NOT_RUN_LAST_STEP)
        return self._answer(text, finish=finish_of(response), partial=asking.partial)

    def _run(self, adopted: Adopted, *, response: Response, asking: Asking) -> Command:
        """Run what may run; everything else has its result at once."""
        self._append(adopted.message)
        sorted_ = sort_calls(
            adopted.calls, finish=response.finish, asking=asking, offers=self.offers, config=self.config
        )
        self.calls, self.has_called = calls_of(adopted.message), True
        self.guarding = self.guarding.judge(adopted.calls)
        read = self.room.read(sorted_.planned, config=self.config)
        known = {**read, **self.guarding.answers(sorted_.planned, messages=self.messages, offers=self.offers)}
        planned = tuple([plan for plan in sorted_.planned if plan.call.id not in known])
        self.pending, self.results = sorted_.pending, {**sorted_.results, **known}
        self.last_text, self.said = text_of(response.message), ""
        self.empties, self.eaten, self.correcting = 0, 0, False
        if planned:
            return RunTools(step=self.step, calls=planned)
        return self._after_tools(())

    def _after_tools(self, reported: Sequence[ToolResult]) -> Command:
        self._close_calls(reported, missing=NOT_REPORTED)
        if not self.pending:
            return self._begin_step()
        return self._finish(StopReason.WAITING, text=self.last_text, pending=self.pending)

    def _pause(self, adopted: Adopted, *, text: str) -> Command:
        """Send the content back to go on. Before a forced answer only its text: a server-side tool that has no result yet
        may not be followed by an instruction."""
        self.said = text
        self._append(adopted.message)
        self.paused = True
        if self.config.family not in PAUSE_GOES_BACK_LAST and not self.config.accepts_prefill:
            self.note = GO_ON
        return self._begin_step()

    def _empty(self, adopted: Adopted) -> Command:
        """Ask once more, as a step or as the one extra request; then answer ourselves (promise end:never-empty)."""
        self._settle_pause()
        if any(isinstance(part, ProviderItem) for part in adopted.message.parts):
            self._append(adopted.message)  # a server-side tool's work without a word about it
        self.empties += 1
        if self.empties > 1:
            return self._answer_locally(
                "The model gave two empty responses in a row, so there is no answer of its own."
            )
        self.note, self.purpose = EMPTY_AGAIN, "answer"
        if not self._is_forced:
            return self._begin_step()
        return self._ask_beyond_cap("The model gave an empty response in the last step.", disobeyed=False)

    def _disobeyed(self, adopted: Adopted, *, text: str, response: Response) -> Command:
        """The model called a tool where none was allowed: not executed, its text kept if there is one."""
        self._record(adopted, calls_answer=NOT_RUN_LAST_STEP)
        if text.strip():
            return self._answer(text, finish=finish_of(response), partial=True)
        self.purpose = "answer"
        return self._ask_beyond_cap("The model called a tool in the last step, where none is allowed.", disobeyed=True)

    def _ask_beyond_cap(self, why: str, *, disobeyed: bool) -> Command:
        if self.extra_used or not self._affords(answers=True):
            return self._answer_locally(why)
        self.extra_used = True
        return self._ask(self.prepared, disobeyed=disobeyed)

    def _answer(self, text: str, *, finish: FinishReason, partial: bool) -> Command:
        output: str | None = None
        fits = True
        wanted = self.asking.output if self.asking is not None else None
        if wanted is not None:
            verdict = judge_output(text, output=wanted, finish=finish)
            if isinstance(verdict, Fits):
                output = verdict.json
                self.repairs += verdict.repairs
            elif self.corrections < self.config.max_output_corrections and not self._is_forced:
                return self._correct(verdict.correction)
            else:
                fits = False
        return self._finish(
            self._reason(partial=partial),
            text=text,
            complete=fits and not partial and finish not in UNFINISHED,
            output=output,
        )

    def _correct(self, correction: str) -> Command:
        self.corrections += 1
        self.correcting, self.said, self.empties, self.eaten = True, "", 0, 0
        self._settle_pause()
        self._append(Message("user", (Text(correction),)))
        return self._begin_step()

    def _refuse(self, response: Response, *, refusal: str, text: str) -> Command:
        said, ours = refused_text(response, refusal=refusal, text=text)
        return self._finish(StopReason.REFUSED, text=said, local=ours)

    # ends without an answer

    def _fail(self, fault: Fault, *, arrived: str) -> FinishTurn:
        text = self._local_answer(why_failed(fault), arrived=arrived)
        return self._finish(StopReason.PROVIDER_FAILED, text=text, local=True, fault=fault)

    def _interrupt(self, event: Interrupted) -> FinishTurn:
        self._count(event.partial)
        arrived = self._text_so_far(event.partial)
        self._leave_cut()
        if self.state is State.RUNNING:
            self.pending = ()
            if event.started is not None:
                waited = {call.id for call in self.calls} - self.results.keys() - set(event.started)
                idle = [call for call in self.calls if call.id in waited]
                self.results |= {call.id: error_result(call, text=NOT_STARTED[event.kind]) for call in idle}
            self._close_calls(event.results, missing=INTERRUPTED[event.kind])
        stop_reason, why = ENDED[event.kind]
        return self._finish(stop_reason, text=self._local_answer(why, arrived=arrived), local=True)

    def _text_so_far(self, partial: Response | None) -> str:
        """What the model had said in its paused responses and in the one that broke off; a piece of a cut response stands
        in that one."""
        if partial is None or self.continuing is not None:
            return ""
        text = text_of(partial.message)
        return self.said + text if text.strip() else ""

    def _local_answer(self, why: str, *, arrived: str = "") -> str:
        said = arrived or self.said or self.last_text
        return local_answer(why, said=said, messages=self.added, left_out=SAY_NOTHING)

    def _answer_locally(self, why: str) -> FinishTurn:
        partial = self.asking is not None and self.asking.partial
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

    def _finish(
        self,
        stop_reason: StopReason,
        *,
        text: str,
        complete: bool = False,
        output: str | None = None,
        pending: tuple[ToolCall, ...] = (),
        fault: Fault | None = None,
        local: bool = False,
    ) -> FinishTurn:
        self._settle_pause()
        self.result = TurnResult(
            text=text,
            stop_reason=stop_reason,
            complete=complete,
            steps=self.step,
            requests=self.requests,
            usage=self.usage,
            recovery_usage=self.recovery_usage,
            messages=tuple(self.added),
            output=output,
            reasoning="\n\n".join(self.reasonings),
            repairs=tuple(self.repairs),
            pending=pending,
            fault=fault,
            origin="local" if local else "model",
            prefix_changes=tuple(self.prefix_changes),
        )
        return FinishTurn(result=self.result)

    # history

    def _append(self, message: Message) -> None:
        self.messages.append(message)
        self.added.append(message)
        self.paused = False

    def _record(self, adopted: Adopted, *, calls_answer: str) -> None:
        """Keep a response whose calls, if any, do not run."""
        if adopted.message.parts:
            self._append(adopted.message)
        if adopted.calls:
            results = [error_result(call, text=calls_answer) for call in calls_of(adopted.message)]
            self._append(Message("tool", tuple(results)))

    def _close_calls(self, reported: Sequence[ToolResult], *, missing: str) -> None:
        """Give each call its one result, in call order; those of pending calls are handed in later."""
        waiting = {call.id for call in self.pending}
        calls = [call for call in self.calls if call.id not in waiting]
        results, repairs = in_call_order(calls, own=self.results, reported=reported, missing=missing)
        self.repairs += repairs
        self.calls, self.results = (), {}
        self.guarding, told = self.guarding.close(results, offers=self.offers)
        if told:
            self._append(Message("tool", tuple(self.room.enter(results, told=told, config=self.config))))

    def _settle_pause(self) -> None:
        """A paused response that nothing will continue keeps its text only: what the provider had begun cannot be ended."""
        if not self.paused:
            return
        self.paused = False
        parts = self.messages[-1].parts
        kept = tuple([part for part in parts if isinstance(part, Text) and part.text.strip()])
        if kept == parts:
            return
        self.pause_settled = True
        self.messages.pop()
        self.added.pop()
        if kept:
            self._append(Message("assistant", kept))

    def _repair(self, kind: str, where: str, what: str) -> None:
        self.repairs.append(Repair(kind, where, what))
