"""JSON objects read one level deep: keys with their values still as JSON text, so that what we do not read goes back as it
came."""

from collections.abc import Iterable, Mapping

import msgspec

Fields = dict[str, msgspec.Raw]
"""An object's keys and, undecoded, their values."""

NAME = "openai_responses"

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a stranger's JSON can raise: not this shape or no JSON, no UTF-8, nested without end."""

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_COUNT = msgspec.json.Decoder(int)


def fields_of(json: bytes | str | msgspec.Raw) -> Fields:
    """Raises msgspec.DecodeError where it is no JSON object."""
    return _FIELDS.decode(json)


def text_at(fields: Mapping[str, msgspec.Raw], key: str) -> str | None:
    """The string under `key`; None where there is none, or something else."""
    raw = fields.get(key)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    return _TEXT.decode(raw)


def count_at(fields: Mapping[str, msgspec.Raw], key: str) -> int | None:
    raw = fields.get(key)
    try:
        return None if raw is None else _COUNT.decode(raw)
    except msgspec.ValidationError:
        return None


def list_at(fields: Mapping[str, msgspec.Raw], key: str) -> list[msgspec.Raw]:
    raw = fields.get(key)
    if raw is None or bytes(raw)[:1] != b"[":
        return []
    return _LIST.decode(raw)


def object_at(fields: Mapping[str, msgspec.Raw], key: str) -> Fields:
    """The object under `key`; empty where there is none, or something else."""
    raw = fields.get(key)
    if raw is None or not is_object(raw):
        return {}
    return _FIELDS.decode(raw)


def is_object(raw: msgspec.Raw) -> bool:
    return bytes(raw)[:1] == b"{"


def json_text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode()


def without(fields: Mapping[str, msgspec.Raw], keys: Iterable[str]) -> Fields:
    left_out = frozenset(keys)
    return {key: value for key, value in fields.items() if key not in left_out}


def encode(value: object) -> bytes:
    """The JSON of `value`; msgspec.Raw inside it stands for itself."""
    return msgspec.json.encode(value)
