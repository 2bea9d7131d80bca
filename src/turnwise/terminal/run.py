"""The commands about turns: `run`, `chat`, `resume`, `replay` and `undo`. The options only: what a command does is imported when
it runs, so that `--help` is quick.
"""

import sys
from pathlib import Path
from typing import Unpack

import click

from turnwise.coding_agent.options import NOTHING_GIVEN, Given, given_over
from turnwise.terminal.command_options import (
    ALLOW,
    ASK_SECONDS,
    FOLDER,
    MCP_FILES,
    complete_sessions,
    json_option,
    shared_options,
)
from turnwise.terminal.exit_codes import EXIT_CODES, REPLAY_DIFFERS
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import (
    EndsWithLine,
    write_no_replay,
    write_no_result,
    write_no_resume,
    write_nothing_taken_back,
)

RUN_EPILOG = f"""\b
Examples:
  turnwise run -m openai:gpt-6.1-sol "what does this project do?"
  turnwise run -m anthropic:claude-sonnet-5 --allow write "fix the typo in README.md"
  turnwise run --allow 'bash(npm test *)' --allow '*(src/**)' "make the tests pass"
  turnwise run -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1 "hello"
  git diff | turnwise run -m groq:openai/gpt-oss-120b "review this change"
  make 2>&1 | turnwise run "why does it fail?" -
  turnwise run "what does @src/main.py do?"
  turnwise run --continue "and now add a test"
  turnwise run --continue --approve call_1@3f9a0c27be51
  turnwise run --json "list the files" | tail -1
  turnwise -p "what does this project do?"

`turnwise -p` is `turnwise run`; so are `--print` and `--prompt`. `@FILE` in the PROMPT puts that file in. --json: the events and
the keys of the result are in docs/cli.md, "JSON lines".

\b
Exit codes:
{EXIT_CODES}

Exit code 4 means that you chose `later`, or that --approve and --deny leave calls open. Without a terminal, calls that need
approval are denied, and the result lists them in `denied`. Press Ctrl-C once to end with the answer so far, twice to end at
once."""


@click.command(cls=EndsWithLine, ends_with=write_no_result, epilog=RUN_EPILOG)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@shared_options
@click.option("-n", "--no-stdin", is_flag=True, help="Leave standard input alone, as `ssh -n` does.")
@click.option("--unattended", is_flag=True, help="Deny calls that need approval, even at a terminal.")
@click.option(
    "--approve", multiple=True, metavar="ID", help="Allow a call that waits (or `all`), as ID@MARK. Repeatable."
)
@click.option("--deny", multiple=True, metavar="ID", help="Deny a call that waits (or `all`). Repeatable.")
@click.option("--output-schema", metavar="FILE", help="A JSON Schema that the answer must fit.")
@json_option("One JSON object a line; the last is the result.")
def run_command(
    words: tuple[str, ...],
    no_stdin: bool,
    unattended: bool,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    output_schema: str | None,
    as_json: bool,
    **given: Unpack[Given],
) -> None:
    """Give PROMPT to a model that works in this folder, and print its answer. What is piped in goes with the prompt; if
    nothing comes within 3 seconds, turnwise says so and continues. `-` waits for piped text; alone, that text is the prompt.

    It may read inside the folder; turnwise asks you before it writes files or runs commands, or use --allow. Without a
    terminal, calls that need approval are denied at once. With --continue or --session you may leave out the PROMPT: the
    model is asked to continue.
    """
    with as_one_line():
        from turnwise.terminal.single_run import Answers, run_prompt

        code = run_prompt(
            words,
            given=given,
            answers=Answers(approve=approve, deny=deny),
            standard_input="none" if no_stdin else "auto",
            output_schema=output_schema,
            unattended=unattended,
            as_json=as_json,
        )
    sys.exit(code)


# `turnwise` at a terminal: a plain interactive session, turn after turn. Only the options, as in `run`.


