"""Every store of a journal gives the same answers: one suite over SQLite's file and PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

import pytest

from journal import store_conformance
from journal.store_conformance import Target
from turnwise import Journal
from turnwise.testing import FakeClock


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Of a journal that is not there yet."""
    return tmp_path / "j.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("check", store_conformance.ALONE, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_store_keeps_what_a_journal_promises(check: Callable[[Target], None], target: Target) -> None:
    """Proves: what is written stays, in order, once, whoever else writes; a turn that was taken over writes nothing more."""
    check(target)


def test_both_stores_answer_alike(tmp_path: Path, postgres_dsn: str) -> None:
    """Proves: totals, bills, entries and repairs are equal to the last digit, and in the same order."""
    store_conformance.check_same_answers(tmp_path / "j.db", postgres_dsn)
    with (
        Journal(tmp_path / "j.db", clock=FakeClock()) as one,
        Journal(postgres_dsn, clock=FakeClock()) as two,
    ):
        assert [type(journal._store).__name__ for journal in (one, two)] == ["JournalFile", "PostgresStore"]


def test_the_suite_is_whole() -> None:
    """Proves: no check is forgotten in the list that others run."""
    names = {name for name in vars(store_conformance) if name.startswith("check_")}
    assert names == {check.__name__ for check in store_conformance.ALONE} | {"check_same_answers"}
