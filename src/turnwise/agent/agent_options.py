"""What an agent and a run are set up with: an unknown name, or a value of the wrong kind, raises with the fix in one sentence."""

import difflib
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ParamSpec, cast, get_args

from turnwise.agent.agent_groups import GROUP_OF, GROUPS, written_in_group
from turnwise.agent.option_kinds import KINDS
from turnwise.errors import CallerError, UnknownOption
from turnwise.rules.budget import ModelLimits
from turnwise.rules.limits import Limit, MaxSteps, leaves_of
from turnwise.settings.options import OptionRow, rows, rows_from
from turnwise.turn.config import Deadlines
from turnwise.vocab import File, Settings, Text

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
_ROWS = {row.name: row for row in rows_from("agent", "run")}
_NAMES = {MaxSteps: "max_steps", **{row.option.limit: row.name for row in rows() if row.option.limit is not None}}


def checking_options(set_up: Callable[Given, None]) -> Callable[Given, None]:
    """`set_up` (an `__init__`) with its options looked at first."""

    @functools.wraps(set_up)
    def checked(*args: Given.args, **options: Given.kwargs) -> None:
        known = cast("dict[str, Any]", getattr(set_up, "__kwdefaults__", {}))
        check_names([name for name in options if name != "model"], known=known, what="`Agent`")
        check_values({"model": args[1], **options} if len(args) > 1 else options)
        check_groups(options)
        set_up(*args, **options)

    return checked


def check_names(names: Iterable[str], *, known: Collection[str], what: str) -> None:
    """Raise UnknownOption for a name that is none of these: it says the near one, or where that goes."""
    for name in names:
        if not isinstance(cast("object", name), str):
            raise CallerError(f"the name of an option of {what} must be a text, not {type(name).__name__}")
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


def _shown(value: object) -> str:
    """Short: what it is, and what it says."""
    said = repr(value)
    return said if len(said) <= 60 else type(value).__name__
