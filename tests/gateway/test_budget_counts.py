"""What `/metrics` tells of budgets, teams and the store, so that an alert comes before a budget is full."""

import asyncio
import time
from decimal import Decimal
from pathlib import Path

from gateway.budgeted import BY, add_key, budgeted, limits
from turnwise import Journal
from turnwise.gateway.accounts import MOST_TEAMS, OTHER, GatewayCounts
from turnwise.gateway.client_limits import MOST_TOLD, LimitedClient, client_of, used_ratios
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.gateway_rows import GatewayOwner, OwnerChange, OwnerSet, OwnerTerms
from turnwise.lab import Lab
from waits import HANG_S


def test_the_share_of_a_budget_that_is_spent_is_told(tmp_path: Path) -> None:
    """Proves: of a key and of its team, by limit; a minute's limit has no gauge; the histograms name the team."""
    path = tmp_path / "j.db"

    async def run() -> str:
        key = add_key(path, OwnerChange(team="web", limits=limits(requests_day=8, requests_minute=9).limits))
        with Journal(path) as journal:
            journal.gateway.set_owner("team", "web", limits(requests_month=4, usd_day=100).over, by=BY)
        async with Lab() as lab, budgeted(path, lab=lab) as gateway:
            await gateway.ask(key)
            await gateway.ask(key)
            return gateway.service.metrics().decode()

    text = asyncio.run(asyncio.wait_for(run(), HANG_S))
    shared = SharedClients(Journal(path), now=time.time)  # another gateway
    told = GatewayCounts(fullness=shared.fullness).text().decode().splitlines()
    shared.close()
    told = [line for line in told if line.startswith("turnwise_gateway_budget_used_ratio{")]
    ratios = {line.partition("{")[2].partition("}")[0]: float(line.rpartition(" ")[2]) for line in told}
    assert ratios.pop('kind="team",owner="web",limit="usd/day"') < 0.01
    assert ratios == {
        'kind="team",owner="web",limit="requests/month"': 0.5,
        'kind="key",owner="laptop",limit="requests/day"': 0.25,
    }
    assert 'route="2",team="web",le="900.0"} 2' in text
    assert "turnwise_gateway_store_reachable 1\n" in text


def test_owners_and_teams_have_a_bounded_number_of_series() -> None:
    """Proves: a thousand keys are 500 series at most, teams first; the hundred-and-first team shares a label."""
    terms = OwnerTerms(limits={"usd/day": Decimal(5)})
    owners = OwnerSet(version=1, teams={"web": GatewayOwner(name="web", terms=terms)})
    clients: list[LimitedClient] = [
        client_of(GatewayOwner(name=f"k{number}", team="web", terms=terms), owners) for number in range(1000)
    ]
    told = used_ratios(clients, {}, at=0.0)
    assert len(told) == MOST_TOLD and next(iter(told)) == ("team", "web", "usd/day")
    counts = GatewayCounts()
    labels = [counts.team_label(f"t{number}") for number in range(MOST_TEAMS + 5)]
    assert (labels[:2], labels[MOST_TEAMS:], counts.team_label("t0")) == (["t0", "t1"], [OTHER] * 5, "t0")
