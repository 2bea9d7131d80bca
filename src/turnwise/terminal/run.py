"""`turnwise run`: one prompt, one turn, in one folder. The options only: what runs is imported when it does."""

import sys
from typing import Unpack

import click

from turnwise.coding_agent.options import Given
from turnwise.terminal.command_options import shared_options
from turnwise.terminal.exit_codes import EXIT_CODES
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.hints import TakesPrompts
from turnwise.terminal.last_line import EndsWithLine, write_no_result

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

`@FILE` in the PROMPT puts that file in. --json: the events and the keys of the result are in docs/cli.md, "JSON lines".

\b
Exit codes:
{EXIT_CODES}

Exit code 4 means that you chose `later`, or that --approve and --deny leave calls open. Without a terminal, calls that need
approval are denied, and the result lists them in `denied`. Press Ctrl-C once to end with the answer so far, twice to end at
once."""


class RunCommand(EndsWithLine, TakesPrompts):
    """`run`."""


@click.command(cls=RunCommand, ends_with=write_no_result, epilog=RUN_EPILOG)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@shared_options
@click.option("-n", "--no-stdin", is_flag=True, help="Leave standard input alone, as `ssh -n` does.")
@click.option("--unattended", is_flag=True, help="Deny calls that need approval, even at a terminal.")
@click.option(
    "--approve", multiple=True, metavar="ID", help="Allow a call that waits (or `all`), as ID@MARK. Repeatable."
)
@click.option("--deny", multiple=True, metavar="ID", help="Deny a call that waits (or `all`). Repeatable.")
@click.option("--output-schema", metavar="FILE", help="A JSON Schema that the answer must fit.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last is the result.")
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
