"""Turns the user's options into everything that an agent's turns begin with. All checks happen here, before anything is sent."""

import dataclasses
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, cast, get_args

import msgspec

from turnwise.agent.agent_options import (
    GROUPS,
    Model,
    ModelLike,
    ObservationOptions,
    OpeningSource,
    RecoveryOptions,
    SafetyOptions,
    StepOptions,
    address_of,
    as_model,
    read_settings,
    settings_over,
)
from turnwise.agent.budgets import Budget
from turnwise.agent.children import TASK, AgentTool, Delegation, Subagents
from turnwise.agent.deps import DepsWanted
from turnwise.agent.models import (
    ModelName,
    ModelPrices,
    at_endpoint,
    endpoint_of,
    fallback_of,
    read_model,
    with_model,
    within,
)
from turnwise.agent.run_input import Instruction, Instructions, json_of
from turnwise.agent.schemas import OutputType, read_output
from turnwise.agent.tools import ToolLike, Toolset, is_toolset, read_tools
from turnwise.agent.toolsets import RunNotes, may_ask
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.extras import missing_extras, require_extras
from turnwise.endpoints.endpoints import Endpoint
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.journal.prices import NO_PRICES
from turnwise.rules.compaction import READ_RESULT
from turnwise.rules.limits import AnyOf, Limit, MaxSteps
from turnwise.rules.permissions import KnownTool, PermissionKind, PermissionRule, Policy, check_rules, plain_rule
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.reservations import MAX_SUBAGENT_REQUESTS, MAX_SUBAGENTS
from turnwise.rules.retries import RetryPolicy
from turnwise.running.approvals import Approver, leave_for_later
from turnwise.running.hooks import Hooks, check_hooks
from turnwise.running.runner_config import Safety, StepPreparer
from turnwise.running.tools import Tool
from turnwise.settings.catalogue import find_limits, limits_over
from turnwise.telemetry.telemetry import Telemetry
from turnwise.turn.config import (
    ALLOW_EFFECT,
    MAX_STEPS,
    Deadlines,
    Effect,
    ScriptLimits,
    ToolErrors,
    ToolOffer,
    TurnConfig,
)
from turnwise.turn.events import ScriptFunction
from turnwise.turn.programs import PROGRAM, TAKEN, functions_of, is_callable
from turnwise.vocab import Cache, Settings, ToolSpec
from turnwise.wire.profiles import FamilyName

# The tool `script`: the model writes one small program that calls the other tools, so that one request runs them all.


SCRIPT = "script"
WORDS = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
MAX_CHOICES = 6  # of an enum in the signature; the schema has all of them
PURPOSE = """\
Run a small Python program that calls the other tools as functions: many calls, one answer. Use it where the next calls \
follow from rules that you can write down, or are independent of each other: read several files, change all places, run \
the tests, look at what failed. Each function takes the arguments of its tool, by name, and returns the text of its result:
    text = read(path="a.py")
Together: `a, b = await asyncio.gather(read(path="a.py"), read(path="b.py"))`. A call that fails or is denied raises \
RuntimeError with the words. Only what the program prints or its last expression gives comes back to you, so print what \
you need to go on, not whole files. There are no files, network or processes but through these functions, and of the \
standard library only the likes of json, re, math, datetime, asyncio. If the program fails, you are told the line and what \
had run: what was done stands.
Functions:
"""


DAY_S = 24 * 60 * 60.0
GIGABYTE = 1024**3
# The lowest and highest value of each limit. The interpreter does not fit into less memory; more than a day of computing is a
# mistake.
BOUNDS: dict[str, tuple[float, float]] = {
    "cpu_s": (0.01, DAY_S),
    "wall_s": (0.01, 30 * DAY_S),
    "sleep_s": (0, 30 * DAY_S),
    "memory_bytes": (1024**2, 1024 * GIGABYTE),
    "calls": (0, 1_000_000),
    "call_bytes": (1, GIGABYTE),
    "exchanged_bytes": (1, 1024 * GIGABYTE),
    "output_characters": (0, GIGABYTE),
    "program_characters": (1, 16 * 1024**2),
}


