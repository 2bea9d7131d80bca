"""A turn that the caller names by a key: it begins once, goes on where it was left, and gives every asker the same result."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flat_agents import flat_agent
from turnwise import Agent, Journal, RunFinished, Subagents, ToolSpec, ToolStarted, tool
from turnwise.agent.resume_lookup import folded
from turnwise.agent.runs import run_so_far
from turnwise.errors import (
    CallerError,
    KeyReused,
    NothingToResume,
    ProviderFault,
    RunFailed,
    SessionBusy,
    SessionLeft,
)
from turnwise.journal.stores import WouldWait
from turnwise.journal.turn_keys import as_message
from turnwise.testing import Reply, ScriptedModel, ScriptedTransport, Stall, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.vocab import Fault, FaultKind, Message, StopReason, Text, ToolResult
from waits import HANG_S

UNKNOWN = "its outcome is unknown"


class Till:
    """A tool that pays: what it did, and a gate at which the sums above 100 wait."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.waits = asyncio.Event()
        self.gate = asyncio.Event()
        self.settles = False

        @tool
        async def pay(sum: int) -> str:
            """Pay."""
            self.paid.append(sum)
            if sum > 100:
                self.waits.set()
                try:
                    await self.gate.wait()
                except asyncio.CancelledError:
                    if not self.settles:
                        raise
            return f"paid {sum}"

        self.tool = pay


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture(params=["sqlite", "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    place = tmp_path / "turns.db" if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")
    with Journal(place) as journal:
        yield journal


def agent_over(
    journal: Journal, lines: list[Any], *, tools: Any = (), **more: Any
) -> tuple[Agent[Any, Any], ScriptedModel]:
    model = ScriptedModel(lines)
    return flat_agent("openai_chat:m", base_url=BASE_URL, transport=model, journal=journal, tools=tools, **more), model


def results_in(history: Any) -> list[str]:
    parts = [part for message in history for part in message.parts if isinstance(part, ToolResult)]
    return ["".join([one.text for one in part.content if isinstance(one, Text)]) for part in parts]


async def left_in_mid_call(agent: Agent[Any, Any], till: Till, **options: Any) -> BaseException:
    """The exception of a task that was cancelled while a tool worked."""
    task = asyncio.ensure_future(agent.run("Pay.", **options))
    await till.waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value


@pytest.mark.promise("run:key")
async def test_all_who_ask_for_a_key_get_one_turn(journal: Journal, till: Till) -> None:
    """Proves: three callers at once and one later get the same result; one turn ran, and each tool once."""
    agent, model = agent_over(journal, [[call("pay", sum=1)], "Done."], tools=[till.tool])
    found = await asyncio.gather(*[agent.run("Pay.", session="chat-1", key="m:1") for _ in range(3)])
    later = await agent.run("Pay.", session="chat-1", key="m:1")
    assert {one.text for one in (*found, later)} == {"Done."} and till.paid == [1] and len(model.asked) == 2
    assert {(one.requests, one.session, len(one.history), one.cost) for one in (*found, later)} == {
        (2, "chat-1", 4, later.cost)
    }
    assert len(journal.find_session("chat-1").turns) == 1
    with pytest.raises(KeyReused, match=r"the key `m:1` belongs to a turn with another prompt"):
        await agent.run("Pay twice.", session="chat-1", key="m:1")
    ended = journal.result("chat-1", "m:1")
    assert ended is not None and (ended.text, ended.stop_reason) == ("Done.", StopReason.ANSWERED)


@tool
def break_down(at: int) -> str:
    """Break down."""
    raise ConnectionError("nobody is there")


@pytest.mark.promise("run:key", "run:tool-fault")
async def test_the_record_says_what_the_run_said(journal: Journal, till: Till) -> None:
    """Proves: of a turn that was left and went on, with a tool that raised before and after, at the root and in a sub-agent, the
    result from the journal is the result of the run, field by field, notes and all."""
    below, _ = agent_over(journal, [call("break_down", at=2), "It broke."], tools=[break_down], description="Helps.")
    lines = [
        [call("break_down", at=1), call("task", agent="helper", prompt="Help.")],
        call("pay", sum=101),
        call("fail_later"),
        "Done.",
    ]

    @tool
    def fail_later() -> str:
        """Fail."""
        raise LookupError("no such row")

    agent, _ = agent_over(journal, lines, tools=[break_down, till.tool, fail_later], agents={"helper": below})
    await left_in_mid_call(agent, till, session="chat-1", key="m:1")
    ran = await agent.run("Pay.", session="chat-1", key="m:1")
    said = [note.split(" at ")[0] + note.partition(" (of")[2] for note in ran.notes]
    assert said == [
        "the tool `break_down` raised ConnectionError",
        "the tool `break_down` raised ConnectionError the sub-agent `helper`)",
        "the tool `fail_later` raised LookupError",
    ]
    recorded = await agent.run("Pay.", session="chat-1", key="m:1")
    for field in msgspec.structs.fields(ran):
        assert getattr(recorded, field.name) == getattr(ran, field.name), field.name


@pytest.mark.promise("run:key", "run:tool-fault")
async def test_a_tool_that_ended_the_turn_raises_for_all_who_ask(journal: Journal) -> None:
    """Proves: with `tool_errors="raise"` the caller whose process ran the turn gets the exception itself, and everybody else
    RunFailed with its place and the run so far: nobody takes the turn for one that answered."""
    agent, model = agent_over(journal, [call("break_down", at=1)], tools=[break_down], tool_errors="raise")
    with pytest.raises(ConnectionError):
        await agent.run("Go.", session="chat-1", key="m:1")
    with pytest.raises(RunFailed, match=r"tool `break_down` raised ConnectionError at test_turn_keys") as caught:
        await agent.run("Go.", session="chat-1", key="m:1")
    assert (
        caught.value.run is not None and caught.value.run.requests == len(model.asked) == 1 and caught.value.run.notes
    )


@pytest.mark.promise("run:task-is-not-turn", "run:key")
async def test_a_cancelled_task_leaves_its_turn(journal: Journal, till: Till) -> None:
    """Proves: the turn of a cancelled task goes on with the next caller; a finished tool is not run again, one in flight is told
    as unknown, and nothing says `cancelled`."""
    agent, _ = agent_over(journal, [[call("pay", sum=1), call("pay", sum=200)], "Done."], tools=[till.tool])
    error = await left_in_mid_call(agent, till, session="s", key="k")
    so_far = run_so_far(error)
    assert so_far is not None and so_far.requests == 1
    assert (found := journal.find_key("s", "k")) is not None and found.state == "left"
    assert journal.result("s", "k") is None
    with pytest.raises(SessionLeft, match=r"await agent\.resume\('s'\)"):
        await agent.run("More.", session="s")
    result = await agent.run("Pay.", session="s", key="k")
    assert (result.text, result.stop_reason, till.paid) == ("Done.", StopReason.ANSWERED, [1, 200])
    first, second = results_in(result.history)
    assert first == "paid 1" and UNKNOWN in second
    read = await agent.run("Pay.", session="s", key="k")
    for one in (result, read):
        assert [made.arguments for made in one.unknown_calls] == ['{"sum":200}'], "also for who reads the record"


@pytest.mark.promise("run:task-is-not-turn")
async def test_a_tool_that_ends_in_its_second_is_known(tmp_path: Path, till: Till) -> None:
    """Proves: a tool that ends in good order after the cancel has its result, and is not told as unknown."""
    till.settles = True
    with Journal(tmp_path / "turns.db") as journal:
        agent, _ = agent_over(journal, [[call("pay", sum=200)], "Done."], tools=[till.tool])
        await left_in_mid_call(agent, till, session="s", key="k")
        result = await agent.run("Pay.", session="s", key="k")
    assert results_in(result.history) == ["paid 200"] and till.paid == [200] and result.unknown_calls == ()


@pytest.mark.promise("run:task-is-not-turn")
@pytest.mark.parametrize("how", ["cancel", "interrupt", "stream"])
async def test_what_ends_a_turn_whatever_its_key(tmp_path: Path, till: Till, how: str) -> None:
    """Proves: `Run.cancel`, `Run.interrupt` and leaving a stream end the turn, and its key says so ever after."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, model = agent_over(journal, [[call("pay", sum=200)], "Done."], tools=[till.tool])
        if how == "stream":
            async with agent.stream("Pay.", session="s", key="k") as stream:
                async for event in stream.events():
                    if isinstance(event, ToolStarted):
                        break
        else:
            run = agent.start("Pay.", session="s", key="k")
            await till.waits.wait()
            run.cancel() if how == "cancel" else run.interrupt()
            with pytest.raises(asyncio.CancelledError) if how == "cancel" else contextlib.nullcontext():
                await run
        again = await agent.run("Pay.", session="s", key="k")
        assert again.stop_reason is StopReason.CANCELLED and len(model.asked) == 1
        with pytest.raises(NothingToResume):
            await agent.resume("s")


@pytest.mark.promise("run:task-is-not-turn")
async def test_a_reader_that_left_leaves_the_turn(tmp_path: Path, till: Till) -> None:
    """Proves: a cancelled reader of a stream leaves a turn with a key, `hand_over` does too, and a turn without a key ends as
    before; `on_leave="go_on"` lets the run go on."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, _ = agent_over(
            journal, [[call("pay", sum=200)], "Done.", [call("pay", sum=300)], "Two.", "Three."], tools=[till.tool]
        )

        async def read(**options: Any) -> None:
            async with agent.stream("Pay.", **options) as stream:
                async for _ in stream.text():
                    pass

        reader = asyncio.ensure_future(read(session="s", key="k"))
        await till.waits.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert (found := journal.find_key("s", "k")) is not None and found.state == "left"
        assert (await agent.resume("s")).text == "Done."
        till.waits.clear()
        run = agent.start("Pay.", session="t")
        await till.waits.wait()
        run.hand_over()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (so_far := run.so_far) is not None and so_far.requests == 1
        assert (await agent.resume("t")).text == "Two."
        async with agent.stream("Go on.", on_leave="go_on", session="u", key="k"):
            pass
        assert (await agent.run("Go on.", session="u", key="k")).text == "Three."


