"""`turnwise run`: one prompt, one turn, in one folder. The options only: what runs is imported when it does."""

import sys
from typing import Unpack

import click

from turnwise.faces.cli.exit_codes import EXIT_CODES
from turnwise.faces.cli.failures import as_one_line
from turnwise.faces.cli.hints import TakesPrompts
from turnwise.faces.cli.last_line import EndsWithLine, write_no_result
from turnwise.faces.cli.options import Given, shared_options

EPILOG = f"""\b
Examples:
  turnwise run -m openai:gpt-5 "what does this project do?"
  turnwise run -m anthropic:claude-sonnet-4-5 --allow write "fix the typo in README.md"
  turnwise run --allow 'bash(npm test *)' --allow 'edit(src/**)' "make the tests pass"
  turnwise run -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1 "hello"
  git diff | turnwise run -m groq:llama-3.3-70b-versatile "review this change"
  make 2>&1 | turnwise run "why does it fail?" -
  turnwise run "what does @src/main.py do?"
  turnwise run --continue "and now add a test"
  turnwise run --continue --approve all
  turnwise run --json "list the files" | tail -1

`@FILE` in the PROMPT puts that file in. --json: the events and the keys of the result are in docs/cli.md, "JSON lines".

\b
Exit codes:
{EXIT_CODES}

4 comes of `later` at an ask, or if --approve and --deny leave calls open. Without a terminal nothing is left for later: what
would be asked is denied, and the result has it as `denied`. Ctrl-C once ends with what is there, twice at once."""


class RunCommand(EndsWithLine, TakesPrompts):
    """`run`."""


@click.command(cls=RunCommand, ends_with=write_no_result, epilog=EPILOG)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@shared_options
@click.option("-n", "--no-stdin", is_flag=True, help="Leave standard input alone, as `ssh -n` does.")
@click.option(
    "--unattended", is_flag=True, help="Ask nobody, though there is a terminal: what would be asked is denied."
)
@click.option("--approve", multiple=True, metavar="ID", help="Allow a call that waits (or `all`). Repeatable.")
@click.option("--deny", multiple=True, metavar="ID", help="Deny a call that waits (or `all`). Repeatable.")
@click.option("--output-schema", metavar="FILE", help="A JSON Schema that the answer must fit.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last is the result.")
def command(
    words: tuple[str, ...],
    no_stdin: bool,
    unattended: bool,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    output_schema: str | None,
    as_json: bool,
    **given: Unpack[Given],
) -> None:
    """Give PROMPT to a model that works in this folder, and print its answer. What is piped in goes with the prompt; where
    nothing comes within 3 seconds, turnwise says so and goes on. `-` waits for it; alone, it is the prompt.

    It may read inside the folder; for writing files and running commands you are asked, or say --allow. Without a terminal
    nobody is asked: what is not allowed is denied at once. With --continue or --session the PROMPT may be left out: the
    model is asked to go on.
    """
    with as_one_line():
        from turnwise.faces.cli.single_run import Answers, run_prompt

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
