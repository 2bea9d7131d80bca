"""What a runner works with: one list, in groups. `Runner` takes the whole list, and nothing repeats it."""

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
"""Says what is wrong with an answer whose JSON fits the schema, in words for the model. Runs in the event loop: be quick, or
return an awaitable."""
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
    """What turnwise has learned from an endpoint's failures. A program with many turns shares it between them.

    `circuits` know which endpoints to leave alone for a while, `refusals` what an endpoint does not accept, `habits` where
    answers have no end mark. `jitter` gives numbers of [0, 1) that spread the waits before retries.
    """

    circuits: Circuits
    refusals: CacheRefusals = msgspec.field(default_factory=CacheRefusals)
    habits: EndHabits = msgspec.field(default_factory=EndHabits)
    jitter: Callable[[], float] = random.random


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Who sees and counts what happens. No observer can harm the turn.

    `watch` sees each event, `feed` the same in batches. `ledger` has an entry for each request, with its price by `find_price`; a
    sub-agent's requests go into its parent's ledger. Without `ledger`, each turn has its own. When a turn begins, `begins` gets
    the object that tells the watchers. `observe` makes the observer of a turn and those of its sub-agents.
    """

    watch: Watch | None = None
    feed: Feed | None = None
    ledger: Ledger | None = None
    find_price: PriceFinder | None = None
    begins: Callable[[Watch], object] | None = None
    observe: Observe | None = None


class RunnerMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner works with. `tools` are those with an implementation.

    `limits` bound what one response may take. Sub-agents keep their turns in `journal` if they have no journal of their own.
    Without `recovery`, the runner begins with an endpoint that has not failed yet. `prepare_step` is the user's function:
    `Runner.run` raises what it raises. `path` names the sub-agents that lead to this turn. Cancelled work has `settle_s` to end
    in. `run` is what the contexts of the user's functions show. `answers` lets the model answer a question of a tool's call.
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
        """The observer of a turn that begins, if there is one. `given` is the turn's input."""
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


# What all calls of a turn share.


def around_of(
    config: TurnConfig,
    *,
    means: RunnerMeans,
    journal: TurnJournal | None,
    left: LeftTurn | None,
    tell: Watch,
    books: Bookkeeper,
) -> Around:
    """What all calls of the turn share. `tell` reaches its watchers."""
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
    """Puts asks to `approver`, who has `ask_s` seconds for each. If nobody is there (no approver, or a policy that is not
    attended), the policy's `unattended` is the answer; without a policy the answer is a denial. An ask without an answer in time
    is denied."""

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
        """The answer, or its default (`by="default"`). An ask that is left for later is denied, because the tool runs now."""
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
