"""Which options of the command line would let a denied call run, in words to be typed as they are."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from turnwise.rules.arguments import mcp_rule, server_of
from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permission_paths import escape_pattern
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission, naming_rules

MAX_RULES = 4  # nobody types more
MOST_TRIED = 16
_EFFECTS = {"write": "write", "execute": "bash"}
_NOT_IN_COMMANDS = re.compile(r"""['"\\|&;<>$`\s]""")
_NOT_IN_PATHS = re.compile(r"[\[\]{}\n]|^[~\s]|\s$")


def allowing_options(facts: CallFacts, *, policy: Policy) -> str:
    """The `--allow ...` with which the call would run, quoted for a shell; empty where none would.

    No broader than the call where that can be said in one line; else its commands up to the first word that cannot be, with any
    further words; else its effect. Each was tried on the rules before it is told.
    A path of a folder that goes with this run is never named: the next run has another. What a face denies (an editor's mode) it
    denies behind every `--allow`, so there none is told.
    """
    before, behind = _split(policy)
    attended = msgspec.structs.replace(policy, attended=True)
    named = () if any(path.passing for path in _paths(facts)) else naming_rules(facts, policy=attended)
    rules = [_sayable(rule, facts=facts, policy=policy) for rule in named]
    said = [rule for rule in rules if rule is not None]
    effect = PermissionRule(verdict="allow", effect=facts.effect, source="command line")

    def is_enough(candidates: Sequence[PermissionRule]) -> bool:
        tried = msgspec.structs.replace(policy, rules=(*before, *candidates, *behind))
        return judge_permission(facts, policy=tried).kind == "allow"

    exact = [*dict.fromkeys(said)] if len(said) == len(rules) else []
    for candidates in (exact, [*dict.fromkeys(_beginnings(facts))], [effect] if facts.effect in _EFFECTS else []):
        if not 0 < len(candidates) <= MOST_TRIED or not is_enough(candidates):
            continue
        needed = list(candidates)
        for one in candidates:
            if len(needed) > 1 and is_enough(without := [other for other in needed if other != one]):
                needed = without
        if len(needed) <= MAX_RULES:
            return " ".join([f"--allow {_quoted(_text(rule))}" for rule in needed])
    return ""


def _beginnings(facts: CallFacts) -> Iterator[PermissionRule]:
    """Of each command the words that can be said, `git commit -m *`. Nothing after a command of which none can."""
    if any(path.passing for path in _paths(facts)):
        return
    for command in facts.shell.commands if facts.shell is not None else ():
        words: list[str] = []
        for word in command.words:
            if not word.literal or word.glob or not word.text or _NOT_IN_COMMANDS.search(escape_pattern(word.text)):
                break
            words.append(word.text)
        if not words:
            return
        more = () if len(words) == len(command.words) else ("*",)
        yield PermissionRule(verdict="allow", tool=facts.tool, command=(*words, *more), source="command line")


def _split(policy: Policy) -> tuple[tuple[PermissionRule, ...], tuple[PermissionRule, ...]]:
    """The rules before those with which a face denies, and the others: `--allow` itself only allows, and comes between."""
    rules = policy.rules
    of_face = (one.source == "command line" and one.verdict == "deny" and bool(one.where) for one in rules)
    at = next((at for at, is_denied in enumerate(of_face) if is_denied), len(rules))
    return rules[:at], rules[at:]


def _paths(facts: CallFacts) -> Iterator[PathFact]:
    yield from facts.paths
    for command in facts.shell.commands if facts.shell is not None else ():
        yield from command.redirections
        for word in command.words:
            yield from word.paths


def _sayable(rule: PermissionRule, *, facts: CallFacts, policy: Policy) -> PermissionRule | None:
    """The same rule as the command line would read it; None where it has no words for it."""
    if rule.command is not None:
        if any(not word or _NOT_IN_COMMANDS.search(word) for word in rule.command):
            return None
        return PermissionRule(verdict="allow", tool=rule.tool, command=rule.command, source="command line")
    if rule.path is None and server_of(rule.tool):
        return PermissionRule(verdict="allow", tool=rule.tool, source="command line")
    if rule.path is None or _NOT_IN_PATHS.search(rule.path):
        return None
    path = rule.path.removeprefix(policy.workspace.rstrip("/") + "/")
    tool = rule.tool if facts.shell is None else "*"  # the pattern of a shell is a command
    return PermissionRule(verdict="allow", tool=tool, path=path, source="command line")


def _text(rule: PermissionRule) -> str:
    if rule.command is None and rule.path is None:
        return mcp_rule(rule.tool) if server_of(rule.tool) else _EFFECTS[rule.effect or ""]
    return f"{rule.tool}({' '.join(rule.command) if rule.command else rule.path})"


def _quoted(text: str) -> str:
    """As a POSIX shell takes it for one word."""
    return text if text in _EFFECTS.values() else "'" + text.replace("'", "'\"'\"'") + "'"
