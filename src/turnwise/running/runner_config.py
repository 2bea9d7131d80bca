"""What a runner works with: one list, in groups. `Runner` takes it whole, and nothing repeats it."""

import math
import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from turnwise.base.clock import Clock, SystemClock
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.habits import CacheRefusals, Circuits, EndHabits
from turnwise.endpoints.transport import Transport
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import Ledger
from turnwise.journal.turn_writer import Bookkeeper, PriceFinder, TurnJournal
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Approver, approver_below, ask
from turnwise.running.grants import Inspector
from turnwise.running.resumption import LeftTurn
from turnwise.running.run_context import RunAtHand
from turnwise.running.tools import AnswerFor, Around, Tool
from turnwise.running.watcher_events import (
    AskClosed,
    AskOpened,
    Feed,
    Observe,
    ObservedTurn,
    TurnObserver,
    Watch,
)
from turnwise.turn.approvals import Approval, AskOrigin, OneAsk, ResumeTerms
from turnwise.turn.commands import Ask, PrepareStep, RunHooks
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import HookOutcome, StepPrepared
from turnwise.vocab import Message
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits

OutputChecker = Callable[[str], Sequence[str] | Awaitable[Sequence[str]]]
"""What is wrong with an answer's JSON that fits the schema, in words for the model. Runs in the event loop: be quick, or give
something to be awaited."""
StepPreparer = Callable[[PrepareStep], StepPrepared | Awaitable[StepPrepared | None] | None]
HookRunner = Callable[[RunHooks], Awaitable[Sequence[HookOutcome]]]
"""Runs the user's hooks of one point, within their deadlines."""

# A cancelled command settles within half a second (tools.SETTLE_S); after this it is left behind. Promise wait:cancel.
SETTLE_S = 0.9


