"""What may run without asking: allow, ask or deny, by ordered rules over the facts of a call.

The last matching rule wins, in the order default, user file, project file, session, command line. Within one of these a denial
wins over every other rule, whatever their order. A project's file may only tighten, unless its folder is trusted: a repository
must not grant itself rights.

Some things need more than a general permission, and are asked about (unattended: denied) unless a rule names them: secret
and protected paths, paths outside the workspace, destructive commands. What runs must be known: a command that cannot be
parsed, or whose name is not literal, is asked about whatever the rules say.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.advice import GO_ON_WITHOUT_TOOL, allowed_by
from turnwise.rules.arguments import MCP_WORD, server_of
from turnwise.rules.command_prefixes import beginning_of, covers, runs_code
from turnwise.rules.permission_commands import Match, destroys, matches_narrowly, matches_widely
from turnwise.rules.permission_facts import (
    RESERVED,
    Access,
    CallFacts,
    CommandFact,
    Keeps,
    Mode,
    PathFact,
    Word,
    is_doubtful,
    steers,
    tightest,
)
from turnwise.rules.permission_paths import (
    Guard,
    escape_pattern,
    guard_of,
    guard_of_text,
    may_contain,
    path_matches,
    word_glob,
)
from turnwise.rules.read_only_commands import is_known, is_reading, speaks
from turnwise.rules.schema import shorten
from turnwise.vocab import HintedFields
from turnwise.vocab.wording import in_ticks

PermissionKind = Literal["allow", "ask", "deny"]
# The private folder of commands as it is called on the machine: no other command and no person knows it by that name.
_PRIVATE = re.compile(r"^/.*/turnwise-run-[a-z0-9_]{8}/tmp(?=/|$)")
MAX_PATH_SHOWN = 1024  # the person who is asked must see where it leads
PLAN_ONLY = (
    "this session is in plan mode, in which nothing is changed: look at what you need, then write your plan as your answer; the "
    "user decides whether it is carried out"
)
RANK: dict[PermissionKind, int] = {"allow": 0, "ask": 1, "deny": 2}
RuleSource = Literal["default", "user", "project", "session", "command line"]


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
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


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
    """The permission rules of a run, and the facts that the rules need.

    - `workspace` and `home` are resolved absolute paths.
    - `attended`: whether a person can answer asks. If False, each ask gets the verdict `unattended` at once.
    - `unattended`: `deny`, `allow`, or `later`. With `later` a run without an approver ends as `waiting`, and a later run
      continues with the answers (`approvals=`).
    - `trusts_project`: whether rules of the project's own files may allow calls.
    - `more_steps`: before the last step of a run, ask a person whether it may take that many more, or as many as it may take so
      far, if that is more. 0 asks nobody.
    - `mode`: what runs unasked by default. `plan` refuses every change, whatever the rules say. `ask` is the usual mode. `edits`
      and `sandbox` count only where the inspector of calls says so too.
    - `confines`: whether commands can run with the folder read-only and without network. If not, `plan` refuses commands
      that may do more than read.
    """

    rules: tuple[PermissionRule, ...] = ()
    workspace: str = ""
    home: str = ""
    attended: bool = False
    unattended: Literal["allow", "deny", "later"] = "deny"
    trusts_project: bool = False
    mode: Mode = "ask"
    confines: bool = False
    more_steps: int = 0


RememberedScope = Literal["call", "prefix", "edits"]
"""What a person allows for the rest of a session: what was shown, commands that begin like it, or all changes of files in the
workspace."""


class PermissionVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`why` is a sentence for the model and for watchers. `subject` is the path, command or tool that decided. `rule` is the rule
    that decided; None if a default did."""

    kind: PermissionKind
    why: str = ""
    rule: PermissionRule | None = None
    subject: str = ""


