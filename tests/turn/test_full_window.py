"""A response that fills the model's window is cut, whatever the server says of its end.

llama.cpp's server generates until prompt and answer fill the window. Its Chat and Messages endpoints say so; its Responses one
says `completed` (seen live, docs/live.md: a prompt of 995 tokens and an answer of 29 in a window of 1,024).
"""

import json

import pytest

from flat_agents import flat_agent
from turnwise import ModelLimits
from turnwise.testing.scripted_model import Reply, ScriptedTransport

JSON = {"content-type": "application/json"}
BODY = {
    "id": "resp_1",
    "object": "response",
    "model": "live",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I can help you with anything, from your trip to"}],
        }
    ],
    "usage": {"input_tokens": 995, "output_tokens": 29, "total_tokens": 1024},
}


async def ended(window_tokens: int | None) -> tuple[bool, str]:
    transport = ScriptedTransport([Reply(pieces=(json.dumps(BODY).encode(),), headers=JSON)])
    agent = flat_agent(
        "openai_responses:live",
        base_url="http://127.0.0.1/v1",
        transport=transport,
        stream=False,
        recover="off",
        model_limits=ModelLimits(context_window_tokens=window_tokens),
    )
    result = await agent.run("Say hello. " + "I have been there before, and I liked it. " * 60)
    return result.complete, result.why_incomplete


@pytest.mark.promise("end:reason", "cut:text-continued")
async def test_an_answer_that_fills_the_window_is_no_complete_one() -> None:
    """Proves: 995 and 29 tokens in a window of 1,024 met its end. Before, the answer counted as complete."""
    assert await ended(1024) == (False, "the output limit cut the answer")


@pytest.mark.parametrize("window_tokens", [None, 1025, 32_000])
async def test_an_answer_in_any_other_window_ended_by_itself(window_tokens: int | None) -> None:
    """Proves: nobody knows the window, or there is room left in it."""
    assert await ended(window_tokens) == (True, "")
