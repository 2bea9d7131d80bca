"""The SDKs of npm, and the page of all clients. `python scripts/run_clients.py` runs the other ones; that takes minutes."""

import itertools
from pathlib import Path

import pytest

from real_agents import places
from real_agents.client_table import CLIENTS, FAMILIES, SCRIPTS, SETUP, Run, gateway_to_each, try_client
from turnwise.lab import Lab

PAGE = places.ROOT / "docs" / "gateway-clients.md"
OF_NPM = [name for name, client in CLIENTS.items() if client.program.endswith(".mjs")]


@pytest.mark.agents
async def test_the_sdks_of_npm_get_the_answer_from_each_family(tmp_path: Path) -> None:
    """Streamed, with a tool: the call, its result, and the answer to that."""
    if missing := [lack for name in OF_NPM if (lack := CLIENTS[name].missing())]:
        pytest.skip(f"{missing[0]} is not installed: {SETUP}")
    found: dict[Run, str] = {}
    async with Lab(SCRIPTS) as lab, gateway_to_each(tmp_path, lab=lab.url) as url:
        for name, family in itertools.product(OF_NPM, FAMILIES):
            run, own = Run(name, family, streamed=True), tmp_path / name / family
            own.mkdir(parents=True)
            told = await try_client(run, own, url=url, lab=lab)
            found[run] = told.verdict if told.verdict == "right" else told.said
    assert found == dict.fromkeys(found, "right") and len(found) == len(OF_NPM) * len(FAMILIES)


def test_the_page_has_every_client_with_its_pinned_version() -> None:
    """Before each family it is right."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if "|" in line]
    at = rows.index(["client", "API", *FAMILIES.values()])
    table = rows[at + 2 : at + 2 + len(CLIENTS)]
    assert [row[:2] for row in table] == [[f"{one.package} {one.version}", one.api] for one in CLIENTS.values()]
    assert {cell for row in table for cell in row[2:]} == {"right"}
