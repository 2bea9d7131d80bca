"""`turnwise usage`: out of what real runs left in the journal."""

import csv
import io
import json
import os
import re
import signal
import sqlite3
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from terminal.running import Cli, at, begin, end, running_lab, script
from terminal.test_processes import wait_until
from turnwise.agent.formatting import cost_said, saved_said, tokens_said, usd_said
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.ledger import LEAVES, LedgerEntry, update_of, values_before
from turnwise.journal.ledger_queries import LedgerSpan, Total, TurnBill, sum_of_totals
from turnwise.lab import Lab
from turnwise.rules.pricing import Cost
from turnwise.terminal.usage import lines_of, saving_lines, since_of, table_of
from turnwise.vocab import Usage

pytestmark = pytest.mark.usefixtures("noon")

PRICES = """
[prices]
"openai_chat:*" = { request = 0.01 }
"openai_responses:*" = { input = 2, output = 8 }
"""


@pytest.fixture
def priced(folder: Path) -> Path:
    """The folder, with prices in the user's own settings."""
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(PRICES)
    return folder


def test_usage_is_what_the_lab_received(lab: Lab, priced: Path, cli: Cli) -> None:
    """By purpose, model and session; the sum says what is not known; a retry and what it cost is told."""
    assert cli("usage").out.startswith("no requests since ")
    assert cli("run", "Go.", *at(lab, "parallel-calls")).code == 0
    assert cli("run", "Go.", *at(lab, "fault-once-503")).code == 0
    assert cli("run", "Go.", *at(lab, "plain-answer", family="gemini")).code == 0
    report = json.loads(cli("usage", "--by", "purpose", "--json").out)
    assert {row["key"]: row["cost"] for row in report["rows"]} == {
        "step": {"usd": "0.02", "requests": 4, "unknown": 2},
        "retry": {"usd": "0.01", "requests": 1, "unknown": 0},
    }
    assert report["total"]["cost"]["requests"] == lab.count() == 5
    assert [(bill["calls"], bill["one_a_call_usd"]) for bill in report["by_request"]] == [(2, "0.03"), (0, "0.01")]
    shown = cli("usage").out
    assert "gemini:plain-answer" in shown and "unknown" in shown and "█" in shown
    assert "5 requests: at least $0.0300, 2 requests unknown" in shown
    assert "retries and continuations: 1 request, $0.0100" in shown
    assert "2 requests, $0.0200; one a call: 3 requests, $0.0300" in shown
    assert "\x1b" not in shown


def test_a_sum_that_nobody_knows_is_null_in_json(lab: Lab, folder: Path, cli: Cli) -> None:
    """Issue 15: `{"usd":"0","requests":87,"unknown":87}` read as nothing spent; `run --json` says null, and so does this."""
    models = ["-m", "openai_chat:plain-answer", "-m", "openai_chat:cut-text", "--base-url", f"{lab.url}/v1"]
    compared = json.loads(cli("compare", "Go.", *models, "--json").out)
    assert all(run["cost"]["usd"] is None and run["cost"]["unknown"] for run in compared["runs"])
    report = json.loads(cli("usage", "--json").out)
    count = lab.count()
    assert report["total"]["cost"] == {"usd": None, "requests": count, "unknown": count}
    assert [row["cost"]["usd"] for row in report["rows"]] == [None, None]


def entry(usage: Usage | None, *, usd: Decimal | None = None) -> LedgerEntry:
    return LedgerEntry(
        **dict.fromkeys(("session", "turn", "root_session", "root_turn", "provider", "model"), "s"),
        number=1,
        step=1,
        purpose="step",
        started=0.0,
        sent_bytes=1,
        usage=usage,
        usd=usd,
    )