def judge_permission(facts: CallFacts, *, policy: Policy) -> PermissionVerdict:
    """The strictest verdict on any part of the call: denied if one part is, allowed only if every part is."""
    if mode_of(facts, policy=policy) == "plan" and _changes(facts, policy=policy):
        return PermissionVerdict(kind="deny", why=PLAN_ONLY, subject=facts.tool)
    verdict = _strictest(facts, policy=policy)
    if verdict.kind != "ask" or policy.attended:
        return verdict
    if policy.unattended == "allow":
        return msgspec.structs.replace(
            verdict, kind="allow", why=f"{verdict.why}; unattended, and the policy allows it"
        )
    return msgspec.structs.replace(verdict, kind="deny", why=f"{verdict.why}; nobody is there to be asked")


def mode_of(facts: CallFacts, *, policy: Policy) -> Mode:
    """The mode that the call is judged in: the tighter one of the turn's and of the moment when its facts were found."""
    return tightest(policy.mode, facts.mode)


def _changes(facts: CallFacts, *, policy: Policy) -> bool:
    """Whether the call may change something that plan mode keeps as it is. A command whose folder is read-only may run, unless
    its words say that it writes there."""
    if facts.shell is None:
        return facts.effect not in ("none", "read") or any(path.access == "write" for path in facts.paths)
    if not policy.confines:
        return not allowed_by_default(facts, policy=policy)
    bare = _bare(policy)
    written = [*facts.paths, *[path for command in facts.shell.commands for path in command.redirections]]
    return any(destroys(command) for command in facts.shell.commands) or any(
        path.access == "write" and _judge_path(path, facts=facts, policy=bare).verdict.kind != "allow"
        for path in written
    )


def _bare(policy: Policy) -> Policy:
    """The defaults alone, as they are in the usual mode."""
    return msgspec.structs.replace(policy, rules=(), attended=True, mode="ask")


def session_rules(facts: CallFacts, *, policy: Policy) -> tuple[PermissionRule, ...]:
    """What 'always for this session' adds for an approved call: no broader than what was shown.

    Each command, path or tool that was asked about becomes one rule. Empty where a rule could not hold (a command whose parts
    are unknown) or would hold for more than was shown (a command with an input, a glob or an unknown folder): then only 'once'
    can be offered.
    """
    asked = [part for part in _parts(facts, policy=policy) if part.verdict.kind == "ask"]
    return () if any(part.once for part in asked) else naming_rules(facts, policy=policy)


def rules_in_scope(facts: CallFacts, *, policy: Policy, scope: RememberedScope) -> tuple[PermissionRule, ...]:
    """What a person adds who allows an approved call in this scope; empty where the scope cannot be offered."""
    match scope:
        case "call":
            return session_rules(facts, policy=policy)
        case "edits":
            rules = (all_edits_rule(policy.workspace),) if facts.shell is None and policy.workspace else ()
        case "prefix":
            pattern = () if facts.shell is None else beginning_of(facts.shell)
            places = facts.shell.commands[0].places if facts.shell is not None and pattern else ()
            tool = escape_pattern(facts.tool)
            rules = (
                (PermissionRule(verdict="allow", tool=tool, command=pattern, source="session", places=places),)
                if pattern
                else ()
            )
    # what it would not allow now, it does not promise for later
    widened = msgspec.structs.replace(policy, rules=(*policy.rules, *rules), attended=True)
    return rules if rules and judge_permission(facts, policy=widened).kind == "allow" else ()


def all_edits_rule(workspace: str) -> PermissionRule:
    """Allows all changes of files in the workspace. Guarded files, and what a rule asks about or denies, stay as they are."""
    return PermissionRule(verdict="allow", effect="write", path=f"{escape_pattern(workspace)}/**", source="session")


def naming_rules(facts: CallFacts, *, policy: Policy) -> tuple[PermissionRule, ...]:
    """One rule for each command, path or tool that is asked about, by its name; empty where one has none."""
    asked = [part for part in _parts(facts, policy=policy) if part.verdict.kind == "ask"]
    rules = tuple(part.remembered for part in asked if part.remembered is not None)
    return rules if len(rules) == len(asked) else ()


def hides_something(facts: CallFacts, *, home: str) -> bool:
    """Whether what is at the paths of the call is more than anybody in the workspace may know."""
    return any(guard_of(path, access=path.access, home=home) is not None for path in facts.paths)


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
    return _strictest(facts, policy=_bare(policy)).kind == "allow"


