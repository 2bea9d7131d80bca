"""Tools by which a model hands work to other agents, which have their own session, tools and step cap."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Protocol

import msgspec

from turnwise.agent.deps import DepsWanted
from turnwise.agent.schemas import check_tool_name
from turnwise.errors import BadTool, CallerError, ToolFault
from turnwise.rules.limits import Limit
from turnwise.rules.permissions import Policy
from turnwise.running.tools import ChildOrder, Tool
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import File, Text, ToolSpec

MAX_DEPTH = 3
TASK = "task"
ALONE = "It sees nothing of this conversation: put all that it needs to know into the prompt."


class AgentLike(Protocol):
    """An agent, as a program has it."""

    def __inside__(self) -> "Delegate": ...


class Delegate(AgentLike, Protocol):
    """An agent, as its parent sees it."""

    async def run_child(self, order: ChildOrder, prompt: str | Sequence[Text | File], *, name: str) -> str:
        """Run one turn as a sub-agent, and return the text that the parent's model reads. Raises ToolFault."""
        ...

    def policies(self) -> list[Policy | None]: ...
    def known_below(self) -> tuple[Tool, ...]: ...
    def knows_tools(self) -> bool: ...
    def check_rules(self) -> None: ...
    def deps_wanted(self) -> DepsWanted: ...
    def within_effects(self, effects: Collection[Effect]) -> "Delegate": ...
    async def least_usd(self, limits: Limit | None) -> Decimal: ...


class Subagents(msgspec.Struct, frozen=True):
    """One tool, `task`, by which the model gives tasks to other agents: `Subagents({"research": researcher})`.

    `descriptions` maps the name of each agent to what it is for. Agents nest at most `max_depth` levels deep. Raises
    CallerError if there is no agent, or if a description belongs to no agent.
    """

    agents: Mapping[str, AgentLike]
    descriptions: Mapping[str, str] = {}
    max_depth: int = MAX_DEPTH

    def __post_init__(self) -> None:
        if not isinstance(self.agents, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (a caller may give anything)
            raise CallerError('`Subagents` wants a dict, `{"name": Agent(...)}`')
        if not self.agents:
            raise CallerError("`Subagents` is empty: name at least one agent that tasks can be handed to")
        if strange := [name for name in self.descriptions if name not in self.agents]:
            raise CallerError(f"`descriptions` names `{strange[0]}`, which is none of: {', '.join(self.agents)}")

    def tool(self) -> Tool:
        """The tool `task`, as an agent runs it."""

        async def start(order: ChildOrder) -> str:
            name = order.arguments.get("agent", next(iter(self.agents)))
            return await _hand_over(order, self.delegates, name=name, max_depth=self.max_depth)

        return _child_tool(TASK, self._description(), parameters=self._parameters(), start=start)

    @property
    def delegates(self) -> Mapping[str, Delegate]:
        """Its agents, as their parent sees them."""
        return {name: agent.__inside__() for name, agent in self.agents.items()}

    def over(self, agents: Mapping[str, Delegate]) -> "Subagents":
        """The same tool with these agents instead of its own."""
        return msgspec.structs.replace(self, agents=agents)

    def _description(self) -> str:
        lines = [f"- {name}: {self.descriptions.get(name) or 'an agent'}" for name in self.agents]
        return (
            f"Hand a task to another agent and get its answer. {ALONE} Independent tasks are best handed out together, in one "
            "response.\n" + "\n".join(lines)
        )

    def _parameters(self) -> dict[str, object]:
        properties: dict[str, object] = {
            "prompt": {"type": "string", "description": "What to do, with everything needed to do it."},
            "agent": {"type": "string", "enum": list(self.agents), "description": "Who shall do it."},
        }
        required = ["prompt"] if len(self.agents) == 1 else ["prompt", "agent"]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class AgentTool(msgspec.Struct, frozen=True):
    """An agent as a tool of another agent. `Agent.as_tool` makes it.

    Its result is the agent's answer: text, or the JSON of the output type. Raises BadTool if providers do not accept
    the name, or if the description is empty.
    """

    name: str
    description: str
    agent: AgentLike
    max_depth: int = MAX_DEPTH

    def __post_init__(self) -> None:
        check_tool_name(self.name)
        if not self.description.strip():
            raise BadTool(f"`{self.name}` needs a description: the model knows nothing else of it")

    @property
    def delegates(self) -> Mapping[str, Delegate]:
        """The agent, by the tool's name."""
        return {self.name: self.agent.__inside__()}

    def tool(self) -> Tool:
        """The tool as an agent runs it."""

        async def start(order: ChildOrder) -> str:
            return await _hand_over(order, self.delegates, name=self.name, max_depth=self.max_depth)

        parameters: dict[str, object] = {
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "What to do, with everything needed to do it."}},
            "required": ["prompt"],
            "additionalProperties": False,
        }
        return _child_tool(self.name, f"{self.description} {ALONE}", parameters=parameters, start=start)

    def over(self, agents: Mapping[str, Delegate]) -> "AgentTool":
        """The same tool with the agent of this name instead of its own."""
        return msgspec.structs.replace(self, agent=agents[self.name])


Delegation = Subagents | AgentTool
"""A tool that hands work to other agents."""


async def _hand_over(order: ChildOrder, agents: Mapping[str, Delegate], *, name: object, max_depth: int) -> str:
    if len(order.path) >= max_depth:
        raise ToolFault(
            f"sub-agents may nest {max_depth} deep, and this is one at the bottom: do the work yourself, "
            "or say what is left to do"
        )
    agent, prompt = agents.get(name) if isinstance(name, str) else None, order.arguments.get("prompt")
    if agent is None:
        raise ToolFault(f"there is no agent `{name}`; there are: {', '.join(agents)}")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ToolFault("`prompt` is empty: say what the agent shall do, with all that it needs to know")
    return await agent.run_child(order, prompt, name=str(name))


def _child_tool(
    name: str, description: str, *, parameters: dict[str, object], start: Callable[[ChildOrder], Awaitable[str]]
) -> Tool:
    spec = ToolSpec(name=name, description=description, parameters=msgspec.json.encode(parameters).decode())
    return Tool(offer=ToolOffer(spec=spec, child=True), start=start)
