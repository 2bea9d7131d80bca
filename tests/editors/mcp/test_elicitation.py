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


@pytest.mark.parametrize("said", ["", "y", " YES ", "no", "n", "perhaps"])
async def test_only_a_yes_agrees_to_an_address(said: str) -> None:
    """An empty answer to an approval is its yes; any other word is no."""
    address = ElicitRequestURLParams(message="Go there", url="https://h.example", elicitation_id="e")
    result = await elicit(address, server="s", asker=Person(said))
    assert result.action == ("accept" if said.strip().lower() in {"", "y", "yes"} else "decline")
