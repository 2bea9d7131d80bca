"""`turnwise check`: the command, and how its findings are shown."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from turnwise._version import __version__
from turnwise.agent.formatting import many, usd_said
from turnwise.agent.models import ON_THE_COMMAND_LINE, ModelName, open_endpoint, read_model
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.choice import Choice, NoModel, choose
from turnwise.coding_agent.model_names import shown_url
from turnwise.coding_agent.repository import settings_of_run
from turnwise.coding_agent.text import clean, clean_line, shortened, style
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint
from turnwise.errors import CallerError
from turnwise.journal.prices import prices_of_layers
from turnwise.lab.endpoint_check.judging import CheckOutcome, Judgement, ProfileChange, judge, profile_with, write_row
from turnwise.lab.endpoint_check.probes import (
    MAX_OUTPUT_TOKENS,
    PROBES,
    Estimate,
    Probe,
    SoFar,
    estimate,
    estimate_said,
)
from turnwise.lab.endpoint_check.rule_asking import AskedRule, RuleCourse, ServerRulesCheck, estimate_rules
from turnwise.lab.endpoint_check.rule_probes import RULE_PROBES, UNASKED, RuleAnswer, row_fields
from turnwise.lab.endpoint_check.running import Course, EndpointCheck
from turnwise.lab.endpoint_check.shapes import WEIGHTS, Weight, meaning_of
from turnwise.rules.pricing import Cost, PriceRow, cost_of_prices, price_of
from turnwise.settings.endpoint_rows import ENDPOINTS
from turnwise.settings.settings import RunSettings, read_layers
from turnwise.settings.user_settings import lines_of
from turnwise.terminal.exit_codes import CANCELLED, CHECK_CODES
from turnwise.terminal.failures import write_ascii_json
from turnwise.terminal.pager import cancelling
from turnwise.terminal.screen import spinning
from turnwise.terminal.terminal import Terminal
from turnwise.vocab import Usage
from turnwise.wire.profiles import Profile, builtin_profiles, parse_profiles

Found = TypeVar("Found")

# The findings as a table for people, or as one JSON object.


VERSION = 1  # of the JSON object: it grows when a field changes its meaning
MAX_FOUND = 160  # characters: a server's error may be a page
MARKS: Mapping[Weight, tuple[str, str]] = {
    "usual": ("✓", "green"),
    "healed": ("~", "cyan"),
    "lacks": ("!", "yellow"),
    "broken": ("✗", "red"),
}
ENDS: Mapping[CheckOutcome, tuple[str, str]] = {
    "fine": ("turnwise can work with this endpoint", "green"),
    "faults": ("something does not work", "red"),
    "no_server": ("no answer of this API came", "red"),
    "stopped": ("stopped; this is what was found until then", "yellow"),
}


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `url` is the address without its query, `row` the TOML for the profile, `settings` the TOML for the
    user's `turnwise.toml`; both are empty if no answer came."""

    model: str
    url: str
    judgement: Judgement
    requests: int
    usage: Usage
    cost: Cost
    row_name: str
    row: str
    settings: str
    exit_code: int


def report_lines(shown: CheckReport) -> Iterator[str]:
    titles = {probe.name: probe.title for probe in PROBES}
    judgement = shown.judgement
    width = max([len(titles[verdict.probe]) for verdict in judgement.verdicts], default=0)
    for verdict in judgement.verdicts:
        mark, colour = MARKS[verdict.weight]
        title = titles[verdict.probe].ljust(width)
        yield f"{style(mark, colour)} {title}  {shortened(verdict.found or 'no answer', limit=MAX_FOUND)}"
    if judgement.unanswered:
        yield f"sent, and not waited for: {', '.join(judgement.unanswered)}"
    if judgement.unasked:
        yield f"not asked: {', '.join(judgement.unasked)}"
    yield from _seen_lines(judgement)
    if shown.row:
        yield from ("", "the profile (a row of profiles.toml) should say:")
        yield from [f"  # {one.field}: {shortened(one.why, limit=MAX_FOUND)}" for one in judgement.changes]
        yield from [f"  {clean(line)}" for line in shown.row.splitlines()]
    if shown.settings:
        yield from ("", "your own turnwise.toml can say:")
        yield from [f"  {clean(line)}" for line in shown.settings.splitlines()]
    yield ""
    yield spent_said(shown.requests, shown.usage, shown.cost)
    end, colour = ENDS[judgement.outcome]
    yield style(end, colour, "bold")


