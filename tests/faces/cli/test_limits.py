"""`turnwise run --max-requests`, `--max-tokens`, `--max-time`: who decides, and what is said at the end."""

from pathlib import Path

import pytest

from faces.cli.running import Cli, at
from turnwise.faces.cli.folder import FolderSettings
from turnwise.faces.cli.spending import limits_of
from turnwise.lab import Lab
from turnwise.rules.limits import Limit, MaxRequests, MaxTokens, MaxWallTime

each_family = pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])


@each_family
@pytest.mark.promise("end:budget", "end:reason")
def test_so_many_requests_are_made_and_the_face_says_why_it_ended(cli: Cli, lab: Lab, family: str) -> None:
    """The last one is the answer."""
    ran = cli("run", "Search.", "--max-requests", "3", *at(lab, "never-stops", family=family))
    assert (ran.code, lab.count()) == (3, 3)
    assert ran.out.strip()
    assert "answered from incomplete data: budget (3 steps, 3 requests" in ran.err


@pytest.mark.promise("end:budget")
def test_the_folder_limits_where_the_command_line_does_not(cli: Cli, lab: Lab, folder: Path) -> None:
    """And a session goes on within the limits that it had."""
    (folder / "turnwise.toml").write_text("max_requests = 2\nmax_time = 600\n")
    assert cli("run", "Go.", "--json", *at(lab, "never-stops")).events()[-1]["requests"] == 2
    assert cli("run", "Go.", "--json", "--max-requests", "4", *at(lab, "never-stops")).events()[-1]["requests"] == 4
    assert cli("run", "Go.", "--json", "--continue", *at(lab, "never-stops")).events()[-1]["requests"] == 4


@pytest.mark.parametrize("option", [("--max-requests", "0"), ("--max-tokens", "-1"), ("--max-time", "0")])
def test_a_limit_that_allows_nothing_is_a_usage_error(cli: Cli, lab: Lab, option: tuple[str, str]) -> None:
    """Nothing is sent."""
    ran = cli("run", "Go.", *option, *at(lab, "plain-answer"))
    assert (ran.code, lab.count()) == (2, 0)


@pytest.mark.parametrize(
    ("requests", "tokens", "last", "settings", "chosen"),
    [
        (None, None, None, FolderSettings(), None),
        (3, None, None, FolderSettings(), MaxRequests(3)),
        (3, None, MaxRequests(9) | MaxTokens(100), FolderSettings(), MaxRequests(3) | MaxTokens(100)),
        (
            None,
            50,
            MaxRequests(9),
            FolderSettings(max_tokens=9, max_time=60),
            MaxTokens(50) | MaxRequests(9) | MaxWallTime(60),
        ),
        (None, None, MaxRequests(9) & MaxTokens(9), FolderSettings(), MaxRequests(9) & MaxTokens(9)),
    ],
)
def test_each_kind_of_limit_is_chosen_by_itself(
    requests: int | None, tokens: int | None, last: Limit | None, settings: FolderSettings, chosen: Limit | None
) -> None:
    """The command line, else the session, else the folder."""
    assert limits_of(requests=requests, tokens=tokens, seconds=None, last=last, settings=settings) == chosen