def check_script_limits(limits: ScriptLimits) -> None:
    """Raise CallerError for a limit outside its range, before anything costs money."""
    for name, (least, most) in BOUNDS.items():
        value = cast("object", getattr(limits, name))
        kinds = int | float if name.endswith("_s") else int
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            number = "a number" if name.endswith("_s") else "a whole number"
            raise CallerError(f"`script_limits`: `{name}` is {value!r}; give {number} from {least:,g} to {most:,.0f}")


def script_tool(tools: Sequence[Tool]) -> Tool | None:
    """The tool that runs programs over `tools`; None if programs cannot call any of them, or if one is already called `script`.
    Equal tools give equal bytes."""
    offers = {tool.name: tool.offer for tool in tools if is_callable(tool.offer)}
    if not offers or any(tool.name == SCRIPT for tool in tools):
        return None
    functions = functions_of(offers, names=tuple(offers))
    lines = [_line(function, offer=offers[function.tool]) for function in functions]
    parameters = {
        "type": "object",
        "properties": {PROGRAM: {"type": "string", "description": "the program's text"}},
        "required": [PROGRAM],
        "additionalProperties": False,
    }
    spec = ToolSpec(
        name=SCRIPT, description=PURPOSE + "\n".join(lines), parameters=msgspec.json.encode(parameters).decode()
    )
    return Tool(offer=ToolOffer(spec=spec, script=True, exclusive=True))


def with_script(tools: tuple[Tool, ...], *, scripted: bool) -> tuple[Tool, ...]:
    """The tools, and behind them the tool `script`, if it is wanted and programs can call one of the tools."""
    made = script_tool(tools) if scripted else None
    return tools if made is None else (*tools, made)


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}
    required: list[str] = []


def _line(function: ScriptFunction, *, offer: ToolOffer) -> str:
    line = _signature(function, offer=offer)
    if function.name == function.tool:
        return line
    own = f"; `{function.tool}` is Python's own" if function.tool in TAKEN else ""
    return f"{line}  # the tool `{function.tool}`{own}"


def _signature(function: ScriptFunction, *, offer: ToolOffer) -> str:
    """`read(path: str, limit: int = ...)`: the tool's own description and schema say the rest."""
    if function.free_form:
        return f"{function.name}(input: str)"
    try:
        schema = msgspec.json.decode(offer.spec.parameters, type=_Schema)
    except msgspec.MsgspecError:
        return f"{function.name}(...)"
    needed = [name for name in schema.properties if name in schema.required]
    others = [name for name in schema.properties if name not in schema.required]
    shown = [f"{name}: {_type(schema.properties[name])}" for name in needed]
    shown += [f"{name}: {_type(schema.properties[name])} = ..." for name in others]
    return f"{function.name}({', '.join(shown)})"


class _Kind(msgspec.Struct):
    """The parts of a JSON Schema that a word or two can say."""

    type: str | list[str] = "any"
    enum: list[object] | None = None
    any_of: "list[_Kind] | None" = msgspec.field(default=None, name="anyOf")
    one_of: "list[_Kind] | None" = msgspec.field(default=None, name="oneOf")
    items: "_Kind | None" = None


def _word(kind: _Kind) -> str:
    if kind.enum:
        return " | ".join([msgspec.json.encode(value).decode() for value in kind.enum[:MAX_CHOICES]])
    if choices := kind.any_of or kind.one_of:
        return " | ".join(dict.fromkeys([_word(choice) for choice in choices]))
    if isinstance(kind.type, list):
        return " | ".join([WORDS.get(name, "any") for name in kind.type])
    if kind.type == "array" and kind.items is not None:
        return f"list[{_word(kind.items)}]"
    return WORDS.get(kind.type, "any")


def _type(schema: msgspec.Raw) -> str:
    """A JSON Schema in a word or two; `any` for a schema that says nothing."""
    try:
        return _word(msgspec.json.decode(schema, type=_Kind))
    except msgspec.MsgspecError:  # `true`, or a schema of another shape
        return "any"


# The policy of an agent, checked as soon as it is given. A rule that can never match, or an approver that is never asked, is the
# caller's mistake.


ASK_USER = "ask_user"
HINT = "allow `{tool}` by a rule of the agent's `policy`, or let the agent's `approver` answer"
ELSEWHERE = "its calls run elsewhere"
QUESTION = "its calls are questions to the user, who answers them or is not there"


