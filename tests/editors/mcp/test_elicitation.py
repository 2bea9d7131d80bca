"""What a person answers to a server's form, as the server gets it: typed as the field says, and nothing that it did not offer."""

from collections.abc import Sequence
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams

from tables import each
from turnwise import Approval
from turnwise.tools.mcp.elicitation import elicit


class Person:
    """Gives these answers, one after the other; the choices that they were offered."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.offered: list[Sequence[str]] = []

    async def ask(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        self.offered.append(options)
        return Approval(call_id="", verdict="allow", text=self._answers.pop(0), by="person")


COLOURS = [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]
FIELDS: dict[str, tuple[dict[str, Any], list[str], tuple[str, ...], Any]] = {
    "no": ({"type": "boolean"}, ["no"], ("yes", "no"), False),
    "titles": ({"type": "string", "oneOf": COLOURS}, ["Blue"], ("Red", "Blue"), "b"),
    "values": ({"type": "string", "oneOf": COLOURS}, ["r"], ("Red", "Blue"), "r"),
    "names": ({"enum": ["r", "b"], "enumNames": ["Red"]}, ["Red"], ("Red", "b"), "r"),
    "several": ({"type": "array", "items": {"anyOf": COLOURS}}, ["Red, b"], ("Red", "Blue"), ["r", "b"]),
    "several of any": ({"type": "array", "items": {"type": "string"}}, ["a, b"], (), ["a", "b"]),
    "one of several is none": ({"type": "array", "items": {"enum": ["r"]}}, ["r,x", "x"], ("r",), None),
    "numbers": ({"type": "integer", "enum": [1, 2]}, ["2"], (), 2),
    "no number": ({"type": "number"}, ["nan", "inf"], (), None),
    "a half": ({"type": "number"}, ["0.5"], (), 0.5),
}


@each(("field", "answers", "offered", "value"), FIELDS.values(), ids=FIELDS)
async def test_an_answer_is_what_its_field_may_hold(
    field: dict[str, Any], answers: list[str], offered: tuple[str, ...], value: Any
) -> None:
    """A title stands for its value, a comma divides several, and what is none of the choices is asked for once more."""
    schema = {"type": "object", "properties": {"f": {**field, "title": ["no", "text"]}}, "required": ["f"]}
    person = Person(*answers)
    result = await elicit(ElicitRequestFormParams(message="Which?", requested_schema=schema), server="s", asker=person)
    assert [tuple(one) for one in person.offered] == [offered] * len(answers)
    expected = ("cancel", None) if value is None else ("accept", {"f": value})
    assert (result.action, result.content) == expected


DEFAULTS: dict[str, tuple[dict[str, Any], tuple[str, ...], Any]] = {
    "text": ({"type": "string", "default": "Ada"}, ("Ada",), "Ada"),
    "whole number": ({"type": "integer", "default": 30}, ("30",), 30),
    "number": ({"type": "number", "default": 95.5}, ("95.5",), 95.5),
    "yes": ({"type": "boolean", "default": True}, ("yes", "no"), True),
    "no": ({"type": "boolean", "default": False}, ("no", "yes"), False),
    "value": ({"type": "string", "enum": ["a", "b"], "default": "b"}, ("b", "a"), "b"),
    "title": ({"type": "string", "oneOf": COLOURS, "default": "b"}, ("Blue", "Red"), "b"),
    "several": (
        {"type": "array", "items": {"anyOf": COLOURS}, "default": ["b", "r"]},
        ("Blue, Red", "Red", "Blue"),
        ["b", "r"],
    ),
}
NO_DEFAULTS: list[dict[str, Any]] = [
    {"type": "integer", "default": "many"},
    {"type": "integer", "default": True},
    {"type": "string", "enum": ["a"], "default": "b"},
    {"type": "string", "default": " padded "},
    {"type": "string", "default": ["a"]},
    {"type": "array", "items": {"type": "string"}, "default": ["a,b"]},
    {"type": "string", "default": None},
    {"type": "string", "default": ""},
]


@each(("field", "offered", "value"), DEFAULTS.values(), ids=DEFAULTS)
async def test_a_fields_default_is_shown_and_offered_first(
    field: dict[str, Any], offered: tuple[str, ...], value: Any
) -> None:
    """The person takes it like any choice; other words stay possible."""
    schema = {"type": "object", "properties": {"f": field}, "required": ["f"]}
    person = Person(offered[0])
    result = await elicit(ElicitRequestFormParams(message="Which?", requested_schema=schema), server="s", asker=person)
    assert tuple(person.offered[0]) == offered
    assert (result.action, result.content) == ("accept", {"f": value})


@each("field", NO_DEFAULTS)
async def test_a_default_that_its_field_may_not_hold_is_not_offered(field: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"f": field}}
    person = Person("-")
    await elicit(ElicitRequestFormParams(message="Which?", requested_schema=schema), server="s", asker=person)
    assert field.get("default") not in person.offered[0] or field["default"] is None
    assert len(person.offered[0]) == (2 if "enum" in field else 0)


@pytest.mark.parametrize("said", ["", "y", " YES ", "no", "n", "perhaps"])
async def test_only_a_yes_agrees_to_an_address(said: str) -> None:
    """An empty answer to an approval is its yes; any other word is no."""
    address = ElicitRequestURLParams(message="Go there", url="https://h.example", elicitation_id="e")
    result = await elicit(address, server="s", asker=Person(said))
    assert result.action == ("accept" if said.strip().lower() in {"", "y", "yes"} else "decline")
