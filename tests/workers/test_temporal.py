"""What Temporal does to a session from outside: its page's buttons, its schedules, its server's death, the loss of its
database."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleSpec, WorkflowFailureError

from journal.cutting_proxy import CuttingProxy
from postgres_server import PostgresServer
from temporal_server import started
from terminal.forking import start
from turnwise import Agent, Approval, Journal
from turnwise.errors import CallerError
from turnwise.testing import engine_conformance as kit
from turnwise.workers.temporal import session_worker, turnwise_activities
from turnwise.workers.temporal_sessions import EngineTurn, SessionWorkflow, TemporalTurns
from waits import HANG_S
from workers.engines import AGENT, TemporalWorkers
from workers.farm import WorkerProcess

pytestmark = [pytest.mark.engines, pytest.mark.promise("keep:engines")]


class Place:
    """A session's way through Temporal, with a worker in this process. `effects` and `stops` are what the journal and the world
    have."""

    def __init__(self, client: Client, *, folder: Path, journal: Journal) -> None:
        self.client, self.folder, self.journal = client, folder, journal
        self.task_queue = uuid.uuid4().hex
        self.agent = kit.agent(folder, journal=journal)
        self.turns = TemporalTurns(client, journal=journal, task_queue=self.task_queue)

    @contextlib.asynccontextmanager
    async def worker(self, **agents: Agent) -> AsyncGenerator[None]:
        async with (
            turnwise_activities(agents or {"kit": self.agent}, journal=self.journal, loops=1) as activities,
            session_worker(self.client, activities=activities, task_queue=self.task_queue, grace_s=0),
        ):
            yield

    async def submit(self, session: str, key: str, prompt: str) -> None:
        await self.turns.submit(session, EngineTurn("kit", key, heartbeat_s=5), prompt)

    async def ended(self, session: str) -> str:
        """How its last turn ended, once its workflow is done."""
        result = await self.client.get_workflow_handle_for(SessionWorkflow.run, session).result()
        return result.state

    async def asked(self, session: str, *, legs: int = 1) -> list[Approval]:
        """Wait until the session's turn waits for a person, after so many legs."""
        await kit.until(lambda: kit.stops(self, session) == ["waiting"] * legs)
        asks = await asyncio.to_thread(self.agent.open_asks, session)
        return [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in asks]

    async def until_status(self, session: str, state: str, *, problem: bool = False) -> str:
        """Wait until its current turn has this state; the problem that it tells."""
        while True:
            found = await self.turns.status(session)
            if found.state == state and bool(found.problem) == problem:
                return found.problem
            await asyncio.sleep(kit.LOOK_S)

    def effects(self, session: str) -> list[str]:
        return [name.removeprefix(f"{session}-") for name in kit.effects(self, session)]


@pytest.fixture
async def place(temporal_address: str, postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Place]:
    with Journal(postgres_dsn) as journal:
        yield Place(await Client.connect(temporal_address), folder=tmp_path, journal=journal)


async def test_cancel_in_the_engines_page_ends_the_turn_and_terminate_leaves_it(place: Place) -> None:
    """Proves: Cancel ends the running turn and begins none of those that wait; after Terminate the turn is left, and its key
    goes on with it: the tool that was under way is told as unknown."""
    async with place.worker():
        await place.submit("page", "first", "slow:page-a note:page-b")
        await place.submit("page", "second", "note:page-c")
        await kit.until(lambda: place.effects("page") == ["a"])
        handle = place.client.get_workflow_handle("page")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert kit.stops(place, "page") == ["cancelled"] * 2
        await place.submit("page", "third", "slow:page-d note:page-e")
        await kit.until(lambda: place.effects("page") == ["a", "d"])
        await place.client.get_workflow_handle("page").terminate()
        await place.submit("page", "third", "slow:page-d note:page-e")
        await kit.until(lambda: kit.stops(place, "page") == ["cancelled", "cancelled", "answered"])
        assert place.effects("page") == ["a", "d", "e"]
        assert kit.told_unknown(place, "page") == 1


