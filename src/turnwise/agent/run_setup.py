"""What a run does before its turn begins: it opens its toolsets, reads prices, and reserves its part of a budget."""

import asyncio
import contextlib
import os
from collections.abc import Generator, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict, cast

import msgspec

from turnwise.agent.agent_options import (
    GROUP_OF,
    Model,
    ModelLike,
    ObservationOptions,
    RecoveryOptions,
    SafetyOptions,
    StepOptions,
    as_model,
    check_groups,
    check_names,
    check_plain,
    check_values,
    of_endpoint,
    read_settings,
)
from turnwise.agent.agent_setup import AgentOptions, AgentSetup, hinting, read_policy
from turnwise.agent.budgets import Budget, Reservation
from turnwise.agent.models import with_prices
from turnwise.agent.run_input import Instruction, check_history
from turnwise.agent.schemas import OutputCheck
from turnwise.agent.tools import ToolLike, Toolset
from turnwise.agent.toolsets import ask_all, holding, listening, name_of, read_one_tool
from turnwise.endpoints.transport import Transport
from turnwise.errors import CallerError, UnknownOption
from turnwise.journal.budgets import BudgetRun
from turnwise.journal.journal import Journal
from turnwise.journal.session_rows import read_labels
from turnwise.rules.limits import Limit, counts_cost
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permission_paths import escape_pattern
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.rules.reservations import least_of
from turnwise.running.approvals import Approver
from turnwise.running.run_context import Inspector, variable_of_run
from turnwise.running.runner_config import StepPreparer
from turnwise.running.tools import CallJudging, ChildOrder, Tool
from turnwise.running.watcher_events import Watch
from turnwise.settings.options import RunSettings, rows_from
from turnwise.turn.config import Approval, ResumeTerms, ToolErrors, TurnConfig
from turnwise.turn.events import PlannedCall
from turnwise.vocab import Message, Settings, ToolChoice

# What a turn of an agent begins with: the tools that its toolsets offer now, and the rules that tools bring for their calls.


NO_POLICY = (
    "the calls of `{name}` are `approved(...)`, and nobody can be asked: give the agent "
    '`policy=Policy(attended=True), safety={{"approver": ...}}`'
)


async def with_open_toolsets(setup: AgentSetup, *, stack: contextlib.AsyncExitStack, has_approver: bool) -> AgentSetup:
    """The same setup with the tools of its toolsets, which are open as long as `stack` is. `has_approver`: somebody answers the
    asks of the run. Raises CallerError if a toolset fails, or if two tools have the same name."""
    await stack.enter_async_context(opened(setup))
    notes = listening(setup.toolsets, stack=stack)
    offered = await ask_all(setup.toolsets, clock=setup.clock, ask_s=setup.config.deadlines.toolset_s)
    owners = {one.name: "`tools` of the agent" for one in setup.tools}
    tools = list(setup.tools)
    for number, (toolset, given) in enumerate(zip(setup.toolsets, offered, strict=True), start=1):
        owner = f"toolset {number} (`{name_of(toolset)}`)"
        for one in [read_one_tool(one) for one in given]:
            if one.name in owners:
                raise CallerError(
                    f"two tools are called `{one.name}`: one of {owners[one.name]}, one of {owner}. "
                    f'Give the toolset as `prefixed(toolset, "...")`'
                )
            owners[one.name] = owner
            tools.append(one)
    furnished = msgspec.structs.replace(setup, tools=tuple(tools), toolsets=(), is_unfurnished=False, notes=notes)
    return judged(furnished, has_approver=has_approver)


def opened(setup: AgentSetup) -> contextlib.AbstractAsyncContextManager[None]:
    """Inside this block, its toolsets are open."""
    return holding(setup.toolsets, clock=setup.clock, open_s=setup.config.deadlines.toolset_s)


def judged(setup: AgentSetup, *, has_approver: bool) -> AgentSetup:
    """The same setup with a policy and an inspector that know the rules of its tools. Raises CallerError if calls need a person's
    answer and nobody can be asked."""
    bringing = [(one, one.judging) for one in setup.tools if one.judging is not None]
    if not bringing:
        return setup
    asked = [one.name for one, judging in bringing if judging.asked]
    if asked and setup.config.policy is None and not has_approver:
        raise CallerError(NO_POLICY.format(name=asked[0]))
    own = setup.safety.inspect
    inspect = _JudgingInspector({one.name: judging.inspect or own for one, judging in bringing}, own)
    policy = _policy(setup, [judging for _, judging in bringing], asked=asked, has_approver=has_approver)
    if policy is None:
        return setup
    return msgspec.structs.replace(
        setup,
        safety=msgspec.structs.replace(setup.safety, inspect=inspect),
        config=hinting(msgspec.structs.replace(setup.config, policy=read_policy(policy))),
    )


