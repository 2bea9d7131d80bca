"""Which programs a judged command may run: the files that its names led to when it was judged.

PATH may hold folders in which the model can write. What it puts there between a verdict and the run must not run in place of
the program that was judged.
"""

import msgspec

from turnwise.rules.environment_names import is_harmless
from turnwise.rules.permission_facts import CommandFact, ShellFacts
from turnwise.rules.read_only_commands import is_reading


class JudgedPrograms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`names` lead to these files, whatever PATH says by then. `only_apart`: the command is known to run no other program than
    these, so the folders of PATH in which the model can write are left out."""

    names: tuple[tuple[str, str], ...] = ()
    only_apart: bool = False


def is_known(command: CommandFact) -> bool:
    """Whether it only reads, or only runs commands that are facts of their own; and what it is, is sure."""
    if command.doubt or command.opaque:
        return False
    # Bash looks for the names that a word may stand for, though nothing is done with them (`sh -c ls $X*`).
    if command.carries:
        known = all(word.literal for word in command.words)
        return known and all(is_harmless(assignment) for assignment in command.assignments)
    return is_reading(command)


def judged_programs(shell: ShellFacts | None) -> JudgedPrograms | None:
    """None where PATH has no folder in which the model can write."""
    if shell is None or not shell.mixed_path:
        return None
    names = dict.fromkeys(pair for command in shell.commands for pair in command.programs)
    known = shell.parsed and all(command.guessed or is_known(command) for command in shell.commands)
    return JudgedPrograms(names=tuple(names), only_apart=known)
