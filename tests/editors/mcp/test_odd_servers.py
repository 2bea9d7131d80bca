"""Servers that break the protocol in one place: only that place is left out or mended, and it is named."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from strangers import agent_of, offered, results_of, seen, stranger, texts_of, tool_named
from tables import each
from turnwise.testing import call
from turnwise.tools.mcp.protocol_repair import message_in

OBJECT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
ANYTHING = {"type": "object", "properties": {}}


def odd(**given: Any) -> dict[str, Any]:
    return {"name": "odd", "description": "Odd.", **given}


LEFT_OUT = {
    "choice of texts": (odd(inputSchema={"anyOf": [{"type": "string"}]}), "`odd`: its schema has `anyOf` at its root"),
    "choice of references": (
        odd(inputSchema={"type": "object", "oneOf": [OBJECT, {"$ref": "#/$defs/b"}], "$defs": {"a": OBJECT}}),
        "`odd`: its schema has `oneOf` at its root, which providers refuse",
    ),
    "choice in a choice": (
        odd(inputSchema={"type": "object", "allOf": [{"anyOf": [{"required": ["n"]}]}]}),
        "`odd`: its schema has `allOf` at its root",
    ),
    "no choice": (odd(inputSchema={"type": "object", "anyOf": []}), "`odd`: its schema has `anyOf` at its root"),
    "not": (odd(inputSchema={"not": {"type": "string"}}), "`odd`: its schema has `not` at its root"),
    "reference": (odd(inputSchema={"$ref": "#/$defs/a", "$defs": {"a": OBJECT}}), "`odd`: its schema has `$ref`"),
    "text": (odd(inputSchema={"type": "string"}), "`odd`: its schema is not that of an object"),
    "types without object": (odd(inputSchema={"type": ["string", "null"]}), "`odd`: its schema is not that of"),
    "no schema but text": (odd(inputSchema="object"), "`odd`: its schema is no JSON object"),
    "list": (odd(inputSchema=[OBJECT]), "`odd`: its schema is no JSON object"),
    "properties": (
        odd(inputSchema={"type": "object", "properties": {"a": "text"}}),
        "`odd`: its schema cannot be used",
    ),
    "no name": ({"description": "?", "inputSchema": OBJECT}, "``: it has no name"),
    "no object": (5, "``: it has no name"),
    "name of two lines": ({**odd(inputSchema={"type": "string"}), "name": "a\nb"}, "`a\\nb`: its schema is not"),
}
MENDED = {
    "empty": (odd(inputSchema={}), ANYTHING, "`odd`: it has no schema"),
    "null": (odd(inputSchema=None), ANYTHING, "`odd`: it has no schema"),
    "missing": (odd(), ANYTHING, "`odd`: it has no schema"),
    "true": (odd(inputSchema=True), ANYTHING, "`odd`: it has no schema"),
    "no type": (odd(inputSchema={"properties": {}}), {"properties": {}, "type": "object"}, "`odd`: its schema says no"),
    "types": (odd(inputSchema={**OBJECT, "type": ["null", "object"]}), OBJECT, "`odd`: its schema allows other"),
    "empty list": (odd(inputSchema={"type": "object", "properties": []}), ANYTHING, "`odd`: `properties` of its"),
    "nulls": (
        odd(inputSchema={**OBJECT, "required": None, "$schema": None}),
        OBJECT,
        "`odd`: `required`, `$schema` of",
    ),
}
ACCEPTED = {
    "output": odd(inputSchema=OBJECT, outputSchema={"anyOf": [{"type": "string"}]}),
    "hints": odd(inputSchema=OBJECT, annotations={"readOnlyHint": ["yes"]}),
    "beside": odd(inputSchema=OBJECT, icons="none", _meta=5, title=["x"], execution=3),
}


# The schema that a server gives at the root, and the one that is offered. Each left side is refused by Anthropic or OpenAI.
KIND_A, KIND_B = {"const": "a"}, {"const": "b"}
FOLDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "needs": (
        {**OBJECT, "anyOf": [{"required": ["n"]}, {"required": ["m"]}]},
        OBJECT,
    ),
    "objects": (
        {"anyOf": [{**OBJECT, "required": ["n"]}, {**OBJECT, "required": ["n", "m"]}]},
        {**OBJECT, "required": ["n"]},
    ),
    "kinds": (
        {
            "type": "object",
            "required": ["kind"],
            "oneOf": [{"properties": {"kind": KIND_A, **OBJECT["properties"]}}, {"properties": {"kind": KIND_B}}],
        },
        {
            "type": "object",
            "required": ["kind"],
            "properties": {"kind": {"anyOf": [KIND_A, KIND_B]}, "n": {}},  # the other kind leaves it open
        },
    ),
    "all": (
        {**OBJECT, "allOf": [{"required": ["n"]}, {"properties": {"n": {}, "m": {}}, "required": ["m"]}]},
        {**OBJECT, "properties": {**OBJECT["properties"], "m": {}}, "required": ["n", "m"]},
    ),
    "references": (
        {"type": "object", "oneOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": OBJECT}},
        {**OBJECT, "$defs": {"a": OBJECT}},
    ),
    "not": ({**OBJECT, "not": {"required": ["m"]}, "enum": [{}]}, OBJECT),
}


@pytest.mark.parametrize(("given", "schema"), FOLDED.values(), ids=FOLDED)
async def test_a_schema_that_providers_refuse_at_its_root_is_folded(
    tmp_path: Path, given: dict[str, Any], schema: dict[str, Any]
) -> None:
    """Proves: one such tool does not have every request refused. The model reads in its description what its schema says no more,
    and a note names the tool. Its own schema still judges the call."""
    server = stranger(tmp_path, tools=[odd(inputSchema=given)])
    agent, model = agent_of([[call("s__odd", n=1, kind="a", m=2)], "Done."], [server])
    result = await agent.run("Go.")
    told = next(one for one in model.asked[0].tools if one.name == "s__odd")
    left = {word: value for word, value in given.items() if word in ("anyOf", "oneOf", "allOf", "not", "enum")}
    assert msgspec.json.decode(told.parameters) == schema
    said, _, said_schema = told.description.partition("\n\nThe arguments must also fit this JSON Schema: ")
    assert (said, msgspec.json.decode(said_schema)) == ("Odd.", left)
    assert results_of(result)[0].is_error is ("not" in [*given])
    assert (
        f"`odd`: {', '.join(f'`{word}`' for word in left)} at the root of its schema, which providers"
        in result.notes[0]
    )


@pytest.mark.costly
@each(("tool", "why"), LEFT_OUT.values(), ids=LEFT_OUT)
async def test_a_tool_that_breaks_the_protocol_takes_no_other_with_it(tmp_path: Path, tool: Any, why: str) -> None:
    """It alone is left out, and a note names it and the reason in one line."""
    server = stranger(tmp_path, tools=[tool_named("echo"), tool, tool_named("fail")])
    agent, model = agent_of([[call("s__echo", text="hi")], "Done."], [server])
    result = await agent.run("Go.")
    assert offered(model, 0)[:2] == ["s__echo", "s__fail"]
    assert texts_of(result) == ["hi"]
    assert why in result.notes[0]
    assert "\n" not in result.notes[0]


@pytest.mark.costly
@each(("tool", "schema", "why"), MENDED.values(), ids=MENDED)
async def test_a_schema_that_can_only_mean_one_thing_is_mended(
    tmp_path: Path, tool: dict[str, Any], schema: dict[str, Any], why: str
) -> None:
    """The tool is on offer and runs; a note says what was made of its schema."""
    server = stranger(tmp_path, tools=[tool_named("echo"), tool])
    agent, model = agent_of([[call("s__odd", text="hi")], "Done."], [server])
    result = await agent.run("Go.")
    told = next(one for one in model.asked[0].tools if one.name == "s__odd")
    assert (msgspec.json.decode(told.parameters), told.description) == (schema, "Odd.")
    assert texts_of(result) == ["hi"]
    assert "the schemas of some of its tools were mended" in result.notes[0]
    assert why in result.notes[0]


@pytest.mark.parametrize("tool", ACCEPTED.values(), ids=ACCEPTED)
async def test_what_turnwise_does_not_read_of_a_tool_may_be_odd(tmp_path: Path, tool: dict[str, Any]) -> None:
    """An output schema, an icon, a hint that is no boolean: it says nothing, and the tool is offered as it is."""
    server = stranger(tmp_path, tools=[tool], trusts_hints=True)
    agent, model = agent_of(["Done."], [server])
    result = await agent.run("Go.")
    assert offered(model, 0)[0] == "s__odd"
    assert result.notes == ()
    async with server:
        assert server.listing is not None
        assert server.listing.tools[0].offer.effect == "execute"


async def test_odd_prompts_take_no_tools_away(tmp_path: Path) -> None:
    """A prompt that breaks the protocol is not there. A server that says it has prompts, and knows no such method, has none."""
    for habit, names in (("odd prompts", ["greet"]), ("no prompts", [])):
        server = stranger(tmp_path / habit, habit, tools=[tool_named("echo")])
        async with server:
            assert server.listing is not None
            assert [one.own_name for one in server.listing.tools] == ["echo"]
            assert [one.own_name for one in server.listing.prompts] == names
            no_prompts = ("the MCP server `s`: its prompts cannot be listed: error -32601",)
            assert server.shortcomings == (no_prompts if habit == "no prompts" else ())


NOTE = {"uri": "note://1", "name": "one"}
SAYS = {"uri": "note://1", "text": "hello"}
LISTS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "resources": (
        "resources",
        [NOTE, 5, {"name": "no address"}, {**NOTE, "size": "large", "annotations": 5, "description": ["x"]}, None],
        [NOTE, NOTE],
    ),
    "prompts": (
        "prompts",
        [{"name": "greet"}, {"name": 5}, "greet", {"name": "b", "title": 7}],
        [{"name": "greet"}, {"name": "b"}],
    ),
    "contents": (
        "contents",
        [SAYS, {**SAYS, "mimeType": 5, "_meta": []}, {"uri": "note://2", "text": 5}, "hello"],
        [
            SAYS,
            SAYS,
            {"uri": "note://2", "text": "[contents that break the protocol: left out]"},
            {"uri": "", "text": "[contents that break the protocol: left out]"},
        ],
    ),
    "messages": (
        "messages",
        [{"role": "robot", "content": {"type": "text", "text": "a"}}, {"role": "assistant", "content": {"type": "film"}}],
        [
            {"role": "user", "content": {"type": "text", "text": "a"}},
            {
                "role": "assistant",
                "content": {"type": "text", "text": "[content of the type `film`: left out, as turnwise does not know the type]"},
            },
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "given", "left"), LISTS.values(), ids=LISTS)
def test_an_odd_element_takes_no_other_of_its_list_with_it(name: str, given: list[Any], left: list[Any]) -> None:
    """What only describes it goes; what cannot be read is not there, or has a stand-in. The others stay as they came."""
    line = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": {name: given}})
    read = message_in(line)
    assert read is not None and isinstance(read.message, JSONRPCResponse)
    assert read.message.result[name] == left


def test_a_broken_request_of_a_server_answers_no_call_of_ours() -> None:
    """Proves: both sides count their ids from 1. An answer that is none ends its call, a request that is none is no answer."""
    read = message_in(b'{"jsonrpc":"2.0","id":1}')
    assert read is not None and isinstance(read.message, JSONRPCError) and read.message.id == 1
    assert message_in(b'{"jsonrpc":"2.0","id":1,"method":5}') is None


async def test_an_odd_resource_leaves_the_others_in_their_list(tmp_path: Path) -> None:
    """Proves: a resource without an address is not listed, and no name makes a line that looks like another resource."""
    server = stranger(tmp_path, "odd resources", tools=[tool_named("echo")])
    agent, _ = agent_of([[call("s__list_resources")], "Done."], [server])
    result = await agent.run("Go.")
    assert texts_of(result)[0].split("\n") == ["note://0 (zero<U+000A>note://9 (nine))", "note://1 (one)"]
    assert not results_of(result)[0].is_error


TEXT = {"type": "text", "text": "a"}
RESULTS = {
    "unknown type": ({"content": [TEXT, {"type": "video", "data": "x"}, TEXT]}, "a[content of the type `video`: left"),
    "no type": ({"content": [{"data": "x"}, TEXT]}, "[content without a type: left out, as turnwise does not know the"),
    "no object": ({"content": [TEXT, "b", None]}, "a[content without a type"),
    "half an image": (
        {"content": [{"type": "image", "data": 5}]},
        "[content of the type `image`: left out, as it breaks",
    ),
    "a field under another name": (
        {"content": [{"type": "image", "data": "iVBORw0KGgo=", "mime_type": "image/png"}, TEXT]},
        "[content of the type `image`: left out, as it breaks",
    ),
    "a link whose name has lines": (
        {"content": [{"type": "resource_link", "uri": "note://1", "name": "one)]\n[resource note://2 (two"}]},
        "[resource note://1 (one)]<U+000A>[resource note://2 (two)]",
    ),
    "odd annotations": ({"content": [{**TEXT, "annotations": {"audience": ["everybody"]}}]}, "a"),
    "a list beside": ({"content": [TEXT], "structuredContent": [1]}, "a"),
    "a list alone": ({"structuredContent": [1, "é"]}, '[1, "é"]'),
    "an object alone": ({"structuredContent": {"n": 1}}, '{"n":1}'),
    "nulls": ({"content": [TEXT], "isError": None, "_meta": None, "structuredContent": None}, "a"),
}


@pytest.mark.costly
@each(("given", "told"), RESULTS.values(), ids=RESULTS)
async def test_content_that_cannot_be_read_has_a_stand_in(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    """The stand-in names the type; the rest of the result stays, and the call is no failure: it was done."""
    server = stranger(tmp_path, tools=[tool_named("given")])
    agent, _ = agent_of([[call("s__given", result=given)], "Done."], [server])
    result = await agent.run("Go.")
    assert texts_of(result)[0].startswith(told)
    assert not results_of(result)[0].is_error
    assert seen(tmp_path).count("call given") == 1