def test_tokens_that_nobody_told_are_not_0() -> None:
    """Issue 15: a request that Ctrl-C broke said `0 tokens in, 0 out`. What cost nothing used nothing."""
    told, part = (
        entry(Usage(input_tokens=1200, output_tokens=7)),
        entry(Usage(input_tokens=5, untold=("output_tokens",))),
    )
    usage = Usage(input_tokens=1200, output_tokens=7)
    assert tokens_said(Usage(), entries=[entry(None)]) == "tokens unknown"
    assert tokens_said(usage, entries=[told, entry(None)]) == "at least 1,200 tokens in, 7 out"
    assert tokens_said(usage, entries=[told, part]) == "at least 1,200 tokens in, 7 out"
    assert tokens_said(usage, entries=[told, entry(None, usd=Decimal(0))]) == "1,200 tokens in, 7 out"
    assert tokens_said(Usage(), entries=[]) == "0 tokens in, 0 out"


def test_a_run_that_broke_says_that_its_tokens_are_unknown(lab: Lab, folder: Path, cli: Cli) -> None:
    assert "1 request, tokens unknown, cost unknown" in cli("run", "Go.", "--retries", "0", *at(lab, "fault-reset")).err


CHECK = 'if grep -q "return a + b$" calc.py; then echo "3 passed"; else echo "1 failed: add(1, 2) is not 3"; fi\n'


