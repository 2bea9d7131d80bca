"""Plain typed functions as tools: what the model is told of them, and how its arguments reach them."""

import enum
import json
from typing import Annotated, Literal

import pydantic
import pytest

from turnwise import BadTool, ToolFault, ToolSpec, tool
from turnwise.agent.tools import FunctionTool, read_tools
from turnwise.errors import CallerError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(pydantic.BaseModel):
    city: str
    title: str = "none"


def schema_of(made: FunctionTool[..., object]) -> dict[str, object]:
    return json.loads(made.tool.offer.spec.parameters)


def test_a_typed_function_is_described_by_its_hints_and_docstring() -> None:
    """Name, text before the sections, each parameter's type, default and description; no automatic titles."""

    @tool
    def weather(city: str, days: int = 1, unit: Literal["c", "f"] = "c") -> str:
        """Tell the weather.

        Two lines of it.

        Args:
            city: The city's name,
                in English.
            days: How many days ahead.
        """
        return f"{city} {days} {unit}"

    spec = weather.tool.offer.spec
    assert (spec.name, spec.description) == ("weather", "Tell the weather.\n\nTwo lines of it.")
    assert schema_of(weather) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "city": {"type": "string", "description": "The city's name, in English."},
            "days": {"type": "integer", "default": 1, "description": "How many days ahead."},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
        },
        "required": ["city"],
    }
    assert weather("Rome", 2) == "Rome 2 c", "the function can still be called as before"


@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\nArgs:\n    a: The a.",
        "Do it.\n\nParameters\n----------\na : int\n    The a.",
        "Do it.\n\n:param a: The a.",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_three_docstring_styles_are_read(docstring: str) -> None:
    """The parameter's text reaches the model whichever style is used."""

    def act(a: int) -> None: ...

    act.__doc__ = docstring
    made = tool(act)
    assert made.tool.offer.spec.description == "Do it."
    assert schema_of(made)["properties"] == {"a": {"type": "integer", "description": "The a."}}


def test_arguments_are_converted_to_the_declared_types() -> None:
    """Models, enums and positional-only parameters arrive as the function declares them."""

    @tool
    def visit(place: Place, /, colour: Colour, *, notes: list[str] | None = None, **more: int) -> str:
        return f"{place!r} {colour} {notes} {more}"

    assert visit.tool.function is not None
    said = visit.tool.function({"place": {"city": "Rome"}, "colour": "red", "x": 1})
    assert said == "Place(city='Rome', title='none') Colour.RED None {'x': 1}"


def test_arguments_that_do_not_fit_are_told_all_at_once_without_their_values() -> None:
    """pydantic's own checks beyond JSON Schema become the result's words; the values are not echoed."""

    @tool
    def pay(amount: Annotated[int, pydantic.AfterValidator(lambda value: 1 // (value > 0) * value)], to: str) -> str:
        return f"{amount} {to}"

    assert pay.tool.function is not None
    with pytest.raises(ToolFault) as raised:
        pay.tool.function({"amount": "many-secret", "to": 3})
    text = str(raised.value)
    assert "- amount:" in text and "- to:" in text and "many-secret" not in text


async def test_an_async_function_is_awaited() -> None:
    """The same for `async def`."""

    @tool(name="later", effect="read", idempotent=True, timeout_s=3)
    async def act(a: int) -> int:
        return a + 1

    assert act.tool.function is not None
    waiting = act.tool.function({"a": 1})
    assert await waiting == 2  # pyright: ignore[reportGeneralTypeIssues]
    offer = act.tool.offer
    assert (offer.spec.name, offer.effect, offer.idempotent, offer.timeout_s) == ("later", "read", True, 3)


def test_a_function_that_cannot_be_described_is_refused_with_the_reason() -> None:
    """BadTool names the tool and the parameter."""

    def untyped(a) -> None: ...
    def many(*a: int) -> None: ...
    def strange(a: object.__class__) -> None: ...

    with pytest.raises(BadTool, match="`untyped`: the parameter `a` needs a type hint"):
        tool(untyped)
    with pytest.raises(BadTool, match=r"`\*a` cannot be described"):
        tool(many)
    with pytest.raises(BadTool, match="strange"):
        tool(strange)
    with pytest.raises(BadTool, match="no name for a tool"):
        tool(lambda: None)
    with pytest.raises(BadTool, match="no name for a tool"):
        tool(name="with space")(many)


def test_an_agents_tools_may_be_given_in_four_ways() -> None:
    """A @tool, a plain function, a Tool and a bare ToolSpec, which is a client-side one; two of one name are refused."""

    def plain(a: int) -> int:
        return a

    @tool
    def decorated(a: int) -> int:
        return a

    spec = ToolSpec(name="elsewhere")
    made = read_tools([plain, decorated, spec])
    assert [(one.name, one.offer.client_side) for one in made] == [
        ("plain", False),
        ("decorated", False),
        ("elsewhere", True),
    ]
    assert read_tools([made[0]]) == (made[0],)
    with pytest.raises(CallerError, match="two tools are called `plain`"):
        read_tools([plain, plain])
    with pytest.raises(BadTool, match="is no tool"):
        read_tools([3])  # pyright: ignore[reportArgumentType]
