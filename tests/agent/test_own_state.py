"""Runs of one agent that go on at once, as in every web server: nothing of one reaches another (issue 39, 1)."""

import asyncio
import contextvars
import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strangers import texts_of
from turnwise import (
    Agent,
    Approval,
    Asking,
    Budget,
    Hook,
    Journal,
    MaxRequests,
    Model,
    PermissionRule,
    Policy,
    Run,
    RunContext,
    RunFinished,
    RunResult,
    RunStream,
    StopReason,
    ToolAboutToRun,
    ToolProgress,
    Workspace,
    tool,
)
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.lab import Lab, Script
from turnwise.lab.script import ScriptedCall, ScriptedStep
from turnwise.running.run_context import turn_at_work
from turnwise.running.working_call import telling
from turnwise.testing import ScriptedModel, call
from turnwise.tools.sandbox import find_sandbox
from waits import HANG_S

pytestmark = pytest.mark.promise("run:own-state")

MODEL = "own-state"
HELPER = "own-state-helper"
RECALL = {"word": r"My word is (\w+)"}
SCRIPTS = [
    Script(
        name=MODEL,
        title="calls each tool with the user's word, then says it",
        recall=RECALL,
        steps=(
            ScriptedStep(calls=(ScriptedCall(name="meet", arguments={"word": "{word}"}),)),
            ScriptedStep(calls=(ScriptedCall(name="publish", arguments={"word": "{word}"}),)),
            ScriptedStep(calls=(ScriptedCall(name="helper", arguments={"prompt": "My word is {word}."}),)),
            ScriptedStep(text="Your word is {word}."),
        ),
    ),
    Script(
        name=HELPER,
        title="looks at the word, then says it",
        recall=RECALL,
        steps=(
            ScriptedStep(calls=(ScriptedCall(name="look", arguments={"word": "{word}"}),)),
            ScriptedStep(text="It is {word}."),
        ),
    ),
]
FREE = tuple([PermissionRule(verdict="allow", tool=name) for name in ("meet", "helper", "look")])
ALLOWED = Policy(rules=(PermissionRule(verdict="allow"),))
WAYS = ("start", "run", "stream", "run_sync", "interrupted", "cancelled")
CAN_BE_SPOKEN_TO = ("start", "stream", "interrupted", "cancelled")
user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="")


class Account(msgspec.Struct, frozen=True):
    """One user, as the deps of their run. No word of `key` is ever sent."""

    word: str
    key: str
    said: str  # in mid-turn
    way: str

    @property
    def all(self) -> tuple[str, ...]:
        return (self.word, self.key, self.said)


def account(number: int) -> Account:
    """Words that nothing else can hold by chance."""
    word, key, said = (f"{kind}{secrets.token_hex(20)}" for kind in ("word", "key", "said"))
    return Account(word=word, key=key, said=said, way=WAYS[number % len(WAYS)])


