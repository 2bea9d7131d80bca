"""A run that goes on behind a crash: what counts, what is asked again, what is refused.

The crash is a copy of the journal's file, taken at that moment, whose owner is dead (tests/crashes kills real processes).
"""

import asyncio
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from left_journals import GONE, copy_of_a_crash, unseen_owner
from turnwise import (
    Agent,
    Approval,
    Asking,
    CallerError,
    DepsFactory,
    Journal,
    MaxWallTime,
    PermissionRule,
    Policy,
    RetryPolicy,
    RunContext,
    RunResult,
    SessionKey,
    tool,
)
from turnwise.agent.followed_session import watch_session
from turnwise.agent.resume_lookup import MAY_LACK_LAST
from turnwise.base.clock import Clock, SystemClock
from turnwise.errors import JournalFailed
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.read_only import LOST_RECORDS
from turnwise.rules.answer_room import exit_code
from turnwise.running.resumption import MOST_TRIES
from turnwise.testing import FakeClock, ScriptedModel
from turnwise.testing.scripted_model import BASE_URL, call
from turnwise.turn.events import Asked
from turnwise.turn.outcomes import UNKNOWN_OUTCOME
from turnwise.vocab import Fault, FaultKind, StopReason, Text, ToolResult
from waits import HANG_S

START = FakeClock().now()
BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=529)


