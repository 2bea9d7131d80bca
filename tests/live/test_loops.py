"""A model that cannot learn: the server's template shows it nothing of what came after the question, so it calls again."""

import json

import pytest

from live.asking import bench, calls_made, each_endpoint
from live.serving import LiveServer
from live.talks import ONE_BY_ONE
from turnwise import StopReason

QUESTION = "Weather in Oslo?"


@pytest.mark.promise("loop:repeat", "end:never-empty", "end:reason")
@each_endpoint
async def test_the_guard_ends_a_model_that_repeats_itself(live: LiveServer, family: str) -> None:
    """Proves: the call runs four times, is answered from memory, and the turn ends as a loop with an answer, though the model
    calls even where tools are forbidden. (Where it is shown the results, this model stops at the first warning.)"""
    async with bench(family, server=live) as at:
        extra = {"chat_template_kwargs": {"shown_up_to": QUESTION}}
        agent = at.agent(tools=[at.weather()], extra=extra, max_steps=20)
        result = await agent.run(QUESTION, history=ONE_BY_ONE)
        at.check(result)
        assert result.stop_reason is StopReason.LOOP and not result.complete and result.why_incomplete
        others = len(at.ran) - 4  # before it settled on a city
        assert 0 <= others <= 3 and len(set(at.ran[-4:])) == 1
        assert {json.loads(call.arguments)["city"] for call in calls_made(result)} == set(at.ran)
        assert 7 <= result.requests - others <= 8