CHAT_EPILOG = """\b
Examples:
  turnwise -m anthropic:claude-sonnet-5
  turnwise "fix the failing test"
  turnwise --continue
  turnwise chat --allow write --network
  turnwise chat -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1

`turnwise` alone is `turnwise chat`, and `turnwise "PROMPT"` is `turnwise chat "PROMPT"`. Inside: /help. `turnwise -p "PROMPT"`
prints the answer and ends: that is `turnwise run`."""


@click.command(epilog=CHAT_EPILOG)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@shared_options
def chat_command(words: tuple[str, ...], **given: Unpack[Given]) -> None:
    """Talk with a model that works in this folder, at a terminal: prompt after prompt, with history. PROMPT is the first one.

    It may read inside the folder; turnwise asks you before it writes files or runs commands, or use --allow.
    """
    with as_one_line():
        from turnwise.terminal.conversation import converse

        converse(given, words=words)


# `turnwise resume`: continue turns that a dead process has left. Only the options; the work is imported when it runs.


RESUME_EPILOG = f"""\b
Examples:
  turnwise resume
  turnwise resume 3f2a9c1e
  turnwise resume 3f2a9c1e --json | tail -1
  turnwise resume 3f2a9c1e --take-over
  turnwise resume --all
  turnwise resume --all --unattended
  turnwise run --continue "and now add a test"

Finished requests and calls are not repeated. A request that was under way is sent again and may be billed twice. If a call
may have run, the model is told so, unless running it twice does no harm. An open question is asked again for the rest of its
time, and then denied. Without a terminal it is left for later: `turnwise run --session ID --approve all` shows it and how to
allow it; or --deny.

\b
Exit codes:
{EXIT_CODES}

2 too if there is nothing to resume, or the session is running. With --all: 0 if there was nothing to resume, else the code of the
first turn that did not end with 0; a folder that is gone and a session that somebody else has resumed do not count."""


@click.command(cls=EndsWithLine, ends_with=write_no_resume, epilog=RESUME_EPILOG)
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--all", "takes_all", is_flag=True, help="Every interrupted session, one after the other.")
@click.option(
    "--take-over",
    is_flag=True,
    help="The process is gone, though turnwise cannot see it: it ran before the last boot, or in another container.",
)
@click.option("--base-url", metavar="URL", help="Endpoint URL, if it has moved or had a query (which is not saved).")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key, if it is another one now.")
@ALLOW
@click.option(
    "--ask-timeout",
    type=ASK_SECONDS,
    metavar="SECONDS",
    help="How long you are waited for at questions that were open. [default: what is left of their time]",
)
@click.option("--network", is_flag=True, help="Let commands use the network.")
@click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox.")
@MCP_FILES
@click.option("--no-agents-md", is_flag=True, help="Do not read AGENTS.md of folders below as instructions.")
@click.option("--unattended", is_flag=True, help="Leave questions for later, even at a terminal.")
@click.option("--plain", is_flag=True, help="Show answers as they were written, not rendered.")
@json_option("One JSON object a line; the last is the result, with --all the summary.")
def resume_command(
    session: str | None,
    takes_all: bool,
    take_over: bool,
    unattended: bool,
    as_json: bool,
    **options: object,
) -> None:
    """Finish the turn of SESSION (an id, or its first or last letters) whose process died. Without SESSION it is this
    folder's last interrupted session. After a restart of the machine, add --take-over.

    The turn keeps its own model, limits, rules and folder; --allow adds to them. The other options are not saved with a session.
    """
    with as_one_line():
        from turnwise.terminal.resuming import ResumeGiven, resume

        of_run = given_over(NOTHING_GIVEN, options)
        given = ResumeGiven(of_run=of_run, unattended=unattended, as_json=as_json, take_over=take_over)
        code = resume(session, takes_all=takes_all, given=given)
    sys.exit(code)


# `turnwise replay`: a session again, from its journal or a file. Only the options; the work is imported when it runs.


