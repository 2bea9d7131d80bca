"""The chair: takes what happened, says what to do next. Pure; every wait is the driver's."""

from collections.abc import Sequence

from turnwise.errors import TurnwiseBug
from turnwise.rules.apart import searches_asked
from turnwise.rules.history import error_result, heal
from turnwise.rules.last_step import CALL_NOT_MADE_AGAIN, EMPTY_AGAIN, GO_ON, NOT_RUN_LAST_STEP
from turnwise.rules.output import Fits, judge_output, refused_output
from turnwise.rules.recovery import ate_all, go_on
from turnwise.rules.truncation import as_ended, find_cut, hands_out_objects
from turnwise.turn.asking import PAUSE_GOES_BACK_LAST, Asking, as_last
from turnwise.turn.calls import Adopted, adopt
from turnwise.turn.carrying import Carried, carried_of
from turnwise.turn.checks import check_config
from turnwise.turn.commands import CheckOutput, Command, FinishTurn, RunHooks, SendRequest
from turnwise.turn.endings import (
    INTERRUPTED,
    LOST,
    LOST_A_PIECE,
    MADE_TO_ANSWER,
    NO_OUTPUT,
    NOT_RECORDED,
    NOT_RUN_FAULT,
    NOT_RUN_REFUSED,
    NOT_STARTED,
    REFUSED,
    UNFINISHED,
    Checking,
    answer_text,
    refused_text,
    why_interrupted,
)
from turnwise.turn.events import (
    Asked,
    CallsInspected,
    Event,
    HookOutcome,
    HooksRan,
    Interrupted,
    MessageArrived,
    OutputChecked,
    RequestFailed,
    ResponseReceived,
    ScriptCalled,
    ScriptFinished,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.resuming import reopened, repairs_but_reopened, taken_up, under_healed_ids
from turnwise.turn.room import with_own_tools
from turnwise.turn.scripting import Scripting
from turnwise.turn.transitions import State, check_legal, state_after
from turnwise.turn.weighing import Weighing
from turnwise.vocab import (
    CALL_NOT_MADE,
    FinishReason,
    Message,
    ProviderItem,
    Response,
    StopReason,
    Text,
    reasoning_of,
    refusal_of,
)
from turnwise.vocab.hidden_characters import says_something


class Turn(Scripting, kw_only=True):
    """One turn: `start` gives the first command, `receive` the next, until it is FinishTurn.

    The floors below it, each a class: `Books` (what it knows), `Finishing`, `Requesting`, `Recovering`, `Retrying`,
    `Calling`, `Scripting`.
    Plain data: `replay` rebuilds it from its journal. `messages` is what requests carry, healed once and then appended
    to; `added` what this turn brings to the session.
    """

    @classmethod
    def start(cls, started: TurnStarted, *, earlier: Sequence[Message] | Carried = ()) -> tuple["Turn", Command]:
        """A turn and its first command. `earlier` are the messages of the session's earlier turns, or what these carry on.

        Raises CallerError for a configuration that cannot work.
        """
        check_config(started.config)
        carried = carried_of(earlier)
        config = carried.fit(with_own_tools(started.config))
        started = carried.with_words(started)
        resumed = taken_up(started, earlier=carried.messages)
        healed, room = carried.begin(resumed.new, config=config)
        given = (*carried.messages, *resumed.new) if resumed.calls else ()
        resumed = under_healed_ids(resumed, healed=healed.messages, given=given)
        turn = cls(
            config=config,
            room=room,
            messages=reopened(healed.messages, calls=resumed.calls),
            added=list(resumed.added),
            call_ids=set(healed.call_ids),
            offers={offer.spec.name: offer for offer in config.tools},
            specs=tuple([offer.spec for offer in config.tools]),
            repairs=repairs_but_reopened(healed.repairs, calls=resumed.calls),
            calls=resumed.calls,
            approved=resumed.approvals,
            keeps_waiting=started.keeps_waiting,
            known_as=resumed.known_as if started.keeps_waiting else {},
        )
        if resumed.calls:
            room.forget_last(healed.messages[:-1])
            turn._put_by(resumed.words)
        if all(message.role == "system" for message in turn.messages):
            turn.messages.append(Message("user", (Text(GO_ON),)))
            turn._repair("nothing_to_send", "input", "put a user message in the place of none")
        return turn, turn.receive(started)

    def receive(self, event: Event) -> Command:
        """The command that `event` leads to. Raises TurnwiseBug for an illegal event, and then nothing has changed."""
        check_legal(self.state, event=event)
        if isinstance(event, ResponseReceived | RequestFailed) and event.number != self.requests:
            raise TurnwiseBug(f"a response to request {event.number} came while request {self.requests} is at hand")
        self.pacing = self.pacing.saw(event, messages=len(self.messages))
        if self.purse.at_stake is not None:
            asks = searches_asked(self.config.extra, family=self.config.family)
            self.purse = self.purse.saw(event, searches=asks)
        match event:  # the events of a plain step first
            case ResponseReceived():
                command = self._take(event.response, jitter=event.jitter)
            case ToolsFinished():
                command = self._ran(event.results, children=event.children)
            case StepPrepared():
                command = self._ask_as_prepared(event)
            case TurnStarted():
                command = self._resume(self.calls) if self.calls else self._begin_step()
            case RequestFailed(fault=fault, partial=partial, jitter=jitter, sent=sent):
                self._count(partial)
                if not sent:
                    self._not_sent()
                again = self._try_again(fault, jitter=jitter)
                command = again or self._without_reply(fault, arrived=self._text_so_far(partial))
            case WaitOver():
                command = self._send_again()
            case CallsInspected(facts=facts):
                command = self._judge(facts) if self.weighing is None else self._weighed(self.weighing, facts=facts)
            case OutputChecked(problems=problems):
                command = self._checked(problems)
            case HooksRan(outcomes=outcomes):
                command = self._hooked(outcomes)
            case Asked(approvals=approvals):
                command = self._asked(approvals)
            case ScriptCalled(call_id=call_id, calls=calls):
                command = self._script_called(call_id, calls=calls)
            case ScriptFinished(call_id=call_id, text=text, is_error=is_error):
                command = self._script_finished(call_id, text=text, is_error=is_error)
            case MessageArrived(message=message):  # the command at hand goes on as it is
                self._put_by((message,))
                return self._at_hand
            case Interrupted():
                command = self._interrupt(event)
        if "before_request" in self.config.hooks:
            command = self._hold(command)
        self.state = state_after(self.state, event=event, command=command)
        self.at_hand = command
        return command

    def left_behind(self) -> tuple[Message, ...]:
        """What the turn adds to its session if nothing more happens; every call that may have run has a result.

        Of use after a crash. The turn takes no event afterwards.
        """
        if self.state is not State.FINISHED:
            self._leave_cut()
            self._leave_programs("lost", finished=())
            self.pending = self._left_waiting()
            self._mark_asked()
            self._close_calls((), missing=LOST if self.state is State.RUNNING else NOT_STARTED["lost"])
            self._settle_pause()
            if not self.pending:
                self._read_inbox()  # nobody was told of words that were not taken up
            self.room.put_back(self.messages)
            self.state = State.FINISHED
        return tuple(self.added)

    def _put_by(self, messages: Sequence[Message]) -> None:
        """Keep words for the next request, made fit for it: what stands in history is not healed again."""
        healed = heal(messages, family=self.config.family, tool_names=self.offers, taken_ids=self.call_ids)
        self.call_ids.update(healed.call_ids)
        self.repairs += healed.repairs
        self.inbox = (*self.inbox, *healed.messages)

    @property
    def _at_hand(self) -> Command:
        if self.at_hand is None:
            raise TurnwiseBug("a turn that has ordered nothing takes no message")
        return self.at_hand

    def _hold(self, command: Command) -> Command:
        """Let the user's hooks see a request before it leaves."""
        if not isinstance(command, SendRequest) or command is self.held:
            self.held = None if isinstance(command, SendRequest) else self.held
            return command
        self.held = command
        return RunHooks(step=self.step, point="before_request", deadlines=self.config.deadlines, request=command)

    def _hooked(self, outcomes: Sequence[HookOutcome]) -> Command:
        match self._at_hand:
            case RunHooks(point="before_tool"):
                return self._hooked_before(outcomes)
            case RunHooks(point="after_tool"):
                return self._hooked_after(outcomes)
            case _:
                return self._released(outcomes)

    def _released(self, outcomes: Sequence[HookOutcome]) -> Command:
        assert self.held is not None
        denied = next((outcome for outcome in outcomes if outcome.denied is not None), None)
        if denied is None:
            return self.held
        self._take_back_request()
        self._leave_cut()
        why = (
            f"The hook `{denied.by}` stopped the turn before its next request: {denied.denied or 'it did not say why'}."
        )
        return self._finish(StopReason.CANCELLED, text=self._local_answer(why), local=True)

    def _take_back_request(self) -> None:
        """The request that was held has not left, so it does not count."""
        if self.held is not None:
            self.held = None
            self._not_sent()

    # a response

    def _take(self, response: Response, *, jitter: float) -> Command:
        """Take in a response that is whole; one that the limit cut is continued first, as far as possible."""
        self._count(response)
        if again := self._broken_off(response, jitter=jitter):
            return again
        if self.room.planned is not None:  # it may be the turn's first request: a session can bring too much
            return self._summarised(response)
        if self.asking is None or self.request is None:
            raise TurnwiseBug("a response without a request")
        asking = self._under_cap(response, asking=self.asking)
        self.repairs += response.repairs
        if reasoning := reasoning_of(response.message):
            self.reasonings.append(reasoning)
        if self.continuing is not None:
            return self._go_on(go_on(self.continuing, reply=response, limit_tokens=asking.limit_tokens))
        if response.fault is not None and self.asked_again is not None:
            return self._without_reply(response.fault)
        objects = hands_out_objects(self.config.family, streamed=self.config.stream)
        cut = find_cut(response, limit_tokens=asking.limit_tokens, hands_out_objects=objects, request=self.request)
        retried, self.asked_again = self.asked_again is not None, None
        if cut is None:
            return self._adopt(as_ended(response), asking=asking)
        if cut.limited:
            self.asking = asking = self._met_limit(response, asking=asking)
        if self.config.recover != "off" and ate_all(response, cut=cut):
            return self._reasoning_ate_all(response, asking=asking)
        worth = self.guarding.spare(cut)
        return self._weigh(Weighing(response=response, asking=asking, cut=cut, worth=worth, retried=retried))

    def _adopt(self, response: Response, *, asking: Asking) -> Command:
        adopted = adopt(
            response, offers=self.offers, on_offer=asking.tools, taken=self.call_ids, family=self.config.family
        )
        self.repairs += adopted.repairs
        self.call_ids.update([call.id for call in adopted.calls])
        text = self.said + answer_text(response.message)
        lost = response.lost or self.said_lost
        refusal = refusal_of(response.message)

        if response.fault is not None:
            if not adopted.message.parts and (learned := self._learned(response.fault)):
                return learned
            self._record(adopted, calls_answer=NOT_RUN_FAULT)
            return self._fail(response.fault, arrived=text)
        if response.finish in REFUSED or (says_something(refusal) and not adopted.calls):
            self._record(adopted, calls_answer=NOT_RUN_REFUSED)
            return self._refuse(response, refusal=refusal, text=text)
        if adopted.calls:
            if asking.forced:
                return self._disobeyed(adopted, text=text, finish=response.finish, lost=lost)
            return self._run(adopted, response=response, asking=asking)
        if response.finish is FinishReason.PAUSE and adopted.message.parts and not asking.forced:
            return self._pause(adopted, text=text, lost=lost)
        if not says_something(text):
            if lost:
                return self._lost_all(adopted)
            is_unmade = any(one.kind == CALL_NOT_MADE for one in response.repairs)
            return self._empty(adopted, note=CALL_NOT_MADE_AGAIN if is_unmade else EMPTY_AGAIN)
        self._record(adopted, calls_answer=NOT_RUN_LAST_STEP)
        return self._answer(text, finish=response.finish, partial=asking.partial, lost=lost)

    def _pause(self, adopted: Adopted, *, text: str, lost: bool) -> Command:
        """Send the content back to go on. Before a forced answer only its text: a server-side tool that has no result yet
        may not be followed by an instruction."""
        self.said, self.said_lost = text, lost
        goes_last = self.config.family in PAUSE_GOES_BACK_LAST
        self._append(as_last(adopted.message) if goes_last else adopted.message)
        self.paused = True
        if not goes_last and not self.config.accepts_prefill:
            self.note = GO_ON
        return self._begin_step()

    def _lost_all(self, adopted: Adopted) -> Command:
        """What the model said did not arrive: ask on as for an empty response, but no oftener than for any lost piece."""
        if not self._may_ask_for_lost:
            return self._answer_locally("The response did not arrive whole, so there is no answer of the model's own.")
        self._count_lost()
        return self._empty(adopted)

    def _empty(self, adopted: Adopted, *, note: str = EMPTY_AGAIN) -> Command:
        """Ask once more, as a step or as the one extra request; then answer ourselves (promise end:never-empty)."""
        self._settle_pause()
        if any(isinstance(part, ProviderItem) for part in adopted.message.parts):
            self._append(adopted.message)  # a server-side tool's work without a word about it
        self.empties += 1
        if self.empties > 1:
            return self._answer_locally(
                "The model gave two empty responses in a row, so there is no answer of its own."
            )
        self.note, self.purpose = note, "answer"
        if not self._is_forced:
            return self._begin_step()
        return self._ask_beyond_cap("The model gave an empty response in the last step.", disobeyed=False)

    def _disobeyed(self, adopted: Adopted, *, text: str, finish: FinishReason, lost: bool) -> Command:
        """The model called a tool where none was allowed: not executed, its text kept if there is one."""
        self._record(adopted, calls_answer=NOT_RUN_LAST_STEP)
        if says_something(text):
            return self._answer(text, finish=finish, partial=True, lost=lost)
        self.purpose = "answer"
        return self._ask_beyond_cap("The model called a tool in the last step, where none is allowed.", disobeyed=True)

    def _answer(self, text: str, *, finish: FinishReason, partial: bool, lost: bool) -> Command:
        """Judge the answer. One that `lost` a piece on the way is no output, and no correction would be the model's to make."""
        if lost:
            return self._accept(text, output=None, lacks=LOST_A_PIECE, partial=partial)
        output: str | None = None
        fits = True
        wanted = self.asking.output if self.asking is not None else None
        if wanted is not None:
            verdict = judge_output(text, output=wanted, finish=finish)
            if isinstance(verdict, Fits):
                output = verdict.json
                self.repairs += verdict.repairs
                if self.config.checks_output and wanted == self.config.output:
                    self.checking = Checking(text=text, json=output, finish=finish, partial=partial)
                    return CheckOutput(step=self.step, json=output)
            elif self._may_correct:
                return self._correct(text, correction=verdict.correction)
            else:
                fits = False
        return self._accept(
            text, output=output, lacks=UNFINISHED.get(finish, "" if fits else NO_OUTPUT), partial=partial
        )

    def _checked(self, problems: Sequence[str]) -> Command:
        """The wanted type has looked at the answer at hand."""
        checking, self.checking = self.checking, None
        if checking is None:
            raise TurnwiseBug("a verdict on no answer")
        if problems and self._may_correct:
            return self._correct(checking.text, correction=refused_output(problems))
        if problems:
            self._repair("output_refused", "answer", "; ".join(problems))
        return self._accept(
            checking.text,
            output=None if problems else checking.json,
            lacks=UNFINISHED.get(checking.finish, NO_OUTPUT if problems else ""),
            partial=checking.partial,
        )

    @property
    def _may_correct(self) -> bool:
        return self.corrections < self.config.max_output_corrections and not self._is_forced

    def _accept(self, text: str, *, output: str | None, lacks: str, partial: bool) -> Command:
        """Take the text as the answer; `lacks` says what it is short of, if anything."""
        if self.inbox and not partial and not self._is_forced and self._may_go_on():
            return self._begin_step()
        lacks = lacks or (MADE_TO_ANSWER if partial else "")
        return self._finish(self._reason(partial=partial), text=text, complete=not lacks, output=output, lacks=lacks)

    def _correct(self, text: str, *, correction: str) -> Command:
        """Ask for the answer once more; `text` stands where none comes."""
        self.corrections += 1
        self.unfit = text
        self.correcting, self.said, self.said_lost, self.empties, self.eaten = True, "", False, 0, 0
        self._settle_pause()
        self._append(Message("user", (Text(correction),)))
        return self._begin_step()

    def _refuse(self, response: Response, *, refusal: str, text: str) -> Command:
        said, ours = refused_text(response, refusal=refusal, text=text)
        return self._finish(StopReason.REFUSED, text=said, local=ours)

    def _interrupt(self, event: Interrupted) -> FinishTurn:
        self._count(event.partial)
        self._take_back_request()
        if isinstance(self.at_hand, SendRequest) and not event.sent:
            self._not_sent()
        self.children += event.children
        arrived = self._text_so_far(event.partial) if self.checking is None else self.checking.text
        self._leave_cut()
        in_program = self._leave_programs(event.kind, finished=event.results)
        self.pending = self._left_waiting()
        if not in_program and self.state is State.RUNNING:
            if event.started is not None:
                waited = {call.id for call in self.calls} - self.results.keys() - set(event.started)
                waited -= {call.id for call in self.pending}
                idle = [call for call in self.calls if call.id in waited]
                self.results |= {call.id: error_result(call, text=NOT_STARTED[event.kind]) for call in idle}
            self._close_calls(event.results, missing=INTERRUPTED[event.kind])
        else:
            self._close_calls((), missing=NOT_STARTED[event.kind])
        self._mark_asked()
        if event.kind == "journal":
            self._repair(NOT_RECORDED, "journal", event.why)
        stop_reason, why = why_interrupted(event)
        if event.kind == "deadline" and self.unfit:
            return self._finish(stop_reason, text=self.unfit, lacks=NO_OUTPUT, pending=self.pending)
        return self._finish(
            stop_reason, text=self._local_answer(why, arrived=arrived), local=True, pending=self.pending
        )
