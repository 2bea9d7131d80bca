"""An answer's value while it arrives: `run.partial()`."""

import enum
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, field_validator, model_validator
from typing_extensions import TypedDict

from tables import each
from thoroughness import examples
from turnwise import Agent, AttemptDiscarded, FrameSeen, StopReason, tool
from turnwise.agent.partial_values import NOTHING, values_so_far
from turnwise.agent.schemas import read_output_type
from turnwise.running.watcher_events import RequestStarted
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import Line
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Response, Text, TextDelta, Usage


class Colour(enum.StrEnum):
    RED = "red"
    GREEN = "green"


class Seed(BaseModel):
    weight: Decimal
    fresh: bool = True


class Fruit(BaseModel):
    name: str
    colour: Colour | None = None
    count: int
    tags: list[str] = Field(default_factory=lambda: ["new"])
    seeds: list[Seed] = []
    picked: date | None = Field(None, alias="pickedOn")

    @field_validator("name")
    @classmethod
    def _whole(cls, name: str) -> str:
        if len(name) < 4:
            raise ValueError("too short")
        return name

    @model_validator(mode="after")
    def _counted(self) -> "Fruit":
        if self.count < 1:
            raise ValueError("none")
        return self


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    label: str
    near: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.label.endswith("."), "it is not whole"


class Page(TypedDict):
    title: str
    lines: NotRequired[list[str]]


class Pair(NamedTuple):
    left: int
    right: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Tree(BaseModel):
    name: str
    below: "list[Tree]" = []


NO_CAT, NO_LIVES = Cat.model_construct(kind=None, lives=None), Cat.model_construct(kind="cat", lives=None)
NO_SEED = Seed.model_construct(weight=None)
Names = RootModel[list[str]]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def fruit(name: str | None, **more: Any) -> Fruit:
    return Fruit.model_construct(name=name, **{"count": None, **more})


def point(x: int | None, label: str | None, near: Sequence[str] = ()) -> Point:
    made = object.__new__(Point)
    for name, value in (("x", x), ("label", label), ("near", list(near))):
        object.__setattr__(made, name, value)
    return made


@each(
    ("kind", "text", "value"),
    [
        (Fruit, "", NOTHING),
        (Fruit, "Here it is", NOTHING),
        (Fruit, "{", fruit(None)),
        (Fruit, '{"na', fruit(None)),
        (Fruit, '{"name": "Pe', fruit("Pe")),
        (Fruit, '{"name": "Pear", "colour": "gr', fruit("Pear")),
        (Fruit, '{"name": "Pear", "colour": "green"', fruit("Pear", colour=Colour.GREEN)),
        (Fruit, '{"name": "Pear", "count": 1', fruit("Pear")),
        (Fruit, '{"name": "Pear", "count": 12,', fruit("Pear", count=12)),
        (Fruit, '{"name": "Pear", "count": "many", "tags": ["ri', fruit("Pear", tags=["ri"])),
        (Fruit, '{"pickedOn": "2026-0', fruit(None)),
        (Fruit, '{"pickedOn": "2026-09-01"', fruit(None, picked=date(2026, 9, 1))),
        (Fruit, '{"seeds": [{"weight": 0.25, "fr', fruit(None, seeds=[Seed(weight=Decimal("0.25"))])),
        (Fruit, '{"seeds": [{"fresh": fal', fruit(None, seeds=[NO_SEED])),
        (Fruit, '{"name": "see 12', fruit("see ")),
        (Point, '{"x": 3, "label": "he', point(3, "he")),
        (Point, '{"label": "here.", "near": ["a", "b', point(None, "here.", ["a", "b"])),
        (Page, '{"title": "A', {"title": "A"}),
        (Page, '{"lines": ["one", "tw', {"lines": ["one", "tw"]}),
        (Cat | Dog, '{"value": {"kind": "dog", "tricks": ["si', Dog.model_construct(kind="dog", tricks=["si"])),
        (Annotated[Cat | Dog, Field(discriminator="kind")], '{"value": {"kind": "cat"', NO_LIVES),
        (Tree, '{"name": "a", "below": [{"name": "b', Tree(name="a", below=[Tree(name="b")])),
        (Names, '{"value": ["Ada", "B', Names.model_construct(["Ada", "B"])),
        (list[int], '{"value": [1, 2, 3', [1, 2]),
        (list[Cat], '{"value": [{"kind": "cat", "lives": 9}, {', [Cat(kind="cat", lives=9), NO_CAT]),
        (tuple[int, str], '{"value": [1, "o', (1, "o")),
        (set[str], '{"value": ["a", "a", "b', {"a", "b"}),
        (dict[str, Seed], '{"a": {"weight": 1}, "b": {', {"a": Seed(weight=Decimal(1)), "b": NO_SEED}),
        (Sequence[Seed], '{"value": [{"weight": 1}, {', [Seed(weight=Decimal(1)), NO_SEED]),
        (Pair, '{"value": [1, "on', Pair(1, "on")),
        (Pair, '{"value": [1,', NOTHING),
        (int, '{"value": 12', NOTHING),
        (int, '{"value": 12}', 12),
        (str | None, '{"value": nul', NOTHING),
        (str | None, '{"value": null', None),
        (SCHEMA, '{"a": 1, "b": ["x', {"a": 1, "b": ["x"]}),
    ],
)  # fmt: skip
def test_what_has_arrived_is_in_the_value_and_the_rest_is_its_default_or_none(kind: Any, text: str, value: Any) -> None:
    """Models, dataclasses, TypedDicts, collections, unions: aliases are known, and no check of the user's sees a half value."""
    found = read_output_type(kind).so_far(text)
    assert found == value or (value is NOTHING and found is NOTHING)
    assert type(found) is type(value)


