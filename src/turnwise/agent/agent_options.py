"""The options of an agent and of a run, checked by name and type. An unknown name or a value of the wrong kind raises an error
that says the fix in one sentence."""

import dataclasses
import difflib
import functools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypedDict, cast, get_args, runtime_checkable

import msgspec

from turnwise.agent.budgets import Budget
from turnwise.agent.deps import is_deps_type
from turnwise.agent.schemas import OutputCheck
from turnwise.agent.tools import FunctionTool
from turnwise.base.clock import Clock
from turnwise.endpoints.endpoints import Secret
from turnwise.endpoints.transport import Transport
from turnwise.errors import CallerError, UnknownOption
from turnwise.journal.journal import Journal
from turnwise.journal.prices import Prices
from turnwise.rules.limits import Limit, MaxSteps, leaves_of
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.recovery import Recover
from turnwise.rules.retries import RetryPolicy
from turnwise.running.approvals import Approver
from turnwise.running.hooks import Hook
from turnwise.running.run_context import Inspector
from turnwise.running.runner_config import StepPreparer
from turnwise.running.tools import Tool
from turnwise.settings.options import OptionRow, rows, rows_from
from turnwise.telemetry.telemetry import Telemetry
from turnwise.turn.config import (
    Approval,
    CallsInText,
    Deadlines,
    Effect,
    ResumeTerms,
    RoomPolicy,
    ScriptLimits,
    ToolErrors,
)
from turnwise.turn.events import StepPrepared, TurnStarted
from turnwise.vocab import Cache, Message, NamedTool, Settings, Text, ToolChoice, ToolSpec

# The four groups of options that an agent takes beside its model, tools, instructions, output type, limits, policy and journal.
#
# A group is a plain dict that a type checker knows: `Agent("openai:gpt-6.1-sol", recovery={"recover": "split"})`. A run may give
# the same groups; its options replace the agent's, one by one.


OpeningSource = Callable[[Sequence[Message]], Awaitable[Sequence[Text]]]
"""Returns texts to put before a turn's user message. It gets the earlier messages of the session."""


class StepOptions(TypedDict, total=False):
    """How the model is asked in each step.

    - `tool_choice`, `parallel_tool_calls`: whether the model must, may or must not call tools, and whether it may call
      several at once.
    - `batch_hint`: adds a sentence to the instructions; it asks the model to make independent calls in one response.
      Default: False.
    - `prepare_step`: a function that may change one step. It takes a `StepView` and returns `StepChanges` or None.
    - `opening`: an async function that returns texts to put before each turn's user message.
    """

    tool_choice: ToolChoice
    parallel_tool_calls: bool | None
    batch_hint: bool
    prepare_step: StepPreparer | None
    opening: OpeningSource | None


class RecoveryOptions(TypedDict, total=False):
    """What happens if a request fails, a response is cut, or a prompt gets too long.

    - `recover`: what turnwise does if the output limit cuts a response. `continue`: the model continues from the cut.
      `split`: turnwise asks for smaller pieces in place of a cut call. `off`: turnwise makes no further request for it.
      Default: `continue`.
    - `calls_in_text`: whether a call that the model wrote into its text counts. `auto`: only if the endpoint's server may
      leave calls in the text. `on`: always, even if the answer is only a code block or a JSON object. `off`: never. Default:
      `auto`.
    - `retry`: how often a failed request is sent again, and for how long.
    - `fallbacks`: other models of the same endpoint, as names (`gpt-6.1-terra`) or as `Model(...)` with limits of their own.
      They are asked in this order after a model has failed.
    - `room`: `compact` limits large tool results (the tool `read_result` reads the rest), shortens old results and
      summarises old messages when room runs out. `budget` only adapts the requested output to the room. `off` does
      neither. Default: `compact`.
    - `output_checks`: functions that take a value of the output type and may refuse it by raising. The model reads the
      error and answers again.
    - `deadlines`: seconds for each wait.
    """

    recover: Recover
    calls_in_text: CallsInText
    retry: RetryPolicy
    fallbacks: "Sequence[str | Model]"
    room: RoomPolicy
    output_checks: Sequence[OutputCheck]
    deadlines: Deadlines


