"""What is said of an ask, whichever face puts it: what would run and change, why it is asked, and what `always` would allow."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from turnwise.base.clock import Clock
from turnwise.coding_agent.asked_calls import arguments_in, facts_of
from turnwise.coding_agent.permissions import rule_said
from turnwise.coding_agent.text import visible, visible_line
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from turnwise.running.fact_finding import Inspector
from turnwise.running.grants import judged_paths
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import whole_preview, would_fail
from turnwise.turn.approvals import OneAsk, digest_of
from turnwise.turn.config import ToolOffer

MAX_SUBJECT = 200


class AskSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What asks of a run are judged and shown by."""

    offers: Mapping[str, ToolOffer]
    inspect: Inspector
    workspace: WorkspacePaths
    clock: Clock

    async def facts(self, ask: OneAsk) -> CallFacts:
        """What the call would do now."""
        return await facts_of(ask, offers=self.offers, inspect=self.inspect)

    def is_command(self, ask: OneAsk) -> bool:
        offer = self.offers.get(ask.call.name)
        return offer is not None and offer.effect == "execute"

    async def would_do(self, ask: OneAsk, *, facts: CallFacts) -> tuple[list[str], list[str]]:
        """What would run, and the diff of what a file tool would change, as if it were allowed."""
        with judged_paths([path.resolved for path in facts.paths if path.resolved]):
            changes = await asyncio.to_thread(whole_preview, self.workspace, ask.call.name, arguments_in(ask.arguments))
        return what_of(ask, previewed=bool(changes) and not would_fail(changes)), changes


def is_allowed(facts: CallFacts, *, policy: Policy) -> bool:
    """What was allowed always covers it by now."""
    return judge_permission(facts, policy=policy).kind == "allow"


def as_it_is_now(ask: OneAsk, *, facts: CallFacts) -> OneAsk:
    """What is shown is what is there now: of a call that was left for later, not what was there then."""
    return msgspec.structs.replace(ask, digest=digest_of(ask.call.name, arguments=ask.arguments, facts=facts))


def why_of(ask: OneAsk) -> str:
    return f"{ask.subject}: {ask.why}" if ask.subject and ask.subject not in ask.why else ask.why


def what_of(ask: OneAsk, *, previewed: bool = False) -> list[str]:
    """The command whole; of a file tool its path, as the diff tells the rest; every argument of any other."""
    arguments = dict(arguments_in(ask.arguments))
    if previewed and not isinstance(arguments.get("path"), str):
        return []
    for key in ("command", "path"):
        if isinstance(first := arguments.pop(key, None), str):
            rest = (
                []
                if previewed
                else [f"{name}: {msgspec.json.encode(given).decode()}" for name, given in arguments.items()]
            )
            shown = visible(first).split("\n") if key == "command" else [visible_line(first)]  # a name is one line
            return [*shown, *[line for text in rest for line in visible(text).split("\n")]]
        if first is not None:
            break
    return visible(ask.arguments).split("\n")


def always_said(rules: Sequence[PermissionRule], *, workspace: str) -> str:
    """The rules that `always` adds, each no broader than what is shown above; a tool without a pattern is allowed whatever it is
    given."""
    return rules_said(rules, workspace=workspace, whole=False)


def rules_said(rules: Sequence[PermissionRule], *, workspace: str, whole: bool) -> str:
    """The same; the `whole` of it, or its ends where it is long."""
    said = [
        rule_said(rule, workspace=workspace) if rule.command or rule.path else f"{rule.tool}, whatever it is given"
        for rule in rules
    ]
    line = visible_line(", ".join(dict.fromkeys(said)))
    return line if whole else ends_of(line)


def ends_of(line: str) -> str:
    return line if len(line) <= MAX_SUBJECT else f"{line[: MAX_SUBJECT // 2]}…{line[-MAX_SUBJECT // 2 :]}"


def path_said(path: tuple[str, ...]) -> str:
    return " › ".join([visible_line(name) for name in path])
