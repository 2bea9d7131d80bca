"""JSON objects taken apart one level deep, so that what is not ours to read goes on as the very text that came."""

from collections.abc import Iterable, Mapping

import msgspec

from turnwise.vocab import Opaque

NAME = "anthropic_messages"

Fields = dict[str, msgspec.Raw]

_fields = msgspec.json.Decoder(Fields)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_string = msgspec.json.Decoder(str)

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What the JSON decoders raise on a stranger's bytes."""


def read_fields(text: bytes | str | msgspec.Raw) -> Fields:
    """The object's keys with their values as JSON text. Raises one of UNREADABLE if it is no object."""
    return _fields.decode(text)


def read_items(text: bytes | str | msgspec.Raw) -> list[msgspec.Raw]:
    return _items.decode(text)


def string_of(fields: Mapping[str, msgspec.Raw], key: str) -> str | None:
    """The value where it is a string, else None."""
    raw = fields.get(key)
    if raw is None:
        return None
    try:
        return _string.decode(raw)
    except UNREADABLE:
        return None


def text_of_raw(raw: msgspec.Raw) -> str:
    return str(bytes(raw), "utf-8")


def is_null(raw: msgspec.Raw | None) -> bool:
    return raw is None or bytes(raw) == b"null"


def quote(text: str) -> bytes:
    """A JSON string. A lone surrogate, which no JSON text can hold, becomes the replacement character."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def write_object(fields: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join([quote(key) + b":" + value for key, value in fields.items()]) + b"}"


def write_array(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def opaque_from(fields: Mapping[str, msgspec.Raw], known: frozenset[str]) -> Opaque | None:
    """The fields that have no word of ours, to go back as they came."""
    rest = {key: bytes(raw) for key, raw in fields.items() if key not in known}
    return Opaque(NAME, str(write_object(rest), "utf-8")) if rest else None


def own_fields(opaque: Opaque | None) -> Fields:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    if opaque is None or opaque.family != NAME:
        return {}
    try:
        return read_fields(opaque.json)
    except UNREADABLE:
        return {}


def merged(fields: dict[str, bytes], opaque: Opaque | None) -> dict[str, bytes]:
    """`fields` with opaque data of this family put over them."""
    for key, raw in own_fields(opaque).items():
        fields[key] = bytes(raw)
    return fields


def one_line(text: bytes) -> bytes:
    """JSON without the line breaks that opaque text may bring along: an SSE event's payload is one line."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text
