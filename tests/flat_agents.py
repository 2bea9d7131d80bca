"""An agent from a flat list of options, whatever group each is in: what many tests take as `**options`."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from turnwise import Agent, MaxSteps, Model, Subagents
from turnwise.agent.agent_options import GROUP_OF, OF_MODEL
from turnwise.agent.children import MAX_DEPTH

_described: WeakKeyDictionary[Agent[Any, Any], str] = WeakKeyDictionary()


def flat_agent(model: str, **flat: Any) -> Agent[Any, Any]:
    """`agents`, `description`, `max_depth` make a `Subagents` behind the tools; `max_steps` is a limit."""
    described = flat.pop("description", "")
    agent = Agent(**grouped({"model": model, **flat}))
    _described[agent] = described
    return agent


def grouped(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The same options as `Agent` and its runs take them."""
    options: dict[str, Any] = {}
    of_model = {OF_MODEL[name]: value for name, value in flat.items() if name in OF_MODEL}
    for name, value in flat.items():
        if name in OF_MODEL and "model" in flat:
            options["model"] = Model(flat["model"], **of_model)
        elif name == "model":
            options.setdefault(name, value)
        elif name in GROUP_OF:
            options.setdefault(GROUP_OF[name], {})[name] = value
        else:
            options[name] = value
    agents, depth = options.pop("agents", None), options.pop("max_depth", MAX_DEPTH)
    if agents:
        names = {name: _described[agent] for name, agent in agents.items() if _described.get(agent)}
        options["tools"] = [*options.get("tools", ()), Subagents(agents, names, depth)]
    if "max_steps" in options:
        steps, limits = MaxSteps(options.pop("max_steps")), options.get("limits")
        options["limits"] = steps if limits is None else steps | limits
    return options
