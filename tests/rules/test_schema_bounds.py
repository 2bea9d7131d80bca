"""Schemas from outside are measured before they are used: those that could hold up the process are refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import Tool

from relay.asking_relay import FAMILIES, PLAIN, path_of
from turnwise.agent.schemas import read_output_type
from turnwise.errors import CallerError
from turnwise.relay.client_request import RequestRefused, read_client_request, refusal_answer
from turnwise.rules.schema import MAX_ERRORS, fault_of_schema, schema_errors
from turnwise.settings.mcp_files import ServerCommand, ServerEntry
from turnwise.tools.mcp.offered_tools import read_tools
from turnwise.vocab.schema_bounds import SchemaTooCostly, cost_fault, read_schema

pytestmark = pytest.mark.promise("safe:bounded")


def doubled(levels: int) -> dict[str, Any]:
    """Each level names the one below it twice: 2^levels checks of one value."""
    texts: dict[str, Any] = {"0": {"type": "string"}}
    for level in range(1, levels + 1):
        texts[str(level)] = {"allOf": [{"$ref": f"#/$defs/{level - 1}"}] * 2}
    return {"type": "object", "properties": {"a": {"$ref": f"#/$defs/{levels}"}}, "$defs": texts}


def nested(levels: int) -> dict[str, Any]:
    """Without a reference: each level runs the one inside it again to see what it left unevaluated."""
    schema: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return {"type": "object", **schema}


def through_ids() -> dict[str, Any]:
    """Doubled 27 times by ids, anchors and escaped pointers in turn."""
    texts: dict[str, Any] = {"d0": {"$id": "d0", "$anchor": "a0", "type": "string"}}
    for level in range(1, 28):
        below = [f"d{level - 1}", f"#/$defs/%64{level - 1}"]
        texts[f"d{level}"] = {"$id": f"d{level}", "allOf": [{"$ref": below[0]}, {"$ref": below[0]}]}
    return {"$id": "https://x.example/", "type": "object", "properties": {"a": {"$ref": "d27"}}, "$defs": texts}


COSTLY = {
    "19 levels": doubled(19),
    "27 levels": doubled(27),
    "40 levels": doubled(40),
    "unevaluated": nested(18),
    "ids": through_ids(),
    "circle": {"type": "object", "allOf": [{"$ref": "#"}]},
    "patterns": {"type": "object", "properties": {"a": {"allOf": [{"pattern": "(?=(a+)+b)c"}] * 21}}},
}


@pytest.mark.parametrize("schema", COSTLY.values(), ids=COSTLY)
def test_a_costly_schema_is_refused_with_its_place_and_bound(schema: dict[str, Any]) -> None:
    """Nothing is compiled or checked; doubled references took 3 s at 27 levels and never ended at 40."""
    fault = cost_fault(json.dumps(schema))
    assert fault is not None and fault.startswith("at `#")
    with pytest.raises(SchemaTooCostly):
        read_schema(json.dumps(schema))
    with pytest.raises(CallerError, match="at `#"):
        read_output_type(schema)


def test_a_server_loses_only_the_tool_whose_schema_is_costly() -> None:
    tools = [Tool(name=name, input_schema=schema) for name, schema in {**COSTLY, "plain": {"type": "object"}}.items()]
    found, left_out = read_tools(
        tools, entry=ServerEntry(name="s", reached=ServerCommand(argv=("x",), folder=Path("/")))
    )
    assert [tool.own_name for tool in found] == ["plain"]
    assert [why.partition(":")[0] for why in left_out] == [f"`{name}`" for name in COSTLY]
    at_root = {"unevaluated", "circle"}  # left out before their cost is looked at
    whys = {name: "`allOf` at its root" if name in at_root else "its schema cannot be used: at `#" for name in COSTLY}
    assert all(why in told for why, told in zip(whys.values(), left_out, strict=True)), left_out


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("schema", COSTLY.values(), ids=COSTLY)
def test_a_client_with_a_costly_schema_gets_a_400_of_its_family(family: Any, schema: dict[str, Any]) -> None:
    tools: dict[str, list[dict[str, Any]]] = {
        "openai_chat": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "openai_responses": [{"type": "function", "name": "f", "parameters": schema, "strict": False}],
        "anthropic_messages": [{"name": "f", "input_schema": schema}],
        "gemini": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": schema}]}],
    }
    body = json.dumps({**PLAIN[family], "tools": tools[family]}).encode()
    with pytest.raises(RequestRefused, match="tool `f` cannot be checked: at `#") as refused:
        read_client_request(path_of(family), body)
    status, answer = refusal_answer(refused.value, client=family)
    assert status == 400 and b"tool `f`" in answer


def test_a_value_with_very_many_errors_gets_the_first() -> None:
    """The validator collects all errors before the first one is read; 19 levels took 16 s and 2.6 GB."""
    assert schema_errors(json.dumps(doubled(12)), value={"a": 1}) == (
        "`$.a`: expected string, got 1",
        "... and there may be more",
    )
    few = schema_errors('{"items":{"type":"string"}}', value=list(range(MAX_ERRORS + 5)))
    assert few[-1] == "... and 5 more"


def test_a_pattern_that_looks_around_reads_no_long_text() -> None:
    """`(?=(a+)+b)c` took 4.8 s."""
    schema = '{"properties":{"a":{"pattern":"(?=(a+)+b)c"}}}'
    assert "breaks `pattern`" in schema_errors(schema, value={"a": "a" * 100})[0]
    assert "would take too long" in schema_errors(schema, value={"a": "a" * 200_000})[0]
    assert schema_errors('{"properties":{"a":{"pattern":"^(?!x)y"}}}', value={"a": "y"}) == ()


def test_a_value_nested_too_deeply_for_a_schema_that_doubles_inside_is_refused() -> None:
    twice = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}
    value: dict[str, Any] = {}
    for _ in range(40):
        value = {"a": value}
    assert fault_of_schema(json.dumps(twice)) is None
    assert schema_errors(json.dumps(twice), value={"a": {"a": {}}}) == ()
    assert "would take too long" in schema_errors(json.dumps(twice), value=value)[0]


def words(**words: Any) -> dict[str, Any]:
    """A subschema with them, doubled on six levels."""
    return {**doubled(6), "$defs": {**doubled(6)["$defs"], "0": words}}


@pytest.mark.parametrize(
    "schema",
    [
        words(multipleOf=1e-300),
        words(properties={f"k{at}": {} for at in range(4000)}),
        words(dependentRequired={f"k{at}": [f"k{other}" for other in range(50)] for at in range(50)}),
        words(enum=[[]] * 9000),
        words(required=[f"k{at}" for at in range(4000)]),
    ],
    ids=["multipleOf", "properties", "dependentRequired", "enum", "required"],
)
def test_words_count_as_much_as_they_take(schema: dict[str, Any]) -> None:
    """Each counted as one check, and took up to 16 us or looked up thousands of names: an array of 50 values took seconds."""
    fault = cost_fault(json.dumps(schema))
    assert fault is not None and "one value can take more than 20,000 checks" in fault


@pytest.mark.parametrize(
    "pattern",
    [r"(\p{L}{50}){2}x", r"(a{100}){10}", r"(?:[^a]{1,100}b?){20}", r"(?i)(\w{40}){20}", r"(?=(\p{L}{50}){2})"],
    ids=["property", "nested", "negated", "any case", "looks around"],
)
def test_patterns_have_a_bound_with_their_repetitions(pattern: str) -> None:
    r"""4 KB of `(\p{L}{50}){2}` took 6.7 s and 490 MB to compile; a hundred usual patterns are no matter."""
    many = {"type": "object", "properties": {f"p{at}": {"pattern": f"{pattern}{at}"} for at in range(300)}}
    fault = cost_fault(json.dumps(many))
    assert fault is not None and fault.startswith("at `#/properties/p") and "patterns are too long" in fault
    usual = [r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", r"^[\p{L} ]{1,100}$", r"^\S+@\S+$", r"^.{1,500}$"]
    few = {"type": "object", "properties": {str(at): {"pattern": one} for at, one in enumerate(usual)}}
    assert fault_of_schema(json.dumps(few)) is None


def test_the_schemas_of_a_request_have_a_bound_together() -> None:
    """A thousand tools, each just below the bound, took minutes."""
    tools = [
        {"type": "function", "function": {"name": f"t{at}", "parameters": {**doubled(9), "title": f"{at}"}}}
        for at in range(1000)
    ]
    with pytest.raises(RequestRefused, match="the schemas of the request have more than 20,000 uses"):
        read_client_request(path_of("openai_chat"), json.dumps({**PLAIN["openai_chat"], "tools": tools}).encode())


def test_what_is_kept_of_schemas_has_a_bound() -> None:
    """Twenty schemas of 250 KB were kept with 660 MB."""
    first = read_schema('{"title":"first"}')
    assert read_schema('{"title":"first"}') is first
    for at in range(2_500):
        read_schema(json.dumps({"title": f"{at}"}))
    assert read_schema('{"title":"first"}') is not first


def test_a_long_text_beside_a_pattern_that_looks_around_costs_little() -> None:
    """Only the texts that the pattern reads count."""
    schema = {"type": "object", "properties": {"path": {"pattern": "^(?!/)"}, "content": {"type": "string"}}}
    assert schema_errors(json.dumps(schema), value={"path": "a", "content": "x" * 5_000_000}) == ()
    assert "send a shorter one" in schema_errors('{"pattern":"(?<!a)b"}', value="a" * 3_000)[0]


TYPES = st.sampled_from([{"type": "string"}, {"type": "integer"}, {"$ref": "#"}, {"$ref": "#/$defs/a"}, {"enum": [1]}])
SCHEMAS = st.recursive(
    TYPES,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {}, optional={word: st.lists(inner, min_size=1, max_size=3) for word in ("allOf", "anyOf")}
        ),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3)}),
        st.fixed_dictionaries({"items": inner}),
    ),
    max_leaves=12,
)
VALUES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


def count(schema: Any, value: Any, *, root: dict[str, Any]) -> int:
    """How many checks a validator makes that never stops early."""
    found = 1
    if "$ref" in schema:
        found += count(root if schema["$ref"] == "#" else root["$defs"]["a"], value, root=root)
    for word in ("allOf", "anyOf"):
        found += sum(count(one, value, root=root) for one in schema.get(word, ()))
    if isinstance(value, dict):
        found += sum(
            count(one, value[name], root=root) for name, one in schema.get("properties", {}).items() if name in value
        )
    if isinstance(value, list) and "items" in schema:
        found += sum(count(schema["items"], one, root=root) for one in value)
    return found


@given(SCHEMAS, SCHEMAS, VALUES)
def test_no_value_takes_more_checks_than_were_counted(
    schema: dict[str, Any], other: dict[str, Any], value: Any
) -> None:
    root = {**schema, "$defs": {"a": other}}
    if cost_fault(json.dumps(root)) is not None:
        return
    cost = read_schema(json.dumps(root)).cost(value)
    if cost is not None and not cost.is_too_much:
        assert count(root, value, root=root) <= cost.checks
