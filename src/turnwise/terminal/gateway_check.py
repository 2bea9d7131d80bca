"""What `turnwise gateway check` and `turnwise gateway report` do: try a gateway with broken streams, and tell what turnwise's
gateway repaired."""

import asyncio
import contextlib
import difflib
import os
import sys
import textwrap
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TextIO, get_args

import msgspec

from turnwise._version import __version__
from turnwise.agent.formatting import many
from turnwise.agent.models import find_profile
from turnwise.base.clock import SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.text import clean, shortened, style
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import find_key
from turnwise.errors import CallerError
from turnwise.journal.direct_ledger import ANY, RepairSum, RequestSum
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab
from turnwise.lab.families import FAMILIES as LAB_FAMILIES
from turnwise.lab.gateway_check import (
    CASE,
    HEALTHY_CASES,
    SILENT_CASES,
    CaseFound,
    GatewayAsked,
    GatewayChecking,
    GatewayCourse,
    LabAsked,
    NoGateway,
    checked_cases,
)
from turnwise.relay.breaches import Whose, breach_of, source_of
from turnwise.terminal.exit_codes import CANCELLED, NOT_THERE
from turnwise.terminal.failures import Failure, write_json
from turnwise.terminal.pager import cancelling
from turnwise.terminal.rows import say
from turnwise.terminal.screen import spinning
from turnwise.terminal.usage import Column, lines_of_table, since_of, width_of
from turnwise.vocab.wording import in_ticks
from turnwise.wire.family import USUAL
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import relay_facts

# The findings of a check, as a table for people or as one JSON object.


VERSION = 1  # of the JSON object: it grows when a field changes its meaning
MOST_WHY = 160


def show(course: GatewayCourse) -> None:
    """Show the findings on standard output. Raises OSError."""
    for line in lines_of(course):
        say(line, stream=sys.stdout)


def lines_of(course: GatewayCourse) -> Iterator[str]:
    found = course.found
    if found:
        yield from _table(found)
    broken = [one for one in found if one.is_broken]
    for one in broken:
        yield f"{style('✗', 'red')} {one.case}, {LAB_FAMILIES[one.family].title}: {_reasons(one)}"
    for family, why in course.left_out.items():
        yield f"{style('!', 'yellow')} {LAB_FAMILIES[family].title} is left out: {shortened(why, limit=MOST_WHY)}"
    upstreams = {one.upstream for one in found if one.upstream is not None}
    if found and "openai_chat" not in upstreams:
        names = " and ".join([LAB_FAMILIES[name].title for name in sorted(upstreams)]) or "another API"
        yield f"! the gateway asked the lab in {names}; most cases are malformed in Chat Completions only"
    if course.is_stopped:
        yield style("stopped; this is what was found until then", "yellow")
    yield _summary(found, broken=broken)


def _table(found: Sequence[CaseFound]) -> Iterator[str]:
    cases = list(dict.fromkeys([one.case for one in found]))
    cells = {(one.case, one.family): _cell(one) for one in found}
    families = list(dict.fromkeys([one.family for one in found]))
    columns = [
        Column(name=LAB_FAMILIES[family].title, cells=[cells.get((case, family), "-") for case in cases], align="left")
        for family in families
    ]
    yield "Each answer, as a strict reader / a naive reader has it:"
    yield from lines_of_table(Column(name="case", cells=cases), columns, width=width_of(sys.stdout), stream=sys.stdout)


def _cell(one: CaseFound) -> str:
    strict, naive = one.strict.verdict, one.naive.verdict
    return strict if strict == naive else f"{strict} / {naive}"


def _reasons(one: CaseFound) -> str:
    if one.strict == one.naive:
        return f"{one.strict.verdict}: {shortened(one.strict.why, limit=MOST_WHY)}"
    readers = (("strict", one.strict), ("naive", one.naive))
    return "; ".join(
        [
            f"{name} {reader.verdict}" + (f": {shortened(reader.why, limit=MOST_WHY)}" if reader.why else "")
            for name, reader in readers
        ]
    )


