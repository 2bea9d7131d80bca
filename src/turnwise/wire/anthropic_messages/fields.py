"""The opaque data of this family, and its name."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import Opaque
from turnwise.wire.json_fields import Fields, fields_in, opaque_of, without

NAME = "anthropic_messages"


def opaque_from(fields: Mapping[str, msgspec.Raw], known: frozenset[str]) -> Opaque | None:
    """The fields that have no word of ours, to go back as they came."""
    return opaque_of(without(fields, known), family=NAME)


def own_fields(opaque: Opaque | None) -> Fields:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    return fields_in(opaque, family=NAME)


def merged(fields: dict[str, bytes], opaque: Opaque | None) -> dict[str, bytes]:
    """`fields` with opaque data of this family put over them."""
    for key, raw in own_fields(opaque).items():
        fields[key] = bytes(raw)
    return fields
