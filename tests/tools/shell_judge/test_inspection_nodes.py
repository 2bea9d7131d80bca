"""The judge names every kind of node and every field of the grammar; what it does not name is asked about."""

import itertools
from pathlib import Path

import pytest
import tree_sitter_bash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tree_sitter import Language

from everyday import SHELL_ALLOWED, make_project, verdict_on
from tables import each
from thoroughness import examples
from turnwise.rules.permissions import RANK, PermissionRule
from turnwise.tools.shell_judge.grammar import LEAVES, NO_FIELD, PARTS, TOKENS, misfit, parse

LANGUAGE = Language(tree_sitter_bash.language())
KINDS = [number for number in range(LANGUAGE.node_kind_count) if LANGUAGE.node_kind_is_visible(number)]
NAMED = {LANGUAGE.node_kind_for_id(number) for number in KINDS if LANGUAGE.node_kind_is_named(number)}
MARKS = {LANGUAGE.node_kind_for_id(number) for number in KINDS if not LANGUAGE.node_kind_is_named(number)} - {"end"}
# The grammar has them, bash does not, or has them for something else: a script that holds one is asked about.
NOT_UNDERSTOOD = {"$`", "unsetenv"}
FIELDS = {LANGUAGE.field_name_for_id(number) for number in range(1, LANGUAGE.field_count + 1)}


@pytest.mark.promise("safe:judged")
def test_every_kind_and_field_of_the_installed_grammar_is_named() -> None:
    """Issue 13, line 1: a kind or field that an update of the grammar brings or drops is found here."""
    assert set(PARTS) | LEAVES == NAMED
    assert not set(PARTS) & LEAVES
    assert TOKENS | NOT_UNDERSTOOD == MARKS
    assert {field for parts in PARTS.values() for field in parts} - {NO_FIELD} == FIELDS


def test_every_kind_that_may_stand_in_a_field_is_a_kind_of_the_grammar() -> None:
    """A misspelt kind would allow nothing, and nobody would see it."""
    used = {kind for parts in PARTS.values() for part in parts.values() for kind in part.kinds}
    assert used <= NAMED | MARKS


EXAMPLES = {
    "alternative": "echo $((1 ? 2 : 3))",
    "argument": "ls src",
    "body": "for i in 1; do ls; done",
    "condition": "if ls; then ls; fi",
    "consequence": "echo $((1 ? 2 : 3))",
    "descriptor": "ls 2>/dev/null",
    "destination": "ls >/dev/null",
    "fallthrough": "case a in a) ls;& b) ls;; esac",
    "index": "a[1]=2",
    "initializer": "for ((i=0; i<1; i++)); do ls; done",
    "left": "[[ a == b ]]",
    "name": "ls",
    "operator": "[[ a == b ]]",
    "redirect": "ls >/dev/null",
    "right": "[[ a == b ]]",
    "termination": "case a in a) ls;; b) ls;; esac",
    "update": "for ((i=0; i<1; i++)); do ls; done",
    "value": "A=1",
    "variable": "for i in 1; do ls; done",
}


NESTING = [
    "while {}; do {}; done; {{ {}; }}; ({}); if a; then b; elif c; then d; else e; fi",
    "case a in a) {};; esac; f() {{ {}; }}; ! {} | {}; declare a=1; unset a; a=1 b=2; a=(1 2); x[1]=2",
    'cat <<E\n$a ${{b}} $({})\nE\ncat <<<x; cat <({}); echo a$b"c $d" $\'e\' $"f" {{1..3}}',
    'ls && ls; A=$"f"',
    "echo $((a + -b * (c++) ? 1 : 2)); [[ -f a && a == b ]]; [[ a =~ b ]]",
]


