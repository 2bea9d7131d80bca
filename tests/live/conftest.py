"""A live server for each process of the tests, and one with a small window where a test wants it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.serving import NOT_INSTALLED, LiveServer, is_installed, serving

HERE = Path(__file__).resolve().parent
SMALL_WINDOW_TOKENS = 1024


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What stands in this folder is live; without its group it is skipped, and says so."""
    absent = pytest.mark.skip(reason=NOT_INSTALLED)
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.live)
            if not is_installed():
                item.add_marker(absent)


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serving(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with serving(tmp_path_factory.mktemp("small"), window_tokens=SMALL_WINDOW_TOKENS) as server:
        yield server
