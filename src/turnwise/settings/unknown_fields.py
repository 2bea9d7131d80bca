"""A field of a table that nobody reads is told with the one that was meant."""

import difflib
import re
from collections.abc import Iterable

import msgspec

_UNKNOWN = re.compile(r"unknown field `([^`]*)`")  # as msgspec says it


def with_near_field(error: Exception, *, rows: Iterable[type[msgspec.Struct]]) -> str:
    """What the error says; of an unknown field also which one of these rows is near."""
    said = str(error)
    found = _UNKNOWN.search(said)
    fields = [field for row in rows for field in row.__struct_encode_fields__]
    near = difflib.get_close_matches(found[1], fields, n=1) if found else []
    if found is None or not near:
        return said
    return f"{said[: found.end()]} (did you mean `{near[0]}`?){said[found.end() :]}"