class Crash:
    """Takes the journal as it stands: what a process that died now would have left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self.path = folder / "journal.db"
        self.left: Path | None = None

    def now(self) -> None:
        self.left = self._folder / f"left-{next(self._numbers)}.db"
        copy_of_a_crash(self.path, self.left)

    def journal(self, clock: Clock) -> Journal:
        assert self.left is not None, "there was no crash"
        return Journal(self.left, clock=clock)


def agent_of(model: ScriptedModel, journal: Journal, *, clock: Clock, **more: Any) -> Agent:
    return flat_agent(
        "openai_chat:m", base_url=BASE_URL, api_key="k", transport=model, journal=journal, clock=clock, **more
    )


def results_of(result: RunResult) -> list[str]:
    return [
        "".join([one.text for one in part.content if isinstance(one, Text)])
        for message in result.new_messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


@pytest.mark.promise("keep:crash", "bill:wire")
async def test_a_lost_request_is_sent_anew_though_no_retry_is_allowed(tmp_path: Path) -> None:
    """Proves: that a crash lost a request uses up no attempt; its entry is `lost`, its price unknown, and it counts."""

    crash = Crash(tmp_path)
    clock = SystemClock()

    def dies(_: object) -> str:
        crash.now()
        return "Hello."

    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([dies]), journal, clock=clock, retry=RetryPolicy(attempts=1)).run("Go.")
    model = ScriptedModel([BUSY])
    with crash.journal(clock) as again:
        session = again.sessions()[0].id
        result = await agent_of(model, again, clock=clock, retry=RetryPolicy(attempts=1)).resume(session)
        entries = again.ledger.entries(LedgerSpan(session=session))
    assert result.stop_reason == "provider_failed" and len(model.asked) == 1  # the one attempt that is allowed
    assert [entry.outcome for entry in entries] == ["lost", "overloaded"]
    assert entries[0].usd is None and entries[0].usage is None and entries[1].retry_of == "step"
    assert result.requests == 2 and result.requests_by_purpose == {"step": 1, "retry": 1}
    assert len(result.ledger) == 2


@pytest.mark.promise("keep:crash", "wait:ask")
async def test_a_question_is_asked_again_for_what_was_left_of_its_time(tmp_path: Path) -> None:
    """Proves: 200 of 300 s had passed when the process went on."""
    clock = FakeClock()
    crash = Crash(tmp_path)
    asked: list[float] = []

    @tool(effect="write")
    def do(name: str) -> str:
        """Do it."""
        return f"did {name}"

    def first(asking: Asking) -> list[Approval]:
        crash.now()
        return []

    def again(asking: Asking) -> list[Approval]:
        asked.append(asking.deadline_s)
        return [Approval(call_id=one.call.id, verdict="allow", digest=one.digest) for one in asking.asks]

    policy = Policy(rules=(PermissionRule(verdict="ask", tool="do"),), attended=True)
    more: dict[str, Any] = {"tools": [do], "policy": policy}
    with Journal(crash.path, clock=clock) as journal:
        model = ScriptedModel([[call("do", name="it")], "Denied."])
        await agent_of(model, journal, clock=clock, approver=first, **more).run("Go.")
    await clock.advance(200)
    with crash.journal(clock) as left:
        model = ScriptedModel(["Done."])
        result = await agent_of(model, left, clock=clock, approver=again, **more).resume(left.sessions()[0].id)
        (turn,) = left.find_session(result.session).turns
        assert sum(isinstance(event, Asked) for event in left.events(turn.id)) == 1
    assert asked == [100.0]
    assert (result.text, results_of(result)) == ("Done.", ["did it"])


@pytest.mark.promise("keep:crash", "wait:retry")
async def test_a_wait_lasts_as_long_as_was_left(tmp_path: Path) -> None:
    """Proves: a pause of 30 to 60 s before a retry goes on where it was, and nothing is sent before its end."""
    clock = FakeClock()
    crash = Crash(tmp_path)
    retry = RetryPolicy(attempts=3, base_s=60, cap_s=60)
    with Journal(crash.path, clock=clock) as journal:
        agent = agent_of(ScriptedModel([BUSY, "Late."]), journal, clock=clock, retry=retry)
        running = asyncio.create_task(agent.run("Go."))
        await clock.advance(1)
        crash.now()
        (waits_s,) = [delay for delay in clock.delays if 10 < delay <= 60]
        await clock.advance(100)
        assert (await asyncio.wait_for(running, HANG_S)).text == "Late."
    model = ScriptedModel(["Here."])
    later = FakeClock(now=START + waits_s - 9)  # 10 s are left of it
    with crash.journal(later) as left:
        agent = agent_of(model, left, clock=later, retry=retry)
        resumed = asyncio.create_task(agent.resume(left.sessions()[0].id))
        await later.advance(9)
        assert model.asked == []
        await later.advance(2)
        assert (await asyncio.wait_for(resumed, HANG_S)).text == "Here."


@pytest.mark.promise("keep:crash")
async def test_probes_are_believed_and_one_that_fails_knows_nothing(tmp_path: Path) -> None:
    """Proves: a result, None (it runs), and an exception."""
    crash = Crash(tmp_path)
    ran: list[str] = []

    def probe(name: str) -> str | None:
        if name == "broken":
            raise OSError("no connection")
        return f"had done {name}" if name == "happened" else None

    @tool(effect="write", reconcile=probe)
    async def do(name: str) -> str:
        """Do it."""
        ran.append(name)
        if len(ran) == 3:
            crash.now()
        return f"did {name}"

    asks = [call("do", name=name) for name in ("happened", "not yet", "broken")]
    with Journal(crash.path, clock=SystemClock()) as journal:
        await agent_of(ScriptedModel([asks, "Done."]), journal, clock=SystemClock(), tools=[do]).run("Go.")
    ran_before = len(ran)
    with crash.journal(SystemClock()) as left:
        model = ScriptedModel(["Done."])
        result = await agent_of(model, left, clock=SystemClock(), tools=[do]).resume(left.sessions()[0].id)
    told = results_of(result)
    assert told[2] == UNKNOWN_OUTCOME
    assert told[0] in ("did happened", "had done happened")  # its end may have been recorded
    assert told[1] == "did not yet" and len(ran) <= ran_before + 1


@pytest.mark.promise("keep:crash")
async def test_a_program_that_asks_for_other_calls_when_it_runs_again_ends(tmp_path: Path) -> None:
    """Proves: what its calls did is not done again, and the model is told."""
    crash = Crash(tmp_path)
    ran: list[str] = []

    @tool(effect="write")
    def do(name: str) -> str:
        """Do it."""
        ran.append(name)
        if name == "second":
            crash.now()
        return f"did {name}"

    program = 'first = do(name="first")\ndo(name="second")\nprint(first)'
    with Journal(crash.path, clock=SystemClock()) as journal:
        model = ScriptedModel([[call("script", program=program)], "Done."])
        await agent_of(model, journal, clock=SystemClock(), tools=[do], script=True).run("Go.")
    assert crash.left is not None
    with closing(sqlite3.connect(crash.left)) as connection:  # as if the program had asked for something else
        connection.execute("""update record set body = replace(body, '"{\\"name\\":\\"first\\"}"', '"{\\"name\\":\\"other\\"}"')
            where kind = 'script_called'""")
        connection.commit()
    with crash.journal(SystemClock()) as left:
        model = ScriptedModel(["Sorry."])
        agent = agent_of(model, left, clock=SystemClock(), tools=[do], script=True)
        result = await agent.resume(left.sessions()[0].id)
    (told,) = results_of(result)
    assert "asked for other calls" in told and "look at it" in told
    assert 'their outcome is unknown: `do` {"name":"second"}.' in told
    assert ran == ["first", "second"]


@pytest.mark.promise("keep:crash")
async def test_a_program_that_draws_numbers_goes_on(tmp_path: Path) -> None:
    """Proves: run again it draws the same numbers, so no call of it runs twice."""
    crash = Crash(tmp_path)
    ran: list[str] = []

    @tool(effect="write")
    def do(name: str) -> str:
        """Do it."""
        if len(ran) == 1:
            crash.now()
        ran.append(name)
        return f"did {name}"

    program = "import random\nfor _ in range(2):\n    do(name=str(random.random()))"
    with Journal(crash.path, clock=SystemClock()) as journal:
        model = ScriptedModel([[call("script", program=program)], "Done."])
        await agent_of(model, journal, clock=SystemClock(), tools=[do], script=True).run("Go.")
    with crash.journal(SystemClock()) as left:
        model = ScriptedModel(["Done."])
        agent = agent_of(model, left, clock=SystemClock(), tools=[do], script=True)
        result = await agent.resume(left.sessions()[0].id)
    (told,) = results_of(result)
    assert "asked for other calls" not in told and UNKNOWN_OUTCOME in told
    assert "\n1 call had run (`do`); what was done stands.\n" in told and "their outcome is unknown: `do` {" in told
    assert len(ran) == 2


@pytest.mark.promise("run:own-state")
async def test_a_part_of_an_id_reaches_no_session(tmp_path: Path) -> None:
    """Proves: a program names a session by its whole id alone, in all ways to go on with it. A run with another id begins a
    session that knows nothing of this one, or is refused if a caller cannot choose that id."""
    clock = SystemClock()
    model = ScriptedModel(["Hello.", *["Who are you?"] * 5, "Hello again."])
    with Journal(tmp_path / "journal.db", clock=clock) as journal:
        agent = agent_of(model, journal, clock=clock)
        id = (await agent.run("My secret.")).session
        strange = (f"{id} ", f"{id}\0", f"{id}\ud800", "%", "*")
        for part in (id[:6], id[-6:], id[:-1], f"{id}1", "_" * len(id), *strange):
            with pytest.raises(CallerError, match="there is no session"):
                await agent.resume(part)
            with pytest.raises(CallerError, match="there is no session"):
                await anext(watch_session(journal.address(), part))
            if part in strange:
                with pytest.raises(CallerError, match="give 1 to 128 of the characters"):
                    await agent.run("And?", session=part)
            else:
                assert len((await agent.run("And?", session=part)).history) == 2
        assert len(model.asked) == 6
        assert (await agent.run("And?", session=id)).text == "Hello again."


@pytest.mark.promise("keep:crash", "run:own-state")
async def test_a_turn_of_a_process_that_cannot_be_seen_goes_on_by_the_callers_word(tmp_path: Path) -> None:
    """Proves: `take_over=True` and nothing else says of a process of another boot that it is gone, and it says so of that session
    alone. Before, the word of one session's caller let others end the turns that the same process had under way elsewhere."""
    clock = SystemClock()
    crash = Crash(tmp_path)
    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([lambda _: crash.now() or "Hello."]), journal, clock=clock).run("Go.")
    assert crash.left is not None
    other = "of-another-user"
    with crash.journal(clock) as left:
        session = left.sessions()[0].id
        left.begin_turn(turn_id="theirs", session_id=other, folder="", title="")
    with closing(sqlite3.connect(crash.left)) as connection:
        connection.execute("update turn set owner = ?", (unseen_owner(),))
        connection.commit()
    with crash.journal(clock) as left:
        agent = agent_of(ScriptedModel(["Hello."]), left, clock=clock)
        for unsaid in (session, other):
            with pytest.raises(CallerError, match="take_over=True"):
                await agent.resume(unsaid)
            with pytest.raises(CallerError, match="take_over=True"):
                await agent.run("Go on.", session=unsaid, drop_left=True)
        result = await agent.resume(session, take_over=True)
        assert (result.text, result.notes) == ("Hello.", (MAY_LACK_LAST,)), "the machine may have lost power"
        with pytest.raises(CallerError, match="take_over=True"):
            await agent.resume(other)
        with pytest.raises(CallerError, match="take_over=True"):
            await agent.run("Go on.", session=other, drop_left=True)
        assert left.find_session(other).turns[-1].status == "running"


