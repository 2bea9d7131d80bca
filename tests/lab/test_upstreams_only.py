"""Whole turns of an agent at the families that no client of the gateway speaks, over real sockets."""

import json

import pytest
from msgspec.structs import replace

from turnwise import Agent, Model, StopReason, tool
from turnwise.lab import Lab, builtin_scripts
from turnwise.wire.family import MODULES
from turnwise.wire.relay_facts import relay_facts

FAMILIES = [name for name in MODULES if not relay_facts(name).has_door]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stream", [True, False])
async def test_parallel_calls_run_and_go_back_with_their_results(family: str, stream: bool) -> None:
    """Two calls in one response, both results in the next request, which the strict judge takes; then the answer."""
    ran: list[str] = []

    @tool
    def read(path: str) -> str:
        """Read a file."""
        ran.append(path)
        return json.dumps({"path": path, "text": "status: draft"})

    async with Lab() as lab:
        model = Model(f"{family}:parallel-calls", base_url=lab.url, api_key="k", stream=stream)
        result = await Agent(model, tools=[read], instructions="You work in a folder.").run("Read both.")
        assert (result.stop_reason, sorted(ran)) == (StopReason.ANSWERED, ["notes.txt", "todo.txt"])
        assert result.text == "I have read notes.txt and todo.txt."
        assert [(one.family, one.streamed, one.refused) for one in lab.requests] == [(family, stream, None)] * 2
        again = lab.requests[1].request
        assert again is not None and [message.role for message in again.messages[-2:]] == ["assistant", "tool"]
        assert len(again.messages[-1].parts) == 2


@pytest.mark.parametrize("family", FAMILIES)
async def test_an_answer_that_the_limit_cut_is_continued(family: str) -> None:
    async with Lab() as lab:
        result = await Agent(Model(f"{family}:cut-text", base_url=lab.url, api_key="k")).run("Go.")
        assert result.stop_reason is StopReason.ANSWERED
        assert all(one.refused is None for one in lab.requests)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_prompt_past_the_window_is_an_overflow(family: str) -> None:
    """Nothing is cut in silence: the refusal is known as one of a prompt that does not fit, and told."""
    small = replace(builtin_scripts()["plain-answer"], name="small", window_tokens=50)
    async with Lab(scripts=[small]) as lab:
        agent = Agent(Model(f"{family}:small", base_url=lab.url, api_key="k"))
        result = await agent.run("word " * 2_000)
        assert result.stop_reason is StopReason.BUDGET and "too long for the model" in result.shown_text
        assert [one.status for one in lab.requests] == [400]
