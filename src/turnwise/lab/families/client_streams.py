"""What clients make of a stream: a naive one believes every event, a strict one takes nothing but what the family's API sends.

A strict client reads server-sent events as the standard has them and as the APIs send them: one JSON value an event, nothing
unknown.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

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


# --- a strict client

DONE = b"[DONE]"
Shape = TypeVar("Shape")


class StrictEvent(NamedTuple):
    name: str
    data: bytes


class _MaybeError(msgspec.Struct, frozen=True):
    error: ToldError | None = None


def events_of(body: bytes) -> list[StrictEvent]:
    """Raises BrokenRule. Comments are no events."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BrokenRule("the stream is not UTF-8") from None
    found: list[StrictEvent] = []
    name, data = "", list[str]()
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "" if not line:
                if data:
                    found.append(StrictEvent(name, "\n".join(data).encode()))
                name, data = "", []
            case "event":
                name = value
            case "data":
                data.append(value)
            case "" | "id" | "retry":
                pass
            case _:
                raise BrokenRule(f"a line is no field of server-sent events: `{line[:40]}`")
    if data:
        raise BrokenRule("the stream ends in the middle of an event")
    return found


def shaped(data: bytes, *, as_type: type[Shape]) -> Shape:
    """Raises BrokenRule where the JSON does not have the fields of this type."""
    try:
        return msgspec.json.decode(data, type=as_type)
    except msgspec.ValidationError as error:
        raise BrokenRule(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BrokenRule(f"an event is no JSON: `{data[:40].decode('utf-8', 'replace')}`") from None


def error_in(data: bytes) -> str:
    """The message of an event `{"error": {...}}`; empty where it is another event. Raises BrokenRule."""
    error = shaped(data, as_type=_MaybeError).error
    return "" if error is None else error.message or "an error without words"


def arguments_object(arguments: str) -> str:
    """The arguments, which are the text of one JSON object. Raises BrokenRule."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        raise BrokenRule(f"arguments are no JSON: `{arguments[:40]}`") from None
    rule(isinstance(value, dict), f"arguments are no object: `{arguments[:40]}`")
    return arguments


def rule(holds: bool, says: str) -> None:
    """Raises BrokenRule with the words where it does not hold."""
    if not holds:
        raise BrokenRule(says)


# --- a naive client


def naive_events(body: bytes, *, as_type: type[Shape]) -> list[Shape]:
    """Raises ValueError where such a client would crash."""
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    data = [line[5:] for line in lines if line.startswith(b"data:") and line[5:].strip() != DONE]
    return [msgspec.json.decode(one, type=as_type) for one in data]