@pytest.mark.promise("keep:crash")
async def test_the_process_that_was_left_behind_can_write_nothing_more(tmp_path: Path) -> None:
    """Proves: the epoch fences the old pen, while what became of its request is kept."""
    clock = SystemClock()
    crash = Crash(tmp_path)
    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([lambda _: crash.now() or "Hello."]), journal, clock=clock).run("Go.")
    with crash.journal(clock) as one, crash.journal(clock) as two:
        session = one.sessions()[0].id
        (turn,) = one.find_session(session).turns
        old = one.resume_turn(turn.id)
        with pytest.raises(CallerError, match="is running"):
            two.resume_turn(turn.id)
        one.leave(turn.id)
        one.resume_turn(turn.id)
        with pytest.raises(JournalFailed, match="another process has taken this turn over"):
            old.append(Asked())


async def test_a_turn_that_never_gets_further_is_ended(tmp_path: Path) -> None:
    """Proves: five processes in a row that died before they recorded anything are enough; no request is sent."""
    clock = SystemClock()
    crash = Crash(tmp_path)
    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([lambda _: crash.now() or "Hello."]), journal, clock=clock).run("Go.")
    model = ScriptedModel(["Hello."])
    with crash.journal(clock) as left:
        session = left.sessions()[0].id
        (turn,) = left.find_session(session).turns
        for _ in range(MOST_TRIES):
            left.resume_turn(turn.id)
            left.leave(turn.id)
        left.close()
    assert crash.left is not None
    with closing(sqlite3.connect(crash.left)) as connection:
        connection.execute("update turn set owner = ?", (GONE,))
        connection.commit()
    with crash.journal(clock) as left:
        result = await agent_of(model, left, clock=clock).resume(session)
    assert model.asked == [] and not result.complete
    assert result.stop_reason is StopReason.GIVEN_UP and exit_code(result.stop_reason, complete=False) == 9
    assert result.text.startswith("The turn was given up before there was an answer: it was taken up 5 times in a row")


