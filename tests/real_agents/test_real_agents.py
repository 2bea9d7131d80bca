"""Two real agents before broken streams: through the gateway they write the right files. docs/gateway-agents.md has all agents,
and the same without the gateway; `python scripts/run_agents.py` runs them."""

from pathlib import Path

import pytest

from real_agents import places
from real_agents.cases import CASES
from real_agents.roster import AGENTS
from real_agents.running import WITHOUT, Ended, Trial, run_trial, verdict_of

PAGE = places.ROOT / "docs" / "gateway-agents.md"
CHOSEN = ("opencode", "claude-code")
# What waits longest begins first.
TRIALS = sorted(
    [
        Trial(agent, case, upstream)
        for agent in CHOSEN
        for upstream in AGENTS[agent].upstreams
        for case in CASES
    ],
    key=lambda trial: trial.case != "stall",
)  # fmt: skip


@pytest.mark.agents
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.agent}-{trial.case}")
async def test_an_agent_writes_the_right_files_through_the_gateway(trial: Trial, tmp_path: Path) -> None:
    """It also ends well, and asks for nothing beyond loopback."""
    if missing := AGENTS[trial.agent].missing():
        pytest.skip(f"{missing} is not installed: {places.SETUP}")
    outcome = await run_trial(trial, tmp_path)
    assert (outcome.verdict, outcome.asked) == ("right", ()), outcome.said


@pytest.mark.parametrize(
    ("ended", "found", "verdict"),
    [
        (("exit", 0), {"a": "1", "b": "2"}, "right"),
        (("exit", 1), {"a": "1", "b": "2"}, "right, then an error"),
        (("loop", None), {"a": "1", "b": "2"}, "right, then a loop"),
        (("exit", 0), {"a": "1", "b": None}, "a file is missing"),
        (("exit", 0), {"a": "1", "b": "3"}, "wrong file"),
        (("exit", 0), {"a": "1", "b": ""}, "wrong file"),
        (("exit", 1), {"a": None, "b": None}, "no file, error"),
        (("hang", None), {"a": None, "b": None}, "no file, hang"),
    ],
)
def test_a_verdict_says_what_became_of_the_files_and_of_the_agent(
    ended: tuple[str, int | None], found: dict[str, str | None], verdict: str
) -> None:
    """The files first."""
    assert verdict_of(Ended(*ended, said=""), found=found, wanted={"a": "1", "b": "2"}) == verdict


# Gemini's API sends a call whole: where the model's limit cuts one, there is nothing to go on with.
NOT_RIGHT = {("large-file", "gemini"): "no file, error"}


def test_the_page_has_every_agent_and_case_with_the_pinned_versions() -> None:
    """Through the gateway each cell is right, but those that no gateway can mend."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line]
    head, _, _, *cells = rows
    columns = [agent for agent in AGENTS.values() for _ in agent.upstreams]
    assert head[1:] == [f"{agent.title} {agent.version}" for agent in columns]
    assert [row[0] for row in cells] == [case.title for case in CASES.values()]
    upstreams = [upstream for agent in AGENTS.values() for upstream in agent.upstreams]
    for name, row in zip(CASES, cells, strict=True):
        for upstream, cell in zip(upstreams, row[1:], strict=True):
            assert cell.partition(" / ")[0] == NOT_RIGHT.get((name, upstream), "right"), (name, upstream)


def test_every_trial_of_the_page_is_one_of_an_agent() -> None:
    """Without the gateway there is one for each agent and case."""
    assert all(WITHOUT not in agent.upstreams and agent.upstreams for agent in AGENTS.values())
