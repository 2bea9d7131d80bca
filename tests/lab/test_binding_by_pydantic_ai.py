"""The judge of bound thinking, judged itself: an agent library that we did not write sends its conversations back unchanged."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, ToolOutput
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider

from tables import each
from turnwise.lab import Lab, Script
from turnwise.lab.script import ScriptedCall, ScriptedStep

MODEL = "claude-opus-5-5"
CITY = {"city": "Lima", "people": 10}
ALL_MARKS = AnthropicModelSettings(
    anthropic_cache_instructions=True, anthropic_cache_tool_definitions=True, anthropic_cache_messages=True
)
Conversation = Callable[[Agent[None, str]], Awaitable[str]]


class City(BaseModel):
    city: str
    people: int


def calls(*names: str, **arguments: object) -> ScriptedStep:
    made = [ScriptedCall(name=name, arguments=arguments or {"path": f"{at}.txt"}) for at, name in enumerate(names)]
    return ScriptedStep(reasoning="Hm.", calls=tuple(made))


def says(text: str = "Done.") -> ScriptedStep:
    return ScriptedStep(reasoning="So it is.", text=text)


def reader(agent: Agent[None, str]) -> list[str]:
    """Gives the agent the tool `read`, which refuses its first path once. What was read stands in the list."""
    seen: list[str] = []

    @agent.tool_plain
    def read(path: str) -> str:
        """Reads a file."""
        seen.append(path)
        if path == "wrong.txt" and seen.count(path) == 1:
            raise ModelRetry("There is no such file; list the folder first.")
        return f"{path} is empty"

    return seen


async def plain(agent: Agent[None, str]) -> str:
    return (await agent.run("Please.")).output


async def with_tools(agent: Agent[None, str]) -> str:
    reader(agent)
    return await plain(agent)


async def thinking(agent: Agent[None, str]) -> str:
    reader(agent)
    asked = AnthropicModelSettings(
        anthropic_thinking={"type": "adaptive", "display": "summarized"}, anthropic_effort="low"
    )
    return (await agent.run("Please.", model_settings=asked)).output


async def by_output_tool(agent: Agent[None, str]) -> str:
    reader(agent)
    wanted = ToolOutput(City, name="answer")
    found = await agent.run("Please.", output_type=wanted)
    again = await agent.run("Again.", output_type=wanted, message_history=found.all_messages())
    return str(again.output.people)


async def by_schema(agent: Agent[None, str]) -> str:
    reader(agent)
    found = await agent.run("Please.", output_type=NativeOutput(City))
    return str(found.output.people)


async def retries(agent: Agent[None, str]) -> str:
    seen = reader(agent)
    said = await plain(agent)
    assert seen == ["wrong.txt", "wrong.txt", "wrong.txt"]
    return said


async def over_turns(agent: Agent[None, str]) -> str:
    """Its history is kept as JSON between the turns, as its docs say."""
    reader(agent)
    kept, said = b"[]", ""
    for text in ("Please.", "And now?", "And then?"):
        found = await agent.run(text, message_history=ModelMessagesTypeAdapter.validate_json(kept))
        kept, said = found.all_messages_json(), found.output
    return said


async def streaming(agent: Agent[None, str]) -> str:
    reader(agent)
    async with agent.run_stream("Please.") as found:
        said = await found.get_output()
    async with agent.run_stream("Again.", message_history=found.all_messages()) as found:
        assert await found.get_output() == said
    return said


async def system_prompts(agent: Agent[None, str]) -> str:
    reader(agent)

    @agent.system_prompt
    def place() -> str:
        return "You are in Lima."

    @agent.instructions
    def manner() -> str:
        return "Be brief."

    found = await agent.run("Please.")
    return (await agent.run("Again.", message_history=found.all_messages())).output


async def cached(agent: Agent[None, str]) -> str:
    """The marks of the cache move on with each request."""
    reader(agent)
    found = await agent.run("Please.", instructions="Be brief.", model_settings=ALL_MARKS)
    asked = await agent.run(
        "Again.", instructions="Be brief.", message_history=found.all_messages(), model_settings=ALL_MARKS
    )
    return asked.output


# What the model says, and how many requests that takes.
CONVERSATIONS: Mapping[str, tuple[Conversation, tuple[ScriptedStep, ...], int]] = {
    "plain": (plain, (says(),), 1),
    "tools": (with_tools, (calls("read"), calls("read"), says()), 3),
    "parallel tools": (with_tools, (calls("read", "read", "read"), calls("read", "read"), says()), 3),
    "thinking": (thinking, (calls("read"), calls("read"), calls("read"), says()), 4),
    "structured output": (by_output_tool, (calls("read"), calls("answer", **CITY)), 3),
    "schema of the answer": (by_schema, (calls("read"), says('{"city":"Lima","people":10}')), 2),
    "retries": (retries, (calls("read", path="wrong.txt"),) * 3 + (says(),), 4),
    "history over turns": (over_turns, (calls("read"), says()), 6),
    "streaming": (streaming, (calls("read"), calls("read"), says()), 6),
    "system prompts": (system_prompts, (calls("read"), says()), 4),
    "cached prompts": (cached, (calls("read"), calls("read"), says()), 6),
}


@pytest.mark.costly
@pytest.mark.promise("step:bound-thinking")
@each("name", CONVERSATIONS)
async def test_the_judge_takes_what_an_agent_library_sends_back(name: str) -> None:
    """Proves: pydantic-ai, told that the model binds its thinking, is refused nothing in any conversation, asks for nothing to
    be dropped, sends each thinking block back, and loses none. So a refusal of the judge is no whim of ours."""
    talk, steps, requests = CONVERSATIONS[name]
    script = Script(name=MODEL, title="thinks", steps=steps, binds="refuses", generation=MODEL)
    async with Lab([script]) as lab:
        web = anthropic.DefaultAsyncHttpxClient(verify=False)
        async with anthropic.AsyncAnthropic(api_key="lab", base_url=lab.url, max_retries=0, http_client=web) as client:
            provider = AnthropicProvider(anthropic_client=client)
            said = await talk(Agent(AnthropicModel(MODEL, provider=provider)))
        kept: list[Any] = list(lab.requests)
    assert (said, len(kept)) == ("10" if talk in (by_output_tool, by_schema) else "Done.", requests)
    assert [(one.status, one.refused, one.dropped) for one in kept] == [(200, None, ())] * requests
    assert not any(b"block_binding" in one.body for one in kept)
    assert [one.body.count(b'"type":"thinking"') for one in kept] == list(range(requests))
