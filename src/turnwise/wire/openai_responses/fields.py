"""The fields of an object of this API, read one at a time, and the opaque data of this family."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import Opaque
from turnwise.wire.json_fields import (
    NULL,
    Fields,
    fields_in,
    first_byte,
    opaque_of,
    read_items,
    read_string,
)

NAME = "openai_responses"

_COUNT = msgspec.json.Decoder(int, strict=False)  # gateways write "1" and 1.0


def text_at(fields: Mapping[str, msgspec.Raw], key: str) -> str | None:
    """The string under `key`; None where there is none, or something else."""
    raw = fields.get(key)
    if raw is None or raw == NULL:
        return None
    try:
        return read_string(raw)
    except msgspec.ValidationError:
        return None


def count_at(fields: Mapping[str, msgspec.Raw], key: str) -> int | None:
    raw = fields.get(key)
    try:
        return None if raw is None else _COUNT.decode(raw)
    except msgspec.ValidationError:
        return None


def list_at(fields: Mapping[str, msgspec.Raw], key: str) -> list[msgspec.Raw]:
    raw = fields.get(key)
    if raw is None or first_byte(raw) != b"[":
        return []
    return read_items(raw)


def opaque_from(fields: Mapping[str, msgspec.Raw]) -> Opaque | None:
    """These fields as opaque data of this family, to go back as they came."""
    return opaque_of(fields, family=NAME)


def own_fields(opaque: Opaque | None) -> Fields:
    """The fields in opaque data of this family; none for another family's, or where it is no object."""
    return fields_in(opaque, family=NAME)
