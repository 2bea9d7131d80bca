"""Calls in the text as public issues report them (`text_call_shapes.toml`)."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tables import each
from text_calls import read_text
from turnwise.vocab import ToolSpec

SHAPES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("text_call_shapes.toml").read_text(encoding="utf-8")
)["shape"]
TYPES = {"a": "integer", "b": "integer", "days": "integer"}
TOOLS = tuple(
    [
        ToolSpec(
            name=name,
            parameters=json.dumps(
                {"type": "object", "properties": {key: {"type": TYPES.get(key, "string")} for key in keys.split()}}
            ),
        )
        for name, keys in {
            "get_weather": "city unit days",
            "list_tables": "",
            "add": "a b",
            "read": "path",
            "lookup": "repo",
            "Bash": "command",
            "list_directory": "path",
        }.items()
    ]
)


@pytest.mark.costly
@each("shape", SHAPES, ids=[f"{one['issue']}: {one['what']}" for one in SHAPES])
def test_a_shape_from_a_public_issue_is_read_as_its_reporter_wanted(shape: dict[str, Any]) -> None:
    """Done when 1: twenty shapes from public issues are among the cases, streamed in any way and whole."""
    unmarked, text = shape.get("mode") == "on", shape["text_in"]
    found = read_text(text, tools=TOOLS, unmarked=unmarked)
    assert found.calls == [(name, json.loads(given)) for name, given in shape["calls"]]
    assert found.states == shape.get("states", ["complete"] * len(shape["calls"]))
    assert (found.text, found.shown_text) == (shape["text"], shape["text"])
    for pieces in (list(text), *[[text[:at], text[at:]] for at in range(len(text))]):
        assert read_text(pieces, tools=TOOLS, unmarked=unmarked).outcome == found.outcome


def test_every_shape_names_its_issue() -> None:
    """Done when 1: twenty at least."""
    issues = {one["issue"] for one in SHAPES}
    assert len(issues) >= 20 and all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", issue) for issue in issues)
