"""The commands about models and this machine: `check`, `doctor` and `models`. The options only: what a command does is imported
when it runs.
"""

import sys
from pathlib import Path
from typing import Any

import click

from turnwise.lab.endpoint_check.probes import MAX_OUTPUT_TOKENS, NAMES
from turnwise.terminal.command_options import FOLDER, FiniteRange, complete_models, complete_providers, json_option
from turnwise.terminal.exit_codes import CHECK_EXIT_CODES
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine

MOST_OUTPUT_TOKENS = 32_000
MOST_TIMEOUT_S = 900.0

CHECK_EPILOG = f"""\b
Examples:
  turnwise check ollama:qwen3:8b
  turnwise check openai_chat:my-model --base-url http://127.0.0.1:8000/v1
  turnwise check openrouter:qwen/qwen3-coder --yes --json > report.json
  turnwise check groq:openai/gpt-oss-120b --only call --only parallel
  turnwise check openai_chat:my-model --base-url http://127.0.0.1:8000/v1 --rules

\b
Exit codes:
{CHECK_EXIT_CODES}"""


@click.command(cls=EndsWithLine, epilog=CHECK_EPILOG)
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--base-url", metavar="URL", help="Endpoint URL, if it is not the provider's default. [env: TURNWISE_BASE_URL]"
)
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(NAMES),
    metavar="PROBE",
    help=f"Send this request only. Repeatable: {', '.join(NAMES)}.",
)
@click.option(
    "--max-output-tokens",
    type=click.IntRange(16, MOST_OUTPUT_TOKENS),
    default=MAX_OUTPUT_TOKENS,
    show_default=True,
    metavar="N",
    help="At most N tokens in each answer, reasoning included.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(0, MOST_TIMEOUT_S, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the beginning of an answer. The rest may take twice as long.",
)
@click.option(
    "--rules",
    is_flag=True,
    help="Ask instead which request forms a Chat Completions server refuses, and print its row for your turnwise.toml.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@json_option("One JSON object: the probes, what they showed, and the profile.")
def check_command(
    **options: Any,
) -> None:
    """Send a dozen small requests to MODEL, and say what works, what turnwise heals, and what the profile should say.

    MODEL is PROVIDER:NAME, or FAMILY:NAME with --base-url; without it, the one that a run would take. turnwise shows the cost
    first, and asks you.
    """
    with as_one_line():
        from turnwise.terminal.endpoint_check import CheckRequest, check

        code = check(CheckRequest(**options), folder=Path.cwd())
    sys.exit(code)


# `turnwise doctor`: does this machine have what a run needs? Only the options; the checks are imported when it runs.


DOCTOR_EPILOG = """\b
Examples:
  turnwise doctor
  turnwise doctor -m anthropic:claude-sonnet-5
  turnwise doctor -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1
  turnwise doctor --offline
  turnwise doctor --agent shop=shop.agents:seller
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
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME=MODULE:AGENT",
    help="Look at the tools of this agent of yours, as `turnwise worker` takes it. May be repeated.",
)
@json_option("One JSON object: the checks, and whether a run can begin.")
@click.option("--cwd", type=FOLDER, help="Check for this folder.")
def doctor_command(
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    offline: bool,
    agents: tuple[str, ...],
    as_json: bool,
    cwd: Path | None,
) -> None:
    """Check Python, settings, keys, the endpoint, the sandbox, ripgrep, git, MCP servers, the state folder and the disk, and say
    what to do about each."""
    with as_one_line():
        from turnwise.terminal.checks import check_agents, check_all, show_checks

        checks = check_all(
            (cwd or Path.cwd()).resolve(), model=model, base_url=base_url, api_key_env=api_key_env, offline=offline
        )
        checks += check_agents(agents)
        code = show_checks(checks, as_json=as_json)
    sys.exit(code)


# `turnwise models`: which models are known, and which a server offers. Only the options; the work is imported when it runs.


MODELS_EPILOG = """\b
Examples:
  turnwise models
  turnwise models anthropic
  turnwise models ollama:qwen3
  turnwise models openai --offline
  turnwise models openai_chat --base-url http://127.0.0.1:8000/v1
  turnwise models openrouter --json | jq -r '.models[].model'

Prices are US dollars per million tokens; `+`: more for long prompts. An empty cell is not known.

Exit codes: 0 listed; 1 the server was asked and gave no list; 2 usage."""


@click.command(cls=EndsWithLine, epilog=MODELS_EPILOG)
@click.argument("provider", required=False, shell_complete=complete_providers)
@click.option(
    "--base-url", metavar="URL", help="Endpoint URL, if it is not the provider's default. [env: TURNWISE_BASE_URL]"
)
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key.")
@click.option("--offline", is_flag=True, help="Ask no server.")
@json_option("One JSON object: the provider, the server, the models.")
@click.option(
    "--cwd",
    type=FOLDER,
    help="The folder whose turnwise.toml counts.",
)
def models_command(
    provider: str | None, base_url: str | None, api_key_env: str | None, offline: bool, as_json: bool, cwd: Path | None
) -> None:
    """List the models of PROVIDER: their limits, their prices and where both are from. The provider is asked which models it
    offers now, if its key is there.

    PROVIDER may include the beginning of a name (`openai:gpt-6`). Without it, the providers are listed.
    """
    with as_one_line():
        from turnwise.terminal.model_listing import list_models, list_providers

        if provider is None:
            if base_url or api_key_env:
                raise click.UsageError("say whose models: turnwise models openai_chat --base-url URL")
            code = list_providers(as_json=as_json)
        else:
            code = list_models(
                provider,
                base_url=base_url,
                api_key_env=api_key_env,
                offline=offline,
                as_json=as_json,
                folder=(cwd or Path.cwd()).resolve(),
            )
    sys.exit(code)
