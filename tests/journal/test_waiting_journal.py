"""A journal that has to wait: the run waits, and its event loop goes on.

What is waited for is real: a SQLite file that another connection has locked, and a PostgreSQL whose processes stand still.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import pytest

from flat_agents import flat_agent
from postgres_server import PostgresServer
from turnwise import Agent, Approval, Asking, Budget, Journal, MaxRequests, PermissionRule, Policy, RunResult, tool
from turnwise.agent.budgets import Reservation
from turnwise.base.clock import SystemClock
from turnwise.errors import JournalFailed
from turnwise.journal import file
from turnwise.journal import stores as waiting
from turnwise.journal.file import JournalFile, Use
from turnwise.journal.postgres.connection import Waits
from turnwise.journal.postgres.store import GIVEN_UP, PostgresStore
from turnwise.journal.stores import Patience, WouldWait
from turnwise.running.watcher_events import FrameSeen, WatcherEvent
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.vocab import StopReason
from waits import HANG_S

FAMILY = "anthropic_messages"


class Holder(Protocol):
    def hold(self) -> None: ...
    def free(self) -> None: ...


class FileHolder:
    """Another connection, which is to the file what another process is."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def hold(self) -> None:
        self._connection.execute("begin immediate")

    def free(self) -> None:
        self._connection.execute("rollback")

    def close(self) -> None:
        self._connection.close()


class Place(NamedTuple):
    journal: Journal
    holder: Holder


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("own_postgres")
        with Journal(server.dsn) as journal:
            yield Place(journal, server)
        return
    with Journal(tmp_path / "j.db") as journal:
        holder = FileHolder(tmp_path / "j.db")
        yield Place(journal, holder)
        holder.close()


@tool
async def look(where: str) -> str:
    """Look."""
    return f"seen {where}"


def two_steps(journal: Journal | None, *, model: ScriptedModel | None = None, **more: Any) -> Agent[Any, Any]:
    model = model or ScriptedModel([[call("look", where="a"), call("look", where="b")], "Done."], family=FAMILY)
    options: dict[str, Any] = {"tools": [look], "transport": model, "journal": journal, **more}
    return flat_agent(f"{FAMILY}:m", base_url=BASE_URL, **options)


def kinds(journal: Journal, result: RunResult) -> list[str]:
    (turn,) = journal.find_session(result.session).turns
    return [type(entry.record).__name__ for entry in journal.entries(turn.id)]


class Waited(NamedTuple):
    """A run whose journal was held behind its event of that number, and a run beside it, which ended before it was free."""

    result: RunResult
    beside: str
    events: int


async def run_held_at(number: int | None, place: Place) -> Waited:
    holding, seen = asyncio.Event(), 0

    def watch(event: WatcherEvent) -> None:
        nonlocal seen
        if isinstance(event, FrameSeen):
            return
        if seen == number:
            place.holder.hold()
            holding.set()
        seen += 1

    async def run_beside() -> str:
        await holding.wait()
        try:
            return (await two_steps(None).run("Go.")).text
        finally:
            place.holder.free()

    other = asyncio.create_task(run_beside())
    result = await two_steps(place.journal).run("Go.", watch=watch)
    if number is None:
        other.cancel()
        return Waited(result, "", seen)
    return Waited(result, await other, seen)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
async def test_a_run_waits_for_its_journal_at_any_write_while_another_goes_on(place: Place) -> None:
    """Proves: wherever in a turn the database is not free, another run of the process begins and ends meanwhile; then the turn
    goes on, and its records are those of a turn that did not wait."""
    async with asyncio.timeout(HANG_S):
        usual = await run_held_at(None, place)
        expected = kinds(place.journal, usual.result)
        for number in range(usual.events):
            waited = await run_held_at(number, place)
            assert (waited.beside, waited.result.text, waited.result.stop_reason) == ("Done.", "Done.", "answered")
            assert sorted(kinds(place.journal, waited.result)) == sorted(expected), number


