"""`turnwise usage`: what was sent and what it cost, from the ledger; and tables of figures for a terminal."""

import csv
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, TextIO, cast, get_args

import click
import msgspec
from rich.cells import cell_len, chop_cells

from turnwise.agent.formatting import PRICE_WANTED, UNKNOWN, cost_said, many, saved_said, usd_said
from turnwise.base.clock import SystemClock
from turnwise.coding_agent.text import clean_line, shortened, style
from turnwise.errors import CallerError
from turnwise.journal.direct_ledger import is_gateways
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import COUNTS
from turnwise.journal.ledger_queries import By, LedgerReader, LedgerSpan, Total, TurnBill, sum_of_totals
from turnwise.rules.pricing import ZERO, Cost
from turnwise.terminal.command_options import complete_sessions, json_option
from turnwise.terminal.databases import read_journal
from turnwise.terminal.failures import as_one_line, write_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say

# Tables of figures for a terminal: thousands of lines are quick, and a figure is never cut short.
#
# `rich` takes almost a millisecond for each line, 5 s of CPU for 5,000 sessions.


GAP = 2  # columns between columns
LEAST_NAME = 16  # columns: a narrower name would be folded at every word
MOST_NAME = 44
WIDTH_OF_A_FILE = 120


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column. If there is not room for all, the column of the greatest `rank` goes first; rank 0 stays."""

    name: str
    cells: Sequence[str]
    rank: int = 0
    align: Literal["left", "right"] = "right"
    style: str = ""


def width_of(stream: TextIO) -> int:
    """Columns of the terminal; without a terminal there are enough for everything."""
    return shutil.get_terminal_size().columns if stream.isatty() else WIDTH_OF_A_FILE


def fitting(name: Column, columns: Sequence[Column], *, width: int) -> list[Column]:
    """The columns that have room beside the name, in order."""
    kept = list(columns)
    least = min(max([len(name.name), *map(cell_len, name.cells)]), LEAST_NAME)
    while least + sum([_width(one) + GAP for one in kept]) > width:
        last = max(kept, key=lambda one: one.rank, default=None)
        if last is None or not last.rank:
            break
        kept.remove(last)
    return kept


def lines_of_table(name: Column, columns: Sequence[Column], *, width: int, stream: TextIO) -> Iterator[str]:
    """The head and a line for each row. A name without enough room is printed whole above its figures, so that it can be read and
    copied: it is broken only if it is wider than the terminal."""
    widths = [_width(one) for one in columns]
    room = max(width - sum(widths) - GAP * len(widths), cell_len(name.name))
    room = min(room, MOST_NAME, max([cell_len(name.name), *map(cell_len, name.cells)]))
    head = [_aligned(one.name, one, width=size) for one, size in zip(columns, widths, strict=True)]
    for line in _joined(name.name, head, room=room, width=width):
        yield style(line, "bold", stream=stream)
    for number, cell in enumerate(name.cells):
        figures = [
            _styled(_aligned(one.cells[number], one, width=size), one, stream=stream)
            for one, size in zip(columns, widths, strict=True)
        ]
        yield from _joined(cell, figures, room=room, width=width)


def _joined(name: str, figures: Sequence[str], *, room: int, width: int) -> Iterator[str]:
    size = cell_len(name)
    beside = (" " * GAP).join([" " * room, *figures]).rstrip()
    if beside and size > max(room, len(beside) - len(beside.lstrip()) - GAP):  # empty cells are room, too
        yield from chop_cells(name, width) if size > width else [name]
        yield beside
    else:
        yield name + beside[size:]


def _width(column: Column) -> int:
    return max([len(column.name), *map(len, column.cells)])


def _aligned(cell: str, column: Column, *, width: int) -> str:
    return cell.rjust(width) if column.align == "right" else cell.ljust(width)


def _styled(cell: str, column: Column, *, stream: TextIO) -> str:
    return style(cell, column.style, stream=stream) if column.style and cell.strip() else cell


# Costs and tokens in JSON: null if no part of a sum is known.


def json_of(value: object) -> object:
    """The values that `msgspec` encodes for it. `usd` is null if the price of no request is known, because 0 would be a price;
    the same holds for tokens. `at_least` is there only if requests are priced in part."""
    match value:
        case Cost():
            usd = None if value.is_unknown else value.usd
            told = {"usd": usd, "requests": value.requests, "unknown": value.unknown}
            return {**told, "at_least": value.at_least} if value.at_least else told
        case Total() if value.tells_nothing:
            told = {name: getattr(value, name) for name in value.__struct_encode_fields__}
            return {name: None if name in COUNTS else json_of(one) for name, one in told.items()}
        case msgspec.Struct():
            return {name: json_of(getattr(value, name)) for name in value.__struct_encode_fields__}
        case list():
            return [json_of(one) for one in cast("list[object]", value)]
        case _:
            return value


USAGE_EPILOG = """\b
Examples:
  turnwise usage
  turnwise usage --by day --since 30d
  turnwise usage --by session --since 2026-11-01 --limit 100
  turnwise usage --by purpose --session 3f2a9c1e
  turnwise usage --session gateway:laptop
  turnwise usage --by model --since all --csv > usage.csv
  turnwise usage --json | jq .total.cost

