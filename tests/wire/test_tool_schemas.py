"""The schema of a tool as it goes up, judged by a JSON Schema validator that we did not write.

Reports: langchain-ai/langchain#39271, langchain-ai/langchainjs#9804 (a union at the root); tontinton/maki#940,
lmstudio-ai/lmstudio-bug-tracker#2254 (no `properties`); MoonshotAI/kimi-cli#2061 (keywords beside `$ref`).
"""

import json
import tracemalloc
from itertools import product
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.public_tools import PUBLIC_SCHEMAS
from tables import each
from thoroughness import examples
from turnwise.lab.strict import check
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.lab.strict.verdicts import Rejected
from turnwise.vocab import Message, Request, Text, ToolResult, ToolSpec
from turnwise.wire.family import family
from turnwise.wire.offers import ALSO, fitted_tool
from turnwise.wire.profiles import SchemaDialect, builtin_profiles

UNIONS = ("anyOf", "oneOf", "allOf", "not", "enum")
TASK = {"type": "object", "description": "A task.", "properties": {"title": {"type": "string"}}, "required": ["title"]}
NODE = {"type": "object", "description": "N.", "properties": {"next": {"$ref": "#/$defs/Node", "description": "more"}}}
CLOSED = {"type": "object", "additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "needs": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "objects": {"oneOf": [{**CLOSED, "properties": {"a": {"type": "string"}}, "required": ["a"]}, {**TASK, **CLOSED}]},
    "references": {"type": "object", "anyOf": [{"$ref": "#/$defs/Task"}, TASK], "$defs": {"Task": TASK}},
    "opaque": {"type": "object", "properties": {"a": {"type": "string"}}, "allOf": [{"not": {"required": ["b"]}}]},
    "closed": {"type": "object", "anyOf": [{"if": {}, "then": TASK}], "additionalProperties": False, "required": ["a"]},
    "open": {
        "type": "object",
        "anyOf": [{"properties": {"a": {"type": "string", "description": "An A."}}}, {"required": ["b"]}],
        "unevaluatedProperties": {"type": ["string", "integer"]},
    },
    "described": {
        "type": "object",
        "properties": {"task": {"$ref": "#/$defs/Task", "description": "The task to make."}},
        "$defs": {"Task": TASK},
    },
    "in itself": {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node", "description": "the first"}},
        "$defs": {"Node": NODE},
    },
    "typed union": {
        "type": "object",
        "properties": {"a": {"type": "string", "anyOf": [{"minLength": 3}, {"enum": ["x"]}]}},
    },
    "words as names": {
        "type": "object",
        "properties": {
            "anyOf": {"type": "string"},
            "type": {"const": {"$ref": "x", "type": "y"}},
            "$ref": {"minItems": 2},
        },
    },
    "lengths": {"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 5}}},
    "great lengths": {"type": "object", "properties": {"a": {"type": "string", "minLength": 2001}}},
    "choices": {"properties": {"a": {"enum": ["x", 1, None]}, "b": {"anyOf": [{"type": "null"}], "enum": ["x", None]}}},
    "no objects": {"properties": {"a": True, "b": False, "title": {"items": True}}, "required": ["a", "task"]},
    "older": {"$ref": "#/definitions/Task", "definitions": {"Task": {**TASK, "properties": {"a": {"$ref": "#"}}}}},
    "elsewhere": {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"$ref": "#/properties/a"},
            "task": {"$ref": "#/$defs/Wanted", "description": "one", "maxProperties": 2},
            "root": {"$ref": "#/properties/root/properties/next", "properties": {"next": {"type": "string"}}},
        },
        "$defs": {"Wanted": {"$ref": "#/$defs/Task", "title": "W"}, "Task": {**TASK, "maxProperties": 3}},
    },
    "anchored": {
        "type": "object",
        "properties": {"a": {"$ref": "#word", "description": "one"}},
        "$defs": {"Word": {"$anchor": "word", "type": "string"}},
    },
    "bare": {"type": "object"},
    "nothing": {},
    "list of types": {"type": ["object", "null"], "properties": {"a": {"type": ["string", "null"]}}},
}
DIALECTS: tuple[SchemaDialect, ...] = ("standard", "object", "whole", "moonshot", "xai", "llamacpp")
JSON = st.recursive(
    st.sampled_from(["x", "y", "abc", 1, None, True]),
    lambda inner: st.dictionaries(
        st.sampled_from(["a", "b", "title", "task", "next", "root", "type"]), inner, max_size=3
    ),
    max_leaves=6,
)


