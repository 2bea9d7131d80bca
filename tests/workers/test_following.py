"""A session is followed while it runs on a worker: from elsewhere, from any event on, and over a crash of the database."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flat_agents import flat_agent
from postgres_server import PostgresServer
from terminal.running import running_lab
from turnwise import Journal, tool
from turnwise.agent.followed_session import watch_session
from turnwise.base.clock import SystemClock
from turnwise.journal.postgres.news import Ear, NewsDesk
from turnwise.replay.replayed_events import SessionEvent
from turnwise.running.watcher_events import ToolFinished, ToolStarted, TurnFinished
from turnwise.workers.queue import TurnQueue
from waits import HANG_S
from workers.farm import Farm, scripts

pytestmark = pytest.mark.costly


@pytest.fixture
def farm(postgres_dsn: str, tmp_path: Path) -> Iterator[Farm]:
    with running_lab(scripts()) as lab:
        found = Farm(tmp_path / "farm", dsn=postgres_dsn, url=lab.url)
        yield found
        found.end()


def followed(farm: Farm, session: str, *words: str) -> list[dict[str, Any]]:
    done = farm.run("status", session, "--follow", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [line for line in map(json.loads, done.stdout.splitlines()) if "n" in line]


async def all_of(dsn: str | Path, session: str, *, after: int = 0) -> list[SessionEvent]:
    return [event async for event in watch_session(dsn, session, after=after)]


@pytest.mark.promise("keep:machines")
def test_a_session_is_followed_live_from_any_event_on(farm: Farm, postgres_dsn: str) -> None:
    """Proves: what a tool does is told while it runs, in another process; the follower ends with the turn; a later one gets the
    same events from any number on, and the library gives the same ones."""
    session = farm.submit("waits")
    farm.worker().until("entered")

    async def follow() -> list[SessionEvent]:
        found: list[SessionEvent] = []
        async with asyncio.timeout(HANG_S):
            async for event in watch_session(postgres_dsn, session):
                found.append(event)
                if isinstance(event.seen, ToolStarted) and event.seen.call.name == "slow":
                    farm.go()  # only now can the turn end
        return found

    live = asyncio.run(follow())
    assert isinstance(live[-1].seen, TurnFinished)
    assert [event.number for event in live] == sorted([event.number for event in live])
    again = asyncio.run(all_of(postgres_dsn, session))
    assert again == live
    middle = live[len(live) // 2].number
    assert asyncio.run(all_of(postgres_dsn, session, after=middle)) == [one for one in live if one.number > middle]
    lines = followed(farm, session)
    assert [line["name"] for line in lines if line["event"] == "tool_call"] == ["do", "slow", "do"]
    assert followed(farm, session, "--from", str(middle)) == [line for line in lines if line["n"] >= middle]
    farm.submit("plain", "--session", session)
    more = followed(farm, session, "--from", str(lines[-1]["n"] + 1))
    assert [line["name"] for line in more if line["event"] == "tool_result"] == ["do"]
    said = farm.run("status", session, "--follow").stdout
    assert 'do {"name":"before"}' in said and "do gave: did before" in said


def test_a_follower_hears_of_records_at_once(farm: Farm, postgres_dsn: str) -> None:
    """Proves: it is told, and does not only look: it looks every ten minutes here. A turn that nobody follows tells nobody."""
    session = farm.submit("waits")
    worker = farm.worker()
    worker.until("entered")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        row = connection.execute("select watched_until from turnwise.turn where session = %s", (session,)).fetchone()
        assert row == (None,)

    async def first_result_of_slow() -> str:
        async with asyncio.timeout(HANG_S / 2):
            async for event in watch_session(postgres_dsn, session, poll_s=600.0):
                if isinstance(event.seen, ToolStarted) and event.seen.call.name == "slow":
                    asyncio.get_running_loop().call_later(0.5, farm.go)
                if isinstance(event.seen, ToolFinished) and event.seen.result.name == "slow":
                    return event.seen.result.call_id
        return ""

    assert asyncio.run(first_result_of_slow())


def test_whoever_leaves_while_news_come_ends_the_listening(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: the task that listens ends when the last follower leaves, also in the moment in which something wakes it."""
    session = queue.submit("Go.", agent="plain")

    async def leave() -> bool:
        desk = NewsDesk(postgres_dsn)
        ear = Ear(session, poll_s=600.0, desk=desk)
        async with asyncio.timeout(HANG_S):
            await ear.wait()  # it has looked, and listens now
        listening = [task for task in asyncio.all_tasks() if task.get_name() == "turnwise news"]
        desk.enter(ear)
        ear.leave()
        done, _ = await asyncio.wait(listening, timeout=HANG_S)
        return list(done) == listening

    assert asyncio.run(leave())


