"""A model is a value: what an agent and a run take as their model, what a test swaps, and when the key is looked for."""

import asyncio
import copy
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import turnwise
from tables import each
from turnwise import (
    Agent,
    Approval,
    CallerError,
    Deadlines,
    Journal,
    MissingKey,
    Model,
    ModelLimits,
    PermissionRule,
    Policy,
    RetryPolicy,
    RunContext,
    ScriptLimits,
    Settings,
    StepChanges,
    Subagents,
    Tool,
    ToolSpec,
    UnknownOption,
    tool,
)
from turnwise.agent.agent import inside
from turnwise.agent.results import ELSEWHERE
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.testing import Recording, ScriptedModel, call
from turnwise.vocab import Opaque
from turnwise.wire.family import MODULES as FAMILIES
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import relay_facts

KEY = "sk-this-is-a-secret-key-7"


class Sends:
    """A transport of the user's own, which needs a key as HTTP does."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]:
        return self.model.send(request)


def test_an_agent_shows_only_what_a_program_calls() -> None:
    """Proves: what parents, workers and editors call on an agent is not among its names."""
    assert [name for name in dir(Agent("openai:gpt-5")) if name[0] != "_"] == sorted(
        "as_tool open_asks override resume run run_sync start start_resume stream".split()
    )


def test_equal_parts_make_equal_models_and_no_key_is_shown() -> None:
    """Proves: a model is a frozen value; its text has neither the key nor the query of its URL."""
    parts: dict[str, Any] = {"base_url": "http://x.invalid/v1?key=hidden", "api_key": KEY, "settings": Settings(seed=1)}
    model = Model("openai_chat:mine", **parts, limits=ModelLimits(max_output_tokens=9))
    assert model == Model("openai_chat:mine", **parts, limits=ModelLimits(max_output_tokens=9)) == copy.copy(model)
    assert model != Model("openai_chat:mine", **parts) and len({model, copy.copy(model)}) == 1
    assert KEY not in repr(model) and "hidden" not in repr(model) and "http://x.invalid/v1" in repr(model)
    assert repr(Model("openai:gpt-5")) == "Model('openai:gpt-5')"
    with pytest.raises(AttributeError):
        model.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@each("family", FAMILIES)
def test_a_scripted_model_of_any_family_is_a_model_of_an_agent_and_of_a_run(family: str) -> None:
    """Proves: it needs no name, address or key, whatever API it plays."""
    own, other = ScriptedModel(["Own."], family=family), ScriptedModel(["Other."], family=family, name="other")
    agent = Agent(own)
    assert [agent.run_sync("Go.", model=other).text, agent.run_sync("Go.").text] == ["Other.", "Own."]
    assert (len(own.asked), len(other.asked)) == (1, 1)
    named = ScriptedModel(["Named."], family=family)
    result = Agent(Model(f"{family}:named", transport=named)).run_sync("Go.")
    assert (result.text, result.ledger.to_rows()[0]["model"]) == ("Named.", "named")


@each("family", FAMILIES)
def test_a_recording_knows_its_model(family: str, tmp_path: Path) -> None:
    """Proves: what was recorded of any family is replayed by `Agent(Recording(path))`, also if the file is from a time before it
    said its model."""
    for said in (True, False):
        path = tmp_path / f"{said}.json"
        scripted = ScriptedModel(["Hello."], family=family)
        told: dict[str, Any] = {"model": f"{family}:scripted"} if said else {}
        with Recording(path, "once", upstream=scripted, **told) as recording:
            asked = Model(f"{family}:scripted", base_url="http://x.invalid/v1", api_key="k" * 20, transport=recording)
            assert Agent(asked).run_sync("Go.").text == "Hello."
        again = Recording(path)
        assert Agent(again).run_sync("Go.").text == "Hello."
        again.assert_all_used()
    with pytest.raises(CallerError, match=r"give `Recording\(..., model="):
        Agent(Recording(tmp_path / "new", "record"))


def test_an_old_spelling_raises_with_the_new_line() -> None:
    """Proves: a program of the day before is told what to write, for the agent and for a run. Nothing is sent."""
    agent: Any = Agent(model := ScriptedModel([]))
    for give, line in (
        (
            lambda: Agent("openai:gpt-5", endpoint={"api_key": KEY, "tool_choice": "none"}),  # pyright: ignore
            '`Agent(Model("openai:gpt-5", api_key=...), steps={"tool_choice": ...})`',
        ),
        (lambda: agent.run_sync("Go.", endpoint={"settings": Settings()}), "`settings=Settings(...)`"),
        (lambda: agent.run_sync("Go.", endpoint={"stream": False}), '`model=Model("...", stream=...)`'),
        (lambda: agent.run_sync("Go.", safety={"policy": None}), "`Agent(policy=...)`"),
        (lambda: agent.run_sync("Go.", observation={"journal": None}), "`Agent(journal=...)`"),
    ):
        with pytest.raises(UnknownOption) as caught:
            give()
        assert line in str(caught.value) and KEY not in str(caught.value)
    with pytest.raises(ImportError, match=r"Give `Model"):
        turnwise.EndpointOptions  # pyright: ignore  # noqa: B018
    assert not model.asked


def test_a_name_of_another_library_raises_with_the_line_to_write() -> None:
    """Issue 44: names of pydantic-ai and openai-agents gave bare errors, in an import, a call and of a result."""
    with pytest.raises(ImportError, match=r"turnwise has no `ModelRetry`. Raise `ToolFault\(text\)`"):
        from turnwise import ModelRetry  # pyright: ignore  # noqa: F401
    made: Any = Settings
    with pytest.raises(TypeError, match=r"`max_tokens` is no field of `Settings`. Did you mean `max_output_tokens`"):
        made(max_tokens=3)
    with pytest.raises(TypeError, match="Did you mean `temperature`"):
        made(temprature=3)
    with pytest.raises(TypeError, match="Its fields are: max_output_tokens, temperature"):
        made(xyz=3)
    for kind in (
        Approval,
        Deadlines,
        ModelLimits,
        PermissionRule,
        Policy,
        RetryPolicy,
        ScriptLimits,
        StepChanges,
        Tool,
    ):
        field = kind.__struct_fields__[-1]
        with pytest.raises(TypeError, match=f"`{field}z` is no field of `.*`. Did you mean `{field}`"):
            kind(**{f"{field}z": None})
    result: Any = Agent(ScriptedModel(["Hello."])).run_sync("Go.")
    for name, fix in ELSEWHERE.items():
        with pytest.raises(AttributeError) as caught:
            getattr(result, name)
        assert fix in str(caught.value)
        (there,) = set(re.findall(r"result\.(\w+)", fix)[:1])
        assert hasattr(result, there)
    with pytest.raises(AttributeError, match=r"`RunResult` has no attribute `txt`$"):
        result.txt  # noqa: B018


@each("family", [*FAMILIES])
def test_extra_does_not_replace_what_turnwise_writes(family: FamilyName) -> None:
    """Proves: the history, the instructions and the agent's own tools cannot get lost in silence. Without tools of its own, an
    agent may ask for the provider's."""

    def make(extra: dict[str, object], **options: Any) -> Agent[Any, Any]:
        return Agent(Model(f"{family}:m", base_url="http://x.invalid", extra=extra), **options)

    @tool
    def look(place: str) -> str:
        """Look there."""
        return place

    facts = relay_facts(family)
    for field in {facts.history, facts.beside or facts.history, "stream", *([] if facts.model_in_path else ["model"])}:
        with pytest.raises(CallerError, match=f"`extra` of `Model` must not have `{field}`"):
            make({field: None})
    asks = {"tools": [{"type": "web_search"}], "tool_choice": "auto", "response_format": {"type": "json_object"}}
    make(asks)
    own_options: dict[str, dict[str, Any]] = {"tools": {"tools": [look]}}
    if family != "gemini":  # which has its schema among other settings
        own_options["response_format"] = {"output_type": int}
    form = {
        "openai_responses": {"text": {"format": {"type": "text"}}},
        "anthropic_messages": {"output_config": {"format": {"type": "text"}}},
        "gemini": {"generation_config": {"response_mime_type": "text/plain"}},
        "ollama_chat": {"format": {"type": "text"}},
    }.get(family, {"response_format": {"type": "text"}})
    with pytest.raises(CallerError, match=f"must not have `{next(iter(form))}`.*`output_type`"):
        make(form, output_type=int)
    other = Model(f"{family}:m", base_url="http://x.invalid", extra={"tools": []})
    with (
        pytest.raises(CallerError, match="must not have `tools`"),
        Agent("openai:m", tools=[look]).override(model=other),
    ):
        pass
    for field, options in own_options.items():
        with pytest.raises(CallerError, match=f"must not have `{field}`"):
            make(asks, **options)
        with pytest.raises(CallerError, match=f"must not have `{field}`"):
            make(asks).run_sync("Go.", **options)
    own = ToolSpec(name="web", opaque=Opaque(family, '{"type":"web_search"}'))
    Agent(model := ScriptedModel(["Hello."], family=family), tools=[look, own]).run_sync("Go.")
    assert b'"look"' in model.requests[0].body and b'"web_search"' in model.requests[0].body


