"""`RunContext`: what tools, hooks, instructions and output checks know of their run, and what nobody else sees of it."""

import asyncio
import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from flat_agents import flat_agent
from turnwise import (
    Agent,
    BadTool,
    CallerError,
    DepsFactory,
    Hook,
    Journal,
    RunContext,
    SessionKey,
    tool,
)
from turnwise.agent.tools import FunctionTool
from turnwise.running.hooks import Looks, Says
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.vocab import Message, text_of

SECRET = "pa55word-of-the-database"


class Db:
    """A stand-in for a user's database; its text would give its password away."""

    def __init__(self, stock: int = 3) -> None:
        self.stock = stock
        self.password = SECRET

    def __repr__(self) -> str:
        return f"Db({self.password})"


class Fruit(BaseModel):
    name: str
    count: int


@tool
def count(context: RunContext[Db], name: str, times: int = 1) -> str:
    """Count what is there.

    Args:
        name: The fruit.
    """
    return f"{context.deps.stock * times} {name}"


@tool
async def count_async(context: RunContext[Db], name: str) -> str:
    """Count what is there."""
    return f"{context.deps.stock} {name}"


def agent_of(model: ScriptedModel, **options: Any) -> Agent:
    return flat_agent("openai_chat:scripted", base_url=model.endpoint.base_url, transport=model, **options)


def said_of(messages: tuple[Message, ...]) -> str:
    return " ".join([str(message.parts) for message in messages])


def schema_of(made: FunctionTool[..., str]) -> dict[str, object]:
    return json.loads(made.tool.offer.spec.parameters)


def test_the_model_does_not_see_the_context() -> None:
    """It is in no schema; the other parameters are described as ever."""
    schema = schema_of(count)
    assert schema["properties"] == {
        "name": {"type": "string", "description": "The fruit."},
        "times": {"type": "integer", "default": 1},
    }
    assert (schema["required"], schema["additionalProperties"]) == (["name"], False)


@pytest.mark.parametrize("made", [count, count_async], ids=["plain", "async"])
def test_a_tool_is_given_the_deps_of_its_run(made: FunctionTool[..., object]) -> None:
    """Plain functions in their thread, async ones in the loop."""
    model = ScriptedModel([call(made.tool.name, name="pears"), "There are some."])
    result = agent_of(model, tools=[made]).run_sync("How many?", deps=Db(5))
    assert "5 pears" in said_of(result.new_messages)


def test_a_context_tells_of_its_run() -> None:
    """The call, the step, the usage so far, the session and the path."""
    seen: list[RunContext[Any]] = []

    @tool
    def look(context: RunContext, place: str) -> str:
        """Look."""
        seen.append(context)
        return place

    model = ScriptedModel([call("look", place="here"), call("look", place="there"), "Done."])
    agent_of(model, tools=[look]).run_sync("Look.")
    first, second = seen
    assert [one.call and one.call.arguments for one in seen] == ['{"place":"here"}', '{"place":"there"}']
    assert (first.step, second.step, first.path) == (1, 2, ())
    assert (first.usage.input_tokens, second.usage.input_tokens) == (10, 20)
    assert first.session == second.session != ""


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda: _second, id="second"),
        pytest.param(lambda: _by_name, id="by name only"),
        pytest.param(lambda: _perhaps, id="in a union"),
    ],
)
def test_a_context_that_is_not_first_is_a_bad_tool(function: Any) -> None:
    """The error names the parameter and how it has to be written."""
    with pytest.raises(BadTool, match=r"`context` takes a `RunContext`, and only the first parameter may"):
        tool(function())


def _second(name: str, context: RunContext[Db]) -> str:
    return name


def _by_name(*, context: RunContext[Db]) -> str:
    return ""


def _perhaps(context: RunContext[Db] | None = None) -> str:
    return ""


def test_a_tool_is_tested_with_a_context_of_ones_own() -> None:
    """It can be called as before."""
    assert count(RunContext(Db(2)), "plums", times=2) == "4 plums"


@pytest.mark.parametrize("shown", [repr, str])
def test_no_text_of_a_context_shows_the_deps(shown: Any) -> None:
    """They may hold a password."""
    assert SECRET not in shown(RunContext(Db()))


def test_deps_reach_neither_the_journal_nor_the_model() -> None:
    """Every record of a run with deps, and every request."""
    model = ScriptedModel([call("count", name="pears"), "Three."])
    with Journal(None, clock=FakeClock()) as journal:
        result = agent_of(model, tools=[count], journal=journal, deps_type=Db).run_sync("How many?", deps=Db())
        (turn,) = journal.find_session(result.session).turns
        assert SECRET not in str(list(journal.entries(turn.id)))
    assert SECRET not in str(model.asked) + repr(result)