Money is in US dollars. An unknown price is shown as unknown and never counted as 0. Set it under [prices] in
your turnwise.toml, in dollars a million tokens, or in the file that TURNWISE_PRICES names:

\b
  [prices]
  "openai_chat:my-model" = { input = 0.5, output = 1.5 }
  "ollama:*" = { free = true }"""

DAYS = 14  # shown by `--by day`, by default
BAR = 12  # characters
LINES = 30  # of the table, by default: a month of days, the sessions of a week
TURNS = 10  # on plans that bill by request
LATEST: tuple[By, ...] = ("day", "session")  # their lines are in the order of time
AGO = re.compile(r"(\d{1,5})([hdw])")
UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints. Times are UTC, seconds since 1970; money is decimals as text."""

    since: float
    by: By
    rows: list[Total]
    total: Total | None
    by_request: list[TurnBill]
    session: str | None = None
    currency: str = "USD"


@click.command(cls=EndsWithLine, epilog=USAGE_EPILOG)
@click.option("--by", type=click.Choice(get_args(By)), default="model", show_default=True, help="One line for each.")
@click.option(
    "--since",
    metavar="WHEN",
    help=f"A date (2026-11-01), a time ago (12h, 7d, 4w), or `all`. Default: today; {DAYS}d with --by day, all with --session.",
)
@click.option("--session", metavar="ID", shell_complete=complete_sessions, help="Only this session and its sub-agents.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"At most N lines and turns: the latest, or those with the most requests. Default: {LINES}, and {TURNS} turns.",
)
@click.option("--all", "shows_all", is_flag=True, help="All lines and turns. --json and --csv always have all.")
@json_option("Everything as one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="The lines of the table as CSV.")
def usage_command(
    by: By,
    since: str | None,
    session: str | None,
    limit: int | None,
    shows_all: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Show how many requests were sent, what for, and what they cost."""
    with as_one_line():
        if as_json and as_csv:
            raise CallerError("give either --json or --csv, not both")
        if shows_all and limit is not None:
            raise CallerError("give either --limit or --all, not both")
        clock = SystemClock()
        began = since_of(since, by=by, has_session=session is not None, now=datetime.fromtimestamp(clock.now()))
        lines, turns = (None, None) if as_json or as_csv or shows_all else (limit or LINES, limit or TURNS)

        def read(journal: Journal) -> _ReadUsage:
            span = LedgerSpan(since=began, session=session_asked(session, journal=journal))
            return _read_usage(journal.ledger, span, by=by, lines=lines, turns=turns)

        found, code = read_journal(read)
        report = found.report
        if as_csv:
            write_csv(report.rows, by=by, stream=sys.stdout)
        elif as_json:
            write_json(json_of(report))
        else:
            show(report, titles=found.titles, turns=found.turns, limit=lines, stream=sys.stdout)
    sys.exit(code)


class _ReadUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The figures to show: `turns` counts the turns on plans by request, `titles` has the titles of the named sessions."""

    report: Report
    turns: int
    titles: dict[str, str]


def _read_usage(reader: LedgerReader, span: LedgerSpan, *, by: By, lines: int | None, turns: int | None) -> _ReadUsage:
    rows = reader.totals(span, by=by)
    bills = reader.bills_by_request(span, latest=turns)
    report = Report(
        since=span.since, by=by, session=span.session, rows=rows, total=sum_of_totals(rows), by_request=bills
    )
    shown = [row.key for row in shown_of(rows, by=by, limit=lines)] if by == "session" else []
    return _ReadUsage(
        report=report,
        turns=len(bills) if turns is None or len(bills) < turns else reader.count_turns_by_request(span),
        titles=reader.titles([*shown, *[bill.session for bill in bills]]),
    )


def session_asked(given: str | None, *, journal: Journal) -> str | None:
    """The session's whole id. Requests that the gateway sent for one client count as a session here. Raises CallerError."""
    return given if given is None or is_gateways(given) else journal.find_session_by_part(given).row.id


def since_of(text: str | None, *, by: By, has_session: bool, now: datetime) -> float:
    """When the report begins, by the user's own clock. Raises CallerError."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text is None:
        if has_session:
            return 0.0
        return (today - timedelta(days=DAYS - 1) if by == "day" else today).timestamp()
    if text == "all":
        return 0.0
    if text == "today":
        return today.timestamp()
    if ago := AGO.fullmatch(text):
        return max(0.0, now.timestamp() - timedelta(**{UNITS[ago.group(2)]: int(ago.group(1))}).total_seconds())
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        raise CallerError(
            f"--since: `{text}` is no time: write a date (2026-11-01), a time ago (12h, 7d, 4w), or `all`"
        ) from None


def write_csv(rows: Sequence[Total], *, by: str, stream: TextIO) -> None:
    """Write the rows as CSV. An empty cell is an unknown price, or an unknown number of tokens. `usd` is the sum of the known
    prices."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        [
            *(
                by,
                "requests",
                "usd",
                "requests_of_unknown_price",
                "retries_and_continuations",
                "their_usd",
                "unfinished",
            ),
            *("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens"),
            *("cache_saved_usd", "sent_bytes", "received_bytes", "seconds"),
            *("saved_requests", "saved_usd"),
            *("cache_misses", "cache_missed_tokens", "cache_unread_tokens", "cache_unread_usd"),
            "requests_of_unknown_tokens",
            "requests_priced_in_part",
        ]
    )
    for row in rows:
        writer.writerow(
            [
                *(
                    plain_cell(clean_line(row.key)),
                    row.cost.requests,
                    known(row.cost),
                    row.cost.unknown,
                    row.again.requests,
                    known(row.again),
                ),
                *(row.unfinished, *known_tokens(row), known_usd(row.cache_saved_usd)),
                *(row.sent_bytes, row.received_bytes, round(row.seconds, 3)),
                *(row.saved.requests, known(row.saved)),
                *(row.cache_misses, row.cache_missed_tokens, row.cache_unread_tokens, known_usd(row.cache_unread_usd)),
                row.tokens_unknown,
                row.cost.at_least,
            ]
        )