@pytest.mark.promise("safe:judged")
@each("field", sorted(FIELDS))
def test_a_field_that_the_table_does_not_name_is_not_understood(field: str) -> None:
    """As if the field had come with an update of the grammar."""
    root, problem = parse(EXAMPLES[field])
    table = {kind: {name: part for name, part in parts.items() if name != field} for kind, parts in PARTS.items()}
    assert (problem, misfit(root)) == ("", "")
    assert field in misfit(root, table=table)


@pytest.mark.promise("safe:judged")
@each("kind", sorted(PARTS))
def test_a_kind_that_the_table_does_not_name_is_not_understood(kind: str) -> None:
    """As if the kind had come with an update of the grammar; also one deep in others."""
    scripts = [*EXAMPLES.values(), *(template.format("ls", "ls", "ls", "ls") for template in NESTING)]
    roots = [root for root, _ in map(parse, scripts) if f"({kind}" in str(root)]
    assert roots, f"no example has `{kind}`"
    table = {name: parts for name, parts in PARTS.items() if name != kind}
    assert all(misfit(root, table=table) for root in roots)


# Kinds of the grammar that the table does not name, bare and deep in what it names.
UNNAMED = [
    "unsetenv A",
    'echo "$`ls`"',
    "if ls; then (unsetenv A); fi",
    "f() { unsetenv A; }; ls",
    'cat <(echo "$`ls`")',
]


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize("command", UNNAMED)
def test_what_the_table_does_not_name_asks_whatever_is_allowed(command: str, tmp_path: Path) -> None:
    """From the promise: what the judge does not know asks. Where nobody is there it is denied, also if asks are allowed then."""
    project = make_project(tmp_path.resolve())
    every = (*SHELL_ALLOWED, PermissionRule(verdict="allow", tool="bash"))
    named = (*every, PermissionRule(verdict="allow", tool="bash", command=("*",)))
    assert {verdict_on(command, project=project, rules=rules) for rules in ((), SHELL_ALLOWED, every, named)} == {"ask"}
    assert verdict_on(command, project=project, rules=named, attended=False) == "deny"


WORDS = [
    "cat notes.txt",
    "cat .env",
    "cat notes.txt .env",
    "sort -o out.txt notes.txt",
    "find . -exec touch x ;",
    "find . -delete",
    "git push origin",
    "git reset --hard",
    "rm -rf src",
    "env curl x",
    "timeout 5 touch x",
    "cd .. -P",
    "grep -r KEY .",
    "bash -c ls",
    "bash run.sh",
]
REDIRECTS = [
    "</dev/null",
    "< /dev/null",
    "2>/dev/null",
    ">/dev/null",
    "2>&1",
    ">&2",
    "<&-",
    "2>&-",
    "<notes.txt",
    "<<<x",
]
DENIED = tuple(PermissionRule(verdict="deny", tool="bash", command=(name, "*")) for name in ("git", "curl", "rm", "cd"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("redirected").resolve())


@pytest.mark.costly
@pytest.mark.promise("safe:judged")
@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    command=st.sampled_from(WORDS),
    places=st.lists(st.tuples(st.integers(0, 6), st.sampled_from(REDIRECTS)), min_size=1, max_size=3),
    before=st.sampled_from(["", "ls && ", "ls | ", "! ", "ls; "]),
)
def test_a_redirection_between_the_words_loosens_no_verdict(
    project: Path, command: str, places: list[tuple[int, str]], before: str
) -> None:
    """Issue 13, line 1: bash takes the words behind a redirection for arguments, and so does the judge."""
    words = [word.replace(";", r"\;") for word in command.split()]
    plain = before + " ".join(words)
    for place, redirect in places:
        words.insert(min(place, len(words)), redirect)
    redirected = before + " ".join(words)
    for rules, attended in itertools.product([(), SHELL_ALLOWED, (*SHELL_ALLOWED, *DENIED)], [True, False]):
        found = verdict_on(redirected, project=project, rules=rules, attended=attended)
        assert RANK[found] >= RANK[verdict_on(plain, project=project, rules=rules, attended=attended)], redirected
