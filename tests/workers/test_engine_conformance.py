"""What every engine promises (`turnwise.testing.engine_conformance`), over our own workers and over Temporal: real processes, a
real PostgreSQL, a real Temporal server."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwise.testing import engine_conformance as kit

pytest.importorskip("temporalio", reason="temporalio is missing: install `turnwise[temporal]`")
from workers.engines import KitWorkers, OwnWorkers, TemporalWorkers

pytestmark = pytest.mark.costly

CHECKS = {name.removeprefix("check_"): check for name, check in vars(kit).items() if name.startswith("check_")}


@pytest.fixture(params=["own", pytest.param("temporal", marks=pytest.mark.engines)])
def engine(request: pytest.FixtureRequest, postgres_dsn: str, tmp_path: Path) -> Iterator[KitWorkers]:
    if request.param == "own":
        found: KitWorkers = OwnWorkers(tmp_path, dsn=postgres_dsn)
    else:
        address = request.getfixturevalue("temporal_address")
        found = TemporalWorkers(tmp_path, dsn=postgres_dsn, address=address, task_queue=tmp_path.name)
    yield found
    found.end()


@pytest.mark.promise("keep:engines", "keep:machines", "run:key")
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
async def test_every_engine_keeps_its_promises(check: Callable[[Any], Awaitable[None]], engine: KitWorkers) -> None:
    """Proves: what the suite says, over each engine unchanged."""
    await check(engine)
