"""A tool whose name its server refuses: MoonshotAI/kimi-cli#2531 (`_find` begins with no letter)."""

import json
from collections.abc import Sequence

import pytest

from flat_agents import flat_agent
from turnwise import Approval, Asking, Journal, MaxSteps, Policy, StopReason, tool
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.vocab import ToolCall, ToolResult

found: list[str] = []


@tool(name="_find", effect="write")
def find(path: str) -> str:
    """Find a thing."""
    found.append(path)
    return "found"


async def later(asking: Asking) -> Sequence[Approval]:
    assert [ask.call.name for ask in asking.asks] == ["_find"]
    return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


@pytest.mark.promise("heal:dialect")
async def test_a_run_knows_its_tool_by_its_own_name_whatever_the_server_calls_it() -> None:
    """Proves: Moonshot's judge takes every request; the asks, the later approval, the tool and the history that comes out of
    the journal have the tool's own name, and only the bodies have another one, always the same."""
    found.clear()
    lab = Lab(profile="moonshot")
    with Journal(None, clock=SystemClock()) as journal:
        agent = flat_agent(
            "moonshot:never-stops",
            api_key="k",
            base_url="http://lab/v1",
            transport=lab.transport(),
            tools=[find],
            policy=Policy(attended=True),
            approver=later,
            limits=MaxSteps(2),
            journal=journal,
        )
        first = await agent.run("Look for it.")
        assert first.stop_reason is StopReason.WAITING and not found
        [ask] = first.asks
        second = await agent.run(session=first.session, approvals=[Approval(call_id=ask.call.id, verdict="allow")])
        assert len(found) == 1 and [one.call.name for one in second.asks] == ["_find"]
    assert {one.status for one in lab.requests} == {200}
    parts = [part for message in second.history for part in message.parts]
    assert {part.name for part in parts if isinstance(part, ToolCall | ToolResult)} == {"_find"}
    bodies = [json.loads(one.body) for one in lab.requests]
    names = {one["function"]["name"] for body in bodies for one in body["tools"]} - {"read_result"}
    made = [call for body in bodies for message in body["messages"] for call in message.get("tool_calls", [])]
    assert len(names) == 1 and "_find" not in names
    assert made and {call["function"]["name"] for call in made} == names
