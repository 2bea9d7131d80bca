"""A call that the model made and its server could not read: the model is told and asked again, within the limits.

Reports: pydantic/pydantic-ai#4350, huggingface/smolagents#1119 (Groq's `tool_use_failed`, as an answer and within a stream);
pydantic/pydantic-ai#3095 (Gemini's `MALFORMED_FUNCTION_CALL`, with an empty response).
"""

import json
from typing import Any

import pytest

from flat_agents import flat_agent
from turnwise import MaxSteps, RunResult, StopReason
from turnwise.rules.answer_room import CALL_NOT_READ_AGAIN
from turnwise.testing.scripted_model import Reply, ScriptedTransport
from turnwise.turn.outcomes import CALL_LEFT_OVER

ERROR = {
    "message": "Failed to call a function. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": '<function=read={"path": "a"}</function>',
}
JSON = {"content-type": "application/json"}
REFUSED = Reply(status=400, headers=JSON, pieces=(json.dumps({"error": ERROR}).encode(),))


def streamed(*events: object) -> Reply:
    data = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode() for event in events]
    return Reply(pieces=tuple(data))


def choice(finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


IN_STREAM = streamed(choice(content="I read it."), {"error": {**ERROR, "status_code": 400}})
FILTERED = streamed(choice("function_call_filter: MALFORMED_FUNCTION_CALL"), "[DONE]")
ANSWER = streamed(choice(content="fine"), choice("stop"), "[DONE]")


async def run(*replies: Reply, **options: Any) -> tuple[RunResult, list[list[dict[str, Any]]]]:
    """What came of it, and the messages of each request."""
    transport = ScriptedTransport(replies)
    agent = flat_agent(
        "groq:llama-3.3-70b", api_key="k", base_url="http://127.0.0.1/v1", transport=transport, **options
    )
    result = await agent.run("Read it.")
    return result, [json.loads(request.body)["messages"] for request in transport.requests]


@pytest.mark.parametrize(
    ("unread", "said"), [(REFUSED, []), (IN_STREAM, ["I read it."]), (FILTERED, [])], ids=["400", "in stream", "word"]
)
async def test_an_unread_call_is_told_and_asked_for_again(unread: Reply, said: list[str]) -> None:
    """Proves: the turn goes on with its answer. The model reads why, behind the words that came with the call."""
    result, asked = await run(unread, ANSWER)
    assert (result.text, result.complete, len(asked)) == ("fine", True, 2)
    assert [(one["role"], one["content"]) for one in asked[1][len(asked[0]) :]] == [
        *[("assistant", text) for text in said],
        ("user", CALL_NOT_READ_AGAIN),
    ]
    assert [one.kind for one in result.repairs] == ["call_not_read"]


async def test_unread_calls_end_within_the_limits() -> None:
    """Proves: two in a row end the turn as two empty responses do, and the words beside the second are what it says."""
    result, asked = await run(FILTERED, FILTERED)
    assert (result.stop_reason, result.complete, len(asked)) == (StopReason.ANSWERED, False, 2)
    result, asked = await run(FILTERED, IN_STREAM)
    assert (result.text, result.complete, len(asked)) == ("I read it.", False, 2)
    result, asked = await run(REFUSED, ANSWER, limits=MaxSteps(1))
    assert (result.text, len(asked)) == ("fine", 2)


async def test_markup_of_a_call_is_never_a_complete_answer() -> None:
    """Proves: a call in the text of a tool that is not on offer is told, and asked for again; the second time the answer says
    why it is not complete."""
    markup = '<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>'
    left = streamed(choice(content=markup), choice("stop"), "[DONE]")
    result, asked = await run(left, ANSWER, recovery={"calls_in_text": "on"})
    assert (result.text, result.complete, len(asked)) == ("fine", True, 2)
    result, asked = await run(left, left, recovery={"calls_in_text": "on"})
    assert (result.complete, result.why_incomplete, len(asked)) == (False, CALL_LEFT_OVER, 2)