async def test_a_call_that_kills_its_process_is_not_repeated_without_end(tmp_path: Path) -> None:
    """Proves: that it began once more is no progress; after five tries in a row the turn ends, and nobody is told that a user has
    cancelled it."""
    clock, crash, ran = SystemClock(), Crash(tmp_path), list[str]()

    @tool(effect="write", idempotent=True)
    async def look(name: str) -> str:
        """Look."""
        ran.append(name)
        crash.now()
        return "seen"

    with Journal(crash.path, clock=clock) as journal:
        model = ScriptedModel([[call("look", name="it")], "Done."])
        session = (await agent_of(model, journal, clock=clock, tools=[look]).run("Go.")).session
    for tries in range(MOST_TRIES + 1):
        assert crash.left is not None and len(ran) == tries + 1
        crash.path = crash.left
        with crash.journal(clock) as left:
            result = await agent_of(ScriptedModel(["Done."]), left, clock=clock, tools=[look]).resume(session)
    assert len(ran) == MOST_TRIES + 1
    assert "5 times in a row" in result.text
    assert results_of(result) and not any("user" in said for said in results_of(result))


class Killer:
    """What kills its process each time: a request, a program's call, or a sub-agent before it has begun."""

    def __init__(self, kind: str, *, crash: Crash) -> None:
        self.kills = 0
        self._kind, self._crash = kind, crash

    def kill(self) -> str:
        self.kills += 1
        self._crash.now()
        return "seen"

    def agent(self, journal: Journal, *, is_resumed: bool) -> Agent:
        @tool(effect="read", idempotent=True)
        async def look(name: str) -> str:
            """Look."""
            return self.kill() if name == "it" else name

        async def opening(_: object) -> list[str]:
            self.kill()
            return []

        clock = SystemClock()
        program = "print(look(name='a'))\nprint(look(name='it'))"
        match self._kind:
            case "request":
                return agent_of(ScriptedModel([lambda _: self.kill()]), journal, clock=clock)
            case "program":
                model = ScriptedModel(["Done."] if is_resumed else [[call("script", program=program)], "Done."])
                return agent_of(model, journal, clock=clock, tools=[look], script=True)
            case _:
                called = [call("task", agent="helper", prompt="Help.")]
                model = ScriptedModel(["Done."] if is_resumed else [called, "Done."])
                helper = agent_of(ScriptedModel(["Helped."]), journal, clock=clock, opening=opening)
                return agent_of(model, journal, clock=clock, agents={"helper": helper})


