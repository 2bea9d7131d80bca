"""`turnwise lab`: the scripted provider as a server for any agent. `turnwise demo`: five incidents played with it."""

import asyncio
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnwise.agent.formatting import many
from turnwise.coding_agent.text import style
from turnwise.lab import Lab
from turnwise.terminal.command_options import FOLDER, FiniteRange, json_option
from turnwise.terminal.failures import as_one_line, write_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import columns_of, say
from turnwise.terminal.screen import Screen

if TYPE_CHECKING:
    from turnwise.lab.demo import IncidentOutcome, IncidentRow

LAB_EPILOG = """\b
Examples:
  turnwise lab --port 8080
  turnwise run -m openai_chat:read-edit-answer --base-url http://127.0.0.1:8080/v1 --allow write "fix notes.txt"
  turnwise -m openai_chat:read-edit-answer --base-url http://127.0.0.1:8080/v1
  turnwise lab --scripts my-scripts/ --list
  turnwise lab --conversation recorded.json
  turnwise lab --as deepseek

The model's name chooses the script. GET /_lab/requests lists the requests, DELETE clears the list, GET /_lab/scripts lists
the scripts."""


@click.command(epilog=LAB_EPILOG)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port on 127.0.0.1. [0: a free one]")
@click.option(
    "--scripts",
    type=FOLDER,
    help="A folder of TOML scripts to add to turnwise's own.",
)
@click.option(
    "--conversation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play this recorded conversation instead of scripts.",
)
@click.option(
    "--chunk-delay", "chunk_delay_s", type=FiniteRange(0, 60), default=0.0, metavar="S", help="Seconds between chunks."
)
@click.option("--key", metavar="TEXT", help="Answer 401 to requests without this key.")
@click.option(
    "--strict-paths", is_flag=True, help="Answer 404, as real servers do, if `/v1` is missing in the address."
)
@click.option(
    "--as",
    "profile",
    metavar="NAME",
    help="Judge Chat Completions requests by this provider's own rules too, and refuse in its words: a name of `--model`.",
)
@click.option("--list", "lists", is_flag=True, help="List the scripts and exit.")
def lab_command(
    scripts: Path | None,
    profile: str | None,
    lists: bool,
    **options: Any,
) -> None:
    """Serve a scripted provider on 127.0.0.1 that speaks all four API families, and checks requests strictly."""
    with as_one_line():
        lab = Lab(scripts, profile=profile, **options)
        if lists:
            for name, script in sorted(lab.provider.scripts.items()):
                click.echo(f"{style(name.ljust(28), 'bold')} {script.title}")
            return
        asyncio.run(serve(lab, profile=profile))


async def serve(lab: Lab, *, profile: str | None) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with lab:
        say(
            f"turnwise lab on {lab.url}   (OpenAI families: {lab.url}/v1, Anthropic: {lab.url}, Gemini: {lab.url}/v1beta)",
            stream=sys.stdout,
        )
        if profile is not None:
            say(_judged_as(lab, profile=profile), stream=sys.stdout)
        say("Ctrl-C ends it; the model's name chooses the script (`turnwise lab --list`)", stream=sys.stdout)
        await ended.wait()
    click.echo(f"{many(lab.count(), 'request')} received")


def _judged_as(lab: Lab, *, profile: str) -> str:
    dialect = lab.provider.dialect
    if dialect is None:
        return f"no rule of `{profile}` is known: requests are judged by its family's API"
    return (
        f"Chat Completions requests are judged by {many(len(dialect.rules), 'rule')} of `{profile}` (docs/dialects.md)"
    )


# `turnwise demo`: the five incidents, a naive loop and turnwise side by side, then one live turn. No key, no network.


LEAST_TABLE = 70  # columns: below, its words break
DEMO_EPILOG = """\b
Everything runs on this machine: a scripted provider on 127.0.0.1, real HTTP, real files in a temporary folder.
Not tried with a live model: a real model may say something else than the script.
Exit code: 0 if everything was as promised, else 1."""


@click.command(cls=EndsWithLine, epilog=DEMO_EPILOG)
@json_option("The rows as one JSON object a line, without the live turn.")
def demo_command(as_json: bool) -> None:
    """Show the five incidents that turnwise comes from, each with a naive loop and with turnwise, then one turn live."""
    sys.exit(asyncio.run(play_all(as_json=as_json)))


