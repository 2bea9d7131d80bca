"""`turnwise run`: one prompt, one turn, in one folder."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import click
import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.journal import Journal, Session, journal_path
from turnwise.drivers.workspace import workspace_tools
from turnwise.errors import CallerError
from turnwise.faces.agent import Agent, RunOptions
from turnwise.faces.cli.events import JsonLines
from turnwise.faces.cli.failures import as_one_line
from turnwise.faces.cli.folder import FolderSettings, read_agents_md, read_folder_settings
from turnwise.faces.cli.screen import Screen, outcome_line
from turnwise.faces.cli.text import shortened, style
from turnwise.faces.models import ModelName, read_model
from turnwise.faces.results import RunResult
from turnwise.rules.stop import exit_code
from turnwise.turn.config import MAX_STEPS, Effect, TurnConfig
from turnwise.turn.events import TurnStarted

MAX_INPUT_BYTES = 4 * 1024 * 1024  # of a prompt from standard input, and of an output schema
EFFECTS: dict[str, Effect] = {"write": "write", "bash": "execute", "execute": "execute"}
ALLOW_HINT = "run turnwise again with `--allow {effect}`"

INSTRUCTIONS = """You work in a folder on the user's machine, with tools that read, write, edit, list and search its files \
and run commands. Look before you answer: read what the question is about. Make changes with the tools, not in your answer. \
A tool that is denied is denied for this run. When you are done, say briefly what you found or did."""

EPILOG = """\b
Examples:
  turnwise run -m openai:gpt-5 "what does this project do?"
  turnwise run -m anthropic:claude-sonnet-4-5 --allow write "fix the typo in README.md"
  turnwise run -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1 "hello"
  git diff | turnwise run -m groq:llama-3.3-70b-versatile - --system "Review this change."
  turnwise run --continue "and now add a test"
  turnwise run --json "list the files" | tail -1

Exit codes: 0 answered and complete; 2 usage; 3 answered but not complete (step_limit, budget, time_limit, loop, partial);
4 waiting; 5 refused; 6 provider failed; 130 cancelled. Ctrl-C once ends with what is there, twice at once."""


