"""What a reader has read, and what it compares with what was meant."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from turnwise.lab.cases import MeantAnswer

CaseVerdict = Literal["right", "wrong", "error", "crash"]


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


def difference(reading: StreamReading, meant: MeantAnswer | None, *, has_ids: bool) -> str:
    """What is wrong in one sentence; empty where the answer is right. `has_ids`: each call of this family has one."""
    if not reading.ended:
        return "the answer just stops"
    if meant is None:
        return "it looks like an answer, though the upstream gave none"
    if reading.text != meant.text:
        return f"the text is `{_short(reading.text)}` and not `{_short(meant.text)}`"
    if len(reading.calls) != len(meant.calls):
        return f"{counted(len(reading.calls), 'call')} and not {len(meant.calls)}"
    for (_, name, arguments), (meant_name, meant_arguments) in zip(reading.calls, meant.calls, strict=True):
        if name != meant_name:
            return f"a call's name is `{_short(name)}` and not `{meant_name}`"
        if _value(arguments) != meant_arguments:
            return f"the arguments of `{name}` are `{_short(arguments)}`"
    ids = [one for one, _, _ in reading.calls]
    if has_ids and not all(ids):
        return "a call has no id"
    if len(set(filter(None, ids))) != len(list(filter(None, ids))):
        return "two calls have one id"
    if reading.finish != meant.finish and {reading.finish, meant.finish} != {"stop", "refused"}:
        return f"the finish reason says `{reading.finish}` and not `{meant.finish}`"
    return ""


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _value(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return BrokenRule  # equal to no arguments


def _short(words: str) -> str:
    return words if len(words) <= 60 else f"{words[:59]}…"
