"""`turnwise doctor`: is there what a run needs? The options only: what looks is imported then."""

import sys
from pathlib import Path

import click

from turnwise.terminal.completion import complete_models
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine

DOCTOR_EPILOG = """\b
Examples:
  turnwise doctor
  turnwise doctor -m anthropic:claude-sonnet-5
  turnwise doctor -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1
  turnwise doctor --offline
  turnwise doctor --json | jq '.checks[] | select(.status != "ok")'

Exit codes: 0 a run can begin; 1 something stops a run; 2 usage. No key is shown, and no tokens are used: the endpoint is asked
for its list of models."""


@click.command(cls=EndsWithLine, epilog=DOCTOR_EPILOG)
@click.option(
    "-m",
    "--model",
    shell_complete=complete_models,
    help="Check for this model. [default: the one that a run would take]",
)
@click.option(
    "--base-url", metavar="URL", help="Endpoint URL, if it is not the provider's default. [env: TURNWISE_BASE_URL]"
)
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--offline", is_flag=True, help="Ask no server.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the checks, and whether a run can begin.")
@click.option("--cwd", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Check for this folder.")
def doctor_command(
    model: str | None, base_url: str | None, api_key_env: str | None, offline: bool, as_json: bool, cwd: Path | None
) -> None:
    """Check Python, settings, keys, the endpoint, the sandbox, ripgrep, git, MCP servers, the state folder and the disk, and say
    what to do about each."""
    with as_one_line():
        from turnwise.terminal.checks import check_all, show_checks

        checks = check_all(
            (cwd or Path.cwd()).resolve(), model=model, base_url=base_url, api_key_env=api_key_env, offline=offline
        )
        code = show_checks(checks, as_json=as_json)
    sys.exit(code)
