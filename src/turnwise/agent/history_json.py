"""A history as text that lasts: JSON with a version, for a database column or a file.

A text is a whole history, or a row that continues the rows before it. `keeps` says how many of their messages stay: without it,
all of them. A run that makes room writes a row that keeps fewer, so that rows joined are always the history that the run left.

`turnwise` is the lowest version of the format that reads the text. A new kind of part, or a new field of one, raises it for those
texts alone that hold it: an older turnwise refuses what it would lose.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, cast

import msgspec

from turnwise.errors import CallerError
from turnwise.vocab import Citation, Message, Opaque, ProviderItem, messages_in_common
from turnwise.wire.json_fields import UNREADABLE, read_fields

HISTORY_VERSION = 1
MAX_HISTORY_BYTES = 256 * 1024 * 1024  # as a session's file: some hundred images


class _Versioned(msgspec.Struct, frozen=True):
    turnwise: int


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    turnwise: int
    keeps: Annotated[int, msgspec.Meta(ge=0)] | None = None
    messages: tuple[Message, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HistoryRow).decode
_decode_version = msgspec.json.Decoder(_Versioned).decode


def row_of(history: Sequence[Message], *, before: Sequence[Message] = ()) -> str:
    """The text that makes `history` of the rows that hold `before`."""
    kept = messages_in_common(before, history)
    keeps = None if kept == len(before) else kept
    row = HistoryRow(turnwise=HISTORY_VERSION, keeps=keeps, messages=tuple(history[kept:]))
    try:
        return _encode(row).decode()
    except (TypeError, UnicodeError) as error:
        raise CallerError(f"the history holds what JSON cannot carry: {error}") from None


def messages_from_json(
    text: str | bytes | Iterable[str | bytes], *, max_bytes: int = MAX_HISTORY_BYTES
) -> tuple[Message, ...]:
    """Read what `RunResult.history_json()` wrote, for `history=` of a run.

    - `text` is one text, or the rows that `RunResult.new_history_json()` wrote, in their order. No rows are no messages.
    - `max_bytes` bounds all rows together.

    The messages are equal to those that were written. Every later version of turnwise reads the text. Raises CallerError for
    a text that is damaged, too long, or from a newer version; the message says which row, and where in it.
    """
    if isinstance(text, Mapping) or not isinstance(cast("object", text), Iterable):
        kind = type(cast("object", text)).__name__
        fix = "give `[]` for a chat without rows" if kind == "NoneType" else "keep it in a column of text"
        raise CallerError(f"a history is read from its text, not from a {kind}: {fix}")
    rows = [text] if isinstance(text, str | bytes) else list(text)
    messages: list[Message] = []
    left = max_bytes
    for place, row in enumerate(rows):
        what = "the history" if len(rows) == 1 else f"row {place} of the history (counted from 0)"
        left -= _size(row, what=what)
        if left < 0:
            raise CallerError(f"{what} is too long: more than {max_bytes:,} bytes; raise `max_bytes` if that is right")
        read = _read(row, what=what)
        if read.keeps is not None:
            if read.keeps > len(messages):
                raise CallerError(
                    f"{what} continues {read.keeps} messages, and the rows before it have {len(messages)}: give all rows of "
                    "the chat, in the order in which they were written"
                )
            del messages[read.keeps :]
        messages += read.messages
    return tuple(messages)


def _size(row: object, *, what: str) -> int:
    if not isinstance(row, str | bytes):
        raise CallerError(f"{what} must be a text or bytes, not {type(row).__name__}: keep it in a column of text")
    return len(row) if isinstance(row, bytes) or row.isascii() else len(row.encode("utf-8", "surrogatepass"))


def _read(row: str | bytes, *, what: str) -> HistoryRow:
    try:
        version = _decode_version(row).turnwise
        if version > HISTORY_VERSION:
            raise CallerError(
                f"{what} is of version {version}, and this turnwise reads up to {HISTORY_VERSION}: install the turnwise that "
                "wrote it, or a newer one"
            )
        if version >= 1:
            read = _decode(row)
            _check_raw_texts(read.messages, place="$.messages")
            return read
        said = f"there is no version {version}"
    except UnicodeError:
        said = "it is not UTF-8"
    except msgspec.DecodeError as error:
        said = str(error)
    except RecursionError:
        said = "its values are nested too deep"
    raise CallerError(f"{what} is not what `history_json()` wrote: {said}. `messages_from` reads other messages")


def _check_raw_texts(value: object, *, place: str) -> None:
    """Raise ValidationError, with the place, for provider data that is not a JSON object: requests hold it as it is."""
    if isinstance(value, tuple):
        for number, one in enumerate(cast("tuple[object, ...]", value)):
            _check_raw_texts(one, place=f"{place}[{number}]")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            inner: object = getattr(value, name)
            if isinstance(inner, tuple | msgspec.Struct):
                _check_raw_texts(cast("object", inner), place=f"{place}.{name}")
            elif name == _RAW.get(type(value)) and isinstance(inner, str):
                try:
                    read_fields(inner)
                except UNREADABLE as error:
                    raise msgspec.ValidationError(f"no JSON object is in `{place}.{name}`: {error}") from None


_RAW: dict[type, str] = {Opaque: "json", ProviderItem: "json", Citation: "raw"}
