"""Whoever started a sub-agent or a program is told which of its calls may have run when the process died."""

from pathlib import Path
from typing import Any

import pytest

from agent.test_resumed_runs import Crash, agent_of, results_of
from flat_agents import flat_agent
from turnwise import Agent, Journal, tool
from turnwise.base.clock import SystemClock
from turnwise.testing import ScriptedModel
from turnwise.testing.scripted_model import BASE_URL, call

SAID = "The process was interrupted while these calls ran, so their outcome is unknown: "
DOES = [call("do", name="it")]
CLOCK = SystemClock()


def tools_of(crash: Crash) -> list[Any]:
    @tool(effect="write")
    async def do(name: str) -> str:
        """Do it."""
        if crash.left is None:
            crash.now()
        return f"did {name}"

    return [do]


def below(journal: Journal, *replies: Any, **more: Any) -> Agent:
    model = ScriptedModel([*replies])
    return flat_agent(
        "openai_chat:m", base_url=BASE_URL, api_key="k", transport=model, journal=journal, clock=CLOCK, **more
    )


@pytest.mark.promise("keep:crash", "wait:child")
@pytest.mark.parametrize("deep", [False, True], ids=["child", "grandchild"])
async def test_the_parent_is_told_of_unknown_calls_below_it(tmp_path: Path, deep: bool) -> None:
    """Proves: the sub-agent's own answer says nothing of them; its parent reads which they are, and its report has them."""
    crash = Crash(tmp_path)

    def root(journal: Journal, *, lives: bool) -> Agent:
        own = ["It is fine."] if lives else [DOES, "It is fine."]
        helper = below(journal, *own, tools=tools_of(crash), description="It helps.")
        if deep:
            own = ["All is well."] if lives else [[call("task", prompt="Help.")], "All is well."]
            helper = below(journal, *own, agents={"helper": helper}, description="It leads.")
        model = ScriptedModel(["Done."] if lives else [[call("task", prompt="Help.")], "Done."])
        return agent_of(model, journal, clock=CLOCK, agents={"helper": helper})

    with Journal(crash.path, clock=CLOCK) as journal:
        before = await root(journal, lives=False).run("Go.")
    with crash.journal(CLOCK) as left:
        result = await root(left, lives=True).resume(left.sessions()[0].id)
    (told,) = results_of(result)
    answer = "All is well." if deep else "It is fine."
    beware = f'{SAID}`do` {{"name":"it"}}. Look at what they have done before you repeat any of it.'
    assert told == f"{answer}\n\n{beware}"
    assert [child.unknown for child in result.children] == [('`do` {"name":"it"}',)]
    assert [child.unknown for child in before.children] == [()]


@pytest.mark.promise("keep:crash")
async def test_a_program_that_takes_no_notice_does_not_hide_unknown_calls(tmp_path: Path) -> None:
    """Proves: it catches the error and prints something else, and the model is told all the same."""
    crash = Crash(tmp_path)
    program = 'try:\n    do(name="it")\nexcept RuntimeError:\n    pass\nprint("fine")'

    def agent(journal: Journal, *replies: Any) -> Agent:
        return agent_of(ScriptedModel([*replies]), journal, clock=CLOCK, tools=tools_of(crash), script=True)

    with Journal(crash.path, clock=CLOCK) as journal:
        await agent(journal, [call("script", program=program)], "Done.").run("Go.")
    with crash.journal(CLOCK) as left:
        result = await agent(left, "Done.").resume(left.sessions()[0].id)
    (told,) = results_of(result)
    assert told.startswith(f'fine\n\n{SAID}`do` {{"name":"it"}}. Look'), told
