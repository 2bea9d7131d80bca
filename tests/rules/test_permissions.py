"""Ordered rules over facts: who may widen, who may only tighten, and what no general rule settles."""

import itertools
from typing import Literal

import pytest

from tables import each
from turnwise.rules.permission_facts import Assignment, CallFacts, CommandFact, PathFact, ShellFacts, Word
from turnwise.rules.permissions import (
    PermissionKind,
    PermissionRule,
    PermissionVerdict,
    Policy,
    RuleSource,
    allowed_by_default,
    judge_permission,
    session_rules,
)

WORK, HOME = "/home/me/desk", "/home/me"


def policy(
    *rules: PermissionRule, attended: bool = True, unattended: Literal["allow", "deny"] = "deny", trusts: bool = False
) -> Policy:
    return Policy(
        rules=rules, workspace=WORK, home=HOME, attended=attended, unattended=unattended, trusts_project=trusts
    )


def rule(verdict: PermissionKind, tool: str = "*", *, source: RuleSource = "user", **more: object) -> PermissionRule:
    command, path, effect = more.get("command"), more.get("path"), more.get("effect")
    return PermissionRule(
        verdict=verdict,
        tool=tool,
        source=source,
        command=tuple(str(command).split()) if command else None,
        path=str(path) if path else None,
        effect=str(effect) if effect else None,
    )


def on_path(tool: str, given: str, *, write: bool = False) -> CallFacts:
    resolved = given if given.startswith("/") else f"{WORK}/{given}"
    path = PathFact(
        given=given,
        resolved=resolved,
        lexical=resolved,
        inside=resolved.startswith(f"{WORK}/"),
        access="write" if write else "read",
    )
    return CallFacts(call_id="1", tool=tool, effect="write" if write else "read", paths=(path,))


def running(*lines: str) -> CallFacts:
    commands = tuple(
        CommandFact(words=tuple(Word(word.lstrip("?"), not word.startswith("?")) for word in line.split()), text=line)
        for line in lines
    )
    return CallFacts(call_id="1", tool="bash", effect="execute", shell=ShellFacts(commands=commands))


def kind(facts: CallFacts, *rules: PermissionRule, trusts: bool = False) -> PermissionKind:
    return judge_permission(facts, policy=policy(*rules, trusts=trusts)).kind


@each(
    ("facts", "expected"),
    [
        (on_path("read", "src/a.py"), "allow"),
        (on_path("list", "src"), "allow"),
        (on_path("write", "src/a.py", write=True), "ask"),
        (on_path("read", ".env"), "ask"),
        (on_path("read", ".ENV"), "ask"),
        (on_path("read", "deploy/.env.production"), "ask"),
        (on_path("read", ".env.example"), "allow"),
        (on_path("read", "certs/server.pem"), "ask"),
        (on_path("read", "id_ed25519"), "ask"),
        (on_path("read", "id_ed25519.pub"), "allow"),
        (on_path("read", ".git/config"), "ask"),
        (on_path("read", ".git/HEAD"), "allow"),
        (on_path("read", "/etc/hosts"), "ask"),
        (on_path("read", f"{WORK}er/a.py"), "ask"),
        (running("make"), "ask"),
        (running("true"), "allow"),
        (running("true", "make"), "ask"),
        (CallFacts(call_id="1", tool="think", effect="none"), "allow"),
        (CallFacts(call_id="1", tool="fetch", effect="read"), "allow"),
        (CallFacts(call_id="1", tool="save", effect="write"), "ask"),
        (CallFacts(call_id="1", tool="deploy", effect="execute"), "ask"),
    ],
)
def test_defaults_where_no_rule_says_anything(facts: CallFacts, expected: PermissionKind) -> None:
    """The table of docs/permissions.md."""
    assert kind(facts) == expected