def taken(schema: object, value: object) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(value)  # pyright: ignore


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=examples(60), deadline=None, database=None, derandomize=True)
@given(value=st.dictionaries(st.sampled_from(["a", "b", "title", "task", "root", "type", "anyOf"]), JSON, max_size=3))
def test_the_copy_takes_all_that_the_tool_takes(name: str, dialect: SchemaDialect, value: dict[str, Any]) -> None:
    """Proves: arguments that fit the tool's schema fit the copy. What the copy says no more stands in the description."""
    own = SCHEMAS[name]
    tool = ToolSpec(name="t", description="D.", parameters=json.dumps(own), strict=True)
    found = fitted_tool(tool, dialect)
    copy = json.loads(found.spec.parameters)
    assert not taken(own, value) or taken(copy, value)
    assert not any(word in copy for word in UNIONS)
    assert bool(found.lost) == (ALSO in found.spec.description) == (not found.spec.strict)
    if dialect != "standard":
        assert copy["type"] == "object" and (dialect == "object" or isinstance(copy["properties"], dict))
    assert (
        fitted_tool(tool, dialect) is found
        and fitted_tool(found.spec, dialect).spec.parameters == found.spec.parameters
    )


CHOICE = st.fixed_dictionaries(
    {"properties": st.dictionaries(st.sampled_from("ab"), st.sampled_from([{"type": "string"}, {"const": 1}, False]))},
    optional={
        "additionalProperties": st.sampled_from([False, True, {"type": "string"}]),
        "patternProperties": st.just({"^a": {"type": "string"}}),
        "unevaluatedProperties": st.just(False),
        "required": st.sampled_from([["a"], ["b"], []]),
    },
)
ROOT = st.builds(
    lambda own, choices: {**own, "type": "object", **choices},
    CHOICE,
    st.dictionaries(st.sampled_from(UNIONS[:3]), st.lists(CHOICE, min_size=1, max_size=3), min_size=1, max_size=2),
)
VALUES = [
    dict(zip(names, values, strict=True))
    for names in ("", "a", "b", "ab", "bc")
    for values in product(["x", 1, None], repeat=len(names))
]


@pytest.mark.costly
@settings(max_examples=examples(500), deadline=None, database=None, derandomize=True)
@given(own=ROOT)
def test_a_folded_union_never_says_what_the_tool_does_not(own: dict[str, Any]) -> None:
    """Proves: whatever choices stand at the root, open or closed, no arguments that fit them fail the copy. Where one choice
    leaves a property open that another one types, the copy keeps the property and its description, not the type."""
    copy = json.loads(fitted_tool(ToolSpec(name="t", parameters=json.dumps(own))).spec.parameters)
    assert [value for value in VALUES if taken(own, value) and not taken(copy, value)] == []
    spec = fitted_tool(ToolSpec(name="t", parameters=json.dumps(SCHEMAS["open"]))).spec
    assert json.loads(spec.parameters) == {"type": "object", "properties": {"a": {"description": "An A."}}}


LINKS = {
    name: st.sampled_from([{"$ref": f"#/$defs/{one}"} for one in onward]) for name, onward in [("", "TUV"), ("T", "UV")]
}
FORM = CHOICE | st.fixed_dictionaries({}, optional={"type": st.just("object"), "then": st.just(False)})
UNION = st.dictionaries(st.sampled_from(UNIONS[:3]), st.lists(CHOICE | LINKS[""], min_size=1, max_size=2), max_size=1)
END = st.dictionaries(st.sampled_from(UNIONS[:3]), st.lists(CHOICE, min_size=1, max_size=2), max_size=1)
CONDITION = st.fixed_dictionaries(
    {},
    optional={
        "if": st.just({"properties": {"a": {"type": "string"}}, "required": ["a"]}),
        "unevaluatedProperties": st.just(False),
    },
)


def united(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda drawn: {word: value for part in drawn for word, value in part.items()})


TABLE = st.fixed_dictionaries(
    {
        "T": united(FORM, CONDITION, LINKS["T"]),
        "U": united(FORM, st.just({"$ref": "#/$defs/V"})),
        "V": united(FORM, END),
    }
)
REFERRING = united(FORM, CONDITION, LINKS[""], UNION, TABLE.map(lambda table: {"$defs": table}))


@pytest.mark.costly
@settings(max_examples=examples(500), deadline=None, database=None, derandomize=True)
@given(own=REFERRING)
def test_a_root_that_refers_never_says_what_the_tool_does_not(own: dict[str, Any]) -> None:
    """Proves: a root's reference, over however many others, with properties and unions beside it or at its end, becomes a copy
    that takes all that the tool takes. What the copy says less stands in the description; Moonshot's declares in a closed
    object what is required there."""
    fitting = [value for value in VALUES if taken(own, value)]
    others = [value for value in VALUES if value not in fitting]
    for dialect in DIALECTS:
        found = fitted_tool(ToolSpec(name="t", parameters=json.dumps(own)), dialect)
        copy = json.loads(found.spec.parameters)
        assert [value for value in fitting if not taken(copy, value)] == [], dialect
        assert not any(word in copy for word in UNIONS)
        if dialect != "standard":
            assert copy["type"] == "object" and ("$ref" not in copy or (dialect == "object" and "type" in own))
            assert found.lost or dialect == "moonshot" or not any(taken(copy, value) for value in others)


