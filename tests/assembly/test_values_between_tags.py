"""Values between tags, which say no type: the tool's schema decides what they are (issue 16, section A)."""

import contextlib
import json

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import read_text
from thoroughness import examples
from turnwise.vocab import ToolSpec

BLOCKS = {
    "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=p>\n{}\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>f\n<arg_key>p</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="f">\n<parameter name="p">{}</parameter>\n</invoke>\n</minimax:tool_call>',
    "dsml": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="p">{}</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
}
VALUES = (
    *(
        "a",
        "ab",
        "",
        "1",
        "2",
        "-0",
        "5.0",
        "9007199254740993",
        "1e400",
        "NaN",
        "true",
        "True",
        "null",
        "None",
        " 1 ",
        "007",
    ),
    *("[]", "[1]", '["a"]', "[1", "{}", '{"a": 1}', '{"a": "b"}', '{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 2}}', '"a"'),
    *("['a']", "a\r\nb", "\n a \n", "[" * 400 + "]" * 400, "[" * 2_000 + "]" * 2_000),
)
DEFS = {
    "Speed": {"enum": ["1", "2"]},
    "Level": {"enum": [1, 2]},
    "Text": {"type": "string"},
    "Tree": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Tree"}}, "additionalProperties": False},
    "a/b~c": {"type": ["integer", "null"]},
    "Named": {"$anchor": "named", "type": "boolean"},
}


def value_of(text: str, *, schema: dict[str, object], syntax: str = "glm") -> object:
    tool = ToolSpec(name="f", parameters=json.dumps(schema))
    ((_, arguments),) = read_text(BLOCKS[syntax].format(text), tools=[tool]).calls
    return arguments["p"]


def schema_of(parameter: object) -> dict[str, object]:
    return {"type": "object", "properties": {"p": parameter}, "required": ["p", "q"], "$defs": DEFS}


@each("syntax", sorted(BLOCKS))
@each(
    ("parameter", "text", "value"),
    [
        ({"$ref": "#/$defs/Speed"}, "1", "1"),
        ({"$ref": "#/$defs/Level"}, "1", 1),
        ({"$ref": "#/$defs/a~1b~0c"}, "null", None),
        ({"$ref": "#/$defs/a~1b~0c"}, "7", 7),
        ({"$ref": "#named"}, "true", True),
        ({"allOf": [{"$ref": "#/$defs/Text"}], "description": "from pydantic"}, "1", "1"),
        ({"const": "1"}, "1", "1"),
        ({"const": 1}, "1", 1),
        ({"enum": [1, "a"]}, "1", 1),
        ({"enum": [1, "a"]}, "a", "a"),
        ({"enum": ["1", 1]}, "1", "1"),
        ({"enum": ["none", None]}, "none", "none"),
        ({"enum": ["None", None]}, "null", None),
        ({"type": ["string", "array"], "items": {"type": "string"}}, '{"a":1}', '{"a":1}'),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, '{"a":1}', '{"a":1}'),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, '["a"]', ["a"]),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "[1]", "[1]"),
        ({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "integer"}]}, "5", 5),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "5", "5"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"type": "string", "nullable": True}, "null", "null"),
        ({"type": "boolean"}, "True", True),
        ({"type": "object"}, '{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ({"type": "integer"}, "9007199254740993", 9007199254740993),
        ({"type": "number"}, "1e400", "1e400"),
        ({}, '{"a":1}', {"a": 1}),
        (True, "x", "x"),
    ],
)
def test_the_schema_decides_what_a_value_between_tags_is(
    syntax: str, parameter: object, text: str, value: object
) -> None:
    """Proves: references, `allOf`, `const` and lists of values of several types are followed, and the chosen value fits.

    From the second tester of issue 16: a `1` of an enum of strings was a number. `{"a":1}` for text or a list was an object.
    """
    assert json.dumps(value_of(text, schema=schema_of(parameter), syntax=syntax)) == json.dumps(value)


