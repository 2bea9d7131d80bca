"""What is Gemini's own about reading JSON objects, and the opaque data of this family.

Google's JSON mapping of protocol buffers takes a field by its camelCase or its snake_case name, so both are read
(source: protobuf.dev, "ProtoJSON format"). Only the names of the API's own fields are changed, never the keys of
arguments, results and schemas.
"""

import functools
import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Opaque
from turnwise.wire import json_fields
from turnwise.wire.json_fields import NULL, Fields, compact, fields_in, is_json, opaque_of

NAME = "gemini"

_strings = msgspec.json.Decoder(list[str])
_int = msgspec.json.Decoder(int, strict=False)
_float = msgspec.json.Decoder(float, strict=False)
_FALSE = msgspec.Raw(b"false")
_SNAKE = re.compile(r"_([a-z0-9])")


@functools.lru_cache(maxsize=512)
def camel(key: str) -> str:
    """`inline_data` -> `inlineData`; a name that is camelCase already stays."""
    return _SNAKE.sub(lambda found: found[1].upper(), key)


def read_fields(text: bytes | str | msgspec.Raw) -> Fields:
    """The object's fields by their camelCase names, values as JSON text; those that are null count as not there.
    Raises one of UNREADABLE if it is no object."""
    return {camel(key): value for key, value in json_fields.read_fields(text).items() if value != NULL}


def read_strings(text: bytes | str | msgspec.Raw) -> list[str]:
    return _strings.decode(text)


def read_int(text: bytes | str | msgspec.Raw) -> int:
    """64-bit integers may come as strings (ProtoJSON)."""
    return _int.decode(text)


def read_float(text: bytes | str | msgspec.Raw) -> float:
    return _float.decode(text)


def is_json_object(text: str) -> bool:
    return text[:1] == "{" and text[-1:] == "}" and is_json(text)


def opaque_from(fields: Mapping[str, bytes | msgspec.Raw], *, known: frozenset[str]) -> Opaque | None:
    """The fields that have no word of ours, to go back as they came."""
    return opaque_of({key: compact(value) for key, value in fields.items() if key not in known}, family=NAME)


def own_fields(opaque: Opaque | None) -> dict[str, bytes]:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    return {key: bytes(value) for key, value in fields_in(opaque, family=NAME).items()}


def is_false(raw: msgspec.Raw) -> bool:
    return raw == _FALSE
