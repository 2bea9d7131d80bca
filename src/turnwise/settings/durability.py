"""What a commit of the journal survives: the death of the process, or that of the machine, too.

In a file of its own, because the table of options needs the words and not SQLite.
"""

from collections.abc import Iterable
from typing import Literal, get_args

from turnwise.errors import CallerError, UnknownOption

Durability = Literal["normal", "full"]


def check_durability(durability: str, *, others: Iterable[str]) -> None:
    """Raise CallerError for a word that is neither, or for options that `Journal` does not have."""
    for name in others:
        hint = "Did you mean `durability`?" if name == "synchronous" else "The options are: clock, durability"
        raise UnknownOption(f"`{name}` is no option of `Journal`. {hint}")
    if durability not in get_args(Durability):
        words = " or ".join([f'"{word}"' for word in get_args(Durability)])
        raise CallerError(f"`durability` must be {words}, not {durability!r}")