def _seen_lines(judgement: Judgement) -> Iterator[str]:
    before: Weight | None = None
    for name, probes in judgement.seen.items():
        meaning = meaning_of(name)
        if meaning.weight != before:
            before = meaning.weight
            yield ""
            yield f"{WEIGHTS[before]}:"
        mark, colour = MARKS[meaning.weight]
        yield f"{style(mark, colour)} {meaning.words} ({', '.join(probes)})"


def spent_said(requests: int, usage: Usage, cost: Cost) -> str:
    """One line: requests, tokens, money."""
    if cost.is_unknown or not cost.requests:
        money = "cost unknown"
    else:
        money = f"{'at least ' if cost.is_partial else ''}{usd_said(cost.usd)}"
    return f"{many(requests, 'request')}, {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {money}"


def _told_first(shown: "CheckReport | RuleReport", *, outcome: CheckOutcome, **tokens: int) -> dict[str, object]:
    """The part of the `--json` output that both kinds of check share. `tokens` are counted beside those of input and output."""
    usd = shown.cost.exact_usd
    return {
        "turnwise": __version__,
        "version": VERSION,
        "model": shown.model,
        "base_url": shown.url,
        "outcome": outcome,
        "exit_code": shown.exit_code,
        "requests": shown.requests,
        "usage": {"input_tokens": shown.usage.input_tokens, "output_tokens": shown.usage.output_tokens, **tokens},
        "cost_usd": None if usd is None or not shown.cost.requests else f"{usd:f}",
    }


