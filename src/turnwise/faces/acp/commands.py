"""The slash commands of an editor's session, by their names."""

from acp.schema import AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, UnstructuredCommandInput

SUMMARIES = {
    "usage": "what the session has used: money, tokens, requests by purpose",
    "undo": "take back the last turn's changes to files; again: the turn before",
    "model": "show the model and others; `/model NAME` changes to that one",
    "permissions": "the rules that hold, in their order",
}
TAKES = {"model": "NAME"}


def available() -> AvailableCommandsUpdate:
    return AvailableCommandsUpdate(
        session_update="available_commands_update",
        available_commands=[
            AvailableCommand(name=name, description=summary, input=_input_of(name))
            for name, summary in SUMMARIES.items()
        ],
    )


def command_in(text: str) -> tuple[str, str] | None:
    """The command and what follows it. None: words for the model, a path for example."""
    name, _, rest = text.strip().partition(" ")
    return (name[1:], rest.strip()) if name[:1] == "/" and name[1:] in SUMMARIES else None


def _input_of(name: str) -> AvailableCommandInput | None:
    hint = TAKES.get(name)
    return None if hint is None else AvailableCommandInput(root=UnstructuredCommandInput(hint=hint))