def _policy(
    setup: AgentSetup, brought: Sequence[CallJudging], *, asked: Sequence[str], has_approver: bool
) -> Policy | None:
    """The agent's policy, with the rules of its tools before its own and with their folder. Without a policy, the defaults hold
    for tools whose calls are asked about or judged in any case. The other tools run without asking, unless a file says otherwise.
    None: this is so for all tools."""
    policy, free = setup.config.policy, list[str]()
    if policy is None:
        asks_some = has_approver or any(one.without_policy == "always" or one.asked for one in brought)
        bound = {"never": False, "asked": asks_some, "always": True}
        free = [
            one.name
            for one in setup.tools
            if (judging := one.judging) is None or not (judging.asked or bound[judging.without_policy])
        ]
        if len(free) == len(setup.tools):
            return None
        policy = Policy(attended=has_approver)
    folder = next((one.workspace for one in brought if one.workspace), "")
    allows = [PermissionRule(verdict="allow", tool=escape_pattern(name)) for name in free]
    rules = dict.fromkeys([*allows, *[rule for one in brought for rule in one.rules]])
    asks = [PermissionRule(verdict="ask", tool=escape_pattern(name), where="approved(...)") for name in asked]
    return msgspec.structs.replace(
        policy,
        # rules from no file come first: every other rule overrides them
        rules=(*sorted(rules, key=lambda rule: rule.source != "default"), *policy.rules, *asks),
        workspace=policy.workspace or folder,
        home=policy.home or (os.path.realpath(Path.home()) if folder else ""),
    )


class _JudgingInspector(msgspec.Struct, frozen=True):
    """Finds the facts of each call with the inspector of its tool, else with the agent's own."""

    of_tools: dict[str, Inspector | None]
    own: Inspector | None

    async def __call__(self, calls: Sequence[PlannedCall]) -> Sequence[CallFacts]:
        parts: dict[Inspector, list[PlannedCall]] = {}
        for plan in calls:
            if (inspect := self.of_tools.get(plan.call.name, self.own)) is not None:
                parts.setdefault(inspect, []).append(plan)
        found = await asyncio.gather(*[inspect(plans) for inspect, plans in parts.items()])
        return [one for facts in found for one in facts]


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """What `Agent.override` swaps; None is left as it is."""

    model: Model | None = None
    deps: object = None
    tools: Sequence[ToolLike] | None = None
    toolsets: Sequence[Toolset] | None = None
    tool_errors: ToolErrors | None = None

    def over(self, setup: AgentSetup) -> AgentSetup:
        """The setup with what is swapped."""
        if self.tools is not None:
            setup = msgspec.structs.replace(setup, delegations={}).with_tools(self.tools)
        if self.toolsets is not None:
            setup = setup.with_toolsets(self.toolsets)
        if self.tool_errors is not None:
            config = msgspec.structs.replace(setup.config, tool_errors=self.tool_errors)
            setup = msgspec.structs.replace(setup, config=config)
        return setup if self.model is None else setup.asking(self.model)


_overrides: ContextVar[Mapping[object, Override]] = ContextVar("turnwise_overrides", default=MappingProxyType({}))
_model_above: ContextVar[Model | None] = variable_of_run("model_above", default=None)


@contextlib.contextmanager
def overriding(agent: object, given: Override) -> Generator[None]:
    """Inside this block, and in every task that begins there, runs of this agent have `given`, over what an outer block gave."""
    outer = _overrides.get()
    said = {name: one for name in Override.__struct_fields__ if (one := getattr(given, name)) is not None}
    token = _overrides.set({**outer, agent: msgspec.structs.replace(outer.get(agent, Override()), **said)})
    try:
        yield
    finally:
        _overrides.reset(token)


def override_of(agent: object) -> Override:
    """What is swapped for this agent here. A model is swapped for its sub-agents, too."""
    own = _overrides.get().get(agent, Override())
    return own if own.model is not None else msgspec.structs.replace(own, model=_model_above.get())


@contextlib.contextmanager
def asked_below(model: Model | None) -> Generator[None]:
    """Inside this block, the sub-agents of the run ask this model, unless they have an override of their own."""
    token = _model_above.set(model)
    try:
        yield
    finally:
        _model_above.reset(token)


