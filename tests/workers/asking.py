"""Agents of a farm that ask a person before they act."""

from workers.farm import Farm, WorkerProcess

AGENTS = """
import os

from farm_agents import do, note
from turnwise import Agent, Deadlines, PermissionRule, Policy, tool

ASKS = Policy(rules=(PermissionRule(verdict="ask", tool="*"),), attended=True)


def agent(model, **more):
    return Agent(
        f"openai_chat:{model}", tools=[do], policy=ASKS, base_url=os.environ["LAB"], api_key="lab", **more
    )


def asks():
    return agent("asks", deadlines=Deadlines(ask_s=600.0))


def hurries():
    return agent("asks", deadlines=Deadlines(ask_s=1.0))
"""
SCRIPT = """
title = "asks"
[[steps]]
calls = [{ name = "do", arguments = { name = "first" } }, { name = "do", arguments = { name = "second" } }]
[[steps]]
calls = [{ name = "do", arguments = { name = "third" } }]
[[steps]]
text = "Done: {results}"
"""


def asking_worker(farm: Farm, *options: str) -> WorkerProcess:
    (farm.folder / "asking_agents.py").write_text(AGENTS)
    names = [part for name in ("asks", "hurries") for part in ("--agent", f"{name}=asking_agents:{name}")]
    return farm.worker(*names, *options)
