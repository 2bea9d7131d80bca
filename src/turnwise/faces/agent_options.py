"""What an agent and a run are set up with: an unknown name, or a value of the wrong kind, raises with the fix in one sentence."""

import difflib
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ParamSpec, cast, get_args

from turnwise.drivers.journal.journal import Journal
from turnwise.drivers.journal.prices import Prices
from turnwise.drivers.settings.options import OptionRow, rows, rows_from
from turnwise.drivers.telemetry.telemetry import Telemetry
from turnwise.drivers.tools.tools import Tool
from turnwise.errors import CallerError, UnknownOption
from turnwise.faces.agent_groups import GROUP_OF, GROUPS, written_in_group
from turnwise.faces.budgets import Budget
from turnwise.faces.deps import is_deps_type
from turnwise.faces.tools import FunctionTool
from turnwise.rules.budget import ModelLimits
from turnwise.rules.limits import Limit, MaxSteps, leaves_of
from turnwise.rules.permissions import Policy
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import Deadlines, Effect, RoomPolicy, ScriptLimits
from turnwise.vocab import File, Settings, Text, ToolSpec

Given = ParamSpec("Given")

# Where that goes which other libraries know by another name, or in another place.
ELSEWHERE = {
    "api_base": 'Give `endpoint={"base_url": ...}`',
    "url": 'Give `endpoint={"base_url": ...}`',
    "key": 'Give `endpoint={"api_key": ...}`',
    "system": "Did you mean `instructions`?",
    "system_prompt": "Did you mean `instructions`?",
    "functions": "Did you mean `tools`?",
    "response_format": "Did you mean `output_type`?",
    "max_steps": "Give `limits=MaxSteps(...)`",
    "max_turns": "Give `limits=MaxSteps(...)`",
    "max_iterations": "Give `limits=MaxSteps(...)`",
    "max_tokens": 'Give `endpoint={"settings": Settings(max_output_tokens=...)}` for one response, or `limits=MaxTokens(...)` '
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
}

BESIDE_GROUPS = frozenset({"model", "tools", "instructions", "output_type", "deps_type", "limits"})
_OF_THE_TABLE = rows_from("agent", "run")
_CHOICES: dict[str, tuple[object, ...]] = {
    **{row.name: row.choices for row in _OF_THE_TABLE if row.choices},
    "room": get_args(RoomPolicy),
    "script": ("auto", True, False),
}
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "limits": (
        (*get_args(Limit), Budget),
        "a limit, several joined with `|`: `MaxRequests(3) | MaxTokens(20_000)`, or a `Budget`",
    ),
    "retry": ((RetryPolicy,), "`RetryPolicy(attempts=...)`"),
    "deadlines": ((Deadlines,), "`Deadlines(total_s=...)`"),
    "model_limits": ((ModelLimits,), "`ModelLimits(context_window_tokens=...)`"),
    "script_limits": ((ScriptLimits,), "`ScriptLimits(...)`"),
    "policy": ((Policy,), "`Policy(...)`"),
    "prices": ((Prices,), "`Prices`"),
    "journal": ((Journal,), "`Journal(PATH)`"),
    "telemetry": ((Telemetry,), "`Telemetry()`"),
    "settings": ((Settings,), "`Settings(temperature=...)`"),
    **dict.fromkeys(GROUPS, ((Mapping,), "a dict of its options")),
}
_OPTIONAL = frozenset({"limits", "model_limits", "policy", "journal", "telemetry"})
_LISTS = frozenset({"tools", "fallbacks", "hooks", "allowed", "output_checks"})
_NAMES = {MaxSteps: "max_steps", **{row.option.limit: row.name for row in rows() if row.option.limit is not None}}
_COUNTS = frozenset([row.name for row in _OF_THE_TABLE if row.kind is int])


def checking_options(set_up: Callable[Given, None]) -> Callable[Given, None]:
    """`set_up` (an `__init__`) with its options looked at first."""

    @functools.wraps(set_up)
    def checked(*args: Given.args, **options: Given.kwargs) -> None:
        known = cast("dict[str, Any]", getattr(set_up, "__kwdefaults__", {}))
        check_names([name for name in options if name != "model"], known=known, what="`Agent`")
        check_values(options)
        check_groups(options)
        set_up(*args, **options)

    return checked


def check_names(names: Iterable[str], *, known: Collection[str], what: str) -> None:
    """Raise UnknownOption for a name that is none of these: it says the near one, or where that goes."""
    for name in names:
        if name not in known:
            raise UnknownOption(f"`{name}` is no option of {what}. {_hint(name, known=sorted(known))}")