def test_a_value_tells_what_has_arrived() -> None:
    """A default is no value that the model has said."""
    found = read_output_type(Fruit).so_far('{"name": "Pear", "count": 2, "tags": [')
    assert isinstance(found, Fruit) and found.model_fields_set == {"name", "count", "tags"}


words = st.text(max_size=6)
seeds = st.builds(Seed, weight=st.integers(0, 9).map(Decimal), fresh=st.booleans())
fruits = st.builds(
    Fruit,
    name=st.text(min_size=4, max_size=9),
    colour=st.none() | st.sampled_from(Colour),
    count=st.integers(1, 999),
    tags=st.lists(words, max_size=2),
    seeds=st.lists(seeds, max_size=2),
    pickedOn=st.none() | st.dates(),
)


@settings(max_examples=examples(200))
@given(whole=fruits, indent=st.sampled_from([None, 1]), escaped=st.booleans())
def test_every_beginning_of_an_answer_makes_a_value_that_only_grows(
    whole: Fruit, indent: int | None, escaped: bool
) -> None:
    """Cut at each character: nothing raises, texts and lists only grow, numbers are whole, and the whole text is the value."""
    text = json.dumps(whole.model_dump(mode="json", by_alias=True), indent=indent, ensure_ascii=escaped)
    output = read_output_type(Fruit)
    last: Any = None
    for cut in range(len(text) + 1):
        value: Any = output.so_far(text[:cut])
        if value is NOTHING:
            assert last is None
            continue
        assert value.name is None or whole.name.startswith(value.name)
        assert value.count in (None, whole.count) and value.picked in (None, whole.picked)
        assert len(value.seeds) <= len(whole.seeds) and value.seeds[:-1] == whole.seeds[: len(value.seeds[:-1])]
        last = value
    assert last == whole == output.parse(text)


# Runs


def streaming(lines: Sequence[Line], **more: Any) -> Agent[Any, Any]:
    model = ScriptedModel(lines)
    return Agent(model, **more)


PEAR = '{"name": "Pear", "count": 12, "tags": ["ripe", "sweet"]}'


async def test_a_run_gives_its_output_as_it_grows_and_then_checked() -> None:
    """The values are of the output type. The last one is the output; a step before it, with a call, makes none."""

    @tool
    def look(place: str) -> str:
        """Look somewhere."""
        return f"pears in {place}"

    agent = streaming([[Text("I look."), call("look", place="the basket")], PEAR], tools=[look], output_type=Fruit)
    async with agent.stream("Which fruit?") as run:
        values = [value async for value in run.partial()]
    assert [type(value) for value in values] == [Fruit] * len(values)
    assert values[-1] == run.result.output == Fruit.model_validate_json(PEAR)
    assert len(values) > 1 and values[0].count is None