class Crowd:
    """Users of one agent, whose runs wait for each other: all of them are in the middle at once."""

    def __init__(self, lab: Lab, *, accounts: Sequence[Account], journal: Journal) -> None:
        self.accounts = {one.word: one for one in accounts}
        self.runs: dict[str, Run[Any] | RunStream[Any]] = {}
        self.events: dict[str, list[object]] = {one.word: [] for one in accounts}
        self.results: dict[str, RunResult[Any] | None] = {}
        self.wrong: list[str] = []
        self._all_here = threading.Barrier(len(accounts))
        asking = [one for one in accounts if one.way not in ("interrupted", "cancelled")]
        self._all_ask, self._asked = threading.Barrier(len(asking)), threading.Condition()
        self._order = [one.word for one in reversed(asking)]  # the last who asks is answered first

        @tool
        def meet(context: RunContext[Account], word: str) -> str:
            """Wait until the runs of all users are here; then speak to one's own run, or end it."""
            self.check(context, word)
            self._all_here.wait(HANG_S)
            mine, run = context.deps, self.runs.get(word)
            if run is not None and not run.say(f"And also: {mine.said}."):
                self.wrong.append(f"{mine.way}: it was not heard")
            if mine.way == "interrupted" and run is not None:
                run.interrupt()
            if mine.way == "cancelled" and isinstance(run, Run):
                run.cancel()
            return f"met {word}"

        @tool(effect="write")
        def publish(context: RunContext[Account], word: str) -> str:
            """Put the word on the web site."""
            self.check(context, word)
            return f"published {word}"

        @tool
        async def look(context: RunContext[Account], word: str) -> str:
            """Look at the word."""
            self.check(context, word)
            context.report(f"looking at {word}")
            return f"saw {word}"

        at: Any = {"base_url": f"{lab.url}/v1"}
        guard = Hook(point="before_tool", function=self.guard, name="guard")
        helper = Agent(Model(f"openai_chat:{HELPER}", **at), tools=[look], deps_type=Account)
        self.agent = Agent(
            Model(f"openai_chat:{MODEL}", **at),
            tools=[meet, publish, helper.as_tool("helper", "Looks at a word.")],
            instructions=lambda context: f"You work for {context.deps.word}.",
            deps_type=Account,
            policy=Policy(attended=True, rules=FREE),
            safety={"approver": self.approve, "hooks": [guard]},
            journal=journal,
        )

    def check(self, context: RunContext[Account], word: str) -> None:
        if context.deps.word != word or user.get() != word:
            self.wrong.append(f"{context.deps.way}: the call is another run's")

    def guard(self, context: RunContext[Any], looks: ToolAboutToRun) -> None:
        if context.deps.word not in looks.arguments:
            self.wrong.append(f"{context.deps.way}: the hook sees another run")

    def approve(self, asking: Asking) -> list[Approval]:
        """Of all runs: it answers once all of them ask, in an order of its own. Every other user says no, and why."""
        (ask,) = asking.asks
        word = msgspec.json.decode(ask.arguments)["word"]
        if user.get() != word:
            self.wrong.append("an ask reaches another run's person")
        self._all_ask.wait(HANG_S)
        with self._asked:
            self._asked.wait_for(lambda: self._order[0] == word, HANG_S)
            self._order.pop(0)
            self._asked.notify_all()
            is_denied = len(self._order) % 2 == 1
        if is_denied:
            return [Approval(call_id=ask.call.id, verdict="deny", text=f"not {word}", digest=ask.digest)]
        return [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest)]

    async def all(self) -> None:
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(*[self._one(one) for one in self.accounts.values()])

    async def _one(self, mine: Account) -> None:
        user.set(mine.word)  # of the task of one user's request
        prompt, options = f"My word is {mine.word}.", {"deps": mine, "watch": self.events[mine.word].append}
        self.results[mine.word] = await self._result(mine, prompt, options)

    async def _result(self, mine: Account, prompt: str, options: Any) -> RunResult[Any] | None:
        match mine.way:
            case "run":
                return await self.agent.run(prompt, **options)
            case "run_sync":
                return await asyncio.to_thread(self.agent.run_sync, prompt, **options)
            case "stream":
                stream = self.runs[mine.word] = self.agent.stream(prompt, **options)
                async for event in stream.events():
                    self.events[mine.word].append(event)
                    if isinstance(event, RunFinished):
                        return event.result
                raise AssertionError("a stream ends with its result")
            case _:
                run = self.runs[mine.word] = self.agent.start(prompt, **options)
                try:
                    return await run
                except asyncio.CancelledError:
                    assert mine.way == "cancelled"
                    return None


def words_in(text: str, accounts: Sequence[Account]) -> set[str]:
    """Whose words stand in it, by their ways and words."""
    return {one.word for one in accounts if any(secret in text for secret in one.all)}


def recorded(journal: Journal) -> list[tuple[str, str]]:
    """Of each session of the journal: its id, and all that its turns and those below have written."""
    found: list[tuple[str, str]] = []
    for row in journal.sessions():
        session = journal.find_session(row.id)
        entries = [repr(journal.entries(turn.id)) for turn in session.turns]
        below = [
            repr((child.row, [journal.entries(turn.id) for turn in child.turns]))
            for own in session.turns
            for _, child in journal.children(own.id)
        ]
        found.append((row.id, "".join([repr(row), *entries, *below])))
    return found