class KeptOpen:
    """What an agent keeps open inside `async with`: once for each event loop, until the last user has left."""

    def __init__(self) -> None:
        self._of_loops: dict[asyncio.AbstractEventLoop, tuple[Transport, list[contextlib.AsyncExitStack]]] = {}

    def transport(self) -> Transport | None:
        """The transport of this event loop; None if nothing is open in it."""
        kept = self._of_loops.get(asyncio.get_running_loop())
        return None if kept is None else kept[0]

    async def enter(self, setup: AgentSetup) -> None:
        async with contextlib.AsyncExitStack() as opening:
            transport = self.transport() or await open_transport(opening, given=setup.given.transport)
            if setup.toolsets:
                await opening.enter_async_context(opened(setup))
            kept = self._of_loops.setdefault(asyncio.get_running_loop(), (transport, []))
            kept[1].append(opening.pop_all())

    async def leave(self) -> None:
        """The last user closes the transport, which belongs to the first user's stack."""
        loop = asyncio.get_running_loop()
        stacks = self._of_loops[loop][1]
        stack = stacks.pop()
        if not stacks:
            del self._of_loops[loop]
        await stack.aclose()


async def reserved(
    setup: AgentSetup,
    config: TurnConfig,
    *,
    stack: contextlib.AsyncExitStack,
    whole: bool = False,
    journal: Journal | None,
    run: BudgetRun | None = None,
) -> tuple[TurnConfig, Reservation | None]:
    """The configuration with the run's part of its budget, and that part, until `stack` is left. `whole`: a continued turn needs
    all that it began with. `run` is the run in its tree; None: it is the root. Raises BudgetSpent."""
    if setup.budget is None:
        return config, None
    setup.budget.check_journal(journal)
    run = run or BudgetRun(turn=config.turn_id, root_session=config.session_id, root_turn=config.turn_id)
    row = config.prices.get(config.model)
    least_usd = Decimal(0) if row is None else least_of(row)
    part = await stack.enter_async_context(setup.budget.reserving(run, config.limits, least_usd=least_usd, whole=whole))
    return config if whole else msgspec.structs.replace(config, limits=part.limit), part


def run_below(config: TurnConfig, *, order: ChildOrder, path: tuple[str, ...]) -> BudgetRun:
    """A sub-agent's run in the tree of its root. The root's ledger now knows it."""
    session, turn = config.session_id, config.turn_id
    if order.ledger is not None:
        order.ledger.begin_below(config.turn_id, parent=order.parent_turn)
        session, turn = order.ledger.root_session, order.ledger.root_turn
    return BudgetRun(turn=config.turn_id, root_session=session, root_turn=turn, path=path)


async def furnished(setup: AgentSetup, *, stack: contextlib.AsyncExitStack, has_approver: bool) -> AgentSetup:

    return await with_open_toolsets(setup, stack=stack, has_approver=has_approver)


async def priced(setup: AgentSetup, config: TurnConfig) -> TurnConfig:
    """The configuration with the prices that a limit of cost needs. Those of its sub-agents are checked as well.

    Raises CallerError if one is unknown: the limit could not hold.
    """
    if not counts_cost(config.limits):
        return config
    prices = await setup.prices.of_turn(config)
    least_usd = {
        tool: {name: await agent.least_usd(config.limits) for name, agent in one.delegates.items()}
        for tool, one in setup.delegations.items()
    }
    return with_prices(config, prices=prices, least_usd=least_usd)


async def open_transport(stack: contextlib.AsyncExitStack, *, given: Transport | None) -> Transport:
    if given is not None:
        return given
    from turnwise.endpoints.aiohttp_transport import AiohttpTransport

    return await stack.enter_async_context(AiohttpTransport())


# The options of one run, and those of a resumed turn.