def test_fallbacks_are_names_or_models_of_the_same_endpoint() -> None:
    """Proves: a fallback may bring its limits; what the endpoint could not serve is an error where the agent is made."""
    limits = ModelLimits(max_output_tokens=77)
    agent = Agent("openai:gpt-5", recovery={"fallbacks": ["a", "openai:b", Model("openai:c", limits=limits)]})
    found = inside(agent).config.fallbacks
    assert [one.model for one in found] == ["a", "b", "c"]
    assert found[2].limits is not None and found[2].limits.max_output_tokens == 77
    for wrong in (Model("anthropic:c"), Model("openai:c", base_url="http://x.invalid"), 3):
        with pytest.raises(CallerError, match="fallbacks"):
            Agent("openai:gpt-5", recovery={"fallbacks": [wrong]})  # pyright: ignore[reportArgumentType]


def test_the_key_is_looked_for_when_a_run_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Proves: a module may make its agents without a key. The run raises before it sends or journals anything; a key that is set
    later is used, and hidden."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    scripted = ScriptedModel([f"It is {KEY}."], family="openai")
    with Journal(tmp_path / "turns.db") as journal:
        agent = Agent(Model("openai:gpt-5", transport=Sends(scripted)), journal=journal)
        with pytest.raises(MissingKey, match="OPENAI_API_KEY"):
            agent.run_sync("Go.")
        assert not scripted.requests and not journal.sessions()
        with agent.override(model=ScriptedModel(["Fake."])):
            assert agent.run_sync("Go.").text == "Fake."
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert KEY not in agent.run_sync("Go.").text
    assert f"Bearer {KEY}" in dict(scripted.requests[0].headers).values()


