"""`batch_hint`: ten independent reads, by models that heed the sentence and models that do not."""

from collections.abc import Callable

import pytest

from flat_agents import flat_agent
from turnwise import MaxRequests, RunResult, tool
from turnwise.agent.tools import BATCH_HINT
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Request, ToolCall, ToolResult

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = pytest.mark.parametrize("family", FAMILIES)
READS = 10


@tool(effect="read")
def read(path: str) -> str:
    """Read."""
    return f"the text of {path}"


def reader(*, heeds: bool) -> Callable[[Request], str | list[ToolCall]]:
    """Reads ten files: all at once where it heeds the hint and has it, else one after the other."""

    def say(request: Request) -> str | list[ToolCall]:
        seen = sum(isinstance(part, ToolResult) for message in request.messages for part in message.parts)
        if seen == READS or not request.tools or request.tool_choice == "none":
            return f"Read {seen} files."
        together = heeds and any(BATCH_HINT in part.text for part in request.system)
        wanted = range(seen, READS if together else seen + 1)
        return [call("read", path=f"{number}.txt") for number in wanted]

    return say


async def ran(family: str, *, heeds: bool, **options: object) -> tuple[ScriptedModel, RunResult]:
    model = ScriptedModel([reader(heeds=heeds)] * (READS + 1), family=family)
    agent = flat_agent(  # pyright: ignore[reportArgumentType]
        f"{family}:m",
        base_url="http://x",
        transport=model,
        **{"tools": [read], "instructions": "Be kind.", **options},  # pyright: ignore[reportArgumentType]
    )
    return model, await agent.run("Read them.")


def systems(model: ScriptedModel) -> set[str]:
    return {"\n".join([part.text for part in request.system]) for request in model.asked}


@each_family
@pytest.mark.promise("step:parallel-together")
async def test_ten_independent_reads_take_two_requests_where_the_hint_is_heeded(family: str) -> None:
    """Eleven without it; a model that ignores it makes none more."""
    made = [
        (await ran(family, heeds=heeds, batch_hint=hint))[1]
        for heeds, hint in ((True, True), (True, False), (False, True), (False, False))
    ]
    assert [result.requests for result in made] == [2, 11, 11, 11]
    assert {(result.text, result.complete) for result in made} == {(f"Read {READS} files.", True)}


@each_family
@pytest.mark.promise("step:prefix-stable")
async def test_the_hint_stands_in_every_request_alike(family: str) -> None:
    """The forced answer's too, so that no cache is lost; without tools, or where calls may not be parallel, it is not there."""
    model, result = await ran(family, heeds=False, batch_hint=True, limits=MaxRequests(4))
    (system,) = systems(model)
    assert (system.startswith("Be kind."), system.count(BATCH_HINT), len(model.asked)) == (True, 1, 4)
    forced = ("request 4: tool choice",) if family == "anthropic_messages" else ()  # its cache rests on that, too
    assert result.prefix_changes == forced
    for options in ({"tools": []}, {"parallel_tool_calls": False}, {"batch_hint": False}):
        model, _ = await ran(family, heeds=False, **{"batch_hint": True, **options})
        assert systems(model) == {"Be kind."}