@each(
    ("rules", "expected"),
    [
        ([rule("allow", effect="write")], "allow"),
        ([rule("allow", "write")], "allow"),
        ([rule("allow", "edit")], "ask"),
        ([rule("allow", "write"), rule("deny", "write")], "deny"),
        ([rule("deny", "write"), rule("allow", "write")], "deny"),
        ([rule("deny", "write"), rule("ask", "write")], "deny"),
        ([rule("deny", "write", source="user"), rule("allow", "write", source="command line")], "allow"),
        ([rule("allow", path="src/**")], "allow"),
        ([rule("allow", path="docs/**")], "ask"),
        ([rule("allow", "write"), rule("ask", path="src/*")], "ask"),
        ([rule("deny", path="src/**"), rule("allow", path="src/a.py")], "deny"),
        ([rule("deny", path="src/**", source="user"), rule("allow", path="src/a.py", source="session")], "allow"),
        ([rule("deny", path="SRC/**"), rule("allow", "write")], "deny"),
        ([rule("deny", path="SRC/**"), rule("allow", "write", source="command line")], "deny"),
        ([rule("allow", path="~/desk/src/*.py")], "allow"),
        ([rule("allow", path=f"{WORK}/src/?.py")], "allow"),
        ([rule("allow", path="a.py")], "allow"),
    ],
)
def test_the_last_matching_rule_wins(rules: list[PermissionRule], expected: PermissionKind) -> None:
    """Except that a denial wins in its layer, wherever it stands there, and that a general rule of a later
    layer does not undo what a pattern says in an earlier one."""
    assert kind(on_path("write", "src/a.py", write=True), *rules) == expected


@each(("verdict", "trusts", "expected"), [("allow", False, "ask"), ("allow", True, "allow"), ("deny", False, "deny")])
@each("more", [{}, {"path": "src/**"}, {"effect": "write"}])
def test_a_project_only_tightens_unless_it_is_trusted(
    verdict: PermissionKind, trusts: bool, expected: PermissionKind, more: dict[str, str]
) -> None:
    """A repository must not grant itself rights."""
    given = rule(verdict, source="project", **more)
    assert kind(on_path("write", "src/a.py", write=True), given, trusts=trusts) == expected


@pytest.mark.parametrize(
    ("line", "denied", "expected"),
    [("rm x", "rm *", "deny"), ("/bin/rm x", "rm *", "deny"), ("rm ?X", "rm -f *", "ask")],
)
@pytest.mark.parametrize("source", ["default", "user", "session", "command line"])
def test_a_denial_wins_in_its_layer_whatever_the_order(
    line: str, denied: str, expected: PermissionKind, source: RuleSource
) -> None:
    """One file, or one policy. A word that is known only later may be the denied one: no rule beside it allows that."""
    rules = [
        rule("deny", "bash", command=denied, source=source),
        rule("allow", "bash", source=source),
        rule("allow", "bash", command="rm *", source=source),
        rule("allow", command="*", source=source),
    ]
    assert {kind(running(line), *order) for order in itertools.permutations(rules)} == {expected}
    with_ask = [rule("ask", "bash", source=source), *rules]
    assert {kind(running(line), *order) for order in itertools.permutations(with_ask)} == {expected}


def test_a_project_does_not_lift_what_the_user_denies() -> None:
    """Also for commands."""
    own, project = rule("deny", "bash", command="make *"), rule("allow", "bash", command="make", source="project")
    assert kind(running("make"), own, project) == "deny"
    assert kind(running("make"), own, project, trusts=True) == "allow"


@pytest.mark.promise("safe:named")
@each("given", [".env", "key.pem", "/etc/hosts"])
@each("general", [rule("allow"), rule("allow", effect="read"), rule("allow", path="**")])
def test_no_general_rule_opens_what_is_secret_or_outside(given: str, general: PermissionRule) -> None:
    """`--allow read` is not meant for keys."""
    assert kind(on_path("read", given), general) == "ask"


@pytest.mark.parametrize(
    ("given", "pattern"),
    [
        (".env", ".env"),
        (".env", "**/.env"),
        ("key.pem", "*.pem"),
        ("/etc/hosts", "/etc/hosts"),
        ("/etc/x/y", "/etc/**"),
    ],
)
def test_a_rule_that_names_them_opens_them(given: str, pattern: str) -> None:
    """Somebody has meant it."""
    assert kind(on_path("read", given), rule("allow", path=pattern)) == "allow"


@pytest.mark.parametrize(
    "given",
    ["turnwise.toml", "pyproject.toml", ".git/hooks/pre-commit", ".bashrc", "sub/.husky/x", "~/.config/turnwise/x"],
)
def test_writing_what_other_programs_obey_is_asked_about(given: str) -> None:
    """Also where writing is allowed in general."""
    facts = on_path("write", given.replace("~", HOME), write=True)
    assert kind(facts, rule("allow", effect="write"), rule("allow", path="~/**")) == "ask"