def _summary(found: Sequence[CaseFound], *, broken: Sequence[CaseFound]) -> str:
    if not found:
        return "nothing was asked"
    failing = len([one for one in found if one.upstream_fails])
    healthy = len([one for one in found if one.case in HEALTHY_CASES])
    counted = [
        many(len(found) - failing - healthy, "malformed stream"),
        many(failing, "failure"),
        many(healthy, "healthy stream"),
    ]
    if not broken:
        return style(f"none of {len(found)} answers is broken", "green") + f" ({', '.join(counted)})"
    return style(f"{len(broken)} of {len(found)} answers are broken", "red") + f" ({', '.join(counted)})"


def write_report(course: GatewayCourse, *, url: str, exit_code: int) -> None:
    """Write one object on standard output. Raises OSError."""
    cases = [{**msgspec.to_builtins(one), "broken": one.is_broken} for one in course.found]
    report = {
        "version": VERSION,
        "turnwise": __version__,
        "url": url,
        "left_out": course.left_out,
        "cases": cases,
        "broken": sum([one.is_broken for one in course.found]),
        "stopped": course.is_stopped,
        "exit_code": exit_code,
    }
    write_json(report)


# The order of `turnwise gateway check`: start the lab, say how to set the gateway, wait for it, ask, show.


# Those that clients speak.
FAMILIES = tuple([name for name in get_args(FamilyName) if relay_facts(name).has_door])
BROKEN = 1
MOST_REASON = 400


class GatewayCheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    url: str
    families: tuple[FamilyName, ...] = ()
    key_env: str | None = None
    model: str = CASE
    port: int = 0
    lab_url: str | None = None
    cases: tuple[str, ...] = ()
    wait_s: float = 0.0
    timeout_s: float = 30.0
    as_json: bool = False


def check_gateway(wanted: GatewayCheckRequest) -> int:
    """Run the check; return the exit code. Raises CallerError for wrong use, Failure if the gateway is not reachable."""
    known = (*checked_cases(), *SILENT_CASES)
    unknown = [case for case in wanted.cases if case not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=3)
        meant = f"did you mean {in_ticks(near, between=' or ')}? " if near else ""
        raise CallerError(f"there is no case `{unknown[0]}`; {meant}all of them: {', '.join(known)}")
    key = find_key(find_profile(USUAL), env=os.environ, api_key_env=wanted.key_env) if wanted.key_env else None
    gateway = GatewayAsked(url=wanted.url, key=key, model=wanted.model, timeout_s=wanted.timeout_s)
    shown = gateway.endpoint("anthropic_messages")  # an invalid address is reported before anything starts
    course = GatewayCourse()
    try:
        run_to_end(_run(wanted, gateway=gateway, course=course))
    except NoGateway as error:
        reason = shortened(shown.scrub(str(error)), limit=MOST_REASON)
        raise Failure(f"`{shown.base_url.partition('?')[0]}`: {reason}", exit_code=NOT_THERE) from None
    code = CANCELLED if course.is_stopped else BROKEN if any(one.is_broken for one in course.found) else 0
    if wanted.as_json:
        write_report(course, url=shown.base_url.partition("?")[0], exit_code=code)
    else:
        show(course)
    return code


async def _run(wanted: GatewayCheckRequest, *, gateway: GatewayAsked, course: GatewayCourse) -> None:
    with cancelling():
        try:
            await _ask(wanted, gateway=gateway, course=course)
        except asyncio.CancelledError:
            course.is_stopped = True


async def _ask(wanted: GatewayCheckRequest, *, gateway: GatewayAsked, course: GatewayCourse) -> None:
    # The lab is on this machine, so no proxy is used.
    async with _lab(wanted) as lab_url, AiohttpTransport() as transport, AiohttpTransport(env={}) as direct:
        lab = LabAsked(lab_url, transport=direct)
        await lab.play(None)
        _say_setting(lab_url, model=wanted.model)
        with spinning() as show_line:
            telling = _Telling(gateway.url, show_line)
            checking = GatewayChecking(gateway, lab, transport=transport, clock=SystemClock(), tell=telling)
            try:
                await checking.run(
                    wanted.cases or checked_cases(),
                    families=wanted.families or FAMILIES,
                    wait_s=wanted.wait_s,
                    course=course,
                )
            finally:
                if CASE not in wanted.model:
                    await lab.play(None)


