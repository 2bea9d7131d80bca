"""What Python programs have beside the usual types: as tools, as their arguments and results, and as output types.

Each of it works, or an error names the place and says what to do.
"""

import asyncio
import collections
import dataclasses
import datetime as dt
import enum
import functools
import inspect
import itertools
import pathlib
import sys
import types
import typing
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, Required

import msgspec
import pytest
import typing_extensions

from tables import each
from turnwise import Agent, BadTool, CallerError, File, Message, RunContext, Text, ToolResult, ToolSpec, tool
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import Line


class Moment(dt.datetime):
    """As pendulum's and pandas' are."""


class Day(dt.date): ...


class Span(dt.timedelta): ...


class Name(str):
    __slots__ = ()


@dataclasses.dataclass
class Point:
    x: int


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    x: int


class Pair(NamedTuple):
    left: int
    right: str


class Page(typing_extensions.TypedDict, total=False):
    title: Required[str]
    lines: NotRequired[list[str]]


class OldPage(typing.TypedDict):
    title: str


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Plain: ...


def scripted(lines: list[Line], **more: Any) -> tuple[ScriptedModel, Agent[Any, Any]]:
    model = ScriptedModel(lines)
    return model, Agent(model, **more)


def answer_of(given: Any, /, *, name: str, **arguments: Any) -> tuple[ToolSpec, str, bool]:
    """The tool as the model sees it, and what the model reads of a call."""
    model, agent = scripted([call(name, **arguments), "Done."], tools=[given])
    result = agent.run_sync("Go.")
    (read,) = [part for one in result.new_messages for part in one.parts if isinstance(part, ToolResult)]
    (said,) = read.content
    assert isinstance(said, Text)
    return model.asked[0].tools[0], said.text, read.is_error


TYPES: list[tuple[Any, Any, Any]] = [  # a type, its JSON, and the value
    (Point, {"x": 1}, Point(1)),
    (Fixed, {"x": 1}, Fixed(1)),
    (Pair, [1, "b"], Pair(1, "b")),
    (Page, {"title": "A"}, {"title": "A"}),
    (list[Page], [{"title": "A", "lines": ["b"]}], [{"title": "A", "lines": ["b"]}]),
    (Colour, "red", Colour.RED),
    (Size, 3, Size.LARGE),
    (Literal["a", 2], 2, 2),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID("12345678-1234-5678-1234-567812345678")),
    (Decimal, "1.50", Decimal("1.50")),
    (dt.date, "2026-09-01", dt.date(2026, 9, 1)),
    (dt.datetime, "2026-09-01T10:00:00", dt.datetime(2026, 9, 1, 10)),
    (dt.timedelta, "P1D", dt.timedelta(1)),
    (pathlib.Path, "/a", pathlib.Path("/a")),
    (bytes, "abc", b"abc"),
    (set[int], [1, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset("a")),
    (Iterable[int], [1, 2], [1, 2]),
    (int | None, None, None),
    (Message, {"role": "user", "parts": [{"type": "text", "text": "Hi."}]}, Message("user", (Text("Hi."),))),
]
UNKNOWN: list[tuple[Any, str]] = [
    (Moment, "is a `Moment`, of which JSON knows only the base class: take `datetime`, and convert it in your code"),
    (Day, "is a `Day`, of which JSON knows only the base class: take `date`, and convert it in your code"),
    (Span, "is a `Span`, of which JSON knows only the base class: take `timedelta`"),
    (Plain, "is a `Plain`, which no JSON Schema describes: take a type that pydantic knows, such as a dataclass or a model"),
    (list[Moment], "is a `list`, which no JSON Schema describes"),
    (Iterator[int], "is a `Iterator`, and a model sends whole values: take a `list`"),
    (AsyncGenerator[int, None], "is a `AsyncGenerator`, and a model sends whole values: take a `list`"),
    (Callable[[], int], "is a `Callable`, which no JSON Schema describes"),
    (functools.partial, "is a `partial`, which no JSON Schema describes"),
    (File, "is a `File`, which no JSON Schema describes"),
]  # fmt: skip
OLD = "is a `OldPage`, a type with a `typing.TypedDict`: before Python 3.12 take `typing_extensions.TypedDict` instead"