@pytest.mark.parametrize("kind", ["request", "program", "sub-agent"])
async def test_whatever_kills_its_process_each_time_is_not_repeated_without_end(tmp_path: Path, kind: str) -> None:
    """Proves: that a request left again, that a program began again or that a sub-agent was called again is no progress."""
    crash = Crash(tmp_path)
    killer = Killer(kind, crash=crash)
    with Journal(crash.path, clock=SystemClock()) as journal:
        session = (await killer.agent(journal, is_resumed=False).run("Go.")).session
    result = None
    for tries in range(MOST_TRIES + 1):
        assert crash.left is not None and killer.kills == tries + 1
        crash.path = crash.left
        with crash.journal(SystemClock()) as left:
            result = await killer.agent(left, is_resumed=True).resume(session)
    assert killer.kills == MOST_TRIES + 1
    assert result is not None and "5 times in a row" in result.text


async def test_what_cannot_be_resumed_is_refused_by_name(tmp_path: Path) -> None:
    """Proves: a session that has ended, one without a journal, another provider's agent, an option that there is not."""
    clock = SystemClock()
    crash = Crash(tmp_path)
    with Journal(crash.path, clock=clock) as journal:
        agent = agent_of(ScriptedModel([lambda _: crash.now() or "Hello."]), journal, clock=clock)
        result = await agent.run("Go.")
        with pytest.raises(CallerError, match="has ended: there is nothing to resume"):
            await agent.resume(result.session)
    with crash.journal(clock) as left:
        session = left.sessions()[0].id
        other = flat_agent("anthropic_messages:m", base_url=BASE_URL, api_key="k", journal=left, clock=clock)
        with pytest.raises(CallerError, match="resume it with an agent of the same provider"):
            await other.resume(session)
        with pytest.raises(CallerError, match="needs a journal"):
            await flat_agent("openai_chat:m", base_url=BASE_URL, api_key="k").resume(session)
        with pytest.raises(CallerError, match="max_steps"):
            await agent_of(ScriptedModel([]), left, clock=clock).resume(session, max_steps=3)  # pyright: ignore[reportCallIssue]
        await agent_of(ScriptedModel(["And on."]), left, clock=clock).run("On.", session=session, drop_left=True)
        (turn, _) = left.find_session(session).turns
        with pytest.raises(CallerError, match="has continued without that turn"):
            left.resume_turn(turn.id)


