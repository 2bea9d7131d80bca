"""Toolsets: the methods of an object, and any toolset with other names, fewer tools, or calls that are asked about."""

import difflib
import fnmatch
import inspect
from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from turnwise.agent.children import AgentTool, Subagents
from turnwise.agent.tool_names import check_tool_name
from turnwise.agent.tools import FunctionTool, OneTool, Toolset, is_toolset, read_tool, tool
from turnwise.errors import BadTool, CallerError
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule
from turnwise.running.fact_finding import Inspector
from turnwise.running.tools import CallJudging, Tool
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import Effect
from turnwise.vocab import ToolSpec

GLOB = frozenset("*?[")


class MethodsOf:
    """The public methods of an object as tools: those whose parameters all have type hints.

    `names` chooses some of the methods, in that order. `keep` takes a name and returns whether this method is a tool.
    `effect` is what these tools do to the world; a method with its own `@tool(...)` keeps the options of that. Raises
    BadTool if a name is no public method, or if a method cannot be described to a model. Raises CallerError if no method is
    left.
    """

    def __init__(
        self,
        instance: object,
        *,
        names: Sequence[str] = (),
        keep: Callable[[str], bool] = bool,
        effect: Effect = "none",
    ) -> None:
        kind = type(instance).__name__
        if isinstance(names, str):
            raise CallerError(f'`names` of `MethodsOf` must be a list, also of a single one: `names=["{names}"]`')
        public = _public_methods(instance)
        if strange := [name for name in names if name not in public]:
            raise BadTool(f"`{strange[0]}` is no public method of `{kind}`. {_offers(strange[0], among=list(public))}")
        chosen = names or [name for name, method in public.items() if _is_hinted(method)]
        self._of = kind
        self._tools = [_method_tool(public[name], effect=effect) for name in chosen if keep(name)]
        if not self._tools:
            raise CallerError(
                f"`MethodsOf({kind})` has no tool: no public method whose parameters have type hints is left"
            )

    async def tools(self) -> Sequence[OneTool]:
        """The methods, as tools. Each turn gets the same tools."""
        return self._tools

    def __repr__(self) -> str:
        return f"MethodsOf({self._of})"


class WrappedToolset:
    """A toolset with its tools changed: what `prefixed`, `filtered` and `approved` give. It is opened with the one inside."""

    def __init__(
        self, source: "Toolset | Sequence[OneTool]", change: Callable[[Sequence[Tool]], Sequence[Tool]], said: str
    ) -> None:
        if not is_toolset(source) and not isinstance(source, Sequence):
            raise CallerError(f"`{said}` wants a toolset or a list of tools")
        self._source: Toolset | Sequence[OneTool] = source
        self._change, self._said = change, said

    @property
    def innermost(self) -> object:
        """What is opened and closed: the toolset that none of these functions has made."""
        return self._source.innermost if isinstance(self._source, WrappedToolset) else self._source

    async def tools(self) -> Sequence[OneTool]:
        source = self._source
        given = source if isinstance(source, Sequence) else await offered_by(source)
        return self._change([read_one_tool(one) for one in given])

    def __repr__(self) -> str:
        return f"{self._said}({name_of(self._source)})"


def prefixed(source: Toolset | Sequence[OneTool], prefix: str) -> Toolset:
    """The same tools with `prefix` in front of each name. In rules and hooks, use the longer name."""

    check_tool_name(f"{prefix}a")

    def change(tools: Sequence[Tool]) -> Sequence[Tool]:
        inspectors: dict[Inspector, Inspector] = {}
        return [_renamed(one, f"{prefix}{one.name}", prefix=prefix, inspectors=inspectors) for one in tools]

    return WrappedToolset(source, change, "prefixed")


def filtered(
    source: Toolset | Sequence[OneTool], *names: str, keep: Callable[[ToolSpec], bool] | None = None
) -> Toolset:
    """Only the tools with these names (globs: `read_*`). With `keep`, only those of them for which `keep` returns True.

    If the toolset does not offer a name (one without a glob), the run raises CallerError when it begins.
    """

    if not names and keep is None:
        raise CallerError("`filtered` needs names, or `keep=`: without them nothing is left out")

    def change(tools: Sequence[Tool]) -> Sequence[Tool]:
        _check_offered(names, tools=tools, what="filtered")
        return [one for one in tools if _is_named(one, names) and (keep is None or keep(one.offer.spec))]

    return WrappedToolset(source, change, "filtered")


def approved(source: Toolset | Sequence[OneTool], *names: str) -> Toolset:
    """The same tools, but turnwise asks before each call, through the agent's policy. Names (globs) choose some of the
    tools.

    A rule of the policy that allows such a call does not replace the ask. An answer with `always=True` allows the tool for
    the rest of the turn. The run raises CallerError if the agent has neither a policy nor an approver, or if the
    toolset does not offer a name.
    """

    def change(tools: Sequence[Tool]) -> Sequence[Tool]:
        _check_offered(names, tools=tools, what="approved")
        return [_asked(one) if _is_named(one, names) else one for one in tools]

    return WrappedToolset(source, change, "approved")


