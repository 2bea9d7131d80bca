"""What may run and what it may spend: the settings files' rules and limits, those that the session was given, and the command
line's.
"""

import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from turnwise.agent.models import read_model
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session
from turnwise.rules.arguments import mcp_rule
from turnwise.rules.limits import AnyOf, Limit
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permission_paths import escape_pattern
from turnwise.rules.permissions import PermissionRule, Policy, rules_in_scope
from turnwise.rules.permissions import all_edits_rule as all_edits_rule  # also the mode `edits` is this rule
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.settings.catalogue import find_limits, limits_over
from turnwise.settings.options import RunSettings, beside, limits_in, settings_in, settings_over
from turnwise.settings.permission_files import parse_rule, policy_of
from turnwise.settings.settings import Layer
from turnwise.turn.config import Effect, TurnConfig, settled
from turnwise.turn.events import Asked, CallsInspected, Event, TurnStarted
from turnwise.vocab import Settings

EFFECTS: dict[str, Effect] = {"write": "write", "bash": "execute", "execute": "execute"}
COMMAND_TOOLS = frozenset({"bash"})  # the pattern of the others is a path
_CALLS = re.compile(r"(?P<tool>[A-Za-z0-9_*?-]+)\((?P<pattern>.*)\)", re.DOTALL)


def policy_of_run(
    layers: Iterable[Layer],
    *,
    folder: Path,
    home: Path,
    attended: bool,
    allow: Sequence[str],
    remembered: Sequence[PermissionRule] = (),
) -> Policy:
    """The policy of a run in `folder`. Raises CallerError."""
    return policy_of(
        layers,
        workspace=folder,
        home=home,
        attended=attended,
        session_rules=remembered,
        command_line_rules=[rule for text in allow for rule in allowed_rules(text)],
    )


def allowed_rules(text: str) -> tuple[PermissionRule, ...]:
    """What `--allow TEXT` means: an effect, or calls by a pattern. Raises CallerError."""
    where = f"--allow {text}"
    if (effect := EFFECTS.get(text)) is not None:
        # a command that may run may also write by `>` what it could write by itself
        return (PermissionRule(verdict="allow", effect=effect, source="command line", where=where),)
    if text.startswith("mcp("):
        return (parse_rule({"allow": text}, source="command line", where=where),)
    found = _CALLS.fullmatch(text)
    if found is None:
        near = difflib.get_close_matches(text.casefold(), EFFECTS, n=1)
        raise CallerError(
            f"`{text}` is neither {', '.join([f'`{word}`' for word in EFFECTS])} nor calls by a pattern, "
            f"as in `bash(git push *)` or `edit(src/**)`{f'; did you mean `{near[0]}`?' if near else ''}"
        )
    tool, pattern = found["tool"], found["pattern"].strip()
    key = "command" if tool in COMMAND_TOOLS else "path"
    if not pattern:
        raise CallerError(f"`{text}`: the pattern is empty; `*` is for all")
    return (parse_rule({"allow": tool, key: pattern}, source="command line", where=where),)


def rule_said(rule: PermissionRule, *, workspace: str) -> str:
    """`edit(notes.txt)`: the calls that a rule is about, as settings files of the workspace and `--allow` write them."""
    words = [shlex.quote(word) if not word or re.search(r"\s", word) else word for word in rule.command or ()]
    path = (rule.path or "").removeprefix(f"{escape_pattern(workspace)}/")
    return f"{mcp_rule(rule.tool)}({' '.join(words) or path})".removesuffix("()")


def remembered_rules(journal: Journal, session: Session, *, workspace: str) -> tuple[PermissionRule, ...]:
    """What was allowed 'always in this session', by the session's own calls and those of its sub-agents. Nothing of it holds in
    another folder: what was shown was about that one."""
    rules: tuple[PermissionRule, ...] = ()
    for turn in session.turns:
        rules += _remembered_in(journal.events(turn.id), workspace=workspace)
        for _, child in journal.children(turn.id):
            rules += remembered_rules(journal, child, workspace=workspace)
    return tuple(dict.fromkeys(rules))


def _remembered_in(events: Iterable[Event], *, workspace: str) -> tuple[PermissionRule, ...]:
    policy: Policy | None = None
    facts: dict[str, CallFacts] = {}
    rules: tuple[PermissionRule, ...] = ()
    for event in events:
        match event:
            case TurnStarted():
                policy = event.config.policy
            case CallsInspected():
                facts = {found.call_id: found for found in event.facts}
            case Asked() if policy is not None and policy.workspace == workspace:
                for answer in settled(event.approvals).values():
                    known = facts.get(answer.call_id)
                    if answer.always and answer.verdict == "allow" and answer.arguments is None and known is not None:
                        rules += rules_in_scope(known, policy=policy, scope=answer.scope)
            case _:
                pass
    return rules


# What a run may spend and what its model can give, out of the settings that hold for it.


def limits_of(settings: RunSettings, *, last: Limit | None) -> Limit | None:
    """The limits that the settings name, and those of the session's `last` turn for which there is no setting (`&`, output
    tokens alone). Whichever is reached first ends the turn."""
    chosen = limits_in(settings) + [one for one in beside(last) if settings_in(one) == RunSettings()]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    return AnyOf(tuple(chosen))


def model_limits_of(model: str, *, settings: RunSettings, last: TurnConfig | None) -> ModelLimits:
    """The command line's window, else the user's row, else the catalogue's; what none of them knows, as the session's last
    turn had it, if that was the same model. Raises UnknownModel.

    Limits are facts and not choices: a session does not hold on to what was thought of its model.
    """
    named = read_model(model)
    known = find_limits(named.name, profile=named.profile.name, overrides=settings.model_limits)
    if last is not None and (last.profile, last.model) == (named.profile.name, named.name):
        known = limits_over(last.model_limits, known)
    return limits_over(known, ModelLimits(context_window_tokens=settings.context_window))


def retry_of(retries: int | None, *, last: TurnConfig | None) -> RetryPolicy:
    """That of the session's `last` turn where it has so many further attempts, else our own with so many."""
    usual = RetryPolicy() if last is None else last.retry
    return usual if retries is None or usual.attempts == retries + 1 else RetryPolicy(attempts=retries + 1)


def is_same_model(model: str | None, *, last: TurnConfig | None) -> bool:
    """Whether a run keeps the session's own model."""
    return model is None or last is None or model == f"{last.profile}:{last.model}"


def request_settings(settings: RunSettings, *, last: TurnConfig | None, model: str | None) -> Settings:
    """What the settings say about requests. The rest is as in the session's `last` turn, if the run keeps its model."""
    kept = Settings() if last is None or not is_same_model(model, last=last) else last.settings
    return settings_over(kept, settings)