@pytest.mark.promise("run:task-is-not-turn", "keep:crash")
async def test_a_sub_agent_is_left_with_its_parent(tmp_path: Path, till: Till) -> None:
    """Proves: a sub-agent's turn is left with its parent's and goes on with it; its finished work is not done again."""
    with Journal(tmp_path / "turns.db") as journal:
        below, model_below = agent_over(
            journal, [[call("pay", sum=1)], [call("pay", sum=200)], "Below is done."], tools=[till.tool]
        )
        agent, model = agent_over(
            journal,
            [[call("task", agent="payer", prompt="Pay.")], "All done."],
            tools=[Subagents({"payer": below})],
        )
        await left_in_mid_call(agent, till, session="s", key="k")
        result = await agent.run("Pay.", session="s", key="k")
        assert result.text == "All done." and till.paid == [1, 200]
        assert (len(model.asked), len(model_below.asked)) == (2, 3)
        assert [len(session.turns) for _, session in journal.children(journal.find_session("s").turns[0].id)] == [1]


@pytest.mark.promise("run:key", "run:own-state")
async def test_a_left_turn_goes_on_with_what_its_run_was_given(tmp_path: Path, till: Till) -> None:
    """Proves: the journal and the model that an agent's run was given hold for its turn, also where it goes on."""
    with Journal(tmp_path / "own.db") as own:
        agent, model = agent_over(own, ["Wrong."], tools=[till.tool])
        given = ScriptedModel([call("pay", sum=200), "Right."])
        await left_in_mid_call(agent, till, session="s", key="k", model=given)
        result = await agent.run("Pay.", session="s", key="k", model=given)
        assert result.text == "Right." and not model.asked


