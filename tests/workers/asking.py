"""Agents of a farm that ask a person before they act."""

from workers.farm import Farm, WorkerProcess

AGENTS = """
import os

from farm_agents import agent as farm_agent
from farm_agents import do, grouped
from turnwise import Agent, Deadlines, Model, PermissionRule, Policy, tool

ASKS = Policy(rules=(PermissionRule(verdict="ask", tool="*"),), attended=True)


def agent(model, **more):
    asked = Model(f"openai_chat:{model}", base_url=os.environ["LAB"], api_key="lab")
    return Agent(asked, **grouped([do], policy=ASKS, **more))


def asks():
    return agent("asks", deadlines=Deadlines(ask_s=600.0))


def hurries():
    return agent("asks", deadlines=Deadlines(ask_s=1.0))


def asks_below():
    helper = agent("one", deadlines=Deadlines(ask_s=600.0))
    return farm_agent("parent", agents={"helper": helper}, policy=Policy(attended=True))


def hurries_below():
    return farm_agent("parent", agents={"helper": agent("one")}, deadlines=Deadlines(ask_s=2.0))


def asks_twice_below():
    helper = agent("mine", deadlines=Deadlines(ask_s=600.0))
    return farm_agent("two", agents={"helper": helper})


def asks_beside():
    helper = agent("one", deadlines=Deadlines(ask_s=600.0))
    return farm_agent("beside", agents={"helper": helper, "other": farm_agent("waits")})


def is_put_off():
    return farm_agent("put-off")


def unattended_below():
    rules = Policy(rules=ASKS.rules)
    return farm_agent("parent", agents={"helper": farm_agent("one", policy=rules)})
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


# What a sub-agent asks before it acts: twice, one call after the other.
ONE = """
title = "one"
[[steps]]
calls = [{ name = "do", arguments = { name = "before" } }]
[[steps]]
calls = [{ name = "do", arguments = { name = "after" } }]
[[steps]]
text = "Helped: {results}"
"""
TWO = """
title = "two"
[[steps]]
calls = [
    { name = "task", arguments = { agent = "helper", prompt = "turn-1" } },
    { name = "task", arguments = { agent = "helper", prompt = "turn-2" } },
]
[[steps]]
text = "The helpers say: {results}"
"""
MINE = """
title = "mine"
[recall]
name = "(turn-[0-9]+)"
[[steps]]
calls = [{ name = "do", arguments = { name = "{name}" } }]
[[steps]]
text = "{name}: {results}"
"""
BESIDE = """
title = "beside"
[[steps]]
calls = [
    { name = "task", arguments = { agent = "helper", prompt = "Help." } },
    { name = "task", arguments = { agent = "other", prompt = "Help." } },
]
[[steps]]
text = "The helpers say: {results}"
"""
PUT_OFF = """
title = "put-off"
[[steps]]
fault = { kind = "status", status = 429, retry_after_s = 150 }
[[steps]]
text = "Done."
"""
SCRIPTS = {"asks": SCRIPT, "one": ONE, "two": TWO, "mine": MINE, "beside": BESIDE, "put-off": PUT_OFF}
NAMES = (
    "asks",
    "hurries",
    "asks_below",
    "hurries_below",
    "asks_twice_below",
    "asks_beside",
    "is_put_off",
    "unattended_below",
)


def asking_worker(farm: Farm, *options: str) -> WorkerProcess:
    (farm.folder / "asking_agents.py").write_text(AGENTS)
    names = [part for name in NAMES for part in ("--agent", f"{name}=asking_agents:{name}")]
    return farm.worker(*names, *options)
