"""What may run without asking: allow, ask or deny, by ordered rules over the facts of a call.

The last matching rule wins, in the order default, user file, project file, session, command line. Within one of these a denial
wins over every other rule, whatever their order. A project's file may only tighten, unless its folder is trusted: a repository
must not grant itself rights.

Some things need more than a general permission, and are asked about (unattended: denied) unless a rule names them: secret
and protected paths, paths outside the workspace, destructive commands. What runs must be known: a command that cannot be
parsed, or whose name is not literal, is asked about whatever the rules say.
"""

import re
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Literal

import msgspec

from turnwise.rules.advice import GO_ON_WITHOUT_TOOL, allowed_by
from turnwise.rules.environment_names import is_doubtful, steers
from turnwise.rules.known_programs import is_known
from turnwise.rules.linear_globs import word_glob
from turnwise.rules.mcp_names import server_of
from turnwise.rules.permission_commands import Match, matches_narrowly, matches_widely
from turnwise.rules.permission_facts import Access, CallFacts, CommandFact, PathFact, Word
from turnwise.rules.permission_paths import Guard, escape_pattern, guard_of, guard_of_text, may_contain, path_matches
from turnwise.rules.read_only_commands import is_reading, speaks
from turnwise.rules.schema import shorten
from turnwise.rules.shell_dangers import destroys

PermissionKind = Literal["allow", "ask", "deny"]
# The private folder of commands as it is called on the machine: no other command and no person knows it by that name.
_PRIVATE = re.compile(r"^/.*/turnwise-run-[a-z0-9_]{8}/tmp(?=/|$)")
MAX_PATH_SHOWN = 1024  # whoever is asked must see where it leads
RANK: dict[PermissionKind, int] = {"allow": 0, "ask": 1, "deny": 2}
RuleSource = Literal["default", "user", "project", "session", "command line"]


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule that allows, asks about or denies calls.

    - `verdict`: `allow`, `ask` or `deny`.
    - `tool` and `path` are globs; `effect` is `none`, `read`, `write` or `execute`. None matches everything.
    - `command` has one pattern for each word of a command.
    - `source` and `where` say where the rule stands (its file and key), for messages.
    - `places` are folders. They are set if a person has allowed a command with `always`: the rule holds only there.
    """

    verdict: PermissionKind
    tool: str = "*"
    effect: str | None = None
    path: str | None = None
    command: tuple[str, ...] | None = None
    source: RuleSource = "default"
    where: str = ""
    places: tuple[str, ...] = ()


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The permission rules of a run, and the facts that the rules need.

    - `workspace` and `home` are resolved absolute paths.
    - `attended`: whether a person can answer asks. If False, each ask gets the verdict `unattended` at once.
    - `trusts_project`: whether rules of the project's own files may allow calls.
    """

    rules: tuple[PermissionRule, ...] = ()
    workspace: str = ""
    home: str = ""
    attended: bool = False
    unattended: Literal["allow", "deny"] = "deny"
    trusts_project: bool = False


class PermissionVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`why` is a sentence for the model and whoever reads along; `subject` the path, command or tool that decided; `rule` the
    rule that did, None where a default did."""

    kind: PermissionKind
    why: str = ""
    rule: PermissionRule | None = None
    subject: str = ""


def judge_permission(facts: CallFacts, *, policy: Policy) -> PermissionVerdict:
    """The strictest verdict on any part of the call: denied if one part is, allowed only if every part is."""
    verdict = _strictest(facts, policy=policy)
    if verdict.kind != "ask" or policy.attended:
        return verdict
    if policy.unattended == "allow":
        return msgspec.structs.replace(
            verdict, kind="allow", why=f"{verdict.why}; unattended, and the policy allows it"
        )
    return msgspec.structs.replace(verdict, kind="deny", why=f"{verdict.why}; nobody is there to be asked")


def session_rules(facts: CallFacts, *, policy: Policy) -> tuple[PermissionRule, ...]:
    """What 'always for this session' adds for an approved call: no broader than what was shown.

    Each command, path or tool that was asked about becomes one rule. Empty where a rule could not hold (a command whose parts
    are unknown) or would hold for more than was shown (a command with an input, a glob or an unknown folder): then only 'once'
    can be offered.
    """
    asked = [part for part in _parts(facts, policy=policy) if part.verdict.kind == "ask"]
    return () if any(part.once for part in asked) else naming_rules(facts, policy=policy)


def naming_rules(facts: CallFacts, *, policy: Policy) -> tuple[PermissionRule, ...]:
    """One rule for each command, path or tool that is asked about, by its name; empty where one has none."""
    asked = [part for part in _parts(facts, policy=policy) if part.verdict.kind == "ask"]
    rules = tuple(part.remembered for part in asked if part.remembered is not None)
    return rules if len(rules) == len(asked) else ()


def asked_parts(facts: CallFacts, *, policy: Policy) -> tuple[str, ...]:
    """Why a call is asked about, in a sentence for each of its parts that is: a command of several names them all."""
    whys = [part.verdict.why for part in _parts(facts, policy=policy) if part.verdict.kind == "ask"]
    return tuple(dict.fromkeys([why for why in whys if why]))


def allowed_by_default(facts: CallFacts, *, policy: Policy) -> bool:
    """Whether a command needs nobody's permission, and no rule names one of its commands to allow it."""
    if any(
        part.verdict.rule is not None and part.verdict.rule.command is not None for part in _parts(facts, policy=policy)
    ):
        return False
    bare = msgspec.structs.replace(policy, rules=(), attended=True)
    return _strictest(facts, policy=bare).kind == "allow"


class _Part(msgspec.Struct, frozen=True):
    """One subject of a call with its verdict, and the rule that would allow it; None where none could. `once`: the rule would
    allow more than what was shown."""

    verdict: PermissionVerdict
    remembered: PermissionRule | None = None
    once: bool = False


def _strictest(facts: CallFacts, *, policy: Policy) -> PermissionVerdict:
    found = PermissionVerdict(kind="allow", subject=facts.tool)
    for part in _parts(facts, policy=policy):
        if RANK[part.verdict.kind] > RANK[found.kind]:
            found = part.verdict
        if found.kind == "deny":
            break
    return found


def _parts(facts: CallFacts, *, policy: Policy) -> Iterator[_Part]:
    if facts.unknown:
        yield _unsettled(facts, why=f"`{facts.tool}`: {facts.unknown}", policy=policy)
        return
    if facts.shell is None:
        if not facts.paths or facts.effect not in ("none", "read", "write"):
            yield _judge_tool(facts, policy=policy)
        for path in facts.paths:
            yield _judge_path(path, facts=facts, policy=policy)
        return
    if not facts.shell.parsed:
        yield _unsettled(facts, why=f"the command cannot be judged: {facts.shell.problem}", policy=policy)
    for command in facts.shell.commands:
        yield from _judge_command(command, facts=facts, policy=policy)
    for path in facts.paths:
        yield _judge_path(path, facts=facts, policy=policy)


def _unsettled(facts: CallFacts, *, why: str, policy: Policy) -> _Part:
    """Asked about whatever the rules allow; a prohibition holds."""
    asked = _insisting(why, subject=facts.tool, policy=policy)
    found = _by_tool_rules(facts, policy=policy, start=asked)
    return _Part(found if found.kind == "deny" else asked)


def _insisting(why: str, *, subject: str, policy: Policy) -> PermissionVerdict:
    """A person has to look at it: where nobody is there it is denied, also if other asks are allowed then."""
    if policy.attended:
        return PermissionVerdict(kind="ask", why=why, subject=subject)
    return PermissionVerdict(kind="deny", why=f"{why}; nobody is there to be asked", subject=subject)


# tools


def _judge_tool(facts: CallFacts, *, policy: Policy) -> _Part:
    kind: PermissionKind = "allow" if facts.effect in ("none", "read") else "ask"
    start = PermissionVerdict(kind=kind, why=f"`{facts.tool}` has the effect `{facts.effect}`", subject=facts.tool)
    verdict = _by_tool_rules(facts, policy=policy, start=start)
    return _Part(verdict, PermissionRule(verdict="allow", tool=escape_pattern(facts.tool), source="session"))


def _by_tool_rules(facts: CallFacts, *, policy: Policy, start: PermissionVerdict) -> PermissionVerdict:
    """The last rule that names the tool, and neither path nor command, decides."""
    found = start
    for rule in _in_order(policy.rules):
        if rule.path is None and rule.command is None and _names_tool(rule, facts=facts, access=None):
            if facts.effect == "execute" and rule.verdict == "allow" and _sweeps(rule.tool):
                continue  # what runs is not known: somebody has to have meant this very tool
            found = _by_order(rule, found=found, policy=policy)
    return found