@pytest.mark.promise("run:key")
async def test_a_dropped_turn_is_no_other_turn(tmp_path: Path, till: Till) -> None:
    """Proves: the key of a turn that was left and dropped gives an error at once, and never the answer of another turn."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, model = agent_over(journal, [[call("pay", sum=200)], [call("pay", sum=300)], "Two."], tools=[till.tool])
        await left_in_mid_call(agent, till, session="s", key="k1")
        till.waits.clear()
        await left_in_mid_call(agent, till, session="s", key="k2", drop_left=True)
        for wait in (0, 60):
            with pytest.raises(NothingToResume, match="has continued without it"):
                await agent.run("Pay.", session="s", key="k1", wait=wait)
        assert (await agent.run("Pay.", session="s", key="k2")).text == "Two." and len(model.asked) == 3


@pytest.mark.promise("run:task-is-not-turn", "keep:crash")
@pytest.mark.parametrize("passes", [*range(40), None])
async def test_a_sub_agent_that_is_cancelled_twice_is_left(passes: int | None, tmp_path: Path, till: Till) -> None:
    """Proves: after two cancels, however soon, the sub-agent's turn is left like its parent's, and goes on with it."""
    with Journal(tmp_path / "turns.db") as journal:
        below, _ = agent_over(journal, [[call("pay", sum=200)], *["Below is done."] * 3], tools=[till.tool])
        lines = [call("task", agent="payer", prompt="Pay.")] * 2
        agent, _ = agent_over(
            journal,
            [lambda asked: "All done." if asked.messages[-1].role == "tool" else lines[0]] * 3,
            tools=[Subagents({"payer": below})],
        )
        task = asyncio.ensure_future(agent.run("Pay.", session="s", key="k"))
        if passes is None:
            await till.waits.wait()
        for _ in range(passes or 0):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        till.gate.set()
        result = await agent.run("Pay.", session="s", key="k")
        assert result.text == "All done." and len(till.paid) <= 1
        assert "SessionBusy" not in repr(result.history)
        (turn,) = journal.find_session("s").turns
        assert {row.status for _, one in journal.children(turn.id) for row in one.turns} == {"done"}


@pytest.mark.promise("run:key")
async def test_of_several_who_try_again_one_begins(journal: Journal) -> None:
    """Proves: a failed turn is tried again once by all who ask at the same time; by name alone, the prompt is asked for."""
    down = Fault(kind=FaultKind.BAD_REQUEST, message="No.", status=400)
    gate, about_to_begin = asyncio.Event(), list[object]()
    gate.set()

    async def opening(earlier: object) -> tuple[Text, ...]:
        about_to_begin.append(earlier)
        if len(about_to_begin) == 4:
            gate.set()
        await gate.wait()
        return ()

    agent, model = agent_over(journal, [down, down, down, down], opening=opening)
    await agent.run("Hi.", session="s", key="k")
    gate.clear()
    found = await asyncio.gather(*[agent.run("Hi.", session="s", key="k", again=True) for _ in range(3)])
    assert {one.stop_reason for one in found} == {StopReason.PROVIDER_FAILED} and len(model.asked) == 2
    with pytest.raises(CallerError, match="give its prompt again"):
        await agent.run(session="s", key="k", again=True)


@pytest.mark.parametrize("prompt", ["", " ", "\ud800", (), Message("assistant", (Text("x"),)), Message("user", ())])
def test_what_cannot_begin_is_not_accepted(prompt: Any, tmp_path: Path) -> None:
    """Proves: a prompt that no turn can begin with is refused when it is given, not when it is run."""
    with Journal(tmp_path / "turns.db") as journal:
        with pytest.raises(CallerError):
            journal.accept("s", "k", prompt)
        assert journal.accept("s", "k", ["Hello?"]) and not journal.accept("s", "k", "Hello?")


async def test_a_second_accepted_turn_is_listed(journal: Journal) -> None:
    """Proves: a session that has an accepted turn is listed as such, whatever its last turn did; unknown states are refused."""
    agent, _ = agent_over(journal, ["Hello."])
    journal.accept("s", "k1", "Hello?")
    await agent.run(session="s", key="k1")
    journal.accept("s", "k2", "And?")
    assert [row.id for row in journal.sessions(state="accepted")] == ["s"]
    with pytest.raises(CallerError, match="`state` is one of"):
        journal.sessions(state="left")  # pyright: ignore[reportArgumentType]


@pytest.mark.promise("run:key")
async def test_an_accepted_turn_begins_once_and_anywhere(journal: Journal) -> None:
    """Proves: a turn is kept before it begins, listed as accepted, and begun by its key alone."""
    assert journal.accept("s", "k", "Hello?", labels={"user": "42"}) is True
    assert journal.accept("s", "k", as_message("Hello?")) is False
    with pytest.raises(KeyReused):
        journal.accept("s", "k", "Bye.")
    assert journal.result("s", "k") is None
    assert [row.id for row in journal.sessions(state="accepted", labels={"user": "42"})] == ["s"]
    agent, model = agent_over(journal, ["Hello."])
    with pytest.raises(CallerError, match=r"has no turn with the key `other`"):
        await agent.run(session="s", key="other")
    found = await asyncio.gather(agent.run(session="s", key="k"), agent.run("Hello?", session="s", key="k"))
    assert [one.text for one in found] == ["Hello.", "Hello."] and len(model.asked) == 1
    assert not journal.sessions(state="accepted") and journal.sessions()[0].labels == {"user": "42"}


@pytest.mark.promise("run:key")
async def test_a_failed_turn_is_tried_again_only_when_asked(journal: Journal) -> None:
    """Proves: the record of a failed provider is returned as it is; `again=True` begins a new attempt, whose end the key has."""
    down = Fault(kind=FaultKind.BAD_REQUEST, message="No.", status=400)
    agent, model = agent_over(journal, [down, "Fine."])
    first = await agent.run("Hi.", session="s", key="k")
    same = await agent.run("Hi.", session="s", key="k")
    assert first.stop_reason is same.stop_reason is StopReason.PROVIDER_FAILED and len(model.asked) == 1
    assert same.fault == first.fault
    assert (await agent.run("Hi.", session="s", key="k", again=True)).text == "Fine."
    assert (await agent.run("Hi.", session="s", key="k", again=True)).text == "Fine." and len(model.asked) == 2


@pytest.mark.promise("run:key")
async def test_an_output_comes_from_the_record(tmp_path: Path) -> None:
    """Proves: an output is parsed from the record, and checks do not run again."""
    checked: list[int] = []

    def even(value: int) -> None:
        checked.append(value)

    with Journal(tmp_path / "turns.db") as journal:
        agent, model = agent_over(journal, ['{"value": 4}'], output_type=int, output_checks=[even])
        assert (await agent.run("How many?", session="s", key="k")).output == 4
        assert (await agent.run("How many?", session="s", key="k")).output == 4
        assert checked == [4] and len(model.asked) == 1


@pytest.mark.promise("run:key", "step:client-tools")
async def test_a_turn_that_waits_says_so_to_everybody(journal: Journal) -> None:
    """Proves: who asks for the key of a turn that waits gets its pending calls, and nothing runs; the answer is a turn of its
    own, under a key of its own."""

    phone = ToolSpec(name="phone", description="Phone.")
    agent, model = agent_over(journal, [call("phone"), "They said yes."], tools=[phone])
    first, same = [await agent.run("Phone them.", session="s", key="k") for _ in range(2)]
    assert first.stop_reason is same.stop_reason is StopReason.WAITING and len(model.asked) == 1
    assert same.pending == first.pending and same.history == first.history
    answer = {first.pending[0].id: "yes"}
    found = [await agent.run(results=answer, session="s", key="k2") for _ in range(2)]
    assert [one.text for one in found] == ["They said yes."] * 2 and len(model.asked) == 2
    with pytest.raises(KeyReused):
        await agent.run(results={first.pending[0].id: "no"}, session="s", key="k2")


async def test_a_session_takes_one_turn_at_a_time(journal: Journal, till: Till) -> None:
    """Proves: a second run without a key is refused at once, one with a key waits for its turn, and `wait=0` does not wait."""
    agent, _ = agent_over(journal, [[call("pay", sum=200)], "One.", "Two."], tools=[till.tool])
    first = agent.start("Pay.", session="s", key="1")
    await till.waits.wait()
    with pytest.raises(SessionBusy):
        await agent.run("Me too.", session="s")
    for key, prompt in (("1", "Pay."), ("2", "Next.")):
        with pytest.raises(SessionBusy):
            await agent.run(prompt, session="s", key=key, wait=0)
    second = agent.start("Next.", session="s", key="2")
    till.gate.set()
    assert [(await first).text, (await second).text] == ["One.", "Two."]


async def test_a_left_turn_is_dropped_only_when_asked(journal: Journal, till: Till) -> None:
    """Proves: a session with a left turn goes on without it only with `drop_left`, and then the turn is not resumed."""
    agent, _ = agent_over(journal, [[call("pay", sum=200)], "Without it."], tools=[till.tool])
    await left_in_mid_call(agent, till, session="s", key="k")
    with pytest.raises(SessionLeft):
        await agent.run("Go on.", session="s", key="k2")
    assert (await agent.run("Go on.", session="s", drop_left=True)).text == "Without it."
    with pytest.raises(NothingToResume):
        await agent.resume("s")


@pytest.mark.parametrize("id", ["", "a b", "x" * 129, "ä", "a\n", "../x", "a/b"])
async def test_ids_of_callers_are_plain(tmp_path: Path, id: str) -> None:
    """Proves: an id that a caller chooses is matched whole, for sessions and for keys."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, _ = agent_over(journal, ["Hi."])
        with pytest.raises(CallerError, match=r"give 1 to 128 of the characters"):
            await agent.run("Hi.", session="s", key=id)
        with pytest.raises(CallerError, match=r"give 1 to 128 of the characters|`key` needs `session`"):
            await agent.run("Hi.", session=id, key="k")
        assert not journal.sessions()


