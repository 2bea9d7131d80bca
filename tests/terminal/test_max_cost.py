"""`turnwise run --max-cost` and `max_cost` in turnwise.toml: who decides, what is refused, what is said."""

import os
from decimal import Decimal
from pathlib import Path

import pytest

from terminal.running import Cli, at
from turnwise.coding_agent.permissions import limits_of, settings_in
from turnwise.coding_agent.repository import settings_of_run
from turnwise.errors import CallerError
from turnwise.lab import Lab
from turnwise.rules.limits import MaxCost, MaxRequests
from turnwise.settings.settings import RunSettings, read_layers
from turnwise.turn.config import TurnConfig

CENTS = "[prices]\n'never-stops' = { request = 0.01 }\n"


@pytest.mark.promise("end:budget", "end:reason")
def test_so_much_is_spent_and_the_face_says_why_it_ended(cli: Cli, lab: Lab) -> None:
    """Three cents a cent each; a session goes on within the limit that it had."""
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise" / "turnwise.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(CENTS)
    ran = cli("run", "Search.", "--max-cost", "0.03", *at(lab, "never-stops"))
    assert (ran.code, lab.count()) == (3, 3)
    assert "answered from incomplete data: budget (3 steps, 3 requests" in ran.err and "$0.0300" in ran.err
    cli("run", "Go.", "--continue", *at(lab, "never-stops"))
    assert lab.count() == 6
    ran = cli("run", "Go.", "--max-cost", "0.005", *at(lab, "never-stops"))
    assert (ran.code, lab.count()) == (3, 6)
    assert "The limit of $0.00500 leaves no room for another step ($0.00 spent). $0.0200 would." in ran.out
    assert cli("run", "Go.", "--max-cost", "0.02", *at(lab, "never-stops")).code == 3 and lab.count() == 8


@pytest.mark.promise("bill:plans")
def test_a_limit_on_an_unknown_price_is_one_line_that_says_what_to_do(cli: Cli, lab: Lab) -> None:
    """Nothing is sent."""
    ran = cli("run", "Go.", "--max-cost", "0.50", *at(lab, "never-stops"))
    assert (ran.code, lab.count(), len(ran.complaints())) == (2, 0, 1)
    assert "[prices]" in ran.complaints()[0]


@pytest.mark.parametrize("amount", ["0", "-1", "nan", "inf", "a dollar", "0.0000000000001", "1e9"])
def test_what_is_no_amount_is_a_usage_error(cli: Cli, lab: Lab, amount: str) -> None:
    """Nothing is sent."""
    assert (cli("run", "Go.", "--max-cost", amount, *at(lab, "plain-answer")).code, lab.count()) == (2, 0)


@pytest.mark.promise("end:budget")
def test_a_projects_file_may_lower_the_users_limit_and_not_raise_it(folder: Path, tmp_path: Path) -> None:
    """As exact as it was written, and the command line stands over both."""
    user, project = tmp_path / "user.toml", folder / "turnwise.toml"
    user.write_text("max_cost = 0.10\n")

    def merged(text: str, given: RunSettings = RunSettings()) -> Decimal | None:  # noqa: B008 (frozen)
        project.write_text(text)
        layers = read_layers(folder, env={"TURNWISE_CONFIG": str(user)})
        last = TurnConfig(session_id="s", turn_id="t", model="m")
        return settings_of_run(layers, last=last, given=given).settings.max_cost

    assert merged("max_cost = 5\n") == Decimal("0.1")
    assert merged('max_cost = "0.05"\n') == Decimal("0.05")
    assert merged("max_cost = 0.05\n", RunSettings(max_cost=Decimal(2))) == Decimal(2)
    for wrong in ("true", "nan", "0", '"cheap"', "[1]"):
        with pytest.raises(CallerError, match="`max_cost`"):
            merged(f"max_cost = {wrong}\n")


def test_a_limit_of_cost_goes_on_with_its_session() -> None:
    """What the last turn had, unless something else is said."""
    last = MaxCost(Decimal("0.5")) | MaxRequests(3)
    assert settings_in(last) == RunSettings(max_cost=Decimal("0.5"), max_requests=3)
    assert limits_of(RunSettings(max_cost=Decimal(1)), last=last) == MaxCost(Decimal(1))
