"""The `task` tool: a model hands work to agents that have their own session, tools and step cap."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from turnwise.drivers.tools.tools import ChildOrder, Tool
from turnwise.errors import CallerError, ToolFault
from turnwise.turn.config import ToolOffer
from turnwise.vocab import ToolSpec

MAX_DEPTH = 3
TASK = "task"

RunChild = Callable[[ChildOrder, str], Awaitable[str]]
"""Runs one agent as a child with this prompt; gives what the parent's model reads. Raises ToolFault."""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that others may hand work to. `description` tells their models what it is for."""

    description: str
    run: RunChild


def task_tool(children: Mapping[str, Child], *, max_depth: int = MAX_DEPTH) -> Tool:
    """The tool by which a model hands a task to one of these. Several run at once; they may nest `max_depth` deep.

    Raises CallerError where there are none.
    """
    if not children:
        raise CallerError("`agents` is empty: name at least one agent that tasks can be handed to")

    async def start(order: ChildOrder) -> str:
        if len(order.path) >= max_depth:
            raise ToolFault(
                f"sub-agents may nest {max_depth} deep, and this is one at the bottom: do the work yourself, "
                "or say what is left to do"
            )
        name, prompt = order.arguments.get("agent", next(iter(children))), order.arguments.get("prompt")
        child = children.get(name) if isinstance(name, str) else None
        if child is None:
            raise ToolFault(f"there is no agent `{name}`; there are: {', '.join(children)}")
        if not isinstance(prompt, str) or not prompt.strip():
            raise ToolFault("`prompt` is empty: say what the agent shall do, with all that it needs to know")
        return await child.run(order, prompt)

    return Tool(offer=ToolOffer(spec=_spec(children), child=True), start=start)


def _spec(children: Mapping[str, Child]) -> ToolSpec:
    lines = [f"- {name}: {child.description}" for name, child in children.items()]
    description = (
        "Hand a task to another agent and get its answer. It sees nothing of this conversation: put all that it needs to "
        "know into the prompt. Independent tasks are best handed out together, in one response.\n" + "\n".join(lines)
    )
    properties: dict[str, object] = {
        "prompt": {"type": "string", "description": "What to do, with everything needed to do it."},
        "agent": {"type": "string", "enum": list(children), "description": "Who shall do it."},
    }
    required = ["prompt"] if len(children) == 1 else ["prompt", "agent"]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSpec(name=TASK, description=description, parameters=msgspec.json.encode(schema).decode())