def kept_for(facts: CallFacts, *, policy: Policy, is_answered: bool) -> Keeps:
    """What a command finds read-only. `is_answered`: it only reads, or a person answers for it, so only plan mode counts. A
    command that runs code and may run because it begins like an allowed one is kept as in sandbox mode: nobody saw its code."""
    if facts.shell is None:
        return ""
    mode = mode_of(facts, policy=policy)
    if mode == "plan":
        return "folder"
    return "" if is_answered or not (mode == "sandbox" or _begins_alike(facts, policy=policy)) else "guarded"


def _begins_alike(facts: CallFacts, *, policy: Policy) -> bool:
    rules = [part.verdict.rule for part in _parts(facts, policy=policy)]
    return any(
        rule is not None and _is_wide(rule) and rule.command is not None and runs_code(rule.command) for rule in rules
    )


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
    if not facts.shell.parsed and not _is_confined(facts, policy=policy):
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


def _is_confined(facts: CallFacts, *, policy: Policy) -> bool:
    """Whether a sandbox keeps a command in, whatever it runs, and no prohibition might be hidden by what is not known of it."""
    return (
        facts.shell is not None
        and mode_of(facts, policy=policy) == "sandbox"
        and not any(
            rule.verdict != "allow"
            and any(_concerns(rule, access=access, facts=facts) for access in _ACCESSES["execute"])
            for rule in policy.rules
        )
    )


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
    mode, free = mode_of(facts, policy=policy), named or access == "read" or path.private
    if facts.effect == "write" or facts.shell is not None:
        free = free or mode == "sandbox" or (mode == "edits" and facts.shell is None)
    if (
        mode == "sandbox"
        and facts.shell is not None
        and guard in ("outside", "unknown")
        and (named or access == "read")
    ):
        guard = None  # it can be read and not written there, by any program
    kind: PermissionKind = "allow" if free and guard is None else "ask"
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
    free = is_known(command) or command.guessed or mode_of(facts, policy=policy) == "sandbox"
    confined = _is_confined(facts, policy=policy)
    start = PermissionVerdict(kind="allow" if free else "ask", why=f"to run `{shown}`", subject=shown)
    found, specific = _by_command_rules(command, facts=facts, policy=policy, start=start)
    remembered = _remember(command, facts=facts)
    doubt = "" if command.guessed or confined else _doubt(command)
    if doubt and found.kind != "deny":
        found = _insisting(f"`{shown}`: {doubt}", subject=shown, policy=policy)
    unknown = next((one.name for one in command.assignments if is_doubtful(one)), "")
    if unknown and found.kind == "allow" and not (command.guessed or confined):
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
        if not speaks(command) and not confined and _may_hide(word, access=access, facts=facts, policy=policy):
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
            is_wide = _is_wide(rule)
            if is_wide and (facts.shell is None or not covers(rule.command, shell=facts.shell)):
                continue
            if matches_narrowly(rule.command, command=command):
                before = found
                found = _by_order(rule, found=found, policy=policy)
                specific = rule.command[0] != "*" and not is_wide if found is not before else specific
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
    """As they are read: the denials of a layer last, so that no other rule of the layer weakens them."""
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
        if before is not None and _is_wide(rule):
            return found  # somebody wrote a rule for it
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


def _is_wide(rule: PermissionRule) -> bool:
    """Whether a person allowed more than one call: all edits, or commands that begin alike. What was shown is escaped."""
    return _is_remembered(rule) and ((rule.path or "").endswith("/**") or (rule.command or ())[-1:] == ("*",))


def _is_more_than_words(command: CommandFact) -> bool:
    """Whether the same words may do something else the next time: with another input, other files, or in another folder."""
    return command.fed or "" in command.places or any(word.glob for word in command.words)


