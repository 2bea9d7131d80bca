"""`turnwise lab`: the scripted provider as a server for anybody's agents."""

import asyncio
import signal
import sys
from pathlib import Path

import click

from turnwise.agent.formatting import many
from turnwise.coding_agent.text import style
from turnwise.lab import Lab
from turnwise.terminal.command_options import FiniteRange
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.rows import say

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
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of TOML scripts to add to turnwise's own.",
)
@click.option(
    "--conversation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play this recorded conversation instead of scripts.",
)
@click.option("--chunk-delay", type=FiniteRange(0, 60), default=0.0, metavar="S", help="Seconds between chunks.")
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
    port: int,
    scripts: Path | None,
    conversation: Path | None,
    chunk_delay: float,
    key: str | None,
    strict_paths: bool,
    profile: str | None,
    lists: bool,
) -> None:
    """Serve a scripted provider on 127.0.0.1 that speaks all four API families, and checks requests strictly."""
    with as_one_line():
        lab = Lab(
            scripts,
            port=port,
            conversation=conversation,
            chunk_delay_s=chunk_delay,
            key=key,
            strict_paths=strict_paths,
            profile=profile,
        )
        if lists:
            for name, script in sorted(lab.provider.scripts.items()):
                click.echo(f"{style(name.ljust(28), 'bold')} {script.title}")
            return
        asyncio.run(serve(lab, profile=profile))


async def serve(lab: Lab, *, profile: str | None) -> None:
    """Until Ctrl-C or SIGTERM."""
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
