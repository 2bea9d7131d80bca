"""Tools that can run, and the running of all calls of a step: together, each within its deadline, each with one result."""

import asyncio
import contextlib
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import ClassVar, Literal, cast

import msgspec

from turnwise.base.activity import Activity, OpenCalls
from turnwise.base.clock import Clock, Timer, wait_for_task
from turnwise.base.threads import in_thread, is_async
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import Ledger
from turnwise.rules.limits import Limit
from turnwise.rules.permissions import PLAN_ONLY, PermissionRule
from turnwise.rules.reservations import Place
from turnwise.running.approvals import Approver
from turnwise.running.run_context import (
    CallTerms,
    Inspector,
    RunAtHand,
    context_of,
    giving,
    is_planning,
    judged_paths,
    judged_programs,
)
from turnwise.running.tool_output import (
    FailedCall,
    cancelled_itself,
    class_name,
    error_result,
    failure_of,
    log_failure,
    result_of,
    shown_result,
)
from turnwise.running.watcher_events import Observe, Watch, WatcherEvent
from turnwise.running.working_call import (
    AskPutter,
    CallAtWork,
    CallTimer,
    ModelAnswer,
    ModelQuestion,
    OwnModel,
    giving_model,
    telling,
    tells_of,
)
from turnwise.turn.config import ChildReport, ResumeTerms, ToolErrors, ToolOffer, TurnResult
from turnwise.turn.events import PlannedCall
from turnwise.turn.outcomes import NO_TIME, TURNS_TIME
from turnwise.vocab import HintedFields, ToolCall, ToolResult

# What became of a call whose process has died, by the tool's own `reconcile`.


Reconcile = Callable[[dict[str, object]], object]
"""Takes a call's arguments and tells what became of the call: its result, or None if it did not happen. If it raises, the outcome
is unknown. It changes nothing."""

MOST_S = 30.0
RECONCILE_THREAD = "turnwise-reconcile"


class OutcomeUnknown(Exception):
    """`reconcile` could not tell."""


async def reconciled(reconcile: Reconcile, planned: PlannedCall, *, key: str, clock: Clock) -> ToolResult | None:
    """The call's result; None if it has not happened. Raises OutcomeUnknown."""
    call = planned.call
    arguments: dict[str, object] = (
        {"input": planned.arguments}
        if call.free_form
        else msgspec.json.decode(planned.arguments, type=dict[str, object])
    )
    with CallTerms(seconds=None, computes=False, call=key), judged_paths(planned.paths or None):
        task = asyncio.create_task(_reconcile(reconcile, arguments, name=call.name), name=f"reconcile {call.name}")
    if not await wait_for_task(task, clock=clock, timeout_s=min(planned.timeout_s, MOST_S)):
        task.cancel()
        raise OutcomeUnknown
    said = task.result()
    if isinstance(said, OutcomeUnknown):
        raise said
    return None if said is None else result_of(call, said)


async def _reconcile(reconcile: Reconcile, arguments: dict[str, object], *, name: str) -> object:
    """Raises nothing but a cancellation, because it is foreign code."""

    def here() -> object:
        try:
            return reconcile(arguments)
        except BaseException as error:  # noqa: BLE001 (what it raises says that it does not know)
            return _unknown(error, name=name)

    try:
        if is_async(reconcile):
            said = reconcile(arguments)
        else:
            said = await in_thread(here, name=RECONCILE_THREAD)
        return await cast("Awaitable[object]", said) if inspect.isawaitable(said) else said
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _unknown(error, name=name)  # it awaited what others had cancelled
    except BaseException as error:  # noqa: BLE001 (as above)
        return _unknown(error, name=name)


def _unknown(error: BaseException, *, name: str) -> OutcomeUnknown:
    log_failure(f"`reconcile` of the tool `{name}` raised {class_name(error)}: the outcome stays unknown", error=error)
    return OutcomeUnknown()


# How long a cancelled tool may tidy up before it is left behind. Cancelling a turn settles within a second (wait:cancel).
SETTLE_S = 0.5

LARGE_ITEMS = (
    1000  # of a container from an async tool: from this size on, turning it into JSON is worth a thread (0.1 ms)
)

