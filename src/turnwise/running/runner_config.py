"""What a runner works with: one list, in groups. `Runner` takes it whole, and nothing repeats it."""

import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from turnwise.base.clock import Clock, SystemClock
from turnwise.endpoints.cache_refusals import CacheRefusals
from turnwise.endpoints.circuits import Circuits
from turnwise.endpoints.end_habits import EndHabits
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Transport
from turnwise.journal.ledger import Ledger
from turnwise.journal.turn_ledger import PriceFinder
from turnwise.running.approvals import Approver
from turnwise.running.fact_finding import Inspector
from turnwise.running.observers import Observe, ObservedTurn, TurnObserver
from turnwise.running.run_context import RunAtHand
from turnwise.running.tools import AnswerFor, Tool
from turnwise.running.watcher_events import Feed, Watch, Watchers
from turnwise.turn.commands import PrepareStep, RunHooks
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import HookOutcome, StepPrepared
from turnwise.vocab import Message
from turnwise.wire.limits import DEFAULT_LIMITS, Limits

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

    `limits` bound what one response may take. Without `recovery` the runner begins with an endpoint that has not failed yet.
    `prepare_step` is the user's: what it raises is raised by `Runner.run`. `path` names the sub-agents that lead to this turn;
    what is cancelled has `settle_s` to end in. `run` is what the contexts of the user's functions show. `answers` has the model
    answer what a tool's call asks.
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


def watchers_of(observation: Observation, *, observer: TurnObserver | None) -> Watchers:
    """All that are told what happens in a turn."""
    inner = None if observer is None else observer.see
    return Watchers(observation.watch, feed=observation.feed, inner=inner)