@contextlib.asynccontextmanager
async def _lab(wanted: GatewayCheckRequest) -> AsyncGenerator[str]:
    if wanted.lab_url is not None:
        yield wanted.lab_url.rstrip("/")
        return
    async with Lab(port=wanted.port) as lab:
        yield lab.url


def _say_setting(lab: str, *, model: str) -> None:
    name = "the client's, unchanged" if model == CASE else f"`{model}`, as the client sends it"
    say("The lab is the upstream. Set in your gateway:")
    say(f"  base URL  {lab}/v1  (Chat Completions and Responses; Anthropic: {lab}, Gemini: {lab}/v1beta)")
    say(f"  model     {name}")
    say("  key       any text")


class _Telling:
    """At a terminal, one line says what happens now; elsewhere, each new reason for waiting gets a line."""

    def __init__(self, url: str, show_line: Callable[[str], object] | None) -> None:
        self._url = url
        self._show_line = show_line
        self._last = ""

    def waiting(self, why: str) -> None:
        line = f"waiting for {self._url} ({shortened(why, limit=100)})"
        if self._show_line is not None:
            self._show_line(line)
        elif line != self._last:
            say(style(line, "dim", stream=sys.stderr))
        self._last = line

    def asking(self, number: int, total: int, case: str, family: FamilyName) -> None:
        if self._show_line is not None:
            self._show_line(f"{number}/{total} {case}, {family}")


# `turnwise gateway report`: what the gateway had to repair, in a form for the vendor.


WIDTH = 79
MOST_WITHOUT = 20  # models without a repair that are named
INTRO = (
    "The gateway of turnwise mended these responses before its clients saw them. Examples have no content: texts stand as their "
    "lengths, ids and names as placeholders."
)
UNKNOWN_RULE = "This turnwise does not know this kind; the one that wrote it may be newer."
NO_JOURNAL = "there is no journal yet (`{path}`): the gateway writes it with its first request"


class ReportedRepair(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of repair. Days are of UTC. `rule` is in turnwise's words, `source` is the place in the specification."""

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
    """`repaired` requests had at least one repair that the provider causes; `failed` requests got no whole answer."""

    provider: str
    model: str
    requests: int
    repaired: int
    failed: int
    repairs: tuple[ReportedRepair, ...]


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. `since` is a day of UTC; None for the whole journal."""

    turnwise: str
    since: str | None
    models: tuple[ReportedModel, ...]


def show_report(*, provider: str | None, model: str | None, since: str | None, as_json: bool) -> None:
    """Show the report on the user's own journal, on standard output. Raises CallerError."""
    clock = SystemClock()
    day = first_day_of(since, now=datetime.fromtimestamp(clock.now()))
    path = journal_path(os.environ)
    found = _read(path, clock=clock, day=day)
    chosen = [one for one in found if provider in (None, one.provider) and model in (None, one.model)]
    if as_json:
        whole = RepairReport(turnwise=__version__, since=day, models=tuple(chosen))
        write_json(whole)
    if not path.exists():
        say(NO_JOURNAL.format(path=path))
    elif found and not chosen:
        names = [f"`{named(one.provider)}`, model `{named(one.model)}`" for one in found[:MOST_WITHOUT]]
        say(f"no request fits; there are: {'; '.join(names)}")
    elif not as_json:
        show_models(chosen, since=day, stream=sys.stdout)


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
    """The models, those with the most repaired requests first."""
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


def show_models(models: Sequence[ReportedModel], *, since: str | None, stream: TextIO) -> None:
    """Print the report as Markdown."""
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
    """Print a paragraph."""
    lines = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    say("\n" + "\n".join(lines), stream=stream)


def _example_lines(example: str) -> Iterator[str]:
    for line in example.split("\n"):
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def named(name: str) -> str:
    """A name that somebody else chose, made safe for one line of Markdown."""
    return " ".join(clean(name).replace("`", "'").split()) or "(none)"
