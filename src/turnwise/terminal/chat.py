"""`turnwise` at a terminal: a plain interactive session, turn after turn. The options only, as in `run`."""

from typing import Unpack

import click

from turnwise.coding_agent.options import Given
from turnwise.terminal.command_options import shared_options
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.hints import TakesPrompts

CHAT_EPILOG = """\b
Examples:
  turnwise -m anthropic:claude-sonnet-5
  turnwise --continue
  turnwise chat --allow write --network
  turnwise chat -m openai_chat:my-model --base-url http://127.0.0.1:8000/v1

`turnwise` alone is `turnwise chat`. Inside: /help."""


@click.command(cls=TakesPrompts, epilog=CHAT_EPILOG)
@shared_options
def chat_command(**given: Unpack[Given]) -> None:
    """Talk with a model that works in this folder, at a terminal: prompt after prompt, with history.

    It may read inside the folder; turnwise asks you before it writes files or runs commands, or use --allow.
    """
    with as_one_line():
        from turnwise.terminal.conversation import converse

        converse(given)
