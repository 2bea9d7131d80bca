"""Every option of `Agent`, of its runs and of `resume` refuses values of another kind than its type says. Nothing is sent."""

import asyncio
import collections.abc
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest

from tables import each
from turnwise import Agent, CallerError, Model, ModelLimits
from turnwise.agent.agent_options import BESIDE_GROUPS, GROUP_OF, GROUPS, KINDS, OF_MODEL
from turnwise.agent.run_setup import ResumeOptions, TypedRunOptions
from turnwise.testing import ScriptedModel

SECRET = "sk-this-is-a-secret-key"


class Strange:
    def __repr__(self) -> str:
        return SECRET


def a_function() -> None: ...


PROBES: tuple[object, ...] = (
    *(Strange(), 3, 1.5, True, None, SECRET, b"bytes", {1: 2}, [Strange()], (3,), [None], {3}),
    *(a_function, Strange, iter([1])),
)
# `deps` may be anything. What may be described as an output type, only pydantic knows.
OF_ANY_KIND = frozenset({"deps", "output_type", "deps_type"})
PARTS = {OF_MODEL[name]: name for name in OF_MODEL}
HINTS: dict[str, object] = {
    **get_type_hints(ResumeOptions),
    **get_type_hints(TypedRunOptions),
    **{name: hint for kind in GROUPS.values() for name, hint in get_type_hints(kind).items()},
}


def takes(hint: object, value: object) -> bool:
    """Whether a value has the type that the annotation says, as far as its kind goes."""
    origin, inside = get_origin(hint), get_args(hint)
    if hint in (object, Any):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(takes(one, value) for one in inside)
    if origin is typing.Literal:
        return any(value is one for one in inside)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is collections.abc.Sequence:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return False
        return all(takes(inside[0], one) for one in cast("Sequence[object]", value))
    if origin is collections.abc.Mapping:
        return isinstance(value, Mapping)
    if hint in (int, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(hint, type) or typing.is_typeddict(hint) or getattr(hint, "_is_protocol", False):
        return False
    return isinstance(value, hint)


def wrong_for(name: str) -> list[object]:
    return [] if name in OF_ANY_KIND else [value for value in PROBES if not takes(HINTS[name], value)]


def refused(give: Callable[[], object], *, name: str, value: object, model: ScriptedModel) -> None:
    with pytest.raises(CallerError) as caught:
        give()
    said = str(caught.value)
    assert f"`{name}`" in said or f"`{name}=" in said, (said, value)
    assert SECRET not in said and not model.asked, said


def given(name: str, value: object) -> dict[str, Any]:
    return {GROUP_OF[name]: {name: value}} if name in GROUP_OF else {name: value}


def agent_of(scripted: ScriptedModel, **options: Any) -> Agent[Any, Any]:
    return Agent(options.pop("model", scripted), **options)


def test_every_option_has_a_kind() -> None:
    """A new option needs a row: the types in the annotations and the rows name the same options."""
    assert HINTS.keys() | BESIDE_GROUPS <= KINDS.keys()


@each("name", sorted([*GROUP_OF, *(BESIDE_GROUPS - OF_ANY_KIND)]))
def test_an_agent_is_not_made_with_a_value_of_another_kind(name: str) -> None:
    """`stream="yes"` and `extra=3` were accepted, and refused only by the run, or by nobody."""
    model = ScriptedModel(["Done."])
    for value in wrong_for(name):
        refused(lambda value=value: agent_of(model, **given(name, value)), name=name, value=value, model=model)


@each("name", sorted({"name", *PARTS} - {"cache"}))
def test_a_model_is_not_made_with_a_value_of_another_kind(name: str) -> None:
    """`Model(...)` itself raises, where it stands in the program."""
    hints = get_type_hints(Model.__init__)
    for value in [value for value in PROBES if not takes(hints[name], value)]:
        with pytest.raises(CallerError) as caught:
            Model(**{"name": "openai:m", name: value})
        assert f"`{name}` of `Model`" in str(caught.value) and SECRET not in str(caught.value)


@each("name", sorted([*GROUP_OF, *TypedRunOptions.__annotations__]))
def test_a_run_sends_nothing_with_a_value_of_another_kind(name: str) -> None:
    """`watch=3` was accepted, `model=3` was an AttributeError, `prepare_step=3` a TypeError in the middle of the run."""
    model = ScriptedModel(["Done."])
    agent = agent_of(model)
    for value in wrong_for(name):
        if name in ("session", "results", "watch") and value is None:
            continue  # means: not given
        refused(lambda value=value: agent.run_sync("Go.", **given(name, value)), name=name, value=value, model=model)


@each("name", sorted(ResumeOptions.__annotations__))
def test_resume_refuses_a_value_of_another_kind(name: str) -> None:
    """It refuses it before it looks for the session: this agent has no journal."""
    model = ScriptedModel(["Done."])
    agent = agent_of(model)
    for value in wrong_for(name):
        if value is None or (name == "tools" and isinstance(value, list | tuple | set)):
            continue  # means: not given
        refused(
            lambda value=value: asyncio.run(agent.resume("some", **dict[str, Any]({name: value}))),
            name=name,
            value=value,
            model=model,
        )


@each("group", sorted(GROUPS))
@each("value", [3, None, "x", [], {1: 2}, {None: 1}], ids=repr)
def test_a_group_is_a_dict_of_names(group: str, value: object) -> None:
    """`{1: 2}` was a TypeError out of the search for a near name."""
    model = ScriptedModel(["Done."])
    with pytest.raises(CallerError, match=f"`{group}`"):
        Agent("openai_chat:m", **dict[str, Any]({group: value}))
    with pytest.raises(CallerError, match=f"`{group}` of the run"):
        agent_of(model).run_sync("Go.", **dict[str, Any]({group: value}))
    assert not model.asked


PROMPTS: tuple[object, ...] = (
    *(3, True, 1.5, b"x", {"role": "user"}, [3], [b"x"], Strange(), iter(["Go."]), a_function, Strange),
)


@each("prompt", PROMPTS, ids=lambda prompt: type(prompt).__name__)
def test_a_prompt_of_another_kind_raises(prompt: object) -> None:
    """`run_sync(3)` was a TypeError; of a dict the names were sent as texts."""
    model = ScriptedModel(["Done."])
    with pytest.raises(CallerError, match="the prompt must be a text") as caught:
        agent_of(model).run_sync(prompt)  # pyright: ignore[reportArgumentType]
    assert SECRET not in str(caught.value) and not model.asked


def test_the_message_says_what_it_should_be_and_what_it_was() -> None:
    with pytest.raises(CallerError) as caught:
        Model("openai:m", stream="yes")  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == "`stream` of `Model` must be True or False, not 'yes'"
    with pytest.raises(CallerError, match=r"`limits` of `Model` holds .* give a number from 1"):
        Model("openai:m", limits=ModelLimits(context_window_tokens=0))
    with pytest.raises(CallerError) as caught:
        agent_of(ScriptedModel([]), observation={"clock": Strange()})
    words = (
        "`clock` in `observation` must be a clock (with the methods `now`, `monotonic` and `call_later`), not Strange"
    )
    assert str(caught.value) == words
