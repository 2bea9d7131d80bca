"""The demo's table."""

import shutil
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnwise.faces.cli.demo.incidents import IncidentOutcome, IncidentRow


def show_rows(rows: Sequence[IncidentRow]) -> None:
    """One block an incident: what happened, requests, tokens; naive first."""
    table = Table(
        title="Five incidents, each with a naive loop and with turnwise (same scripted provider, real HTTP, real files)",
        title_style="bold",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_lines=False,
        pad_edge=False,
    )
    table.add_column("loop", no_wrap=True)
    table.add_column("what happened", ratio=1)
    table.add_column("requests", justify="right")
    table.add_column("tokens", justify="right")
    for row in rows:
        table.add_row("", Text(row.title, style="bold"), "", "")
        _add(table, "naive", row.naive, style="red")
        _add(table, "turnwise", row.turnwise, style="green" if row.turnwise.wrong is None else "red")
        table.add_section()
    console = Console()
    # What is no terminal is as wide as COLUMNS says.
    (console if console.is_terminal else Console(width=shutil.get_terminal_size((120, 24)).columns)).print(table)


def _add(table: Table, loop: str, outcome: IncidentOutcome, *, style: str) -> None:
    mark = "✗" if style == "red" else "✓"
    said = outcome.said if outcome.wrong is None else f"{outcome.said}; BUT {outcome.wrong}"
    table.add_row(Text(f"{mark} {loop}", style=style), Text(said), str(outcome.requests), f"{outcome.tokens:,}")
