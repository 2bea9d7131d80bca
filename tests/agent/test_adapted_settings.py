"""What does not go to a model as it was set is told, once in a session (promise heal:generation)."""

from collections.abc import Sequence

import pytest

from flat_agents import flat_agent
from turnwise import Agent, Journal, NamedTool, RunNoted, Settings, StopReason
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.running.watcher_events import WatcherEvent

NEW = "claude-sonnet-5-5"
TEMPERATURE = f"`{NEW}` does not get a setting as you set it: `temperature`: the model takes the default alone"
FORCED = (
    f"`{NEW}` does not get a setting as you set it: `tool_choice`: the model cannot be forced to call a tool; a sentence asks "
    "for the call"
)
MISSING = f"`{NEW}` was to call `read` (`tool_choice`), and answered without the call"


def read(path: str) -> str:
    """Read a part."""
    return f"{path}: the quick brown fox."


def lab_of(*, calls: bool) -> Lab:
    step = (ScriptedStep(calls=(ScriptedCall(name="read", arguments={"path": "part"}),)),) if calls else ()
    return Lab([Script(name=NEW, title="answers", steps=(*step, ScriptedStep(text="Done.")))])


def agent_at(lab: Lab, journal: Journal | None) -> Agent:
    return flat_agent(
        f"anthropic:{NEW}",
        api_key="k",
        base_url="http://lab",
        tools=[read],
        transport=lab.transport(),
        settings=Settings(temperature=0.2),
        tool_choice=NamedTool("read"),
        journal=journal,
    )


def noted(seen: Sequence[WatcherEvent]) -> list[str]:
    return [one.text for one in seen if isinstance(one, RunNoted)]


@pytest.mark.promise("heal:generation")
async def test_an_adapted_setting_is_told_once_in_a_session() -> None:
    """Proves: watchers and the result are told of each setting once, not in each step, and not by a later agent that continues
    the session, which another process may be. The repairs have them too."""
    lab, seen, later = lab_of(calls=True), list[WatcherEvent](), list[WatcherEvent]()
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal).run("Read.", watch=seen.append)
        second = await agent_at(lab, journal).run("Again.", session=first.session, watch=later.append)
        anew = await agent_at(lab, journal).run("Read.")
    assert (first.text, second.text) == ("Done.", "Done.")
    assert noted(seen) == list(first.notes) == [FORCED, TEMPERATURE] == list(anew.notes)
    assert noted(later) == list(second.notes) == []
    told = [(repair.where, repair.what) for repair in first.repairs if repair.kind == "adapted"]
    assert [f"{where} does not get a setting as you set it: {what}" for where, what in told] == [FORCED, TEMPERATURE]
    assert [one.kind for one in second.repairs] == []


@pytest.mark.promise("heal:generation")
async def test_a_call_that_was_asked_for_and_not_made_is_told() -> None:
    """Proves: where the model cannot be forced and answers without the call, the run ends with that answer, and says so."""
    lab, seen = lab_of(calls=False), list[WatcherEvent]()
    result = await agent_at(lab, None).run("Read.", watch=seen.append)
    assert (result.text, result.stop_reason, result.requests) == ("Done.", StopReason.ANSWERED, 1)
    assert noted(seen) == list(result.notes) == [FORCED, TEMPERATURE, MISSING]