def denial(tool: str, *, effect: str, allowed: Collection[str], hint: str) -> str | None:
    """Why a call of `tool` may not run, in words for the model and for watchers; None if it may.

    `hint` says how a person allows it; `{tool}` and `{effect}` in it are filled in.
    """
    if effect in allowed:
        return None
    how = hint.replace("{tool}", tool).replace("{effect}", effect)
    return (
        f"Denied: `{tool}` was not run, because its effect (`{effect}`) is not allowed in this run. "
        f"{allowed_by(how)} {GO_ON_WITHOUT_TOOL}"
    )


# Patterns of rules, read once: in their plain form, or refused. A pattern that can never match protects nothing.


MAX_PATH_CHARACTERS = 4096  # PATH_MAX of Linux
MAX_COMMAND_CHARACTERS = 4096  # nobody reads more of a rule

# What a backslash may stand before: characters that mean something without it. Anywhere else it is a path of Windows, or a
# regular expression, and would silently vanish.
_ESCAPABLE_IN_PATHS = "\\*?[]{}~!$ "
_ESCAPABLE_IN_WORDS = "\\*?"
_PIECE = re.compile(r"\\(.?)|(.)", re.DOTALL)
_BEGIN_OTHERWISE = ("!", "$", "~", " ")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=.*", re.DOTALL)
_OPERATORS = frozenset("| || |& & && &> &>> > >> >| < << <<< <> 2> 2>> 2>&1 >&2 1>&2".split())
_NO_NAMES = RESERVED | {"(", ")"}
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_UNREADABLE_IN_TEXT = re.compile(r"""['"\\|&;<>$`]""")


def plain_path(pattern: str, *, where: str, widely: bool) -> str:
    """The pattern without `//`, `.` and what else only changes how it is written. `widely`: it is a prohibition, and that of a
    folder is one of all that is below. Raises CallerError for one that no path could match; `where` names file and key."""
    _refuse_path(pattern, where=where)
    body, root = pattern, ""
    if body.startswith("/"):
        root = "/"
    elif body == "~" or body.startswith("~/"):
        body, root = body[1:], "~/"
    segments = ["**" if re.fullmatch(r"\*{2,}", one) else one for one in body.split("/") if one not in ("", ".")]
    if ".." in segments:
        raise CallerError(f"{where}: `path` holds `..`, and paths are resolved before they are judged: write it out")
    is_folder = pattern.endswith("/") or (not root and not segments)
    if (is_folder or widely) and segments[-1:] != ["**"] and (segments or root != "/" or widely):
        anywhere = not root and len(segments) == 1 and "/" not in pattern
        segments = [*(["**"] if anywhere else []), *segments, "**"]
    segments = [one for at, one in enumerate(segments) if one != "**" or segments[at - 1 : at] != ["**"]]
    is_own = len(segments) == 1 and ("/" in pattern or segments == ["**"] or pattern == ".")
    if not root and (is_own or segments[0].startswith(_BEGIN_OTHERWISE)):
        root = "./"  # without it, a name is one anywhere in the workspace, and these would be read in another way
    text = root + "/".join(segments)
    return text.removesuffix("/") if text == "~/" else text


def plain_command(given: str | Sequence[str], *, where: str) -> tuple[str, ...]:
    """The pattern's words. A text is split at its spaces, so what needs quotes is given as a list. Raises CallerError."""
    if sum(map(len, given)) > MAX_COMMAND_CHARACTERS:
        raise CallerError(f"{where}: `command` has more than {MAX_COMMAND_CHARACTERS} characters: make it shorter")
    if isinstance(given, str):
        if _UNREADABLE_IN_TEXT.search(given):
            raise CallerError(
                f"{where}: `command` has quotes, backslashes or operators; a rule is about one command: "
                "write its words as a list, and one rule for each command"
            )
        if _BRACES.search(given):
            raise CallerError(f"{where}: `command` has braces, which a shell expands: write a rule for each word")
        if any(word.startswith("#") for word in given.split()):
            raise CallerError(f"{where}: `command` has a comment, which a shell leaves out: take it out")
    words = tuple(given.split()) if isinstance(given, str) else tuple(given)
    if not words or not all(words):
        raise CallerError(f"{where}: `command` is neither a text nor a list of words: write `command = 'git push *'`")
    _refuse_words(words, where=where)
    return tuple(["*" if re.fullmatch(r"\*+", word) else word for word in words])