async def test_a_turn_that_no_worker_has_is_cancelled(place: Place) -> None:
    """Proves: a turn whose agent no worker has waits, says so, and is cancelled without one; the session's next turn runs."""
    async with place.worker():
        await place.turns.submit("nobody", EngineTurn("missing", "first", heartbeat_s=5), "note:nobody-a")
        await place.submit("nobody", "second", "note:nobody-b")
        await place.until_status("nobody", "running")
        assert await place.turns.cancel("nobody", "first")
        assert await place.ended("nobody") == "answered"
    assert not await place.turns.cancel("nobody", "second")
    with pytest.raises(CallerError, match="no turn of the session `nobody` waits"):
        await place.turns.answer("nobody", "second", ())
    assert place.effects("nobody") == ["b"]


async def test_what_was_cancelled_stays_so_when_its_key_is_sent_again(place: Place) -> None:
    """Proves: the journal hears of a cancel, also that of a turn that waits for a person or behind another one. So the keys that
    are sent again, to an engine that has forgotten them, run nothing and ask nobody. A turn that waits where the session has
    continued without it holds nobody up."""
    prompts = {"first": "guarded:again-a", "second": "note:again-b", "third": "note:again-c"}
    async with place.worker():
        for key, prompt in prompts.items():
            await place.submit("again", key, prompt)
        await place.asked("again")
        await place.until_status("again", "waiting")
        for key in ("second", "first"):
            await place.turns.cancel("again", key)
        for _ in range(2):
            assert await place.ended("again") == "answered"
            ends = [await place.turns.result("again", key) for key in prompts]
            assert [end and end.stop_reason.value for end in ends] == ["cancelled", "cancelled", "answered"]
            assert place.effects("again") == ["c"] and place.agent.open_asks("again") == ()
            for key, prompt in prompts.items():
                await place.submit("again", key, prompt)
        await place.submit("gone-on", "first", "guarded:gone-on-a")
        await place.asked("gone-on")
        await place.until_status("gone-on", "waiting")
        await place.client.get_workflow_handle("gone-on").terminate()
        await place.agent.run("note:gone-on-b", session="gone-on")
        await place.submit("gone-on", "first", "guarded:gone-on-a")
        assert await place.ended("gone-on") == "dropped"


async def test_nothing_that_is_sent_stops_a_session(place: Place) -> None:
    """Proves: a signal of a wrong form, an answer that is no answer, and times that the engine refuses stop no session."""
    async with place.worker():
        await place.turns.submit("odd", EngineTurn("kit", "key", heartbeat_s=-1), "guarded:odd-a")
        approvals = await place.asked("odd")
        await place.until_status("odd", "waiting")
        handle = place.client.get_workflow_handle("odd")
        for name, given in (("submit", ["odd"]), ("submit", []), ("answer", ["key"]), ("cancel", []), ("odd", [1])):
            await handle.signal(name, args=given)
        await handle.signal("answer", args=["key", "no answer"])
        assert "form" in await place.until_status("odd", "waiting", problem=True)
        await place.turns.answer("odd", "key", approvals)
        assert await place.ended("odd") == "answered"
    assert place.effects("odd") == ["a"]


async def test_wrong_answers_change_nothing(place: Place) -> None:
    """Proves: an answer to a call that nobody asked about is told as a problem, and the turn still takes the right one. A key
    that is too long for the legs after an answer is refused at once."""
    async with place.worker():
        await place.submit("wrong", "key", "guarded:wrong-a guarded:wrong-b")
        approvals = await place.asked("wrong")
        await place.until_status("wrong", "waiting")
        await place.turns.answer("wrong", "key", [Approval(call_id="nothing", verdict="allow")])
        assert "nothing" in await place.until_status("wrong", "waiting", problem=True)
        await place.turns.answer("wrong", "key", approvals)
        await place.turns.answer("wrong", "key", await place.asked("wrong", legs=2))
        assert await place.ended("wrong") == "answered"
    assert place.effects("wrong") == ["a", "b"]
    with pytest.raises(CallerError, match="110"):
        await place.submit("wrong", "k" * 111, "note:wrong-c")


