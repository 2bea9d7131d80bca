"""`Budget` over processes: they share it through a journal, and one that dies gives nothing away (promise end:budget)."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from never_stopping import after, never_stops
from thoroughness import examples
from turnwise import (
    Agent,
    Budget,
    BudgetSpent,
    CallerError,
    Journal,
    MaxRequests,
    MaxTokens,
    MaxToolCalls,
    Model,
    RunResult,
    Subagents,
)
from turnwise.errors import JournalFailed
from turnwise.journal.budgets import BudgetRow
from turnwise.testing import ScriptedModel, call
from waits import HANG_S

Target = Path | str
TESTS = Path(__file__).parents[1]
EACH = 4  # requests of a process's run in `PROCESS`


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Of a journal that is not there yet."""
    return tmp_path / "turns.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


def in_journal(journal: Journal, limit: Any, **options: Any) -> tuple[Agent, ScriptedModel, Budget]:
    budget = Budget(limit, journal=journal, name="team", **{k: options.pop(k) for k in ("per_run",) if k in options})
    agent, model = never_stops(budget, journal=journal, **options)
    return agent, model, budget


RUNS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9), st.none() | st.integers(0, 60)), min_size=1, max_size=5
)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=RUNS, limit=st.integers(1, 12), per_run=st.none() | st.integers(1, 6))
def test_however_runs_over_one_journal_interleave_they_make_no_request_too_many(
    runs: Sequence[tuple[int, int, int | None]],
    limit: int,
    per_run: int | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Proves: each run has a journal and a budget of its own, as in a process of its own; together they keep the limit, and what
    was not spent is free again."""
    path = tmp_path_factory.mktemp("budget") / "turns.db"
    part = {} if per_run is None else {"per_run": MaxRequests(per_run)}

    async def all_runs() -> tuple[list[Any], int]:
        made = [
            (passes, in_journal(Journal(path), MaxRequests(limit), passes=slow, **part), ends)
            for passes, slow, ends in runs
        ]
        ended = await asyncio.gather(*[after(passes, agent, cancelled=ends) for passes, (agent, _, _), ends in made])
        return ended, sum(len(model.requests) for _, (_, model, _), _ in made)

    ended, left = asyncio.run(all_runs())
    results = [one for one in ended if isinstance(one, RunResult)]
    with Journal(path) as journal:
        budget = Budget(MaxRequests(limit), journal=journal, name="team")
        assert left <= limit
        assert sum(len(one.ledger) for one in results) <= len(budget.ledger) == budget.spent.requests <= limit
        assert all(one.text == "That is all." for one in results)
        assert budget.left == MaxRequests(limit - budget.spent.requests)


PROCESS = """
import sys
from never_stopping import never_stops
from turnwise import Budget, BudgetSpent, Journal, MaxRequests

target, runs, part = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Journal(target) as journal:
    budget = Budget(MaxRequests(10), per_run=MaxRequests(part), journal=journal, name="team")
    agent, model = never_stops(budget, journal=journal)
    for _ in range(runs):
        try:
            agent.run_sync("Look.")
        except BudgetSpent:
            pass
    print(len(model.requests))
"""


def started(code: str, *arguments: object) -> "subprocess.Popen[str]":
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], env=env, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.costly
@pytest.mark.promise("end:budget")
def test_processes_that_run_at_once_share_what_there_is(target: Target) -> None:
    """Proves: three processes make ten requests together, never more, and the bill has each of them."""
    processes = [started(PROCESS, target, 3, EACH) for _ in range(3)]
    sent = [int(one.communicate(timeout=HANG_S)[0]) for one in processes]
    with Journal(target) as journal:
        budget = Budget(MaxRequests(10), journal=journal, name="team")
        assert sum(sent) == budget.spent.requests == len(budget.ledger) == 10
        assert budget.left == MaxRequests(0)
        with pytest.raises(BudgetSpent, match="the budget is spent"):
            in_journal(journal, MaxRequests(10))[0].run_sync("Look.")


DIES_LATE = """
import os, signal, sys
from turnwise import Agent, Budget, Hook, Journal, MaxRequests, Model, Subagents, ToolSpec, tool
from turnwise.testing import ScriptedModel, call

target, what = sys.argv[1], sys.argv[2]

def die(looks=None):
    os.kill(os.getpid(), signal.SIGKILL)

@tool
def search(pattern: str = "") -> str:
    "Search."
    die()

def agent(said, **more):
    model = ScriptedModel(said)
    return Agent(Model("openai_chat:m", transport=model), journal=journal, **more)

journal = Journal(target)
budget = Budget(MaxRequests(10), per_run=MaxRequests(4), journal=journal, name="team")
hooks = {"hooks": [Hook(point="turn_ended", function=die, name="die")]}
if what == "waits":
    form = ToolSpec(name="form", description="Ask.", parameters='{"type":"object"}')
    agent([[call("form")]], tools=[form], limits=budget, safety=hooks).run_sync("Look.")
if what == "below":
    child = agent([[call("search")]], tools=[search], limits=budget)
    agent([[call("task", prompt="Look.")]], tools=[Subagents({"helper": child})]).run_sync("Look.")
if what == "siblings":
    children = agent(["a", "b", [call("search")]], tools=[search], limits=budget)
    agent([[call("task", prompt="Look.")]] * 4 + ["Done."], tools=[Subagents({"helper": children})]).run_sync("Look.")
"""


DIES = """
import os, signal, sys
from never_stopping import never_stops
from turnwise import Agent, Budget, Hook, Journal, MaxRequests, Model, tool
from turnwise.testing import ScriptedModel, call

target, where = sys.argv[1], sys.argv[2]

def die(looks=None):
    os.kill(os.getpid(), signal.SIGKILL)

@tool
def search(pattern: str) -> str:
    "Search."
    if where == "in a tool":
        die()
    return "nothing"

journal = Journal(target)
budget = Budget(MaxRequests(6), per_run=MaxRequests(4), journal=journal, name="team")
model = ScriptedModel([[call("search", pattern="a")], "That is all."])
safety = {"hooks": [Hook(point="turn_ended", function=die, name="die")]} if where == "after its end" else {}
Agent(Model("openai_chat:m", transport=model), tools=[search], limits=budget, journal=journal, safety=safety).run_sync(
    "Look."
)
"""


def how_it_dies(target: Target, where: str) -> int:
    with started(DIES, target, where) as process:
        return process.wait(HANG_S)


def goes_on(journal: Journal, budget: Budget) -> Agent:
    def search(pattern: str) -> str:
        """Search."""
        return "nothing"

    model = ScriptedModel(["That is all."])
    return Agent(Model("openai_chat:m", transport=model), tools=[search], limits=budget, journal=journal)  # pyright: ignore[reportArgumentType]


@pytest.mark.promise("end:budget", "keep:crash")
def test_the_part_of_a_process_that_was_killed_is_kept_for_whoever_resumes(target: Target) -> None:
    """Proves: others have less until the session is resumed, which needs nothing new and frees what is left over."""
    assert how_it_dies(target, "in a tool") == -signal.SIGKILL
    with Journal(target) as journal:
        agent, _, budget = in_journal(journal, MaxRequests(6), per_run=MaxRequests(2))
        assert budget.left == MaxRequests(2) and budget.spent.requests == 0
        assert agent.run_sync("Look.").requests == 2
        (session,) = [row.id for row in journal.sessions() if row.status == "lost"]
        with pytest.raises(
            BudgetSpent, match=f"another run; resume the sessions whose process is gone, .*: {session}$"
        ):
            agent.run_sync("Look.")
        result = asyncio.run(goes_on(journal, budget).resume(session))
        assert (result.text, result.requests) == ("That is all.", 2)
        assert (budget.spent.requests, budget.left, len(budget.ledger)) == (4, MaxRequests(2), 4)


@pytest.mark.parametrize("how", ["another turn", "deleted"])
def test_a_turn_that_is_given_up_has_spent_what_the_ledger_says(how: str, target: Target) -> None:
    """Proves: where nobody can resume a turn any more, the rest of its part is free for whoever needs it."""
    assert how_it_dies(target, "in a tool") == -signal.SIGKILL
    with Journal(target) as journal:
        agent, _, budget = in_journal(journal, MaxRequests(6))
        (session,) = [row.id for row in journal.sessions()]
        if how == "deleted":
            (kept,) = journal.retention.sessions()
            assert [one.id for one in journal.retention.delete([kept]).gone] == [session]
        else:
            Agent(agent._options["model"], journal=journal).run_sync("Go on.", session=session, drop_left=True)
        assert budget.left == MaxRequests(2)
        assert [agent.run_sync("Look.").requests for _ in range(2)] == [2, 3]
        assert (budget.spent.requests, budget.left) == (6, MaxRequests(0))


@pytest.mark.parametrize("what", ["waits", "below"])
def test_no_death_locks_a_part_for_good(what: str, target: Target) -> None:
    """Proves: a turn that waits for its client has ended, and a sub-agent's goes on with its root alone: when the session has
    gone on, what they did not spend is free."""
    with started(DIES_LATE, target, what) as process:
        assert process.wait(HANG_S) == -signal.SIGKILL
    with Journal(target) as journal:
        agent, _, budget = in_journal(journal, MaxRequests(10))
        assert budget.left == MaxRequests(6)
        (session,) = [row.id for row in journal.sessions()]
        if what == "below":
            Agent(agent._options["model"], journal=journal).run_sync("Go on.", session=session, drop_left=True)
        assert [agent.run_sync("Look.").requests for _ in range(2)] == [6, 3]
        assert (budget.spent.requests, len(budget.ledger), budget.left) == (10, 10, MaxRequests(0))


@pytest.mark.costly
def test_a_sub_agent_that_died_is_charged_with_its_own_requests_alone(target: Target) -> None:
    """Proves: siblings have the same path, and bills of their own."""
    with started(DIES_LATE, target, "siblings") as process:
        assert process.wait(HANG_S) == -signal.SIGKILL
    with Journal(target) as journal:
        agent, _, budget = in_journal(journal, MaxRequests(10))
        assert (budget.spent.requests, len(budget.ledger), budget.left) == (2, 2, MaxRequests(4))
        (session,) = [row.id for row in journal.sessions()]
        budget.give_up(session)
        assert (budget.spent.requests, len(budget.ledger), budget.left) == (3, 3, MaxRequests(7))
        assert agent.run_sync("Look.").requests == 7


def test_a_part_on_another_machine_can_be_given_up(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: whether a process of another machine lives is unknown, so the error names its session, and `give_up` settles it by
    the ledger. A living process of this machine keeps its part."""
    assert how_it_dies(target, "in a tool") == -signal.SIGKILL
    monkeypatch.setattr("turnwise.journal.owners._boot", lambda: "another boot")
    with Journal(target) as journal:
        agent, _, budget = in_journal(journal, MaxRequests(6), per_run=MaxRequests(4))
        assert agent.run_sync("Look.").requests == 2
        (session,) = [row.id for row in journal.sessions() if row.status == "running"]
        with pytest.raises(BudgetSpent, match=f"give up sessions of other machines whose process has died: {session} "):
            agent.run_sync("Look.")
        budget.give_up(session)
        assert (budget.spent.requests, budget.left) == (3, MaxRequests(3))
        with pytest.raises(CallerError, match="nothing to give up"):
            budget.give_up(session)
        seen: list[str] = []

        def watch(_: object) -> None:
            if not seen:
                (running,) = [row.id for row in journal.sessions() if row.status == "running" and row.id != session]
                with pytest.raises(CallerError, match="is running"):
                    budget.give_up(running)
                seen.append(running)

        assert agent.run_sync("Look.", watch=watch).requests == 3
        assert seen


def test_a_closed_journal_is_said_and_costs_no_result(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Proves: a budget whose journal is closed too early keeps the part, and the run has its result."""
    own = Journal(tmp_path / "turns.db")
    with Journal(tmp_path / "turns.db") as journal:
        budget = Budget(MaxRequests(6), per_run=MaxRequests(4), journal=own, name="team")
        agent, _ = never_stops(budget, journal=journal)
        assert agent.run_sync("Look.", watch=lambda _: own.close()).text == "That is all."
        assert "is closed: keep it open" in caplog.text
        with pytest.raises(JournalFailed, match="is closed: keep it open"):
            _ = budget.left


@pytest.mark.promise("end:budget", "keep:crash")
def test_a_process_that_was_killed_at_the_end_of_its_run_has_spent_what_the_ledger_says(target: Target) -> None:
    """Proves: nobody can resume a turn that is done, so its part is settled as soon as somebody needs it."""
    assert how_it_dies(target, "after its end") == -signal.SIGKILL
    with Journal(target) as journal:
        agent, _, budget = in_journal(journal, MaxRequests(6))
        assert budget.left == MaxRequests(2)
        assert agent.run_sync("Look.").requests == 2
        assert agent.run_sync("Look.").requests == 2
        assert (budget.spent.requests, budget.left, len(budget.ledger)) == (6, MaxRequests(0), 6)


async def test_a_run_that_cannot_be_resumed_now_leaves_its_part_alone(target: Target) -> None:
    """Proves: whoever tries to resume a turn that runs gives nothing of its part away."""
    with Journal(target) as journal:
        budget = Budget(MaxRequests(6), per_run=MaxRequests(4), journal=journal, name="team")
        model = ScriptedModel([[call("search")], "That is all."])
        seen: list[object] = []

        async def search() -> str:
            """Search."""
            (row,) = journal.sessions()
            with pytest.raises(CallerError, match="is running"):
                await agent.resume(row.id)
            seen.append(budget.left)
            return "nothing"

        at = {"transport": model}
        agent = Agent(Model("openai_chat:m", **at), tools=[search], limits=budget, journal=journal)  # pyright: ignore[reportArgumentType]
        await agent.run("Look.")
        assert seen == [MaxRequests(2)]
        assert budget.left == MaxRequests(4)


async def test_a_sub_agent_with_a_budget_of_its_own_has_its_own_bill(target: Target) -> None:
    """Proves: of a tree, each budget in the journal counts the requests of the runs that have a part of it."""
    with Journal(target) as journal:
        root = Budget(MaxRequests(10), per_run=MaxRequests(6), journal=journal, name="root")
        below = Budget(MaxRequests(2), journal=journal, name="below")
        child, _ = never_stops(below)
        model = ScriptedModel([[call("task", prompt="Look.")], "Done."])
        at = {"transport": model}
        agent = Agent(
            Model("openai_chat:m", **at),
            tools=[Subagents({"helper": child})],
            limits=root,
            journal=journal,
        )
        result = await agent.run("Have it looked for.")
        assert (root.spent.requests, len(root.ledger)) == (4, 4) == (len(result.ledger),) * 2
        assert (below.spent.requests, {one.path for one in below.ledger}) == (2, {("helper",)})


def test_the_same_budget_is_one_for_a_run_and_its_sub_agents(tmp_path: Path) -> None:
    """Proves: two values with the same name in the same journal are one budget, so the part of the parent is the child's."""
    with Journal(tmp_path / "turns.db") as journal, Journal(tmp_path / "turns.db") as again:
        child, _ = never_stops(Budget(MaxRequests(10), journal=again, name="team"))
        model = ScriptedModel([[call("task", prompt="Look.")], "Done."])
        at = {"transport": model}
        budget = Budget(MaxRequests(10), journal=journal, name="team")
        agent = Agent(
            Model("openai_chat:m", **at),
            tools=[Subagents({"helper": child})],
            limits=budget,
            journal=journal,
        )
        result = agent.run_sync("Have it looked for.")
        assert budget.spent.requests == len(result.ledger) == len(budget.ledger) <= 10
        assert len(result.children) == 1


def test_a_journal_that_fails_at_the_end_keeps_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: the run has its result all the same, the log says why, and no other run spends the part."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, _, budget = in_journal(journal, MaxRequests(6), per_run=MaxRequests(4))

        write = BudgetRow.write

        def fails(self: BudgetRow, state: object) -> None:
            if "parts={}" in repr(state):
                raise JournalFailed("the disk is full")
            write(self, state)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(BudgetRow, "write", fails)
        assert agent.run_sync("Look.").text == "That is all."
        monkeypatch.setattr(BudgetRow, "write", write)
        assert "stays reserved: the disk is full" in caplog.text
        assert budget.left == MaxRequests(2)


def test_each_process_compares_with_its_own_amounts(tmp_path: Path) -> None:
    """Proves: a limit can be raised where a budget is in use; limits of other kinds are an error that says so."""
    with Journal(tmp_path / "turns.db") as journal:
        in_journal(journal, MaxRequests(2))[0].run_sync("Look.")
        with pytest.raises(BudgetSpent):
            in_journal(journal, MaxRequests(2))[0].run_sync("Look.")
        agent, _, budget = in_journal(journal, MaxRequests(5))
        assert budget.left == MaxRequests(3)
        assert agent.run_sync("Look.").requests == 3
        with pytest.raises(
            CallerError, match=r"begun with limits of MaxRequests, and this `Budget` has MaxTokens\(all\)"
        ):
            in_journal(journal, MaxTokens(9_000))[0].run_sync("Look.")
        with pytest.raises(CallerError, match="begun with limits of MaxRequests"):
            _ = Budget(MaxRequests(3) | MaxToolCalls(3), journal=journal, name="team").left


def test_the_agent_keeps_the_same_journal_as_its_budget(tmp_path: Path) -> None:
    """Proves: without it, the bill of the budget could not be true, so nothing is sent."""
    with Journal(tmp_path / "a.db") as one, Journal(tmp_path / "b.db") as other:
        budget = Budget(MaxRequests(2), journal=one, name="team")
        for journal, said in ((None, "has no journal"), (other, "has another journal")):
            agent, model = never_stops(budget, journal=journal)
            with pytest.raises(CallerError, match=f"this agent {said}"):
                agent.run_sync("Look.")
            assert model.requests == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda journal: Budget(MaxRequests(3), name="team"), "a name and no journal"),
        (lambda journal: Budget(MaxRequests(3), journal=journal), "needs a name"),
        (lambda journal: Budget(MaxRequests(3), journal="x.db", name="team"), "must be a `Journal`, not `str`"),
        (lambda journal: Budget(MaxRequests(3), journal=journal, name="a\nb"), "printable"),
        (lambda journal: Budget(MaxRequests(3), journal=journal, name="x" * 201), "at most 200"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_an_error_where_it_is_made(
    make: Callable[[Journal], object], said: str
) -> None:
    """Proves: each says what is wrong and what to do."""
    with Journal(None) as journal, pytest.raises(CallerError, match=said):
        make(journal)


def test_a_budget_that_is_damaged_stops_runs_and_says_so(tmp_path: Path) -> None:
    """Proves: nothing is spent where nobody can say what is left."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, model, _ = in_journal(journal, MaxRequests(1))
        with journal._store.transaction() as connection:
            connection.execute("insert into budget (name, state, updated) values ('team', '{\"counts\":7}', 0)")
        with pytest.raises(JournalFailed, match="the budget `team` cannot be read"):
            agent.run_sync("Look.")
        assert model.requests == []