def plain_cell(text: str) -> str:
    """The text as a spreadsheet shows it and never runs it, also one that takes another character for the end of a cell. Source:
    OWASP, "CSV Injection"."""
    return _FORMULA.sub(r"\1'", text)


_FORMULA = re.compile("(^|[;,|\t\r\n])(?=[=+@\t\r\uff1d\uff0b\uff0d\uff20-])")


def known_tokens(row: Total) -> list[int | str]:
    """The tokens by kind."""
    return ["" if row.tells_nothing else getattr(row, name) for name in COUNTS]


def known_usd(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount:f}"


def known(cost: Cost) -> str:
    return "" if cost.is_unknown else f"{cost.usd:f}"


def show(report: Report, *, titles: dict[str, str], turns: int, limit: int | None, stream: TextIO) -> None:
    """Show the report. In all, there were `turns` on plans by request; the report may have only the last of them."""
    when = "" if not report.since else f" since {datetime.fromtimestamp(report.since):%Y-%m-%d %H:%M}"
    if report.total is None:
        say(f"no requests{when}; `turnwise usage --since all` shows all that there were", stream=stream)
        return
    rows = shown_of(report.rows, by=report.by, limit=limit)
    table = table_of(rows, by=report.by, titles=titles, width=width_of(stream), stream=stream)
    stream.write("".join([f"{line}\n" for line in table]))
    lines = [
        *more_of(report.rows, by=report.by, shown=len(rows)),
        *lines_of(report.total),
        *saving_lines(report.by_request, titles=titles, turns=turns),
    ]
    for line in lines:
        say(line, stream=stream)


