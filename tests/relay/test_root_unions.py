"""Schemas that providers refuse for what stands at their root, on their way through the gateway."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from turnwise.relay.fitting import fold_root
from turnwise.vocab import ToolSpec
from turnwise.wire.profiles import FamilyName

UNION: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "anyOf": [
        {"properties": {"title": {"type": "string"}}, "required": ["title"]},
        {"properties": {"title": {"type": "integer"}}, "required": ["id"]},
    ],
}


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_a_union_at_the_root_of_a_schema_goes_as_an_object(target: FamilyName) -> None:
    """Proves: the properties of all choices are there, the description says what the copy cannot, and nothing is strict; Chat
    Completions always gets `properties`."""
    tool = ToolSpec(name="a", description="Does it.", parameters=json.dumps(UNION), strict=True)
    folded, is_folded = fold_root(tool, target=target)
    schema = json.loads(folded.parameters)
    either = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert (is_folded, folded.strict) == (True, False)
    assert schema == {"type": "object", "properties": {"title": either, "id": {"type": "string"}}}
    assert folded.description.startswith('Does it.\n\nThe arguments must also fit this JSON Schema: {"anyOf":')
    bare = ToolSpec(name="a", parameters="{}")
    expected = '{"type":"object","properties":{}}' if target == "openai_chat" else "{}"
    assert fold_root(bare, target=target) == (replace(bare, parameters=expected), False)