THREAD = "turnwise-tool"


Arguments = dict[str, object]

# asyncio holds tasks weakly; something must hold a task that ignores its cancellation until it ends.
_abandoned: set[asyncio.Task[ToolResult | None]] = set()


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a sub-agent is started with.

    - `grant` is its share of the parent's limits (None: nothing limits it); `place` is its part of the bounds on all
      sub-agents.
    - `timeout_s`: seconds that it may take. `settle_s`: seconds that it has to end in after it is cancelled. No ask
      below it waits longer than `ask_s` seconds.
    - `path` names the sub-agents that lead to the parent. `approver`, `watch`, `ledger` and `journal` are the parent's.
    - `report` is told what the sub-agent spent, in every case. `over` is set if the parent finds first that the time is
      up.
    - `resumes`: a dead process may have started it; it continues there. `terms` are those of the caller that resumed
      the turn.
    - `above` is the parent's run. `observe` makes observers for those below it that have none of their own.
    - `ended` is given the sub-agent's result, if it has one.
    - `leaves`: whether a cancelled task leaves the turns of the parent and of the sub-agent, to be resumed later.
    - `tool_errors` is the parent's: with `raise`, an exception of a sub-agent's tool ends both runs.
    """

    call: ToolCall
    arguments: Arguments
    grant: Limit | None
    timeout_s: float
    settle_s: float
    parent_turn: str
    path: tuple[str, ...]
    approver: Approver | None
    watch: Callable[[WatcherEvent], object] | None
    report: Callable[[ChildReport], None]
    ledger: Ledger | None = None
    journal: Journal | None = None
    place: Place | None = None
    ask_s: float = math.inf
    over: "asyncio.Future[None] | None" = None
    resumes: bool = False
    terms: ResumeTerms = ResumeTerms()
    above: RunAtHand | None = None
    observe: Observe | None = None
    ended: Callable[[TurnResult], None] | None = None
    leaves: Callable[[], bool] = lambda: False
    tool_errors: ToolErrors = "told"


AnswerFor = Callable[[ChildOrder, ModelQuestion], Awaitable[ModelAnswer]]
"""Lets the run's own model answer a question of a call, as a sub-agent. Raises NoAnswer."""


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What all calls of a step share. All but `enter`, `activity`, `run` and `put_ask` is for calls that are sub-agents.

    `enter` is called in the last moment before a call starts, in its own thread: a process that was frozen may end there.
    """

    turn_id: str = ""
    path: tuple[str, ...] = ()
    approver: Approver | None = None
    watch: Callable[[WatcherEvent], object] | None = None
    ledger: Ledger | None = None
    journal: Journal | None = None
    ask_s: float = math.inf
    begun: frozenset[str] = frozenset()  # ids of calls that a dead process may have started
    terms: ResumeTerms = ResumeTerms()
    enter: Callable[[], None] | None = None
    activity: Activity | None = None
    put_ask: AskPutter | None = None  # asks a person what a tool asks
    run: RunAtHand | None = None  # what tools with a context see, and whose deps sub-agents may have
    observe: Observe | None = None
    tool_errors: ToolErrors = "told"
    answers: AnswerFor | None = None  # for tools whose calls may ask the model
    leaves: Callable[[], bool] = lambda: False


class CallJudging(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's own rules for the verdict on its calls, beside its agent's policy.

    `inspect` finds the facts of its calls. `workspace` is the real path of the folder that it works in. `rules` come before the
    policy's own. `asked`: turnwise asks about each call, whatever the policy's rules allow. `without_policy`: whether the
    defaults judge the calls if the agent has no policy; `asked`: only if the agent has an approver, or tools that are always
    judged.
    """

    inspect: Inspector | None = None
    workspace: str = ""
    rules: tuple[PermissionRule, ...] = ()
    asked: bool = False
    without_policy: Literal["never", "asked", "always"] = "never"