async def test_a_schedule_and_the_engines_priority_are_the_engines_own(place: Place) -> None:
    """Proves: a schedule's firing is a session that keeps its own prompt, and a session has the priority and the fairness key
    that it was submitted with."""
    turn = EngineTurn("kit", "report", prompt="note:report-a")
    action = ScheduleActionStartWorkflow(SessionWorkflow.run, [turn], id="report", task_queue=place.task_queue)
    async with place.worker():
        schedule = await place.client.create_schedule(uuid.uuid4().hex, Schedule(action=action, spec=ScheduleSpec()))
        await schedule.trigger()
        await kit.until(lambda: place.effects("report") == ["a"])
        await schedule.delete()
        await place.turns.submit(
            "fair", EngineTurn("kit", "key"), "note:fair-a", priority_key=2, fairness_key="tenant-a"
        )
        assert await place.ended("fair") == "answered"
    found = (await place.client.get_workflow_handle("fair").describe()).raw_description.workflow_execution_info.priority
    assert (found.priority_key, found.fairness_key) == (2, "tenant-a")
    (fired,) = [row for row in place.journal.sessions() if row.id.startswith("report-")]
    assert [turn.key for turn in place.journal.find_session(fired.id).turns] == ["report"]


async def test_a_turn_is_submitted_at_the_command_line(place: Place, temporal_address: str, postgres_dsn: str) -> None:
    """Proves: `turnwise submit --engine temporal` keeps the prompt and names the turn: the same key twice is one turn. A server
    that is not there is exit code 1."""
    words = ["submit", "--engine", "temporal", "--database", postgres_dsn, "--agent", "kit", "--json"]
    words += [
        "--session",
        "line",
        "--key",
        "k1",
        "--label",
        "user=42",
        "--heartbeat",
        "5",
        "--fairness-key",
        "tenant-b",
    ]

    def submit(address: str) -> tuple[int, str]:
        process = start(
            [*words, "--address", address, "--task-queue", place.task_queue, "note:line-a"], cwd=place.folder
        )
        out, err = process.communicate(timeout=HANG_S)
        return process.returncode, out or err

    async with place.worker():
        for _ in range(2):
            assert await asyncio.to_thread(submit, temporal_address) == (0, '{"session":"line","key":"k1"}\n')
            assert await place.ended("line") == "answered"
    assert place.effects("line") == ["a"] and place.journal.find_session("line").row.labels == {"user": "42"}
    code, said = await asyncio.to_thread(submit, "127.0.0.1:9")
    assert code == 1 and "Temporal cannot be reached" in said


async def test_a_worker_has_one_log_and_looks_before_it_is_ready(
    place: Place, temporal_address: str, postgres_dsn: str
) -> None:
    """Proves: what Temporal's SDK says comes as lines of the worker's log. A namespace that does not exist is
    exit code 1, and the worker does not say that it is ready."""
    await place.client.start_workflow("turnwise_session", ["no turn"], id="no turn", task_queue=place.task_queue)
    workers = TemporalWorkers(place.folder, dsn=postgres_dsn, address=temporal_address, task_queue=place.task_queue)
    try:
        worker = WorkerProcess(workers, *workers.options, agents=AGENT)
        workers.started.append(worker)
        said = (await asyncio.to_thread(worker.until_all, "ready", "waits"))["waits"]["text"]
        assert said.startswith("Temporal: Failed activation")
        lost = WorkerProcess(workers, *workers.options, "--namespace", "nowhere", agents=AGENT)
        workers.started.append(lost)
        assert await asyncio.to_thread(lost.wait) == 1
        assert lost.rest() == "turnwise: Temporal cannot be reached: Namespace nowhere is not found.\n"
    finally:
        workers.end()
        await place.client.get_workflow_handle("no turn").terminate()


