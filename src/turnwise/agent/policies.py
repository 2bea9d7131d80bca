"""The policy of an agent, checked where it is given: what could never hold, or never be asked, is the caller's mistake."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

import msgspec

from turnwise.agent.children import TASK
from turnwise.agent.scripts import NAME as SCRIPT
from turnwise.errors import CallerError
from turnwise.rules.permission_names import KnownTool, check_rules
from turnwise.rules.permission_patterns import plain_rule
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy
from turnwise.rules.result_size import READ_RESULT
from turnwise.running.approvals import Approver
from turnwise.running.hooks import Hook, check_hooks
from turnwise.running.tools import Tool
from turnwise.turn.config import ALLOW_EFFECT, Effect, TurnConfig

ASK_USER = "ask_user"
HINT = "allow `{tool}` by a rule of the agent's `policy`, or let the agent's `approver` answer"
ELSEWHERE = "its calls run elsewhere"
QUESTION = "its calls are questions to the user, who answers them or is not there"


def read_policy(policy: Policy | None) -> Policy | None:
    """The policy with the patterns of its rules in their plain form. Raises CallerError for a pattern that could never match."""
    if policy is None:
        return None
    for number, rule in enumerate(policy.rules):
        _check_words(rule, where=rule.where or f"`policy.rules[{number}]`")
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
        acting = [tool.name for tool in tools if tool.offer.effect in ("write", "execute")]
        if not acting and any(tool.takes_context for tool in tools):
            return  # one of them may ask by itself
        about = f" about the tool `{acting[0]}`" if acting else ""
        raise CallerError(
            f"`approver` is never asked{about}: without a `policy` every tool that is `allowed` runs unasked. Give the agent "
            '`safety={"policy": Policy(attended=True)}`, or leave the approver out'
        )
    outcome = "allowed" if own.unattended == "allow" else "denied"
    raise CallerError(
        f"`approver` is never asked: the policy is not attended, so what it would be asked about is {outcome} at once. Give "
        "the agent a policy with `attended=True`, or leave the approver out"
    )


def hinting(config: TurnConfig) -> TurnConfig:
    """The configuration with a word on how a person allows what its policy denies, where it has no other."""
    is_told = config.allow_hint != ALLOW_EFFECT or set(config.allowed) != set(get_args(Effect))
    return config if is_told or config.policy is None else msgspec.structs.replace(config, allow_hint=HINT)


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
    from turnwise.tools.workspace import workspace_tools

    others = dict.fromkeys((TASK, SCRIPT, READ_RESULT.name), KnownTool(effect="none", inspected=False))
    asks = KnownTool(effect="none", inspected=False, unjudged=QUESTION)
    return {**known_tools(workspace_tools("/")), **others, ASK_USER: asks}


def _check_words(rule: PermissionRule, *, where: str) -> None:
    """Raise CallerError for a verdict or an effect that does not exist: the rule would hold for nothing."""
    for name, value, words in (
        ("verdict", rule.verdict, get_args(PermissionKind)),
        ("effect", rule.effect, get_args(Effect)),
    ):
        if value is not None and value not in words:
            raise CallerError(f"{where}: `{name}` is `{value}`; it must be one of: {', '.join(words)}")
