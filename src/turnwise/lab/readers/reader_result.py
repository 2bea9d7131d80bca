"""What a reader has read of a stream."""

from collections.abc import Sequence

import msgspec


class BrokenRule(Exception):
    """What arrived is nothing that this family's API sends; the text says why."""


class StreamReading(msgspec.Struct, frozen=True):
    """`calls` are id, name and arguments as JSON text. `finish` is one word for all families (`calls`, `stop`, `length`,
    `refused`, or the family's own), empty where the stream has no end. `error` is the server's own, in the family's shape."""

    text: str
    calls: Sequence[tuple[str, str, str]]
    finish: str
    error: str = ""

    @property
    def ended(self) -> bool:
        return bool(self.finish)


class ToldError(msgspec.Struct, frozen=True):
    """An error as the families report it, as much of it as all have."""

    message: str


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
