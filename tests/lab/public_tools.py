"""Forty tool schemas in the shapes that public MCP servers publish, with what single servers refuse in them.

Written for these tests after such listings; the name says the server's kind or the shape.
"""

from typing import Any

Schema = dict[str, Any]


def _object(properties: Schema, *required: str, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {}), **more}


def _deep(levels: int) -> Schema:
    inner: Schema = {"type": "string", "description": f"The value at depth {levels}."}
    for level in range(levels, 0, -1):
        inner = _object({f"level_{level}": inner}, f"level_{level}")
    return inner


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 100, "default": 30}
RICH_TEXT = {
    "type": "object",
    "description": "A piece of rich text.",
    "properties": {"type": {"const": "text"}, "text": _object({"content": TEXT, "link": {"type": ["object", "null"]}})},
    "required": ["text"],
}
FILTER = {
    "anyOf": [
        _object(
            {"and": {"type": "array", "items": {"$ref": "#/$defs/Filter"}}}, "and", description="All of these hold."
        ),
        _object({"property": TEXT, "equals": {"type": ["string", "number", "boolean", "null"]}}, "property"),
    ]
}
ISSUE_STATE = {"type": "string", "title": "State", "enum": ["open", "closed", "all"], "description": "A state."}

PUBLIC_SCHEMAS: dict[str, Schema] = {
    # plain ones, as most are
    "time_now": _object({"timezone": {"type": "string", "description": "IANA name."}}, "timezone"),
    "files_list": _object(
        {"path": TEXT, "depth": {"type": "integer", "default": 2}}, "path", additionalProperties=False
    ),
    "files_edit": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_object(
            {
                "path": TEXT,
                "edits": {"type": "array", "items": _object({"oldText": TEXT, "newText": TEXT}, "oldText", "newText")},
                "dryRun": {"type": "boolean", "default": False},
            },
            "path",
            "edits",
        ),
    },
    "git_log": _object({"repo_path": TEXT, "max_count": {"default": 10, "title": "Max Count", "type": "integer"}}),
    "graph_add": _object(
        {
            "entities": {
                "type": "array",
                "items": _object({"name": TEXT, "kind": TEXT, "facts": {"type": "array", "items": TEXT}}),
            }
        }
    ),
    # no properties, empty, bare
    "no_properties": {"type": "object"},
    "empty": {},
    "no_type": {"properties": {"query": TEXT}, "required": ["query"]},
    "closed_and_bare": {"type": "object", "additionalProperties": False},
    "required_without_properties": {"type": "object", "required": ["query"]},
    # unions at the root
    "root_any_of": {
        "anyOf": [_object({"id": TEXT}, "id"), _object({"url": {"type": "string", "format": "uri"}}, "url")]
    },
    "root_one_of_needs": _object(
        {"owner": TEXT, "org": TEXT, "query": TEXT}, oneOf=[{"required": ["owner"]}, {"required": ["org"]}]
    ),
    "root_all_of": {"allOf": [_object({"page": COUNT}), _object({"query": TEXT}, "query")]},
    "root_condition": _object(
        {"mode": {"enum": ["a", "b"]}, "value": TEXT},
        allOf=[{"if": {"properties": {"mode": {"const": "a"}}}, "then": {"required": ["value"]}}],
    ),
    "root_reference": {
        "$ref": "#/definitions/Query",
        "definitions": {"Query": _object({"sql": {"type": "string", "minLength": 1}}, "sql")},
    },
    "root_nullable": {"type": ["object", "null"], "properties": {"cursor": {"type": ["string", "null"]}}},
    # references
    "reference_siblings": _object(
        {"state": {"$ref": "#/$defs/State", "description": "Which issues.", "default": "open"}},
        **{"$defs": {"State": ISSUE_STATE}},
    ),
    "reference_chain": _object(
        {"state": {"$ref": "#/$defs/Wanted", "description": "Which issues."}},
        **{"$defs": {"Wanted": {"$ref": "#/$defs/State"}, "State": ISSUE_STATE}},
    ),
    "reference_typed": _object(
        {"text": {"type": "object", "$ref": "#/$defs/RichText"}}, **{"$defs": {"RichText": RICH_TEXT}}
    ),
    "reference_to_property": _object(
        {"from": {"type": "string", "format": "date"}, "to": {"$ref": "#/properties/from"}}
    ),
    "reference_draft_7": _object(
        {"filter": {"$ref": "#/definitions/Range"}}, definitions={"Range": _object({"min": TEXT, "max": TEXT})}
    ),
    "reference_recursive": _object({"filter": {"$ref": "#/$defs/Filter"}}, **{"$defs": {"Filter": FILTER}}),
    "reference_recursive_described": _object(
        {"node": {"$ref": "#/$defs/Node", "description": "The first."}},
        **{
            "$defs": {
                "Node": _object({"next": {"$ref": "#/$defs/Node", "description": "The next."}}, description="A node.")
            }
        },
    ),
    "reference_to_root": _object({"name": TEXT, "children": {"type": "array", "items": {"$ref": "#"}}}, "name"),
    "reference_elsewhere": _object({"point": {"$ref": "https://geojson.org/schema/Point.json"}}),
    # unions below
    "union_typed": _object({"value": {"type": "string", "anyOf": [{"format": "email"}, {"format": "uri"}]}}),
    "union_nullable": _object(
        {"labels": {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}], "default": None, "title": "Labels"}}
    ),
    "union_with_enum": _object({"level": {"anyOf": [TEXT, {"type": "null"}], "enum": ["low", "high", None]}}),
    # enum, const
    "enum_with_null": _object({"sort": {"type": ["string", "null"], "enum": ["asc", "desc", None]}}),
    "enum_untyped": _object(
        {"unit": {"enum": ["c", "f"]}, "days": {"enum": [1, 3, 7]}, "any": {"enum": [1, "x", None, 0.5]}}
    ),
    "const_untyped": _object({"kind": {"const": "page"}, "version": {"const": 2}}, "kind"),
    "numbers_as_strings": _object({"limit": {"type": "string", "pattern": "^[0-9]+$", "examples": ["10"]}}),
    # arrays
    "arrays_bare": _object({"ids": {"type": "array"}, "rows": {"type": "array", "items": {"type": "array"}}}),
    "arrays_of_positions": _object(
        {"range": {"type": "array", "items": [{"type": "number"}, {"type": "number"}], "additionalItems": False}}
    ),
    "arrays_bounded": _object(
        {"tags": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 20, "uniqueItems": True}}
    ),
    # maps
    "maps": _object(
        {
            "headers": {"type": "object", "additionalProperties": TEXT},
            "filter": {"type": "object", "additionalProperties": True},
        },
        patternProperties={"^x-": TEXT},
    ),
    "booleans": _object({"anything": True, "nothing": False, "list": {"type": "array", "items": True}}, "anything"),
    # size
    "long_text": _object(
        {
            "body": {"type": "string", "minLength": 2500, "maxLength": 100_000},
            "rows": {"type": "array", "items": TEXT, "minItems": 2001},
        }
    ),
    "deep": _deep(10),
    "wide": _object(
        {f"field_{n}": {"type": "string", "description": f"Field {n} of the record. " * 8} for n in range(100)},
        description="A record. " * 200,
    ),
}