def read_policy(policy: Policy | None) -> Policy | None:
    """The policy, with the patterns of its rules in their plain form. Raises CallerError for a pattern that can never match."""
    if policy is None:
        return None
    for number, rule in enumerate(policy.rules):
        _check_words(rule, where=rule.where or f"`policy.rules[{number}]`")
    rules = [
        plain_rule(rule, where=rule.where or f"`policy.rules[{number}]`") for number, rule in enumerate(policy.rules)
    ]
    return msgspec.structs.replace(policy, rules=tuple(rules))


def check_approver(approver: Approver | None, *, policies: Iterable[Policy | None], tools: Iterable[Tool] = ()) -> None:
    """Raise CallerError for an approver that is never asked: the agent's own policy (the first one) does not ask, no sub-agent
    asks, and none of `tools` may ask while it runs."""
    own, *below = policies
    if approver is None or any(policy is not None and policy.attended for policy in (own, *below)):
        return
    if own is None:
        acting = [tool.name for tool in tools if tool.offer.effect in ("write", "execute")]
        if not acting and any(tool.takes_context for tool in tools):
            return  # one of them may ask on its own
        about = f" about the tool `{acting[0]}`" if acting else ""
        raise CallerError(
            f"`approver` is never asked{about}: without a `policy` every tool that is `allowed` runs unasked. Give the agent "
            "`policy=Policy(attended=True)`, or leave the approver out"
        )
    outcome = {"allow": "allowed", "later": "left for later"}.get(own.unattended, "denied")
    raise CallerError(
        f"`approver` is never asked: the policy is not attended, so what it would be asked about is {outcome} at once. Give "
        "the agent a policy with `attended=True`, or leave the approver out"
    )


def hinting(config: TurnConfig) -> TurnConfig:
    """The configuration with a hint how a person allows what its policy denies, unless it has another hint."""
    is_told = config.allow_hint != ALLOW_EFFECT or set(config.allowed) != set(get_args(Effect))
    return config if is_told or config.policy is None else msgspec.structs.replace(config, allow_hint=HINT)


def known_tools(tools: Iterable[Tool]) -> dict[str, KnownTool]:
    return {
        tool.name: KnownTool(
            effect=tool.offer.effect,
            inspected=tool.offer.inspected,
            unjudged=ELSEWHERE if tool.offer.client_side else QUESTION if tool.offer.asks_user else "",
        )
        for tool in tools
    }


def check_tools_of_rules(policy: Policy | None, *, tools: Mapping[str, KnownTool]) -> None:
    """Raise CallerError for a rule about an unknown tool: it is not one of `tools`, and turnwise does not bring it."""
    if policy is not None and policy.rules:
        check_rules(policy.rules, tools={**own_tools(), **tools})


@functools.cache
def own_tools() -> dict[str, KnownTool]:
    """Every tool that turnwise itself brings, even if this run does not have it: settings files apply to all runs."""
    from turnwise.tools.workspace import workspace_tools

    others = dict.fromkeys((TASK, SCRIPT, READ_RESULT.name), KnownTool(effect="none", inspected=False))
    asks = KnownTool(effect="none", inspected=False, unjudged=QUESTION)
    return {**known_tools(workspace_tools("/")), **others, ASK_USER: asks}


def _check_words(rule: PermissionRule, *, where: str) -> None:
    """Raise CallerError for a verdict or an effect that does not exist: the rule would never match."""
    for name, value, words in (
        ("verdict", rule.verdict, get_args(PermissionKind)),
        ("effect", rule.effect, get_args(Effect)),
    ):
        if value is not None and value not in words:
            raise CallerError(f"{where}: `{name}` is `{value}`; it must be one of: {', '.join(words)}")


ALL_EFFECTS: tuple[Effect, ...] = get_args(Effect)
# The parts of a model that belong to its own provider. A run that names another provider's model leaves them behind, above all
# the key.
OF_ITS_PROVIDER = ("base_url", "api_key", "api_key_env", "extra")