@pytest.mark.parametrize("number", [2, 7, 20])
async def test_runs_of_one_agent_hear_nothing_of_each_other(
    number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: no word of a user is in another's request, history, event, journal or answer, and none in a log, whatever way the
    runs were started, while they are spoken to, approved in another order, interrupted and cancelled."""
    caplog.set_level(logging.DEBUG)
    accounts = [account(place) for place in range(number)]
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        async with Lab(SCRIPTS) as lab:
            crowd = Crowd(lab, accounts=accounts, journal=journal)
            await crowd.all()
            bodies = [(received.status, received.body.decode()) for received in lab.requests]
        sessions = recorded(journal)
    assert crowd.wrong == []
    for mine in accounts:
        only, result = {mine.word}, crowd.results[mine.word]
        assert words_in(repr(crowd.events[mine.word]), accounts) <= only
        asked = [body for _, body in bodies if mine.word in body]
        assert asked and all(words_in(body, accounts) == only for body in asked)
        written = [text for _, text in sessions if mine.word in text]
        assert len(written) == 1 and words_in(written[0], accounts) == only
        if result is None:
            assert mine.way == "cancelled"
            continue
        assert words_in(repr(msgspec.structs.astuple(result)), accounts) == only
        ended = StopReason.CANCELLED if mine.way == "interrupted" else StopReason.ANSWERED
        assert result.stop_reason is ended
        if ended is StopReason.ANSWERED:
            assert result.text == f"Your word is {mine.word}." and result.own.requests == 4
            assert any(mine.said in body for body in asked) is (mine.way in CAN_BE_SPOKEN_TO)
    assert {status for status, _ in bodies} == {200} and len(sessions) == number
    assert not words_in(caplog.text, accounts)
    assert not any(one.key in body for one in accounts for _, body in bodies)


async def test_an_answer_to_one_runs_ask_decides_nothing_in_another(tmp_path: Path) -> None:
    """Proves: two sessions wait for calls of the same id; the approval of one does not run the call of the other."""
    published: list[str] = []

    @tool(effect="write")
    def publish(word: str) -> str:
        """Put the word on the web site."""
        published.append(word)
        return "done"

    async def later(asking: Asking) -> list[Approval]:
        return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]

    mine, yours = account(0).word, account(1).word
    model = ScriptedModel([call("publish", id="c1", word=mine), call("publish", id="c1", word=yours), "Done.", "Done."])
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        agent = Agent(
            Model("openai_chat:m", transport=model),
            tools=[publish],
            policy=Policy(attended=True),
            safety={"approver": later},
            journal=journal,
        )
        first, second = await agent.run("Mine."), await agent.run("Yours.")
        (ask,) = first.asks
        given = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest)]
        wrong = await agent.run(session=second.session, approvals=given)
        assert published == [] and wrong.stop_reason is StopReason.WAITING
        assert (await agent.run(session=first.session, approvals=given)).text == "Done."
    assert published == [mine]


# What a run is, and what its end is.


def talking(*lines: Any, **options: Any) -> tuple[Agent[Any, Any], ScriptedModel]:
    model = ScriptedModel(lines)
    return Agent(Model("openai_chat:m", transport=model), **options), model


async def test_a_run_may_be_awaited_twice() -> None:
    """Each time, and in each task, the same result; the same error too."""
    agent, model = talking("Done.")
    run = agent.start("Go.")
    first = await run
    both = await asyncio.gather(*[asyncio.create_task(waited(run)) for _ in range(2)])
    assert all(one is first for one in both) and len(model.asked) == 1
    failing = agent.start("")
    for _ in range(2):
        with pytest.raises(CallerError, match="the prompt is empty"):
            await failing


async def waited(run: Run[Any]) -> RunResult[Any]:
    return await run


async def test_a_run_that_nobody_awaits_goes_on_to_its_end() -> None:
    """Proves: it is held while it works, though its caller has dropped it."""
    ended = asyncio.Event()

    def see(_: object) -> None:
        ended.set()

    agent, model = talking(
        "Done.", safety={"hooks": [Hook(point="turn_ended", function=lambda _: loop.call_soon(see, None), name="end")]}
    )
    loop = asyncio.get_running_loop()
    agent.start("Go.")
    await asyncio.wait_for(ended.wait(), HANG_S)
    assert len(model.asked) == 1


async def test_a_run_that_is_cancelled_before_it_begins_sends_nothing(tmp_path: Path) -> None:
    """Awaiting it raises CancelledError, and the journal does not know it."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        agent, model = talking("Never.", journal=journal)
        run = agent.start("Go.")
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert run.has_ended and not run.say("Too late.") and model.asked == [] and journal.sessions() == []


async def test_whoever_awaits_a_run_and_is_cancelled_cancels_it() -> None:
    """As an `asyncio.Task` that is awaited."""
    began = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return ""

    agent, _ = talking(call("wait"), tools=[wait])
    run = agent.start("Go.")
    waiting = asyncio.create_task(waited(run))
    await asyncio.wait_for(began.wait(), HANG_S)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert run.has_ended


async def test_words_before_the_turn_are_in_its_first_request_and_words_after_it_reach_nobody() -> None:
    """`say` says which: True, then False. An interrupt after the end changes nothing."""
    agent, model = talking("About 15 ft.")
    run = agent.start("How long is the room?")
    assert run.say("In feet, please.")
    result = await run
    assert not run.say("Thanks.")
    run.interrupt()
    run.cancel()
    assert await run is result and result.stop_reason is StopReason.ANSWERED and result.unread == ()
    (asked,) = model.asked
    assert "In feet, please." in repr(asked.messages) and "Thanks." not in repr(result)


async def test_an_interrupt_before_the_turn_begins_is_kept_and_no_word_is_taken_after_it() -> None:
    """The run has a result that says so, and nothing was sent."""
    agent, model = talking("Never.")
    run = agent.start("Go.")
    run.interrupt("deadline")
    assert not run.say("One more thing.")
    result = await run
    assert (result.stop_reason, model.asked) == (StopReason.TIME_LIMIT, [])


def test_a_run_outside_of_an_event_loop_says_what_to_use() -> None:
    """`start` needs a loop; `run_sync` brings one. An option that does not exist is told at once."""
    agent, _ = talking("Done.")
    with pytest.raises(CallerError, match=r"no event loop is running here.*`agent.run_sync\(...\)`"):
        agent.start("Go.")

    async def wrong() -> None:
        options: Any = {"tool": []}
        agent.start("Go.", **options)

    with pytest.raises(CallerError, match="`tool` is no option of a run"):
        asyncio.run(wrong())


def test_a_run_is_awaited_in_its_own_event_loop_and_ends_with_that() -> None:
    """In another loop it is an error; what is said after the loop was closed reaches nobody."""
    agent, _ = talking("Done.", "Done.")

    async def start() -> Run[Any]:
        return agent.start("Go.")

    run = asyncio.run(start())
    assert run.has_ended and not run.say("Hello?")
    run.interrupt()
    with pytest.raises(CallerError, match="was started in another event loop"):
        asyncio.run(waited(run))
    said: list[bool] = []
    other = threading.Thread(target=lambda: said.append(run.say("Hello?")))
    other.start()
    other.join(HANG_S)
    assert said == [False]


@pytest.mark.parametrize("name", ["say", "interrupt"])
def test_the_old_spelling_shows_the_new_line(name: str) -> None:
    """`Agent.say` and `Agent.interrupt` spoke to every run: they are gone, and whoever uses them is told what to write."""
    agent, _ = talking()
    with pytest.raises(AttributeError, match=rf"`Agent.{name}` was removed.*`run = agent.start\(...\)`.*run.{name}\("):
        getattr(agent, name)
    assert not hasattr(agent, name) and not hasattr(agent, "tell")


# What runs share.


class Desk:
    """A toolset that answers in a task of its own, which it starts as it is opened."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._calls: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

    async def __aenter__(self) -> "Desk":
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _work(self) -> None:
        while True:
            answer = await self._calls.get()
            self.seen.append(user.get())
            answer.set_result("done")

    async def tools(self) -> list[Callable[..., Any]]:
        @tool
        async def ask_desk() -> str:
            """Ask."""
            answer = asyncio.get_running_loop().create_future()
            self._calls.put_nowait(answer)
            return await answer

        return [ask_desk]  # pyright: ignore[reportReturnType]


async def test_a_toolset_works_in_no_runs_context() -> None:
    """Proves: it is opened by the first run and works for others; the first one's context variables are not found there."""
    desk = Desk()
    agent, _ = talking(*[line for _ in range(2) for line in (call("ask_desk"), "Done.")], tools=[desk])
    user.set("the first one")
    assert (await agent.run("Go.")).text == "Done."
    async with agent:
        assert (await agent.run("Go.")).text == "Done."
    assert desk.seen == ["", ""]


async def test_a_workspace_has_a_temporary_folder_for_each_run(tmp_path: Path) -> None:
    """Proves: a run finds what its own commands left there, and the next run of the same `Workspace` finds nothing of it."""
    if not find_sandbox(workspace=tmp_path).files:
        pytest.skip("no sandbox on this machine: commands share the user's temporary folder")
    leave, look = call("bash", command="echo mine > $TMPDIR/left"), call("bash", command="ls $TMPDIR")
    agent, _ = talking(leave, look, "Done.", look, "Done.", tools=[Workspace(tmp_path)], policy=ALLOWED)
    first, second = await agent.run("Go."), await agent.run("Go.")
    assert ["left" in texts_of(run)[-1].split() for run in (first, second)] == [True, False]


async def test_a_run_that_a_tool_starts_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Proves: a task that a tool has begun works for other users: their runs share no temporary folder
    with it or with each other, no line of theirs is told as progress of the tool, and none of theirs is its turn. A sub-agent's
    folder is its parent's."""
    workspace, turns = Workspace(tmp_path), list[str]()
    has_sandbox = find_sandbox(workspace=tmp_path).files

    @tool
    async def say() -> str:
        """Tell."""
        told, turn = telling(), turn_at_work()
        turns.append(turn)
        if told is not None:
            told.report(f"of {turn}")
        return "told"

    def user_of() -> Agent[Any, Any]:
        leave = call("bash", command="ls $TMPDIR; echo mine > $TMPDIR/left")
        lines = (call("say"), *((leave, leave) if has_sandbox else ()), "Done.")
        return talking(*lines, tools=[say, workspace], policy=ALLOWED)[0]

    async def serve(jobs: "asyncio.Queue[asyncio.Future[RunResult[Any]]]") -> None:
        while True:
            (await jobs.get()).set_result(await user_of().run("Go."))

    of_users = list[RunResult[Any]]()

    @tool
    async def work() -> str:
        """Start what serves all users, as a tool does that needs it first."""
        turns.append(turn_at_work())
        jobs: asyncio.Queue[asyncio.Future[RunResult[Any]]] = asyncio.Queue()
        serving = asyncio.create_task(serve(jobs))
        for _ in range(2):
            jobs.put_nowait(job := asyncio.get_running_loop().create_future())
            of_users.append(await asyncio.wait_for(job, HANG_S))
        serving.cancel()
        return "done"

    helper = user_of().as_tool("helper", "Helps.")
    seen = list[object]()
    agent, _ = talking(call("work"), call("helper", prompt="Go."), "Done.", tools=[work, helper])
    await agent.run("Go.", watch=seen.append)
    first, *others, below = turns
    assert len({first, *others}) == 3 and below == first
    assert [one.text for one in seen if isinstance(one, ToolProgress)] == []
    if has_sandbox:
        assert [["left" in text.split() for text in texts_of(run)[1:]] for run in of_users] == [[False, True]] * 2


async def test_what_a_run_below_a_tool_spends_counts_in_its_budget() -> None:
    """Proves: the requests of its sub-agent count, though the tool's own run has reserved a part of the same budget."""
    budget = Budget(MaxRequests(10), per_run=MaxRequests(4))
    helper, helped = talking("Hi.", limits=budget)
    other, _ = talking(call("helper", prompt="Go."), "Done.", tools=[helper.as_tool("helper", "Helps.")])

    @tool
    async def work() -> str:
        """Work."""
        return (await other.run("Go.")).text

    agent, asked = talking(call("work"), "Done.", tools=[work], limits=budget)
    await agent.run("Go.")
    assert budget.spent.requests == len(helped.asked) + len(asked.asked) == 3


class Counted:
    """A toolset that knows how often it is open."""

    def __init__(self) -> None:
        self.open = 0

    async def __aenter__(self) -> None:
        self.open += 1

    async def __aexit__(self, *_: object) -> None:
        self.open -= 1

    async def tools(self) -> list[Any]:
        return []


ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    b'data: {"id":"1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"Done."},'
    b'"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


async def test_whoever_leaves_an_agent_closes_nothing_that_another_uses() -> None:
    """Proves: of two who use an agent by `async with`, the first to leave breaks no request of the other, which is sent once; a
    thread runs it in an event loop of its own meanwhile; and the last to leave closes all that was opened."""
    counted, may_leave, came = Counted(), asyncio.Event(), list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))
        may_leave.set()
        await visitor
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    agent: Agent[Any, Any] = Agent(
        Model("openai_chat:m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"), tools=[counted]
    )

    async def visit() -> None:
        async with agent:
            await may_leave.wait()

    async with server, agent, asyncio.timeout(HANG_S):
        visitor = asyncio.create_task(visit())
        await asyncio.sleep(0)
        result = await agent.run("Go.")
        assert (result.text, result.requests, len(came)) == ("Done.", 1, 1)
        assert (await asyncio.to_thread(agent.run_sync, "Go.")).text == "Done."
        assert counted.open == 1
    assert counted.open == 0
