"""Runs against a lab without a network, by a clock that jumps, and what the lab itself knows of each request."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from flat_agents import flat_agent
from lab.failing import settled
from turnwise import Agent, Journal, RunResult
from turnwise.base.clock import Clock
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.running.tools import Arguments, Tool
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines, ToolOffer
from turnwise.vocab import ToolSpec

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
DEADLINES = Deadlines(first_event_s=20, idle_s=10, total_s=60)
NAMES = ("read", "edit", "write", "search", "bash", "note", "list", "patch", "status", "get_weather")


def tools(names: Sequence[str] = NAMES) -> list[Tool]:
    """Tools that take anything and wait for nothing."""

    async def says(arguments: Arguments) -> str:
        return "title: lab\nstatus: draft\n"

    return [
        Tool(offer=ToolOffer(spec=ToolSpec(name=name, parameters='{"type":"object"}')), function=says) for name in names
    ]


def agent_of(lab: Lab, script: str, *, family: str, clock: Clock, **options: object) -> Agent:
    given: dict[str, object] = {"tools": tools(), "max_steps": 5, "deadlines": DEADLINES, **options}
    return flat_agent(  # pyright: ignore[reportArgumentType]
        f"{family}:{script}",
        base_url="http://lab.invalid",
        transport=lab.transport(),
        clock=clock,
        **given,  # pyright: ignore[reportArgumentType]
    )


async def run(lab: Lab, script: str, *, family: str, journal: Journal | None = None, **options: object) -> RunResult:
    clock = FakeClock(now=1_700_000_000)
    agent = agent_of(lab, script, family=family, clock=clock, journal=journal, **options)
    return await settled(agent.run("Please."), clock=clock)


def again(requests: Sequence[Received]) -> int:
    """How many of these are further attempts: the very bytes of the one before them."""
    return sum((one.path, one.body) == (other.path, other.body) for one, other in pairwise(requests))


def summaries(requests: Sequence[Received]) -> int:
    return sum(one.is_summary for one in requests)


def purposes(result: RunResult) -> Counter[str]:
    """What the requests were for, seen from the root: `child` for all of sub-agents."""
    return Counter(["child" if entry.path else entry.purpose for entry in result.ledger])