def check_values(options: Mapping[str, object], *, of: str = "") -> None:
    """Raise CallerError for the first value of the wrong kind. `of` says whose options they are."""
    for name, value in options.items():
        if problem := _problem(name, value):
            raise CallerError(f"`{name}`{of} {problem}")


def check_groups(options: Mapping[str, object], *, of: str = "") -> None:
    """Raise for the first option in a group that the group does not have, or whose value is of the wrong kind."""
    for group, kind in GROUPS.items():
        given = cast("Mapping[str, object]", options.get(group, {}))
        check_names(given, known=kind.__annotations__, what=f"`{group}`{of}")
        check_values(given, of=f" in `{group}`{of}")


def check_parts(parts: Iterable[object], *, what: str) -> None:
    """Raise CallerError for what is no part of a user's message."""
    for part in parts:
        if not isinstance(part, str | Text | File):
            hint = (
                ": earlier messages go in `history=`, and `messages_from(...)` reads a vendor's dicts"
                if isinstance(part, Mapping)
                else ""
            )
            kind = type(cast("object", part)).__name__
            raise CallerError(f"{what} must be a text, or a list of texts, `Text` and `File`; it holds a {kind}{hint}")


def _hint(name: str, *, known: list[str]) -> str:
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if name in GROUP_OF:
        return f"Give `{written_in_group(name)}`"
    if name in BESIDE_GROUPS:
        return f"It stands beside the groups: `Agent({name}=...)`"
    for row in rows():
        if row.name == name and row.option.limit is not None:
            return f"Give `limits={row.option.limit.__name__}(...)`"
    if name in Settings.__struct_fields__:
        return f"Give `{written_in_group('settings', f'Settings({name}=...)')}`"
    if name in Deadlines.__struct_fields__:
        return f"Give `{written_in_group('deadlines', f'Deadlines({name}=...)')}`"
    for near in (difflib.get_close_matches(name, known, n=1), difflib.get_close_matches(name, GROUP_OF, n=1)):
        if near:
            return f"Did you mean `{near[0] if near[0] in known else written_in_group(near[0])}`?"
    return f"The options are: {', '.join(known)}"


def _problem(name: str, value: object) -> str:
    """What is wrong with the value; empty where nothing is known against it."""
    if name in _CHOICES:
        return _problem_of_choice(value, choices=_CHOICES[name])
    if name in _LISTS:
        return _problem_of_list(name, value)
    if name == "deps_type" and not is_deps_type(value):
        return (
            f"must be a type, or `DepsFactory(...)` around a function that makes the deps, not a {type(value).__name__}"
        )
    if name in _KINDS:
        kinds, example = _KINDS[name]
        if isinstance(value, kinds) or (value is None and name in _OPTIONAL):
            return _problem_of_amounts(value)
        return f"must be {example}, not {_shown(value)}"
    if name in _COUNTS and value is not None:
        return _problem_of_count(name, value)
    if name == "folder" and isinstance(value, str | Path) and not Path(value).is_dir():
        return f"is `{value}`, and there is no such folder: make it first, or leave `folder` out"
    return ""


def _problem_of_count(name: str, value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"must be a whole number, not {_shown(value)}"
    row = next((row for row in _OF_THE_TABLE if row.name == name), None)
    return "" if row is None or row.takes(value) else f"must be a whole number {row.span}, not {_shown(value)}"


def _problem_of_amounts(value: object) -> str:
    """What is wrong with an amount in a limit, or in what is known of a model: the ranges are those of the table of options."""
    said: list[tuple[str, object, object]] = []  # the row's name, the amount, and where it stands
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
    if isinstance(amount, Decimal):  # dollars: `MaxCost` looks at them itself
        return True
    kinds = (int,) if row.kind is int else (int, float)
    return isinstance(amount, kinds) and not isinstance(amount, bool) and row.takes(amount)


def _problem_of_choice(value: object, *, choices: tuple[object, ...]) -> str:
    if any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        return ""
    *some, last = [f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in choices]
    return f"must be {', '.join(some)} or {last}, not {_shown(value)}"


def _problem_of_list(name: str, value: object) -> str:
    is_single = isinstance(value, (str, Tool, ToolSpec, FunctionTool)) or callable(value)
    if is_single or not isinstance(value, Iterable):
        given = cast("object", value)
        shown = repr(given) if isinstance(given, str) else getattr(given, "__name__", None) or _shown(given)
        return f"must be a list, also of a single one: `{name}=[{shown}]`"
    effects = get_args(Effect)
    strange = [one for one in cast("Iterable[object]", value) if one not in effects] if name == "allowed" else []
    return _problem_of_choice(strange[0], choices=effects).replace("must be", "must hold") if strange else ""


def _shown(value: object) -> str:
    """Short: what it is, and what it says."""
    said = repr(value)
    return said if len(said) <= 60 else type(value).__name__
