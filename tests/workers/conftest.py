"""A queue over a fresh database, and the end of what forks workers."""

from collections.abc import Iterator

import pytest

from terminal.forking import ending_the_fork_server
from turnwise.base.clock import SystemClock
from turnwise.workers.queue import TurnQueue


@pytest.fixture(scope="session", autouse=True)
def _fork_server_ends() -> Iterator[None]:
    with ending_the_fork_server():
        yield


@pytest.fixture
def queue(postgres_dsn: str) -> Iterator[TurnQueue]:
    found = TurnQueue(postgres_dsn, clock=SystemClock())
    found.open()
    yield found
    found.close()