@pytest.mark.promise("keep:crash")
async def test_a_turn_whose_last_records_are_lost_is_not_resumed(tmp_path: Path) -> None:
    """Proves: what a damaged journal has lost may have run, so nothing of it is done again; a new turn goes on."""
    clock = SystemClock()
    crash = Crash(tmp_path)
    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([lambda _: crash.now() or "Hello."]), journal, clock=clock).run("Go.")
    assert crash.left is not None
    with closing(sqlite3.connect(crash.left)) as connection:  # as `sessions rescue` leaves it
        connection.execute("update turn set status = 'lost', stop_reason = ?, complete = 0", (LOST_RECORDS,))
        connection.commit()
    model = ScriptedModel(["On it."])
    with crash.journal(clock) as left:
        session = left.sessions()[0].id
        with pytest.raises(CallerError, match="was damaged and has lost the last records"):
            await agent_of(model, left, clock=clock).resume(session)
        assert model.asked == []
        assert (
            await agent_of(model, left, clock=clock).run("And now?", session=session, drop_left=True)
        ).text == "On it."


async def test_time_in_which_nobody_worked_does_not_count(tmp_path: Path) -> None:
    """Proves: of a limit of 100 s, 30 had passed; a day later 70 are left."""
    clock = FakeClock()
    crash = Crash(tmp_path)

    @tool
    async def wait() -> str:
        """Wait."""
        await clock.sleep(30)
        return "waited"

    limits = MaxWallTime(100)
    with Journal(crash.path, clock=clock) as journal:
        model = ScriptedModel([[call("wait")], lambda _: crash.now() or "Done."])
        running = asyncio.create_task(agent_of(model, journal, clock=clock, tools=[wait], limits=limits).run("Go."))
        await clock.advance(31)
        await asyncio.wait_for(running, HANG_S)
    await clock.advance(86_400)
    with crash.journal(clock) as left:
        model = ScriptedModel(["Still here."])
        result = await agent_of(model, left, clock=clock, tools=[wait], limits=limits).resume(left.sessions()[0].id)
    assert (result.text, result.stop_reason) == ("Still here.", "answered")


@tool
async def paint(context: RunContext[str]) -> str:
    """Paint the fence."""
    answer = await context.ask(f"Which colour for {context.deps}?")
    return answer.text


@pytest.mark.promise("keep:crash", "wait:ask")
async def test_what_a_tool_asked_is_gone_after_a_crash(tmp_path: Path) -> None:
    """Proves: the call's outcome is unknown, nobody is asked again, and the deps are made anew for the same session."""
    clock = FakeClock()
    crash = Crash(tmp_path)
    keys: list[SessionKey] = []

    def make(key: SessionKey) -> str:
        keys.append(key)
        return "Ada"

    async def dies(asking: Asking) -> list[Approval]:
        crash.now()
        return []

    async def never(asking: Asking) -> list[Approval]:
        raise AssertionError

    of = {"clock": clock, "tools": [paint], "deps_type": DepsFactory(make)}
    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([call("paint"), "Done."]), journal, approver=dies, **of).run("Paint.")
    with crash.journal(clock) as again:
        session = again.sessions()[0].id
        result = await agent_of(ScriptedModel(["I do not know."]), again, approver=never, **of).resume(session)
    assert results_of(result) == [UNKNOWN_OUTCOME]
    assert keys == [SessionKey(id=session), SessionKey(id=session)]


@pytest.mark.promise("keep:crash")
async def test_a_run_with_deps_goes_on_with_deps_only(tmp_path: Path) -> None:
    """Proves: without a factory `resume` needs `deps=`, as no journal has them; a probe is given them as well."""
    clock = FakeClock()
    crash = Crash(tmp_path)
    probed: list[object] = []

    def look(context: RunContext[str]) -> str:
        probed.append((context.deps, context.call and context.call.name))
        return "it is blue"

    @tool(reconcile=look)
    async def paint_blue(context: RunContext[str]) -> str:
        """Paint the fence blue."""
        crash.now()
        return context.deps

    of = {"clock": clock, "tools": [paint_blue], "deps_type": str}
    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([call("paint_blue"), "Done."]), journal, **of).run("Paint.", deps="Ada")
    with crash.journal(clock) as again:
        session = again.sessions()[0].id
        agent = agent_of(ScriptedModel(["Blue."]), again, **of)
        with pytest.raises(CallerError, match="give the run `deps=`"):
            await agent.resume(session)
        result = await agent.resume(session, deps="Ada")
    assert (results_of(result), probed) == (["it is blue"], [("Ada", "paint_blue")])
