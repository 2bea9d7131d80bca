"""A queue over a fresh database."""

from collections.abc import Iterator

import pytest

from turnwise.base.clock import SystemClock
from turnwise.workers.queue import TurnQueue


@pytest.fixture
def queue(postgres_dsn: str) -> Iterator[TurnQueue]:
    found = TurnQueue(postgres_dsn, clock=SystemClock())
    found.open()
    yield found
    found.close()