class RunOptions(TypedDict, total=False):
    """Options of one run. Type checkers also know `deps` and `output_type`, which `run`, `run_sync` and `stream` take.

    - `history`: earlier messages (`RunResult.history`). With a journal, `session` names the session to continue instead; an
      unknown id begins a session (1 to 128 of the characters `A-Z a-z 0-9 . _ : -`).
    - `key`: your own name for this turn of the `session`, of the same characters. A new turn begins, and a turn that was left
      continues. If the turn is running, you wait for its result, at most `wait` seconds (default: an hour). If it has ended,
      you get its result, and nothing runs. If your task is cancelled, the turn is left. `again=True` begins once more if the
      provider failed the turn.
    - `drop_left`: continue the session without a turn that its process left. Otherwise that raises SessionLeft.
    - `results`: values by call id, for pending calls of tools that your program runs itself.
    - `approvals`: answers to asks that an earlier run left for later (`RunResult.asks`). `results` and `approvals` may
      leave some calls out; those stay pending.
    - `watch`: a function that gets every event.
    - `labels`: texts by name that a new session keeps (`{"user": "42"}`). A `DepsFactory` gets them in every run of the
      session; later runs may leave them out.

    - `model`: the name of another model, which is asked as the agent's is, or a `Model` of its own. If the name is of
      another provider, the agent's URL and key are not used.
    - `settings`: replace those of the model, field by field.

    The other options replace the agent's for this run: `limits` as a whole, the four dicts option by option.
    """

    history: Sequence[Message] | None
    session: str
    key: str
    wait: float
    again: bool
    drop_left: bool
    results: Mapping[str, object]
    approvals: Sequence[Approval]
    watch: Watch
    labels: Mapping[str, str]
    model: ModelLike
    settings: Settings
    tools: Sequence[ToolLike]
    instructions: Instruction | Sequence[Instruction]
    limits: Limit | Budget | None
    tool_errors: ToolErrors
    policy: Policy | None
    journal: Journal | None
    steps: StepOptions
    recovery: RecoveryOptions
    safety: SafetyOptions
    observation: ObservationOptions


class TypedRunOptions(RunOptions, total=False):
    """The options of a run, with those whose types depend on the agent and the result."""

    deps: object
    output_type: object


class ResumeOptions(TypedDict, total=False):
    """Options of `Agent.resume`: values that a journal cannot hold, and answers to open asks.

    - `approvals` answer open asks. `ask_s` is how many seconds the approver has for the other open asks.
    - `rules` are permission rules that are added after the turn's own.
    - `take_over=True` says that the process that ran the turn is gone. turnwise sees that by itself if the process ran since
      this machine's last boot, in the same container. If it lives all the same, it writes nothing more to the journal.
    """

    tools: Sequence[ToolLike]
    deps: object
    output_type: object
    output_checks: Sequence[OutputCheck]
    prepare_step: StepPreparer
    watch: Watch
    approver: Approver
    approvals: Sequence[Approval]
    rules: Sequence[PermissionRule]
    ask_s: float
    take_over: bool


def options_of(terms: ResumeTerms) -> ResumeOptions:
    """The options of `resume` with the same meaning."""
    options: ResumeOptions = {"approvals": terms.answers, "rules": terms.rules}
    return options if terms.ask_s is None else {**options, "ask_s": terms.ask_s}


def terms_of(options: ResumeOptions) -> ResumeTerms:
    """What the options say about waiting calls, and about what may run. Raises CallerError for a value that is not an approval or
    a rule."""
    terms = ResumeTerms(
        answers=tuple(options.get("approvals", ())), rules=tuple(options.get("rules", ())), ask_s=options.get("ask_s")
    )
    check_plain(terms, what="the options of `resume`")
    return terms


def check_options(options: Mapping[str, object]) -> None:
    """Raise UnknownOption for a name that is not an option of a run, and CallerError for impossible values."""
    if "endpoint" in options:
        raise UnknownOption(of_endpoint(options))
    check_names(options, known=TypedRunOptions.__annotations__, what="a run")
    check_values(options, of=" of the run")
    check_groups(options, of=" of the run")
    if "model" in options:
        as_model(cast("ModelLike", options["model"]))
    if "settings" in options:
        read_settings(options["settings"], what="`settings` of the run")
    read_labels(options.get("labels", {}))
    check_history(options.get("history") or (), what="`history`")


def groups_of(settings: RunSettings) -> AgentOptions:
    """The settings that are options of a group, by group (tests/settings/test_options.py checks that the types are the same)."""
    groups: dict[str, dict[str, object]] = {}
    for row in rows_from("run"):
        value = getattr(settings, row.name)
        if value is not None and row.name in GROUP_OF:
            groups.setdefault(GROUP_OF[row.name], {})[row.name] = value
    return cast("AgentOptions", groups)


def check_choice(choice: ToolChoice, *, tools: Sequence[Tool]) -> None:
    """Raise CallerError for a choice that forces a call if no step can have a tool: it would become `auto`."""
    if choice == "required" and not tools:
        raise CallerError(
            '`tool_choice="required"` forces a call of a tool, and there is no tool: give `tools`, or leave it out'
        )