class SafetyOptions(TypedDict, total=False):
    """What may run, who is asked first, and how far it may go.

    - `allowed`: effects of tools that may run. A call of another effect is answered with a message. Default: all.
    - `allow_hint`: how a person allows such a call, in words for the model.
    - `approver`: your function that answers asks. If it does not answer an ask in time, the call is denied. An approver
      needs a `policy` with `attended=True`, of this agent or of a sub-agent, unless one of them has an `McpServer`.
    - `inspect`: your function that finds the paths and commands of a call, so that rules about these can judge it. It gets
      the calls of tools with `ToolOffer(inspected=True)`.
    - `hooks`: functions that see calls, results and requests, and may change or deny them.
    - `script`: offers the model a tool to which it gives a small program that calls the other tools. `auto` does so if the
      provider bills by the request. Default: `auto`.
    - `script_limits`: how much one such program may use.
    - `max_subagents`, `max_subagent_requests`: how many sub-agents a run may start, and how many requests they may make
      together. Sub-agents of sub-agents count, too. None removes the limit.
    """

    allowed: Sequence[Effect]
    allow_hint: str | None
    approver: Approver | None
    inspect: Inspector | None
    hooks: Sequence[Hook]
    script: Literal["auto"] | bool
    script_limits: ScriptLimits
    max_subagents: int | None
    max_subagent_requests: int | None


class ObservationOptions(TypedDict, total=False):
    """Where the journal lists runs, how they are priced, and what traces them.

    - `folder`: the folder under which the journal lists a session. Default: the current folder.
    - `prices`: your own prices, which replace turnwise's prices.
    - `telemetry`: OpenTelemetry's spans and metrics of each run: `Telemetry()`. Needs `turnwise[otel]`.
    - `clock`: a clock for tests, such as `FakeClock`.
    """

    folder: Path | str | None
    prices: Prices
    telemetry: Telemetry | None
    clock: Clock | None


GROUPS: dict[str, type] = {
    "steps": StepOptions,
    "recovery": RecoveryOptions,
    "safety": SafetyOptions,
    "observation": ObservationOptions,
}
# option -> the group that has it
GROUP_OF: dict[str, str] = {name: group for group, kind in GROUPS.items() for name in kind.__annotations__}


# the parts of `Model(...)` by the name of their row or kind -> their name there
OF_MODEL = {
    **{
        name: name
        for name in (
            "base_url",
            "api_key",
            "api_key_env",
            "settings",
            "extra",
            "stream",
            "cache",
            "websocket",
            "transport",
        )
    },
    "model_limits": "limits",
}


def written(name: str, value: str = "...") -> str:
    """How to write an option in Python: `Model("...", base_url=...)`, `safety={"approver": ...}`, `journal=...`."""
    if name in OF_MODEL:
        return f'Model("...", {OF_MODEL[name]}={value})'
    return f'{GROUP_OF[name]}={{"{name}": {value}}}' if name in GROUP_OF else f"{name}={value}"


# Whether values have their declared types. The journal must not write what it cannot read again.


_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)
_read = msgspec.msgpack.Decoder(tuple[Message, ...]).decode
# A Message has about three objects. Python collects garbage once 700 more objects than before are alive.
AT_ONCE = 100


def check_plain(value: TurnStarted | StepPrepared | ResumeTerms, *, what: str) -> None:
    """Raise CallerError that names a field of the wrong type."""
    if isinstance(value, TurnStarted) and value.history and are_plain(value.history):
        value = msgspec.structs.replace(value, history=())
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=type(value))
    except _ERRORS as error:
        raise CallerError(f"{what}: {error}") from error


def are_plain(messages: Sequence[Message]) -> bool:
    """Whether all fields of the messages have their types. For a long history this takes half the time of a check by JSON.

    False says only that they may be wrong: JSON can read some values that this check does not know. Whatever this check accepts
    reads well from JSON, too: a message has no numbers, and its texts and bytes are alike in both.
    """
    try:
        for start in range(0, len(messages), AT_ONCE):
            _read(msgspec.msgpack.encode(messages[start : start + AT_ONCE]))
    except _ERRORS:
        return False
    return True