def plain_rule(rule: PermissionRule, *, where: str) -> PermissionRule:
    """The rule with its patterns in their plain form. Raises CallerError."""
    path, command = rule.path, rule.command
    if path is not None and command is not None:
        raise CallerError(f"{where} has `path` and `command`: make two rules of it")
    if command is not None and rule.effect not in (None, "execute"):
        raise CallerError(
            f"{where}: a command has the effect `execute`, and this rule is for `{rule.effect}`: leave `effect` out"
        )
    if path is not None:
        path = plain_path(path, where=where, widely=rule.verdict != "allow")
    if command is not None:
        command = plain_command(command, where=where)
    return rule if (path, command) == (rule.path, rule.command) else _with(rule, path=path, command=command)


def _with(rule: PermissionRule, *, path: str | None, command: tuple[str, ...] | None) -> PermissionRule:
    return msgspec.structs.replace(rule, path=path, command=command)


def _refuse_path(pattern: str, *, where: str) -> None:
    if not pattern.strip():
        raise CallerError(f"{where}: `path` is empty: write `**` for all of the workspace")
    if len(pattern) > MAX_PATH_CHARACTERS:
        raise CallerError(f"{where}: `path` has more than {MAX_PATH_CHARACTERS} characters, and no path has")
    _refuse_characters(pattern, key="path", escapable=_ESCAPABLE_IN_PATHS, where=where)
    plain = re.sub(r"\\.", "x", pattern)
    if re.search(r"[\[\]{}]", plain):
        raise CallerError(
            f"{where}: `path` knows `*`, `**` and `?` only; make a rule for each name, or put a backslash before it"
        )
    if plain != plain.strip():
        raise CallerError(f"{where}: `path` begins or ends with a space: take it out, or put a backslash before it")
    if plain.startswith("~") and plain != "~" and not plain.startswith("~/"):
        raise CallerError(f"{where}: `path` begins with another user's folder: write it out")
    if plain.startswith("!"):
        raise CallerError(
            f"{where}: `path` begins with `!`, and no pattern is turned round: make a rule of its own for it"
        )
    if re.match(r"\$\w", plain):
        raise CallerError(
            f"{where}: `path` begins with a variable, and none is expanded: write it out, or `~/` for home"
        )


def _refuse_words(words: Sequence[str], *, where: str) -> None:
    for word in words:
        _refuse_characters(word, key="command", escapable=_ESCAPABLE_IN_WORDS, where=where, lines=True)
        if word in _OPERATORS:
            raise CallerError(
                f"{where}: `command` has the operator `{word}`; a rule is about one command: write one for each"
            )
    first = words[0]
    if _ASSIGNMENT.fullmatch(first):
        raise CallerError(
            f"{where}: `command` begins with the assignment `{first}`; a rule is about the command behind it: leave it out"
        )
    if first in _NO_NAMES:
        raise CallerError(
            f"{where}: `command` begins with `{first}`, a word of the shell's grammar: name the command itself"
        )
    if re.search(r"\s", first):
        raise CallerError(f"{where}: `command` has spaces in its first word: give each word by itself")


def _refuse_characters(text: str, *, key: str, escapable: str, where: str, lines: bool = False) -> None:
    for escape, escaped, char in _pieces(text):
        if escape and (not escaped or escaped not in escapable):
            shown = f"before `{escaped}`" if escaped else "at its end"
            raise CallerError(
                f"{where}: `{key}` has a backslash {shown}: it takes the next character as it is, so write two for one, and "
                "`/` between folders"
            )
        if not escape and not (lines and char in "\n\t") and not (char.isprintable() or char > "\x9f"):
            raise CallerError(f"{where}: `{key}` has the control character U+{ord(char):04X}: take it out")
        if not escape and "\ud800" <= char <= "\udfff":
            raise CallerError(f"{where}: `{key}` holds something that is no character: write it in UTF-8")


