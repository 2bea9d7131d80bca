"""What stands in front of the user's words in a turn of the command line: what the model is told of where it works."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.drivers.clock import Clock
from turnwise.drivers.surroundings import Surroundings
from turnwise.drivers.workspace.shell import Shell
from turnwise.faces.agent import Opening
from turnwise.vocab import Message, Text


def opening_of(shell: Shell, *, folder: Path, clock: Clock) -> Opening:
    """One note at the session's first turn, and at later ones what has changed."""
    kind = f"in a sandbox ({shell.sandbox.kind})" if shell.sandbox.files else "without a sandbox"
    surroundings = Surroundings(
        folder,
        clock=clock,
        commands=f"{kind}, {'with' if shell.has_network else 'without'} network",
        git=shell.programs.first_apart("git"),
    )

    async def opening(messages: Sequence[Message]) -> list[Text]:
        note = await surroundings.note(messages)
        return [] if note is None else [note]

    return opening