def _sweeps(pattern: str) -> bool:
    """Whether it is for tools that nobody may have thought of. `git__*` names the server whose tools they are."""
    return re.search(r"(?<!\\)[*?]", pattern) is not None and not server_of(pattern)


def _names_tool(rule: PermissionRule, *, facts: CallFacts, access: Access | None) -> bool:
    if rule.effect is not None and rule.effect != facts.effect and (access is None or rule.effect != access):
        return False
    return names_match(rule.tool, name=facts.tool)


def names_match(pattern: str, *, name: str) -> bool:
    """Whether a rule's pattern of tools is for the tool `name`."""
    return word_glob(pattern).fits(name)


def _applied(
    rule: PermissionRule, *, found: PermissionVerdict, kind: PermissionKind | None = None
) -> PermissionVerdict:
    kind = kind or rule.verdict
    why = f"{found.why} ({rule.where or rule.source} says `{rule.verdict}`)" if kind != "allow" else ""
    return PermissionVerdict(kind=kind, why=why.strip(), rule=rule, subject=found.subject)


# paths


def _judge_path(path: PathFact, *, facts: CallFacts, policy: Policy, named: bool = False) -> _Part:
    """`named`: the path stands in a command whose own verdict allows it; only what needs more than that is looked at."""
    access = path.access
    shown = _told(path.given)
    guard = guard_of(path, access=access, home=policy.home)
    kind: PermissionKind = "allow" if named or access == "read" or path.private else "ask"
    if guard is not None:
        kind = "ask"
    start = PermissionVerdict(kind=kind, why=_why(path, guard=guard), subject=shown)
    found = start
    for rule in _in_order(policy.rules):
        if rule.command is not None:
            continue
        if rule.path is None:
            if (
                (guard is None or rule.verdict != "allow")
                and not (named or _is_remembered(rule))
                and _names_tool(rule, facts=facts, access=access)
            ):
                found = _by_order(rule, found=found, policy=policy)
            continue
        match = _path_match(rule, path=path, facts=facts, policy=policy)
        if match is Match.YES and (
            rule.verdict != "allow" or _yields(guard, pattern=rule.path, access=access, home=policy.home)
        ):
            found = _by_order(rule, found=found, policy=policy)
        elif match is Match.MAYBE and found.kind == "allow":
            found = _applied(rule, found=start, kind="ask")
    remembered = None
    if path.resolved:
        pattern = escape_pattern(path.resolved)
        remembered = PermissionRule(
            verdict="allow", tool=escape_pattern(facts.tool), effect=access, path=pattern, source="session"
        )
    return _Part(found, remembered)


def _path_match(rule: PermissionRule, *, path: PathFact, facts: CallFacts, policy: Policy) -> Match:
    """A permission has to name the tool and match where the path leads. A prohibition matches the path as written as well, and
    a shell is held to those for `read` where it reads, and to those for `write` and `edit` where it writes."""
    pattern = rule.path or ""
    workspace, home = policy.workspace, policy.home
    if rule.verdict == "allow":
        named = _names_tool(rule, facts=facts, access=path.access)
        matched = named and path_matches(pattern, path=path.resolved, workspace=workspace, home=home)
        return Match.YES if matched else Match.NO
    if not _concerns(rule, access=path.access, facts=facts):
        return Match.NO
    for one in (path.resolved, path.lexical):
        one = one.replace("//", "/")  # it marks a name that is no UTF-8
        if path_matches(pattern, path=one, workspace=workspace, home=home, any_case=True):
            return Match.YES
    if path.access == "write" and may_contain(pattern, folder=path.resolved, workspace=workspace, home=home):
        return Match.MAYBE
    return Match.NO


def _concerns(rule: PermissionRule, *, access: Access, facts: CallFacts) -> bool:
    """Whether a prohibition holds for paths that the call's tool reads or writes, whichever they are."""
    if rule.effect is not None and rule.effect not in (access, facts.effect):
        return False
    also = {"read": ("read",), "write": ("write", "edit")}[access] if facts.shell is not None else ()
    return any(word_glob(rule.tool).fits(tool) for tool in (facts.tool, *also))