class Toolbox:
    """A toolset with one tool that says its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def tools(self) -> list[Any]:
        @tool(name="say")
        def say() -> str:
            """Say it."""
            return self.name

        return [say]


async def test_an_override_holds_inside_its_block_and_in_sub_agents() -> None:
    """Proves: whoever runs the agent inside the block asks the other model, in a sub-agent too, with other deps and toolsets.
    Nested blocks add to each other; behind the block all is as before."""

    @tool
    def who(context: RunContext[str]) -> str:
        """Who asks."""
        return context.deps

    real, real_below = ScriptedModel(["Real.", "Real."]), ScriptedModel([])
    helper = Agent(real_below)
    agent = Agent(real, tools=[who, Toolbox("real"), Subagents({"help": helper})], deps_type=str)
    lines = [[call("who"), call("say"), call("task", prompt="Help.")], "Help.", "Fake."]
    fake = ScriptedModel(lines)
    with agent.override(model=ScriptedModel([]), deps="me"):
        with agent.override(model=fake, toolsets=[Toolbox("fake")]):
            assert (await agent.run("Go.", deps="you")).text == "Fake."
        with agent.override(model=(inner := ScriptedModel([call("say"), "Inner."]))):
            await agent.run("Go.")
        assert "real" in str(inner.asked[1].messages[-1])
    results = str(fake.asked[2].messages[-1])
    assert all(word in results for word in ("'me'", "'fake'", "'Help.'")) and not real.asked + real_below.asked
    assert (await agent.run("Go.", deps="you")).text == "Real."
    with (
        agent.override(model=(above := ScriptedModel([call("task", prompt="Help."), "Done."]))),
        helper.override(model=(below := ScriptedModel(["Mine."]))),
    ):
        await agent.run("Go.", deps="you")
    assert (len(above.asked), len(below.asked)) == (2, 1), "a sub-agent's own override goes before that from above"


def test_an_override_lets_a_broken_tool_fail_the_test() -> None:
    """Issue 44: a program's agent tells its model of a broken tool; its test wants the exception, of a sub-agent's tool too."""

    @tool
    def broken() -> str:
        """Break."""
        raise ZeroDivisionError

    below = Agent(ScriptedModel([call("broken"), "Sorry."] * 2), tools=[broken]).as_tool("below", "Breaks.")
    agent = Agent(ScriptedModel([call("below", prompt="Go."), "Sorry."] * 2), tools=[below])
    assert agent.run_sync("Go.").text == "Sorry."
    with agent.override(tool_errors="raise"), pytest.raises(ZeroDivisionError):
        agent.run_sync("Go.")
    with pytest.raises(CallerError, match="`tool_errors` must be"), agent.override(tool_errors="raised"):  # pyright: ignore
        pass


async def test_tasks_side_by_side_have_overrides_of_their_own() -> None:
    """Proves: an override is of its context. A run that began inside keeps it after the block; another task never sees it."""
    agent = Agent(ScriptedModel(["Real."]))
    inside = asyncio.Event()

    async def swapped(text: str) -> str:
        with agent.override(model=ScriptedModel([text])):
            inside.set()
            run = agent.start("Go.")
        return (await run).text

    async def plain() -> str:
        await inside.wait()
        return (await agent.run("Go.")).text

    assert await asyncio.gather(swapped("One."), swapped("Two."), plain()) == ["One.", "Two.", "Real."]
    with pytest.raises(CallerError), agent.override(model=3):  # pyright: ignore[reportArgumentType]
        pass
