"""A tool's exception reaches its author, and the model reads no more of it than the tool chose."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from left_journals import copy_of_a_crash
from turnwise import (
    Agent,
    CallerError,
    ChildSeen,
    Journal,
    RunResult,
    ToolFault,
    ToolFinished,
    run_so_far,
    tool,
)
from turnwise.journal.ledger import MAX_NOTES
from turnwise.running.tool_output import TOOL_FAILED
from turnwise.running.watcher_events import WatcherEvent
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Text, ToolResult, text_of
from waits import HANG_S

SECRET = "postgres://app:hunter2@db/shop"
TOOLS = "turnwise.tools"


@tool(effect="write")
def charge(cents: int) -> str:
    """Charge a card."""
    raise ConnectionError(f"cannot reach {SECRET}")


@tool(effect="write")
async def charge_later(cents: int) -> str:
    """Charge a card, later."""
    raise ConnectionError(f"cannot reach {SECRET}")


@tool
def refuse(cents: int) -> str:
    """Refuse."""
    raise ToolFault("the card has expired: ask for another one")


def agent_of(model: ScriptedModel, **options: Any) -> Agent[Any, Any]:
    return flat_agent("openai_chat:m", base_url="http://x", transport=model, **options)


def results_of(result: RunResult[Any]) -> list[str]:
    found = [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]
    return ["".join([part.text for part in one.content if isinstance(part, Text)]) for one in found]


def everything_sent(model: ScriptedModel) -> str:
    return "\n".join([repr(asked) for asked in model.asked])


def so_far_of(error: BaseException) -> RunResult[Any]:
    found = run_so_far(error)
    assert found is not None
    return found


@pytest.mark.promise("run:tool-fault")
@pytest.mark.parametrize("failing", [charge, charge_later], ids=lambda one: one.tool.name)
async def test_a_bug_in_a_tool_reaches_its_author_and_not_the_provider(
    failing: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: log, event and notes tell the author, with the traceback in the log; neither a request nor the journal has a word
    of what the exception said. A ToolFault is the tool's own word: the model reads it, and nobody else hears of it."""
    seen: list[WatcherEvent] = []
    name = failing.tool.name
    model = ScriptedModel([[call(name, cents=70123), call("refuse", cents=1)], "It did not work."])
    path = tmp_path / "turns.db"
    with Journal(path) as journal:
        result = await agent_of(model, tools=[failing, refuse], journal=journal).run("Charge.", watch=seen.append)
    assert results_of(result) == [f"ConnectionError: {TOOL_FAILED}", "the card has expired: ask for another one"]
    assert "hunter2" not in everything_sent(model) + repr(result.messages) + "".join(result.notes)
    assert b"hunter2" not in path.read_bytes()
    (record,) = [one for one in caplog.records if one.name == TOOLS and one.levelno >= logging.INFO]
    assert record.levelno == logging.ERROR and record.exc_info and SECRET in str(record.exc_info[1])
    assert "raise ConnectionError(" in caplog.text
    errors = {one.result.name: one.error for one in seen if isinstance(one, ToolFinished)}
    assert errors == {name: record.exc_info[1], "refuse": None}
    (note,) = result.notes
    place = f"{Path(__file__).name}:{failing.__wrapped__.__code__.co_firstlineno + 3}"
    assert note == record.getMessage() == f"the tool `{name}` raised ConnectionError at {place}"


@pytest.mark.promise("run:tool-fault")
async def test_what_json_cannot_carry_and_arguments_that_do_not_fit_are_told_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Proves: a result without a JSON form is its author's fault, and is logged; arguments that do not fit are the model's, and
    are not."""

    class Row:
        def to_dict(self) -> object:
            raise LookupError(SECRET)

    @tool
    def look(key: int) -> Any:
        """Look."""
        return Row()

    model = ScriptedModel([call("look", key=1), call("look", key="x"), "Nothing."])
    result = await agent_of(model, tools=[look]).run("Look.")
    first, second = results_of(result)
    assert first == "`look` ran, but what it returned (`Row`) cannot be turned into JSON: LookupError"
    assert "key" in second and SECRET not in everything_sent(model)
    (record,) = [one for one in caplog.records if one.name == TOOLS]
    assert record.exc_info and isinstance(record.exc_info[1], LookupError)
    (note,) = result.notes
    assert note.startswith("the tool `look` raised LookupError at test_tool_faults.py:")


@pytest.mark.promise("run:tool-fault")
async def test_a_sub_agents_tool_is_told_at_the_root(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: the root's notes name the sub-agent, its event holds the exception, and no request of either has its text."""
    below = ScriptedModel([call("charge", cents=5), "It failed."])
    child = agent_of(below, tools=[charge], description="Charges.")
    model = ScriptedModel([call("task", agent="till", prompt="Charge 5."), "Sorry."])
    seen: list[WatcherEvent] = []
    result = await agent_of(model, agents={"till": child}).run("Charge.", watch=seen.append)
    (note,) = result.notes
    assert note.endswith("(of the sub-agent `till`)") and "ConnectionError" in note
    below_seen = [one.seen for one in seen if isinstance(one, ChildSeen)]
    assert [type(one.error) for one in below_seen if isinstance(one, ToolFinished)] == [ConnectionError]
    assert "hunter2" not in everything_sent(model) + everything_sent(below)
    assert len([one for one in caplog.records if one.name == TOOLS and one.levelno == logging.ERROR]) == 1