@pytest.mark.parametrize("attended", [True, False])
@pytest.mark.parametrize("unattended", ["allow", "deny"])
def test_an_ask_without_anybody_is_decided_at_once(attended: bool, unattended: Literal["allow", "deny"]) -> None:
    """Promise wait:ask; the reason says that nobody was there."""
    verdict = judge_permission(running("make"), policy=policy(attended=attended, unattended=unattended))
    if attended:
        assert verdict == PermissionVerdict(kind="ask", why="to run `make`", subject="make")
    else:
        assert verdict.kind == unattended
        assert verdict.why.startswith("to run `make`; ")


def test_what_destroys_is_denied_unattended_even_where_asks_are_allowed() -> None:
    """Unless a rule spells the command out."""
    facts, free = running("rm -rf build"), rule("allow", effect="execute")
    assert judge_permission(facts, policy=policy(free, attended=False, unattended="allow")).kind == "deny"
    spelt = rule("allow", "bash", command="rm -rf build")
    assert judge_permission(facts, policy=policy(free, spelt, attended=False)).kind == "allow"


@each(
    ("line", "pattern", "expected"),
    [
        ("npm test", "npm test", "allow"),
        ("npm test", "npm test *", "allow"),
        ("npm test -- x", "npm test *", "allow"),
        ("npm test x", "npm test", "ask"),
        ("npm tests", "npm test *", "ask"),
        ("./npm test", "npm test", "ask"),
        ("npm --prefix x test", "npm test", "ask"),
        ("npm ?x", "npm test", "ask"),
        ("npm test ?x", "npm test *", "allow"),
        ("?x test", "npm test", "ask"),
    ],
)
def test_a_permission_is_matched_word_for_word(line: str, pattern: str, expected: PermissionKind) -> None:
    """What it does not show is not allowed by it."""
    assert kind(running(line), rule("allow", "bash", command=pattern)) == expected


@each(
    ("line", "pattern", "expected"),
    [
        ("npm publish", "npm publish", "deny"),
        ("npm publish --now", "npm publish", "deny"),
        ("npm --quiet publish", "npm publish *", "deny"),
        ("npm --prefix x publish", "npm publish", "deny"),
        ("/usr/bin/npm publish", "npm publish", "deny"),
        ("NPM publish", "npm publish", "deny"),
        ("npm ?x", "npm publish", "ask"),
        ("?x publish", "npm publish", "ask"),
        ("npm test", "npm publish", "allow"),
        ("npm --prefix x test publish", "npm publish", "allow"),
        ("npm --prefix --quiet x publish", "npm publish", "deny"),
        ("yarn publish", "npm publish", "allow"),
    ],
)
def test_a_prohibition_is_matched_widely(line: str, pattern: str, expected: PermissionKind) -> None:
    """What may be meant by it is at least asked about."""
    free = rule("allow", effect="execute")
    assert kind(running(line), free, rule("deny", "bash", command=pattern)) == expected


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(
    ("pattern", "expected"), [("cat *", "ask"), ("cat .env", "allow"), ("cat * *", "ask"), ("* .env", "ask")]
)
def test_a_permission_for_a_command_is_one_for_a_guarded_path_if_it_spells_the_path_out(
    pattern: str, expected: PermissionKind
) -> None:
    """The word at the place of a star may be anything, and nobody has thought of keys."""
    path = PathFact(given=".env", resolved=f"{WORK}/.env", lexical=f"{WORK}/.env", inside=True, access="read")
    words = (Word("cat"), Word(".env", paths=(path,)))
    shell = ShellFacts(commands=(CommandFact(words=words, text="cat .env"),))
    facts = CallFacts(call_id="1", tool="bash", effect="execute", shell=shell)
    assert kind(facts, rule("allow", "bash", command=pattern)) == expected