class Tool(msgspec.Struct, frozen=True, kw_only=True, metaclass=HintedFields):
    """A tool with its implementation, for programs that make tools themselves. `@tool` is simpler.

    - `function` takes the decoded arguments (free-form tools: `{"input": text}`). It returns text, a value that JSON can
      carry, a `Text` or `File`, a list of these, or an awaitable. A plain function runs in a thread of its own, so it may
      block. None makes a client-side tool, which your program runs.
    - `start` takes the place of `function` in a sub-agent's tool.
    - `grace_s`: seconds that a call gets after its time is up, if it can still end with what it has.
    - `keeps` returns the folder where the tool has put texts that are too long to show. None: there is none.
    - `reconcile` says after a crash what became of a call.
    - `takes_context`, `deps`: whether the function needs the `RunContext`, and the class of its deps.
    - `judging`: what turnwise needs beside the policy to judge a call.
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {"probe": "reconcile"}

    offer: ToolOffer
    function: Callable[[Arguments], object] | None = None
    start: Callable[[ChildOrder], Awaitable[object]] | None = None
    grace_s: float = 0.0
    keeps: Callable[[], Path | None] | None = None
    reconcile: Reconcile | None = None
    takes_context: bool = False
    deps: type | None = None
    judging: CallJudging | None = None

    @property
    def name(self) -> str:
        """The tool's name, as the model sees it."""
        return self.offer.spec.name

    @property
    def goes_again(self) -> bool:
        """Whether a call that may have run can be repeated: it does no harm, or it continues where it was."""
        return self.offer.idempotent or self.start is not None


