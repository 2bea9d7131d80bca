"""What happens at the start of each turn of the command line: the model is told where it works, and which instructions of
folders it knows already."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.drivers.clock import Clock
from turnwise.drivers.running.surroundings import Surroundings
from turnwise.drivers.tools.workspace.instructions import begin_telling
from turnwise.drivers.tools.workspace.shell import Shell
from turnwise.faces.agent_groups import OpeningSource
from turnwise.vocab import Message, Text


def opening_of(shell: Shell, *, folder: Path, clock: Clock, tells: bool, reads_agents_md: bool) -> OpeningSource:
    """`tells`: where it works, at the session's first turn, and at later ones what has changed. `reads_agents_md`: AGENTS.md of
    the folders below, beside the first file that is read there."""
    surroundings = _surroundings(shell, folder=folder, clock=clock) if tells else None

    async def opening(messages: Sequence[Message]) -> list[Text]:
        if reads_agents_md:
            begin_telling(messages)
        note = None if surroundings is None else await surroundings.note(messages)
        return [] if note is None else [note]

    return opening


def _surroundings(shell: Shell, *, folder: Path, clock: Clock) -> Surroundings:
    kind = f"in a sandbox ({shell.sandbox.kind})" if shell.sandbox.files else "without a sandbox"
    return Surroundings(
        folder,
        clock=clock,
        commands=f"{kind}, {'with' if shell.has_network else 'without'} network",
        git=shell.programs.first_apart("git"),
    )