MOST_STEP = 10_000
REPLAY_EPILOG = f"""\b
Examples:
  turnwise replay 3f2a9c1e
  turnwise replay 3f2a9c1e --turn 2 --until 3
  turnwise replay 3f2a9c1e --live
  turnwise replay 3f2a9c1e --json | tail -1
  turnwise replay 3f2a9c1e --export bug.jsonl --hide "Jane Doe"
  turnwise replay bug.jsonl

\b
Exit codes:
  0    the same commands as recorded; or the file was written
  1    the output could not be written, or something else failed
  2    wrong use, no such session, a file that cannot be read
  {REPLAY_DIFFERS}    today's code decides differently somewhere
  130  cancelled"""


@click.command(cls=EndsWithLine, ends_with=write_no_replay, epilog=REPLAY_EPILOG)
@click.argument("session", metavar="SESSION|FILE", shell_complete=complete_sessions)
@click.option("--turn", type=click.IntRange(min=1), help="Show this turn only; 1 is the first.")
@click.option(
    "--until",
    type=click.IntRange(1, MOST_STEP),
    metavar="STEP",
    help="Stop behind this step of the turn (the last turn, unless --turn names one).",
)
@click.option("--live", is_flag=True, help="Show it at its original speed; long pauses are shortened.")
@json_option("One JSON object a line; the last says whether all was the same.")
@click.option("--plain", is_flag=True, help="Show answers as they are, not rendered.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the session with its sub-agents into one new file, secrets replaced, and show nothing.",
)
@click.option("--hide", multiple=True, metavar="TEXT", help="With --export: replace this text, too. Repeatable.")
def replay_command(
    session: str,
    turn: int | None,
    until: int | None,
    live: bool,
    as_json: bool,
    plain: bool,
    export: Path | None,
    hide: tuple[str, ...],
) -> None:
    """Run a session again from its journal, without a request and without a tool, and show it as it looked.

    SESSION is an id, or its first or last letters; FILE is one that --export wrote. It shows where today's code decides
    differently from the recording.
    """
    if export is not None and not export.name:
        raise click.UsageError("--export needs the name of a file")
    if export is not None and (turn or until or live):
        raise click.UsageError("--export writes the whole session: leave out --turn, --until and --live")
    if hide and export is None:
        raise click.UsageError("--hide belongs to --export: nothing is hidden from yourself")
    with as_one_line():
        from turnwise.terminal.replaying import ReplayView, export_session, show_again

        if export is not None:
            export_session(session, file=export, hide=hide, as_json=as_json)
            return
        view = ReplayView(turn=turn, until=until, live=live, as_json=as_json, plain=plain)
        same = show_again(session, view=view)
    sys.exit(0 if same else REPLAY_DIFFERS)


# `turnwise undo`: undo the file changes of a session's last turn. Only the options; the work is imported when it runs.


UNDO_EPILOG = """\b
Examples:
  turnwise undo
  turnwise undo --yes
  turnwise undo 3f2a9c1e
  turnwise undo --json | jq .files

Files that changed since then stay as they are. Changes by commands cannot be undone.

Exit codes: 0 taken back, or as before already; 2 nothing to take back, or --yes is missing; 3 some files were left;
130 you said no."""


@click.command(cls=EndsWithLine, ends_with=write_nothing_taken_back, epilog=UNDO_EPILOG)
@click.argument("session", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@json_option("One JSON object: the turn, and what happens to each file.")
@click.option(
    "--cwd",
    type=FOLDER,
    help="The folder whose last session to undo.",
)
def undo_command(session: str | None, yes: bool, as_json: bool, cwd: Path | None) -> None:
    """Undo the changes that tools made to files in SESSION's last turn; repeat it for the turn before.

    SESSION is an id, or its first or last letters; without it the last session of this folder. turnwise shows what will
    happen, and asks you.
    """
    with as_one_line():
        from turnwise.terminal.conversation import undo

        code = undo(session, folder=(cwd or Path.cwd()).resolve(), yes=yes, as_json=as_json)
    sys.exit(code)
