"""Limits through the library's face and the lab, in every family: kept exactly, and the last request is the answer."""

from pathlib import Path

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import (
    Agent,
    CallerError,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    ModelLimits,
    Settings,
    StopReason,
    tool,
)
from turnwise.lab import Lab
from turnwise.lab.writer import file_text
from turnwise.rules.limits import Limit
from turnwise.tools.workspace import workspace_tools

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = each("family", FAMILIES)
each_way = each("stream", [True, False], ids=["streamed", "whole"])


@tool(effect="read")
def search(pattern: str) -> str:
    """Search."""
    return f"nothing about {pattern}"


def agent_for(lab: Lab, script: str, *, family: str = "openai_chat", **options: object) -> Agent:
    base = f"{lab.url}/v1beta" if family == "gemini" else f"{lab.url}/v1"
    return flat_agent(f"{family}:{script}", base_url=base, **options)  # pyright: ignore[reportArgumentType]


@each_family
@each_way
@pytest.mark.promise("end:budget", "end:forced-answer")
@each("requests", [1, 5])
async def test_so_many_requests_are_made_and_the_last_is_the_answer(requests: int, family: str, stream: bool) -> None:
    """By the lab's own count; the model goes on for ever otherwise."""
    async with Lab() as lab:
        agent = agent_for(lab, "never-stops", family=family, stream=stream, tools=[search])
        result = await agent.run("Look for it.", limits=MaxRequests(requests))
        assert (result.requests, lab.count()) == (requests, requests)
        assert [one.refused for one in lab.requests if one.refused] == []
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.BUDGET, False, False)
    assert result.text.strip()


@each_family
@each_way
@pytest.mark.promise("end:budget", "end:forced-answer")
async def test_so_many_tools_run_and_the_model_answers(family: str, stream: bool) -> None:
    """By the tool's own count; the model goes on for ever otherwise."""
    ran: list[str] = []

    @tool(effect="read")
    def search(pattern: str) -> str:
        """Search."""
        ran.append(pattern)
        return "nothing"

    async with Lab() as lab:
        agent = agent_for(lab, "never-stops", family=family, stream=stream, tools=[search])
        result = await agent.run("Look for it.", limits=MaxToolCalls(3) | MaxRequests(9))
        assert (len(ran), result.requests, lab.count()) == (3, 4, 4)
        assert [one.refused for one in lab.requests if one.refused] == []
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.BUDGET, False, False)
    assert result.text.strip()


@each_family
@pytest.mark.promise("end:budget", "end:never-empty")
@each("script", ["never-stops-disobeys", "never-stops-at-all", "disobeys-none", "empty-answer"])
async def test_disobedient_and_empty_models_get_no_request_beyond_the_limit(script: str, family: str) -> None:
    """Where the cap on steps allows one more, the limit does not."""
    async with Lab() as lab:
        result = await agent_for(lab, script, family=family, tools=[search], limits=MaxRequests(3)).run("Look for it.")
        assert result.requests == lab.count() <= 3
    assert (bool(result.text.strip()), result.complete) == (True, False)


@each_family
@each_way
@pytest.mark.promise("end:budget")
async def test_a_limit_of_tokens_is_kept_and_ends_with_the_models_answer(family: str, stream: bool) -> None:
    """With the usage that the lab has counted."""
    async with Lab() as lab:
        agent = agent_for(lab, "never-stops", family=family, stream=stream, tools=[search], max_steps=60)
        result = await agent.run("Look.", limits=MaxTokens(5_000))
        counted = [one.usage for one in lab.requests if one.usage is not None]
    assert sum(one.input_tokens + one.output_tokens for one in counted) <= 5_000
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.BUDGET, False, False)
    assert 3 <= result.requests == len(counted) < 60


GUESSED = 64  # tokens: the first prompt has been counted by nobody, and the lab counts the whole body


def spent_at(lab: Lab) -> int:
    """By the lab's own count."""
    return sum(one.usage.input_tokens + one.usage.output_tokens for one in lab.requests if one.usage is not None)


