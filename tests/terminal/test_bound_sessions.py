"""One long session of the command line with a model that binds its thinking (promise step:bound-thinking): AGENTS.md is edited,
the process killed, the instructions and the tools change, another model takes a turn, a sub-agent works. Each turn ends with its
answer, and no more thinking is lost than stands behind a change."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.test_bound_sessions import flat, stale_at_least, unmarked
from agent.test_bound_thinking import BOUND, FREE
from terminal.person import at_terminal
from terminal.running import at, begin, end, running_lab
from terminal.test_chat import leave, prompt
from terminal.test_processes import wait_until
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import Binding, Script, ScriptedCall, ScriptedStep

READS = 4  # of most turns; the parent has 39 steps, its sub-agent five
WAITS = "echo begun >> begun.txt; until [ -e go.txt ]; do sleep 0.01; done"


def thinker(name: str, *, binds: Binding) -> Script:
    """Reads, and answers. Told to wait it runs a command first; told to delegate it has a sub-agent read."""

    def step(thought: str, name: str = "", **arguments: object) -> ScriptedStep:
        calls = (ScriptedCall(name=name, arguments=arguments),) if name else ()
        return ScriptedStep(reasoning=thought, calls=calls, text="" if name else "Done.")

    delegates = step("Let somebody else.", "task", agent="general", prompt="Read it all.")
    return Script(
        name=name,
        title="thinks",
        binds=binds,
        steps=(
            replace(step("It may take long.", "bash", command=WAITS), asked="Wait"),
            replace(step("That was long."), asked="Wait"),
            replace(delegates, asked="Delegate"),
            replace(step("They did it."), asked="Delegate"),
            *[step(f"Now part {number}.", "read", path=f"part-{number}.txt") for number in range(READS)],
            step("Now it is plain."),
        ),
    )


def opening(one: Received) -> str:
    """What the conversation began with."""
    return json.dumps(unmarked(json.loads(one.body)["messages"][0]))


def conversations(requests: Sequence[Received]) -> list[list[Received]]:
    found: dict[str, list[Received]] = {}
    for one in requests:
        found.setdefault(opening(one), []).append(one)
    return list(found.values())


def without_what_was_refused(requests: Sequence[Received]) -> None:
    """The provider drops nothing: all thinking since the last refusal is shown, and none of before."""
    since = 0
    for one in requests:
        if one.status == 200:
            assert sum(signature != "" for signature, _ in flat(json.loads(one.body))) == since
        since = since + 1 if one.status == 200 else 0


def answers(lab: Lab, *args: str, folder: Path, model: str = BOUND) -> None:
    ran = end(begin("run", *args, "--allow", "bash", *at(lab, model, family="anthropic_messages"), cwd=folder))
    assert (ran.code, ran.out.strip()) == (0, "Done."), ran.err


@pytest.mark.promise("step:bound-thinking", "keep:crash")
@pytest.mark.parametrize("binds", ["refuses", "drops", "uncontrolled"])
def test_a_long_session_goes_on_through_all_that_changes(binds: Binding, folder: Path) -> None:
    """One refusal in the whole session where the provider can be asked to drop, one a change where it cannot, none where it drops
    in silence. What is lost equals what a second reading of the bodies finds to be stale."""
    for number in range(READS):
        (folder / f"part-{number}.txt").write_text(f"The quick brown fox, part {number}.\n")
    with running_lab([thinker(BOUND, binds=binds), thinker(FREE, binds="")]) as lab:
        answers(lab, "Read.", folder=folder)
        answers(lab, "Read again.", "--continue", folder=folder)
        assert [one.status for one in lab.requests] == [200] * 2 * (READS + 1)
        assert not any(one.dropped for one in lab.requests), "nothing has changed"
        (folder / "AGENTS.md").write_text("Be thorough.\n")
        killed = begin(
            "run", "Wait.", "--continue", "--allow", "bash", *at(lab, BOUND, family="anthropic_messages"), cwd=folder
        )
        wait_until((folder / "begun.txt").is_file)
        killed.kill()
        assert end(killed).code == -signal.SIGKILL
        (folder / "go.txt").touch()
        before = len(lab.requests)
        resumed = end(begin("resume", cwd=folder))
        assert (resumed.code, resumed.out.strip()) == (0, "Done."), resumed.err
        assert [one.status for one in lab.requests[before:]] == [200], "what was learned stands in the journal"
        answers(lab, "Read.", "--continue", "--system", "Be brief.", folder=folder)
        answers(lab, "Read.", "--continue", "--system", "Be brief.", "--script", folder=folder)
        answers(lab, "Read.", "--continue", folder=folder, model=FREE)
        answers(lab, "Read.", "--continue", folder=folder)
        answers(lab, "Delegate.", "--continue", folder=folder)
        with at_terminal("--continue", *at(lab, BOUND, family="anthropic_messages"), cwd=folder) as person:
            prompt(person)
            person.types("Read.\r")
            person.sees("Done.")
            leave(person)
    parent, child = conversations(lab.requests)
    assert not any(one.dropped or one.status != 200 for one in child)
    taken = [one for one in parent if one.status == 200]
    assert len(taken) == 2 * 2 + 7 * (READS + 1)
    assert len(parent) - len(taken) == {"refuses": 1, "drops": 0, "uncontrolled": 5}[binds]
    if binds == "uncontrolled":
        without_what_was_refused(parent)
        return
    lost = [
        (len(one.dropped), least) for one, least in zip(taken, stale_at_least(taken), strict=True) if one.model == BOUND
    ]
    assert [found for found, _ in lost] == [least for _, least in lost] and lost[-1][0] > 0