@pytest.mark.costly
@pytest.mark.promise("end:budget")
async def test_a_run_waits_for_its_budget_in_a_journal_while_another_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: whether the part of a budget is reserved or settled while the database is held, another run of the process begins
    and ends meanwhile, and what the run did not spend is free again."""
    budget = Budget(MaxRequests(9), per_run=MaxRequests(3), journal=place.journal, name="team")

    async def run_held(holding: asyncio.Event) -> None:
        async def run_beside() -> str:
            await holding.wait()
            try:
                return (await two_steps(None).run("Go.")).text
            finally:
                place.holder.free()

        other = asyncio.create_task(run_beside())
        await asyncio.sleep(0)
        assert (await two_steps(place.journal, limits=budget).run("Go.")).text == "Done."
        assert await other == "Done."

    async with asyncio.timeout(HANG_S):
        reserves = asyncio.Event()
        place.holder.hold()
        reserves.set()
        await run_held(reserves)
        assert budget.left == MaxRequests(7)

        settles = asyncio.Event()

        def held_behind_the_turn(_: Reservation) -> bool:
            place.holder.hold()
            settles.set()
            return False

        monkeypatch.setattr(Reservation, "goes_on", property(held_behind_the_turn))
        await run_held(settles)
        assert budget.left == MaxRequests(5)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
async def test_words_and_answers_do_not_wait_and_are_written_behind(place: Place) -> None:
    """`say` and `asking.keep` come back while the database is held; once it is free both are recorded, in order, and the
    next request carries the words."""
    said: list[bool] = []

    async def approve(asking: Asking) -> list[Approval]:
        answers = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in asking.asks]
        place.holder.hold()
        said.append(run.say("Be quick."))
        asking.keep(answers[0])
        asyncio.get_running_loop().call_soon(place.holder.free)
        return answers

    model = ScriptedModel([[call("look", where="a"), call("look", where="b")], "Done."], family=FAMILY)
    asks = Policy(rules=(PermissionRule(verdict="ask", tool="look"),), attended=True)
    agent = two_steps(place.journal, model=model, policy=asks, approver=approve)
    async with asyncio.timeout(HANG_S):
        run = agent.start("Go.")
        result = await run
    assert (said, result.text) == ([True], "Done.")
    assert "Be quick." in str(model.asked[-1])
    written = kinds(place.journal, result)
    assert written.index("MessageArrived") < written.index("AskAnswered") < written.index("Asked")


@pytest.mark.costly
@pytest.mark.promise("wait:cancel", "keep:crash")
async def test_a_run_that_is_cancelled_while_its_journal_waits_is_recorded_as_cancelled(place: Place) -> None:
    """The cancel comes behind the write that waits: what was recorded stands in order, and nothing more is sent."""
    held = asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        place.holder.hold()
        asyncio.get_running_loop().call_soon(held.set)
        return "held"

    model = ScriptedModel([call("hold"), "Never."], family=FAMILY)
    async with asyncio.timeout(HANG_S):
        running = asyncio.create_task(two_steps(place.journal, model=model, tools=[hold]).run("Go."))
        await held.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
        place.holder.free()
        with pytest.raises(asyncio.CancelledError):
            await running
    session = place.journal.find_session(place.journal.sessions()[0].id)
    assert (session.turns[-1].status, session.turns[-1].stop_reason) == ("done", StopReason.CANCELLED)
    assert len(model.asked) == 1


def test_runs_of_two_loops_wait_each_in_its_own(tmp_path: Path) -> None:
    """`run_sync` in two threads over one journal that is locked: both wait, and both end well once it is free."""
    with Journal(tmp_path / "j.db") as journal:
        holder = FileHolder(tmp_path / "j.db")
        holder.hold()
        texts: list[str] = []
        threads = [
            threading.Thread(target=lambda: texts.append(two_steps(journal).run_sync("Go.").text)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        holder.free()
        for thread in threads:
            thread.join(HANG_S)
        holder.close()
    assert texts == ["Done.", "Done."]


@pytest.mark.costly
async def test_runs_that_wait_for_one_server_share_its_limit(own_postgres: PostgresServer) -> None:
    """Five runs of a server that says nothing: those that stand behind the first end with it, and not one limit after the
    other."""
    store = PostgresStore.open(own_postgres.dsn, waits=Waits(all_s=HANG_S))
    journal = Journal.over(store, clock=SystemClock())
    ready, gate = asyncio.Event(), asyncio.Event()
    at_gate = 0

    @tool
    async def wait(where: str) -> str:
        """Wait."""
        nonlocal at_gate
        at_gate += 1
        if at_gate == 5:
            ready.set()
        await gate.wait()
        return where

    def started() -> "asyncio.Task[RunResult[str]]":
        model = ScriptedModel([call("wait", where="a"), "Never."], family=FAMILY)
        return asyncio.create_task(two_steps(journal, model=model, tools=[wait]).run("Go."))

    async with asyncio.timeout(HANG_S):
        runs = [started() for _ in range(5)]
        await ready.wait()
        own_postgres.hold()
        store.thread.limit_s = 0.5
        gate.set()
        try:
            results = await asyncio.gather(*runs)
        finally:
            own_postgres.free()
    journal.close()
    assert {result.stop_reason for result in results} == {StopReason.JOURNAL_FAILED}
    # The second may have had a moment left, and tries to connect in it, for 2 s.
    assert sum([GIVEN_UP in result.text for result in results]) >= 3, [result.text for result in results]


def test_work_that_may_not_wait_leaves_nothing(tmp_path: Path) -> None:
    """Where another connection or another thread has the file, WouldWait comes at once, and later the same work stands once."""
    with Journal(tmp_path / "j.db") as journal:
        store = journal._store
        assert isinstance(store, JournalFile)
        holder = FileHolder(tmp_path / "j.db")

        def work() -> None:
            with store.transaction() as connection:
                connection.execute("insert into budget (name, state, updated) values ('b', '', 0)")

        def is_refused() -> bool:
            try:
                store.at_once(work)
            except WouldWait:
                return True
            return False

        holder.hold()
        assert is_refused()
        with pytest.raises(JournalFailed, match="held by another process"):
            store.thread.do(work, within_s=0.0).result(HANG_S)
        holder.free()
        refused: list[bool] = []
        names: list[str] = []  # whoever shares a budget compares them, and waits for nobody

        def look_on() -> None:
            refused.append(is_refused())
            names.append(journal.address())

        with store.statement():
            other = threading.Thread(target=look_on)
            other.start()
            other.join(HANG_S)
            assert names == [str(tmp_path / "j.db")]
        store.at_once(work)
        with store.statement() as connection:
            assert connection.execute("select count(*) from budget").fetchone() == (1,)
        assert refused == [True]
        holder.close()


def test_a_limit_of_about_the_same_length_is_told_to_sqlite_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: who comes a few milliseconds after its limit began costs no statement of its own, and for one that has waited for
    long the rest is told. Found: each entry of the gateway's ledger told its limit anew."""
    now = [1000.0]
    monkeypatch.setattr(file, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0]))
    connection, said, patience = sqlite3.connect(":memory:"), list[str](), Patience()
    connection.set_trace_callback(said.append)
    use = Use(connection, path=None, patience=patience)
    for waited_s in (0.001, 0.0, 0.02, 0.099, 4.05, 10.5):
        patience.ends = now[0] + file.BUSY_S
        now[0] += waited_s
        with use:
            pass
    connection.close()
    assert said == [f"pragma busy_timeout = {ms}" for ms in (10_000, 6_000, 0)]
