"""Which program the name of a command leads to, and what of that is in doubt."""

import msgspec

from turnwise.base.programs import ProgramSearch
from turnwise.rules.shell_words import IN_SHELL
from turnwise.tools.shell_judge.word_spelling import Spelled
from turnwise.tools.shell_judge.wrappers import NO_NAMES, SHELLS

# They run what follows them in the shell itself, where its own commands come before programs.
_IN_SHELL = frozenset("eval command builtin time trap coproc declare (( [[".split())
# Shells have these themselves, bash and dash alike.
_BUILT_IN = (
    NO_NAMES | IN_SHELL | frozenset(": true false type printf pwd echo command builtin time exec coproc".split())
)


class ProgramDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """`doubt`: the name leads to a file that commands can write. `opaque`: and it did not before. `names` are the names and
    files that the run has to keep to, where PATH has folders that commands can write in."""

    doubt: str = ""
    opaque: str = ""
    names: tuple[tuple[str, str], ...] = ()


_NOTHING = ProgramDoubt()


def program_of(
    words: tuple[Spelled, ...], *, programs: ProgramSearch, within: tuple[str, ...], places: tuple[str, ...] | None
) -> ProgramDoubt:
    """What the first of `words` leads to, where it is a name to be looked for."""
    name = words[0].text if words and words[0].literal and not words[0].is_glob else ""
    if not name or "/" in name or "\0" in name or (name in _BUILT_IN and _runs_in_shell(within)):
        return _NOTHING
    found = programs.find(name, places=places)
    if found.apart:
        return ProgramDoubt(names=found.names if programs.are_mixed else ())
    if not found.path:
        return (
            ProgramDoubt(doubt=f"there is no `{name}`, and commands can make one") if programs.are_mixed else _NOTHING
        )
    doubt = f"`{name}` is `{found.path}`: commands can change what runs there"
    return ProgramDoubt(doubt=doubt, opaque=f"{doubt}; it was another program before" if found.newly else "")


def _runs_in_shell(within: tuple[str, ...]) -> bool:
    for outer in reversed(within):
        if outer.rpartition("/")[2] in SHELLS:
            return True
        if outer not in _IN_SHELL:
            return False
    return True
