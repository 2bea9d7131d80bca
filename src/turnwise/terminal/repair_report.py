"""`turnwise gateway report`: what the gateway had to mend, as a user can take it to the vendor."""

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TextIO

import msgspec

from turnwise._version import __version__
from turnwise.agent.formatting import many
from turnwise.base.clock import SystemClock
from turnwise.coding_agent.text import clean, style
from turnwise.journal.direct_ledger import ANY, RepairSum, RequestSum
from turnwise.journal.journal import Journal, journal_path
from turnwise.relay.breaches import Whose, breach_of, source_of
from turnwise.terminal.rows import say
from turnwise.terminal.usage import since_of

WIDTH = 79
MOST_WITHOUT = 20  # models without a repair that are named
INTRO = (
    "The gateway of turnwise mended these responses before its clients saw them. Examples have no content: texts stand as their "
    "lengths, ids and names as placeholders."
)
UNKNOWN_RULE = "This turnwise does not know this kind; the one that wrote it may be newer."
NO_JOURNAL = "there is no journal yet (`{path}`): the gateway writes it with its first request"


class ReportedRepair(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of repair. Days are of UTC; `rule` is in our words, `source` where the specification has it."""

    kind: str
    family: str
    times: int
    requests: int
    first_day: str
    last_day: str
    whose: Whose | None
    rule: str
    source: str
    example: str


class ReportedModel(msgspec.Struct, frozen=True, kw_only=True):
    """`repaired` requests had at least one repair that the provider causes; `failed` ones got no whole answer."""

    provider: str
    model: str
    requests: int
    repaired: int
    failed: int
    repairs: tuple[ReportedRepair, ...]


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `since` is a day of UTC, None for all that is kept."""

    turnwise: str
    since: str | None
    models: tuple[ReportedModel, ...]


def show_report(*, provider: str | None, model: str | None, since: str | None, as_json: bool) -> None:
    """Of the user's own journal, on standard output. Raises CallerError."""
    clock = SystemClock()
    day = first_day_of(since, now=datetime.fromtimestamp(clock.now()))
    path = journal_path(os.environ)
    found = _read(path, clock=clock, day=day)
    chosen = [one for one in found if provider in (None, one.provider) and model in (None, one.model)]
    if as_json:
        whole = RepairReport(turnwise=__version__, since=day, models=tuple(chosen))
        sys.stdout.buffer.write(msgspec.json.encode(whole) + b"\n")
    if not path.exists():
        say(NO_JOURNAL.format(path=path))
    elif found and not chosen:
        names = [f"`{named(one.provider)}`, model `{named(one.model)}`" for one in found[:MOST_WITHOUT]]
        say(f"no request fits; there are: {'; '.join(names)}")
    elif not as_json:
        show(chosen, since=day, stream=sys.stdout)


def first_day_of(since: str | None, *, now: datetime) -> str | None:
    """The first day of the report; None for all. Raises CallerError."""
    began = since_of(since or "all", by="model", has_session=False, now=now)
    return datetime.fromtimestamp(began).date().isoformat() if began else None


def _read(path: Path, *, clock: SystemClock, day: str | None) -> list[ReportedModel]:
    if not path.exists():
        return []
    began = 0.0 if day is None else datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp()
    with Journal.open_to_read(path, clock=clock) as journal:
        return models_of(journal.repairs.sums(since_day=day or ""), journal.repairs.requests(since_s=began))


def models_of(sums: Sequence[RepairSum], requests: Sequence[RequestSum]) -> list[ReportedModel]:
    """Those with the most repaired requests first."""
    sent = {(one.provider, one.model): one for one in requests}
    keys = dict.fromkeys([*[(one.provider, one.model) for one in sums], *sent])
    found: list[ReportedModel] = []
    for provider, model in keys:
        own = [one for one in sums if (one.provider, one.model) == (provider, model)]
        repaired = sum([one.requests for one in own if one.kind == ANY])
        asked = sent.get((provider, model))
        repairs = [_repair_of(one) for one in own if one.kind != ANY]
        found.append(
            ReportedModel(
                provider=provider,
                model=model,
                requests=max(repaired, asked.requests if asked else 0),
                repaired=repaired,
                failed=asked.failed if asked else 0,
                repairs=tuple(sorted(repairs, key=lambda one: (one.whose != "provider", -one.requests, one.kind))),
            )
        )
    return sorted(found, key=lambda one: (-one.repaired, -one.requests, one.provider, one.model))


def _repair_of(one: RepairSum) -> ReportedRepair:
    breach = breach_of(one.kind, family=one.family)
    return ReportedRepair(
        kind=one.kind,
        family=one.family,
        times=one.times,
        requests=one.requests,
        first_day=one.first_day,
        last_day=one.last_day,
        whose=None if breach is None else breach.whose,
        rule=UNKNOWN_RULE if breach is None else breach.rule,
        source="" if breach is None else source_of(breach, family=one.family),
        example=one.example,
    )


def show(models: Sequence[ReportedModel], *, since: str | None, stream: TextIO) -> None:
    """As Markdown."""
    when = "" if since is None else f" since {since}"
    with_repairs = [one for one in models if one.repairs]
    if not with_repairs:
        number = sum([one.requests for one in models])
        said = f"nothing was mended in {many(number, 'request')}" if number else "the gateway has sent no request"
        say(f"{said}{when} (turnwise {__version__})", stream=stream)
        return
    say(style("# What the gateway mended", "bold", stream=stream), stream=stream)
    _prose(f"turnwise {__version__}{when and f', {when.strip()}'}. {INTRO}", stream=stream)
    for one in with_repairs:
        _show_model(one, stream=stream)
    _show_others([one for one in models if not one.repairs], stream=stream)


def _show_model(one: ReportedModel, *, stream: TextIO) -> None:
    say(style(f"\n## `{named(one.provider)}`, model `{named(one.model)}`", "bold", stream=stream), stream=stream)
    if one.requests:
        failed = f" {one.failed:,} failed." if one.failed else ""
        without = one.requests - one.repaired
        said = f"{many(one.requests, 'request')}: in {one.repaired:,} a rule was broken, in {without:,} none.{failed}"
        _prose(said, stream=stream)
    for repair in one.repairs:
        if repair.whose == "provider":
            _show_breach(repair, stream=stream)
    if others := [repair for repair in one.repairs if repair.whose != "provider"]:
        say(style("\n### Where no rule was broken", "bold", stream=stream), stream=stream)
        say(stream=stream)
        for repair in others:
            lines = textwrap.wrap(
                f"- `{repair.kind}`, {_how_often(repair)}: {repair.rule}", WIDTH, subsequent_indent="  "
            )
            say("\n".join(lines), stream=stream)


def _show_breach(repair: ReportedRepair, *, stream: TextIO) -> None:
    say(style(f"\n### `{repair.kind}`", "bold", stream=stream), stream=stream)
    _prose(f"{_how_often(repair)}.", stream=stream)
    _prose(f"The rule: {repair.rule}", stream=stream)
    _prose(f"Source: {repair.source}.", stream=stream)
    if repair.example:
        say("\n```text", stream=stream)
        for line in _example_lines(repair.example):
            say(line, stream=stream, as_it_is=True)
        say("```", stream=stream)


def _show_others(models: Sequence[ReportedModel], *, stream: TextIO) -> None:
    if not models:
        return
    say(style("\n## Without any repair", "bold", stream=stream), stream=stream)
    say(stream=stream)
    for one in models[:MOST_WITHOUT]:
        name = f"`{named(one.provider)}`, model `{named(one.model)}`"
        say(
            f"- {name}: {many(one.requests, 'request')}{f', {one.failed:,} failed' if one.failed else ''}",
            stream=stream,
        )
    if len(models) > MOST_WITHOUT:
        say(f"- and {many(len(models) - MOST_WITHOUT, 'further model')}", stream=stream)


def _how_often(repair: ReportedRepair) -> str:
    days = repair.first_day if repair.first_day == repair.last_day else f"{repair.first_day} to {repair.last_day}"
    return f"{many(repair.times, 'time')} in {many(repair.requests, 'request')}, {days}"


def _prose(text: str, *, stream: TextIO) -> None:
    """A paragraph of its own."""
    lines = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    say("\n" + "\n".join(lines), stream=stream)


def _example_lines(example: str) -> Iterator[str]:
    for line in example.split("\n"):
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def named(name: str) -> str:
    """A name that somebody else chose, fit for one line of Markdown."""
    return " ".join(clean(name).replace("`", "'").split()) or "(none)"
