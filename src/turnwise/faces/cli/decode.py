"""`turnwise decode`: what recorded streams say, file by file."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from turnwise.assembly.calls_in_text.frames import CallFinder
from turnwise.errors import NotARecording
from turnwise.faces.cli.failures import FAILED, as_one_line, complain
from turnwise.faces.cli.last_line import EndsWithLine
from turnwise.faces.cli.text import clean_answer, clean_line, style, visible_line
from turnwise.faces.models import find_profile
from turnwise.relay.response_reading import ResponseReader, read_body
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    Repair,
    Response,
    ToolCall,
    ToolSpec,
    calls_of,
    reasoning_of,
    refusal_of,
    text_of,
)
from turnwise.wire import registry
from turnwise.wire.limits import DEFAULT_LIMITS
from turnwise.wire.profiles import Profile

CHUNK_BYTES = 64 * 1024
NOT_A_STREAM = (FaultKind.PROTOCOL, FaultKind.TOO_LARGE, FaultKind.DISCONNECTED)

TOOL_HELP = "A tool that was on offer. Helps with odd names; calls that stand in the text count for these tools only."

EPILOG = """\b
Examples:
  turnwise decode answer.sse --family anthropic_messages
  turnwise decode recordings/*.sse --family openai_chat --json > decoded.jsonl
  curl -N ... | turnwise decode - --family openai_responses

Exit codes: 0 every file was a stream of that family, 1 one was not, 2 usage."""


class DecodedCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments_raw: str
    arguments: object
    state: ArgumentsState


class DecodedUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class Decoded(msgspec.Struct, frozen=True):
    """One line of `--json`."""

    file: str
    text: str
    reasoning: str
    tool_calls: list[DecodedCall]
    finish_reason: str | None
    provider_finish_reason: str | None
    usage: DecodedUsage | None
    error: Fault | None
    repairs: list[Repair]
    refusal: str | msgspec.UnsetType = msgspec.UNSET  # only where the model refused


@click.command(cls=EndsWithLine, epilog=EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--family",
    required=True,
    metavar="F",
    help="The API family (openai_chat, openai_responses, anthropic_messages, gemini) or a provider's name (xai, groq ...).",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a file, on one line each.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help=TOOL_HELP)
def command(files: tuple[str, ...], family: str, as_json: bool, tools: tuple[str, ...]) -> None:
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
            no_stream = response.fault is not None and response.fault.kind in NOT_A_STREAM
            if as_json:
                sys.stdout.buffer.write(msgspec.json.encode(describe(file, response)) + b"\n")
                sys.stdout.buffer.flush()
            elif response.message.parts or not no_stream:
                show(file, response, several=len(files) > 1)
            if no_stream:
                bad += 1
                complain(f"`{file}` is no stream of `{family}`: {response.fault and response.fault.message}")
    sys.exit(FAILED if bad else 0)


def read_file(file: str, *, profile: Profile, tool_names: frozenset[str]) -> Response:
    """Raises NotARecording where the file cannot be opened."""
    with opened(file) as stream:
        return read_stream(stream, profile=profile, tool_names=tool_names)


def read_stream(stream: BinaryIO, *, profile: Profile, tool_names: frozenset[str]) -> Response:
    """What a recorded response says, streamed or not."""
    family = registry.family(profile.family)
    in_text = None  # what reads calls that the model wrote into its text, as a run would at such an endpoint
    if profile.calls_in_text:
        in_text = CallFinder(tools=[ToolSpec(name=name) for name in sorted(tool_names)])
    reader = ResponseReader(family, profile=profile, tool_names=tool_names, in_text=in_text)
    chunk = stream.read(CHUNK_BYTES)
    if chunk.lstrip()[:1] == b"{":
        body = chunk + stream.read(DEFAULT_LIMITS.response_bytes)  # one byte more than it may have is an error
        return read_body(body, family=family, profile=profile, tool_names=tool_names, in_text=in_text)[0]
    while chunk and not reader.faulted:
        reader.feed(chunk)
        chunk = stream.read(CHUNK_BYTES)
    return reader.finish()


@contextmanager
def opened(file: str) -> Generator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise NotARecording(f"`{file}`: {error.strerror}") from error


def describe(file: str, response: Response) -> Decoded:
    message = response.message
    usage = response.usage
    return Decoded(
        file=file,
        text=text_of(message),
        reasoning=reasoning_of(message),
        tool_calls=[
            DecodedCall(call.id, call.name, call.arguments, arguments_of(call), call.state)
            for call in calls_of(message)
        ],
        finish_reason=response.finish,
        provider_finish_reason=response.provider_finish,
        usage=usage
        and DecodedUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        ),
        error=response.fault,
        repairs=list(response.repairs),
        refusal=refusal_of(message) or msgspec.UNSET,
    )


def arguments_of(call: ToolCall) -> object:
    """The arguments as a value; None unless they are complete."""
    if call.state is not ArgumentsState.COMPLETE:
        return None
    if call.free_form:
        return call.arguments
    # As the model wrote them, numbers of any size too, but on one line: in strict JSON a raw line break is white space.
    return msgspec.Raw(call.arguments.replace("\n", " ").replace("\r", " ").encode())


def show(file: str, response: Response, *, several: bool) -> None:
    """The same for people."""
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
