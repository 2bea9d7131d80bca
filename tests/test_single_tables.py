"""A fact stands once: no two lists of the permission rooms name the same things (promise safe:named).

Two lists of one thing drift apart, and the shorter one is the hole. So every literal list in these rooms is compared with every
other: tuples, sets, dictionaries, texts that are split at spaces, the alternatives of a regular expression.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnwise

SOURCE = Path(turnwise.__file__).parent
ROOMS = tuple(
    """rules/permission*.py rules/guarded_names.py rules/git_*.py rules/permission_facts.py rules/read_only_commands.py
    rules/permission_commands.py rules/allowances.py tools/shell_judge/*.py
    tools/sandbox/*.py tools/workspace/*.py base/programs.py base/unasked_files.py
    settings/permission_files.py base/private_folders.py endpoints/key_hiding.py
    coding_agent/hook_commands.py settings/settings.py agent/agent_setup.py agent/agent.py
    coding_agent/permissions.py coding_agent/asked_calls.py coding_agent/repository.py""".split()
)
FEWEST = 4  # names that two lists share, at least half of the shorter one ...
MOST = 8  # ... or so many
GRAMMAR = "tools/shell_judge/grammar.py:"  # one table of many parts, which a test compares with the grammar
# Lists that share names and say different things of them.
APART = {
    (
        "tools/shell_judge/call_facts.py:SHELLS_OWN",
        "tools/shell_judge/wrappers.py:EVALUATING",
    ): "what a shell has itself, so it is no program to look for",
    (
        "tools/shell_judge/call_facts.py:SHELLS_OWN",
        "tools/shell_judge/wrappers.py:_ONLY_IN_SHELL",
    ): "what a shell has itself, so it is no program to look for",
    (
        "tools/shell_judge/call_facts.py:SHELLS_OWN",
        "tools/shell_judge/wrappers.py:_BUILT_IN",
    ): "what a shell has itself, so it is no program to look for",
    (
        "tools/shell_judge/call_facts.py:SHELLS_OWN",
        "tools/shell_judge/wrappers.py:_INERT",
    ): "what a shell has itself, so it is no program to look for",
    ("tools/shell_judge/grammar.py:_WORDS", "tools/shell_judge/shell.py:_PLAIN_WORDS"): "which are text and no more",
    ("tools/shell_judge/grammar.py:TRANSPARENT", "tools/shell_judge/shell.py:_PLAIN_WORDS"): "which are text and no more",
    ("tools/workspace/previews.py:_PLANS", "tools/workspace/previews.py:_TAKES"): "what a plan is made from",
    ("rules/read_only_commands.py:_GREP", "rules/read_only_commands.py:_GREP_FLAGS"): "those without a value",
    ("rules/read_only_commands.py:READERS", "rules/read_only_commands.py:_GREP_FLAGS"): "those without a value",
    ("rules/read_only_commands.py:_FIND_VALUED", "rules/read_only_commands.py:_MATCHING"): "whose value is a pattern",
    (
        "rules/read_only_commands.py:_SCRIPT_RUNNERS",
        "tools/shell_judge/wrappers.py:_PACKAGERS",
    ): "which run a project's scripts",
    ("rules/git_commands.py:_SUBCOMMANDS", "rules/read_only_commands.py:_GIT_TEXTS"): "which words of theirs are text",
    ("rules/git_commands.py:_SHOWING", "rules/read_only_commands.py:_GIT_TEXTS"): "which words of theirs are text",
    ("rules/read_only_commands.py:_GIT", "rules/read_only_commands.py:_GIT_TEXTS"): "which words of theirs are text",
    (
        "tools/shell_judge/word_spelling.py:_SIMPLE",
        "endpoints/key_hiding.py:_SHORT",
    ): "escapes of JSON, in which a provider quotes a key",
    (
        "tools/shell_judge/grammar.py:TOKENS",
        "rules/permissions.py:_OPERATORS",
    ): "it is the grammar's own, by a test",
    (
        "tools/shell_judge/grammar.py:TOKENS",
        "tools/shell_judge/shell.py:_OPENING",
    ): "what a redirection does",
    (
        "tools/shell_judge/grammar.py:TOKENS",
        "tools/shell_judge/shell.py:INPUT",
    ): "what a redirection does",
    (
        "tools/shell_judge/grammar.py:TOKENS",
        "rules/permission_facts.py:RESERVED",
    ): "it is the grammar's own, by a test",
    (
        "tools/shell_judge/grammar.py:TOKENS",
        "rules/permission_facts.py:DECLARING",
    ): "it is the grammar's own, by a test",
    (
        "rules/permissions.py:_OPERATORS",
        "tools/shell_judge/shell.py:_OPENING",
    ): "what a rule cannot hold",
    (
        "rules/permissions.py:_OPERATORS",
        "tools/shell_judge/shell.py:INPUT",
    ): "what a rule cannot hold",
    ("tools/shell_judge/grammar.py:PARTS", "tools/shell_judge/shell.py:_CONDITIONAL"): "what may not run",
    (
        "tools/shell_judge/grammar.py:PARTS",
        "tools/shell_judge/shell.py:_evaluated",
    ): "what arithmetic reads",
    (
        "tools/shell_judge/grammar.py:_WORDS",
        "tools/shell_judge/word_spelling.py:is_quoted",
    ): "what stays one word",
    (
        "tools/shell_judge/wrappers.py:_BUILT_IN",
        "tools/shell_judge/wrappers.py:_ONLY_IN_SHELL",
    ): "what `time` cannot run",
    (
        "tools/shell_judge/wrappers.py:PREFIXES",
        "tools/shell_judge/wrappers.py:_ONLY_IN_SHELL",
    ): "what `time` cannot run",
    (
        "tools/shell_judge/grammar.py:TRANSPARENT",
        "tools/shell_judge/shell.py:_evaluated",
    ): "what arithmetic reads",
    (
        "rules/permission_facts.py:RESERVED",
        "tools/shell_judge/grammar.py:_KEYWORDS",
    ): "which may be other things, too",
    (
        "tools/shell_judge/grammar.py:_STATEMENTS",
        "tools/shell_judge/shell.py:_CONDITIONAL",
    ): "what may not run",
    (
        "tools/shell_judge/wrappers.py:_INERT",
        "rules/permission_commands.py:_WITH_WORD",
    ): "which do not run their words",
    (
        "tools/shell_judge/wrappers.py:_INERT",
        "rules/permission_commands.py:_WITH_OPTION",
    ): "which do not run their words",
    (
        "tools/shell_judge/wrappers.py:_INERT",
        "rules/read_only_commands.py:_ASKS_VERSION",
    ): "which do not run their words",
    (
        "tools/shell_judge/wrappers.py:_INERT",
        "rules/permission_commands.py:WRITING",
    ): "which do not run their words",
    ("rules/read_only_commands.py:READERS", "rules/read_only_commands.py:_GREP"): "options of several commands",
    ("rules/read_only_commands.py:_GIT", "rules/read_only_commands.py:_LOG"): "options of several commands",
    ("rules/git_commands.py:_SUBCOMMANDS", "rules/git_commands.py:_HARMS"): "how one destroys",
    ("rules/git_commands.py:_SUBCOMMANDS", "rules/git_commands.py:_ALWAYS"): "which destroy however they are called",
    ("rules/git_commands.py:_SUBCOMMANDS", "rules/git_commands.py:_SHOWING"): "which only show",
    ("rules/git_commands.py:_SUBCOMMANDS", "rules/read_only_commands.py:_GIT"): "with which options they only read",
    (
        "rules/git_commands.py:_SUBCOMMANDS",
        "rules/permission_commands.py:_GIT_LETTERS",
    ): "with which options they write",
    (
        "rules/git_commands.py:_SHOWING",
        "rules/read_only_commands.py:_GIT",
    ): "of these some can destroy, with other options",
    ("rules/read_only_commands.py:READERS", "tools/shell_judge/wrappers.py:_BUILT_IN"): "which are no programs",
    (
        "rules/read_only_commands.py:READERS",
        "rules/permission_facts.py:IDLE_PROGRAMS",
    ): "what does nothing in a pager's place",
    ("rules/permission_commands.py:WRITING", "rules/read_only_commands.py:_ASKS_VERSION"): "which say their version",
    ("rules/guarded_names.py:_TEMPLATE", "rules/guarded_names.py:_SETTINGS"): "which endings a template has",
    ("rules/guarded_names.py:SECRET_NAMES", "rules/guarded_names.py:_TELLING"): "a name, and a part of a name",
    (
        "tools/sandbox/seccomp.py:_NUMBERS",
        "tools/sandbox/seccomp.py:_NOT_APART",
    ): "which calls are refused",
    ("tools/sandbox/seccomp.py:_NUMBERS", "tools/sandbox/seccomp.py:_ALWAYS"): "which calls are refused",
    ("tools/sandbox/seccomp.py:_NUMBERS", "tools/sandbox/seccomp.py:_SIGNALS"): "which calls are signals",
}  # fmt: skip
Table = frozenset[str]
_NAME = re.compile(r"[\w.*:-]+")


def _names(node: ast.AST, *, in_prose: bool = False) -> Iterator[Table]:
    """Every list of names that is spelled out below the node, in small letters. `in_prose`: texts there may be sentences."""
    match node:
        case ast.Subscript(value=ast.Name(id="Literal")) | ast.Expr(value=ast.Constant()):
            return  # a type, which is compared where it is used; a docstring
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
            yield frozenset(text.casefold().split())
        case ast.Constant(value=str(text)) if "|" in text:
            words = re.split(r"[\s|()?:]+", text.casefold())
            yield frozenset([word for word in words if _NAME.fullmatch(word)])
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            yield frozenset([text.casefold() for one in elements if (text := _text(one)) is not None])
        case ast.Dict(keys=keys, values=values):
            yield frozenset([text.casefold() for one in keys if one and (text := _text(one)) is not None])
            yield _joined(keys, values)
        case ast.Constant(value=str(text)) if not in_prose and all(map(_NAME.fullmatch, text.split())):
            yield frozenset(text.casefold().split())  # whatever splits it later
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _names(child, in_prose=in_prose)


def _joined(keys: list[ast.expr | None], values: list[ast.expr]) -> Table:
    """What a table in two steps names: of `{"core": "bare eol"}` the names `core.bare` and `core.eol`."""
    found: set[str] = set()
    for key, value in zip(keys, values, strict=True):
        first = (_text(key) if key is not None else None) or ""
        text = _text(value)
        lists = [frozenset(text.casefold().split())] if text is not None else list(_names(value))
        found |= {f"{part.casefold()}.{name}" for part in first.split()[:1] for one in lists for name in one}
    return frozenset(found)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def tables(sources: dict[str, str]) -> list[tuple[str, Table]]:
    """The lists of each file, with the name that they have there or that of their function."""
    found: list[tuple[str, Table]] = []
    for path, source in sources.items():
        for node in ast.parse(source).body:
            named = [node] if not isinstance(node, ast.ClassDef) else node.body
            for one in named:
                lists = set(_names(one, in_prose=not isinstance(one, ast.Assign | ast.AnnAssign)))
                found += [(f"{path}:{_named(one)}", names) for names in lists if len(names) >= FEWEST]
    return found


def _named(node: ast.stmt) -> str:
    match node:
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case _:
            return str(node.lineno)


def second_lists(sources: dict[str, str]) -> dict[frozenset[str], Table]:
    """Which two of them share too much, and what."""
    found: dict[frozenset[str], Table] = {}
    for (first, names), (second, others) in itertools.combinations(tables(sources), 2):
        pair, shared = frozenset({first, second}), names & others
        much = len(shared) >= MOST or (len(shared) >= FEWEST and 2 * len(shared) >= min(len(names), len(others)))
        if first == second or all(name.startswith(GRAMMAR) for name in pair):
            continue
        if much and len(shared) > len(found.get(pair, ())):
            found[pair] = shared
    return found


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    paths = sorted({path for room in ROOMS for path in SOURCE.glob(room)})
    assert all(list(SOURCE.glob(room)) for room in ROOMS), "a room has moved"
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.promise("safe:named")
def test_no_two_lists_name_the_same_things(sources: dict[str, str]) -> None:
    """Issue 13, "Done when" 3. What shares names and says something else of them is listed above, with what that is."""
    found = second_lists(sources)
    apart = {frozenset(pair) for pair in APART}
    assert {tuple(pair): sorted(names) for pair, names in found.items() if pair not in apart} == {}
    assert apart <= set(found), "these no longer share names"


# What stood there before, in short: the settings of git and the idle programs twice, reserved words three times.
BEFORE = {
    "settings in two steps": (
        '_A = frozenset("user.name core.eol core.bare push.default gc.auto".split())',
        '_B = {"user": "name email", "core": "eol bare", "push": "default"}',
    ),
    "a subset": ('_A = frozenset({"", "true", "false", ":", "cat"})', '_B = frozenset({"", "cat", "true", ":"})'),
    "in a function": (
        'READS = ("cat", "head", "tail", "less", "wc", "nl")',
        'def f(x):\n    return x in ["cat", "Head", "tail", "less"]',
    ),
    "a regular expression": ('_A = re.compile(r"(?:PATH|IFS|ENV|SHELL)=.*")', '_B = {"path": 1, "ifs": 2, "env": 3, "shell": 4}'),
    "in a class": ('_A = "a.x b.x c.x d.x".split()', 'class C:\n    names = {"a.x", "b.x", "c.x", "d.x"}'),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_a_second_list_is_found_in_every_form(name: str) -> None:
    """The judge of the judge: the test that stood here before found none of these."""
    first, second = BEFORE[name]
    assert len(second_lists({"one.py": first, "two.py": second})) == 1