async def test_sessions_are_found_by_label_state_and_page(journal: Journal) -> None:
    """Proves: pages of sessions hold each session once, in order, also where only some have the labels or the state."""
    agent, _ = agent_over(journal, ["Hi."] * 7)
    for number in range(7):
        await agent.run("Hi.", session=f"s{number}", labels={"user": str(number % 2), 'odd "name" %': "x"})
    journal.accept("later", "k", "Hello?", labels={"user": "1"})

    def pages(read: Callable[..., list[Any]]) -> list[str]:
        found, last = list[str](), None
        while rows := read(limit=2, before=last):
            found += [row.id for row in rows]
            last = rows[-1]
        return found

    assert pages(journal.sessions) == ["later", *[f"s{number}" for number in reversed(range(7))]]
    assert pages(lambda **page: journal.sessions(labels={"user": "1", 'odd "name" %': "x"}, **page)) == [
        "s5",
        "s3",
        "s1",
    ]
    assert pages(lambda **page: journal.sessions(state="done", labels={"user": "0"}, **page)) == [
        "s6",
        "s4",
        "s2",
        "s0",
    ]
    assert pages(lambda **page: journal.sessions(state="accepted", **page)) == ["later"]


@pytest.mark.promise("keep:crash")
def test_a_busy_file_makes_no_turn_unreadable(tmp_path: Path, till: Till) -> None:
    """Proves: a turn that is read while another process writes is read a little later, and not called damaged."""
    with Journal(tmp_path / "turns.db") as journal:
        agent, _ = agent_over(journal, ["Hi."])
        agent.run_sync("Hi.", session="s", key="k")
        found = journal.find_session("s")

        def busy(_: str) -> list[object]:
            raise WouldWait

        journal.entries = busy  # type: ignore[method-assign, assignment]
        with pytest.raises(WouldWait):
            folded(journal, found.turns)