async def test_the_database_of_the_journal_may_restart(
    temporal_address: str, own_postgres: PostgresServer, tmp_path: Path
) -> None:
    """Proves: a turn whose journal goes away in the middle of a tool goes on when it is back, with each effect once."""
    with Journal(own_postgres.dsn) as journal:
        place = Place(await Client.connect(temporal_address), folder=tmp_path, journal=journal)
        async with place.worker():
            await place.submit("restart", "key", "slow:restart-a note:restart-b")
            await kit.until(lambda: place.effects("restart") == ["a"])
            own_postgres.crash()
            (tmp_path / "go").touch()
            own_postgres.start()
            assert await place.ended("restart") == "answered"
    assert place.effects("restart") == ["a", "b"]


async def test_a_worker_behind_a_cut_network_loses_its_turn(
    temporal_address: str, postgres_dsn: str, tmp_path: Path
) -> None:
    """Proves: nothing passes between a worker and Temporal any more, and neither is told. Another worker takes the turn over; the
    first one, which still reaches the journal, writes nothing more, and each effect happens once."""
    proxy = CuttingProxy(temporal_address)
    far, near = (
        TemporalWorkers(tmp_path, dsn=postgres_dsn, address=address, task_queue=tmp_path.name)
        for address in (proxy.address, temporal_address)
    )
    try:
        far.start_worker()
        await near.submit("cut", "key", "slow:cut-a note:cut-b")
        await kit.until(lambda: bool(kit.effects(near, "cut")))
        near.start_worker()
        proxy.stop_forwarding()
        assert await kit.ended(near, "cut") == ["answered"]
        (tmp_path / "go").touch()
        await near.submit("cut", "later", "note:cut-c")
        assert await kit.ended(near, "cut", turns=2) == ["answered"] * 2
        assert sorted(kit.effects(near, "cut")) == ["cut-a", "cut-b", "cut-c"] and kit.told_unknown(near, "cut") == 1
    finally:
        far.end()
        near.end()
        proxy.close()


async def test_the_engine_may_die_and_forget(postgres_dsn: str, tmp_path: Path) -> None:
    """Proves: after kill -9 of Temporal's server in the middle of a turn all turns end. When its database is deleted and all keys
    are sent again, nothing runs twice; what waits for an answer takes it then. A long session begins new runs of its workflow."""
    database = tmp_path / "temporal.db"
    server = started(database=database, dynamic=("limit.historyCount.suggestContinueAsNew=20",))
    prompts = {(f"s{number}", f"k{turn}"): f"work:s{number}-{turn}" for turn in range(6) for number in range(2)}
    prompts |= {("asks", "key"): "guarded:asks-a", ("waits", "key"): "guarded:waits-a"}
    try:
        with Journal(postgres_dsn) as journal:
            place = Place(await Client.connect(server.address), folder=tmp_path, journal=journal)
            async with place.worker():
                for (session, key), prompt in prompts.items():
                    await place.submit(session, key, prompt)
                await kit.until(lambda: bool(place.effects("s0")))
                await asyncio.to_thread(server.crash)
                await asyncio.to_thread(server.start)
                assert [await place.ended(session) for session in ("s0", "s1")] == ["answered"] * 2
                run = await place.client.get_workflow_handle("s0").describe()
                assert run.raw_description.workflow_execution_info.first_run_id != run.run_id
                await place.turns.answer("asks", "key", await place.asked("asks"))
                assert await place.ended("asks") == "answered"
                before = (tmp_path / "effects").read_text().splitlines()
                await asyncio.to_thread(server.crash)
                database.unlink()
                await asyncio.to_thread(server.start)
                for (session, key), prompt in prompts.items():
                    await place.submit(session, key, prompt)
                assert [await place.ended(session) for session in ("s0", "s1", "asks")] == ["answered"] * 3
                assert (tmp_path / "effects").read_text().splitlines() == before
                await place.turns.answer("waits", "key", await place.asked("waits"))
                assert await place.ended("waits") == "answered"
                assert place.effects("waits") == ["a"]
            assert [place.effects(session) for session in ("s0", "s1")] == [[str(turn) for turn in range(6)]] * 2
    finally:
        server.stop()
