"""Whether values have the types that they claim: what the journal cannot read again must not be written."""

from collections.abc import Sequence

import msgspec

from turnwise.errors import CallerError
from turnwise.turn.approvals import ResumeTerms
from turnwise.turn.events import StepPrepared, TurnStarted
from turnwise.vocab import Message

_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)
_read = msgspec.msgpack.Decoder(tuple[Message, ...]).decode
# A Message has some three objects. Python looks for garbage once 700 more than before are alive.
AT_ONCE = 100


def check_plain(value: TurnStarted | StepPrepared | ResumeTerms, *, what: str) -> None:
    """Raise CallerError naming the field that has not its type."""
    if isinstance(value, TurnStarted) and value.history and are_plain(value.history):
        value = msgspec.structs.replace(value, history=())
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=type(value))
    except _ERRORS as error:
        raise CallerError(f"{what}: {error}") from error


def are_plain(messages: Sequence[Message]) -> bool:
    """Whether all fields of the messages have their types. A long history is told so in half the time that JSON takes.

    False says only that they may not: some values read well from JSON alone. Whatever this takes reads well from JSON, too:
    a message has no numbers, and its texts and bytes are alike in both.
    """
    try:
        for start in range(0, len(messages), AT_ONCE):
            _read(msgspec.msgpack.encode(messages[start : start + AT_ONCE]))
    except _ERRORS:
        return False
    return True