# The settings of requests: their check, and how a run's settings replace those of its agent.


def read_settings(settings: object, *, what: str = "`settings`") -> Settings:
    """Return the settings unchanged. Raises CallerError for a value that no model accepts."""
    if not isinstance(settings, Settings):
        raise CallerError(f"{what} must be `Settings(...)`, not {type(settings).__name__}")
    try:
        msgspec.convert(msgspec.structs.asdict(settings), Settings)
    except msgspec.ValidationError as error:
        raise CallerError(f"{what}: {error}") from None
    for row in rows():
        value: float | None = getattr(settings, row.option.setting) if row.option.setting and row.bounds else None
        if value is not None and not row.takes(value):
            raise CallerError(f"{what}: `{row.option.setting}` must be a number {row.span}, not {value}")
    return settings


def settings_over(settings: Settings, given: Settings) -> Settings:
    """The agent's settings, replaced by each field of `given` that is not the default."""
    usual = Settings()
    said = {
        name: value for name in Settings.__struct_fields__ if (value := getattr(given, name)) != getattr(usual, name)
    }
    return msgspec.structs.replace(settings, **said)


# What kind of value each option of an agent, of its runs and of `resume` takes: one row for each option.


LONGEST_CHOICE = 16  # the longest choice is half as long; keys are longer