async def play_all(*, as_json: bool) -> int:
    from turnwise.lab.demo import INCIDENTS, play

    rows: list[IncidentRow] = []
    for incident in INCIDENTS:
        row = await play(incident)
        rows.append(row)
        if as_json:
            write_json(row)
    if not as_json:
        show_rows(rows)
    wrong = [f"{row.title}: {row.turnwise.wrong}" for row in rows if row.turnwise.wrong]
    live = None if as_json else await play_live()
    wrong += [live] if live else []
    for line in wrong:
        click.echo(f"{style('not as promised:', 'red', 'bold', stream=sys.stderr)} {line}", err=True)
    if not as_json and not wrong:
        click.echo(style("\nAll as promised.", "green", "bold"))
    return 1 if wrong else 0


def show_rows(rows: "Sequence[IncidentRow]") -> None:
    """One block for each incident: what happened, requests, tokens; the naive loop first."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = "Five incidents, each with a naive loop and with turnwise (same scripted provider, real HTTP, real files)"
    if (columns_of(sys.stdout) or LEAST_TABLE) < LEAST_TABLE:
        for line in (style(title, "bold"), *narrow_lines(rows)):
            say(line, stream=sys.stdout)
        return
    table = Table(
        title=title,
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
        for loop, outcome, said, mark, colour in _outcomes(row):
            table.add_row(
                Text(f"{mark} {loop}", style=colour), Text(said), str(outcome.requests), f"{outcome.tokens:,}"
            )
        if row.why_more:
            table.add_row("", Text(row.why_more, style="dim"), "", "")
        table.add_section()
    console = Console()
    # Without a terminal, COLUMNS gives the width.
    (console if console.is_terminal else Console(width=shutil.get_terminal_size((120, 24)).columns)).print(table)


def narrow_lines(rows: "Sequence[IncidentRow]") -> list[str]:
    """The same where a table has no room: one paragraph for each loop."""
    lines = list[str]()
    for row in rows:
        lines += ["", style(row.title, "bold")]
        for loop, outcome, said, mark, colour in _outcomes(row):
            counts = f"{many(outcome.requests, 'request')}, {outcome.tokens:,} tokens"
            lines.append(f"  {style(f'{mark} {loop}', colour)} ({counts}): {said}")
        lines += [style(f"  {row.why_more}", "dim")] if row.why_more else []
    return lines


def _outcomes(row: "IncidentRow") -> "Iterator[tuple[str, IncidentOutcome, str, str, str]]":
    for loop, outcome in (("naive", row.naive), ("turnwise", row.turnwise)):
        is_well = loop == "turnwise" and outcome.wrong is None
        said = outcome.said if outcome.wrong is None else f"{outcome.said}; BUT {outcome.wrong}"
        yield loop, outcome, said, "✓" if is_well else "✗", "green" if is_well else "red"


async def play_live() -> str | None:
    """One turn on a real file, shown as it happens. Returns what was not as promised, or None."""
    from turnwise.lab import Lab
    from turnwise.lab.demo import agent_for, new_folder

    say(stream=sys.stdout)
    say(style("One turn, live: 'Set the status in notes.txt to done.'", "bold"), stream=sys.stdout)
    async with Lab(chunk_delay_s=0.02) as lab:
        with new_folder() as name:
            path = Path(name, "notes.txt")
            click.echo(f"  notes.txt before: {_text_in(path)}")
            screen = Screen(notes=sys.stdout, follows=True)
            try:
                result = await agent_for("anthropic_messages:read-edit-answer", lab=lab, folder=path.parent).run(
                    "Set the status in notes.txt to done.", watch=screen
                )
            finally:
                screen.close()
            click.echo(f"  notes.txt after: {_text_in(path)}")
            counts = f"  {result.steps} steps, {result.requests} requests reported, {lab.count()} received"
            say(counts, stream=sys.stdout)
            if _text_in(path) != "status: done" or not result.requests == lab.count() == 3:
                return "the live turn did not edit the file in 3 requests"
    return None


def _text_in(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
