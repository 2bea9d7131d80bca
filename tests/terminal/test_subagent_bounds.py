"""`--max-subagents` and `--max-subagent-requests`: from the command line, a file and the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.running import Cli, at, running_lab, script
from turnwise.lab import Lab
from turnwise.settings.settings import CAPS, RunSettings, SourceSettings, merge

HANDS_OUT = script(
    "hands-out",
    """
[[steps]]
asked = "do it"
text = "Done."

[[steps]]
calls = [
    { name = "task", arguments = { prompt = "do it, one" } },
    { name = "task", arguments = { prompt = "do it, two" } },
    { name = "task", arguments = { prompt = "do it, three" } },
]

[[steps]]
text = "They said: {results}"
""",
)


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    with running_lab([HANDS_OUT]) as lab:
        yield lab


@pytest.fixture
def lab(module_lab: Lab) -> Lab:
    module_lab.reset()
    return module_lab


def children(cli: Cli, lab: Lab, *options: str) -> int:
    """How many sub-agents a run has; the lab has had their requests, and two of the run's own."""
    lab.reset()
    ran = cli("run", "Go.", "--json", *options, *at(lab, "hands-out"))
    result = ran.events()[-1]
    assert (ran.code, lab.count()) == (0, 2 + sum(one["requests"] for one in result["children"]))
    return len(result["children"])


def test_the_command_line_a_file_and_the_session_bound_the_sub_agents(cli: Cli, lab: Lab, folder: Path) -> None:
    """Proves: both bounds by each way, the command line over the session over the file."""
    assert children(cli, lab) == 3
    assert children(cli, lab, "--max-subagents", "0") == 0
    assert children(cli, lab, "--max-subagent-requests", "1") == 1
    (folder / "turnwise.toml").write_text("max_subagents = 2\n")
    assert children(cli, lab) == 2
    (folder / "turnwise.toml").write_text("max_subagent_requests = 1\n")
    assert children(cli, lab) == 1
    assert children(cli, lab, "--max-subagent-requests", "2") == 2
    assert children(cli, lab, "--continue") == 2


def test_a_projects_file_does_not_raise_what_the_user_allows() -> None:
    """Proves: both bounds are caps."""
    user = SourceSettings(source="user", origin="u", settings=RunSettings(max_subagents=3, max_subagent_requests=30))
    project = SourceSettings(
        source="project", origin="p", settings=RunSettings(max_subagents=9, max_subagent_requests=20)
    )
    assert merge(user, project).settings == RunSettings(max_subagents=3, max_subagent_requests=20)
    assert {"max_subagents", "max_subagent_requests"} <= CAPS


@pytest.mark.parametrize("option", [("--max-subagents", "-1"), ("--max-subagent-requests", "some")])
def test_a_bound_that_is_no_count_is_a_usage_error(cli: Cli, lab: Lab, option: tuple[str, str]) -> None:
    """Nothing is sent."""
    assert (cli("run", "Go.", *option, *at(lab, "hands-out")).code, lab.count()) == (2, 0)