class OptionKind(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of an option's value; `said` describes it in words. The value is one of `choices`, or an instance of `types`, or
    has all `methods`, or `takes` accepts it. `items` is the kind of each item of a list. `by_hand`: another check has a better
    message."""

    said: str = ""
    types: tuple[type, ...] = ()
    choices: tuple[object, ...] = ()
    methods: tuple[str, ...] = ()
    takes: Callable[[object], bool] | None = None
    items: "OptionKind | None" = None
    may_be_none: bool = False
    by_hand: bool = False

    def fits(self, value: object) -> bool:
        """Whether the value is of this kind. Items of a list are not checked."""
        if value is None:
            return self.may_be_none or None in self.choices
        if isinstance(value, self.types) and (type(value) is not bool or bool in self.types):
            return True
        if any(value is choice or (isinstance(value, str) and value == choice) for choice in self.choices):
            return True
        if self.methods:
            return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in self.methods)
        return self.takes is not None and self.takes(value)

    def problem(self, name: str, value: object) -> str:
        """What is wrong with the value; empty if nothing is. It names only the type of the value, because the value may be
        secret."""
        if self.items is not None:
            return self._problem_of_list(name, value, items=self.items)
        if self.by_hand or self.fits(value):
            return ""
        return f"must be {self._words()}, not {told(value) if self.choices else type(value).__name__}"

    def _problem_of_list(self, name: str, value: object, *, items: "OptionKind") -> str:
        if value is None and self.may_be_none:
            return ""
        if is_single(value) or not isinstance(value, Collection) or isinstance(value, bytes | bytearray | Mapping):
            given = cast("object", value)
            shown = '"..."' if isinstance(given, str) else getattr(given, "__name__", None) or type(given).__name__
            return f"must be a list, also of a single one: `{name}=[{shown}]`"
        for item in cast("Collection[object]", value):
            if problem := items.problem(name, item):
                return problem.replace("must be", "must hold", 1)
        return ""

    def _words(self) -> str:
        """What the value must be, in words. Choices are listed."""
        some = [f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in self.choices]
        some += [self.said] if self.said else []
        return " or ".join([", ".join(some[:-1]), some[-1]]) if len(some) > 1 else some[0]


def told(value: object) -> str:
    """A wrong choice as it was given, if it is a short word or a number; otherwise only its type, because the value may be
    secret."""
    is_word = isinstance(value, str) and value.isidentifier() and len(value) <= LONGEST_CHOICE
    return repr(value) if is_word or isinstance(value, int | float | None) else type(value).__name__


def is_single(value: object) -> bool:
    """Whether a single item was given instead of a list."""
    return isinstance(value, (str, Tool, ToolSpec, FunctionTool)) or callable(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list_of(items: OptionKind, *, may_be_none: bool = False) -> OptionKind:
    return OptionKind(items=items, may_be_none=may_be_none)


def _value(kind: type, said: str, *, may_be_none: bool = False) -> OptionKind:
    return OptionKind(types=(kind,), said=said, may_be_none=may_be_none)


_OF_THE_TABLE = rows_from("agent", "run")
_ELSEWHERE = OptionKind(by_hand=True)
_TEXT = OptionKind(types=(str,), said="a text")
_TEXT_OR_NONE = OptionKind(types=(str,), said="a text", may_be_none=True)
_FUNCTION = OptionKind(takes=callable, said="a function")
_FUNCTION_OR_NONE = OptionKind(takes=callable, said="a function", may_be_none=True)
_BOOL = OptionKind(choices=(True, False))
_TOOLS = _list_of(_ELSEWHERE)  # `read_tools` checks what can be a tool
_APPROVALS = _list_of(_value(Approval, "`Approval(call_id=..., verdict=...)`"))

KINDS: dict[str, OptionKind] = {
    **{row.name: OptionKind(choices=row.choices) for row in _OF_THE_TABLE if row.choices},
    **{
        row.name: OptionKind(types=(int,), said="a whole number", may_be_none=True)
        for row in _OF_THE_TABLE
        if row.kind is int
    },
    **dict.fromkeys(GROUPS, OptionKind(types=(Mapping,), said="a dict of its options")),
    "model": _ELSEWHERE,  # `as_model`
    "name": _TEXT,
    "tools": _TOOLS,
    "instructions": OptionKind(
        takes=lambda given: (
            is_single(given) or (isinstance(given, Collection) and not isinstance(given, bytes | Mapping | set))
        ),
        said="a text, a function that writes one, or a list of these",
    ),
    "output_type": _ELSEWHERE,  # `read_output_type` checks what can be described
    "deps_type": OptionKind(
        takes=is_deps_type, said="a type, or `DepsFactory(...)` around a function that makes the deps", may_be_none=True
    ),
    "limits": OptionKind(
        types=(*get_args(Limit), Budget),
        said="a limit, several joined with `|`: `MaxRequests(3) | MaxTokens(20_000)`, or a `Budget`",
        may_be_none=True,
    ),
    "tool_errors": OptionKind(choices=get_args(ToolErrors)),
    "policy": _value(Policy, "`Policy(...)`", may_be_none=True),
    "journal": _value(Journal, "`Journal(PATH)`", may_be_none=True),
    # of a model
    "base_url": _TEXT_OR_NONE,
    "api_key": OptionKind(types=(str, Secret), said="a text", may_be_none=True),
    "api_key_env": _TEXT_OR_NONE,
    "settings": _value(Settings, "`Settings(temperature=...)`"),
    "extra": OptionKind(types=(Mapping,), said="a dict of fields", may_be_none=True),
    "stream": _BOOL,
    "websocket": _BOOL,
    "model_limits": _value(ModelLimits, "`ModelLimits(context_window_tokens=...)`", may_be_none=True),
    "transport": OptionKind(
        methods=("send",), said="an object that sends requests (with a method `send`)", may_be_none=True
    ),
    # steps
    "tool_choice": OptionKind(
        choices=("auto", "none", "required"), types=(NamedTool,), said="`NamedTool(...)` with the name of a tool"
    ),
    "parallel_tool_calls": OptionKind(choices=(True, False, None)),
    "batch_hint": _BOOL,
    "prepare_step": _FUNCTION_OR_NONE,
    "opening": _FUNCTION_OR_NONE,
    # recovery
    "retry": _value(RetryPolicy, "`RetryPolicy(attempts=...)`"),
    "fallbacks": _list_of(_ELSEWHERE),  # `fallback_of`
    "room": OptionKind(choices=get_args(RoomPolicy)),
    "output_checks": _list_of(_FUNCTION),
    "deadlines": _value(Deadlines, "`Deadlines(total_s=...)`"),
    # safety
    "allowed": _list_of(OptionKind(choices=get_args(Effect))),
    "allow_hint": _TEXT_OR_NONE,
    "approver": _FUNCTION_OR_NONE,
    "inspect": _FUNCTION_OR_NONE,
    "hooks": _list_of(_value(Hook, "`Hook(...)`")),
    "script": OptionKind(choices=("auto", True, False)),
    "script_limits": _value(ScriptLimits, "`ScriptLimits(...)`"),
    # observation
    "folder": OptionKind(types=(str, Path), said="a folder's path: a text or a `Path`", may_be_none=True),
    "prices": _value(Prices, "`Prices`"),
    "telemetry": _value(Telemetry, "`Telemetry()`", may_be_none=True),
    "clock": OptionKind(
        methods=("now", "monotonic", "call_later"),
        said="a clock (with the methods `now`, `monotonic` and `call_later`)",
        may_be_none=True,
    ),
    # of a run, and of `resume`
    "deps": _ELSEWHERE,  # `check_deps` compares them with the `deps_type`
    "history": OptionKind(
        takes=lambda given: isinstance(given, Collection) and not isinstance(given, str | bytes | Mapping),
        said="a list of `Message`",
        may_be_none=True,
    ),
    "session": _TEXT_OR_NONE,
    "key": _TEXT,
    "wait": OptionKind(
        takes=lambda given: _is_number(given) and cast("float", given) >= 0.0, said="a number of seconds, 0 or more"
    ),
    "again": _BOOL,
    "drop_left": _BOOL,
    "results": OptionKind(types=(Mapping,), said="a dict of values by call id", may_be_none=True),
    "approvals": _APPROVALS,
    "watch": _FUNCTION_OR_NONE,
    "labels": _ELSEWHERE,  # `read_labels`
    "rules": _list_of(_value(PermissionRule, "`PermissionRule(...)`")),
    "take_over": OptionKind(choices=(True, False)),
    "ask_s": OptionKind(takes=_is_number, said="a number of seconds", may_be_none=True),
}


Given = ParamSpec("Given")

# Options under the names that other libraries use, or given in the wrong place: where they belong.
ELSEWHERE = {
    "api_base": 'Give `Model("...", base_url=...)`',
    "url": 'Give `Model("...", base_url=...)`',
    "key": 'Give `Model("...", api_key=...)`',
    "system": "Did you mean `instructions`?",
    "system_prompt": "Did you mean `instructions`?",
    "functions": "Did you mean `tools`?",
    "response_format": "Did you mean `output_type`?",
    "max_steps": "Give `limits=MaxSteps(...)`",
    "max_turns": "Give `limits=MaxSteps(...)`",
    "max_iterations": "Give `limits=MaxSteps(...)`",
    "max_tokens": 'Give `Model("...", settings=Settings(max_output_tokens=...))` for one response, or `limits=MaxTokens(...)` '
    "for a run",
    "timeout": 'Give `recovery={"deadlines": Deadlines(...)}` for one wait, or `limits=MaxWallTime(...)` for a run',
    "retries": 'Give `recovery={"retry": RetryPolicy(attempts=...)}`',
    "max_retries": 'Give `recovery={"retry": RetryPolicy(attempts=...)}`',
    "agents": 'Give `tools=[Subagents({"name": Agent(...)})]`, or `tools=[agent.as_tool("name", "what it is for")]`',
    "subagents": 'Give `tools=[Subagents({"name": Agent(...)})]`, or `tools=[agent.as_tool("name", "what it is for")]`',
    "handoffs": 'Give `tools=[Subagents({"name": Agent(...)})]`, or `tools=[agent.as_tool("name", "what it is for")]`',
    "max_depth": "Give `Subagents({...}, max_depth=...)`",
    "description": 'Give `agent.as_tool("name", "what it is for")`, or `Subagents({...}, descriptions={...})`',
    "messages": "Give `history=` to the run",
    "context": "Did you mean `deps`?",
    "deps": "Give `deps=` to the run, and the agent their type: `deps_type=`",
    "output_validators": "Did you mean `output_checks`?",
    "output_guardrails": 'Give `recovery={"output_checks": [...]}`',
    "output_retries": 'Give `recovery={"retry": RetryPolicy(attempts=...)}`; a wrong output is asked for again by itself',
    "result_type": "Did you mean `output_type`?",
    "model_settings": 'Give `Model("...", settings=Settings(...))`, or `settings=` to a run',
    "usage_limits": "Give `limits=MaxRequests(...) | MaxTokens(...)`",
    "usage": "Give `limits=Budget(...)`: it counts many runs together",
    "toolsets": "Give them in `tools`",
    "mcp_servers": "Give `tools=[McpServer(...)]`",
    "message_history": "Give `history=` to the run",
    "conversation_id": "Give `session=` to the run, and a journal to the agent",
    "deferred_tool_results": "Give `results=` or `approvals=` to the run",
    "event_stream_handler": "Give `watch=` to the run, or read `agent.stream(...)`",
    "metadata": "Give `labels=` to the run",
    "name": "An agent has no name of its own: give `agent.as_tool(name, ...)` or `Subagents({name: agent})`",
}

BESIDE_GROUPS = frozenset(
    {"model", "tools", "instructions", "output_type", "deps_type", "limits", "policy", "journal", "tool_errors"}
)
_ROWS = {row.name: row for row in rows_from("agent", "run")}
_NAMES = {MaxSteps: "max_steps", **{row.option.limit: row.name for row in rows() if row.option.limit is not None}}


def checking_options(set_up: Callable[Given, None]) -> Callable[Given, None]:
    """`set_up` (an `__init__`) with a check of its options before it."""

    @functools.wraps(set_up)
    def checked(*args: Given.args, **options: Given.kwargs) -> None:
        known = cast("dict[str, Any]", getattr(set_up, "__kwdefaults__", {}))
        if "endpoint" in options:
            raise UnknownOption(of_endpoint(options, model=args[1] if len(args) > 1 else options.get("model")))
        check_names(options, known={"model", *known}, what="`Agent`")
        check_values(options)
        check_groups(options)
        set_up(*args, **options)

    return checked


def checking_model(set_up: Callable[Given, None]) -> Callable[Given, None]:
    """`Model.__init__` with a check of its options before it."""

    @functools.wraps(set_up)
    def checked(*args: Given.args, **options: Given.kwargs) -> None:
        known = cast("dict[str, Any]", getattr(set_up, "__kwdefaults__", {}))
        given = {"name": args[1], **options} if len(args) > 1 else options
        check_names([name for name in given if name != "name"], known=known, what="`Model`")
        for name, value in given.items():
            if problem := _problem("model_limits" if name == "limits" else name, value):
                raise CallerError(f"`{name}` of `Model` {problem}")
        set_up(*args, **options)

    return checked


def of_endpoint(options: Mapping[str, object], *, model: object = None) -> str:
    """What to write in place of the group `endpoint`, which is gone: `model` None means an option of a run."""
    given = options["endpoint"]
    names = (
        [str(name) for name in cast("Mapping[object, object]", given)] if isinstance(given, Mapping) else ["base_url"]
    )
    of_run, lines = model is None, list[str]()
    parts = [name for name in names if name in OF_MODEL]
    if of_run and parts == ["settings"]:
        lines.append("settings=Settings(...)")
    elif parts:
        text = f"{model!r}".replace("'", '"') if isinstance(model, str) else '"..."'
        made = f"Model({', '.join([text, *[f'{OF_MODEL[name]}=...' for name in parts]])})"
        lines.append(f"model={made}" if of_run else made)
    if steps := [name for name in names if name not in OF_MODEL]:
        lines.append(f"steps={{{', '.join([f'{chr(34)}{name}{chr(34)}: ...' for name in steps])}}}")
    line = ", ".join(lines) or "steps={}"
    return f"`endpoint` is no option {'of a run' if of_run else 'of `Agent`'}. Give `{line if of_run else f'Agent({line})'}`"


def check_names(names: Iterable[str], *, known: Collection[str], what: str) -> None:
    """Raise UnknownOption for a name that is not among these. The error suggests a similar name, or the right place."""
    for name in names:
        if not isinstance(cast("object", name), str):
            raise CallerError(f"the name of an option of {what} must be a text, not {type(name).__name__}")
        if name not in known:
            raise UnknownOption(f"`{name}` is no option of {what}. {_hint(name, known=sorted(known))}")


def check_values(options: Mapping[str, object], *, of: str = "") -> None:
    """Raise CallerError for the first value of the wrong kind. `of` says whose options these are."""
    for name, value in options.items():
        if problem := _problem(name, value):
            raise CallerError(f"`{name}`{of} {problem}")


def check_groups(options: Mapping[str, object], *, of: str = "") -> None:
    """Raise for the first option that its group does not have, or whose value is of the wrong kind."""
    for group, kind in GROUPS.items():
        given = cast("Mapping[str, object]", options.get(group, {}))
        check_names(given, known=kind.__annotations__, what=f"`{group}`{of}")
        check_values(given, of=f" in `{group}`{of}")


def _hint(name: str, *, known: list[str]) -> str:
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if name in GROUP_OF or (name in OF_MODEL and "base_url" not in known):
        return f"Give `{written(name)}`"
    if name in BESIDE_GROUPS:
        return f"It stands beside the groups: `Agent({name}=...)`"
    for row in rows():
        if row.name == name and row.option.limit is not None:
            return f"Give `limits={row.option.limit.__name__}(...)`"
    if name in Settings.__struct_fields__:
        value = f"Settings({name}=...)"
        return f"Give `{f'settings={value}' if 'settings' in known else written('settings', value)}`"
    if name in Deadlines.__struct_fields__:
        return f"Give `{written('deadlines', f'Deadlines({name}=...)')}`"
    for near in (difflib.get_close_matches(name, some, n=1) for some in (known, (*GROUP_OF, *OF_MODEL))):
        if near:
            return f"Did you mean `{near[0] if near[0] in known else written(near[0])}`?"
    return f"The options are: {', '.join(known)}"


def _problem(name: str, value: object) -> str:
    """What is wrong with the value; empty if no problem is known."""
    kind = KINDS.get(name)
    if kind is None:
        return ""
    if problem := kind.problem(name, value):
        return problem
    if name == "folder" and isinstance(value, str | Path) and not Path(value).is_dir():
        return f"is `{value}`, and there is no such folder: make it first, or leave `folder` out"
    if isinstance(value, int) and (row := _ROWS.get(name)) is not None and row.kind is int and not row.takes(value):
        return f"must be a whole number {row.span}, not {value}"
    return _problem_of_amounts(value)


def _problem_of_amounts(value: object) -> str:
    """What is wrong with an amount in a limit or in the limits of a model. The ranges are those of the table of options."""
    said: list[tuple[str, object, object]] = []  # the row's name, the amount, and the object that holds it
    if isinstance(value, ModelLimits):
        said = [("context_window", value.context_window_tokens, value)]
    elif isinstance(value, get_args(Limit)):
        leaves = leaves_of(cast("Limit", value))
        said = [(_NAMES.get(type(leaf), ""), getattr(leaf, leaf.__struct_fields__[0]), leaf) for leaf in leaves]
    for row in rows():
        for name, amount, where in said:
            if name == row.name and amount is not None and not _is_within(amount, row):
                return f"holds `{_shown(where)}`: give a number {row.span}"
    return ""


def _is_within(amount: object, row: OptionRow) -> bool:
    if isinstance(amount, Decimal):  # dollars: `MaxCost` checks them itself
        return True
    kinds = (int,) if row.kind is int else (int, float)
    return isinstance(amount, kinds) and not isinstance(amount, bool) and row.takes(amount)


def _shown(value: object) -> str:
    """The value as Python shows it; only its type if that is long."""
    said = repr(value)
    return said if len(said) <= 60 else type(value).__name__


# The model of an agent: which one it is, where it is, and how its requests look.


@runtime_checkable
class PlayedModel(Transport, Protocol):
    """A transport that knows which model it plays: a `ScriptedModel`, a `Recording`."""

    def played_model(self) -> str:
        """The model as `PROVIDER:NAME` or `FAMILY:NAME`. Raises CallerError if it is not known."""
        ...

    def played_at(self) -> str | None:
        """The endpoint URL to which requests are addressed; None for the provider's own."""
        ...


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Model:
    """A model: which one it is, where it is, and how its requests look. A frozen value: equal parts make equal models.

    - `name` is `PROVIDER:NAME` (`openai:gpt-6.1-sol`, `ollama:qwen3:8b`). With a URL of your own it is `FAMILY:NAME`:
      `Model("openai_chat:NAME", base_url=...)`.
    - `base_url`: endpoint URL, if it is not the provider's default.
    - `api_key`, `api_key_env`: the key, or the name of the variable that holds it. Default: the provider's usual
      variable. turnwise looks for it when a run begins.
    - `settings`: temperature, output limit and so on. The `settings` of a run replace them, field by field.
    - `limits`: context window and output limit in tokens. Set this if turnwise's values are missing or wrong.
    - `cache`: `auto` asks the provider to keep the prompt in its cache for the provider's usual time. `1h` asks for an hour
      (OpenAI: up to a day). `off` does not ask.
    - `extra`: further fields that turnwise adds to the body of each request.
    - `stream`: with False the provider sends each response in one piece.
    - `websocket`: ask over one WebSocket for a run, which sends only what is new with each step (OpenAI's Responses API).
    - `transport`: an object that sends the requests in place of HTTP. A `ScriptedModel` and a `Recording` are models
      themselves: `Agent(ScriptedModel([...]))`. Give one here to ask it under another name or with settings.

    Raises UnknownOption, or CallerError if a value is of the wrong kind.
    """

    name: str
    base_url: str | None
    api_key: Secret | None
    api_key_env: str | None
    settings: Settings
    limits: ModelLimits | None
    cache: Cache
    extra: Mapping[str, object] | None = dataclasses.field(hash=False)
    stream: bool
    websocket: bool
    transport: Transport | None

    @checking_model
    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: "str | Secret | None" = None,
        api_key_env: str | None = None,
        settings: Settings = Settings(),  # noqa: B008 (never changed)
        limits: ModelLimits | None = None,
        cache: Cache = "auto",
        extra: Mapping[str, object] | None = None,
        stream: bool = True,
        websocket: bool = False,
        transport: Transport | None = None,
    ) -> None:
        key = Secret(api_key) if isinstance(api_key, str) and api_key.strip() else api_key or None
        vars(self).update(
            name=name,
            base_url=base_url,
            api_key=key,
            api_key_env=api_key_env,
            settings=read_settings(settings),
            limits=limits,
            cache=cache,
            extra=extra,
            stream=stream,
            websocket=websocket,
            transport=transport,
        )

    def __repr__(self) -> str:
        """As it is written, without the key and without the query of the URL, which may hold one."""
        usual = vars(Model(self.name))
        shown = {**vars(self), "base_url": (self.base_url or "").partition("?")[0] or None}
        given = [f"{name}={value!r}" for name, value in shown.items() if value != usual[name]]
        return f"Model({', '.join([repr(self.name), *given])})"


ModelLike = str | Model | PlayedModel
"""What an agent and a run take as their model: `"openai:gpt-6.1-sol"`, `Model(...)`, a `ScriptedModel`, a `Recording`."""


def as_model(given: ModelLike) -> Model:
    """The model as a value. Raises UnknownModel or another CallerError."""
    if isinstance(given, Model):
        return given
    if isinstance(given, PlayedModel):
        return Model(given.played_model(), transport=given)
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance] (a caller may give anything)
        raise CallerError(
            f'`model` must be a text such as "openai:gpt-6.1-sol", `Model(...)` or a `ScriptedModel`, not {type(given).__name__}'
        )
    return Model(given)


def address_of(model: Model) -> str | None:
    """The URL that is given for its endpoint, by itself or by a transport that plays a model."""
    return model.base_url or (model.transport.played_at() if isinstance(model.transport, PlayedModel) else None)
