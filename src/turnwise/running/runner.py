"""The loop: do what the turn orders, record what happened, ask the turn again."""

import asyncio
import contextlib
import inspect
import math
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, assert_never

import msgspec

from turnwise.base.clock import Clock, Timer, sleep
from turnwise.endpoints.transport import Circuits
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.ledger import Ledger
from turnwise.journal.turn_writer import (
    AskAnswered,
    Bookkeeper,
    JournalRecord,
    LoopPen,
    Noted,
    ScriptBegan,
    ToolsStarted,
    TurnJournal,
)
from turnwise.rules.history import open_calls
from turnwise.rules.limits import Limit, kept_s, wall_time_s
from turnwise.running.approvals import ask, given_in_time, leave_for_later
from turnwise.running.resumption import LOST_REQUEST, STUCK, LeftTurn, begun_below, results_of_left
from turnwise.running.run_context import find_changed, find_facts
from turnwise.running.runner_config import EndpointRecovery, RunnerMeans, Sender, around_of
from turnwise.running.scripts import Scripts
from turnwise.running.tool_output import FailedCall
from turnwise.running.tools import ToolRun
from turnwise.running.watcher_events import (
    CallAnswered,
    Feed,
    LiveTeller,
    ToolFinished,
    ToolsetNoted,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
    Watchers,
    both,
    gives_up,
)
from turnwise.turn.config import Approval, AskOrigin, ChildReport, OneAsk, TurnConfig, TurnResult
from turnwise.turn.events import (
    Ask,
    Asked,
    CheckOutput,
    Command,
    Event,
    FinishTurn,
    HooksRan,
    InspectCalls,
    Interrupted,
    MessageArrived,
    OutputChecked,
    PlannedCall,
    PrepareStep,
    RequestFailed,
    ResponseReceived,
    RulesAdded,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    StepPrepared,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
    Wait,
    WaitOver,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import is_unknown, unrecorded
from turnwise.vocab import Message, StopReason, ToolCall, ToolResult

# The time of one turn: its limit, and what must end earlier so that the answer has its reserved time.


class TurnTime:
    """Calls `at_end` when the turn's time is over.

    Work with an earlier deadline ends first, even if a late event loop finds both at once: `end_first` ends such work, and is
    true if there was any.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        limits: Limit | None,
        end_first: Callable[[], bool],
        at_end: Callable[[], object],
        spent_s: float = 0.0,
    ) -> None:
        """`spent_s` of its time has passed already, in a process that has died."""
        self._clock = clock
        self._began_s = clock.monotonic() - spent_s
        self._limit_s = None if limits is None else wall_time_s(limits)
        self._end_first = end_first
        self._at_end = at_end
        self._alarm: Timer | None = None  # at the end of that time
        self._has_rung = False  # while something was open that ends first
        self._behind_s = 0.0  # that a late event loop took from the turn

    def now_s(self) -> float:
        """Seconds since the turn began, without those that a late event loop took."""
        return self._clock.monotonic() - self._began_s - self._behind_s

    def start(self) -> None:
        """Set the alarm, or set it again."""
        self.stop()
        if self._limit_s is not None:
            self._alarm = self._clock.call_later(max(self._limit_s - self.now_s(), 0.0), self.is_up)

    def left_after(self, seconds: float) -> float:
        """The time that the turn still has after so many seconds: the time of the answer."""
        return math.inf if self._limit_s is None else max(self._limit_s - self.now_s() - seconds, 0.0)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def is_up(self) -> None:
        """The turn's time is over; this turn or its parent has found that."""
        if self._behind_s and self._limit_s is not None and self.now_s() < self._limit_s:
            return  # the late work has ended, and the answer has its reserved time
        if not self._end_first():
            self._at_end()
            return
        if not self._has_rung:  # their parent may find it too
            self._set_last_alarm()
        self._has_rung = True

    def _set_last_alarm(self) -> None:
        """Give work that ends in good order the time that was reserved for the answer."""
        self.stop()
        left_s = kept_s(self._limit_s or 0.0, longest_request_s=0.0)
        self._alarm = self._clock.call_later(left_s, self._at_end)

    def ended(self, due_s: float | None) -> None:
        """Work that the answer comes after was due at `due_s` (None: nobody said), and is over.

        If the loop looks so late that the answer's time is gone, the turn's clock is set back to that point, once a turn: the
        answer keeps its reserved time.
        """
        if self._limit_s is None:
            return
        late_s, kept = 0.0 if due_s is None else self.now_s() - due_s, kept_s(self._limit_s, longest_request_s=0.0)
        is_late = late_s > 0.0 and self.now_s() > self._limit_s - kept
        if is_late and not self._behind_s:
            self._behind_s = late_s
        if is_late or self._has_rung:
            self._has_rung = False
            self.start()


Doable = PrepareStep | RunHooks | SendRequest | CheckOutput | InspectCalls | Ask | RunTools | RunScript | Wait
STRANGE = frozenset({RunHooks, Ask, CheckOutput})  # the user's own code does these
InterruptKind = Literal["cancel", "deadline"]
EndKind = Literal["cancel", "deadline", "tool", "journal"]

TOOL_SHARE = 5 / 9  # of the time in which a cancelled command settles: the part for the tools themselves
ANSWERS_SHARE = (
    1 / 4
)  # of the time that is reserved for the answer: the part for tools that tidy up when the turn's time ends


class Runner:
    """Runs turns against one endpoint, one at a time. `means` say what it works with."""

    def __init__(self, means: RunnerMeans) -> None:
        self._means = means
        self._recovery = means.recovery or EndpointRecovery(circuits=Circuits(clock=means.clock))
        self._running: _Running | None = None
        self.result: TurnResult | None = None  # of the last turn, also of one whose task was cancelled
        self.so_far: TurnResult | None = None  # the same, also of a turn that was left or that raised
        self.ledger: Ledger | None = means.observation.ledger  # of the last turn
        self.raised: BaseException | None = None  # what a tool raised, if that has ended the last turn
        self.elapsed_s = 0.0  # of the last turn

    async def run(
        self,
        started: TurnStarted,
        *,
        earlier: Sequence[Message] | Carried = (),
        journal: TurnJournal | None = None,
        ends: InterruptKind | None = None,
    ) -> TurnResult:
        """Run one turn to its end. `earlier` are the messages of the session's earlier turns, or what these pass on. With `ends`,
        the turn was interrupted before it began: it sends nothing.

        If the provider or the journal fails, the result says so. Raises CallerError if the configuration cannot work or the
        journal cannot record the turn's beginning, and whatever `prepare_step` raises. If the task is cancelled, the journal has
        the turn as cancelled, or as left (`RunnerMeans.leaves`), and the CancelledError is raised.
        """
        running = self._begin(started.config, journal=journal, given=started.input, ends=ends)
        return await self._run(running, running.run(started, earlier=earlier))

    async def resume(
        self, left: LeftTurn, *, journal: TurnJournal, ends: InterruptKind | None = None, said: Sequence[Message] = ()
    ) -> TurnResult:
        """Continue a turn that a dead process has left, to its end. `journal` has taken it over (`Journal.resume_turn`). With
        `ends` it was interrupted before that. `said` are messages that came for it before that.

        Finished work is not repeated. The model is told that unfinished work has an unknown outcome, unless it may be repeated.
        Raises as `run` does.
        """
        running = self._begin(left.config, journal=journal, left=left, ends=ends)
        return await self._run(running, running.resume(left, said=said))

    def _begin(
        self,
        config: TurnConfig,
        *,
        journal: TurnJournal | None,
        given: tuple[Message, ...] = (),
        left: LeftTurn | None = None,
        ends: InterruptKind | None,
    ) -> "_Running":
        if self._running is not None:
            raise CallerError("this runner is in the middle of a turn: await it, or make another runner")
        running = self._running = _Running(
            self._means, recovery=self._recovery, config=config, journal=journal, given=given, left=left
        )
        self.ledger = running.books.ledger
        if ends is not None:
            running.interrupt(ends)
        return running

    async def _run(self, running: "_Running", turn: Coroutine[None, None, TurnResult]) -> TurnResult:
        observer = running.observer
        try:
            with contextlib.nullcontext() if observer is None else observer.around():
                return await turn
        finally:
            self.result, self.elapsed_s, self.raised = running.result, running.time.now_s(), running.raised
            self.so_far = running.result or running.so_far
            self._running = None
            if running.pen is not None:
                with contextlib.suppress(JournalFailed):  # the result, or the raised error, has said so already
                    await running.pen.abandon()
            if observer is not None:
                await observer.settled()

    def listen(self, feed: Feed) -> None:
        """Tell `feed` the current turn's events from now on. Call it in the event loop's thread."""
        if self._running is not None:
            self._running.listen(feed)

    def interrupt(self, kind: InterruptKind = "cancel") -> None:
        """End the current turn soon: streams are closed, tools cancelled, and the result says so. Without a turn it does nothing.
        Call it in the event loop's thread."""
        if self._running is not None:
            self._running.interrupt(kind)

    def time_is_up(self) -> None:
        """End the current turn as its own time limit does: work with its own deadline ends first. Without a turn it does
        nothing."""
        if self._running is not None:
            self._running.time_is_up()

    def say(self, message: Message) -> bool:
        """Give the current turn another message: its next request carries it. False: there is no turn, or it has ended. Call it
        in the event loop's thread."""
        return self._running is not None and self._running.say(message)


class _Running:
    """One running turn."""

    def __init__(
        self,
        means: RunnerMeans,
        *,
        recovery: EndpointRecovery,
        config: TurnConfig,
        journal: TurnJournal | None,
        given: tuple[Message, ...],
        left: LeftTurn | None,
    ) -> None:
        self._means, self._safety = means, means.safety
        self._left = left  # until its first command is done
        self._clock = means.clock
        self._tools = {tool.name: tool for tool in means.tools}
        self.pen = pen = None if journal is None else LoopPen(journal)
        self._interrupted: asyncio.Future[EndKind] = asyncio.get_running_loop().create_future()
        self._unrecorded = ""  # why the journal cannot be written any more
        self._why_stopped = ""  # if it was no person's request
        self._why_raised = ""
        self.raised: BaseException | None = None  # what a tool raised, if that ends the turn
        self._tool_run: ToolRun | None = None
        self._scripts = Scripts(means.clock, so_far=None if left is None else left.program)
        self._script_began_s: dict[str, float] = {}
        self._turn: Turn | None = None
        self._command: Command  # the current command
        self._waiter: asyncio.Task[object]  # the task that waits for the turn
        self._cancelling = 0  # how often the task had been asked to end when the turn began
        self._ordered_s = 0.0 if left is None else left.ordered_s  # when, in the turn's own time
        self._is_stopping = False  # no further command is begun
        self._is_over = False
        self.books = Bookkeeper(
            config,
            ledger=means.observation.ledger,
            path=means.path,
            provider=means.endpoint.profile.name,
            find_price=means.observation.find_price,
            journal=pen,
            clock=means.clock,
        )
        if left is not None:
            self.books.go_on(program="" if left.program is None else left.program.begun.call.id)
        self.observer = means.observer_of(config, given=given, ledger=self.books.ledger, is_resumed=left is not None)
        from turnwise.running.run_log import log_of  # only a turn needs it

        self._log = log_of(config, path=means.path)
        self._given = given
        inner = None if self.observer is None else self.observer.see
        if self._log is not None and self._log.sees:
            inner = self._log.see if inner is None else both(inner, self._log.see)
        lease = None if pen is None else pen.pen.own_lease
        elsewhere = None if lease is None else partial(lease.see_frames, config.turn_id)
        self._watchers = Watchers(
            means.observation.watch, feed=means.observation.feed, inner=inner, elsewhere=elsewhere
        )
        self._tell = self._watchers.tell
        if means.observation.begins is not None:
            means.observation.begins(self._take_toolset_note)
        self._teller = LiveTeller(self._watchers, journal=pen)
        self._sender = Sender(
            means,
            recovery=recovery,
            books=self.books,
            watchers=self._watchers,
            enter_step=self._teller.enter_step,
            observer=self.observer,
            keeps_hash=journal is not None,
            plain_choice=config.tool_choice,
        )
        self._around = around_of(config, means=means, journal=journal, left=left, tell=self._tell, books=self.books)
        self.time = TurnTime(
            means.clock,
            limits=config.limits,
            end_first=self._end_first,
            at_end=lambda: self.interrupt("deadline"),
            spent_s=0.0 if left is None else left.at_s,
        )
        self._ask_over: asyncio.Future[None] | None = None  # the time of the current asks
        self.result: TurnResult | None = None
        self.so_far: TurnResult | None = None  # of a turn that was left, or that raised
        self._begun_before: frozenset[str] = frozenset()  # calls of the current command that another process has begun
        self._ended: set[str] = set()  # calls of the current command whose end has its own record
        self._children_told = 0  # of the current command, by those records

    def interrupt(self, kind: EndKind = "cancel") -> None:
        if not self._interrupted.done():
            self._is_stopping = True
            self._interrupted.set_result(kind)

    def listen(self, feed: Feed) -> None:
        self._watchers.listen(feed)

    def time_is_up(self) -> None:
        self.time.is_up()

    def _end_first(self) -> bool:
        """End work whose deadline is before the turn's: this leaves time for the answer."""
        if self._ask_over is not None:
            if not self._ask_over.done():
                self._ask_over.set_result(None)
            return True
        return self._scripts.end_in_time() or (self._tool_run is not None and self._tool_run.end_in_time())

    def say(self, message: Message) -> bool:
        """The turn machine takes the message at once; the current command continues."""
        if self._turn is None or self._turn.result is not None or self._interrupted.done():
            return False
        event = self._stamp(MessageArrived(message=message))
        try:
            if self.pen is not None:
                self.pen.append_soon(event, failed=self._unwritable)
        except JournalFailed as failed:
            self._unwritable(failed)
            return False
        self._turn.receive(event)
        return True

    async def run(self, started: TurnStarted, *, earlier: Sequence[Message] | Carried) -> TurnResult:
        turn, command = Turn.start(started, earlier=earlier)
        if self.pen is not None and not self.pen.pen.has_begun:
            await self.pen.append(started)
        return await self._live(turn, command)

    async def resume(self, left: LeftTurn, *, said: Sequence[Message]) -> TurnResult:
        turn, command = left.turn, left.turn.at_hand
        assert command is not None, "a turn that has begun has ordered something"
        if rules := left.new_rules:
            added = RulesAdded(rules=rules, at_s=left.at_s)
            await self._write(added)
            command = turn.receive(added)
        if left.is_cancelled:
            self.interrupt()
        elif left.why_raised:
            self._why_raised = left.why_raised
            self.interrupt("tool")
        elif left.is_stuck:
            self._why_stopped = STUCK
            self.interrupt()
        self._teller.unanswered = {call.id: call for call in (*open_calls(turn.added), *left.open_in_program)}
        return await self._live(turn, command, said=said)

    async def _live(self, turn: Turn, command: Command, *, said: Sequence[Message] = ()) -> TurnResult:
        self._turn = turn
        for message in said:
            self.say(message)
        if self._means.run is not None:
            self._means.run.so_far = lambda: (turn.known.step, turn.known.spending.usage)
        self._teller.begin(turn)
        if self._log is not None and self._log.hears:
            self._log.began(self._given, is_resumed=self._left is not None)
        self._sender.adapted = turn.known.record.adapted
        self.time.start()
        try:
            return await self._run_to_end(turn, command)
        finally:
            self._watchers.leave()
            self.time.stop()
            await self._scripts.close()

    async def _run_to_end(self, turn: Turn, command: Command) -> TurnResult:
        """Work to the turn's end, unless an interrupt comes first. Everything that happened before it counts.

        One task does all commands: a task for each would cost as much as a small tool.
        """
        self._command = command
        task = asyncio.current_task()
        assert task is not None, "a turn runs in a task"
        self._waiter, self._cancelling = task, task.cancelling()
        working = asyncio.create_task(self._work(turn), name="turnwise turn")
        try:
            try:
                await asyncio.wait([working, self._interrupted], return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._is_stopping = True
                if not working.done():
                    working.cancel()
                    await self._settled(working)
            was_cut = self._interrupted.done() and (not working.done() or working.cancelled())
            if not was_cut:
                working.result()
        except asyncio.CancelledError:
            if self._means.leaves():
                await self._leave(turn)
            else:
                await self._end(turn, kind="cancel")
            raise
        except JournalFailed as failed:
            self._unrecorded = str(failed)
            return await self._end(turn, kind="journal")
        except BaseException:
            with contextlib.suppress(Exception):  # the error itself is the news
                self._break_off(turn)
            raise
        return await self._end(turn, kind=self._interrupted.result() if self._interrupted.done() else "cancel")

    async def _settled(self, working: asyncio.Task[None]) -> None:
        """Wait for cancelled work, `settle_s` at most. Where the turn is left, a further cancel changes nothing: no sub-agent may
        stay behind. Otherwise it ends the waiting, as a second Ctrl-C does."""
        if not self._means.leaves():
            await asyncio.wait([working], timeout=self._means.settle_s)
            return
        ends_s = asyncio.get_running_loop().time() + self._means.settle_s
        while not working.done() and (left_s := ends_s - asyncio.get_running_loop().time()) > 0.0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([working], timeout=left_s)

    async def _work(self, turn: Turn) -> None:
        """Do what the turn orders; once it is stopping, finish only the current command."""
        # It also stops if our own task was cancelled and the cancellation has not been raised yet.
        while not (
            isinstance(command := self._command, FinishTurn)
            or self._is_stopping
            or self._waiter.cancelling() > self._cancelling
        ):
            if type(command) is not SendRequest and type(command) is not RunTools:
                await self._write()  # these two write the records before them together with their own beginning
            doing = self._do(command)
            # context variables that the user's own code sets end with its task
            event = await (asyncio.create_task(doing) if self._is_strange(command) else doing)
            if self._watchers.are_there:
                await self._let_others_in()
            if self._is_over:
                return  # it was left behind
            event = self._stamp(event)
            if self.pen is not None:
                self.pen.later(event)
            self.books.saw(event)
            self._command = turn.receive(event)
            self._ordered_s = getattr(event, "at_s", 0.0)
            if (
                isinstance(event, ResponseReceived | RequestFailed)
                and gives_up(self._command)
                and self._sender.was_told
            ):
                self.books.discard(event.number)
                if self._log is not None:
                    fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
                    wait_s = self._command.seconds if isinstance(self._command, Wait) else 0.0
                    self._log.retries(event.number, fault, in_s=wait_s)
                await self._teller.discarded(event, following=self._command)
            await self._teller.answered(turn)

    async def _let_others_in(self) -> None:
        """Watchers of the last event may interrupt, or send a message, before the turn acts on it."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._is_stopping = True  # it has happened, and counts

    def _is_strange(self, command: Doable) -> bool:
        """Whether the user's own code does it."""
        if type(command) is PrepareStep:
            return self._means.prepare_step is not None
        return type(command) in STRANGE

    async def _end(self, turn: Turn, *, kind: EndKind) -> TurnResult:
        """End the turn. A command that still runs counts as cut short; if a part of it continues, its outcome is ignored."""
        self._is_over = True
        if not isinstance(self._command, FinishTurn):
            why = self._why_raised if kind == "tool" else self._why_stopped
            event = msgspec.structs.replace(self._cut_short(kind, command=self._command), why=why)
            try:
                if event.kind != "journal":
                    await self._write(event)
            except JournalFailed as failed:
                self._unrecorded = str(failed)
                event = msgspec.structs.replace(event, kind="journal")
            if event.kind == "journal":
                event = msgspec.structs.replace(event, why=self._unrecorded)
            self._command = turn.receive(event)
            await self._teller.answered(turn)
        assert isinstance(self._command, FinishTurn), "an interrupt ends the turn"
        result = self.result = await self._recorded(self._command.result)
        self._tell(TurnFinished(result))
        if self._log is not None and self._log.hears:
            usd = self.books.ledger.cost(turn=turn.known.config.turn_id).exact_usd
            self._log.ended(result, seconds=self.time.now_s(), usd=usd)
        return result

    async def _leave(self, turn: Turn) -> None:
        """Let go of the turn with all that has happened. Who resumes it continues from here."""
        if self._tool_run is not None:
            for result in self._not_recorded(self._tool_run)[0]:
                await self._record_end(result)
        self._break_off(turn)

    def _break_off(self, turn: Turn) -> None:
        """The turn does no more here. What it had until now is its result so far, which no journal gets."""
        self._is_over = True
        if not isinstance(self._command, FinishTurn):
            self._command = turn.receive(self._cut_short("cancel", command=self._command))
        assert isinstance(self._command, FinishTurn), "an interrupt ends the turn"
        self.so_far = self._command.result

    async def _recorded(self, result: TurnResult) -> TurnResult:
        """The result as the journal has it, or as far as it goes if the journal cannot be written.

        If its journal failed, nothing more is written for the turn: the session finds it as a turn that was left.
        """
        if self.pen is None or result.stop_reason is StopReason.JOURNAL_FAILED:
            return result
        try:
            await self.pen.close(result, problem=self._why_raised or self._why_stopped)
        except JournalFailed as failed:
            return unrecorded(result, why=str(failed))
        return result

    def _cut_short(self, kind: EndKind, *, command: Command) -> Interrupted:
        """End the turn with the parts of the current command: results, calls that have begun, text that has arrived."""
        match command:
            case RunTools():
                run = self._tool_run
                begun = tuple(self._around.begun)
                if run is None:
                    return Interrupted(kind=kind, started=begun)
                results, children = self._not_recorded(run)
                return Interrupted(kind=kind, results=results, started=(*begun, *run.started), children=children)
            case SendRequest(number=number) if not self.books.has(number):
                return Interrupted(kind=kind, sent=False)
            case SendRequest() if self._sender.exchange is not None:
                return Interrupted(kind=kind, partial=self._sender.exchange.arrived())
            case _:
                return Interrupted(kind=kind)

    def _stamp(self, event: Event) -> Event:
        if type(event) is TurnStarted or type(event) is Interrupted:
            return event
        return msgspec.structs.replace(event, at_s=round(self.time.now_s(), 3))

    async def _do_left(self, command: Doable, left: LeftTurn) -> Event:
        """Do the command that was open when the process died. Its finished parts are not repeated."""
        self._left = None
        now_s = self._clock.now()
        match command:
            case SendRequest(number=number) if left.was_sent:
                self.books.lose(number, fault=LOST_REQUEST)
                return RequestFailed(number=number, fault=LOST_REQUEST, lost=True)
            case RunTools():
                self._ended = set(left.ended)
                below = await begun_below(command.calls, left=left, tools=self._tools, journal=self._around.journal)
                self._begun_before = left.begun - below
                found = await results_of_left(
                    command.calls, left=left, tools=self._tools, clock=self._clock, run=self._means.run
                )
                for planned, result in found:
                    left.unknown += [planned.call] if is_unknown(result) else []
                    await self._record_end(result)
                    self._teller.unanswered.pop(planned.call.id, None)
                    self._tell(CallAnswered(planned.call, result))
                return await self._run_tools(command)
            case Ask():
                return await self._ask_again(command, left, left_s=left.ask_s(command, now_s=now_s))
            case Wait(seconds=seconds):
                return await self._do(msgspec.structs.replace(command, seconds=left.left_of(seconds, now_s=now_s)))
            case _:
                return await self._do(command)

    async def _do(self, command: Doable) -> Event:
        if self._left is not None:
            return await self._do_left(command, self._left)
        match command:
            case SendRequest():
                if self.pen is not None and self.pen.pen.is_handed_over_above:
                    await self.pen.write()
                    with self._resting():
                        await asyncio.get_running_loop().create_future()  # until it is cancelled
                return await self._sender.send(command)
            case RunTools():
                return await self._run_tools(command)
            case PrepareStep():
                return await self._prepare(command)
            case RunScript():
                return await self._run_script(command)
            case Wait(seconds=seconds):
                with self._resting():
                    await sleep(self._clock, seconds=seconds)
                return WaitOver()
            case CheckOutput(json=json):
                checker = self._means.check_output
                problems = () if checker is None else checker(json)
                return OutputChecked(problems=tuple(await problems if inspect.isawaitable(problems) else problems))
            case InspectCalls():
                return await find_facts(
                    command, inspector=self._safety.inspect, clock=self._clock, scrub=self._means.endpoint.scrub
                )
            case RunHooks():
                return await self._hook(command)
            case Ask():
                return await self._ask(command)
            case _:
                assert_never(command)

    def _resting(self) -> contextlib.AbstractContextManager[None]:
        """Inside this block, the turn itself does nothing; only its calls work."""
        activity = self._around.activity
        return contextlib.nullcontext() if activity is None else activity.resting()

    async def _prepare(self, command: PrepareStep) -> StepPrepared:
        await self._teller.enter_step(command.step)
        if self._means.prepare_step is None:
            return StepPrepared()
        prepared = self._means.prepare_step(command)
        return (await prepared if inspect.isawaitable(prepared) else prepared) or StepPrepared()

    async def _hook(self, command: RunHooks) -> HooksRan:
        run = self._safety.run_hooks
        return HooksRan() if run is None else HooksRan(outcomes=tuple(await run(command)))

    async def _ask(self, command: Ask) -> Asked:
        if (elsewhere := await self._asked_elsewhere(command)) is not None:
            return elsewhere
        if self._log is not None and self._log.hears:
            self._log.asks(command)
        began_s, most_s = self.time.now_s(), None if self._turn is None else self._turn.known.spending.pacing.calls_s
        self._ask_over = asyncio.get_running_loop().create_future()
        try:
            asked = await ask(
                command,
                approver=self._safety.approver,
                clock=self._clock,
                path=self._means.path,
                scrub=self._means.endpoint.scrub,
                over=self._ask_over,
                record=self._record_answer,
                origin=self._origin(command),
                most_s=most_s,
            )
        finally:
            self._ask_over = None
        self.time.ended(began_s + (command.deadline_s if most_s is None else max(most_s, command.deadline_s)))
        return asked

    async def _ask_again(self, command: Ask, left: LeftTurn, *, left_s: float) -> Asked:
        """Ask the open asks again, for the rest of their time. If a database measures that time, an answer that it has accepted
        counts, whatever our clock says, and a person who was not asked yet has the full time."""
        if not (open_asks := left.open_asks):
            return Asked(approvals=left.answers)
        command = msgspec.structs.replace(command, asks=open_asks)
        if (asked := await self._asked_elsewhere(command)) is None:
            if left_s <= 0.0:
                given = await self._given_in_time(command, asks=open_asks)
                return Asked(approvals=(*left.answers, *given))
            asked = await self._ask(msgspec.structs.replace(command, deadline_s=left_s))
        return msgspec.structs.replace(asked, approvals=(*left.answers, *asked.approvals))

    async def _asked_elsewhere(self, command: Ask) -> Asked | None:
        """None if nobody is asked elsewhere. Raises JournalFailed if the turn waits for a person without this process."""
        if self.pen is None or self._turn is None or self._safety.approver not in (None, leave_for_later):
            return None
        folder = self._origin(command).folder
        approvals = await self.pen.ask_elsewhere(command.asks, deadline_s=command.deadline_s, folder=folder)
        return None if approvals is None else Asked(approvals=tuple(approvals))

    async def _given_in_time(self, command: Ask, *, asks: Sequence[OneAsk]) -> Sequence[Approval]:
        """The answers to the current asks that came while no process ran the turn."""
        is_below = bool(self._means.path)
        if not asks or (self._safety.approver not in (None, leave_for_later) and not is_below):
            return ()
        return await given_in_time(self.pen, asks, origin=self._origin(command), is_below=is_below)

    def _origin(self, command: Ask) -> AskOrigin:
        assert self._turn is not None, "a turn that asks has begun"
        config = self._turn.known.config
        folder = str(Path.cwd()) if config.policy is None or not config.policy.workspace else config.policy.workspace
        return AskOrigin(turn_id=config.turn_id, step=command.step, folder=folder, session_id=config.session_id)

    async def _run_tools(self, command: RunTools) -> ToolsFinished:
        began: dict[str, float] = {}
        is_watched = self._watchers.are_there

        def on_start(call: ToolCall) -> None:
            if is_watched:
                began[call.id] = self._clock.monotonic()
                self._tell(ToolStarted(call))

        async def before(starting: Sequence[PlannedCall]) -> None:
            if self.pen is not None:
                for planned in starting:
                    if planned.call.id in self._begun_before:  # it was recorded then, and is no progress now
                        continue
                    self.pen.later(ToolsStarted(step=command.step, call_ids=(planned.call.id,)))
            await self._write()

        async def on_finish(result: ToolResult) -> None:
            run = self._tool_run
            failed = None if run is None or not result.is_error else run.failed(result.call_id)
            if failed is not None:
                self._note_failure(failed)  # before its result is safe: then nothing can lose it
            if self.pen is not None and run is not None and len(run.finished) < len(calls):
                await self._record_end(result, children=run.children[self._children_told :])
            self._teller.unanswered.pop(result.call_id, None)
            if failed is not None and self._around.tool_errors == "raise" and not self._interrupted.done():
                self.raised, self._why_raised = failed.error, failed.said
                self.interrupt("tool")
            if is_watched:
                seconds = self._clock.monotonic() - began[result.call_id]
                self._tell(ToolFinished(result, seconds, None if failed is None else failed.error))

        changed = await self._changed(command) if [1 for planned in command.calls if planned.shown] else {}
        done = self._ended | changed.keys()
        calls = tuple([planned for planned in command.calls if planned.call.id not in done])
        self._children_told = 0
        if not calls:
            await self._write()
        settle_s = self._means.settle_s * TOOL_SHARE
        if command.most_s is not None:  # work that tidies up after the deadline takes no more of the answer's time
            settle_s = min(settle_s, self.time.left_after(command.most_s) * ANSWERS_SHARE)
        self._tool_run = ToolRun(
            calls,
            tools=self._tools,
            clock=self._clock,
            on_start=on_start,
            on_finish=on_finish,
            before=before,
            tell=self._tell if is_watched else None,
            settle_s=settle_s,
            whole_bytes=command.whole_bytes,
            most_s=command.most_s,
            around=self._around,
        )
        began_s = self.time.now_s()
        with self._resting():
            await self._tool_run.run()
        results, children = self._not_recorded(self._tool_run)
        self._tool_run = None
        self._ended.clear()
        self._begun_before = frozenset()
        self.time.ended(None if command.most_s is None else began_s + command.most_s)
        return ToolsFinished(results=(*results, *changed.values()), children=children)

    def _take_toolset_note(self, told: WatcherEvent) -> None:
        if isinstance(told, ToolsetNoted) and not self._means.path:
            self.books.ledger.note(told.text)
        self._tell(told)

    def _note_failure(self, failed: FailedCall) -> None:
        """A person is told of it in the run's notes. If the exception is to end the turn, it does so after a crash, too."""
        of = f" (of the sub-agent `{'/'.join(self._means.path)}`)" if self._means.path else ""
        if not failed.is_told:
            self.books.ledger.note(f"{failed.said}{of}")
        if self._around.tool_errors == "raise" and self.pen is not None:
            self.pen.later(Noted(text=failed.said, ends=True))

    def _record_answer(self, approval: Approval) -> "asyncio.Future[None] | None":
        """Record the answer to one of several asks at once: the person who gave it is not asked again. The result says when it is
        recorded, if the journal is busy."""
        if self._is_over or self.pen is None:
            return None
        try:
            return self.pen.append_soon(AskAnswered(approval=approval), failed=self._unwritable)
        except JournalFailed as failed:
            self._unwritable(failed)
            return None

    async def _record_end(self, result: ToolResult, *, children: tuple[ChildReport, ...] = ()) -> None:
        """Record the result of a call at once while others run: then nothing can lose it."""
        if self._is_over or self._turn is None:
            return
        event = self._stamp(ToolEnded(result=result, children=children))
        if self.pen is not None:
            self.pen.later(event)
        self._turn.receive(event)  # in the order of the records, before another call's end is
        self._ended.add(result.call_id)
        self._children_told += len(children)
        try:
            await self._write()
        except JournalFailed as failed:
            self._unwritable(failed)

    def _not_recorded(self, run: ToolRun) -> tuple[tuple[ToolResult, ...], tuple[ChildReport, ...]]:
        """The results, and the spending of children, that have no record of their own."""
        results = run.finished
        if self._ended:
            results = tuple([result for result in results if result.call_id not in self._ended])
        return results, run.children[self._children_told :]

    async def _changed(self, command: RunTools) -> dict[str, ToolResult]:
        """Check the calls that a person allowed once more, as late as possible. That takes a moment, so the records before it are
        written."""
        await self._write()
        means = self._means
        offers = {name: tool.offer for name, tool in self._tools.items()}
        return await find_changed(
            command, inspector=self._safety.inspect, offers=offers, clock=self._clock, scrub=means.endpoint.scrub
        )

    async def _run_script(self, command: RunScript) -> ScriptCalled | ScriptFinished:
        call = command.call
        now_s = self._clock.now()
        if call.id not in self._script_began_s:
            self._script_began_s[call.id] = self._clock.monotonic()
            if self.pen is not None and not command.results:
                self.pen.later(ScriptBegan(call_id=call.id, time=now_s))
            self._tell(ToolStarted(call))
        self._teller.answered_in_program(command)
        began_s = self.time.now_s()
        event = await self._scripts.run(command, ordered_s=self._ordered_s, now_s=now_s)
        self.time.ended(None if command.most_s is None else began_s + command.most_s)
        if isinstance(event, ScriptCalled):
            self._teller.unanswered |= {inner.id: inner for inner in event.calls}
        else:
            seconds = self._clock.monotonic() - self._script_began_s[call.id]
            self._teller.program_ended(call, event, seconds=seconds)
        return event

    def _unwritable(self, failed: JournalFailed) -> None:
        self._unrecorded = str(failed)
        self.interrupt("journal")

    async def _write(self, record: JournalRecord | None = None) -> None:
        """Write this record, and all that wait."""
        if self.pen is not None:
            await (self.pen.write() if record is None else self.pen.append(record))