@each(("kind", "sent", "value"), TYPES)
def test_a_type_works_as_an_argument_and_as_an_output(kind: Any, sent: Any, value: Any) -> None:
    """The function gets the value, and the output is the value."""
    got: list[object] = []

    def keep(one: object) -> str:
        got.append(one)
        return "kept"

    keep.__annotations__["one"] = kind
    assert answer_of(keep, name="keep", one=sent)[1:] == ("kept", False)
    assert got == [value] and type(got[0]) is type(value)
    is_object = isinstance(sent, dict)
    text = msgspec.json.encode(sent if is_object else {"value": sent}).decode()
    _, agent = scripted([text], output_type=kind)
    output = agent.run_sync("Go.").output
    assert output == value and type(output) is type(value)


@each(("kind", "says"), [*UNKNOWN, *([(OldPage, OLD)] if sys.version_info < (3, 12) else [])])
def test_a_type_that_json_cannot_describe_is_named_with_its_place(kind: Any, says: str) -> None:
    """The tool and the parameter, or the output type, and what to take instead. pydantic's own hints are not passed on."""

    def keep(first: int, given: object) -> str:
        return f"{first} {given}"

    keep.__annotations__["given"] = kind
    with pytest.raises(BadTool) as caught:
        tool(keep)
    assert str(caught.value).startswith(f"tool `keep`: the parameter `given` {says}")
    assert "arbitrary_types" not in str(caught.value)
    with pytest.raises(CallerError) as caught_too:
        scripted([], output_type=kind)
    assert str(caught_too.value).startswith(f"`output_type` {says}")


def test_a_function_is_no_output_type() -> None:
    """A lambda says nothing of the answer."""
    for given in (lambda: 1, len, Point(1).__init__):
        with pytest.raises(CallerError, match=r"`output_type` is a function, `.+`: give the type of the answer"):
            scripted([], output_type=given)


async def arriving() -> AsyncGenerator[int]:
    for number in (1, 2):
        await asyncio.sleep(0)
        yield number


