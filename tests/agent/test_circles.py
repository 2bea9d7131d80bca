"""Models that go in circles, and two that only seem to, through the library's face and the lab in every family."""

from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import Agent, StopReason, tool
from turnwise.lab import Lab, builtin_scripts, numbered_lines
from turnwise.testing import ScriptedModel, call
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import Text, ToolResult

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = pytest.mark.parametrize("family", FAMILIES)
each_way = each("stream", [True, False], ids=["streamed", "whole"])
CHECKS = 30
BASES = {"gemini": "/v1beta", "anthropic_messages": ""}  # Anthropic's base URL has no version


def agent_for(lab: Lab, script: str, *, family: str, **options: object) -> Agent:
    base = lab.url + BASES.get(family, "/v1")
    return flat_agent(f"{family}:{script}", base_url=base, **options)  # pyright: ignore[reportArgumentType]


class Desk:
    """Two files that never change, a folder, and a job that ends after so many checks."""

    def __init__(self, *, checks: int = CHECKS) -> None:
        self.ran: list[str] = []
        self.checks = checks

    def tools(self) -> list[object]:
        @tool(effect="read")
        def read(path: str) -> str:
            self.ran.append(path)
            return f"{path} is a draft"

        @tool(effect="read", name="list")
        def list_(path: str) -> str:
            self.ran.append(path)
            return "notes.txt todo.txt"

        @tool(effect="read")
        def status(job: str) -> str:
            self.ran.append(job)
            done = len(self.ran)
            return f"{done} of {self.checks}; look again for check {done + 1}" if done < self.checks else "all done"

        @tool
        def search(pattern: str) -> str:
            self.ran.append(pattern)
            return f"{len(self.ran)} places for {pattern}"

        return [read, list_, status, search]


@each_family
@each_way
@pytest.mark.promise("loop:repeat", "loop:cycle", "end:reason", "step:every-call-answered")
@each(("script", "period"), [("loop-same-call", 1), ("loop-two-calls", 2), ("loop-three-calls", 3)])
async def test_a_circle_runs_each_call_four_times_and_ends_with_an_answer_three_requests_later(
    script: str, period: int, family: str, stream: bool
) -> None:
    """With default settings the model is told, answered from memory, made to answer; the strict lab refuses nothing."""
    desk = Desk()
    async with Lab() as lab:
        result = await agent_for(lab, script, family=family, stream=stream, tools=desk.tools()).run("Have a look.")
        assert [one.refused for one in lab.requests if one.refused] == []
        assert lab.count() == result.requests
    assert (len(desk.ran), result.requests) == (4 * period, 4 * period + 3)
    assert (result.stop_reason, result.complete, result.written_locally) == (StopReason.LOOP, False, False)
    assert result.text.strip()
    texts = [
        part.text
        for message in result.history
        for found in message.parts
        if isinstance(found, ToolResult)
        for part in found.content
        if isinstance(part, Text)
    ]
    assert any(text.startswith("(Note: ") for text in texts)
    assert any(text.startswith("Not run again: ") for text in texts)


@each_family
@each_way
@pytest.mark.promise("loop:polling")
async def test_a_status_that_changes_thirty_times_is_asked_thirty_times(family: str, stream: bool) -> None:
    """No word, no block: the model hears nothing but the status, and ends by itself."""
    desk = Desk()
    async with Lab() as lab:
        agent = agent_for(lab, "poll-status", family=family, stream=stream, tools=desk.tools(), max_steps=60)
        result = await agent.run("Wait for the build.")
    assert (len(desk.ran), result.requests) == (CHECKS, CHECKS + 1)
    assert (result.text, result.stop_reason) == ("The build is over: all done", StopReason.ANSWERED)


@pytest.mark.promise("loop:polling")
async def test_three_jobs_that_are_asked_in_rotation_are_all_waited_for() -> None:
    """From a tester: the model asks for three jobs in turn, each done with its fourth look; the turn ended `loop` before the
    second was done, and a result from memory said of a call with one look that it had been made over and over."""
    looks: dict[str, int] = {}

    @tool(effect="read")
    def status(job: str) -> str:
        looks[job] = looks.get(job, 0) + 1
        return "done" if looks[job] >= 4 else "running"

    asked = [call("status", job=job) for _ in range(4) for job in "ABC"]
    agent = flat_agent(
        "openai_chat:m", base_url="http://x", transport=ScriptedModel([*asked, "All done."]), tools=[status]
    )
    result = await agent.run("Wait for the jobs.")
    assert (looks, result.text, result.stop_reason) == (dict.fromkeys("ABC", 4), "All done.", StopReason.ANSWERED)


@each_family
@pytest.mark.promise("loop:polling")
async def test_a_tool_that_is_meant_to_be_repeated_may_say_the_same_each_time(family: str) -> None:
    """`@tool(repeatable=True)` spares it from the guard, up to the turn's own cap."""
    ran: list[str] = []

    @tool(effect="read", repeatable=True)
    def read(path: str) -> str:
        ran.append(path)
        return "nothing yet"

    async with Lab() as lab:
        result = await agent_for(lab, "loop-same-call", family=family, tools=[read], max_steps=12).run("Wait for it.")
    assert (len(ran), result.requests, result.stop_reason) == (11, 12, StopReason.STEP_LIMIT)


@each_family
@pytest.mark.promise("end:cap", "loop:repeat")
@each("script", ["never-stops", "never-stops-disobeys", "never-stops-at-all"])
async def test_models_that_never_stop_make_no_more_requests_than_the_cap(script: str, family: str) -> None:
    """With default settings, where every search finds something else; a disobedient one at most one more."""
    desk = Desk()
    async with Lab() as lab:
        result = await agent_for(lab, script, family=family, tools=desk.tools()).run("Look for it.")
        assert result.requests == lab.count()
    assert 20 <= result.requests <= 20 + (script != "never-stops")
    assert result.stop_reason is StopReason.STEP_LIMIT
    assert (bool(result.text.strip()), result.complete) == (True, False)


@each_family
@each_way
@pytest.mark.promise("loop:cut-variants", "cut:never-run", "cut:split")
async def test_cut_variants_of_one_write_end_and_a_retry_after_a_split_notice_runs(
    family: str, stream: bool, tmp_path: Path
) -> None:
    """Six cut attempts and nothing is written; three cut attempts, then pieces or the same call whole, and all is."""
    options: dict[str, Any] = {
        "family": family,
        "stream": stream,
        "tools": workspace_tools(tmp_path),
        "recover": "split",
    }
    async with Lab() as lab:
        circle = await agent_for(lab, "loop-cut-calls", **options).run("Write it.")
        assert not (tmp_path / "big.txt").exists()
        assert (circle.requests, circle.stop_reason) == (7, StopReason.LOOP)
        assert circle.text.startswith("big.txt is not written")
        for script, lines in (("retry-after-split", 200), ("retry-same-after-split", 100)):
            result = await agent_for(lab, script, **options).run("Write it.")
            assert (result.requests, result.complete) == (builtin_scripts()[script].requests, True), script
            assert (tmp_path / "big.txt").read_text() == numbered_lines(1, lines)
        assert [one.refused for one in lab.requests if one.refused] == []