def _pieces(text: str) -> Iterator[tuple[bool, str, str]]:
    """Whether it is an escape, the character that is escaped, the plain character."""
    for found in _PIECE.finditer(text):
        yield found[0][0] == "\\", found[1] or "", found[2] or ""


# Whether a rule is about any tool that there is: a misspelt name, or a pattern that its tool cannot match, protects nothing.


Accesses = tuple[Access, ...]

_ACCESSES: dict[str, Accesses] = {"none": (), "read": ("read",), "write": ("write",), "execute": ("read", "write")}
# A prohibition of these holds for what a command reads and writes, too.
_OF_COMMANDS: dict[str, Accesses] = {"read": ("read",), "write": ("write",), "edit": ("write",)}


class KnownTool(msgspec.Struct, frozen=True, kw_only=True):
    """What rules may say of a tool follows from its effect (`none, read, write, execute`) and from whether its paths and commands
    are looked at. `unjudged` says why no rule holds for its calls at all."""

    effect: str
    inspected: bool = True
    unjudged: str = ""


def check_rules(rules: Iterable[PermissionRule], *, tools: Mapping[str, KnownTool]) -> None:
    """Raise CallerError, with the rule's place, for one that is about none of these tools. What a session remembers was about a
    call that there was."""
    for number, rule in enumerate(rules):
        if rule.source == "session":
            continue
        where = rule.where or f"`policy.rules[{number}]`"
        named = {name: tool for name, tool in tools.items() if names_match(rule.tool, name=name)}
        if not named and server_of(rule.tool):
            continue  # the tools of an MCP server are known while it runs
        if not named:
            raise CallerError(f"{where}: there is no tool `{rule.tool}`; {_near(rule.tool, known=tools)}")
        if rule.tool in named and not any(
            _fits(rule, name=name, tool=tool, tools=tools) for name, tool in named.items()
        ):
            raise CallerError(f"{where}: {_why_no_tool(rule, tool=named[rule.tool])}")


def _fits(rule: PermissionRule, *, name: str, tool: KnownTool, tools: Mapping[str, KnownTool]) -> bool:
    """Whether some call of the tool could match; for a prohibition, also what a command does as the tool would."""
    if tool.unjudged:
        return False
    if rule.command is not None:
        return tool.effect == "execute" and tool.inspected and rule.effect in (None, "execute")
    accesses = _ACCESSES.get(tool.effect, ()) if tool.inspected else ()
    if rule.effect in (None, tool.effect, *accesses) and (rule.path is None or accesses):
        return True
    runs_commands = any(one.effect == "execute" and one.inspected for one in tools.values())
    also = _OF_COMMANDS.get(name, ()) if rule.verdict != "allow" and rule.path is not None and runs_commands else ()
    return bool(also) and rule.effect in ("execute", *also)


def _why_no_tool(rule: PermissionRule, *, tool: KnownTool) -> str:
    name = f"`{rule.tool}`"
    if tool.unjudged:
        return f"no rule holds for {name}, as {tool.unjudged}: take the rule out"
    if rule.command is not None and tool.effect != "execute":
        return f"{name} runs no commands, so the rule could never match: leave `command` out, or name the tool that runs them"
    if (rule.command is not None or rule.path is not None) and not tool.inspected:
        key = "command" if rule.command is not None else "path"
        return f"the paths and commands of {name} are not looked at, so the rule could never match: leave `{key}` out"
    if rule.path is not None and tool.effect == "none":
        return f"{name} touches no paths, so the rule could never match: leave `path` out"
    return f"{name} has the effect `{tool.effect}` and never `{rule.effect}`, so the rule could never match: leave `effect` out"


def _near(name: str, *, known: Iterable[str]) -> str:
    names = list(known)
    word = name.partition("(")[0].casefold()  # a word for MCP servers with a slip was not read as one
    near = difflib.get_close_matches(word, [*[one.casefold() for one in names], MCP_WORD], n=1, cutoff=0.5)
    if near == [MCP_WORD]:
        return f"did you mean `{MCP_WORD}(server.tool)`?"
    if near:
        return f"did you mean `{next(one for one in names if one.casefold() == near[0])}`?"
    return f"there are {in_ticks(names)}"
