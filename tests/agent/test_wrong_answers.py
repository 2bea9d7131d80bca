"""A toolset that returns no list of tools, a report that is no text, and a call that is over: the error names the mistake."""

import asyncio

import pytest

from turnwise import Agent, CallerError, Model, RunContext, tool
from turnwise.agent.toolsets import filtered
from turnwise.errors import ToolFault
from turnwise.testing import ScriptedModel, call


class Store:
    def __init__(self, offered: object) -> None:
        self.offered = offered

    async def tools(self) -> object:
        return self.offered


@pytest.mark.parametrize("offered", [None, 3, "abc", {"a": 1}, {1}], ids=lambda offered: type(offered).__name__)
def test_a_toolset_that_gives_no_list_is_named(offered: object) -> None:
    """`None` was `TypeError`: 'NoneType' object is not iterable."""
    model = ScriptedModel(["Done."])
    store = Store(offered)
    for given in (store, filtered(store, "a")):  # pyright: ignore[reportArgumentType]
        with pytest.raises(CallerError, match=r"`tools\(\)` of the toolset `Store` must return a list of tools, not "):
            Agent(Model("openai_chat:m", transport=model), tools=[given]).run_sync("Go.")  # pyright: ignore
    assert not model.asked


def test_a_report_must_be_a_text_and_a_call_that_is_over_says_so() -> None:
    """`report(3)` reached the watchers' line splitter; `ask_sync` spoke of an event loop that had ended."""
    kept: list[RunContext[None]] = []

    @tool
    async def work(context: RunContext[None]) -> str:
        """Work."""
        for value in (3, None, b"x"):
            with pytest.raises(CallerError, match=r"`context\.report\(\.\.\.\)` must be given a text, not "):
                context.report(value)  # pyright: ignore[reportArgumentType]
        kept.append(context)
        return "worked"

    model = ScriptedModel([call("work"), "Done."])
    result = Agent(Model("openai_chat:m", transport=model), tools=[work]).run_sync("Go.")  # pyright: ignore
    assert "worked" in str(result.new_messages)
    with pytest.raises(ToolFault, match="the call has ended"):
        kept[0].ask_sync("What?")
    with pytest.raises(ToolFault, match="the call has ended"):
        asyncio.run(kept[0].ask("What?"))