def test_always_for_this_session_allows_that_and_no_more() -> None:
    """Each part that was asked about becomes a rule; a part that cannot be known becomes none."""
    allowed = session_rules(running("make all", "true", "cp a b"), policy=policy())
    assert allowed == (
        PermissionRule(verdict="allow", tool="bash", command=("make", "all"), source="session"),
        PermissionRule(verdict="allow", tool="bash", command=("cp", "a", "b"), source="session"),
    )
    assert kind(running("cp a b", "make all"), *allowed) == "allow"
    assert kind(running("cp a c"), *allowed) == "ask"
    assert session_rules(running("make all", "cp ?x b"), policy=policy()) == ()


def test_always_holds_for_paths_and_tools_as_they_were_shown() -> None:
    """A star in a file's name is that star."""
    facts = on_path("write", "a*.txt", write=True)
    allowed = session_rules(facts, policy=policy())
    assert kind(facts, *allowed) == "allow"
    assert kind(on_path("write", "ab.txt", write=True), *allowed) == "ask"
    assert kind(on_path("edit", "a*.txt", write=True), *allowed) == "ask"
    deploy = CallFacts(call_id="1", tool="deploy", effect="execute")
    assert kind(deploy, *session_rules(deploy, policy=policy())) == "allow"


@pytest.mark.parametrize("given", [rule("allow"), rule("allow", "bash"), rule("allow", effect="execute")])
def test_calls_that_nobody_looked_at_are_asked_about(given: PermissionRule) -> None:
    """Whatever is allowed; a prohibition of the tool holds."""
    facts = CallFacts(call_id="1", tool="bash", effect="execute", unknown="it was not looked at")
    assert judge_permission(facts, policy=policy(given)) == PermissionVerdict(
        kind="ask", why="`bash`: it was not looked at", subject="bash"
    )
    assert kind(facts, given, rule("deny", "bash")) == "deny"
    assert session_rules(facts, policy=policy(given)) == ()


def test_a_tool_that_runs_something_unknown_needs_a_rule_that_names_it() -> None:
    """`--allow execute` was said of commands that are looked at."""
    facts = CallFacts(call_id="1", tool="deploy", effect="execute")
    assert kind(facts, rule("allow", effect="execute")) == "ask"
    assert kind(facts, rule("allow", "deploy")) == "allow"


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "BASH_ENV", "GIT_DIR", "npm_config_x"])
def test_assignments_that_change_what_runs_are_asked_about(name: str) -> None:
    """Whatever is allowed: the words of a command no longer say what runs."""
    command = CommandFact(words=(Word("ls"),), text="x", assignments=(Assignment(name, "x"),))
    facts = CallFacts(call_id="1", tool="bash", effect="execute", shell=ShellFacts(commands=(command,)))
    assert kind(facts, rule("allow"), rule("allow", "bash", command="ls")) == "ask"


def test_a_shell_is_held_to_rules_about_paths() -> None:
    """A prohibition of reading or writing somewhere is one for commands as well."""
    path = PathFact(given="src/a.py", resolved=f"{WORK}/src/a.py", lexical=f"{WORK}/src/a.py", inside=True)
    command = CommandFact(words=(Word("cat"), Word("src/a.py", paths=(path,))), text="cat src/a.py")
    facts = CallFacts(call_id="1", tool="bash", effect="execute", shell=ShellFacts(commands=(command,)))
    assert kind(facts) == "allow"
    assert kind(facts, rule("deny", path="src/**")) == "deny"
    assert kind(facts, rule("deny", "read", path="src/**")) == "deny"
    assert kind(facts, rule("deny", "write", path="src/**")) == "allow"


@pytest.mark.promise("safe:bounded")
@pytest.mark.parametrize(
    ("lines", "rules", "expected"),
    [
        (("ls",), (), True),
        (("git log", "sort"), (rule("allow", tool="bash"),), True),
        (("git log", "sort"), (rule("allow", tool="*", effect="execute"),), True),
        (("git log", "sort"), (rule("allow", tool="bash", command="sort *"),), False),
        (("npm test",), (rule("allow", tool="bash"),), False),
        (("ls", "npm test"), (rule("allow", tool="bash", command="npm test"),), False),
        (("?x",), (), False),
    ],
)
def test_a_command_runs_unasked_where_no_rule_was_needed(
    lines: tuple[str, ...], rules: tuple[PermissionRule, ...], expected: bool
) -> None:
    """And where none names it: who wrote such a rule meant this command."""
    assert allowed_by_default(running(*lines), policy=policy(*rules)) is expected