def _yields(guard: Guard | None, *, pattern: str, access: Access, home: str) -> bool:
    """Whether a permission is meant for guarded paths: `**/*.pem` is, `src/**` is not, though there is a key in it."""
    match guard:
        case None:
            return True
        case "outside":
            return pattern.startswith(("/", "~"))
        case "unknown":
            return False
        case "secret" | "protected":
            return guard_of_text(pattern.replace("\\", ""), access=access, home=home) == guard


def _told(path: str) -> str:
    return shorten(_PRIVATE.sub("$TMPDIR", path), limit=MAX_PATH_SHOWN)


def _why(path: PathFact, *, guard: Guard | None) -> str:
    verb = "read" if path.access == "read" else "write"
    shown = f"`{_told(path.given)}`"
    match guard:
        case None:
            return f"to {verb} {shown}"
        case "unknown":
            return f"where {shown} leads cannot be known before it runs"
        case "outside":
            return f"to {verb} {shown}, which leads outside the workspace (`{_told(path.resolved)}`)"
        case "secret":
            return f"to {verb} {shown}, which may hold keys or passwords"
        case "protected":
            return f"to write {shown}, which decides what other programs do"


# commands


def _judge_command(command: CommandFact, *, facts: CallFacts, policy: Policy) -> Iterator[_Part]:
    shown = shorten(command.text)
    reading = not command.doubt and not command.opaque and is_reading(command)
    free = is_known(command) or command.guessed
    start = PermissionVerdict(kind="allow" if free else "ask", why=f"to run `{shown}`", subject=shown)
    found, specific = _by_command_rules(command, facts=facts, policy=policy, start=start)
    remembered = _remember(command, facts=facts)
    doubt = "" if command.guessed else _doubt(command)
    if doubt and found.kind != "deny":
        found = _insisting(f"`{shown}`: {doubt}", subject=shown, policy=policy)
    unknown = next((one.name for one in command.assignments if is_doubtful(one)), "")
    if unknown and found.kind == "allow" and not command.guessed:
        why = f"`{shown}`: what `{unknown}=` makes programs load or write is not known"
        found = PermissionVerdict(kind="ask", why=why, subject=shown)
    if doubt or unknown:
        remembered = None
    if found.kind != "deny" and not specific and destroys(command):
        found = _insisting(f"`{shown}` may destroy what cannot be brought back", subject=shown, policy=policy)
    yield _Part(found, remembered, once=_is_more_than_words(command))
    for path in command.redirections:
        yield _judge_path(path, facts=facts, policy=policy)
    if command.guessed:
        return
    access: Access = "read" if reading else "write"
    for at, word in enumerate(command.words[1:], start=1):
        if specific and found.rule is not None and _spells_out(found.rule, at=at) and not _is_remembered(found.rule):
            continue  # of what a session remembers, each path has a rule of its own
        if word.text == "HEAD" and _knows_commits(command):
            continue
        for path in word.paths:
            if (
                path.resolved
                or path.given.startswith("~")
                or guard_of_text(path.given, access=access, home=policy.home)
            ):
                path = msgspec.structs.replace(path, access=access)
                yield _judge_path(path, facts=facts, policy=policy, named=True)
        if not speaks(command) and _may_hide(word, access=access, facts=facts, policy=policy):
            why = f"`{shown}`: where `{shorten(word.text)}` leads cannot be known before it runs"
            yield _Part(_insisting(why, subject=shown, policy=policy))


def _knows_commits(command: CommandFact) -> bool:
    """Whether HEAD is a commit for the command, and not the file of a bare repository."""
    return command.words[0].text == "git" and all(word.text != "mv" for word in command.words)


def _may_hide(word: Word, *, access: Access, facts: CallFacts, policy: Policy) -> bool:
    """Whether a path may hide in the word that a rule about paths would ask about or deny. Where the command spells it out
    (braces), that may be any; a variable is taken for harmless unless somebody has made such a rule."""
    if word.veiled:
        return True
    if word.literal and all(path.resolved for path in word.paths):
        return False
    return any(
        rule.verdict != "allow" and rule.path is not None and _concerns(rule, access=access, facts=facts)
        for rule in policy.rules
    )


