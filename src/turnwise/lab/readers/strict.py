"""A client that takes nothing but what the family's API sends, and the errors of each family."""

from collections.abc import Callable

import msgspec

from turnwise.lab.readers.reader_result import StreamReading, ToldError
from turnwise.lab.readers.strict_chat import read_chat
from turnwise.lab.readers.strict_gemini import read_gemini
from turnwise.lab.readers.strict_messages import read_messages
from turnwise.lab.readers.strict_responses import read_responses

_READ: dict[str, Callable[[bytes], StreamReading]] = {
    "openai_chat": read_chat,
    "openai_responses": read_responses,
    "anthropic_messages": read_messages,
    "gemini": read_gemini,
}


class _ErrorBody(msgspec.Struct, frozen=True):
    error: ToldError


def read_strictly(body: bytes, *, family: str) -> StreamReading:
    """Raises BrokenRule for what this family's API would not send."""
    return _READ[family](body)


def told_error(body: bytes) -> str | None:
    """The message of an error's body, which all four families put in one place; None where it is no such body. Gemini's may
    stand in an array."""
    try:
        if body.lstrip()[:1] == b"[":
            several = msgspec.json.decode(body, type=list[_ErrorBody])
            return several[0].error.message if several else None
        return msgspec.json.decode(body, type=_ErrorBody).error.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