def shown_of(rows: Sequence[Total], *, by: By, limit: int | None) -> Sequence[Total]:
    """The latest days and sessions; the models and purposes with the most requests."""
    if limit is None:
        return rows
    return rows[-limit:] if by in LATEST else rows[:limit]


def more_of(rows: Sequence[Total], *, by: By, shown: int) -> list[str]:
    """How many more there are, and how to see them."""
    if shown == len(rows):
        return []
    left = rows[:-shown] if by in LATEST else rows[shown:]
    cost = sum_of_totals(left)
    assert cost is not None
    before = " before" if by in LATEST else ""
    return [
        f"and {many(len(left), by)}{before}: {many(cost.cost.requests, 'request')}, {cost_said(cost.cost)}; "
        "--limit N shows more, --all all of them"
    ]


def table_of(rows: Sequence[Total], *, by: By, titles: dict[str, str], width: int, stream: TextIO) -> list[str]:
    """In a narrow terminal the bars go first, then what matters less than requests and cost."""
    sizes = [row.cost.usd for row in rows]
    if not any(sizes):
        sizes = [Decimal(row.cost.requests) for row in rows]
    most, bar = max(sizes, default=ZERO), bar_of(stream)
    bars = [bar * (round(BAR * size / most) if most else 0) for size in sizes]
    saved = [short_cost(row.saved) if row.saved.requests else "" for row in rows]
    name = Column(name=by, cells=[name_of(row.key, by=by, titles=titles) for row in rows], align="left")
    columns = [
        Column(name="requests", cells=[f"{row.cost.requests:,}" for row in rows]),
        Column(name="tokens in", cells=[tokens_said(row.input_tokens, row=row) for row in rows], rank=1),
        Column(name="cached", cells=[f"{row.cache_read_tokens:,}" for row in rows], rank=4),
        *cache_columns(rows),
        Column(name="tokens out", cells=[tokens_said(row.output_tokens, row=row) for row in rows], rank=2),
        Column(name="cost", cells=[short_cost(row.cost) for row in rows]),
        *([Column(name="saved", cells=saved, rank=3)] if any(saved) else []),
        Column(name="", cells=bars, rank=5, align="left", style="cyan"),
    ]
    kept = fitting(name, columns, width=width)
    lines = list(lines_of_table(name, kept, width=width, stream=stream))
    if gone := [one.name for one in columns if one not in kept and one.name]:
        lines.append(f"no room here for {', '.join(gone)}: a wider terminal or --csv has it all")
    return lines


def cache_columns(rows: Sequence[Total]) -> list[Column]:
    """The tokens written to caches, the requests that missed them, and the savings: each if there are any."""
    columns = [
        Column(name="written", cells=[f"{row.cache_write_tokens:,}" for row in rows], rank=4),
        Column(name="missed", cells=[f"{row.cache_misses:,}" for row in rows], rank=4),
        Column(name="cache saved", cells=[signed_usd(row.cache_saved_usd) for row in rows], rank=4),
    ]
    has_any = (
        any(row.cache_write_tokens for row in rows),
        any(row.cache_misses for row in rows),
        any(row.cache_saved_usd != 0 for row in rows),
    )
    return [column for column, is_any in zip(columns, has_any, strict=True) if is_any]


def signed_usd(amount: Decimal | None) -> str:
    """Below 0 if writing caches cost more than reading them saved."""
    if amount is None:
        return UNKNOWN
    return f"-{usd_said(-amount)}" if amount < 0 else usd_said(amount)