@each(
    "schema",
    [
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^p$": {"type": "string"}}, "additionalProperties": False},
        {"$ref": "#/$defs/Given", "$defs": {"Given": {"properties": {"p": {"type": "string"}}}}},
        {"allOf": [{"properties": {"p": {"type": "string"}}}, {"required": ["q"]}]},
        {"properties": {"p": {"$ref": "#/properties/q"}, "q": {"type": "string"}}},
        {"properties": {"p": {"$ref": "#/definitions/T"}}, "definitions": {"T": {"type": "string"}}},
        {"$id": "https://a.example/b", "properties": {"p": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"type": "string"}}},
        {"properties": {"p": {"$ref": "#/$defs/T%20t"}}, "$defs": {"T t": {"type": "string"}}},
    ],
)
def test_a_string_is_one_wherever_the_schema_says_so(schema: dict[str, object]) -> None:
    """Proves: where a parameter stands in the schema makes no difference."""
    assert value_of("1", schema=schema) == "1"
    assert value_of("null", schema=schema) == "null"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"p": {"$ref": "https://a.example/b.json"}}},
        {"properties": {"p": {"$ref": "#/nowhere"}}},
        {"properties": {"p": {"type": "text"}}},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"properties": {"p": {"$ref": "#/properties/p"}}},
        {"properties": {"p": {"anyOf": [{"$ref": "#/properties/p"}, {"type": "string"}]}}},
        {"properties": []},
    ],
)
def test_a_schema_that_says_nothing_leaves_json_as_it_is(schema: dict[str, object]) -> None:
    """Proves: nothing is fetched, a reference to itself ends, and what cannot be understood forbids nothing."""
    assert value_of('{"a": 1}', schema=schema) == {"a": 1}
    assert value_of("a", schema=schema) == "a"


_SCHEMAS = st.recursive(
    st.sampled_from([{"$ref": f"#/$defs/{key.replace('~', '~0').replace('/', '~1')}"} for key in DEFS])
    | st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"]).map(
        lambda one: {"type": one}
    )
    | st.lists(st.sampled_from(["string", "integer", "null", "object", "array"]), min_size=1, unique=True).map(
        lambda types: {"type": types}
    )
    | st.lists(st.sampled_from(["1", 1, "a", None, "null", True, 5.0, "[]", []]), min_size=1).map(
        lambda of: {"enum": of}
    )
    | st.sampled_from(
        [{"const": "1"}, {"const": 1}, {}, True, {"pattern": "^[a-z]"}, {"minLength": 2}, {"minimum": 2}]
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["anyOf", "oneOf", "allOf"]), st.lists(inner, min_size=1, max_size=3)).map(
            lambda two: {two[0]: two[1]}
        ),
        inner.map(lambda one: {"type": ["string", "array"], "items": one}),
        inner.map(lambda one: {"anyOf": [{"type": "object", "additionalProperties": one}, {"type": "string"}]}),
        inner.map(lambda one: {"not": one}),
        inner.map(lambda one: {"if": one, "then": {"type": "string"}}),
    ),
    max_leaves=5,
)


@settings(max_examples=examples(400), deadline=None)
@given(_SCHEMAS, st.sampled_from(VALUES))
def test_the_value_fits_wherever_a_reading_of_it_fits(parameter: object, text: str) -> None:
    """Proves: for any schema, with the validator as the judge: a string, or the JSON that it holds, and the one that fits."""
    judge = jsonschema_rs.validator_for({"$defs": DEFS, "properties": {"p": parameter}})
    chosen = value_of(text, schema=schema_of(parameter))
    readings: list[object] = [text]
    if len(text) < 300 and '"a": 1, "a"' not in text and '"b": 1, "b"' not in text and text not in ("NaN", "1e400"):
        with contextlib.suppress(ValueError):
            readings.append(json.loads(text))
    if text in ("True", "None"):
        readings.append({"True": True, "None": None}[text])
    assert json.dumps(chosen) in map(json.dumps, readings)
    if any(judge.is_valid({"p": one}) for one in readings):
        assert judge.is_valid({"p": chosen})
