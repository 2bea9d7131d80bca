"""Gemini's own schema language (a part of OpenAPI 3.0, types in capitals) -> JSON Schema.

We send JSON Schema (`parametersJsonSchema`, `responseJsonSchema`); clients may send either. Source: API reference, `Schema`.
"""

from typing import cast

import msgspec

from turnwise.wire.gemini.fields import camel
from turnwise.wire.json_fields import text_of_raw

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
"""In the order of the enum, whose numbers ProtoJSON takes too: from 1 on."""
# 64-bit integers, which ProtoJSON writes as strings.
_COUNTS = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
_ONE = {"items", "additionalProperties"}
_MANY = {"anyOf", "oneOf", "allOf", "prefixItems"}
_NAMED = {"properties", "$defs", "defs", "definitions"}


def to_json_schema(schema: bytes | msgspec.Raw) -> str:
    """The schema as JSON Schema text; one that is JSON Schema already stays as it is. Raises one of fields.UNREADABLE."""
    before = cast(Json, msgspec.json.decode(schema))
    after = _convert(before)
    return text_of_raw(schema) if after == before else msgspec.json.encode(after).decode()


def _convert(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Json] = {}
    for given, value in schema.items():
        key = camel(given)
        if key in _NAMED and isinstance(value, dict):
            found[key] = {name: _convert(below) for name, below in value.items()}
        elif key in _MANY and isinstance(value, list):
            found[key] = [_convert(below) for below in value]
        elif key in _ONE:
            found[key] = _convert(value)
        elif key in _COUNTS and isinstance(value, str) and value.isdecimal():
            found[key] = int(value)
        elif key == "type" and isinstance(value, str) and value in _TYPES:
            found[key] = value.lower()
        elif key == "type" and type(value) is int and 0 < value <= len(_TYPES):
            found[key] = _TYPES[value - 1].lower()
        elif key not in ("nullable", "propertyOrdering") and value != "TYPE_UNSPECIFIED":
            found[key] = value
    return _nullable(found) if schema.get("nullable") is True else found


def _nullable(schema: dict[str, Json]) -> dict[str, Json]:
    """OpenAPI's `nullable` in JSON Schema's words."""
    kind = schema.get("type")
    if isinstance(kind, str):
        nullable: dict[str, Json] = {**schema, "type": [kind, "null"]}
        values = schema.get("enum")
        if isinstance(values, list) and None not in values:
            nullable["enum"] = [*values, None]
        return nullable
    options = schema.get("anyOf")
    if isinstance(options, list):
        return {**schema, "anyOf": [*options, {"type": "null"}]}
    return schema