def test_deps_of_another_type_are_refused_before_anything_is_sent() -> None:
    """By the agent's `deps_type`, and by what a tool says of its context."""
    model = ScriptedModel([])
    wanting, loose = agent_of(model, deps_type=Db), agent_of(model, tools=[count])
    with pytest.raises(CallerError, match="has `deps_type=Db`: give the run `deps=`"):
        wanting.run_sync("Hello")
    with pytest.raises(CallerError, match="the run's `deps` are a `str`"):
        wanting.run_sync("Hello", deps="a database")
    with pytest.raises(CallerError, match=r"the tool `count` takes a `RunContext\[Db\]`, and the run has no deps"):
        loose.run_sync("Hello")
    with pytest.raises(CallerError, match="and the run has a `str` as its deps: give a `Db`"):
        loose.run_sync("Hello", deps="a database")
    assert model.asked == []


def test_a_deps_type_is_a_type_or_a_factory() -> None:
    """Deps in its place, or a bare function, are told; so are deps that are given to the agent."""
    model = ScriptedModel([])
    for wrong in (Db(), lambda _: Db()):
        with pytest.raises(CallerError, match="`deps_type` must be a type, or `DepsFactory") as told:
            agent_of(model, deps_type=wrong)
        assert SECRET not in str(told.value)
    for right in (Db, Db | None, dict[str, int], Any, None, DepsFactory(lambda _: Db())):
        agent_of(model, deps_type=right)
    with pytest.raises(CallerError, match="Give `deps=` to the run"):
        agent_of(model, deps=Db())


def test_functions_among_the_instructions_write_theirs_for_each_run() -> None:
    """Plain and async ones, in the places where they stood; one that writes nothing leaves nothing."""

    def stock(context: RunContext[Db]) -> str:
        return f"There are {context.deps.stock} pears."

    async def nothing(context: RunContext[Db]) -> None:
        assert context.step == 0

    model = ScriptedModel(["Hello", "Hello"])
    agent = agent_of(model, instructions=["You sell fruit.", nothing, stock, "Be kind."], deps_type=Db)
    agent.run_sync("Hello", deps=Db(1))
    agent.run_sync("Hello", deps=Db(2))
    said = [[part.text for part in request.system] for request in model.asked]
    assert [" ".join(texts).split("\n\n") if len(texts) == 1 else texts for texts in said] == [
        ["You sell fruit.", "There are 1 pears.", "Be kind."],
        ["You sell fruit.", "There are 2 pears.", "Be kind."],
    ]


