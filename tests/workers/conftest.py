"""A queue over a fresh database."""

from collections.abc import Iterator

import pytest

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.dispatch.queue import TurnQueue


@pytest.fixture
def queue(postgres_dsn: str) -> Iterator[TurnQueue]:
    found = TurnQueue(postgres_dsn, clock=SystemClock())
    found.open()
    yield found
    found.close()
