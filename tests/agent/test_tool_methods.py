"""`@tool` on the methods of a class: each object has its tools, and the model sees no `self`."""

import json
from types import MethodType
from typing import Any

import pytest

from flat_agents import flat_agent
from turnwise import BadTool, RunContext, tool
from turnwise.agent.tools import FunctionTool, read_tools
from turnwise.testing import ScriptedModel, call


class Shop:
    """A shop with some methods as tools."""

    named = "the shop"

    def __init__(self, stock: int) -> None:
        self.stock = stock

    @tool
    def count(self, name: str) -> str:
        """Count the pieces of a fruit."""
        return f"{self.stock} {name}"

    @tool(name="look", effect="read")
    async def look_around(self, context: RunContext[int], /, place: str = "here") -> str:
        """Look around."""
        return f"{self.stock + context.deps} at {place}"

    @classmethod
    @tool
    def name_of(cls, number: int) -> str:
        """Name the shop."""
        return f"{cls.named} {number}"

    @staticmethod
    @tool
    def twice(number: int) -> int:
        """Double it."""
        return number * 2


class SmallShop(Shop):
    named = "the small shop"


def schema_of(made: FunctionTool[..., Any]) -> dict[str, Any]:
    return json.loads(made.tool.offer.spec.parameters)


def said_by(lines: list[Any], *tools: Any, **options: Any) -> str:
    model = ScriptedModel([*lines, "Done."])
    agent = flat_agent("openai_chat:scripted", base_url=model.endpoint.base_url, transport=model, tools=tools)
    return str(agent.run_sync("Go.", **options).new_messages)


def test_each_object_has_the_tool() -> None:
    """Two objects answer by their own state; a subclass inherits the tool."""
    assert "3 pears" in said_by([call("count", name="pears")], Shop(3).count)
    assert "1 pears" in said_by([call("count", name="pears")], SmallShop(1).count)
    assert schema_of(Shop(3).count)["properties"] == {"name": {"type": "string"}}


def test_a_method_can_still_be_called() -> None:
    """On its object, and through its class with the object first."""
    shop = Shop(3)
    assert shop.count("pears") == "3 pears" == Shop.count(shop, "pears")
    assert Shop.twice(4) == 8
    assert SmallShop.name_of(1) == "the small shop 1"  # pyright: ignore[reportCallIssue]


def test_the_context_comes_after_the_object() -> None:
    """The model sees neither of them."""
    assert "10 at the door" in said_by([call("look", place="the door")], Shop(3).look_around, deps=7)
    assert list(schema_of(Shop(3).look_around)["properties"]) == ["place"]


def test_a_method_without_its_object_is_a_bad_tool() -> None:
    """The error says how to give the object."""
    with pytest.raises(
        BadTool, match=r"`Shop\.count` is a method, and a tool needs its object: give `tools=\[the_object"
    ):
        read_tools([Shop.count])


def test_class_methods_and_static_methods_are_tools_too() -> None:
    """`@tool` stands below; above, it says so. Python 3.13 gives a class method as a `MethodType` of the tool."""
    assert "the small shop 1" in said_by([call("name_of", number=1)], SmallShop.name_of)
    as_newer = MethodType(vars(Shop)["name_of"].__func__, SmallShop)
    assert "the small shop 1" in said_by([call("name_of", number=1)], as_newer)
    assert "8" in said_by([call("twice", number=4)], Shop.twice)
    for kind in (classmethod, staticmethod):
        with pytest.raises(BadTool, match=f"`@tool` stands above `@{kind.__name__}`: put `@tool` below it"):
            tool(kind(lambda number: number))  # pyright: ignore[reportArgumentType]


def test_two_objects_of_a_class_cannot_have_one_name() -> None:
    """As two functions cannot."""
    with pytest.raises(Exception, match="two tools are called `count`"):
        read_tools([Shop(1).count, Shop(2).count])