async def test_events_and_text_of_a_run(tmp_path: Path) -> None:
    """Proves: a run gives its events and its text without a stream, each once, and its end says the result."""
    agent = flat_agent("openai_chat:m", base_url=BASE_URL, transport=ScriptedModel(["Hello there.", "Again."]))
    run = agent.start("Hi.")
    assert "".join([text async for text in run.text()]) == "Hello there." == (await run).text
    run = agent.start("Hi.")
    events = [event async for event in run.events()]
    assert isinstance(events[-1], RunFinished) and events[-1].result is await run and run.so_far is await run


@pytest.mark.promise("run:key")
async def test_a_run_that_reads_the_record_has_its_text_once(journal: Journal, till: Till) -> None:
    """Proves: a client that comes back, and one that waited, get the whole answer (it was empty, issue 44); a failed provider's
    words are still no text."""
    till.gate.set()
    down = Fault(kind=FaultKind.BAD_REQUEST, message="No.", status=400)
    agent, _ = agent_over(journal, [call("pay", sum=101), "Paid.", down], tools=[till.tool])

    async def read(key: str) -> list[str]:
        return [text async for text in agent.start("Pay.", session="s", key=key).text()]

    live, waited = await asyncio.gather(read("k"), read("k"))
    assert ("".join(live), waited, await read("k")) == ("Paid.", ["Paid."], ["Paid."])
    async with agent.stream("Pay.", session="s", key="k") as stream:
        assert [text async for text in stream.text()] == ["Paid."] and [text async for text in stream.text()] == []
    for _ in range(2):
        with pytest.raises(ProviderFault):
            await read("failed")