def _by_command_rules(
    command: CommandFact, *, facts: CallFacts, policy: Policy, start: PermissionVerdict
) -> tuple[PermissionVerdict, bool]:
    """The verdict, and whether a rule that spells out the command's name gave it."""
    found, specific = start, False
    for rule in _in_order(policy.rules):
        if rule.path is not None or not _names_tool(rule, facts=facts, access=None):
            continue
        if rule.command is None:
            if rule.verdict == "allow" and (not command.words or _is_remembered(rule)):
                continue  # assignments and redirections alone: judged by their own parts
            before = found
            found = _by_order(rule, found=found, policy=policy)
            specific = specific and found is before
        elif rule.verdict == "allow":
            if _is_remembered(rule) and (_is_more_than_words(command) or command.places != rule.places):
                continue
            if matches_narrowly(rule.command, command=command):
                before = found
                found = _by_order(rule, found=found, policy=policy)
                specific = rule.command[0] != "*" if found is not before else specific
        else:
            match matches_widely(rule.command, command=command):
                case Match.YES:
                    found, specific = _by_order(rule, found=found, policy=policy), False
                case Match.MAYBE if found.kind == "allow":
                    found, specific = _applied(rule, found=start, kind="ask"), False
                case _:
                    pass
    return found, specific


def _in_order(rules: tuple[PermissionRule, ...]) -> Iterator[PermissionRule]:
    """As they are read: the denials of a layer last, so that none of its other rules loosens them."""
    for _, layer in groupby(rules, key=lambda rule: rule.source):
        denials: list[PermissionRule] = []
        for rule in layer:
            if rule.verdict == "deny":
                denials.append(rule)
            else:
                yield rule
        yield from denials


def _by_order(rule: PermissionRule, *, found: PermissionVerdict, policy: Policy) -> PermissionVerdict:
    """The rule's verdict, unless it would loosen what it must not: an untrusted project's rule anything, a general rule what a
    rule with a pattern says in a layer before it (`--allow execute` leaves the user's `rm *` denied)."""
    if RANK[rule.verdict] < RANK[found.kind]:
        if rule.source == "project" and not policy.trusts_project:
            return found
        before = found.rule
        general = rule.path is None and rule.command is None
        if general and before is not None and before.source != rule.source and (before.path or before.command):
            return found
    elif rule.source == "project" and RANK[rule.verdict] == RANK[found.kind]:
        return found
    return _applied(rule, found=found)


def _doubt(command: CommandFact) -> str:
    """What no permission can settle, as the command's words do not say what will run."""
    if command.opaque:
        return command.opaque
    if command.words and not command.words[0].literal:
        return "which program runs is known only when it runs"
    steering = [assignment.name for assignment in command.assignments if steers(assignment)]
    if steering:
        return f"`{steering[0]}=` changes what runs"
    return ""


def _spells_out(rule: PermissionRule, *, at: int) -> bool:
    pattern = rule.command or ()
    return at < len(pattern) and re.search(r"(?<!\\)[*?]", pattern[at]) is None


def _remember(command: CommandFact, *, facts: CallFacts) -> PermissionRule | None:
    if not command.words or not all(word.literal for word in command.words):
        return None
    return PermissionRule(
        verdict="allow",
        tool=escape_pattern(facts.tool),
        command=tuple(escape_pattern(word.text) for word in command.words),
        source="session",
        places=command.places,
    )


def _is_remembered(rule: PermissionRule) -> bool:
    """Whether a person said 'always' of one call: what has neither path nor command was about a call without any."""
    return rule.source == "session" and rule.verdict == "allow"


def _is_more_than_words(command: CommandFact) -> bool:
    """Whether the same words may do something else the next time: with another input, other files, or in another folder."""
    return command.fed or "" in command.places or any(word.glob for word in command.words)


def denial(tool: str, *, effect: str, allowed: Collection[str], hint: str) -> str | None:
    """Why a call of `tool` may not run, in words for the model and whoever reads along; None if it may.

    `hint` says how a person allows it; `{tool}` and `{effect}` in it are filled in.
    """
    if effect in allowed:
        return None
    how = hint.replace("{tool}", tool).replace("{effect}", effect)
    return (
        f"Denied: `{tool}` was not run, because its effect (`{effect}`) is not allowed in this run. "
        f"{allowed_by(how)} {GO_ON_WITHOUT_TOOL}"
    )
