"""Sub-agents: a child is a turn of its own inside a tool call of its parent.

It has its own session, tools and step cap, and a share of the parent's limits. Its asks are asked at the root, with the path that
leads to it (promise wait:child). If it is silent for too long or exceeds its time, it is ended; its parent gets what the child
has, and why it ended. Its spending is reported even if it was cancelled.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Generator, Sequence
from decimal import Decimal

import msgspec

from turnwise.base.clock import Clock, Overdue, Watchdog, wait_for_task
from turnwise.errors import ToolFault
from turnwise.rules.limits import Limit, MaxWallTime, Spent
from turnwise.rules.pricing import add
from turnwise.running.approvals import Approver, Asking, put
from turnwise.running.resumption import LeftTurn, call_said, unknown_said
from turnwise.running.runner import Runner
from turnwise.running.tool_output import RaisedBelow
from turnwise.running.tools import ChildOrder
from turnwise.running.watcher_events import (
    AttemptDiscarded,
    ChildSeen,
    RequestFinished,
    RequestStarted,
    ToolFinished,
    ToolStarted,
    Watch,
    WatcherEvent,
)
from turnwise.turn.config import Approval, ChildReport, Deadlines, TurnConfig, TurnResult
from turnwise.vocab import NO_USAGE, StopReason, Usage
from turnwise.wire.profiles import Profile

NO_ANSWER = frozenset(
    {
        StopReason.PROVIDER_FAILED,
        StopReason.WAITING,
        StopReason.JOURNAL_FAILED,
        StopReason.GIVEN_UP,
        StopReason.TOOL_FAILED,  # of a child that ended so before its parent's process died
    }
)
IDLE_S = 300.0
PATIENCE = 25  # passes of the event loop: the deadline of a child's request comes first, and the request is sent again
OUR_SHARE = 0.9  # our part of the time that the parent gives a cancelled tool


def as_child(config: TurnConfig, *, order: ChildOrder) -> TurnConfig:
    """The configuration of the turn that `order` starts: within the parent's grant and time, and attended only if somebody is
    there. An exception of a tool that ends the parent's run ends this one, too."""
    place, policy, deadlines = order.place, config.policy, config.deadlines
    limits: Limit = MaxWallTime(order.timeout_s)
    for one in (order.grant, config.limits):
        limits = limits if one is None else one | limits
    if policy is not None:
        rules = tuple(dict.fromkeys((*policy.rules, *order.terms.rules)))
        attended = policy.attended and order.approver is not None
        policy = msgspec.structs.replace(policy, rules=rules, attended=attended)
    return msgspec.structs.replace(
        config,
        limits=limits,
        tool_errors="raise" if order.tool_errors == "raise" else config.tool_errors,
        max_subagents=_smaller(config.max_subagents, None if place is None else place.subagents),
        policy=policy,
        deadlines=msgspec.structs.replace(deadlines, ask_s=min(deadlines.ask_s, order.ask_s)),
    )


def _smaller(own: int | None, granted: int | None) -> int | None:
    return min([most for most in (own, granted) if most is not None], default=None)


def idle_s_of(deadlines: Deadlines, *, profile: Profile, stream: bool) -> float:
    """How many seconds a child may show nothing: the set value, else IDLE_S, or as long as one of its requests may take to begin,
    to continue, or (without a stream) to end. A request has its own deadline, and that one comes first."""
    if deadlines.child_idle_s is not None:
        return deadlines.child_idle_s
    first_s = profile.first_event_s if deadlines.first_event_s is None else deadlines.first_event_s
    return max(IDLE_S, *((first_s, deadlines.idle_s) if stream else (deadlines.total_s,)))