class Safety(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks at calls before they run: `inspect` finds their facts, `approver` answers asks, `run_hooks` runs the hooks."""

    inspect: Inspector | None = None
    approver: Approver | None = None
    run_hooks: HookRunner | None = None


class EndpointRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint's failures have taught. Whoever runs many turns shares it between them.

    `circuits` know which endpoints to leave alone for a while, `refusals` what an endpoint does not take, `habits` where answers
    have no end mark. `jitter` gives numbers of [0, 1) that spread the waits before retries.
    """

    circuits: Circuits
    refusals: CacheRefusals = msgspec.field(default_factory=CacheRefusals)
    habits: EndHabits = msgspec.field(default_factory=EndHabits)
    jitter: Callable[[], float] = random.random


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Who sees and counts what happens. None of it can harm the turn.

    `watch` sees each event, `feed` the same in batches. Each request is entered in `ledger` (a sub-agent's in its parent's;
    without one each turn has its own), priced by `find_price`. `begins` is given, as a turn begins, what tells the watchers.
    `observe` makes the observer of a turn, and of its sub-agents'.
    """

    watch: Watch | None = None
    feed: Feed | None = None
    ledger: Ledger | None = None
    find_price: PriceFinder | None = None
    begins: Callable[[Watch], object] | None = None
    observe: Observe | None = None


class RunnerMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner works with. `tools` are those with an implementation.

    `limits` bound what one response may take. Sub-agents keep their turns in `journal` where they have no journal of their own.
    Without `recovery` the runner begins with an endpoint that has not failed yet. `prepare_step` is the user's: what it raises is
    raised by `Runner.run`. `path` names the sub-agents that lead to this turn; what is cancelled has `settle_s` to end in. `run`
    is what the contexts of the user's functions show. `answers` has the model answer what a tool's call asks.
    """

    endpoint: Endpoint
    transport: Transport
    tools: Sequence[Tool] = ()
    clock: Clock = msgspec.field(default_factory=SystemClock)
    safety: Safety = Safety()
    recovery: EndpointRecovery | None = None
    observation: Observation = Observation()
    prepare_step: StepPreparer | None = None
    check_output: OutputChecker | None = None
    limits: Limits = DEFAULT_LIMITS
    journal: Journal | None = None
    path: tuple[str, ...] = ()
    settle_s: float = SETTLE_S
    run: RunAtHand | None = None
    answers: AnswerFor | None = None

    def observer_of(
        self, config: TurnConfig, *, given: tuple[Message, ...], ledger: Ledger, is_resumed: bool
    ) -> TurnObserver | None:
        """The observer of a turn that begins, where there is one. `given` is the turn's input."""
        if self.observation.observe is None:
            return None
        return self.observation.observe(
            ObservedTurn(
                config=config,
                input=given,
                path=self.path,
                provider=self.endpoint.profile.name,
                base_url=self.endpoint.base_url,
                scrub=self.endpoint.scrub,
                ledger=ledger,
                clock=self.clock,
                is_resumed=is_resumed,
            )
        )


# What the calls of a turn have around them.


def around_of(
    config: TurnConfig,
    *,
    means: RunnerMeans,
    journal: TurnJournal | None,
    left: LeftTurn | None,
    tell: Watch,
    books: Bookkeeper,
) -> Around:
    """The same for all calls of the turn. `tell` reaches its watchers."""
    return Around(
        turn_id=config.turn_id,
        path=means.path,
        approver=means.safety.approver or approver_below(journal),
        watch=tell,
        ledger=books.ledger,
        journal=means.journal,
        ask_s=config.deadlines.ask_s,
        begun=frozenset() if left is None else left.begun,
        terms=ResumeTerms() if left is None else left.terms_below,
        enter=None if journal is None or journal.lease is None else journal.lease.check,
        activity=None if journal is None or journal.lease is None else journal.lease.activity,
        run=means.run,
        observe=means.observation.observe,
        answers=means.answers,
        put_ask=ToolAsks(
            approver=means.safety.approver,
            policy=config.policy,
            ask_s=config.deadlines.ask_s,
            clock=means.clock,
            path=means.path,
            scrub=means.endpoint.scrub,
            turn_id=config.turn_id,
            tell=tell,
        ).put,
    )


class ToolAsks:
    """Puts asks to `approver`, who has `ask_s` seconds for each. If nobody is there (no approver, a policy that is not attended),
    the policy's `unattended` counts, and without a policy it is a denial. An ask that nobody answers in time is denied."""

    def __init__(
        self,
        *,
        approver: Approver | None,
        policy: Policy | None,
        ask_s: float,
        clock: Clock,
        path: tuple[str, ...],
        scrub: Callable[[str], str],
        turn_id: str,
        tell: Watch,
    ) -> None:
        self._approver = approver if policy is None or policy.attended else None
        self._unattended = "deny" if policy is None else policy.unattended
        self._ask_s, self._clock, self._path, self._scrub, self._tell = ask_s, clock, path, scrub, tell
        self._origin = AskOrigin(turn_id=turn_id, folder="" if policy is None else policy.workspace)

    async def put(self, one: OneAsk, /, *, left_s: float) -> Approval:
        """The answer, or its default (`by="default"`). Left for later is denied: the tool runs now."""
        deadline_s = min(self._ask_s, left_s)
        self._tell(AskOpened(one.call, one.subject, one.options, deadline_s))
        answer = Approval(call_id=one.call.id, verdict="deny", by="failed", text="the call ended before the answer")
        try:
            most_s = None if math.isinf(left_s) else left_s
            answer = await self._answer(one, deadline_s=deadline_s, most_s=most_s)
        finally:
            self._tell(AskClosed(one.call, answer))
        return answer

    async def _answer(self, one: OneAsk, *, deadline_s: float, most_s: float | None) -> Approval:
        default = Approval(call_id=one.call.id, verdict="deny", by="default")
        if self._approver is None:
            return msgspec.structs.replace(default, verdict=self._unattended)
        asked = await ask(
            Ask(step=0, asks=(one,), deadline_s=deadline_s),
            approver=self._approver,
            clock=self._clock,
            path=self._path,
            scrub=self._scrub,
            origin=self._origin,
            most_s=most_s,
        )
        for answer in asked.approvals:
            verdict = "allow" if answer.verdict == "allow" else "deny"
            return msgspec.structs.replace(answer, verdict=verdict, always=False)
        return default