@each(
    ("make", "text"),
    [
        (lambda: Moment(2026, 9, 1), '"2026-09-01T00:00:00"'),
        (lambda: [Day(2026, 9, 1), {"at": Moment(2026, 9, 1)}], '["2026-09-01",{"at":"2026-09-01T00:00:00"}]'),
        (lambda: Span(1), '"P1D"'),
        (lambda: {"name": Name("Ada")}, '{"name":"Ada"}'),
        (lambda: Point(1), '{"x":1}'),
        (lambda: Fixed(1), '{"x":1}'),
        (lambda: Pair(1, "b"), '[1,"b"]'),
        (lambda: Colour.RED, '"red"'),
        (lambda: uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (lambda: Decimal("1.50"), '"1.50"'),
        (lambda: {"at": pathlib.PurePosixPath("/a")}, '{"at":"/a"}'),
        (lambda: {1}, "[1]"),
        (lambda: (n for n in (1, 2)), "[1,2]"),
        (lambda: map(str, (1, 2)), '["1","2"]'),
        (lambda: iter({"a": 1}.items()), '[["a",1]]'),
        (lambda: iter(()), "[]"),
        (lambda: range(3), "[0,1,2]"),
        (lambda: collections.deque([1]), "[1]"),
        ({"a": 1}.keys, '["a"]'),
        ({"a": 1}.values, "[1]"),
        (lambda: types.MappingProxyType({"a": 1}), '{"a":1}'),
        (arriving, "[1,2]"),
        (lambda: asyncio.sleep(0, "later"), "later"),
    ],
)  # fmt: skip
def test_a_result_is_read_whatever_a_tool_returns(make: Callable[[], Any], text: str) -> None:
    """Subclasses of dates and texts, collections of any kind, iterators and generators, plain and async."""

    def give() -> Any:
        return make()

    async def give_later() -> Any:
        value = make()
        return await value if inspect.iscoroutine(value) else value

    assert answer_of(give, name="give")[1:] == (text, False)
    assert answer_of(give_later, name="give_later")[1:] == (text, False)


def test_a_generator_with_files_gives_parts() -> None:
    """Its items are the parts of the result, as those of a list are."""

    def show() -> Iterator[Text | File]:
        yield Text("A pear:")
        yield File(media_type="image/png", data=b"png")

    model, agent = scripted([call("show"), "Done."], tools=[show])
    agent.run_sync("Go.")
    assert "A pear:" in str(model.asked[1].messages) and b"cG5n" in model.requests[1].body


@each(
    ("value", "says"),
    [
        (lambda: 1, "`function` has no JSON form; return a str, a JSON-able value, a Text or a File"),
        (Plain(), "`Plain` has no JSON form"),
        (Plain, "`type` has no JSON form"),
        (functools.partial(int), "`partial` has no JSON form"),
        (1j, "`complex` has no JSON form"),
        ([(n for n in (1, 2))], "what it returned (`list`) cannot be turned into JSON: `generator` has no JSON form"),
        (itertools.count(), "the tool gives more than 100,000 items: it must stop earlier"),
    ],
)
def test_a_result_that_has_no_json_is_told_to_the_model(value: Any, says: str) -> None:
    """With its kind; the run goes on. An iterator without an end is stopped."""

    def give() -> Any:
        return value

    _, text, is_error = answer_of(give, name="give")
    assert is_error and says in text


async def test_an_endless_async_generator_is_stopped() -> None:
    """As a plain one is."""

    async def count() -> AsyncIterator[int]:
        for number in itertools.count():
            yield number

    _, agent = scripted([call("count"), "Done."], tools=[count])
    result = await agent.run("Go.")
    assert "the tool gives more than 100,000 items: it must stop earlier" in str(result.new_messages)


# As tools


def add(a: int, b: int = 2) -> int:
    """Add two numbers.

    Args:
        a: the first one
    """
    return a + b


async def add_later(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def add_in(context: RunContext[Any], a: int, b: int) -> int:
    """Add two numbers."""
    assert context.deps is None
    return a + b


class Shop:
    def find(self, a: int) -> int:
        """Find it."""
        return a

    @classmethod
    def of(cls, a: int) -> int:
        """Find it."""
        return a

    @staticmethod
    def plain(a: int) -> int:
        """Find it."""
        return a

    def __call__(self, a: int) -> int:
        """Ask the shop."""
        return a


def counting(a: int) -> Generator[int]:
    """Count."""
    yield from range(a)


async def counting_later(a: int) -> AsyncGenerator[int]:
    """Count."""
    for number in range(a):
        yield number


ONE_NUMBER = '{"additionalProperties":false,"properties":{"a":{"type":"integer"}},"required":["a"],"type":"object"}'


@each(
    ("given", "name", "description", "text"),
    [
        (functools.partial(add_later, b=5), "add_later", "Add two numbers.", "6"),
        (functools.partial(functools.partial(add_later, b=4), b=5), "add_later", "Add two numbers.", "6"),
        (functools.partial(add_in, b=5), "add_in", "Add two numbers.", "6"),
        (functools.partial(Shop().find), "find", "Find it.", "1"),
        (tool(name="plus")(functools.partial(add_later, b=5)), "plus", "Add two numbers.", "6"),
        (tool(name="ask")(Shop()), "ask", "Ask the shop.", "1"),
        (Shop().find, "find", "Find it.", "1"),
        (Shop.of, "of", "Find it.", "1"),
        (Shop.plain, "plain", "Find it.", "1"),
        (functools.lru_cache(Shop().find), "find", "Find it.", "1"),
        (counting, "counting", "Count.", "[0]"),
        (counting_later, "counting_later", "Count.", "[0]"),
    ],
)
def test_anything_that_can_be_called_is_a_tool(given: Any, name: str, description: str, text: str) -> None:
    """With the words and types of the function that was written; what `functools.partial` has bound the model does not see."""
    spec, said, is_error = answer_of(given, name=name, a=1)
    assert (spec.name, spec.description, said, is_error) == (name, description, text, False)
    assert spec.parameters == ONE_NUMBER


def test_parameters_of_a_partial_are_described() -> None:
    """By the docstring of its function."""
    spec, said, _ = answer_of(functools.partial(add, b=5), name="add", a=1)
    assert said == "6" and '"description":"the first one"' in spec.parameters


@each(
    ("given", "says"),
    [
        (lambda a: a, "`<lambda>` is no name for a tool"),
        (len, "tool `len`: the parameter `obj` needs a type hint"),
        (Shop(), "a `Shop` has no name for a tool: give one, `tool(name=...)(the_object)`"),
        (functools.partial(Shop(), 1), "a `partial` has no name for a tool: give one, `tool(name=...)(the_object)`"),
        (functools.partial(tool(effect="write")(add), b=5), "`functools.partial` stands around the tool `add`, whose options it"),
        (dict.fromkeys, "tool `fromkeys`: the parameter `iterable` needs a type hint"),
        (vars, "tool `vars`: it has no signature (no signature found for builtin"),
    ],
)  # fmt: skip
def test_what_is_no_tool_says_why_and_what_to_do(given: Any, says: str) -> None:
    """Names and hints are missing, or options would be lost."""
    with pytest.raises(BadTool) as caught:
        scripted([], tools=[given])
    assert str(caught.value).startswith(says)
