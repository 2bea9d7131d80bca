"""What a turn of an agent begins with: the tools that its toolsets offer now, and what tools bring for the verdict on calls."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwise.agent.agent_setup import AgentSetup
from turnwise.agent.open_toolsets import ask_all, holding
from turnwise.agent.policies import hinting, read_policy
from turnwise.agent.toolset_notes import listening
from turnwise.agent.toolsets import name_of, read_one_tool
from turnwise.errors import CallerError
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permission_paths import escape_pattern
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.running.fact_finding import Inspector
from turnwise.running.tools import CallJudging
from turnwise.turn.commands import PlannedCall

NO_POLICY = (
    "the calls of `{name}` are `approved(...)`, and nobody can be asked: give the agent "
    '`safety={{"policy": Policy(attended=True), "approver": ...}}`'
)


async def with_open_toolsets(setup: AgentSetup, *, stack: contextlib.AsyncExitStack, has_approver: bool) -> AgentSetup:
    """The same with the tools of its toolsets, which are open as long as `stack` is. `has_approver`: somebody answers the asks of
    the run. Raises CallerError for a toolset that fails, and for a name that is given twice."""
    await stack.enter_async_context(opened(setup))
    notes = listening(setup.toolsets, stack=stack)
    offered = await ask_all(setup.toolsets, clock=setup.clock, ask_s=setup.config.deadlines.toolset_s)
    owners = {one.name: "`tools` of the agent" for one in setup.tools}
    tools = list(setup.tools)
    for number, (toolset, given) in enumerate(zip(setup.toolsets, offered, strict=True), start=1):
        owner = f"toolset {number} (`{name_of(toolset)}`)"
        for one in [read_one_tool(one) for one in given]:
            if one.name in owners:
                raise CallerError(
                    f"two tools are called `{one.name}`: one of {owners[one.name]}, one of {owner}. "
                    f'Give the toolset as `prefixed(toolset, "...")`'
                )
            owners[one.name] = owner
            tools.append(one)
    furnished = msgspec.structs.replace(setup, tools=tuple(tools), toolsets=(), is_unfurnished=False, notes=notes)
    return judged(furnished, has_approver=has_approver)


def opened(setup: AgentSetup) -> contextlib.AbstractAsyncContextManager[None]:
    """Its toolsets are open inside."""
    return holding(setup.toolsets, clock=setup.clock, open_s=setup.config.deadlines.toolset_s)


def judged(setup: AgentSetup, *, has_approver: bool) -> AgentSetup:
    """The same with a policy and an inspector that know what its tools bring. Raises CallerError where calls are to be asked
    about and nobody can be asked."""
    bringing = [(one, one.judging) for one in setup.tools if one.judging is not None]
    if not bringing:
        return setup
    asked = [one.name for one, judging in bringing if judging.asked]
    if asked and setup.config.policy is None and not has_approver:
        raise CallerError(NO_POLICY.format(name=asked[0]))
    own = setup.safety.inspect
    inspect = _JudgingInspector({one.name: judging.inspect or own for one, judging in bringing}, own)
    policy = _policy(setup, [judging for _, judging in bringing], asked=asked, has_approver=has_approver)
    if policy is None:
        return setup
    return msgspec.structs.replace(
        setup,
        safety=msgspec.structs.replace(setup.safety, inspect=inspect),
        config=hinting(msgspec.structs.replace(setup.config, policy=read_policy(policy))),
    )


def _policy(
    setup: AgentSetup, brought: Sequence[CallJudging], *, asked: Sequence[str], has_approver: bool
) -> Policy | None:
    """The agent's policy in the folder of its tools, behind their rules. Without one, the defaults hold for tools that are asked
    about, or judged even so; the others run unasked, unless a file says otherwise. None: they all do."""
    policy, free = setup.config.policy, list[str]()
    if policy is None:
        asks_some = has_approver or any(one.without_policy == "always" or one.asked for one in brought)
        bound = {"never": False, "asked": asks_some, "always": True}
        free = [
            one.name
            for one in setup.tools
            if (judging := one.judging) is None or not (judging.asked or bound[judging.without_policy])
        ]
        if len(free) == len(setup.tools):
            return None
        policy = Policy(attended=has_approver)
    folder = next((one.workspace for one in brought if one.workspace), "")
    allows = [PermissionRule(verdict="allow", tool=escape_pattern(name)) for name in free]
    rules = dict.fromkeys([*allows, *[rule for one in brought for rule in one.rules]])
    asks = [PermissionRule(verdict="ask", tool=escape_pattern(name), where="approved(...)") for name in asked]
    return msgspec.structs.replace(
        policy,
        # what no file says comes first: every other rule goes before it
        rules=(*sorted(rules, key=lambda rule: rule.source != "default"), *policy.rules, *asks),
        workspace=policy.workspace or folder,
        home=policy.home or (os.path.realpath(Path.home()) if folder else ""),
    )


class _JudgingInspector(msgspec.Struct, frozen=True):
    """Finds the facts of each call with what its tool brings, else with the agent's own inspector."""

    of_tools: dict[str, Inspector | None]
    own: Inspector | None

    async def __call__(self, calls: Sequence[PlannedCall]) -> Sequence[CallFacts]:
        parts: dict[Inspector, list[PlannedCall]] = {}
        for plan in calls:
            if (inspect := self.of_tools.get(plan.call.name, self.own)) is not None:
                parts.setdefault(inspect, []).append(plan)
        found = await asyncio.gather(*[inspect(plans) for inspect, plans in parts.items()])
        return [one for facts in found for one in facts]
