"""What `turnwise check --rules` has found: a line a rule, and the row for the user's own `turnwise.toml`."""

import json
from collections.abc import Iterator, Mapping

import click
import msgspec

from turnwise._version import __version__
from turnwise.coding_agent.text import clean, shortened, style
from turnwise.lab.endpoint_check.judging import CheckOutcome, ProfileChange
from turnwise.lab.endpoint_check.profile_rows import profile_with, write_row
from turnwise.lab.endpoint_check.rule_asking import AskedRule, RuleCourse
from turnwise.lab.endpoint_check.rule_probes import UNASKED, RuleAnswer, row_fields
from turnwise.rules.pricing import Cost
from turnwise.settings.endpoint_rows import ENDPOINTS
from turnwise.terminal.endpoint_check.showing import MAX_FOUND, VERSION, spent_said
from turnwise.vocab import Usage
from turnwise.wire.profiles import Profile, builtin_profiles

RULE_MARKS: Mapping[RuleAnswer, tuple[str, str, str]] = {
    "taken": ("✓", "green", "taken"),
    "refused": ("!", "yellow", "refused"),
    "unknown": ("?", "red", "not known"),
    "not_asked": ("-", "dim", "not asked"),
}
RULE_ENDS: Mapping[CheckOutcome, tuple[str, str]] = {
    "fine": ("the server takes a conversation as turnwise writes it by this row", "green"),
    "faults": ("the server refuses a conversation as turnwise writes it by this row", "red"),
    "no_server": ("the server took no request of this API", "red"),
    "stopped": ("stopped; this is what was found until then", "yellow"),
}
AT_RANDOM = "the server refuses requests that it took before: its refusals say nothing of its rules"


class RuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that is told. `row` is what goes into the user's `turnwise.toml`, below `settings`, which choose the model; both are
    empty where no answer came, or where the address may hold a key."""

    model: str
    url: str
    outcome: CheckOutcome
    exit_code: int
    asked: tuple[AskedRule, ...]
    holds: AskedRule | None
    refused_plain: AskedRule | None
    requests: int
    usage: Usage
    cost: Cost
    changes: tuple[ProfileChange, ...]
    row_name: str
    row: str
    settings: str


def outcome_of(course: RuleCourse) -> CheckOutcome:
    if course.stopped:
        return "stopped"
    if not course.has_answered:
        return "no_server"
    return "fine" if course.holds is not None and course.holds.answer == "taken" else "faults"


def found_profile(
    course: RuleCourse, *, base_url: str, api_key_env: str | None
) -> tuple[Profile, tuple[ProfileChange, ...]]:
    """The row as it goes into the user's file, with a name of its own, and what was changed in it."""
    before = course.profile
    fields = {name: value for name, value in row_fields(course.so_far).items() if getattr(before, name) != value}
    refused = ", ".join([one.title for one in course.asked if one.answer == "refused"])
    changes = tuple(
        [ProfileChange(field=name, value=value, why=f"refused: {refused}") for name, value in fields.items()]
    )
    profile = profile_with(before, changes=changes, base_url=base_url, api_key_env=api_key_env)
    if profile.name in builtin_profiles():
        profile = msgspec.structs.replace(profile, name=f"my-{profile.name}")
    return profile, changes


def row_of(profile: Profile) -> str:
    return write_row(profile, table=f"{ENDPOINTS}.")


def rule_lines(shown: RuleReport) -> Iterator[str]:
    width = max([len(one.title) for one in shown.asked], default=0)
    for one in (*shown.asked, *([shown.refused_plain] if shown.refused_plain else ())):
        mark, colour, word = RULE_MARKS[one.answer]
        words = f": {shortened(one.words, limit=MAX_FOUND)}" if one.words and one.answer != "taken" else ""
        yield f"{style(mark, colour)} {clean(one.title).ljust(width)}  {word}{words}"
    if shown.holds is not None:
        mark, colour, word = RULE_MARKS[shown.holds.answer]
        words = f": {shortened(shown.holds.words, limit=MAX_FOUND)}" if shown.holds.answer != "taken" else ""
        yield f"{style(mark, colour)} {shown.holds.title.ljust(width)}  {word}{words}"
    yield f"never asked: {'; '.join(UNASKED)}"
    if shown.row:
        yield ("" if shown.changes else "\nnothing was refused that turnwise sends another way;")
        yield "your own turnwise.toml takes this row:"
        yield from [f"  {clean(line)}" for line in (shown.settings + "\n" + shown.row).splitlines()]
    yield ""
    yield spent_said(shown.requests, shown.usage, shown.cost)
    end, colour = RULE_ENDS[shown.outcome] if shown.refused_plain is None else (AT_RANDOM, "red")
    yield style(end, colour, "bold")


def show_rules(shown: RuleReport) -> None:
    for line in rule_lines(shown):
        click.echo(line)


def write_rules_json(shown: RuleReport) -> None:
    """In ASCII, as that of a check."""
    usd = shown.cost.exact_usd
    told: dict[str, object] = {
        "turnwise": __version__,
        "version": VERSION,
        "model": shown.model,
        "base_url": shown.url,
        "outcome": shown.outcome,
        "exit_code": shown.exit_code,
        "requests": shown.requests,
        "usage": {"input_tokens": shown.usage.input_tokens, "output_tokens": shown.usage.output_tokens},
        "cost_usd": None if usd is None or not shown.cost.requests else f"{usd:f}",
        "rules": [msgspec.structs.asdict(one) for one in shown.asked],
        "conversation": None if shown.holds is None else shown.holds.answer,
        "control": "taken" if shown.refused_plain is None else shown.refused_plain.answer,
        "never_asked": UNASKED,
        "endpoint": {
            "name": shown.row_name,
            "toml": shown.row,
            "changes": {change.field: change.value for change in shown.changes},
        }
        if shown.row
        else None,
        "settings": shown.settings or None,
    }
    click.echo(json.dumps(msgspec.to_builtins(told)))