class CallTime(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds that a tool has: its own, or those that the turn's time leaves it, if these are fewer (`is_turns`).

    `told_s` is what a tool with a deadline of its own is told; None: it has as long as it asks for.
    """

    seconds: float
    grace_s: float = 0.0
    told_s: float | None = None
    is_turns: bool = False

    @classmethod
    def of(cls, timeout_s: float, *, left_s: float, grace_s: float) -> "CallTime":
        if timeout_s + grace_s < left_s:
            return cls(seconds=timeout_s, grace_s=grace_s)
        # A tool's grace comes out of its own time: the time after that belongs to the answer.
        return cls(seconds=left_s, told_s=left_s - min(grace_s, left_s / 10), is_turns=True)

    def said(self, *, stopped: bool) -> str:
        if not self.is_turns:
            return f"timed out after {self.seconds:g} s" + (" and was stopped" if stopped else ", may still be running")
        ended = "stopped" if stopped else "given up, and may still be running,"
        return f"{ended} after {round(self.seconds, 2):g} s: {TURNS_TIME}. It may have run in part"


async def _nothing(_: object) -> None:
    return None


class ToolRun:
    """The running of one step's calls. `await run()` once; if that is cancelled, `finished` holds the results so far. `before`
    gets the calls that are about to run, before any of them starts. `whole_bytes` and `most_s` are those of `RunTools`; `tell`
    gets the events of running tools."""

    def __init__(
        self,
        calls: tuple[PlannedCall, ...],
        *,
        tools: Mapping[str, Tool],
        clock: Clock,
        on_start: Callable[[ToolCall], None],
        on_finish: Callable[[ToolResult], Awaitable[None]] = _nothing,
        before: Callable[[Sequence[PlannedCall]], Awaitable[None]] = _nothing,
        tell: Watch | None = None,
        settle_s: float = SETTLE_S,
        whole_bytes: int | None = None,
        most_s: float | None = None,
        around: Around = Around(),  # noqa: B008 (frozen)
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._clock = clock
        self._before = before
        self._on_start = on_start
        self._on_finish = on_finish
        self._tell = tell
        self._settle_s = settle_s
        self._result_of = functools.partial(shown_result, whole_bytes=whole_bytes)
        self._computes = whole_bytes is not None
        self._around = around
        self._end_s = None if most_s is None else clock.monotonic() + most_s
        self._at_hand: list[Callable[[], None]] = []  # the ends of the calls that this run must end
        self._children: list[ChildReport] = []
        self._over: asyncio.Future[None] | None = None  # the time of the sub-agents
        self._at_work = 0  # sub-agents at work
        self._results: dict[int, ToolResult] = {}
        self._started: list[str] = []
        self._failed: dict[str, FailedCall] = {}

    def failed(self, call_id: str) -> FailedCall | None:
        """Why a call has failed, if its result is that its tool raised. It is told once."""
        return self._failed.pop(call_id, None)

    @property
    def finished(self) -> tuple[ToolResult, ...]:
        """The results of the calls that have ended, in call order."""
        return tuple([self._results[place] for place in sorted(self._results)])

    @property
    def children(self) -> tuple[ChildReport, ...]:
        """What the sub-agents that have ended spent."""
        return tuple(self._children)

    @property
    def started(self) -> tuple[str, ...]:
        """The ids of the calls that have begun."""
        return tuple(self._started)

    def end_in_time(self) -> bool:
        """The turn's time is up, and the calls' time was up before: stop tools and let sub-agents end in good order. False:
        nothing here has a deadline before the turn's."""
        if self._over is not None and self._at_work and not self._over.done():
            self._over.set_result(None)
        for end in tuple(self._at_hand):
            end()
        return self._end_s is not None or self._at_work > 0

    async def run(self) -> tuple[ToolResult, ...]:
        """Neighbours run together. An exclusive call runs alone, after the calls before it and before the calls after it.

        Cancelling this cancels all running calls, gives each `settle_s` to tidy up, and then raises CancelledError. Calls count
        as open before their beginning is recorded: if the turn were handed over in between, it would not know what became of
        them.
        """
        if len(self._calls) == 1:  # a single call needs no group and no further task
            with self._open(1):
                await self._before(self._calls)
                await self._run_one(0, self._calls[0])
            return self.finished
        for exclusive, batch in groupby(enumerate(self._calls), key=lambda placed: placed[1].exclusive):
            if exclusive:
                for place, planned in batch:
                    with self._open(1):
                        await self._before((planned,))
                        await self._run_one(place, planned)
            else:
                batch = tuple(batch)
                with self._open(len(batch)) as calls:
                    await self._before([planned for _, planned in batch])
                    async with asyncio.TaskGroup() as group:
                        for place, planned in batch:
                            group.create_task(self._run_one(place, planned, calls=calls))
        return self.finished

    def _open(self, number: int) -> AbstractContextManager[OpenCalls | None]:
        activity = self._around.activity
        return nullcontext() if activity is None else activity.calls(number)

    async def _run_one(self, place: int, planned: PlannedCall, *, calls: OpenCalls | None = None) -> None:
        left_s = math.inf if self._end_s is None else max(self._end_s - self._clock.monotonic(), 0.0)
        if left_s <= 0.0:
            self._results[place] = error_result(planned.call, NO_TIME)
            return
        self._started.append(planned.call.id)
        self._on_start(planned.call)
        tool = self._tools.get(planned.call.name)
        if tool is not None and tool.start is not None:
            self._at_work += 1
            try:
                child = self._child(tool.start, planned, timeout_s=min(planned.timeout_s, left_s))
                result = await self._within_deadline(child, planned)
            finally:
                self._at_work -= 1
        elif tool is None or tool.function is None:
            result = error_result(planned.call, f"there is no tool `{planned.call.name}` here")
        elif (
            is_planning()
            and tool.offer.effect not in ("none", "read")
            and not (planned.unasked or planned.keeps == "folder")
        ):
            result = error_result(planned.call, f"`{planned.call.name}` was not run: {PLAN_ONLY}")
        else:
            time = CallTime.of(planned.timeout_s, left_s=left_s, grace_s=tool.grace_s)
            run = self._within_deadline if self._tell is None else self._run_telling
            if tool.takes_context:
                run = self._run_with_context
            if tool.offer.samples:
                run = self._run_with_model
            if planned.paths or planned.programs is not None or planned.unasked or planned.keeps:
                # the code that opens a path checks again whether it still leads where it was judged to lead
                programs = judged_programs(planned.programs, unasked=planned.unasked, keeps=planned.keeps)
                with judged_paths(planned.paths or None), programs:
                    result = await run(tool.function, planned, time=time)
            else:
                result = await run(tool.function, planned, time=time)
        self._results[place] = result
        await self._on_finish(result)
        if calls is not None:
            calls.ended()

    async def _run_with_context(
        self, function: Callable[[Arguments], object], planned: PlannedCall, *, time: CallTime
    ) -> ToolResult:
        """Like `_run_telling`, and the tool finds the context of its call (`context_at_hand`)."""
        tell, around = self._tell, self._around
        with nullcontext() if tell is None else tells_of(planned.call, tell, clock=self._clock):
            heard = None if tell is None else telling()
            work = CallAtWork(planned.call, arguments=planned.arguments, put=around.put_ask, telling=heard)
            try:
                with giving(functools.partial(context_of, around.run, call=planned.call, work=work)):
                    return await self._within_deadline(function, planned, time=time, at_work=work)
            finally:
                work.leave()

    async def _run_with_model(
        self, function: Callable[[Arguments], object], planned: PlannedCall, *, time: CallTime
    ) -> ToolResult:
        """Like `_run_with_context`, and the tool can ask the run's own model (`own_model.model_at_hand`)."""
        answers = self._around.answers

        async def start(
            question: ModelQuestion, limit: Limit | None, pay: Callable[[ChildReport], None]
        ) -> ModelAnswer:
            def report(spent: ChildReport) -> None:
                pay(spent)
                self._children.append(spent)

            assert answers is not None, "without it nothing is started"
            order = self._order(planned, arguments={}, timeout_s=time.seconds)
            return await answers(msgspec.structs.replace(order, grant=limit, report=report), question)

        model = OwnModel(
            None if answers is None else start,
            grant=planned.grant,
            place=planned.place,
            most=self._tools[planned.call.name].offer.samples,
            clock=self._clock,
        )
        with giving_model(model):
            return await self._run_with_context(function, planned, time=time)

    async def _run_telling(
        self, function: Callable[[Arguments], object], planned: PlannedCall, *, time: CallTime | None = None
    ) -> ToolResult:
        """Like `_within_deadline`, and the tool can report about its call (`progress.telling`)."""
        assert self._tell is not None
        with tells_of(planned.call, self._tell, clock=self._clock):
            return await self._within_deadline(function, planned, time=time)

    def _child(
        self, start: Callable[[ChildOrder], Awaitable[object]], planned: PlannedCall, *, timeout_s: float
    ) -> Callable[[Arguments], object]:
        over = self._over = self._over or asyncio.get_running_loop().create_future()

        async def run(arguments: Arguments) -> object:
            order = self._order(planned, arguments=arguments, timeout_s=timeout_s)
            resumes = planned.call.id in self._around.begun
            return await start(msgspec.structs.replace(order, over=over, resumes=resumes))

        return run

    def _order(self, planned: PlannedCall, *, arguments: Arguments, timeout_s: float) -> ChildOrder:
        around = self._around
        return ChildOrder(
            call=planned.call,
            arguments=arguments,
            grant=planned.grant,
            place=planned.place,
            timeout_s=timeout_s,
            settle_s=self._settle_s,
            parent_turn=around.turn_id,
            path=around.path,
            approver=around.approver,
            watch=around.watch,
            report=self._children.append,
            ledger=around.ledger,
            journal=around.journal,
            ask_s=around.ask_s,
            terms=around.terms,
            above=around.run,
            observe=around.observe,
            leaves=around.leaves,
            tool_errors=around.tool_errors,
        )

    async def _within_deadline(
        self,
        function: Callable[[Arguments], object],
        planned: PlannedCall,
        *,
        time: CallTime | None = None,
        at_work: CallAtWork | None = None,
    ) -> ToolResult:
        """The time of a call that is `at_work` stands still while the call asks a person. Without `time`, the call keeps its
        deadline itself, as a sub-agent does: two clocks would have no order. The grace begins when turnwise sees that the
        deadline has passed, however late that is."""
        over: asyncio.Future[ToolResult | None] = asyncio.get_running_loop().create_future()
        key = f"{self._around.turn_id}/{planned.call.id}"
        with CallTerms(seconds=None if time is None else time.told_s, computes=self._computes, call=key):
            task = asyncio.create_task(self._call_into(over, function, planned), name=f"tool {planned.call.name}")
        timer: Timer | None = None

        def end() -> None:
            if not over.done():
                over.set_result(None)

        def begin_grace(grace_s: float) -> None:
            nonlocal timer
            timer = self._clock.call_later(grace_s, end)

        end_first = end
        if at_work is not None and time is not None:
            timer = at_work.timer = CallTimer(self._clock, seconds=planned.timeout_s, end_s=self._end_s, over=end)
            end_first = timer.end_by_turn
            self._at_hand.append(end_first)
        elif time is not None:
            ends = functools.partial(begin_grace, time.grace_s) if time.grace_s else end
            timer = self._clock.call_later(time.seconds, ends)
            if time.is_turns:
                self._at_hand.append(end)
        try:
            result = await over
        except asyncio.CancelledError:
            if await self._stop(task) and not task.cancelled() and (late := task.result()) is not None:
                self._results[self._calls.index(planned)] = late  # it ended in good order, and its effect is known
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if end_first in self._at_hand:
                self._at_hand.remove(end_first)
        if time is None or result is not None:
            assert result is not None, "what keeps its deadline itself has a result"
            return result
        if isinstance(timer, CallTimer):
            time = CallTime(seconds=timer.passed_s if timer.is_turns else planned.timeout_s, is_turns=timer.is_turns)
        stopped = await self._stop(task) and is_async(function)  # a thread cannot be stopped
        return error_result(planned.call, time.said(stopped=stopped))

    async def _call_into(
        self,
        over: asyncio.Future[ToolResult | None],
        function: Callable[[Arguments], object],
        planned: PlannedCall,
    ) -> ToolResult | None:
        """The call's own task says that it is over: waiting for its end would take one more pass of the event loop. None: it was
        stopped."""
        try:
            result = await self._call(function, planned)
        except asyncio.CancelledError as error:  # nothing else can be raised here
            if over.done():
                return None
            result = cancelled_itself(planned.call, error)
        if not over.done():
            if isinstance(result, FailedCall):
                self._failed[planned.call.id] = result
                result = result.result
            over.set_result(result)
        return result.result if isinstance(result, FailedCall) else result

    async def _stop(self, task: asyncio.Task[ToolResult | None]) -> bool:
        """Cancel the task and wait a moment; true if it has ended."""
        task.cancel()
        if await wait_for_task(task, clock=self._clock, timeout_s=self._settle_s):
            return True
        _abandoned.add(task)
        task.add_done_callback(_abandoned.discard)
        return False

    async def _call(self, function: Callable[[Arguments], object], planned: PlannedCall) -> ToolResult | FailedCall:
        """Run the function to its result. Raises nothing but CancelledError: a tool's exception is a result."""
        call = planned.call
        try:
            arguments: Arguments = {"input": planned.arguments} if call.free_form else _decode(planned.arguments)
            if is_async(function):
                if self._around.enter is not None:
                    self._around.enter()
                value = function(arguments)
            else:
                value = await in_thread(functools.partial(self._call_here, function, arguments, call), name=THREAD)
            if inspect.isawaitable(value):
                value = await cast("Awaitable[object]", value)
            if isinstance(value, ToolResult | FailedCall):
                return value
            if _is_large(value):  # a model's own serialiser may be slow, and other work waits for the loop
                return await in_thread(functools.partial(self._result_of, call, value), name=THREAD)
            return self._result_of(call, value)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return cancelled_itself(call, error)
        except BaseException as error:  # noqa: BLE001 (see `failure_of`)
            # After a second Ctrl-C the loop is closed, and Python ends what it still held: that is no fault of the tool.
            return failure_of(call, error) if _is_in_loop() else error_result(call, f"`{call.name}` was thrown away")

    def _call_here(self, function: Callable[[Arguments], object], arguments: Arguments, call: ToolCall) -> object:
        """In the tool's own thread: its result, also made there, or what must be awaited for it. Raises nothing."""
        try:
            if self._around.enter is not None:
                self._around.enter()
            value = function(arguments)
            return value if inspect.isawaitable(value) else self._result_of(call, value)
        except asyncio.CancelledError as error:
            return cancelled_itself(call, error)
        except BaseException as error:  # noqa: BLE001 (see `failure_of`)
            return failure_of(call, error)


def _is_in_loop() -> bool:
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop().is_running()
    return False


def _is_large(value: object) -> bool:
    return isinstance(value, list | tuple | dict | set | frozenset) and len(cast("list[object]", value)) > LARGE_ITEMS


_decode = msgspec.json.Decoder(Arguments).decode