async def offered_by(toolset: Toolset) -> Sequence[OneTool]:
    """What the toolset offers now. Raises CallerError if that is no list, and whatever the toolset raises."""
    told = cast("object", toolset.tools())
    if not inspect.isawaitable(told):
        raise CallerError(f"`tools` of the toolset `{name_of(toolset)}` must be an `async` method")
    offered: object = await told
    if not isinstance(offered, Sequence) or isinstance(offered, str | bytes | bytearray):
        kind = type(offered).__name__
        raise CallerError(f"`tools()` of the toolset `{name_of(toolset)}` must return a list of tools, not {kind}")
    return cast("Sequence[OneTool]", offered)


def read_one_tool(given: object) -> Tool:
    """What a toolset offers -> a tool. Raises BadTool for what is none, and for agents: those are given to the agent itself."""
    if isinstance(given, Subagents | AgentTool) or is_toolset(given):
        raise BadTool(
            f"a toolset offers tools, not a `{type(given).__name__}`: give that in `Agent(tools=[...])` itself"
        )
    return read_tool(cast("OneTool", given))


def name_of(source: object) -> str:
    """How an error names a toolset: no more than its class, as what it holds may be secret."""
    return repr(source) if isinstance(source, MethodsOf | WrappedToolset) else type(source).__name__


def _public_methods(instance: object) -> dict[str, object]:
    """In the order in which the classes define them, those of the bases first. No property is read."""
    found: dict[str, object] = {}
    for kind in reversed(type(instance).__mro__):
        for name, member in vars(kind).items():
            if name.startswith("_"):
                continue
            if inspect.isfunction(member) or isinstance(member, FunctionTool | classmethod | staticmethod):
                found[name] = getattr(instance, name)
            else:
                found.pop(name, None)
    return found


def _is_hinted(method: object) -> bool:
    if isinstance(method, FunctionTool):
        return True
    parameters = inspect.signature(cast("Callable[..., object]", method)).parameters.values()
    described = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(one.annotation is not one.empty and one.kind not in described for one in parameters)


def _method_tool(method: object, *, effect: Effect) -> Tool:
    if isinstance(method, FunctionTool):
        return cast("FunctionTool[..., object]", method).tool
    return tool(effect=effect)(cast("Callable[..., object]", method)).tool


def _renamed(one: Tool, name: str, *, prefix: str, inspectors: dict[Inspector, Inspector]) -> Tool:
    check_tool_name(name)
    spec = msgspec.structs.replace(one.offer.spec, name=name)
    offer, judging = msgspec.structs.replace(one.offer, spec=spec), one.judging
    if judging is not None:
        rules = tuple([_rule_renamed(rule, prefix=prefix) for rule in judging.rules])
        if (inside := judging.inspect) is not None:
            inspectors.setdefault(inside, _RenamedInspector(inside, prefix))
            judging = msgspec.structs.replace(judging, inspect=inspectors[inside])
        judging = msgspec.structs.replace(judging, rules=rules)
    return msgspec.structs.replace(one, offer=offer, judging=judging)


def _rule_renamed(rule: PermissionRule, *, prefix: str) -> PermissionRule:
    return msgspec.structs.replace(rule, tool=f"{prefix}{rule.tool}")


class _RenamedInspector(msgspec.Struct, frozen=True):
    """Finds the facts of calls by the names that the tools have inside."""

    inside: Inspector
    prefix: str

    async def __call__(self, calls: Sequence[PlannedCall]) -> Sequence[CallFacts]:
        names = {plan.call.id: plan.call.name for plan in calls}
        found = await self.inside([self._as_inside(plan) for plan in calls])
        return [msgspec.structs.replace(one, tool=names[one.call_id]) for one in found if one.call_id in names]

    def _as_inside(self, plan: PlannedCall) -> PlannedCall:
        call = msgspec.structs.replace(plan.call, name=plan.call.name.removeprefix(self.prefix))
        return msgspec.structs.replace(plan, call=call)


def _asked(one: Tool) -> Tool:
    judging = msgspec.structs.replace(one.judging or CallJudging(), asked=True)
    return msgspec.structs.replace(one, judging=judging)


def _is_named(one: Tool, names: Sequence[str]) -> bool:
    return not names or any(fnmatch.fnmatchcase(one.name, name) for name in names)


def _check_offered(names: Sequence[str], *, tools: Sequence[Tool], what: str) -> None:
    offered = [one.name for one in tools]
    for name in names:
        if name not in offered and not GLOB & set(name):
            raise CallerError(f"`{what}` names `{name}`, which is not among its tools. {_offers(name, among=offered)}")


def _offers(name: str, *, among: Sequence[str]) -> str:
    if near := difflib.get_close_matches(name, among, n=1):
        return f"Did you mean `{near[0]}`?"
    return f"There are: {', '.join(among) or 'none'}"
