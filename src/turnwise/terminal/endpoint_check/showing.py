"""A judgement as a table for people, or as one JSON object."""

import json
from collections.abc import Iterator, Mapping

import click
import msgspec

from turnwise._version import __version__
from turnwise.agent.formatting import many, usd_said
from turnwise.coding_agent.text import clean, shortened, style
from turnwise.lab.endpoint_check.judging import CheckOutcome, Judgement, ProbeVerdict
from turnwise.lab.endpoint_check.meanings import WEIGHTS, Weight, meaning_of
from turnwise.lab.endpoint_check.probes import PROBES
from turnwise.rules.pricing import Cost
from turnwise.vocab import Usage

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
    """All that is told. `url` is the address without its query, `row` the TOML for the profile, `settings` that of the
    user's `turnwise.toml`; both are empty where no answer came."""

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


def lines_of(shown: CheckReport) -> Iterator[str]:
    titles = {probe.name: probe.title for probe in PROBES}
    judgement = shown.judgement
    width = max([len(titles[verdict.probe]) for verdict in judgement.verdicts], default=0)
    for verdict in judgement.verdicts:
        mark, colour = MARKS[verdict.weight]
        title = titles[verdict.probe].ljust(width)
        yield f"{style(mark, colour)} {title}  {shortened(_told_of(verdict), limit=MAX_FOUND)}"
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


def _told_of(verdict: ProbeVerdict) -> str:
    return verdict.found or "no answer"


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


def show(shown: CheckReport) -> None:
    for line in lines_of(shown):
        click.echo(line)


def write_json(shown: CheckReport) -> None:
    """In ASCII: a server's words may hold what drives a terminal, and stay whole this way."""
    judgement, usd = shown.judgement, shown.cost.exact_usd
    told: dict[str, object] = {
        "turnwise": __version__,
        "version": VERSION,
        "model": shown.model,
        "base_url": shown.url,
        "outcome": judgement.outcome,
        "exit_code": shown.exit_code,
        "requests": shown.requests,
        "usage": {
            "input_tokens": shown.usage.input_tokens,
            "output_tokens": shown.usage.output_tokens,
            "cache_read_tokens": shown.usage.cache_read_tokens,
        },
        "cost_usd": None if usd is None or not shown.cost.requests else f"{usd:f}",
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
    click.echo(json.dumps(msgspec.to_builtins(told)))
