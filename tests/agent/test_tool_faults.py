"""A tool's exception reaches its author, and the model reads no more of it than the tool chose."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from turnwise import (
    Agent,
    ChildSeen,
    Journal,
    RunResult,
    ToolFault,
    ToolFinished,
    tool,
)
from turnwise.running.runner import MAX_NOTES
from turnwise.running.tool_output import TOOL_FAILED
from turnwise.running.watcher_events import WatcherEvent
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import Text, ToolResult, text_of

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
        result = await asyncio.wait_for(agent_of(model, tools=[charge, charge_later]).run("Go."), 30)
    finally:
        logger.removeFilter(broken)
    assert results_of(result) == [f"ConnectionError: {TOOL_FAILED}"] * 2 and text_of(result.messages[-1]) == "So."