def test_many_followers_share_a_few_connections(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: sixty followers of thirty sessions in one event loop use six connections at most; each hears that its session
    has ended, and does not look for it: it would look every ten minutes."""
    sessions = [queue.submit("Go.", agent="plain") for _ in range(30)]
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:

        def ours() -> int:
            row = connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database()"
                " and backend_type = 'client backend' and pid <> pg_backend_pid()"
            ).fetchone()
            return 0 if row is None else row[0]

        async def follow() -> int:
            follows = [asyncio.create_task(follow_to_end(one)) for one in (*sessions, *sessions)]
            async with asyncio.timeout(HANG_S):
                watched = "select count(*) from turnwise.turn where watched_until is not null"
                while connection.execute(watched).fetchone() != (len(sessions),):
                    await asyncio.to_thread(connection.execute, "select 1")
                most = ours()
                for one in sessions:
                    queue.cancel(one)
                await asyncio.gather(*follows)
            return most

        async def follow_to_end(session: str) -> None:
            async for _ in watch_session(postgres_dsn, session, poll_s=600.0):
                pass

        assert asyncio.run(follow()) - 1 <= 6  # one is the queue's


@pytest.mark.promise("keep:machines")
def test_a_follower_outlives_the_database(own_postgres: PostgresServer, tmp_path: Path) -> None:
    """Proves: the database crashes and starts again under it; it goes on, and gives each event once."""
    with running_lab(scripts()) as lab:
        farm = Farm(tmp_path / "farm", dsn=own_postgres.dsn, url=lab.url)
        try:
            session = farm.submit("waits")
            farm.worker().until("entered")

            async def follow() -> list[SessionEvent]:
                found: list[SessionEvent] = []
                async with asyncio.timeout(HANG_S):
                    async for event in watch_session(own_postgres.dsn, session):
                        found.append(event)
                        if isinstance(event.seen, ToolStarted) and event.seen.call.name == "slow":
                            own_postgres.crash()
                            own_postgres.start()
                            farm.go()
                return found

            found = asyncio.run(follow())
            assert found == asyncio.run(all_of(own_postgres.dsn, session))
            assert isinstance(found[-1].seen, TurnFinished)
        finally:
            farm.end()


def test_a_journals_file_is_followed_too(tmp_path: Path) -> None:
    """Proves: the same iterator follows a run of this machine, and gives what the run's own watcher was told of calls."""
    told: list[str] = []

    @tool(effect="read")
    def do(name: str) -> str:
        """Do it."""
        return f"did {name}"

    async def run(url: str) -> tuple[str, list[str]]:
        path = tmp_path / "turns.db"
        with Journal(path, clock=SystemClock()) as journal:
            agent = flat_agent("openai_chat:plain", tools=[do], base_url=f"{url}/v1", api_key="lab", journal=journal)
            result = await agent.run("Go.", watch=lambda seen: told.append(type(seen).__name__))
        return result.session, [type(event.seen).__name__ for event in await all_of(path, result.session)]

    with running_lab(scripts()) as lab:
        _, found = asyncio.run(run(lab.url))
    calls = {"ToolStarted", "ToolFinished", "StepStarted", "RequestStarted", "RequestFinished", "TurnFinished"}
    assert [one for one in found if one in calls] == [one for one in told if one in calls]


def test_following_needs_a_session_and_a_number(farm: Farm) -> None:
    """Proves: `--from` without `--follow`, or below 1, is wrong use."""
    session = farm.submit("plain")
    assert farm.run("status", session, "--from", "3").returncode == 2
    assert farm.run("status", session, "--follow", "--from", "0").returncode == 2
