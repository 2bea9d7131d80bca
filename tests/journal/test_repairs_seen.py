"""What the gateway mended is kept by day, provider, model and kind, within bounds."""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwise.assembly.evidence import kept_event
from turnwise.journal.direct_ledger import (
    MOST_A_DAY,
    MOST_ROWS,
    OTHER_MODELS,
    RepairSeen,
    RepairSum,
    RequestSum,
)
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.testing import FakeClock

EVENT = (kept_event(1, b'data: {"id": "secret"}\n\n'),)


@pytest.fixture
def journal() -> Iterator[Journal]:
    with Journal(None, clock=FakeClock()) as journal:
        yield journal


def seen(**changes: Any) -> RepairSeen:
    usual = {"day": "2026-11-20", "provider": "p", "family": "gemini", "model": "m", "kind": "id_missing", "times": 1}
    return RepairSeen(**{**usual, **changes})


@pytest.mark.promise("heal:told")
def test_repairs_add_up_over_requests_and_days(journal: Journal) -> None:
    """Proves: times, requests, the first and the last day, and one example, which is without content."""
    journal.repairs.write([seen(times=2, day="2026-11-21"), seen(times=3, day="2026-11-21", events=EVENT)])
    journal.repairs.write([seen(), seen(kind="id_twice", model="n"), seen(day="2026-11-21", events=EVENT)])
    first, second = journal.repairs.sums()
    assert first == RepairSum(
        provider="p",
        family="gemini",
        model="m",
        kind="id_missing",
        times=7,
        requests=4,
        first_day="2026-11-20",
        last_day="2026-11-21",
        example='data: {"id": "id-1"}',
    )
    assert (second.model, second.kind, second.times, second.example) == ("n", "id_twice", 1, "")
    assert [row.times for row in journal.repairs.sums(since_day="2026-11-21")] == [6]


def test_models_that_clients_make_up_do_not_grow_the_table(journal: Journal) -> None:
    """Proves: past the bound of a day further models share a row, and past the bound of all rows the oldest day goes."""
    names = [f"model-{number}" for number in range(MOST_A_DAY + 50)]
    journal.repairs.write([seen(model=name) for name in names])
    found = {row.model: row.times for row in journal.repairs.sums()}
    assert (len(found), found[OTHER_MODELS], found["model-0"]) == (MOST_A_DAY + 1, 50, 1)
    days = [f"2027-01-{day:02}" for day in range(1, MOST_ROWS // MOST_A_DAY + 5)]
    for day in days:
        journal.repairs.write([seen(model=f"x{'y' * 200}{name}"[-100:], day=day) for name in names])
    last = journal.repairs.sums()
    assert (len(last), {row.last_day for row in last}) == (MOST_A_DAY + 1, {days[-1]})
    assert min(row.first_day for row in last) > days[0]


def entry(number: int, **changes: Any) -> LedgerEntry:
    usual = {
        **dict.fromkeys(("session", "root_session"), "gateway:laptop"),
        **dict.fromkeys(("turn", "root_turn"), f"tw-{number}"),
        "number": number,
        "step": 1,
        "purpose": "step",
        "provider": "p",
        "model": "m",
        "started": 100.0,
        "sent_bytes": 3,
        "outcome": "ok",
    }
    return LedgerEntry(**{**usual, **changes})


async def kept(thread: LedgerThread, one: LedgerEntry) -> None:
    line = await thread.leaves(one)
    thread.became(line, lambda: one)


def test_requests_are_those_of_the_gateway_whose_outcome_is_known(tmp_path: Path) -> None:
    """Proves: turns, cancelled requests and open ones do not make a provider look better or worse."""
    others = [
        entry(3, outcome="overloaded"),
        entry(4, outcome="cancelled"),
        entry(5, outcome=None),
        entry(6, session="s1", root_session="s1"),
        entry(7, started=1.0),
        entry(8, session="gateway", root_session="gateway", model="n"),
    ]

    async def run() -> None:
        thread = LedgerThread(tmp_path / "journal.db", clock=FakeClock())
        for one in (entry(1), entry(2), *others):
            await kept(thread, one)
        await asyncio.to_thread(thread.close)

    asyncio.run(run())
    with Journal(tmp_path / "journal.db", clock=FakeClock()) as journal:
        assert journal.repairs.requests(since_s=50.0) == [
            RequestSum(provider="p", model="m", requests=3, failed=1),
            RequestSum(provider="p", model="n", requests=1, failed=0),
        ]


def test_a_repair_that_cannot_be_written_hurts_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Proves: entries of the ledger are written as before, the log says it once, and the gateway stays ready."""
    path = tmp_path / "journal.db"

    async def run() -> None:
        thread = LedgerThread(path, clock=FakeClock())
        breaking = sqlite3.connect(path)
        breaking.execute("alter table repair_seen rename to elsewhere")
        for number in (1, 2):
            thread.mended([seen()])
            await kept(thread, entry(number))
        await kept(thread, entry(3))  # behind it the thread has tried both
        assert thread.is_well
        breaking.execute("alter table elsewhere rename to repair_seen")
        breaking.close()
        thread.mended([seen()])
        await asyncio.to_thread(thread.close)

    with caplog.at_level(logging.ERROR, "turnwise"):
        asyncio.run(run())
    assert [record.getMessage().split(":")[1] for record in caplog.records] == [
        " repairs cannot be written for the report"
    ]
    with Journal(path, clock=FakeClock()) as journal:
        assert [one.number for one in journal.ledger.entries(LedgerSpan())] == [1, 2, 3]
        assert [row.times for row in journal.repairs.sums()] == [1]