@pytest.mark.promise("run:task-is-not-turn", "bill:wire")
async def test_a_request_in_flight_stands_in_the_bill(tmp_path: Path) -> None:
    """Proves: a request that was under way when its task was cancelled is in the ledger, beside the one that is sent again."""
    sent = asyncio.Event()

    def silence(_: Any) -> Reply:
        sent.set()
        return Reply(before=Stall())

    with Journal(tmp_path / "turns.db") as journal:
        silent = flat_agent("openai_chat:m", base_url=BASE_URL, transport=ScriptedTransport([silence]), journal=journal)
        task = asyncio.ensure_future(silent.run("Hi.", session="s", key="k"))
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        agent, model = agent_over(journal, ["Hello."])
        result = await agent.run("Hi.", session="s", key="k")
        assert (result.text, result.requests, len(model.asked)) == ("Hello.", 2, 1)
        assert [entry.outcome for entry in result.ledger] == ["lost", "ok"]


async def test_an_error_that_nobody_fetched_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: a run that nobody awaits and that raises says so in the log."""
    began = asyncio.Event()

    def breaks(_: object) -> None:
        began.set()
        raise RuntimeError("prepared badly")

    agent = flat_agent("openai_chat:m", base_url=BASE_URL, transport=ScriptedModel(["Hi."]), prepare_step=breaks)
    agent.start("Hi.")
    await began.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    gc.collect()
    assert "prepared badly" in caplog.text


FROZEN = """
import asyncio, os, signal, sys
from turnwise import Agent, Journal, tool
from turnwise.testing import ScriptedModel, call