class AgentOptions(TypedDict, total=False):
    """The options of an agent. A run may give them again."""

    model: ModelLike
    settings: Settings  # a run's alone: an agent's stand in its model
    tools: Sequence[ToolLike]
    instructions: Instruction | Sequence[Instruction]
    output_type: object
    limits: Limit | Budget | None
    tool_errors: ToolErrors
    policy: Policy | None
    journal: Journal | None
    steps: StepOptions
    recovery: RecoveryOptions
    safety: SafetyOptions
    observation: ObservationOptions


class AgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All that an agent's turns begin with. `given` is the model as it was given. `delegations` are the tools that hand work to
    other agents, by name. Each turn asks the `toolsets` for their tools. `tools` are all other tools before that, and all tools
    afterwards."""

    given: Model
    model: ModelName
    endpoint: Endpoint
    tools: tuple[Tool, ...]
    toolsets: tuple[Toolset, ...]
    is_unfurnished: bool  # there are toolsets, or tools with their own rules for the verdict on their calls
    delegations: dict[str, Delegation]
    output: OutputType | None
    instructions: Instructions
    deps_type: object
    hooks: Hooks
    safety: Safety
    prices: ModelPrices
    prepare_step: StepPreparer | None
    opening: OpeningSource | None
    batch_hint: bool
    script: Literal["auto"] | bool
    journal: Journal | None
    folder: Path | str
    telemetry: Telemetry | None
    clock: Clock
    config: TurnConfig
    budget: Budget | None
    notes: RunNotes | None = None  # what its toolsets tell in the current run

    @property
    def offered(self) -> tuple[Tool, ...]:
        """Its tools, and the tool `script` if it is wanted. With `auto`, `script` is left out if its extra is missing."""
        wanted = self.script
        if wanted == "auto":
            wanted = self.prices.bills_requests and not missing_extras("scripts")
        return with_script(self.tools, scripted=wanted)

    def deps_wanted(self) -> DepsWanted:
        """The deps that its runs need, and a check whether given deps fit."""
        return DepsWanted(
            wanted=self.deps_type,
            tools=self.tools,
            below={
                name: agent.deps_wanted() for one in self.delegations.values() for name, agent in one.delegates.items()
            },
            clock=self.clock,
            timeout_s=self.config.deadlines.hook_s,
        )

    def with_key(self) -> "AgentSetup":
        """The same setup with the key of its endpoint, for a run that begins. Raises MissingKey."""
        if self.endpoint.key is not None:
            return self
        endpoint = endpoint_of(self.given, is_key_needed=True)
        return self if endpoint.key is None else self._at(endpoint)

    def asking(self, model: Model) -> "AgentSetup":
        """The same setup with another model, wherever that is. Raises UnknownModel or another CallerError."""
        if model == self.given:
            return self
        named = read_model(model.name)
        setup = self._at(endpoint_of(model, is_key_needed=False))
        config = msgspec.structs.replace(self.config, fallbacks=(), **_config_of_model(model, named=named))
        return msgspec.structs.replace(
            setup,
            given=model,
            model=named,
            prices=self.prices.of_model(named),
            config=at_endpoint(config, endpoint=setup.endpoint),
        )

    def _at(self, endpoint: Endpoint) -> "AgentSetup":
        hooks = Hooks(self.hooks.all, clock=self.clock, scrub=endpoint.scrub)
        safety = msgspec.structs.replace(self.safety, run_hooks=hooks.run)
        return msgspec.structs.replace(self, endpoint=endpoint, hooks=hooks, safety=safety)

    def with_toolsets(self, toolsets: Sequence[Toolset]) -> "AgentSetup":
        """The same setup with these toolsets instead of its own."""
        bring = bool(toolsets) or any(one.judging is not None for one in self.tools)
        return msgspec.structs.replace(self, toolsets=tuple(toolsets), is_unfurnished=bring)

    def with_tools(self, tools: Sequence[ToolLike]) -> "AgentSetup":
        """The same setup with these tools instead of its own. Raises BadTool, CallerError."""
        return msgspec.structs.replace(self, **_tools_of(tools), delegations=_delegations_of(tools) or self.delegations)

    def policies(self) -> list[Policy | None]:
        """Its own policy, and those of its sub-agents. Tools of toolsets may ask even without a policy."""
        own = Policy(attended=True) if self.config.policy is None and may_ask(self.toolsets) else self.config.policy
        return [own, *[one for agent in self._agents() for one in agent.policies()]]

    def known_below(self) -> tuple[Tool, ...]:
        """Its tools, and those of its sub-agents."""
        return (*[tool for agent in self._agents() for tool in agent.known_below()], *self.tools)

    def knows_tools(self) -> bool:
        """Whether all its tools and those of its sub-agents are known. Toolsets give theirs only when a turn asks."""
        return not self.toolsets and all(agent.knows_tools() for agent in self._agents())

    def check_rules(self) -> None:
        """Raise CallerError if a rule or a hook is about a tool that neither this agent nor a sub-agent has. Nothing is checked
        until all toolsets have given their tools."""
        if self.knows_tools():
            known = known_tools((*self.known_below(), *self.offered))
            check_tools_of_rules(self.config.policy, tools=known)
            # most hooks are for every tool, so the tools that turnwise brings need not be loaded
            if narrow := [hook for hook in self.hooks.all if hook.tools != "*"]:
                check_hooks(narrow, tools=[*known, *[name for name in own_tools() if name not in known]])
        for agent in self._agents():
            agent.check_rules()

    def keeping(self, journal: Journal | None, *, config: TurnConfig, effects: Collection[Effect]) -> "AgentSetup":
        """The same setup with that journal and that configuration. Neither its tools nor its sub-agents' tools run with other
        effects."""
        model, prices = self.model, self.prices
        if config.model != model.name:
            model, config = with_model(config, model=model, endpoint=self.endpoint)
            prices = prices.of_model(model)
        delegations = self.delegations
        if set(effects) < set(ALL_EFFECTS):
            delegations = {name: _within(one, effects=effects) for name, one in delegations.items()}
        tools = [delegations[tool.name].tool() if tool.name in delegations else tool for tool in self.tools]
        return msgspec.structs.replace(
            self,
            model=model,
            prices=prices,
            journal=journal,
            delegations=delegations,
            tools=tuple(tools),
            config=within(config, effects=effects),
        )

    def _agents(self) -> list[Any]:
        return [agent for one in self.delegations.values() for agent in one.delegates.values()]


def set_up(options: AgentOptions, *, deps_type: object = None) -> AgentSetup:
    """Check the options and set the agent up. Its key may still be missing (`AgentSetup.with_key`). Raises UnknownModel, BadTool
    or another CallerError."""
    options = _asking_later(options)
    at = as_model(options.get("model", ""))
    model, endpoint = read_model(at.name), endpoint_of(at, is_key_needed=False)
    if at.extra:
        check_extra(
            at,
            family=model.profile.family,
            has_tools=bool(options.get("tools")) or bool(options.get("safety", {}).get("script")),
            has_output=options.get("output_type") is not None,
        )
    steps, safely = options.get("steps", {}), options.get("safety", {})
    seen, tools_given = options.get("observation", {}), options.get("tools", ())
    if safely.get("script") is True:
        require_extras("scripts")
    clock = seen.get("clock") or SystemClock()
    hooks = Hooks(safely.get("hooks", ()), clock=clock, scrub=endpoint.scrub)
    output_type, instructions = options.get("output_type"), Instructions(options.get("instructions", ()))
    made = AgentSetup(
        given=at,
        model=model,
        endpoint=endpoint,
        **_tools_of(tools_given),
        delegations=_delegations_of(tools_given),
        output=read_output(
            None if output_type is str else output_type, checks=options.get("recovery", {}).get("output_checks", ())
        ),
        instructions=instructions,
        deps_type=deps_type,
        hooks=hooks,
        safety=Safety(inspect=safely.get("inspect"), approver=safely.get("approver"), run_hooks=hooks.run),
        prices=ModelPrices(seen.get("prices", NO_PRICES), model=model, clock=clock),
        prepare_step=steps.get("prepare_step"),
        opening=steps.get("opening"),
        batch_hint=steps.get("batch_hint", False),
        script=safely.get("script", "auto"),
        journal=options.get("journal"),
        folder=seen.get("folder") or Path.cwd(),
        telemetry=seen.get("telemetry"),
        clock=clock,
        config=at_endpoint(
            _config_of(options, at=at, model=model, hooks=hooks, instructions=instructions), endpoint=endpoint
        ),
        budget=_budget_of(options),
    )
    if not may_ask(made.toolsets):
        check_approver(made.safety.approver, policies=made.policies(), tools=made.tools)
    return made


def _asking_later(options: AgentOptions) -> AgentOptions:
    """The options with an approver that leaves every ask for later, if the policy wants that and there is no other."""
    policy, safety = options.get("policy"), options.get("safety", {})
    if policy is None or policy.unattended != "later" or safety.get("approver") is not None:
        return options
    asking = options.copy()
    asking["policy"] = msgspec.structs.replace(policy, attended=True)
    asking["safety"] = {**safety, "approver": leave_for_later}
    return asking


def _budget_of(options: AgentOptions) -> Budget | None:
    given = options.get("limits")
    return given if isinstance(given, Budget) else None


class _ToolFields(TypedDict):
    tools: tuple[Tool, ...]
    toolsets: tuple[Toolset, ...]
    is_unfurnished: bool


def _delegations_of(given: Sequence[ToolLike]) -> dict[str, Delegation]:
    return {one.tool().name: one for one in given if isinstance(one, Subagents | AgentTool)}


def _tools_of(given: Sequence[ToolLike]) -> _ToolFields:
    tools, toolsets = read_tools(given), tuple([one for one in given if is_toolset(one)])
    bring = bool(toolsets) or any(one.judging is not None for one in tools)
    return _ToolFields(tools=tools, toolsets=toolsets, is_unfurnished=bring)


def check_extra(at: Model, *, family: FamilyName, has_tools: bool, has_output: bool) -> None:
    """Raise CallerError for a field that turnwise itself writes: `extra` would replace it in every request, in silence."""
    from turnwise.wire.relay_facts import relay_facts  # few models have extra fields

    facts = relay_facts(family)
    ours = {
        facts.beside: "give `instructions=` to the agent",
        facts.history: "give a prompt and `history=` to the run, and `instructions=` to the agent",
        "stream": f"give `Model({at.name!r}, stream=...)`",
    }
    if not facts.model_in_path:
        ours["model"] = "name the model in `Model(...)`"
    if has_tools:
        own = f"""ToolSpec(name="...", opaque=Opaque("{family}", '{{...}}'))"""
        ours["tools"] = f"give a tool of the provider beside the agent's tools, `{own}` (from `turnwise.vocab`)"
        ours["tool_choice"] = 'give `steps={"tool_choice": ...}`'
    for field, given in (at.extra or {}).items():
        fix = ours.get(facts.spelling(field))
        if has_output and _asks_for_form(facts.spelling(field), given):
            fix = "`output_type` asks for the form of the answer"
        if fix is not None:
            raise CallerError(f"`extra` of `Model` must not have `{field}`, which turnwise writes: {fix}")


def _asks_for_form(field: str, given: object) -> bool:
    """Whether the field of a request, or a field of it, says which form the answer has."""
    inner = (
        {re.sub("[_-]", "", str(name)).lower() for name in cast("dict[str, object]", given)}
        if type(given) is dict
        else set[str]()
    )
    return field in ("response_format", "format") or bool(
        inner & {"format", "responsemimetype", "responseschema", "responsejsonschema"}
    )


class _ModelFields(TypedDict):
    model: str
    settings: Settings
    extra: str
    stream: bool
    cache: Cache
    model_limits: ModelLimits
    base_url: str
    api_key_env: str


def _config_of_model(at: Model, *, named: ModelName) -> _ModelFields:
    return _ModelFields(
        model=named.name,
        settings=at.settings,
        extra=json_of(at.extra) if at.extra else "",
        stream=at.stream,
        cache=at.cache,
        model_limits=limits_over(find_limits(named.name, profile=named.profile.name), at.limits),
        base_url="".join((address_of(at) or "").partition("?")[:2]),
        api_key_env=at.api_key_env or "",
    )


def _config_of(
    options: AgentOptions, *, at: Model, model: ModelName, hooks: Hooks, instructions: Instructions
) -> TurnConfig:
    steps, recovery, safely = options.get("steps", {}), options.get("recovery", {}), options.get("safety", {})
    given = options.get("limits")
    # a budget's part for one run is reserved when the run begins; until then its limits say what is counted
    max_steps, limits = steps_and_limits(given if not isinstance(given, Budget) else given.most_of_a_run)
    script_limits = safely.get("script_limits", ScriptLimits())
    check_script_limits(script_limits)
    hint = safely.get("allow_hint")
    config = TurnConfig(
        session_id="",
        turn_id="",
        **_config_of_model(at, named=model),
        system=instructions.texts,
        tool_choice=steps.get("tool_choice", "auto"),
        parallel_tool_calls=steps.get("parallel_tool_calls"),
        max_steps=max_steps,
        limits=limits,
        max_subagents=safely.get("max_subagents", MAX_SUBAGENTS),
        max_subagent_requests=safely.get("max_subagent_requests", MAX_SUBAGENT_REQUESTS),
        recover=recovery.get("recover", "continue"),
        calls_in_text=recovery.get("calls_in_text", "auto"),
        retry=recovery.get("retry", RetryPolicy()),
        fallbacks=tuple([fallback_of(one, at=at, model=model) for one in recovery.get("fallbacks", ())]),
        room=recovery.get("room", "compact"),
        allowed=tuple(safely.get("allowed", ALL_EFFECTS)),
        deadlines=recovery.get("deadlines", Deadlines()),
        script_limits=script_limits,
        policy=read_policy(options.get("policy")),
        hooks=hooks.points,
        tool_errors=options.get("tool_errors", "told"),
    )
    return hinting(config) if hint is None else msgspec.structs.replace(config, allow_hint=hint)


def over(options: AgentOptions, said: AgentOptions) -> AgentOptions:
    """The agent's options, replaced by those of the run (`said`); groups are replaced option by option.

    A name of another model keeps what the agent's `Model` says, without its limits. If it names another provider, the agent's
    URL, key and other values for its own provider are dropped. A `Model` replaces the agent's as a whole.
    """
    merged = cast("dict[str, Any]", {**options, **said})
    own = as_model(options.get("model", ""))
    model = merged["model"] = _model_over(own, said)
    is_elsewhere = (_provider(model), address_of(model)) != (_provider(own), address_of(own))
    for group in GROUPS:
        kept = dict(_group(options, group))
        if is_elsewhere:
            kept.pop("fallbacks", None)
        if "output_type" in said:  # the checks take values of the agent's own type
            kept.pop("output_checks", None)
        merged[group] = {**kept, **_group(said, group)}
    return cast("AgentOptions", merged)


def _model_over(own: Model, said: AgentOptions) -> Model:
    given = said.get("model", own.name)
    if isinstance(given, str) and given != own.name:
        changes: dict[str, Any] = {"name": given, "limits": None}
        if _provider(Model(given)) != _provider(own):
            changes.update(dict.fromkeys(OF_ITS_PROVIDER))
        model = dataclasses.replace(own, **changes)
    else:
        model = own if isinstance(given, str) else as_model(given)
    if "settings" not in said:
        return model
    settings = read_settings(said["settings"], what="`settings` of the run")
    return dataclasses.replace(model, settings=settings_over(model.settings, settings))


def _provider(model: Model) -> str:
    return model.name.partition(":")[0]


def _group(options: AgentOptions, name: str) -> dict[str, object]:
    return cast("dict[str, dict[str, object]]", options).get(name, {})


def _within(one: Delegation, *, effects: Collection[Effect]) -> Delegation:
    return one.over({name: agent.within_effects(effects) for name, agent in one.delegates.items()})


def steps_and_limits(limits: Limit | None) -> tuple[int, Limit | None]:
    """The step cap in `limits`, and the other limits.

    A `MaxSteps` that stops the turn by itself replaces the usual cap, so it may also be higher. A `MaxSteps` that stops the turn
    only together with others (`&`) stays among the limits, and the usual cap holds.
    """
    parts = limits.limits if isinstance(limits, AnyOf) else () if limits is None else (limits,)
    caps = [part.steps for part in parts if isinstance(part, MaxSteps)]
    if not caps:
        return MAX_STEPS, limits
    others = tuple([part for part in parts if not isinstance(part, MaxSteps)])
    return min(caps), None if not others else others[0] if len(others) == 1 else AnyOf(others)
