"""Runs that spend all that they may, for budgets: their model calls a tool for as long as it is allowed to."""

import asyncio
from typing import Any

from turnwise import Agent, BudgetSpent, Model, RunResult, tool
from turnwise.testing import ScriptedModel, call

NEVER_STOPS = 200


def look_of(passes: int) -> Any:
    @tool(repeatable=True)
    async def search(pattern: str = "") -> str:
        """Search."""
        for _ in range(passes):
            await asyncio.sleep(0)
        return "nothing"

    return search


def never_stops(limits: Any, *, passes: int = 0, **options: Any) -> tuple[Agent, ScriptedModel]:
    """An agent whose model calls its tool for as long as it may."""

    def say(request: Any) -> Any:
        may = request.tool_choice != "none" and any(one.name == "search" for one in request.tools)
        return [call("search", pattern=str(len(request.messages)))] if may else "That is all."

    model = ScriptedModel([say] * NEVER_STOPS)
    return Agent(Model("openai_chat:m", transport=model), tools=[look_of(passes)], limits=limits, **options), model  # pyright: ignore[reportArgumentType]


async def after(passes: int, agent: Agent, *, cancelled: int | None) -> RunResult[Any] | BaseException:
    """A run that begins after so many passes of the event loop, and may be cancelled after some more."""
    for _ in range(passes):
        await asyncio.sleep(0)
    running = asyncio.create_task(agent.run("Look."))
    for _ in range(cancelled or 0):
        await asyncio.sleep(0)
    if cancelled is not None:
        running.cancel()
    try:
        return await running
    except (BudgetSpent, asyncio.CancelledError) as error:
        return error