class TreeSpending(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn and its sub-agents spent. `charged_usd` is None if it is unknown, or if no limit counted it."""

    requests: int
    usage: Usage
    subagents: int = 0
    charged_usd: Decimal | None = None


def spent_with_children(result: TurnResult) -> TreeSpending:
    """What the turn spent, including its sub-agents."""
    requests, usage, charged_usd = result.requests, result.usage, result.charged_usd
    subagents = len(result.children)
    for child in result.children:
        requests, usage = requests + child.requests, usage + child.usage
        subagents += child.subagents
        known_usd = child.charged_usd
        charged_usd = None if charged_usd is None or known_usd is None else add(charged_usd, known_usd)
    return TreeSpending(requests=requests, usage=usage, subagents=subagents, charged_usd=charged_usd)


class Minder:
    """Watches one child for its parent: passes on its events and asks, ends its silence, counts its spending.

    The child's time is a limit of its own turn, which ends by it. If the child waits (for a person's answer, a tool, the time
    before a retry), that wait has a deadline in the child's turn. Such a wait is no silence, so no time counts here.
    """

    def __init__(
        self,
        order: ChildOrder,
        *,
        name: str,
        session_id: str,
        clock: Clock,
        idle_s: float = IDLE_S,
        left: LeftTurn | None = None,
    ) -> None:
        self._order = order
        self._left = left  # where it was when the process that had started it died
        self._name = name
        self._session_id = session_id
        self._clock = clock
        self._idle_s = idle_s
        self._requests = 0
        self._usage: Usage = NO_USAGE
        self._dog: Watchdog | None = None
        self._waits = 0  # open asks below it, and running tools of its own
        self.path = (*order.path, name)
        self.settle_s = order.settle_s * OUR_SHARE

    @property
    def approver(self) -> Approver | None:
        """Puts the child's asks to the root. Its silence meanwhile does not count."""
        return None if self._order.approver is None else self._approve

    async def _approve(self, asking: Asking) -> Sequence[Approval]:
        assert self._order.approver is not None
        self._wait(1)
        try:
            return await put(self._order.approver, asking)
        finally:
            self._wait(-1)

    def _wait(self, more: int) -> None:
        """Count one wait. Sub-agents of the child may ask at the same time, so one answer may not end the waiting."""
        self._waits += more
        self._expect()

    def _expect(self, *, later_s: float = 0.0) -> None:
        if self._dog is None:
            return
        if self._waits:
            self._dog.pause()
        else:
            self._dog.expect("sign of life", within_s=self._idle_s + later_s)

    @property
    def watch(self) -> Watch:
        return self._saw

    def _saw(self, seen: WatcherEvent) -> None:
        match seen:
            case ToolStarted():
                self._wait(1)
            case ToolFinished():
                self._wait(-1)
            case AttemptDiscarded(retry_in_s=retry_in_s):
                self._expect(later_s=retry_in_s)
            case RequestStarted():
                self._expect()
            case _ if self._dog is not None:
                self._dog.renew()
            case _:
                pass
        self._count(seen)
        if self._order.watch is not None:
            inner = seen if isinstance(seen, ChildSeen) else ChildSeen(self._order.call.id, self.path, seen)
            self._order.watch(inner)

    def _count(self, seen: WatcherEvent) -> None:
        """Count what was spent, also by its own sub-agents: it counts if the child does not come to an end."""
        match seen:
            case RequestStarted():
                self._requests += 1
            case RequestFinished(sent=False):
                self._requests -= 1
            case RequestFinished(response=response) if response is not None and response.usage is not None:
                self._usage += response.usage
            case ChildSeen(seen=inner):
                self._count(inner)
            case _:
                pass

    def ended(self, result: TurnResult) -> str:
        """The answer of a child that ended before its parent's process died. Raises as `run` does."""
        self._report(result)
        return self._said(result, stopped="")

    async def run(self, runner: Runner, turn: Awaitable[TurnResult]) -> str:
        """The child's answer, or what it has and why it ended. Raises ToolFault if it has nothing to report, and
        RaisedBelow if an exception of a tool has ended it."""
        task = asyncio.ensure_future(turn)
        stopped = ""
        result: TurnResult | None = None
        try:
            try:
                with self._ends_in_order(runner):
                    async with Watchdog(self._clock, total_s=None, patience=PATIENCE) as dog:
                        self._dog = dog
                        self._expect()
                        result = await asyncio.shield(task)
            except Overdue as overdue:
                stopped = f"it was stopped: {overdue}"
                self._dog = None
                runner.interrupt("deadline")
                await wait_for_task(task, clock=self._clock, timeout_s=self.settle_s)
                result = _result_of(task)
        except Exception:  # a caller's mistake, or a bug: the spending counts all the same
            self._report(None)
            raise
        except asyncio.CancelledError:
            if self._order.leaves():
                task.cancel()
            else:
                runner.interrupt("cancel")
            if not await wait_for_task(task, clock=self._clock, timeout_s=self.settle_s):
                task.cancel()
            self._report(_result_of(task))
            raise
        finally:
            self._dog = None
        if result is None:
            task.cancel()
        self._report(result)
        if result is None:
            raise ToolFault(f"the sub-agent `{self._name}` did not end in time and was left behind")
        if runner.raised is not None:
            raise RaisedBelow(runner.raised)
        return self._said(result, stopped=stopped)

    @contextlib.contextmanager
    def _ends_in_order(self, runner: Runner) -> Generator[None]:
        """If the parent is the first to find that its time is up, the child's time is up too, and the child ends in good
        order."""
        over = self._order.over

        def end(_: object) -> None:
            runner.time_is_up()

        if over is not None:
            over.add_done_callback(end)
        try:
            yield
        finally:
            if over is not None:
                over.remove_done_callback(end)

    def _report(self, result: TurnResult | None) -> None:
        """Report what it spent, including its own children."""
        if result is not None and self._order.ended is not None:
            self._order.ended(result)
        seen = TreeSpending(requests=self._requests, usage=self._usage)
        spent = seen if result is None else spent_with_children(result)
        self._order.report(
            ChildReport(
                call_id=self._order.call.id,
                session_id=self._session_id,
                stop_reason=None if result is None else result.stop_reason,
                requests=spent.requests,
                usage=spent.usage,
                charged_usd=spent.charged_usd,
                subagents=spent.subagents,
                also_spent=Spent() if result is None else result.also_spent,
                unknown=self._unknown(result),
            )
        )

    def _unknown(self, result: TurnResult | None) -> tuple[str, ...]:
        """The calls of unknown outcome: the sub-agent's own, and those of its sub-agents."""
        own = [] if self._left is None else [call_said(call) for call in self._left.unknown]
        children = () if result is None else result.children
        return (*own, *[call for child in children for call in child.unknown])

    def _said(self, result: TurnResult, *, stopped: str) -> str:
        unknown = self._unknown(result)
        beware = f"\n\n{unknown_said(unknown)}" if unknown else ""
        if result.complete and not stopped:
            return f"{result.text}{beware}"
        why = stopped or _ended(result)
        said = f"The sub-agent `{self._name}` did not finish ({why}). What it has:\n\n{result.text}{beware}"
        if result.stop_reason in NO_ANSWER or stopped:
            raise ToolFault(said)
        return said


def _ended(result: TurnResult) -> str:
    if result.stop_reason is StopReason.WAITING:
        names = ", ".join(sorted({f"`{call.name}`" for call in result.pending}))
        return f"it waits for {names}, which nobody can answer for it"
    if result.stop_reason is StopReason.ANSWERED and result.why_incomplete:
        return result.why_incomplete
    return f"stop reason: {result.stop_reason}"


def _result_of(task: "asyncio.Future[TurnResult]") -> TurnResult | None:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    return task.result()