@click.command(epilog=EPILOG)
@click.argument("prompt")
@click.option(
    "-m",
    "--model",
    envvar="TURNWISE_MODEL",
    help="PROVIDER:NAME, or FAMILY:NAME with --base-url. [env: TURNWISE_MODEL]",
)
@click.option("--base-url", envvar="TURNWISE_BASE_URL", show_envvar=True, help="Address of the endpoint.")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option(
    "--max-steps",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help=f"Model steps at most; the last one must answer. [default: {MAX_STEPS}]",
)
@click.option("--cwd", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Work in this folder.")
@click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the last session of this folder.")
@click.option("--session", metavar="ID", help="Go on with this session (see `turnwise sessions list`).")
@click.option("--system", metavar="TEXT", help="Instructions in place of turnwise's own.")
@click.option(
    "--allow", multiple=True, type=click.Choice(list(EFFECTS)), help="Let it write files, or run commands. Repeatable."
)
@click.option("--output-schema", metavar="FILE", help="A JSON Schema that the answer must fit.")
@click.option("--no-agents-md", is_flag=True, help="Do not read AGENTS.md of the folder as instructions.")
@click.option("--no-stream", is_flag=True, help="Ask for whole responses instead of streams.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last is the result.")
def command(
    prompt: str,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    max_steps: int | None,
    cwd: Path | None,
    go_on: bool,
    session: str | None,
    system: str | None,
    allow: tuple[str, ...],
    output_schema: str | None,
    no_agents_md: bool,
    no_stream: bool,
    as_json: bool,
) -> None:
    """Give PROMPT to a model that works in this folder, and print its answer. `-` reads the prompt from standard input.

    It may read inside the folder; writing files and running commands only with --allow.
    """
    with as_one_line():
        folder = (cwd or Path.cwd()).resolve()
        text = read_prompt(prompt)
        clock = SystemClock()
        with Journal.open(journal_path(os.environ), clock=clock) as journal:
            before = find_session(journal, folder=folder, go_on=go_on, session=session)
            last = None if before is None else last_config(journal, before)
            settings = read_folder_settings(folder)
            chosen = choose_model(model, settings=settings, last=last)
            name = read_model(chosen)
            agent = Agent(
                chosen,
                tools=workspace_tools(folder, hidden_env=key_variables(name, api_key_env=api_key_env)),
                instructions=instructions_for(folder, system=system, reads_agents_md=not no_agents_md, quiet=as_json),
                output_type=read_schema(output_schema),
                max_steps=max_steps or (last.max_steps if last else None) or settings.max_steps or MAX_STEPS,
                allowed=("none", "read", *(EFFECTS[word] for word in allow)),
                allow_hint=ALLOW_HINT,
                stream=not no_stream,
                base_url=base_url,
                api_key_env=api_key_env,
                journal=journal,
                folder=folder,
                clock=clock,
            )
            options: RunOptions = {} if before is None else {"session": before.row.id}
            began = clock.monotonic()
            result = run_and_show(agent, text, options=options, as_json=as_json)
            if not as_json:
                show_end(result, seconds=clock.monotonic() - began)
    sys.exit(exit_code(result.stop_reason, complete=result.complete))


def run_and_show(agent: Agent, prompt: str, *, options: RunOptions, as_json: bool) -> RunResult:
    """Run the turn; Ctrl-C once ends it with what is there, twice ends the process."""
    face = JsonLines() if as_json else Screen()
    options = {**options, "watch": face}

    async def run() -> RunResult:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            agent.interrupt("cancel")
            loop.remove_signal_handler(signal.SIGINT)  # the next one is Python's own: it ends at once

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        return await agent.run(prompt, **options)

    try:
        result = asyncio.run(run())
    finally:
        face.close()
    if isinstance(face, JsonLines):
        face.finish(result)
    return result


def show_end(result: RunResult, *, seconds: float) -> None:
    for repair in result.repairs:
        word = style("repaired", "yellow", stream=sys.stderr)
        note(f"{word} {repair.kind} at {repair.where}: {shortened(repair.what, limit=160)}")
    note(outcome_line(result, seconds=seconds))


def read_prompt(prompt: str) -> str:
    """Raises CallerError for an empty or undecodable one."""
    if prompt != "-":
        return prompt
    given = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(given) > MAX_INPUT_BYTES:
        raise CallerError(
            f"the prompt on standard input is longer than {MAX_INPUT_BYTES} bytes: put it into a file and name it"
        )
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise CallerError(f"the prompt on standard input is not UTF-8 (byte {error.start})") from error


def read_schema(file: str | None) -> object:
    """Raises CallerError for a file that cannot be read or holds no JSON object."""
    if file is None:
        return None
    try:
        schema: object = msgspec.json.decode(Path(file).read_bytes()[:MAX_INPUT_BYTES])
    except OSError as error:
        raise CallerError(f"--output-schema: `{file}`: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CallerError(f"--output-schema: `{file}` is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise CallerError(f"--output-schema: `{file}` holds no JSON object")
    return schema  # pyright: ignore[reportUnknownVariableType]


def find_session(journal: Journal, *, folder: Path, go_on: bool, session: str | None) -> Session | None:
    if go_on and session:
        raise CallerError("give either --continue or --session, not both")
    if session:
        return journal.find_session(session)
    if not go_on:
        return None
    found = journal.last_session(folder)
    if found is None:
        raise CallerError(f"there is no session of `{folder}` to continue; `turnwise sessions list` shows all")
    return found


def last_config(journal: Journal, session: Session) -> TurnConfig | None:
    """How the session's last turn was set up."""
    for turn in reversed(session.turns):
        for event in journal.events(turn.id):
            if isinstance(event, TurnStarted):
                return event.config
    return None


def choose_model(model: str | None, *, settings: FolderSettings, last: TurnConfig | None) -> str:
    """The command line's, else the session's, else the folder's."""
    chosen = model or (f"{last.profile}:{last.model}" if last else None) or settings.model
    if chosen is None:
        raise CallerError("no model: give --model PROVIDER:NAME (for example openai:gpt-5), or set TURNWISE_MODEL")
    return chosen


def key_variables(model: ModelName, *, api_key_env: str | None) -> frozenset[str]:
    """What a command of the model's must not see."""
    return frozenset((*model.profile.api_key_env, *([api_key_env] if api_key_env else [])))


def instructions_for(folder: Path, *, system: str | None, reads_agents_md: bool, quiet: bool) -> list[str]:
    texts = [INSTRUCTIONS if system is None else system]
    found = read_agents_md(folder) if reads_agents_md else None
    if found is not None:
        texts.append(f"Instructions of this folder (AGENTS.md):\n\n{found}")
        if not quiet:
            note(style(f"reading AGENTS.md as instructions ({len(found)} characters)", "dim", stream=sys.stderr))
    return texts


def note(line: str) -> None:
    click.echo(line, err=True, color=True)
