"""`turnwise gateway report`: what it says of a journal, of none, and of what cannot be read."""

import json
import os
import sqlite3
from datetime import datetime

import pytest

from terminal.running import Cli
from turnwise.errors import CallerError
from turnwise.journal.direct_ledger import ANY, RepairSeen
from turnwise.journal.journal import Journal, journal_path
from turnwise.terminal.gateway_check import first_day_of
from turnwise.testing import FakeClock

pytestmark = pytest.mark.usefixtures("folder")
NOW = datetime(2026, 11, 23, 18, 30)


def seen(kind: str, *, model: str = "m", day: str = "2026-11-20", family: str = "openai_chat") -> RepairSeen:
    return RepairSeen(day=day, provider="p", family=family, model=model, kind=kind, times=2)


def written(*repairs: RepairSeen) -> None:
    with Journal(journal_path(os.environ), clock=FakeClock()) as journal:
        journal.repairs.write(repairs)


def test_without_a_journal_the_report_says_so_and_makes_none(cli: Cli) -> None:
    """Exit code 0: nothing is wrong. As JSON the report is an empty one."""
    path = journal_path(os.environ)
    ran = cli("gateway", "report")
    said = f"there is no journal yet (`{path}`): the gateway writes it with its first request\n"
    assert (ran.code, ran.out, ran.err) == (0, "", said)
    ran = cli("gateway", "report", "--json")
    assert (json.loads(ran.out)["models"], ran.err, path.exists()) == ([], said, False)


def test_an_empty_report_says_what_it_looked_at(cli: Cli) -> None:
    """Proves: a journal of turns alone has no request of the gateway."""
    written()
    ran = cli("gateway", "report")
    assert (ran.code, ran.out.partition(" (turnwise")[0]) == (0, "the gateway has sent no request")


def test_what_nobody_is_to_blame_for_is_told_apart(cli: Cli) -> None:
    """Proves: the provider's own come first, each with its rule; a kind of a newer version is told as such."""
    kinds = ("not_carried", "continued_call", "id_missing", "of_a_newer_version")
    written(*[seen(kind) for kind in kinds], seen(ANY), seen("id_missing", family="gemini", model="g"))
    out = cli("gateway", "report").out
    first, _, rest = out.partition("### Where no rule was broken")
    assert "### `id_missing`\n\n2 times in 1 request, 2026-11-20.\n" in first
    assert [line for line in rest.splitlines() if line.startswith("- ")] == [
        "- `continued_call`, 2 times in 1 request, 2026-11-20: A limit cut a call. The",
        "- `not_carried`, 2 times in 1 request, 2026-11-20: The upstream's API does not",
        "- `of_a_newer_version`, 2 times in 1 request, 2026-11-20: This turnwise does",
        "- `id_missing`, 2 times in 1 request, 2026-11-20: An id of a call is optional",
    ]
    assert all(len(line) < 80 for line in out.splitlines())


def test_names_that_others_chose_break_no_line_of_the_report(cli: Cli) -> None:
    """Proves: a model's name can neither end its heading nor drive a terminal."""
    written(seen("id_missing", model="a`b\n# c\x1b[2J"))
    headings = [line for line in cli("gateway", "report").out.splitlines() if line.startswith("#")]
    assert len(headings) == 3 and "\x1b" not in headings[1] and headings[1].startswith("## `p`, model `a'b # c")


@pytest.mark.parametrize(("name", "coloured"), [("FORCE_COLOR", True), ("NO_COLOR", False)])
def test_headings_are_bold_where_colours_are_wanted(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, coloured: bool
) -> None:
    """Proves: what is pasted has none."""
    monkeypatch.setenv(name, "1")
    written(seen("id_missing"))
    assert ("\x1b[1m# What the gateway mended" in cli("gateway", "report").out) is coloured


def test_what_fits_no_option_is_told_with_what_there_is(cli: Cli) -> None:
    """Proves: a wrong name is no empty report."""
    written(seen("id_missing"))
    ran = cli("gateway", "report", "--model", "n")
    assert (ran.code, ran.out, ran.err) == (0, "", "no request fits; there are: `p`, model `m`\n")


def test_a_mistake_is_one_line(cli: Cli) -> None:
    """Exit code 2, as everywhere."""
    ran = cli("gateway", "report", "--since", "yesterday")
    assert (ran.code, ran.out, "--since: `yesterday` is no time" in ran.err) == (2, "", True)
    path = journal_path(os.environ)
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as other:
        other.execute("create table of_another (id integer)")
    other.close()
    ran = cli("gateway", "report")
    assert (ran.code, ran.out, "is not a journal of turnwise" in ran.err) == (2, "", True)


@pytest.mark.parametrize(
    ("since", "day"),
    [(None, None), ("all", None), ("2026-11-01", "2026-11-01"), ("7d", "2026-11-16"), ("12h", "2026-11-23")],
)
def test_a_report_begins_with_a_day(since: str | None, day: str | None) -> None:
    """Proves: repairs are kept by day, so a time of the day counts as all of it."""
    assert first_day_of(since, now=NOW) == day


def test_a_time_that_is_none_begins_no_report() -> None:
    """Proves: it is the caller's mistake."""
    with pytest.raises(CallerError):
        first_day_of("2026-13-01", now=NOW)
