"""What a check found, as a table for people or as one JSON object."""

import sys
from collections.abc import Iterator, Sequence

import msgspec

from turnwise._version import __version__
from turnwise.agent.formatting import many
from turnwise.coding_agent.text import shortened, style
from turnwise.lab.cases import HEALTHY_CASES
from turnwise.lab.gateway_check.checking import GatewayCourse
from turnwise.lab.gateway_check.judging import CaseFound
from turnwise.terminal.lines import say
from turnwise.terminal.tables import Column, lines_of_table, width_of

VERSION = 1  # of the JSON object: it grows when a field changes its meaning
MOST_WHY = 160
_NAMES = {
    "openai_chat": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic_messages": "Anthropic",
    "gemini": "Gemini",
}


def show(course: GatewayCourse) -> None:
    """On standard output. Raises OSError."""
    for line in lines_of(course):
        say(line, stream=sys.stdout)


def lines_of(course: GatewayCourse) -> Iterator[str]:
    found = course.found
    if found:
        yield from _table(found)
    broken = [one for one in found if one.is_broken]
    for one in broken:
        yield f"{style('✗', 'red')} {one.case}, {_NAMES[one.family]}: {_reasons(one)}"
    for family, why in course.left_out.items():
        yield f"{style('!', 'yellow')} {_NAMES[family]} is left out: {shortened(why, limit=MOST_WHY)}"
    upstreams = {one.upstream for one in found if one.upstream is not None}
    if found and "openai_chat" not in upstreams:
        names = " and ".join([_NAMES[name] for name in sorted(upstreams)]) or "another API"
        yield f"! the gateway asked the lab in {names}; most cases are malformed in Chat Completions only"
    if course.is_stopped:
        yield style("stopped; this is what was found until then", "yellow")
    yield _summary(found, broken=broken)


def _table(found: Sequence[CaseFound]) -> Iterator[str]:
    cases = list(dict.fromkeys([one.case for one in found]))
    cells = {(one.case, one.family): _cell(one) for one in found}
    families = list(dict.fromkeys([one.family for one in found]))
    columns = [
        Column(name=_NAMES[family], cells=[cells.get((case, family), "-") for case in cases], align="left")
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


def write_json(course: GatewayCourse, *, url: str, exit_code: int) -> None:
    """One object on standard output. Raises OSError."""
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
    say(msgspec.json.encode(report).decode(), stream=sys.stdout, as_it_is=True)