@pytest.mark.promise("run:tool-fault")
async def test_a_tool_that_fails_at_every_call_does_not_fill_the_notes() -> None:
    """Proves: the same fault is one note, and no run has more than MAX_NOTES of them."""

    def failing(number: int) -> Any:
        source = "\n" * number + "def fail() -> str:\n    'Fail.'\n    raise ValueError('no')\n"
        names: dict[str, Any] = {}
        exec(compile(source, "made.py", "exec"), names)  # each is raised at a line of its own
        return tool(name=f"fail_{number}")(names["fail"])

    tools = [failing(number) for number in range(MAX_NOTES + 5)]
    model = ScriptedModel([[call(one.tool.name) for one in tools], call("fail_0"), "So."])
    result = await agent_of(model, tools=tools).run("Go.")
    assert len(result.notes) == MAX_NOTES == len(set(result.notes))
    assert result.notes[0] == "the tool `fail_0` raised ValueError at made.py:3"


@pytest.mark.promise("run:tool-fault")
async def test_a_log_that_raises_harms_no_turn() -> None:
    """Proves: a filter of the program's that fails takes neither the call's result nor the turn."""

    def broken(_: logging.LogRecord) -> bool:
        raise RuntimeError("no log today")

    logger = logging.getLogger(TOOLS)
    logger.addFilter(broken)
    try:
        model = ScriptedModel([call("charge", cents=5), call("charge_later", cents=5), "So."])
        result = await asyncio.wait_for(agent_of(model, tools=[charge, charge_later]).run("Go."), HANG_S)
    finally:
        logger.removeFilter(broken)
    assert results_of(result) == [f"ConnectionError: {TOOL_FAILED}"] * 2 and text_of(result.messages[-1]) == "So."


@pytest.mark.promise("run:tool-fault")
@pytest.mark.parametrize("failing", [charge, charge_later], ids=lambda one: one.tool.name)
async def test_raise_ends_the_run_with_the_tools_exception_and_settles_the_rest(failing: Any, tmp_path: Path) -> None:
    """Proves: the original exception, with the run so far: each call of the step has its result, the journal has the turn as
    ended, the bill is that of the ledger, nothing was sent afterwards, and the session goes on. A ToolFault is told as ever."""
    waits = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await waits.wait()
        return "never"

    said = [call("refuse", cents=1), [call("wait"), call(failing.tool.name, cents=5)], "Then not."]
    model = ScriptedModel(said)
    with Journal(tmp_path / "turns.db") as journal:
        agent = agent_of(model, tools=[failing, refuse, wait], journal=journal, tool_errors="raise")
        with pytest.raises(ConnectionError, match="cannot reach") as caught:
            await agent.run("Charge.")
        result: RunResult[Any] = so_far_of(caught.value)
        assert (result.stop_reason, result.complete, len(model.asked)) == ("tool_failed", False, 2)
        assert "a tool failed: the tool `charge" in result.text and "hunter2" not in repr(result.messages)
        told = results_of(result)
        assert told[0] == "the card has expired: ask for another one" and told[2] == f"ConnectionError: {TOOL_FAILED}"
        assert told[1].startswith("The turn ended before a result was there, because another tool failed.")
        assert [one.outcome for one in result.ledger] == ["ok", "ok"]
        (turn,) = journal.find_session(result.session).turns
        assert (turn.status, turn.stop_reason) == ("done", "tool_failed")
        again = await agent.run("Leave it.", session=result.session)
    assert again.text == "Then not." and "a turnwise run" in "".join(caught.value.__notes__)


