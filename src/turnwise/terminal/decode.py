"""`turnwise decode`: shows what recorded streams say, file by file."""

import sys
from pathlib import Path
from typing import get_args

import click

from turnwise.agent.models import find_profile
from turnwise.coding_agent.text import clean_answer, clean_line, style, visible_line
from turnwise.endpoints.recorded_responses import decoded_of, is_stream, read_stream
from turnwise.errors import NotARecording
from turnwise.terminal.command_options import json_option
from turnwise.terminal.failures import FAILED, as_one_line, complain, write_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.vocab import (
    ArgumentsState,
    Response,
    calls_of,
    reasoning_of,
    refusal_of,
    text_of,
)
from turnwise.wire.profiles import FamilyName, Profile

TOOL_HELP = "A tool that was on offer. Helps with odd names; calls that stand in the text count for these tools only."

DECODE_EPILOG = """\b
Examples:
  turnwise decode answer.sse --family anthropic_messages
  turnwise decode recordings/*.sse --family openai_chat --json > decoded.jsonl
  curl -N ... | turnwise decode - --family openai_responses

Exit codes: 0 every file was a stream of that family, 1 one was not, 2 usage."""


@click.command(cls=EndsWithLine, epilog=DECODE_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--family",
    required=True,
    metavar="F",
    help=f"The API family ({', '.join(get_args(FamilyName))}) or a provider's name (xai, groq ...).",
)
@json_option("One JSON object a file, on one line each.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help=TOOL_HELP)
def decode_command(files: tuple[str, ...], family: str, as_json: bool, tools: tuple[str, ...]) -> None:
    """Say what recorded provider streams hold: text, reasoning, tool calls, finish reason, usage, repairs.

    FILE is the body of a response as it came, streamed or not; `-` is standard input.
    """
    bad = 0
    with as_one_line():
        profile = find_profile(family)
        for file in files:
            try:
                response = read_file(file, profile=profile, tool_names=frozenset(tools))
            except NotARecording as error:
                bad += 1
                complain(str(error))
                continue
            if as_json:
                write_json(decoded_of(response, file=file))
                sys.stdout.buffer.flush()
            elif response.message.parts or is_stream(response):
                show(file, response, several=len(files) > 1)
            if not is_stream(response):
                bad += 1
                complain(f"`{file}` is no stream of `{family}`: {response.fault and response.fault.message}")
    sys.exit(FAILED if bad else 0)


def read_file(file: str, *, profile: Profile, tool_names: frozenset[str]) -> Response:
    """Raises NotARecording if the file cannot be read."""
    if file == "-":
        return read_stream(sys.stdin.buffer, profile=profile, tool_names=tool_names)
    try:
        with Path(file).open("rb") as stream:
            return read_stream(stream, profile=profile, tool_names=tool_names)
    except OSError as error:
        raise NotARecording(f"`{file}`: {error.strerror}") from error


def show(file: str, response: Response, *, several: bool) -> None:
    """Show the response to people."""
    message = response.message
    if several:
        click.echo(style(f"== {file}", "bold"))
    for title, text in (
        ("reasoning", reasoning_of(message)),
        ("text", text_of(message)),
        ("refusal", refusal_of(message)),
    ):
        if text:
            click.echo(f"{style(title, 'cyan')}: {clean_answer(text)}")
    for call in calls_of(message):
        state = (
            "" if call.state is ArgumentsState.COMPLETE else style(f"  [{call.state}: {call.reason or ''}]", "yellow")
        )
        click.echo(
            f"{style('call', 'cyan')}: {visible_line(call.name)} {clean_line(call.arguments)} ({visible_line(call.id)}){state}"
        )
    word = f" ({visible_line(response.provider_finish)})" if response.provider_finish else ""
    click.echo(f"{style('finish', 'cyan')}: {response.finish}{word}")
    if response.usage is not None:
        usage = response.usage
        click.echo(
            f"{style('usage', 'cyan')}: {usage.input_tokens} in ({usage.cache_read_tokens} cached, "
            f"{usage.cache_write_tokens} written), {usage.output_tokens} out ({usage.reasoning_tokens} reasoning)"
        )
    if response.fault is not None:
        click.echo(f"{style('error', 'red')}: {response.fault.kind}: {clean_line(response.fault.message)}")
    for repair in response.repairs:
        click.echo(f"{style('repair', 'yellow')}: {repair.kind} at {repair.where}: {clean_line(repair.what)}")
