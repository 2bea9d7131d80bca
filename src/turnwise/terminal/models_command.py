"""`turnwise models`: which models are known, and which a server offers. The options only: what does it is imported then."""

import sys
from pathlib import Path

import click

from turnwise.terminal.completion import complete_providers
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the provider, the server, the models.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
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