def test_an_instruction_that_cannot_be_one_says_so() -> None:
    """A function without a parameter, a thing that is no text, a function that returns none, and what one raises."""
    model = ScriptedModel([])
    with pytest.raises(CallerError, match="must take one argument, the `RunContext`"):
        agent_of(model, instructions=lambda: "Hello")
    with pytest.raises(CallerError, match="`instructions` holds a int"):
        agent_of(model, instructions=["Hello", 7])
    with pytest.raises(CallerError, match="returned a int: it must return a text, or None"):
        agent_of(model, instructions=lambda _: 7).run_sync("Hello")
    with pytest.raises(ZeroDivisionError):
        agent_of(model, instructions=lambda _: str(1 // 0)).run_sync("Hello")


async def test_a_slow_instruction_ends_in_time() -> None:
    """After `Deadlines.hook_s`."""
    clock = FakeClock()
    never = asyncio.Event()

    async def slow(context: RunContext) -> str:
        await never.wait()
        return ""

    run = asyncio.create_task(agent_of(ScriptedModel([]), instructions=slow, clock=clock).run("Hello"))
    await clock.advance(10.0)
    with pytest.raises(CallerError, match="`slow` did not answer within 10 s"):
        await run


def test_a_hook_with_two_parameters_is_given_the_context() -> None:
    """In front of what it looks at; others are called as before."""
    seen: list[object] = []

    def guard(context: RunContext[Db], looks: Looks) -> Says:
        seen.append((context.deps.stock, context.step, type(looks).__name__))
        return None

    async def old(looks: Looks) -> Says:
        seen.append(type(looks).__name__)
        return None

    hooks = [
        Hook(point="before_tool", function=guard, name="guard"),
        Hook(point="turn_ended", function=guard, name="end"),
    ]
    model = ScriptedModel([call("count", name="pears"), "Three."])
    agent = agent_of(model, tools=[count], hooks=[*hooks, Hook(point="after_tool", function=old, name="old")])
    agent.run_sync("How many?", deps=Db())
    assert seen == [(3, 1, "ToolAboutToRun"), "ToolRan", (3, 2, "TurnEnded")]


def test_an_output_check_refuses_an_answer_in_its_own_words() -> None:
    """It sees the context and the value of the type; the model is told what it raises, and answers anew."""

    def is_there(context: RunContext[Db], fruit: Fruit) -> None:
        if fruit.count > context.deps.stock:
            raise ValueError(f"there are only {context.deps.stock}")

    async def has_name(fruit: Fruit) -> None:
        assert fruit.name, "it needs a name"

    model = ScriptedModel(['{"name":"pear","count":9}', '{"name":"","count":2}', '{"name":"pear","count":2}'])
    agent = agent_of(model, output_type=Fruit, output_checks=[is_there, has_name], deps_type=Db)
    result = agent.run_sync("Which?", deps=Db())
    assert result.output == Fruit(name="pear", count=2)
    told = [text_of(request.messages[-1]) for request in model.asked[1:]]
    assert "there are only 3" in told[0] and "it needs a name" in told[1]


def test_output_checks_need_a_type() -> None:
    """For an agent and for a run; a run's own type leaves the agent's checks behind."""
    model = ScriptedModel(['{"value":7}'])
    with pytest.raises(CallerError, match=r"`output_checks` look at the value of an `output_type`.*Annotated\[str, "):
        agent_of(model, output_checks=[print])
    with pytest.raises(CallerError, match="`output_checks` look at the value of an `output_type`"):
        agent_of(model).run_sync("Which?", recovery={"output_checks": [print]})

    def never(fruit: Fruit) -> None:
        raise AssertionError

    assert agent_of(model, output_type=Fruit, output_checks=[never]).run_sync("Which?", output_type=int).output == 7

    def is_polite(answer: str) -> None:
        if "please" not in answer:
            raise ValueError("say please")

    model = ScriptedModel(['{"value":"Go."}', '{"value":"Go, please."}'])
    text = agent_of(model, output_type=Annotated[str, "the answer"], output_checks=[is_polite])
    assert text.run_sync("Say.").output == "Go, please."


def test_sub_agents_have_the_deps_of_their_parent() -> None:
    """Where they have a `deps_type` without a factory; the context names the path. One with a factory has its own."""
    seen: list[tuple[int, tuple[str, ...]]] = []

    @tool
    def look(context: RunContext[Db]) -> str:
        """Look."""
        seen.append((context.deps.stock, context.path))
        return "seen"

    lines = [call("task", prompt="Look.", agent="same"), call("look"), "Seen."]
    lines += [call("task", prompt="Look.", agent="own"), call("look"), "Seen.", "Both."]
    model = ScriptedModel(lines)
    agents = {
        "same": agent_of(model, tools=[look], deps_type=Db, description="the same deps"),
        "own": agent_of(
            model, tools=[look], deps_type=DepsFactory(lambda key: Db(len(key.path) * 100)), description="own"
        ),
    }
    agent_of(model, agents=agents, deps_type=Db).run_sync("Look.", deps=Db(7))
    assert seen == [(7, ("same",)), (100, ("own",))]


def test_a_sub_agent_whose_deps_would_not_fit_is_refused_at_the_start() -> None:
    """By its type, by its tools, and where it says nothing of deps."""
    model = ScriptedModel([])
    with pytest.raises(
        CallerError, match=r"the sub-agent `helper` has `deps_type=Db`, and the run's `deps` are a `int`"
    ):
        agent_of(model, agents={"helper": agent_of(model, deps_type=Db)}).run_sync("Hello", deps=7)
    with pytest.raises(CallerError, match=r"and the sub-agent `helper` has no deps: give the sub-agent `deps_type=Db`"):
        agent_of(model, agents={"helper": agent_of(model, tools=[count])}).run_sync("Hello", deps=Db())


def test_a_factory_is_told_the_session() -> None:
    """The same id for each turn of it; a run's own `deps` stand over it."""
    keys: list[SessionKey] = []

    def make(key: SessionKey) -> Db:
        keys.append(key)
        return Db(len(keys))

    model = ScriptedModel([call("count", name="a"), "1", call("count", name="b"), "2", call("count", name="c"), "3"])
    with Journal(None, clock=FakeClock()) as journal:
        agent = agent_of(model, tools=[count], deps_type=DepsFactory(make), journal=journal)
        first = agent.run_sync("a?")
        second = agent.run_sync("b?", session=first.session)
        third = agent.run_sync("c?", deps=Db(50))
    assert keys == [SessionKey(id=first.session), SessionKey(id=first.session)]
    assert "2 b" in said_of(second.new_messages) and "50 c" in said_of(third.new_messages)