def report_told(shown: CheckReport) -> dict[str, object]:
    judgement = shown.judgement
    return {
        **_told_first(shown, outcome=judgement.outcome, cache_read_tokens=shown.usage.cache_read_tokens),
        "probes": [
            {
                "name": verdict.probe,
                "weight": verdict.weight,
                "seen": verdict.seen,
                "found": verdict.found,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in judgement.verdicts
        ],
        "not_waited_for": judgement.unanswered,
        "not_asked": judgement.unasked,
        "seen": [
            {"name": name, "weight": meaning_of(name).weight, "words": meaning_of(name).words, "probes": probes}
            for name, probes in judgement.seen.items()
        ],
        "profile": {
            "name": shown.row_name,
            "toml": shown.row,
            "changes": [msgspec.structs.asdict(change) for change in judgement.changes],
        }
        if shown.row
        else None,
        "settings": shown.settings or None,
    }


# The findings of `turnwise check --rules`: one line for each rule, and the row for the user's own `turnwise.toml`.


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
    """The whole report. `row` goes into the user's `turnwise.toml`, below `settings`, which choose the model. Both are empty if
    no answer came, or if the address may hold a key."""

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
    """The row for the user's file, with a name of its own, and the changes in it."""
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
    for one in (*shown.asked, shown.refused_plain, shown.holds):
        if one is not None:
            mark, colour, word = RULE_MARKS[one.answer]
            words = f": {shortened(one.words, limit=MAX_FOUND)}" if one.words and one.answer != "taken" else ""
            yield f"{style(mark, colour)} {clean(one.title).ljust(width)}  {word}{words}"
    yield f"never asked: {'; '.join(UNASKED)}"
    if shown.row:
        yield ("" if shown.changes else "\nnothing was refused that turnwise sends another way;")
        yield "your own turnwise.toml takes this row:"
        yield from [f"  {clean(line)}" for line in (shown.settings + "\n" + shown.row).splitlines()]
    yield ""
    yield spent_said(shown.requests, shown.usage, shown.cost)
    end, colour = RULE_ENDS[shown.outcome] if shown.refused_plain is None else (AT_RANDOM, "red")
    yield style(end, colour, "bold")


def rules_told(shown: RuleReport) -> dict[str, object]:
    return {
        **_told_first(shown, outcome=shown.outcome),
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


# The order of `turnwise check`: say what it will cost, ask, send, judge, show.


NEEDS_MODEL = (
    "no model: name it as `turnwise check PROVIDER:NAME` (for example openai:gpt-6.1-sol), or set TURNWISE_MODEL"
)
NEEDS_YES = "nothing was sent, as nobody can be asked here: add --yes"


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    model: str | None
    base_url: str | None = None
    api_key_env: str | None = None
    only: tuple[str, ...] = ()
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    timeout_s: float = 60.0
    yes: bool = False
    as_json: bool = False
    rules: bool = False


def check(wanted: CheckRequest, *, folder: Path) -> int:
    """Run the check; return the exit code. Raises CallerError if nothing could be sent."""
    clock = SystemClock()
    layers = read_layers(folder, env=os.environ)
    settings = settings_of_run(layers, last=None, given=RunSettings()).settings
    try:
        choice = choose(
            wanted.model,
            base_url=wanted.base_url,
            api_key_env=wanted.api_key_env,
            last=None,
            env=os.environ,
            settings=settings,
        )
    except NoModel:
        raise CallerError(NEEDS_MODEL) from None
    named = read_model(choice.model)
    endpoint = open_endpoint(named, base_url=choice.base_url, api_key_env=choice.api_key_env, ways=ON_THE_COMMAND_LINE)
    prices = prices_of_layers(layers, env=os.environ)
    row = prices.find(named.name, profile=named.profile.name, at_s=clock.now())
    if wanted.rules:
        return check_rules(wanted, choice=choice, named=named, endpoint=endpoint, row=row, clock=clock)
    so_far = SoFar(model=named.name, max_output_tokens=wanted.max_output_tokens)
    probes = probes_of(wanted.only, endpoint=endpoint)
    told = estimate(probes, so_far=so_far, endpoint=endpoint, row=row)
    if not is_wanted(told, choice=choice, endpoint=endpoint, clock=clock, yes=wanted.yes):
        return CANCELLED

    def asking(transport: AiohttpTransport, tell: Callable[[str], None]) -> Coroutine[None, None, Course]:
        checking = EndpointCheck(
            endpoint,
            so_far=so_far,
            transport=transport,
            clock=clock,
            timeout_s=wanted.timeout_s,
            tell=lambda probe: tell(probe.title),
            refresh=transport.close,
        )
        return checking.run(probes)

    course = run_to_end(_in_progress(asking, total=len(probes)))
    shown = shown_of(course, named=named, probes=probes, row=row, api_key_env=choice.api_key_env)
    return _show(wanted, told=report_told(shown), lines=report_lines(shown), code=shown.exit_code)


def _show(wanted: CheckRequest, *, told: Mapping[str, object], lines: Iterator[str], code: int) -> int:
    """Print the report on standard output; return the exit code."""
    if wanted.as_json:
        write_ascii_json(told)
    else:
        for line in lines:
            click.echo(line)
    return code


def is_wanted(told: Estimate, *, choice: Choice, endpoint: Endpoint, clock: Clock, yes: bool) -> bool:
    """Say what it will cost, and ask. Raises CallerError if nobody can be asked."""
    click.echo(clean_line(f"{choice.model} at {shown_url(endpoint)}: {estimate_said(told)}"), err=True)
    if ending := choice.ending(now_s=clock.now()):
        click.echo(clean_line(ending), err=True)
    if yes or _is_allowed():
        return True
    click.echo("nothing was sent", err=True)
    return False


def check_rules(
    wanted: CheckRequest, *, choice: Choice, named: ModelName, endpoint: Endpoint, row: PriceRow | None, clock: Clock
) -> int:
    """`--rules`: find out which rules of docs/dialects.md the server has. Returns the exit code."""
    if not endpoint.family.traits.has_dialects:
        raise CallerError(f"`{choice.model}` is no Chat Completions endpoint: --rules asks only those")
    if wanted.only:
        raise CallerError("--only names requests of the other check: leave it out, or leave out --rules")
    told = estimate_rules(RULE_PROBES, model=named.name, row=row)
    if not is_wanted(told, choice=choice, endpoint=endpoint, clock=clock, yes=wanted.yes):
        return CANCELLED

    def asking(transport: AiohttpTransport, tell: Callable[[str], None]) -> Coroutine[None, None, RuleCourse]:
        checking = ServerRulesCheck(
            endpoint,
            model=named.name,
            transport=transport,
            clock=clock,
            timeout_s=wanted.timeout_s,
            tell=tell,
            refresh=transport.close,
        )
        return checking.run(RULE_PROBES)

    course = run_to_end(_in_progress(asking, total=len(RULE_PROBES) + 1))
    profile, changes = found_profile(course, base_url=endpoint.base_url, api_key_env=choice.api_key_env)
    outcome = outcome_of(course)
    has_row = course.is_conclusive and "?" not in endpoint.base_url
    shown = RuleReport(
        model=f"{named.profile.name}:{named.name}",
        url=shown_url(endpoint),
        outcome=outcome,
        exit_code=exit_code_of(outcome),
        asked=tuple(course.asked),
        holds=course.holds,
        refused_plain=course.refused_plain,
        requests=course.requests,
        usage=sum([usage for usage in course.usages if usage is not None], start=Usage()),
        cost=cost_of_prices([price_of(usage, row=row) for usage in course.usages]),
        changes=changes,
        row_name=profile.name,
        row=row_of(profile) if has_row else "",
        settings="".join([f"{line}\n" for line in lines_of(f"{profile.name}:{named.name}", base_url=None)])
        if has_row
        else "",
    )
    return _show(wanted, told=rules_told(shown), lines=rule_lines(shown), code=shown.exit_code)


async def _in_progress(
    asking: Callable[[AiohttpTransport, Callable[[str], None]], Coroutine[None, None, Found]], *, total: int
) -> Found:
    """The result of `asking`, which sends requests by a transport. The terminal shows the title of each request meanwhile."""
    numbers = count(1)
    with cancelling(), spinning() as show:

        def tell(title: str) -> None:
            if show is not None:
                show(f"{next(numbers)}/{total} {title}")

        async with AiohttpTransport() as transport:
            return await asking(transport, tell)


def probes_of(only: Sequence[str], *, endpoint: Endpoint) -> tuple[Probe, ...]:
    """The named probes, or all. The probe about keys is left out if the endpoint's profile sends none."""
    return tuple(
        [
            probe
            for probe in PROBES
            if (not only or probe.name in only) and not (probe.wrong_key and endpoint.profile.auth == "none")
        ]
    )


def _is_allowed() -> bool:
    """Whether the person says yes; any other answer is a no. Raises CallerError if nobody can be asked."""
    if not is_attended():
        raise CallerError(NEEDS_YES)

    async def confirmed() -> bool:
        try:
            with cancelling():
                return await Terminal().says_yes(lambda: "send them? [y/N] ")
        except asyncio.CancelledError:
            return False

    return run_to_end(confirmed())


def shown_of(
    course: Course, *, named: ModelName, probes: Sequence[Probe], row: PriceRow | None, api_key_env: str | None
) -> CheckReport:
    """The whole report of a check."""
    judgement = judge(
        course.observations,
        profile=course.endpoint.profile,
        learned=course.learned,
        asked=[probe.name for probe in probes],
        stopped=course.stopped,
        pending=course.pending,
    )
    profile_row, row_name = "", ""
    if judgement.outcome != "no_server" and course.observations:
        base_url = course.endpoint.base_url
        profile = profile_with(
            course.endpoint.profile, changes=judgement.changes, base_url=base_url, api_key_env=api_key_env
        )
        profile_row, row_name = write_row(profile), profile.name
        assert parse_profiles(profile_row) == {profile.name: profile}, "the row reads back"
    usages = [observed.response.usage for observed in course.observations if observed.response is not None]
    # If a request's answer was not awaited, its usage is unknown.
    prices = [price_of(usage, row=row) for usage in [*usages, *[None for _ in judgement.unanswered]]]
    return CheckReport(
        model=f"{named.profile.name}:{named.name}",
        url=shown_url(course.endpoint),
        judgement=judgement,
        requests=course.requests,
        usage=sum([usage for usage in usages if usage is not None], start=Usage()),
        cost=cost_of_prices(prices),
        row_name=row_name,
        row=profile_row,
        settings=settings_of(course, named=named) if profile_row else "",
        exit_code=exit_code_of(judgement.outcome),
    )


def settings_of(course: Course, *, named: ModelName) -> str:
    """The lines for the user's own `turnwise.toml` that choose this model; empty if the address may hold a key."""
    address = course.endpoint.base_url
    if "?" in address:
        return ""
    own = None if address == named.profile.base_url else address
    return "".join([f"{line}\n" for line in lines_of(f"{named.profile.name}:{named.name}", base_url=own)])


def exit_code_of(outcome: CheckOutcome) -> int:
    return CANCELLED if outcome == "stopped" else CHECK_CODES[outcome]
