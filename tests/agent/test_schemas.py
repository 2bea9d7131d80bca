"""Types as JSON Schema for a provider's strict mode, and back."""

import json
from typing import Annotated, Any, Literal

import pydantic
import pytest

from tables import each
from turnwise.agent.schemas import read_output_type
from turnwise.errors import CallerError


class Plain(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    sizes: list[int]


class Defaulted(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = "x"


class Node(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    next: "Node | None"


class Cat(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["dog"]


class Pet(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    animal: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@each(
    ("wanted", "strict"),
    [
        (Plain, True),
        (Node, True),
        (list[int], True),
        (Cat | Dog, True),
        (Defaulted, False),
        (Pet, False),
        (tuple[int, str], False),
        (set[int], False),
        (list[Any], False),
        ({"type": "object"}, False),
        ({}, False),
        ({"type": "array", "items": {"type": "string"}}, False),
    ],
    ids=str,
)
def test_strict_mode_is_asked_for_only_where_a_provider_takes_the_schema(wanted: object, strict: bool) -> None:
    """An object at the root, every object closed, every property required, no word that strict mode does not know."""
    assert read_output_type(wanted).schema.strict is strict


def test_a_recursive_model_has_its_object_at_the_root() -> None:
    """Providers refuse a `$ref` there."""
    schema = json.loads(read_output_type(Node).schema.schema)
    assert schema["type"] == "object" and schema["properties"].keys() == {"name", "next"} and "Node" in schema["$defs"]
    parsed = read_output_type(Node).parse('{"name":"a","next":{"name":"b","next":null}}')
    assert isinstance(parsed, Node) and parsed.next is not None and parsed.next.name == "b"


def test_other_roots_are_wrapped_and_unwrapped() -> None:
    """A union and a list come back as themselves."""
    assert read_output_type(list[int]).parse('{"value":[1,2]}') == [1, 2]
    assert read_output_type(Cat | Dog).parse('{"value":{"kind":"dog"}}') == Dog(kind="dog")


def test_a_schema_that_reaches_out_or_is_none_is_refused() -> None:
    """Nothing is fetched."""
    with pytest.raises(CallerError, match="no usable JSON Schema"):
        read_output_type({"$ref": "https://example.org/schema.json"})
    with pytest.raises(CallerError, match="JSON Schema"):
        read_output_type({"type": "nonsense"})


def test_several_output_types_are_told_as_a_union() -> None:
    """Issue 44: `[A, B]` is pydantic-ai's spelling; the error spoke of schemas."""
    for several in ([Cat, Dog], (Cat, Dog)):
        with pytest.raises(CallerError, match=r"Give several as a union: `output_type=Cat \| Dog`"):
            read_output_type(several)