@pytest.mark.promise("run:tool-fault")
@pytest.mark.parametrize("where", ["root", "child", "run"])
async def test_a_sub_agents_tool_raises_at_the_root(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """Proves: `raise` of an agent or of a run holds for the tools below it, and the exception is logged and noted once. Of a
    sub-agent alone it ends the sub-agent's run: for its parent, that is a call that has failed."""
    below = ScriptedModel([call("charge", cents=5), "It failed."])
    of_child = {"tool_errors": "raise"} if where == "child" else {}
    child = agent_of(below, tools=[charge], description="Charges.", **of_child)
    model = ScriptedModel([call("task", agent="till", prompt="Charge 5."), "Sorry."])
    agent = agent_of(model, agents={"till": child}, **({"tool_errors": "raise"} if where == "root" else {}))
    options: dict[str, Any] = {"tool_errors": "raise"} if where == "run" else {}
    if where == "child":
        result = await agent.run("Charge.", **options)
        assert results_of(result) == [f"ConnectionError: {TOOL_FAILED}"] and result.text == "Sorry."
    else:
        with pytest.raises(ConnectionError) as caught:
            await agent.run("Charge.", **options)
        result = so_far_of(caught.value)
        assert (result.stop_reason, len(model.asked)) == ("tool_failed", 1)
    (child_report,) = result.children
    assert (len(below.asked), child_report.requests, child_report.stop_reason) == (1, 1, "tool_failed")
    assert len(result.ledger) == len(model.asked) + 1
    (note,) = result.notes
    assert "`charge` raised ConnectionError" in note and "`till`" in note
    assert len([one for one in caplog.records if one.name == TOOLS]) == 1


@pytest.mark.promise("run:tool-fault")
async def test_a_program_that_calls_a_tool_that_raises_ends_with_the_run() -> None:
    """Proves: a scripted step is cut off, and its result says which calls have run."""
    program = 'try:\n    charge(cents=5)\nexcept Exception:\n    print("caught")'
    model = ScriptedModel([call("script", program=program), "Sorry."])
    with pytest.raises(ConnectionError) as caught:
        await agent_of(model, tools=[charge], script=True, tool_errors="raise").run("Charge.")
    (told,) = results_of(so_far_of(caught.value))
    assert told.startswith(
        "The turn ended in the middle of this program, because a tool failed. 1 call had run (`charge`)"
    )


@pytest.mark.promise("run:tool-fault")
async def test_what_is_no_exception_is_the_cause_of_a_tool_fault() -> None:
    """Proves: `sys.exit()` in a tool ends its run, and not the event loop; a stream raises what `run` raises."""

    @tool
    def leave() -> str:
        """Leave."""
        sys.exit(3)

    agent = agent_of(ScriptedModel([call("leave")] * 2), tools=[leave], tool_errors="raise")
    with pytest.raises(ToolFault, match="a tool raised SystemExit") as caught:
        await agent.run("Go.")
    assert isinstance(caught.value.__cause__, SystemExit)
    with pytest.raises(ToolFault):
        async with agent.stream("Go.") as run:
            async for _ in run.events():
                pass


@pytest.mark.promise("run:tool-fault", "keep:crash")
async def test_a_turn_that_goes_on_behind_a_crash_raises_too(tmp_path: Path) -> None:
    """Proves: `raise` is the turn's: an agent that only tells, and takes the turn up, ends it with the exception."""
    path, left = tmp_path / "turns.db", tmp_path / "left.db"

    @tool(idempotent=True)
    def first() -> str:
        """Be there when the process dies."""
        if not left.exists():
            copy_of_a_crash(path, left)
        return "done"

    with Journal(path) as journal:
        model = ScriptedModel([call("first"), call("charge", cents=5)])
        agent = agent_of(model, tools=[first, charge], journal=journal, tool_errors="raise")
        with pytest.raises(ConnectionError) as caught:
            await agent.run("Charge.")
    session = so_far_of(caught.value).session
    with Journal(left) as journal:
        model = ScriptedModel([call("charge", cents=5)])
        with pytest.raises(ConnectionError) as caught:
            await agent_of(model, tools=[first.tool, charge], journal=journal).resume(session, take_over=True)
    assert len(so_far_of(caught.value).ledger) == 2


def test_tool_errors_is_told_or_raise() -> None:
    """Proves: another word is an error that shows the two."""
    with pytest.raises(CallerError, match='`tool_errors` must be "told" or "raise"'):
        agent_of(ScriptedModel([]), tool_errors="ignore")


async def test_a_ctrl_c_in_a_tool_is_no_fault_of_the_tool(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: a KeyboardInterrupt in a tool's code is neither logged nor noted as the tool's: the user ends the program."""

    @tool
    async def interrupted() -> str:
        """Be interrupted."""
        raise KeyboardInterrupt

    result = await Agent(ScriptedModel([call("interrupted"), "Done."]), tools=[interrupted]).run("Go.")
    assert result.text == "Done." and result.notes == () and not caplog.records


def stops() -> str:
    """Stop."""
    return next(iter([]))


async def stops_later() -> str:
    """Stop later."""
    return next(iter([]))


def stops_in_a_generator() -> Iterator[str]:
    """Stop in a generator."""
    yield next(iter([]))


@pytest.mark.promise("run:tool-fault")
@pytest.mark.parametrize("failing", [stops, stops_later, stops_in_a_generator], ids=lambda one: one.__name__)
async def test_a_stop_iteration_of_a_tool_is_told_as_one(failing: Any) -> None:
    """Proves: the model and the notes have the tool's own exception and its place, not what Python makes of it in a coroutine;
    with `raise` it is the cause of a ToolFault, since no coroutine can raise it (issue 44)."""
    agent = agent_of(ScriptedModel([call(failing.__name__), "So."] * 2), tools=[failing])
    result = await agent.run("Go.")
    place = f"{Path(__file__).name}:{failing.__code__.co_firstlineno + 2}"
    assert results_of(result) == [f"StopIteration: {TOOL_FAILED}"]
    assert result.notes == (f"the tool `{failing.__name__}` raised StopIteration at {place}",)
    with pytest.raises(ToolFault, match="a tool raised StopIteration") as caught:
        await agent.run("Go.", tool_errors="raise")
    assert isinstance(caught.value.__cause__, StopIteration)

    @tool
    def fails() -> str:
        """Fail."""
        raise RuntimeError("no stock") from StopIteration()

    own = await agent_of(ScriptedModel([call("fails"), "So."]), tools=[fails]).run("Go.")
    assert results_of(own) == [f"RuntimeError: {TOOL_FAILED}"], "the tool's own words stand"


@pytest.mark.promise("run:tool-fault")
@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_tool_that_meets_a_foreign_cancellation_is_at_fault(
    in_thread: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: nobody cancelled the call, so its author hears of it. Before, only the model did (issue 44)."""

    @tool
    async def wait() -> str:
        """Wait."""
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        return await other

    @tool(name="wait")
    def wait_here() -> str:
        """Wait."""
        raise asyncio.CancelledError

    tools = [wait_here if in_thread else wait]
    result = await agent_of(ScriptedModel([call("wait"), "So."]), tools=tools).run("Go.")
    assert results_of(result) == ["`wait` cancelled itself"] and result.text == "So."
    (record,) = [one for one in caplog.records if one.name == TOOLS]
    assert result.notes == (record.getMessage(),) and "the tool `wait` raised CancelledError at " in result.notes[0]
    with pytest.raises(ToolFault, match="a tool raised CancelledError"):
        await agent_of(ScriptedModel([call("wait")]), tools=tools, tool_errors="raise").run("Go.")


@pytest.mark.promise("run:tool-fault")
async def test_a_group_of_tool_faults_is_told_whole(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: each fault's words reach the model, as one's do, from a TaskGroup too. With any other exception in it, a group is
    that other fault, and none of its words are told (issue 44)."""

    async def look(place: str, error: type[Exception]) -> None:
        raise error(f"nothing in {place}")

    @tool
    async def search(*, other: bool) -> str:
        """Search."""
        async with asyncio.TaskGroup() as group:
            group.create_task(look("the cellar", ToolFault))
            group.create_task(look("the attic", ConnectionError if other else ToolFault))
        return ""

    model = ScriptedModel([call("search", other=False), call("search", other=True), "So."])
    result = await agent_of(model, tools=[search]).run("Go.")
    assert results_of(result) == ["nothing in the cellar\nnothing in the attic", f"ExceptionGroup: {TOOL_FAILED}"]
    assert len([one for one in caplog.records if one.name == TOOLS]) == len(result.notes) == 1