async def test_text_grows_step_by_step_without_an_output_type() -> None:
    """The text of the step so far, and at the end the answer."""
    async with streaming(["Pears are ripe."]).stream("Which fruit?") as run:
        values = [value async for value in run.partial()]
    assert values[-1] == run.result.output == "Pears are ripe."
    assert all(later.startswith(before) for before, later in pairwise(values))


async def test_an_answer_that_the_type_refuses_begins_again() -> None:
    """What was refused was shown; the second answer begins with nothing of it. A run without an output yields no output."""
    refused = '{"name": "Fig", "count": 1}'
    agent = streaming([refused, PEAR], output_type=Fruit)
    async with agent.stream("Which fruit?") as run:
        names = [value.name async for value in run.partial()]
    assert "Fig" in names and names[-1] == "Pear" and run.result.has_output
    at = len(names) - names[::-1].index("Fig")
    assert all(name is None or "Pear".startswith(name) for name in names[at:])
    async with streaming([refused] * 3, output_type=Fruit).stream("Which fruit?") as run:
        values = [value async for value in run.partial()]
    assert not run.result.has_output and values[-1].name == "Fig"


async def test_a_cut_answer_is_a_step_of_its_own() -> None:
    """The output limit cuts an answer, and the model gives it anew: the values begin again."""
    cut = Message("assistant", (Text(PEAR[:40]),))
    half = Response(message=cut, finish=FinishReason.LENGTH, usage=Usage(output_tokens=20), id="r", model="m")
    async with streaming([half, PEAR], output_type=Fruit).stream("Which fruit?") as run:
        values = [value async for value in run.partial()]
    assert run.result.output == values[-1] == Fruit.model_validate_json(PEAR)
    assert values.count(fruit("Pear")) == 2


async def test_a_failed_provider_ends_the_values() -> None:
    """Nothing is raised, as in `text()`; the result says how it ended."""
    agent = streaming([Fault(kind=FaultKind.AUTH, message="no such key", status=401)], output_type=Fruit)
    async with agent.stream("Which fruit?") as run:
        assert [value async for value in run.partial()] == []
    assert run.result.stop_reason is StopReason.PROVIDER_FAILED


async def listed(events: Sequence[object]) -> AsyncIterator[object]:
    for event in events:
        yield event


def asked(purpose: Any, number: int = 1) -> RequestStarted:
    return RequestStarted(number=number, step=1, purpose=purpose, model="m")


def said(text: str) -> list[FrameSeen]:
    return [FrameSeen(number=1, frame=TextDelta(one)) for one in text]


async def test_a_discarded_attempt_counts_for_nothing() -> None:
    """Also of a continuation: the text before it stays. A summary's text is no answer."""
    gone = AttemptDiscarded(number=1, fault=None, retry_in_s=0.0)
    events = [
        *[asked("step"), *said("ab"), gone, asked("step"), *said("cd")],
        *[asked("continue"), *said("xy"), gone, asked("continue"), *said("e")],
        *[asked("compact"), *said("zz")],
    ]
    assert [one async for one in values_so_far(listed(events), read=str)] == "a ab c cd cdx cdxy cde".split()


@pytest.mark.parametrize("length", [30_000, 300_000])
async def test_the_cost_of_the_values_is_linear_in_the_answer(length: int) -> None:
    """An answer that comes letter by letter is read a few hundred times, and at most 20 times its characters in all."""
    read: list[int] = []

    def count(text: str) -> object:
        read.append(len(text))
        return len(text)

    events = [asked("step"), *said("x" * length)]
    values = [value async for value in values_so_far(listed(events), read=count)]
    assert sum(read) < 12 * length + 2_048 * 2_048 and len(read) < 2_200
    assert values == read and all(later <= 1.11 * before for before, later in pairwise(read[2_048:]))
