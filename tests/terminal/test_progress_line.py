"""What a session waits for, at the command line: some of it is answered, the rest waits on (issue 14, 1)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flat_agents import flat_agent
from terminal.person import at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise import Journal, ToolSpec
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import journal_path
from turnwise.lab import Lab
from turnwise.testing import ScriptedModel, call

THREE = script(
    "three",
    """
[[steps]]
calls = [
    { name = "bash", arguments = { command = "touch a.txt" } },
    { name = "bash", arguments = { command = "touch b.txt" } },
    { name = "bash", arguments = { command = "touch c.txt" } },
]

[[steps]]
text = "Done: {results}"
""",
)


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    with running_lab([THREE]) as lab:
        yield lab


@pytest.mark.promise("wait:ask")
def test_approving_one_of_three_leaves_the_others_waiting(lab: Lab, folder: Path, cli: Cli) -> None:
    """Each run lists what is still open and ends with 4; one request carries all results at last."""
    with at_terminal("run", "Go.", *at(lab, "three"), cwd=folder) as person:
        for name in "abc":
            person.sees(f"touch {name}.txt")
            person.sees("then no)")
            person.types("l\r")
        person.leaves_by(4)
    asks = cli("run", "--continue").err
    a, b, c = [word.strip("(),;") for word in asks.split() if word.startswith("(call")]
    first = cli.approves("run", "--continue", "--approve", b, "--json")
    last = first.events()[-1]
    assert (first.code, last["stop_reason"], lab.count()) == (4, "waiting", 1)
    assert [ask["id"] for ask in last["asks"]] == [a, c]
    assert sorted(path.name for path in folder.glob("?.txt")) == ["b.txt"]
    again = cli("run", "--continue", "--approve", b)
    assert again.code == 2 and "no such call waits" in again.err
    second = cli("run", "--continue", "--deny", a)
    assert second.code == 4 and f"1 call left for later: bash ({c})" in second.err and lab.count() == 1
    third = cli.approves("run", "--continue", "--approve", "all")
    assert third.code == 0 and "the user denied it" in third.out and lab.count() == 2
    assert sorted(path.name for path in folder.glob("?.txt")) == ["b.txt", "c.txt"]


@pytest.mark.promise("step:client-tools")
def test_a_session_that_waits_for_results_is_not_gone_on_with_by_mistake(lab: Lab, folder: Path, cli: Cli) -> None:
    """`run --continue` without a prompt is no word that the results are not needed: it says what waits, and keeps it."""
    model = ScriptedModel([call("phone")])
    with Journal(journal_path({"TURNWISE_STATE_DIR": str(folder.parent / "state")}), clock=SystemClock()) as journal:
        agent = flat_agent(
            "openai_chat:scripted",
            base_url=model.endpoint.base_url,
            transport=model,
            tools=[ToolSpec(name="phone")],
            journal=journal,
            folder=folder,
        )
        (waits,) = agent.run_sync("Call them.").pending
    ran = cli("run", "--continue", *at(lab, "three"))
    assert ran.code == 2 and f"waits for results of client-side tools: phone ({waits.id})" in ran.err
    assert lab.count() == 0
