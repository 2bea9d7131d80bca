"""The policy of an agent, checked where it is given: what could never hold, or never be asked, is the caller's mistake."""

import functools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from turnwise.drivers.running.approvals import Approver
from turnwise.drivers.running.hooks import Hook, check_hooks
from turnwise.drivers.tools.tools import Tool
from turnwise.errors import CallerError
from turnwise.faces.children import TASK
from turnwise.faces.scripts import NAME as SCRIPT
from turnwise.rules.permission_names import KnownTool, check_rules
from turnwise.rules.permission_patterns import plain_rule
from turnwise.rules.permissions import Policy
from turnwise.rules.result_size import READ_RESULT

ASK_USER = "ask_user"
ELSEWHERE = "its calls run elsewhere"
QUESTION = "its calls are questions to the user, who answers them or is not there"


def read_policy(policy: Policy | None) -> Policy | None:
    """The policy with the patterns of its rules in their plain form. Raises CallerError for a pattern that could never match."""
    if policy is None:
        return None
    rules = [
        plain_rule(rule, where=rule.where or f"`policy.rules[{number}]`") for number, rule in enumerate(policy.rules)
    ]
    return msgspec.structs.replace(policy, rules=tuple(rules))


def check_approver(approver: Approver | None, *, policies: Iterable[Policy | None], tools: Iterable[Tool] = ()) -> None:
    """Raise CallerError for an approver that nothing is ever put to: neither the agent's own policy, which comes first, nor any
    of its sub-agents' asks, nor what one of `tools` may ask while it runs."""
    own, *below = policies
    if approver is None or any(policy is not None and policy.attended for policy in (own, *below)):
        return
    if own is None:
        if any(tool.takes_context for tool in tools):
            return
        raise CallerError(
            "`approver` is never asked: without a `policy` every tool that is `allowed` runs unasked. Give the agent "
            "`policy=Policy(attended=True)`, or leave the approver out"
        )
    outcome = "allowed" if own.unattended == "allow" else "denied"
    raise CallerError(
        f"`approver` is never asked: the policy is not attended, so what it would be asked about is {outcome} at once. Give "
        "the agent a policy with `attended=True`, or leave the approver out"
    )


def known_tools(tools: Iterable[Tool]) -> dict[str, KnownTool]:
    return {
        tool.name: KnownTool(
            effect=tool.offer.effect,
            inspected=tool.offer.inspected,
            unjudged=ELSEWHERE if tool.offer.client_side else QUESTION if tool.offer.asks_user else "",
        )
        for tool in tools
    }


def check_tools_of_rules(policy: Policy | None, *, tools: Mapping[str, KnownTool]) -> None:
    """Raise CallerError for a rule about a tool that there is not: neither one of `tools` nor any that turnwise brings."""
    if policy is not None and policy.rules:
        check_rules(policy.rules, tools={**own_tools(), **tools})


def check_tools_of_hooks(hooks: Sequence[Hook], *, tools: Mapping[str, KnownTool]) -> None:
    """The same for hooks. Most are for every tool, which needs no look at the tools that turnwise brings."""
    narrow = [hook for hook in hooks if hook.tools != "*"]
    if narrow:
        check_hooks(narrow, tools=[*tools, *[name for name in own_tools() if name not in tools]])


@functools.cache
def own_tools() -> dict[str, KnownTool]:
    """Every tool that turnwise itself brings, whether this run has it or not: files of settings are for all runs."""
    from turnwise.drivers.tools.workspace import workspace_tools

    others = dict.fromkeys((TASK, SCRIPT, READ_RESULT.name), KnownTool(effect="none", inspected=False))
    asks = KnownTool(effect="none", inspected=False, unjudged=QUESTION)
    return {**known_tools(workspace_tools("/")), **others, ASK_USER: asks}