@pytest.mark.promise("bill:saved")
def test_what_programs_saved_is_in_the_table_as_json_and_as_csv(lab: Lab, priced: Path, cli: Cli) -> None:
    """Proves: on a plan by request a program is on offer by itself; what takes 6 requests step by step takes 2 by the lab's own
    count, ten reads take 2 and not 11, and the difference is shown, in money as well."""
    allow = ("--allow", "write", "--allow", "bash")
    counts: dict[str, int] = {}
    for number in range(10):
        (priced / f"part-{number}.txt").write_text("bees\n" if number % 2 else "ants\n")
    for model in ("script-step-by-step", "script-read-edit-test", "script-ten-reads"):
        (priced / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        (priced / "check.sh").write_text(CHECK)
        before = lab.count()
        ran = cli("run", "Do it.", "--json", *allow, *at(lab, model))
        assert (ran.code, ran.events()[-1]["complete"]) == (0, True), ran
        counts[model] = lab.count() - before
    assert counts == {"script-step-by-step": 6, "script-read-edit-test": 2, "script-ten-reads": 2}
    report = json.loads(cli("usage", "--json").out)
    keys = ("calls", "program_calls", "one_a_call_requests", "one_a_call_usd", "saved")
    assert [[bill[key] for key in keys] for bill in report["by_request"]] == [
        [5, 0, 6, "0.06", {"usd": "0", "requests": 0, "unknown": 0}],
        [5, 5, 6, "0.06", {"usd": "0.04", "requests": 4, "unknown": 0}],
        [10, 10, 11, "0.11", {"usd": "0.09", "requests": 9, "unknown": 0}],
    ]
    assert report["total"]["saved"] == {"usd": "0.13", "requests": 13, "unknown": 0}
    rows = {row["model"]: row for row in csv.DictReader(io.StringIO(cli("usage", "--csv").out))}
    assert {key.partition(":")[2]: (row["saved_requests"], row["saved_usd"]) for key, row in rows.items()} == {
        "script-step-by-step": ("0", "0"),
        "script-read-edit-test": ("4", "0.04"),
        "script-ten-reads": ("9", "0.09"),
    }
    shown = cli("usage").out
    assert "programs and parallel calls saved, on plans by request: 13 requests, $0.130" in shown
    assert "2 requests, $0.0200; one a call: 11 requests, $0.110; saved 9 requests, $0.0900" in shown
    head, *lines = shown.splitlines()
    assert " saved" in head
    (reads,) = [line for line in lines if line.startswith("openai_chat:script-ten-reads")]
    assert reads.split()[5:7] == ["$0.0200", "$0.0900"]


CACHED = """
[prices]
"anthropic_messages:*" = { input = 3, output = 15, cache_read = 0.3, cache_write = 3.75, cache_write_1h = 6 }
"""
LONG = "Answer from the parts of the document alone. " * 180  # 2,000 tokens


READS = """
forced = "Bees."
[[steps]]
calls = [{ name = "read", arguments = { path = "notes.md" } }]
[[steps]]
calls = [{ name = "read", arguments = { path = "more.md" } }]
[[steps]]
text = "Ants."
"""


@pytest.mark.promise("bill:cached")
def test_usage_says_what_caches_read_wrote_saved_lost_and_missed(priced: Path, cli: Cli) -> None:
    """Issue 17: in the table, under it, as JSON and as CSV, by the lab's own counts. The last allowed step forbids calls, so it
    reads tools and system text alone; seven minutes later a second turn reads nothing of the first."""
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.write_text(CACHED)
    for name in ("notes.md", "more.md"):
        (priced / name).write_text(f"{name} has bees\n" * 600)
    with running_lab([script("reads", READS)]) as lab:
        model = ("--system", LONG, *at(lab, "reads", family="anthropic_messages"))
        assert cli("run", "Go.", "--max-steps", "3", *model).code == 3
        lab.pass_time(420)
        assert cli("run", "Go.", *model).code == 0
        told = [one.usage for one in lab.requests if one.usage is not None]
    assert len(told) == 6
    read, written = (sum([getattr(one, f"cache_{name}_tokens") for one in told]) for name in ("read", "write"))
    missed = told[1].cache_read_tokens + told[1].cache_write_tokens - told[2].cache_read_tokens
    unread = told[1].cache_write_tokens + told[2].cache_write_tokens + told[5].cache_write_tokens
    report = json.loads(cli("usage", "--json").out)["total"]
    names = ("read_tokens", "write_tokens", "unread_tokens", "misses", "missed_tokens")
    assert [report[f"cache_{name}"] for name in names] == [read, written, unread, 1, missed]
    saved, lost = Decimal(report["cache_saved_usd"]), Decimal(report["cache_unread_usd"])
    assert saved == (read * Decimal("2.7") - written * Decimal("0.75")) / 1_000_000
    assert lost == unread * Decimal("0.75") / 1_000_000
    (row,) = csv.DictReader(io.StringIO(cli("usage", "--csv").out))
    assert [row[f"cache_{name}"] for name in names] == [str(one) for one in (read, written, unread, 1, missed)]
    assert (row["cache_saved_usd"], row["cache_unread_usd"]) == (f"{saved:f}", f"{lost:f}")
    shown = cli("usage").out
    head, line, *_ = shown.splitlines()
    assert re.split(r" {2,}", head)[1:8] == [
        *("requests", "tokens in", "cached", "written", "missed", "cache saved", "tokens out"),
    ]
    assert re.split(r" {2,}", line)[3:6] == [f"{read:,}", f"{written:,}", "1"]
    assert f"written to caches and not read so far: {unread:,} tokens, {usd_said(lost)} lost" in shown
    assert f"caches missed 1 request: {missed:,} tokens that the provider had kept were read anew" in shown
    assert json.loads(cli("usage", "--by", "session", "--json").out)["total"] == report
    by_purpose = json.loads(cli("usage", "--by", "purpose", "--json").out)["rows"]
    assert sum([one["cache_unread_tokens"] for one in by_purpose]) == unread


@pytest.mark.promise("wait:ask", "step:every-call-answered")
def test_what_is_denied_inside_a_program_is_said_as_outside(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: nobody is there to be asked: the call inside is shown with its result, and named at the end and in the JSON."""
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    ran = cli("run", "Mend it.", "--script", *at(lab, "script-read-edit-test"))
    assert (ran.code, ran.out.splitlines()[-1]) == (8, "The program did not get through.")
    assert "✗ edit: Denied: `edit` was not run." in ran.err
    assert "not run, as nobody is there to be asked: edit\n" in ran.err
    *events, last = cli("run", "Mend it.", "--script", "--json", *at(lab, "script-read-edit-test")).events()
    assert [one["name"] for one in last["denied"]] == ["edit"]
    shown = [(one["event"], one["id"]) for one in events if one["event"] in ("tool_call", "tool_result")]
    program = shown[0][1]
    assert shown == [
        ("tool_call", program),
        ("tool_call", f"{program}/1"),
        ("tool_result", f"{program}/1"),
        ("tool_call", f"{program}/2"),
        ("tool_result", f"{program}/2"),
        ("tool_result", program),
    ]
    assert (folder / "calc.py").read_text() == "def add(a, b):\n    return a - b\n"


@pytest.mark.parametrize(
    ("width", "head"),
    [
        (120, ["model", "requests", "tokens in", "cached", "tokens out", "cost", "saved", ""]),
        (80, ["model", "requests", "tokens in", "cached", "tokens out", "cost", "saved"]),
        (60, ["model", "requests", "tokens in", "tokens out", "cost"]),
        (50, ["model", "requests", "tokens in", "cost"]),
        (20, ["model", "requests", "cost"]),
    ],
)
def test_narrow_terminals_lose_the_bars_and_then_what_matters_least(width: int, head: list[str]) -> None:
    """Proves: a figure is there whole or not at all, and what is not is named; the name folds."""
    rows = [
        total("chutes:deepseek-ai/DeepSeek-V3-0324", cost=Cost(usd=Decimal(1), requests=42), saved=Cost(requests=1)),
        total("p:m", cost=Cost(usd=Decimal(2), requests=33_311_333), saved=Cost()),
    ]
    shown = table_of(rows, by="model", titles={}, width=width, stream=io.StringIO())
    assert re.split(r" {2,}", shown[0]) == [name for name in head if name]
    figures = [re.split(r" {2,}", line)[1:] for line in shown if "33,311,333" in line]
    assert [len(line) for line in figures] == [len(head) - 1 - ("saved" in head)] and "$2.00" in figures[0]
    assert "".join([line.split("  ")[0] for line in shown[1:3]]).startswith("chutes:deepseek-")
    gone = [name for name in ("tokens in", "cached", "tokens out", "saved") if name not in head]
    assert [line for line in shown if line.startswith("no room")] == (
        [f"no room here for {', '.join(gone)}: a wider terminal or --csv has it all"] if gone else []
    )
    if width >= 60:
        assert max(map(len, shown[:-1])) <= width


@pytest.fixture
def sessions(folder: Path) -> Path:
    """A journal of 50 sessions, an hour apart, each with a turn of two requests; all of one model but the last."""
    path = journal_path(os.environ)
    with Journal(path, clock=SystemClock()):
        pass
    with sqlite3.connect(path) as connection:
        for number in range(100):
            session = f"{number // 2:026d}"
            entry = LedgerEntry(
                session=session,
                turn=f"t{session}",
                root_session=session,
                root_turn=f"t{session}",
                number=number % 2 + 1,
                step=1,
                purpose="step",
                provider="p",
                model=f"m{number // 98}",
                started=1_000_000.0 + 3600 * (number // 2),
                sent_bytes=1,
                outcome="ok",
                plan="request",
                usd=Decimal("0.01"),
            )
            row_id = connection.execute(LEAVES, values_before(entry)).lastrowid
            assert row_id is not None
            connection.execute(*update_of(entry, row_id=row_id))
    connection.close()
    return path


def test_long_tables_end_at_the_latest_lines_and_say_what_they_leave_out(sessions: Path, cli: Cli) -> None:
    """Proves: 30 sessions and 10 turns unless told otherwise, the sum is of all; `--limit` and `--all`, `--csv` and `--json`."""

    def said(*args: str) -> tuple[int, int, str, str]:
        out = cli("usage", "--since", "all", "--by", "session", *args).out
        table, _, turns = out.partition("\nplans by request")
        lines = [line for line in table.splitlines() if line[:8].isdigit()]
        assert lines[-1].startswith("00000049") and "100 requests: $1.00" in out
        left = [next((line for line in part.splitlines() if "--limit N" in line), "") for part in (table, turns)]
        return len(lines), turns.count("one a call:"), *(one.partition(";")[0].strip() for one in left)  # pyright: ignore[reportReturnType]

    assert said() == (30, 10, "and 20 sessions before: 40 requests, $0.400", "and 40 turns before")
    assert said("--limit", "45") == (45, 45, "and 5 sessions before: 10 requests, $0.100", "and 5 turns before")
    assert said("--limit", "50") == said("--all") == (50, 50, "", "")
    report = json.loads(cli("usage", "--since", "all", "--by", "session", "--limit", "1", "--json").out)
    assert (len(report["rows"]), len(report["by_request"])) == (50, 50)
    assert cli("usage", "--since", "all", "--by", "session", "--csv").out.count("\n") == 51
    models = cli("usage", "--since", "all", "--limit", "1").out
    assert "p:m0 " in models and "and 1 model: 2 requests, $0.0200;" in models
    assert cli("usage", "--all", "--limit", "3").code == cli("usage", "--limit", "0").code == 2


@pytest.mark.parametrize("amount", ["abc", "NaN", "1e"])
def test_a_damaged_price_is_named_with_its_file_and_what_to_do(sessions: Path, cli: Cli, amount: str) -> None:
    """Proves: one line, exit code 2; what it says to do mends it, and the price is unknown then."""
    with sqlite3.connect(sessions) as connection:
        connection.execute("update request set usd = ?, usd_pico = null where id = 7", (amount,))
    connection.close()
    ran = cli("usage", "--since", "all")
    (line,) = ran.complaints()
    assert ran.code == 2 and f"`{sessions}` is damaged: the amount of request 7 in its ledger is `{amount}`" in line
    with sqlite3.connect(sessions) as connection:
        connection.execute(re.findall(r'"(update [^"]*)"', line)[0])
    connection.close()
    assert "100 requests: at least $0.990, 1 request unknown" in cli("usage", "--since", "all").out


def test_what_programs_lost_is_said_as_a_loss() -> None:
    """A program that called nothing was one request too many; a part of unknown price is said."""
    cent = Decimal("0.01")
    rows = [
        total("p:l", cost=Cost(usd=42 * cent, requests=42), saved=Cost(usd=9 * cent, requests=9)),
        total("p:m", cost=Cost(usd=2 * cent, requests=2), saved=Cost(usd=-cent, requests=-1)),
        total("p:n", cost=Cost(requests=2, unknown=2), saved=Cost(requests=3, unknown=3)),
    ]
    shown = table_of(rows, by="model", titles={}, width=80, stream=io.StringIO())
    assert [line.split()[5:7] for line in shown[1:]] == [
        ["$0.420", "$0.0900"],
        ["$0.0200", "-$0.0100"],
        ["unknown"] * 2,
    ]
    said = [saved_said(row.saved) for row in (*rows, sum_of_totals(rows)) if row is not None]
    assert said == [
        "9 requests, $0.0900",
        "1 request, $0.0100",
        "3 requests, unknown",
        "11 requests, $0.0800 where the price is known",
    ]
    assert "calls cost more than they saved, on plans by request: 1 request, $0.0100" in "".join(lines_of(rows[1]))


def total(key: str, *, cost: Cost, saved: Cost) -> Total:
    """A line that was never sent."""
    return Total(
        key=key,
        cost=cost,
        again=Cost(),
        unfinished=0,
        input_tokens=123_456,
        output_tokens=5_000,
        reasoning_tokens=0,
        cache_read_tokens=1_000,
        cache_write_tokens=0,
        sent_bytes=1,
        received_bytes=1,
        seconds=1.0,
        cache_saved_usd=Decimal(0),
        saved=saved,
    )


def test_programs_are_on_offer_by_the_plan_or_by_option(lab: Lab, priced: Path, cli: Cli) -> None:
    """Proves: by itself where the plan bills by the request; `--script` and `--no-script` decide it, for sub-agents alike."""

    def offered(*args: str) -> bool:
        assert cli("run", "Go.", *args).code == 0
        return b'"script"' in lab.requests[-1].body

    by_request, by_token = at(lab, "plain-answer"), at(lab, "plain-answer", family="openai_responses")
    assert [offered(*by_request), offered(*by_token)] == [True, False]
    assert [offered("--no-script", *by_request), offered("--script", *by_token)] == [False, True]


def test_a_table_as_csv_has_an_empty_cell_where_no_price_is_known(lab: Lab, priced: Path, cli: Cli) -> None:
    """Proves: no zero stands for what nobody knows, in the machine's form either."""
    cli("run", "Go.", *at(lab, "plain-answer"))
    cli("run", "Go.", *at(lab, "plain-answer", family="gemini"))
    rows = {row["model"]: row for row in csv.DictReader(io.StringIO(cli("usage", "--csv").out))}
    assert {key: (row["requests"], row["usd"], row["requests_of_unknown_price"]) for key, row in rows.items()} == {
        "openai_chat:plain-answer": ("1", "0.01", "0"),
        "gemini:plain-answer": ("1", "", "1"),
    }
    tokens = lab.requests[0].usage
    assert tokens is not None
    assert rows["openai_chat:plain-answer"]["input_tokens"] == str(tokens.input_tokens)


def test_what_one_a_call_would_have_cost_is_a_lower_bound_where_prices_are_unknown() -> None:
    """Proves: the requests of unknown price are in that sum as little as in the turn's own."""
    bill = TurnBill(
        turn="t",
        session="session1",
        started=0.0,
        cost=Cost(usd=Decimal("0.02"), requests=4, unknown=2),
        calls=3,
        program_calls=2,
        one_a_call_requests=6,
        one_a_call_usd=Decimal("0.04"),
        saved=Cost(usd=Decimal("0.02"), requests=2),
    )
    (line,) = saving_lines([bill], titles={}, turns=1)[2:]
    assert line.partition("  4 ")[2] == (
        "requests, at least $0.0200, 2 requests unknown; one a call: 6 requests, at least $0.0400; saved 2 requests, $0.0200"
    )


def test_one_session_by_day_and_by_session(lab: Lab, priced: Path, cli: Cli) -> None:
    """A session is asked for by the end of its id; its title stands beside it; another's requests are left out."""
    cli("run", "First thing.", *at(lab, "plain-answer"))
    cli("run", "Second thing.", *at(lab, "parallel-calls"))
    ids = [session["id"] for session in cli("sessions", "list", "--json").events()]
    shown = cli("usage", "--by", "session", "--session", ids[0][-8:]).out
    assert f"{ids[0][-8:]} Second thing." in shown and "First thing." not in shown.partition("plans by request")[0]
    (day,) = json.loads(cli("usage", "--by", "day", "--json").out)["rows"]
    assert (day["key"], day["cost"]["requests"]) == (f"{datetime.now():%Y-%m-%d}", 3)


def test_the_line_after_a_run_says_what_it_cost(lab: Lab, priced: Path, cli: Cli) -> None:
    """Requests, tokens, cost, duration; in `--json` the cost is null where a part is unknown."""
    assert ", cost $0.0200, " in cli("run", "Go.", *at(lab, "parallel-calls")).err
    assert ", cost unknown, " in cli("run", "Go.", *at(lab, "plain-answer", family="gemini")).err
    known = cli("run", "--json", "Go.", *at(lab, "parallel-calls")).events()[-1]
    unknown = cli("run", "--json", "Go.", *at(lab, "plain-answer", family="gemini")).events()[-1]
    assert (known["cost_usd"], unknown["cost_usd"]) == ("0.02", None)


@pytest.mark.promise("bill:wire")
def test_a_killed_process_leaves_its_requests_counted_without_an_outcome(lab: Lab, priced: Path, cli: Cli) -> None:
    """kill -9 while the provider is silent: the request had been written down before it left, and is told apart."""
    process = begin("run", "Go.", *at(lab, "fault-silence"), cwd=priced)
    wait_until(lab.count)
    process.send_signal(signal.SIGKILL)
    assert end(process).code == -signal.SIGKILL
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        (entry,) = journal.ledger.entries(LedgerSpan())
    assert (lab.count(), entry.outcome, entry.ended, entry.usd) == (1, None, None, None)
    assert entry.sent_bytes == len(lab.requests[0].body)
    assert "1 request without a known outcome" in cli("usage").out


def test_colours_and_bars_are_for_those_who_want_them(
    lab: Lab, priced: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR colours the bars, NO_COLOR wins over it."""
    cli("run", "Go.", *at(lab, "plain-answer"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[36m█" in cli("usage").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in cli("usage").out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--since", "yesterweek"), "`yesterweek` is no time"),
        (("--json", "--csv"), "either --json or --csv"),
        (("--session", "ffffffff"), "there is no session"),
        (("--by", "colour"), "'colour' is not one of"),
    ],
)
def test_what_cannot_be_shown_is_one_line(args: tuple[str, ...], said: str, cli: Cli) -> None:
    """Exit code 2, and what to write instead."""
    ran = cli("usage", *args)
    (line,) = ran.complaints()
    assert ran.code == 2 and said in line


def test_a_wrong_price_in_the_settings_stops_a_run_before_it_costs(lab: Lab, priced: Path, cli: Cli) -> None:
    """One line with the file and the model; nothing is sent."""
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.write_text('[prices]\n"openai_chat:*" = { request = "much" }\n')
    ran = cli("run", "Go.", *at(lab, "plain-answer"))
    (line,) = ran.complaints()
    assert ran.code == 2 and str(settings) in line and "`much` is no number" in line and lab.count() == 0


@pytest.mark.promise("end:budget", "bill:plans")
def test_a_limit_of_cost_does_not_believe_a_projects_price(lab: Lab, folder: Path, cli: Cli) -> None:
    """Proves: a folder from elsewhere that says `free` cannot switch the limit off: refused before anything is sent, in one line
    with the place; without a limit the price is shown, with the file that says it."""
    (folder / "turnwise.toml").write_text('[prices]\n"*" = { free = true }\n')
    ran = cli("run", "Go.", "--max-cost", "0.5", *at(lab, "plain-answer"))
    (line,) = ran.complaints()
    assert (ran.code, lab.count()) == (2, 0)
    assert (
        f"in the project's `{folder / 'turnwise.toml'}` alone" in line
        and "to [prices] in your own turnwise.toml" in line
    )
    assert ", cost $0.00, " in cli("run", "Go.", *at(lab, "plain-answer")).err
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        assert [entry.price_note for entry in journal.ledger.entries(LedgerSpan())] == [str(folder / "turnwise.toml")]


def test_since_is_a_date_a_time_ago_or_all() -> None:
    """On the user's own clock."""
    now = datetime(2026, 11, 22, 15, 30)
    midnight = datetime(2026, 11, 22)

    def since(text: str | None, by: str = "model", *, session: bool = False) -> float:
        return since_of(text, by=by, has_session=session, now=now)  # pyright: ignore[reportArgumentType]

    assert since(None) == since("today") == midnight.timestamp()
    assert since(None, "day") == (midnight - timedelta(days=13)).timestamp()
    assert since(None, session=True) == since("all") == 0
    assert since("12h") == (now - timedelta(hours=12)).timestamp()
    assert since("2w") == now.timestamp() - 14 * 86_400
    assert since("2026-11-01") == datetime(2026, 11, 1).timestamp()
    assert since("99999d") == 0
    for wrong in ("", "7", "d", "2026-13-01", "-3d", "999999d"):
        with pytest.raises(CallerError):
            since(wrong)


def test_money_is_shown_with_the_digits_that_mean_something() -> None:
    """And what is not known is said beside it."""
    amounts = ["0", "1234.5", "0.05", "0.000001256", "-0.5"]
    assert [usd_said(Decimal(one)) for one in amounts] == ["$0.00", "$1,234.50", "$0.0500", "$0.00000126", "-$0.500"]
    assert cost_said(Cost(requests=2, unknown=2)) == "unknown"
    assert cost_said(Cost(usd=Decimal(3), requests=2, unknown=1)) == "at least $3.00, 1 request unknown"
    assert cost_said(Cost(usd=Decimal(0), requests=2)) == "$0.00"


def test_help_has_examples(cli: Cli) -> None:
    """That can be typed as they stand."""
    shown = cli("usage", "--help").out
    assert shown.count("  turnwise usage") >= 5