def tokens_said(tokens: int, *, row: Total) -> str:
    """With a `+` if a part is unknown."""
    return UNKNOWN if row.tells_nothing else f"{tokens:,}" + ("+" if row.tokens_unknown else "")


def short_cost(cost: Cost) -> str:
    """With a `+` if a part is unknown."""
    if cost.is_unknown:
        return UNKNOWN
    return usd_said(cost.usd) + ("+" if cost.is_partial else "")


def name_of(key: str, *, by: By, titles: dict[str, str]) -> str:
    if by != "session":
        return shortened(key, limit=60)
    if is_gateways(key):
        return shortened(key, limit=43)
    return f"{key[-8:]} {shortened(titles.get(key, ''), limit=34)}"


def lines_of(total: Total) -> list[str]:
    """The lines below the table: the sum, what caches and programs saved, what had to be sent again."""
    lines = [f"{many(total.cost.requests, 'request')}: {cost_said(total.cost)}"]
    if total.cost.unknown:
        lines.append(PRICE_WANTED)
    if total.tokens_unknown:
        lines.append(
            f"tokens of {many(total.tokens_unknown, 'request')} are unknown: no usage came, and none is in the sums"
        )
    if total.joined:
        lines.append(
            f"{many(total.joined, 'further request')} got the answer to an equal one: nothing was sent for them"
        )
    if total.has_cached:
        saved = total.cache_saved_usd
        word = "cost more than they saved, by" if saved is not None and saved < 0 else "saved"
        money = f"money of {UNKNOWN} amount" if saved is None else usd_said(abs(saved))
        tokens = f"{total.cache_read_tokens:,} tokens read, {total.cache_write_tokens:,} written"
        lines.append(f"caches {word} {money} ({tokens})")
    if total.cache_unread_tokens:
        usd = total.cache_unread_usd
        lost = ", a loss of unknown size" if usd is None else f", {usd_said(usd)} lost" if usd > 0 else ""
        lines.append(f"written to caches and not read so far: {total.cache_unread_tokens:,} tokens{lost}")
    if total.cache_misses:
        missed = f"{total.cache_missed_tokens:,} tokens that the provider had kept were read anew"
        lines.append(f"caches missed {many(total.cache_misses, 'request')}: {missed}")
    if total.saved.requests:
        word = "saved" if total.saved.requests > 0 else "cost more than they saved"
        lines.append(f"programs and parallel calls {word}, on plans by request: {saved_said(total.saved)}")
    if total.again.requests:
        lines.append(f"retries and continuations: {many(total.again.requests, 'request')}, {cost_said(total.again)}")
    if total.unfinished:
        lines.append(
            f"{many(total.unfinished, 'request')} without a known outcome: under way, or the process was killed"
        )
    return lines


def saving_lines(bills: Sequence[TurnBill], *, titles: dict[str, str], turns: int) -> list[str]:
    """For plans that bill by request: each turn, and its cost if each call had needed one request."""
    if not bills:
        return []
    lines = ["", "plans by request: each turn, and with one request for each tool call"]
    for bill in bills:
        instead = UNKNOWN if bill.one_a_call_usd is None else usd_said(bill.one_a_call_usd)
        if bill.cost.unknown and bill.one_a_call_usd is not None:
            instead = f"at least {instead}"
        word = "saved" if bill.saved.requests > 0 else "lost"
        saved = f"; {word} {saved_said(bill.saved)}" if bill.saved.requests else ""
        lines.append(
            f"  {name_of(bill.session, by='session', titles=titles):<43}  "
            f"{many(bill.cost.requests, 'request')}, {cost_said(bill.cost)}; "
            f"one a call: {many(bill.one_a_call_requests, 'request')}, {instead}{saved}"
        )
    if turns > len(bills):
        lines.append(f"  and {many(turns - len(bills), 'turn')} before; --limit N shows more, --all all of them")
    return lines


def bar_of(stream: TextIO) -> str:
    try:
        "█".encode(cast("str | None", getattr(stream, "encoding", None)) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"
