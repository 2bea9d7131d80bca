"""An inspector that fails: the calls are asked about, and the turn goes on."""

import asyncio
from collections.abc import Sequence

import pytest

from flat_agents import flat_agent
from turnwise import Approval, Asking, Policy
from turnwise.rules.permission_facts import CallFacts
from turnwise.running.run_context import INSPECT_S, find_facts
from turnwise.running.tools import Tool
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import CallsInspected, InspectCalls, PlannedCall
from turnwise.vocab import ToolCall, ToolSpec
from waits import HANG_S

KEY = "tw-secret-0123456789"
CALL = ToolCall(id="a", name="read", arguments='{"path":"a"}')
ORDER = InspectCalls(step=1, calls=(PlannedCall(call=CALL, arguments=CALL.arguments, timeout_s=1.0),))
NOTHING = CallsInspected(facts=())


async def raises(_: Sequence[PlannedCall]) -> Sequence[CallFacts]:
    raise OSError(f"no share at //x?key={KEY}")


async def leaves(_: Sequence[PlannedCall]) -> Sequence[CallFacts]:
    raise SystemExit(1)


async def stalls(_: Sequence[PlannedCall]) -> Sequence[CallFacts]:
    await asyncio.Event().wait()
    return ()


async def nonsense(_: Sequence[PlannedCall]) -> Sequence[CallFacts]:
    return 3  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("inspector", [raises, leaves, nonsense])
async def test_what_an_inspector_raises_is_no_fact(inspector: object, caplog: pytest.LogCaptureFixture) -> None:
    """Proves: nothing is known, nothing is raised, and the log shows no key."""
    found = await find_facts(
        ORDER,
        inspector=inspector,  # pyright: ignore[reportArgumentType]
        clock=FakeClock(),
        scrub=lambda text: text.replace(KEY, "***"),
    )
    assert found == NOTHING
    assert "the inspector of calls raised" in caplog.text and KEY not in caplog.text


async def test_only_facts_are_facts() -> None:
    """Proves: what is something else is left out, and so asked about; the rest holds."""
    fact = CallFacts(call_id="a", tool="read", effect="read")

    async def mixed(_: Sequence[PlannedCall]) -> Sequence[CallFacts]:
        return [fact, "b"]  # pyright: ignore[reportReturnType]

    assert await find_facts(ORDER, inspector=mixed, clock=FakeClock()) == CallsInspected(facts=(fact,))


async def test_an_inspector_that_stalls_is_not_waited_for() -> None:
    """Proves: its deadline ends the wait, and nothing is known then."""
    clock = FakeClock()
    finding = asyncio.create_task(find_facts(ORDER, inspector=stalls, clock=clock))
    await clock.advance(INSPECT_S)
    assert await asyncio.wait_for(finding, HANG_S) == NOTHING


async def test_a_call_whose_inspector_raises_is_asked_about() -> None:
    """Proves: reading, which is allowed by default, is asked about where nobody could look; the run ends as any other."""
    asked: list[str] = []

    spec = ToolSpec(name="read", parameters='{"type":"object"}')
    read = Tool(offer=ToolOffer(spec=spec, effect="read", inspected=True), function=lambda _: "content")

    async def approver(asking: Asking) -> Sequence[Approval]:
        asked.extend([ask.why for ask in asking.asks])
        return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]

    model = ScriptedModel([call("read", path="a"), "It is read."])
    agent = flat_agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=[read],
        policy=Policy(attended=True),
        inspect=raises,
        approver=approver,
    )
    result = await asyncio.wait_for(agent.run("Go."), HANG_S)
    assert len(asked) == 1 and "turnwise could not look at what the call touches" in asked[0]
    assert (result.text, result.complete) == ("It is read.", True)
