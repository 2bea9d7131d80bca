"""JSON objects taken apart one level deep, so that what is not ours to read goes on as the very text that came.

Google's JSON mapping of protocol buffers takes a field by its camelCase or its snake_case name, so both are read
(source: protobuf.dev, "ProtoJSON format"). Only the names of the API's own fields are changed, never the keys of
arguments, results and schemas.
"""

import functools
import re
from collections.abc import Iterable, Mapping

import msgspec

from turnwise.vocab import Opaque

NAME = "gemini"

Fields = dict[str, msgspec.Raw]

NOTHING = msgspec.Raw()
"""The value of a raw field that was not there."""

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What the JSON decoders raise on a stranger's bytes."""

_fields = msgspec.json.Decoder(Fields)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_string = msgspec.json.Decoder(str)
_strings = msgspec.json.Decoder(list[str])
_int = msgspec.json.Decoder(int, strict=False)
_float = msgspec.json.Decoder(float, strict=False)
_raw = msgspec.json.Decoder(msgspec.Raw)
_SNAKE = re.compile(r"_([a-z0-9])")


@functools.lru_cache(maxsize=512)
def camel(key: str) -> str:
    """`inline_data` -> `inlineData`; a name that is camelCase already stays."""
    return _SNAKE.sub(lambda found: found[1].upper(), key)


def read_fields(text: bytes | str | msgspec.Raw) -> Fields:
    """The object's fields by their camelCase names, values as JSON text; those that are null count as not there.
    Raises one of UNREADABLE if it is no object."""
    return {camel(key): value for key, value in _fields.decode(text).items() if bytes(value) != b"null"}


def read_items(text: bytes | str | msgspec.Raw) -> list[msgspec.Raw]:
    return _items.decode(text)


def read_string(text: bytes | str | msgspec.Raw) -> str:
    return _string.decode(text)


def read_strings(text: bytes | str | msgspec.Raw) -> list[str]:
    return _strings.decode(text)


def read_int(text: bytes | str | msgspec.Raw) -> int:
    """64-bit integers may come as strings (ProtoJSON)."""
    return _int.decode(text)


def read_float(text: bytes | str | msgspec.Raw) -> float:
    return _float.decode(text)


def string_of(fields: Mapping[str, msgspec.Raw], key: str) -> str | None:
    """The value where it is a string, else None."""
    raw = fields.get(key)
    if raw is None:
        return None
    try:
        return _string.decode(raw)
    except UNREADABLE:
        return None


def text_of_raw(raw: bytes | msgspec.Raw) -> str:
    return str(bytes(raw), "utf-8")


def is_json(text: str) -> bool:
    """Strictly valid JSON text, with nothing around it."""
    try:
        _raw.decode(text)
    except UNREADABLE:
        return False
    return True


def is_json_object(text: str) -> bool:
    return text[:1] == "{" and text[-1:] == "}" and is_json(text)


def quote(text: str) -> bytes:
    """A JSON string. A lone surrogate, which no JSON text can hold, becomes the replacement character."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def write_object(fields: Mapping[str, bytes | msgspec.Raw]) -> bytes:
    return b"{" + b",".join([quote(key) + b":" + bytes(value) for key, value in fields.items()]) + b"}"


def write_array(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def compact(text: bytes | msgspec.Raw) -> bytes:
    """The same JSON without whitespace between its tokens; numbers and strings stay as they are."""
    try:
        return msgspec.json.format(bytes(text), indent=-1)
    except RecursionError:  # nested so deeply that it could be read, but only just
        return bytes(text)


def opaque_from(fields: Mapping[str, bytes | msgspec.Raw], *, known: frozenset[str]) -> Opaque | None:
    """The fields that have no word of ours, to go back as they came."""
    rest = {key: compact(value) for key, value in fields.items() if key not in known}
    return Opaque(NAME, str(write_object(rest), "utf-8")) if rest else None


def own_fields(opaque: Opaque | None) -> dict[str, bytes]:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    if opaque is None or opaque.family != NAME:
        return {}
    try:
        return {key: bytes(value) for key, value in _fields.decode(opaque.json).items()}
    except UNREADABLE:
        return {}


def is_false(raw: msgspec.Raw) -> bool:
    return bytes(raw) == b"false"