@each("dialect", DIALECTS)
def test_a_reference_is_followed_to_what_it_means(dialect: SchemaDialect) -> None:
    """Proves: a root that refers to a string takes no object, whatever the dialect, and percent-encoded names are found."""
    text, table = {"type": "string"}, {"type": "object", "properties": {"a": {"type": "string"}}}
    never: dict[str, Any] = {"$ref": "#/$defs/T", "$defs": {"T": text}}
    assert fitted_tool(ToolSpec(name="t", parameters=json.dumps(never)), dialect).root == "never"
    named: dict[str, Any] = {"$ref": "#/$defs/A%20~1B", "$defs": {"A /B": table}}
    found = fitted_tool(ToolSpec(name="t", parameters=json.dumps(named)), dialect)
    assert found.root == "untold" and found.lost == ""
    assert dialect == "standard" or json.loads(found.spec.parameters)["properties"] == table["properties"]
    sides: dict[str, Any] = {"anyOf": [{"$ref": "#/$defs/A%20B"}], "$defs": {"A B": table}}
    found = fitted_tool(ToolSpec(name="t", parameters=json.dumps(sides)), dialect)
    assert json.loads(found.spec.parameters)["properties"] == table["properties"]


@each("row", [*builtin_dialects(), "openai", "openai-chat", "anthropic", "google"])
def test_each_server_takes_the_tools(row: str) -> None:
    """Proves: the judge of the server refuses none of these schemas as it goes up, nor those of public MCP servers. It refuses
    some of them as they are."""
    profile, judge = builtin_profiles()[row], builtin_dialects().get(row)
    refused: list[str] = []
    for name, schema in [*SCHEMAS.items(), *PUBLIC_SCHEMAS.items()]:
        tool = ToolSpec(name="t", description="D.", parameters=json.dumps(schema))
        request = Request(model="m", messages=(Message("user", (Text("hi"),)),), tools=(tool,))
        body = json.loads(family(profile.family).encode_request(request, profile).body)
        try:
            check(profile.family, body=body, dialect=judge)
        except Rejected as error:
            refused.append(f"{name}: {error.message}")
    assert refused == []
    assert len(PUBLIC_SCHEMAS) == 40


def test_rows_of_the_three_vendors_change_for_a_root_alone() -> None:
    """Proves: without a union at its root a schema goes up as it is, byte for byte; to OpenAI if its root is an object."""
    for name, schema in SCHEMAS.items():
        tool = ToolSpec(name="t", parameters=json.dumps(schema), strict=True)
        if not any(word in schema for word in UNIONS):
            assert fitted_tool(tool).spec is tool, name
            assert (fitted_tool(tool, "object").spec is tool) == (schema.get("type") == "object"), name
    tool = ToolSpec(name="t", parameters='{ "type" : "object" }')
    for row in ("openai", "openai-chat", "azure", "anthropic", "google"):
        profile = builtin_profiles()[row]
        request = Request(model="m", messages=(Message("user", (Text("hi"),)),), tools=(tool,))
        assert tool.parameters.encode() in family(profile.family).encode_request(request, profile).body


def test_a_reference_in_a_result_is_text_for_gemini() -> None:
    """Proves: the API, which reads `$ref` in a result's object as the place of a file, gets such an object as text."""
    said = '{"$ref":"#/components/schemas/Pet","a":1}'
    results = tuple(
        [ToolResult(call_id=id, name="t", content=(Text(text),)) for id, text in (("a", said), ("b", '{"a":1}'))]
    )
    request = Request(model="m", messages=(Message("user", (Text("hi"),)), Message("tool", results)))
    body = json.loads(family("gemini").encode_request(request, builtin_profiles()["google"]).body)
    found = [part["functionResponse"]["response"] for part in body["contents"][-1]["parts"]]
    assert found == [{"result": said}, {"a": 1}]


@pytest.mark.parametrize("row", ["anthropic", "google", "openai", "openai-chat", "moonshot"])
def test_a_long_tool_is_gone_with_its_request(row: str) -> None:
    """Proves: a gateway that gets another long tool with each request keeps the last one at most, whatever family it goes to."""
    profile = builtin_profiles()[row]
    taken: list[int] = []
    tracemalloc.start()
    try:
        for number in range(6):
            long = f"{number}{row}" * 50_000
            parameters = json.dumps({"anyOf": [{"type": "object", "properties": {"a": {}}}], "$id": long})
            for tool in (ToolSpec(name="t", description=long), ToolSpec(name="t", parameters=parameters)):
                request = Request(model="m", messages=(), tools=(tool,))
                assert len(family(profile.family).encode_request(request, profile).body) > 200_000
            del long, parameters, tool, request
            taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert taken[-1] - taken[1] < 200_000