@each_family
@each_way
@pytest.mark.promise("end:budget")
@each(
    ("tokens", "known", "reasoning"),
    [(6_000, None, None), (12_000, 64_000, None), (12_000, 64_000, 4_000), (3_000, 64_000, 2_000)],
)
async def test_an_answer_ends_where_a_limit_of_tokens_does(
    tokens: int, known: int | None, reasoning: int | None, family: str, stream: bool
) -> None:
    """30,000 tokens are wanted: the answer takes what the limit leaves, reasoning included, and is off by the guess alone."""
    async with Lab() as lab:
        agent = agent_for(
            lab,
            "writer-answer",
            family=family,
            stream=stream,
            limits=MaxTokens(tokens),
            model_limits=ModelLimits(max_output_tokens=known),
            settings=Settings(reasoning_tokens=reasoning),
        )
        result = await agent.run("Write it, please.")
        assert [one.refused for one in lab.requests if one.refused] == []
        assert 0.85 * tokens <= spent_at(lab) <= tokens + GUESSED
    assert (result.written_locally, result.complete) == (False, False)
    assert file_text(120_000).startswith(result.text)


@each_family
@each_way
@pytest.mark.promise("end:budget", "end:forced-answer", "cut:never-run")
@each("known", [None, 64_000])
async def test_a_file_longer_than_a_limit_of_tokens_leaves_room_for_the_answer(
    known: int | None, family: str, stream: bool, tmp_path: Path
) -> None:
    """10,000 tokens are wanted of 8,000: the cut call never runs, and the model still says so itself."""
    async with Lab() as lab:
        agent = agent_for(
            lab,
            "writer-file",
            family=family,
            stream=stream,
            limits=MaxTokens(8_000),
            model_limits=ModelLimits(max_output_tokens=known),
            tools=workspace_tools(tmp_path),
        )
        result = await agent.run("Write it, please.")
        assert [one.refused for one in lab.requests if one.refused] == []
        assert spent_at(lab) <= 8_000
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.BUDGET, False, False)


@pytest.mark.promise("end:budget")
async def test_limits_compose_and_a_run_may_choose_its_own() -> None:
    """`|` and `&`; a run's limits replace the agent's as a whole, its step cap among them."""
    async with Lab() as lab:
        agent = agent_for(lab, "never-stops", tools=[search], max_steps=8, limits=MaxRequests(2))
        made: list[tuple[int, StopReason]] = []
        chosen: list[Limit | None] = [
            MaxRequests(4) | MaxTokens(10_000_000) | MaxWallTime(600),
            MaxRequests(4) & MaxSteps(6),
            MaxSteps(3),
            None,
        ]
        for limits in chosen:
            result = await agent.run("Look.", limits=limits)
            made.append((result.requests, result.stop_reason))
        result = await agent.run("Look.")
        made.append((result.requests, result.stop_reason))
    budget, steps = StopReason.BUDGET, StopReason.STEP_LIMIT
    assert made == [(4, budget), (6, budget), (3, steps), (20, steps), (2, budget)]


@pytest.mark.promise("end:budget")
async def test_time_that_is_up_ends_a_turn_that_waits_for_a_provider() -> None:
    """The provider says nothing at all; the limit is shorter than every deadline."""
    async with Lab() as lab:
        result = await agent_for(lab, "fault-silence", limits=MaxWallTime(0.2)).run("Hello?")
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.TIME_LIMIT, False, True)
    assert result.text.startswith("The turn's time was up")


@pytest.mark.parametrize("limits", [MaxRequests(0), 5])
async def test_a_limit_that_cannot_work_is_refused(limits: object) -> None:
    """Before anything is sent."""
    async with Lab() as lab:
        with pytest.raises(CallerError, match="limits"):
            await agent_for(lab, "plain-answer", limits=limits).run("Hello?")
        assert lab.count() == 0
