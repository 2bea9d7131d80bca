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
from turnwise.drivers.own_loop import run_to_end
from turnwise.drivers.settings import MOST, MOST_STEPS, RunSettings
from turnwise.drivers.watching import Seen
from turnwise.drivers.workspace import workspace_tools
from turnwise.drivers.workspace.shell import Shell
from turnwise.errors import CallerError
from turnwise.faces.agent import Agent, RunOptions
from turnwise.faces.cli.choice import choose, key_variables
from turnwise.faces.cli.events import JsonLines
from turnwise.faces.cli.failures import as_one_line
from turnwise.faces.cli.folder import read_agents_md, settings_of_run
from turnwise.faces.cli.screen import Screen, outcome_line
from turnwise.faces.cli.spending import limits_of, model_limits_of
from turnwise.faces.cli.text import clean, shortened, style
from turnwise.faces.results import RunResult
from turnwise.rules.retries import RetryPolicy
from turnwise.rules.stop import exit_code
from turnwise.turn.config import MAX_STEPS, Effect, Recover, TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Settings, StopReason

MAX_INPUT_BYTES = 4 * 1024 * 1024  # of a prompt from standard input, and of an output schema
EFFECTS: dict[str, Effect] = {"write": "write", "bash": "execute", "execute": "execute"}
GO_ON = "Go on where you left off."
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
@click.argument("prompt", required=False)
@click.option("-m", "--model", help="PROVIDER:NAME, or FAMILY:NAME with --base-url. [env: TURNWISE_MODEL]")
@click.option("--base-url", metavar="URL", help="Address of the endpoint. [env: TURNWISE_BASE_URL]")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option(
    "--max-steps",
    type=click.IntRange(1, MOST_STEPS),
    metavar="N",
    help=f"Model steps at most; the last one must answer. [default: {MAX_STEPS}]",
)
@click.option(
    "--max-requests",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="HTTP requests at most; the last one is the answer.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Tokens at most, prompts and answers of all requests.",
)
@click.option(
    "--max-time",
    type=click.FloatRange(0, MOST, min_open=True),
    metavar="SECONDS",
    help="Time at most, the answer included.",
)
@click.option(
    "--max-output-tokens",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Tokens at most of one response, reasoning included.",
)
@click.option(
    "--context-window",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Tokens of prompt and answer that the model takes, where turnwise knows it not or wrongly.",
)
@click.option(
    "--recover",
    type=click.Choice(["continue", "split", "off"]),
    help="Where the output limit cuts: go on there, ask for smaller pieces, or do nothing. [default: continue]",
)
@click.option(
    "--retries",
    type=click.IntRange(0, 20),
    metavar="N",
    help=f"Further attempts at a request that failed. [default: {RetryPolicy().attempts - 1}]",
)
@click.option(
    "--fallback", multiple=True, metavar="NAME", help="Another model of the endpoint, if one fails. Repeatable."
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
    prompt: str | None,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    max_steps: int | None,
    max_requests: int | None,
    max_tokens: int | None,
    max_time: float | None,
    max_output_tokens: int | None,
    context_window: int | None,
    recover: Recover | None,
    retries: int | None,
    fallback: tuple[str, ...],
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

    It may read inside the folder; writing files and running commands only with --allow. With --continue or --session the
    PROMPT may be left out: the model is asked to go on.
    """
    with as_one_line():
        if go_on and session:
            raise CallerError("give either --continue or --session, not both")
        folder = (cwd or Path.cwd()).resolve()
        text = read_prompt(prompt, goes_on=go_on or session is not None)
        given = RunSettings(
            max_steps=max_steps,
            max_requests=max_requests,
            max_tokens=max_tokens,
            max_time=max_time,
            max_output_tokens=max_output_tokens,
        )
        agents_md = None if no_agents_md else read_agents_md(folder)
        output_type = read_schema(output_schema)
        clock = SystemClock()
        with Journal.open(journal_path(os.environ), clock=clock) as journal:
            before = find_session(journal, folder=folder, go_on=go_on, session=session)
            last = None if before is None else last_config(journal, before)
            settings = settings_of_run(folder, env=os.environ, last=last, given=given).settings
            choice = choose(
                model, base_url=base_url, api_key_env=api_key_env, last=last, env=os.environ, settings=settings
            )
            shell = Shell(folder, hidden_env=key_variables(choice))
            agent = Agent(
                choice.model,
                tools=workspace_tools(folder, shell=shell),
                instructions=instructions(system, agents_md=agents_md),
                output_type=output_type,
                settings=Settings(max_output_tokens=settings.max_output_tokens),
                max_steps=settings.max_steps or MAX_STEPS,
                limits=limits_of(settings, last=last.limits if last else None),
                model_limits=model_limits_of(choice.model, settings=settings, context_window=context_window, last=last),
                recover=recover or (last.recover if last else "continue"),
                retry=RetryPolicy() if retries is None else RetryPolicy(attempts=retries + 1),
                fallbacks=fallback,
                allowed=("none", "read", *(EFFECTS[word] for word in allow)),
                allow_hint=ALLOW_HINT,
                stream=not no_stream,
                base_url=choice.base_url,
                api_key_env=choice.api_key_env,
                journal=journal,
                folder=folder,
                clock=clock,
            )
            face = JsonLines() if as_json else Screen()
            for line in (agents_note(agents_md), moved_note(before, folder=folder), open_note(shell, allow=allow)):
                if line:
                    face.tell(line)
            options: RunOptions = {} if before is None else {"session": before.row.id}
            began = clock.monotonic()
            result = run_and_show(agent, text, options=options, face=face)
            if isinstance(face, JsonLines):
                face.finish(result)
            else:
                misfit = output_type is not None and result.output is None and not result.pending
                show_end(result, seconds=clock.monotonic() - began, misfit=misfit)
    sys.exit(exit_code(result.stop_reason, complete=result.complete))


class Seeing:
    """Lets a face watch. What it raises (a closed pipe) ends the run, as nobody would see the rest, and is raised then."""

    def __init__(self, face: JsonLines | Screen, *, agent: Agent) -> None:
        self._face = face
        self._agent = agent
        self.error: Exception | None = None

    def __call__(self, seen: Seen) -> None:
        if self.error is None:
            try:
                self._face(seen)
            except Exception as error:  # noqa: BLE001 (kept, and raised after the turn has ended in good order)
                self.error = error
                self._agent.interrupt("cancel")


def run_and_show(agent: Agent, prompt: str, *, options: RunOptions, face: JsonLines | Screen) -> RunResult:
    """Run the turn; Ctrl-C once ends it with what is there, twice ends the process."""
    watch = Seeing(face, agent=agent)
    options = {**options, "watch": watch}

    async def run() -> RunResult:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            agent.interrupt("cancel")
            loop.remove_signal_handler(signal.SIGINT)  # the next one is Python's own: it ends at once

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        return await agent.run(prompt, **options)

    try:
        result = run_to_end(run())
    finally:
        if watch.error is None:
            face.close()
    if watch.error is not None:
        raise watch.error
    return result


def show_end(result: RunResult, *, seconds: float, misfit: bool) -> None:
    for repair in result.repairs:
        word = style("repaired", "yellow", stream=sys.stderr)
        note(f"{word} {clean(repair.kind)} at {clean(repair.where)}: {shortened(repair.what, limit=160)}")
    if misfit and result.stop_reason is StopReason.ANSWERED:
        note(style("the answer does not fit --output-schema", "yellow", stream=sys.stderr))
    note(outcome_line(result, seconds=seconds))


def read_prompt(prompt: str | None, *, goes_on: bool) -> str:
    """Raises CallerError for one that is missing, empty or no text."""
    if prompt is None and goes_on:
        return GO_ON
    if prompt is None:
        raise CallerError("no PROMPT: write what the model shall do, or `-` to read it from standard input")
    text = read_standard_input() if prompt == "-" else prompt
    if not text.strip():
        where = " on standard input" if prompt == "-" else ""
        raise CallerError(f"the prompt{where} is empty: write what the model shall do")
    return text


def read_standard_input() -> str:
    """Raises CallerError for what is too long or not UTF-8."""
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


def instructions(system: str | None, *, agents_md: str | None) -> list[str]:
    texts = [INSTRUCTIONS if system is None else system]
    if agents_md is not None:
        texts.append(f"Instructions of this folder (AGENTS.md):\n\n{agents_md}")
    return texts


def agents_note(agents_md: str | None) -> str | None:
    if agents_md is None:
        return None
    return f"reading AGENTS.md as instructions ({len(agents_md)} characters; --no-agents-md leaves it out)"


def moved_note(before: Session | None, *, folder: Path) -> str | None:
    """A session may go on in another folder: what it said of files was about its own."""
    if before is None or before.row.folder == str(folder):
        return None
    return f"this session began in {before.row.folder}; the tools now work in {folder}"


def open_note(shell: Shell, *, allow: tuple[str, ...]) -> str | None:
    """What commands could do here that they should not, where they may run at all."""
    confined = shell.sandbox.files and shell.sandbox.network
    return None if confined or "execute" not in {EFFECTS[word] for word in allow} else shell.said


def note(line: str) -> None:
    click.echo(line, err=True, color=True)
