"""JSON objects of Chat Completions as decoded values, and the opaque data of this family."""

from typing import TypeGuard, cast

import msgspec

from turnwise.vocab import Opaque

NAME = "openai_chat"

Fields = dict[str, object]


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def fields_of(opaque: Opaque | None) -> Fields:
    """Our own opaque data as fields whose values are kept as they came; another family's is left out."""
    if opaque is None or opaque.family != NAME:
        return {}
    return msgspec.json.decode(opaque.json, type=dict[str, object])


def merged(fields: Fields, more: Fields) -> Fields:
    """`more` laid over `fields`, objects in objects."""
    for key, value in more.items():
        there = fields.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            fields[key] = merged(cast("Fields", there), cast("Fields", value))
        else:
            fields[key] = value
    return fields