@tool
async def pay(sum: int) -> str:
    "Pay."
    os.kill(os.getpid(), signal.SIGSTOP)
    return "paid, late"

async def main():
    with Journal(sys.argv[1]) as journal:
        agent = Agent(ScriptedModel([call("pay", sum=1), "Late."]), tools=[pay], journal=journal)
        result = await agent.run("Pay.", session="s", key="k")
        print(result.stop_reason.value)

asyncio.run(main())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc says whether a process is stopped")
@pytest.mark.promise("run:key", "keep:crash")
def test_a_turn_is_taken_from_a_frozen_process(tmp_path: Path) -> None:
    """Proves: only `take_over=True` takes a turn from a process that is stopped; when that one goes on, it writes nothing more,
    and all who ask get the result of the new owner."""
    place = tmp_path / "turns.db"
    with subprocess.Popen([sys.executable, "-c", FROZEN, str(place)], stdout=subprocess.PIPE, text=True) as process:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])

        async def taken_over() -> None:
            with Journal(place) as journal:
                agent, _ = agent_over(journal, ["Taken over."], tools=[Till().tool])
                with pytest.raises(SessionBusy):
                    await agent.resume("s")
                with pytest.raises(SessionBusy):
                    await agent.run("Pay.", session="s", key="k", wait=0)
                taken = await agent.resume("s", take_over=True)
                assert taken.text == "Taken over." and UNKNOWN in results_in(taken.history)[0]
                process.send_signal(signal.SIGCONT)
                said, _ = await asyncio.to_thread(process.communicate, timeout=HANG_S)
                assert said.strip() == "journal_failed"
                again = await agent.run("Pay.", session="s", key="k")
                assert (again.text, again.history) == (taken.text, taken.history)

        asyncio.run(taken_over())
